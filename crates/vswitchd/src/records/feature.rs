//! What rows may ask for and this build lacks.

use sluice_ovsdb::Row;
use std::collections::BTreeMap;

/// Something that a row may ask for and that this build lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// The spanning tree protocol.
    Stp,
    /// The rapid spanning tree protocol.
    Rstp,
    /// Multicast snooping.
    McastSnooping,
    /// NetFlow.
    NetFlow,
    /// IPFIX.
    Ipfix,
    /// Connectivity fault management.
    Cfm,
    /// The link layer discovery protocol.
    Lldp,
}

const OF_BRIDGES: [Feature; 5] =
    [Feature::Stp, Feature::Rstp, Feature::McastSnooping, Feature::NetFlow, Feature::Ipfix];

const OF_INTERFACES: [Feature; 2] = [Feature::Cfm, Feature::Lldp];

impl Feature {
    /// What a row of table `Bridge` asks for in vain.
    pub(super) fn of_bridge(row: &Row<'_>) -> Vec<Self> {
        OF_BRIDGES.into_iter().filter(|feature| feature.is_asked_for(row)).collect()
    }

    /// What a row of table `Interface` asks for in vain.
    pub(super) fn of_interface(row: &Row<'_>) -> Vec<Self> {
        OF_INTERFACES.into_iter().filter(|feature| feature.is_asked_for(row)).collect()
    }

    /// The column that asks for it, which is also its name.
    pub fn column(self) -> &'static str {
        match self {
            Feature::Stp => "stp_enable",
            Feature::Rstp => "rstp_enable",
            Feature::McastSnooping => "mcast_snooping_enable",
            Feature::NetFlow => "netflow",
            Feature::Ipfix => "ipfix",
            Feature::Cfm => "cfm_mpid",
            Feature::Lldp => "lldp",
        }
    }

    /// Whether networks rely on it: without it they may have loops, floods or paths that lead nowhere.
    pub fn is_for_safety(self) -> bool {
        match self {
            Feature::Stp | Feature::Rstp | Feature::McastSnooping | Feature::Cfm => true,
            Feature::NetFlow | Feature::Ipfix | Feature::Lldp => false,
        }
    }

    /// Whether the log warns of it: of what networks rely on, and of records that somebody waits for.
    pub fn is_warned_of(self) -> bool {
        self.is_for_safety() || matches!(self, Feature::NetFlow | Feature::Ipfix)
    }

    /// What becomes of the wish.
    pub fn outcome(self) -> String {
        format!("{} is not supported and ignored", self.column())
    }

    fn is_asked_for(self, row: &Row<'_>) -> bool {
        match self {
            Feature::Stp | Feature::Rstp | Feature::McastSnooping => row.get(self.column()),
            Feature::Lldp => {
                let settings: BTreeMap<&str, &str> = row.get(self.column());
                settings.get("enable").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            }
            _ => !row.datum(self.column()).is_empty(),
        }
    }
}
