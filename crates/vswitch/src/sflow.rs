//! The sFlow agents of bridges, with the sockets of their collectors.

use crate::desired::SFlow;
use sluice_sflow::{Agent, AgentConfig, COLLECTOR_PORT};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::Duration;

/// The bridge's agent, and where its datagrams go.
pub(crate) struct BridgeAgent {
    pub sflow: SFlow,
    pub sub_id: u32,
    pub agent: Agent,
    collectors: Vec<Collector>,
    /// Targets that could not be opened are tried again at that time, if there are any.
    retry_s: Option<u64>,
}

struct Collector {
    target: String,
    socket: UdpSocket,
}

/// Seconds between attempts to open targets.
const RETRY_S: u64 = 10;

impl BridgeAgent {
    /// The agent that `sflow` asks for; `None` if it cannot be, which is logged.
    pub fn open(sflow: &SFlow, sub_id: u32, now_s: u64) -> Option<Self> {
        let collectors = open_all(&sflow.targets);
        if collectors.is_empty() {
            tracing::warn!(target: "sflow", "no collectors could be initialized, sFlow disabled");
            return None;
        }
        let Some(address) = agent_address(sflow, &collectors) else {
            tracing::error!(target: "sflow", "could not determine IP address for sFlow agent");
            return None;
        };
        tracing::info!(target: "sflow", "creating sFlow agent {sub_id}");
        let config = AgentConfig { address, sub_id, sampling: sflow.sampling, polling_s: sflow.polling_s };
        let retry_s = (collectors.len() < sflow.targets.len()).then_some(now_s + RETRY_S);
        Some(BridgeAgent { sflow: sflow.clone(), sub_id, agent: Agent::new(config, now_s), collectors, retry_s })
    }

    /// Opens targets that could not be opened before, if it is time.
    pub fn retry(&mut self, now_s: u64) {
        if self.retry_s.is_some_and(|at| now_s >= at) {
            let is_open = |target: &&String| self.collectors.iter().any(|collector| collector.target == **target);
            let missing: Vec<String> = self.sflow.targets.iter().filter(|target| !is_open(target)).cloned().collect();
            self.collectors.extend(open_all(&missing));
            self.retry_s = (self.collectors.len() < self.sflow.targets.len()).then_some(now_s + RETRY_S);
        }
    }

    /// Sends what is complete to all collectors.
    pub fn send(&mut self) {
        for datagram in self.agent.take_datagrams() {
            for collector in &self.collectors {
                if let Err(error) = collector.socket.send(&datagram) {
                    let target = &collector.target;
                    tracing::warn!(
                        target: "collectors", rate_limit = 12,
                        "{target}: sending to collector failed ({error})"
                    );
                }
            }
        }
    }
}

fn open_all(targets: &[String]) -> Vec<Collector> {
    let open = |target: &String| match connect(target) {
        Ok(socket) => Some(Collector { target: target.clone(), socket }),
        Err(error) => {
            tracing::warn!(
                target: "collectors", rate_limit = 12,
                "couldn't open connection to collector {target} ({error})"
            );
            None
        }
    };
    targets.iter().filter_map(open).collect()
}

fn connect(target: &str) -> io::Result<UdpSocket> {
    let address = resolve(target)?;
    let local: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((local, 0))?;
    socket.connect(address)?;
    socket.set_nonblocking(true)?;
    socket.set_write_timeout(Some(Duration::from_secs(1)))?;
    Ok(socket)
}

/// `HOST`, `HOST:PORT`, `[IPv6]`, `[IPv6]:PORT`, or an IPv6 address alone.
fn resolve(target: &str) -> io::Result<SocketAddr> {
    let bare = target.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(target);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, COLLECTOR_PORT));
    }
    let mut found = match target.contains(':') {
        true => target.to_socket_addrs()?,
        false => (target, COLLECTOR_PORT).to_socket_addrs()?,
    };
    found.next().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

/// The address by which collectors know the switch. Source: Open vSwitch ofproto/ofproto-dpif-sflow.c,
/// `sflow_choose_agent_address`.
fn agent_address(sflow: &SFlow, collectors: &[Collector]) -> Option<IpAddr> {
    let named = sflow.agent.as_deref().and_then(|agent| device_address(agent).or_else(|| agent.parse().ok()));
    let towards = || {
        let local = |collector: &Collector| collector.socket.local_addr().ok().map(|address| address.ip());
        collectors.iter().find_map(local)
    };
    named.or_else(towards).or(sflow.control_ip)
}

/// An address of a device of the kernel's, one of IPv4 before others.
fn device_address(name: &str) -> Option<IpAddr> {
    let all = sluice_port::device_addresses().ok()?;
    let addresses = all.get(name)?;
    let ipv4 = addresses.iter().find(|(address, _)| address.is_ipv4());
    ipv4.or_else(|| addresses.first()).map(|(address, _)| *address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_may_leave_their_port_out() {
        let resolved = |target| resolve(target).map(|address| address.to_string()).ok();
        assert_eq!(resolved("192.0.2.1").as_deref(), Some("192.0.2.1:6343"));
        assert_eq!(resolved("192.0.2.1:7").as_deref(), Some("192.0.2.1:7"));
        assert_eq!(resolved("[fe80::1]").as_deref(), Some("[fe80::1]:6343"));
        assert_eq!(resolved("[fe80::1]:7").as_deref(), Some("[fe80::1]:7"));
        assert_eq!(resolved("fe80::1").as_deref(), Some("[fe80::1]:6343"));
        assert_eq!(resolved("[fe80::1]:x"), None);
    }

    #[test]
    fn the_agent_has_the_address_that_is_named_or_leads_to_a_collector() {
        let mut sflow = SFlow::new(vec!["127.0.0.1:1".into()]);
        let collectors = open_all(&sflow.targets);
        let address = |sflow: &SFlow| agent_address(sflow, &collectors).map(|address| address.to_string());
        assert_eq!(address(&sflow).as_deref(), Some("127.0.0.1"));
        sflow.agent = Some("192.0.2.9".into());
        assert_eq!(address(&sflow).as_deref(), Some("192.0.2.9"));
        sflow.agent = Some("no-such-device".into());
        assert_eq!(address(&sflow).as_deref(), Some("127.0.0.1"));
        sflow.agent = Some("lo".into());
        assert_eq!(address(&sflow).as_deref(), Some("127.0.0.1"));
    }
}
