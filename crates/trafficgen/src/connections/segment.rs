//! The segments of a short TCP connection, as TCP_CRR of netperf sends them: connect, request, response, close.

use sluice_packet::checksum;

/// The sender of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The side that connects.
    Client,
    /// The side that answers.
    Server,
}

/// A segment of the script.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Who sends it.
    pub from: Side,
    flags: u8,
    /// Sequence and acknowledgement number, relative to the first of each side; 0 if there is none yet.
    seq: u32,
    ack: u32,
    /// Bytes of payload.
    payload: usize,
}

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

const fn client(flags: u8, seq: u32, ack: u32, payload: usize) -> Segment {
    Segment { from: Side::Client, flags, seq, ack, payload }
}

const fn server(flags: u8, seq: u32, ack: u32, payload: usize) -> Segment {
    Segment { from: Side::Server, flags, seq, ack, payload }
}

/// A connection: six segments from the client, five from the server, one byte each way. Each segment follows the
/// arrival of its predecessor, unless both have the same sender.
pub const SCRIPT: [Segment; 11] = [
    client(SYN, 0, 0, 0),
    server(SYN | ACK, 0, 1, 0),
    client(ACK, 1, 1, 0),
    client(PSH | ACK, 1, 1, 1),
    server(ACK, 1, 2, 0),
    server(PSH | ACK, 1, 2, 1),
    client(ACK, 2, 2, 0),
    client(FIN | ACK, 2, 2, 0),
    server(ACK, 2, 3, 0),
    server(FIN | ACK, 2, 3, 0),
    client(ACK, 3, 3, 0),
];

/// Bytes of every frame: the shortest possible, of which segments use 54 or 55.
pub const FRAME_SIZE: usize = 60;

/// The client's ports: those without well-known services.
const FIRST_PORT: u16 = 1024;
const PORTS: u32 = 60_000;
const SERVER_PORT: u16 = 12_865;
const FIRST_CLIENT: u32 = 0x0a00_0001;
const SERVER: u32 = 0xc0a8_0001;
const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const ETHERNET: usize = 14;
const IPV4: usize = 20;
const TCP: usize = 20;
const TCP_AT: usize = ETHERNET + IPV4;

/// Addresses and ports of a connection's client, unique among 2^24 times 60 000 connections.
fn client_of(connection: u64) -> ([u8; 4], u16) {
    let address = FIRST_CLIENT + (connection / u64::from(PORTS) % (1 << 24)) as u32;
    (address.to_be_bytes(), FIRST_PORT + (connection % u64::from(PORTS)) as u16)
}

/// The first sequence number of a side.
fn first_sequence(connection: u64, side: Side) -> u32 {
    (connection as u32).wrapping_mul(0x9e37_79b1).wrapping_add((side as u32) << 30)
}

/// Writes segment `step` of a connection; `frame` has [`FRAME_SIZE`] bytes.
pub fn write(connection: u64, step: usize, frame: &mut [u8]) {
    let segment = &SCRIPT[step];
    let (client, port) = client_of(connection);
    let server = (SERVER.to_be_bytes(), SERVER_PORT);
    let (to, from, dst_mac, src_mac, other) = match segment.from {
        Side::Client => (server, (client, port), SERVER_MAC, CLIENT_MAC, Side::Server),
        Side::Server => ((client, port), server, CLIENT_MAC, SERVER_MAC, Side::Client),
    };
    frame.fill(0);
    frame[..6].copy_from_slice(&dst_mac);
    frame[6..12].copy_from_slice(&src_mac);
    frame[12] = 8;
    let tcp_len = TCP + segment.payload;
    let ip = &mut frame[ETHERNET..TCP_AT];
    (ip[0], ip[6], ip[8], ip[9]) = (0x45, 0x40, 64, 6);
    ip[2..4].copy_from_slice(&((IPV4 + tcp_len) as u16).to_be_bytes());
    ip[12..16].copy_from_slice(&from.0);
    ip[16..20].copy_from_slice(&to.0);
    let sum = checksum::internet(ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let tcp = &mut frame[TCP_AT..TCP_AT + tcp_len];
    tcp[..2].copy_from_slice(&from.1.to_be_bytes());
    tcp[2..4].copy_from_slice(&to.1.to_be_bytes());
    tcp[4..8].copy_from_slice(&first_sequence(connection, segment.from).wrapping_add(segment.seq).to_be_bytes());
    if segment.flags & ACK != 0 {
        tcp[8..12].copy_from_slice(&first_sequence(connection, other).wrapping_add(segment.ack).to_be_bytes());
    }
    (tcp[12], tcp[13], tcp[14]) = (0x50, segment.flags, 0x04);
    let sum = checksum::pseudo_v4(from.0, to.0, 6, tcp_len as u16) + checksum::sum(tcp);
    tcp[16..18].copy_from_slice(&checksum::finish(sum).to_be_bytes());
}

/// The part of a received frame that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its connection's number, modulo 2^24 times 60 000.
    pub connection: u64,
    flags: u8,
    seq: u32,
}

/// Reads a frame that arrived at `side`; `None` if it is no segment of such a connection.
pub fn read(frame: &[u8], side: Side) -> Option<Seen> {
    let tcp = frame.get(TCP_AT..TCP_AT + TCP)?;
    if frame[12..14] != [8, 0] || frame[ETHERNET] != 0x45 || frame[ETHERNET + 9] != 6 {
        return None;
    }
    let (address_at, port_at) = match side {
        Side::Server => (ETHERNET + 12, 0),
        Side::Client => (ETHERNET + 16, 2),
    };
    let address = u32::from_be_bytes(*frame[address_at..].first_chunk()?);
    let port = u16::from_be_bytes(*tcp[port_at..].first_chunk()?);
    let above = (address.checked_sub(FIRST_CLIENT)?, u32::from(port.checked_sub(FIRST_PORT)?));
    if above.1 >= PORTS {
        return None;
    }
    let connection = u64::from(above.0) * u64::from(PORTS) + u64::from(above.1);
    Some(Seen { connection, flags: tcp[13], seq: u32::from_be_bytes(*tcp[4..].first_chunk()?) })
}

impl Seen {
    /// Whether it is segment `step` of that connection.
    pub fn is(&self, connection: u64, step: usize) -> bool {
        let segment = &SCRIPT[step];
        self.flags == segment.flags
            && self.seq == first_sequence(connection, segment.from).wrapping_add(segment.seq)
            && self.connection == connection
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_its_checksums_are_right() {
        for connection in [0, 1, 59_999, 60_000, 1 << 24] {
            for (step, segment) in SCRIPT.iter().enumerate() {
                let mut frame = [0xff; FRAME_SIZE];
                write(connection, step, &mut frame);
                let (to, back) = match segment.from {
                    Side::Client => (Side::Server, Side::Client),
                    Side::Server => (Side::Client, Side::Server),
                };
                let seen = read(&frame, to).unwrap();
                assert!((0..SCRIPT.len()).all(|other| seen.is(connection, other) == (other == step)), "{step}");
                assert!(!seen.is(connection + 1, step));
                assert_ne!(read(&frame, back).map(|seen| seen.connection), Some(connection));
                assert_eq!(checksum::internet(&frame[14..34]), 0);
                let len = u16::from_be_bytes([frame[16], frame[17]]) - 20;
                let address = |at: usize| *frame[at..].first_chunk().unwrap();
                let pseudo = checksum::pseudo_v4(address(26), address(30), 6, len);
                assert_eq!(checksum::finish(pseudo + checksum::sum(&frame[34..34 + usize::from(len)])), 0);
            }
        }
        assert_eq!(read(&[0; 20], Side::Client), None);
        assert_eq!(read(&[0; 60], Side::Client), None);
    }
}
