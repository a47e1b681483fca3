//! The tracker, and what control threads ask of it.

mod commit;
mod fast_path;
mod replay;
mod slow_path;

pub use fast_path::LookupRef;
pub use replay::{ConnRef, CtMetadata, Diverged, L4Bytes};
pub(crate) use slow_path::CtContext;

use crate::connection::Connection;
use crate::dump::{ConnEntry, Filter};
use crate::expectation::Expectations;
use crate::limits::{Limits, ZoneLimit};
use crate::table::{ConnTable, Swept};
use crate::timeouts::{TimeoutPolicies, TimeoutPolicy};
use sluice_simd::HashKey;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The most connections unless told otherwise. Source: OVS lib/conntrack.c, DEFAULT_N_CONN_LIMIT.
const CONNECTIONS_MAX: u32 = 3_000_000;
/// Shards unless told otherwise: enough that PMDs on a large machine seldom meet in one.
const SHARDS: usize = 256;

/// How a tracker is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// The secret under which tuples are hashed.
    pub hash_key: HashKey,
    /// Shards, rounded up to a power of two.
    pub shards: usize,
    /// The most connections; can be changed later.
    pub connections_max: u32,
}

impl Config {
    /// The usual sizes.
    pub fn new(hash_key: HashKey) -> Self {
        Config { hash_key, shards: SHARDS, connections_max: CONNECTIONS_MAX }
    }
}

/// Every connection of the switch. Shared by all PMDs and control threads.
#[derive(Debug)]
pub struct Conntrack {
    table: ConnTable,
    limits: Limits,
    timeouts: TimeoutPolicies,
    expectations: Expectations,
    /// Whether TCP sequence numbers are judged.
    check_seq: AtomicBool,
}

impl Conntrack {
    /// Without any connection.
    pub fn new(config: Config) -> Self {
        Conntrack {
            table: ConnTable::new(config.shards.clamp(1, 1 << 16), config.hash_key),
            limits: Limits::new(config.connections_max),
            timeouts: TimeoutPolicies::default(),
            expectations: Expectations::default(),
            check_seq: AtomicBool::new(true),
        }
    }

    /// Takes out connections that have ended, looking at about `budget` of those that are due. To be called some
    /// times a second by one control thread; again at once while the answer is not complete.
    pub fn expire(&self, now_ms: u64, budget: usize) -> Swept {
        self.table.sweep(now_ms, budget, |connection| self.forget(connection))
    }

    /// What is left to do after a connection was taken out of the table.
    fn forget(&self, connection: &Arc<Connection>) {
        self.limits.release(&connection.admission);
        if connection.helper.is_some() {
            self.expectations.remove_of(&connection.original);
        }
    }

    /// Removes the connections that a filter names; how many.
    pub fn flush(&self, filter: &Filter) -> usize {
        let mut removed = 0;
        let keep = |connection: &Connection| filter.names(&connection.original, &connection.reply);
        self.table.for_each(keep, |connection| {
            if self.table.remove(connection) {
                removed += 1;
                self.forget(connection);
            }
        });
        removed
    }

    /// Shows `each` the live connections that a filter names. In no order; those that come and go meanwhile may be
    /// missed.
    pub fn dump(&self, filter: &Filter, now_ms: u64, mut each: impl FnMut(&ConnEntry)) {
        let keep = |connection: &Connection| {
            !connection.is_over(now_ms) && filter.names(&connection.original, &connection.reply)
        };
        self.table.for_each(keep, |connection| each(&ConnEntry::of(connection, now_ms)));
    }

    /// How many connections there are, those not counted that have been taken out (`ct-get-nconns`).
    pub fn connections(&self) -> u32 {
        self.limits.all().count
    }

    /// The most there may be (`ct-get-maxconns`).
    pub fn connections_max(&self) -> u32 {
        self.limits.all().limit
    }

    /// Sets the most there may be (`ct-set-maxconns`). If there are more, they stay.
    pub fn set_connections_max(&self, max: u32) {
        self.limits.set_all(max);
    }

    /// Sets a zone's limit, or with `None` that of all zones without one (`ct-set-limits`).
    pub fn set_zone_limit(&self, zone: Option<u16>, limit: u32) {
        self.limits.set(zone, limit);
    }

    /// Removes a zone's limit; whether it had one (`ct-del-limits`).
    pub fn delete_zone_limit(&self, zone: u16) -> bool {
        self.limits.delete(zone)
    }

    /// The limit a zone is under, its own or the default; `None` if there is neither.
    pub fn zone_limit(&self, zone: u16) -> Option<ZoneLimit> {
        self.limits.of_zone(zone)
    }

    /// The default limit, if there is one, then those of zones in order (`ct-get-limits`).
    pub fn zone_limits(&self) -> Vec<ZoneLimit> {
        self.limits.list()
    }

    /// Gives a zone timeouts of its own; what the policy does not name is at its default. Connections made under an
    /// earlier policy of the zone follow with their next packet.
    pub fn set_timeouts(&self, zone: u16, policy: &TimeoutPolicy) {
        self.timeouts.set(zone, policy);
    }

    /// Puts the defaults in place of a zone's timeouts; whether it had any.
    pub fn delete_timeouts(&self, zone: u16) -> bool {
        self.timeouts.delete(zone)
    }

    /// Every zone that has timeouts of its own, with them, in order.
    pub fn timeouts(&self) -> Vec<(u16, TimeoutPolicy)> {
        self.timeouts.list()
    }

    /// How many live connections each shard holds, of those whose first packet's tuple is in it (`ct-bkts`).
    pub fn connections_by_shard(&self, now_ms: u64) -> Vec<usize> {
        self.table.count_by_shard(now_ms)
    }

    /// Whether TCP sequence numbers are judged (`ct-get-tcp-seq-chk`).
    pub fn checks_tcp_seq(&self) -> bool {
        self.check_seq.load(Ordering::Relaxed)
    }

    /// Turns that on or off (`ct-enable-tcp-seq-chk`, `ct-disable-tcp-seq-chk`).
    pub fn set_check_tcp_seq(&self, check: bool) {
        self.check_seq.store(check, Ordering::Relaxed);
    }
}
