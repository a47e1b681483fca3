//! Fragments, held until all of their packet is there, so that it can be tracked as one.
//!
//! Only the first fragment has ports and none has all that a checksum covers, so a fragment alone can be of no
//! connection. [`Fragments::offer`] keeps those that come; the one that completes a packet gets all of them back, in
//! order. The caller then assembles a scratch packet of them ([`reassemble`]), lets that be tracked and translated, and
//! gives each fragment its share of what was found ([`distribute`]): they go on as they came, each with its own size.
//!
//! What may be held is bounded three ways: by number (`ipf-set-max-nfrags`), by time ([`TIMEOUT_MS`] from the first
//! fragment on, however many follow), and by size (small fragments are refused, so that no packet has many). A packet's
//! fragments never overlap: whoever writes a byte twice is refused, so what was tracked is what the receiver puts
//! together. Those refused are the caller's again, and invalid; those that waited in vain, too.
//!
//! Shape:  one table behind one lock, shared by all PMDs, since the fragments of a packet may come by different queues.
//!         A fragment is a packet handle, its key, its pool and what the caller needs to go on with it. Room for all
//!         that may be held is made when the limit is set: nothing is allocated for a fragment.
//! Cost:   one lock, one hash, and a search for the fragment's place, which is the end for those that come in order.
//! Source: Open vSwitch 3.1 lib/ipf.c, whose limits, counters and texts these are. Different from there: a fragment
//!         that encloses another is an overlap, too; one that lies behind the last, or could not fit into 64 KiB, is
//!         refused at once; and each goes on with the actions of its own flow, not with those of the last to come.

mod header;
mod list;
mod reassembly;
mod store;
pub mod text;

pub use header::is_fragment;
pub use list::{FragmentList, Progress};
pub use reassembly::{DATAGRAM_MAX, distribute, reassemble};

use header::{FragmentHeader, FragmentSpan, StoreError};
use parking_lot::Mutex;
use sluice_flow::{PacketKey, layout};
use sluice_mem::FramePool;
use sluice_packet::{Buffers, Packet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use store::Store;

/// How long a packet's fragments wait for the rest. Source: OVS lib/ipf.c, IPF_FRAG_LIST_TIMEOUT.
pub const TIMEOUT_MS: u64 = 15_000;
/// How often those that have waited in vain are looked for, at most.
const LOOK_EVERY_MS: u64 = 100;
/// The most fragments held unless told otherwise, and the most that can be told. Source: OVS lib/ipf.c.
const HELD_MAX: usize = 1000;
const HELD_BOUND: u32 = 5000;
/// The smallest IP packet that is a fragment and not the last, by default, IPv4 and IPv6. Source: OVS lib/ipf.c.
const SIZE_MIN: [usize; 2] = [1200, 1280];
/// No smaller size can be asked for. Source: OVS lib/ipf.c, IPF_V4_FRAG_SIZE_LBOUND.
const SIZE_BOUND: u32 = 400;

/// A fragment, and what its holder needs to go on with it.
#[derive(Debug)]
pub struct HeldFragment<T> {
    /// Its bytes.
    pub packet: Packet,
    /// Its key, as it came to the tracker.
    pub key: PacketKey,
    /// The pool its frame goes back to.
    pub pool: Arc<dyn FramePool>,
    /// Its holder's.
    pub onward: T,
    span: FragmentSpan,
}

impl<T> HeldFragment<T> {
    /// A fragment that is nobody's part yet.
    pub fn new(packet: Packet, key: PacketKey, pool: Arc<dyn FramePool>, onward: T) -> Self {
        HeldFragment { packet, key, pool, onward, span: FragmentSpan::default() }
    }
}

/// What became of a fragment that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferResult {
    /// It is held.
    Held,
    /// With it the packet is whole.
    Complete,
    /// It is none that can be held, and has no connection: it is where it was.
    Refused,
}

/// What has been counted of one family's fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentCounts {
    /// Held.
    pub accepted: u64,
    /// Gone on, their packet being whole.
    pub completed: u64,
    /// Gone on as invalid, as the rest did not come in time.
    pub expired: u64,
    /// Refused: too small for one that is not the last.
    pub too_small: u64,
    /// Refused: part of what they bring was there.
    pub overlapping: u64,
    /// Dropped, as the port they came from went away.
    pub purged: u64,
}

/// Settings and counters of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentFamily {
    /// Whether its fragments are held at all.
    pub enabled: bool,
    /// The smallest IP packet, bytes, that is held as a fragment and not the last one.
    pub size_min: usize,
    /// What has been counted.
    pub counts: FragmentCounts,
}

/// What `ipf-get-status` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentStatus {
    /// IPv4 and IPv6.
    pub families: [FragmentFamily; 2],
    /// The most fragments held at once.
    pub held_max: usize,
    /// Fragments held now.
    pub held: usize,
}

/// A limit that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfBounds;

/// Every fragment held.
#[derive(Debug)]
pub struct Fragments<T> {
    inner: Mutex<Locked<T>>,
    /// Nothing has waited too long before this time.
    look_at_ms: AtomicU64,
}

#[derive(Debug)]
struct Locked<T> {
    store: Store<T>,
    families: [FragmentFamily; 2],
}

impl<T> Default for Fragments<T> {
    fn default() -> Self {
        let family = |size_min| FragmentFamily { enabled: true, size_min, counts: FragmentCounts::default() };
        let inner = Locked { store: Store::new(HELD_MAX), families: SIZE_MIN.map(family) };
        Fragments { inner: Mutex::new(inner), look_at_ms: AtomicU64::new(u64::MAX) }
    }
}

impl<T> Fragments<T> {
    /// Takes a fragment met by a `ct` in `zone` and holds it until its packet is whole: then that packet's fragments, this
    /// one among them, are appended to `whole`, in the order of their offsets.
    pub fn offer(
        &self,
        offered: &mut Option<HeldFragment<T>>,
        zone: u16,
        now_ms: u64,
        whole: &mut Vec<HeldFragment<T>>,
    ) -> OfferResult {
        let Some(fragment) = offered else { return OfferResult::Refused };
        let Some(header) = FragmentHeader::read(fragment.packet.bytes(), &fragment.key, zone) else {
            return OfferResult::Refused;
        };
        let Locked { store, families } = &mut *self.inner.lock();
        let family = &mut families[usize::from(header.key.v6)];
        if !family.enabled {
            return OfferResult::Refused;
        }
        if !header.is_last && header.size < family.size_min {
            family.counts.too_small += 1;
            return OfferResult::Refused;
        }
        fragment.span = header.span;
        match store.insert(&header, offered, now_ms + TIMEOUT_MS) {
            Err(why) => {
                family.counts.overlapping += u64::from(why == StoreError::Overlap);
                OfferResult::Refused
            }
            Ok(is_whole) => {
                family.counts.accepted += 1;
                if !is_whole {
                    self.look_at_ms.fetch_min(now_ms + TIMEOUT_MS, Relaxed);
                    return OfferResult::Held;
                }
                family.counts.completed += store.take(&header.key, |taken| whole.push(taken)) as u64;
                OfferResult::Complete
            }
        }
    }

    /// Whether it is time to ask for [`Fragments::take_expired`]. One load; to be asked by a PMD between two batches.
    #[inline]
    pub fn is_due(&self, now_ms: u64) -> bool {
        now_ms >= self.look_at_ms.load(Relaxed)
    }

    /// Appends the fragments that have waited in vain to `out`, the longest first; they go on, [`invalid`](crate::invalid).
    pub fn take_expired(&self, now_ms: u64, out: &mut Vec<HeldFragment<T>>) {
        let Locked { store, families } = &mut *self.inner.lock();
        let next = store.take_expired(now_ms, |v6, fragment| {
            families[usize::from(v6)].counts.expired += 1;
            out.push(fragment);
        });
        let look_at = next.map_or(u64::MAX, |expires_ms| expires_ms.max(now_ms + LOOK_EVERY_MS));
        self.look_at_ms.store(look_at, Relaxed);
    }

    /// Appends every fragment of a packet of which one came from `in_port` to `out`: before a port's buffers go away.
    pub fn take_of_port(&self, in_port: u32, out: &mut Vec<HeldFragment<T>>) {
        let Locked { store, families } = &mut *self.inner.lock();
        let is_of = |fragment: &HeldFragment<T>| fragment.key.number(layout::IN_PORT) == u64::from(in_port);
        store.take_with(is_of, |v6, fragment| {
            families[usize::from(v6)].counts.purged += 1;
            out.push(fragment);
        });
    }

    /// Holds fragments of a family from now on, or no more (`ipf-set-enabled`, `ipf-set-disabled`).
    pub fn set_enabled(&self, v6: bool, enabled: bool) {
        self.inner.lock().families[usize::from(v6)].enabled = enabled;
    }

    /// Sets the smallest IP packet that is held as a fragment and not the last (`ipf-set-min-frag`).
    pub fn set_size_min(&self, v6: bool, bytes: u32) -> Result<(), OutOfBounds> {
        if bytes < SIZE_BOUND {
            return Err(OutOfBounds);
        }
        self.inner.lock().families[usize::from(v6)].size_min = bytes as usize;
        Ok(())
    }

    /// Sets how many fragments may be held (`ipf-set-max-nfrags`). If there are more, they stay.
    pub fn set_held_max(&self, max: u32) -> Result<(), OutOfBounds> {
        if max > HELD_BOUND {
            return Err(OutOfBounds);
        }
        self.inner.lock().store.set_max(max as usize);
        Ok(())
    }

    /// Settings and counters.
    pub fn status(&self) -> FragmentStatus {
        let inner = self.inner.lock();
        FragmentStatus { families: inner.families, held_max: inner.store.max(), held: inner.store.held() }
    }

    /// The packets of which fragments are held, in the order of their first.
    pub fn lists(&self) -> Vec<FragmentList> {
        self.inner.lock().store.lists()
    }
}

impl<T> Drop for Fragments<T> {
    /// What is still held goes back to its pools.
    fn drop(&mut self) {
        let mut buffers = Buffers::new();
        let inner = self.inner.get_mut();
        inner.store.take_with(
            |_| true,
            |_, fragment| {
                buffers.add_pool(&fragment.pool);
                buffers.give_frame(fragment.packet.frame);
            },
        );
    }
}
