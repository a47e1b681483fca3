//! Paths: the ways through the tables that connections have in common.

use super::HOPS_MAX;
use arrayvec::ArrayVec;
use sluice_action::FlowId;
use sluice_conntrack::CtMetadata;
use sluice_flow::{PacketKey, layout};
use sluice_flow_cache::Megaflow;
use sluice_packet::headers::{ethertype, ip_proto};
use sluice_simd::compare;
use sluice_sync::Slots;
use std::collections::HashMap;

/// Paths kept at most, each in 400 bytes; then the oldest goes for a new one.
const PATHS_MAX: usize = 1 << 16;

/// A megaflow by its id, and which of those that have had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FlowRef {
    pub id: FlowId,
    serial: u64,
}

/// A `ct`, the recirculation, and the megaflow behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hop {
    pub(super) stamp: CtMetadata,
    pub(super) recirc_id: u32,
    pub(super) next: FlowRef,
}

/// A way through the tables.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Path {
    /// The bits of line 0 of a first pass's key that any megaflow of the path asks for, connection fields left out that a
    /// `ct` writes, and what makes the packet one of TCP or UDP over IPv4, just received.
    mask: [u64; 8],
    /// Those bits.
    key: [u64; 8],
    first: FlowRef,
    hops: ArrayVec<Hop, HOPS_MAX>,
}

impl FlowRef {
    pub fn of(flow: &Megaflow) -> Self {
        FlowRef { id: flow.id(), serial: flow.serial() }
    }

    #[inline]
    fn get<'g>(&self, flows: Slots<'g, Megaflow>) -> Option<&'g Megaflow> {
        flows.get(self.id.0).filter(|flow| flow.serial() == self.serial)
    }
}

impl Hop {
    /// The megaflow behind it.
    pub fn next(&self) -> FlowId {
        self.next.id
    }
}

/// Bits of line 0, by word, that every path asks for: port and recirculation id; connection fields and presence (none);
/// Ethernet type; protocol and fragment.
const ALWAYS: [u64; 8] =
    [u64::MAX, 0, u64::MAX, 0, 0, bits(layout::DL_TYPE), 0, bits(layout::NW_PROTO) | bits(layout::NW_FRAG)];
/// Bits that `ct` and `recirc` write: what later megaflows ask of them is in the stamps.
const WRITTEN: [u64; 8] = [bits(layout::RECIRC_ID), 0, u64::MAX, 0, 0, 0, 0, 0];

/// A field of line 0 in its word.
const fn bits(span: layout::Span) -> u64 {
    (u64::MAX >> (64 - 8 * span.size)) << (span.offset % 8 * 8)
}

impl Path {
    /// The path that begins at a megaflow.
    pub fn begin(first: &Megaflow) -> Self {
        let asked = first.mask().words();
        let mask = std::array::from_fn(|i| ALWAYS[i] | asked[i]);
        Path { mask, key: [0; 8], first: FlowRef::of(first), hops: ArrayVec::new() }
    }

    /// Adds a hop that ends at `next`; false if packets may follow it of which it cannot be known, or it is one too many.
    pub fn add(&mut self, mut stamp: CtMetadata, recirc_id: u32, next: &Megaflow) -> bool {
        let mask = next.mask();
        let (asked, whole) = (mask.words(), &mask.whole);
        // Of line 2 only the label is in the stamp; the original tuple is the connection's, not the path's.
        let mut others = *whole.line(layout::CT_LABEL.line());
        let at = layout::CT_LABEL.offset % 64;
        others.0[at..at + layout::CT_LABEL.size].fill(0);
        if !others.is_zero() || self.hops.is_full() {
            return false;
        }
        let asks_for_mark = asked[layout::CT_MARK.offset / 8] & bits(layout::CT_MARK) != 0;
        let asks_for_label = whole.get(layout::CT_LABEL).iter().any(|byte| *byte != 0);
        stamp.marks = stamp.marks.filter(|_| asks_for_mark || asks_for_label);
        self.mask.iter_mut().zip(asked).zip(WRITTEN).for_each(|((mask, asked), written)| *mask |= asked & !written);
        self.hops.push(Hop { stamp, recirc_id, next: FlowRef::of(next) });
        true
    }

    /// Makes it the path of packets that are like this one in all it asks for.
    pub fn finish(&mut self, words: &[u64; 8]) {
        self.key = std::array::from_fn(|i| words[i] & self.mask[i]);
    }

    /// Whether a key, line 0, is of its packets.
    #[inline(always)]
    pub fn fits(&self, words: &[u64; 8]) -> bool {
        compare::masked_eq(words, &self.mask, &self.key)
    }

    /// Its hops.
    #[inline]
    pub fn hops(&self) -> &[Hop] {
        &self.hops
    }

    /// Its first megaflow, if all of them are the ones it was made of, and live.
    #[inline]
    pub fn first_if_live<'g>(&self, flows: Slots<'g, Megaflow>) -> Option<&'g Megaflow> {
        let first = self.first.get(flows)?;
        self.hops.iter().all(|hop| hop.next.get(flows).is_some()).then_some(first)
    }

    /// Its last megaflow, if that is live.
    #[inline]
    pub fn last_if_live<'g>(&self, flows: Slots<'g, Megaflow>) -> Option<&'g Megaflow> {
        self.hops.last()?.next.get(flows)
    }
}

/// All paths of a PMD, by number; the number of one that has gone is not given again.
#[derive(Debug, Default)]
pub(super) struct Paths {
    paths: Vec<(u32, Path)>,
    by_path: HashMap<Path, u32>,
    /// The number given last.
    last: u32,
}

impl Paths {
    #[inline]
    pub fn get(&self, id: u32) -> Option<&Path> {
        let (same, path) = self.paths.get(id as usize % PATHS_MAX)?;
        (*same == id).then_some(path)
    }

    /// The number of a path, never 0.
    pub fn intern(&mut self, path: Path) -> u32 {
        if let Some(id) = self.by_path.get(&path) {
            return *id;
        }
        self.last += 1;
        let (id, at) = (self.last, self.last as usize % PATHS_MAX);
        if at < self.paths.len() {
            let (_, gone) = std::mem::replace(&mut self.paths[at], (id, path.clone()));
            self.by_path.remove(&gone);
        } else {
            // The first place is nobody's: there is no path of number 0.
            self.paths.resize_with(at, || (0, path.clone()));
            self.paths.push((id, path.clone()));
        }
        self.by_path.insert(path, id);
        id
    }

    /// Whether so many numbers are given that no more should be.
    pub fn is_exhausted(&self) -> bool {
        self.last >= u32::MAX - 1
    }
}

/// What an entry is found by: source and destination, and both ports.
#[inline(always)]
pub(super) fn addresses_and_ports(words: &[u64; 8]) -> (u64, u32) {
    (words[6], (words[7] >> 32) as u32)
}

const _: () = assert!(
    layout::NW_SRC.offset == 48 && layout::NW_DST.offset == 52 && layout::TP_SRC.offset == 60,
    "addresses are word 6, ports the high half of word 7"
);

/// Whether a packet just received may have an entry: TCP or UDP over IPv4, not a fragment.
pub(super) fn is_eligible(key: &PacketKey) -> bool {
    let proto = key.get(layout::NW_PROTO)[0];
    let words = compare::words(&key.lines[0].0);
    key.get(layout::DL_TYPE) == ethertype::IPV4.to_be_bytes()
        && matches!(proto, ip_proto::TCP | ip_proto::UDP)
        && key.get(layout::NW_FRAG) == [0]
        && words[layout::CT_STATE.offset / 8] == 0
        && key.recirc_id() == 0
}
