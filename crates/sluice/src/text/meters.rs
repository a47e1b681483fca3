//! Meters, as `bridge/dump-meters` and `bridge/meter-stats` show them.

use sluice_ofproto::MeterEntry;
use std::fmt::Write as _;

/// What a meter is.
pub fn line(meter: &MeterEntry) -> String {
    format!("meter={} {}\n", meter.id, meter.config)
}

/// As `ovs-ofctl meter-stats` prints it.
pub fn stats_text(meter: &MeterEntry, now_ms: u64) -> String {
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
