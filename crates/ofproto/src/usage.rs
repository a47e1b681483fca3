//! How much of what the tables bound is in use.

use crate::meter::METERS_MAX;
use crate::mirror::MIRRORS_MAX;
use crate::ofproto::{Ofproto, Writer};
use crate::removed::WAITING_MAX;
use crate::transaction::VACANCY_EVENTS_MAX;
use sluice_fate::Limit;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// How many events wait for their announcement. Each change notes the numbers here. The events themselves are under the writer's
/// lock, and a large change holds that lock for long.
#[derive(Debug, Default)]
pub(crate) struct PendingEvents {
    removed: AtomicUsize,
    vacancy_events: AtomicUsize,
}

impl PendingEvents {
    /// Notes how many wait now.
    pub fn note(&self, writer: &Writer) {
        self.removed.store(writer.removed.waiting(), Relaxed);
        self.vacancy_events.store(writer.vacancy_events.len(), Relaxed);
    }
}

impl Ofproto {
    /// How much of a resource is in use, and its bound; `None` if it is not of the tables. Where bridges or ports have a
    /// bound each, it is the one that is nearest to it.
    pub fn limit_usage(&self, limit: Limit) -> Option<(usize, usize)> {
        let shared = &self.0;
        Some(match limit {
            Limit::RecircIds => self.recirc_usage(),
            Limit::RuleMemory => shared.rule_memory.usage(),
            Limit::Neighbours => shared.neighbours.usage(),
            Limit::Effects => shared.effects.usage(),
            Limit::RemovedRules => (shared.pending_events.removed.load(Relaxed), WAITING_MAX),
            Limit::VacancyEvents => (shared.pending_events.vacancy_events.load(Relaxed), VACANCY_EVENTS_MAX),
            Limit::MacEntries => {
                let state = self.state();
                let tables = state.bridges.iter().map(|bridge| bridge.macs.read().sizes());
                let learned = tables.map(|(entries, most, statics)| (entries.saturating_sub(statics), most));
                learned.max_by_key(|(learned, most)| learned * 1000 / most.max(&1)).unwrap_or_default()
            }
            Limit::Meters => (self.state().bridges.iter().map(|bridge| bridge.meters.len()).sum(), METERS_MAX as usize),
            Limit::Mirrors => {
                let state = self.state();
                (state.bridges.iter().map(|bridge| bridge.mirrors.len()).max().unwrap_or_default(), MIRRORS_MAX)
            }
            _ => return None,
        })
    }
}
