//! The stage `upcall`: packets that no lookup level knows are translated by the OpenFlow tables.
//!
//! Of packets of one megaflow in a batch, the first asks and the others follow its answer. The packet that asked is
//! credited through its translation, the others through the megaflow, as in Open vSwitch: a megaflow just installed has
//! carried nothing.

use crate::answers::{Answer, Followed};
use crate::batch::Batch;
use crate::context::{Context, tcp_flags};
use crate::deferred::DeferredUpcalls;
use crate::flow_log;
use crate::lookup::Levels;
use crate::misses::Misses;
use arrayvec::ArrayVec;
use sluice_action::{FlowId, MegaflowMatch, Miss, Translation, Upcall, UpcallResult, XcacheHandle, agree_under};
use sluice_fate::{Counter, DropReason};
use sluice_flow::PacketKey;
use sluice_flow_cache::{Installed, Megaflow};
use sluice_governor::Decision;
use sluice_packet::BATCH_MAX;
use sluice_simd::tsc;

/// A PMD's way to the OpenFlow tables, and what that may cost.
pub(crate) struct Upcalls {
    /// The PMD's number.
    pmd: usize,
    pub tables: Box<dyn Upcall>,
    pub misses: Misses,
    /// The megaflows were locked for longer than a PMD waits: no further one of the batch is installed.
    store_is_busy: bool,
    /// Whether the tables were told that this PMD asks.
    is_asking: bool,
    /// Whether packets of any queue waited for the tables at the end of the last iteration.
    packets_wait: bool,
}

impl Upcalls {
    pub fn new(pmd: usize, tables: Box<dyn Upcall>, misses: Misses) -> Self {
        Upcalls { pmd, tables, misses, store_is_busy: false, is_asking: false, packets_wait: false }
    }

    /// Asks the tables about the packets that missed. Packets of a megaflow installed here become hits; the others get
    /// answers of their own. If a control thread has the tables, older packets wait for them, or the queue's quantum is used
    /// up, the packets are deferred.
    #[cold]
    pub fn ask_tables<'g>(
        &mut self,
        levels: &mut Levels,
        deferred: &mut DeferredUpcalls,
        batch: &mut Batch<'_, 'g>,
        context: &mut Context<'_, 'g>,
    ) {
        let mut installed: ArrayVec<&'g Megaflow, BATCH_MAX> = ArrayVec::new();
        batch.answers.clear();
        self.store_is_busy = false;
        self.begin_asking();
        for i in batch.missed {
            let key = &batch.keys[i];
            if let Some(flow) = installed.iter().find(|flow| flow.contains(key)) {
                batch.hits[i] = Some(flow);
                batch.missed.remove(i);
                context.tally[Counter::MegaflowHits] += 1;
                continue;
            }
            if batch.answers.share(i, key) {
                context.tally[Counter::Upcalls] += 1;
            } else if deferred.must_wait() || self.misses.quantum_is_used_up() {
                batch.answers.push(i, Answer::Deferred);
            } else if self.misses.may_ask() {
                installed.extend(self.ask(i, levels, deferred, batch, context));
            } else {
                context.tally[Counter::UpcallsLost] += 1;
                batch.answers.push(i, Answer::Lost(DropReason::MissBudget));
            }
            if let Answer::Follow(followed) = batch.answers.of(i) {
                let (bytes, flags) = (batch.packets[i].frame.len() as u64, tcp_flags(&batch.keys[i]));
                self.tables.credit(&followed.xcache, 1, bytes, flags, context.now_ms);
            }
        }
        if !deferred.must_wait() && !self.packets_wait {
            self.end_asking();
        }
    }

    fn begin_asking(&mut self) {
        self.is_asking = true;
        self.tables.begin_asking();
    }

    fn end_asking(&mut self) {
        self.is_asking = false;
        self.tables.end_asking();
    }

    /// An iteration ends, or the queues were emptied. `packets_wait` says whether packets of any queue still wait for the
    /// tables; it is asked only if the tables were told that this PMD asks.
    #[inline]
    pub fn end_iteration(&mut self, packets_wait: impl FnOnce() -> bool) {
        if self.is_asking {
            self.packets_wait = packets_wait();
            if !self.packets_wait {
                self.end_asking();
            }
        }
    }

    /// Lets packet `i` ask for an answer of its own. Returns its megaflow, if one is installed.
    fn ask<'g>(
        &mut self,
        i: usize,
        levels: &mut Levels,
        deferred: &mut DeferredUpcalls,
        batch: &mut Batch<'_, 'g>,
        context: &mut Context<'_, 'g>,
    ) -> Option<&'g Megaflow> {
        let key = &batch.keys[i];
        let began = tsc::now();
        let fate = self.tables.translate(&Miss { key, bytes: batch.packets[i].bytes(), now_ms: context.now_ms });
        let translated = tsc::now();
        let mut installed = None;
        // Matched by reference: moving the translation would copy its mask, a key of eight lines.
        match &fate {
            UpcallResult::Translated(translation) => {
                context.tally[Counter::Upcalls] += 1;
                if translation.cacheable && self.is_due(i, translation, levels, batch, context) {
                    installed = self.install(key, translation, context);
                }
                if let Some(flow) = installed {
                    deferred.release(&flow.mask().whole, key);
                    levels.insert(i, batch, flow);
                    context.counters.set_indexed(flow.id());
                }
                let alone = installed.is_some() || !translation.cacheable;
                let shared = (!alone).then(|| Box::new(MegaflowMatch::new(translation.mask, key)));
                let (actions, xcache) = (translation.actions.clone(), translation.xcache.clone());
                let no_output = translation.no_output;
                batch.answers.push(i, Answer::Follow(Followed { actions, no_output, xcache, shared }));
            }
            UpcallResult::Failed(reason) => {
                context.tally[Counter::UpcallsLost] += 1;
                batch.answers.push(i, Answer::Lost(*reason));
            }
            UpcallResult::Busy => {
                deferred.block();
                batch.answers.push(i, Answer::Deferred);
            }
        }
        let ended = tsc::now();
        let install = if installed.is_some() { ended.saturating_sub(translated) } else { 0 };
        self.misses.charge(translated.saturating_sub(began), install);
        context.tally[Counter::UpcallCycles] += ended.saturating_sub(began);
        installed
    }

    /// Whether the governor wants the flow of packet `i` installed.
    fn is_due(
        &mut self,
        i: usize,
        translation: &Translation,
        levels: &Levels,
        batch: &Batch<'_, '_>,
        context: &mut Context<'_, '_>,
    ) -> bool {
        if !self.misses.is_governed() {
            return true;
        }
        let key = &batch.keys[i];
        let is_same = |j: &usize| *j > i && agree_under(&translation.mask, key, &batch.keys[*j]);
        let packets = || 1 + batch.missed.filter(is_same).count();
        let hash = || levels.flow_hash(key, &translation.mask);
        let installs = self.misses.installs(hash, packets, context.now_ms);
        let counter = match installs.decision {
            Decision::Install => Counter::GovernedSetups,
            Decision::Shortcut => Counter::GovernedShortcuts,
            Decision::Count => Counter::GovernedPackets,
        };
        context.tally[counter] += installs.packets_if_counted();
        context.tally[Counter::GovernedFlows] += u64::from(installs.is_new);
        installs.decision.installs()
    }

    /// Installs a translation's megaflow, if it may be, and finds it.
    fn install<'g>(
        &mut self,
        key: &PacketKey,
        translation: &Translation,
        context: &mut Context<'_, 'g>,
    ) -> Option<&'g Megaflow> {
        if self.store_is_busy {
            context.tally[Counter::InstallsSkipped] += 1;
            return None;
        }
        let is_current = |version| self.tables.is_current(version);
        let renew =
            |old: &XcacheHandle, carried, is_kept| self.tables.renew(old, &translation.xcache, carried, is_kept);
        let installed = context.table.install(self.pmd, key, translation, context.now_ms, is_current, renew);
        let FlowId(id) = match installed {
            Installed::New(id) | Installed::Existing(id) | Installed::Modified(id) => id,
            Installed::OverQuota => {
                context.tally[Counter::QuotaRefused] += 1;
                return None;
            }
            Installed::Busy => {
                self.store_is_busy = true;
                context.tally[Counter::InstallsSkipped] += 1;
                return None;
            }
            Installed::Stale | Installed::Full => return None,
        };
        // It may have been removed again by now; then the packet follows its translation.
        let flow = context.flows.get(id).filter(|flow| flow.contains(key))?;
        if matches!(installed, Installed::New(_)) {
            context.tally[Counter::MegaflowsInstalled] += 1;
            context.tally[Counter::QuotaNarrowed] += u64::from(flow.mask().whole != translation.mask);
            flow_log::flow_add(flow, key);
        }
        if matches!(installed, Installed::Modified(_)) {
            self.tables.modified(key, &flow.mask().whole, flow.actions());
        }
        Some(flow)
    }
}
