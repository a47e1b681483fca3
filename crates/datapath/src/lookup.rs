//! The lookup room: from keys to megaflows, level by level.

use crate::walk::Context;
use sluice_fate::Counter;
use sluice_flow::PacketKey;
use sluice_flow_cache::{Emc, EmcUsage, Hits, LookupStage, Pass, Smc, Subtables, key_hash};
use sluice_packet::{BATCH_MAX, BatchMask};
use sluice_simd::HashKey;

/// One PMD's indexes.
pub(crate) struct Levels {
    secret: HashKey,
    emc: Emc,
    smc: Smc,
    subtables: Subtables,
    hashes: [u64; BATCH_MAX],
}

impl Levels {
    pub fn new(secret: &HashKey, emc: Emc, smc: Smc) -> Self {
        Levels { secret: secret.clone(), emc, smc, subtables: Subtables::new(secret), hashes: [0; BATCH_MAX] }
    }

    /// Looks up the first `n` keys. Returns who still misses.
    #[inline]
    pub fn room<'g>(
        &mut self,
        keys: &[PacketKey; BATCH_MAX],
        n: usize,
        hits: &mut Hits<'g>,
        context: &mut Context<'_, 'g>,
    ) -> BatchMask {
        let all = BatchMask::first(n);
        if self.emc.is_on() || self.smc.is_on() {
            keys.iter().zip(&mut self.hashes).take(n).for_each(|(key, hash)| *hash = key_hash(&self.secret, key));
        }
        let pass = Pass { keys, hashes: &self.hashes, flows: context.flows };
        let after_emc = self.emc.lookup(&pass, all, hits);
        let tally = &mut *context.tally;
        tally[Counter::Passes] += n as u64;
        tally[Counter::EmcHits] += (n - after_emc.len()) as u64;
        if after_emc.is_empty() {
            return after_emc;
        }
        let after_smc = self.smc.lookup(&pass, after_emc, hits);
        tally[Counter::SmcHits] += (after_emc.len() - after_smc.len()) as u64;
        let mut left = after_smc;
        if !after_smc.is_empty() {
            left = self.subtables.lookup(&pass, after_smc, hits);
            tally[Counter::MegaflowHits] += (after_smc.len() - left.len()) as u64;
            tally[Counter::SubtableProbes] += self.subtables.take_probes();
            if self.smc.is_on() {
                let found = BatchMask(after_smc.0 & !left.0);
                found.for_each(|i| hits[i].iter().for_each(|flow| self.smc.insert(self.hashes[i], flow.id())));
            }
        }
        if self.emc.is_on() {
            let found = BatchMask(after_emc.0 & !left.0);
            found.for_each(|i| hits[i].iter().for_each(|flow| self.emc.offer(self.hashes[i], flow.id())));
        }
        left
    }

    /// Indexes a megaflow that an upcall brought for packet `i` of the pass under way.
    pub fn insert(&mut self, i: usize, key: &PacketKey, flow: &sluice_flow_cache::Megaflow) {
        self.subtables.insert(key, flow);
        if self.emc.is_on() {
            self.emc.offer(self.hashes[i], flow.id());
        }
        if self.smc.is_on() {
            self.smc.insert(self.hashes[i], flow.id());
        }
    }

    /// Forgets megaflows that have died.
    pub fn forget(&mut self, died: &[sluice_flow_cache::Died]) {
        died.iter().for_each(|died| self.subtables.remove(died));
        self.emc.forget();
    }

    /// What is to be done once an iteration, not once a packet.
    #[inline]
    pub fn maintain(&mut self, context: &Context<'_, '_>) {
        self.emc.sweep(context.flows);
        self.subtables.maintain(context.now_ms);
    }

    pub fn set_emc_insert_inv_prob(&mut self, n: u32) {
        self.emc.set_insert_inv_prob(n);
    }

    pub fn set_smc(&mut self, on: bool) {
        self.smc.set_on(on);
    }

    pub fn emc_usage(&self) -> EmcUsage {
        self.emc.usage()
    }

    pub fn subtables(&self) -> &Subtables {
        &self.subtables
    }
}
