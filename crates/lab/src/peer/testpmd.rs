//! DPDK's testpmd forwarding between the same ports: what the ports alone cost.

use super::{HugePages, MEMORY_MIB, SETTLE, Workload};
use crate::grid::Subject;
use crate::rig::{CYCLES, MPPS, Sample};
use crate::stat::Stat;
use anyhow::{Context, Result};
use std::process::{Command, Stdio};
use std::time::Duration;

/// testpmd.
pub struct Testpmd(pub Workload);

impl Subject for Testpmd {
    fn measure(&mut self, span: Duration) -> Result<Sample> {
        let _pages = HugePages::reserve()?;
        let [input, output] = self.0.devices();
        let child = Command::new("dpdk-testpmd")
            .args(["-l", "0,1", "--no-pci", "--iova-mode=va", "--in-memory", "--socket-mem", &MEMORY_MIB.to_string()])
            .args([
                "--vdev",
                &input.replace("eth_pcap1", "net_pcap0"),
                "--vdev",
                &output.replace("eth_null2", "net_null0"),
            ])
            .args([
                "--",
                "--forward-mode=io",
                "--nb-cores=1",
                "--total-num-mbufs=262144",
                "--stats-period",
                "1",
                "--auto-start",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("dpdk-testpmd: cannot be started")?;
        let pid = rustix::process::Pid::from_child(&child);
        std::thread::sleep(SETTLE + span);
        rustix::process::kill_process(pid, rustix::process::Signal::INT)?;
        let out = child.wait_with_output()?;
        let text = String::from_utf8_lossy(&out.stdout);
        let rate = |line: &str| line.split("Rx-pps:").nth(1)?.split_whitespace().next()?.parse::<f64>().ok();
        let rates: Vec<f64> = text.lines().filter_map(rate).filter(|pps| *pps > 0.0).collect();
        let pps = Stat::of(rates).context("dpdk-testpmd printed no rates")?.median;
        let figures = [(MPPS, pps / 1e6), (CYCLES, sluice_datapath::tsc_hz() as f64 / pps)];
        Ok(Sample(figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()))
    }
}
