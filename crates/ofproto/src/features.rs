//! What a datapath can do, as translation sees it: one table, which commands show and in which they turn features off.
//!
//! The names, titles and their order are those of Open vSwitch 3.1 (`ofproto/ofproto-dpif.h`, `lib/odp-util.h`).

use sluice_flow::VlanLimit;
use std::fmt::Write as _;

/// A feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// A set action may say which bits it sets.
    MaskedSetAction,
    /// Tunnel headers are pushed and popped.
    TnlPushPop,
    /// A flow has a unique identifier.
    Ufid,
    /// An output may be cut.
    Trunc,
    /// `clone`.
    Clone,
    /// How deep `sample` may nest.
    SampleNesting,
    /// `ct` may say which events are reported.
    CtEventmask,
    /// `ct_clear`.
    CtClear,
    /// The highest algorithm of `hash`.
    MaxHashAlg,
    /// `check_pkt_len`.
    CheckPktLen,
    /// Zones may have their own timeouts.
    CtTimeout,
    /// A drop may be an action.
    ExplicitDropAction,
    /// A bond may be an output.
    LbOutputAction,
    /// Source NAT to the all-zero address.
    CtZeroSnat,
    /// A label may be added in front of the Ethernet header.
    AddMpls,
    /// How many VLAN tags a key holds.
    MaxVlanHeaders,
    /// How many labels a key holds.
    MaxMplsDepth,
    /// Recirculation.
    Recirc,
    /// `ct_state`.
    CtState,
    /// `ct_zone`.
    CtZone,
    /// `ct_mark`.
    CtMark,
    /// `ct_label`.
    CtLabel,
    /// The bits of `ct_state` that tell of NAT.
    CtStateNat,
    /// The original tuple of IPv4 connections.
    CtOrigTuple,
    /// The original tuple of IPv6 connections.
    CtOrigTuple6,
    /// The extensions of neighbour discovery.
    NdExt,
}

/// A row of the table.
struct FeatureRow {
    feature: Feature,
    name: &'static str,
    title: &'static str,
    /// What this datapath can do.
    boot: FeatureValue,
}

/// How far a feature is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FeatureValue {
    Bool(bool),
    Number(u64),
}

const fn row(feature: Feature, name: &'static str, title: &'static str, boot: FeatureValue) -> FeatureRow {
    FeatureRow { feature, name, title, boot }
}

use FeatureValue::{Bool, Number};

const FEATURES: [FeatureRow; 26] = [
    row(Feature::MaskedSetAction, "masked_set_action", "Masked set action", Bool(true)),
    row(Feature::TnlPushPop, "tnl_push_pop", "Tunnel push pop", Bool(true)),
    row(Feature::Ufid, "ufid", "Ufid", Bool(true)),
    row(Feature::Trunc, "trunc", "Truncate action", Bool(true)),
    row(Feature::Clone, "clone", "Clone action", Bool(true)),
    row(Feature::SampleNesting, "sample_nesting", "Sample nesting", Number(10)),
    row(Feature::CtEventmask, "ct_eventmask", "Conntrack eventmask", Bool(true)),
    row(Feature::CtClear, "ct_clear", "Conntrack clear", Bool(true)),
    row(Feature::MaxHashAlg, "max_hash_alg", "Max dp_hash algorithm", Number(1)),
    row(Feature::CheckPktLen, "check_pkt_len", "Check pkt length action", Bool(true)),
    row(Feature::CtTimeout, "ct_timeout", "Conntrack timeout policy", Bool(true)),
    row(Feature::ExplicitDropAction, "explicit_drop_action", "Explicit Drop action", Bool(true)),
    row(Feature::LbOutputAction, "lb_output_action", "Optimized Balance TCP mode", Bool(false)),
    row(Feature::CtZeroSnat, "ct_zero_snat", "Conntrack all-zero IP SNAT", Bool(true)),
    row(Feature::AddMpls, "add_mpls", "MPLS Label add", Bool(false)),
    row(Feature::MaxVlanHeaders, "max_vlan_headers", "Max VLAN headers", Number(VlanLimit::MAX.tags() as u64)),
    row(Feature::MaxMplsDepth, "max_mpls_depth", "Max MPLS depth", Number(3)),
    row(Feature::Recirc, "recirc", "Recirc", Bool(true)),
    row(Feature::CtState, "ct_state", "CT state", Bool(true)),
    row(Feature::CtZone, "ct_zone", "CT zone", Bool(true)),
    row(Feature::CtMark, "ct_mark", "CT mark", Bool(true)),
    row(Feature::CtLabel, "ct_label", "CT label", Bool(true)),
    row(Feature::CtStateNat, "ct_state_nat", "CT state NAT", Bool(true)),
    row(Feature::CtOrigTuple, "ct_orig_tuple", "CT orig tuple", Bool(true)),
    row(Feature::CtOrigTuple6, "ct_orig_tuple6", "CT orig tuple for IPv6", Bool(true)),
    row(Feature::NdExt, "nd_ext", "IPv6 ND Extension", Bool(true)),
];

// A feature is the index of its row.
const _: () = {
    let mut i = 0;
    while i < FEATURES.len() {
        assert!(FEATURES[i].feature as usize == i);
        i += 1;
    }
};

/// The features of a datapath: what it can do, and what translation may use of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DpFeatures {
    boot: [FeatureValue; FEATURES.len()],
    now: [FeatureValue; FEATURES.len()],
}

impl DpFeatures {
    /// All that the datapath can do if it reads that many tags of a packet.
    pub fn new(vlan_limit: VlanLimit) -> Self {
        let boot = FEATURES.each_ref().map(|row| row.boot);
        let mut features = DpFeatures { boot, now: boot };
        features.set_vlan_limit(vlan_limit);
        features
    }

    /// Changes how many tags it reads, and uses; other changes of what may be used stay.
    pub fn set_vlan_limit(&mut self, vlan_limit: VlanLimit) {
        for values in [&mut self.boot, &mut self.now] {
            values[Feature::MaxVlanHeaders as usize] = Number(vlan_limit.tags() as u64);
        }
    }

    /// Whether translation may use a feature.
    pub fn has(&self, feature: Feature) -> bool {
        self.number(feature) != 0
    }

    /// How much of a feature translation may use.
    pub fn number(&self, feature: Feature) -> u64 {
        match self.now[feature as usize] {
            Bool(is_on) => is_on.into(),
            Number(n) => n,
        }
    }

    /// Changes what translation may use.
    ///
    /// # Errors
    /// With OVS's text, if there is no such feature or value. OVS's command does not fail then: it answers the text.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        let at = position(name)?;
        self.now[at] = match self.boot[at] {
            Bool(can) if value.eq_ignore_ascii_case("true") => match can {
                true => Bool(true),
                false => return Err("Can not enable features not supported by the datapth"),
            },
            Bool(_) if value.eq_ignore_ascii_case("false") => Bool(false),
            Bool(_) => return Err("Boolean value expected"),
            Number(most) => match value.trim().parse::<i32>() {
                Ok(n) if n < 0 => return Err("Negative number not expected"),
                Ok(n) if n as u64 > most => return Err("Can not set value beyond the datapath capability"),
                Ok(n) => Number(n as u64),
                Err(_) => return Err("Integer number expected"),
            },
        };
        Ok(())
    }

    /// What the datapath can do: a line a feature, by title.
    pub fn show(&self) -> String {
        let line = |(row, value): (&FeatureRow, &FeatureValue)| match value {
            Bool(can) => format!("{}: {}\n", row.title, if *can { "Yes" } else { "No" }),
            Number(n) => format!("{}: {n}\n", row.title),
        };
        FEATURES.iter().zip(&self.boot).map(line).collect()
    }

    /// What translation may use, and what the datapath can do: of one feature or of all.
    ///
    /// # Errors
    /// With OVS's text, if there is no such feature.
    pub fn show_both(&self, name: Option<&str>) -> Result<String, &'static str> {
        let at = match name {
            Some(name) => position(name)?..position(name)? + 1,
            None => 0..FEATURES.len(),
        };
        let mut out = String::new();
        for i in at {
            let show = |value: FeatureValue| match value {
                Bool(is_on) => is_on.to_string(),
                Number(n) => n.to_string(),
            };
            let FeatureRow { name, title, .. } = FEATURES[i];
            let (now, boot) = (show(self.now[i]), show(self.boot[i]));
            let _ = writeln!(out, "{name} ({title}) : [run time]:{now}, [boot time]:{boot}");
        }
        Ok(out)
    }

    /// What the datapath can do, as the database has it: names and values. Source: ofproto/ofproto-dpif.c,
    /// `get_datapath_cap`.
    pub fn capabilities(&self) -> impl Iterator<Item = (&'static str, String)> {
        let value = |row: &FeatureRow, value: &FeatureValue| match value {
            Bool(can) => can.to_string(),
            Number(n) if row.feature == Feature::SampleNesting => (*n != 0).to_string(),
            Number(n) => n.to_string(),
        };
        let rows = FEATURES.iter().zip(&self.boot).map(move |(row, boot)| (row.name, value(row, boot)));
        // Single connections can be flushed by every datapath.
        rows.chain([("ct_flush", true.to_string())])
    }

    /// What OVS logs when it has made a datapath of that name, line by line.
    pub fn probed(&self, datapath: &str) -> Vec<String> {
        let number = |feature| match self.boot[feature as usize] {
            Bool(can) => can.into(),
            Number(n) => n,
        };
        let can = |feature, what: &str| {
            let verb = if number(feature) != 0 { "supports" } else { "does not support" };
            format!("Datapath {verb} {what}")
        };
        let lines = [
            can(Feature::Recirc, "recirculation"),
            format!("VLAN header stack length probed as {}", number(Feature::MaxVlanHeaders)),
            format!("MPLS label stack length probed as {}", number(Feature::MaxMplsDepth)),
            can(Feature::Trunc, "truncate action"),
            can(Feature::Ufid, "unique flow ids"),
            can(Feature::Clone, "clone action"),
            format!("Max sample nesting level probed as {}", number(Feature::SampleNesting)),
            can(Feature::CtEventmask, "eventmask in conntrack action"),
            can(Feature::CtClear, "ct_clear action"),
            format!("Max dp_hash algorithm probed to be {}", number(Feature::MaxHashAlg)),
            can(Feature::CheckPktLen, "check_pkt_len action"),
            can(Feature::CtTimeout, "timeout policy in conntrack action"),
            can(Feature::CtZeroSnat, "ct_zero_snat"),
            can(Feature::AddMpls, "add_mpls action"),
            can(Feature::CtState, "ct_state"),
            can(Feature::CtZone, "ct_zone"),
            can(Feature::CtMark, "ct_mark"),
            can(Feature::CtLabel, "ct_label"),
            can(Feature::CtStateNat, "ct_state_nat"),
            can(Feature::CtOrigTuple, "ct_orig_tuple"),
            can(Feature::CtOrigTuple6, "ct_orig_tuple6"),
            can(Feature::NdExt, "IPv6 ND Extensions"),
        ];
        lines.into_iter().map(|line| format!("{datapath}: {line}")).collect()
    }
}

impl Default for DpFeatures {
    fn default() -> Self {
        DpFeatures::new(VlanLimit::default())
    }
}

fn position(name: &str) -> Result<usize, &'static str> {
    FEATURES.iter().position(|row| row.name == name).ok_or("Unexpected support field")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_turned_off_and_on_in_ovs_words() {
        let mut features = DpFeatures::default();
        assert!(features.has(Feature::Clone));
        features.set("clone", "False").unwrap();
        assert!(!features.has(Feature::Clone));
        assert_eq!(
            features.show_both(Some("clone")).unwrap(),
            "clone (Clone action) : [run time]:false, [boot time]:true\n"
        );
        features.set("clone", "true").unwrap();
        assert_eq!(features, DpFeatures::default());
        features.set("sample_nesting", "2").unwrap();
        assert_eq!(features.number(Feature::SampleNesting), 2);
        for (name, value, error) in [
            ("cloning", "true", "Unexpected support field"),
            ("clone", "yes", "Boolean value expected"),
            ("add_mpls", "true", "Can not enable features not supported by the datapth"),
            ("sample_nesting", "-1", "Negative number not expected"),
            ("sample_nesting", "11", "Can not set value beyond the datapath capability"),
            ("sample_nesting", "x", "Integer number expected"),
        ] {
            assert_eq!(features.set(name, value), Err(error), "{name}={value}");
        }
    }

    #[test]
    fn a_datapath_tells_what_it_can_do() {
        let features = DpFeatures::new(VlanLimit::MAX);
        let shown = features.show();
        assert!(shown.starts_with("Masked set action: Yes\nTunnel push pop: Yes\n"), "{shown}");
        assert!(shown.contains("\nMax VLAN headers: 2\n") && shown.ends_with("\nIPv6 ND Extension: Yes\n"), "{shown}");
        let probed = features.probed("dummy@ovs-dummy");
        assert_eq!(probed[1], "dummy@ovs-dummy: VLAN header stack length probed as 2");
        assert_eq!(probed[8], "dummy@ovs-dummy: Datapath supports ct_clear action");
    }
}
