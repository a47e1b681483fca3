//! An interface's column `bfd` as a session. Source: Open vSwitch lib/bfd.c, `bfd_configure`.

use super::{Level, Note};
use crate::records::InterfaceRecord;
use sluice_bfd::{Config, DEFAULT_DST_IP, DEFAULT_MULT, DEFAULT_SRC_IP};
use sluice_flow::Mac;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// The session that an interface asks for, and what of it is wrong. A value that is none counts as absent.
pub(super) fn session(interface: &InterfaceRecord) -> (Option<Arc<Config>>, Vec<Note>) {
    let bfd = &interface.bfd;
    let mut notes = Vec::new();
    if !bfd.flag("enable", false) {
        return (None, notes);
    }
    let mut address = |key: &str, default: Ipv4Addr| match bfd.text(key).filter(|text| !text.is_empty()) {
        None => default,
        Some(text) => text.parse().unwrap_or_else(|_| {
            notes.push(Note::new(Level::Error, format!("\"{text}\" is not a valid IP address")));
            default
        }),
    };
    let (src_ip, dst_ip) = (address("bfd_src_ip", DEFAULT_SRC_IP), address("bfd_dst_ip", DEFAULT_DST_IP));
    let interval = |key: &str, default: u32| bfd.number::<i64>(key).map_or(default, |ms| ms.clamp(1, MAX_MS) as u32);
    let mac = |key: &str| bfd.text(key)?.parse::<Mac>().ok().map(|mac| mac.0).filter(|mac| *mac != [0; 6]);
    let config = Config {
        mult: bfd.number::<u8>("mult").filter(|mult| *mult != 0).unwrap_or(DEFAULT_MULT),
        min_tx_ms: interval("min_tx", 100),
        min_rx_ms: interval("min_rx", 1000),
        decay_min_rx_ms: bfd.number::<i64>("decay_min_rx").map_or(0, |ms| ms.clamp(0, MAX_MS) as u32),
        forwarding_if_rx: bfd.flag("forwarding_if_rx", false),
        cpath_down: bfd.flag("cpath_down", false),
        check_tnl_key: bfd.flag("check_tnl_key", false),
        oam: bfd.flag("oam", false),
        src_ip,
        dst_ip,
        local_src_mac: mac("bfd_local_src_mac"),
        local_dst_mac: mac("bfd_local_dst_mac"),
        remote_dst_mac: mac("bfd_remote_dst_mac"),
    };
    (Some(Arc::new(config)), notes)
}

/// The longest interval that a control packet can say, ms.
const MAX_MS: i64 = (u32::MAX / 1000) as i64;
