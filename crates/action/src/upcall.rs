//! The question a cache miss asks.

use crate::{Actions, FlowStats, XcacheHandle};
use sluice_fate::DropReason;
use sluice_flow::PacketKey;

/// A packet no cache knows.
#[derive(Clone, Copy, Debug)]
pub struct Miss<'a> {
    /// Its key.
    pub key: &'a PacketKey,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Now, milliseconds of the switch's clock.
    pub now_ms: u64,
}

/// What the tables say about a packet, and for which other packets they would say the same.
#[derive(Clone, Debug)]
pub struct Translation {
    /// The bits the answer depends on. Sound first: a bit too many costs speed, one too few misroutes.
    pub mask: PacketKey,
    /// What to do.
    pub actions: Actions,
    /// Why the packet ends if the actions send it nowhere.
    pub no_output: DropReason,
    /// Version of the tables it was made from.
    pub version: u64,
    /// Whether it may be cached.
    pub cacheable: bool,
    /// For the translator's own use.
    pub xcache: XcacheHandle,
}

/// What became of an upcall.
#[expect(clippy::large_enum_variant, reason = "made once a miss and moved once; a box would allocate")]
#[derive(Clone, Debug)]
pub enum UpcallResult {
    /// The tables answered.
    Translated(Translation),
    /// They did not; the packet is dropped for this reason.
    Failed(DropReason),
    /// They did not, since a control thread has them: the packet may ask again.
    Busy,
}

/// The tables behind the datapath. One handle a PMD.
pub trait Upcall: Send {
    /// Translates a miss. Side effects (learning, messages to controllers) are queued to their owner, bounded.
    fn translate(&mut self, miss: &Miss<'_>) -> UpcallResult;

    /// Misses follow: changes of the tables are put off, within a bound, until [`Upcall::end_asking`], so that a batch does
    /// not wait for one with each of its misses.
    fn begin_asking(&mut self) {}

    /// No more misses follow, and none of the PMD's packets waits to ask, be it that the tables were [`UpcallResult::Busy`] or
    /// that the misses of its queue had taken long enough.
    fn end_asking(&mut self) {}

    /// Whether a translation made at `version` still holds; asked with the megaflow store locked, before installing.
    fn is_current(&self, version: u64) -> bool;

    /// A suspended megaflow's packets have asked again, and `new` is the xlate cache of the answer. Credits what it has
    /// `carried` to its own xlate cache, `old`; which goes on with what `new` says if the megaflow `is_kept`. Asked
    /// with the megaflow store locked.
    fn renew(&self, old: &XcacheHandle, new: &XcacheHandle, carried: FlowStats, is_kept: bool) {
        let _ = (old, new, carried, is_kept);
    }

    /// A suspended megaflow of this mask has got another translation, that of a packet of this key. Asked without locks.
    fn modified(&self, key: &PacketKey, mask: &PacketKey, actions: &Actions) {
        let _ = (key, mask, actions);
    }

    /// Credits packets that followed a translation without a megaflow to count them.
    fn credit(&mut self, xcache: &XcacheHandle, packets: u64, bytes: u64, tcp_flags: u16, now_ms: u64);
}
