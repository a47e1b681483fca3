//! Table settings, eviction and vacancy events of a bridge's tables.

use crate::bridge::{Bridge, OfTable};
use crate::error::Error;
use crate::ofproto::{Ofproto, position};
use crate::table_capacity::{TableDesc, TableSettings, VacancyEvent};
use sluice_classifier::RuleId;
use std::cmp::Reverse;

/// Maximum age of the order of evictions, milliseconds. Packets extend the life of rules meanwhile.
const ORDER_MAX_AGE_MS: u64 = 1000;

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
