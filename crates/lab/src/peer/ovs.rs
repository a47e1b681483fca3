//! Debian's Open vSwitch with DPDK, with a database and sockets of its own.

use super::{
    Daemon, Directory, HugePages, MEMORY_MIB, OVS_CONFIGS, OvsConfig, PATIENCE, SETTLE, Workload, apart, output, perf,
};
use crate::grid::Subject;
use crate::rig::Sample;
use anyhow::Result;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The peer in one configuration.
pub struct Ovs {
    /// What it is given.
    pub workload: Workload,
    /// How.
    pub config: OvsConfig,
}

const VSWITCHD: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
/// The same without DPDK.
pub const VSWITCHD_WITHOUT_DPDK: &str = "/usr/lib/openvswitch-switch/ovs-vswitchd";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Open vSwitch with its caches off but for the megaflows.
pub const MEGAFLOW: OvsConfig = OVS_CONFIGS[0];

/// What of it is missing; `None` if nothing is.
pub fn missing() -> Option<String> {
    let missing = [VSWITCHD, SCHEMA, "/usr/sbin/ovsdb-server"].into_iter().find(|file| !Path::new(file).exists())?;
    Some(format!("{missing} is missing (package openvswitch-switch-dpdk)"))
}

/// A switch that runs until it is dropped. Fields are dropped in this order.
pub struct Running {
    _bridges: Bridges,
    switch: Daemon,
    _database: Daemon,
    directory: Directory,
    _pages: HugePages,
}

/// Deletes its bridges when dropped, so that the switch closes its devices.
struct Bridges(String);

impl Drop for Bridges {
    fn drop(&mut self) {
        let vsctl = |args: &[&str]| output(Command::new("ovs-vsctl").args(["-t5", &self.0]).args(args));
        for bridge in vsctl(&["list-br"]).unwrap_or_default().lines() {
            let _ = vsctl(&["del-br", bridge]);
        }
    }
}

/// Has a program of Open vSwitch have its files in that directory.
pub fn in_directory<'a>(directory: &Directory, command: &'a mut Command) -> &'a mut Command {
    ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"].iter().for_each(|key| {
        command.env(key, &directory.0);
    });
    command
}

/// Starts an empty database in that directory, with the socket `db.sock`.
///
/// # Errors
/// If a program fails.
pub fn start_database(directory: &Directory) -> Result<Daemon> {
    let path = |name: &str| directory.0.join(name).display().to_string();
    output(in_directory(directory, &mut Command::new("ovsdb-tool")).args(["create", &path("conf.db"), SCHEMA]))?;
    let remote = format!("--remote=punix:{}", path("db.sock"));
    let (log, mut ovsdb) = (directory.0.join("log"), Command::new("ovsdb-server"));
    let mut database = Daemon::start(in_directory(directory, &mut ovsdb).args([&path("conf.db"), &remote]), &log)?;
    database.wait_for(&directory.0.join("db.sock"), &log)?;
    Ok(database)
}

/// Runs `ovs-vsctl` on the database in that directory.
///
/// # Errors
/// If it fails.
pub fn vsctl(directory: &Directory, args: &[&str]) -> Result<String> {
    let db = format!("--db=unix:{}", directory.0.join("db.sock").display());
    let mut command = Command::new("ovs-vsctl");
    output(in_directory(directory, &mut command).arg(format!("-t{}", PATIENCE.as_secs())).arg(&db).args(args))
}

impl Running {
    /// Starts it with the rules of a file and DPDK ports by number, opened in that order.
    ///
    /// # Errors
    /// If a program fails.
    pub fn start(rules: &str, ports: &[(u16, String)], config: &OvsConfig) -> Result<Running> {
        let running = Self::without_bridges(config)?;
        running.vsctl(&["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "fail-mode=secure"])?;
        running.add_flows("br0", rules)?;
        for (number, device) in ports {
            let name = format!("p{number}");
            running.vsctl(&[
                "add-port",
                "br0",
                &name,
                "--",
                "set",
                "Interface",
                &name,
                "type=dpdk",
                &format!("options:dpdk-devargs={device}"),
                &format!("ofport_request={number}"),
            ])?;
        }
        Ok(running)
    }

    /// Starts it without bridges.
    ///
    /// # Errors
    /// If a program fails.
    pub fn without_bridges(config: &OvsConfig) -> Result<Running> {
        let pages = HugePages::reserve()?;
        let directory = Directory::make()?;
        let log = directory.0.join("log");
        let path = |name: &str| directory.0.join(name).display().to_string();
        let database = start_database(&directory)?;
        let settings = [
            "other_config:dpdk-init=true".to_owned(),
            format!("other_config:dpdk-socket-mem={MEMORY_MIB}"),
            "other_config:dpdk-lcore-mask=0x1".to_owned(),
            "other_config:pmd-cpu-mask=0x2".to_owned(),
            // A name of its own for what DPDK keeps on disk: another process with DPDK may run.
            format!(
                "other_config:dpdk-extra=\"--no-pci --iova-mode=va --file-prefix=sluice-lab-{}\"",
                std::process::id()
            ),
            format!("other_config:emc-insert-inv-prob={}", config.emc_insert_inv_prob),
            format!("other_config:smc-enable={}", config.smc),
        ];
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        vsctl(&directory, &["--no-wait", "init"])?;
        vsctl(&directory, &[&["--no-wait", "set", "Open_vSwitch", "."], &settings[..]].concat())?;
        let unixctl = format!("--unixctl={}", path("ctl"));
        let mut vswitchd = apart(VSWITCHD);
        let vswitchd = in_directory(&directory, &mut vswitchd).args([&format!("unix:{}", path("db.sock")), &unixctl]);
        let mut switch = Daemon::start(vswitchd, &log)?;
        switch.wait_for(&directory.0.join("ctl"), &log)?;
        let bridges = Bridges(format!("--db=unix:{}", path("db.sock")));
        Ok(Running { _bridges: bridges, switch, _database: database, directory, _pages: pages })
    }

    /// Its process.
    pub fn daemon(&self) -> &Daemon {
        &self.switch
    }

    /// Runs `ovs-vsctl`.
    ///
    /// # Errors
    /// If it fails.
    pub fn vsctl(&self, args: &[&str]) -> Result<String> {
        vsctl(&self.directory, args)
    }

    /// Adds the rules of a file to a bridge.
    ///
    /// # Errors
    /// If there are wrong ones.
    pub fn add_flows(&self, bridge: &str, rules: &str) -> Result<()> {
        let socket = format!("unix:{}", self.directory.0.join(format!("{bridge}.mgmt")).display());
        output(Command::new("ovs-ofctl").args(["add-flows", &socket, rules])).map(|_| ())
    }

    /// What `ovs-appctl` prints.
    ///
    /// # Errors
    /// If it fails.
    pub fn appctl(&self, args: &[&str]) -> Result<String> {
        output(Command::new("ovs-appctl").arg("-t").arg(self.directory.0.join("ctl")).args(args))
    }
}

impl Subject for Ovs {
    fn measure(&mut self, span: Duration) -> Result<Sample> {
        let [input, sink] = self.workload.devices();
        // The receiving port last, so that no packet comes before there is a way out.
        let switch = Running::start(&self.workload.rules(), &[(2, sink), (1, input)], &self.config)?;
        std::thread::sleep(SETTLE);
        switch.appctl(&["dpif-netdev/pmd-stats-clear"])?;
        std::thread::sleep(span);
        perf::read(&switch.appctl(&["dpif-netdev/pmd-perf-show", "-nh"])?)
    }
}
