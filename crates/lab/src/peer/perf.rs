//! Reading `pmd-perf-show`, which both switches print.

use crate::rig::{CYCLES, EMC_SHARE, MEGAFLOW_SHARE, MPPS, SMC_SHARE, Sample};
use anyhow::{Context, Result, ensure};

/// The figures of the first PMD. A switch that did not send what it received is an error.
///
/// # Errors
/// If a line is missing, or packets are.
pub fn read(text: &str) -> Result<Sample> {
    let at = text.find("core_id").context("pmd-perf-show names no PMD")?;
    let end = text[at..].find("main thread").map_or(text.len(), |end| at + end);
    let lines = || text[at..end].lines().map(str::trim);
    let after = |label: &str| lines().find_map(|line| line.strip_prefix(label)).map(str::trim);
    let first = |line: &str| line.split_whitespace().next().and_then(|n| n.parse::<f64>().ok());
    let count = |label: &str| after(label).and_then(first).unwrap_or(0.0);
    let received = after("Rx packets:").context("pmd-perf-show has no line \"Rx packets\"")?;
    let (rx, tx) = (first(received).unwrap_or(0.0), count("Tx packets:"));
    ensure!(rx > 0.0, "no packet was received");
    ensure!(tx >= 0.999 * rx, "of {rx} packets received {tx} were sent");
    // "123  (456 Kpps, 78 cycles/pkt)"
    let inside = received.split_once('(').map(|(_, inside)| inside).context("no rate beside \"Rx packets\"")?;
    let mut numbers = inside.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse::<f64>().ok());
    let (kpps, cycles) = numbers.next().zip(numbers.next()).context("no rate beside \"Rx packets\"")?;
    let share = |label: &str| 100.0 * count(label) / rx;
    let figures = [
        (MPPS, kpps / 1e3),
        (CYCLES, cycles),
        (EMC_SHARE, share("- EMC hits:")),
        (SMC_SHARE, share("- SMC hits:")),
        (MEGAFLOW_SHARE, share("- Megaflow hits:")),
    ];
    Ok(Sample(figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Time: 12:00\n\npmd thread numa_id 0 core_id 1:\n\n  Iterations:  37\n\
        \x20 Rx packets:         1000  (8000 Kpps, 312 cycles/pkt)\n  Datapath passes:    1000  (1.00 passes/pkt)\n\
        \x20 - PHWOL hits:   0  (  0.0 %)\n  - EMC hits:      250  ( 25.0 %)\n  - SMC hits:      0  (  0.0 %)\n\
        \x20 - Megaflow hits:       750  ( 75.0 %, 1.00 subtbl lookups/hit)\n  - Upcalls:               0  (  0.0 %, 0.0 us/upcall)\n\
        \x20 Tx packets:         1000  (8000 Kpps)\nmain thread:\n  Rx packets:  7\n";

    #[test]
    fn the_first_pmd_is_read() {
        let figures = read(TEXT).unwrap().0;
        assert_eq!(
            (figures[MPPS], figures[CYCLES], figures[EMC_SHARE], figures[MEGAFLOW_SHARE]),
            (8.0, 312.0, 25.0, 75.0)
        );
    }

    #[test]
    fn packets_that_were_not_sent_are_an_error() {
        let error = read(&TEXT.replace("Tx packets:         1000", "Tx packets:         900")).unwrap_err();
        assert_eq!(error.to_string(), "of 1000 packets received 900 were sent");
        assert!(read("nothing").is_err());
        assert!(read(&TEXT.replace("(8000 Kpps, 312 cycles/pkt)", "")).is_err());
    }
}
