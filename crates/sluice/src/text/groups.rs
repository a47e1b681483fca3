//! Groups, as `bridge/dump-groups` and `bridge/dump-group-stats` show them.

use sluice_flow::PortNames;
use sluice_ofproto::GroupEntry;
use std::fmt::Write as _;

/// As `ovs-ofctl dump-groups` prints it.
pub fn line(group: &GroupEntry, names: &PortNames) -> String {
    format!(" {}\n", group.config.display(group.id, names))
}

/// As `ovs-ofctl dump-group-stats` prints it.
pub fn stats_line(group: &GroupEntry, now_ms: u64) -> String {
    let duration_ms = now_ms.saturating_sub(group.created_ms);
    let mut line = format!(
        " group_id={},duration={}.{:03}s,ref_count={},packet_count={},byte_count={}",
        group.id,
        duration_ms / 1000,
        duration_ms % 1000,
        group.ref_count,
        group.counts.0,
        group.counts.1
    );
    for (i, (packets, bytes)) in group.buckets.iter().enumerate() {
        let _ = write!(line, ",bucket{i}:packet_count={packets},byte_count={bytes}");
    }
    line + "\n"
}
