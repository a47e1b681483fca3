//! A table's limit on rules, what it evicts when it is full, and its vacancy events. Source: OpenFlow 1.4,
//! `OFPTC_EVICTION`.

use crate::bridge::{Bridge, BridgeId, OfTable};
use crate::error::Error;
use crate::ofproto::{Ofproto, position};
use sluice_classifier::RuleId;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Maximum age of the order of evictions, milliseconds. Packets extend the life of rules meanwhile.
const ORDER_MAX_AGE_MS: u64 = 1000;

/// A limit of a table, from the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLimit {
    /// Number of the table.
    pub table: u8,
    /// Rules at most.
    pub rules: usize,
    /// Whether it evicts when it is full, even if no controller enabled that.
    pub evicts: bool,
}

/// The thresholds of vacancy events. Vacancy is the part of a table's limit that is free, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VacancyThresholds {
    /// Below this vacancy there is a `VACANCY_DOWN` event.
    pub down: u8,
    /// Above this vacancy there is a `VACANCY_UP` event.
    pub up: u8,
}

/// The settings of a table that a controller changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSettings {
    /// Whether it evicts when it is full; `None`: unchanged.
    pub evicts: Option<bool>,
    /// Whether it has vacancy events, and their thresholds; `None`: unchanged.
    pub vacancy: Option<(bool, VacancyThresholds)>,
}

/// The description of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableDesc {
    /// Number of the table.
    pub table: u8,
    /// Rules at most; `None`: no limit.
    pub limit: Option<usize>,
    /// Whether a controller enabled eviction.
    pub evicts: bool,
    /// The thresholds of its vacancy events; `None`: no events.
    pub thresholds: Option<VacancyThresholds>,
    /// The current vacancy in percent; 100 without a limit.
    pub vacancy: u8,
}

/// The threshold that the vacancy has crossed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VacancyReason {
    /// It fell below `down`.
    Down,
    /// It rose above `up`.
    Up,
}

/// A table whose vacancy has crossed a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VacancyEvent {
    /// Bridge.
    pub bridge: BridgeId,
    /// Which threshold.
    pub reason: VacancyReason,
    /// The table at that moment.
    pub table: TableDesc,
}

/// The limit of a table and the number of its rules.
#[derive(Debug, Default)]
pub(crate) struct TableCapacity {
    limit: Option<usize>,
    evicts_always: bool,
    evicts: bool,
    thresholds: VacancyThresholds,
    /// The threshold that it crosses next, if it has vacancy events.
    next: Option<VacancyReason>,
    /// Number of rules, without those that the next version hides.
    rules: usize,
    /// The order of evictions: by importance, then by expiry. Some of the rules may have been removed.
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

    /// Counts an added rule. `expiry_ms`: when it expires unless packets come, if it has a timeout.
    pub fn add(&mut self, id: RuleId, importance: u16, expiry_ms: Option<u64>) {
        self.rules += 1;
        // If there is no order, the rule will be in the next one.
        if let (Some(expiry_ms), Some(_)) = (expiry_ms, self.ordered_ms) {
            self.order.push(Reverse((importance, expiry_ms, id)));
        }
    }

    /// Counts a removed rule, or one whose addition is undone.
    pub fn remove(&mut self) {
        self.rules -= 1;
    }

    /// Counts a rule whose removal is undone.
    pub fn restore(&mut self) {
        self.rules += 1;
        self.ordered_ms = None;
    }

    fn does_evict(&self) -> bool {
        self.evicts || self.evicts_always
    }

    /// The vacancy in percent.
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

    /// The threshold that has been crossed, if it is the expected one. Then the other one is expected.
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
    /// The rule that a full table evicts; `None` if the table does not evict, or if none of its rules has a timeout.
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

    /// The vacancy events since the last call.
    pub fn vacancy_events(&mut self) -> impl Iterator<Item = VacancyEvent> {
        let bridge = self.id;
        (0u8..=u8::MAX).zip(&mut self.tables).filter_map(move |(number, table)| {
            let reason = table.capacity.crossed()?;
            Some(VacancyEvent { bridge, reason, table: table.capacity.desc(number) })
        })
    }
}

impl Ofproto {
    /// Changes the settings of a table, or of all.
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

    /// The descriptions of a bridge's tables, by number.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn table_descs(&self, bridge: &str) -> Result<Vec<TableDesc>, Error> {
        let state = self.state();
        let tables = &state.bridges[position(&state, bridge)?].tables;
        Ok((0u8..=u8::MAX).zip(tables).map(|(number, table)| table.capacity.desc(number)).collect())
    }

    /// The vacancy events since the last call.
    pub fn take_vacancy_events(&self) -> Vec<VacancyEvent> {
        std::mem::take(&mut self.writer().vacancy_events)
    }
}
