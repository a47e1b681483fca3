//! Metrics as Open vSwitch's `pmd-perf-show` prints them. Source: lib/dpif-netdev-perf.c, `pmd_perf_format_histograms`,
//! `pmd_perf_format_iteration_history`, `pmd_perf_format_ms_history`.

use super::{Histogram, PerfMetrics, PerfSample};
use std::fmt::Write as _;

/// The histograms and the averages below them.
pub fn histograms(metrics: &PerfMetrics) -> String {
    let titles =
        ["cycles/it", "packets/it", "cycles/pkt", "pkts/batch", "max vhost qlen", "upcalls/it", "cycles/upcall"];
    let mut out = format!("Histograms\n{}", row(titles.iter().map(|title| format!("{title:<21}"))));
    let all = [
        &metrics.cycles,
        &metrics.packets,
        &metrics.cycles_per_packet,
        &metrics.packets_per_batch,
        &metrics.vhost_qfill,
        &metrics.upcalls,
        &metrics.cycles_per_upcall,
    ];
    let mut columns: Vec<_> = all.into_iter().map(Histogram::bins).collect();
    loop {
        let bins: Vec<_> = columns.iter_mut().filter_map(Iterator::next).collect();
        if bins.is_empty() {
            break;
        }
        out += &row(bins.into_iter().map(|(wall, count)| {
            let wall = wall.map_or_else(|| ">".to_owned(), |wall| wall.to_string());
            format!("{wall:<9} {count:<11}")
        }));
    }
    let totals = &metrics.totals;
    if let Some(cycles) = totals.cycles.checked_div(totals.iterations) {
        let _ = writeln!(out, "{}", "-".repeat(154));
        out += &row(titles.iter().map(|title| format!("{:<21}", title.trim_start_matches("max "))));
        out += &row([
            format!("{cycles:<21}"),
            format!("{:<21.5}", ratio(totals.packets, totals.iterations)),
            format!("{:<21}", totals.busy_cycles.checked_div(totals.packets).unwrap_or(0)),
            format!("{:<21.5}", ratio(totals.packets, totals.batches)),
            format!("{:<21.5}", ratio(totals.vhost_qfill, totals.iterations)),
            format!("{:<21.5}", ratio(totals.upcalls, totals.iterations)),
            format!("{:<21}", totals.upcall_cycles.checked_div(totals.upcalls).unwrap_or(0)),
        ]);
    }
    out
}

fn row(cells: impl IntoIterator<Item = String>) -> String {
    format!("   {}\n", cells.into_iter().collect::<Vec<_>>().join("  "))
}

fn ratio(n: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { n as f64 / of as f64 }
}

/// Iterations, one a line.
pub fn iterations<'a>(samples: impl Iterator<Item = &'a PerfSample>) -> String {
    let mut out = format!(
        "   {:<17}   {:<10}   {:<10}   {:<10}   {:<10}   {:<10}   {:<10}   {:<10}\n",
        "iter", "cycles", "packets", "cycles/pkt", "pkts/batch", "vhost qlen", "upcalls", "cycles/upcall"
    );
    for sample in samples {
        let PerfSample { timestamp, cycles, packets, batches, vhost_qfill, upcalls, upcall_cycles, .. } = *sample;
        let _ = writeln!(
            out,
            "   {timestamp:<17}   {cycles:<11}  {packets:<11}  {:<11}  {:<11}  {vhost_qfill:<11}  {upcalls:<11}  {:<11}",
            cycles.checked_div(packets).unwrap_or(0),
            packets.checked_div(batches).unwrap_or(0),
            upcall_cycles.checked_div(upcalls).unwrap_or(0),
        );
    }
    out
}

/// Milliseconds, one a line.
pub fn milliseconds<'a>(samples: impl Iterator<Item = &'a PerfSample>) -> String {
    let mut out = format!(
        "   {:<12}   {:<10}   {:<10}   {:<10}   {:<10}   {:<10}   {:<10}   {:<10}   {:<10}\n",
        "ms", "iterations", "cycles/it", "Kpps", "cycles/pkt", "pkts/batch", "vhost qlen", "upcalls", "cycles/upcall"
    );
    for sample in samples {
        let PerfSample { timestamp, iterations, packets, upcalls, .. } = *sample;
        let _ = writeln!(
            out,
            "   {timestamp:<12}   {iterations:<11}  {:<11}  {packets:<11}  {:<11}  {:<11}  {:<11}  {upcalls:<11}  {:<11}",
            sample.cycles.checked_div(iterations).unwrap_or(0),
            sample.busy_cycles.checked_div(packets).unwrap_or(0),
            packets.checked_div(sample.batches).unwrap_or(0),
            sample.vhost_qfill.checked_div(iterations).unwrap_or(0),
            sample.upcall_cycles.checked_div(upcalls).unwrap_or(0),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::PerfLog;
    use super::*;

    #[test]
    fn the_texts_have_the_columns_of_open_vswitch() {
        let mut metrics = PerfMetrics::new(PerfLog::default(), 1_000_000);
        metrics.note_poll(32, Some(4));
        metrics.end_iteration(1, 3200);
        metrics.end_iteration(2, 10);
        let text = histograms(&metrics);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2 + 32 + 3);
        let first: Vec<&str> = lines[2].split_whitespace().collect();
        assert_eq!(first, ["499", "1", "0", "1", "100", "1", "0", "0", "0", "1", "0", "2", "999", "0"]);
        assert!(lines[2].starts_with("   499       1            0         1            100 "), "{}", lines[2]);
        assert!(lines[33].starts_with("   >         0            >         0 "), "{}", lines[33]);
        assert_eq!(
            lines[36].split_whitespace().collect::<Vec<_>>(),
            ["3200", "32.00000", "100", "32.00000", "36.00000", "0.00000", "0"]
        );
        let row = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let rows = |text: String| text.lines().skip(1).map(row).collect::<Vec<_>>();
        assert_eq!(rows(iterations(metrics.iterations())), ["2 10 0 0 0 0 0 0", "1 3200 32 100 32 36 0 0"]);
        assert_eq!(rows(milliseconds(metrics.milliseconds())), ["1 1 3200 32 100 32 36 0 0"]);
    }
}
