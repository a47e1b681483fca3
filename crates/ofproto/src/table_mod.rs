//! Table settings, eviction and vacancy events of a bridge's tables.

use crate::bridge::{Bridge, OfTable};
use crate::bridge_config::{N_TABLES, TableConfig};
use crate::bridges::position;
use crate::depends::Changes;
use crate::error::Error;
use crate::eviction::EvictionOrder;
use crate::ofproto::Ofproto;
use crate::table_capacity::{TableDesc, TableSettings, VacancyEvent};
use sluice_classifier::{RuleId, TrieField};
use sluice_ofp::FlowRemovedReason;

/// Maximum age of the order of evictions, milliseconds. Packets extend the life of rules meanwhile.
const ORDER_MAX_AGE_MS: u64 = 1000;

impl Bridge {
    /// The rule that a full table evicts; `None` if the table does not evict, or if none of its rules has a timeout.
    pub fn victim(&mut self, table: u8, now_ms: u64) -> Option<RuleId> {
        let OfTable { rules, capacity, .. } = &mut self.tables[usize::from(table)];
        if !capacity.does_evict() {
            return None;
        }
        capacity.order = capacity.order.take().filter(|order| now_ms < order.made_ms + ORDER_MAX_AGE_MS);
        let order = capacity.order.get_or_insert_with(|| {
            let mut order = EvictionOrder::new(now_ms);
            for id in self.expirable.of_table(table) {
                let Some((rules, rule)) = rules.as_ref().and_then(|rules| Some((rules, rules.rule(id)?))) else {
                    continue;
                };
                if let Some(expiry_ms) = rule.payload().expiry_ms() {
                    let candidate = (rule.payload().importance, expiry_ms, id);
                    order.add(&capacity.groups, &rules.match_of(rule), candidate);
                }
            }
            order
        });
        order.pop(|id| self.expirable.contains(&(table, id)))
    }

    /// Gives a table another configuration.
    fn configure_table(&mut self, config: &TableConfig) {
        let table = &mut self.tables[usize::from(config.table)];
        let fields =
            |prefixes: &Option<Vec<TrieField>>| prefixes.clone().unwrap_or_else(|| self.config.prefixes.clone());
        let (before, after) = (fields(&table.prefixes), fields(&config.prefixes));
        table.configure(config);
        if let Some(rules) = table.rules.as_deref_mut().filter(|_| before != after) {
            rules.set_trie_fields(&after);
        }
    }

    /// The vacancy events since the last call.
    pub fn vacancy_events(&mut self) -> impl Iterator<Item = VacancyEvent> {
        let bridge = self.id;
        (0u8..=u8::MAX).zip(&mut self.tables).filter_map(move |(number, table)| {
            let reason = table.capacity.crossed()?;
            Some(VacancyEvent { bridge, reason, table: table.desc(number) })
        })
    }
}

impl OfTable {
    /// The description of this table.
    fn desc(&self, table: u8) -> TableDesc {
        let OfTable { name, miss, capacity, .. } = self;
        TableDesc {
            table,
            name: name.clone(),
            miss: *miss,
            limit: capacity.limit(),
            evicts: capacity.evicts(),
            thresholds: capacity.thresholds(),
            vacancy: capacity.vacancy(),
        }
    }

    fn set(&mut self, settings: &TableSettings) {
        self.miss = settings.miss.unwrap_or(self.miss);
        self.capacity.set(settings);
    }
}

impl Ofproto {
    /// Gives a bridge's tables another configuration; those that `configs` does not name become like all others. A
    /// table with more rules than it may have now evicts some, if it evicts at all.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn configure_tables(&self, bridge: &str, configs: &[TableConfig], now_ms: u64) -> Result<(), Error> {
        let mut writer = self.writer();
        let id = self.bridge_id(bridge)?;
        let mut pending = self.begin(&mut writer, id, None, now_ms);
        self.change(&mut writer, |state| {
            let Some(bridge) = state.bridge_mut(id) else { return };
            bridge.config.tables = configs.to_vec();
            for table in 0..N_TABLES as u8 {
                let config = configs.iter().find(|config| config.table == table);
                bridge.configure_table(&config.cloned().unwrap_or_else(|| TableConfig::new(table)));
                while bridge.tables[usize::from(table)].capacity.is_overfull() {
                    let Some(victim) = bridge.victim(table, now_ms) else { break };
                    pending.hide(bridge, table, victim, Some(FlowRemovedReason::Eviction));
                }
            }
        });
        self.commit(&mut writer, id, pending);
        drop(writer);
        // Tries decide how wide megaflows are.
        self.announce(&Changes::of_bridge(id));
        Ok(())
    }

    /// Changes the settings of a table, or of all.
    ///
    /// # Errors
    /// If there is no such bridge or table.
    pub fn set_table(&self, bridge: &str, table: Option<u8>, settings: &TableSettings) -> Result<(), Error> {
        let mut writer = self.writer();
        let id = self.change(&mut writer, |state| {
            let at = position(state, bridge)?;
            let tables = &mut state.bridges[at].tables;
            match table {
                Some(table) => tables.get_mut(usize::from(table)).ok_or(Error::BadTable(table))?.set(settings),
                None => tables.iter_mut().for_each(|table| table.set(settings)),
            }
            Ok(state.bridges[at].id)
        })?;
        drop(writer);
        if settings.miss.is_some() {
            self.announce(&Changes::of_bridge(id));
        }
        Ok(())
    }

    /// The descriptions of a bridge's tables, by number.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn table_descs(&self, bridge: &str) -> Result<Vec<TableDesc>, Error> {
        let state = self.state();
        let tables = &state.bridges[position(&state, bridge)?].tables;
        Ok((0u8..=u8::MAX).zip(tables).map(|(number, table)| table.desc(number)).collect())
    }

    /// The vacancy events since the last call.
    pub fn take_vacancy_events(&self) -> Vec<VacancyEvent> {
        let mut writer = self.writer();
        let events = std::mem::take(&mut writer.vacancy_events);
        self.0.pending_events.note(&writer);
        events
    }
}
