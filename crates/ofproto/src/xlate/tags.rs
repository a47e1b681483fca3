//! VLAN tags and MPLS labels of a key: reading, pushing and popping.
//!
//! Functions that take the mask add the bits they look at, as OVS 3.1 does. The CFI bit tells whether there is a tag,
//! the bottom-of-stack bit where the labels end.

use super::protocol::{ethertype_of, is_ip, is_mpls};
use sluice_flow::layout::{self, Span};
use sluice_flow::{FlowKey, VlanLimit};
use sluice_packet::headers::ethertype;

/// The bit of a TCI that is set if there is a tag.
pub const CFI: u64 = 0x1000;
/// The VLAN id bits of a TCI.
pub const VID: u64 = 0x0fff;
/// The priority bits of a TCI.
pub const PCP: u64 = 0xe000;
/// Tags a key holds.
pub const MAX_TAGS: usize = 2;
/// MPLS labels a key holds.
pub const MAX_LABELS: usize = 3;
/// The bottom-of-stack bit of a label stack entry.
pub const BOS: u64 = 0x100;

const TPID: [Span; MAX_TAGS] = [layout::VLAN0_TPID, layout::VLAN1_TPID];
const TCI: [Span; MAX_TAGS] = [layout::VLAN0_TCI, layout::VLAN1_TCI];
const LSE: [Span; MAX_LABELS] = [layout::MPLS0, layout::MPLS1, layout::MPLS2];

/// A tag: TPID and TCI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// Tag protocol id.
    pub tpid: u16,
    /// Tag control information with the CFI bit.
    pub tci: u16,
}

/// Tag `i`, outermost first.
pub fn tag(key: &FlowKey, i: usize) -> Tag {
    Tag { tpid: key.number(TPID[i]) as u16, tci: key.number(TCI[i]) as u16 }
}

/// Replaces tag `i`.
pub fn set_tag(key: &mut FlowKey, i: usize, tag: Tag) {
    key.set_number(TPID[i], tag.tpid.into());
    key.set_number(TCI[i], tag.tci.into());
}

/// Adds bits to the mask of tag `i`'s TCI.
pub fn look_at_tci(wc: &mut FlowKey, i: usize, bits: u64) {
    let bits = wc.number(TCI[i]) | bits;
    wc.set_number(TCI[i], bits);
}

/// Adds the whole tag `i` to the mask.
pub fn look_at_tag(wc: &mut FlowKey, i: usize) {
    set_tag(wc, i, Tag { tpid: 0xffff, tci: 0xffff });
}

/// The number of tags.
pub fn tag_count(key: &FlowKey) -> usize {
    (0..MAX_TAGS).take_while(|&i| key.number(TCI[i]) & CFI != 0).count()
}

/// What a packet's key is if no more tags are read than `limit` allows.
pub fn limit(key: &mut FlowKey, limit: VlanLimit) {
    if tag_count(key) <= limit.tags() {
        return;
    }
    let beyond = tag(key, limit.tags());
    cut(key, limit);
    (0..MAX_LABELS).for_each(|i| set_label(key, i, 0));
    forget_behind_ethernet(key);
    key.set_number(layout::DL_TYPE, beyond.tpid.into());
}

/// Forgets the tags behind `limit`.
pub fn cut(key: &mut FlowKey, limit: VlanLimit) {
    (limit.tags()..MAX_TAGS).for_each(|i| set_tag(key, i, Tag::default()));
}

/// Pops the outer tag, if there is one.
pub fn pop_tag(key: &mut FlowKey, wc: &mut FlowKey) {
    let n = tag_count(key);
    for i in 1..n {
        look_at_tag(wc, i);
        let moved = tag(key, i);
        set_tag(key, i - 1, moved);
    }
    if n > 0 {
        set_tag(key, n - 1, Tag::default());
    }
}

/// Pushes an empty tag. If there are two, the inner one is lost, as in OVS.
pub fn push_tag(key: &mut FlowKey, wc: &mut FlowKey, tpid: u16) {
    (0..tag_count(key)).for_each(|i| look_at_tag(wc, i));
    for i in (1..MAX_TAGS).rev() {
        let moved = tag(key, i - 1);
        set_tag(key, i, moved);
    }
    set_tag(key, 0, Tag { tpid, tci: CFI as u16 });
}

/// Label stack entry `i`, outermost first.
pub fn label(key: &FlowKey, i: usize) -> u32 {
    key.number(LSE[i]) as u32
}

/// Replaces label stack entry `i`.
pub fn set_label(key: &mut FlowKey, i: usize, lse: u32) {
    key.set_number(LSE[i], lse.into());
}

/// Adds bits to the mask of label stack entry `i`.
pub fn look_at_label(wc: &mut FlowKey, i: usize, bits: u64) {
    let bits = wc.number(LSE[i]) | bits;
    wc.set_number(LSE[i], bits);
}

/// The number of labels. If there are more than the key holds, the number that it holds.
pub fn label_count(key: &FlowKey, mut wc: Option<&mut FlowKey>) -> usize {
    if !is_mpls(key) {
        return 0;
    }
    let mut seen = 0;
    for i in 0..MAX_LABELS {
        if let Some(wc) = wc.as_deref_mut() {
            look_at_label(wc, i, BOS);
        }
        let lse = u64::from(label(key, i));
        if lse & BOS != 0 {
            return i + 1;
        }
        seen += usize::from(lse != 0);
    }
    seen
}

/// The number of labels that two stacks have in common, from the bottom.
pub fn common_labels(a: &FlowKey, a_count: usize, b: &FlowKey, b_count: usize) -> usize {
    (1..=a_count.min(b_count)).take_while(|&up| label(a, a_count - up) == label(b, b_count - up)).count()
}

/// What happens to the fields of the network header and later ones when a first label is pushed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Behind {
    /// They are cleared: rules no longer match them.
    Forget,
    /// They stay, for the key of the datapath's packet: the label may be popped again.
    Keep,
}

/// Pushes a copy of the outer label, or a first label made from the IP header. There are `n` labels before.
pub fn push_label(key: &mut FlowKey, n: usize, ethertype: u16, wc: Option<&mut FlowKey>, behind: Behind) {
    if n > 0 {
        if let Some(wc) = wc {
            (0..n).for_each(|i| look_at_label(wc, i, 0xffff_ffff));
        }
        for i in (1..=n).rev() {
            let moved = label(key, i - 1);
            set_label(key, i, moved);
        }
        let top = label(key, 1) & !(BOS as u32);
        set_label(key, 0, top);
    } else {
        let first = first_label(key, wc);
        set_label(key, 0, first);
        if behind == Behind::Forget {
            forget_behind_ethernet(key);
        }
    }
    key.set_number(layout::DL_TYPE, ethertype.into());
}

/// A first label: IPv4 or IPv6 explicit null, traffic class and TTL of the IP header, bottom of stack.
fn first_label(key: &FlowKey, wc: Option<&mut FlowKey>) -> u32 {
    let label = if ethertype_of(key) == ethertype::IPV6 { 2 } else { 0 };
    let (mut tc, mut ttl) = (0, 64);
    if is_ip(key) {
        tc = (key.number(layout::NW_TOS) & 0xfc) >> 2;
        if let Some(wc) = wc {
            let tos = wc.number(layout::NW_TOS) | 0xfc;
            wc.set_number(layout::NW_TOS, tos);
            wc.set_number(layout::NW_TTL, 0xff);
        }
        if key.number(layout::NW_TTL) != 0 {
            ttl = key.number(layout::NW_TTL);
        }
    }
    // A traffic class has three bits: as in OVS, the low three of the six bits of the DSCP.
    (label << 12 | (tc << 9) & 0xe00 | BOS | ttl) as u32
}

/// Clears every field after the Ethernet type and the labels, and the datapath's hash.
fn forget_behind_ethernet(key: &mut FlowKey) {
    use layout::*;
    for span in [
        TCP_FLAGS,
        NW_SRC,
        NW_DST,
        NW_PROTO,
        NW_TOS,
        NW_TTL,
        NW_FRAG,
        TP_SRC,
        TP_DST,
        IPV6_SRC,
        IPV6_DST,
        ND_TARGET,
        IPV6_LABEL,
        ARP_SHA,
        ARP_THA,
        CT_SRC,
        CT_DST,
        CT_TP_SRC,
        CT_TP_DST,
        ND_RESERVED,
        DP_HASH,
    ] {
        key.get_mut(span).fill(0);
    }
}

/// Pops the outer of `n` labels; false if there is none, or if the packet has more labels than the key.
pub fn pop_label(key: &mut FlowKey, n: usize, ethertype: u16, mut wc: Option<&mut FlowKey>) -> bool {
    if n == 0 {
        return false;
    }
    if n == MAX_LABELS {
        if let Some(wc) = wc.as_deref_mut() {
            look_at_label(wc, n - 1, BOS);
        }
        if u64::from(label(key, n - 1)) & BOS == 0 {
            return false;
        }
    }
    if let Some(wc) = wc {
        (1..n).for_each(|i| look_at_label(wc, i, 0xffff_ffff));
    }
    for i in 1..n {
        let moved = label(key, i);
        set_label(key, i - 1, moved);
    }
    set_label(key, n - 1, 0);
    key.set_number(layout::DL_TYPE, ethertype.into());
    true
}
