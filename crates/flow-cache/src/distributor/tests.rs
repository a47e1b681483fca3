use super::*;
use crate::{Installed, MegaflowTable, PmdSide, key_hash};
use sluice_action::{FlowId, MegaflowStore, Translation, XcacheHandle};
use sluice_fate::DropReason;
use sluice_flow::layout;
use sluice_simd::HashKey;
use std::sync::Arc;

/// A distributor in front of subtables with one megaflow each.
struct World {
    secret: HashKey,
    table: MegaflowTable,
    side: PmdSide,
    subtables: Subtables,
    distributor: Distributor,
    /// Packets looked up so far.
    asked: usize,
}

/// The packet of flow `flow` in subtable `subtable`.
fn key(subtable: u16, flow: u16) -> PacketKey {
    let mut key = PacketKey::ZERO;
    key.set(layout::NW_SRC, &[0, 0, (subtable >> 8) as u8, subtable as u8]);
    key.set(layout::NW_DST, &[10, 0, (flow >> 8) as u8, flow as u8]);
    key
}

/// All subtables match the source; their masks differ in a field that is always zero.
fn mask(subtable: u16) -> PacketKey {
    let mut mask = PacketKey::ZERO;
    mask.set(layout::IN_PORT, &[0xff; 4]);
    mask.set(layout::RECIRC_ID, &[0xff; 4]);
    mask.set(layout::NW_SRC, &[0xff; 4]);
    mask.set(layout::DL_DST, &[0, 0, 0, 0, (subtable >> 8) as u8, subtable as u8]);
    mask
}

impl World {
    fn new(kind: DistributorTable, subtables: u16) -> Self {
        let secret = HashKey::from_seed(1);
        let table = MegaflowTable::new(1024, &secret).unwrap();
        let side = table.attach(0).unwrap();
        let mut distributor = Distributor::new(Some(1 << 16), 7);
        assert!(!distributor.is_on());
        distributor.set(&[kind]);
        assert_eq!(distributor.kind(), Some(kind));
        let mut world = World { subtables: Subtables::new(&secret), secret, table, side, distributor, asked: 0 };
        (0..subtables).for_each(|subtable| world.install(subtable));
        world
    }

    fn install(&mut self, subtable: u16) {
        let translation = Translation {
            mask: mask(subtable),
            actions: [].into(),
            no_output: DropReason::Rules,
            version: 0,
            cacheable: true,
            xcache: XcacheHandle(Arc::new(())),
        };
        let installed = self.table.install(0, &key(subtable, 0), &translation, 0, |_| true, |_, _, _| ());
        let Installed::New(FlowId(id)) = installed else { panic!("{installed:?}") };
        let guard = self.side.reader.pin();
        self.subtables.insert(&key(subtable, 0), self.table.read(&guard).get(id).unwrap());
    }

    /// Looks up one packet; returns the distributor's outcome.
    fn ask(&mut self, key: PacketKey) -> DistributorAnswers {
        // In turn by each instruction set, alone in its batch or behind others that are not asked about.
        let isas = Isa::available();
        let (isa, i) = (isas[self.asked / 2 % isas.len()], self.asked % 2 * 5);
        self.asked += 1;
        let mut keys = [PacketKey::ZERO; BATCH_MAX];
        keys[i] = key;
        let hashes = [key_hash(&self.secret, &key); BATCH_MAX];
        let guard = self.side.reader.pin();
        let (flows, counters) = (self.table.read(&guard), &self.side.counters);
        let batch = LookupBatch::new(&keys, &hashes, flows, counters, isa);
        let mut hits = [None; BATCH_MAX];
        let left = self.distributor.lookup(&mut self.subtables, &batch, BatchMask(1 << i), &mut hits);
        let missing = self.subtables.lookup(&batch, left, &mut hits);
        if let Some(flow) = hits[i] {
            assert!(flow.contains(&key) && missing.is_empty());
            if !left.is_empty() {
                self.distributor.note(&mut self.subtables, hashes[i], &key, flow);
            }
        }
        self.distributor.take_answers()
    }
}

const HIT: DistributorAnswers = DistributorAnswers { hits: 1, misses: 0, wrong: 0 };
const MISS: DistributorAnswers = DistributorAnswers { hits: 0, misses: 1, wrong: 0 };

#[test]
fn what_the_search_found_once_is_asked_for_directly() {
    for kind in DistributorTable::ALL {
        let mut world = World::new(kind, 20);
        let flows = || (0..2000).map(|flow| key(flow % 20, flow));
        let first: u64 = flows().map(|key| world.ask(key).hits).sum();
        world.subtables.take_probes();
        let again: u64 = flows().map(|key| world.ask(key).hits).sum();
        let probes = world.subtables.take_probes();
        assert!(first < 200, "{kind:?} knew {first} flows before they came");
        assert!(again > 1980, "{kind:?} hit {again} of 2000");
        assert!(probes < 2200, "{kind:?} asked {probes} subtables for 2000 packets");
    }
}

#[test]
fn a_subtable_that_has_gone_is_a_wrong_answer_until_the_flow_is_found_elsewhere() {
    for kind in [DistributorTable::Own, DistributorTable::Ht] {
        let mut world = World::new(kind, 3);
        let packet = key(1, 9);
        assert_eq!([world.ask(packet), world.ask(packet)], [MISS, HIT], "{kind:?}");
        let mut deleted = Vec::new();
        world.table.remove(FlowId(1)).unwrap();
        world.side.notices.take(usize::MAX, &mut deleted);
        deleted.iter().for_each(|deleted| world.subtables.remove(deleted));
        // Another mask takes its place in the table.
        world.install(7);
        let wrong = DistributorAnswers { hits: 0, misses: 0, wrong: 1 };
        assert_eq!([world.ask(packet), world.ask(packet)], [wrong; 2], "{kind:?}: nobody has the packet");
        world.install(1);
        assert_eq!([world.ask(packet), world.ask(packet)], [wrong, HIT], "{kind:?}");
    }
}

#[test]
fn a_bloom_filter_knows_so_many_subtables_and_no_more() {
    let max = DistributorTable::Vbf.max_subtables() as u16;
    let mut world = World::new(DistributorTable::Vbf, max + 10);
    let asked = |world: &mut World| -> u64 { (0..max + 10).map(|subtable| world.ask(key(subtable, 1)).hits).sum() };
    // It was rebuilt for more sets several times while subtables were added, and lost its content each time.
    for _ in 0..2 {
        asked(&mut world);
    }
    assert_eq!(asked(&mut world), u64::from(max));
}

#[test]
fn a_bloom_filter_that_is_full_starts_anew() {
    let mut table = VbfTable::new(100, 1);
    (0..100).for_each(|hash| table.note(hash, 1));
    let found = |table: &mut VbfTable, hash: u64| {
        let mut found = [0];
        table.find(Isa::best(), &[hash], &mut found, 0);
        found[0]
    };
    assert!((0..100).all(|hash| found(&mut table, hash) == 1));
    table.note(1000, 2);
    assert!((0..100).filter(|hash| found(&mut table, *hash) != 0).count() < 20);
    assert_eq!(found(&mut table, 1000), 2);
}
