//! The interface types that this build has.

use crate::plan::{DPDK, DummyOverride};
use sluice_port::PORT_TYPES;
use sluice_tunnel::TunnelKind;
use sluice_vswitch::PATCH;

/// Types that Open vSwitch has, too, and so tools may ask for.
const OVS_TYPES: [&str; 18] = [
    "afxdp",
    DPDK,
    "dpdkvhostuser",
    "dpdkvhostuserclient",
    "dummy",
    "dummy-internal",
    "dummy-pmd",
    "erspan",
    "geneve",
    "gre",
    "gtpu",
    "internal",
    "ip6erspan",
    "ip6gre",
    "system",
    "tap",
    PATCH,
    "vxlan",
];

/// The types of Open vSwitch that interfaces can be of.
pub fn interface_types(dummies: DummyOverride, has_dpdk: bool) -> impl Iterator<Item = &'static str> {
    let is_tunnel = |kind: &str| TunnelKind::named(kind).is_some();
    let is_built =
        move |kind: &str| kind == PATCH || is_tunnel(kind) || PORT_TYPES.iter().any(|known| known.name == kind);
    let is_offered = move |kind: &str| match kind {
        DPDK => has_dpdk,
        _ => !kind.starts_with("dummy") || dummies != DummyOverride::Unavailable,
    };
    OVS_TYPES.into_iter().filter(move |kind| is_built(kind) && is_offered(kind))
}
