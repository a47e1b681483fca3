//! Packets of a few connections, for the tests of composed entries.

use proptest::prelude::*;
use sluice_packet::checksum;
use sluice_packet::headers::ip_proto;
use sluice_simd::HashKey;
use sluice_simd::hash::splitmix64;

/// Connections.
pub const CONNECTIONS: u8 = 5;

/// A packet of a connection.
#[derive(Clone, Debug)]
pub struct Offered {
    pub connection: u8,
    /// By IPv6.
    pub v6: bool,
    pub reply: bool,
    /// TCP flags; `None` for UDP.
    pub tcp: Option<u8>,
    /// The sequence number is far outside the window.
    pub wild: bool,
    /// What else may be wrong or different about it; 8: if it is a reply, it comes by the client's port;
    /// 9: a reply to connection 3 is from its server's translated address, too; 10: with IPv4 options or an IPv6 routing header.
    pub twist: u8,
    /// A reply to connection 3, to its client's translated address; or of connection 4, from its server's.
    pub translated: bool,
}

/// The seed of the switches. Of the IPv6 connections 2n and 2n+1 the clients' packets then have one hash.
pub const SEED: u64 = 1;

/// The server's IPv6 address, and what clients' and servers' addresses are translated to.
const SERVER: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const TRANSLATED: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x99];
const TRANSLATED_SERVER: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
/// The servers' port, and what it is translated to.
const PORT: u16 = 80;
const TRANSLATED_PORT: u16 = 8080;

/// The IPv6 address of a connection's client. The hash multiplies the halves of a word after it has added to them, so what
/// is then the same with the halves exchanged has the same hash.
fn client_v6(connection: u8) -> [u8; 16] {
    let mut seed = SEED;
    let addends = HashKey::from_seed(splitmix64(&mut seed)).addends_of_line(1)[1];
    let (x, y) = (0x1234_5678 + u32::from(connection / 2), 0x9abc_def1);
    let (low, high) = if connection.is_multiple_of(2) { (x, y) } else { (y, x) };
    let (low, high) = (low.wrapping_sub(addends as u32), high.wrapping_sub((addends >> 32) as u32));
    let mut address = SERVER;
    address[8..12].copy_from_slice(&low.to_le_bytes());
    address[12..].copy_from_slice(&high.to_le_bytes());
    address
}

impl Offered {
    /// Its port and bytes. `tag` identifies the packet.
    pub fn frame(&self, tag: u16) -> (usize, Vec<u8>) {
        let port = 1000 + u16::from(if self.v6 { self.connection / 2 } else { self.connection });
        let server_port = if self.is_from_translated_server() { TRANSLATED_PORT } else { PORT };
        let (sport, dport) = if self.reply { (server_port, port) } else { (port, server_port) };
        let proto = if self.tcp.is_some() { ip_proto::TCP } else { ip_proto::UDP };
        let mut l4 = [sport.to_be_bytes(), dport.to_be_bytes()].concat();
        match self.tcp {
            Some(flags) => {
                let seq = if self.wild { 0x7000_0000 } else { 100u32 };
                l4.extend([seq.to_be_bytes(), 100u32.to_be_bytes()].concat());
                l4.extend([0x50, flags, 0x10, 0, 0, 0, 0, 0]);
            }
            None => l4.extend([0, if self.twist == 5 { 40 } else { 10 }, 0, 0]),
        }
        l4.extend(tag.to_be_bytes());
        let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        if self.twist == 1 {
            bytes.extend([0x81, 0, 0, 5]);
        }
        if self.v6 {
            let client = if self.is_to_translated_client() { TRANSLATED } else { client_v6(self.connection) };
            self.add_ipv6(&mut bytes, client, proto, l4);
        } else {
            let client = if self.is_to_translated_client() { [10, 9, 9, 9] } else { [10, 0, 0, self.connection] };
            self.add_ipv4(&mut bytes, client, proto, l4, tag);
        }
        bytes.resize(bytes.len().max(60 + usize::from(self.twist == 6)), 0);
        (usize::from(self.reply && self.twist != 8), bytes)
    }

    fn is_to_translated_client(&self) -> bool {
        self.translated && self.reply && self.connection == 3
    }

    fn is_from_translated_server(&self) -> bool {
        let is_translated = self.connection == 4 || self.connection == 3 && self.twist == 9;
        self.translated && self.reply && is_translated
    }

    fn add_ipv4(&self, bytes: &mut Vec<u8>, client: [u8; 4], proto: u8, mut l4: Vec<u8>, tag: u16) {
        let server = if self.is_from_translated_server() { [20, 0, 0, 7] } else { [20, 0, 0, 1] };
        let (src, dst) = if self.reply { (server, client) } else { (client, server) };
        let options = if self.twist == 10 { [1; 4].as_slice() } else { &[] };
        let (total, tos) = ((20 + options.len() + l4.len()) as u8, if self.twist == 2 { 32 } else { 0 });
        let mut ip = vec![0x45 + options.len() as u8 / 4, tos, 0, total];
        ip.extend(tag.to_be_bytes());
        ip.extend([if self.twist == 3 { 0x20 } else { 0 }, 0, 64, proto, 0, 0]);
        ip.extend(src);
        ip.extend(dst);
        ip.extend(options);
        let sum = checksum::internet(&ip) ^ u16::from(self.twist == 4);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        if proto == ip_proto::TCP {
            put_sum(&mut l4, 16, checksum::pseudo_v4(src, dst, proto, 22));
        }
        bytes.extend([8, 0]);
        bytes.extend(ip);
        bytes.extend(l4);
    }

    fn add_ipv6(&self, bytes: &mut Vec<u8>, client: [u8; 16], proto: u8, mut l4: Vec<u8>) {
        let server = if self.is_from_translated_server() { TRANSLATED_SERVER } else { SERVER };
        let (src, dst) = if self.reply { (server, client) } else { (client, server) };
        let at = if proto == ip_proto::TCP { 16 } else { 6 };
        let pseudo = checksum::pseudo_v6(src, dst, proto, l4.len() as u32);
        put_sum(&mut l4, at, pseudo + u64::from(self.twist == 4));
        let (mut next, mut extension) = (proto, Vec::new());
        if self.twist == 3 {
            // A first fragment.
            extension = vec![next, 0, 0, 1, 0, 0, 0, 7];
            next = ip_proto::FRAGMENT;
        }
        if self.twist == 10 {
            // By way of another host.
            extension = [&[next, 2, 0, 1, 0, 0, 0, 0][..], &SERVER].concat();
            next = ip_proto::ROUTING;
        }
        bytes.extend([
            0x86,
            0xdd,
            if self.twist == 2 { 0x62 } else { 0x60 },
            0,
            0,
            if self.twist == 7 { 5 } else { 0 },
        ]);
        bytes.extend([0, (extension.len() + l4.len()) as u8, next, 64]);
        bytes.extend(src);
        bytes.extend(dst);
        bytes.extend(extension);
        bytes.extend(l4);
    }
}

/// Writes the checksum at `at` of what is all zero there.
fn put_sum(l4: &mut [u8], at: usize, pseudo: u64) {
    let sum = checksum::finish(pseudo + checksum::sum(l4));
    l4[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Mostly segments of live connections.
pub fn offered() -> impl Strategy<Value = Offered> {
    let flags = prop_oneof![8 => Just(0x10u8), 3 => Just(0x18), 2 => Just(0x02), 1 => Just(0x12), 1 => Just(0x11), 1 => Just(0x14)];
    let tcp = prop_oneof![2 => Just(None), 1 => flags.prop_map(Some)];
    let twist = prop_oneof![12 => Just(0u8), 1 => 1..11u8];
    let flow = (0..CONNECTIONS, prop::bool::weighted(0.3), any::<bool>());
    (flow, tcp, prop::bool::weighted(0.05), twist, any::<bool>()).prop_map(
        |((connection, v6, reply), tcp, wild, twist, translated)| Offered {
            connection,
            v6,
            reply,
            tcp,
            wild,
            twist,
            translated,
        },
    )
}

/// An ordinary packet of a connection.
pub fn packet(connection: u8, reply: bool, tcp: Option<u8>) -> Offered {
    Offered { connection, v6: false, reply, tcp, wild: false, twist: 0, translated: false }
}
