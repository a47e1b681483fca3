//! Cycles a packet from poll to tx, generator to null port, on one core, with the generator's own cost included.
//!
//! The traffic is the cuckoo distributor's (20 rules `nw_src=i.0.0.0/(7+i)`, flows spread evenly over them); the tables
//! are a function that answers with those megaflows. Each case checks its answers first: every packet comes out, every
//! rule's counter is right, and the expected level answers. Then it times slices of a few thousand packets and shows
//! the fastest, the median and the 90th percentile: on a shared machine the fastest slice shows the program, and the
//! others show the neighbours.
//!
//! `cargo bench -p sluice-datapath --bench walk [-- FILTER]`; as a test (`cargo test --bench walk`) it only checks.

use sluice_action::{Action, Miss, PortNo, Translation, Upcall, UpcallResult, XcacheHandle};
use sluice_datapath::{Arm, Config, Datapath, EmcInsert};
use sluice_fate::{Counter, DropReason, Snapshot};
use sluice_flow::{PacketKey, layout};
use sluice_port::{Pools, PortConfig};
use sluice_simd::tsc;
use std::sync::Arc;

/// One case.
struct Case {
    name: &'static str,
    flows: &'static str,
    subtables: u8,
    /// One in this many flows is inserted into the exact match cache; 0: it is off.
    emc: u32,
    /// Whether the signature match cache is on.
    smc: bool,
    /// One megaflow a rule, or a flow.
    megaflows: Megaflows,
    /// Cycles a packet that the fastest slice must not exceed; 0 is no limit.
    limit: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum Megaflows {
    Rule,
    Flow,
}
use Megaflows::{Flow, Rule};

const CASES: &[Case] = &[
    Case { name: "emc-hits", flows: "100", subtables: 20, emc: 1, smc: false, megaflows: Rule, limit: 75 },
    Case { name: "megaflow-search", flows: "1M", subtables: 20, emc: 0, smc: false, megaflows: Rule, limit: 300 },
    Case { name: "one-flow", flows: "1", subtables: 1, emc: 1, smc: false, megaflows: Rule, limit: 0 },
    Case { name: "emc-1k", flows: "1k", subtables: 20, emc: 1, smc: false, megaflows: Rule, limit: 0 },
    Case { name: "emc-8k", flows: "8k", subtables: 20, emc: 1, smc: false, megaflows: Rule, limit: 0 },
    Case { name: "emc-default-8k", flows: "8k", subtables: 20, emc: 100, smc: false, megaflows: Rule, limit: 0 },
    Case { name: "emc-default-100k", flows: "100k", subtables: 20, emc: 100, smc: false, megaflows: Rule, limit: 0 },
    Case { name: "emc-default-1M", flows: "1M", subtables: 20, emc: 100, smc: false, megaflows: Rule, limit: 0 },
    Case { name: "emc-always-1M", flows: "1M", subtables: 20, emc: 1, smc: false, megaflows: Rule, limit: 0 },
    Case { name: "one-subtable-1M", flows: "1M", subtables: 1, emc: 0, smc: false, megaflows: Rule, limit: 0 },
    Case { name: "per-flow-emc-1k", flows: "1k", subtables: 20, emc: 1, smc: false, megaflows: Flow, limit: 0 },
    Case { name: "per-flow-emc-8k", flows: "8k", subtables: 20, emc: 1, smc: false, megaflows: Flow, limit: 0 },
    Case { name: "per-flow-10k", flows: "10k", subtables: 20, emc: 0, smc: false, megaflows: Flow, limit: 0 },
    Case { name: "per-flow-100k", flows: "100k", subtables: 20, emc: 0, smc: false, megaflows: Flow, limit: 0 },
    Case { name: "per-flow-1M", flows: "1M", subtables: 20, emc: 0, smc: false, megaflows: Flow, limit: 0 },
    Case { name: "per-flow-1-sub-1M", flows: "1M", subtables: 1, emc: 0, smc: false, megaflows: Flow, limit: 0 },
    Case { name: "smc-100k", flows: "100k", subtables: 20, emc: 0, smc: true, megaflows: Rule, limit: 0 },
    Case { name: "smc-1M", flows: "1M", subtables: 20, emc: 0, smc: true, megaflows: Rule, limit: 0 },
    Case { name: "smc-per-flow-1M", flows: "1M", subtables: 20, emc: 0, smc: true, megaflows: Flow, limit: 0 },
];

/// The 20 rules, as an upcall.
struct Rules(Megaflows);

impl Upcall for Rules {
    fn translate(&mut self, miss: &Miss<'_>) -> UpcallResult {
        let rule = miss.key.get(layout::NW_SRC)[0];
        let mut mask = PacketKey::ZERO;
        for span in [layout::IN_PORT, layout::RECIRC_ID, layout::VLAN0_TCI, layout::DL_TYPE, layout::NW_PROTO] {
            mask.set(span, &[0xff; 4][..span.size]);
        }
        mask.set(layout::NW_FRAG, &[3]);
        if self.0 == Flow {
            mask.set(layout::NW_DST, &[0xff; 4]);
        }
        mask.set(layout::NW_SRC, &(!0u32 << (32 - (7 + u32::from(rule)))).to_be_bytes());
        UpcallResult::Translated(Translation {
            mask,
            actions: Arc::new([Action::Output(PortNo(2))]),
            no_output: DropReason::Rules,
            version: 1,
            cacheable: true,
            xcache: XcacheHandle(Arc::new(())),
        })
    }
    fn is_current(&self, _version: u64) -> bool {
        true
    }
    fn credit(&mut self, _xcache: &XcacheHandle, _packets: u64, _bytes: u64, _tcp_flags: u16, _now_ms: u64) {}
}

fn datapath(case: &Case) -> Datapath {
    let arm = Arm { emc: Some(case.emc).filter(|n| *n != 0).map(EmcInsert::OneIn), smc: case.smc, ..Arm::BARE };
    let config = Config { settings: arm.into(), seed: Some(1), ..Config::default() };
    let datapath = Datapath::new(config).expect("a datapath");
    let megaflows = case.megaflows;
    datapath.set_upcalls(move |_| Box::new(Rules(megaflows)));
    let mut pools = Pools::default();
    let subtables = case.subtables.to_string();
    let options = [("flows", case.flows), ("subtables", &subtables), ("seed", "0")];
    for (number, kind, options) in [(1, "generator", &options[..]), (2, "null", &[])] {
        let options = options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let config = PortConfig { name: kind.into(), kind: kind.into(), options, ..PortConfig::default() };
        let port = sluice_port::open(&config, &mut pools).expect("a port");
        datapath.add_port(PortNo(number), port).expect("a free number");
    }
    datapath
}

/// Iterations of the loop in a slice.
const TURNS: usize = 64;

/// Checks that the case does what it says. Returns what was counted while it did.
fn check(case: &Case, datapath: &Datapath, turns: usize) -> Snapshot {
    datapath.run_iterations(turns, 0);
    let warm = datapath.totals();
    datapath.run_iterations(turns, 0);
    let all = datapath.totals();
    assert_eq!(all.conserved(), Ok(()), "{}", case.name);
    assert_eq!(all[Counter::Received], all[Counter::Sent], "{}: every packet is sent", case.name);
    let flows = datapath.flows();
    assert_eq!(all[Counter::Upcalls], flows.len() as u64, "{}: one upcall a megaflow", case.name);
    if case.megaflows == Rule {
        assert_eq!(flows.len(), usize::from(case.subtables), "{}", case.name);
    }
    let mut carried = vec![0u64; usize::from(case.subtables)];
    for flow in &flows {
        carried[usize::from(flow.flow.matched.key.get(layout::NW_SRC)[0]) - 1] += flow.flow.stats.packets;
    }
    let even = (all[Counter::Received] - all[Counter::Upcalls]) as f64 / carried.len() as f64;
    assert!(carried.iter().all(|n| (*n as f64 / even - 1.0).abs() < 0.3), "{}: {carried:?}", case.name);
    let steady = all.since(&warm);
    let share = steady[Counter::EmcHits] as f64 / steady[Counter::Passes] as f64;
    match (case.name, case.emc) {
        ("emc-hits", _) => assert!(share > 0.999, "{}: {share} of the passes hit the EMC", case.name),
        (_, 0) => assert_eq!(steady[Counter::EmcHits], 0, "{}", case.name),
        _ => {}
    }
    steady
}

/// Cycles a packet of each slice, sorted. A function of its own, so that callgrind can count it alone
/// (`--toggle-collect='*walk::time*'`).
#[inline(never)]
fn time(datapath: &Datapath, slices: usize) -> Vec<f64> {
    let mut cycles = Vec::with_capacity(slices);
    for _ in 0..slices {
        let before = datapath.totals()[Counter::Sent];
        let began = tsc::now();
        datapath.run_iterations(TURNS, 0);
        let spent = tsc::now() - began;
        cycles.push(spent as f64 / (datapath.totals()[Counter::Sent] - before) as f64);
    }
    cycles.sort_by(f64::total_cmp);
    cycles
}

/// Runs on the last core there is, where the fewest interrupts are.
fn pin() {
    let last = std::thread::available_parallelism().map_or(1, usize::from) - 1;
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(last);
    rustix::thread::sched_setaffinity(None, &cores).expect("the last core can be used");
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // As criterion has it: cargo bench says so, cargo test does not.
    let is_test = !args.iter().any(|a| a == "--bench");
    let filter = args.iter().find(|a| !a.starts_with('-'));
    pin();
    let (turns, slices) = if is_test { (1 << 10, 20) } else { (1 << 16, 4000) };
    println!(
        "cycles a packet (TSC, {:.2} GHz), generator and null port included",
        sluice_datapath::tsc_hz() as f64 / 1e9
    );
    println!("{:<18} {:>8} {:>8} {:>8} {:>8}  levels", "case", "fastest", "median", "p90", "limit");
    let mut over = Vec::new();
    let is_named = |name: &str| CASES.iter().any(|case| case.name == name);
    let is_wanted = |case: &&Case| match filter {
        Some(name) if is_named(name) => case.name == name,
        Some(part) => case.name.contains(part.as_str()),
        None => true,
    };
    for case in CASES.iter().filter(is_wanted) {
        let datapath = datapath(case);
        let steady = check(case, &datapath, turns);
        let cycles = time(&datapath, slices);
        let at = |share: f64| cycles[((cycles.len() - 1) as f64 * share) as usize];
        let passes = steady[Counter::Passes] as f64;
        let emc = 100.0 * steady[Counter::EmcHits] as f64 / passes;
        let smc = 100.0 * steady[Counter::SmcHits] as f64 / passes;
        let probes = steady[Counter::SubtableProbes] as f64 / steady[Counter::MegaflowHits].max(1) as f64;
        let all = datapath.totals();
        // With few upcalls, one page fault or one neighbour decides the mean.
        let upcall = match all[Counter::Upcalls] {
            0..1000 => String::new(),
            n => format!(", {} cycles an upcall", all[Counter::UpcallCycles] / n),
        };
        let limit = if case.limit == 0 { "-".to_owned() } else { case.limit.to_string() };
        let (fastest, median, p90) = (at(0.0), at(0.5), at(0.9));
        println!(
            "{:<18} {fastest:>8.1} {median:>8.1} {p90:>8.1} {limit:>8}  EMC {emc:.1} %, SMC {smc:.1} %, {probes:.2} probes a \
             megaflow hit{upcall}",
            case.name
        );
        if case.limit != 0 && fastest > f64::from(case.limit) {
            over.push(case.name);
        }
    }
    if !over.is_empty() && !is_test {
        println!("over the limit: {}", over.join(", "));
    }
}
