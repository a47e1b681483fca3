//! A port of a bridge.

use super::Qos;
use sluice_flow::OfPort;
use sluice_ofproto::{PriorityTags, VlanMode};
use sluice_policer::PolicingRates;
use sluice_port::TxSteering;
use sluice_tunnel::{TunnelConfig, TunnelKind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The type of ports that join two bridges and have nothing to do with the datapath.
pub const PATCH: &str = "patch";

/// The MTU of a port that does not say.
pub const ETHERNET_MTU: u32 = 1500;

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name, unique in the switch.
    pub name: String,
    /// The OpenFlow number it requests, which it gets or it cannot be added; `None`: any number. A number that it got
    /// is kept as long as there is a port of its name in the bridge.
    pub ofport_request: Option<OfPort>,
    /// What it is, by the name that Open vSwitch's database has for it (`system`, `internal`, `dummy`…) or Sluice's own:
    /// [`PATCH`], a tunnel's (`TunnelKind`), or one of `sluice_port::PORT_TYPES`.
    pub kind: String,
    /// Longest packet without its Ethernet header and tags, bytes.
    ///
    /// `None`: a device of the kernel keeps what it has, and internal ports follow the smallest MTU of their bridge's
    /// other ports; any other port has [`ETHERNET_MTU`].
    pub mtu: Option<u32>,
    /// Which VLANs it carries, and how.
    pub vlan: VlanMode,
    /// Whether it sends frames of VLAN 0 with a tag.
    pub priority_tags: PriorityTags,
    /// Whether frames between it and another protected port of its bridge are dropped.
    pub is_protected: bool,
    /// Its BFD session, if it is to have one.
    pub bfd: Option<Arc<sluice_bfd::Config>>,
    /// Whether LACP is spoken on it, as a bundle says.
    pub speaks_lacp: bool,
    /// What it may receive.
    pub policing: PolicingRates,
    /// What it may send, and by which queues; `None`: all, by one.
    pub qos: Option<Arc<Qos>>,
    /// Receive queues.
    pub n_rxq: usize,
    /// The cores that poll certain receive queues, by queue; the other queues are spread.
    pub rxq_affinity: BTreeMap<usize, usize>,
    /// How what it sends is spread over its transmit queues.
    pub tx_steering: TxSteering,
    /// What its type wants to know, by key.
    pub options: BTreeMap<String, String>,
}

impl Port {
    /// A port that carries all VLANs, about which nothing more is said.
    pub fn new(name: &str, kind: &str) -> Self {
        Port {
            name: name.to_owned(),
            ofport_request: None,
            kind: kind.to_owned(),
            mtu: Some(ETHERNET_MTU),
            vlan: VlanMode::Trunk(None),
            priority_tags: PriorityTags::Never,
            is_protected: false,
            bfd: None,
            speaks_lacp: false,
            policing: PolicingRates::default(),
            qos: None,
            n_rxq: 1,
            rxq_affinity: BTreeMap::new(),
            tx_steering: TxSteering::default(),
            options: BTreeMap::new(),
        }
    }

    /// The LOCAL port of a bridge: named like the bridge, with the number 65534.
    pub fn local(bridge: &str, kind: &str) -> Self {
        Port::new(bridge, kind).numbered(OfPort::LOCAL.0)
    }

    /// Whether `other` differs only in what the tables know of a port and in its QoS, so that its device stays open.
    pub(crate) fn has_same_device(&self, other: &Port) -> bool {
        let &Port { priority_tags, is_protected, speaks_lacp, policing, .. } = self;
        let (vlan, bfd, qos) = (self.vlan.clone(), self.bfd.clone(), self.qos.clone());
        Port { vlan, priority_tags, is_protected, bfd, speaks_lacp, policing, qos, ..other.clone() } == *self
    }

    /// Whether it follows the MTU of its bridge's other ports. Source: OVS ofproto.c, `ofport_is_mtu_overridden`.
    pub(crate) fn follows_mtu(&self) -> bool {
        self.mtu.is_none() && matches!(self.kind.as_str(), "internal" | "dummy-internal")
    }

    /// Whether it is the LOCAL port of its bridge.
    pub fn is_local(&self) -> bool {
        self.ofport_request == Some(OfPort::LOCAL)
    }

    /// The same port with a number that it requests.
    pub fn numbered(self, ofport: u16) -> Self {
        Port { ofport_request: Some(OfPort(ofport)), ..self }
    }

    /// What kind of tunnel it is, if it is one.
    pub fn tunnel_kind(&self) -> Option<TunnelKind> {
        TunnelKind::named(&self.kind)
    }

    /// What it is as a tunnel; `None` if it is none, or if its options make none.
    pub(crate) fn tunnel(&self) -> Option<TunnelConfig> {
        let parsed = sluice_tunnel::parse(&self.name, self.tunnel_kind()?, &self.options);
        parsed.ok().map(|parsed| parsed.config)
    }

    /// The other end, of a patch port.
    pub fn peer(&self) -> Option<&str> {
        (self.kind == PATCH).then(|| self.options.get("peer").map_or("", String::as_str))
    }
}
