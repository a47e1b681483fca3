//! In-band control: controllers and managers that a bridge reaches through its own ports.
//!
//! Whatever the rules say, hidden flows forward as NORMAL what such a connection needs: DHCP of the LOCAL port, ARP
//! between it, the remotes and the next hops to them, and TCP to and from the remotes.
//! Source: Open vSwitch ofproto/in-band.c, whose header lists the flows by the letters used here.

use crate::settings::InBandSettings;
use crate::switch::Switch;
use sluice_clock::now_ms;
use sluice_flow::{FieldId, Mac, Match, OfPort};
use sluice_ofp::OfAction;
use sluice_ofproto::HiddenFlow;
use sluice_packet::headers::{ethertype, ip_proto};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Priorities of the flows. They have the same actions, so the order tells only the kinds apart.
/// Source: `IBR_FROM_LOCAL_DHCP` and so on.
const FROM_LOCAL_DHCP: u32 = 180_000;
const TO_LOCAL_ARP: u32 = 180_001;
const FROM_LOCAL_ARP: u32 = 180_002;
const TO_NEXT_HOP_ARP: u32 = 180_003;
const FROM_NEXT_HOP_ARP: u32 = 180_004;
const TO_REMOTE_ARP: u32 = 180_005;
const FROM_REMOTE_ARP: u32 = 180_006;
const TO_REMOTE_TCP: u32 = 180_007;
const FROM_REMOTE_TCP: u32 = 180_008;

/// Operations of ARP. Source: RFC 826.
const ARP_REQUEST: u128 = 1;
const ARP_REPLY: u128 = 2;

/// Ports of DHCP. Source: RFC 2131.
const DHCP_SERVER: u128 = 67;
const DHCP_CLIENT: u128 = 68;

/// When the way to a remote is looked at again, if it is known and if it is not. Source: `refresh_remote`.
const LOOK_AGAIN_MS: u64 = 10_000;
const LOOK_SOON_MS: u64 = 1000;

/// Warnings of one kind a minute.
const WARNINGS: u32 = 60;

/// The in-band control of a bridge.
#[derive(Debug, Default)]
pub struct InBand {
    settings: InBandSettings,
    /// The Ethernet address of the next hop to each remote, where known.
    next_hops: BTreeMap<Ipv4Addr, Mac>,
    next_look_ms: u64,
    /// The flows in the tables.
    flows: Vec<HiddenFlow>,
}

impl InBand {
    /// Changes where the remotes are.
    pub fn set(&mut self, settings: &InBandSettings) {
        if self.settings != *settings {
            self.settings = settings.clone();
            self.next_look_ms = 0;
        }
    }

    /// Makes the flows what the remotes, the LOCAL port and the next hops need now. Called once a second.
    pub fn run(&mut self, switch: &Switch, bridge: &str) {
        let has_remotes = !self.settings.remotes.is_empty();
        if !has_remotes && self.flows.is_empty() {
            return;
        }
        let local = local_port(switch, bridge);
        if has_remotes && now_ms() >= self.next_look_ms {
            self.find_next_hops(switch, bridge, local.map(|local| local.number));
        }
        let flows = flows(&self.settings, local.map(|local| local.mac), &self.next_hops);
        if flows == self.flows {
            return;
        }
        let lacks = |all: &[HiddenFlow], flow: &HiddenFlow| !all.contains(flow);
        let gone: Vec<_> = self.flows.iter().filter(|flow| lacks(&flows, flow)).cloned().collect();
        let new: Vec<_> = flows.iter().filter(|flow| lacks(&self.flows, flow)).cloned().collect();
        let ofproto = &switch.ofproto;
        let changed = ofproto.change_hidden_flows(bridge, &gone, &new, switch.now_ms());
        match changed.and_then(|()| ofproto.set_in_band(bridge, has_remotes)) {
            Ok(()) => self.flows = flows,
            Err(error) => tracing::warn!(target: "in_band", "{bridge}: {error}"),
        }
        switch.revalidate_soon();
    }

    /// Asks the system for the next hop to each remote.
    fn find_next_hops(&mut self, switch: &Switch, bridge: &str, local: Option<sluice_action::PortNo>) {
        self.next_hops.clear();
        let mut is_complete = true;
        for remote in self.settings.remotes.iter().map(|remote| *remote.ip()) {
            match switch.backend.next_hop_mac(local, remote) {
                Ok(Some(mac)) => {
                    self.next_hops.insert(remote, mac);
                }
                Ok(None) => is_complete = false,
                Err(error) => {
                    is_complete = false;
                    tracing::warn!(
                        target: "in_band",
                        rate_limit = WARNINGS,
                        "{bridge}: cannot find route for controller ({remote}): {}",
                        crate::controllers::system_text(&error)
                    );
                }
            }
        }
        self.next_look_ms = now_ms() + if is_complete { LOOK_AGAIN_MS } else { LOOK_SOON_MS };
    }
}

/// The LOCAL port of a bridge, if it has a device.
#[derive(Clone, Copy)]
struct LocalPort {
    number: sluice_action::PortNo,
    mac: Mac,
}

fn local_port(switch: &Switch, bridge: &str) -> Option<LocalPort> {
    let ports = switch.ofproto.ports(bridge).ok()?;
    let number = ports.iter().find(|port| port.number == OfPort::LOCAL)?.datapath()?;
    let mac = *switch.backend.port_macs().get(&number)?;
    Some(LocalPort { number, mac })
}

/// The flows that remotes need.
fn flows(settings: &InBandSettings, local: Option<Mac>, next_hops: &BTreeMap<Ipv4Addr, Mac>) -> Vec<HiddenFlow> {
    let mut flows = Vec::new();
    let mut actions: Vec<_> = settings.queue.map(OfAction::SetQueue).into_iter().collect();
    actions.push(OfAction::Output { port: OfPort::NORMAL, max_len: 0 });
    let mut add = |priority, matches: Match| {
        let flow = HiddenFlow { matches, priority, actions: actions.clone() };
        // Several remotes may have a next hop, or an address, in common.
        if !flows.contains(&flow) {
            flows.push(flow);
        }
    };
    let arp = |operation| Match::ANY.with(FieldId::EthType, ethertype::ARP.into()).with(FieldId::ArpOp, operation);
    let ip = |protocol: u8| {
        let any = Match::ANY.with(FieldId::EthType, ethertype::IPV4.into());
        any.with(FieldId::IpProto, protocol.into())
    };
    if let Some(mac) = local.filter(|mac| !settings.remotes.is_empty() && mac.number() != 0) {
        // (a), (b), (c)
        let from_local = ip(ip_proto::UDP).with(FieldId::InPort, OfPort::LOCAL.0.into());
        let dhcp = from_local.with(FieldId::UdpSrc, DHCP_CLIENT).with(FieldId::UdpDst, DHCP_SERVER);
        add(FROM_LOCAL_DHCP, dhcp.with(FieldId::EthSrc, mac.number()));
        add(TO_LOCAL_ARP, arp(ARP_REPLY).with(FieldId::EthDst, mac.number()));
        add(FROM_LOCAL_ARP, arp(ARP_REQUEST).with(FieldId::EthSrc, mac.number()));
    }
    for mac in settings.remotes.iter().filter_map(|remote| next_hops.get(remote.ip())) {
        // (d), (e)
        add(TO_NEXT_HOP_ARP, arp(ARP_REPLY).with(FieldId::EthDst, mac.number()));
        add(FROM_NEXT_HOP_ARP, arp(ARP_REQUEST).with(FieldId::EthSrc, mac.number()));
    }
    for remote in &settings.remotes {
        // (f), (g), (h), (i)
        let (address, port) = (u32::from(*remote.ip()).into(), remote.port().into());
        add(TO_REMOTE_ARP, arp(ARP_REPLY).with(FieldId::ArpTpa, address));
        add(FROM_REMOTE_ARP, arp(ARP_REQUEST).with(FieldId::ArpSpa, address));
        add(TO_REMOTE_TCP, ip(ip_proto::TCP).with(FieldId::Ipv4Dst, address).with(FieldId::TcpDst, port));
        add(FROM_REMOTE_TCP, ip(ip_proto::TCP).with(FieldId::Ipv4Src, address).with(FieldId::TcpSrc, port));
    }
    flows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(settings: &InBandSettings, local: Option<u128>, hops: &[(&str, u128)]) -> Vec<String> {
        let mac = |number: u128| -> Mac { Mac(number.to_be_bytes()[10..].try_into().unwrap()) };
        let hops = hops.iter().map(|(address, number)| (address.parse().unwrap(), mac(*number))).collect();
        let text = |flow: &HiddenFlow| format!("{} {}", flow.priority, flow.matches);
        flows(settings, local.map(mac), &hops).iter().map(text).collect()
    }

    #[test]
    fn the_flows_are_those_of_open_vswitch() {
        let mut settings = InBandSettings::default();
        assert!(texts(&settings, Some(1), &[]).is_empty());
        settings.remotes = vec!["10.0.0.9:6653".parse().unwrap()];
        let remote = [
            "180005 arp,arp_tpa=10.0.0.9,arp_op=2",
            "180006 arp,arp_spa=10.0.0.9,arp_op=1",
            "180007 tcp,nw_dst=10.0.0.9,tp_dst=6653",
            "180008 tcp,nw_src=10.0.0.9,tp_src=6653",
        ];
        assert_eq!(texts(&settings, None, &[]), remote);
        let local = [
            "180000 udp,in_port=LOCAL,dl_src=00:00:00:00:00:01,tp_src=68,tp_dst=67",
            "180001 arp,dl_dst=00:00:00:00:00:01,arp_op=2",
            "180002 arp,dl_src=00:00:00:00:00:01,arp_op=1",
        ];
        let hop = ["180003 arp,dl_dst=00:00:00:00:00:07,arp_op=2", "180004 arp,dl_src=00:00:00:00:00:07,arp_op=1"];
        let all = [&local[..], &hop, &remote].concat();
        assert_eq!(texts(&settings, Some(1), &[("10.0.0.9", 7), ("10.0.0.8", 8)]), all);
    }

    #[test]
    fn a_queue_is_set_before_the_packets_are_forwarded() {
        let settings = InBandSettings { remotes: vec!["10.0.0.9:1".parse().unwrap()], queue: Some(5) };
        let flows = flows(&settings, None, &BTreeMap::new());
        let normal = OfAction::Output { port: OfPort::NORMAL, max_len: 0 };
        assert!(flows.iter().all(|flow| flow.actions == [OfAction::SetQueue(5), normal.clone()]));
    }
}
