//! Packets of a few connections, for the tests of composed entries.

use proptest::prelude::*;
use sluice_packet::headers::ip_proto;

/// Connections.
pub const CONNECTIONS: u8 = 5;

/// A packet of a connection.
#[derive(Clone, Debug)]
pub struct Offered {
    pub connection: u8,
    pub reply: bool,
    /// TCP flags; `None` for UDP.
    pub tcp: Option<u8>,
    /// The sequence number is far outside the window.
    pub wild: bool,
    /// What else may be wrong or different about it.
    pub twist: u8,
    /// A reply to connection 3, to its client's translated address.
    pub translated: bool,
}

impl Offered {
    /// Its port and bytes. `tag` identifies the packet.
    pub fn frame(&self, tag: u16) -> (usize, Vec<u8>) {
        let is_translated = self.translated && self.reply && self.connection == 3;
        let client = if is_translated { [10, 9, 9, 9] } else { [10, 0, 0, self.connection] };
        let server = [20, 0, 0, 1];
        let (src, dst) = if self.reply { (server, client) } else { (client, server) };
        let (sport, dport) = (1000 + u16::from(self.connection), 80);
        let (sport, dport) = if self.reply { (dport, sport) } else { (sport, dport) };
        let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        if self.twist == 1 {
            bytes.extend([0x81, 0, 0, 5]);
        }
        let (l4_size, proto) = if self.tcp.is_some() { (20, ip_proto::TCP) } else { (8, ip_proto::UDP) };
        let (total, tos) = ((20 + l4_size + 2) as u16, if self.twist == 2 { 32 } else { 0 });
        let mut ip = vec![0x45, tos, 0, total as u8];
        ip.extend(tag.to_be_bytes());
        ip.extend([if self.twist == 3 { 0x20 } else { 0 }, 0, 64, proto, 0, 0]);
        ip.extend(src);
        ip.extend(dst);
        let sum = sluice_packet::checksum::internet(&ip) ^ u16::from(self.twist == 4);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes.extend([8, 0]);
        bytes.extend(&ip);
        bytes.extend([sport.to_be_bytes(), dport.to_be_bytes()].concat());
        match self.tcp {
            Some(flags) => {
                let seq = if self.wild { 0x7000_0000 } else { 100u32 };
                bytes.extend([seq.to_be_bytes(), 100u32.to_be_bytes()].concat());
                bytes.extend([0x50, flags, 0x10, 0, 0, 0, 0, 0]);
                bytes.extend(tag.to_be_bytes());
                let (l4, at) = (bytes.len() - 22, bytes.len() - 6);
                let pseudo = sluice_packet::checksum::pseudo_v4(src, dst, 6, 22);
                let sum = sluice_packet::checksum::finish(pseudo + sluice_packet::checksum::sum(&bytes[l4..]));
                bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
            }
            None => {
                bytes.extend([0, if self.twist == 5 { 40 } else { 10 }, 0, 0]);
                bytes.extend(tag.to_be_bytes());
            }
        }
        bytes.resize(60 + usize::from(self.twist == 6), 0);
        (usize::from(self.reply), bytes)
    }
}

/// Mostly segments of live connections.
pub fn offered() -> impl Strategy<Value = Offered> {
    let flags = prop_oneof![8 => Just(0x10u8), 3 => Just(0x18), 2 => Just(0x02), 1 => Just(0x12), 1 => Just(0x11), 1 => Just(0x14)];
    let tcp = prop_oneof![2 => Just(None), 1 => flags.prop_map(Some)];
    let twist = prop_oneof![12 => Just(0u8), 1 => 1..7u8];
    (0..CONNECTIONS, any::<bool>(), tcp, prop::bool::weighted(0.05), twist, any::<bool>()).prop_map(
        |(connection, reply, tcp, wild, twist, translated)| Offered { connection, reply, tcp, wild, twist, translated },
    )
}

/// An ordinary packet of a connection.
pub fn packet(connection: u8, reply: bool, tcp: Option<u8>) -> Offered {
    Offered { connection, reply, tcp, wild: false, twist: 0, translated: false }
}
