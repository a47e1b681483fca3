//! Megaflows as control threads see them.

use super::MegaflowTable;
use crate::Megaflow;
use crate::counters::{FlowCounters, add_up};
use sluice_action::{FlowId, FlowStats, MegaflowMatch, Translation};
use sluice_flow::{PacketKey, layout};
use sluice_simd::{HashKey, compare, hash};
use sluice_sync::Epochs;
use std::sync::Arc;

/// A megaflow as control threads see it.
#[derive(Clone, Debug)]
pub struct FlowView {
    /// Its name.
    pub id: FlowId,
    /// Its number among all megaflows ever installed.
    pub serial: u64,
    /// Its match.
    pub matched: MegaflowMatch,
    /// Its translation.
    pub translation: Translation,
    /// The statistics of each PMD: `None` if its subtables never had the megaflow.
    pub per_pmd: Vec<Option<FlowStats>>,
    /// The sum over PMDs.
    pub stats: FlowStats,
}

impl MegaflowTable {
    /// Calls `visit` for every megaflow.
    pub fn for_each_view(&self, mut visit: impl FnMut(FlowView)) {
        let pmds = self.counters();
        self.for_each_record(|flow, _| visit(view(flow, &pmds)));
    }

    /// The names of all megaflows, in the order in which they were installed: a serial number and an id each. They take a
    /// small part of the memory of [`FlowView`]s, which [`MegaflowTable::views`] makes of some at a time.
    pub fn names(&self) -> Vec<(u64, FlowId)> {
        let mut all = Vec::new();
        self.for_each_record(|flow, _| all.push((flow.serial(), flow.id())));
        all.sort_unstable();
        all
    }

    /// The megaflows of these names. Those that have gone are left out.
    pub fn views(&self, names: &[(u64, FlowId)]) -> Vec<FlowView> {
        let pmds = self.counters();
        let mut reader = Epochs::register(&self.epochs);
        let guard = reader.pin();
        let records = self.arena.read(&guard);
        let is_same = |serial: u64| move |(flow, _): &(&Megaflow, bool)| flow.serial() == serial;
        let found = names.iter().filter_map(|(serial, id)| records.get_any(id.0).filter(is_same(*serial)));
        found.map(|(flow, _)| view(flow, &pmds)).collect()
    }

    /// The `n` megaflows that were installed first, in that order, and the number of all. Costs little for the others.
    pub fn oldest(&self, n: usize) -> (Vec<FlowView>, usize) {
        let mut all = Vec::new();
        self.for_each_record(|flow, _| all.push((flow.serial(), flow.id())));
        let count = all.len();
        if n < count {
            all.select_nth_unstable(n);
            all.truncate(n);
        }
        all.sort_unstable();
        (self.views(&all), count)
    }

    /// Calls `visit` for every megaflow that is live or suspended.
    pub(super) fn for_each_record(&self, mut visit: impl FnMut(&Megaflow, bool)) {
        let mut reader = Epochs::register(&self.epochs);
        let guard = reader.pin();
        let records = self.arena.read(&guard);
        (0..self.arena.used())
            .filter_map(|id| records.get_any(id))
            .for_each(|(flow, suspended)| visit(flow, suspended));
    }

    pub(super) fn counters(&self) -> Vec<Arc<FlowCounters>> {
        self.index.lock().pmds.iter().map(|pmd| pmd.counters.clone()).collect()
    }
}

/// What control threads see of a record.
fn view(flow: &Megaflow, pmds: &[Arc<FlowCounters>]) -> FlowView {
    let id = flow.id();
    let mut stats = FlowStats { created_ms: flow.created_ms(), ..FlowStats::default() };
    let earlier = flow.lineage().map(|lineage| lineage.carried(pmds)).unwrap_or_default();
    let each = |(pmd, counters): (usize, &Arc<FlowCounters>)| {
        let mut one = FlowStats { created_ms: flow.created_ms(), ..counters.read(id) };
        earlier.get(pmd).inspect(|earlier| add_up(&mut one, **earlier));
        add_up(&mut stats, one);
        (counters.is_indexed(id) || one.packets != 0).then_some(one)
    };
    let per_pmd = pmds.iter().enumerate().map(each).collect();
    FlowView { id, serial: flow.serial(), matched: flow.identity(), translation: flow.translation(), per_pmd, stats }
}

/// A megaflow's identity as a number that is the same in every run: 128 bits of hash over mask and masked key.
pub fn ufid(matched: &MegaflowMatch) -> u128 {
    let half = |seed| u128::from(identity_hash(&HashKey::from_seed(seed), matched));
    half(1) << 64 | half(2)
}

/// A hash of mask and masked key, equal for equal matches whatever their presence bytes.
fn identity_hash(secret: &HashKey, matched: &MegaflowMatch) -> u64 {
    let sum = |key: &PacketKey| {
        let mut first = compare::words(&key.lines[0].0);
        first[layout::PRESENCE.offset / 8] &= !(0xff << (layout::PRESENCE.offset % 8 * 8));
        let further = (1..layout::PACKET_LINES).map(|i| secret.line(i, &compare::words(&key.line(i).0)));
        further.fold(secret.line(0, &first), u64::wrapping_add)
    };
    hash::finish(hash::finish(sum(&matched.mask)).wrapping_add(sum(&matched.key)))
}
