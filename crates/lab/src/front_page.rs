//! The plot of the project's front page: what a packet costs here and with Open vSwitch, from a record of `peer`.

use crate::experiments::peer::{OURS, PORTS_ALONE};
use crate::files;
use crate::record::{Axis, Chart, Figure, Record, Series};
use crate::rig::CYCLES;
use crate::svg;
use anyhow::{Context, Result};
use std::path::Path;

/// The lines, by the names of the arms: what they are called on a page that explains nothing else.
const LINES: [(&str, &str); 5] = [
    (OURS, "Sluice"),
    ("ovs emc", "Open vSwitch, EMC"),
    ("ovs smc", "Open vSwitch, SMC"),
    ("ovs emc+smc", "Open vSwitch, EMC and SMC"),
    (PORTS_ALONE, "the ports alone (testpmd)"),
];

/// The plot from `peer.json` in `dir`.
///
/// # Errors
/// If the record is missing or is none.
pub fn plot(dir: &Path) -> Result<String> {
    let path = dir.join("peer.json");
    let record = files::read(&path)?.with_context(|| format!("{}: expected a record of peer", path.display()))?;
    Ok(svg::document(&figure(&record)))
}

fn figure(record: &Record) -> Figure {
    let points = &record.findings.points;
    let line = |&(arm, name): &(&str, &str)| Series {
        name: name.to_owned(),
        points: points
            .iter()
            .filter_map(|point| {
                let cycles = point.figure(arm, CYCLES)?;
                Some([point.at("flows"), cycles.median, cycles.min, cycles.max])
            })
            .collect(),
    };
    Figure {
        title: "Sluice beside Open vSwitch with DPDK, one core, 20 masks".to_owned(),
        caption: String::new(),
        chart: Chart::Lines {
            x: Axis::log("flows"),
            y: Axis::log("cycles a packet (lower is better)"),
            series: LINES.iter().map(line).collect(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plot_says_what_it_shows_and_has_every_line() {
        let dir = format!("{}/../../docs/results/2026-11-30-lab-peer", env!("CARGO_MANIFEST_DIR"));
        let svg = plot(Path::new(&dir)).unwrap();
        assert!(svg.contains(">Sluice beside Open vSwitch") && svg.contains("lower is better"), "{svg}");
        assert!(svg.contains("stroke:#0072b2;stroke:var(--c1)") && svg.contains("fill:#222;fill:var(--ink)"), "{svg}");
        for (_, name) in LINES {
            assert!(svg.contains(&format!(">{name}</text>")), "{name}");
        }
        assert_eq!(svg.matches("class='line k").count(), 2 * LINES.len(), "a line and its mark in the legend each");
    }
}
