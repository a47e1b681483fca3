//! The assignment of receive queues to PMDs by their load.

/// The PMD for each queue, by the queues' cycles. The dearest queues are assigned first, back and forth, so that the
/// PMD with the dearest queue of one round gets the cheapest of the next. Source: OVS, pmd-rxq-assign=cycles.
pub(crate) fn deal(cycles: &[u64], pmds: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..cycles.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(cycles[i]));
    let mut pmd_of = vec![0; cycles.len()];
    for (place, &queue) in order.iter().enumerate() {
        let (round, at) = (place / pmds, place % pmds);
        pmd_of[queue] = if round % 2 == 0 { at } else { pmds - 1 - at };
    }
    pmd_of
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
