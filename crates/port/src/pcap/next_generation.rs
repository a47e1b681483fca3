//! The blocks of pcapng files: what is written of them, and the numbers that reading needs, too.
//!
//! Source: draft-ietf-opsawg-pcapng. A file is a list of blocks; each begins with its type and length and ends with its
//! length again. A writer may use either byte order; this one writes little-endian.

/// Section header block.
pub(super) const SECTION: u32 = 0x0a0d_0d0a;
pub(super) const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
/// Interface description block.
pub(super) const INTERFACE: u32 = 1;
/// Packet block, obsolete.
pub(super) const OLD_PACKET: u32 = 2;
/// Simple packet block.
pub(super) const SIMPLE_PACKET: u32 = 3;
/// Interface statistics block.
const STATISTICS: u32 = 5;
/// Enhanced packet block.
pub(super) const PACKET: u32 = 6;

/// Options of interfaces: the unit of time stamps, and the time of their zero.
pub(super) const IF_TSRESOL: u16 = 9;
pub(super) const IF_TSOFFSET: u16 = 14;

/// The options that are written.
const OPT_COMMENT: u16 = 1;
const IF_NAME: u16 = 2;
const EPB_FLAGS: u16 = 2;
const SHB_USERAPPL: u16 = 4;
const ISB_IFDROP: u16 = 5;

/// The longest text of an option.
const TEXT_MAX: usize = 8192;

/// The type of a block and its length in bytes, from its first eight; of blocks that this module has written.
pub fn block_header(header: [u8; 8]) -> (u32, u32) {
    let [a, b, c, d, rest @ ..] = header;
    (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes(rest))
}

/// Whether a block is a packet.
pub fn is_packet(block_type: u32) -> bool {
    block_type == PACKET
}

/// The packets that an interface's statistics count as dropped, if the block that this module has written is one.
pub fn dropped(block: &[u8]) -> Option<u64> {
    let [a, b, c, d, ..] = *block else { return None };
    // Type, length, interface, time, the option's head; then its value.
    const AT: usize = 8 + 4 + 8 + 4;
    let value = block.get(AT..)?.first_chunk()?;
    (u32::from_le_bytes([a, b, c, d]) == STATISTICS).then(|| u64::from_le_bytes(*value))
}

/// The way of a packet through an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Not known, or neither.
    Unknown,
    /// Received.
    Inbound,
    /// Sent.
    Outbound,
}

/// A packet as it is written.
#[derive(Clone, Copy, Debug)]
pub struct PacketRecord<'a> {
    /// The number of its interface, in the order of their descriptions.
    pub interface: u32,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// What was captured of it.
    pub bytes: &'a [u8],
    /// How long it was.
    pub original_len: u32,
    /// Which way it went.
    pub direction: Direction,
    /// What is to be said of it.
    pub comment: &'a str,
}

/// Begins a file.
pub fn write_section(out: &mut Vec<u8>, application: &str) {
    block(out, SECTION, |out| {
        out.extend(BYTE_ORDER_MAGIC.to_le_bytes());
        // Version 1.0, a section of unknown length.
        out.extend([1, 0, 0, 0]);
        out.extend(u64::MAX.to_le_bytes());
        option(out, SHB_USERAPPL, text(application));
        end_of_options(out);
    });
}

/// Describes an interface of Ethernet, whose time stamps are nanoseconds.
pub fn write_interface(out: &mut Vec<u8>, name: &str, snaplen: u32) {
    block(out, INTERFACE, |out| {
        out.extend([super::reader::LINK_ETHERNET as u8, 0, 0, 0]);
        out.extend(snaplen.to_le_bytes());
        option(out, IF_NAME, text(name));
        option(out, IF_TSRESOL, &[9]);
        end_of_options(out);
    });
}

/// Writes a packet.
pub fn write_packet(out: &mut Vec<u8>, packet: &PacketRecord<'_>) {
    block(out, PACKET, |out| {
        let (high, low) = ((packet.time_ns >> 32) as u32, packet.time_ns as u32);
        let words = [packet.interface, high, low, packet.bytes.len() as u32, packet.original_len];
        words.iter().for_each(|word| out.extend(word.to_le_bytes()));
        out.extend_from_slice(packet.bytes);
        pad(out, packet.bytes.len());
        if packet.direction != Direction::Unknown {
            option(out, EPB_FLAGS, &(packet.direction as u32).to_le_bytes());
        }
        if !packet.comment.is_empty() {
            option(out, OPT_COMMENT, text(packet.comment));
        }
        end_of_options(out);
    });
}

/// Says how many packets of an interface were not captured for lack of room.
pub fn write_statistics(out: &mut Vec<u8>, interface: u32, time_ns: u64, dropped: u64) {
    block(out, STATISTICS, |out| {
        let words = [interface, (time_ns >> 32) as u32, time_ns as u32];
        words.iter().for_each(|word| out.extend(word.to_le_bytes()));
        option(out, ISB_IFDROP, &dropped.to_le_bytes());
        end_of_options(out);
    });
}

fn block(out: &mut Vec<u8>, block_type: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend(block_type.to_le_bytes());
    out.extend([0; 4]);
    body(out);
    let len = ((out.len() - start + 4) as u32).to_le_bytes();
    out[start + 4..start + 8].copy_from_slice(&len);
    out.extend(len);
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    out.extend(code.to_le_bytes());
    out.extend((value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    pad(out, value.len());
}

fn end_of_options(out: &mut Vec<u8>) {
    out.extend([0; 4]);
}

/// Fills up to a multiple of four.
fn pad(out: &mut Vec<u8>, len: usize) {
    out.extend(std::iter::repeat_n(0, len.next_multiple_of(4) - len));
}

fn text(text: &str) -> &[u8] {
    &text.as_bytes()[..text.floor_char_boundary(TEXT_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcap::{Reader, Record};
    use proptest::prelude::*;
    use std::path::Path;

    proptest! {
        /// What is written is read, by the reader that any pcapng file meets.
        #[test]
        fn what_is_written_is_read(
            packets in prop::collection::vec((any::<u64>(), prop::collection::vec(any::<u8>(), 0..100), 0u32..50, ".{0,40}"), 0..20),
        ) {
            let mut file = Vec::new();
            write_section(&mut file, "sluice");
            write_interface(&mut file, "p1", 65_535);
            for (time_ns, bytes, more, comment) in &packets {
                let (original_len, direction) = (bytes.len() as u32 + more, Direction::Inbound);
                write_packet(&mut file, &PacketRecord { interface: 0, time_ns: *time_ns, bytes, original_len, direction, comment });
            }
            write_statistics(&mut file, 0, 5, 77);
            let mut reader = Reader::new(&file[..], Path::new("x")).unwrap();
            let mut packet = Vec::new();
            for (time_ns, bytes, more, _) in &packets {
                let want = Record { time_ns: *time_ns, original_len: bytes.len() as u32 + more };
                prop_assert_eq!(reader.next_packet(&mut packet).unwrap(), Some(want));
                prop_assert_eq!(&packet, bytes);
            }
            prop_assert_eq!(reader.next_packet(&mut packet).unwrap(), None);
            prop_assert_eq!(reader.end_note(), None);
        }
    }

    #[test]
    fn statistics_are_found_in_their_block() {
        let mut block = Vec::new();
        write_statistics(&mut block, 3, 1 << 40, 77);
        assert_eq!(block_header(*block.first_chunk().unwrap()), (STATISTICS, block.len() as u32));
        assert_eq!(dropped(&block), Some(77));
        assert_eq!(dropped(&block[..20]), None);
    }
}
