//! News of rules that went, for controllers that asked (`send_flow_rem`), and how many went for what reason.

use crate::bridge::BridgeId;
use crate::rule::{Rule, RuleStats};
use sluice_flow::Match;
use sluice_ofp::FlowRemovedReason;
use std::collections::VecDeque;
use std::sync::Arc;

/// News kept for controllers; the oldest are lost when nobody takes them.
const MAX_NEWS: usize = 4096;

/// A rule that went.
#[derive(Clone, Debug)]
pub struct RuleRemoved {
    /// Its bridge.
    pub bridge: BridgeId,
    /// What it matched.
    pub matches: Match,
    /// The rest of it.
    pub rule: Arc<Rule>,
    /// Why it went.
    pub reason: FlowRemovedReason,
    /// What it had carried when it went.
    pub stats: RuleStats,
    /// When it went, milliseconds.
    pub when_ms: u64,
}

/// How many rules went, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovalCounts {
    /// Not used for their idle timeout.
    pub idle_timeout: u64,
    /// Older than their hard timeout.
    pub hard_timeout: u64,
    /// Deleted by a command, or with what had learned them.
    pub deleted: u64,
    /// Evicted.
    pub evicted: u64,
    /// News that were lost because nobody took them.
    pub lost_news: u64,
}

/// What the changer of rules notes about those that go.
#[derive(Debug, Default)]
pub(crate) struct RemovedRules {
    news: VecDeque<RuleRemoved>,
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
        if self.news.len() == MAX_NEWS {
            self.news.pop_front();
            self.counts.lost_news += 1;
        }
        let (rule, stats) = (Arc::clone(rule), rule.stats());
        self.news.push_back(RuleRemoved { bridge, matches, rule, reason, stats, when_ms });
    }

    pub fn take(&mut self) -> Vec<RuleRemoved> {
        self.news.drain(..).collect()
    }

    pub fn counts(&self) -> RemovalCounts {
        self.counts
    }
}
