//! Fragments: holding, reassembly, bounds, and a comparison with a plain twin that keeps bytes.

use crate::scene::*;
use proptest::prelude::*;
use sluice_conntrack::fragments::{
    DATAGRAM_MAX, Fragments, HeldFragment, OfferResult, TIMEOUT_MS, distribute, reassemble, text,
};
use sluice_conntrack::{NatTarget, fragments};
use sluice_flow::{Metadata, PacketKey, VlanLimit, extract, layout};
use sluice_mem::{FramePool, HeapPool, PoolConfig};
use sluice_packet::{Buffers, Packet};
use sluice_testkit::frame::FrameBuilder;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Smaller than the default, so that short packets have several fragments.
const SIZE_MIN: u32 = 400;

struct Bench {
    fragments: Fragments<u32>,
    pool: Arc<dyn FramePool>,
    large: Arc<dyn FramePool>,
    buffers: Buffers,
    whole: Vec<HeldFragment<u32>>,
    offered: u32,
}

fn pool(frames: usize, frame_size: usize) -> Arc<dyn FramePool> {
    Arc::new(HeapPool::new(PoolConfig { frames, frame_size, reserve: 0 }).expect("memory for a test"))
}

/// What became of an offered fragment.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Held,
    Refused,
    /// The numbers of the offered fragments, in the order in which they continue.
    Whole(Vec<u32>),
}

impl Bench {
    fn new() -> Self {
        let fragments = Fragments::default();
        for v6 in [false, true] {
            fragments.set_size_min(v6, SIZE_MIN).expect("within bounds");
        }
        let (pool, large) = (pool(256, 2048), pool(2, DATAGRAM_MAX));
        Bench { fragments, pool, large, buffers: Buffers::new(), whole: Vec::new(), offered: 0 }
    }

    fn part(&mut self, bytes: &[u8]) -> HeldFragment<u32> {
        self.offered += 1;
        let mut key = PacketKey::ZERO;
        extract(bytes, &Metadata::of_port(1), &mut key).expect("a frame");
        let packet = self.buffers.write(&self.pool, bytes).expect("a frame of the pool");
        HeldFragment::new(packet, key, self.pool.clone(), self.offered)
    }

    /// Offers a fragment; gives back what is not held.
    fn offer(&mut self, bytes: &[u8], now_ms: u64) -> Fate {
        let mut part = Some(self.part(bytes));
        match self.fragments.offer(&mut part, 0, now_ms, &mut self.whole) {
            OfferResult::Held => Fate::Held,
            OfferResult::Refused => {
                self.buffers.give(part.into_iter().map(|part| part.packet));
                Fate::Refused
            }
            OfferResult::Complete => {
                let numbers = self.whole.iter().map(|part| part.onward).collect();
                self.buffers.give(self.whole.drain(..).map(|part| part.packet));
                Fate::Whole(numbers)
            }
        }
    }

    fn expired(&mut self, now_ms: u64) -> Vec<u32> {
        if !self.fragments.is_due(now_ms) {
            return Vec::new();
        }
        self.fragments.take_expired(now_ms, &mut self.whole);
        let numbers = self.whole.iter().map(|part| part.onward).collect();
        self.buffers.give(self.whole.drain(..).map(|part| part.packet));
        numbers
    }

    /// Every frame is free, held, or was given back.
    fn assert_nothing_is_lost(&mut self) {
        self.buffers.flush();
        assert_eq!(self.pool.available() + self.fragments.status().held, self.pool.capacity());
    }
}

/// The packet in fragments of at most `size` bytes of data, each with Ethernet and IP headers of its own.
fn cut(v6: bool, whole: &[u8], size: usize, id: u16) -> Vec<Vec<u8>> {
    let l4 = l4_at(whole);
    let data = &whole[l4..];
    let n = data.len().div_ceil(size);
    (0..n).map(|i| fragment(v6, id, i * size, i + 1 < n, &data[i * size..data.len().min((i + 1) * size)])).collect()
}

/// A UDP fragment between hosts 1 and 2.
fn fragment(v6: bool, id: u16, offset: usize, more: bool, data: &[u8]) -> Vec<u8> {
    assert_eq!(offset % 8, 0);
    let header = |builder: FrameBuilder| builder.proto(17).fragment((offset / 8) as u16, more).proto(17);
    let mut bytes = header(ip(v6, 1, 2)).payload(data).build();
    let l3 = 14;
    if v6 {
        bytes[l3 + 6] = 44;
        bytes[l3 + 46..l3 + 48].copy_from_slice(&id.to_be_bytes());
    } else {
        bytes[l3 + 4..l3 + 6].copy_from_slice(&id.to_be_bytes());
        bytes[l3 + 10..l3 + 12].fill(0);
        let sum = sluice_testkit::plain_checksum::internet(&bytes[l3..l3 + 20]);
        bytes[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
    }
    bytes
}

fn datagram(v6: bool, len: usize) -> Vec<u8> {
    let data: Vec<u8> = (0..len).map(|i| (i * 7 + i / 256) as u8).collect();
    ip(v6, 1, 2).udp(CLIENT, SERVER).payload(&data).build()
}

#[test]
fn a_packet_in_fragments_is_tracked_and_translated_as_one() {
    for v6 in [false, true] {
        let mut scene = Scene::new();
        let mut bench = Bench::new();
        let whole = datagram(v6, 5000);
        let pieces = cut(v6, &whole, 1480, 7);
        // Out of order: the last first.
        let order = [3, 1, 0, 2];
        let mut parts = Vec::new();
        for (n, i) in order.iter().enumerate() {
            let mut part = Some(bench.part(&pieces[*i]));
            let offered = bench.fragments.offer(&mut part, 0, 0, &mut parts);
            assert!(
                matches!((n, &offered), (0..3, OfferResult::Held) | (3, OfferResult::Complete)),
                "{n}: {offered:?}"
            );
        }
        assert_eq!(parts.iter().map(|part| part.onward).collect::<Vec<_>>(), [3, 2, 4, 1]);
        let mut frame = bench.buffers.take(&bench.large.clone()).expect("one frame");
        assert!(reassemble(&parts, &mut frame));
        let end = frame.len();
        assert_eq!(frame.bytes()[end - 5000..], whole[whole.len() - 5000..], "the data is put together");
        assert!(checksums_are_right(frame.bytes()));
        let mut key = parts[0].key;
        key.set(layout::NW_FRAG, &[0]);
        let mut packet = Packet::new(frame);
        let mut request = nat(NatTarget::Src, (9, 9), Some((777, 777)));
        if v6 {
            let spec = request.nat.as_mut().expect("NAT");
            (spec.v6, spec.addrs) = (true, (crate::scene::v6(9), crate::scene::v6(9)));
        }
        scene.pass_packet(&mut packet, &mut key, &request);
        assert_eq!(key.get(layout::CT_STATE), [0x61], "new, tracked, source translated");
        assert!(distribute(packet.bytes(), &key, &mut parts));
        // Reassembled again, they are the packet that was tracked.
        let mut again = bench.buffers.take(&bench.large.clone()).expect("a frame");
        assert!(reassemble(&parts, &mut again));
        assert_eq!(again.bytes(), packet.bytes());
        assert!(checksums_are_right(again.bytes()));
        for (part, piece) in parts.iter().zip(&pieces) {
            assert_eq!(part.packet.bytes().len(), piece.len(), "sent as they came");
            assert_eq!(part.key.get(layout::CT_STATE), [0x61]);
            let mut read = part.key;
            sluice_flow::extract_again(part.packet.bytes(), VlanLimit::MAX, &mut read).expect("a frame");
            assert_eq!(read, part.key, "the key says what the packet says");
        }
        bench.buffers.give_frame(packet.frame);
        bench.buffers.give_frame(again);
        bench.buffers.give(parts.drain(..).map(|part| part.packet));
    }
}

#[test]
fn what_overlaps_is_too_small_or_reaches_too_far_is_refused() {
    for v6 in [false, true] {
        let mut bench = Bench::new();
        let data = [1; 1200];
        let mut offer = |offset, more, len| bench.offer(&fragment(v6, 1, offset, more, &data[..len]), 0);
        assert_eq!(offer(800, true, 400), Fate::Held);
        // Again, inside, over an edge, around.
        for (offset, len) in [(800, 400), (808, 384), (760, 400), (1000, 400), (400, 1200)] {
            assert_eq!(offer(offset, true, len), Fate::Refused, "{offset}+{len}");
        }
        assert_eq!(offer(0, true, 96), Fate::Refused, "too small");
        assert_eq!(offer(0, true, 403), Fate::Refused, "nothing can follow");
        assert_eq!(offer(65_528, false, 8), Fate::Refused, "past 64 KiB");
        assert_eq!(offer(0, false, 800), Fate::Refused, "no fragment");
        assert_eq!(offer(1200, false, 8), Fate::Held, "the last may be small");
        assert_eq!(offer(1208, true, 400), Fate::Refused, "behind the last");
        assert_eq!(offer(1208, false, 8), Fate::Refused, "two are the last");
        assert_eq!(offer(0, true, 800), Fate::Whole(vec![14, 1, 11]));
        let counts = bench.fragments.status().families[usize::from(v6)].counts;
        assert_eq!((counts.accepted, counts.completed, counts.too_small, counts.overlapping), (3, 3, 1, 7));
        bench.assert_nothing_is_lost();
    }
}

#[test]
fn they_wait_a_while_and_no_more_than_so_many() {
    let mut bench = Bench::new();
    bench.fragments.set_held_max(3).expect("within bounds");
    assert!(bench.fragments.set_held_max(5001).is_err() && bench.fragments.set_size_min(true, 399).is_err());
    let one = |id| fragment(false, id, 0, true, &[0; 800]);
    assert_eq!([1, 2, 3].map(|id| bench.offer(&one(id), u64::from(id))), [Fate::Held, Fate::Held, Fate::Held]);
    assert_eq!(bench.offer(&one(4), 4), Fate::Refused);
    assert!(bench.expired(TIMEOUT_MS).is_empty());
    assert_eq!(bench.expired(TIMEOUT_MS + 2), [1, 2]);
    assert_eq!(bench.offer(&one(4), TIMEOUT_MS + 2), Fate::Held);
    assert_eq!(bench.expired(2 * TIMEOUT_MS), [3]);
    // A fragment that comes later does not prolong the wait of those before it.
    assert_eq!(bench.offer(&fragment(false, 4, 800, true, &[0; 800]), 2 * TIMEOUT_MS), Fate::Held);
    assert_eq!(bench.expired(2 * TIMEOUT_MS + 200), [5, 6]);
    bench.fragments.set_enabled(false, false);
    assert_eq!(bench.offer(&one(5), 0), Fate::Refused);
    bench.assert_nothing_is_lost();
}

#[test]
fn a_port_that_goes_takes_its_fragments_along() {
    let mut bench = Bench::new();
    bench.offer(&fragment(false, 1, 0, true, &[0; 800]), 0);
    bench.offer(&fragment(true, 1, 0, true, &[0; 800]), 0);
    bench.fragments.take_of_port(2, &mut bench.whole);
    assert_eq!(bench.whole.len(), 0);
    bench.fragments.take_of_port(1, &mut bench.whole);
    assert_eq!(bench.whole.len(), 2);
    bench.buffers.give(bench.whole.drain(..).map(|part| part.packet));
    assert_eq!(bench.fragments.status().families.map(|family| family.counts.purged), [1, 1]);
    bench.assert_nothing_is_lost();
    // Fragments that nobody takes are returned when the table is dropped.
    bench.offer(&fragment(false, 1, 0, true, &[0; 800]), 0);
    let Bench { fragments, pool, buffers, .. } = bench;
    drop((fragments, buffers));
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn zones_passes_and_protocols_are_apart() {
    let mut bench = Bench::new();
    let first = fragment(false, 1, 0, true, &[0; 800]);
    let last = fragment(false, 1, 800, false, &[0; 8]);
    assert_eq!(bench.offer(&first, 0), Fate::Held);
    let mut other_zone = Some(bench.part(&last));
    assert_eq!(bench.fragments.offer(&mut other_zone, 1, 0, &mut bench.whole), OfferResult::Held);
    let mut other_pass = bench.part(&last);
    other_pass.key.set(layout::RECIRC_ID, &[0, 0, 0, 9]);
    assert_eq!(bench.fragments.offer(&mut Some(other_pass), 0, 0, &mut bench.whole), OfferResult::Held);
    let lists = text::lists(&bench.fragments.lists());
    let expected = "\n        Fragment Lists:\n\n\
        (src=10.0.0.1,dst=10.0.0.2,recirc_id=0,ip_id=1,dl_type=0x800,zone=0,nw_proto=17,num_fragments=1,state=first frag)\n\
        (src=10.0.0.1,dst=10.0.0.2,recirc_id=0,ip_id=1,dl_type=0x800,zone=1,nw_proto=17,num_fragments=1,state=last frag)\n\
        (src=10.0.0.1,dst=10.0.0.2,recirc_id=9,ip_id=1,dl_type=0x800,zone=0,nw_proto=17,num_fragments=1,state=last frag)\n";
    assert_eq!(lists, expected);
    assert_eq!(bench.offer(&last, 0), Fate::Whole(vec![1, 4]));
}

/// What a plain receiver keeps: which fragment brought each unit of eight bytes.
#[derive(Default)]
struct Twin {
    units: BTreeMap<usize, u32>,
    end: Option<usize>,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]
    /// Fragments of two packets, one of each family, in any order, some twice, some overlapping: a map of bytes says
    /// what is held and when a packet is complete, and the fragments of a complete packet continue in order.
    #[test]
    fn it_holds_what_a_map_of_bytes_holds(
        offers in prop::collection::vec((0..2u16, 0..8usize, 1..4usize, prop::bool::weighted(0.3)), 1..60),
    ) {
        let mut bench = Bench::new();
        let mut twins = [Twin::default(), Twin::default()];
        for (n, (id, begin, len, is_last)) in offers.into_iter().enumerate() {
            // A grid of fifty units, so that fragments often collide; the last ends one unit before the end.
            let (start, units) = (begin * 50, len * 50 - usize::from(is_last));
            let end = start + units;
            let bytes = fragment(id == 1, id, start * 8, !is_last, &vec![n as u8; units * 8]);
            let fate = bench.offer(&bytes, 0);
            let twin = &mut twins[usize::from(id)];
            let overlaps = (start..end).any(|unit| twin.units.contains_key(&unit))
                || twin.end.is_some_and(|there| is_last || end > there)
                || is_last && twin.units.keys().next_back().is_some_and(|unit| *unit >= end)
                || start == 0 && is_last;
            if overlaps {
                prop_assert_eq!(fate, Fate::Refused);
                continue;
            }
            twin.units.extend((start..end).map(|unit| (unit, n as u32 + 1)));
            twin.end = if is_last { Some(end) } else { twin.end };
            if twin.end == Some(twin.units.len()) {
                let mut order: Vec<_> = twin.units.values().copied().collect();
                order.dedup();
                prop_assert_eq!(fate, Fate::Whole(order));
                *twin = Twin::default();
            } else {
                prop_assert_eq!(fate, Fate::Held);
            }
        }
        bench.assert_nothing_is_lost();
    }

    /// Any bytes, read as fragments: never a panic, never a frame lost.
    #[test]
    fn any_bytes_are_held_or_refused(
        packets in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..90)), 1..20),
    ) {
        let mut bench = Bench::new();
        for (v6, mut tail) in packets {
            let mut bytes = fragment(v6, 1, 8, true, &[0; 800]);
            let at = 14 + tail.first().map_or(0, |byte| usize::from(*byte) % 60);
            let room = bytes.len() - at;
            tail.truncate(room);
            bytes[at..at + tail.len()].copy_from_slice(&tail);
            let mut part = Some(bench.part(&bytes));
            match bench.fragments.offer(&mut part, 0, 0, &mut bench.whole) {
                OfferResult::Held => {}
                OfferResult::Refused => bench.buffers.give(part.into_iter().map(|part| part.packet)),
                OfferResult::Complete => {
                    let mut frame = bench.buffers.take(&bench.large.clone()).expect("one frame");
                    reassemble(&bench.whole, &mut frame);
                    bench.buffers.give_frame(frame);
                    bench.buffers.give(bench.whole.drain(..).map(|part| part.packet));
                }
            }
        }
        prop_assert!(bench.fragments.status().held <= 20);
        bench.assert_nothing_is_lost();
    }
}

#[test]
fn the_status_reads_as_open_vswitch_prints_it() {
    let status = text::status(&fragments::Fragments::<()>::default().status());
    assert!(
        status.starts_with("        Fragmentation Module Status\n        ---------------------------\n"),
        "{status}"
    );
    assert!(
        status.contains("        max num frags (v4/v6): 1000\n        num frag: 0\n        min v4 frag size: 1200\n")
    );
    assert_eq!(status.lines().count(), 20);
}
