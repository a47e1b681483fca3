//! Which VLANs a port carries. Source: Open vSwitch vswitchd/bridge.c, `port_configure`.

use super::{Level, Note};
use crate::records::PortRecord;
use sluice_ofproto::{PriorityTags, VlanMode};
use std::collections::BTreeSet;

/// VLANs that a port may be of. Source: IEEE 802.1Q, where 4095 is reserved.
const VLAN_MAX: i64 = 4094;

/// Protocol ids of VLAN tags. Source: IEEE 802.1Q.
const TPID_8021Q: u16 = 0x8100;
const TPID_8021AD: u16 = 0x88a8;

/// A port's VLANs, and what is odd about them.
pub fn vlan_mode(record: &PortRecord) -> (VlanMode, Option<Note>) {
    let tag = record.tag.filter(|tag| (0..=VLAN_MAX).contains(tag)).map(|tag| tag as u16);
    // A port whose mode has a VLAN but that names none is in VLAN 0. Source: ofproto/ofproto-dpif.c, `bundle_set`.
    let vlan = tag.unwrap_or(0);
    let trunks = || some_vlans(&record.trunks);
    let warn = |text: &str| Some(Note::new(Level::Warn, format!("port {}: {text}", record.name)));
    match record.vlan_mode.as_deref() {
        Some("access") => (VlanMode::Access(vlan), None),
        Some("trunk") => (VlanMode::Trunk(trunks()), None),
        Some("native-tagged") => (VlanMode::NativeTagged { vlan, trunks: trunks() }, None),
        Some("native-untagged") => (VlanMode::NativeUntagged { vlan, trunks: trunks() }, None),
        Some("dot1q-tunnel") => {
            let tpid = match record.other_config.text("qinq-ethtype") {
                Some("802.1q") => TPID_8021Q,
                _ => TPID_8021AD,
            };
            (VlanMode::Dot1qTunnel { vlan, cvlans: some_vlans(&record.cvlans), tpid }, None)
        }
        Some(mode) => {
            let note = warn(&format!("unknown VLAN mode {mode}, falling back to trunk mode"));
            (VlanMode::Trunk(trunks()), note)
        }
        None if tag.is_some() => {
            let ignores = !(record.trunks.is_empty() && record.cvlans.is_empty());
            let note = if ignores { warn("ignoring trunks in favor of implicit vlan") } else { None };
            (VlanMode::Access(vlan), note)
        }
        None => (VlanMode::Trunk(trunks()), None),
    }
}

/// When a port sends frames of VLAN 0 with a tag.
pub fn priority_tags(record: &PortRecord) -> PriorityTags {
    match record.other_config.text("priority-tags") {
        Some("if-nonzero" | "true") => PriorityTags::IfNonzero,
        Some("always") => PriorityTags::Always,
        _ => PriorityTags::Never,
    }
}

/// The VLANs of a column; `None` if it is empty: all of them.
fn some_vlans(column: &BTreeSet<i64>) -> Option<BTreeSet<u16>> {
    let vlans = column.iter().filter(|vlan| (0..=VLAN_MAX).contains(*vlan)).map(|vlan| *vlan as u16).collect();
    (!column.is_empty()).then_some(vlans)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(tag: Option<i64>, trunks: &[i64], mode: Option<&str>) -> PortRecord {
        let trunks = trunks.iter().copied().collect();
        PortRecord { name: "p".into(), tag, trunks, vlan_mode: mode.map(str::to_owned), ..PortRecord::default() }
    }

    #[test]
    fn a_tag_alone_makes_an_access_port() {
        assert_eq!(vlan_mode(&port(Some(5), &[], None)), (VlanMode::Access(5), None));
        assert_eq!(vlan_mode(&port(None, &[], None)), (VlanMode::Trunk(None), None));
        let (mode, note) = vlan_mode(&port(Some(5), &[7], None));
        assert_eq!(mode, VlanMode::Access(5));
        assert_eq!(note.unwrap().text, "port p: ignoring trunks in favor of implicit vlan");
    }

    #[test]
    fn modes_are_those_of_the_row() {
        let mode = |record: &PortRecord| vlan_mode(record).0;
        assert_eq!(mode(&port(None, &[], Some("access"))), VlanMode::Access(0));
        assert_eq!(mode(&port(Some(5), &[1, 2], Some("trunk"))), VlanMode::Trunk(Some(BTreeSet::from([1, 2]))));
        let trunks = Some(BTreeSet::from([3]));
        assert_eq!(mode(&port(Some(5), &[3], Some("native-tagged"))), VlanMode::NativeTagged { vlan: 5, trunks });
        assert_eq!(
            mode(&port(Some(5), &[], Some("dot1q-tunnel"))),
            VlanMode::Dot1qTunnel { vlan: 5, cvlans: None, tpid: TPID_8021AD }
        );
    }
}
