//! A bridge's records as a bridge: its ports, numbers and settings.

use super::kind::{is_reserved_name, normalize};
use super::openflow::{OpenFlowPlan, versions};
use super::vlan::{priority_tags, vlan_mode};
use super::{Level, Note, Plan, PlanContext, PlannedBridge, PlannedInterface};
use crate::ofport_allocator::{NumberRequest, OfPortAllocator};
use crate::records::{BridgeRecord, Feature, InterfaceRecord, PortRecord, Smap};
use crate::vhost_sock_dir;
use sluice_connmgr::BridgeDescription;
use sluice_flow::{Mac, OfPort};
use sluice_ofproto::{FailMode, NormalSettings};
use sluice_ovsdb::Uuid;
use sluice_port::{PORT_TYPES, TxSteering};
use sluice_tunnel::TunnelKind;
use sluice_vswitch::{Bridge, Bundle, PATCH, Port};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Seconds that MAC entries may be told to live, at least and at most. Source: lib/mac-learning.c, `normalize_idle_time`.
const MAC_AGE_S: (i32, i32) = (15, 3600);

/// Entries that a MAC table may be told to have. Source: lib/mac-learning.c, `mac_learning_set_max_entries`.
const MAC_TABLE_SIZE: (i32, i32) = (10, 1_000_000);

/// The type of ports that need DPDK.
pub(crate) const DPDK: &str = "dpdk";

/// The type of vhost-user ports that listen.
const VHOST_SERVER: &str = "dpdkvhostuser";

/// A port with its row, on the way to a number.
struct Candidate {
    uuid: Uuid,
    mac: Option<Mac>,
    lacking: Vec<Feature>,
    port: Port,
    request: NumberRequest,
}

impl Plan {
    /// Plans a bridge.
    pub(super) fn add_bridge(
        &mut self,
        record: &BridgeRecord,
        context: &PlanContext<'_>,
        numbers: &mut OfPortAllocator,
        taken: &mut HashSet<String>,
    ) {
        let (candidates, bundles) = self.candidates(record, context, taken);
        let unrepresentative = unrepresentative(&bundles);
        let requests: Vec<_> = candidates.iter().filter(|c| !c.port.is_local()).map(|c| c.request.clone()).collect();
        let settled = numbers.allocate(&requests, context.now_ms);
        let mut interfaces = Vec::new();
        let mut ports = Vec::new();
        for Candidate { uuid, mac, lacking, port, .. } in candidates {
            let number = settled.get(&port.name).copied();
            interfaces.push(PlannedInterface { uuid: Some(uuid), name: port.name.clone(), mac, lacking });
            ports.push(match number {
                Some(number) if !port.is_local() => port.numbered(number),
                _ => port,
            });
        }
        let name = record.name.clone();
        let datapath_id = record.other_config.text("datapath-id").and_then(parse_datapath_id);
        let hwaddr = self.hwaddr(record);
        let openflow = OpenFlowPlan::make(record, context.confinement);
        self.notes.extend(openflow.notes);
        self.synthesize_local(record, context, &mut ports, &mut interfaces);
        self.note_lacking(&format!("bridge {name}"), &record.lacking);
        let tables = self.tables(record);
        let mirrors = self.mirrors(record);
        self.state.bridges.push(Bridge {
            datapath_type: normalize(&record.datapath_type).to_owned(),
            fail_mode: fail_mode(record),
            normal: normal_settings(record),
            description: description(&record.other_config),
            controllers: if context.waits_for_flows { Vec::new() } else { openflow.active },
            listeners: if context.waits_for_flows { Vec::new() } else { openflow.passive },
            versions: versions(record),
            tables,
            mirrors: mirrors.clone(),
            sflow: super::sflow::sflow(record),
            ports,
            bundles,
            ..Bridge::new(&name)
        });
        self.bridges.push(PlannedBridge {
            uuid: record.uuid,
            name,
            datapath_id,
            hwaddr,
            interfaces,
            bonds: bonds(record),
            unrepresentative,
            port_macs: port_macs(record),
            controllers: openflow.rows,
            mirrors: record.mirrors.iter().map(|mirror| mirror.uuid).collect(),
            mirror_outputs: mirrors.into_iter().filter_map(|mirror| mirror.output.into_port()).collect(),
            lacking: record.lacking.clone(),
        });
    }

    /// The ports that a bridge asks for, without those that another bridge has (`taken`, names of all bridges).
    fn candidates(
        &mut self,
        record: &BridgeRecord,
        context: &PlanContext<'_>,
        taken: &mut HashSet<String>,
    ) -> (Vec<Candidate>, Vec<Bundle>) {
        let mut names = HashSet::new();
        let (mut candidates, mut bundles): (Vec<Candidate>, _) = (Vec::new(), Vec::new());
        for port in &record.ports {
            let (vlan, note) = vlan_mode(port);
            self.notes.extend(note);
            let (priority_tags, is_protected) = (priority_tags(port), port.protected);
            let lacp = self.lacp(port);
            let speaks_lacp = lacp.is_some();
            let qos = port.qos.as_ref().map(|record| Arc::new(super::qos::qos(record)));
            let settings = Port { vlan, priority_tags, is_protected, speaks_lacp, qos, ..Port::new("", "") };
            let before = candidates.len();
            for interface in &port.interfaces {
                if !names.insert(interface.name.as_str()) {
                    continue;
                }
                if interface.name != record.name && !taken.insert(interface.name.clone()) {
                    self.refuse_taken(interface);
                    continue;
                }
                self.note_lacking(&format!("interface {}", interface.name), &interface.lacking);
                candidates.extend(self.candidate(record, interface, &settings, context));
            }
            let members = candidates[before..].iter().map(|candidate| candidate.port.name.clone()).collect();
            bundles.extend(self.bundle(record, port, members, lacp));
        }
        (candidates, bundles)
    }

    /// Another bridge has the interface. Source: vswitchd/bridge.c, `iface_do_create`, with the text of EEXIST.
    fn refuse_taken(&mut self, interface: &InterfaceRecord) {
        let error = format!("could not add network device {} to ofproto (File exists)", interface.name);
        self.warn(error.clone());
        self.refuse(interface.uuid, Some(error));
    }

    /// The Ethernet address that a bridge is to have, if it says so.
    fn hwaddr(&mut self, record: &BridgeRecord) -> Option<Mac> {
        let mac: Mac = record.other_config.text("hwaddr")?.parse().ok()?;
        let name = &record.name;
        let wrong = match mac {
            Mac([first, ..]) if first & 1 != 0 => format!("cannot set MAC address to multicast address {mac}"),
            Mac([0, 0, 0, 0, 0, 0]) => "cannot set MAC address to zero".to_owned(),
            mac => return Some(mac),
        };
        self.notes.push(Note::new(Level::Error, format!("bridge {name}: {wrong}")));
        None
    }

    /// The Ethernet address that an internal interface is to have, if it says so. Source: vswitchd/bridge.c,
    /// `iface_set_mac`.
    fn interface_mac(&mut self, interface: &InterfaceRecord, is_local: bool) -> Option<Mac> {
        let mac: Mac = interface.mac.as_ref().filter(|_| is_local || interface.kind == "internal")?.parse().ok()?;
        let wrong = match mac {
            _ if is_local => "ignoring mac in Interface record (use Bridge record to set local port's mac)",
            Mac([first, ..]) if first & 1 != 0 => "cannot set MAC to multicast address",
            Mac([0, 0, 0, 0, 0, 0]) => "cannot set MAC to all zero address",
            mac => return Some(mac),
        };
        self.notes.push(Note::new(Level::Error, format!("interface {}: {wrong}", interface.name)));
        None
    }

    /// A bridge with controllers has a LOCAL port in any case. Source: vswitchd/bridge.c, `bridge_collect_wanted_ports`.
    fn synthesize_local(
        &mut self,
        record: &BridgeRecord,
        context: &PlanContext<'_>,
        ports: &mut Vec<Port>,
        interfaces: &mut Vec<PlannedInterface>,
    ) {
        let name = &record.name;
        if record.controllers.is_empty() || ports.iter().any(Port::is_local) {
            return;
        }
        self.warn(format!("bridge {name}: no port named {name}, synthesizing one"));
        let kind = context.dummies.device_kind(normalize(&record.datapath_type), "internal");
        ports.push(Port::local(name, kind));
        interfaces.push(PlannedInterface { uuid: None, name: name.clone(), mac: None, lacking: Vec::new() });
    }

    /// Says once what a row asks for in vain.
    fn note_lacking(&mut self, owner: &str, lacking: &[Feature]) {
        for feature in lacking {
            let level = if feature.is_warned_of() { Level::Warn } else { Level::Info };
            self.notes.push(Note::once(level, format!("{owner}: {}", feature.outcome())));
        }
    }

    /// An interface as a port, unless it cannot be one.
    fn candidate(
        &mut self,
        bridge: &BridgeRecord,
        interface: &InterfaceRecord,
        of_port: &Port,
        context: &PlanContext<'_>,
    ) -> Option<Candidate> {
        let name = &interface.name;
        if is_reserved_name(name) {
            self.warn(format!("could not create interface {name}, name is reserved"));
            self.refuse(interface.uuid, None);
            return None;
        }
        let is_local = *name == bridge.name;
        let kind = match interface.kind.as_str() {
            _ if is_local => "internal",
            "" => "system",
            kind => kind,
        };
        let kind = context.dummies.device_kind(normalize(&bridge.datapath_type), kind);
        let port = if is_local { Port::local(name, kind) } else { Port::new(name, kind) };
        let (bfd, notes) = super::bfd::session(interface);
        self.notes.extend(notes);
        let port = Port {
            bfd,
            policing: super::qos::policing(interface),
            qos: of_port.qos.clone(),
            vlan: of_port.vlan.clone(),
            priority_tags: of_port.priority_tags,
            is_protected: of_port.is_protected,
            speaks_lacp: of_port.speaks_lacp,
            // A patch port and a tunnel have no device that could have an MTU.
            mtu: interface
                .mtu_request
                .filter(|_| kind != PATCH && TunnelKind::named(kind).is_none())
                .and_then(|mtu| u32::try_from(mtu).ok()),
            rxq_affinity: rxq_affinity(&interface.other_config),
            tx_steering: tx_steering(&interface.other_config),
            options: options(kind, &interface.options.0, context),
            ..port
        };
        if let Some(kind) = port.tunnel_kind()
            && !self.accept_tunnel(interface.uuid, &port, kind)
        {
            return None;
        }
        if let Some(error) = refusal(&port, context.has_dpdk) {
            self.warn(error.clone());
            self.refuse(interface.uuid, Some(error));
            return None;
        }
        let valid = |number: Option<i64>| number.filter(|n| (1..OfPort::MAX.0.into()).contains(n)).map(|n| n as u16);
        let (requested, last) = (valid(interface.ofport_request), valid(interface.ofport));
        let request = NumberRequest { name: name.clone(), requested, last };
        let mac = self.interface_mac(interface, is_local);
        Some(Candidate { uuid: interface.uuid, mac, lacking: interface.lacking.clone(), port, request })
    }
}

/// The rows and names of a bridge's bonds.
fn bonds(record: &BridgeRecord) -> Vec<(Uuid, String)> {
    let bonds = record.ports.iter().filter(|port| port.interfaces.len() > 1);
    bonds.map(|port| (port.uuid, port.name.clone())).collect()
}

/// The members of bonds but the first of each, which stands for the port.
fn unrepresentative(bundles: &[Bundle]) -> HashSet<String> {
    bundles.iter().flat_map(|bundle| bundle.members.iter().skip(1).cloned()).collect()
}

/// The addresses that ports are said to have, by their first interface.
fn port_macs(record: &BridgeRecord) -> BTreeMap<String, Mac> {
    let mac = |port: &PortRecord| Some((port.interfaces.first()?.name.clone(), port.mac.as_ref()?.parse().ok()?));
    record.ports.iter().filter_map(mac).collect()
}

/// The cores that queues are pinned to: `QUEUE:CORE`, separated by commas. What is no pair counts as absent.
fn rxq_affinity(config: &Smap) -> BTreeMap<usize, usize> {
    let pairs = config.text("pmd-rxq-affinity").unwrap_or_default().split(',');
    let pair = |pair: &str| {
        let (queue, core) = pair.split_once(':')?;
        Some((queue.trim().parse().ok()?, core.trim().parse().ok()?))
    };
    pairs.filter_map(pair).collect()
}

/// How packets are spread over transmit queues; what is not known counts as absent. Source: Open vSwitch
/// lib/dpif-netdev.c, `dpif_netdev_port_set_config`.
fn tx_steering(config: &Smap) -> TxSteering {
    if config.text("tx-steering") == Some("hash") { TxSteering::Hash } else { TxSteering::Thread }
}

/// The options of a port, with those that settings of the whole switch make of it.
fn options(kind: &str, given: &BTreeMap<String, String>, context: &PlanContext<'_>) -> BTreeMap<String, String> {
    let mut options = known_options(kind, given);
    if kind == VHOST_SERVER {
        options.insert(vhost_sock_dir::KEY.to_owned(), context.vhost_sock_dir.display().to_string());
    }
    options
}

/// The options that the port's type knows; Open vSwitch ignores others.
fn known_options(kind: &str, options: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let known = PORT_TYPES.iter().find(|known| known.name == kind).map_or(&[][..], |known| known.options);
    let has_own_check = kind == PATCH || TunnelKind::named(kind).is_some();
    let is_known = |key: &str| has_own_check || known.iter().any(|option| option.key == key);
    options.iter().filter(|(key, _)| is_known(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Why a port cannot be, in Open vSwitch's words, if so.
fn refusal(port: &Port, has_dpdk: bool) -> Option<String> {
    let name = &port.name;
    if port.kind == PATCH {
        // Source: lib/netdev-vport.c, `set_patch_config`.
        return match port.options.get("peer") {
            None => Some(format!("{name}: patch type requires valid 'peer' argument")),
            Some(_) if port.options.len() > 1 => Some(format!("{name}: patch type takes only a 'peer' argument")),
            Some(peer) if peer == name => Some(format!("{name}: patch peer must not be self")),
            Some(_) => unusable(port),
        };
    }
    let is_known = PORT_TYPES.iter().any(|known| known.name == port.kind) && (has_dpdk || port.kind != DPDK);
    if port.tunnel_kind().is_none() && !is_known {
        // Source: lib/netdev.c, `netdev_open`, with the text of EAFNOSUPPORT.
        return Some(format!("could not open network device {name} (Address family not supported by protocol)"));
    }
    if port.kind == DPDK && !port.options.contains_key("dpdk-devargs") {
        // Source: lib/netdev-dpdk.c, `netdev_dpdk_set_config`.
        return Some(format!(
            "'{name}' is missing 'options:dpdk-devargs'. The old 'dpdk<port_id>' names are not supported"
        ));
    }
    unusable(port)
}

/// Why the switch would not have a port, if so.
fn unusable(port: &Port) -> Option<String> {
    port.check().err().map(|invalid| format!("{}: could not set configuration ({invalid})", port.name))
}

/// Source: vswitchd/bridge.c, `bridge_configure_mac_table`, `bridge_configure_forward_bpdu`.
fn normal_settings(record: &BridgeRecord) -> NormalSettings {
    let (usual, config) = (NormalSettings::default(), &record.other_config);
    let number = |key| config.number::<i32>(key).filter(|number| *number != 0);
    let age_s = number("mac-aging-time").map(|s| s.clamp(MAC_AGE_S.0, MAC_AGE_S.1).unsigned_abs().into());
    let size = number("mac-table-size").map(|n| n.clamp(MAC_TABLE_SIZE.0, MAC_TABLE_SIZE.1).unsigned_abs() as usize);
    NormalSettings {
        mac_age_s: age_s.unwrap_or(usual.mac_age_s),
        mac_table_size: size.unwrap_or(usual.mac_table_size),
        forward_bpdu: config.flag("forward-bpdu", false),
        flood_vlans: record.flood_vlans.iter().filter_map(|vlan| u16::try_from(*vlan).ok()).collect(),
    }
}

/// Source: vswitchd/bridge.c, `bridge_configure_dp_desc`, `bridge_configure_serial_desc`.
fn description(config: &Smap) -> BridgeDescription {
    let text = |key| config.text(key).map(str::to_owned);
    BridgeDescription { datapath: text("dp-desc"), serial: text("dp-sn") }
}

/// Source: vswitchd/bridge.c, `bridge_configure_remotes`.
fn fail_mode(record: &BridgeRecord) -> FailMode {
    if record.fail_mode.as_deref() == Some("secure") { FailMode::Secure } else { FailMode::Standalone }
}

/// A datapath id: 16 hexadecimal digits, or up to that behind `0x`; not 0. Source: lib/ofp-util.c, `dpid_from_string`.
fn parse_datapath_id(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").filter(|digits| digits.len() <= 16);
    let digits = digits.or_else(|| (text.len() == 16).then_some(text))?;
    let is_hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|id| is_hex && *id != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_pinned_by_pairs_and_the_rest_is_left_out() {
        let config = |text: &str| Smap([("pmd-rxq-affinity".to_owned(), text.to_owned())].into());
        assert_eq!(rxq_affinity(&config("0:3, 1:7,x,2:,:4")), [(0, 3), (1, 7)].into());
        assert!(rxq_affinity(&Smap::default()).is_empty());
    }

    #[test]
    fn datapath_ids_have_16_digits_or_a_prefix() {
        assert_eq!(parse_datapath_id("fedcba9876543210"), Some(0xfedc_ba98_7654_3210));
        assert_eq!(parse_datapath_id("0x1f"), Some(0x1f));
        assert!(
            ["1f", "0000000000000000", "0x", "+123456789abcdef", ""].iter().all(|t| parse_datapath_id(t).is_none())
        );
    }
}
