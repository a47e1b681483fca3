//! This switch, on the peer's ports.

use super::{Daemon, Directory, HugePages, MEMORY_MIB, SETTLE, Workload, apart, output, perf};
use crate::grid::Subject;
use crate::rig::Sample;
use anyhow::Result;
use std::process::Command;
use std::time::Duration;

/// This switch with its defaults.
pub struct Ours(pub Workload);

impl Ours {
    /// Why it cannot be measured; `None` if it can.
    pub fn obstacle() -> Option<String> {
        let has_dpdk = sluice_port::PORT_TYPES.iter().any(|kind| kind.name == "dpdk") && cfg!(feature = "dpdk");
        (!has_dpdk).then(|| "this build has no DPDK ports; build with --features dpdk".to_owned())
    }
}

impl Subject for Ours {
    fn measure(&mut self, span: Duration) -> Result<Sample> {
        let _pages = HugePages::reserve()?;
        let dir = Directory::make()?;
        let (log, ctl) = (dir.0.join("log"), dir.0.join("sluice.ctl"));
        let [input, output_device] = self.0.devices();
        let config = format!(
            "[switch]\nrundir = \"{}\"\npmd-cores = [1]\n[switch.dpdk]\nmbufs = 262144\n\
             eal-args = [\"--no-pci\", \"--iova-mode=va\", \"--in-memory\", \"--lcores\", \"0@0\", \"--socket-mem\", \"{MEMORY_MIB}\"]\n\
             [[bridge]]\nname = \"br0\"\nflows = \"{}\"\nfail-mode = \"secure\"\n\
             [[bridge.port]]\nname = \"p1\"\nofport = 1\ntype = \"dpdk\"\noptions = {{ devargs = \"{input}\" }}\n\
             [[bridge.port]]\nname = \"p2\"\nofport = 2\ntype = \"dpdk\"\noptions = {{ devargs = \"{output_device}\" }}\n",
            dir.0.display(),
            self.0.rules(),
        );
        let file = dir.0.join("switch.toml");
        std::fs::write(&file, config)?;
        let program = std::env::current_exe()?;
        let mut switch = Daemon::start(apart(&program.display().to_string()).arg("run").arg(&file), &log)?;
        switch.wait_for(&ctl, &log)?;
        std::thread::sleep(SETTLE);
        let appctl = |args: &[&str]| output(Command::new("ovs-appctl").arg("-t").arg(&ctl).args(args));
        appctl(&["dpif-netdev/pmd-stats-clear"])?;
        std::thread::sleep(span);
        let text = appctl(&["dpif-netdev/pmd-perf-show", "-nh"])?;
        drop(switch);
        perf::read(&text)
    }
}
