//! The whole lookup compared with a plain map, step by step: installing, removing, looking up, ids used again at once,
//! colliding tags, full buckets, late notices, hints that name a wrong subtable.

use crate::{
    Distributor, DistributorTable, Emc, FlowView, Hits, Installed, LookupBatch, LookupStage, Megaflow, MegaflowTable,
    PmdSide, Smc, Subtables, key_hash,
};
use proptest::prelude::*;
use sluice_action::{Action, FlowId, FlowModification, MegaflowStore, PortNo, Translation, XcacheHandle};
use sluice_fate::DropReason;
use sluice_flow::{PacketKey, layout};
use sluice_packet::{BATCH_MAX, BatchMask};
use sluice_simd::isa::Kernel;
use sluice_simd::{HashKey, Isa, VectorOps};
use std::collections::HashMap;
use std::sync::Arc;

/// The masks of the tables. The first byte of the destination, which all masks have, decides which mask applies.
const MASKS: u8 = 5;

/// A packet with few values in every field, so that many packets collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Fields {
    in_port: u32,
    recirc_id: u32,
    class: u8,
    dst: u8,
    src: u8,
    label: u8,
}

fn fields() -> impl Strategy<Value = Fields> {
    (1..3u32, 0..2u32, 0..MASKS, 0..4u8, 0..3u8, 0..3u8)
        .prop_map(|(in_port, recirc_id, class, dst, src, label)| Fields { in_port, recirc_id, class, dst, src, label })
}

impl Fields {
    fn key(self) -> PacketKey {
        let mut key = PacketKey::ZERO;
        key.set(layout::IN_PORT, &self.in_port.to_be_bytes());
        key.set(layout::RECIRC_ID, &self.recirc_id.to_be_bytes());
        key.set(layout::NW_DST, &[self.class, 0, 0, self.dst]);
        key.set(layout::NW_SRC, &[0, 0, 0, self.src]);
        if self.label != 0 {
            key.set(layout::IPV6_LABEL, &[0, 0, 0, self.label]);
        }
        key
    }

    fn mask(self) -> PacketKey {
        let mut mask = PacketKey::ZERO;
        if self.class != 4 {
            // Class 4 leaves the port open: its megaflows are in several tables.
            mask.set(layout::IN_PORT, &[0xff; 4]);
        }
        mask.set(layout::RECIRC_ID, &[0xff; 4]);
        mask.set(layout::NW_DST, &[0xff, 0, 0, if self.class.is_multiple_of(2) { 0xff } else { 0 }]);
        if self.class >= 2 {
            mask.set(layout::NW_SRC, &[0, 0, 0, 0xff]);
        }
        if self.class == 3 {
            mask.set(layout::IPV6_LABEL, &[0, 0, 0, 0xff]);
        }
        mask
    }

    /// The packet under its mask: the identity of its megaflow.
    fn masked(self) -> Fields {
        Fields {
            in_port: if self.class == 4 { 0 } else { self.in_port },
            dst: if self.class.is_multiple_of(2) { self.dst } else { 0 },
            src: if self.class >= 2 { self.src } else { 0 },
            label: if self.class == 3 { self.label } else { 0 },
            ..self
        }
    }
}

#[derive(Clone, Debug)]
enum TestStep {
    /// Look up a batch, translate what misses, check every result.
    Lookup(Vec<Fields>),
    /// The tables change: the megaflow is removed.
    Change(Fields),
    /// The tables change: the megaflow is modified.
    Modify(Fields),
    /// The PMD reads its notices.
    ReadNotices,
    /// Dead records are reclaimed, so that their ids are used again.
    Settle,
    Sweep,
    Rank,
    /// These levels are used from now on. Entries in the others stay and become stale.
    Ask(Asked),
}

/// Which levels are used.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// The packets of a batch that may use the EMC, as bits.
    emc: u32,
    smc: bool,
    distributor: bool,
}

fn asked() -> impl Strategy<Value = Asked> {
    let emc = prop_oneof![Just(0), Just(u32::MAX), any::<u32>()];
    (emc, any::<bool>(), any::<bool>()).prop_map(|(emc, smc, distributor)| Asked { emc, smc, distributor })
}

fn step() -> impl Strategy<Value = TestStep> {
    prop_oneof![
        6 => prop::collection::vec(fields(), 1..=BATCH_MAX).prop_map(TestStep::Lookup),
        4 => fields().prop_map(TestStep::Change),
        4 => fields().prop_map(TestStep::Modify),
        1 => Just(TestStep::ReadNotices),
        2 => Just(TestStep::Settle),
        1 => Just(TestStep::Sweep),
        1 => Just(TestStep::Rank),
        2 => asked().prop_map(TestStep::Ask),
    ]
}

/// One PMD's levels.
struct Levels {
    side: PmdSide,
    emc: Emc,
    smc: Smc,
    distributor: Distributor,
    subtables: Subtables,
    notices: Vec<crate::FlowDeleted>,
    asked: Asked,
}

/// How weak the hash is.
#[derive(Clone, Copy, Debug)]
enum Hash {
    Good,
    /// Many keys share a tag in subtables.
    Weak,
    /// All keys also have the same hash in the EMC.
    Constant,
}

struct World {
    table: MegaflowTable,
    secret: HashKey,
    hash: Hash,
    isa: Isa,
    pmds: Vec<Levels>,
    /// The tables' current output for each class, if it is not 0.
    says: HashMap<Fields, u32>,
}

/// The setup of the levels.
#[derive(Clone, Copy, Debug)]
struct Setup {
    hash: Hash,
    /// 0: it is off.
    emc_entries: usize,
    /// 0: it is off.
    smc_entries: usize,
    distributor: Option<DistributorTable>,
    distributor_entries: usize,
    isa: Isa,
}

fn setup() -> impl Strategy<Value = Setup> {
    let distributor = prop_oneof![
        2 => Just(None),
        3 => prop::sample::select(&DistributorTable::ALL[..]).prop_map(Some)
    ];
    (
        prop_oneof![Just(Hash::Good), Just(Hash::Weak), Just(Hash::Constant)],
        prop_oneof![2 => Just(0usize), 1 => Just(1), 1 => Just(8), 1 => Just(64)],
        prop_oneof![2 => Just(0usize), 1 => Just(1), 1 => Just(40)],
        (distributor, prop_oneof![Just(1usize), Just(100)]),
        prop::sample::select(Isa::available()),
    )
        .prop_map(|(hash, emc_entries, smc_entries, (distributor, distributor_entries), isa)| Setup {
            hash,
            emc_entries,
            smc_entries,
            distributor,
            distributor_entries,
            isa,
        })
}

/// A cache with `entries` entries; off if 0.
fn smc(entries: usize) -> Smc {
    let mut smc = Smc::new(entries);
    smc.set_on(entries != 0);
    smc
}

fn distributor(setup: &Setup) -> Distributor {
    let mut distributor = Distributor::new(Some(setup.distributor_entries), 3);
    distributor.set(setup.distributor.as_slice());
    distributor
}

/// A cache's lookup, with the vector operations of an instruction set.
struct Ask<'a, 'g, S>(&'a mut S, &'a LookupBatch<'a, 'g>, BatchMask, &'a mut Hits<'g>);

/// [`Smc::lookup_ahead`], which lookups use if there are many megaflows.
struct AskAhead<'a, 'g>(&'a Smc, &'a LookupBatch<'a, 'g>, BatchMask, &'a mut Hits<'g>);

impl Kernel for AskAhead<'_, '_> {
    type Output = BatchMask;

    #[inline(always)]
    fn run<V: VectorOps>(self, ops: V) -> BatchMask {
        self.0.lookup_ahead(ops, self.1, self.2, self.3)
    }
}

impl<S: LookupStage> Kernel for Ask<'_, '_, S> {
    type Output = BatchMask;

    #[inline(always)]
    fn run<V: VectorOps>(self, ops: V) -> BatchMask {
        self.0.lookup(ops, self.1, self.2, self.3)
    }
}

impl World {
    fn new(setup: Setup) -> Self {
        let Setup { hash, emc_entries, smc_entries, .. } = setup;
        let secret = match hash {
            Hash::Good => HashKey::from_seed(1),
            Hash::Weak | Hash::Constant => HashKey::from_addends([0; sluice_simd::hash::PLACES]),
        };
        let table = MegaflowTable::new(96, &secret).unwrap();
        let pmd = |number| Levels {
            side: table.attach(number).unwrap(),
            emc: Emc::new(emc_entries, u32::from(emc_entries != 0), 5),
            smc: smc(smc_entries),
            distributor: distributor(&setup),
            subtables: Subtables::new(&secret),
            notices: Vec::new(),
            asked: Asked { emc: u32::MAX, smc: true, distributor: true },
        };
        let pmds = vec![pmd(0), pmd(1)];
        World { pmds, table, secret, hash, isa: setup.isa, says: HashMap::new() }
    }

    fn say(&self, fields: Fields) -> u32 {
        self.says.get(&fields.masked()).copied().unwrap_or(0)
    }

    fn lookup(&mut self, pmd: usize, batch: &[Fields]) {
        let mut keys = [PacketKey::ZERO; BATCH_MAX];
        let mut hashes = [0; BATCH_MAX];
        for (i, fields) in batch.iter().enumerate() {
            keys[i] = fields.key();
            hashes[i] = match self.hash {
                Hash::Constant => 0x0700_0000_0000,
                _ => key_hash(&self.secret, &keys[i]),
            };
        }
        let said: Vec<_> = batch.iter().map(|fields| self.say(*fields)).collect();
        let Levels { side, emc, smc, distributor, subtables, asked, .. } = &mut self.pmds[pmd];
        let guard = side.reader.pin();
        let flows = self.table.read(&guard);
        let lookup = LookupBatch::new(&keys, &hashes, flows, &side.counters, self.isa);
        let mut hits: Hits<'_> = [None; BATCH_MAX];
        let all = BatchMask::first(batch.len());
        let users = BatchMask(all.0 & asked.emc);
        let after_emc = BatchMask(all.0 & !users.0 | self.isa.run(Ask(emc, &lookup, users, &mut hits)).0);
        let mut hits_ahead = hits;
        let after_smc = if asked.smc { self.isa.run(Ask(smc, &lookup, after_emc, &mut hits)) } else { after_emc };
        if asked.smc && smc.is_on() {
            let after_ahead = self.isa.run(AskAhead(smc, &lookup, after_emc, &mut hits_ahead));
            let ids = |hits: &Hits<'_>| hits.map(|hit| hit.map(Megaflow::id));
            assert_eq!((after_ahead, ids(&hits_ahead)), (after_smc, ids(&hits)));
        }
        let mut searched = after_smc;
        if asked.distributor {
            searched = distributor.lookup(subtables, &lookup, after_smc, &mut hits);
        }
        let answers = distributor.take_answers();
        let hinted = if distributor.is_on() && asked.distributor { after_smc.len() } else { 0 };
        assert_eq!(answers.hits + answers.misses + answers.wrong, hinted as u64);
        assert_eq!(answers.hits, (after_smc.len() - searched.len()) as u64);
        let left = subtables.lookup(&lookup, searched, &mut hits);
        let narrows = [(all, after_emc), (after_emc, after_smc), (after_smc, searched), (searched, left)];
        assert!(narrows.iter().all(|(wide, narrow)| narrow.0 & !wide.0 == 0), "each level narrows");
        for i in 0..batch.len() {
            assert_eq!(hits[i].is_none(), left.contains(i));
            let Some(flow) = hits[i] else { continue };
            assert_eq!(flow.actions()[..], [Action::Output(PortNo(said[i]))], "{:?}", batch[i]);
            if !after_emc.contains(i) {
                continue;
            }
            if users.contains(i) {
                emc.offer(hashes[i], flow.id());
            }
            if asked.smc && after_smc.contains(i) {
                smc.insert(hashes[i], flow.id());
            }
            if asked.distributor && searched.contains(i) {
                distributor.note(subtables, hashes[i], &keys[i], flow);
            }
        }
        for i in left {
            let translation = translation(batch[i].mask(), said[i]);
            match self.table.install(0, &keys[i], &translation, 0, |_| true, |_, _, _| ()) {
                Installed::New(FlowId(id)) | Installed::Existing(FlowId(id)) | Installed::Modified(FlowId(id)) => {
                    let flow = flows.get(id).unwrap();
                    assert!(flow.contains(&keys[i]));
                    subtables.insert(&keys[i], flow);
                    side.counters.set_indexed(flow.id());
                    if users.contains(i) {
                        emc.offer(hashes[i], flow.id());
                    }
                    if asked.smc {
                        smc.insert(hashes[i], flow.id());
                    }
                    if asked.distributor {
                        distributor.note(subtables, hashes[i], &keys[i], flow);
                    }
                }
                Installed::Full | Installed::OverQuota => {}
                Installed::Stale => panic!("it was current"),
                Installed::Busy => panic!("nobody else locks it"),
            }
        }
    }

    fn change(&mut self, fields: Fields) {
        *self.says.entry(fields.masked()).or_insert(0) += 1;
        self.megaflow(fields).inspect(|flow| assert!(self.table.remove(flow.id).is_some()));
    }

    fn modify(&mut self, fields: Fields) {
        let says = self.says.entry(fields.masked()).or_insert(0);
        *says += 1;
        let translation = &translation(fields.mask(), *says);
        if let Some(flow) = self.megaflow(fields) {
            let mut modification = FlowModification { translation, is_current: &mut || true };
            assert!(self.table.modify(flow.id, &flow.translation.xcache, &mut modification).is_some());
        }
    }

    fn megaflow(&self, fields: Fields) -> Option<FlowView> {
        let mut found = Vec::new();
        self.table.for_each_view(|flow| {
            if flow.matched.contains(&fields.key()) {
                found.push(flow);
            }
        });
        assert!(found.len() <= 1, "no packet has two megaflows");
        found.pop()
    }

    fn read_notices(&mut self, pmd: usize) {
        let Levels { side, emc, subtables, notices, .. } = &mut self.pmds[pmd];
        side.notices.take(usize::MAX, notices);
        let guard = side.reader.pin();
        let flows = self.table.read(&guard);
        notices.drain(..).for_each(|deleted| subtables.read_notice(&deleted, flows, &side.counters));
        emc.forget();
    }

    fn sweep(&mut self, pmd: usize) {
        let Levels { side, emc, .. } = &mut self.pmds[pmd];
        let guard = side.reader.pin();
        emc.sweep(self.table.read(&guard));
    }
}

fn translation(mask: PacketKey, port: u32) -> Translation {
    Translation {
        mask,
        actions: Arc::new([Action::Output(PortNo(port))]),
        no_output: DropReason::Rules,
        version: 0,
        cacheable: true,
        xcache: XcacheHandle(Arc::new(())),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_is_what_the_tables_say_now(
        steps in prop::collection::vec((0..2usize, step()), 1..120),
        setup in setup(),
    ) {
        let mut world = World::new(setup);
        for (pmd, step) in steps {
            match step {
                TestStep::Lookup(batch) => world.lookup(pmd, &batch),
                TestStep::Change(fields) => world.change(fields),
                TestStep::Modify(fields) => world.modify(fields),
                TestStep::ReadNotices => world.read_notices(pmd),
                TestStep::Settle => world.table.settle(&mut |_, _| panic!("nothing was counted")),
                TestStep::Sweep => world.sweep(pmd),
                TestStep::Ask(asked) => world.pmds[pmd].asked = asked,
                TestStep::Rank => (0..3).for_each(|_| world.pmds[pmd].subtables.maintain(u64::MAX / 2)),
            }
            for levels in &world.pmds {
                let usage = levels.emc.usage();
                prop_assert_eq!(usage.used, levels.emc.count_used());
                prop_assert!(usage.used <= usage.entries);
            }
        }
        // After removing everything nothing is left.
        let mut ids = Vec::new();
        world.table.for_each(&mut |flow| ids.push(flow.id));
        ids.into_iter().for_each(|id| assert!(world.table.remove(id).is_some()));
        world.table.settle(&mut |_, _| ());
        prop_assert!(world.table.is_empty());
        for pmd in 0..2 {
            world.read_notices(pmd);
            (0..10).for_each(|_| world.sweep(pmd));
            let levels = &world.pmds[pmd];
            prop_assert_eq!((levels.subtables.subtables(), levels.subtables.flows()), (0, 0));
            prop_assert_eq!(levels.emc.usage().used, 0);
        }
    }
}
