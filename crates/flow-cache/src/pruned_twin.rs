//! Subtables with pruning compared with subtables without: both must find the same. Many masks of every shape, few
//! values in every field, megaflows that come and go, late notices, ids used again.

use crate::{FlowDeleted, Hits, Installed, LookupBatch, MegaflowTable, SearchPart, Subtables};
use proptest::prelude::*;
use sluice_action::{FlowId, MegaflowStore, Translation, XcacheHandle};
use sluice_fate::DropReason;
use sluice_flow::PacketKey;
use sluice_flow::layout::{self, Span};
use sluice_packet::{BATCH_MAX, BatchMask};
use sluice_simd::{HashKey, Isa};
use std::sync::Arc;

/// Fields that vary.
const FIELDS: [Span; 6] =
    [layout::NW_SRC, layout::NW_DST, layout::TP_SRC, layout::TP_DST, layout::IPV6_SRC, layout::IPV6_DST];

/// A field's bits in a mask: a prefix, or arbitrary bits.
fn field_mask(span: Span) -> impl Strategy<Value = Vec<u8>> {
    let prefix = move |len: usize| -> Vec<u8> {
        let bits = !u128::MAX.checked_shr(len as u32).unwrap_or(0);
        bits.to_be_bytes()[..span.size].to_vec()
    };
    prop_oneof![
        3 => Just(vec![0; span.size]),
        4 => (1..=span.size * 8).prop_map(prefix),
        1 => Just(prefix(span.size * 8)),
        1 => prop::collection::vec(any::<u8>(), span.size),
    ]
}

fn mask() -> impl Strategy<Value = PacketKey> {
    let fields = (FIELDS.map(field_mask), any::<bool>(), prop_oneof![9 => Just(true), 1 => Just(false)]);
    fields.prop_map(|(masks, ipv6, in_port)| {
        let mut mask = PacketKey::ZERO;
        mask.set(layout::RECIRC_ID, &[0xff; 4]);
        if in_port {
            mask.set(layout::IN_PORT, &[0xff; 4]);
        }
        for (span, bits) in FIELDS.iter().zip(masks) {
            if (ipv6 || span.size < 16) && bits.iter().any(|byte| *byte != 0) {
                mask.set(*span, &bits);
            }
        }
        mask
    })
}

/// A packet: one of two values in every field, with some bits flipped.
fn key() -> impl Strategy<Value = PacketKey> {
    let field = |span: Span| (any::<bool>(), prop::option::weighted(0.3, 0..span.size * 8));
    (prop_oneof![5 => Just(1u32), 1 => Just(2)], FIELDS.map(field), any::<bool>()).prop_map(|(port, fields, ipv6)| {
        let mut key = PacketKey::ZERO;
        key.set(layout::IN_PORT, &port.to_be_bytes());
        for (span, (high, flipped)) in FIELDS.iter().zip(fields) {
            let mut bytes = vec![if high { 0xa5 } else { 0x24 }; span.size];
            flipped.into_iter().for_each(|bit| bytes[bit / 8] ^= 0x80 >> (bit % 8));
            if ipv6 || span.size < 16 {
                key.set(*span, &bytes);
            }
        }
        key
    })
}

#[derive(Clone, Debug)]
enum TestStep {
    Install(Vec<(prop::sample::Index, PacketKey)>),
    Lookup(Vec<PacketKey>),
    Remove(prop::sample::Index, usize),
    ReadNotices,
    Settle,
    Rank,
}

fn step() -> impl Strategy<Value = TestStep> {
    prop_oneof![
        4 => prop::collection::vec((any::<prop::sample::Index>(), key()), 1..40).prop_map(TestStep::Install),
        6 => prop::collection::vec(key(), 1..=BATCH_MAX).prop_map(TestStep::Lookup),
        2 => (any::<prop::sample::Index>(), 1..30usize).prop_map(|(from, n)| TestStep::Remove(from, n)),
        2 => Just(TestStep::ReadNotices),
        2 => Just(TestStep::Settle),
        1 => Just(TestStep::Rank),
    ]
}

fn translation(mask: &PacketKey) -> Translation {
    Translation {
        mask: *mask,
        actions: [].into(),
        no_output: DropReason::Rules,
        version: 0,
        cacheable: true,
        xcache: XcacheHandle(Arc::new(())),
    }
}

/// Looks up a batch in both, in the first on every instruction set. Returns the number of hits.
fn compare(table: &MegaflowTable, side: &mut crate::PmdSide, both: [&mut Subtables; 2], batch: &[PacketKey]) -> usize {
    let mut keys = [PacketKey::ZERO; BATCH_MAX];
    keys[..batch.len()].copy_from_slice(batch);
    let guard = side.reader.pin();
    let flows = table.read(&guard);
    let look = |subtables: &mut Subtables, isa: Isa| {
        let lookup = LookupBatch::new(&keys, &[0; BATCH_MAX], flows, &side.counters, isa);
        let mut hits: Hits<'_> = [None; BATCH_MAX];
        let left = subtables.lookup(&lookup, BatchMask::first(batch.len()), &mut hits);
        for (i, hit) in hits.iter().enumerate().take(batch.len()) {
            assert_eq!(hit.is_none(), left.contains(i));
            assert!(hit.is_none_or(|flow| flow.contains(&keys[i])));
        }
        left
    };
    let [pruned, plain] = both;
    let want = look(plain, Isa::SCALAR);
    for isa in Isa::available() {
        assert_eq!(look(pruned, isa), want, "what pruning leaves out cannot match, {isa:?}");
    }
    let lookup = LookupBatch::new(&keys, &[0; BATCH_MAX], flows, &side.counters, Isa::best());
    let all = BatchMask::first(batch.len());
    let (left, record) = plain.search_and_record(&lookup, all, &mut [None; BATCH_MAX]);
    assert_eq!(left, want, "a search finds the same if it is recorded");
    [SearchPart::Hash, SearchPart::Probe].into_iter().for_each(|part| plain.repeat(&lookup, all, &record, part));
    batch.len() - want.len()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn pruned_finds_what_plain_finds(
        masks in prop::collection::vec(mask(), 1..90),
        steps in prop::collection::vec(step(), 1..60),
        nodes in prop_oneof![Just(0usize), Just(5), Just(100_000)],
    ) {
        let secret = HashKey::from_seed(1);
        let table = MegaflowTable::new(512, &secret).unwrap();
        let mut side = table.attach(0).unwrap();
        let (mut pruned, mut plain) =
            (Subtables::with_nodes(&secret, nodes), Subtables::without_pruning(&secret));
        let (mut live, mut notices) = (Vec::<FlowId>::new(), Vec::<FlowDeleted>::new());
        let mut read_notices = |side: &mut crate::PmdSide, pruned: &mut Subtables, plain: &mut Subtables| {
            side.notices.take(usize::MAX, &mut notices);
            for deleted in notices.drain(..) {
                pruned.remove(&deleted);
                plain.remove(&deleted);
            }
        };
        for step in steps {
            match step {
                TestStep::Install(new) => {
                    let guard = side.reader.pin();
                    let flows = table.read(&guard);
                    for (mask, key) in new {
                        let installed = table.install(0, &key, &translation(mask.get(&masks)), 0, |_| true, |_, _, _| ());
                        if let Installed::New(id) = installed {
                            live.push(id);
                        }
                        if let Installed::New(FlowId(id)) | Installed::Existing(FlowId(id)) = installed {
                            let flow = flows.get(id).unwrap();
                            prop_assert_eq!(pruned.insert(&key, flow), plain.insert(&key, flow));
                        }
                    }
                }
                TestStep::Lookup(batch) => {
                    compare(&table, &mut side, [&mut pruned, &mut plain], &batch);
                }
                TestStep::Remove(from, n) if !live.is_empty() => {
                    let from = from.index(live.len());
                    let n = n.min(live.len() - from);
                    live.drain(from..from + n).for_each(|id| assert!(table.remove(id).is_some()));
                }
                TestStep::Remove(..) => {}
                TestStep::ReadNotices => read_notices(&mut side, &mut pruned, &mut plain),
                TestStep::Settle => table.settle(&mut |_, _| ()),
                TestStep::Rank => [&mut pruned, &mut plain].into_iter().for_each(|s| s.maintain(u64::MAX / 2)),
            }
            prop_assert_eq!((pruned.flows(), pruned.subtables()), (plain.flows(), plain.subtables()));
        }
        live.into_iter().for_each(|id| assert!(table.remove(id).is_some()));
        table.settle(&mut |_, _| ());
        read_notices(&mut side, &mut pruned, &mut plain);
        prop_assert_eq!((pruned.flows(), pruned.subtables(), pruned.nodes_left()), (0, 0, nodes));
    }
}

/// Many different masks, so that sets take several words and blocks, and each megaflow is found by its own mask.
#[test]
fn thousands_of_masks() {
    let secret = HashKey::from_seed(3);
    let table = MegaflowTable::new(8192, &secret).unwrap();
    let mut side = table.attach(0).unwrap();
    let (mut pruned, mut plain) = (Subtables::new(&secret), Subtables::without_pruning(&secret));
    let (mut keys, mut probes) = (Vec::new(), 0);
    for n in 0..32 * 16 * 10u32 {
        let (mut key, mut mask) = (PacketKey::ZERO, PacketKey::ZERO);
        key.set(layout::IN_PORT, &[0, 0, 0, 1]);
        mask.set(layout::IN_PORT, &[0xff; 4]);
        mask.set(layout::RECIRC_ID, &[0xff; 4]);
        for (span, at) in [(layout::NW_SRC, n % 32), (layout::TP_SRC, n / 32 % 16), (layout::TP_DST, n / 512)] {
            let bit = 1u64 << (span.size as u32 * 8 - 1 - at);
            key.lines[0].0[span.range()].copy_from_slice(&bit.to_be_bytes()[8 - span.size..]);
            mask.lines[0].0[span.range()].copy_from_slice(&(!(bit - 1)).to_be_bytes()[8 - span.size..]);
        }
        let Installed::New(FlowId(id)) = table.install(0, &key, &translation(&mask), 0, |_| true, |_, _, _| ()) else {
            panic!("{n}")
        };
        let guard = side.reader.pin();
        let flow = table.read(&guard).get(id).unwrap();
        assert!(pruned.insert(&key, flow) && plain.insert(&key, flow));
        keys.push(key);
    }
    assert_eq!(pruned.subtables(), keys.len());
    for _ in 0..3 {
        for batch in keys.chunks(BATCH_MAX) {
            assert_eq!(compare(&table, &mut side, [&mut pruned, &mut plain], batch), batch.len());
        }
        probes = pruned.take_probes();
    }
    let each = probes as f64 / (keys.len() * Isa::available().len()) as f64;
    assert!(each < 4.0, "{each} subtables asked for a hit");
}
