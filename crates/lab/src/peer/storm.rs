//! Debian's Open vSwitch with DPDK under attack: what is left of a victim's rate.

use super::{Directory, ovs, write_capture};
use crate::attack::Attack;
use crate::stat::Stat;
use anyhow::{Context, Result};
use sluice_traffic::{FRAME_SIZE_MIN, Profile};
use std::path::Path;
use std::time::Duration;

/// The peer under one attack.
pub struct OvsStorm {
    /// Which.
    pub attack: Attack,
}

/// Frames of a capture, each of which takes a packet buffer for as long as it is replayed.
const FRAMES_MAX: u32 = 50_000;

/// Why it cannot be measured here; `None` if it can.
pub fn obstacle() -> Option<String> {
    ovs::missing()
        .or_else(|| (!rustix::process::geteuid().is_root()).then(|| "it takes root, for huge pages".to_owned()))
}

impl OvsStorm {
    /// The victim's rate in Mpps, alone and attacked, in turns.
    ///
    /// # Errors
    /// If the peer cannot be started or read.
    pub fn measure(&self, rounds: usize, span: Duration) -> Result<[Stat; 2]> {
        let directory = Directory::make()?;
        let path = |name: &str| directory.0.join(name);
        write_capture(&path("victim.pcap"), flows(1000)?.iter().map(Vec::as_slice))?;
        let frames = match self.attack.frames()? {
            Some(mut frames) => {
                // Alternating stretches are as long as the buffers allow.
                let step = frames.len().div_ceil(FRAMES_MAX as usize);
                frames = frames.into_iter().step_by(step).collect();
                frames
            }
            None => flows(FRAMES_MAX)?,
        };
        write_capture(&path("attacker.pcap"), frames.iter().map(Vec::as_slice))?;
        std::fs::write(path("rules.txt"), self.attack.rules())?;
        let mut rates = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (rates, attacked) in rates.iter_mut().zip([false, true]) {
                rates.push(self.rate(&directory.0, attacked, span)?);
            }
        }
        let [alone, attacked] = rates.map(Stat::of);
        alone.zip(attacked).map(|(alone, attacked)| [alone, attacked]).context("no round was asked for")
    }

    fn rate(&self, directory: &Path, attacked: bool, span: Duration) -> Result<f64> {
        let replay = |n: usize, name: &str| {
            let capture = directory.join(name);
            format!("eth_pcap{n},rx_pcap={},infinite_rx=1", capture.display())
        };
        let swallow = |n: usize| format!("eth_null{n},size=64,copy=0,no-rx=1");
        let mut ports = vec![(2, swallow(2)), (1, replay(1, "victim.pcap"))];
        if attacked {
            ports.extend([(4, swallow(4)), (3, replay(3, "attacker.pcap"))]);
        }
        let switch = ovs::Running::start(&directory.join("rules.txt").display().to_string(), &ports, &ovs::MEGAFLOW)?;
        std::thread::sleep(super::SETTLE);
        let received = || packets_of(&switch.appctl(&["dpctl/show", "-s"])?, "p1");
        let before = received()?;
        std::thread::sleep(span);
        Ok((received()? - before) as f64 / span.as_secs_f64() / 1e6)
    }
}

/// The frames of `n` flows.
fn flows(n: u32) -> Result<Vec<Vec<u8>>> {
    let profile = Profile { flows: Some(n), ..Profile::default() };
    let stream = profile.streams(1)?.pop().context("a profile without a stream")?;
    let frame = |flow| {
        let mut frame = vec![0; FRAME_SIZE_MIN];
        stream.writer().write(flow, &mut frame);
        frame
    };
    Ok((0..n).map(frame).collect())
}

/// The packets that a port received, in what `dpctl/show -s` prints.
fn packets_of(text: &str, port: &str) -> Result<u64> {
    let lines = text.lines().skip_while(|line| !line.contains(&format!(": {port} ")));
    let line = lines.map(str::trim).find(|line| line.starts_with("RX packets:"));
    let number = line.and_then(|line| line.split([':', ' ']).find_map(|word| word.parse().ok()));
    number.with_context(|| format!("dpctl/show has no \"RX packets\" of {port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ports_packets_are_read() {
        let text = "netdev@ovs-netdev:\n  port 1: p2 (dpdk: x)\n    RX packets:7 errors:0\n  port 2: p1 (dpdk: y)\n    \
                    RX packets:123456 errors:0 dropped:3\n    TX packets:0\n";
        assert_eq!(packets_of(text, "p1").unwrap(), 123_456);
        assert!(packets_of(text, "p9").is_err());
    }
}
