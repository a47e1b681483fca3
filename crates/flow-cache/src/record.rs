//! A megaflow as the fast path reads it.

use crate::lineage::Lineage;
use sluice_action::{Action, Actions, FlowId, MegaflowMatch, PortNo, Translation, XcacheHandle};
use sluice_fate::DropReason;
use sluice_flow::layout::{self, PACKET_LINES};
use sluice_flow::{Line, PacketKey};
use sluice_simd::isa::Kernel;
use sluice_simd::vector_ops::Scalar;
use sluice_simd::{HashKey, VectorOps, compare, hash};
use std::sync::Arc;

/// A mask, shared by the megaflows that use it; there are few masks, so they stay in the cache.
#[derive(Debug)]
#[repr(align(64))]
pub struct Mask {
    /// Line 0 as words, presence byte zero.
    words: [u64; 8],
    /// Bit `i`: it has bits in line `i`, 1 to 7.
    further: u8,
    /// The whole mask.
    pub whole: PacketKey,
}

/// What to do with a megaflow's packets, decided when it is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowVerdict {
    /// Send them unchanged to this port.
    Output(PortNo),
    /// Drop them.
    Drop(DropReason),
    /// Execute the actions.
    Actions,
}

/// What a megaflow is made of.
#[derive(Clone, Copy)]
pub(crate) struct NewFlow<'a> {
    /// The shared copy of the translation's mask.
    pub mask: &'a Arc<Mask>,
    /// The key of one of its packets.
    pub key: &'a PacketKey,
    /// The PMD from whose runs it gets its id, if possible.
    pub pmd: usize,
    pub translation: &'a Translation,
    pub created_ms: u64,
    /// The earlier records of the megaflow, if it was modified.
    pub lineage: Option<&'a Arc<Lineage>>,
    /// What it is charged for.
    pub bytes: u32,
    /// The same with its xlate cache.
    pub share: u32,
}

/// What packets a megaflow stands for, as the notice of its deletion has it: a line and two references, where a
/// [`MegaflowMatch`] has sixteen lines.
#[derive(Clone, Debug)]
pub struct FlowMatch {
    mask: Arc<Mask>,
    first: [u64; 8],
    further: Option<Arc<[Line]>>,
}

impl FlowMatch {
    /// Its mask: the copy that megaflows share, whose address identifies its subtable.
    #[inline]
    pub fn mask(&self) -> &Arc<Mask> {
        &self.mask
    }

    /// Its masked key.
    pub fn key(&self) -> PacketKey {
        self.mask.expand(&self.first, self.further.as_deref().unwrap_or_default())
    }
}

/// A record of the arena: mask, masked key and actions.
///
/// Shape:  three cache lines, with the arena's state word in front: what a hit needs, line 0 of the key, and what a
///         match does not read. A match reads the first two lines, and the mask, which megaflows share.
/// Memory: 192 bytes with the state, and a line more for each further line in which the mask has bits. Actions are
///         shared with the translation.
#[derive(Debug)]
#[repr(C)]
pub struct Megaflow {
    id: FlowId,
    /// Bit `i`: the mask has bits in line `i`, 1 to 7.
    further: u8,
    no_output: DropReason,
    verdict: FlowVerdict,
    mask: Arc<Mask>,
    actions: Actions,
    xcache: XcacheHandle,
    /// Line 0 of the masked key.
    key: [u64; 8],
    /// The further lines in which the mask has bits, if there are any.
    further_key: Option<Arc<[Line]>>,
    version: u64,
    created_ms: u64,
    serial: u64,
    /// What it is charged for, without its xlate cache.
    bytes: u32,
    /// What it counts against its port's share, which has its xlate cache as it was when it was installed.
    share: u32,
    /// Its earlier records, if it was modified.
    lineage: Option<Arc<Lineage>>,
}

const _: () = assert!(size_of::<Megaflow>() <= 192 - 8 && std::mem::offset_of!(Megaflow, key) == 56);

impl Mask {
    /// The mask, ready to be shared.
    pub fn new(mask: &PacketKey) -> Self {
        let mut words = compare::words(&mask.lines[0].0);
        words[PRESENCE_WORD] &= !PRESENCE_BITS;
        let further = (1..PACKET_LINES).filter(|&i| !mask.line(i).is_zero()).fold(0, |bits, i| bits | 1 << i);
        Mask { words, further, whole: *mask }
    }

    /// Lines behind line 0 in which it has bits.
    pub(crate) fn further_lines(&self) -> usize {
        self.further.count_ones() as usize
    }

    /// Line 0 of a key under it, presence byte zero.
    fn first_of(&self, key: &PacketKey) -> [u64; 8] {
        let words = compare::words(&key.lines[0].0);
        std::array::from_fn(|i| words[i] & self.words[i])
    }

    /// The lines behind line 0 in which it has bits.
    fn further(&self) -> impl Iterator<Item = usize> {
        (1..PACKET_LINES).filter(|i| self.further >> i & 1 != 0)
    }

    /// The masked key of line 0 and of the further lines in which the mask has bits.
    fn expand(&self, first: &[u64; 8], further: &[Line]) -> PacketKey {
        let mut key = PacketKey::ZERO;
        key.lines[0] = Line::from_words(*first);
        for (i, line) in self.further().zip(further) {
            if !line.is_zero() {
                *key.make_present(i) = *line;
            }
        }
        key
    }

    /// A hash of a key under this copy of the mask.
    pub(crate) fn hash_of(&self, key: &PacketKey, secret: &HashKey) -> u64 {
        let line = |i: usize| compare::words(&key.line(i).and(self.whole.line(i)).0);
        self.hash(&self.first_of(key), line, secret)
    }

    fn hash(&self, first: &[u64; 8], line: impl Fn(usize) -> [u64; 8], secret: &HashKey) -> u64 {
        let sum = self.further().fold(secret.line(0, first), |sum, i| sum.wrapping_add(secret.line(i, &line(i))));
        // Masks are compared by address, so the address stands for the mask.
        hash::finish(sum.wrapping_add(hash::finish(std::ptr::from_ref(self).addr() as u64)))
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

/// The words of line 0 in which megaflows differ most: IPv4 addresses, and protocol and ports.
const TELLING_WORDS: [usize; 2] = [layout::NW_SRC.offset / 8, layout::TP_SRC.offset / 8];

const _: () = assert!(layout::IN_PORT.offset.is_multiple_of(8) && layout::IN_PORT.size == 4);

impl Megaflow {
    /// The megaflow with that id and serial number.
    pub(crate) fn new(id: FlowId, serial: u64, flow: &NewFlow<'_>) -> Self {
        let NewFlow { mask, key, translation, created_ms, lineage, .. } = *flow;
        let mask = mask.clone();
        let further = || mask.further().map(|i| key.line(i).and(mask.whole.line(i))).collect();
        let verdict = match &translation.actions[..] {
            [] | [Action::Drop] => FlowVerdict::Drop(translation.no_output),
            [Action::Output(port)] => FlowVerdict::Output(*port),
            _ => FlowVerdict::Actions,
        };
        Megaflow {
            id,
            further: mask.further,
            no_output: translation.no_output,
            verdict,
            actions: translation.actions.clone(),
            xcache: translation.xcache.clone(),
            key: mask.first_of(key),
            further_key: (mask.further != 0).then(further),
            version: translation.version,
            created_ms,
            serial,
            bytes: flow.bytes,
            share: flow.share,
            lineage: lineage.cloned(),
            mask,
        }
    }

    /// Whether a packet's key belongs to it.
    #[inline(always)]
    pub fn contains(&self, key: &PacketKey) -> bool {
        // Outside of a lookup it is mostly another packet's, of which addresses or ports tell.
        let agrees = |i: usize| compare::word(&key.lines[0].0, i) & self.mask.words[i] == self.key[i];
        TELLING_WORDS.into_iter().all(agrees) && self.contains_with(Scalar, key)
    }

    /// [`Megaflow::contains`] inside a lookup.
    #[inline(always)]
    pub fn contains_with<V: VectorOps>(&self, ops: V, key: &PacketKey) -> bool {
        ops.masked_eq(&key.lines[0].0, &self.mask.words, &self.key)
            && (self.further == 0 || self.contains_further(ops, key))
    }

    #[inline(always)]
    fn contains_further<V: VectorOps>(&self, ops: V, key: &PacketKey) -> bool {
        std::hint::cold_path();
        let further = FurtherLines { flow: self, key };
        // [`Isa::run`] inlines what is compiled for no instruction set.
        if V::SHUFFLES { ops.isa().run(further) } else { further.by_words() }
    }

    /// The port on which its packets arrive; 0 if its mask leaves the port open.
    pub(crate) fn port(&self) -> u32 {
        let [a, b, c, d, ..] = self.key[layout::IN_PORT.offset / 8].to_le_bytes();
        u32::from_be_bytes([a, b, c, d])
    }

    /// The memory that it takes, without its xlate cache.
    pub(crate) fn bytes(&self) -> u32 {
        self.bytes
    }

    /// What it counts against its port's share.
    pub(crate) fn share(&self) -> u32 {
        self.share
    }

    /// Its id.
    #[inline]
    pub fn id(&self) -> FlowId {
        self.id
    }

    /// Its number among all megaflows ever installed or modified: ids are used again, serial numbers are not.
    #[inline]
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// What to do with its packets, in short.
    #[inline]
    pub fn verdict(&self) -> FlowVerdict {
        self.verdict
    }

    /// Its actions.
    #[inline]
    pub fn actions(&self) -> &Actions {
        &self.actions
    }

    /// The drop reason if the actions send the packet nowhere.
    #[inline]
    pub fn no_output(&self) -> DropReason {
        self.no_output
    }

    /// Its mask.
    #[inline]
    pub fn mask(&self) -> &Arc<Mask> {
        &self.mask
    }

    /// Its match, in little memory.
    pub fn matched(&self) -> FlowMatch {
        FlowMatch { mask: self.mask.clone(), first: self.key, further: self.further_key.clone() }
    }

    /// Its masked key.
    pub fn key(&self) -> PacketKey {
        self.mask.expand(&self.key, self.further_key.as_deref().unwrap_or_default())
    }

    /// The translation's record of what it depends on.
    #[inline]
    pub fn xcache(&self) -> &XcacheHandle {
        &self.xcache
    }

    /// Whether it has the effect of that translation.
    pub(crate) fn does(&self, translation: &Translation) -> bool {
        self.actions == translation.actions && self.no_output == translation.no_output
    }

    /// Its earlier records, if it was modified.
    pub(crate) fn lineage(&self) -> Option<&Arc<Lineage>> {
        self.lineage.as_ref()
    }

    /// When it was installed, milliseconds of the switch's clock.
    #[inline]
    pub fn created_ms(&self) -> u64 {
        self.created_ms
    }

    /// [`Mask::hash_of`] its packets.
    pub(crate) fn hash(&self, secret: &HashKey) -> u64 {
        let key = self.key();
        self.mask.hash(&self.key, |i| compare::words(&key.line(i).0), secret)
    }

    /// A copy of its match.
    pub(crate) fn identity(&self) -> MegaflowMatch {
        MegaflowMatch { mask: self.mask.whole, key: self.key() }
    }

    /// A copy of its translation.
    pub(crate) fn translation(&self) -> Translation {
        Translation {
            mask: self.mask.whole,
            actions: self.actions.clone(),
            no_output: self.no_output,
            version: self.version,
            cacheable: true,
            xcache: self.xcache.clone(),
        }
    }
}

/// Whether a key's further lines are a megaflow's.
///
/// A function of its own: the loop over lines, inside those of lookups, takes the registers of ordinary IPv4 packets, which
/// have no further line: 13 instructions each in the exact match cache.
struct FurtherLines<'a> {
    flow: &'a Megaflow,
    key: &'a PacketKey,
}

impl FurtherLines<'_> {
    #[cold]
    #[inline(never)]
    fn by_words(self) -> bool {
        self.run(Scalar)
    }
}

impl Kernel for FurtherLines<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<V: VectorOps>(self, ops: V) -> bool {
        let FurtherLines { flow, key } = self;
        let Some(wanted) = &flow.further_key else { return true };
        let mut lines = flow.further;
        for wanted in &wanted[..] {
            let i = lines.trailing_zeros() as usize;
            lines &= lines.wrapping_sub(1);
            if !ops.masked_eq_bytes(&key.line(i).0, &flow.mask.whole.line(i).0, &wanted.0) {
                return false;
            }
        }
        true
    }
}
