//! `dpif-netdev/pmd-perf-show`, `pmd-stats-show` and `pmd-rxq-show`.
//!
//! Source: OVS 3.1 lib/dpif-netdev-perf.c and lib/dpif-netdev.c. Hits by offload, by the optimised parser and by simple
//! match are things this datapath does not have; their lines stay, as zeros, for those who parse them. Our own lines
//! come after OVS's.

use crate::clock::time_of_day;
use sluice_fate::{Counter, Snapshot};
use std::fmt::Write as _;
use std::time::Duration;
use time::OffsetDateTime;

/// A PMD thread's figures, as measured since its statistics were cleared.
pub struct PmdFigures {
    /// The thread.
    pub thread: Thread,
    /// What it counted.
    pub counters: Snapshot,
    /// For how long.
    pub measured: Duration,
    /// Entries of its exact match cache in use, and how many there are.
    pub emc: Option<(u64, u64)>,
}

/// A thread that carries packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thread {
    /// The main worker, on any core.
    Main,
    /// A PMD.
    Pmd {
        /// Its NUMA node.
        numa: u32,
        /// The core that it is meant for.
        core: u32,
    },
}

impl Thread {
    /// Whether it is a PMD.
    pub fn is_pmd(self) -> bool {
        self != Thread::Main
    }

    /// The line that names it.
    pub fn header(self) -> String {
        match self {
            Thread::Main => "main thread:\n".to_owned(),
            Thread::Pmd { numa, core } => format!("pmd thread numa_id {numa} core_id {core}:\n"),
        }
    }
}

/// A receive queue, and its share of a PMD's time.
pub struct RxqFigures {
    /// The port's name.
    pub port: String,
    /// Its number.
    pub queue: usize,
    /// Percent of the PMD's cycles; `None` before there is a measurement.
    pub usage: Option<u64>,
}

/// `n` of `total` in percent; 0 of nothing.
fn percent(n: u64, total: u64) -> f64 {
    ratio(n, total) * 100.0
}

fn ratio(n: u64, total: u64) -> f64 {
    if total == 0 { 0.0 } else { n as f64 / total as f64 }
}

/// `pmd-perf-show` of one thread. The first line is empty.
pub fn perf_show(pmd: &PmdFigures, tsc_hz: u64, now: OffsetDateTime) -> String {
    let seconds = pmd.measured.as_secs_f64();
    let mut out =
        format!("\nTime: {}\nMeasurement duration: {seconds:.3} s\n\n{}\n", time_of_day(now), pmd.thread.header());
    if seconds > 0.0 {
        iterations(&mut out, pmd, tsc_hz, seconds);
        received(&mut out, pmd, tsc_hz, seconds);
        sent(&mut out, pmd, seconds);
        distributor(&mut out, pmd);
        emc_policy(&mut out, pmd);
        composed(&mut out, pmd);
        governor(&mut out, pmd, tsc_hz);
        if let Some((used, entries)) = pmd.emc {
            let _ = writeln!(out, "  EMC entries:        {used:>12}  ({:5.1} % full)", percent(used, entries));
        }
    }
    out
}

fn iterations(out: &mut String, pmd: &PmdFigures, tsc_hz: u64, seconds: f64) {
    let c = &pmd.counters;
    let us_per_cycle = 1e6 / tsc_hz.max(1) as f64;
    let (idle, busy) = (c[Counter::IdleIterations], c[Counter::BusyIterations]);
    let (idle_cycles, busy_cycles) = (c[Counter::IdleCycles], c[Counter::BusyCycles]);
    let (slept, sleep_cycles) = (c[Counter::SleepIterations], c[Counter::SleepCycles]);
    let (all, used) = (idle + busy, idle_cycles + busy_cycles);
    let _ =
        writeln!(out, "  Iterations:         {all:>12}  ({:.2} us/it)", ratio(used + sleep_cycles, all) * us_per_cycle);
    let share = 100.0 * (used as f64 / seconds) / tsc_hz.max(1) as f64;
    let _ = writeln!(out, "  - Used TSC cycles:  {used:>12}  ({share:5.1} % of total cycles)");
    let _ = writeln!(out, "  - idle iterations:  {idle:>12}  ({:5.1} % of used cycles)", percent(idle_cycles, used));
    let _ = writeln!(out, "  - busy iterations:  {busy:>12}  ({:5.1} % of used cycles)", percent(busy_cycles, used));
    let _ = writeln!(out, "  - sleep iterations: {slept:>12}  ({:5.1} % of iterations)", percent(slept, all));
    let sleep_us = sleep_cycles as f64 * us_per_cycle;
    let average = if slept == 0 { 0.0 } else { sleep_us / slept as f64 };
    let _ = writeln!(out, "  Sleep time (us):    {sleep_us:>12.0}  ({average:3.0} us/iteration avg.)");
}

fn received(out: &mut String, pmd: &PmdFigures, tsc_hz: u64, seconds: f64) {
    let c = &pmd.counters;
    let rx = c[Counter::Received];
    if rx == 0 {
        let _ = writeln!(out, "  Rx packets:         {:>12}", 0);
        return;
    }
    let passes = c[Counter::Passes];
    let kpps = rx as f64 / seconds / 1000.0;
    let _ = writeln!(
        out,
        "  Rx packets:         {rx:>12}  ({kpps:.0} Kpps, {:.0} cycles/pkt)",
        ratio(c[Counter::BusyCycles], rx)
    );
    let _ = writeln!(out, "  Datapath passes:    {passes:>12}  ({:.2} passes/pkt)", ratio(passes, rx));
    for (label, hits) in [
        ("PHWOL hits:       ", 0),
        ("MFEX Opt hits:    ", 0),
        ("Simple Match hits:", 0),
        ("EMC hits:         ", c[Counter::EmcHits]),
        ("SMC hits:         ", c[Counter::SmcHits]),
    ] {
        let _ = writeln!(out, "  - {label}{hits:>12}  ({:5.1} %)", percent(hits, passes));
    }
    let hits = c[Counter::MegaflowHits];
    let probes = ratio(c[Counter::SubtableProbes], hits);
    let _ = writeln!(
        out,
        "  - Megaflow hits:    {hits:>12}  ({:5.1} %, {probes:.2} subtbl lookups/hit)",
        percent(hits, passes)
    );
    let (upcalls, lost) = (c[Counter::Upcalls], c[Counter::UpcallsLost]);
    let us = ratio(c[Counter::UpcallCycles], upcalls) * 1e6 / tsc_hz.max(1) as f64;
    let _ =
        writeln!(out, "  - Upcalls:          {upcalls:>12}  ({:5.1} %, {us:.1} us/upcall)", percent(upcalls, passes));
    let _ = writeln!(out, "  - Lost upcalls:     {lost:>12}  ({:5.1} %)", percent(lost, passes));
}

fn sent(out: &mut String, pmd: &PmdFigures, seconds: f64) {
    let tx = pmd.counters[Counter::Sent];
    if tx == 0 {
        let _ = write!(out, "  Tx packets:         {:>12}\n\n", 0);
        return;
    }
    let batches = pmd.counters[Counter::TxBatches];
    let _ = writeln!(out, "  Tx packets:         {tx:>12}  ({:.0} Kpps)", tx as f64 / seconds / 1000.0);
    let _ = writeln!(out, "  Tx batches:         {batches:>12}  ({:.2} pkts/batch)", ratio(tx, batches));
}

/// What the distributor did, if it was asked. Its hits are megaflow hits, and counted there too.
fn distributor(out: &mut String, pmd: &PmdFigures) {
    let c = &pmd.counters;
    let answers = [
        ("- hits:", c[Counter::DistributorHits]),
        ("- misses:", c[Counter::DistributorMisses]),
        ("- wrong answers:", c[Counter::DistributorWrong]),
    ];
    let asked = answers.iter().map(|(_, n)| n).sum();
    if asked != 0 {
        let _ = writeln!(
            out,
            "  Distributor asked:  {asked:>12}  ({:5.1} % of passes)",
            percent(asked, c[Counter::Passes])
        );
        for (label, n) in answers {
            let _ = writeln!(out, "  {label:<20}{n:>12}  ({:5.1} %)", percent(n, asked));
        }
    }
}

/// What the policy for recirculated packets kept out of the exact match cache, if anything.
fn emc_policy(out: &mut String, pmd: &PmdFigures) {
    let c = &pmd.counters;
    for (label, counter) in [("EMC bypassed:", Counter::EmcBypassed), ("EMC not inserted:", Counter::EmcPenalised)] {
        if c[counter] != 0 {
            let share = percent(c[counter], c[Counter::Passes]);
            let _ = writeln!(out, "  {label:<20}{:>12}  ({share:5.1} % of passes)", c[counter]);
        }
    }
}

/// The passes that composed entries answered, if any. They are megaflow hits, and counted there too.
fn composed(out: &mut String, pmd: &PmdFigures) {
    let (hits, passes) = (pmd.counters[Counter::ComposedHits], pmd.counters[Counter::Passes]);
    if hits != 0 {
        let _ = writeln!(out, "  Composed hits:      {hits:>12}  ({:5.1} % of passes)", percent(hits, passes));
    }
}

/// What the flow-setup governor decided, if it was asked, and what misses cost.
fn governor(out: &mut String, pmd: &PmdFigures, tsc_hz: u64) {
    let c = &pmd.counters;
    let [flows, setups, shortcuts, packets] =
        [Counter::GovernedFlows, Counter::GovernedSetups, Counter::GovernedShortcuts, Counter::GovernedPackets]
            .map(|counter| c[counter]);
    if flows + packets == 0 {
        return;
    }
    let cycles = c[Counter::UpcallCycles];
    let ms = cycles as f64 * 1e3 / tsc_hz.max(1) as f64;
    let share = percent(cycles, c[Counter::BusyCycles] + c[Counter::IdleCycles]);
    let _ = writeln!(out, "  Flows counted:      {flows:>12}  ({packets} packets without a megaflow)");
    let _ = writeln!(out, "  - set up by count:  {setups:>12}  ({:5.1} %)", percent(setups, flows));
    let _ = writeln!(out, "  - set up at once:   {shortcuts:>12}");
    let _ = writeln!(out, "  - cycles on misses: {cycles:>12}  ({share:5.1} % of used cycles, {ms:.0} ms)");
}

/// `pmd-stats-show` of one thread.
pub fn stats_show(pmd: &PmdFigures) -> String {
    let c = &pmd.counters;
    let rx = c[Counter::Received];
    let passes = c[Counter::Passes].max(rx);
    let mut out = pmd.thread.header();
    let _ = writeln!(out, "  packets received: {rx}\n  packet recirculations: {}", passes - rx);
    let _ = writeln!(out, "  avg. datapath passes per packet: {:.2}", ratio(passes, rx));
    out += "  phwol hits: 0\n  mfex opt hits: 0\n  simple match hits: 0\n";
    let _ = writeln!(out, "  emc hits: {}\n  smc hits: {}", c[Counter::EmcHits], c[Counter::SmcHits]);
    let hits = c[Counter::MegaflowHits];
    let _ = writeln!(out, "  megaflow hits: {hits}");
    let _ = writeln!(out, "  avg. subtable lookups per megaflow hit: {:.2}", ratio(c[Counter::SubtableProbes], hits));
    let _ = writeln!(out, "  miss with success upcall: {}", c[Counter::Upcalls]);
    let _ = writeln!(out, "  miss with failed upcall: {}", c[Counter::UpcallsLost]);
    let _ = writeln!(out, "  avg. packets per output batch: {:.2}", ratio(c[Counter::Sent], c[Counter::TxBatches]));
    let (idle, busy) = (c[Counter::IdleCycles], c[Counter::BusyCycles]);
    let all = idle + busy;
    if all != 0 && pmd.thread.is_pmd() {
        let _ = writeln!(out, "  idle cycles: {idle} ({:.2}%)", percent(idle, all));
        let _ = writeln!(out, "  processing cycles: {busy} ({:.2}%)", percent(busy, all));
        if rx != 0 {
            let _ = writeln!(out, "  avg cycles per packet: {:.2} ({all}/{rx})", ratio(all, rx));
            let _ = writeln!(out, "  avg processing cycles per packet: {:.2} ({busy}/{rx})", ratio(busy, rx));
        }
    }
    if let Some((used, entries)) = pmd.emc {
        let _ = writeln!(out, "  emc entries: {used} ({:.2}% full)", percent(used, entries));
    }
    // As in the distributor's patch: its own lines, behind OVS's.
    let answers = [Counter::DistributorHits, Counter::DistributorMisses, Counter::DistributorWrong].map(|n| c[n]);
    if answers.iter().any(|n| *n != 0) {
        let [hits, misses, wrong] = answers;
        let _ = writeln!(out, "  cd hits: {hits}\n  cd misses: {misses}\n  cd wrong answers: {wrong}");
    }
    out
}

/// `pmd-rxq-show` of one thread, whose queues are sorted by port and number here.
pub fn rxq_show(thread: Thread, is_isolated: bool, mut queues: Vec<RxqFigures>, overhead: Option<u64>) -> String {
    let share = |share: Option<u64>| share.map_or("NOT AVAIL".into(), |percent| format!("{percent:2} %"));
    queues.sort_by(|a, b| (&a.port, a.queue).cmp(&(&b.port, b.queue)));
    let mut out = thread.header() + &format!("  isolated : {is_isolated}\n");
    for rxq in &queues {
        let _ = writeln!(
            out,
            "  port: {:<16}  queue-id: {:2} (enabled)   pmd usage: {}",
            rxq.port,
            rxq.queue,
            share(rxq.usage)
        );
    }
    if !queues.is_empty() {
        let _ = writeln!(out, "  overhead: {}", share(overhead));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counters of the sample in OVS's documentation of `pmd-perf-show`.
    fn busy() -> PmdFigures {
        let mut counters = Snapshot::default();
        for (counter, n) in [
            (Counter::Received, 2_399_607),
            (Counter::Passes, 3_599_415),
            (Counter::EmcHits, 336_472),
            (Counter::MegaflowHits, 3_262_943),
            (Counter::SubtableProbes, 3_262_943),
            (Counter::Sent, 2_399_607),
            (Counter::TxBatches, 171_400),
            (Counter::IdleIterations, 486_808),
            (Counter::BusyIterations, 86_009),
            (Counter::IdleCycles, 384_626_533),
            (Counter::BusyCycles, 2_034_408_179),
        ] {
            counters[counter] = n;
        }
        PmdFigures {
            thread: Thread::Pmd { numa: 0, core: 1 },
            counters,
            measured: Duration::from_millis(1008),
            emc: None,
        }
    }

    #[test]
    fn perf_show_is_ovs_text() {
        let text =
            perf_show(&busy(), 2_402_000_000, OffsetDateTime::UNIX_EPOCH + time::Duration::milliseconds(55_495_270));
        let expected = "
Time: 15:24:55.270
Measurement duration: 1.008 s

pmd thread numa_id 0 core_id 1:

  Iterations:               572817  (1.76 us/it)
  - Used TSC cycles:    2419034712  ( 99.9 % of total cycles)
  - idle iterations:        486808  ( 15.9 % of used cycles)
  - busy iterations:         86009  ( 84.1 % of used cycles)
  - sleep iterations:            0  (  0.0 % of iterations)
  Sleep time (us):               0  (  0 us/iteration avg.)
  Rx packets:              2399607  (2381 Kpps, 848 cycles/pkt)
  Datapath passes:         3599415  (1.50 passes/pkt)
  - PHWOL hits:                  0  (  0.0 %)
  - MFEX Opt hits:               0  (  0.0 %)
  - Simple Match hits:           0  (  0.0 %)
  - EMC hits:               336472  (  9.3 %)
  - SMC hits:                    0  (  0.0 %)
  - Megaflow hits:         3262943  ( 90.7 %, 1.00 subtbl lookups/hit)
  - Upcalls:                     0  (  0.0 %, 0.0 us/upcall)
  - Lost upcalls:                0  (  0.0 %)
  Tx packets:              2399607  (2381 Kpps)
  Tx batches:               171400  (14.00 pkts/batch)
";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_is_our_own_has_lines_behind_those_of_ovs() {
        let mut pmd = busy();
        let before = perf_show(&pmd, 2_402_000_000, OffsetDateTime::UNIX_EPOCH);
        pmd.counters[Counter::DistributorHits] = 1_700_000;
        pmd.counters[Counter::DistributorMisses] = 99_000;
        pmd.counters[Counter::DistributorWrong] = 1_000;
        pmd.counters[Counter::ComposedHits] = 900_000;
        let expected = "  Distributor asked:       1800000  ( 50.0 % of passes)
  - hits:                  1700000  ( 94.4 %)
  - misses:                  99000  (  5.5 %)
  - wrong answers:            1000  (  0.1 %)
  Composed hits:            900000  ( 25.0 % of passes)
";
        assert_eq!(perf_show(&pmd, 2_402_000_000, OffsetDateTime::UNIX_EPOCH).strip_prefix(&before), Some(expected));
        let stats = stats_show(&pmd);
        let last = "  cd hits: 1700000\n  cd misses: 99000\n  cd wrong answers: 1000\n";
        assert_eq!(stats.strip_suffix(last), Some(&stats_show(&busy())[..]));
        pmd = busy();
        pmd.counters[Counter::EmcBypassed] = 899_854;
        pmd.counters[Counter::EmcPenalised] = 12;
        let expected = "  EMC bypassed:             899854  ( 25.0 % of passes)
  EMC not inserted:             12  (  0.0 % of passes)
";
        assert_eq!(perf_show(&pmd, 2_402_000_000, OffsetDateTime::UNIX_EPOCH).strip_prefix(&before), Some(expected));
    }

    #[test]
    fn an_idle_thread_has_no_rates() {
        let mut pmd = busy();
        pmd.counters = Snapshot::default();
        pmd.emc = Some((12, 8192));
        let text = perf_show(&pmd, 2_400_000_000, OffsetDateTime::UNIX_EPOCH);
        assert!(text.ends_with("  Rx packets:                    0\n  Tx packets:                    0\n\n  EMC entries:                  12  (  0.1 % full)\n"), "{text}");
        assert!(!text.contains("NaN"));
    }

    #[test]
    fn stats_show_is_ovs_text() {
        let mut pmd = busy();
        pmd.counters = Snapshot::default();
        for (counter, n) in [
            (Counter::Received, 20),
            (Counter::Passes, 20),
            (Counter::EmcHits, 19),
            (Counter::Upcalls, 1),
            (Counter::Sent, 1),
            (Counter::TxBatches, 1),
            (Counter::IdleCycles, 123),
            (Counter::BusyCycles, 456),
        ] {
            pmd.counters[counter] = n;
        }
        let expected = "pmd thread numa_id 0 core_id 1:
  packets received: 20
  packet recirculations: 0
  avg. datapath passes per packet: 1.00
  phwol hits: 0
  mfex opt hits: 0
  simple match hits: 0
  emc hits: 19
  smc hits: 0
  megaflow hits: 0
  avg. subtable lookups per megaflow hit: 0.00
  miss with success upcall: 1
  miss with failed upcall: 0
  avg. packets per output batch: 1.00
  idle cycles: 123 (21.24%)
  processing cycles: 456 (78.76%)
  avg cycles per packet: 28.95 (579/20)
  avg processing cycles per packet: 22.80 (456/20)
";
        assert_eq!(stats_show(&pmd), expected);
    }

    #[test]
    fn rxq_show_is_ovs_text() {
        let queue = |port: &str, queue, usage| RxqFigures { port: port.into(), queue, usage };
        let text = rxq_show(
            Thread::Pmd { numa: 0, core: 1 },
            true,
            vec![queue("p1", 0, Some(7)), queue("p0", 1, None), queue("p0", 0, Some(0))],
            Some(0),
        );
        let expected = "pmd thread numa_id 0 core_id 1:
  isolated : true
  port: p0                queue-id:  0 (enabled)   pmd usage:  0 %
  port: p0                queue-id:  1 (enabled)   pmd usage: NOT AVAIL
  port: p1                queue-id:  0 (enabled)   pmd usage:  7 %
  overhead:  0 %
";
        assert_eq!(text, expected);
        assert_eq!(
            rxq_show(Thread::Pmd { numa: 0, core: 2 }, false, Vec::new(), None),
            "pmd thread numa_id 0 core_id 2:\n  isolated : false\n"
        );
    }
}
