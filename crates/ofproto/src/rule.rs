//! Rules: what an OpenFlow table entry has besides its match.
//!
//! A rule is immutable except for its counters and timeouts, which are atomic: many threads credit packets while the
//! writer reads. A modification makes a new rule. Both share their counters, unless the counters are reset, so that
//! packets which are still credited to the old rule are not lost.

use crate::rule_memory::RuleCharge;
use sluice_classifier::RuleId;
use sluice_ofp::{FlowFlags, FlowRemovedReason, OfAction};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// A rule. Its table and the xlate caches of megaflows share it.
#[derive(Debug)]
pub struct Rule {
    /// Table.
    pub table: u8,
    /// Priority; above `u16::MAX` the rule is hidden from OpenFlow.
    pub priority: u32,
    /// Cookie.
    pub cookie: u64,
    /// Its actions; none: drop.
    pub actions: Arc<[OfAction]>,
    /// Its flags.
    pub flags: FlowFlags,
    /// Rules of lower importance are evicted first.
    pub importance: u16,
    /// When it was added, milliseconds.
    pub created_ms: u64,
    /// The version of the tables at which it was added; a modification keeps it.
    pub added_version: u64,
    /// The version at which it was added or last modified.
    pub version: u64,
    /// When it was last modified or learned again; the hard timeout starts here.
    pub(crate) modified_ms: AtomicU64,
    pub(crate) idle_timeout: AtomicU16,
    pub(crate) hard_timeout: AtomicU16,
    /// What it has carried since it was added.
    pub(crate) counts: Arc<RuleCounts>,
    /// Its id in the classifier, once it is inserted.
    pub(crate) id: OnceLock<RuleId>,
    /// The memory that it takes.
    pub(crate) charge: RuleCharge,
}

/// Counters of a rule.
#[derive(Debug, Default)]
pub struct RuleCounts {
    packets: AtomicU64,
    bytes: AtomicU64,
    used_ms: AtomicU64,
}

/// A reading of [`RuleCounts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleStats {
    /// Packets.
    pub packets: u64,
    /// Bytes of those packets.
    pub bytes: u64,
    /// When the last packet came, or when the rule was added.
    pub used_ms: u64,
}

impl RuleCounts {
    pub(crate) fn new(used_ms: u64) -> Self {
        RuleCounts { used_ms: used_ms.into(), ..RuleCounts::default() }
    }

    /// Adds packets. The time only increases.
    pub(crate) fn credit(&self, packets: u64, bytes: u64, used_ms: u64) {
        if packets > 0 {
            self.packets.fetch_add(packets, Relaxed);
            self.bytes.fetch_add(bytes, Relaxed);
            self.used_ms.fetch_max(used_ms, Relaxed);
        }
    }

    /// Reads the counters, one after the other.
    pub fn read(&self) -> RuleStats {
        RuleStats {
            packets: self.packets.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            used_ms: self.used_ms.load(Relaxed),
        }
    }
}

impl Rule {
    /// What it has carried.
    pub fn stats(&self) -> RuleStats {
        self.counts.read()
    }

    /// Its priority as OpenFlow has it; `None`: it is hidden from OpenFlow.
    pub fn openflow_priority(&self) -> Option<u16> {
        u16::try_from(self.priority).ok()
    }

    /// Seconds without a packet after which it expires; 0: never.
    pub fn idle_timeout(&self) -> u16 {
        self.idle_timeout.load(Relaxed)
    }

    /// Seconds after which it expires; 0: never.
    pub fn hard_timeout(&self) -> u16 {
        self.hard_timeout.load(Relaxed)
    }

    /// When it was last modified or learned again, milliseconds.
    pub fn modified_ms(&self) -> u64 {
        self.modified_ms.load(Relaxed)
    }

    /// When it expires unless packets come or it is modified, milliseconds; `None`: never.
    pub(crate) fn expiry_ms(&self) -> Option<u64> {
        let end = |since_ms: u64, timeout: u16| (timeout != 0).then(|| since_ms + u64::from(timeout) * 1000);
        let (hard, idle) =
            (end(self.modified_ms(), self.hard_timeout()), end(self.stats().used_ms, self.idle_timeout()));
        hard.into_iter().chain(idle).min()
    }

    /// The timeout that is over, if one is.
    pub fn expired(&self, now_ms: u64) -> Option<FlowRemovedReason> {
        let past = |since_ms: u64, timeout: u16| timeout != 0 && now_ms > since_ms + u64::from(timeout) * 1000;
        if past(self.modified_ms(), self.hard_timeout()) {
            return Some(FlowRemovedReason::HardTimeout);
        }
        past(self.stats().used_ms, self.idle_timeout()).then_some(FlowRemovedReason::IdleTimeout)
    }

    /// Lowers its timeouts to these; zero leaves a timeout unchanged.
    pub(crate) fn lower_timeouts(&self, idle: u16, hard: u16) {
        for (timeout, max) in [(&self.idle_timeout, idle), (&self.hard_timeout, hard)] {
            let now = timeout.load(Relaxed);
            if max != 0 && (now == 0 || now > max) {
                timeout.store(max, Relaxed);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn rule(idle: u16, hard: u16) -> Rule {
        Rule {
            table: 0,
            priority: 1,
            cookie: 0,
            actions: Arc::new([]),
            flags: FlowFlags::default(),
            importance: 0,
            created_ms: 1000,
            added_version: 1,
            version: 1,
            modified_ms: 1000.into(),
            idle_timeout: idle.into(),
            hard_timeout: hard.into(),
            counts: Arc::new(RuleCounts::new(1000)),
            id: OnceLock::new(),
            charge: RuleCharge::default(),
        }
    }

    #[test]
    fn timeouts_count_from_use_and_from_change() {
        let rule = rule(5, 10);
        assert_eq!(rule.expired(6000), None);
        assert_eq!(rule.expired(6001), Some(FlowRemovedReason::IdleTimeout));
        rule.counts.credit(1, 60, 4000);
        assert_eq!(rule.expired(6001), None);
        rule.counts.credit(1, 60, 11_000);
        assert_eq!(rule.expired(11_001), Some(FlowRemovedReason::HardTimeout));
        assert_eq!(rule.stats(), RuleStats { packets: 2, bytes: 120, used_ms: 11_000 });
    }

    #[test]
    fn timeouts_are_only_ever_lowered() {
        let rule = rule(0, 10);
        rule.lower_timeouts(3, 20);
        assert_eq!((rule.idle_timeout(), rule.hard_timeout()), (3, 10));
        rule.lower_timeouts(0, 0);
        assert_eq!((rule.idle_timeout(), rule.hard_timeout()), (3, 10));
    }
}
