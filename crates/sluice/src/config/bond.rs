//! `[[bridge.bond]]`: ports that serve as one, or a port on which LACP is spoken.

use super::Bridge;
use super::value::Duration;
use serde::Deserialize;
use sluice_bond::{Config, Mode};
use sluice_flow::Mac;
use sluice_vswitch::{Bundle, Invalid, LacpMember, LacpSettings};
use std::collections::BTreeMap;

/// `[[bridge.bond]]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Bond {
    /// Its name, unique in the bridge.
    pub name: String,
    /// Its ports, of the same bridge.
    pub members: Vec<String>,
    /// How traffic is spread.
    #[serde(default = "usual_mode")]
    pub mode: String,
    /// How long a link has to be up before it is used.
    #[serde(default = "at_once")]
    pub updelay: Duration,
    /// How long a link has to be down before it is not used any more.
    #[serde(default = "at_once")]
    pub downdelay: Duration,
    /// How often load is spread anew.
    #[serde(default = "ten_seconds")]
    pub rebalance_interval: Duration,
    /// What hashes begin with.
    #[serde(default)]
    pub hash_basis: u32,
    /// The member that is active whenever it can be.
    #[serde(default)]
    pub primary: Option<String>,
    /// Whether the datapath chooses the member without another lookup.
    #[serde(default)]
    pub lb_output: bool,
    /// Whether multicast is admitted on every member.
    #[serde(default)]
    pub all_members_active: bool,
    /// How often links are asked whether they are up.
    #[serde(default)]
    pub miimon_interval: Option<Duration>,
    /// How LACP is spoken, if it is.
    #[serde(default)]
    pub lacp: Option<Lacp>,
}

/// `bridge.bond.lacp`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Lacp {
    /// Whether this end begins to talk.
    pub active: bool,
    /// Whether the partner is asked to send every second.
    pub fast: bool,
    /// The system's id.
    pub system_id: Option<String>,
    /// The system's priority.
    pub system_priority: Option<u16>,
    /// Whether one member carries traffic while there is no partner.
    pub fallback_ab: bool,
    /// The aggregation key of all members; 0: the number of the first port.
    pub aggregation_key: u16,
}

fn usual_mode() -> String {
    Mode::default().name().to_owned()
}

fn at_once() -> Duration {
    Duration(std::time::Duration::ZERO)
}

fn ten_seconds() -> Duration {
    Duration(std::time::Duration::from_millis(Config::default().rebalance_interval_ms))
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.0.as_millis()).unwrap_or(u64::MAX)
}

impl Bond {
    pub(super) fn desired(&self, bridge: &Bridge) -> Result<Bundle, Invalid> {
        let mode = Mode::named(&self.mode).ok_or_else(|| {
            let expected = "expected \"active-backup\", \"balance-slb\" or \"balance-tcp\"";
            Invalid::new("mode", format!("\"{}\" is unknown; {expected}", self.mode))
        })?;
        for (i, member) in self.members.iter().enumerate() {
            if !bridge.port.iter().any(|port| port.name == *member) {
                return Err(Invalid::new("members", format!("bridge {} has no port \"{member}\"", bridge.name)));
            }
            let others = bridge.bond.iter().filter(|other| other.name != self.name);
            let is_twice =
                self.members[..i].contains(member) || others.flat_map(|bond| &bond.members).any(|m| m == member);
            if is_twice {
                return Err(Invalid::new("members", format!("port \"{member}\" is a member already")));
            }
        }
        if self.members.is_empty() || self.members.len() == 1 && self.lacp.is_none() {
            return Err(Invalid::new("members", "expected two ports at least, or one with lacp"));
        }
        if bridge.bond.iter().filter(|other| other.name == self.name).count() > 1 {
            return Err(Invalid::new("name", format!("another bond is named \"{}\"; names are unique", self.name)));
        }
        let fallback_ab = self.lacp.as_ref().is_some_and(|lacp| lacp.fallback_ab);
        if mode == Mode::BalanceTcp && self.lacp.is_none() {
            return Err(Invalid::new("mode", "\"balance-tcp\" needs lacp"));
        }
        let rebalance_ms = milliseconds(self.rebalance_interval);
        if rebalance_ms != 0 && rebalance_ms < Config::REBALANCE_MIN_MS {
            return Err(Invalid::new("rebalance-interval", "expected \"0s\", or at least \"1s\""));
        }
        let bond = Config {
            mode,
            updelay_ms: milliseconds(self.updelay),
            downdelay_ms: milliseconds(self.downdelay),
            rebalance_interval_ms: rebalance_ms,
            hash_basis: self.hash_basis,
            primary: self.primary.clone(),
            fallback_ab,
            lb_output: self.lb_output && mode == Mode::BalanceTcp,
            all_members_active: self.all_members_active,
            miimon_interval_ms: self.miimon_interval.map(|interval| milliseconds(interval).max(1)),
            last_active: None,
        };
        let lacp = self.lacp.as_ref().map(|lacp| lacp.desired(&self.members)).transpose();
        Ok(Bundle {
            name: self.name.clone(),
            members: self.members.clone(),
            bond: (self.members.len() > 1).then_some(bond),
            lacp: lacp.map_err(|invalid| invalid.within("lacp"))?,
        })
    }
}

impl Lacp {
    fn desired(&self, members: &[String]) -> Result<LacpSettings, Invalid> {
        let usual = LacpSettings::new(members.len());
        let member = LacpMember { key: self.aggregation_key, ..LacpMember::default() };
        let parse = |text: &String| {
            let expected = || Invalid::new("system-id", format!("\"{text}\"; expected an Ethernet address"));
            text.parse::<Mac>().ok().map(|mac| mac.0).filter(|mac| *mac != [0; 6]).ok_or_else(expected)
        };
        Ok(LacpSettings {
            active: self.active,
            fast: self.fast,
            system_id: self.system_id.as_ref().map(parse).transpose()?,
            system_priority: self.system_priority.unwrap_or(usual.system_priority),
            members: members.iter().map(|name| (name.clone(), member)).collect::<BTreeMap<_, _>>(),
        })
    }
}
