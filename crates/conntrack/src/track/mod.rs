//! The tracker, and its control interface.

mod commit;
mod fast_path;
mod replay;
mod slow_path;

pub use fast_path::LookupRef;
pub use replay::{ConnRef, CtMetadata, Diverged, HeadersAt};
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

/// The default limit on connections. Source: OVS lib/conntrack.c, DEFAULT_N_CONN_LIMIT.
const CONNECTIONS_MAX: u32 = 3_000_000;
/// The default number of shards: enough that PMDs on a large machine seldom contend for one.
pub const SHARDS: usize = 256;

/// The configuration of a tracker.
#[derive(Clone, Debug)]
pub struct Config {
    /// The secret under which tuples are hashed.
    pub hash_key: HashKey,
    /// Shards, rounded up to a power of two.
    pub shards: usize,
    /// The limit on connections, which can be changed later.
    pub connections_max: u32,
}

impl Config {
    /// The default sizes.
    pub fn new(hash_key: HashKey) -> Self {
        Config { hash_key, shards: SHARDS, connections_max: CONNECTIONS_MAX }
    }
}

/// All connections of the switch, shared by all PMDs and control threads.
#[derive(Debug)]
pub struct Conntrack {
    table: ConnTable,
    limits: Limits,
    timeouts: TimeoutPolicies,
    expectations: Expectations,
    /// Whether TCP sequence numbers are checked.
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

    /// Expected data connections, and how many there may be.
    pub fn expectation_usage(&self) -> (usize, usize) {
        self.expectations.usage()
    }

    /// Removes expired connections, examining about `budget` of those that are due. One control thread calls it several
    /// times a second, and again at once while the result is not complete.
    pub fn expire(&self, now_ms: u64, budget: usize) -> Swept {
        self.table.sweep(now_ms, budget, |connection| self.forget(connection))
    }

    /// Cleans up after a connection was removed from the table.
    fn forget(&self, connection: &Arc<Connection>) {
        self.limits.release(&connection.admission);
        if connection.helper.is_some() {
            self.expectations.remove_of(&connection.original);
        }
    }

    /// Removes the connections that a filter selects. Returns how many.
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

    /// Calls `each` for the live connections that a filter selects, in no order. Connections that appear or disappear
    /// meanwhile may be missed.
    pub fn dump(&self, filter: &Filter, now_ms: u64, mut each: impl FnMut(&ConnEntry)) {
        let keep = |connection: &Connection| {
            !connection.is_over(now_ms) && filter.names(&connection.original, &connection.reply)
        };
        self.table.for_each(keep, |connection| each(&ConnEntry::of(connection, now_ms)));
    }

    /// Into how many parts [`Conntrack::dump_part`] divides the connections.
    pub fn parts(&self) -> usize {
        self.table.shards()
    }

    /// The connections of one part that `filter` selects. No lock is held in between.
    pub fn dump_part(&self, part: usize, filter: &Filter, now_ms: u64) -> Vec<ConnEntry> {
        let keep = |connection: &Connection| {
            !connection.is_over(now_ms) && filter.names(&connection.original, &connection.reply)
        };
        self.table.of_shard(part, keep).iter().map(|connection| ConnEntry::of(connection, now_ms)).collect()
    }

    /// The number of connections, without those that were removed (`ct-get-nconns`).
    pub fn connections(&self) -> u32 {
        self.limits.all().count
    }

    /// The limit on connections (`ct-get-maxconns`).
    pub fn connections_max(&self) -> u32 {
        self.limits.all().limit
    }

    /// Sets the limit on connections (`ct-set-maxconns`). Connections beyond it stay.
    pub fn set_connections_max(&self, max: u32) {
        self.limits.set_all(max);
    }

    /// Sets a zone's limit, or with `None` the default limit (`ct-set-limits`).
    pub fn set_zone_limit(&self, zone: Option<u16>, limit: u32) {
        self.limits.set(zone, limit);
    }

    /// Removes a zone's limit (`ct-del-limits`). Returns whether it had one.
    pub fn delete_zone_limit(&self, zone: u16) -> bool {
        self.limits.delete(zone)
    }

    /// The limit that applies to a zone: its own or the default; `None` if there is neither.
    pub fn zone_limit(&self, zone: u16) -> Option<ZoneLimit> {
        self.limits.of_zone(zone)
    }

    /// The default limit, if there is one, then those of zones in order (`ct-get-limits`).
    pub fn zone_limits(&self) -> Vec<ZoneLimit> {
        self.limits.list()
    }

    /// Gives a zone its own timeouts; those that the policy does not name have their default. Connections made under an
    /// earlier policy of the zone follow with their next packet.
    pub fn set_timeouts(&self, zone: u16, policy: &TimeoutPolicy) {
        self.timeouts.set(zone, policy);
    }

    /// Restores the default timeouts of a zone. Returns whether it had its own.
    pub fn delete_timeouts(&self, zone: u16) -> bool {
        self.timeouts.delete(zone)
    }

    /// The timeouts of every zone that has its own, in order.
    pub fn timeouts(&self) -> Vec<(u16, TimeoutPolicy)> {
        self.timeouts.list()
    }

    /// The number of live connections in each shard, counted by original tuple (`ct-bkts`).
    pub fn connections_by_shard(&self, now_ms: u64) -> Vec<usize> {
        self.table.count_by_shard(now_ms)
    }

    /// Whether TCP sequence numbers are checked (`ct-get-tcp-seq-chk`).
    pub fn checks_tcp_seq(&self) -> bool {
        self.check_seq.load(Ordering::Relaxed)
    }

    /// Turns that check on or off (`ct-enable-tcp-seq-chk`, `ct-disable-tcp-seq-chk`).
    pub fn set_check_tcp_seq(&self, check: bool) {
        self.check_seq.store(check, Ordering::Relaxed);
    }
}
