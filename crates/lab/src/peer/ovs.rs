//! Debian's Open vSwitch with DPDK, with a database and sockets of its own.

use super::{Daemon, Directory, HugePages, MEMORY_MIB, OvsConfig, PATIENCE, SETTLE, Workload, output, perf};
use crate::grid::Subject;
use crate::rig::Sample;
use anyhow::Result;
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

impl Subject for Ovs {
    fn measure(&mut self, span: Duration) -> Result<Sample> {
        let _pages = HugePages::reserve()?;
        let dir = Directory::make()?;
        let log = dir.0.join("log");
        let path = |name: &str| dir.0.join(name).display().to_string();
        let command = |program: &str| {
            let mut command = Command::new(program);
            ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"].iter().for_each(|key| {
                command.env(key, &dir.0);
            });
            command
        };
        output(command("ovsdb-tool").args(["create", &path("conf.db"), SCHEMA]))?;
        let remote = format!("--remote=punix:{}", path("db.sock"));
        let mut database = Daemon::start(command("ovsdb-server").args([&path("conf.db"), &remote]), &log)?;
        database.wait_for(&dir.0.join("db.sock"), &log)?;
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
            "other_config:dpdk-extra=\"--no-pci --iova-mode=va\"",
            &format!("other_config:emc-insert-inv-prob={}", self.config.emc_insert_inv_prob),
            &format!("other_config:smc-enable={}", self.config.smc),
        ])?;
        let unixctl = format!("--unixctl={}", path("ctl"));
        let mut switch = Daemon::start(command(VSWITCHD).args([&format!("unix:{}", path("db.sock")), &unixctl]), &log)?;
        switch.wait_for(&dir.0.join("ctl"), &log)?;
        vsctl(&["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "fail-mode=secure"])?;
        output(command("ovs-ofctl").args([
            "add-flows",
            &format!("unix:{}", path("br0.mgmt")),
            &self.workload.rules(),
        ]))?;
        // The receiving port last, so that no packet comes before there is a way out.
        for (number, device) in [(2, 1), (1, 0)] {
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
                &format!("options:dpdk-devargs={}", self.workload.devices()[device]),
                &format!("ofport_request={number}"),
            ])?;
        }
        std::thread::sleep(SETTLE);
        let appctl = |args: &[&str]| output(command("ovs-appctl").args(["-t", &path("ctl")]).args(args));
        appctl(&["dpif-netdev/pmd-stats-clear"])?;
        std::thread::sleep(span);
        let text = appctl(&["dpif-netdev/pmd-perf-show", "-nh"])?;
        vsctl(&["del-br", "br0"])?;
        drop(switch);
        drop(database);
        perf::read(&text)
    }
}
