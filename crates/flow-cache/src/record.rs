//! A megaflow as the fast path reads it.

use sluice_action::{Action, FlowId, MegaflowMatch, PortNo, Translation};
use sluice_fate::DropReason;
use sluice_flow::{Line, PacketKey, layout};
use sluice_simd::compare;
use std::sync::Arc;

/// A mask, shared by the megaflows that have it; there are few, so it is in the cache.
#[derive(Debug)]
#[repr(align(64))]
pub struct Mask {
    /// Line 0 as words, presence byte zero.
    words: [u64; 8],
    /// The mask as given.
    pub whole: PacketKey,
}

/// What to do with a megaflow's packets, when it can be said in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send them out of this port, unchanged.
    Output(PortNo),
    /// Drop them.
    Drop(DropReason),
    /// Go through the actions.
    Actions,
}

/// A record of the arena: mask, masked key, and what to do.
///
/// Shape:  with the arena's state word in front, two cache lines: a header that leads to the rest, and line 0 of the
///         key. The mask is the third line that a match reads.
#[derive(Debug)]
#[repr(C)]
pub struct Megaflow {
    id: FlowId,
    /// Bit `i`: the mask has bits in line `i`, 1 to 3.
    further: u8,
    verdict: Verdict,
    mask: Arc<Mask>,
    rest: Box<Rest>,
    /// Keeps the key on a line of its own: the arena's state word is in front of the record.
    _space: [u64; 3],
    key: [u64; 8],
}

const _: () = assert!(size_of::<Megaflow>() == 120 && std::mem::offset_of!(Megaflow, key) == 56);

/// What a match does not read.
#[derive(Debug)]
struct Rest {
    matched: Arc<MegaflowMatch>,
    translation: Translation,
    created_ms: u64,
}

impl Mask {
    /// The mask, ready to be shared.
    pub fn new(mask: &PacketKey) -> Self {
        let mut words = compare::words(&mask.lines[0].0);
        words[PRESENCE_WORD] &= !PRESENCE_BITS;
        Mask { words, whole: *mask }
    }

    /// Line 0 as words, presence byte zero.
    #[inline(always)]
    pub fn words(&self) -> &[u64; 8] {
        &self.words
    }
}

/// The word of line 0 that holds the presence byte, and its bits there.
const PRESENCE_WORD: usize = layout::PRESENCE.offset / 8;
const PRESENCE_BITS: u64 = 0xff << (layout::PRESENCE.offset % 8 * 8);

impl Megaflow {
    /// The record of `matched`, whose mask is `mask`, under `id`.
    pub(crate) fn new(
        id: FlowId,
        mask: Arc<Mask>,
        matched: Arc<MegaflowMatch>,
        translation: &Translation,
        created_ms: u64,
    ) -> Self {
        let mut key = compare::words(&matched.key.lines[0].0);
        key[PRESENCE_WORD] &= !PRESENCE_BITS;
        let further = (1..4).filter(|&i| !matched.mask.line(i).is_zero()).fold(0, |bits, i| bits | 1 << i);
        let verdict = match &translation.actions[..] {
            [] | [Action::Drop] => Verdict::Drop(translation.no_output),
            [Action::Output(port)] => Verdict::Output(*port),
            _ => Verdict::Actions,
        };
        let rest = Box::new(Rest { matched, translation: translation.clone(), created_ms });
        Megaflow { id, further, verdict, mask, rest, _space: [0; 3], key }
    }

    /// Whether a packet's key belongs to it.
    #[inline(always)]
    pub fn contains(&self, key: &PacketKey) -> bool {
        compare::masked_eq(&compare::words(&key.lines[0].0), &self.mask.words, &self.key)
            && (self.further == 0 || self.contains_further(key))
    }

    #[inline(never)]
    fn contains_further(&self, key: &PacketKey) -> bool {
        let MegaflowMatch { mask, key: want } = &*self.rest.matched;
        (1..4).filter(|i| self.further >> i & 1 != 0).all(|i| {
            let masked: Line = key.line(i).and(&mask.lines[i]);
            masked == *want.line(i)
        })
    }

    /// Its name.
    #[inline]
    pub fn id(&self) -> FlowId {
        self.id
    }

    /// What to do in a word.
    #[inline]
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Its mask.
    #[inline]
    pub fn mask(&self) -> &Arc<Mask> {
        &self.mask
    }

    /// Its identity.
    #[inline]
    pub fn matched(&self) -> &Arc<MegaflowMatch> {
        &self.rest.matched
    }

    /// What the tables said.
    #[inline]
    pub fn translation(&self) -> &Translation {
        &self.rest.translation
    }

    /// When it was installed, milliseconds of the switch's clock.
    #[inline]
    pub fn created_ms(&self) -> u64 {
        self.rest.created_ms
    }
}
