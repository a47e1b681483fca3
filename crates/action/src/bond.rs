//! A bond as the datapath knows it: the port of each bucket.
//!
//! **One table, not a megaflow a member.** A megaflow that sends to a bond names the bond's table and, where the packets of
//! the megaflow have one in common, the bucket: by source address and VLAN, or the single one of a bond with one active
//! member. So a failover or a rebalancing writes ports into 256 buckets, and no megaflow changes, however many lead there.
//! Texts show what a megaflow does now: with a bucket of its own, it shows the port of that bucket, as Open vSwitch does,
//! which translates its megaflows again to change it.
//!
//! With `lb_output` the bucket is that of each packet's own hash. Without it, a bond by connection recirculates with a hash
//! as in Open vSwitch: the megaflows of the second pass, one a bucket, name the table too.
//!
//! **Counting.** What a bucket carries is counted where it is known: by the megaflow if it has a bucket
//! ([`BondTable::credit`], from its own counters, by the revalidator), else by the worker that sent the packet
//! ([`BondTable::count`]), which alone writes its counters.

use crate::PortNo;
use sluice_bond::BUCKETS;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Workers with counters of their own; the number of one that has none is taken modulo.
const WORKERS: usize = 256;

/// The port of a bucket without one.
const NOWHERE: u32 = u32::MAX;

type Counts = Box<[AtomicU64; BUCKETS]>;

fn counts() -> Counts {
    Box::new([const { AtomicU64::new(0) }; BUCKETS])
}

/// The port of each bucket, and what each has carried.
#[derive(Debug)]
pub struct BondTable {
    id: u32,
    ports: [AtomicU32; BUCKETS],
    credited: Counts,
    counted: Box<[OnceLock<Counts>; WORKERS]>,
}

impl BondTable {
    /// A table whose buckets have no ports; texts name it by that number.
    pub fn new(id: u32) -> Self {
        BondTable {
            id,
            ports: [const { AtomicU32::new(NOWHERE) }; BUCKETS],
            credited: counts(),
            counted: Box::new([const { OnceLock::new() }; WORKERS]),
        }
    }

    /// The number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The port of a bucket.
    pub fn port(&self, bucket: u8) -> Option<PortNo> {
        let port = self.ports[usize::from(bucket)].load(Relaxed);
        (port != NOWHERE).then_some(PortNo(port))
    }

    /// Sends a bucket's packets by another port from now on, or nowhere; whether that is a change.
    pub fn set_port(&self, bucket: u8, port: Option<PortNo>) -> bool {
        let port = port.map_or(NOWHERE, |port| port.0);
        self.ports[usize::from(bucket)].swap(port, Relaxed) != port
    }

    /// A megaflow's packets went to a bucket. For any thread.
    pub fn credit(&self, bucket: u8, bytes: u64) {
        self.credited[usize::from(bucket)].fetch_add(bytes, Relaxed);
    }

    /// A packet went to a bucket. For the worker of that number alone: a load and a store do.
    pub fn count(&self, bucket: u8, worker: usize, bytes: usize) {
        // Memory is taken once a worker and bond, for its first packet.
        let counts = self.counted[worker % WORKERS].get_or_init(counts);
        let count = &counts[usize::from(bucket)];
        count.store(count.load(Relaxed) + bytes as u64, Relaxed);
    }

    /// What a bucket has carried since the table was made, bytes.
    pub fn bytes(&self, bucket: u8) -> u64 {
        let at = usize::from(bucket);
        let counted = self.counted.iter().filter_map(|counts| counts.get()).map(|counts| counts[at].load(Relaxed));
        self.credited[at].load(Relaxed) + counted.sum::<u64>()
    }
}

/// A table in an action. Two are the same if it is one table.
#[derive(Clone, Debug)]
pub struct BondTarget(pub Arc<BondTable>);

impl PartialEq for BondTarget {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for BondTarget {}

impl Hash for BondTarget {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_has_a_port_and_counts_from_everywhere() {
        let table = BondTable::new(7);
        assert_eq!(table.port(200), None);
        assert!(table.set_port(200, Some(PortNo(3))) && !table.set_port(200, Some(PortNo(3))));
        assert_eq!((table.port(200), table.port(201)), (Some(PortNo(3)), None));
        table.credit(200, 10);
        table.count(200, 0, 5);
        table.count(200, WORKERS - 1, 7);
        assert_eq!((table.bytes(200), table.bytes(201)), (22, 0));
        assert!(table.set_port(200, None));
        assert_eq!(table.port(200), None);
    }
}
