//! A private Open vSwitch with its dummy datapath: own database, sockets and folder, nothing of the machine's.

use crate::actions::Version;
use crate::capture::{Captured, HEADER_SIZE, records};
use crate::flows::{Counters, counters};
use crate::sluice::comma_list;
use crate::table::{PortVlans, Tables};
use crate::unixctl::Unixctl;
use crate::values::{ALL_PORTS, LOCAL, PORTS, device, hex, port_text};
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Two daemons that end when this is dropped.
pub struct Ovs {
    folder: tempfile::TempDir,
    daemons: Vec<Child>,
    ctl: Unixctl,
    /// What each port has sent, and how much of it was read.
    sent: Vec<(File, u64)>,
    /// Rules that Open vSwitch adds by itself.
    hidden_rules: u64,
    /// Packets received since the start.
    packets: u64,
    /// How the ports treat VLANs now.
    vlans: Vec<PortVlans>,
}

impl Ovs {
    /// Starts database and switch, which reads `vlan_limit` tags of packets, and adds bridge `br0` with ports `p1` and so on.
    pub fn start(vlan_limit: u32) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("sluice-ovs-").tempdir()?;
        let at = |name: &str| folder.path().join(name);
        let database = format!("unix:{}", at("db.sock").display());
        run(Command::new("ovsdb-tool").arg("create").arg(at("conf.db")).arg(SCHEMA))?;
        let mut server = Command::new("ovsdb-server");
        server.arg(format!("--remote=p{database}")).arg(at("conf.db"));
        let mut daemons = vec![spawn(&mut server, folder.path(), "ovsdb-server")?];
        await_path(&at("db.sock"))?;
        run(Command::new("ovs-vsctl").arg("--no-wait").arg(format!("--db={database}")).arg("init"))?;
        let mut switch = Command::new("ovs-vswitchd");
        switch.arg(&database).args(["--enable-dummy=override", "--disable-system"]);
        daemons.push(spawn(&mut switch, folder.path(), "ovs-vswitchd")?);
        await_path(&at("ovs-vswitchd.ctl"))?;
        run(Command::new("ovs-vsctl").arg(format!("--db={database}")).args(configuration(folder.path(), vlan_limit)))?;
        let ctl = Unixctl::connect(&at("ovs-vswitchd.ctl"))?;
        let sent = ALL_PORTS
            .into_iter()
            .map(|port| {
                let path = at(&format!("{}.pcap", device(port)));
                await_path(&path)?;
                Ok((File::open(&path)?, HEADER_SIZE as u64))
            })
            .collect::<Result<_>>()?;
        let mut ovs =
            Ovs { folder, daemons, ctl, sent, hidden_rules: 0, packets: 0, vlans: vec![PortVlans::All; PORTS.into()] };
        ovs.hidden_rules = ovs.rules()?;
        Ok(ovs)
    }

    /// Whether both daemons still run.
    pub fn is_alive(&mut self) -> bool {
        self.daemons.iter_mut().all(|daemon| matches!(daemon.try_wait(), Ok(None)))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn ofctl(&self, command: &str, version: Version, file: Option<&Path>) -> Result<String> {
        // The old match of OpenFlow 1.0 cannot say "no tag at all", so Nicira's extended one is asked for.
        let format = match version {
            Version::Of10 => ["-O", "OpenFlow10", "-F", "NXM"],
            Version::Of13 => ["-O", "OpenFlow13", "-F", "OXM"],
            Version::Of15 => ["-O", "OpenFlow15", "-F", "OXM"],
        };
        run(Command::new("ovs-ofctl").args(format).arg(command).arg(self.path("br0.mgmt")).args(file))
    }

    /// Replaces all rules.
    pub fn load(&mut self, tables: &Tables) -> Result<()> {
        self.ofctl("del-flows", Version::Of10, None)?;
        self.forget_megaflows()?;
        self.ctl.command("dpctl/flush-conntrack", &[])?;
        self.ctl.command("fdb/flush", &["br0"])?;
        self.set_vlans(&tables.vlans)?;
        // Deleted rules leave the classifier only when all threads have passed; until then their masks count.
        while self.rules()? > self.hidden_rules {
            std::thread::sleep(Duration::from_millis(1));
        }
        // Not counted any more is not quite gone: the masks follow a moment later.
        std::thread::sleep(Duration::from_millis(5));
        let file = self.path("flows.txt");
        std::fs::write(&file, tables.lines.join("\n") + "\n")?;

        self.ofctl("add-flows", tables.version, Some(&file))?;
        Ok(())
    }

    fn set_vlans(&mut self, vlans: &[PortVlans]) -> Result<()> {
        if self.vlans == vlans {
            return Ok(());
        }
        let mut words = Vec::new();
        for (port, vlans) in (1..).zip(vlans) {
            let device = device(port);
            words.extend(
                ["--", "clear", "Port", &device, "tag", "--", "clear", "Port", &device, "trunks"].map(str::to_owned),
            );
            let column = match vlans {
                PortVlans::All => continue,
                PortVlans::Access(vlan) => format!("tag={vlan}"),
                PortVlans::Trunk(vlans) => format!("trunks={}", comma_list(vlans)),
            };
            words.extend(["--", "set", "Port", &device, &column].map(str::to_owned));
        }
        let database = format!("--db=unix:{}", self.path("db.sock").display());
        run(Command::new("ovs-vsctl").arg(database).args(words))?;
        self.vlans = vlans.to_vec();
        Ok(())
    }

    /// Removes the megaflows, whose counters then are their rules'.
    pub fn forget_megaflows(&mut self) -> Result<()> {
        self.ctl.command("revalidator/purge", &[]).map(|_| ())
    }

    /// What `ofproto/trace` says of a packet.
    pub fn trace(&mut self, port: u16, packet: &[u8]) -> Result<String> {
        let flow = format!("in_port={}", port_text(port));
        let text = self.ctl.command("ofproto/trace", &["br0", &flow, &hex(packet)])?;
        // A trace does what the actions say but for sending, and forgets that some actions hold others.
        self.sent()?;
        Ok(text)
    }

    fn rules(&mut self) -> Result<u64> {
        let text = self.ctl.command("memory/show", &[])?;
        Ok(text.split_whitespace().find_map(|w| w.strip_prefix("rules:")).map_or(0, |n| n.parse().unwrap_or(0)))
    }

    /// Lets `port` receive a packet, and returns what was sent because of it: port and bytes.
    pub fn receive(&mut self, port: u16, packet: &[u8]) -> Result<Vec<(u16, Vec<u8>)>> {
        self.ctl.command("netdev-dummy/receive", &[&device(port), &hex(packet)])?;
        // The main thread both polls the ports and answers, so once it has counted the packet it is done with it.
        self.packets += 1;
        while self.received()? < self.packets {}
        self.sent()
    }

    /// What was sent since this was last asked.
    fn sent(&mut self) -> Result<Vec<(u16, Vec<u8>)>> {
        let mut out = Vec::new();
        for (port, (file, read)) in ALL_PORTS.into_iter().zip(&mut self.sent) {
            let size = file.metadata()?.len();
            let mut fresh = vec![0; (size - *read) as usize];
            file.read_exact_at(&mut fresh, *read)?;
            *read = size;
            let packets: Vec<Captured> = records(&fresh)?;
            out.extend(packets.into_iter().map(|p| (port, p.bytes)));
        }
        Ok(out)
    }

    /// How many packets the datapath has received.
    fn received(&mut self) -> Result<u64> {
        let text = self.ctl.command("dpif-netdev/pmd-stats-show", &[])?;
        let counts = text.lines().filter_map(|line| line.trim().strip_prefix("packets received: "));
        counts.map(|n| n.parse::<u64>().with_context(|| format!("packets received: {n}"))).sum()
    }

    /// The megaflows as text.
    pub fn megaflows(&mut self) -> Result<String> {
        self.ctl.command("dpctl/dump-flows", &["-m"])
    }

    pub fn counters(&mut self, version: Version) -> Result<Counters> {
        self.forget_megaflows()?;
        Ok(counters(&self.ofctl("dump-flows", version, None)?))
    }
}

impl Drop for Ovs {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            // It may have ended already; nothing can be done about other errors.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

fn configuration(folder: &Path, vlan_limit: u32) -> Vec<String> {
    let mut words = format!(
        "set Open_vSwitch . other_config:max-idle=100000000 other_config:vlan-limit={vlan_limit} \
                     -- add-br br0 -- set bridge br0 datapath-type=dummy fail-mode=secure protocols=OpenFlow10,OpenFlow13,OpenFlow15"
    );
    words += &format!(" -- set Interface br0 options:tx_pcap={}", folder.join(device(LOCAL) + ".pcap").display());
    for port in 1..=PORTS {
        let capture = folder.join(device(port) + ".pcap");
        words += &format!(
            " -- add-port br0 p{port} -- set Interface p{port} type=dummy ofport_request={port} options:tx_pcap={}",
            capture.display()
        );
    }
    words.split_whitespace().map(str::to_owned).collect()
}

fn spawn(command: &mut Command, folder: &Path, name: &str) -> Result<Child> {
    let log = File::create(folder.join(format!("{name}.out")))?;
    command
        .arg("--no-chdir")
        .arg(format!("--unixctl={}", folder.join(format!("{name}.ctl")).display()))
        .arg(format!("--pidfile={}", folder.join(format!("{name}.pid")).display()))
        .args(["-vconsole:off", "-vsyslog:off"])
        .envs([("OVS_RUNDIR", folder), ("OVS_LOGDIR", folder), ("OVS_DBDIR", folder)])
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("starting {name} (Debian package openvswitch-switch)"))
}

fn run(command: &mut Command) -> Result<String> {
    let out = command.output().with_context(|| format!("running {command:?}"))?;
    ensure!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

fn await_path(path: &Path) -> Result<()> {
    for _ in 0..2000 {
        if path.exists() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    anyhow::bail!("{} did not appear within 10 s", path.display())
}
