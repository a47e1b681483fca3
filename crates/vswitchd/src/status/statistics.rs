//! Counters of interfaces. Source: Open vSwitch vswitchd/bridge.c, `iface_refresh_stats`.

use crate::schema::INTERFACE;
use sluice_datapath::PortReport;
use sluice_ovsdb::{Datum, Txn, Uuid};

/// Writes an interface's counters: those that its kind of device has, and the device's own.
pub fn write(txn: &mut Txn, interface: Uuid, kind: &str, report: &PortReport) {
    let stats = &report.stats;
    let traffic = [
        ("rx_packets", stats.rx_packets),
        ("tx_packets", stats.tx_packets),
        ("rx_bytes", stats.rx_bytes),
        ("tx_bytes", stats.tx_bytes),
    ];
    // Open vSwitch's dummies count nothing else.
    let losses = [
        ("rx_dropped", stats.rx_dropped),
        ("tx_dropped", stats.tx_dropped),
        ("rx_errors", stats.rx_errors),
        ("tx_errors", stats.tx_errors),
        ("rx_missed_errors", stats.rx_missed),
    ];
    let losses = losses.into_iter().filter(|_| !kind.starts_with("dummy"));
    let own = report.custom_stats.iter().map(|(key, n)| (key.as_str(), *n));
    let counters = traffic.into_iter().chain(losses).chain(own);
    let counters = counters.map(|(key, n)| (key, i64::try_from(n).unwrap_or(i64::MAX)));
    txn.set(INTERFACE, interface, "statistics", Datum::map(counters));
}
