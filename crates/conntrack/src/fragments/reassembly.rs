//! Reassembling a packet from its fragments, and distributing the tracker's result to them.

use super::HeldFragment;
use crate::key_fields;
use sluice_flow::{PacketKey, VlanLimit, extract_again};
use sluice_mem::Frame;
use sluice_packet::checksum;
use sluice_packet::headers::{IPV4_SIZE, IPV6_SIZE};

/// The longest packet that fragments can form, including tags and labels.
pub const DATAGRAM_MAX: usize = 66_560;

/// Writes the complete packet into an empty frame of at least [`DATAGRAM_MAX`] bytes: the headers in front of the first
/// fragment's data, then all data. False if it would be too long.
///
/// An IPv6 packet keeps its fragment header, cleared, so that offsets do not change.
pub fn reassemble<T>(fragments: &[HeldFragment<T>], frame: &mut Frame) -> bool {
    let Some(first) = fragments.first() else { return false };
    let data = first.span.data;
    let total = fragments.iter().map(|fragment| fragment.span.end).max().unwrap_or(0) as usize;
    let l3 = first.span.l3;
    let is_v6 = first.span.v6;
    let size = data - l3 + total - if is_v6 { IPV6_SIZE } else { 0 };
    let Ok(size) = u16::try_from(size) else { return false };
    let Some(bytes) = frame.bytes_mut().get_mut(..data + total) else { return false };
    bytes[..data].copy_from_slice(&first.packet.bytes()[..data]);
    for fragment in fragments {
        let (from, to) = (fragment.span.data, data + fragment.span.start as usize);
        let len = (fragment.span.end - fragment.span.start) as usize;
        bytes[to..to + len].copy_from_slice(&fragment.packet.bytes()[from..from + len]);
    }
    let header = &mut bytes[l3..data];
    if is_v6 {
        header[4..6].copy_from_slice(&size.to_be_bytes());
        // Offset and flags of the fragment header, which is the last header in front of the data.
        let at = header.len() - 6;
        header[at..at + 2].fill(0);
    } else {
        header[2..4].copy_from_slice(&size.to_be_bytes());
        header[6] &= !0x20;
        header[10..12].fill(0);
        let sum = checksum::internet(header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    frame.truncate(data + total);
    true
}

/// Distributes the complete packet's result to its fragments: bytes, addresses and connection fields. `key` was the
/// first fragment's and is now the complete packet's. False if the packet's length has changed, so that this is
/// impossible.
pub fn distribute<T>(whole: &[u8], key: &PacketKey, fragments: &mut [HeldFragment<T>]) -> bool {
    let Some(first) = fragments.first() else { return false };
    let (l3, data) = (first.span.l3, first.span.data);
    let total: u32 = fragments.iter().map(|fragment| fragment.span.end - fragment.span.start).sum();
    if whole.len() != data + total as usize {
        return false;
    }
    let is_v6 = first.span.v6;
    for fragment in fragments {
        let span = fragment.span;
        let len = (span.end - span.start) as usize;
        let bytes = fragment.packet.bytes_mut();
        bytes[span.data..span.data + len].copy_from_slice(&whole[data + span.start as usize..][..len]);
        let addresses = if is_v6 { 8..IPV6_SIZE } else { 12..IPV4_SIZE };
        readdress(&mut bytes[span.l3..], &whole[l3..][addresses.clone()], addresses.start, is_v6);
        key_fields::copy(&mut fragment.key, key);
        // Which fields of the original tuple a key keeps depends on the fragment's headers. It has no further tag behind
        // those in its key: an IP header follows them.
        let read = extract_again(fragment.packet.bytes(), VlanLimit::MAX, &mut fragment.key);
        debug_assert_eq!(read, Ok(()), "a fragment that was read before");
    }
    true
}

/// Sets both addresses of an IP header, and updates its checksum if it has one.
fn readdress(header: &mut [u8], addresses: &[u8], at: usize, is_v6: bool) {
    let there = &mut header[at..at + addresses.len()];
    let change = checksum::change(there, addresses);
    there.copy_from_slice(addresses);
    if !is_v6 {
        let sum = checksum::apply(u16::from_be_bytes([header[10], header[11]]), change);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}
