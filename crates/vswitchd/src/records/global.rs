//! The row of table `Open_vSwitch`.

use super::Smap;
use sluice_ovsdb::{Row, Uuid};

/// What the switch is to be as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenVswitchRecord {
    /// Its row.
    pub uuid: Uuid,
    /// The configuration's number, which goes to `cur_cfg` once it is in force.
    pub next_cfg: i64,
    /// Settings by key.
    pub other_config: Smap,
}

impl OpenVswitchRecord {
    pub(super) fn read(row: &Row<'_>) -> Self {
        OpenVswitchRecord {
            uuid: row.uuid(),
            next_cfg: row.get("next_cfg"),
            other_config: Smap::read(row, "other_config"),
        }
    }
}
