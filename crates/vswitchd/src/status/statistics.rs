//! Counters of interfaces and mirrors. Source: Open vSwitch vswitchd/bridge.c, `iface_refresh_stats`, `mirror_refresh_stats`.

use crate::schema::{INTERFACE, MIRROR};
use sluice_datapath::PortReport;
use sluice_ofproto::{MirrorStats, VportStats};
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
    txn.set(INTERFACE, interface, "statistics", Datum::map(counters.map(as_integer)));
}

/// Writes the counters of a patch port or a tunnel.
pub fn write_vport(txn: &mut Txn, interface: Uuid, stats: &VportStats) {
    let &VportStats { rx_packets, rx_bytes, tx_packets, tx_bytes } = stats;
    let counters =
        [("rx_packets", rx_packets), ("tx_packets", tx_packets), ("rx_bytes", rx_bytes), ("tx_bytes", tx_bytes)];
    txn.set(INTERFACE, interface, "statistics", Datum::map(counters.map(as_integer)));
}

/// Writes a mirror's counters; none, if there is no such mirror.
pub fn write_mirror(txn: &mut Txn, mirror: Uuid, stats: Option<MirrorStats>) {
    let counters = stats.into_iter().flat_map(|stats| [("tx_packets", stats.packets), ("tx_bytes", stats.bytes)]);
    txn.set(MIRROR, mirror, "statistics", Datum::map(counters.map(as_integer)));
}

fn as_integer((key, n): (&str, u64)) -> (&str, i64) {
    (key, i64::try_from(n).unwrap_or(i64::MAX))
}
