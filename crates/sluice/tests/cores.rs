//! Which cores threads run on.

mod common;

use common::{Daemon, PATIENCE, bridge};
use std::fs;
use std::time::{Duration, Instant};

/// The cores of threads by what their status says: those of PMDs, and those of others.
fn cores(pid: u32) -> (Vec<String>, Vec<String>) {
    let (mut pmds, mut others) = (Vec::new(), Vec::new());
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
        let Ok(status) = fs::read_to_string(task.path().join("status")) else { continue };
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
        let threads = if field("Name:").starts_with("pmd-c") { &mut pmds } else { &mut others };
        threads.push(field("Cpus_allowed_list:").to_owned());
    }
    [&mut pmds, &mut others].into_iter().for_each(|cores| {
        cores.sort();
        cores.dedup();
    });
    (pmds, others)
}

/// The cores of a list such as `0,2-3`.
fn numbers(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse::<u32>().unwrap()..=last.parse().unwrap()
    };
    list.split(',').flat_map(range).collect()
}

#[test]
fn control_threads_keep_off_the_cores_of_pmds() {
    let allowed = cores(std::process::id()).1.concat();
    if !numbers(&allowed).starts_with(&[0, 1]) {
        return eprintln!("skipped: of the first two cores this process may use {allowed}");
    }
    let on = |core: &str| format!("[switch]\npmd-cores = [{core}]\n") + &bridge("br0", "f");
    let daemon = Daemon::start_with(&on("1"), &[("f", "")]);
    let (pmds, others) = cores(daemon.pid());
    assert_eq!(pmds, ["1"]);
    assert!(others.len() == 1 && !numbers(&others[0]).contains(&1), "{others:?}");
    // The PMD moves, and the others make way.
    daemon.configure(&on("0"));
    daemon.ctl(&["sluice/reload"]);
    // A thread that has ended may be listed for a moment longer.
    let deadline = Instant::now() + PATIENCE;
    while cores(daemon.pid()).0 != ["0"] && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let (pmds, others) = cores(daemon.pid());
    assert_eq!(pmds, ["0"]);
    assert!(others.len() == 1 && !numbers(&others[0]).contains(&0), "{others:?}");
}

#[test]
fn a_core_the_machine_lacks_is_a_warning() {
    let daemon = Daemon::start_with(&("[switch]\npmd-cores = [999]\n".to_owned() + &bridge("br0", "f")), &[("f", "")]);
    assert!(daemon.log().contains("|WARN|PMD 0 is not bound to its core: "), "{}", daemon.log());
    assert!(daemon.ctl(&["dpif-netdev/pmd-perf-show"]).contains("core_id 999:"));
}
