//! New connections a second on one core, packets a second of existing ones, and the memory of a connection.
//!
//! `cargo bench -p sluice-conntrack` prints, for UDP packets of 64 bytes: connections begun a second, up to the default
//! limit of 3 million; bytes a connection, from the growth of the process; and the cost of a packet of an existing
//! connection, for several numbers of them.

use sluice_conntrack::{CachedConn, Config, ConnCache, Conntrack, Ct, CtInput, CtPacket};
use sluice_flow::{Metadata, PacketKey, extract};
use sluice_packet::Packet;
use sluice_simd::HashKey;
use sluice_testkit::frame;
use sluice_testkit::pool::TestPool;
use std::time::Instant;

/// Connections to begin: the default limit.
const CONNECTIONS: u32 = 3_000_000;
/// Connections whose packets are timed.
const KNOWN: [u32; 4] = [100, 10_000, 100_000, 1_000_000];
const NOW_MS: u64 = 1_000_000;

/// A PMD's part.
struct Bench {
    ct: Conntrack,
    conn_cache: ConnCache,
    packet: Packet,
}

impl Bench {
    fn new() -> Self {
        let frame = frame::ethernet().ipv4([10, 0, 0, 1], [20, 0, 0, 1]).udp(63, 63).pad_to(60).build();
        let ct = Conntrack::new(Config::new(HashKey::from_seed(1)));
        Bench { ct, conn_cache: ConnCache::new(1 << 17), packet: TestPool::new().packet(&frame) }
    }

    /// A packet of connection `n`, its destination being that number, with its checksums right.
    fn pass(&mut self, n: u32, request: &Ct) {
        let bytes = self.packet.bytes_mut();
        bytes[30..34].copy_from_slice(&n.to_be_bytes());
        bytes[24..26].copy_from_slice(&[0, 0]);
        let sum = sluice_packet::checksum::internet(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        // UDP over IPv4 needs no checksum.
        bytes[40..42].copy_from_slice(&[0, 0]);
        let mut key = PacketKey::ZERO;
        extract(self.packet.bytes(), &Metadata::of_port(1), &mut key).expect("a frame");
        let input = CtInput { now_ms: NOW_MS, ..CtInput::default() };
        self.ct.execute(
            &mut self.conn_cache,
            CtPacket { packet: &mut self.packet, key: &mut key, cached: &mut CachedConn::default() },
            request,
            &input,
        );
    }
}

/// Kilobytes that the process holds.
fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn main() {
    let mut bench = Bench::new();
    let commit = Ct { commit: true, ..Ct::default() };
    let (before, began) = (resident_kb(), Instant::now());
    (0..CONNECTIONS).for_each(|n| bench.pass(n.wrapping_mul(2_654_435_761), &commit));
    let (seconds, grown) = (began.elapsed().as_secs_f64(), resident_kb() - before);
    assert_eq!(bench.ct.connections(), CONNECTIONS);
    println!("begun: {:.0} a second, {CONNECTIONS} held", f64::from(CONNECTIONS) / seconds);
    println!("memory: {} bytes a connection", grown * 1024 / u64::from(CONNECTIONS));
    for known in KNOWN {
        let passes = 2_000_000u32;
        let began = Instant::now();
        (0..passes).for_each(|i| bench.pass((i % known).wrapping_mul(2_654_435_761), &Ct::default()));
        let each = began.elapsed().as_nanos() as f64 / f64::from(passes);
        println!("{known} connections: {each:.0} ns a packet, parsing and checksums included");
    }
}
