//! How long a connection lives without a packet, by state and zone.

use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// A state that has a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Timeout {
    /// TCP after the first packet (`tcp_syn_sent`).
    TcpFirstPacket,
    /// TCP until both ends are established (`tcp_syn_recv`).
    TcpOpening,
    /// TCP established (`tcp_established`).
    TcpEstablished,
    /// TCP after one end's FIN (`tcp_fin_wait`).
    TcpClosing,
    /// TCP after both (`tcp_time_wait`).
    TcpFinWait,
    /// TCP after both were acknowledged, or a reset (`tcp_close`).
    TcpClosed,
    /// UDP and others after the first packet (`udp_first`).
    OtherFirst,
    /// UDP and others after several packets in one direction (`udp_single`).
    OtherMultiple,
    /// UDP and others after packets in both directions (`udp_multiple`).
    OtherBidir,
    /// ICMP without a reply (`icmp_first`).
    IcmpFirst,
    /// ICMP with a reply (`icmp_reply`).
    IcmpReply,
}

/// Every timeout in the order of [`Timeout`]: its name in the `CT_Timeout_Policy` table, and its default in seconds.
/// Source: OVS lib/conntrack-tp.c, ct_dpif_netdev_tp_def.
const DEFAULTS: [(Timeout, &str, u32); 11] = [
    (Timeout::TcpFirstPacket, "tcp_syn_sent", 30),
    (Timeout::TcpOpening, "tcp_syn_recv", 30),
    (Timeout::TcpEstablished, "tcp_established", 24 * 60 * 60),
    (Timeout::TcpClosing, "tcp_fin_wait", 15 * 60),
    (Timeout::TcpFinWait, "tcp_time_wait", 45),
    (Timeout::TcpClosed, "tcp_close", 30),
    (Timeout::OtherFirst, "udp_first", 60),
    (Timeout::OtherMultiple, "udp_single", 60),
    (Timeout::OtherBidir, "udp_multiple", 30),
    (Timeout::IcmpFirst, "icmp_first", 60),
    (Timeout::IcmpReply, "icmp_reply", 30),
];

const _: () = {
    let mut i = 0;
    while i < DEFAULTS.len() {
        assert!(DEFAULTS[i].0 as usize == i, "DEFAULTS is not in the order of Timeout");
        i += 1;
    }
};

impl Timeout {
    /// Every one.
    pub const ALL: [Timeout; DEFAULTS.len()] = {
        let mut all = [Timeout::TcpFirstPacket; DEFAULTS.len()];
        let mut i = 0;
        while i < DEFAULTS.len() {
            all[i] = DEFAULTS[i].0;
            i += 1;
        }
        all
    };

    /// The timeout of that name in the `CT_Timeout_Policy` table. That table has further names, which mean nothing
    /// here.
    pub fn named(name: &str) -> Option<Timeout> {
        DEFAULTS.iter().find(|(_, n, _)| n.eq_ignore_ascii_case(name)).map(|(timeout, ..)| *timeout)
    }

    /// Its name in the `CT_Timeout_Policy` table.
    pub fn name(self) -> &'static str {
        DEFAULTS[self as usize].1
    }

    /// Its default, seconds.
    pub fn default_s(self) -> u32 {
        DEFAULTS[self as usize].2
    }
}

/// The timeouts in which a zone differs from the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeoutPolicy {
    /// Timeouts and their seconds.
    pub seconds: Vec<(Timeout, u32)>,
}

/// The timeouts of a zone. Connections share it, so that a change of the policy applies from their next packet on,
/// without looking up the policy. Every tracked packet reads it, so it does not share a cache line with its reference count, which any
/// PMD writes when a connection begins or ends.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct ZoneTimeouts([AtomicU32; DEFAULTS.len()]);

const _: () = assert!(align_of::<ZoneTimeouts>() == 128);

impl ZoneTimeouts {
    fn new() -> Self {
        ZoneTimeouts(DEFAULTS.map(|(.., seconds)| AtomicU32::new(seconds)))
    }

    fn set(&self, policy: &TimeoutPolicy) {
        for (timeout, _, seconds) in DEFAULTS {
            let own = policy.seconds.iter().rev().find(|(t, _)| *t == timeout);
            // The numbers are independent. A packet may use an old one, as if it had come a moment earlier.
            self.0[timeout as usize].store(own.map_or(seconds, |(_, own)| *own), Ordering::Relaxed);
        }
    }

    /// Milliseconds.
    pub fn ms(&self, timeout: Timeout) -> u64 {
        u64::from(self.0[timeout as usize].load(Ordering::Relaxed)) * 1000
    }
}

/// The zones' policies, and the timeouts of all other zones.
#[derive(Debug)]
pub(crate) struct TimeoutPolicies {
    default: Arc<ZoneTimeouts>,
    /// The number of zones with a policy. Most switches have none, and then the lock is not taken.
    zones: AtomicUsize,
    by_zone: RwLock<BTreeMap<u16, (TimeoutPolicy, Arc<ZoneTimeouts>)>>,
}

impl Default for TimeoutPolicies {
    fn default() -> Self {
        let default = Arc::new(ZoneTimeouts::new());
        TimeoutPolicies { default, zones: AtomicUsize::new(0), by_zone: RwLock::default() }
    }
}

impl TimeoutPolicies {
    /// The timeouts of a zone.
    pub fn in_force(&self, zone: u16) -> Arc<ZoneTimeouts> {
        if self.zones.load(Ordering::Relaxed) != 0
            && let Some((_, own)) = self.by_zone.read().get(&zone)
        {
            return own.clone();
        }
        self.default.clone()
    }

    /// Gives a zone a policy. Timeouts that it does not name have their default.
    pub fn set(&self, zone: u16, policy: &TimeoutPolicy) {
        let mut by_zone = self.by_zone.write();
        let (kept, own) = by_zone.entry(zone).or_insert_with(|| (policy.clone(), Arc::new(ZoneTimeouts::new())));
        own.set(policy);
        kept.clone_from(policy);
        self.zones.store(by_zone.len(), Ordering::Relaxed);
    }

    /// Removes a zone's policy. Returns whether it had one.
    pub fn delete(&self, zone: u16) -> bool {
        let mut by_zone = self.by_zone.write();
        let removed = by_zone.remove(&zone);
        // Connections of the zone still use it.
        if let Some((_, own)) = &removed {
            own.set(&TimeoutPolicy::default());
        }
        self.zones.store(by_zone.len(), Ordering::Relaxed);
        removed.is_some()
    }

    /// Every zone with a policy, in order.
    pub fn list(&self) -> Vec<(u16, TimeoutPolicy)> {
        let by_zone = self.by_zone.read();
        by_zone.iter().map(|(zone, (policy, _))| (*zone, policy.clone())).collect()
    }
}
