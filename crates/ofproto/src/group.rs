//! Groups: their configuration, how a select group maps hashes to buckets, and their counters.
//!
//! A group is immutable except for its counters. A modification replaces it by another one, whose counters begin at
//! zero, as in Open vSwitch.

use crate::error::Error;
use crate::groups::Groups;
use sluice_action::HashAlgorithm;
use sluice_fate::{MemoryCharge, MemoryShare};
use sluice_ofp::{
    BUCKET_ALL, BUCKET_FIRST, BUCKET_LAST, BUCKET_MAX, Bucket, GROUP_MAX, GroupCommand, GroupConfig, GroupKind,
    GroupMod,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The least and the largest number of hash values of a select group. Source: OVS ofproto-dpif.c.
const HASHES_MIN: u64 = 16;
const HASHES_MAX: u64 = 256;

/// What an allocation takes beside its content.
const ALLOCATION: usize = 32;

/// OVS's name of the module that tells how groups are made.
const LOG: &str = "ofproto_dpif";

/// A group. Its bridge and the xlate caches of megaflows share it.
#[derive(Debug)]
pub(crate) struct Group {
    pub id: u32,
    pub config: GroupConfig,
    pub created_ms: u64,
    /// How a select group selects.
    pub method: SelectionMethod,
    counts: BucketCounts,
    /// By index in `config.buckets`.
    buckets: Box<[BucketCounts]>,
    /// The memory that it takes.
    charge: MemoryCharge,
}

/// How a select group chooses a bucket.
#[derive(Debug, PartialEq)]
pub(crate) enum SelectionMethod {
    /// By a hash of the addresses and ports that translation computes. Each connection needs its own megaflow.
    Symmetric,
    /// The same, but with a hash of configured fields.
    Fields,
    /// By a hash that the datapath computes. Each hash value needs its own megaflow.
    DpHash {
        /// The fields that the datapath hashes.
        algorithm: HashAlgorithm,
        basis: u32,
        /// The bucket's index for each hash value. The number of values is a power of two.
        map: Box<[usize]>,
    },
}

#[derive(Debug, Default)]
struct BucketCounts {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl BucketCounts {
    fn credit(&self, packets: u64, bytes: u64) {
        self.packets.fetch_add(packets, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    fn read(&self) -> (u64, u64) {
        (self.packets.load(Relaxed), self.bytes.load(Relaxed))
    }
}

/// A group with its counters.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupEntry {
    /// Its number.
    pub id: u32,
    /// Its configuration. Every bucket has a number.
    pub config: GroupConfig,
    /// When it was added, milliseconds.
    pub created_ms: u64,
    /// Number of rules that use it.
    pub ref_count: u32,
    /// Packets and bytes.
    pub counts: (u64, u64),
    /// Packets and bytes of each bucket.
    pub buckets: Vec<(u64, u64)>,
}

impl Group {
    fn new(id: u32, config: GroupConfig, created_ms: u64, charge: MemoryCharge) -> Self {
        let method = method(id, &config);
        let buckets = config.buckets.iter().map(|_| BucketCounts::default()).collect();
        Group { id, config, created_ms, method, counts: BucketCounts::default(), buckets, charge }
    }

    /// Credits packets to one bucket, or to all (`None`).
    pub fn credit(&self, bucket: Option<usize>, packets: u64, bytes: u64) {
        self.counts.credit(packets, bytes);
        let of = match bucket {
            Some(i) => self.buckets.get(i..=i).unwrap_or_default(),
            None => &self.buckets,
        };
        of.iter().for_each(|bucket| bucket.credit(packets, bytes));
    }

    /// The group with its counters.
    pub fn entry(&self, ref_count: u32) -> GroupEntry {
        GroupEntry {
            id: self.id,
            config: self.config.clone(),
            created_ms: self.created_ms,
            ref_count,
            counts: self.counts.read(),
            buckets: self.buckets.iter().map(BucketCounts::read).collect(),
        }
    }
}

fn method(id: u32, config: &GroupConfig) -> SelectionMethod {
    let selection = &config.selection;
    if config.kind != GroupKind::Select {
        return SelectionMethod::Symmetric;
    }
    tracing::debug!(target: LOG, "Constructing select group {id}");
    match selection.method.as_str() {
        "" => {
            tracing::debug!(target: LOG, "No selection method specified. Trying dp_hash.");
            by_dp_hash(&config.buckets, HashAlgorithm::SymmetricL4, 0)
        }
        "dp_hash" => {
            tracing::debug!(target: LOG, "Selection method specified: dp_hash.");
            // The upper half selects the algorithm. An unknown one means the first.
            let algorithm = match selection.parameter >> 32 {
                0 => HashAlgorithm::L4,
                1 => HashAlgorithm::SymmetricL4,
                other => {
                    tracing::debug!(
                        target: LOG,
                        "Invalid dp_hash algorithm {other}. Defaulting to OVS_HASH_ALG_L4"
                    );
                    HashAlgorithm::L4
                }
            };
            by_dp_hash(&config.buckets, algorithm, selection.parameter as u32)
        }
        _ => {
            tracing::debug!(target: LOG, "Selection method specified: hash.");
            if selection.fields.is_empty() {
                tracing::debug!(target: LOG, "No hash fields. Falling back to default hash method.");
                return SelectionMethod::Symmetric;
            }
            SelectionMethod::Fields
        }
    }
}

/// The datapath's hash, or that of translation if the buckets' weights need too many hash values.
fn by_dp_hash(buckets: &[Bucket], algorithm: HashAlgorithm, basis: u32) -> SelectionMethod {
    let Some(map) = hash_map(buckets) else {
        tracing::debug!(target: LOG, "Falling back to default hash method.");
        return SelectionMethod::Symmetric;
    };
    let number = match algorithm {
        HashAlgorithm::L4 => 0,
        HashAlgorithm::SymmetricL4 => 1,
    };
    tracing::debug!(target: LOG, "Use dp_hash with {} hash values using algorithm {number}.", map.len());
    SelectionMethod::DpHash { algorithm, basis, map }
}

/// The bucket of each hash value, by Webster's method: the next value goes to the bucket with the highest
/// weight / (2 × values + 1). `None` if that would need too many values, or if no bucket has a weight.
fn hash_map(buckets: &[Bucket]) -> Option<Box<[usize]>> {
    let total: u64 = buckets.iter().map(|b| u64::from(b.weight)).sum();
    if buckets.is_empty() {
        tracing::debug!(target: LOG, "  Don't apply dp_hash method without buckets.");
    }
    let Some(least) = buckets.iter().map(|b| u64::from(b.weight)).filter(|w| *w > 0).min() else {
        if !buckets.is_empty() {
            tracing::debug!(target: LOG, "  Total weight is zero. No active buckets.");
        }
        return None;
    };
    tracing::debug!(target: LOG, "  Minimum weight: {least}, total weight: {total}");
    let values = total.div_ceil(least).next_power_of_two().max(HASHES_MIN);
    if values > HASHES_MAX {
        tracing::debug!(target: LOG, "  Too many hash values required: {values}");
        return None;
    }
    let mut divisors = vec![1u64; buckets.len()];
    let map = (0..values).map(|_| {
        // Compared as fractions; of equals the first wins.
        let share = |i: usize| (u64::from(buckets[i].weight), divisors[i]);
        let better = |a: usize, b: usize| share(b).0 * share(a).1 > share(a).0 * share(b).1;
        let winner = (1..buckets.len()).fold(0, |best, i| if better(best, i) { i } else { best });
        divisors[winner] += 2;
        winner
    });
    let map = map.collect();
    tracing::debug!(target: LOG, "  Using {values} hash values:");
    for (bucket, divisor) in buckets.iter().zip(divisors) {
        let (id, weight, hits) = (bucket.id, bucket.weight, (divisor - 1) / 2);
        let target = (values * u64::from(weight)) as f64 / total as f64;
        tracing::debug!(target: LOG, "  Bucket {id}: weight={weight}, target={target:.2} hits={hits}");
    }
    Some(map)
}

/// The memory of a group with that configuration, counted at least as high as it is.
fn bytes_of(config: &GroupConfig) -> usize {
    let hashes = if config.kind == GroupKind::Select { HASHES_MAX as usize * size_of::<usize>() } else { 0 };
    let counts = size_of::<BucketCounts>() * config.buckets.len();
    // Maps of groups are trees, whose nodes may be half empty.
    let in_maps = 2 * size_of::<(u32, Arc<Group>)>() + 2 * ALLOCATION;
    size_of::<Group>() + 3 * ALLOCATION + in_maps + config.bytes() + counts + hashes
}

/// Makes one change to `groups`, with memory of that share; returns the numbers of the deleted groups.
pub(crate) fn apply(
    groups: &mut Groups,
    gm: &GroupMod,
    now_ms: u64,
    memory: &Arc<MemoryShare>,
) -> Result<Vec<u32>, Error> {
    use GroupCommand::{Add, AddOrModify, Delete, InsertBucket, Modify, RemoveBucket};
    if gm.command == Delete {
        if gm.group > GROUP_MAX {
            let all = groups.ids();
            groups.clear();
            return Ok(all);
        }
        let gone = groups.get(&gm.group).map(|group| group.id).into_iter().collect();
        groups.remove(&gm.group);
        return Ok(gone);
    }
    if gm.group > GROUP_MAX {
        return Err(Error::BadGroup { group: gm.group, why: "expected a number of at most 4294967040" });
    }
    let old = groups.get(&gm.group);
    let config = match (gm.command, old) {
        (Add, Some(_)) => return Err(Error::GroupExists(gm.group)),
        (Add | AddOrModify, None) | (Modify | AddOrModify, Some(_)) => {
            GroupConfig { buckets: numbered(gm.group, &gm.config.buckets, &[])?, ..gm.config.clone() }
        }
        (InsertBucket, Some(old)) => {
            let new = numbered(gm.group, &gm.config.buckets, &old.config.buckets)?;
            GroupConfig { buckets: insert(gm, &old.config.buckets, new)?, ..old.config.clone() }
        }
        (RemoveBucket, Some(old)) => GroupConfig { buckets: remove(gm, &old.config.buckets)?, ..old.config.clone() },
        (_, None) => return Err(Error::NoGroup(gm.group)),
        (Delete, _) => unreachable!("invariant: handled above"),
    };
    // Open vSwitch does not look at a group again when buckets are inserted or removed.
    if !matches!(gm.command, InsertBucket | RemoveBucket) {
        check(gm.group, &config)?;
    }
    if watches_itself(groups, gm.group, &config) {
        return Err(Error::GroupLoop(gm.group));
    }
    let (created_ms, freed) = old.map_or((now_ms, 0), |old| (old.created_ms, old.charge.bytes()));
    let charge = MemoryCharge::take(memory, bytes_of(&config), freed).ok_or(Error::GroupMemory(gm.group))?;
    groups.insert(gm.group, Arc::new(Group::new(gm.group, config, created_ms, charge)));
    Ok(Vec::new())
}

/// The buckets; those without a number get the lowest free one.
fn numbered(group: u32, buckets: &[Bucket], others: &[Bucket]) -> Result<Vec<Bucket>, Error> {
    let mut taken: BTreeSet<u32> = others.iter().map(|b| b.id).collect();
    for bucket in buckets.iter().filter(|b| b.id <= BUCKET_MAX) {
        if !taken.insert(bucket.id) {
            return Err(Error::BucketExists { group, bucket: bucket.id });
        }
    }
    let mut next = 0..;
    let number = |bucket: &Bucket| {
        let id = if bucket.id <= BUCKET_MAX { Some(bucket.id) } else { next.find(|id| !taken.contains(id)) };
        Bucket { id: id.unwrap_or(BUCKET_MAX), ..bucket.clone() }
    };
    Ok(buckets.iter().map(number).collect())
}

/// The old buckets with the new ones inserted at the start, at the end, or after the given bucket.
fn insert(gm: &GroupMod, old: &[Bucket], new: Vec<Bucket>) -> Result<Vec<Bucket>, Error> {
    let at = match gm.command_bucket {
        BUCKET_FIRST | BUCKET_ALL => 0,
        BUCKET_LAST => old.len(),
        id => position(gm.group, old, id)? + 1,
    };
    Ok(old[..at].iter().cloned().chain(new).chain(old[at..].iter().cloned()).collect())
}

fn remove(gm: &GroupMod, old: &[Bucket]) -> Result<Vec<Bucket>, Error> {
    let gone = match gm.command_bucket {
        BUCKET_ALL => return Ok(Vec::new()),
        BUCKET_FIRST => 0,
        BUCKET_LAST => old.len().wrapping_sub(1),
        id => position(gm.group, old, id)?,
    };
    Ok(old.iter().enumerate().filter(|(i, _)| *i != gone).map(|(_, bucket)| bucket.clone()).collect())
}

fn position(group: u32, buckets: &[Bucket], id: u32) -> Result<usize, Error> {
    buckets.iter().position(|b| b.id == id).ok_or(Error::NoBucket { group, bucket: id })
}

/// Whether the group `id` would watch itself, directly or through others. Without loops each question for liveness has
/// an answer. Open vSwitch accepts loops and ends them at 128 links, which takes 2^128 steps with two buckets a group.
fn watches_itself(groups: &Groups, id: u32, config: &GroupConfig) -> bool {
    let watched = |config: &GroupConfig| config.buckets.iter().filter_map(|b| b.watch_group).collect::<Vec<_>>();
    let (mut next, mut seen) = (watched(config), BTreeSet::new());
    while let Some(other) = next.pop() {
        if other == id {
            return true;
        }
        if seen.insert(other) {
            next.extend(groups.get(&other).into_iter().flat_map(|group| watched(&group.config)));
        }
    }
    false
}

/// Checks a group's configuration against its kind.
fn check(group: u32, config: &GroupConfig) -> Result<(), Error> {
    let bad = |why| Err(Error::BadGroup { group, why });
    let watches = |b: &Bucket| b.watch_port.is_some() || b.watch_group.is_some();
    match config.kind {
        GroupKind::Indirect if config.buckets.len() != 1 => bad("expected one bucket in an indirect group"),
        GroupKind::All | GroupKind::Indirect if config.buckets.iter().any(watches) => {
            Err(Error::WatchUnsupported(group))
        }
        GroupKind::FastFailover if !config.buckets.iter().all(watches) => {
            bad("expected watch_port or watch_group in each bucket of a fast failover group")
        }
        GroupKind::Select => Ok(()),
        _ if config.buckets.iter().any(|b| b.weight > 0) => bad("expected weights in a select group only"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
