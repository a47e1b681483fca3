//! Tables as controllers see them: their limits, eviction and vacancy events.

use crate::connection::Connection;
use crate::flows::refusal;
use sluice_ofproto::{TableDesc, TableMiss, TableSettings, VacancyEvent, VacancyReason, VacancyThresholds};
use sluice_openflow::message::connection::{AsyncKind, TableStatus};
use sluice_openflow::message::switch::{TABLE_EVICTION, TABLE_VACANCY_EVENTS, TableMod, Vacancy};
use sluice_openflow::{Error, Message, N_TABLES, Version};

/// Tables evict by importance, then lifetime, then by a choice of their own. Source: `OFPTMPEF14_*`.
const EVICTION_FLAGS: u32 = 7;

/// The table number that means all tables.
const ALL: u8 = 255;

impl Connection {
    /// Changes a table, or all. OpenFlow 1.1 and 1.2 say what happens to packets that no rule matches, OpenFlow 1.4 and
    /// later say how a full table evicts; OpenFlow 1.3 says nothing.
    pub(crate) fn table_mod(&self, m: &TableMod) -> Result<(), Error> {
        // Open vSwitch keeps rules of its own in the table behind the last.
        if m.table == N_TABLES {
            return Err(Error::TableModEperm);
        }
        let table = Some(m.table).filter(|table| *table != ALL);
        let change = |settings: &TableSettings| {
            self.switch.ofproto.set_table(&self.conn_mgr.bridge, table, settings).map_err(|error| refusal(&error))
        };
        match self.version() {
            Version::V10 | Version::V13 => return Ok(()),
            Version::V11 | Version::V12 => {
                let miss = Some(table_miss(m.config)?);
                change(&TableSettings { miss, ..TableSettings::default() })?;
                self.switch.revalidate_soon();
                return Ok(());
            }
            Version::V14 | Version::V15 => {}
        }
        if m.eviction_flags.is_some_and(|flags| flags != EVICTION_FLAGS) {
            return Err(Error::TableModBadConfig);
        }
        let thresholds = m.vacancy.map(|v| VacancyThresholds { down: v.down, up: v.up }).unwrap_or_default();
        change(&TableSettings {
            miss: None,
            evicts: Some(m.config & TABLE_EVICTION != 0),
            vacancy: Some((m.config & TABLE_VACANCY_EVENTS != 0, thresholds)),
        })
    }

    pub(crate) fn table_descs(&self) -> Result<Vec<TableMod>, Error> {
        let tables = self.switch.ofproto.table_descs(&self.conn_mgr.bridge).map_err(|error| refusal(&error))?;
        Ok(tables.iter().filter(|table| table.table < N_TABLES).map(desc).collect())
    }

    /// Sends a table status message, if the controller wants it.
    pub(crate) fn table_status(&mut self, event: &VacancyEvent) {
        // Numbers are OpenFlow's, `OFPTR_*`.
        let reason = match event.reason {
            VacancyReason::Down => 3,
            VacancyReason::Up => 4,
        };
        if self.version() >= Version::V14 && self.session.wants(AsyncKind::TableStatus, reason.into()) {
            self.session.send(&Message::TableStatus(TableStatus { reason, table: desc(&event.table) }));
        }
    }
}

/// What OpenFlow 1.1 and 1.2 say of packets that no rule matches. Source: OpenFlow 1.1, `OFPTC_TABLE_MISS_*`.
fn table_miss(config: u32) -> Result<TableMiss, Error> {
    match config {
        0 => Ok(TableMiss::Controller),
        1 => Ok(TableMiss::Continue),
        2 => Ok(TableMiss::Drop),
        _ => Err(Error::TableModBadConfig),
    }
}

/// The same as a number. In these versions packets go to controllers by default.
pub fn miss_number(miss: TableMiss) -> u32 {
    match miss {
        TableMiss::Default | TableMiss::Controller => 0,
        TableMiss::Continue => 1,
        TableMiss::Drop => 2,
    }
}

fn desc(table: &TableDesc) -> TableMod {
    let eviction = if table.evicts { TABLE_EVICTION } else { 0 };
    let events = if table.thresholds.is_some() { TABLE_VACANCY_EVENTS } else { 0 };
    let vacancy =
        table.thresholds.map(|thresholds| Vacancy { down: thresholds.down, up: thresholds.up, now: table.vacancy });
    TableMod { table: table.table, config: eviction | events, eviction_flags: Some(EVICTION_FLAGS), vacancy }
}
