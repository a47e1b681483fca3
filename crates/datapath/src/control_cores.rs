//! The cores of control threads: those that no PMD polls on, if the process may use others.
//!
//! A PMD is always busy. A control thread that wakes on its core takes the core from it, for up to some milliseconds, while
//! packets wait. Open vSwitch leaves it to the operator to keep them apart.

use crate::numa;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use std::sync::OnceLock;

/// What names of PMDs' threads begin with.
pub(crate) const PMD_NAME: &str = "pmd-c";

/// Threads that begin while others are moved may be missed, and have what their parent had.
const ROUNDS: usize = 2;

/// The cores that the process may use, as the first who asked found it. Later the asking thread may be bound to fewer.
pub(crate) fn allowed() -> &'static CpuSet {
    static ALLOWED: OnceLock<CpuSet> = OnceLock::new();
    ALLOWED.get_or_init(|| sched_getaffinity(None).unwrap_or_default())
}

/// Keeps all threads but PMDs off these cores, and the threads that they will start. If no core would be left, they may
/// use all that the process may.
pub(crate) fn keep_off(pmd_cores: &[usize]) {
    let cores = without(allowed(), pmd_cores);
    if numa::is_dummy() || cores.count() == 0 {
        return;
    }
    for _ in 0..ROUNDS {
        for thread in control_threads() {
            // A thread that has ended meanwhile needs no core.
            let _ = sched_setaffinity(Some(thread), &cores);
        }
    }
}

/// The cores of control threads.
fn without(allowed: &CpuSet, pmd_cores: &[usize]) -> CpuSet {
    let mut cores = *allowed;
    pmd_cores.iter().filter(|core| **core < CpuSet::MAX_CPU).for_each(|core| cores.unset(*core));
    if cores.count() == 0 { *allowed } else { cores }
}

/// The process's threads that are no PMDs.
fn control_threads() -> impl Iterator<Item = Pid> {
    std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten().filter_map(|task| {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let thread = task.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)?;
        (!name.starts_with(PMD_NAME)).then_some(thread)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_for_control_threads_or_all_is() {
        let set = |cores: &[usize]| {
            let mut set = CpuSet::new();
            cores.iter().for_each(|core| set.set(*core));
            set
        };
        assert_eq!(without(&set(&[0, 1, 2, 3]), &[1, 3]), set(&[0, 2]));
        assert_eq!(without(&set(&[4, 5]), &[5, 5, 1_000_000]), set(&[4]));
        assert_eq!(without(&set(&[4, 5]), &[4, 5]), set(&[4, 5]));
        assert_eq!(without(&set(&[4, 5]), &[]), set(&[4, 5]));
    }
}
