//! What reading a key costs: batches of 32 packets from 1024, all in the second-level cache, keys reused.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sluice_flow::{Metadata, PacketKey, extract_with};
use sluice_simd::isa::Kernel;
use sluice_simd::{Isa, VectorOps};
use sluice_testkit::frame::{self, FrameBuilder};
use std::hint::black_box;

/// Packets in all, and in a batch.
const PACKETS: usize = 1024;
const BATCH: usize = 32;

/// Reads a batch.
struct Extract<'a>(&'a [&'a [u8]; BATCH], &'a Metadata, &'a mut [PacketKey]);

impl Kernel for Extract<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: VectorOps>(self, ops: V) {
        for (packet, key) in self.0.iter().zip(self.2) {
            extract_with(ops, packet, self.1, key).expect("a valid frame");
        }
    }
}

fn shapes() -> Vec<(&'static str, FrameBuilder)> {
    let eth = frame::ethernet;
    let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let (a6, b6) = ([0xfd; 16], [0xfe; 16]);
    vec![
        ("ipv4-udp", eth().ipv4(a, b).udp(1, 2).payload(&[0; 18])),
        ("ipv4-tcp", eth().ipv4(a, b).tcp(1, 2).payload(&[0; 6])),
        ("vlan-ipv4-udp", eth().vlan(5).ipv4(a, b).udp(1, 2).payload(&[0; 18])),
        ("qinq-ipv4-udp", eth().tag(0x88a8, 5).vlan(6).ipv4(a, b).udp(1, 2).payload(&[0; 18])),
        ("ipv4-options-udp", eth().ipv4(a, b).ipv4_options(&[1; 4]).udp(1, 2).payload(&[0; 18])),
        ("ipv4-fragment", eth().ipv4(a, b).fragment(5, true).udp(1, 2).payload(&[0; 18])),
        ("ipv6-udp", eth().ipv6(a6, b6).udp(1, 2).payload(&[0; 18])),
        ("ipv6-tcp", eth().ipv6(a6, b6).tcp(1, 2)),
        ("ipv6-extensions-udp", eth().ipv6(a6, b6).extension(0, &[0; 6]).fragment(0, true).udp(1, 2)),
        ("arp", eth().arp(1, [1; 6], a, [0; 6], b)),
        ("mpls", eth().mpls(16, 0, 64).ipv4(a, b).udp(1, 2)),
    ]
}

fn benches(c: &mut Criterion) {
    let mut group = c.benchmark_group("extract");
    group.throughput(Throughput::Elements(BATCH as u64));
    for (name, shape) in shapes() {
        let frame = shape.build();
        // Packets as a pool would lay them out: an odd number of cache lines apart.
        let stride = 33 * 64;
        let mut memory = vec![0u8; PACKETS * stride];
        for i in 0..PACKETS {
            memory[i * stride..][..frame.len()].copy_from_slice(&frame);
        }
        let mut keys = vec![PacketKey::ZERO; BATCH];
        let metadata = Metadata::of_port(1);
        let mut first = 0;
        for isa in Isa::available() {
            group.bench_function(format!("{name}/{}", isa.name()), |b| {
                b.iter(|| {
                    let batch = std::array::from_fn(|i| &memory[(first + i) * stride..][..frame.len()]);
                    isa.run(Extract(&batch, &metadata, &mut keys));
                    black_box(&mut keys);
                    first = (first + BATCH) % PACKETS;
                });
            });
        }
    }
    group.finish();
}

criterion_group!(all, benches);
criterion_main!(all);
