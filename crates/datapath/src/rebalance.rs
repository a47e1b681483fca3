//! The assignment of receive queues to PMDs by their load.

use crate::Settings;
use crate::command::PmdCommand;
use crate::load::RxqLoad;
use crate::pmd_shared::PmdShared;
use crate::tuner::Tuner;
use sluice_simd::tsc;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// The longest a PMD takes to hand a queue over, unless its thread has ended.
const HANDOVER_MAX: Duration = Duration::from_secs(2);

/// The PMD for each queue, by the queues' cycles. The dearest queues are assigned first, back and forth, so that the
/// PMD with the dearest queue of one round gets the cheapest of the next. Source: OVS, pmd-rxq-assign=cycles.
fn deal(cycles: &[u64], pmds: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..cycles.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(cycles[i]));
    let mut pmd_of = vec![0; cycles.len()];
    for (place, &queue) in order.iter().enumerate() {
        let (round, at) = (place / pmds, place % pmds);
        pmd_of[queue] = if round % 2 == 0 { at } else { pmds - 1 - at };
    }
    pmd_of
}

/// Assigns the queues that are not pinned again, and moves those whose PMD changes. Returns how many moved. `deliver`
/// lets resting PMDs run their commands.
pub(crate) fn rebalance(pmds: &[Arc<PmdShared>], settings: &Settings, mut deliver: impl FnMut()) -> usize {
    let all: Vec<(usize, Arc<RxqLoad>)> = pmds
        .iter()
        .enumerate()
        .flat_map(|(i, pmd)| pmd.rxqs().iter().filter(|q| !q.pinned).map(|q| (i, q.clone())).collect::<Vec<_>>())
        .collect();
    let cycles: Vec<u64> = all.iter().map(|(_, rxq)| rxq.load.sum()).collect();
    let mut moved = 0;
    for ((from, rxq), to) in all.iter().zip(deal(&cycles, pmds.len())) {
        if *from == to {
            continue;
        }
        let (into, taken) = mpsc::channel();
        pmds[*from].mailbox.post(PmdCommand::TakeRxq { port: rxq.port, queue: rxq.queue, into });
        deliver();
        // Every packet the queue gave has been sent when the PMD answers, so flows keep their order.
        let queue = match taken.recv_timeout(HANDOVER_MAX) {
            Ok(queue) => queue,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => continue,
        };
        pmds[*from].rxqs().retain(|q| !Arc::ptr_eq(q, rxq));
        pmds[to].rxqs().push(rxq.clone());
        // Its new PMD has other caches, so earlier measurements are void.
        let tuner = Tuner::new(settings, tsc::now());
        pmds[to].mailbox.post(PmdCommand::AddRxq { queue, load: rxq.clone(), tuner });
        deliver();
        moved += 1;
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dear_and_cheap_queues_meet() {
        assert_eq!(deal(&[10, 40, 20, 30], 2), [0, 0, 1, 1]);
        assert_eq!(deal(&[5, 5, 5], 2), [0, 1, 1]);
        assert_eq!(deal(&[7], 3), [0]);
        assert!(deal(&[], 3).is_empty());
    }
}
