//! Paths through the tables, which connections share.

use arrayvec::ArrayVec;
use sluice_action::FlowId;
use sluice_conntrack::CtMetadata;
use sluice_flow::{Line, PacketKey, layout};
use sluice_flow_cache::{Megaflow, TagIndex};
use sluice_packet::headers::{ethertype, ip_proto};
use sluice_simd::{HashKey, VectorOps, compare, hash};
use sluice_sync::Slots;
use std::hash::{BuildHasher, RandomState};

/// The most `ct` actions in a path.
pub(crate) const HOPS_MAX: usize = 4;

/// The most paths that are kept, each in 592 bytes, and 25 to find it. A new one then replaces the oldest.
const PATHS_MAX: usize = 1 << 16;

const _: () = assert!(size_of::<(u32, Path)>() <= 592);

/// A megaflow by its id, and by its serial number among the megaflows that have had the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FlowRef {
    pub id: FlowId,
    serial: u64,
}

/// A `ct`, the recirculation, and the megaflow behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hop {
    pub(super) metadata: CtMetadata,
    pub(super) recirc_id: u32,
    pub(super) next: FlowRef,
}

/// A path through the tables.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Path {
    /// The bits of line 0 of a first pass's key that any megaflow of the path matches on, without the connection fields
    /// that `ct` writes, and the bits that make it a packet of TCP or UDP, just received.
    mask: [u64; 8],
    /// The values of those bits.
    key: [u64; 8],
    /// The same of the line of IPv6 addresses, if its packets have one and a megaflow matches on any of it.
    ipv6: Option<Box<Ipv6Line>>,
    /// The same of the lines of a tunnel, if its packets came by one.
    tunnel: Option<Box<TunnelLines>>,
    /// It has one `ct`, which translates nothing: a packet reads one line of its connection.
    is_simple: bool,
    first: FlowRef,
    hops: ArrayVec<Hop, HOPS_MAX>,
}

/// The bits of the line of IPv6 addresses that any megaflow of a path matches on, and their values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Ipv6Line {
    mask: [u64; 8],
    key: [u64; 8],
}

/// The bits of the lines of a tunnel that any megaflow of a path matches on, and their values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct TunnelLines {
    mask: [Line; 2],
    key: [Line; 2],
}

/// The line of IPv6 addresses.
pub(super) const IPV6: usize = layout::IPV6_SRC.line();

/// The lines of a tunnel: its fields and the first of its options. Packets with more options than that line has room for
/// (60 bytes) take no path.
const TUNNEL: [usize; 2] = [layout::TUN_ID.line(), layout::OPTIONS_LINE];

/// The protocol in the last word of line 0.
pub(super) const PROTO: u64 = bits(layout::NW_PROTO);

/// What the hash of an entry takes from its path.
#[derive(Clone, Copy, Debug)]
pub(super) struct HashedWords {
    /// The first word of line 0.
    pub first: u64,
    /// The protocol in the last one, without the ports.
    pub last: u64,
    /// The first word of the tunnel's line, if its packets came by one.
    pub tunnel: Option<u64>,
}

/// What the presence byte may say of a packet with a tunnel's fields, or with options too.
const BY_TUNNEL: [u64; 2] = [1 << TUNNEL[0], 1 << TUNNEL[0] | 1 << TUNNEL[1]];

impl FlowRef {
    pub fn of(flow: &Megaflow) -> Self {
        FlowRef { id: flow.id(), serial: flow.serial() }
    }

    #[inline]
    pub fn get<'g>(&self, flows: Slots<'g, Megaflow>) -> Option<&'g Megaflow> {
        flows.get(self.id.0).filter(|flow| flow.serial() == self.serial)
    }
}

impl Hop {
    /// The megaflow behind it.
    pub fn next(&self) -> FlowId {
        self.next.id
    }
}

/// Bits of line 0, by word, that every path matches on: port and recirculation id; connection fields and presence
/// (none); Ethernet type; protocol and fragment.
const ALWAYS: [u64; 8] = [u64::MAX, 0, u64::MAX, 0, 0, bits(layout::DL_TYPE), 0, PROTO | bits(layout::NW_FRAG)];
/// Bits that `ct` and `recirc` write. What later megaflows match of them is in the hops' metadata.
const WRITTEN: [u64; 8] = [bits(layout::RECIRC_ID), 0, u64::MAX, 0, 0, 0, 0, 0];
/// The same if a packet is translated: addresses and ports, too.
const WRITTEN_BY_NAT: [u64; 8] = [WRITTEN[0], 0, WRITTEN[2], 0, 0, 0, u64::MAX, PORTS];
/// The ports in the last word of line 0.
const PORTS: u64 = 0xffff_ffff << 32;

/// The bits of line 0 that `ct` and `recirc` write, with NAT or without.
fn written(by_nat: bool) -> [u64; 8] {
    if by_nat { WRITTEN_BY_NAT } else { WRITTEN }
}

/// The same of the line of IPv6 addresses.
fn written_of_ipv6(by_nat: bool) -> [u64; 8] {
    std::array::from_fn(|word| if by_nat && word < IPV6_WORDS { u64::MAX } else { 0 })
}

/// A field of line 0 in its word.
const fn bits(span: layout::Span) -> u64 {
    (u64::MAX >> (64 - 8 * span.size)) << (span.offset % 8 * 8)
}

impl Path {
    /// The path of a packet of this key that begins at a megaflow.
    pub fn begin(key: &PacketKey, first: &Megaflow) -> Self {
        let asked = first.mask().words();
        let mask = std::array::from_fn(|i| ALWAYS[i] | asked[i]);
        let ipv6 = key.has_line(IPV6).then(|| {
            let [mask, key] = [first.mask().whole.line(IPV6), key.line(IPV6)].map(|line| compare::words(&line.0));
            Box::new(Ipv6Line { mask, key })
        });
        let tunnel = key.has_line(TUNNEL[0]).then(|| {
            let key = TUNNEL.map(|line| *key.line(line));
            Box::new(TunnelLines { mask: TUNNEL.map(|line| *first.mask().whole.line(line)), key })
        });
        let first = FlowRef::of(first);
        Path { mask, key: [0; 8], ipv6, tunnel, is_simple: true, first, hops: ArrayVec::new() }
    }

    /// Whether it has one `ct`, which translates nothing: a packet reads one line of its connection.
    #[inline]
    pub fn is_simple(&self) -> bool {
        self.is_simple
    }

    /// Whether a `ct` translates its packets. What their addresses and ports are then follows from the connection, so what later
    /// megaflows match of them is in no mask.
    pub fn is_translated(&self) -> bool {
        self.hops.iter().any(|hop| hop.metadata.is_translated())
    }

    /// Whether a key behind the `ct` of `metadata` is that of the same packet: nothing has changed but what `ct` and `recirc`
    /// write. `words` are those of the first pass. To be asked before the path is finished.
    pub fn is_same_packet(&self, words: &[u64; 8], metadata: &CtMetadata, later: &PacketKey) -> bool {
        let by_nat = metadata.is_translated() || self.is_translated();
        let is_same_line = |first: &[u64; 8], later: &[u64; 8], written: [u64; 8]| {
            first.iter().zip(later).zip(written).all(|((first, later), written)| (first ^ later) & !written == 0)
        };
        is_same_line(words, &compare::words(&later.lines[0].0), written(by_nat))
            && self.ipv6.as_ref().is_none_or(|ipv6| {
                is_same_line(&ipv6.key, &compare::words(&later.line(IPV6).0), written_of_ipv6(by_nat))
            })
    }

    /// Adds a hop that ends at `next`; false if the path would be too long, or if line 0 cannot tell which packets
    /// match.
    pub fn add(&mut self, mut metadata: CtMetadata, recirc_id: u32, next: &Megaflow) -> bool {
        let mask = next.mask();
        let (asked, whole) = (mask.words(), &mask.whole);
        // Of line 2 only the label is in the metadata; the original tuple is the connection's, not the path's.
        let mut others = *whole.line(layout::CT_LABEL.line());
        let at = layout::CT_LABEL.offset % 64;
        others.0[at..at + layout::CT_LABEL.size].fill(0);
        if !others.is_zero() || self.hops.is_full() {
            return false;
        }
        let asks_for_mark = asked[layout::CT_MARK.offset / 8] & bits(layout::CT_MARK) != 0;
        let asks_for_label = whole.get(layout::CT_LABEL).iter().any(|byte| *byte != 0);
        metadata.marks = metadata.marks.filter(|_| asks_for_mark || asks_for_label);
        let add = |mask: &mut [u64; 8], asked: [u64; 8], written: [u64; 8]| {
            mask.iter_mut().zip(asked).zip(written).for_each(|((mask, asked), written)| *mask |= asked & !written);
        };
        let by_nat = metadata.is_translated() || self.is_translated();
        add(&mut self.mask, *asked, written(by_nat));
        if let Some(ipv6) = &mut self.ipv6 {
            add(&mut ipv6.mask, compare::words(&whole.line(IPV6).0), written_of_ipv6(by_nat));
        }
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.mask.iter_mut().zip(TUNNEL).for_each(|(mask, line)| *mask = mask.or(whole.line(line)));
        }
        self.is_simple = self.hops.is_empty() && !by_nat;
        self.hops.push(Hop { metadata, recirc_id, next: FlowRef::of(next) });
        true
    }

    /// Makes it the path of packets that equal this one in all that it matches on.
    pub fn finish(&mut self, words: &[u64; 8]) {
        self.key = std::array::from_fn(|i| words[i] & self.mask[i]);
        self.ipv6.take_if(|ipv6| ipv6.mask == [0; 8]);
        if let Some(ipv6) = &mut self.ipv6 {
            ipv6.key.iter_mut().zip(ipv6.mask).for_each(|(key, mask)| *key &= mask);
        }
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.key.iter_mut().zip(tunnel.mask).for_each(|(key, mask)| *key = key.and(&mask));
        }
    }

    /// Whether a key is one of its packets'; `has_ipv6` tells whether it has IPv6 addresses.
    #[inline(always)]
    pub fn fits<V: VectorOps>(&self, ops: V, key: &PacketKey, has_ipv6: bool) -> bool {
        // Line 0 tells which further lines there are: those of the path, all of them or none.
        ops.masked_eq(&key.lines[0].0, &self.mask, &self.key)
            && (!has_ipv6 || self.fits_ipv6(ops, key))
            && self.tunnel.as_ref().is_none_or(|tunnel| tunnel.fits(key))
    }

    #[inline(always)]
    fn fits_ipv6<V: VectorOps>(&self, ops: V, key: &PacketKey) -> bool {
        self.ipv6.as_ref().is_none_or(|ipv6| ops.masked_eq(&key.lines[IPV6].0, &ipv6.mask, &ipv6.key))
    }

    /// What the hashes of its entries have in common; `None` if it does not match on all of that.
    pub fn hashed_words(&self) -> Option<HashedWords> {
        let tunnel = match &self.tunnel {
            Some(tunnel) if compare::words(&tunnel.mask[0].0)[0] != u64::MAX => return None,
            Some(tunnel) => Some(compare::words(&tunnel.key[0].0)[0]),
            None => None,
        };
        Some(HashedWords { first: self.key[0], last: self.key[7] & PROTO, tunnel })
    }

    /// Its hops.
    #[inline]
    pub fn hops(&self) -> &[Hop] {
        &self.hops
    }

    /// Its first megaflow, if all its megaflows are live.
    #[inline]
    pub fn first_if_live<'g>(&self, flows: Slots<'g, Megaflow>) -> Option<&'g Megaflow> {
        let first = self.first.get(flows)?;
        self.hops.iter().all(|hop| hop.next.get(flows).is_some()).then_some(first)
    }

    /// Its last megaflow, if it is live.
    #[inline]
    pub fn last_if_live<'g>(&self, flows: Slots<'g, Megaflow>) -> Option<&'g Megaflow> {
        self.hops.last()?.next.get(flows)
    }
}

impl TunnelLines {
    /// Out of line: most packets come by no tunnel.
    #[inline(never)]
    fn fits(&self, key: &PacketKey) -> bool {
        let [fields, options] = TUNNEL;
        let has_options = key.number(layout::PRESENCE) >> options & 1 != 0;
        let fits = |i: usize, line: usize| {
            let words = compare::words(&key.lines[line].0);
            compare::masked_eq(&words, &compare::words(&self.mask[i].0), &compare::words(&self.key[i].0))
        };
        fits(0, fields) && (!has_options || fits(1, options))
    }
}

/// All paths of a PMD, by number. The number of a replaced path is not used again.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// With room for all from the first on, in pages that are provided when first written: moving them to grow would hold
    /// up the PMD for milliseconds.
    paths: Vec<(u32, Path)>,
    /// Their numbers by their hashes.
    numbers: TagIndex,
    hasher: RandomState,
    /// The last number used.
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
        let tag = self.tag(&path);
        if let Some(id) = self.numbers.find(tag, |id| self.get(id).filter(|known| **known == path).map(|_| id)) {
            return id;
        }
        self.last += 1;
        let (id, at) = (self.last, self.last as usize % PATHS_MAX);
        self.numbers.insert(tag, id);
        if at < self.paths.len() {
            let (number, gone) = std::mem::replace(&mut self.paths[at], (id, path));
            self.numbers.remove(self.tag(&gone), number);
        } else {
            self.paths.reserve_exact(PATHS_MAX - self.paths.len());
            // The first place stays unused: there is no path of number 0.
            self.paths.resize_with(at, || (0, path.clone()));
            self.paths.push((id, path));
        }
        id
    }

    fn tag(&self, path: &Path) -> u32 {
        TagIndex::tag(self.hasher.hash_one(path))
    }

    /// Whether the numbers are used up.
    pub fn is_exhausted(&self) -> bool {
        self.last >= u32::MAX - 1
    }
}

/// What an entry is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Endpoints {
    /// Source and destination; of IPv6 their hash, which other addresses may have.
    pub addresses: u64,
    pub ports: u32,
}

impl Endpoints {
    #[inline(always)]
    pub fn of(secret: &HashKey, key: &PacketKey) -> Self {
        let ipv4 = Endpoints::of_ipv4(key);
        if key.has_line(IPV6) { Endpoints { addresses: hash_of_addresses(secret, key), ..ipv4 } } else { ipv4 }
    }

    /// The same of a packet that has no IPv6 addresses.
    #[inline(always)]
    pub fn of_ipv4(key: &PacketKey) -> Self {
        let words = compare::words(&key.lines[0].0);
        Endpoints { addresses: words[6], ports: (words[7] >> 32) as u32 }
    }
}

/// The hash of the IPv6 addresses of a key.
#[inline(always)]
fn hash_of_addresses(secret: &HashKey, key: &PacketKey) -> u64 {
    let words = compare::words(&key.lines[IPV6].0);
    let product = |at: usize| hash::product(words[at], secret.addends_of_line(IPV6)[at]);
    hash::finish((0..IPV6_WORDS).fold(0, |sum: u64, at| sum.wrapping_add(product(at))))
}

/// The words of [`IPV6`] that are addresses.
pub(super) const IPV6_WORDS: usize = 4;

const _: () = assert!(layout::IPV6_SRC.offset == 64 && layout::IPV6_DST.offset == 80, "addresses are words 0 to 3");

const _: () = assert!(
    layout::NW_SRC.offset == 48 && layout::NW_DST.offset == 52 && layout::TP_SRC.offset == 60,
    "addresses are word 6, ports the high half of word 7"
);

/// The word of connection fields and presence, and the bits of the latter.
const CONN: usize = layout::CT_STATE.offset / 8;
const PRESENCE: u64 = bits(layout::PRESENCE);

/// Whether a packet just received, or just out of a tunnel, may have an entry: TCP or UDP, not a fragment.
pub(super) fn is_eligible(key: &PacketKey) -> bool {
    let proto = key.get(layout::NW_PROTO)[0];
    let words = compare::words(&key.lines[0].0);
    let ethertype = if key.has_line(IPV6) { ethertype::IPV6 } else { ethertype::IPV4 };
    let further = key.number(layout::PRESENCE) & !(1 << IPV6);
    key.get(layout::DL_TYPE) == ethertype.to_be_bytes()
        && matches!(proto, ip_proto::TCP | ip_proto::UDP)
        && key.get(layout::NW_FRAG) == [0]
        && words[CONN] & !PRESENCE == 0
        && (further == 0 || BY_TUNNEL.contains(&further))
        && key.recirc_id() == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(n: u64) -> Path {
        let first = FlowRef { id: FlowId(0), serial: n };
        Path {
            mask: [u64::MAX; 8],
            key: [0; 8],
            ipv6: None,
            tunnel: None,
            is_simple: true,
            first,
            hops: ArrayVec::new(),
        }
    }

    #[test]
    fn a_path_keeps_its_number_until_the_oldest_are_replaced() {
        let mut paths = Paths::default();
        assert!(paths.get(0).is_none());
        for n in 1..PATHS_MAX as u64 {
            assert_eq!(u64::from(paths.intern(path(n))), n);
        }
        assert_eq!((paths.intern(path(1)), paths.get(1)), (1, Some(&path(1))), "the same again");
        let memory = (paths.paths.as_ptr(), paths.paths.capacity());
        for n in PATHS_MAX as u64..PATHS_MAX as u64 + 3 {
            assert_eq!(u64::from(paths.intern(path(n))), n);
        }
        assert_eq!((paths.get(1), paths.get(2), paths.get(3)), (None, None, Some(&path(3))));
        assert_eq!(paths.intern(path(2)), PATHS_MAX as u32 + 3, "a number is not used again");
        assert_eq!((paths.get(3), paths.numbers.len()), (None, PATHS_MAX));
        assert_eq!((paths.paths.as_ptr(), paths.paths.capacity()), memory, "nothing was moved");
        assert_eq!(paths.paths.len(), PATHS_MAX);
    }
}
