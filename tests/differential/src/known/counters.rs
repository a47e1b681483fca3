//! Counters of rules that differ and are meant to.

use crate::compare::Difference;
use crate::table::LEARNED;

/// The timeouts that `fin_timeout` leaves a learned rule. Source: the generator's `fin_idle_timeout` and
/// `fin_hard_timeout`.
const LOWERED: [&str; 2] = ["idle_timeout=50", "hard_timeout=60"];

/// A rule that has been learned, and whose timeouts the end of a connection has lowered, has counted less in Open
/// vSwitch.
pub fn is_learned_anew(difference: &Difference) -> bool {
    let Difference { kind: "counter", what, peer, ours, .. } = difference else { return false };
    let Some(rule) = what.strip_prefix(&format!("table={LEARNED} ")) else { return false };
    let packets = |text: &str| text.split_once(" packets").and_then(|(n, _)| n.parse::<u64>().ok());
    rule.split(',').any(|term| LOWERED.contains(&term)) && packets(peer).is_some_and(|n| Some(n) < packets(ours))
}
