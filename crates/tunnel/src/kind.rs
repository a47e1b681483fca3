//! The types of tunnels.

/// A type of tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are the protocols'")]
pub enum TunnelKind {
    Geneve,
    Vxlan,
    Gre,
    Ip6Gre,
    Erspan,
    Ip6Erspan,
    Gtpu,
}

impl TunnelKind {
    /// All of them.
    pub const ALL: [TunnelKind; 7] = {
        use TunnelKind::*;
        [Geneve, Vxlan, Gre, Ip6Gre, Erspan, Ip6Erspan, Gtpu]
    };

    /// The type of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Its name in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            TunnelKind::Geneve => "geneve",
            TunnelKind::Vxlan => "vxlan",
            TunnelKind::Gre => "gre",
            TunnelKind::Ip6Gre => "ip6gre",
            TunnelKind::Erspan => "erspan",
            TunnelKind::Ip6Erspan => "ip6erspan",
            TunnelKind::Gtpu => "gtpu",
        }
    }

    /// The UDP port that it is received at if its port does not say; `None`: it does not use UDP.
    pub const fn default_port(self) -> Option<u16> {
        match self {
            TunnelKind::Geneve => Some(6081),
            TunnelKind::Vxlan => Some(4789),
            TunnelKind::Gtpu => Some(2152),
            _ => None,
        }
    }

    /// Whether it is ERSPAN, which has fields of its own.
    pub const fn is_erspan(self) -> bool {
        matches!(self, TunnelKind::Erspan | TunnelKind::Ip6Erspan)
    }

    /// Whether its header begins as GRE's does.
    pub const fn is_gre(self) -> bool {
        matches!(self, TunnelKind::Gre | TunnelKind::Ip6Gre) || self.is_erspan()
    }

    /// The name of the datapath port that serves its tunnels at that UDP port. Source: Open vSwitch lib/netdev-vport.c,
    /// `netdev_vport_get_dpif_port`.
    pub fn backend_name(self, dst_port: u16) -> String {
        match self {
            TunnelKind::Geneve => format!("genev_sys_{dst_port}"),
            TunnelKind::Vxlan => format!("vxlan_sys_{dst_port}"),
            TunnelKind::Gtpu => format!("gtpu_sys_{dst_port}"),
            _ => format!("{}_sys", self.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_found_by_its_name() {
        assert!(TunnelKind::ALL.into_iter().all(|kind| TunnelKind::named(kind.name()) == Some(kind)));
        assert_eq!(TunnelKind::named("lisp"), None);
    }

    #[test]
    fn datapath_ports_are_named_after_types_and_udp_ports() {
        assert_eq!(TunnelKind::Vxlan.backend_name(4789), "vxlan_sys_4789");
        assert_eq!(TunnelKind::Geneve.backend_name(6081), "genev_sys_6081");
        assert_eq!(TunnelKind::Gtpu.backend_name(2152), "gtpu_sys_2152");
        assert_eq!(TunnelKind::Ip6Erspan.backend_name(0), "ip6erspan_sys");
    }
}
