//! The stage `lookup`: from keys to megaflows, level by level.

use crate::arm::{Arm, EmcInsert};
use crate::batch::Batch;
use crate::caches::Caches;
use crate::context::Context;
use crate::emc_insert::AdaptiveInsert;
use crate::emc_recirc::{Candidates, EmcRecirc, Gate};
use crate::first_index::HashKind;
use crate::settings::Settings;
use crate::stage_cycles::Stage;
use sluice_fate::{Counter, Tally};
use sluice_flow::PacketKey;
use sluice_flow_cache::{
    Distributor, Emc, EmcUsage, FlowCounters, FlowDeleted, Hits, LookupBatch, LookupStage, Megaflow, Smc, Subtables,
    flow_hash, hashes_together, key_hash, key_hashes,
};
use sluice_packet::{BATCH_MAX, BatchMask};
use sluice_simd::isa::Kernel;
use sluice_simd::vector_ops::TOGETHER;
use sluice_simd::{HashKey, Isa, VectorOps};
use sluice_sync::Slots;

/// One PMD's indexes.
pub(crate) struct Levels {
    secret: HashKey,
    emc: Emc,
    smc: Smc,
    distributor: Distributor,
    subtables: Subtables,
    /// The levels that are asked now.
    arm: Arm,
    gate: Gate,
    insert: AdaptiveInsert,
    isa: Isa,
}

impl Levels {
    pub fn new(secret: &HashKey, settings: &Settings, caches: Caches) -> Self {
        let mut levels = Levels {
            secret: secret.clone(),
            emc: Emc::new(0, 1, 0),
            smc: Smc::new(settings.smc_entries),
            distributor: Distributor::new(None, 0),
            subtables: Subtables::new(secret),
            arm: Arm::BARE,
            gate: Gate::OPEN,
            insert: AdaptiveInsert::ALL,
            isa: settings.vector,
        };
        levels.set(settings, caches);
        levels
    }

    /// Changes settings and caches. Returns the caches that were replaced, so that a control thread frees them.
    pub fn set(&mut self, settings: &Settings, mut caches: Caches) -> Caches {
        if let Some(emc) = &mut caches.emc {
            std::mem::swap(emc, &mut self.emc);
        }
        if let Some(smc) = &mut caches.smc {
            std::mem::swap(smc, &mut self.smc);
        }
        if let Some(distributor) = &mut caches.distributor {
            std::mem::swap(distributor, &mut self.distributor);
        }
        self.isa = settings.vector;
        self.distributor.set_isa(settings.distributor_vector);
        self.subtables.set_search(settings.search);
        self.gate.set_threshold(settings.emc_recirc_threshold);
        self.insert.set_threshold(settings.emc_recirc_threshold);
        self.use_arm(Arm::all(settings)[0]);
        caches
    }

    /// Asks these levels from now on. Entries of the others stay: they are hints, and may be of use again.
    #[inline]
    pub fn use_arm(&mut self, arm: Arm) {
        self.arm = arm;
        match arm.emc {
            Some(EmcInsert::OneIn(n)) => self.emc.set_insert_inv_prob(n),
            Some(EmcInsert::Adaptive) => self.emc.set_insert_inv_prob(self.insert.inv_prob()),
            None => {}
        }
        if let Some(table) = arm.distributor {
            self.distributor.use_table(table);
        }
    }

    /// The vector instructions in use.
    #[inline]
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Looks up the packets that have no composed entry and are not known otherwise. Those that no level knows are in `missed` afterwards.
    #[inline]
    pub fn lookup<'g>(&mut self, batch: &mut Batch<'_, 'g>, context: &mut Context<'_, 'g>) {
        context.tally[Counter::Passes] += batch.packets.len() as u64;
        let asked = BatchMask(batch.all().0 & !batch.composed.0 & !batch.known.0);
        batch.missed = asked;
        if !asked.is_empty() {
            self.isa.run(AskLevels { levels: self, batch, context });
            for i in batch.missed {
                batch.hits[i] = None;
            }
        }
    }

    /// Whether a level in use finds by hash.
    #[inline]
    pub fn asks_by_hash(&self) -> bool {
        let Arm { emc, smc, distributor, .. } = self.arm;
        emc.is_some() || smc || distributor.is_some()
    }

    /// Whether the first cache in use is larger than the second-level cache, and so is prefetched while packets are still read.
    #[inline]
    pub fn exceeds_l2(&self) -> bool {
        if self.arm.emc.is_some() { self.emc.exceeds_l2() } else { self.arm.smc && self.smc.exceeds_l2() }
    }

    /// Hashes the first `n` of some keys, and fetches the lines that the first cache in use will look them up in.
    #[inline(always)]
    pub fn hash_and_prefetch<V: VectorOps>(
        &self,
        ops: V,
        keys: &[PacketKey; TOGETHER],
        n: usize,
        hashes: &mut [u64; TOGETHER],
    ) {
        hashes_together(ops, &self.secret, keys, n, hashes);
        if self.arm.emc.is_some() {
            self.emc.prefetch(&hashes[..n]);
        } else if self.arm.smc {
            self.smc.prefetch(&hashes[..n]);
        }
    }

    /// Asks each level in use about the packets that are still missing.
    #[inline(always)]
    fn ask<'g, V: VectorOps>(&mut self, ops: V, batch: &mut Batch<'_, 'g>, context: &mut Context<'_, 'g>) {
        let Arm { emc, emc_recirc, smc, distributor } = self.arm;
        let is_prefetched = batch.hash_kind == HashKind::Keys;
        if self.asks_by_hash() && !is_prefetched {
            key_hashes(ops, &self.secret, batch.keys, batch.packets.len(), batch.hashes);
        }
        let (keys, hashes, hits) = (&*batch.keys, &*batch.hashes, &mut batch.hits);
        debug_assert!(
            !is_prefetched || (0..batch.packets.len()).all(|i| hashes[i] == key_hash(&self.secret, &keys[i]))
        );
        let (flows, counters) = (context.flows, context.counters);
        let mut pass = LookupBatch { is_prefetched, ..LookupBatch::new(keys, hashes, flows, counters, self.isa) };
        let asked = batch.missed;
        let tally = &mut *context.tally;
        let mut after_emc = asked;
        if let Some(insert) = emc {
            let is_gated = emc_recirc != EmcRecirc::Always && (batch.is_recirculated || emc_recirc.is_for_every_pass());
            batch.emc_users = asked;
            if is_gated {
                let candidates = Candidates { asked, hashes, packets: batch.packets };
                batch.emc_users = self.gate.admit(emc_recirc, &candidates, &self.emc.usage());
            }
            let missed = self.emc.lookup(ops, &pass, batch.emc_users, hits);
            if is_gated {
                let looked = batch.emc_users.len();
                self.gate.learn(emc_recirc, looked, looked - missed.len(), &self.emc.usage());
                tally[Counter::EmcBypassed] += (asked.len() - looked) as u64;
            }
            after_emc = BatchMask(asked.0 & !batch.emc_users.0 | missed.0);
            if is_gated {
                batch.emc_users = self.gate.insertable(emc_recirc, missed, &self.emc.usage());
                tally[Counter::EmcPenalised] += (missed.len() - batch.emc_users.len()) as u64;
            }
            if insert == EmcInsert::Adaptive {
                let looked = asked.len() - (after_emc.len() - missed.len());
                let n = self.insert.learn(looked, looked - missed.len(), &self.emc.usage());
                self.emc.set_insert_inv_prob(n);
            }
            context.clock.mark(Stage::Emc);
            tally[Counter::EmcHits] += (asked.len() - after_emc.len()) as u64;
            if after_emc.is_empty() {
                batch.missed = after_emc;
                return;
            }
            pass.is_prefetched = false;
        }
        let mut after_smc = after_emc;
        if smc {
            after_smc = self.smc.lookup(ops, &pass, after_emc, hits);
            context.clock.mark(Stage::Smc);
            tally[Counter::SmcHits] += (after_emc.len() - after_smc.len()) as u64;
        }
        let mut left = after_smc;
        if !after_smc.is_empty() {
            left = match distributor {
                Some(_) => self.search_hinted(&pass, after_smc, hits, tally),
                None => self.subtables.lookup(&pass, after_smc, hits),
            };
            tally[Counter::MegaflowHits] += (after_smc.len() - left.len()) as u64;
            tally[Counter::SubtableProbes] += self.subtables.take_probes();
            if smc {
                self.fill_smc(BatchMask(after_smc.0 & !left.0), hashes, hits);
            }
        }
        if emc.is_some() {
            self.fill_emc(BatchMask(after_emc.0 & !left.0 & batch.emc_users.0), hashes, hits);
        }
        context.clock.mark(Stage::Subtables);
        batch.missed = left;
    }

    #[inline(always)]
    fn fill_smc(&mut self, found: BatchMask, hashes: &[u64; BATCH_MAX], hits: &Hits<'_>) {
        for i in found {
            if let Some(flow) = hits[i] {
                self.smc.insert(hashes[i], flow.id());
            }
        }
    }

    #[inline(always)]
    fn fill_emc(&mut self, found: BatchMask, hashes: &[u64; BATCH_MAX], hits: &Hits<'_>) {
        for i in found {
            if let Some(flow) = hits[i] {
                self.emc.offer(hashes[i], flow.id());
            }
        }
    }

    /// Searches for megaflows in the subtable that the distributor names, then in all of them.
    #[inline]
    fn search_hinted<'g>(
        &mut self,
        pass: &LookupBatch<'_, 'g>,
        miss: BatchMask,
        hits: &mut Hits<'g>,
        tally: &mut Tally,
    ) -> BatchMask {
        let searched = self.distributor.lookup(&mut self.subtables, pass, miss, hits);
        let answers = self.distributor.take_answers();
        tally[Counter::DistributorHits] += answers.hits;
        tally[Counter::DistributorMisses] += answers.misses;
        tally[Counter::DistributorWrong] += answers.wrong;
        if searched.is_empty() {
            return searched;
        }
        let left = self.subtables.lookup(pass, searched, hits);
        for i in BatchMask(searched.0 & !left.0) {
            if let Some(flow) = hits[i] {
                self.distributor.note(&mut self.subtables, pass.hashes[i], &pass.keys[i], flow);
            }
        }
        left
    }

    /// A hash of the flow to which a packet belongs under a mask.
    pub fn flow_hash(&self, key: &PacketKey, mask: &PacketKey) -> u64 {
        flow_hash(&self.secret, key, mask)
    }

    /// Indexes a megaflow that an upcall brought for packet `i` of the pass under way.
    pub fn insert(&mut self, i: usize, batch: &Batch<'_, '_>, flow: &Megaflow) {
        let (key, hash) = (&batch.keys[i], batch.hashes[i]);
        self.subtables.insert(key, flow);
        if self.arm.emc.is_some() && batch.emc_users.contains(i) {
            self.emc.offer(hash, flow.id());
        }
        if self.arm.smc {
            self.smc.insert(hash, flow.id());
        }
        if self.arm.distributor.is_some() {
            self.distributor.note(&mut self.subtables, hash, key, flow);
        }
    }

    /// Indexes a megaflow that was put without a packet.
    pub fn index(&mut self, flow: &Megaflow) {
        self.subtables.insert(&flow.key(), flow);
    }

    /// Removes deleted megaflows, and puts the new records of modified ones in place.
    pub fn forget(&mut self, deleted: &[FlowDeleted], flows: Slots<'_, Megaflow>, counters: &FlowCounters) {
        for flow in deleted {
            self.subtables.read_notice(flow, flows, counters);
        }
        self.emc.forget();
    }

    /// What is to be done once an iteration, not once a packet.
    #[inline]
    pub fn maintain(&mut self, context: &Context<'_, '_>) {
        self.emc.sweep(context.flows);
        self.subtables.maintain(context.now_ms);
    }

    /// Whether a cache in use could hold more as soon as a control thread makes memory.
    #[inline]
    pub fn awaits_memory(&self) -> bool {
        self.arm.smc && self.smc.awaits_memory() || self.arm.distributor.is_some() && self.distributor.awaits_memory()
    }

    /// Lines of the caches in use: more after one has grown.
    #[inline]
    pub fn cache_lines(&self) -> usize {
        let smc = if self.arm.smc { self.smc.lines_in_use() } else { 0 };
        let distributor = if self.arm.distributor.is_some() { self.distributor.lines_in_use() } else { 0 };
        smc + distributor
    }

    pub fn emc_usage(&self) -> EmcUsage {
        self.emc.usage()
    }

    pub fn subtables(&self) -> &Subtables {
        &self.subtables
    }
}

/// [`Levels::ask`], compiled for each instruction set.
struct AskLevels<'a, 'b, 'm, 'c, 'g> {
    levels: &'a mut Levels,
    batch: &'a mut Batch<'m, 'g>,
    context: &'b mut Context<'c, 'g>,
}

impl Kernel for AskLevels<'_, '_, '_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<V: VectorOps>(self, ops: V) {
        self.levels.ask(ops, self.batch, self.context);
    }
}
