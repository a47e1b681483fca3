//! Rules: what an OpenFlow table entry carries besides its match.
//!
//! A rule never changes, but for its counters and timeouts, which are atomics: readers credit while the writer looks.
//! A modification makes a new rule; both share the counters unless these start again, so that packets still credited
//! to the old one are not lost.

use sluice_classifier::RuleId;
use sluice_ofp::{FlowFlags, FlowRemovedReason, OfAction};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// A rule, as shared by its table and the xlate caches of megaflows that follow it.
#[derive(Debug)]
pub struct Rule {
    /// Table.
    pub table: u8,
    /// Priority.
    pub priority: u16,
    /// Cookie.
    pub cookie: u64,
    /// What it does; empty: drop.
    pub actions: Arc<[OfAction]>,
    /// How to treat it.
    pub flags: FlowFlags,
    /// Which rules to evict first.
    pub importance: u16,
    /// When it was added, milliseconds.
    pub created_ms: u64,
    /// The version of the tables that it came with; a modification keeps it.
    pub added_version: u64,
    /// The version that it came with in this form.
    pub version: u64,
    /// When it was last changed or learned anew: what the hard timeout counts from.
    pub(crate) modified_ms: AtomicU64,
    pub(crate) idle_timeout: AtomicU16,
    pub(crate) hard_timeout: AtomicU16,
    /// Counted since it was added.
    pub(crate) counts: Arc<RuleCounts>,
    /// Its name in the classifier, once it is in.
    pub(crate) id: OnceLock<RuleId>,
}

/// What a rule has carried.
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
    /// When the last one came, or when the rule was added.
    pub used_ms: u64,
}

impl RuleCounts {
    pub(crate) fn new(used_ms: u64) -> Self {
        RuleCounts { used_ms: used_ms.into(), ..RuleCounts::default() }
    }

    /// Adds packets; the time moves forwards only.
    pub(crate) fn credit(&self, packets: u64, bytes: u64, used_ms: u64) {
        if packets > 0 {
            self.packets.fetch_add(packets, Relaxed);
            self.bytes.fetch_add(bytes, Relaxed);
            self.used_ms.fetch_max(used_ms, Relaxed);
        }
    }

    /// What it says now. The three are read one after the other.
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

    /// Seconds without a packet after which it goes; 0: never.
    pub fn idle_timeout(&self) -> u16 {
        self.idle_timeout.load(Relaxed)
    }

    /// Seconds after which it goes; 0: never.
    pub fn hard_timeout(&self) -> u16 {
        self.hard_timeout.load(Relaxed)
    }

    /// When it was last changed or learned anew, milliseconds.
    pub fn modified_ms(&self) -> u64 {
        self.modified_ms.load(Relaxed)
    }

    /// When it goes unless packets come or it is changed, milliseconds; `None`: never.
    pub(crate) fn expiry_ms(&self) -> Option<u64> {
        let end = |since_ms: u64, timeout: u16| (timeout != 0).then(|| since_ms + u64::from(timeout) * 1000);
        let (hard, idle) =
            (end(self.modified_ms(), self.hard_timeout()), end(self.stats().used_ms, self.idle_timeout()));
        hard.into_iter().chain(idle).min()
    }

    /// Why it must go now, if it must. A timeout of zero never does.
    pub fn expired(&self, now_ms: u64) -> Option<FlowRemovedReason> {
        let past = |since_ms: u64, timeout: u16| timeout != 0 && now_ms > since_ms + u64::from(timeout) * 1000;
        if past(self.modified_ms(), self.hard_timeout()) {
            return Some(FlowRemovedReason::HardTimeout);
        }
        past(self.stats().used_ms, self.idle_timeout()).then_some(FlowRemovedReason::IdleTimeout)
    }

    /// Lowers its timeouts to these; zero leaves one as it is.
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
mod tests {
    use super::*;

    fn rule(idle: u16, hard: u16) -> Rule {
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
