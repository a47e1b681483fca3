//! The live line: millions of packets a second, cycles a packet, hits by level.

use sluice_fate::{Counter, Snapshot};
use std::fmt::Write as _;
use std::time::Duration;

/// What happened between two readings, in one line that fits a terminal: levels and drops that there are none of are
/// left out.
pub fn line(delta: &Snapshot, over: Duration, running: Duration, flows: usize) -> String {
    let rx = delta[Counter::Received];
    let mpps = rx as f64 / over.as_secs_f64().max(1e-9) / 1e6;
    let cycles = if rx == 0 { 0.0 } else { delta[Counter::BusyCycles] as f64 / rx as f64 };
    let passes = delta[Counter::Passes].max(1) as f64;
    let mut out = format!("{:5.1} s {mpps:7.3} Mpps {cycles:5.0} cycles/pkt ", running.as_secs_f64());
    for (level, counter, always) in [
        ("EMC", Counter::EmcHits, true),
        ("SMC", Counter::SmcHits, false),
        ("megaflow", Counter::MegaflowHits, true),
        ("upcall", Counter::Upcalls, true),
    ] {
        if always || delta[counter] != 0 {
            let _ = write!(out, " {level} {:.1}%", 100.0 * delta[counter] as f64 / passes);
        }
    }
    if delta.dropped_in_all() != 0 {
        let _ = write!(out, "  dropped {}", delta.dropped_in_all());
    }
    let _ = write!(out, "  flows {flows}");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_passes() {
        let mut delta = Snapshot::default();
        delta[Counter::Received] = 2_000_000;
        delta[Counter::Passes] = 4_000_000;
        delta[Counter::EmcHits] = 3_000_000;
        delta[Counter::MegaflowHits] = 1_000_000;
        delta[Counter::BusyCycles] = 200_000_000;
        let text = line(&delta, Duration::from_millis(500), Duration::from_secs(3), 20);
        assert_eq!(text, "  3.0 s   4.000 Mpps   100 cycles/pkt  EMC 75.0% megaflow 25.0% upcall 0.0%  flows 20");
        let idle = line(&Snapshot::default(), Duration::ZERO, Duration::ZERO, 0);
        assert_eq!(idle, "  0.0 s   0.000 Mpps     0 cycles/pkt  EMC 0.0% megaflow 0.0% upcall 0.0%  flows 0");
        delta.drop(sluice_fate::DropReason::RxRunt, 7);
        assert!(line(&delta, Duration::from_secs(1), Duration::ZERO, 0).ends_with("%  dropped 7  flows 0"));
    }
}
