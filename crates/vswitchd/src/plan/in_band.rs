//! The controllers and managers that a bridge is to reach through its own ports. Source: Open vSwitch
//! vswitchd/bridge.c, `bridge_configure_remotes`, `collect_in_band_managers`.

use crate::records::{BridgeRecord, ManagerRecord};
use sluice_connmgr::InBandSettings;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Ports of protocols. Source: IANA.
const OPENFLOW_PORT: u16 = 6653;
const OVSDB_PORT: u16 = 6640;

/// The value of `connection_mode` that leaves the way to a remote to others.
const OUT_OF_BAND: &str = "out-of-band";

/// What a bridge's rows say.
pub fn settings(record: &BridgeRecord, managers: &[SocketAddrV4]) -> InBandSettings {
    if record.other_config.flag("disable-in-band", false) {
        return InBandSettings::default();
    }
    let in_band = record.controllers.iter().filter(|row| row.connection_mode.as_deref() != Some(OUT_OF_BAND));
    let controllers = in_band.filter_map(|row| address(&row.target, OPENFLOW_PORT));
    let mut remotes: Vec<_> = controllers.chain(managers.iter().copied()).collect();
    remotes.sort_unstable();
    remotes.dedup();
    InBandSettings { remotes, queue: record.other_config.number("in-band-queue") }
}

/// Where the managers are that are not on this host.
pub fn managers(rows: &[ManagerRecord]) -> Vec<SocketAddrV4> {
    let in_band = rows.iter().filter(|row| row.connection_mode.as_deref() != Some(OUT_OF_BAND));
    let addresses = in_band.filter_map(|row| address(&row.target, OVSDB_PORT));
    addresses.filter(|address| *address.ip() != Ipv4Addr::LOCALHOST).collect()
}

/// The address of an active target over IPv4. The flows are for IPv4 alone, as in Open vSwitch.
fn address(target: &str, usual_port: u16) -> Option<SocketAddrV4> {
    let rest = target.strip_prefix("tcp:").or_else(|| target.strip_prefix("ssl:"))?;
    rest.parse().ok().or_else(|| Some(SocketAddrV4::new(rest.parse().ok()?, usual_port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_over_ipv4_have_addresses() {
        let shown = |target| address(target, 6653).map(|address| address.to_string());
        assert_eq!(shown("tcp:10.0.0.1"), Some("10.0.0.1:6653".to_owned()));
        assert_eq!(shown("ssl:10.0.0.1:7"), Some("10.0.0.1:7".to_owned()));
        assert!(["ptcp:6653", "unix:/x", "tcp:[::1]", "tcp:host", "none"].into_iter().all(|t| shown(t).is_none()));
    }

    #[test]
    fn managers_on_this_host_and_out_of_band_do_not_count() {
        let row = |target: &str, mode: Option<&str>| ManagerRecord {
            target: target.to_owned(),
            connection_mode: mode.map(str::to_owned),
        };
        let rows =
            [row("tcp:127.0.0.1", None), row("ssl:1.2.3.4", Some("in-band")), row("tcp:1.2.3.5", Some(OUT_OF_BAND))];
        assert_eq!(managers(&rows), [SocketAddrV4::new(Ipv4Addr::new(1, 2, 3, 4), OVSDB_PORT)]);
    }
}
