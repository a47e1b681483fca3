//! A packet from its fragments, and what was found out about it back to them.

use super::Part;
use crate::stamp;
use sluice_flow::{PacketKey, extract_again};
use sluice_mem::Frame;
use sluice_packet::checksum;
use sluice_packet::headers::{IPV4_SIZE, IPV6_SIZE};

/// The longest packet that fragments can make, with tags and labels in front.
pub const WHOLE_MAX: usize = 66_560;

/// Writes the packet that the fragments make into an empty frame of at least [`WHOLE_MAX`] bytes: what is in front of the
/// first one's data, then the data of all. False if it would be too long.
///
/// An IPv6 packet keeps its fragment header, which then says nothing, so that offsets stay what they are.
pub fn assemble<T>(parts: &[Part<T>], frame: &mut Frame) -> bool {
    let Some(first) = parts.first() else { return false };
    let data = first.place.data;
    let total = parts.iter().map(|part| part.place.end).max().unwrap_or(0) as usize;
    let l3 = first.place.l3;
    let is_v6 = first.place.v6;
    let size = data - l3 + total - if is_v6 { IPV6_SIZE } else { 0 };
    let Ok(size) = u16::try_from(size) else { return false };
    let Some(bytes) = frame.bytes_mut().get_mut(..data + total) else { return false };
    bytes[..data].copy_from_slice(&first.packet.bytes()[..data]);
    for part in parts {
        let (from, to) = (part.place.data, data + part.place.start as usize);
        let len = (part.place.end - part.place.start) as usize;
        bytes[to..to + len].copy_from_slice(&part.packet.bytes()[from..from + len]);
    }
    let header = &mut bytes[l3..data];
    if is_v6 {
        header[4..6].copy_from_slice(&size.to_be_bytes());
        // Offset and flags of the fragment header, the last in front of the data.
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

/// Gives each fragment its share of what became of the whole packet: its bytes, addresses, and connection fields.
/// `key` is the packet's, the first fragment's once. False if the packet changed its length, so that they cannot have it.
pub fn distribute<T>(whole: &[u8], key: &PacketKey, parts: &mut [Part<T>]) -> bool {
    let Some(first) = parts.first() else { return false };
    let (l3, data) = (first.place.l3, first.place.data);
    let total: u32 = parts.iter().map(|part| part.place.end - part.place.start).sum();
    if whole.len() != data + total as usize {
        return false;
    }
    let is_v6 = first.place.v6;
    for part in parts {
        let place = part.place;
        let len = (place.end - place.start) as usize;
        let bytes = part.packet.bytes_mut();
        bytes[place.data..place.data + len].copy_from_slice(&whole[data + place.start as usize..][..len]);
        let addresses = if is_v6 { 8..IPV6_SIZE } else { 12..IPV4_SIZE };
        readdress(&mut bytes[place.l3..], &whole[l3..][addresses.clone()], addresses.start, is_v6);
        stamp::copy(&mut part.key, key);
        // What a key keeps of the original tuple depends on which headers the fragment has.
        let read = extract_again(part.packet.bytes(), &mut part.key);
        debug_assert_eq!(read, Ok(()), "a fragment that was read before");
    }
    true
}

/// Sets both addresses of an IP header, and its checksum if it has one.
fn readdress(header: &mut [u8], addresses: &[u8], at: usize, is_v6: bool) {
    let there = &mut header[at..at + addresses.len()];
    let change = checksum::change(there, addresses);
    there.copy_from_slice(addresses);
    if !is_v6 {
        let sum = checksum::apply(u16::from_be_bytes([header[10], header[11]]), change);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
}
