//! Tunnels: what both switches are given, and how each is set up to encapsulate or decapsulate it.
//!
//! Two bridges: `int` has the rules and the tunnel, `ext` the device with the tunnel's address. Packets to encapsulate
//! come into `int` and leave by `ext`; packets to decapsulate go the other way. Each switch runs in a network namespace of
//! its own, so that the device and its address are on no network.

use super::{
    Daemon, Directory, HugePages, MEMORY_MIB, OvsConfig, PATIENCE, SETTLE, apart, output, ovs, perf, write_capture,
};
use crate::grid::Subject;
use crate::rig::Sample;
use anyhow::{Context, Result};
use sluice_flow::{TunnelKey, tunnel_flags};
use sluice_traffic::{Profile, SplitMix64};
use sluice_tunnel::header::{OuterLink, PerPacket, TunnelHeader};
use sluice_tunnel::{TunnelKind, parse};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The ends of the tunnel, and its key.
const OWN: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const REMOTE: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const OWN_MAC: [u8; 6] = [2, 0, 0, 0, 9, 1];
const REMOTE_MAC: [u8; 6] = [2, 0, 0, 0, 9, 2];
const KEY: u64 = 7;
/// The first UDP source port of what is decapsulated; each flow has one of its own among [`SOURCE_PORTS`].
const SOURCE_PORT_MIN: u16 = 32768;
const SOURCE_PORTS: u32 = 28_000;

/// The device with the tunnel's address.
const DEVICE: &str = "ext0";

/// Rules of `ext`: port 1 is the wire, port 10 the device.
const EXT_RULES: &str = "in_port=10,actions=output:1\nin_port=1,actions=output:10\n";

/// Rules of a firewall: all connections are let through and tracked.
const FIREWALL: &str = "ip,ct_state=-trk,actions=ct(table=1)\n\
                        table=1,ip,ct_state=+trk+new,actions=ct(commit),output:2\n\
                        table=1,ip,ct_state=+trk+est,actions=output:2\n";

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// The type of the tunnel.
    pub kind: TunnelKind,
    /// Whether packets are decapsulated; else encapsulated.
    pub decap: bool,
    /// Whether a firewall is behind it.
    pub firewall: bool,
    /// Inner flows.
    pub flows: u32,
    /// Masks of the rules without a firewall.
    pub subtables: u16,
}

impl Task {
    /// The OpenFlow port of the tunnel; the other of 2 and 3 is unused, or where packets leave.
    fn tunnel_port(self) -> u16 {
        if self.decap { 3 } else { 2 }
    }

    /// Writes capture and rules; the directory that has them.
    fn write(self) -> Result<Directory> {
        let directory = Directory::make()?;
        let mut profile = Profile::default();
        for (key, value) in [("flows", self.flows.to_string()), ("subtables", self.subtables.to_string())] {
            profile.set(key, &value).context("a key of a profile")??;
        }
        let stream = profile.streams(1)?.pop().context("a profile without a stream")?;
        let mut order: Vec<u32> = (0..self.flows).collect();
        let mut random = SplitMix64::new(1);
        (1..order.len()).rev().for_each(|i| order.swap(i, (random.next_u64() % (i as u64 + 1)) as usize));
        let header = self.header()?;
        let frames = order.into_iter().flat_map(|flow| {
            let mut frame = vec![0; stream.frame_size()];
            stream.writer().write(flow, &mut frame);
            // A connection is established once packets have gone both ways.
            let back = self.firewall.then(|| reversed(&frame));
            [Some(frame), back].into_iter().flatten().map(move |frame| (flow, frame))
        });
        let outer = frames.map(|(flow, frame)| match self.decap {
            true => encapsulated(&header, flow, &frame),
            false => Ok(frame),
        });
        write_capture(&directory.0.join("in.pcap"), outer.collect::<Result<Vec<_>>>()?.iter())?;
        let rules = if self.firewall { FIREWALL.to_owned() } else { crate::rules::subtables(self.subtables) };
        std::fs::write(directory.0.join("int.txt"), rules)?;
        std::fs::write(directory.0.join("ext.txt"), EXT_RULES)?;
        Ok(directory)
    }

    /// The header of what comes to this end.
    fn header(self) -> Result<TunnelHeader> {
        let options = [("remote_ip".to_owned(), OWN.to_string()), ("key".to_owned(), KEY.to_string())].into();
        let config = parse("t", self.kind, &options)?.config;
        let key = TunnelKey {
            id: KEY,
            src: REMOTE.to_ipv6_mapped().to_bits(),
            dst: OWN.to_ipv6_mapped().to_bits(),
            flags: tunnel_flags::KEY,
            ttl: 64,
            tp_dst: config.dst_port,
            ..TunnelKey::default()
        };
        let src: Ipv6Addr = REMOTE.to_ipv6_mapped();
        Ok(TunnelHeader::build(&config, &key, &[], &OuterLink { link_dst: OWN_MAC, link_src: REMOTE_MAC, src })?)
    }

    /// Arguments of the two DPDK devices: that with the packets, and the one that swallows them.
    fn devices(directory: &Directory) -> [String; 2] {
        let capture = directory.0.join("in.pcap").display().to_string();
        [format!("eth_pcap1,rx_pcap={capture},infinite_rx=1"), "eth_null2,size=64,copy=0,no-rx=1".to_owned()]
    }
}

/// A frame in a header of its flow.
fn encapsulated(header: &TunnelHeader, flow: u32, frame: &[u8]) -> Result<Vec<u8>> {
    let mut packet = [header.bytes(), frame].concat();
    let source_port = SOURCE_PORT_MIN + (flow % SOURCE_PORTS) as u16;
    let completed = header.complete(&mut packet, PerPacket { source_port, ..PerPacket::default() });
    completed.map_err(|_| anyhow::anyhow!("a frame is too long for a header"))?;
    Ok(packet)
}

/// A packet of UDP or TCP over IPv4 with its ends exchanged. The checksums stay right.
fn reversed(frame: &[u8]) -> Vec<u8> {
    let mut back = frame.to_vec();
    let exchange = |back: &mut Vec<u8>, at: usize, size: usize| {
        back[at..at + 2 * size].rotate_left(size);
    };
    exchange(&mut back, 0, 6);
    exchange(&mut back, 26, 4);
    exchange(&mut back, 34, 2);
    back
}

/// Runs a program in the network namespace of a process.
fn in_namespace_of(daemon: &Daemon, args: &[&str]) -> Result<()> {
    let pid = daemon.0.id().to_string();
    output(Command::new("nsenter").args(["-t", &pid, "-n", "--"]).args(args)).map(|_| ())
}

/// Gives the device its address, and tells the switch who is at the other end.
fn connect(daemon: &Daemon, appctl: &dyn Fn(&[&str]) -> Result<String>) -> Result<()> {
    in_namespace_of(daemon, &["ip", "addr", "add", &format!("{OWN}/24"), "dev", DEVICE])?;
    in_namespace_of(daemon, &["ip", "link", "set", DEVICE, "up"])?;
    let until = std::time::Instant::now() + PATIENCE;
    while !appctl(&["ovs/route/show"])?.contains(DEVICE) {
        anyhow::ensure!(std::time::Instant::now() < until, "no route by {DEVICE}");
        std::thread::sleep(Duration::from_millis(50));
    }
    appctl(&["tnl/arp/set", "ext", &REMOTE.to_string(), &text(REMOTE_MAC)])?;
    Ok(())
}

/// Settles, measures, reads.
fn measure(span: Duration, appctl: &dyn Fn(&[&str]) -> Result<String>) -> Result<Sample> {
    std::thread::sleep(SETTLE);
    appctl(&["dpif-netdev/pmd-stats-clear"])?;
    std::thread::sleep(span);
    perf::read(&appctl(&["dpif-netdev/pmd-perf-show", "-nh"])?)
}

fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// This switch with its defaults.
pub struct Ours(pub Task);

impl Subject for Ours {
    fn measure(&mut self, span: Duration) -> Result<Sample> {
        let task = self.0;
        let (_pages, dir) = (HugePages::reserve()?, task.write()?);
        let (log, ctl, file) = (dir.0.join("log"), dir.0.join("sluice.ctl"), dir.0.join("switch.toml"));
        std::fs::write(&file, config(task, &dir))?;
        let mut switch =
            Daemon::start(apart(&std::env::current_exe()?.display().to_string()).arg("run").arg(&file), &log)?;
        switch.wait_for(&ctl, &log)?;
        let appctl = |args: &[&str]| output(Command::new("ovs-appctl").arg("-t").arg(&ctl).args(args));
        connect(&switch, &appctl)?;
        measure(span, &appctl)
    }
}

/// The configuration of this switch.
fn config(task: Task, dir: &Directory) -> String {
    let port = |name: &str, number: u16, kind: &str, options: &str| {
        format!("[[bridge.port]]\nname = \"{name}\"\nofport = {number}\ntype = \"{kind}\"\noptions = {{ {options} }}\n")
    };
    let bridge = |name: &str| {
        let rules = dir.0.join(format!("{name}.txt"));
        format!("[[bridge]]\nname = \"{name}\"\nflows = \"{}\"\nfail-mode = \"secure\"\n", rules.display())
    };
    let [input, sink] = Task::devices(dir).map(|device| format!("devargs = \"{device}\""));
    let (inside, outside) = if task.decap { (sink, input) } else { (input, sink) };
    let tunnel = format!("remote_ip = \"{REMOTE}\", key = \"{KEY}\"");
    let device = format!("device = \"{DEVICE}\", mac = \"{}\"", text(OWN_MAC));
    [
        format!(
            "[switch]\nrundir = \"{}\"\npmd-cores = [1]\nmain-worker = true\n[switch.dpdk]\nmbufs = 262144\n\
             eal-args = [\"--no-pci\", \"--iova-mode=va\", \"--in-memory\", \"--lcores\", \"0@0\", \"--socket-mem\", \"{MEMORY_MIB}\"]\n",
            dir.0.display()
        ),
        bridge("int"),
        port("inside", if task.decap { 2 } else { 1 }, "dpdk", &inside),
        port("tunnel", task.tunnel_port(), task.kind.name(), &tunnel),
        bridge("ext"),
        port("outside", 1, "dpdk", &outside),
        port(DEVICE, 10, "tap", &device),
    ]
    .concat()
}

/// Open vSwitch in a configuration of its caches.
pub struct Theirs(pub Task, pub OvsConfig);

impl Subject for Theirs {
    fn measure(&mut self, span: Duration) -> Result<Sample> {
        let Theirs(task, config) = self;
        let dir = task.write()?;
        let [input, sink] = Task::devices(&dir);
        let (inside, outside) = if task.decap { (sink, input) } else { (input, sink) };
        let switch = ovs::Running::without_bridges(config)?;
        let mac = format!("mac=\"{}\"", text(OWN_MAC));
        let tunnel = [format!("options:remote_ip={REMOTE}"), format!("options:key={KEY}")];
        let port = |bridge: &str, name: &str, number: u16, settings: &[&str]| {
            let number = format!("ofport_request={number}");
            let head = ["add-port", bridge, name, "--", "set", "Interface", name, number.as_str()];
            switch.vsctl(&[&head[..], settings].concat())
        };
        for bridge in ["int", "ext"] {
            switch.vsctl(&[
                "add-br",
                bridge,
                "--",
                "set",
                "bridge",
                bridge,
                "datapath_type=netdev",
                "fail-mode=secure",
            ])?;
            switch.add_flows(bridge, &path(&dir.0, bridge))?;
        }
        port("ext", DEVICE, 10, &["type=internal", &mac])?;
        connect(switch.daemon(), &|args| switch.appctl(args))?;
        let kind = format!("type={}", task.kind.name());
        port("int", "tunnel", task.tunnel_port(), &[&kind, &tunnel[0], &tunnel[1]])?;
        // The receiving port last, so that no packet comes before there is a way out.
        let dpdk = |device: &str| format!("options:dpdk-devargs={device}");
        let mut ports = [("int", "inside", if task.decap { 2 } else { 1 }, inside), ("ext", "outside", 1, outside)];
        if !task.decap {
            ports.reverse();
        }
        for (bridge, name, number, device) in ports {
            port(bridge, name, number, &["type=dpdk", &dpdk(&device)])?;
        }
        measure(span, &|args| switch.appctl(args))
    }
}

fn path(directory: &Path, bridge: &str) -> String {
    directory.join(format!("{bridge}.txt")).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_tunnel::header::pop;

    fn task(decap: bool) -> Task {
        Task { kind: TunnelKind::Geneve, decap, firewall: true, flows: 5, subtables: 3 }
    }

    #[test]
    fn what_is_decapsulated_is_what_is_encapsulated() {
        let [plain, outer] = [false, true].map(|decap| {
            let directory = task(decap).write().unwrap();
            let mut reader = sluice_port::pcap::Reader::open(&directory.0.join("in.pcap")).unwrap();
            let (mut frames, mut frame) = (Vec::new(), Vec::new());
            while reader.next_packet(&mut frame).unwrap().is_some() {
                frames.push(frame.clone());
            }
            frames
        });
        assert_eq!((plain.len(), outer.len()), (10, 10));
        for (plain, outer) in plain.iter().zip(&outer) {
            let popped = pop(TunnelKind::Geneve, outer).unwrap();
            assert_eq!((&outer[popped.inner], popped.tunnel.id), (&plain[..], KEY));
        }
        assert_eq!(plain[1][26..30], plain[0][30..34], "the second goes back");
        assert_eq!(plain[1][36..38], plain[0][34..36]);
    }

    #[test]
    fn this_switch_takes_its_configuration() {
        for decap in [false, true] {
            let directory = task(decap).write().unwrap();
            let text = config(task(decap), &directory);
            assert!(text.contains("type = \"geneve\"") && text.contains("main-worker = true"), "{text}");
        }
    }
}
