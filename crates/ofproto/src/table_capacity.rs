//! A table's limit on rules, what it evicts when it is full, and its vacancy events. Source: OpenFlow 1.4,
//! `OFPTC_EVICTION`.

use crate::bridge_config::{BridgeId, TableConfig, TableMiss};
use crate::eviction::EvictionOrder;
use sluice_classifier::RuleId;
use sluice_flow::{Match, SubField};

/// The thresholds of vacancy events. Vacancy is the part of a table's limit that is free, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VacancyThresholds {
    /// Below this vacancy there is a `VACANCY_DOWN` event.
    pub down: u8,
    /// Above this vacancy there is a `VACANCY_UP` event.
    pub up: u8,
}

/// The settings of a table that a controller changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableSettings {
    /// What happens to packets that no rule matches; `None`: unchanged.
    pub miss: Option<TableMiss>,
    /// Whether it evicts when it is full; `None`: unchanged.
    pub evicts: Option<bool>,
    /// Whether it has vacancy events, and their thresholds; `None`: unchanged.
    pub vacancy: Option<(bool, VacancyThresholds)>,
}

/// The description of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDesc {
    /// Number of the table.
    pub table: u8,
    /// Its name; empty: none.
    pub name: String,
    /// What happens to packets that no rule matches.
    pub miss: TableMiss,
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Bits of fields by which rules are grouped.
    pub groups: Vec<SubField>,
    /// The order of evictions, if it is known. Some of the rules may have been removed.
    pub order: Option<EvictionOrder>,
}

impl TableCapacity {
    /// Takes a configuration.
    pub fn configure(&mut self, config: &TableConfig) {
        (self.limit, self.evicts_always) = (config.flow_limit, config.evicts);
        self.groups.clone_from(&config.groups);
        self.order = None;
    }

    pub fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// Whether it holds more rules than it may: its limit was lowered.
    pub fn is_overfull(&self) -> bool {
        self.limit.is_some_and(|limit| self.rules > limit)
    }

    pub fn is_full(&self) -> bool {
        self.limit.is_some_and(|limit| self.rules >= limit)
    }

    /// Counts an added rule. `expiry_ms`: when it expires unless packets come, if it has a timeout.
    pub fn add(&mut self, id: RuleId, matches: &Match, importance: u16, expiry_ms: Option<u64>) {
        self.rules += 1;
        // If there is no order, the rule will be in the next one.
        if let (Some(expiry_ms), Some(order)) = (expiry_ms, &mut self.order) {
            order.add(&self.groups, matches, (importance, expiry_ms, id));
        }
    }

    /// Counts a removed rule, or one whose addition is undone.
    pub fn remove(&mut self) {
        self.rules -= 1;
    }

    /// Counts a rule that was removed for another reason than eviction: its group is smaller now.
    pub fn remove_unordered(&mut self) {
        self.remove();
        if !self.groups.is_empty() {
            self.order = None;
        }
    }

    /// Counts a rule whose removal is undone.
    pub fn restore(&mut self) {
        self.rules += 1;
        self.order = None;
    }

    pub fn does_evict(&self) -> bool {
        self.evicts || self.evicts_always
    }

    /// The vacancy in percent.
    pub fn vacancy(&self) -> u8 {
        let Some(limit) = self.limit else { return 100 };
        (limit.saturating_sub(self.rules) * 100).checked_div(limit).unwrap_or(0) as u8
    }

    pub fn set(&mut self, settings: &TableSettings) {
        self.evicts = settings.evicts.unwrap_or(self.evicts);
        let Some((says, thresholds)) = settings.vacancy else { return };
        self.thresholds = thresholds;
        // Source: Open vSwitch, `table_mod__`.
        let first = if self.vacancy() < thresholds.up { VacancyReason::Up } else { VacancyReason::Down };
        self.next = says.then(|| self.next.unwrap_or(first));
    }

    /// The thresholds of vacancy events, if there are such events.
    pub fn thresholds(&self) -> Option<VacancyThresholds> {
        self.next.map(|_| self.thresholds)
    }

    /// Whether a controller enabled eviction.
    pub fn evicts(&self) -> bool {
        self.evicts
    }

    /// The threshold that has been crossed, if it is the expected one. Then the other one is expected.
    pub fn crossed(&mut self) -> Option<VacancyReason> {
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
