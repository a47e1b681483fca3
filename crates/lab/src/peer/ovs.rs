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
    _bridge: Bridge,
    _switch: Daemon,
    _database: Daemon,
    directory: Directory,
    _pages: HugePages,
}

/// Deletes its bridge when dropped, so that the switch closes its devices.
struct Bridge(String);

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = output(Command::new("ovs-vsctl").args(["-t5", &self.0, "del-br", "br0"]));
    }
}

impl Running {
    /// Starts it with the rules of a file and DPDK ports by number, opened in that order.
    ///
    /// # Errors
    /// If a program fails.
    pub fn start(rules: &str, ports: &[(u16, String)], config: &OvsConfig) -> Result<Running> {
        let pages = HugePages::reserve()?;
        let directory = Directory::make()?;
        let log = directory.0.join("log");
        let path = |name: &str| directory.0.join(name).display().to_string();
        let with_dirs = |mut command: Command| {
            ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"].iter().for_each(|key| {
                command.env(key, &directory.0);
            });
            command
        };
        let command = |program: &str| with_dirs(Command::new(program));
        output(command("ovsdb-tool").args(["create", &path("conf.db"), SCHEMA]))?;
        let remote = format!("--remote=punix:{}", path("db.sock"));
        let mut database = Daemon::start(command("ovsdb-server").args([&path("conf.db"), &remote]), &log)?;
        database.wait_for(&directory.0.join("db.sock"), &log)?;
        let db = format!("--db=unix:{}", path("db.sock"));
        let vsctl =
            |args: &[&str]| output(command("ovs-vsctl").arg(format!("-t{}", PATIENCE.as_secs())).arg(&db).args(args));
        vsctl(&["--no-wait", "init"])?;
        vsctl(&[
            "--no-wait",
            "set",
            "Open_vSwitch",
            ".",
            "other_config:dpdk-init=true",
            &format!("other_config:dpdk-socket-mem={MEMORY_MIB}"),
            "other_config:dpdk-lcore-mask=0x1",
            "other_config:pmd-cpu-mask=0x2",
            // A name of its own for what DPDK keeps on disk: another process with DPDK may run.
            &format!(
                "other_config:dpdk-extra=\"--no-pci --iova-mode=va --file-prefix=sluice-lab-{}\"",
                std::process::id()
            ),
            &format!("other_config:emc-insert-inv-prob={}", config.emc_insert_inv_prob),
            &format!("other_config:smc-enable={}", config.smc),
        ])?;
        let unixctl = format!("--unixctl={}", path("ctl"));
        let mut switch =
            Daemon::start(with_dirs(apart(VSWITCHD)).args([&format!("unix:{}", path("db.sock")), &unixctl]), &log)?;
        switch.wait_for(&directory.0.join("ctl"), &log)?;
        vsctl(&["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "fail-mode=secure"])?;
        output(command("ovs-ofctl").args(["add-flows", &format!("unix:{}", path("br0.mgmt")), rules]))?;
        for (number, device) in ports {
            let name = format!("p{number}");
            vsctl(&[
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
        Ok(Running { _bridge: Bridge(db), _switch: switch, _database: database, directory, _pages: pages })
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
