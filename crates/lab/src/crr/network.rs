//! Namespaces and veth pairs: client, server, and a switch between them or none. They go when dropped.

use crate::peer::output;
use anyhow::{Context, Result};
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Where the server is.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// The switch's devices, in the order of its ports.
pub const PORTS: [&str; 2] = ["s1", "s2"];
/// The device of a host.
const DEVICE: &str = "e0";

/// Two hosts and what is between them.
pub struct Network {
    /// The client's namespace, the server's, and the switch's if there is one.
    namespaces: Vec<String>,
}

impl Network {
    /// Two hosts with a switch between them, or on one wire.
    ///
    /// # Errors
    /// If `ip` or `ethtool` fails.
    pub fn make(has_switch: bool) -> Result<Network> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = |host| format!("sluice-crr-{}-{}-{host}", std::process::id(), NEXT.load(Relaxed));
        let mut network = Network { namespaces: Vec::new() };
        let names: Vec<String> =
            ["client", "server", "switch"][..2 + usize::from(has_switch)].iter().map(name).collect();
        NEXT.fetch_add(1, Relaxed);
        for name in names {
            ip(&["netns", "add", &name])?;
            network.namespaces.push(name);
        }
        for at in 0..network.namespaces.len() {
            // The kernel's own solicitations are not part of what is measured; a client has a port for each connection.
            network.write(at, "net/ipv6/conf/all/disable_ipv6", "1")?;
            network.write(at, "net/ipv6/conf/default/disable_ipv6", "1")?;
            network.write(at, "net/ipv4/ip_local_port_range", "1024 65535")?;
        }
        network.connect()?;
        for (at, address) in [CLIENT, SERVER].into_iter().enumerate() {
            network.ip_in(at, &["address", "add", &format!("{address}/24"), "dev", DEVICE])?;
        }
        Ok(network)
    }

    fn connect(&self) -> Result<()> {
        let [client, server] = [&self.namespaces[0], &self.namespaces[1]];
        let veth = |here: &str, device: &str, there: &str, peer: &str| {
            ip(&["link", "add", device, "netns", here, "type", "veth", "peer", "name", peer, "netns", there])
        };
        match self.namespaces.get(2) {
            None => veth(client, DEVICE, server, DEVICE)?,
            Some(switch) => {
                veth(client, DEVICE, switch, PORTS[0])?;
                veth(server, DEVICE, switch, PORTS[1])?;
            }
        }
        let switchs = PORTS.iter().filter(|_| self.namespaces.len() > 2).map(|port| (2, *port));
        for (at, device) in [(0, DEVICE), (1, DEVICE)].into_iter().chain(switchs) {
            // A switch in userspace is given whole frames with their checksums: Open vSwitch's takes no others.
            output(self.command(at, "ethtool").args(["-K", device, "tx", "off", "rx", "off"]))?;
            self.ip_in(at, &["link", "set", device, "up"])?;
        }
        Ok(())
    }

    /// A program on the client's host.
    pub fn on_client(&self, program: &str) -> Command {
        self.command(0, program)
    }

    /// A program on the server's host.
    pub fn on_server(&self, program: &str) -> Command {
        self.command(1, program)
    }

    /// A program on the switch's host.
    pub fn on_switch(&self, program: &str) -> Command {
        self.command(2, program)
    }

    /// `ip netns exec` becomes the program: the process id is the program's.
    fn command(&self, at: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespaces[at], program]);
        command
    }

    fn ip_in(&self, at: usize, args: &[&str]) -> Result<()> {
        ip(&[&["-n", &self.namespaces[at]], args].concat())
    }

    fn write(&self, at: usize, key: &str, value: &str) -> Result<()> {
        let write = format!("echo {value} > /proc/sys/{key}");
        output(self.command(at, "sh").args(["-c", &write])).map(|_| ())
    }
}

fn ip(args: &[&str]) -> Result<()> {
    output(Command::new("ip").args(args)).map(|_| ()).with_context(|| format!("ip {}", args.join(" ")))
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.namespaces {
            let _ = ip(&["netns", "del", name]);
        }
    }
}
