//! Types of datapaths and interfaces: the ones that a row names, and the ones that take their place.

/// Which types are dummies, for tests. Source: Open vSwitch lib/dummy.c, `--enable-dummy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DummyOverride {
    /// There are no dummies.
    #[default]
    Unavailable,
    /// Only what is called a dummy is one.
    None,
    /// Type `system` is a dummy, too.
    System,
    /// Every type with a device is a dummy.
    All,
}

impl DummyOverride {
    /// Whether a datapath type is served by the dummy datapath.
    pub fn is_dummy_datapath(self, datapath_type: &str) -> bool {
        match self {
            DummyOverride::Unavailable => false,
            DummyOverride::None => datapath_type == "dummy",
            DummyOverride::System => matches!(datapath_type, "dummy" | "system"),
            DummyOverride::All => true,
        }
    }

    /// The datapath types that a bridge can have.
    pub fn datapath_types(self) -> &'static [&'static str] {
        if self == DummyOverride::Unavailable { &["netdev", "system"] } else { &["dummy", "netdev", "system"] }
    }

    /// The type of device that serves an interface of type `kind` in a datapath of that type.
    /// Source: lib/dpif-netdev.c, `dpif_netdev_port_open_type`; lib/netdev-dummy.c, `netdev_dummy_register`.
    pub fn device_kind<'a>(self, datapath_type: &str, kind: &'a str) -> &'a str {
        let is_overridden = match self {
            DummyOverride::Unavailable | DummyOverride::None => false,
            DummyOverride::System => kind == "system",
            DummyOverride::All => matches!(kind, "system" | "tap"),
        };
        match kind {
            "internal" if self.is_dummy_datapath(datapath_type) => "dummy-internal",
            _ if is_overridden => "dummy",
            _ => kind,
        }
    }
}

/// A datapath's type; an empty one is `system`. Source: ofproto/ofproto.c, `ofproto_normalize_type`.
pub fn normalize(datapath_type: &str) -> &str {
    if datapath_type.is_empty() { "system" } else { datapath_type }
}

/// Names that tunnels and datapaths have for themselves. Source: lib/netdev.c, `netdev_is_reserved_name`.
pub fn is_reserved_name(name: &str) -> bool {
    const TUNNELS: [&str; 8] =
        ["genev_sys", "gre_sys", "vxlan_sys", "lisp_sys", "stt_sys", "erspan_sys", "gtpu_sys", "ip6gre_sys"];
    const DATAPATHS: [&str; 3] = ["ovs-system", "ovs-netdev", "ovs-dummy"];
    TUNNELS.iter().any(|prefix| name.starts_with(prefix)) || DATAPATHS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn internal_ports_of_dummy_datapaths_are_dummies() {
        let kind = |dummies: DummyOverride, datapath, kind| dummies.device_kind(datapath, kind);
        assert_eq!(kind(DummyOverride::None, "dummy", "internal"), "dummy-internal");
        assert_eq!(kind(DummyOverride::None, "netdev", "internal"), "internal");
        assert_eq!(kind(DummyOverride::System, "system", "internal"), "dummy-internal");
        assert_eq!(kind(DummyOverride::System, "netdev", "tap"), "tap");
        assert_eq!(kind(DummyOverride::All, "netdev", "system"), "dummy");
        assert_eq!(kind(DummyOverride::All, "netdev", "patch"), "patch");
    }

    #[test]
    fn reserved_names_are_those_of_tunnels_and_datapaths() {
        assert!(["vxlan_sys_4789", "genev_sys", "ovs-system"].iter().all(|name| is_reserved_name(name)));
        assert!(!["vxlan0", "ovs-systems", "eth0"].iter().any(|name| is_reserved_name(name)));
    }
}
