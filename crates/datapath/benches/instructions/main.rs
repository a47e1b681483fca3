//! Instructions a packet from receive to send, by lookup level: the same number each time (to 0.3 %), also on a busy
//! machine.
//!
//! Each case is a switch with one PMD in this thread, whose ports are memory and whose lookup levels are forced, so
//! that no choice depends on measured time. Memory ports and the PMD's loop are included. valgrind's callgrind counts
//! what runs inside [`counted`] and nothing else.
//!
//! ```text
//! cargo bench -p sluice-datapath --bench instructions                      counts every case
//! cargo bench -p sluice-datapath --bench instructions -- --record FILE     and compares with a record
//! cargo bench -p sluice-datapath --bench instructions -- --cycles          cycles a packet instead, without valgrind
//! ```
//!
//! A word that does not begin with `--` is a filter: `emc-hit`, `/32/`, `flow-setup/1/scalar`. As a test
//! (`cargo test --bench instructions`) each case runs once, and only its answers are checked. Where a case spends its
//! instructions: `valgrind --tool=callgrind --toggle-collect='*counted*' BINARY --case flow-setup/32/avx2`.

mod record;
mod scenario;
mod tunnel;
mod wire;

use record::{Counts, Record};
use scenario::{Case, Switch};
use sluice_simd::{cache_size, tsc};
use std::path::Path;
use std::process::{Command, ExitCode};

/// The second-level cache that tables are prefetched by: valgrind tells programs of one of its own.
const L2: usize = 2 << 20;

fn main() -> ExitCode {
    if !cfg!(debug_assertions) {
        cache_size::set_l2(L2);
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value_of = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1));
    let named = ["--record", "--case"].map(value_of);
    let filters = args.iter().filter(|arg| !arg.starts_with("--") && !named.contains(&Some(arg)));
    let filters: Vec<&String> = filters.collect();
    let cases = Case::all().into_iter().filter(|case| filters.iter().all(|filter| case.name().contains(*filter)));
    let [record, case] = named;
    if let Some(name) = case {
        let case = Case::all().into_iter().find(|case| case.name() == *name).expect("a case of that name");
        case.switch().round(counted);
        return ExitCode::SUCCESS;
    }
    // As criterion has it: cargo bench says so, cargo test does not.
    if !args.iter().any(|arg| arg == "--bench") {
        runnable(cases).for_each(|case| case.switch().round(Switch::forward));
        return ExitCode::SUCCESS;
    }
    if args.iter().any(|arg| arg == "--cycles") {
        runnable(cases).for_each(|case| println!("{:<28} {:>9.2}", case.name(), cycles(case)));
        return ExitCode::SUCCESS;
    }
    let counts: Counts = runnable(cases).map(|case| (case.name(), instructions(case))).collect();
    match record {
        Some(file) => Record::read(Path::new(file)).compare(&counts),
        None => {
            print!("{}", record::table(&counts));
            ExitCode::SUCCESS
        }
    }
}

/// The cases that this machine can run; it says which it cannot.
fn runnable(cases: impl Iterator<Item = Case>) -> impl Iterator<Item = Case> {
    cases.filter(|case| match case.is_missing() {
        Some(why) => {
            println!("SKIPPED {}: {why}", case.name());
            false
        }
        None => true,
    })
}

/// What callgrind counts.
#[inline(never)]
fn counted(switch: &Switch) {
    switch.forward();
}

/// Instructions a packet, by this program again under callgrind.
fn instructions(case: Case) -> f64 {
    let program = std::env::current_exe().expect("the path of this program");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*counted*"])
        .arg(program)
        .args(["--case", &case.name()])
        .output()
        .unwrap_or_else(|error| panic!("valgrind: {error}; Debian's package valgrind has it"));
    let said = String::from_utf8_lossy(&output.stderr);
    let total = said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse::<u64>().ok());
    match total {
        Some(total) if output.status.success() => total as f64 / case.scenario.packets as f64,
        _ => panic!("{} under callgrind: {}\n{said}", case.name(), output.status),
    }
}

/// Cycles a packet: the median of many rounds.
fn cycles(case: Case) -> f64 {
    const PACKETS: usize = 1 << 20;
    pin();
    let mut switch = case.switch();
    let rounds = PACKETS / case.scenario.packets;
    let mut each: Vec<u64> = (0..rounds)
        .map(|_| {
            switch.round(|switch| {
                let began = tsc::now();
                switch.forward();
                tsc::now() - began
            })
        })
        .collect();
    each.sort_unstable();
    each[each.len() / 2] as f64 / case.scenario.packets as f64
}

/// Runs on the last core there is, where the fewest interrupts are.
fn pin() {
    let last = std::thread::available_parallelism().map_or(1, usize::from) - 1;
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(last);
    rustix::thread::sched_setaffinity(None, &cores).expect("the last core can be used");
}
