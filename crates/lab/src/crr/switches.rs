//! Transactions through a switch: each measurement has a network, a switch and a server of its own, so that no flow, no
//! connection and no port number of an earlier one is left.

use super::client::Took;
use super::network::{Network, PORTS, SERVER};
use crate::cores;
use crate::grid::Subject;
use crate::peer::{Daemon, Directory, PATIENCE, output, ovs};
use crate::rig::Sample;
use crate::setups::KTPS;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// What is between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Through {
    /// This switch with a governor of that mode, all else by default.
    Sluice(&'static str),
    /// Debian's Open vSwitch with its userspace datapath, all by default.
    Ovs,
    /// A pair of veth: what the stacks alone do.
    Wire,
}

/// What a connection carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Whether there is a request and a response.
    pub request: bool,
    /// Connections at the same time.
    pub at_once: usize,
    /// Connections before those that are measured, and measured.
    pub connections: [u64; 2],
}

/// Transactions to be made.
pub struct Transactions {
    /// Through what.
    pub through: Through,
    /// Which.
    pub exchange: Exchange,
}

/// Microseconds for each transaction: the time for all by their number.
pub const MICROS: &str = "us_a_transaction";
/// From the opening of a connection to its closing, the middle one, microseconds.
pub const P50: &str = "p50_us";
/// The one that 1 % exceed.
pub const P99: &str = "p99_us";

const PORT: u16 = 5001;
/// As in `setups.rs`: each connection is a megaflow each way, since what is read is matched.
const RULES: &str = "arp,in_port=1,actions=output:2\narp,in_port=2,actions=output:1\n\
    in_port=1,tcp,actions=move:NXM_OF_IP_SRC[]->NXM_NX_REG0[],move:NXM_OF_IP_DST[]->NXM_NX_REG1[],\
    move:NXM_OF_TCP_SRC[]->NXM_NX_REG2[0..15],move:NXM_OF_TCP_DST[]->NXM_NX_REG3[0..15],output:2\n\
    in_port=2,tcp,actions=move:NXM_OF_IP_SRC[]->NXM_NX_REG0[],move:NXM_OF_IP_DST[]->NXM_NX_REG1[],\
    move:NXM_OF_TCP_SRC[]->NXM_NX_REG2[0..15],move:NXM_OF_TCP_DST[]->NXM_NX_REG3[0..15],output:1\n";
/// Packets of a connection at least: two to open it, two to close it, and a request and a response.
const PACKETS_MIN: [u64; 2] = [4, 6];

/// The programs that all this needs.
const PROGRAMS: [&str; 4] = ["/usr/sbin/ip", "/usr/sbin/ethtool", "/usr/bin/ovs-ofctl", ovs::VSWITCHD_WITHOUT_DPDK];

/// Which of them is missing.
pub fn missing_program() -> Option<String> {
    let missing = PROGRAMS.into_iter().find(|program| !Path::new(program).exists())?;
    Some(format!("{missing} is missing (packages iproute2, ethtool and openvswitch-switch)"))
}

/// A switch that runs; the network is that of its ports.
struct Running {
    _daemons: Vec<Daemon>,
    directory: Directory,
}

impl Subject for Transactions {
    /// The number of connections is given, not the time.
    fn measure(&mut self, _: Duration) -> Result<Sample> {
        let network = Network::make(self.through != Through::Wire)?;
        let switch = match self.through {
            Through::Wire => None,
            Through::Ovs => Some(Running::ovs(&network)?),
            Through::Sluice(governor) => Some(Running::sluice(&network, governor)?),
        };
        let directory = Directory::make()?;
        let (program, server) = (this_program()?, format!("{SERVER}:{PORT}"));
        // Client and server share the cores that the PMD leaves.
        let mut serving = network.on_server("taskset");
        serving.args(["-c", &hosts_cores(), &program, "lab", "crr-serve", &server]);
        let _server = Daemon::start(&mut serving, &directory.path().join("server.log"))?;
        let connect = |connections: u64| -> Result<Took> {
            let Exchange { request, at_once, .. } = self.exchange;
            let mut client = network.on_client("taskset");
            client.args(["-c", &hosts_cores(), &program, "lab", "crr-connect", &server]);
            client.args(["--connections", &connections.to_string(), "--at-once", &at_once.to_string()]);
            client.args(request.then_some("--request"));
            Ok(serde_json::from_str(&output(&mut client)?)?)
        };
        let [before, measured] = self.exchange.connections;
        connect(before).context("the first transactions")?;
        let took = connect(measured)?;
        ensure!(took.connections == measured, "{} connections of {measured}", took.connections);
        if let Some(switch) = &switch {
            switch.check((before + measured) * PACKETS_MIN[usize::from(self.exchange.request)])?;
        }
        let figures = [
            (KTPS, took.connections as f64 / took.seconds / 1e3),
            (MICROS, took.seconds * 1e6 / took.connections as f64),
            (P50, took.p50_us),
            (P99, took.p99_us),
        ];
        Ok(Sample(figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()))
    }
}

fn this_program() -> Result<String> {
    Ok(std::env::current_exe()?.display().to_string())
}

/// The cores of client and server, as `taskset` takes them: all but the last, if there are others.
fn hosts_cores() -> String {
    let cores = cores::all();
    let first = if cores.len() > 1 { &cores[..cores.len() - 1] } else { cores };
    first.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

impl Running {
    /// This switch, its PMD on the last core.
    fn sluice(network: &Network, governor: &str) -> Result<Running> {
        let directory = Directory::make()?;
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("rules.txt"), RULES)?;
        let ports: String = (1..).zip(PORTS).map(|(number, device)| port(number, device)).collect();
        let config = format!(
            "[switch]\nrundir = \"{}\"\npmd-cores = [{}]\n[datapath]\ngovernor = \"{governor}\"\n\
             [[bridge]]\nname = \"br0\"\nflows = \"{}\"\nfail-mode = \"secure\"\n{ports}",
            directory.path().display(),
            cores::last(),
            path("rules.txt").display(),
        );
        std::fs::write(path("switch.toml"), config)?;
        let mut command = network.on_switch(&this_program()?);
        command.arg("run").arg(path("switch.toml"));
        let mut daemon = Daemon::start(&mut command, &path("log"))?;
        daemon.wait_for(&path("sluice.ctl"), &path("log"))?;
        Ok(Running { _daemons: vec![daemon], directory })
    }

    /// Open vSwitch, bound to no core: its threads take what client and server leave.
    fn ovs(network: &Network) -> Result<Running> {
        let directory = Directory::make()?;
        let database = ovs::start_database(&directory)?;
        let path = |name: &str| directory.path().join(name);
        ovs::vsctl(&directory, &["--no-wait", "init"])?;
        let mut command = network.on_switch(ovs::VSWITCHD_WITHOUT_DPDK);
        command.arg(format!("unix:{}", path("db.sock").display()));
        // No look at the kernel's datapath, which is not measured.
        command.args([&format!("--unixctl={}", path("ctl").display()), "--disable-system"]);
        let mut switch = Daemon::start(ovs::in_directory(&directory, &mut command), &path("log"))?;
        switch.wait_for(&path("ctl"), &path("log"))?;
        let running = Running { _daemons: vec![switch, database], directory };
        let directory = &running.directory;
        ovs::vsctl(
            directory,
            &["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "fail-mode=secure"],
        )?;
        for (number, port) in (1..).zip(PORTS) {
            let request = format!("ofport_request={number}");
            ovs::vsctl(directory, &["add-port", "br0", port, "--", "set", "Interface", port, &request])?;
        }
        let rules = directory.path().join("rules.txt");
        std::fs::write(&rules, RULES)?;
        output(Command::new("ovs-ofctl").arg("add-flows").arg(running.management()).arg(&rules))?;
        Ok(running)
    }

    /// Where its bridge speaks OpenFlow.
    fn management(&self) -> String {
        format!("unix:{}", self.directory.path().join("br0.mgmt").display())
    }

    /// Waits until the rules have counted that many packets, as every one went through the switch.
    fn check(&self, packets: u64) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let text = output(Command::new("ovs-ofctl").arg("dump-aggregate").arg(self.management()))?;
            let counted = packets_of(&text).with_context(|| format!("ovs-ofctl said: {text}"))?;
            if counted >= packets {
                return Ok(());
            }
            ensure!(Instant::now() < until, "the rules have counted {counted} packets instead of {packets} or more");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn port(number: u16, device: &str) -> String {
    format!(
        "[[bridge.port]]\nname = \"{device}\"\nofport = {number}\ntype = \"af_packet\"\noptions = {{ device = \"{device}\" }}\n"
    )
}

/// The packets that `dump-aggregate` says.
fn packets_of(text: &str) -> Option<u64> {
    let (_, after) = text.split_once("packet_count=")?;
    after.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_rules_counted_is_read() {
        let text = "NXST_AGGREGATE reply (xid=0x4): packet_count=1234 byte_count=5 flow_count=4\n";
        assert_eq!(packets_of(text), Some(1234));
        assert_eq!(packets_of("none"), None);
    }
}
