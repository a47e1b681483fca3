//! A PMD's caches of free frames, one in front of each packet pool.

use crate::{BATCH_MAX, Packet, PacketBatch};
use sluice_fate::DropReason;
use sluice_mem::{Frame, FramePool, FreeFrames, PoolId};
use std::sync::Arc;

/// The most frames of one pool that a PMD caches. Half of them go to or from the pool at once, under the pool's lock.
const CACHE_MAX: usize = 512;

/// A cache holds at most one part in this many of its pool, so that PMDs do not starve each other of a small pool.
const CACHE_SHARE: usize = 8;

/// After a pool was asked what it has beyond its reserve, this part of that may be copied before it is asked again: a
/// PMD takes no more than that from the reserve while others take the rest.
const UNASKED_SHARE: usize = 64;

/// The most copies without asking. Asking costs hundreds of cycles: a DPDK pool counts what every thread has cached.
const UNASKED_MAX: usize = 32;

/// A PMD's access to every pool: takes frames and gives them back. Not shared between threads.
///
/// The frames that were given back last are the next to be used, since they are warm in the first-level cache. The pool
/// is called only when a cache is empty or full. Dropping the buffers gives every cached frame back.
#[derive(Debug, Default)]
pub struct Buffers {
    /// By `PoolId::index`.
    caches: Vec<Option<Cache>>,
}

/// Free frames of one pool.
#[derive(Debug)]
struct Cache {
    pool: Arc<dyn FramePool>,
    free: FreeFrames,
    max: usize,
    /// Copies that may be made before the pool is asked for its reserve.
    unasked: usize,
}

impl Buffers {
    /// Without any pool.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a pool. Taking from a pool adds it, too; this is for pools whose frames come from elsewhere.
    pub fn add_pool(&mut self, pool: &Arc<dyn FramePool>) {
        self.cache(pool);
    }

    /// The pool of that id, if this PMD knows it.
    pub fn pool(&self, id: PoolId) -> Option<&Arc<dyn FramePool>> {
        Some(&self.caches.get(id.index())?.as_ref()?.pool)
    }

    /// Whether a pool has only its reserve left, which is for receiving. True for unknown pools.
    pub fn has_only_reserve(&self, id: PoolId) -> bool {
        self.caches.get(id.index()).and_then(Option::as_ref).is_none_or(Cache::has_only_reserve)
    }

    /// Appends up to `n` packets of `size` bytes to `batch`, as many as it has room for. Returns how many.
    ///
    /// Their bytes are unspecified. A `size` beyond the pool's frame size is reduced to that.
    #[inline]
    pub fn fill(&mut self, pool: &Arc<dyn FramePool>, n: usize, size: usize, batch: &mut PacketBatch) -> usize {
        let n = n.min(batch.room());
        let cache = self.cache(pool);
        let n = cache.top(n);
        batch.extend(cache.free.drain(n, size).map(Packet::new));
        n
    }

    /// An empty frame.
    #[inline]
    pub fn take(&mut self, pool: &Arc<dyn FramePool>) -> Option<Frame> {
        let cache = self.cache(pool);
        cache.top(1);
        cache.free.pop()
    }

    /// A new packet with these bytes, for receiving.
    #[inline]
    pub fn write(&mut self, pool: &Arc<dyn FramePool>, bytes: &[u8]) -> Result<Packet, DropReason> {
        if bytes.len() > pool.frame_size() {
            return Err(DropReason::RxOversize);
        }
        let mut frame = self.take(pool).ok_or(DropReason::NoBuffer)?;
        frame.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        frame.truncate(bytes.len());
        Ok(Packet::new(frame))
    }

    /// A copy of `packet` in its own pool. Refused (`NoBuffer`) when the pool has only its reserve left.
    #[inline]
    pub fn copy(&mut self, packet: &Packet) -> Result<Packet, DropReason> {
        let at = packet.frame.pool().index();
        let cache = self.caches.get_mut(at).and_then(Option::as_mut).ok_or(DropReason::NoBuffer)?;
        cache.copy(packet)
    }

    /// A copy of `packet` in `pool`, for a device that sends only from that pool. Refused like [`Buffers::copy`], and
    /// when the packet is longer than the pool's frames (`TxOversize`).
    #[inline]
    pub fn copy_into(&mut self, pool: &Arc<dyn FramePool>, packet: &Packet) -> Result<Packet, DropReason> {
        self.cache(pool).copy(packet)
    }

    /// A copy of `packet` in its own pool behind `headroom` free bytes, to take its place: for a header that the packet's own
    /// buffer has no headroom for. Refused if the two are too long for a buffer of that pool (`NoHeadroom`). The reserve may
    /// be used, since the old buffer goes back at once.
    #[cold]
    pub fn copy_behind(&mut self, packet: &Packet, headroom: u16) -> Result<Packet, DropReason> {
        let at = packet.frame.pool().index();
        let cache = self.caches.get_mut(at).and_then(Option::as_mut).ok_or(DropReason::NoBuffer)?;
        if cache.top(1) == 0 {
            return Err(DropReason::NoBuffer);
        }
        let mut frame = cache.free.pop().expect("invariant: `top` left one");
        frame.trim_front(headroom.saturating_sub(u16::try_from(frame.headroom()).unwrap_or(u16::MAX)));
        let len = packet.frame.len();
        if frame.headroom() < headroom.into() || frame.len() < len {
            self.give_frame(frame);
            return Err(DropReason::NoHeadroom);
        }
        frame.bytes_mut()[..len].copy_from_slice(packet.bytes());
        frame.truncate(len);
        Ok(Packet { frame, rss_hash: packet.rss_hash, queue: packet.queue })
    }

    /// Gives packets back to their pools.
    pub fn give(&mut self, packets: impl Iterator<Item = Packet>) {
        packets.for_each(|packet| self.give_frame(packet.frame));
    }

    /// Gives a batch back to its packets' pools and leaves it empty.
    #[inline]
    pub fn give_batch(&mut self, batch: &mut PacketBatch) {
        let Some(first) = batch.first() else { return };
        let pool = first.frame.pool();
        // Nearly always all packets belong to one pool.
        if batch.iter().all(|packet| packet.frame.pool() == pool)
            && let Some(cache) = self.cache_of(pool)
        {
            cache.make_room(batch.len());
            return cache.free.extend(batch.drain(..).map(|packet| packet.frame));
        }
        self.give(batch.drain(..));
    }

    /// Gives a frame back to its pool.
    #[inline]
    pub fn give_frame(&mut self, frame: Frame) {
        if let Some(cache) = self.cache_of(frame.pool()) {
            cache.push(frame);
        }
    }

    /// Gives every cached frame back to its pool, and forgets pools that nobody else uses.
    pub fn flush(&mut self) {
        for slot in &mut self.caches {
            if let Some(cache) = slot {
                cache.pool.give(&mut cache.free, usize::MAX);
                if Arc::strong_count(&cache.pool) == 1 && cache.pool.available() == cache.pool.capacity() {
                    *slot = None;
                }
            }
        }
    }

    /// The cache of a known pool.
    #[inline]
    fn cache_of(&mut self, pool: PoolId) -> Option<&mut Cache> {
        let cache = self.caches.get_mut(pool.index()).and_then(Option::as_mut);
        debug_assert!(cache.is_some(), "a frame of a pool that this PMD never met is leaked");
        cache
    }

    #[inline]
    fn cache(&mut self, pool: &Arc<dyn FramePool>) -> &mut Cache {
        let at = pool.id().index();
        if !matches!(self.caches.get(at), Some(Some(_))) {
            self.meet(pool);
        }
        self.caches[at].as_mut().expect("invariant: `meet` filled it")
    }

    #[cold]
    fn meet(&mut self, pool: &Arc<dyn FramePool>) {
        let at = pool.id().index();
        if self.caches.len() <= at {
            self.caches.resize_with(at + 1, || None);
        }
        let max = CACHE_MAX.min(pool.capacity() / CACHE_SHARE).max(1);
        self.caches[at] = Some(Cache {
            pool: Arc::clone(pool),
            free: FreeFrames::new(pool.layout(), max + BATCH_MAX),
            max,
            unasked: 0,
        });
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        self.flush();
    }
}

impl Cache {
    /// Fills the cache up to `n` frames if it can. Returns how many of the `n` there are.
    #[inline]
    fn top(&mut self, n: usize) -> usize {
        if self.free.len() < n {
            self.pool.take((self.max / 2).max(n - self.free.len()), &mut self.free);
        }
        n.min(self.free.len())
    }

    #[inline]
    fn push(&mut self, frame: Frame) {
        self.make_room(1);
        self.free.push(frame);
    }

    /// Gives frames back to the pool if `n` more would exceed the limit.
    #[inline]
    fn make_room(&mut self, n: usize) {
        if self.free.len() + n > self.max {
            self.pool.give(&mut self.free, self.max.div_ceil(2).max(n));
        }
    }

    fn has_only_reserve(&self) -> bool {
        self.free.len() + self.pool.available() <= self.pool.reserve()
    }

    /// Whether a copy may be made: not when the pool has only its reserve left.
    #[inline]
    fn may_copy(&mut self) -> bool {
        if self.unasked == 0 {
            return self.ask();
        }
        self.unasked -= 1;
        true
    }

    #[cold]
    fn ask(&mut self) -> bool {
        let beyond = (self.free.len() + self.pool.available()).saturating_sub(self.pool.reserve());
        self.unasked = (beyond / UNASKED_SHARE).min(UNASKED_MAX);
        beyond > 0
    }

    #[inline]
    fn copy(&mut self, packet: &Packet) -> Result<Packet, DropReason> {
        let bytes = packet.bytes();
        if bytes.len() > self.free.frame_size() {
            return Err(DropReason::TxOversize);
        }
        if !self.may_copy() || self.top(1) == 0 {
            return Err(DropReason::NoBuffer);
        }
        let mut frame = self.free.pop().expect("invariant: `top` left one");
        frame.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        frame.truncate(bytes.len());
        Ok(Packet { frame, rss_hash: packet.rss_hash, queue: packet.queue })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sluice_mem::{HeapPool, PoolConfig};
    use std::collections::HashSet;

    fn pool(frames: usize, frame_size: usize, reserve: usize) -> Arc<dyn FramePool> {
        Arc::new(HeapPool::new(PoolConfig { frames, frame_size, reserve }).unwrap())
    }

    #[test]
    fn a_copy_is_refused_when_only_the_reserve_is_left() {
        let pool = pool(8, 100, 3);
        let mut buffers = Buffers::new();
        let mut held = vec![buffers.write(&pool, b"a packet").unwrap()];
        loop {
            match buffers.copy(&held[0]) {
                Ok(copy) => held.push(copy),
                Err(why) => break assert_eq!(why, DropReason::NoBuffer),
            }
        }
        assert_eq!(held.len(), 5);
        assert!(held.iter().all(|p| p.bytes() == b"a packet"));
        for _ in 0..3 {
            held.push(buffers.write(&pool, b"received").unwrap());
        }
        assert_eq!(buffers.write(&pool, b"one more").unwrap_err(), DropReason::NoBuffer);
        buffers.give(held.into_iter());
        drop(buffers);
        assert_eq!(pool.available(), 8);
    }

    #[test]
    fn copies_of_two_pmds_leave_the_reserve() {
        let pool = pool(640, 100, 64);
        let mut pmds = [Buffers::new(), Buffers::new()];
        let mut held: Vec<Vec<Packet>> =
            pmds.iter_mut().map(|buffers| vec![buffers.write(&pool, b"a packet").unwrap()]).collect();
        let mut refused = [false; 2];
        while refused != [true; 2] {
            for (i, buffers) in pmds.iter_mut().enumerate() {
                match buffers.copy(&held[i][0]) {
                    Ok(copy) => held[i].push(copy),
                    Err(_) => refused[i] = true,
                }
            }
        }
        let copied: usize = held.iter().map(Vec::len).sum();
        let may_be_unasked = pmds.len() * (640 - 64) / UNASKED_SHARE;
        assert!((640 - 64 - 160..=640 - 64 + may_be_unasked).contains(&copied), "{copied} copies");
        pmds.iter_mut().zip(held).for_each(|(buffers, held)| buffers.give(held.into_iter()));
        drop(pmds);
        assert_eq!(pool.available(), 640);
    }

    #[test]
    fn a_header_that_is_longer_than_the_headroom_fits() {
        let pool = pool(2, 400, 0);
        let mut buffers = Buffers::new();
        let mut packet = buffers.write(&pool, &[7; 100]).unwrap();
        packet.rss_hash = 5;
        let before = packet.frame.headroom() as u16;
        assert!(packet.frame.push_front(before + 1).is_err());
        let mut copy = buffers.copy_behind(&packet, before + 200).unwrap();
        copy.frame.push_front(before + 200).unwrap();
        assert_eq!((&copy.bytes()[usize::from(before) + 200..], copy.rss_hash), (&[7; 100][..], 5));
        buffers.give([copy].into_iter());
        for too_much in [before + 400, u16::MAX] {
            assert_eq!(buffers.copy_behind(&packet, too_much).unwrap_err(), DropReason::NoHeadroom);
        }
        let held = buffers.write(&pool, &[1]).unwrap();
        assert_eq!(buffers.copy_behind(&packet, 1).unwrap_err(), DropReason::NoBuffer);
        buffers.give([packet, held].into_iter());
        drop(buffers);
        assert_eq!(pool.available(), 2);
    }

    #[test]
    fn a_packet_crosses_pools_by_copy() {
        let (small, large) = (pool(8, 100, 0), pool(8, 2000, 0));
        let mut buffers = Buffers::new();
        let mut packet = buffers.write(&large, &[7; 1500]).unwrap();
        packet.rss_hash = 5;
        assert_eq!(buffers.copy_into(&small, &packet).unwrap_err(), DropReason::TxOversize);
        assert_eq!(buffers.write(&small, &[7; 1500]).unwrap_err(), DropReason::RxOversize);
        packet.frame.truncate(64);
        let copy = buffers.copy_into(&small, &packet).unwrap();
        assert_eq!((copy.frame.pool(), copy.bytes(), copy.rss_hash), (small.id(), packet.bytes(), 5));
        buffers.give([copy, packet].into_iter());
        buffers.flush();
        assert_eq!((small.available(), large.available()), (8, 8));
    }

    #[test]
    fn the_pool_is_met_once_in_hundreds_of_packets() {
        let pool = pool(16_384, 100, 0);
        let mut buffers = Buffers::new();
        let mut batch = PacketBatch::new();
        buffers.fill(&pool, 32, 60, &mut batch);
        let after_first = pool.available();
        for _ in 0..1000 {
            buffers.give_batch(&mut batch);
            assert_eq!(buffers.fill(&pool, 32, 60, &mut batch), 32);
        }
        assert_eq!(pool.available(), after_first);
        buffers.give(batch.drain(..));
    }

    #[test]
    fn a_pmd_that_only_gives_does_not_hoard() {
        let pool = pool(4096, 100, 0);
        let (mut taker, mut giver) = (Buffers::new(), Buffers::new());
        giver.add_pool(&pool);
        let mut batch = PacketBatch::new();
        for round in 0..1000 {
            assert_eq!(taker.fill(&pool, 32, 60, &mut batch), 32, "round {round}");
            if round % 2 == 0 {
                giver.give_batch(&mut batch);
            } else {
                giver.give(batch.drain(..));
            }
        }
    }

    #[test]
    fn a_batch_of_several_pools_goes_back_to_each() {
        let (one, two) = (pool(32, 100, 0), pool(32, 100, 0));
        let mut buffers = Buffers::new();
        let mut batch = PacketBatch::new();
        for _ in 0..5 {
            buffers.fill(&one, 2, 60, &mut batch);
            buffers.fill(&two, 3, 60, &mut batch);
        }
        buffers.give_batch(&mut batch);
        buffers.flush();
        assert_eq!((one.available(), two.available(), batch.len()), (32, 32, 0));
    }

    #[derive(Clone, Debug)]
    enum TestStep {
        Fill { pmd: usize, pool: usize, n: usize },
        Copy { pmd: usize, which: prop::sample::Index, pool: Option<usize> },
        Give { pmd: usize, n: usize },
        Pass { from: usize, n: usize },
        Flush { pmd: usize },
    }

    fn step() -> impl Strategy<Value = TestStep> {
        prop_oneof![
            (0..2usize, 0..2usize, 0..33usize).prop_map(|(pmd, pool, n)| TestStep::Fill { pmd, pool, n }),
            (0..2usize, any::<prop::sample::Index>(), prop::option::of(0..2usize))
                .prop_map(|(pmd, which, pool)| TestStep::Copy { pmd, which, pool }),
            (0..2usize, 0..40usize).prop_map(|(pmd, n)| TestStep::Give { pmd, n }),
            (0..2usize, 0..5usize).prop_map(|(from, n)| TestStep::Pass { from, n }),
            (0..2usize).prop_map(|pmd| TestStep::Flush { pmd }),
        ]
    }

    proptest! {
        /// Two PMDs over two small pools: no frame has two owners, none is lost, copies keep their bytes.
        #[test]
        fn frames_have_one_holder_and_none_is_lost(steps in prop::collection::vec(step(), 0..60)) {
            let pools = [pool(50, 64, 5), pool(9, 64, 0)];
            let mut pmds = [Buffers::new(), Buffers::new()];
            pmds.iter_mut().for_each(|b| pools.iter().for_each(|p| b.add_pool(p)));
            let mut held: [Vec<Packet>; 2] = Default::default();
            for step in steps {
                match step {
                    TestStep::Fill { pmd, pool, n } => {
                        let mut batch = PacketBatch::new();
                        pmds[pmd].fill(&pools[pool], n, 64, &mut batch);
                        held[pmd].extend(batch.drain(..));
                    }
                    TestStep::Copy { pmd, which, pool } if !held[pmd].is_empty() => {
                        let at = which.index(held[pmd].len());
                        held[pmd][at].bytes_mut()[..8].copy_from_slice(&(at as u64).to_le_bytes());
                        let copy = match pool {
                            None => pmds[pmd].copy(&held[pmd][at]),
                            Some(pool) => pmds[pmd].copy_into(&pools[pool], &held[pmd][at]),
                        };
                        if let Ok(copy) = copy {
                            prop_assert_eq!(copy.bytes(), held[pmd][at].bytes());
                            held[pmd].push(copy);
                        }
                    }
                    TestStep::Copy { .. } => {}
                    TestStep::Give { pmd, n } => {
                        let n = n.min(held[pmd].len());
                        pmds[pmd].give(held[pmd].drain(..n));
                    }
                    TestStep::Pass { from, n } => {
                        let n = n.min(held[from].len());
                        let moved: Vec<_> = held[from].drain(..n).collect();
                        held[1 - from].extend(moved);
                    }
                    TestStep::Flush { pmd } => pmds[pmd].flush(),
                }
                let names: HashSet<_> = held.iter().flatten().map(|p| (p.frame.pool(), p.frame.token())).collect();
                prop_assert_eq!(names.len(), held[0].len() + held[1].len());
            }
            for (pmd, held) in pmds.iter_mut().zip(&mut held) {
                pmd.give(held.drain(..));
                pmd.flush();
            }
            prop_assert_eq!((pools[0].available(), pools[1].available()), (50, 9));
        }
    }
}
