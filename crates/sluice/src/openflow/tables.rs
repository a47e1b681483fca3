//! Tables as controllers see them: their room, and what they do when it is used up.

use super::connection::Connection;
use super::flows::refusal;
use sluice_ofproto::{Marks, Passed, RoomChange, RoomState, VacancyNews};
use sluice_openflow::message::connection::{AsyncKind, TableStatus};
use sluice_openflow::message::switch::{TABLE_EVICTION, TABLE_VACANCY_EVENTS, TableMod, Vacancy};
use sluice_openflow::{Error, Message, Version};

/// By what tables evict: importance and lifetime, and their own choice between equals. Source: `OFPTMPEF14_*`.
const EVICTION_FLAGS: u32 = 7;

/// Table 255: all of them.
const ALL: u8 = 255;

impl Connection {
    /// Changes a table, or all. Before OpenFlow 1.4 there is nothing to change: what misses is said by flows.
    pub(super) fn table_mod(&self, m: &TableMod) -> Result<(), Error> {
        // Open vSwitch keeps flows of its own in that table.
        if m.table == super::request::N_TABLES {
            return Err(Error::TableModEperm);
        }
        if self.version() < Version::V14 {
            return Ok(());
        }
        if m.eviction_flags.is_some_and(|flags| flags != EVICTION_FLAGS) {
            return Err(Error::TableModBadConfig);
        }
        let marks = m.vacancy.map(|v| Marks { down: v.down, up: v.up }).unwrap_or_default();
        let change = RoomChange {
            evicts: Some(m.config & TABLE_EVICTION != 0),
            vacancy: Some((m.config & TABLE_VACANCY_EVENTS != 0, marks)),
        };
        let table = Some(m.table).filter(|table| *table != ALL);
        self.switch.ofproto.change_room(&self.hub.bridge, table, &change).map_err(|error| refusal(&error))
    }

    pub(super) fn table_descs(&self) -> Result<Vec<TableMod>, Error> {
        let rooms = self.switch.ofproto.rooms(&self.hub.bridge).map_err(|error| refusal(&error))?;
        Ok(rooms.iter().filter(|room| room.table < super::request::N_TABLES).map(desc).collect())
    }

    /// Tells of a table that has passed a mark, if the controller wants to hear it.
    pub(super) fn table_status(&mut self, news: &VacancyNews) {
        // Numbers are OpenFlow's, `OFPTR_*`.
        let reason = match news.passed {
            Passed::Down => 3,
            Passed::Up => 4,
        };
        if self.version() >= Version::V14 && self.session.wants(AsyncKind::TableStatus, reason.into()) {
            self.session.send(&Message::TableStatus(TableStatus { reason, table: desc(&news.room) }));
        }
    }
}

fn desc(room: &RoomState) -> TableMod {
    let eviction = if room.evicts { TABLE_EVICTION } else { 0 };
    let events = if room.marks.is_some() { TABLE_VACANCY_EVENTS } else { 0 };
    let vacancy = room.marks.map(|marks| Vacancy { down: marks.down, up: marks.up, now: room.vacancy });
    TableMod { table: room.table, config: eviction | events, eviction_flags: Some(EVICTION_FLAGS), vacancy }
}
