//! Which cores experiments run on: the last one has the fewest interrupts.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::LazyLock;

/// The cores that the process may use, by number, asked for before a thread is bound to one.
static ALL: LazyLock<Vec<usize>> = LazyLock::new(|| {
    let allowed = sched_getaffinity(None).unwrap_or_default();
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    if cores.is_empty() { vec![0] } else { cores }
});

/// The cores that the process may use, by number; at least one.
pub fn all() -> &'static [usize] {
    &ALL
}

/// Binds the caller's thread to a core. Where the system does not let us, it says so and goes on.
pub fn bind(core: usize) {
    bind_to(&[core]);
}

/// How many there are; at least one.
pub fn count() -> usize {
    ALL.len()
}

/// The last of them.
pub fn last() -> usize {
    ALL[ALL.len() - 1]
}

/// Where the thread that runs an experiment, and what it starts, is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// On the last core: what is measured takes turns in this thread.
    ToLast,
    /// On all but the last, which is for the PMD.
    OffLast,
    /// Nowhere: other processes are measured, which bind themselves.
    Nowhere,
}

impl Bound {
    /// Binds the caller's thread so. Where the system does not let us, it says so and goes on.
    pub fn apply(self) {
        bind_to(match self {
            Bound::ToLast => &ALL[ALL.len() - 1..],
            Bound::OffLast if ALL.len() > 1 => &ALL[..ALL.len() - 1],
            Bound::OffLast | Bound::Nowhere => &ALL,
        });
    }
}

fn bind_to(chosen: &[usize]) {
    let mut cores = CpuSet::new();
    chosen.iter().for_each(|core| cores.set(*core));
    if let Err(error) = sched_setaffinity(None, &cores) {
        eprintln!("not bound to cores {chosen:?}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mine() -> Vec<usize> {
        let cores = sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU).filter(|core| cores.is_set(*core)).collect()
    }

    #[test]
    fn cores_are_counted_before_a_thread_is_bound() {
        let (all, n) = (mine(), count());
        Bound::ToLast.apply();
        assert_eq!((mine(), count()), (vec![last()], n), "a switch in a bound thread still sees all cores");
        Bound::OffLast.apply();
        assert!(n == 1 || !mine().contains(&last()));
        Bound::Nowhere.apply();
        assert_eq!(mine(), all);
    }
}
