//! Pushing and popping VLAN tags and MPLS labels, and the Ethernet header of packets that come without one.
//!
//! The bytes in front of the tag are moved, which are few, never the packet behind it. As in Open vSwitch, except that
//! a label pushed behind a SNAP header changes the type in that header; OVS overwrites the 802.3 length.

use super::EditError;
use crate::headers::*;
use crate::{Layers, Packet, VlanLimit};

/// The CFI bit, by which a key marks that there is a tag. On the wire it is 0.
const CFI: u16 = 0x1000;

/// Writes the addresses of the Ethernet header.
pub fn set_ethernet(packet: &mut Packet, src: [u8; 6], dst: [u8; 6]) -> Result<(), EditError> {
    let header = packet.bytes_mut().first_chunk_mut::<ETHERNET_SIZE>().ok_or(EditError::NoHeader)?;
    header[..6].copy_from_slice(&dst);
    header[6..12].copy_from_slice(&src);
    Ok(())
}

/// Pushes a VLAN tag behind the Ethernet addresses. The CFI bit of `tci` is not written.
pub fn push_vlan(packet: &mut Packet, tpid: u16, tci: u16) -> Result<(), EditError> {
    if packet.bytes().len() < ETHERNET_SIZE {
        return Err(EditError::NoHeader);
    }
    let [a, b] = tpid.to_be_bytes();
    let [c, d] = (tci & !CFI).to_be_bytes();
    insert(packet, 12, [a, b, c, d])
}

/// Removes the outer VLAN tag.
pub fn pop_vlan(packet: &mut Packet) -> Result<(), EditError> {
    match be16(packet.bytes(), 12) {
        Some(ethertype) if ethertype::is_vlan(ethertype) && packet.bytes().len() >= ETHERNET_SIZE + VLAN_SIZE => {
            remove(packet, 12);
            Ok(())
        }
        _ => Err(EditError::NoHeader),
    }
}

/// Pushes a label stack entry behind the tags that `limit` lets be read, in front of the label stack or of L3, and sets the Ethernet type.
pub fn push_mpls(packet: &mut Packet, ethertype: u16, lse: u32, limit: VlanLimit) -> Result<(), EditError> {
    let layers = Layers::with_vlan_limit(packet.bytes(), limit).ok_or(EditError::NoHeader)?;
    insert(packet, layers.l2_end, lse.to_be_bytes())?;
    put_ethertype(packet, layers.l2_end, ethertype);
    Ok(())
}

/// Removes the outer label stack entry, and sets the Ethernet type.
pub fn pop_mpls(packet: &mut Packet, ethertype: u16, limit: VlanLimit) -> Result<(), EditError> {
    let layers = Layers::with_vlan_limit(packet.bytes(), limit).ok_or(EditError::NoHeader)?;
    if layers.labels == 0 {
        return Err(EditError::NoHeader);
    }
    remove(packet, layers.l2_end);
    put_ethertype(packet, layers.l2_end, ethertype);
    Ok(())
}

/// Writes the Ethernet type in front of `l2_end`.
fn put_ethertype(packet: &mut Packet, l2_end: usize, ethertype: u16) {
    if let Some(to) = packet.bytes_mut()[..l2_end].last_chunk_mut::<2>() {
        *to = ethertype.to_be_bytes();
    }
}

/// Inserts four bytes at `at`, which is inside the packet.
fn insert(packet: &mut Packet, at: usize, new: [u8; 4]) -> Result<(), EditError> {
    packet.frame.push_front(4).map_err(|_| EditError::NoHeadroom)?;
    let bytes = packet.bytes_mut();
    bytes.copy_within(4..4 + at, 0);
    bytes[at..at + 4].copy_from_slice(&new);
    Ok(())
}

/// Removes the four bytes at `at`, which are inside the packet.
fn remove(packet: &mut Packet, at: usize) {
    packet.bytes_mut().copy_within(..at, 4);
    packet.frame.trim_front(4);
}
