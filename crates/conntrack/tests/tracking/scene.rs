//! A tracker, packets, and their results.

use sluice_conntrack::{
    CachedConn, Config, ConnCache, Conntrack, Ct, CtInput, CtOutcome, CtPacket, clear, ct_state, text,
};
use sluice_conntrack::{Filter, NatSpec, NatTarget};
use sluice_flow::{Metadata, PacketKey, VlanLimit, extract, extract_again, layout};
use sluice_packet::{Layers, Packet};
use sluice_simd::HashKey;
use sluice_testkit::frame::{self, FrameBuilder};
use sluice_testkit::plain_checksum::internet;
use sluice_testkit::pool::TestPool;

/// Port of client and server; addresses by family.
pub const CLIENT: u16 = 40000;
pub const SERVER: u16 = 80;

pub struct Scene {
    pub ct: Conntrack,
    /// A PMD's cache, made anew for each packet if `forgetful`.
    conn_cache: ConnCache,
    pub forgetful: bool,
    pool: TestPool,
    pub now_ms: u64,
    entropy: u64,
}

/// A packet after its passes.
#[derive(Debug)]
pub struct Seen {
    pub outcome: CtOutcome,
    pub bytes: Vec<u8>,
    pub key: PacketKey,
}

impl Scene {
    pub fn new() -> Self {
        Self::with(|config| config)
    }

    pub fn with(change: impl Fn(Config) -> Config) -> Self {
        let config = change(Config { shards: 4, ..Config::new(HashKey::from_seed(7)) });
        Scene {
            ct: Conntrack::new(config),
            conn_cache: ConnCache::new(64),
            forgetful: false,
            pool: TestPool::new(),
            now_ms: 1_000_000,
            entropy: 1,
        }
    }

    /// A packet just received, through one `ct`.
    pub fn pass(&mut self, bytes: &[u8], request: &Ct) -> Seen {
        self.passes(bytes, std::slice::from_ref(request))
    }

    /// One packet through several `ct` actions, recirculated in between. Its key must agree with its bytes, and its
    /// checksums must be correct if they were.
    pub fn passes(&mut self, bytes: &[u8], requests: &[Ct]) -> Seen {
        let mut key = PacketKey::ZERO;
        extract(bytes, &Metadata::of_port(1), &mut key).expect("a frame");
        let mut packet = self.pool.packet(bytes);
        let mut cached = CachedConn::default();
        let mut outcome = CtOutcome::Tracked;
        let were_right = checksums_are_right(bytes);
        for request in requests {
            self.entropy += 1;
            if self.forgetful {
                self.conn_cache = ConnCache::new(0);
            }
            let input = CtInput { now_ms: self.now_ms, entropy: self.entropy, ..CtInput::default() };
            outcome = self.ct.execute(
                &mut self.conn_cache,
                CtPacket { packet: &mut packet, key: &mut key, cached: &mut cached },
                request,
                &input,
            );
            let mut again = key;
            extract_again(packet.bytes(), VlanLimit::MAX, &mut again).expect("a frame");
            assert_eq!(untracked(&key), untracked(&again), "the key does not say what the packet says");
        }
        let bytes = self.pool.take_bytes(packet);
        assert!(!were_right || checksums_are_right(&bytes), "wrong checksum in {bytes:02x?}");
        Seen { outcome, bytes, key }
    }

    /// A packet owned by the caller, through one `ct`.
    pub fn pass_packet(&mut self, packet: &mut Packet, key: &mut PacketKey, request: &Ct) -> CtOutcome {
        self.entropy += 1;
        let input = CtInput { now_ms: self.now_ms, entropy: self.entropy, ..CtInput::default() };
        self.ct.execute(
            &mut self.conn_cache,
            CtPacket { packet, key, cached: &mut CachedConn::default() },
            request,
            &input,
        )
    }

    /// Whether a later packet like this one can be replayed.
    pub fn can_replay(&mut self, bytes: &[u8], request: &Ct) -> bool {
        let mut key = PacketKey::ZERO;
        extract(bytes, &Metadata::of_port(1), &mut key).expect("a frame");
        let mut packet = self.pool.packet(bytes);
        self.pass_packet(&mut packet, &mut key, request);
        let can_replay = self.ct.conn_ref(&self.conn_cache, &packet, &key, request, self.now_ms).is_some();
        self.pool.take_bytes(packet);
        can_replay
    }

    /// The lines of `dump-conntrack`, sorted.
    pub fn dump(&self, more: bool) -> Vec<String> {
        let mut lines = Vec::new();
        self.ct.dump(&Filter::default(), self.now_ms, |entry| lines.push(text::entry(entry, more, false)));
        lines.sort();
        lines
    }

    /// Sweeps all that is due.
    pub fn expire(&self) -> usize {
        let mut removed = 0;
        loop {
            let swept = self.ct.expire(self.now_ms, 10);
            removed += swept.removed;
            if swept.is_complete {
                return removed;
            }
        }
    }
}

fn untracked(key: &PacketKey) -> PacketKey {
    let mut key = *key;
    clear(&mut key);
    key
}

impl Seen {
    /// The state in the words of `ct_state`, in order of bits.
    pub fn state(&self) -> String {
        let names = sluice_flow::ct_state::NAMES;
        let state = self.key.get(layout::CT_STATE)[0];
        let words = names.iter().enumerate().filter(|(bit, _)| state >> bit & 1 != 0).map(|(_, name)| *name);
        words.collect::<Vec<_>>().join("|")
    }

    pub fn has(&self, bit: u8) -> bool {
        self.key.get(layout::CT_STATE)[0] & bit != 0
    }

    pub fn is_invalid(&self) -> bool {
        self.has(ct_state::INVALID)
    }

    pub fn number(&self, span: layout::Span) -> u64 {
        self.key.number(span)
    }
}

/// Commit in zone 0.
pub fn commit() -> Ct {
    Ct { commit: true, ..Ct::default() }
}

/// Track without commit.
pub fn track() -> Ct {
    Ct::default()
}

/// Commit with NAT to one IPv4 address (or a range) and ports.
pub fn nat(target: NatTarget, last: (u8, u8), ports: Option<(u16, u16)>) -> Ct {
    let spec = NatSpec { target: Some(target), addrs: (v4(last.0), v4(last.1)), ports, ..NatSpec::default() };
    Ct { commit: true, nat: Some(spec), ..Ct::default() }
}

/// `nat` without arguments: translate packets of translated connections.
pub fn untranslate() -> Ct {
    Ct { nat: Some(NatSpec::default()), ..Ct::default() }
}

/// An address of 192.0.2.0/24 as NAT takes it.
pub fn v4(last: u8) -> [u8; 16] {
    let mut addr = [0; 16];
    addr[..4].copy_from_slice(&[192, 0, 2, last]);
    addr
}

pub fn v6(last: u8) -> [u8; 16] {
    let mut addr = [0; 16];
    (addr[0], addr[1], addr[15]) = (0xfc, 0, last);
    addr
}

/// Ethernet and IP from host `src` to host `dst`: 10.0.0.x or fc00::x.
pub fn ip(is_v6: bool, src: u8, dst: u8) -> FrameBuilder {
    match is_v6 {
        true => frame::ethernet().ipv6(v6(src), v6(dst)),
        false => frame::ethernet().ipv4([10, 0, 0, src], [10, 0, 0, dst]),
    }
}

pub fn udp(is_v6: bool, src: (u8, u16), dst: (u8, u16)) -> Vec<u8> {
    ip(is_v6, src.0, dst.0).udp(src.1, dst.1).payload(b"odd").build()
}

/// What is behind the IP header.
pub fn l4_at(bytes: &[u8]) -> usize {
    Layers::of(bytes).and_then(|layers| layers.l4()).expect("a packet with an L4 header").1
}

/// A packet the other way: MAC addresses aside, all that the sender of an answer would swap.
pub fn answer(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    let layers = Layers::of(bytes).expect("a frame");
    let (l3, l4) = (layers.l3, l4_at(bytes));
    let (at, size) = if layers.ip.is_some_and(|ip| ip.v6) { (l3 + 8, 16) } else { (l3 + 12, 4) };
    out[at..at + size].copy_from_slice(&bytes[at + size..at + 2 * size]);
    out[at + size..at + 2 * size].copy_from_slice(&bytes[at..at + size]);
    out[l4..l4 + 2].copy_from_slice(&bytes[l4 + 2..l4 + 4]);
    out[l4 + 2..l4 + 4].copy_from_slice(&bytes[l4..l4 + 2]);
    out
}

/// Whether IP, TCP, UDP and ICMP checksums are right, by their definitions.
pub fn checksums_are_right(bytes: &[u8]) -> bool {
    let Some(layers) = Layers::of(bytes) else { return true };
    let (Some(ip), Some((proto, l4))) = (layers.ip, layers.l4()) else { return true };
    if ip.rerouted {
        // The sum covers the last address of the routing header. Edits know this, the tracker (like Open vSwitch's)
        // does not.
        return true;
    }
    let l3 = layers.l3;
    let segment = &bytes[l4..ip.end];
    let addresses = if ip.v6 { &bytes[l3 + 8..l3 + 40] } else { &bytes[l3 + 12..l3 + 20] };
    let pseudo = [addresses, &(segment.len() as u32).to_be_bytes(), &[0, 0, 0, proto]].concat();
    let with_pseudo = || internet(&[&pseudo, segment].concat()) == 0;
    let l4_is_right = match proto {
        6 if segment.len() >= 20 => with_pseudo(),
        17 if segment.len() >= 8 => !ip.v6 && segment[6..8] == [0, 0] || with_pseudo(),
        1 if !ip.v6 => internet(segment) == 0,
        58 if ip.v6 => with_pseudo(),
        _ => true,
    };
    l4_is_right && (ip.v6 || internet(&bytes[l3..l4]) == 0)
}
