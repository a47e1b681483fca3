//! Limits on the number of connections: of each zone, and of all zones together.
//!
//! As in Open vSwitch, zones without a limit of their own share the default limit and one count, if there is a default
//! limit. A limit that is deleted and set again counts from zero; connections made under the old one are not counted.

use crate::request::CommitError;
use parking_lot::RwLock;
use sluice_fate::Limit;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// A zone's limit, and the number of connections that count towards it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneLimit {
    /// The zone; `None` for the default.
    pub zone: Option<u16>,
    /// The limit.
    pub limit: u32,
    /// The count.
    pub count: u32,
}

/// A limit and its count. It has two cache lines of its own: any PMD writes the count when a connection begins or ends, and the fields that
/// would share the lines are read for every tracked packet.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Quota {
    limit: AtomicU32,
    count: AtomicU32,
}

const _: () = assert!(align_of::<Quota>() == 128 && size_of::<Quota>() == 128);

/// All limits.
#[derive(Debug)]
pub(crate) struct Limits {
    all: Quota,
    /// The number of entries of `zones`. Most switches have none, and then the lock is not taken.
    with_limit: AtomicUsize,
    /// The default's key is `None`.
    zones: RwLock<BTreeMap<Option<u16>, Arc<Quota>>>,
}

/// A connection's share in the counts, returned by [`Limits::release`].
#[derive(Debug)]
pub(crate) struct Admission(Option<Arc<Quota>>);

impl Quota {
    fn new(limit: u32) -> Self {
        Quota { limit: AtomicU32::new(limit), count: AtomicU32::new(0) }
    }

    /// Counts one more unless the limit is reached. A refusal writes nothing.
    fn admit(&self) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let more = |count: u32| (count < limit).then_some(count + 1);
        // Only the number matters; nothing is published through it.
        self.count.try_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn release(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    fn show(&self, zone: Option<u16>) -> ZoneLimit {
        let (limit, count) = (self.limit.load(Ordering::Relaxed), self.count.load(Ordering::Relaxed));
        ZoneLimit { zone, limit, count }
    }
}

impl Limits {
    pub fn new(max: u32) -> Self {
        Limits { all: Quota::new(max), with_limit: AtomicUsize::new(0), zones: RwLock::default() }
    }

    /// Counts a connection of `zone`, if the limits allow it.
    pub fn admit(&self, zone: u16) -> Result<Admission, CommitError> {
        let quota = if self.with_limit.load(Ordering::Relaxed) == 0 {
            None
        } else {
            let zones = self.zones.read();
            zones.get(&Some(zone)).or_else(|| zones.get(&None)).cloned()
        };
        if quota.as_ref().is_some_and(|quota| !quota.admit()) {
            Limit::CtConnections.hit();
            return Err(CommitError::ZoneLimit);
        }
        if !self.all.admit() {
            if let Some(quota) = &quota {
                quota.release();
            }
            Limit::CtConnections.hit();
            return Err(CommitError::TableFull);
        }
        Ok(Admission(quota))
    }

    /// Uncounts a connection.
    pub fn release(&self, admission: &Admission) {
        self.all.release();
        if let Some(quota) = &admission.0 {
            quota.release();
        }
    }

    /// Limit and count over all zones.
    pub fn all(&self) -> ZoneLimit {
        self.all.show(None)
    }

    pub fn set_all(&self, max: u32) {
        self.all.limit.store(max, Ordering::Relaxed);
    }

    /// Sets the limit of a zone, or the default.
    pub fn set(&self, zone: Option<u16>, limit: u32) {
        let mut zones = self.zones.write();
        zones.entry(zone).or_insert_with(|| Arc::new(Quota::new(limit))).limit.store(limit, Ordering::Relaxed);
        self.with_limit.store(zones.len(), Ordering::Relaxed);
    }

    /// Removes the limit of a zone. Returns whether it had one.
    pub fn delete(&self, zone: u16) -> bool {
        let mut zones = self.zones.write();
        let had = zones.remove(&Some(zone)).is_some();
        self.with_limit.store(zones.len(), Ordering::Relaxed);
        had
    }

    /// The limit that applies to a zone: its own or the default.
    pub fn of_zone(&self, zone: u16) -> Option<ZoneLimit> {
        let zones = self.zones.read();
        zones.get(&Some(zone)).or_else(|| zones.get(&None)).map(|quota| quota.show(Some(zone)))
    }

    /// The default limit, if there is one, then those of zones in order.
    pub fn list(&self) -> Vec<ZoneLimit> {
        let zones = self.zones.read();
        zones.iter().map(|(zone, quota)| quota.show(*zone)).collect()
    }
}
