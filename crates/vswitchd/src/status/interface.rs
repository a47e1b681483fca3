//! What an interface's row says of its device. Source: Open vSwitch vswitchd/bridge.c, `iface_refresh_netdev_status`,
//! `iface_clear_db_record`.

use crate::schema::INTERFACE;
use sluice_bfd::Status;
use sluice_flow::Mac;
use sluice_ovsdb::{Datum, Txn, Uuid};
use sluice_port::DeviceStatus;

/// The columns that [`write`] sets and [`clear`] empties.
const COLUMNS: [&str; 8] =
    ["admin_state", "link_state", "link_resets", "duplex", "link_speed", "mtu", "mac_in_use", "ifindex"];

/// Writes what its BFD session says, if it has one.
pub fn write_bfd(txn: &mut Txn, interface: Uuid, status: Option<&Status>) {
    let Some(status) = status else {
        return txn.set(INTERFACE, interface, "bfd_status", Datum::map(std::iter::empty::<(&str, &str)>()));
    };
    let flaps = status.flap_count.to_string();
    let pairs = [
        ("forwarding", if status.forwarding { "true" } else { "false" }),
        ("state", status.state.name()),
        ("diagnostic", status.diagnostic.name()),
        ("flap_count", &flaps),
        ("remote_state", status.remote_state.name()),
        ("remote_diagnostic", status.remote_diagnostic.name()),
    ];
    txn.set(INTERFACE, interface, "bfd_status", Datum::map(pairs));
}

/// Writes whether LACP knows the partner, if it is spoken.
pub fn write_lacp(txn: &mut Txn, interface: Uuid, is_current: Option<bool>) {
    txn.set(INTERFACE, interface, "lacp_current", Datum::set(is_current));
}

/// Writes what a device says of itself.
pub fn write(txn: &mut Txn, interface: Uuid, device: &DeviceStatus) {
    let state = |is_up: bool| Datum::set([if is_up { "up" } else { "down" }]);
    let duplex = if device.is_full_duplex { "full" } else { "half" };
    let speed = device.speed_bps.and_then(|speed| i64::try_from(speed).ok());
    let values = [
        state(device.is_admin_up),
        state(device.has_carrier),
        Datum::set([i64::try_from(device.link_resets).unwrap_or(i64::MAX)]),
        Datum::set(speed.map(|_| duplex)),
        Datum::set(speed),
        Datum::set([i64::from(device.mtu)]),
        Datum::set([Mac(device.mac).to_string()]),
        Datum::set([i64::from(device.ifindex)]),
    ];
    for (column, value) in COLUMNS.into_iter().zip(values) {
        txn.set(INTERFACE, interface, column, value);
    }
}

/// Writes of a patch port or a tunnel that it is up: it has no device.
pub fn write_virtual(txn: &mut Txn, interface: Uuid) {
    for column in COLUMNS {
        txn.set(INTERFACE, interface, column, Datum::EMPTY);
    }
    txn.set(INTERFACE, interface, "admin_state", Datum::set(["up"]));
    txn.set(INTERFACE, interface, "link_state", Datum::set(["up"]));
    txn.set(INTERFACE, interface, "link_resets", Datum::set([0]));
    txn.set(INTERFACE, interface, "ifindex", Datum::set([0]));
}

/// Forgets an interface's device, which could not be opened.
pub fn clear(txn: &mut Txn, interface: Uuid) {
    for column in COLUMNS {
        txn.set(INTERFACE, interface, column, Datum::EMPTY);
    }
    let nothing = || Datum::map(std::iter::empty::<(&str, &str)>());
    txn.set(INTERFACE, interface, "status", nothing());
    txn.set(INTERFACE, interface, "statistics", Datum::map(std::iter::empty::<(&str, i64)>()));
}
