//! The live line: millions of packets a second, cycles a packet, hits by level.

use sluice_fate::{Counter, Snapshot};
use std::time::Duration;

/// What happened between two readings, in one line.
pub fn line(delta: &Snapshot, over: Duration, running: Duration, flows: usize) -> String {
    let rx = delta[Counter::Received];
    let mpps = rx as f64 / over.as_secs_f64().max(1e-9) / 1e6;
    let cycles = if rx == 0 { 0.0 } else { delta[Counter::BusyCycles] as f64 / rx as f64 };
    let passes = delta[Counter::Passes].max(1) as f64;
    let share = |counter| 100.0 * delta[counter] as f64 / passes;
    format!(
        "{:6.1} s  {mpps:7.3} Mpps  {cycles:6.0} cycles/pkt  EMC {:5.1} %  SMC {:5.1} %  megaflow {:5.1} %  upcall {:5.1} %  \
         dropped {}  flows {flows}",
        running.as_secs_f64(),
        share(Counter::EmcHits),
        share(Counter::SmcHits),
        share(Counter::MegaflowHits),
        share(Counter::Upcalls),
        delta.dropped_in_all(),
    )
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
        assert_eq!(
            text,
            "   3.0 s    4.000 Mpps     100 cycles/pkt  EMC  75.0 %  SMC   0.0 %  megaflow  25.0 %  upcall   0.0 %  dropped 0  flows 20"
        );
        let idle = line(&Snapshot::default(), Duration::ZERO, Duration::ZERO, 0);
        assert!(!idle.contains("NaN"), "{idle}");
    }
}
