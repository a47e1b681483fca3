//! Ports of a bridge: configuration and VLAN modes.

use sluice_action::PortNo;
use sluice_flow::OfPort;
use sluice_tunnel::{PayloadKind, TunnelConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The configuration of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Name, unique in the switch.
    pub name: String,
    /// OpenFlow port number, unique in the bridge; `OfPort::LOCAL` for the bridge's own port.
    pub number: OfPort,
    /// What it is attached to.
    pub attach: Attach,
    /// Its VLANs in `NORMAL` forwarding.
    pub vlan: VlanMode,
    /// Whether `NORMAL` sends frames of VLAN 0 with a tag.
    pub priority_tags: PriorityTags,
    /// Whether frames between it and another protected port are dropped.
    pub is_protected: bool,
    /// `OFPPC_PORT_DOWN`: it neither receives nor sends.
    pub down: bool,
    /// `OFPPC_NO_FLOOD`: `FLOOD` and `NORMAL` flooding leave it out.
    pub no_flood: bool,
    /// `OFPPC_NO_FWD`: it does not send.
    pub no_forward: bool,
    /// `OFPPC_NO_RECV`: it does not receive.
    pub no_receive: bool,
    /// `OFPPC_NO_PACKET_IN`: table misses of its packets do not go to controllers.
    pub no_packet_in: bool,
    /// Longest payload of a frame, bytes. The datapath enforces it.
    pub mtu: u16,
    /// The DSCP with which the packets of certain queues leave, by queue.
    pub queue_dscp: BTreeMap<u32, u8>,
    /// Whether the link is up. `bundle` and groups use only such ports.
    pub up: bool,
    /// Its BFD session, if it has one: packets of it are not forwarded.
    pub bfd: Option<Arc<sluice_bfd::Config>>,
    /// Whether that session says that the port leads nowhere.
    pub bfd_down: bool,
    /// Whether LACP is spoken on it: its packets are not forwarded.
    pub lacp: bool,
    /// Whether LACP says that the port is not to be used.
    pub lacp_down: bool,
}

/// What a port is attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attach {
    /// A port of the datapath.
    Datapath(PortNo),
    /// The patch port of that name, in this bridge or another.
    Patch(String),
    /// A tunnel.
    Tunnel(Arc<TunnelPort>),
    /// Nothing: a `LOCAL` port without a device.
    Nothing,
}

/// A tunnel, and what serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelPort {
    /// Its configuration.
    pub config: TunnelConfig,
    /// The datapath port that all tunnels of its header share.
    pub backend: PortNo,
}

/// The VLANs of a port, and how it tags them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VlanMode {
    /// Tagged frames of these VLANs (`None`: all); untagged frames belong to VLAN 0.
    Trunk(Option<BTreeSet<u16>>),
    /// Untagged frames of one VLAN.
    Access(u16),
    /// As a trunk, but untagged frames belong to `vlan`, whose frames leave tagged.
    NativeTagged {
        /// The native VLAN.
        vlan: u16,
        /// The others; `None`: all.
        trunks: Option<BTreeSet<u16>>,
    },
    /// As a trunk, but untagged frames belong to `vlan`, whose frames leave untagged.
    NativeUntagged {
        /// The native VLAN.
        vlan: u16,
        /// The others; `None`: all.
        trunks: Option<BTreeSet<u16>>,
    },
    /// Customers' frames, with or without tags: all belong to `vlan`, whose tag is put outside theirs.
    Dot1qTunnel {
        /// The VLAN.
        vlan: u16,
        /// The customers' VLANs that are allowed; `None`: all.
        cvlans: Option<BTreeSet<u16>>,
        /// Protocol id of the outer tag.
        tpid: u16,
    },
}

/// Whether a frame that leaves in VLAN 0 has a tag for its priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PriorityTags {
    /// Never.
    #[default]
    Never,
    /// If the priority is not 0.
    IfNonzero,
    /// If the priority is not 0, or if the frame came with a tag.
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
            is_protected: false,
            down: false,
            no_flood: false,
            no_forward: false,
            no_receive: false,
            no_packet_in: false,
            mtu: 1500,
            queue_dscp: BTreeMap::new(),
            up: true,
            bfd: None,
            bfd_down: false,
            lacp: false,
            lacp_down: false,
        }
    }

    /// A patch port whose other end is `peer`.
    pub fn patch(name: &str, number: u16, peer: &str) -> Self {
        PortConfig { attach: Attach::Patch(peer.to_owned()), ..Self::new(name, number, PortNo(0)) }
    }

    /// A port that is a tunnel.
    pub fn tunnel(name: &str, number: u16, tunnel: TunnelPort) -> Self {
        PortConfig { attach: Attach::Tunnel(Arc::new(tunnel)), ..Self::new(name, number, PortNo(0)) }
    }

    /// Whether it is a tunnel that carries packets without Ethernet headers.
    pub(crate) fn is_bare_tunnel(&self) -> bool {
        matches!(&self.attach, Attach::Tunnel(tunnel) if tunnel.config.payload == PayloadKind::Bare)
    }

    /// Whether `bundle` and groups may choose it, and what OpenFlow calls live: its link is up, no controller has taken
    /// it down, and BFD and LACP, if they are spoken on it, say that the other end hears.
    pub fn is_live(&self) -> bool {
        self.up && !self.down && !self.bfd_down && !self.lacp_down
    }

    /// Its datapath port, if it has one: of a tunnel the one that it shares with others.
    pub fn datapath(&self) -> Option<PortNo> {
        match &self.attach {
            Attach::Datapath(no) => Some(*no),
            Attach::Tunnel(tunnel) => Some(tunnel.backend),
            Attach::Patch(_) | Attach::Nothing => None,
        }
    }
}

impl VlanMode {
    /// From `tag` and `trunks` of the configuration. With a tag it is an access port, even if there are trunks.
    pub fn of(tag: Option<u16>, trunks: &[u16]) -> Self {
        match tag {
            Some(vlan) => VlanMode::Access(vlan),
            None if trunks.is_empty() => VlanMode::Trunk(None),
            None => VlanMode::Trunk(Some(trunks.iter().copied().collect())),
        }
    }

    /// The VLANs that are allowed with a tag, besides a native one.
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
            // The native VLAN always, VLAN 0 never: untagged frames belong to the native VLAN.
            VlanMode::NativeTagged { vlan: own, .. } | VlanMode::NativeUntagged { vlan: own, .. } => {
                vlan == *own || vlan != 0 && self.trunks().is_none_or(|set| set.contains(&vlan))
            }
            VlanMode::Trunk(set) => set.as_ref().is_none_or(|set| set.contains(&vlan)),
        }
    }

    /// Whether a received frame with VLAN id `vid` (0: no tag) is admitted.
    pub fn admits(&self, vid: u16) -> bool {
        match self {
            VlanMode::Access(_) => vid == 0,
            VlanMode::Dot1qTunnel { .. } => self.allows_customer(vid),
            VlanMode::NativeTagged { .. } | VlanMode::NativeUntagged { .. } if vid == 0 => true,
            _ => self.carries(vid, 0),
        }
    }

    /// Whether a customer's VLAN is allowed.
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
