//! The device's side of a virtqueue, a burst at a time.
//!
//! A burst of chains is gathered ([`Ring::gather`]), each chain is marked as used once its buffers were read or written
//! ([`Ring::put_used`]), and one store shows the guest all of them ([`Ring::publish`]). The formats of rings are modules
//! of their own ([`split`], [`packed`]); this one has what does not depend on the format.
//!
//! The guest may write anything into its rings at any time, and its descriptors cost time. So indexes are taken
//! modulo the ring's size, a descriptor is read once, a chain has at most [`CHAIN_MAX`] buffers and a burst some
//! [`BURST_MAX`]. What no driver does breaks the ring ([`Broken`]): it rests until the driver sets it up again.
//! Source: Virtual I/O Device (VIRTIO) 1.2, section 2.6.

mod call;
#[cfg(test)]
mod crash;
mod inflight;
mod packed;
mod split;
mod table;

use super::feature::Features;
use super::inflight_buffer::QueueBuffer;
use super::memory::{DirtyLog, GuestMemory, Outside, View};
use crate::offload::{LARGEST_FRAME, VNET_HEADER};
pub use call::Call;
pub use inflight::RecordedRing;
pub use packed::PackedRing;
pub use split::SplitRing;
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
    #[error("records of chains in flight that are not those of this ring")]
    Inflight,
}

impl Broken {
    const ALL: [Broken; 8] = [
        Broken::Index,
        Broken::Address,
        Broken::Empty,
        Broken::Endless,
        Broken::Direction,
        Broken::Table,
        Broken::Header,
        Broken::Inflight,
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
#[derive(Clone, Debug)]
pub struct RingSetup {
    pub memory: Arc<GuestMemory>,
    pub features: Features,
    /// Entries, a power of two.
    pub size: u16,
    pub layout: RingLayout,
    /// The place at which a packed ring continues, as the protocol says it. A split ring has it in its memory.
    pub base: u32,
    pub call: Option<Arc<Call>>,
    pub log: Option<Arc<DirtyLog>>,
    /// Where its chains are recorded while they are in flight, if that was negotiated.
    pub inflight: Option<QueueBuffer>,
}

impl RingSetup {
    /// Notes a write at this address while the ring starts, if the guest migrates and the ring's writes are logged.
    fn log(&self, address: u64, len: usize) {
        if let (Some(_), Some(log)) = (self.layout.log, &self.log) {
            log.mark(address, len);
        }
    }
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
    /// The ring's descriptors that it takes, of which a table is one.
    descriptors: u16,
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
    /// The ring's entry behind the last chain. The ring moves on while chains of the burst are used and others join it.
    behind: u32,
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
        self.chains.push(Chain { id, descriptors: 1, first, end: first + 1, len: buffer.len });
    }
}

/// A descriptor, read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    address: u64,
    len: u32,
    flags: u16,
    /// In a split ring the next descriptor's index; in a packed ring the chain's id.
    next: u16,
}

impl Descriptor {
    /// From its two words in a split ring or a table.
    #[inline]
    fn of(address: u64, rest: u64) -> Self {
        Descriptor { address, len: rest as u32, flags: (rest >> 32) as u16, next: (rest >> 48) as u16 }
    }

    /// From its two words in a packed ring or a table of one.
    #[inline]
    fn of_packed(address: u64, rest: u64) -> Self {
        Descriptor { address, len: rest as u32, flags: (rest >> 48) as u16, next: (rest >> 32) as u16 }
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

/// A format of rings. What receives and sends is compiled for each, so that no packet asks which one it is.
pub trait RingFormat: Sized {
    /// A ring that continues where its memory or its base says.
    fn new(setup: &RingSetup) -> Result<Self>;

    /// The next entry that is not used, as the protocol says it.
    fn position(&self) -> u32;

    /// Adds up to `n` chains to those in `burst`.
    fn gather(&mut self, n: usize, access: Access, view: &mut View, burst: &mut Burst) -> Result<()>;

    /// How many chains the guest has made available that are not used, if that can be told.
    fn backlog(&self) -> Option<usize> {
        None
    }

    /// Prefetches the first buffers of up to `n` chains that come next.
    fn look_ahead(&self, n: usize, view: &View);

    /// Marks the next chain, which is this one, as used.
    fn put_used(&mut self, chain: &Chain, written: u32, view: &View);

    /// Shows the guest what was marked. Returns whether there was anything.
    fn publish(&mut self, view: &View) -> bool;

    /// Whether the guest wants to be notified of what was published since this was last asked.
    fn wants_call(&mut self) -> bool;

    /// Forgets when the guest was last notified.
    fn forget_notified(&mut self);
}

/// A running ring of a format.
#[derive(Debug)]
pub struct RunningRing<F> {
    format: F,
    pub view: View,
    pub features: Features,
    call: Option<Arc<Call>>,
    /// Set when the guest broke it. It then rests.
    broken: bool,
}

/// A running ring.
#[derive(Debug)]
pub enum Ring {
    Split(RunningRing<SplitRing>),
    Packed(RunningRing<PackedRing>),
    RecordedSplit(RunningRing<RecordedRing<SplitRing>>),
    RecordedPacked(RunningRing<RecordedRing<PackedRing>>),
}

/// What to do with a ring, for each format.
macro_rules! with_ring {
    ($ring:expr, $running:ident => $what:expr) => {
        match $ring {
            $crate::vhost_user::ring::Ring::Split($running) => $what,
            $crate::vhost_user::ring::Ring::Packed($running) => $what,
            $crate::vhost_user::ring::Ring::RecordedSplit($running) => $what,
            $crate::vhost_user::ring::Ring::RecordedPacked($running) => $what,
        }
    };
}
pub(super) use with_ring;

impl Ring {
    /// A ring of the format that was negotiated.
    pub fn new(setup: RingSetup) -> Result<Self> {
        match (setup.features.is_packed(), setup.inflight.is_some()) {
            (false, false) => RunningRing::new(setup).map(Ring::Split),
            (true, false) => RunningRing::new(setup).map(Ring::Packed),
            (false, true) => RunningRing::new(setup).map(Ring::RecordedSplit),
            (true, true) => RunningRing::new(setup).map(Ring::RecordedPacked),
        }
    }

    /// The next entry, from which the guest can continue later.
    pub fn position(&self) -> u32 {
        with_ring!(self, ring => ring.format.position())
    }

    /// How many chains wait, if that can be told.
    pub fn backlog(&self) -> Option<usize> {
        with_ring!(self, ring => ring.format.backlog())
    }

    /// Sets the eventfd that notifies the guest of used buffers.
    pub fn set_call(&mut self, call: Option<Arc<Call>>) {
        with_ring!(self, ring => ring.set_call(call));
    }

    /// Begins or ends to note the pages that are written.
    pub fn set_log(&mut self, log: Option<Arc<DirtyLog>>) {
        with_ring!(self, ring => ring.view.set_log(log));
    }

    /// Whether the guest broke it.
    pub fn is_broken(&self) -> bool {
        with_ring!(self, ring => ring.broken)
    }

    /// Lets it rest.
    pub fn break_off(&mut self) {
        with_ring!(self, ring => ring.broken = true);
    }
}

impl<F: RingFormat> RunningRing<F> {
    /// A ring that continues where its memory or its base says.
    pub fn new(setup: RingSetup) -> Result<Self> {
        let format = F::new(&setup)?;
        let mut view = View::new(setup.memory, setup.features.header());
        view.set_log(setup.log);
        Ok(RunningRing { format, view, features: setup.features, call: setup.call, broken: false })
    }

    fn set_call(&mut self, call: Option<Arc<Call>>) {
        self.call = call;
        self.format.forget_notified();
    }

    /// Adds up to `n` available chains to `burst`, and prefetches their first buffers. Returns how many were added.
    ///
    /// A burst without chains begins with the next chain that is not used. To others are added those behind its last
    /// one, of which some may be used meanwhile.
    #[inline]
    pub fn gather(&mut self, n: usize, access: Access, burst: &mut Burst) -> Result<usize> {
        let before = burst.chains.len();
        self.format.gather(n, access, &mut self.view, burst)?;
        for chain in &burst.chains[before..] {
            self.view.prefetch(burst.buffers[chain.first as usize].address);
        }
        Ok(burst.chains.len() - before)
    }

    /// Prefetches the buffers of the next `n` chains, so that the next burst finds them in the cache. The guest had them
    /// last, and another core's lines take longer to come than a burst takes to be copied.
    #[inline]
    pub fn look_ahead(&self, n: usize) {
        self.format.look_ahead(n, &self.view);
    }

    /// Marks the next chain, which is `chain`, as used with `written` bytes. The guest sees it after `publish`.
    #[inline]
    pub fn put_used(&mut self, chain: &Chain, written: u32) {
        self.format.put_used(chain, written, &self.view);
    }

    /// Shows the guest the used chains, and notifies it if it wants that.
    #[inline]
    pub fn publish(&mut self) {
        if !self.format.publish(&self.view) {
            return;
        }
        let Some(call) = &self.call else { return };
        // The guest may be about to sleep: it must see our index before we read what it waits for.
        fence(Ordering::SeqCst);
        if self.format.wants_call() {
            call.notify();
        }
    }
}

/// Whether an index that moved from `old` to `new` has passed `event`. Source: VIRTIO 1.2, section 2.7.7.1.
fn has_passed(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

#[cfg(test)]
mod inflight_tests;
#[cfg(test)]
mod packed_tests;
#[cfg(test)]
mod plain;
#[cfg(test)]
mod tests;
