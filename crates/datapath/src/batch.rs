//! The packets that are under way on a PMD, and what the stages know of them.
//!
//! Every part is indexed by a packet's place in the batch. Stages narrow masks of packets and never reorder them, so
//! that packets stay in order of arrival. A stage borrows the parts that it reads or writes, and no others.
//!
//! The memory is allocated once per PMD and never cleared whole: of each part, what an earlier stage of the same pass
//! has written is valid, as the part's comment says. Packets, keys, hashes and hits are what every packet touches. The
//! other parts are touched only by packets that miss, recirculate or belong to a composed entry.
//!
//! Hits are references to megaflows, which are valid under the guard of one iteration of the PMD's loop. They lie in
//! [`Batch`], which borrows the rest from [`BatchMemory`] and lives as long as the guard. Ids in place of references
//! would need no second type, but the record of every packet would be looked up again in the stage `act`.

use crate::answers::Answers;
use crate::first_index::HashKind;
use sluice_conntrack::CachedConn;
use sluice_flow::PacketKey;
use sluice_flow_cache::Hits;
use sluice_packet::{BATCH_MAX, BatchMask, PacketBatch};

/// The memory of a PMD's batches.
pub(crate) struct BatchMemory {
    packets: PacketBatch,
    keys: Box<[PacketKey; BATCH_MAX]>,
    hashes: [u64; BATCH_MAX],
    origins: [Origin; BATCH_MAX],
    conns: [CachedConn; BATCH_MAX],
    paths: [PathHint; BATCH_MAX],
    answers: Answers,
    /// The most packets that go through the stages together.
    limit: usize,
}

/// The packets that are under way, in order of arrival.
pub(crate) struct Batch<'m, 'g> {
    pub packets: &'m mut PacketBatch,
    /// Written by the stage `parse`, or by `recirc`; actions patch them.
    pub keys: &'m mut [PacketKey; BATCH_MAX],
    /// Hashes for the lookup that is under way.
    pub hashes: &'m mut [u64; BATCH_MAX],
    /// What they are hashes of.
    pub hash_kind: HashKind,
    /// The megaflow of each packet, after the lookup; `None` if the packet is in `missed`.
    pub hits: Hits<'g>,

    /// Packets without a megaflow. After the stage `upcall` they are the packets that follow an answer.
    pub missed: BatchMask,
    /// The answers of the tables for `missed`.
    pub answers: &'m mut Answers,
    /// Packets that may use the exact match cache, if that is on.
    pub emc_users: BatchMask,

    /// Packets whose megaflow was known before the lookup: they lose a tunnel's header as the last ones did.
    pub known: BatchMask,
    /// Packets with a composed entry, until they are replayed. Their hit is the first megaflow of its path.
    pub composed: BatchMask,
    /// Packets of flows by which it is told whether the search for composed entries pays.
    pub sampled: BatchMask,
    /// The paths of packets that were found in `composed`.
    pub paths: &'m mut [PathHint; BATCH_MAX],
    /// Packets that left their path: they take another pass, with their keys as they are.
    pub diverged: BatchMask,

    /// Whether the packets have been through a pass before.
    pub is_recirculated: bool,
    /// Whether the packets may begin a path of a composed entry: they were just received, or have just lost a tunnel's
    /// header. The stage `lookup` takes it back.
    pub begins_path: bool,
    /// Where the packets come from; see [`Batch::forget_passes`].
    pub origins: &'m mut [Origin; BATCH_MAX],
    /// The connections that an earlier `ct` found; none for packets just received.
    pub conns: &'m mut [CachedConn; BATCH_MAX],
    /// The first `used` packets may have origins and connections of another pass.
    used: usize,

    limit: usize,
}

/// Where a packet comes from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Origin {
    /// The place in the batch of the packet that was received.
    pub arrival: u32,
    /// How often it has been recirculated.
    pub depth: u8,
}

/// Where a composed entry is: a hint, as those of every index.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathHint {
    pub bucket: u32,
    pub way: u32,
    pub path: u32,
}

impl Origin {
    fn received(at: usize) -> Self {
        Origin { arrival: at as u32, depth: 0 }
    }
}

impl BatchMemory {
    /// For batches of at most `limit` packets.
    pub fn new(limit: usize) -> Self {
        BatchMemory {
            packets: PacketBatch::new(),
            keys: Box::new([PacketKey::ZERO; BATCH_MAX]),
            hashes: [0; BATCH_MAX],
            origins: std::array::from_fn(Origin::received),
            conns: Default::default(),
            paths: Default::default(),
            answers: Answers::default(),
            limit,
        }
    }

    /// An empty batch, for as long as a guard lives.
    #[inline]
    pub fn batch<'g>(&mut self) -> Batch<'_, 'g> {
        Batch {
            packets: &mut self.packets,
            keys: &mut self.keys,
            hashes: &mut self.hashes,
            hash_kind: HashKind::Stale,
            hits: [None; BATCH_MAX],
            missed: BatchMask::NONE,
            answers: &mut self.answers,
            emc_users: BatchMask::NONE,
            known: BatchMask::NONE,
            composed: BatchMask::NONE,
            sampled: BatchMask::NONE,
            paths: &mut self.paths,
            diverged: BatchMask::NONE,
            is_recirculated: false,
            begins_path: false,
            origins: &mut self.origins,
            conns: &mut self.conns,
            used: 0,
            limit: self.limit,
        }
    }
}

impl Batch<'_, '_> {
    /// The most packets that go through the stages together.
    #[inline]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// All packets.
    #[inline]
    pub fn all(&self) -> BatchMask {
        BatchMask::first(self.packets.len())
    }

    /// Whether every packet has a megaflow and meets it as it is.
    #[inline]
    pub fn has_hits_only(&self) -> bool {
        self.missed.0 | self.diverged.0 == 0
    }

    /// Begins the passes of packets just received.
    #[inline]
    pub fn begin_received(&mut self) {
        (self.is_recirculated, self.begins_path) = (false, true);
        self.note_used();
    }

    /// Begins a further pass of the packets.
    #[inline]
    pub fn begin_recirculated(&mut self) {
        self.is_recirculated = true;
        self.note_used();
    }

    fn note_used(&mut self) {
        self.used = self.used.max(self.packets.len());
    }

    /// Makes origins and connections those of packets just received again. To be called after packets took another
    /// pass.
    pub fn forget_passes(&mut self) {
        for i in 0..self.used.min(BATCH_MAX) {
            self.origins[i] = Origin::received(i);
            self.conns[i] = CachedConn::default();
        }
        self.used = 0;
    }
}
