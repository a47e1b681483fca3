//! A port's row as a bundle: a bond of its interfaces, and LACP on them. Source: Open vSwitch vswitchd/bridge.c,
//! `port_configure_bond`, `port_configure_lacp`, `iface_configure_lacp`.

use super::{Level, Note, Plan};
use crate::records::{BridgeRecord, InterfaceRecord, PortRecord};
use sluice_bond::{Config, Mode};
use sluice_flow::Mac;
use sluice_vswitch::{Bundle, LacpMember, LacpSettings};

/// Whether LACP is spoken on a port, and whether this end begins; what is wrong with that.
fn lacp_mode(port: &PortRecord) -> (Option<bool>, Option<Note>) {
    match port.lacp.as_deref() {
        None | Some("off") => (None, None),
        Some("active") => (Some(true), None),
        Some("passive") => (Some(false), None),
        Some(mode) => {
            let text = format!("port {}: unknown LACP mode {mode}", port.name);
            (None, Some(Note::new(Level::Warn, text)))
        }
    }
}

impl Plan {
    /// How LACP is spoken on a port, if it is.
    pub(super) fn lacp(&mut self, port: &PortRecord) -> Option<LacpSettings> {
        let (active, note) = lacp_mode(port);
        self.notes.extend(note);
        let (name, config) = (&port.name, &port.other_config);
        let usual = LacpSettings::new(port.interfaces.len());
        let system_id = match config.text("lacp-system-id") {
            None => None,
            Some(text) => match text.parse::<Mac>() {
                Ok(mac) if mac.0 != [0; 6] => Some(mac.0),
                Ok(_) => {
                    self.warn(format!("port {name}: Invalid zero LACP system ID."));
                    return None;
                }
                Err(_) => {
                    self.warn(format!("port {name}: LACP system ID ({text}) must be an Ethernet address."));
                    return None;
                }
            },
        };
        let priority = config.number::<u16>("lacp-system-priority").filter(|priority| *priority != 0);
        Some(LacpSettings {
            active: active?,
            fast: config.text("lacp-time").is_some_and(|time| time.eq_ignore_ascii_case("fast")),
            system_id,
            system_priority: priority.unwrap_or(usual.system_priority),
            members: port.interfaces.iter().map(|member| (member.name.clone(), lacp_member(member))).collect(),
        })
    }

    /// The bundle of a port with these interfaces; `None` if it is a port like others.
    pub(super) fn bundle(
        &mut self,
        bridge: &BridgeRecord,
        port: &PortRecord,
        members: Vec<String>,
        lacp: Option<LacpSettings>,
    ) -> Option<Bundle> {
        let is_bond = port.interfaces.len() > 1;
        if members.is_empty() || !is_bond && lacp.is_none() {
            return None;
        }
        let bond = is_bond.then(|| self.bond(bridge, port));
        Some(Bundle { name: port.name.clone(), members, bond, lacp })
    }

    fn bond(&mut self, bridge: &BridgeRecord, port: &PortRecord) -> Config {
        let (name, config) = (&port.name, &port.other_config);
        let default = Mode::default();
        let mode = match &port.bond_mode {
            Some(mode) => Mode::named(mode).unwrap_or_else(|| {
                self.warn(format!("port {name}: unknown bond_mode {mode}, defaulting to {}", default.name()));
                default
            }),
            None => {
                let text = format!(
                    "port {name}: Using the default bond_mode {}. Note that in previous versions, the default bond_mode \
                     was balance-slb",
                    default.name()
                );
                self.notes.push(Note::once(Level::Warn, text));
                default
            }
        };
        if mode == Mode::BalanceSlb && !bridge.flood_vlans.is_empty() {
            self.warn(format!(
                "port {name}: SLB bonds are incompatible with flood_vlans, please use another bond type or disable \
                 flood_vlans"
            ));
        }
        let polls = match config.text("bond-detect-mode") {
            None | Some("carrier") => false,
            Some("miimon") => true,
            Some(detect) => {
                self.warn(format!("port {name}: unsupported bond-detect-mode {detect}, defaulting to carrier"));
                false
            }
        };
        let interval = config.number::<u32>("bond-miimon-interval").filter(|ms| *ms != 0).map(u64::from);
        let milliseconds = |ms: i64| u64::try_from(ms.clamp(0, i32::MAX.into())).unwrap_or(0);
        let rebalance = config.number::<i64>("bond-rebalance-interval").map(milliseconds);
        let fallback_ab = config.flag("lacp-fallback-ab", false);
        let has_primary = mode == Mode::ActiveBackup || fallback_ab;
        Config {
            mode,
            updelay_ms: milliseconds(port.bond_updelay),
            downdelay_ms: milliseconds(port.bond_downdelay),
            rebalance_interval_ms: match rebalance {
                Some(0) => 0,
                Some(ms) => ms.max(Config::REBALANCE_MIN_MS),
                None => Config::default().rebalance_interval_ms,
            },
            hash_basis: config.number::<i64>("bond-hash-basis").unwrap_or(0) as u32,
            primary: config.text("bond-primary").filter(|_| has_primary).map(str::to_owned),
            fallback_ab,
            lb_output: mode == Mode::BalanceTcp && config.flag("lb-output-action", false),
            all_members_active: config.flag("all-members-active", false),
            miimon_interval_ms: polls.then(|| interval.unwrap_or(Config::MIIMON_MS)),
            last_active: port.bond_active_slave.as_ref().and_then(|mac| mac.parse::<Mac>().ok()).map(|mac| mac.0),
        }
    }
}

fn lacp_member(interface: &InterfaceRecord) -> LacpMember {
    let number = |key| interface.other_config.number::<u16>(key).filter(|number| *number != 0);
    let usual = LacpMember::default();
    LacpMember {
        port_id: number("lacp-port-id"),
        port_priority: number("lacp-port-priority").unwrap_or(usual.port_priority),
        key: number("lacp-aggregation-key").unwrap_or(usual.key),
    }
}
