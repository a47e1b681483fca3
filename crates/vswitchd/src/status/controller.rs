//! What a controller's row says of its connection. Source: Open vSwitch vswitchd/bridge.c, `refresh_controller_status`.

use crate::schema::CONTROLLER;
use sluice_connmgr::ControllerStatus;
use sluice_ovsdb::{Datum, Txn, Uuid};

/// Writes the status of a controller; `None` for one that is listened for.
pub fn write(txn: &mut Txn, controller: Uuid, status: Option<&ControllerStatus>) {
    txn.set(CONTROLLER, controller, "is_connected", status.is_some_and(ControllerStatus::is_connected));
    // A controller that is not connected would have the role that it gets first.
    let role = status.map(|status| status.role_name().unwrap_or("other"));
    txn.set(CONTROLLER, controller, "role", Datum::set(role));
    let pairs = status.map(ControllerStatus::pairs).unwrap_or_default();
    txn.set(CONTROLLER, controller, "status", Datum::map(pairs));
}
