//! What `sluice top` shows: two overviews become text that fits a screen.

use crate::overview::{Overview, PmdRow, PortRow};
use std::fmt::Write;
use std::time::Duration;

/// The screen of what happened between two overviews, `passed` apart. Lines are cut to the width; the busiest flows get
/// the height that is left.
pub fn show(before: &Overview, now: &Overview, passed: Duration, (width, height): (usize, usize)) -> String {
    let seconds = passed.as_secs_f64().max(1e-3);
    let mut lines = head(before, now, seconds);
    lines.push(String::new());
    lines.push(format!(
        "{:<16} {:<10} {:<4} {:>12} {:>10} {:>12} {:>10} {:>10}",
        "port", "type", "link", "rx pps", "rx bit/s", "tx pps", "tx bit/s", "dropped/s"
    ));
    for port in &now.ports {
        let old = before.ports.iter().find(|old| old.name == port.name).cloned().unwrap_or_default();
        lines.push(port_line(&old, port, seconds));
    }
    lines.push(String::new());
    lines.push(format!(
        "{:<5} {:>5} {:>6} {:>16} {:>10} {:>10}",
        "PMD", "core", "busy", "EMC in use", "subtables", "megaflows"
    ));
    for pmd in &now.pmds {
        let old = before.pmds.iter().find(|old| old.pmd == pmd.pmd).cloned().unwrap_or_default();
        lines.push(pmd_line(&old, pmd));
    }
    lines.push(String::new());
    lines.push(format!("{:<16} {:>5} {:>12} {:>8}  levels", "queue of", "queue", "cycles/pkt", "changes"));
    for queue in &now.queues {
        let cycles = queue.cycles.map_or("-".to_owned(), |cycles| format!("{cycles:.1}"));
        lines
            .push(format!("{:<16} {:>5} {cycles:>12} {:>8}  {}", queue.port, queue.queue, queue.changes, queue.levels));
    }
    lines.push(String::new());
    lines.push(format!("{:>12}  busiest of {} megaflows", "pps", now.megaflows));
    lines.extend(flow_lines(before, now, seconds));
    let mut out = String::new();
    for line in lines.iter().take(height.saturating_sub(1)) {
        out.extend(line.chars().take(width));
        out.push('\n');
    }
    out
}

fn head(before: &Overview, now: &Overview, seconds: f64) -> Vec<String> {
    let (old, new) = (&before.totals, &now.totals);
    let passed = |pick: fn(&crate::overview::Totals) -> u64| pick(new).saturating_sub(pick(old)) as f64;
    let received = passed(|t| t.received);
    let passes = passed(|t| t.passes).max(1.0);
    let mut levels = String::new();
    for (name, count) in [
        ("EMC", passed(|t| t.emc_hits)),
        ("SMC", passed(|t| t.smc_hits)),
        ("megaflow", passed(|t| t.megaflow_hits)),
        ("by the distributor", passed(|t| t.distributor_hits)),
        ("upcall", passed(|t| t.upcalls)),
    ] {
        let _ = write!(levels, "{name} {:.1} %   ", 100.0 * count / passes);
    }
    vec![
        format!(
            "sluice   {} pps in, {} pps out, {} dropped/s, {:.0} cycles/pkt",
            scaled(received / seconds),
            scaled(passed(|t| t.sent) / seconds),
            scaled(passed(|t| t.dropped) / seconds),
            if received == 0.0 { 0.0 } else { passed(|t| t.busy_cycles) / received },
        ),
        format!("answered by   {}", levels.trim_end()),
    ]
}

fn port_line(old: &PortRow, new: &PortRow, seconds: f64) -> String {
    let rate = |new: u64, old: u64| new.saturating_sub(old) as f64 / seconds;
    format!(
        "{:<16} {:<10} {:<4} {:>12} {:>10} {:>12} {:>10} {:>10}",
        new.name,
        new.kind,
        if new.is_up { "up" } else { "down" },
        scaled(rate(new.rx_packets, old.rx_packets)),
        scaled(8.0 * rate(new.rx_bytes, old.rx_bytes)),
        scaled(rate(new.tx_packets, old.tx_packets)),
        scaled(8.0 * rate(new.tx_bytes, old.tx_bytes)),
        scaled(rate(new.dropped, old.dropped)),
    )
}

fn pmd_line(old: &PmdRow, new: &PmdRow) -> String {
    let busy = new.busy_cycles.saturating_sub(old.busy_cycles) as f64;
    let all = busy + new.idle_cycles.saturating_sub(old.idle_cycles) as f64;
    let share = if all == 0.0 { 0.0 } else { 100.0 * busy / all };
    let emc = format!("{} of {}", new.emc_used, new.emc_entries);
    format!("{:<5} {:>5} {share:>4.0} % {emc:>16} {:>10} {:>10}", new.pmd, new.core, new.subtables, new.megaflows)
}

/// The flows that carried the most just now, of those that have carried the most at all.
fn flow_lines(before: &Overview, now: &Overview, seconds: f64) -> Vec<String> {
    let rate = |flow: &crate::overview::FlowRow| {
        let is_same = |old: &&crate::overview::FlowRow| identity(&old.text) == identity(&flow.text);
        let old = before.busiest.iter().find(is_same).map_or(flow.packets, |old| old.packets);
        flow.packets.saturating_sub(old) as f64 / seconds
    };
    let mut flows: Vec<(f64, &str)> = now.busiest.iter().map(|flow| (rate(flow), flow.text.as_str())).collect();
    flows.sort_by(|a, b| b.0.total_cmp(&a.0));
    flows.into_iter().map(|(pps, text)| format!("{:>12}  {text}", scaled(pps))).collect()
}

/// What a flow matches, without what it has counted.
fn identity(text: &str) -> &str {
    text.split(", packets:").next().unwrap_or(text)
}

/// A number with a unit that keeps it short.
fn scaled(x: f64) -> String {
    match x {
        x if x >= 1e9 => format!("{:.2}G", x / 1e9),
        x if x >= 1e6 => format!("{:.2}M", x / 1e6),
        x if x >= 1e4 => format!("{:.1}k", x / 1e3),
        x => format!("{x:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overview::{FlowRow, Totals};

    fn overview(packets: u64) -> Overview {
        Overview {
            totals: Totals { received: packets, passes: packets, emc_hits: packets / 2, ..Totals::default() },
            ports: vec![PortRow {
                name: "p1".into(),
                rx_packets: packets,
                rx_bytes: packets * 60,
                ..PortRow::default()
            }],
            pmds: vec![PmdRow { busy_cycles: packets, idle_cycles: packets * 3, ..PmdRow::default() }],
            megaflows: 2,
            busiest: vec![
                FlowRow { packets: 1_000_000, text: format!("a, packets:{packets}, bytes:1") },
                FlowRow { packets, text: format!("b, packets:{packets}, bytes:2") },
            ],
            ..Overview::default()
        }
    }

    #[test]
    fn rates_are_of_what_passed() {
        let text = show(&overview(1000), &overview(5_001_000), Duration::from_secs(2), (200, 50));
        assert!(text.starts_with("sluice   2.50M pps in, 0 pps out"), "{text}");
        assert!(text.contains("EMC 50.0 %"), "{text}");
        let port = text.lines().find(|line| line.starts_with("p1")).unwrap();
        assert!(port.contains("2.50M") && port.contains("1.20G"), "{port}");
        assert!(text.lines().any(|line| line.contains(" 25 %")), "{text}");
        let flows: Vec<&str> = text.lines().skip_while(|line| !line.contains("busiest of 2")).skip(1).collect();
        assert!(flows[0].contains("2.50M  b,") && flows[1].contains("0  a,"), "the busiest first: {flows:?}");
    }

    #[test]
    fn it_fits_the_screen() {
        for size in [(0, 0), (1, 1), (20, 5), (80, 24)] {
            let text = show(&overview(0), &overview(7), Duration::ZERO, size);
            assert!(text.lines().count() <= size.1 && text.lines().all(|line| line.chars().count() <= size.0));
        }
    }
}
