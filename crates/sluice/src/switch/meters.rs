//! Meters, as commands and files change and show them.

use super::Switch;
use super::rules::read_file;
use anyhow::{Result, anyhow};
use sluice_ofp::{MeterCommand, MeterMod};
use sluice_ofproto::{MeterEntry, Ofproto};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// A file of meters, one a line.
#[derive(Debug)]
pub struct MeterFile {
    path: PathBuf,
    /// What it says.
    pub text: String,
    /// With the numbers of their lines, from 1.
    meters: Vec<(usize, MeterMod)>,
}

impl MeterFile {
    /// Reads a file of meters.
    ///
    /// # Errors
    /// If it cannot be read, or a line is wrong: with file, line and column.
    pub fn read(path: &Path) -> Result<Self> {
        let text = read_file(path)?;
        let mut meters = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            let line = line.split('#').next().unwrap_or("").trim();
            if line.is_empty() {
                continue;
            }
            let meter = MeterMod::parse(line, MeterCommand::Add).map_err(|e| {
                let (path, column) = (path.display(), e.column);
                anyhow!("{path}: line {number}: column {column}: found {}, expected {}", e.found, e.expected)
            })?;
            meters.push((number, meter));
        }
        Ok(MeterFile { path: path.into(), text, meters })
    }

    /// The numbers of its meters.
    pub fn ids(&self) -> BTreeSet<u32> {
        self.meters.iter().map(|(_, change)| change.meter).collect()
    }

    /// Adds its meters; one that is there already is changed.
    ///
    /// # Errors
    /// If one is refused: with the file and the line.
    pub fn apply(&self, ofproto: &Ofproto, bridge: &str, now_ms: u64) -> Result<()> {
        let there: BTreeSet<u32> = ofproto.meters(bridge)?.iter().map(|meter| meter.id).collect();
        for (line, change) in &self.meters {
            let command = if there.contains(&change.meter) { MeterCommand::Modify } else { MeterCommand::Add };
            let done = ofproto.meter_mod(bridge, &MeterMod { command, ..change.clone() }, now_ms);
            done.map_err(|e| anyhow!("{}: line {line}: {e}", self.path.display()))?;
        }
        Ok(())
    }
}

impl Switch {
    /// Makes one change of the meters.
    ///
    /// # Errors
    /// If the text is wrong or the change is refused.
    pub fn change_meter(&self, bridge: &str, command: MeterCommand, text: &str) -> Result<()> {
        self.ofproto.meter_mod(bridge, &MeterMod::parse(text, command)?, self.now_ms())?;
        self.revalidator.hurry();
        Ok(())
    }

    /// `bridge/dump-meters`: what each is.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn dump_meters(&self, bridge: &str) -> Result<String> {
        Ok(self.ofproto.meters(bridge)?.iter().map(|meter| format!("meter={} {}\n", meter.id, meter.config)).collect())
    }

    /// `bridge/meter-stats`: what each has counted.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn meter_stats(&self, bridge: &str) -> Result<String> {
        let now_ms = self.now_ms();
        Ok(self.ofproto.meters(bridge)?.iter().map(|meter| stats_text(meter, now_ms)).collect())
    }
}

/// As `ovs-ofctl meter-stats` prints it.
fn stats_text(meter: &MeterEntry, now_ms: u64) -> String {
    let age_ms = now_ms.saturating_sub(meter.created_ms);
    let mut text = format!(
        "meter:{} flow_count:{} packet_in_count:{} byte_in_count:{} duration:{}.{:03}s bands:\n",
        meter.id,
        meter.flow_count,
        meter.stats.packets,
        meter.stats.bytes,
        age_ms / 1000,
        age_ms % 1000
    );
    for (i, (packets, bytes)) in meter.stats.bands.iter().enumerate() {
        let _ = writeln!(text, "{i}: packet_count:{packets} byte_count:{bytes}");
    }
    text
}
