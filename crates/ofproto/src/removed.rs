//! Removed rules, for controllers that asked to be told (`send_flow_rem`), and counters of removals by reason.

use crate::bridge_config::BridgeId;
use crate::rule::{Rule, RuleStats};
use sluice_fate::Limit;
use sluice_flow::Match;
use sluice_ofp::FlowRemovedReason;
use std::collections::VecDeque;
use std::sync::Arc;

/// Removed rules that wait for controllers. When nobody takes them, the oldest are lost.
pub(crate) const WAITING_MAX: usize = 4096;

/// A removed rule.
#[derive(Clone, Debug)]
pub struct RuleRemoved {
    /// Its bridge.
    pub bridge: BridgeId,
    /// Its match.
    pub matches: Match,
    /// Everything else of it.
    pub rule: Arc<Rule>,
    /// Why it was removed.
    pub reason: FlowRemovedReason,
    /// Its counters at the removal.
    pub stats: RuleStats,
    /// When it was removed, milliseconds.
    pub when_ms: u64,
}

/// Removed rules, counted by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovalCounts {
    /// Idle timeout.
    pub idle_timeout: u64,
    /// Hard timeout.
    pub hard_timeout: u64,
    /// Deleted by a request, or together with the rule that had learned them.
    pub deleted: u64,
    /// Evicted.
    pub evicted: u64,
    /// Removed rules that controllers were not told of, because nobody took them.
    pub lost: u64,
}

/// The removed rules that wait, and the counters.
#[derive(Debug, Default)]
pub(crate) struct RemovedRules {
    waiting: VecDeque<RuleRemoved>,
    counts: RemovalCounts,
}

impl RemovedRules {
    pub fn note(
        &mut self,
        bridge: BridgeId,
        matches: Option<Match>,
        rule: &Arc<Rule>,
        reason: FlowRemovedReason,
        when_ms: u64,
    ) {
        let count = match reason {
            FlowRemovedReason::IdleTimeout => &mut self.counts.idle_timeout,
            FlowRemovedReason::HardTimeout => &mut self.counts.hard_timeout,
            FlowRemovedReason::Delete | FlowRemovedReason::GroupDelete | FlowRemovedReason::MeterDelete => {
                &mut self.counts.deleted
            }
            FlowRemovedReason::Eviction => &mut self.counts.evicted,
        };
        *count += 1;
        let Some(matches) = matches else { return };
        if self.waiting.len() == WAITING_MAX {
            self.waiting.pop_front();
            self.counts.lost += 1;
            Limit::RemovedRules.hit();
        }
        let (rule, stats) = (Arc::clone(rule), rule.stats());
        self.waiting.push_back(RuleRemoved { bridge, matches, rule, reason, stats, when_ms });
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub fn take(&mut self) -> Vec<RuleRemoved> {
        self.waiting.drain(..).collect()
    }

    pub fn counts(&self) -> RemovalCounts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_nobody_hears_of_are_bounded_and_the_oldest_go() {
        let (mut removed, before) = (RemovedRules::default(), Limit::RemovedRules.count());
        let rule = Arc::new(crate::rule::tests::rule(1, 0));
        for when_ms in 0..WAITING_MAX as u64 + 9 {
            removed.note(BridgeId(0), Some(Match::ANY), &rule, FlowRemovedReason::IdleTimeout, when_ms);
        }
        assert_eq!((removed.counts().lost, removed.counts().idle_timeout), (9, WAITING_MAX as u64 + 9));
        assert_eq!(Limit::RemovedRules.count(), before + 9);
        let told = removed.take();
        assert_eq!((told.len(), told[0].when_ms), (WAITING_MAX, 9));
    }
}
