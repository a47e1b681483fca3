//! What the tables above ask of the megaflows.

use super::MegaflowTable;
use crate::Megaflow;
use crate::counters::add_up;
use sluice_action::{
    AffectedFlow, FlowDump, FlowId, FlowMemory, FlowModification, FlowStats, MegaflowStore, XcacheHandle,
};
use sluice_flow::PacketKey;
use sluice_sync::Epochs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Megaflows whose memory [`MegaflowStore::make_room`] prepares in advance: 28 MiB with one PMD. Without it, installing
/// a megaflow waited 1 µs of 3.7 for the kernel to clear pages (2026-11-20).
const AHEAD: usize = 1 << 17;

/// Fresh ids that are taken while the index is locked, at most.
const FRESH_AT_ONCE: usize = 1024;

impl MegaflowStore for MegaflowTable {
    fn for_each(&self, visit: &mut dyn FnMut(&FlowDump<'_>)) {
        let pmds = self.counters();
        self.for_each_record(|flow, is_suspended| {
            let mut stats = FlowStats { created_ms: flow.created_ms(), ..FlowStats::default() };
            pmds.iter().for_each(|counters| add_up(&mut stats, counters.read(flow.id())));
            let mut earlier = FlowStats { created_ms: flow.created_ms(), ..FlowStats::default() };
            let carried = flow.lineage().map(|lineage| lineage.carried(&pmds)).unwrap_or_default();
            carried.into_iter().for_each(|one| add_up(&mut earlier, one));
            visit(&FlowDump {
                id: flow.id(),
                mask: &flow.mask().whole,
                actions: flow.actions(),
                no_output: flow.no_output(),
                xcache: flow.xcache(),
                stats,
                earlier,
                is_suspended,
                bytes: u64::from(flow.bytes()) + flow.xcache().0.bytes(),
            });
        });
    }

    fn suspend(&self, among: Option<&[FlowId]>, affected: &mut AffectedFlow<'_>) -> usize {
        // An installation under way ends before this returns; a later one asks whether its translation is current.
        drop(self.index.lock());
        let mut reader = Epochs::register(&self.epochs);
        let guard = reader.pin();
        let records = self.arena.read(&guard);
        let mut suspend = |id| {
            let flow: Option<&Megaflow> = records.get(id);
            flow.is_some_and(|flow| affected(flow.id(), &flow.mask().whole, flow.xcache()) && records.suspend(id))
        };
        let used = self.arena.used();
        match among {
            Some(ids) => ids.iter().filter(|id| id.0 < used && suspend(id.0)).count(),
            None => (0..used).filter(|id| suspend(*id)).count(),
        }
    }

    fn take_fresh(&self, visit: &mut dyn FnMut(FlowId, &PacketKey, &XcacheHandle)) {
        let mut reader = Epochs::register(&self.epochs);
        let mut fresh = Vec::with_capacity(FRESH_AT_ONCE + 64);
        loop {
            self.index.lock().fresh.take(FRESH_AT_ONCE, &mut fresh);
            let has_more = fresh.len() >= FRESH_AT_ONCE;
            let guard = reader.pin();
            let records = self.arena.read(&guard);
            let live = fresh.drain(..).filter_map(|id| records.get(id));
            live.for_each(|flow| visit(flow.id(), &flow.mask().whole, flow.xcache()));
            if !has_more {
                break;
            }
        }
    }

    fn resume(&self, id: FlowId, is_current: &mut dyn FnMut() -> bool) -> bool {
        let mut index = self.index.lock();
        is_current() && self.resume_record(&mut index, id)
    }

    fn capacity(&self) -> usize {
        MegaflowTable::capacity(self)
    }

    fn memory(&self) -> &Arc<FlowMemory> {
        &self.memory
    }

    fn remove(&self, id: FlowId) -> Option<FlowStats> {
        self.take_out(&mut self.index.lock(), id)
    }

    fn remove_same(&self, id: FlowId, xcache: &XcacheHandle) -> Option<FlowStats> {
        let mut index = self.index.lock();
        if self.is_of(&mut index, id, xcache) { self.take_out(&mut index, id) } else { None }
    }

    fn modify(&self, id: FlowId, xcache: &XcacheHandle, modification: &mut FlowModification<'_>) -> Option<FlowStats> {
        let mut index = self.index.lock();
        let is_current = self.is_of(&mut index, id, xcache) && (modification.is_current)();
        let replaced = if is_current { self.replace(&mut index, id, modification.translation) } else { None };
        replaced.map(|(carried, _)| carried)
    }

    fn settle(&self, visit: &mut dyn FnMut(&XcacheHandle, FlowStats)) {
        let mut has_more = true;
        while has_more {
            let mut index = self.index.lock();
            has_more = self.reclaim_some(&mut index);
            let late = std::mem::take(&mut index.late);
            drop(index);
            late.iter().for_each(|(flow, stats)| visit(flow.xcache(), *stats));
        }
    }

    fn make_room(&self) -> io::Result<()> {
        let used = self.arena.used() as usize;
        let ready = self.ready.load(Relaxed);
        if used + AHEAD / 2 < ready || ready >= self.arena.capacity() {
            return Ok(());
        }
        let ids = ready..(used.max(ready) + AHEAD).min(self.arena.capacity());
        self.arena.populate(ids.clone())?;
        self.counters().iter().try_for_each(|counters| counters.populate(ids.clone()))?;
        self.ready.store(ids.end, Relaxed);
        Ok(())
    }

    fn len(&self) -> usize {
        self.index.lock().by_match.len()
    }
}
