//! `sluice replay` as the other side of the comparison.

use crate::capture::{self, Captured};
use crate::flows::{Counters, Megaflows, counters, megaflows};
use crate::table::{PortVlans, Tables};
use crate::values::{ALL_PORTS, port_text};
use crate::{Input, Outcome, Sent};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How often Open vSwitch 3.1 lets a packet recirculate. Source: MAX_RECIRC_DEPTH there.
const RECIRCULATIONS: &str = "6";

/// How Sluice is run.
pub struct Replay {
    pub binary: PathBuf,
    /// How many VLAN tags are read of a packet.
    pub vlan_limit: u32,
}

impl Replay {
    /// Runs one table and its packets.
    pub fn run(&self, folder: &Path, tables: &Tables, inputs: &[Input]) -> Result<Outcome> {
        let at = |name: &str| folder.join(name);
        std::fs::write(at("flows.txt"), tables.lines.join("\n") + "\n")?;
        let mut command = Command::new(&self.binary);
        command.args(["replay", "--recirculations", RECIRCULATIONS, "--json", "--flows"]).arg(at("flows.txt"));
        command.arg("--vlan-limit").arg(self.vlan_limit.to_string());
        for port in ALL_PORTS {
            let name = port_text(port);
            let path = at(&format!("in{name}.pcap"));
            std::fs::write(&path, capture::write(&received_on(port, inputs)))?;
            command.arg("--in").arg(format!("{name}={}", path.display()));
        }
        for (port, vlans) in (1..).zip(&tables.vlans) {
            match vlans {
                PortVlans::All => continue,
                PortVlans::Access(vlan) => command.arg("--access").arg(format!("{port}={vlan}")),
                PortVlans::Trunk(vlans) => command.arg("--trunks").arg(format!("{port}={}", comma_list(vlans))),
            };
        }
        command.arg("--out-dir").arg(at("out")).arg("--megaflows").arg(at("megaflows.txt"));
        if tables.theme.traces() {
            command.arg("--traces").arg(at("traces.txt"));
        }
        let out = command.output().with_context(|| format!("running {}", self.binary.display()))?;
        ensure!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
        let summary: Value = serde_json::from_slice(&out.stdout).context("the summary of `sluice replay --json`")?;
        Ok(Outcome {
            sent: sent(&at("out"))?,
            traces: if tables.theme.traces() { read_traces(&at("traces.txt"))? } else { Vec::new() },
            megaflows: read_megaflows(&at("megaflows.txt"))?,
            counters: read_counters(&summary)?,
            uncounted: Vec::new(),
        })
    }
}

fn received_on(port: u16, inputs: &[Input]) -> Vec<Captured> {
    let of_port = inputs.iter().filter(|i| i.port == port);
    of_port.map(|i| Captured { time_us: i.time_us, bytes: i.bytes.clone() }).collect()
}

fn sent(folder: &Path) -> Result<Vec<Sent>> {
    let mut sent = Vec::new();
    for port in ALL_PORTS {
        let path: PathBuf = folder.join(format!("{}.pcap", port_text(port)));
        let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let packets = capture::read(&bytes).with_context(|| format!("reading {}", path.display()))?;
        sent.extend(packets.into_iter().map(|p| Sent { port, time_us: p.time_us, bytes: p.bytes }));
    }
    Ok(sent)
}

pub fn comma_list(vlans: &[u16]) -> String {
    vlans.iter().map(u16::to_string).collect::<Vec<_>>().join(",")
}

/// What was said of each packet, in their order.
fn read_traces(path: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(path)?;
    let mut traces: Vec<String> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("== "), traces.last_mut()) {
            (Some(_), _) => traces.push(String::new()),
            (None, Some(trace)) => *trace += &format!("{line}\n"),
            (None, None) => bail!("{}: {line:?} stands before the first packet", path.display()),
        }
    }
    Ok(traces)
}

fn read_megaflows(path: &Path) -> Result<Megaflows> {
    Ok(megaflows(&std::fs::read_to_string(path)?))
}

fn read_counters(summary: &Value) -> Result<Counters> {
    let rules = summary["rules"].as_array().context("the summary has no list `rules`")?;
    let mut out = Counters::new();
    for rule in rules {
        out.extend(counters(rule["text"].as_str().unwrap_or_default()));
    }
    Ok(out)
}
