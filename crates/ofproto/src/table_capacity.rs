//! A table's room: how many rules it may hold, which of them it evicts when it is full, and when it says how full it is.

use crate::bridge::{Bridge, BridgeId, OfTable};
use crate::error::Error;
use crate::ofproto::{Ofproto, position};
use sluice_classifier::RuleId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// So old may the order of evictions be: packets put off the end of rules meanwhile. Milliseconds.
const ORDER_MAX_AGE_MS: u64 = 1000;

/// A limit of a table, from the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLimit {
    /// Number of the table.
    pub table: u8,
    /// Rules that it holds at most.
    pub rules: usize,
    /// Whether it evicts when it is full, without a controller having said so.
    pub evicts: bool,
}

/// When a table says how full it is: percent of its room that is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VacancyThresholds {
    /// Below this it says so.
    pub down: u8,
    /// And above this again.
    pub up: u8,
}

/// What a controller changes of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSettings {
    /// Whether it evicts when it is full; `None`: as before.
    pub evicts: Option<bool>,
    /// Whether it says how full it is, and when; `None`: as before.
    pub vacancy: Option<(bool, VacancyThresholds)>,
}

/// How a table is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableDesc {
    /// Number of the table.
    pub table: u8,
    /// Rules that it holds at most, if that is limited.
    pub limit: Option<usize>,
    /// Whether a controller lets it evict.
    pub evicts: bool,
    /// When it says how full it is, if it does.
    pub thresholds: Option<VacancyThresholds>,
    /// Percent of its room that is left now: 100 if it has no limit.
    pub vacancy: u8,
}

/// What a table says of its room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VacancyReason {
    /// Less is left than the lower mark.
    Down,
    /// More is left than the upper mark.
    Up,
}

/// A table that has passed a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VacancyEvent {
    /// Bridge.
    pub bridge: BridgeId,
    /// Which mark.
    pub reason: VacancyReason,
    /// The table at that moment.
    pub table: TableDesc,
}

/// A table's room.
#[derive(Debug, Default)]
pub(crate) struct TableCapacity {
    limit: Option<usize>,
    evicts_always: bool,
    evicts: bool,
    thresholds: VacancyThresholds,
    /// The mark that it passes next, if it says so.
    next: Option<VacancyReason>,
    /// Rules, without those that the next version does not see.
    rules: usize,
    /// What to evict first: the least important, of those the rule that ends soonest. Some are gone already.
    order: BinaryHeap<Reverse<(u16, u64, RuleId)>>,
    ordered_ms: Option<u64>,
}

impl TableCapacity {
    pub fn limited(limit: &TableLimit) -> Self {
        TableCapacity { limit: Some(limit.rules), evicts_always: limit.evicts, ..TableCapacity::default() }
    }

    pub fn limit(&self) -> Option<usize> {
        self.limit
    }

    pub fn is_full(&self) -> bool {
        self.limit.is_some_and(|limit| self.rules >= limit)
    }

    /// Counts a rule that comes; when it ends unless packets come, if it ends by itself.
    pub fn came(&mut self, id: RuleId, importance: u16, expiry_ms: Option<u64>) {
        self.rules += 1;
        // Without an order there is one to be made, which will have it.
        if let (Some(expiry_ms), Some(_)) = (expiry_ms, self.ordered_ms) {
            self.order.push(Reverse((importance, expiry_ms, id)));
        }
    }

    /// Counts rules that came and are taken back, or that went.
    pub fn went(&mut self) {
        self.rules -= 1;
    }

    /// Counts a rule that went and is back.
    pub fn is_back(&mut self) {
        self.rules += 1;
        self.ordered_ms = None;
    }

    fn does_evict(&self) -> bool {
        self.evicts || self.evicts_always
    }

    /// Percent of the room that is left.
    fn vacancy(&self) -> u8 {
        let Some(limit) = self.limit else { return 100 };
        (limit.saturating_sub(self.rules) * 100).checked_div(limit).unwrap_or(0) as u8
    }

    fn set(&mut self, settings: &TableSettings) {
        self.evicts = settings.evicts.unwrap_or(self.evicts);
        let Some((says, thresholds)) = settings.vacancy else { return };
        self.thresholds = thresholds;
        // Source: Open vSwitch, `table_mod__`.
        let first = if self.vacancy() < thresholds.up { VacancyReason::Up } else { VacancyReason::Down };
        self.next = says.then(|| self.next.unwrap_or(first));
    }

    fn desc(&self, table: u8) -> TableDesc {
        let thresholds = self.next.map(|_| self.thresholds);
        TableDesc { table, limit: self.limit, evicts: self.evicts, thresholds, vacancy: self.vacancy() }
    }

    /// The mark that it has passed, if it is the one that is awaited; then the other one is.
    fn crossed(&mut self) -> Option<VacancyReason> {
        let next = self.next?;
        let vacancy = self.vacancy();
        let has_crossed = match next {
            VacancyReason::Down => vacancy < self.thresholds.down,
            VacancyReason::Up => vacancy > self.thresholds.up,
        };
        if !has_crossed {
            return None;
        }
        self.next = Some(if next == VacancyReason::Down { VacancyReason::Up } else { VacancyReason::Down });
        Some(next)
    }
}

impl Bridge {
    /// The rule that a full table can do without first; `None` if it does not evict, or none of its rules ends by itself.
    pub fn victim(&mut self, table: u8, now_ms: u64) -> Option<RuleId> {
        let OfTable { rules, capacity, .. } = &mut self.tables[usize::from(table)];
        if !capacity.does_evict() {
            return None;
        }
        if capacity.ordered_ms.is_none_or(|at| now_ms >= at + ORDER_MAX_AGE_MS) {
            let ending = self.expirable.range((table, RuleId(0))..=(table, RuleId(u32::MAX)));
            let order = ending.filter_map(|&(_, id)| {
                let rule = rules.as_ref()?.rule(id)?.payload();
                Some(Reverse((rule.importance, rule.expiry_ms()?, id)))
            });
            (capacity.order, capacity.ordered_ms) = (order.collect(), Some(now_ms));
        }
        std::iter::from_fn(|| capacity.order.pop())
            .map(|Reverse((.., id))| id)
            .find(|id| self.expirable.contains(&(table, *id)))
    }

    /// The tables that have passed a mark.
    pub fn vacancy_events(&mut self) -> impl Iterator<Item = VacancyEvent> {
        let bridge = self.id;
        (0u8..=u8::MAX).zip(&mut self.tables).filter_map(move |(number, table)| {
            let reason = table.capacity.crossed()?;
            Some(VacancyEvent { bridge, reason, table: table.capacity.desc(number) })
        })
    }
}

impl Ofproto {
    /// Changes a table, or all of them.
    ///
    /// # Errors
    /// If there is no such bridge or table.
    pub fn set_table(&self, bridge: &str, table: Option<u8>, settings: &TableSettings) -> Result<(), Error> {
        let mut writer = self.writer();
        self.change(&mut writer, |state| {
            let at = position(state, bridge)?;
            let tables = &mut state.bridges[at].tables;
            match table {
                Some(table) => {
                    let chosen = tables.get_mut(usize::from(table)).ok_or(Error::BadTable(table))?;
                    chosen.capacity.set(settings);
                }
                None => tables.iter_mut().for_each(|table| table.capacity.set(settings)),
            }
            Ok(())
        })
    }

    /// How a bridge's tables are set up, by number.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn table_descs(&self, bridge: &str) -> Result<Vec<TableDesc>, Error> {
        let state = self.state();
        let tables = &state.bridges[position(&state, bridge)?].tables;
        Ok((0u8..=u8::MAX).zip(tables).map(|(number, table)| table.capacity.desc(number)).collect())
    }

    /// The tables that have passed a mark since this was last asked.
    pub fn take_vacancy_events(&self) -> Vec<VacancyEvent> {
        std::mem::take(&mut self.writer().vacancy_events)
    }
}
