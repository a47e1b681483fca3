//! Fragments, held until their packet is complete, so that it can be tracked as one.
//!
//! Only the first fragment has ports, and none has all the bytes that a checksum covers, so a fragment alone has no
//! connection. [`Fragments::offer`] holds fragments; the one that completes a packet returns all of them in order. The
//! caller then reassembles the packet in a scratch frame ([`reassemble`]), has it tracked and translated, and
//! distributes the result to the fragments ([`distribute`]). They continue as they came, each with its own size and
//! with the actions behind its own `ct`. They may have come by different PMDs. Fragments whose packet is not completed
//! in time continue as invalid; those from a port that is removed are returned with it.
//!
//! Three bounds apply: the number of fragments (`ipf-set-max-nfrags`), with a share for each ingress port, the time ([`TIMEOUT_MS`] from the first
//! fragment, however many follow), and the size (small fragments are refused, so that no packet has many). A packet's
//! fragments never overlap: a fragment that repeats a byte is refused, so the receiver reassembles exactly what was
//! tracked. Refused fragments return to the caller and are invalid.
//!
//! Shape:  one table behind one lock, shared by all PMDs; only fragments take it. A held fragment is a packet handle,
//!         its key, its pool and the caller's data. Room for all fragments is made when the limit is set: holding one
//!         allocates nothing.
//! Cost:   one lock, one hash, and a search for the fragment's position, which is the end if they come in order.
//!         Source: Open vSwitch 3.1 lib/ipf.c, for limits, counters and texts. Different: a fragment that encloses
//!         another also overlaps it; one that lies behind the last, or cannot fit into 64 KiB, is refused at once; and
//!         each continues with the actions of its own flow instead of those of the last to arrive.

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
use sluice_fate::Limit;
use sluice_flow::{PacketKey, layout};
use sluice_mem::FramePool;
use sluice_packet::{Buffers, Packet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use store::Store;

/// How long fragments wait for the rest of their packet. Source: OVS lib/ipf.c, IPF_FRAG_LIST_TIMEOUT.
pub const TIMEOUT_MS: u64 = 15_000;
/// The shortest time between two searches for expired fragments.
const LOOK_EVERY_MS: u64 = 100;
/// The default limit on held fragments, and its upper bound. Source: OVS lib/ipf.c.
const HELD_MAX: usize = 1000;
const HELD_BOUND: u32 = 5000;
/// The default minimum size of an IP packet that is a fragment and not the last, IPv4 and IPv6. Source: OVS lib/ipf.c.
const SIZE_MIN: [usize; 2] = [1200, 1280];
/// The smallest minimum that can be set. Source: OVS lib/ipf.c, IPF_V4_FRAG_SIZE_LBOUND.
const SIZE_BOUND: u32 = 400;

/// A fragment, and what its holder needs to continue with it.
#[derive(Debug)]
pub struct HeldFragment<T> {
    /// Its bytes.
    pub packet: Packet,
    /// Its key on arrival at the tracker.
    pub key: PacketKey,
    /// The pool its frame goes back to.
    pub pool: Arc<dyn FramePool>,
    /// The caller's data.
    pub onward: T,
    span: FragmentSpan,
}

impl<T> HeldFragment<T> {
    /// A fragment to be offered.
    pub fn new(packet: Packet, key: PacketKey, pool: Arc<dyn FramePool>, onward: T) -> Self {
        HeldFragment { packet, key, pool, onward, span: FragmentSpan::default() }
    }
}

/// What became of a fragment that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferResult {
    /// It is held.
    Held,
    /// It completed its packet.
    Complete,
    /// It cannot be held and has no connection; the caller keeps it.
    Refused,
}

/// The counters of one address family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentCounts {
    /// Held.
    pub accepted: u64,
    /// Continued, since their packet was complete.
    pub completed: u64,
    /// Continued as invalid, since the rest did not come in time.
    pub expired: u64,
    /// Refused: too small for a fragment that is not the last.
    pub too_small: u64,
    /// Refused: overlapping a held fragment.
    pub overlapping: u64,
    /// Dropped, since the port that they came from was removed.
    pub purged: u64,
}

/// Settings and counters of one address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentFamily {
    /// Whether its fragments are held at all.
    pub enabled: bool,
    /// The minimum size in bytes of an IP packet that is a fragment and not the last.
    pub size_min: usize,
    /// The counters.
    pub counts: FragmentCounts,
}

/// What `ipf-get-status` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentStatus {
    /// IPv4 and IPv6.
    pub families: [FragmentFamily; 2],
    /// The limit on held fragments.
    pub held_max: usize,
    /// Fragments that are held now.
    pub held: usize,
}

/// A setting is out of bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfBounds;

/// All held fragments.
#[derive(Debug)]
pub struct Fragments<T> {
    inner: Mutex<Locked<T>>,
    /// Nothing expires before this time.
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
    /// Holds a fragment that met a `ct` in `zone` until its packet is complete. Then that packet's fragments, including
    /// this one, are appended to `whole` in the order of their offsets.
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
                match why {
                    StoreError::Overlap => family.counts.overlapping += 1,
                    StoreError::Full => Limit::Fragments.hit(),
                }
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

    /// Whether it is time to call [`Fragments::take_expired`]. One load, for a PMD between two batches.
    #[inline]
    pub fn is_due(&self, now_ms: u64) -> bool {
        now_ms >= self.look_at_ms.load(Relaxed)
    }

    /// Appends the expired fragments to `out`, oldest first. They continue as [`invalid`](crate::invalid).
    pub fn take_expired(&self, now_ms: u64, out: &mut Vec<HeldFragment<T>>) {
        let Locked { store, families } = &mut *self.inner.lock();
        let next = store.take_expired(now_ms, |v6, fragment| {
            families[usize::from(v6)].counts.expired += 1;
            out.push(fragment);
        });
        let look_at = next.map_or(u64::MAX, |expires_ms| expires_ms.max(now_ms + LOOK_EVERY_MS));
        self.look_at_ms.store(look_at, Relaxed);
    }

    /// Appends to `out` all fragments of each packet of which one came from `in_port`, before the port's buffers are
    /// released.
    pub fn take_of_port(&self, in_port: u32, out: &mut Vec<HeldFragment<T>>) {
        let Locked { store, families } = &mut *self.inner.lock();
        let is_of = |fragment: &HeldFragment<T>| fragment.key.number(layout::IN_PORT) == u64::from(in_port);
        store.take_with(is_of, |v6, fragment| {
            families[usize::from(v6)].counts.purged += 1;
            out.push(fragment);
        });
    }

    /// Turns the holding of a family's fragments on or off (`ipf-set-enabled`, `ipf-set-disabled`).
    pub fn set_enabled(&self, v6: bool, enabled: bool) {
        self.inner.lock().families[usize::from(v6)].enabled = enabled;
    }

    /// Sets the minimum size of an IP packet that is a fragment and not the last (`ipf-set-min-frag`).
    pub fn set_size_min(&self, v6: bool, bytes: u32) -> Result<(), OutOfBounds> {
        if bytes < SIZE_BOUND {
            return Err(OutOfBounds);
        }
        self.inner.lock().families[usize::from(v6)].size_min = bytes as usize;
        Ok(())
    }

    /// Sets the limit on held fragments (`ipf-set-max-nfrags`). Fragments beyond it stay.
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

    /// The packets with held fragments, in the order of their first one.
    pub fn lists(&self) -> Vec<FragmentList> {
        self.inner.lock().store.lists()
    }
}

impl<T> Drop for Fragments<T> {
    /// Returns held fragments to their pools.
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
