//! `sluice replay` as the other side of the comparison.

use crate::capture::{self, Captured};
use crate::flows::{Counters, Megaflows, counters, megaflows};
use crate::values::PORTS;
use crate::{Input, Outcome, Sent};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs one table and its packets.
pub fn replay(binary: &Path, folder: &Path, lines: &[String], inputs: &[Input]) -> Result<Outcome> {
    let at = |name: &str| folder.join(name);
    std::fs::write(at("flows.txt"), lines.join("\n") + "\n")?;
    let mut command = Command::new(binary);
    command.args(["replay", "--json", "--flows"]).arg(at("flows.txt"));
    for port in 1..=PORTS {
        let path = at(&format!("in{port}.pcap"));
        std::fs::write(&path, capture::write(&received_on(port, inputs)))?;
        command.arg("--in").arg(format!("{port}={}", path.display()));
    }
    command.arg("--out-dir").arg(at("out")).arg("--megaflows").arg(at("megaflows.txt"));
    let out = command.output().with_context(|| format!("running {}", binary.display()))?;
    ensure!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    let summary: Value = serde_json::from_slice(&out.stdout).context("the summary of `sluice replay --json`")?;
    Ok(Outcome {
        sent: sent(&at("out"))?,
        megaflows: read_megaflows(&at("megaflows.txt"))?,
        counters: read_counters(&summary)?,
    })
}

fn received_on(port: u16, inputs: &[Input]) -> Vec<Captured> {
    let of_port = inputs.iter().filter(|i| i.port == port);
    of_port.map(|i| Captured { time_us: i.time_us, bytes: i.bytes.clone() }).collect()
}

fn sent(folder: &Path) -> Result<Vec<Sent>> {
    let mut sent = Vec::new();
    for port in 1..=PORTS {
        let path: PathBuf = folder.join(format!("{port}.pcap"));
        let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let packets = capture::read(&bytes).with_context(|| format!("reading {}", path.display()))?;
        sent.extend(packets.into_iter().map(|p| Sent { port, time_us: p.time_us, bytes: p.bytes }));
    }
    Ok(sent)
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
