//! Reading a fragment's headers.

use sluice_flow::{PacketKey, layout};
use sluice_packet::headers::*;
use sluice_packet::{Layers, checksum};

/// The largest IPv4 packet, and the largest IPv6 packet behind its fixed header.
const SIZE_MAX: u32 = 65_535;

/// Identifies the packet that fragments belong to. As in Open vSwitch, different passes are different packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DatagramKey {
    pub src: [u8; 16],
    pub dst: [u8; 16],
    /// The identification; 16 bits in IPv4.
    pub id: u32,
    pub recirc_id: u32,
    pub zone: u16,
    /// Zero in IPv6, whose later fragments do not have it.
    pub proto: u8,
    pub v6: bool,
}

/// Where a fragment's data is in its frame, and where it belongs in the complete packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FragmentSpan {
    /// Its range of the complete packet's data.
    pub start: u32,
    pub end: u32,
    /// Where its IP header begins, bytes from the start of the frame.
    pub l3: usize,
    /// Where its data begins.
    pub data: usize,
    /// Whether the IP header is IPv6.
    pub v6: bool,
}

/// What a fragment's headers contain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FragmentHeader {
    pub key: DatagramKey,
    pub span: FragmentSpan,
    pub is_last: bool,
    /// Bytes of this IP packet.
    pub size: usize,
}

/// Why a fragment is not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreError {
    /// Part of its data is there already, or it lies behind the end.
    Overlap,
    /// The limit on held fragments, or the port's share of it, is reached.
    Full,
}

/// Whether a packet is a fragment, according to its key.
#[inline]
pub fn is_fragment(key: &PacketKey) -> bool {
    key.lines[0].0[layout::NW_FRAG.offset] & FRAG_ANY != 0
}

impl FragmentHeader {
    /// Reads a fragment; `None` if the packet is none, or no packet can be reassembled from it.
    pub fn read(bytes: &[u8], key: &PacketKey, zone: u16) -> Option<FragmentHeader> {
        let layers = Layers::of(bytes)?;
        let (ip, l3) = (layers.ip?, layers.l3);
        let header = bytes.get(l3..ip.end)?;
        let (data, offset, more, id) = if ip.v6 { v6(header)? } else { v4(header)? };
        let len = header.len().checked_sub(data).filter(|len| *len > 0)?;
        let (start, end) = (offset, offset + len as u32);
        // A fragment that is not the last ends at a multiple of eight bytes, where the next can begin.
        if !more && offset == 0 || more && len % 8 != 0 {
            return None;
        }
        let fixed = if ip.v6 { IPV6_SIZE } else { 0 };
        if (data - fixed) as u32 + end > SIZE_MAX {
            return None;
        }
        let mut datagram = DatagramKey {
            src: [0; 16],
            dst: [0; 16],
            id,
            recirc_id: key.number(layout::RECIRC_ID) as u32,
            zone,
            proto: if ip.v6 { 0 } else { header[9] },
            v6: ip.v6,
        };
        let (at, size) = if ip.v6 { (8, 16) } else { (12, 4) };
        datagram.src[..size].copy_from_slice(&header[at..at + size]);
        datagram.dst[..size].copy_from_slice(&header[at + size..at + 2 * size]);
        Some(FragmentHeader {
            key: datagram,
            span: FragmentSpan { start, end, l3, data: l3 + data, v6: ip.v6 },
            is_last: !more,
            size: header.len(),
        })
    }
}

/// The data's position and offset, whether more fragments follow, and the identification; `None` if the checksum is
/// wrong.
fn v4(packet: &[u8]) -> Option<(usize, u32, bool, u32)> {
    let size = usize::from(packet.first()? & 0x0f) * 4;
    if checksum::internet(packet.get(..size)?) != 0 {
        return None;
    }
    let fragment = be16(packet, 6)?;
    Some((size, u32::from(fragment & 0x1fff) * 8, fragment & 0x2000 != 0, u32::from(be16(packet, 4)?)))
}

/// The same for IPv6, from the first fragment header; everything behind it is data.
fn v6(packet: &[u8]) -> Option<(usize, u32, bool, u32)> {
    let (mut proto, mut at) = (*packet.get(6)?, IPV6_SIZE);
    loop {
        let header = packet.get(at..)?.first_chunk::<8>()?;
        let size = match proto {
            ip_proto::FRAGMENT => {
                let fragment = u16::from_be_bytes([header[2], header[3]]);
                let id = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
                return Some((at + 8, u32::from(fragment & 0xfff8), fragment & 1 != 0, id));
            }
            ip_proto::HOP_BY_HOP | ip_proto::ROUTING | ip_proto::DESTINATION => (usize::from(header[1]) + 1) * 8,
            ip_proto::AH => (usize::from(header[1]) + 2) * 4,
            _ => return None,
        };
        (proto, at) = (header[0], at + size);
    }
}
