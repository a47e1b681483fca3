//! DPDK's testpmd forwarding between the same ports: what the ports alone cost.

use super::{HugePages, MEMORY_MIB, PATIENCE, SETTLE, Workload, apart};
use crate::grid::Subject;
use crate::rig::{CYCLES, MPPS, Sample};
use crate::stat::Stat;
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// testpmd.
pub struct Testpmd(pub Workload);

impl Subject for Testpmd {
    fn measure(&mut self, span: Duration) -> Result<Sample> {
        let _pages = HugePages::reserve()?;
        let [input, output] = self.0.devices();
        let mut child = apart("dpdk-testpmd")
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
        let rates = rates(&mut child, SETTLE, span);
        // It may have ended by itself, which `rates` says.
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT);
        child.wait()?;
        let pps = Stat::of(rates?).context("dpdk-testpmd printed no rates")?.median;
        let figures = [(MPPS, pps / 1e6), (CYCLES, sluice_datapath::tsc_hz() as f64 / pps)];
        Ok(Sample(figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()))
    }
}

/// The rates that it prints, one a second, after it has forwarded for `settle`, over `span`. How long it takes to start
/// is its own.
fn rates(child: &mut Child, settle: Duration, span: Duration) -> Result<Vec<f64>> {
    let stdout = child.stdout.take().context("dpdk-testpmd has no output")?;
    let [unsettled, wanted] = [settle, span].map(|time| time.as_secs_f64().ceil() as usize);
    let until = Instant::now() + PATIENCE;
    let lines = BufReader::new(stdout).lines().map_while(Result::ok).take_while(|_| Instant::now() < until);
    Ok(lines.filter_map(|line| rate(&line)).skip(unsettled).take(wanted).collect())
}

/// Packets a second received, in a line of testpmd's that has any.
fn rate(line: &str) -> Option<f64> {
    let pps = line.split("Rx-pps:").nth(1)?.split_whitespace().next()?.parse::<f64>().ok()?;
    (pps > 0.0).then_some(pps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// What testpmd prints of two ports in a second, after one in which it has only started.
    const PRINTED: &str = "echo '  Rx-pps:            0          Rx-bps:            0'
        for pps in 7 8 30 40 50; do echo \"  Rx-pps:     $pps          Rx-bps:   1\"; echo '  Rx-pps:       0     Rx-bps:  0'; done";

    #[test]
    fn rates_are_those_of_a_settled_port() {
        let mut child = Command::new("sh").args(["-c", PRINTED]).stdout(Stdio::piped()).spawn().unwrap();
        let rates = rates(&mut child, Duration::from_secs(2), Duration::from_millis(1500)).unwrap();
        child.wait().unwrap();
        assert_eq!(rates, [30.0, 40.0]);
    }
}
