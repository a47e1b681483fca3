//! The commonest packets: IPv4 without tags, options or fragments, then UDP or TCP.
//!
//! Such a packet's line 0 is a permutation of its first bytes, so it is made by shuffles, without a branch on what the
//! packet is but the one that sends others to the next path.

use super::{Metadata, half};
use crate::{PacketKey, layout};
use sluice_packet::headers::*;
use sluice_simd::VectorOps;
use sluice_simd::vector_ops::{NOWHERE, Permutation, SOURCE};

/// Where the IPv4 header and the L4 header are.
const IP: usize = ETHERNET_SIZE;
const L4: usize = IP + IPV4_SIZE;

/// From the first bytes of a packet to line 0; what [`Metadata`] says is added.
struct LineOf;

impl Permutation for LineOf {
    const FROM: [u8; 64] = {
        // The field, its place in the packet.
        let fields = [
            (layout::DL_DST, 0),
            (layout::DL_SRC, 6),
            (layout::DL_TYPE, 12),
            (layout::NW_TOS, IP + 1),
            (layout::NW_TTL, IP + 8),
            (layout::NW_PROTO, IP + 9),
            (layout::NW_SRC, IP + 12),
            (layout::NW_DST, IP + 16),
            (layout::TP_SRC, L4),
            (layout::TP_DST, L4 + 2),
            (layout::TCP_FLAGS, TCP_FLAGS_AT),
        ];
        let mut from = [NOWHERE; 64];
        let mut i = 0;
        while i < fields.len() {
            let (span, at) = fields[i];
            let mut byte = 0;
            while byte < span.size {
                from[span.offset + byte] = (at + byte) as u8;
                byte += 1;
            }
            i += 1;
        }
        from
    };
}

/// Data offset and flags of a TCP header.
const TCP_FLAGS_AT: usize = L4 + 12;
const _: () = assert!(TCP_FLAGS_AT + 2 == SOURCE);

/// The bits of line 0 that a packet of UDP has, and one of TCP: the flags, 12 bits of two bytes, are TCP's.
const KEEP: [[u64; 8]; 2] = [with_flags(0), with_flags(0x0fff)];

const fn with_flags(flags: u16) -> [u64; 8] {
    let at = layout::TCP_FLAGS.offset;
    let mut bits = [u64::MAX; 8];
    bits[at / 8] = !(0xffff << (at % 8 * 8)) | (flags.to_be() as u64) << (at % 8 * 8);
    bits
}

/// Ethernet type, version and header length, of which the type of service, the fourth byte, is none.
const IPV4: u32 = u32::from_le_bytes([0x08, 0x00, 0x45, 0]);
const ANY_TOS: u32 = u32::from_le_bytes([0xff, 0xff, 0xff, 0]);

/// Fragment offset, "more fragments" and protocol, of four bytes with "don't fragment" and the time to live.
const KIND_BITS: u32 = u32::from_le_bytes([0x3f, 0xff, 0, 0xff]);
const WHOLE_UDP: u32 = u32::from_le_bytes([0, 0, 0, ip_proto::UDP]);
const WHOLE_TCP: u32 = u32::from_le_bytes([0, 0, 0, ip_proto::TCP]);

/// Writes the key of one of the commonest packets; `false` if the packet is none, and then the key is as it was.
///
/// UDP and TCP alternate in real traffic, so no branch tells them apart.
#[inline(always)]
pub(super) fn read<V: VectorOps>(ops: V, bytes: &[u8], metadata: &Metadata, key: &mut PacketKey) -> bool {
    let Some(start) = bytes.first_chunk::<SOURCE>() else { return false };
    let total = usize::from(u16::from_be_bytes([start[IP + 2], start[IP + 3]]));
    let padding = (bytes.len() - IP).wrapping_sub(total);
    let kind = half(start, IP + 6) & KIND_BITS;
    let is_tcp = kind == WHOLE_TCP;
    let tcp_size = usize::from(start[TCP_FLAGS_AT] >> 4) * 4;
    let least = IPV4_SIZE + if is_tcp { tcp_size } else { UDP_SIZE };
    // The checks are those of `ordinary`, all at once.
    let is_common = (half(start, 12) & ANY_TOS == IPV4)
        & ((kind == WHOLE_UDP) | is_tcp & (tcp_size >= TCP_SIZE))
        & (padding <= usize::from(u16::MAX))
        & (total >= least);
    if is_common {
        ops.permute::<LineOf>(start, &KEEP[usize::from(is_tcp)], &metadata.words, &mut key.lines[0].0);
    }
    is_common
}
