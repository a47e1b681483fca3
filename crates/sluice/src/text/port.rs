//! `sluice/port-show`: what became of a port's packets, both of those it received and of those it was to send.

use sluice_datapath::PortReport;
use sluice_fate::{Counter, DropReason};
use std::fmt::Write as _;

/// A port: what it received and what became of that, what it sent, and its drops by reason with what each means.
///
/// What was received and copied was sent (by any port), delivered, is held, or was dropped; PMDs tell of it some
/// batches late.
pub fn show(name: &str, port: &PortReport) -> String {
    let PortReport { info, stats, fates, .. } = port;
    let state = if port.is_up { "up" } else { "down" };
    let mut out = format!("{name} ({}): {state}\n", info.kind);
    let _ = writeln!(
        out,
        "  RX packets:{} bytes:{} errors:{} missed:{}\n    received:{} copied:{} released:{} = sent:{} delivered:{} held:{} \
         dropped:{}",
        stats.rx_packets,
        stats.rx_bytes,
        stats.rx_errors,
        stats.rx_missed,
        fates[Counter::Received],
        fates[Counter::Cloned],
        fates[Counter::Released],
        fates[Counter::Sent],
        fates[Counter::Delivered],
        fates[Counter::Held],
        fates.dropped_in_all(),
    );
    drops(&mut out, |reason| fates.dropped(reason));
    let _ = writeln!(
        out,
        "  TX packets:{} bytes:{} errors:{} dropped:{}",
        stats.tx_packets, stats.tx_bytes, stats.tx_errors, stats.tx_dropped
    );
    drops(&mut out, |reason| stats.tx_drops[reason as usize]);
    out
}

/// A line for each reason that there were drops for.
fn drops(out: &mut String, count: impl Fn(DropReason) -> u64) {
    for reason in DropReason::ALL.iter().filter(|reason| count(**reason) != 0) {
        let _ = writeln!(out, "    {:<18} {:>12}  {}", reason.name(), count(*reason), reason.explanation());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_action::PortNo;
    use sluice_fate::Snapshot;
    use sluice_port::{PortInfo, PortStats};

    #[test]
    fn both_sides_are_shown_with_their_reasons() {
        let mut fates = Snapshot::default();
        fates[Counter::Received] = 7;
        fates[Counter::Sent] = 4;
        fates.drop(DropReason::RxRunt, 3);
        let mut stats =
            PortStats { rx_packets: 4, rx_bytes: 240, tx_packets: 1, tx_dropped: 2, ..PortStats::default() };
        stats.tx_drops[DropReason::TxFull as usize] = 2;
        let info = PortInfo { kind: "tap", n_rxq: 1, n_txq: 1, mtu: 1500, mac: [0; 6] };
        let port = PortReport { number: PortNo(1), info, stats, custom_stats: Vec::new(), is_up: false, fates };
        let expected = "p1 (tap): down
  RX packets:4 bytes:240 errors:0 missed:0
    received:7 copied:0 released:0 = sent:4 delivered:0 held:0 dropped:3
    rx-runt                       3  Frame shorter than an Ethernet header.
  TX packets:1 bytes:0 errors:0 dropped:2
    tx-full                       2  The transmit ring or device took no more.
";
        assert_eq!(show("p1", &port), expected);
    }
}
