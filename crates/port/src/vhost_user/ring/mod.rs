//! The device's side of a virtqueue, a burst at a time.
//!
//! A burst of chains is gathered ([`Ring::gather`]), each chain is marked as used once its buffers were read or written
//! ([`Ring::put_used`]), and one store shows the guest all of them ([`Ring::publish`]). The formats of rings are modules
//! of their own ([`split`]); this one has what does not depend on the format.
//!
//! The guest may write anything into its rings at any time, and its descriptors cost time. So indexes are taken
//! modulo the ring's size, a descriptor is read once, a chain has at most [`CHAIN_MAX`] buffers and a burst some
//! [`BURST_MAX`]. What no driver does breaks the ring ([`Broken`]): it rests until the driver sets it up again.
//! Source: Virtual I/O Device (VIRTIO) 1.2, section 2.6.

mod call;
mod split;
mod table;

use super::feature::Features;
use super::memory::{DirtyLog, GuestMemory, Outside, View};
use crate::offload::{LARGEST_FRAME, VNET_HEADER};
pub use call::Call;
use split::SplitRing;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

// Rings are little-endian, and their words are used as they are.
const _: () = assert!(cfg!(target_endian = "little"));

/// The largest ring that the specification allows.
pub const SIZE_MAX: u16 = 32_768;

/// The most buffers of a chain. Source: DPDK lib/vhost/vhost.h, BUF_VECTOR_MAX.
const CHAIN_MAX: usize = 256;

/// A burst gathers no further chain once it has this many buffers. Linux uses 19 for a large packet, and 32 of those
/// fit.
const BURST_MAX: usize = 640;

/// The most buffers of a burst: its last chain may be a long one that ends in a long table.
#[cfg(test)]
pub const BUFFERS_MAX: usize = BURST_MAX + 2 * CHAIN_MAX;

/// The most bytes of a buffer that are used: those of the largest packet.
const BUFFER_MAX: u32 = (LARGEST_FRAME + VNET_HEADER) as u32;

const DESC_NEXT: u16 = 1;
const DESC_WRITE: u16 = 2;
const DESC_INDIRECT: u16 = 4;
/// Bytes of a descriptor.
const DESC_SIZE: u64 = 16;

/// What a guest did to break its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Broken {
    #[error("an index that is beyond the ring's size, or went back")]
    Index = 1,
    #[error("an address outside of the guest's memory")]
    Address,
    #[error("a descriptor without bytes")]
    Empty,
    #[error("a chain of more than 256 descriptors")]
    Endless,
    #[error("a buffer to read where one to write belongs, or the reverse")]
    Direction,
    #[error("a table of descriptors that was not negotiated, is nested, or is empty")]
    Table,
    #[error("a first buffer too short for the packet's header")]
    Header,
}

impl Broken {
    const ALL: [Broken; 7] = [
        Broken::Index,
        Broken::Address,
        Broken::Empty,
        Broken::Endless,
        Broken::Direction,
        Broken::Table,
        Broken::Header,
    ];

    /// The reason of this number (`as u8`), if it is one.
    pub fn of_number(number: u8) -> Option<Self> {
        Broken::ALL.into_iter().find(|reason| *reason as u8 == number)
    }
}

impl From<Outside> for Broken {
    fn from(_: Outside) -> Self {
        Broken::Address
    }
}

type Result<T> = std::result::Result<T, Broken>;

/// A ring's guest addresses. In a packed ring `available` and `used` are the driver's and the device's event areas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLayout {
    /// The descriptor table.
    pub descriptors: u64,
    /// The available ring, which the guest writes.
    pub available: u64,
    /// The used ring, which the device writes.
    pub used: u64,
    /// The address by which writes to the used ring are logged, if they are.
    pub log: Option<u64>,
}

/// What a ring starts with.
#[derive(Debug)]
pub struct RingSetup {
    pub memory: Arc<GuestMemory>,
    pub features: Features,
    /// Entries, a power of two.
    pub size: u16,
    pub layout: RingLayout,
    pub call: Option<Arc<Call>>,
    pub log: Option<Arc<DirtyLog>>,
}

/// A buffer of the guest. `len` is at most that of the largest packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    pub address: u64,
    pub len: u32,
}

/// Buffers that the guest made available together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// What the guest knows it by.
    id: u16,
    /// Its first buffer in the burst, and the one behind its last.
    first: u32,
    end: u32,
    /// Bytes of all its buffers.
    pub len: u32,
}

/// Chains that are worked on together. Its memory is reused.
#[derive(Debug, Default)]
pub struct Burst {
    chains: Vec<Chain>,
    buffers: Vec<Buffer>,
    /// The ring's entry of the first chain: a ring moves on while chains of the burst are used and others join it.
    first_entry: u16,
}

/// Whether the device reads or writes a ring's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

impl Burst {
    /// Its chains, in the ring's order.
    #[inline]
    pub fn chains(&self) -> &[Chain] {
        &self.chains
    }

    /// The buffers of one of its chains; at least one, none of them empty.
    #[inline]
    pub fn buffers(&self, chain: &Chain) -> &[Buffer] {
        &self.buffers[chain.first as usize..chain.end as usize]
    }

    /// Removes all chains.
    #[inline]
    pub fn clear(&mut self) {
        self.chains.clear();
        self.buffers.clear();
    }

    fn is_full(&self) -> bool {
        self.buffers.len() >= BURST_MAX
    }

    /// Adds the chain of one buffer.
    #[inline]
    fn push_single(&mut self, id: u16, buffer: Buffer) {
        let first = self.buffers.len() as u32;
        self.buffers.push(buffer);
        self.chains.push(Chain { id, first, end: first + 1, len: buffer.len });
    }

    /// Adds the chain of the buffers from `first` on, which were added before and have `len` bytes.
    #[inline]
    fn push_chain(&mut self, id: u16, first: usize, len: u32) {
        self.chains.push(Chain { id, first: first as u32, end: self.buffers.len() as u32, len });
    }
}

/// A descriptor, read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Descriptor {
    address: u64,
    len: u32,
    flags: u16,
    /// In a split ring the next descriptor's index.
    next: u16,
}

impl Descriptor {
    /// From its two words in a split ring or a table.
    #[inline]
    fn of(address: u64, rest: u64) -> Self {
        Descriptor { address, len: rest as u32, flags: (rest >> 32) as u16, next: (rest >> 48) as u16 }
    }

    /// Whether it describes a chain alone.
    #[inline]
    fn is_whole(&self) -> bool {
        self.flags & (DESC_NEXT | DESC_INDIRECT) == 0
    }

    fn has_next(&self) -> bool {
        self.flags & DESC_NEXT != 0
    }

    fn is_table(&self) -> bool {
        self.flags & DESC_INDIRECT != 0
    }

    /// Its buffer, if it is one for this access.
    #[inline]
    fn buffer(&self, access: Access) -> Result<Buffer> {
        if (self.flags & DESC_WRITE != 0) != (access == Access::Write) {
            return Err(Broken::Direction);
        }
        if self.len == 0 {
            return Err(Broken::Empty);
        }
        Ok(Buffer { address: self.address, len: self.len.min(BUFFER_MAX) })
    }
}

/// A running ring.
#[derive(Debug)]
pub struct Ring {
    split: SplitRing,
    pub view: View,
    pub features: Features,
    call: Option<Arc<Call>>,
    /// Set when the guest broke it. It then rests.
    broken: bool,
}

impl Ring {
    /// A ring that continues where its used ring says.
    pub fn new(setup: RingSetup) -> Result<Self> {
        let split = SplitRing::new(&setup)?;
        let mut view = View::new(setup.memory);
        view.set_log(setup.log);
        Ok(Ring { split, view, features: setup.features, call: setup.call, broken: false })
    }

    /// The next entry, from which the guest can continue later.
    pub fn position(&self) -> u32 {
        self.split.position()
    }

    /// Sets the eventfd that notifies the guest of used buffers.
    pub fn set_call(&mut self, call: Option<Arc<Call>>) {
        self.call = call;
    }

    /// Whether the guest broke it.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Lets it rest.
    pub fn break_off(&mut self) {
        self.broken = true;
    }

    /// Adds up to `n` available chains to `burst`, and prefetches their first buffers. Returns how many were added.
    ///
    /// A burst without chains begins with the next chain that is not used. To others are added those behind its last
    /// one, of which some may be used meanwhile.
    #[inline]
    pub fn gather(&mut self, n: usize, access: Access, burst: &mut Burst) -> Result<usize> {
        let before = burst.chains.len();
        self.split.gather(n, access, &mut self.view, burst)?;
        for chain in &burst.chains[before..] {
            self.view.prefetch(burst.buffers[chain.first as usize].address);
        }
        Ok(burst.chains.len() - before)
    }

    /// Marks the next chain, which is `chain`, as used with `written` bytes. The guest sees it after `publish`.
    #[inline]
    pub fn put_used(&mut self, chain: &Chain, written: u32) {
        self.split.put_used(chain.id, written, &self.view);
    }

    /// Shows the guest the used chains, and notifies it if it wants that.
    #[inline]
    pub fn publish(&mut self) {
        if !self.split.publish(&self.view) {
            return;
        }
        let Some(call) = &self.call else { return };
        // The guest may be about to sleep: it must see our index before we read what it waits for.
        fence(Ordering::SeqCst);
        if self.split.wants_call() {
            call.notify();
        }
    }
}

/// Whether an index that moved from `old` to `new` has passed `event`. Source: VIRTIO 1.2, section 2.7.7.1.
fn has_passed(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

#[cfg(test)]
mod plain;
#[cfg(test)]
mod tests;
