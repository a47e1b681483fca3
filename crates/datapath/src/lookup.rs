//! The stage `lookup`: from keys to megaflows, level by level.

use crate::EmcRecirc;
use crate::emc_recirc::Gate;
use crate::settings::Level;
use crate::stage_cycles::Stage;
use crate::walk::Context;
use crate::{Arm, Settings};
use sluice_fate::{Counter, Tally};
use sluice_flow::PacketKey;
use sluice_flow_cache::{
    Distributor, DistributorTable, Emc, EmcUsage, Hits, LookupBatch, LookupStage, Smc, Subtables, key_hashes,
};
use sluice_packet::{BATCH_MAX, BatchMask, PacketBatch};
use sluice_simd::hash::splitmix64;
use sluice_simd::isa::Kernel;
use sluice_simd::vector_ops::Scalar;
use sluice_simd::{HashKey, Isa, VectorOps};

/// Flows that each PMD's signature match cache can have room for, in 128 MiB: a million at first, as in OVS (SMC_ENTRIES),
/// twice as many whenever they put each other out.
const SMC_ENTRIES: usize = 1 << 24;

/// Flows that each PMD's distributor has room for, in 4 MiB.
const DISTRIBUTOR_ENTRIES: usize = 1 << 20;

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
    /// Packets of the pass under way that may use the EMC.
    emc_users: BatchMask,
    isa: Isa,
    hashes: [u64; BATCH_MAX],
}

/// Caches on their way to a PMD or back; `None` for one that stays as it is.
pub(crate) struct Caches {
    pub emc: Option<Emc>,
    pub smc: Option<Smc>,
    pub distributor: Option<Distributor>,
}

impl Caches {
    /// Empty caches for these settings. `seed` is drawn from.
    pub fn new(settings: &Settings, seed: &mut u64) -> Self {
        let distributor = Some(distributor(settings, seed));
        Caches { emc: Some(emc(settings, seed)), smc: Some(smc(settings)), distributor }
    }

    /// Those that other settings need.
    pub fn between(old: &Settings, new: &Settings, seed: &mut u64) -> Self {
        Caches {
            emc: (emc_entries(old) != emc_entries(new)).then(|| emc(new, seed)),
            smc: ((old.smc == Level::Off) != (new.smc == Level::Off)).then(|| smc(new)),
            distributor: (distributor_table(old) != distributor_table(new)).then(|| distributor(new, seed)),
        }
    }
}

fn emc_entries(settings: &Settings) -> usize {
    if settings.emc_level() == Level::Off { 0 } else { settings.emc_entries }
}

fn emc(settings: &Settings, seed: &mut u64) -> Emc {
    Emc::new(emc_entries(settings), 1, splitmix64(seed))
}

fn smc(settings: &Settings) -> Smc {
    let mut smc = Smc::new(SMC_ENTRIES);
    smc.set_on(settings.smc != Level::Off);
    smc
}

/// The distributor's table, if it has one.
fn distributor_table(settings: &Settings) -> Option<DistributorTable> {
    (settings.distributor != Level::Off).then_some(settings.distributor_table)
}

fn distributor(settings: &Settings, seed: &mut u64) -> Distributor {
    let mut distributor = Distributor::new(DISTRIBUTOR_ENTRIES, splitmix64(seed));
    distributor.set(distributor_table(settings));
    distributor
}

impl Levels {
    pub fn new(secret: &HashKey, settings: &Settings, caches: Caches) -> Self {
        let mut levels = Levels {
            secret: secret.clone(),
            emc: Emc::new(0, 1, 0),
            smc: Smc::new(SMC_ENTRIES),
            distributor: Distributor::new(DISTRIBUTOR_ENTRIES, 0),
            subtables: Subtables::new(secret),
            arm: Arm::BARE,
            gate: Gate::OPEN,
            emc_users: BatchMask::NONE,
            isa: settings.vector,
            hashes: [0; BATCH_MAX],
        };
        levels.set(settings, caches);
        levels
    }

    /// Changes settings and caches. Returns the caches that were replaced, for whoever may take time to free them.
    pub fn set(&mut self, settings: &Settings, mut caches: Caches) -> Caches {
        caches.emc.iter_mut().for_each(|emc| std::mem::swap(emc, &mut self.emc));
        caches.smc.iter_mut().for_each(|smc| std::mem::swap(smc, &mut self.smc));
        caches.distributor.iter_mut().for_each(|distributor| std::mem::swap(distributor, &mut self.distributor));
        self.isa = settings.vector;
        self.use_arm(Arm::all(settings)[0]);
        caches
    }

    /// Asks these levels from now on. Entries of the others stay: they are hints, and may be of use again.
    #[inline]
    pub fn use_arm(&mut self, arm: Arm) {
        self.arm = arm;
        arm.emc.iter().for_each(|n| self.emc.set_insert_inv_prob(*n));
    }

    /// The vector instructions in use.
    #[inline]
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Notes what devices hashed the packets of a later pass to, if that is asked for.
    #[inline]
    pub fn note_rss(&mut self, batch: &PacketBatch) {
        if self.arm.emc.is_some() && self.arm.emc_recirc == EmcRecirc::Rss {
            self.gate.note_rss(batch.iter().map(|packet| packet.rss_hash));
        }
    }

    /// Looks up the first `n` keys, of packets just received or recirculated, but for those that are known. Returns who
    /// still misses.
    #[inline]
    pub fn lookup<'g>(
        &mut self,
        keys: &[PacketKey; BATCH_MAX],
        (n, known, recirculated): (usize, BatchMask, bool),
        hits: &mut Hits<'g>,
        context: &mut Context<'_, 'g>,
    ) -> BatchMask {
        let asked = BatchMask(BatchMask::first(n).0 & !known.0);
        context.tally[Counter::Passes] += n as u64;
        if asked.is_empty() {
            return asked;
        }
        self.isa.run(Look { levels: self, keys, n, asked, recirculated, hits, context })
    }

    #[inline(always)]
    fn look<'g, V: VectorOps>(
        &mut self,
        ops: V,
        keys: &[PacketKey; BATCH_MAX],
        (n, all, recirculated): (usize, BatchMask, bool),
        hits: &mut Hits<'g>,
        context: &mut Context<'_, 'g>,
    ) -> BatchMask {
        let Arm { emc, emc_recirc, smc, distributor } = self.arm;
        if emc.is_some() || smc || distributor {
            key_hashes(ops, &self.secret, keys, n, &mut self.hashes);
        }
        let pass =
            LookupBatch { keys, hashes: &self.hashes, flows: context.flows, counters: context.counters, isa: self.isa };
        let tally = &mut *context.tally;
        let mut after_emc = all;
        if emc.is_some() {
            self.emc_users = all;
            if recirculated && emc_recirc != EmcRecirc::Always {
                after_emc = gated((&mut self.emc, &mut self.gate), emc_recirc, &pass, all, hits, &mut self.emc_users);
            } else {
                after_emc = self.emc.lookup(ops, &pass, all, hits);
            }
            context.clock.mark(Stage::Emc);
            tally[Counter::EmcHits] += (all.len() - after_emc.len()) as u64;
            if after_emc.is_empty() {
                return after_emc;
            }
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
                true => search_hinted(&mut self.distributor, &mut self.subtables, &pass, after_smc, hits, tally),
                false => self.subtables.lookup(&pass, after_smc, hits),
            };
            tally[Counter::MegaflowHits] += (after_smc.len() - left.len()) as u64;
            tally[Counter::SubtableProbes] += self.subtables.take_probes();
            if smc {
                let found = BatchMask(after_smc.0 & !left.0);
                found.for_each(|i| hits[i].iter().for_each(|flow| self.smc.insert(self.hashes[i], flow.id())));
            }
        }
        if emc.is_some() {
            let found = BatchMask(after_emc.0 & !left.0 & self.emc_users.0);
            found.for_each(|i| hits[i].iter().for_each(|flow| self.emc.offer(self.hashes[i], flow.id())));
        }
        context.clock.mark(Stage::Subtables);
        left
    }

    /// Indexes a megaflow that an upcall brought for packet `i` of the pass under way.
    pub fn insert(&mut self, i: usize, key: &PacketKey, flow: &sluice_flow_cache::Megaflow) {
        self.subtables.insert(key, flow);
        if self.arm.emc.is_some() && self.emc_users.contains(i) {
            self.emc.offer(self.hashes[i], flow.id());
        }
        if self.arm.smc {
            self.smc.insert(self.hashes[i], flow.id());
        }
        if self.arm.distributor {
            self.distributor.note(&mut self.subtables, self.hashes[i], key, flow);
        }
    }

    /// Forgets megaflows that were deleted.
    pub fn forget(&mut self, deleted: &[sluice_flow_cache::FlowDeleted]) {
        deleted.iter().for_each(|deleted| self.subtables.remove(deleted));
        self.emc.forget();
    }

    /// What is to be done once an iteration, not once a packet.
    #[inline]
    pub fn maintain(&mut self, context: &Context<'_, '_>) {
        self.emc.sweep(context.flows);
        self.subtables.maintain(context.now_ms);
    }

    /// Whether a cache that is asked could hold more as soon as somebody makes memory.
    #[inline]
    pub fn await_memory(&self) -> bool {
        self.arm.smc && self.smc.awaits_memory()
    }

    pub fn emc_usage(&self) -> EmcUsage {
        self.emc.usage()
    }

    pub fn subtables(&self) -> &Subtables {
        &self.subtables
    }
}

/// Asks the exact match cache about the packets that the gate admits; these are in `users` afterwards.
#[inline(never)]
fn gated<'g>(
    (emc, gate): (&mut Emc, &mut Gate),
    policy: EmcRecirc,
    pass: &LookupBatch<'_, 'g>,
    all: BatchMask,
    hits: &mut Hits<'g>,
    users: &mut BatchMask,
) -> BatchMask {
    let usage = emc.usage();
    *users = gate.admit(policy, pass.hashes, all.len(), &usage);
    let missed = emc.lookup(Scalar, pass, *users, hits);
    gate.learn(policy, users.len(), users.len() - missed.len(), &usage);
    BatchMask(all.0 & !users.0 | missed.0)
}

/// [`Levels::look`], compiled for each instruction set.
struct Look<'a, 'b, 'g> {
    levels: &'a mut Levels,
    keys: &'a [PacketKey; BATCH_MAX],
    n: usize,
    asked: BatchMask,
    recirculated: bool,
    hits: &'a mut Hits<'g>,
    context: &'a mut Context<'b, 'g>,
}

impl Kernel for Look<'_, '_, '_> {
    type Output = BatchMask;

    #[inline(always)]
    fn run<V: VectorOps>(self, ops: V) -> BatchMask {
        self.levels.look(ops, self.keys, (self.n, self.asked, self.recirculated), self.hits, self.context)
    }
}

/// Looks for megaflows in the subtable that the distributor names, then in all of them.
#[inline]
fn search_hinted<'g>(
    distributor: &mut Distributor,
    subtables: &mut Subtables,
    pass: &LookupBatch<'_, 'g>,
    miss: BatchMask,
    hits: &mut Hits<'g>,
    tally: &mut Tally,
) -> BatchMask {
    let searched = distributor.lookup(subtables, pass, miss, hits);
    let answers = distributor.take_answers();
    tally[Counter::DistributorHits] += answers.hits;
    tally[Counter::DistributorMisses] += answers.misses;
    tally[Counter::DistributorWrong] += answers.wrong;
    if searched.is_empty() {
        return searched;
    }
    let left = subtables.lookup(pass, searched, hits);
    for i in BatchMask(searched.0 & !left.0) {
        if let Some(flow) = hits[i] {
            distributor.note(subtables, pass.hashes[i], &pass.keys[i], flow);
        }
    }
    left
}
