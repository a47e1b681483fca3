//! The shared megaflow records: installation, removal, statistics.
//!
//! Lookups read the arena under a guard and take no lock. Upcalls install, the revalidator removes and control threads
//! read under one lock, of which control threads hold a bounded piece of their work at a time. Removing a megaflow is one
//! store that makes its record dead. Each PMD removes it from its subtables when it reads the notice; the record is dropped
//! when no guard can see it any more.

mod put;
mod store;
mod view;

pub use put::PutError;
pub use view::{FlowView, ufid};

use crate::counters::{FlowCounters, add_up};
use crate::footprint::Footprint;
use crate::id_set::IdSet;
use crate::lineage::Lineage;
use crate::masks::Masks;
use crate::quota::Quotas;
use crate::record::{FlowMatch, NewFlow};
use crate::tag_index::TagIndex;
use crate::{Mask, Megaflow};
use sluice_action::{FlowId, FlowMemory, FlowStats, Translation, XcacheHandle};
use sluice_fate::Limit;
use sluice_flow::{PacketKey, layout};
use sluice_simd::HashKey;
use sluice_sync::{Arena, BlockDeque, Epochs, Guard, MessageQueue, PriorityMutex, Reader, Slots};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// All megaflows of the datapath.
pub struct MegaflowTable {
    epochs: Arc<Epochs>,
    arena: Arena<Megaflow>,
    secret: HashKey,
    index: PriorityMutex<Index>,
    /// The memory of megaflows below this id is resident.
    ready: AtomicUsize,
    /// The most megaflows that there may be: the arena's capacity or less.
    limit: AtomicUsize,
    memory: Arc<FlowMemory>,
}

/// What the lock protects.
struct Index {
    /// The ids of the records that are not removed, by their hashes.
    by_match: TagIndex,
    masks: Masks,
    pmds: Vec<PmdRecord>,
    quotas: Quotas,
    /// Removed records that are not reclaimed yet, in the order in which they were removed, which is the arena's.
    removed: BlockDeque<RemovedRecord>,
    /// Reclaimed megaflows that carried packets after `remove` had returned their statistics, for the next `settle`.
    late: Vec<(Megaflow, FlowStats)>,
    /// Records that were installed or resumed since `take_fresh` asked.
    fresh: IdSet,
    reader: Reader,
    /// The number of records made so far.
    installed: u64,
}

/// A removed record that is not reclaimed yet.
struct RemovedRecord {
    id: FlowId,
    /// The statistics that `remove` or `modify` returned.
    reported: FlowStats,
    /// The megaflow goes on with another record.
    lineage: Option<Arc<Lineage>>,
}

/// Notices of deletions that a PMD has not read, at most, but for those of megaflows that were there when there were as
/// many: no megaflow is installed until it has read some. A PMD reads 64 between two polls, so only one that stands still
/// comes near.
pub const NOTICES_MAX: usize = 1 << 18;

/// Records that are reclaimed while the index is locked, at most: some 10 µs.
const RECLAIMED_AT_ONCE: usize = 16;

struct PmdRecord {
    counters: Arc<FlowCounters>,
    /// `None` once the PMD has gone: what it counted still counts.
    notices: Option<Arc<MessageQueue<FlowDeleted>>>,
}

/// The notice that a megaflow was deleted.
#[derive(Clone, Debug)]
pub struct FlowDeleted {
    /// Its id.
    pub id: FlowId,
    /// Its number among all megaflows ever installed.
    pub serial: u64,
    /// Its match.
    pub matched: FlowMatch,
    /// The record in its place, if the megaflow was modified.
    pub successor: Option<FlowId>,
}

/// A PMD's part of the table: its right to read, its counters, its notices.
pub struct PmdSide {
    /// Pinned once a loop iteration.
    pub reader: Reader,
    /// Written by this PMD only.
    pub counters: Arc<FlowCounters>,
    /// Megaflows that were deleted.
    pub notices: Arc<MessageQueue<FlowDeleted>>,
}

/// The result of an installation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// It was installed.
    New(FlowId),
    /// A megaflow with the same mask and masked key existed and remains.
    Existing(FlowId),
    /// A suspended megaflow with the same mask and masked key has got this translation.
    Modified(FlowId),
    /// The tables have changed since the translation: nothing was installed.
    Stale,
    /// A control thread that has lost its core keeps the table locked: nothing was installed. The next packet tries again.
    Busy,
    /// The limit on megaflows is reached: nothing was installed.
    Full,
    /// The port is at its quota of masks or megaflows: nothing was installed.
    OverQuota,
}

impl MegaflowTable {
    /// An empty table of at most `capacity` megaflows, with any number of masks.
    pub fn new(capacity: u32, secret: &HashKey) -> io::Result<Self> {
        Self::with_quota(capacity, usize::MAX, secret)
    }

    /// The same, with a quota of masks for each port.
    pub fn with_quota(capacity: u32, masks_a_port: usize, secret: &HashKey) -> io::Result<Self> {
        let epochs = Epochs::new();
        let index = Index {
            by_match: TagIndex::default(),
            masks: Masks::default(),
            pmds: Vec::new(),
            quotas: Quotas::new(masks_a_port),
            removed: BlockDeque::default(),
            late: Vec::new(),
            fresh: IdSet::new(capacity),
            reader: Epochs::register(&epochs),
            installed: 0,
        };
        let arena = Arena::new(&epochs, capacity)?;
        Ok(MegaflowTable {
            arena,
            epochs,
            secret: secret.clone(),
            index: PriorityMutex::new(index),
            ready: AtomicUsize::new(0),
            limit: AtomicUsize::new(capacity as usize),
            memory: Arc::default(),
        })
    }

    /// The most megaflows that there may be.
    pub fn capacity(&self) -> usize {
        self.limit.load(Relaxed)
    }

    /// Changes the most megaflows that there may be; no more than it was made for. Those beyond stay until they are
    /// removed.
    pub fn set_limit(&self, limit: usize) {
        self.limit.store(limit.min(self.arena.capacity()), Relaxed);
    }

    /// Notices of deletions that the PMD with most of them has not read.
    pub fn unread_notices(&self) -> usize {
        self.index.lock().unread_notices()
    }

    /// How many masks the port with most has, and how many a port may have before they are of whole bytes.
    pub fn mask_usage(&self) -> (usize, usize) {
        self.index.lock().quotas.mask_usage()
    }

    /// Adds PMD number `pmd`. It goes on with the counters of the one that had the number before.
    pub fn attach(&self, pmd: usize) -> io::Result<PmdSide> {
        let mut index = self.index.lock();
        while index.pmds.len() <= pmd {
            let counters = Arc::new(FlowCounters::new(self.arena.capacity())?);
            match self.ready.load(Relaxed) {
                0 => {}
                ready => counters.populate(0..ready)?,
            }
            index.pmds.push(PmdRecord { counters, notices: None });
        }
        let notices = Arc::<MessageQueue<FlowDeleted>>::default();
        let entry = &mut index.pmds[pmd];
        entry.notices = Some(notices.clone());
        let reader = Epochs::register(&self.epochs);
        Ok(PmdSide { reader, counters: entry.counters.clone(), notices })
    }

    /// Removes PMD number `pmd`, which must not run any more: it is told of no further deletion, and its subtables are
    /// gone. What it has counted remains.
    pub fn detach(&self, pmd: usize) {
        let counters = {
            let mut index = self.index.lock();
            let Some(entry) = index.pmds.get_mut(pmd) else { return };
            entry.notices = None;
            entry.counters.clone()
        };
        (0..self.arena.used()).for_each(|id| counters.unset_indexed(FlowId(id)));
    }

    /// The records, read under a guard.
    #[inline]
    pub fn read<'g>(&'g self, guard: &'g Guard<'_>) -> Slots<'g, Megaflow> {
        self.arena.read(guard)
    }

    /// Installs the megaflow of `key` under a translation's mask, for PMD number `pmd`. `is_current` is called with the
    /// table locked, and says whether the tables are still those of the translation.
    ///
    /// A port at its quota of masks gets a mask with more bits, see `quota.rs`.
    ///
    /// A suspended megaflow with this match is resumed, or modified if the translation has another effect: `renew`
    /// receives its xlate cache, its statistics under the earlier translation, and whether that was kept.
    pub fn install(
        &self,
        pmd: usize,
        key: &PacketKey,
        translation: &Translation,
        now_ms: u64,
        is_current: impl FnOnce(u64) -> bool,
        renew: impl FnOnce(&XcacheHandle, FlowStats, bool),
    ) -> Installed {
        let Some(mut index) = self.index.try_first() else { return Installed::Busy };
        let index = &mut *index;
        if !is_current(translation.version) {
            return Installed::Stale;
        }
        let port = (key.number(layout::IN_PORT) & translation.mask.number(layout::IN_PORT)) as u32;
        let Index { quotas, masks, .. } = index;
        let Some(mask) = quotas.admit(port, &translation.mask, |mask| masks.shared(mask)) else {
            return Installed::OverQuota;
        };
        let tag = TagIndex::tag(mask.hash_of(key, &self.secret));
        let guard = index.reader.pin();
        let records = self.arena.read(&guard);
        let is_same = |flow: &Megaflow| Arc::ptr_eq(flow.mask(), &mask) && flow.contains(key);
        let known = index.by_match.find(tag, |id| records.get_any(id).filter(|(flow, _)| is_same(flow)));
        let known = known.map(|(flow, is_suspended)| {
            let suspended = is_suspended.then(|| (flow.xcache().clone(), flow.created_ms()));
            (flow.id(), suspended, !is_suspended || flow.does(translation))
        });
        drop(guard);
        if let Some((id, suspended, is_kept)) = known {
            if is_kept {
                if let Some((xcache, created_ms)) = suspended {
                    renew(&xcache, index.total(id, created_ms), true);
                }
                self.resume_record(index, id);
                return Installed::Existing(id);
            }
            // The statistics are those of this moment; what other PMDs count afterwards follows when the earlier
            // record is reclaimed.
            if let Some((carried, modified)) = self.replace(index, id, translation) {
                suspended.inspect(|(xcache, _)| renew(xcache, carried, false));
                return modified.map_or(Installed::Full, Installed::Modified);
            }
        }
        let (bytes, share) = index.charges(&mask, translation);
        let flow = NewFlow { mask: &mask, key, pmd, translation, created_ms: now_ms, lineage: None, bytes, share };
        self.add(index, port, tag, &flow)
    }

    /// Puts a record with another translation in a record's place. Returns what the megaflow carried since its last
    /// modification and the new record, or `None` there if there is no room: then the megaflow is removed.
    fn replace(&self, index: &mut Index, id: FlowId, translation: &Translation) -> Option<(FlowStats, Option<FlowId>)> {
        let guard = index.reader.pin();
        let (flow, _) = self.arena.read(&guard).get_any(id.0)?;
        let (mask, key, created_ms) = (flow.mask().clone(), flow.key(), flow.created_ms());
        let (port, tag) = (flow.port(), TagIndex::tag(flow.hash(&self.secret)));
        let lineage = flow.lineage().cloned().unwrap_or_default();
        drop(guard);
        let (bytes, share) = index.charges(&mask, translation);
        // Beside the earlier record, whichever thread modifies it.
        let pmd = self.arena.owner(id.0);
        let flow =
            NewFlow { mask: &mask, key: &key, pmd, translation, created_ms, lineage: Some(&lineage), bytes, share };
        let Some(successor) = self.insert_record(index, &flow) else {
            return Some((self.take_out(index, id)?, None));
        };
        lineage.add(id);
        let carried = self.retire(index, id, Some((successor, lineage)))?;
        index.by_match.insert(tag, successor.0);
        index.quotas.add(port, &mask, share);
        Some((carried, Some(successor)))
    }

    /// Makes a record, if there is room in the arena and in the memory for megaflows.
    fn insert_record(&self, index: &mut Index, flow: &NewFlow<'_>) -> Option<FlowId> {
        if index.unread_notices() >= NOTICES_MAX {
            Limit::DeletionNotices.hit();
            return None;
        }
        // The xlate cache is charged already.
        if !self.memory.has_room(flow.bytes.into()) {
            Limit::FlowMemory.hit();
            return None;
        }
        index.installed += 1;
        let serial = index.installed;
        let make = |id| Megaflow::new(FlowId(id), serial, flow);
        let inserted = self.arena.insert(flow.pmd, make).or_else(|_| {
            self.reclaim_some(index);
            self.arena.insert(flow.pmd, make)
        });
        match inserted {
            Ok(id) => {
                self.memory.add(flow.bytes.into());
                index.fresh.insert(id);
                Some(FlowId(id))
            }
            Err(_) => {
                Limit::Megaflows.hit();
                None
            }
        }
    }

    /// Lets lookups find a record again, if it is suspended; whether it was.
    fn resume_record(&self, index: &mut Index, id: FlowId) -> bool {
        let guard = index.reader.pin();
        let resumed = self.arena.read(&guard).resume(id.0);
        if resumed {
            index.fresh.insert(id.0);
        }
        resumed
    }

    /// Adds a megaflow that the table does not have.
    fn add(&self, index: &mut Index, port: u32, tag: u32, flow: &NewFlow<'_>) -> Installed {
        if !index.quotas.has_room(port, index.by_match.len(), self.capacity()) {
            Limit::Megaflows.hit();
            return Installed::OverQuota;
        }
        if self.memory.is_nearly_full() && !index.quotas.is_within_share(port, flow.share, self.memory.limit()) {
            Limit::FlowMemory.hit();
            return Installed::OverQuota;
        }
        let Some(id) = self.insert_record(index, flow) else { return Installed::Full };
        index.by_match.insert(tag, id.0);
        index.quotas.add(port, flow.mask, flow.share);
        Installed::New(id)
    }

    /// Removes a megaflow. Returns its statistics until now, if it existed.
    fn take_out(&self, index: &mut Index, id: FlowId) -> Option<FlowStats> {
        self.retire(index, id, None)
    }

    /// Removes a record; the megaflow goes on with the successor. Returns its statistics until now, if it existed.
    fn retire(&self, index: &mut Index, id: FlowId, successor: Option<(FlowId, Arc<Lineage>)>) -> Option<FlowStats> {
        let guard = index.reader.pin();
        let (flow, _) = self.arena.read(&guard).get_any(id.0)?;
        let (matched, serial, created_ms) = (flow.matched(), flow.serial(), flow.created_ms());
        let (port, share) = (flow.port(), flow.share());
        let tag = TagIndex::tag(flow.hash(&self.secret));
        drop(guard);
        index.by_match.remove(tag, id.0);
        self.arena.retire(id.0);
        index.quotas.remove(port, matched.mask(), share);
        let reported = index.total(id, created_ms);
        let (successor, lineage) = successor.unzip();
        index.removed.push_back(RemovedRecord { id, reported, lineage });
        for notices in index.pmds.iter().filter_map(|pmd| pmd.notices.as_ref()) {
            notices.post(FlowDeleted { id, serial, matched: matched.clone(), successor });
        }
        Some(reported)
    }

    /// Whether the record of that id is still the one of this xlate cache.
    fn is_of(&self, index: &mut Index, id: FlowId, xcache: &XcacheHandle) -> bool {
        let guard = index.reader.pin();
        let flow = self.arena.read(&guard).get_any(id.0);
        flow.is_some_and(|(flow, _)| Arc::ptr_eq(&flow.xcache().0, &xcache.0))
    }

    /// Drops records that no guard can see any more; whether there may be others.
    fn reclaim_some(&self, index: &mut Index) -> bool {
        let reclaimed = self.arena.reclaim(RECLAIMED_AT_ONCE, |_, flow| {
            self.memory.sub(flow.bytes().into());
            let all = index.total(flow.id(), flow.created_ms());
            let removed = index.removed.pop_front().expect("invariant: the arena retires what is removed");
            let RemovedRecord { reported, lineage, .. } = removed;
            debug_assert_eq!(removed.id, flow.id(), "records are reclaimed in the order in which they are removed");
            let clear = || index.pmds.iter().for_each(|pmd| pmd.counters.clear(flow.id()));
            match lineage {
                Some(lineage) => {
                    lineage.reclaim(flow.id(), index.pmds.iter().map(|pmd| pmd.counters.read(flow.id())), clear);
                }
                None => clear(),
            }
            let (packets, bytes) = (all.packets - reported.packets, all.bytes - reported.bytes);
            if packets != 0 {
                index.late.push((flow, FlowStats { packets, bytes, ..all }));
            }
        });
        reclaimed == RECLAIMED_AT_ONCE
    }
}

impl Index {
    /// The bytes that a megaflow of a mask and translation is charged for, and those with its xlate cache.
    fn charges(&self, mask: &Mask, translation: &Translation) -> (u32, u32) {
        let footprint = Footprint { pmds: self.pmds.len(), further_lines: mask.further_lines() };
        let bytes = footprint.bytes(&translation.actions);
        (bytes, bytes.saturating_add(u32::try_from(translation.xcache.0.bytes()).unwrap_or(u32::MAX)))
    }

    /// Notices that the PMD with most of them has not read.
    fn unread_notices(&self) -> usize {
        let notices = self.pmds.iter().filter_map(|pmd| pmd.notices.as_ref());
        notices.map(|notices| notices.len()).max().unwrap_or_default()
    }

    /// The statistics of a record, over all PMDs.
    fn total(&self, id: FlowId, created_ms: u64) -> FlowStats {
        let mut sum = FlowStats { created_ms, ..FlowStats::default() };
        self.pmds.iter().for_each(|pmd| add_up(&mut sum, pmd.counters.read(id)));
        sum
    }
}
