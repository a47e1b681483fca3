//! Meters, as commands and files change and show them.

use super::Switch;
use super::rules::read_flow_file;
use anyhow::{Result, anyhow};
use sluice_flow::{MeterCommand, MeterMod};
use sluice_ofproto::{MeterEntry, Ofproto};
use std::fmt::Write as _;
use std::path::Path;

/// Adds the meters of a file to a bridge, one a line.
///
/// # Errors
/// If the file cannot be read, a line is wrong, or a meter is refused: with the file and the line.
pub fn load(ofproto: &Ofproto, bridge: &str, file: &Path, now_ms: u64) -> Result<()> {
    let text = read_flow_file(file)?;
    for (i, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        let at = |error: &dyn std::fmt::Display| anyhow!("{}: line {}: {error}", file.display(), i + 1);
        let meter = MeterMod::parse(line, MeterCommand::Add)
            .map_err(|e| at(&format_args!("column {}: found {}, expected {}", e.column, e.found, e.expected)))?;
        ofproto.meter_mod(bridge, &meter, now_ms).map_err(|e| at(&e))?;
    }
    Ok(())
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
