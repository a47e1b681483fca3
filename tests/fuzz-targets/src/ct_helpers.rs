//! Target `ct-helpers`: what endpoints say on FTP and TFTP control connections, through a tracker that translates.
//!
//! The first byte chooses translation and checks. Then come packets: a byte that says what kind, from where, and how far
//! time goes on; a byte that is the length of the payload; the payload.

use crate::input::Input;
use sluice_conntrack::{CachedConn, Config, ConnCache, Conntrack, Ct, CtInput, CtPacket, Filter, Helper};
use sluice_conntrack::{NatSpec, NatTarget, clear};
use sluice_flow::{Metadata, PacketKey, VlanLimit, extract, extract_again};
use sluice_packet::Layers;
use sluice_simd::HashKey;
use sluice_testkit::frame::{self, FrameBuilder};
use sluice_testkit::plain_checksum::internet;
use sluice_testkit::pool::TestPool;

const PACKETS_MAX: usize = 64;
const CLIENT: u8 = 1;
const SERVER: u8 = 2;
/// The last byte of the address that the client is translated to.
const TRANSLATED: u8 = 222;
const CLIENT_PORT: u16 = 40_000;
const FTP: u16 = 21;
const TFTP: u16 = 69;
const SYN: u16 = 2;
const ACK: u16 = 16;

/// Payloads may say anything: the key says what the packet says, checksums that were right stay right, and nothing is left
/// when the connections are gone.
pub fn ct_helpers(data: &[u8]) {
    let mut input = Input(data);
    let mut talk = Talk::new(input.byte());
    talk.shake_hands();
    for _ in 0..PACKETS_MAX {
        if input.is_empty() {
            break;
        }
        let kind = input.byte();
        let length = input.byte().into();
        talk.say(kind, input.bytes(length));
    }
    talk.end();
}

struct Talk {
    ct: Conntrack,
    conn_cache: ConnCache,
    pool: TestPool,
    is_v6: bool,
    target: Option<NatTarget>,
    /// Next sequence numbers of client and server, each as the sender counts.
    next: [u32; 2],
    now_ms: u64,
    passes: u64,
}

impl Talk {
    fn new(choice: u8) -> Self {
        let config = Config { shards: 2, ..Config::new(HashKey::from_seed(7)) };
        let ct = Conntrack::new(config);
        ct.set_check_tcp_seq(choice & 8 == 0);
        let target = [None, Some(NatTarget::Src)][usize::from(choice >> 1 & 1)];
        Talk {
            ct,
            conn_cache: ConnCache::new(64),
            pool: TestPool::new(),
            is_v6: choice & 1 != 0,
            target,
            next: [1000, 5000],
            now_ms: 1_000_000,
            passes: 0,
        }
    }

    fn address(last: u8, is_v6: bool) -> [u8; 16] {
        let mut address = [0; 16];
        if is_v6 {
            (address[0], address[15]) = (0xfc, last);
        } else {
            address[..4].copy_from_slice(&[10, 0, 0, last]);
        }
        address
    }

    fn ip(&self, src: u8, dst: u8) -> FrameBuilder {
        let [src, dst] = [src, dst].map(|last| Self::address(last, self.is_v6));
        match self.is_v6 {
            true => frame::ethernet().ipv6(src, dst),
            false => frame::ethernet().ipv4([src[0], src[1], src[2], src[3]], [dst[0], dst[1], dst[2], dst[3]]),
        }
    }

    /// Where the server sends what is for the client.
    fn client_seen(&self) -> u8 {
        if self.target.is_some() { TRANSLATED } else { CLIENT }
    }

    /// What new connections ask for.
    fn commit(&self, helper: Option<Helper>) -> Ct {
        let address = Self::address(TRANSLATED, self.is_v6);
        let nat = NatSpec { target: self.target, addrs: (address, address), ..NatSpec::default() };
        Ct { commit: true, helper, nat: Some(nat), ..Ct::default() }
    }

    fn shake_hands(&mut self) {
        self.tcp(false, SYN, &[]);
        self.next[0] += 1;
        self.tcp(true, SYN | ACK, &[]);
        self.next[1] += 1;
        self.tcp(false, ACK, &[]);
    }

    /// A segment of the control connection.
    fn tcp(&mut self, from_server: bool, flags: u16, payload: &[u8]) {
        let frame = match from_server {
            true => self.ip(SERVER, self.client_seen()).tcp(FTP, CLIENT_PORT),
            false => self.ip(CLIENT, SERVER).tcp(CLIENT_PORT, FTP),
        };
        let [seq, ack] = if from_server { [self.next[1], self.next[0]] } else { self.next };
        let mut bytes = frame.tcp_flags(flags).payload(payload).build();
        set_numbers(&mut bytes, seq, ack);
        self.pass(&bytes, Some(Helper::Ftp));
    }

    fn say(&mut self, kind: u8, payload: &[u8]) {
        let from_server = kind & 1 != 0;
        self.now_ms += [0, 10, 5_000, 40_000][usize::from(kind >> 6)];
        let ends = match from_server {
            true => (SERVER, self.client_seen()),
            false => (CLIENT, SERVER),
        };
        // Two bytes of the payload are a port, of data connections that the talk may have announced.
        let port = u16::from_be_bytes([payload.first().copied().unwrap_or(4), payload.get(1).copied().unwrap_or(1)]);
        match kind >> 1 & 3 {
            0 | 1 => {
                self.tcp(from_server, ACK, payload);
                // A segment that is sent again has its old number.
                if kind & 8 == 0 {
                    let next = &mut self.next[usize::from(from_server)];
                    *next = next.wrapping_add(payload.len() as u32);
                }
            }
            2 => {
                let bytes = self.ip(ends.0, ends.1).tcp(20, port).tcp_flags(SYN).build();
                self.pass(&bytes, None);
            }
            _ => {
                let (src, dst) = if from_server { (port, CLIENT_PORT) } else { (CLIENT_PORT, TFTP) };
                let bytes = self.ip(ends.0, ends.1).udp(src, dst).payload(payload).build();
                self.pass(&bytes, Some(Helper::Tftp));
            }
        }
    }

    /// Tracks a packet, and commits it with the helper.
    fn pass(&mut self, bytes: &[u8], helper: Option<Helper>) {
        let untranslate = Ct { nat: Some(NatSpec::default()), ..Ct::default() };
        let requests = [untranslate, self.commit(helper)];
        let mut key = PacketKey::ZERO;
        extract(bytes, &Metadata::of_port(1), &mut key).expect("a frame");
        let (mut packet, mut cached) = (self.pool.packet(bytes), CachedConn::default());
        for request in &requests {
            self.passes += 1;
            let input = CtInput { now_ms: self.now_ms, entropy: self.passes, ..CtInput::default() };
            let to = CtPacket { packet: &mut packet, key: &mut key, cached: &mut cached };
            self.ct.execute(&mut self.conn_cache, to, request, &input);
            let mut again = key;
            extract_again(packet.bytes(), VlanLimit::MAX, &mut again).expect("a frame");
            let [tracked, read] = [key, again].map(|mut key| {
                clear(&mut key);
                key
            });
            assert_eq!(tracked, read, "the key does not say what the packet says");
        }
        let after = self.pool.take_bytes(packet);
        assert!(checksums_are_right(&after), "wrong checksum in {after:02x?}, from {bytes:02x?}");
    }

    fn end(mut self) {
        self.ct.flush(&Filter::default());
        assert_eq!(self.ct.connections(), 0, "connections after a flush");
        self.now_ms += 24 * 3_600_000;
        while !self.ct.expire(self.now_ms, 64).is_complete {}
    }
}

/// Sets a segment's numbers.
fn set_numbers(bytes: &mut [u8], seq: u32, ack: u32) {
    let l4 = Layers::of(bytes).and_then(|layers| layers.l4()).expect("a segment").1;
    bytes[l4 + 4..l4 + 8].copy_from_slice(&seq.to_be_bytes());
    bytes[l4 + 8..l4 + 12].copy_from_slice(&ack.to_be_bytes());
    bytes[l4 + 16..l4 + 18].fill(0);
    let sum = l4_sum(bytes).expect("a segment");
    bytes[l4 + 16..l4 + 18].copy_from_slice(&sum.to_be_bytes());
}

/// The checksum over the pseudo header and what is behind the IP header: 0 if the one in there is right.
fn l4_sum(bytes: &[u8]) -> Option<u16> {
    let layers = Layers::of(bytes)?;
    let (ip, (proto, l4), l3) = (layers.ip?, layers.l4()?, layers.l3);
    let segment = &bytes[l4..ip.end];
    let addresses = if ip.v6 { &bytes[l3 + 8..l3 + 40] } else { &bytes[l3 + 12..l3 + 20] };
    let pseudo = [addresses, &(segment.len() as u32).to_be_bytes(), &[0, 0, 0, proto]].concat();
    Some(internet(&[&pseudo, segment].concat()))
}

/// Whether the checksums of IPv4, TCP and UDP are right, by their definitions.
fn checksums_are_right(bytes: &[u8]) -> bool {
    let header_is_right = bytes[12..14] != [8, 0] || internet(&bytes[14..34]) == 0;
    header_is_right && l4_sum(bytes).is_none_or(|sum| sum == 0)
}
