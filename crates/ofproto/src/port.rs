//! Ports of a bridge: numbers, configuration, VLANs.

use sluice_action::PortNo;
use sluice_flow::OfPort;
use std::collections::BTreeSet;

/// What `bridge/add-port` and the configuration file say about a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Name, unique in the switch.
    pub name: String,
    /// OpenFlow port number, unique in the bridge; `OfPort::LOCAL` for the bridge's own port.
    pub number: OfPort,
    /// Where it leads.
    pub attach: Attach,
    /// Its part in `NORMAL` forwarding.
    pub vlan: VlanMode,
    /// Whether frames of VLAN 0 that `NORMAL` sends have a tag.
    pub priority_tags: PriorityTags,
    /// A controller has put it down: nothing is taken from it or sent to it.
    pub down: bool,
    /// Not part of `FLOOD` and of `NORMAL` flooding.
    pub no_flood: bool,
    /// Nothing is sent to it.
    pub no_forward: bool,
    /// Nothing is taken from it.
    pub no_receive: bool,
    /// Table misses of its packets are not reported.
    pub no_packet_in: bool,
    /// Longest frame behind the Ethernet header, bytes. The datapath enforces it.
    pub mtu: u16,
    /// Whether the link is up: `bundle` chooses ports that are.
    pub up: bool,
}

/// What is behind a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attach {
    /// A port of the datapath.
    Datapath(PortNo),
    /// The patch port of that name, of this bridge or another.
    Patch(String),
    /// Nothing: a LOCAL port without a device.
    Nothing,
}

/// Which VLANs a port carries, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VlanMode {
    /// Tagged frames of these VLANs (`None`: of all), untagged frames as VLAN 0.
    Trunk(Option<BTreeSet<u16>>),
    /// Untagged frames of one VLAN.
    Access(u16),
    /// As a trunk; untagged frames are of `vlan`, which leaves tagged.
    NativeTagged {
        /// The native VLAN.
        vlan: u16,
        /// The others; `None`: all.
        trunks: Option<BTreeSet<u16>>,
    },
    /// As a trunk; untagged frames are of `vlan`, which leaves untagged.
    NativeUntagged {
        /// The native VLAN.
        vlan: u16,
        /// The others; `None`: all.
        trunks: Option<BTreeSet<u16>>,
    },
    /// Frames of customers, who have tags of their own: all are of `vlan`, whose tag comes outside of theirs.
    Dot1qTunnel {
        /// The VLAN.
        vlan: u16,
        /// The customers' VLANs that pass; `None`: all.
        cvlans: Option<BTreeSet<u16>>,
        /// Protocol id of the outer tag.
        tpid: u16,
    },
}

/// What becomes of the priority of a frame that leaves in VLAN 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PriorityTags {
    /// No tag is made for it.
    #[default]
    Never,
    /// A tag is kept or made for it if it is not 0.
    IfNonzero,
    /// A tag is kept even for priority 0.
    Always,
}

impl PortConfig {
    /// An ordinary port of the datapath: all VLANs, no restrictions, MTU 1500, up.
    pub fn new(name: &str, number: u16, datapath: PortNo) -> Self {
        PortConfig {
            name: name.to_owned(),
            number: OfPort(number),
            attach: Attach::Datapath(datapath),
            vlan: VlanMode::Trunk(None),
            priority_tags: PriorityTags::Never,
            down: false,
            no_flood: false,
            no_forward: false,
            no_receive: false,
            no_packet_in: false,
            mtu: 1500,
            up: true,
        }
    }

    /// A patch port whose other end is `peer`.
    pub fn patch(name: &str, number: u16, peer: &str) -> Self {
        PortConfig { attach: Attach::Patch(peer.to_owned()), ..Self::new(name, number, PortNo(0)) }
    }

    /// Its port of the datapath, if it has one.
    pub fn datapath(&self) -> Option<PortNo> {
        match self.attach {
            Attach::Datapath(no) => Some(no),
            _ => None,
        }
    }
}

impl VlanMode {
    /// From the `tag` and `trunks` of the configuration: a tag makes an access port, whatever else is said.
    pub fn of(tag: Option<u16>, trunks: &[u16]) -> Self {
        match tag {
            Some(vlan) => VlanMode::Access(vlan),
            None if trunks.is_empty() => VlanMode::Trunk(None),
            None => VlanMode::Trunk(Some(trunks.iter().copied().collect())),
        }
    }

    /// The VLANs that pass with a tag, besides a native one.
    fn trunks(&self) -> Option<&BTreeSet<u16>> {
        match self {
            VlanMode::Access(_) | VlanMode::Dot1qTunnel { .. } => None,
            VlanMode::Trunk(set) => set.as_ref(),
            VlanMode::NativeTagged { trunks, .. } | VlanMode::NativeUntagged { trunks, .. } => trunks.as_ref(),
        }
    }

    /// Whether a frame of `vlan` may leave here; `inner` is the VLAN of its second tag, 0 if it has none.
    pub fn carries(&self, vlan: u16, inner: u16) -> bool {
        match self {
            VlanMode::Access(own) => vlan == *own && inner == 0,
            VlanMode::Dot1qTunnel { vlan: own, .. } => vlan == *own && self.allows_customer(inner),
            // The native VLAN always, VLAN 0 never: untagged frames are the native VLAN's.
            VlanMode::NativeTagged { vlan: own, .. } | VlanMode::NativeUntagged { vlan: own, .. } => {
                vlan == *own || vlan != 0 && self.trunks().is_none_or(|set| set.contains(&vlan))
            }
            VlanMode::Trunk(set) => set.as_ref().is_none_or(|set| set.contains(&vlan)),
        }
    }

    /// Whether a frame with VLAN id `vid` on the wire (0: none) may come in here.
    pub fn admits(&self, vid: u16) -> bool {
        match self {
            VlanMode::Access(_) => vid == 0,
            VlanMode::Dot1qTunnel { .. } => self.allows_customer(vid),
            VlanMode::NativeTagged { .. } | VlanMode::NativeUntagged { .. } if vid == 0 => true,
            _ => self.carries(vid, 0),
        }
    }

    /// Whether a customer's VLAN may pass.
    pub fn allows_customer(&self, vlan: u16) -> bool {
        match self {
            VlanMode::Dot1qTunnel { cvlans: Some(set), .. } => set.contains(&vlan),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_port_takes_untagged_frames_only() {
        let mode = VlanMode::of(Some(10), &[20]);
        assert_eq!(mode, VlanMode::Access(10));
        assert!(
            mode.admits(0) && !mode.admits(10) && mode.carries(10, 0) && !mode.carries(0, 0) && !mode.carries(10, 5)
        );
    }

    #[test]
    fn a_trunk_takes_its_vlans() {
        let mode = VlanMode::of(None, &[10, 20]);
        assert!(mode.admits(10) && !mode.admits(0) && !mode.admits(30) && mode.carries(20, 0));
        assert!(VlanMode::of(None, &[]).admits(0));
    }

    #[test]
    fn a_native_vlan_is_always_carried() {
        let mode = VlanMode::NativeUntagged { vlan: 10, trunks: Some([20].into()) };
        assert!(mode.admits(0) && mode.admits(10) && mode.admits(20) && !mode.admits(30));
    }
}
