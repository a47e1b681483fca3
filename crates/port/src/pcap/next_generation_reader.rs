//! Reading pcapng files: either byte order, several sections and interfaces, and of the blocks those with packets.

use super::next_generation::{
    BYTE_ORDER_MAGIC, IF_TSOFFSET, IF_TSRESOL, INTERFACE, OLD_PACKET, PACKET, SECTION, SIMPLE_PACKET,
};
use super::reader::{CaptureError, LINK_ETHERNET, PACKET_MAX, Reader, Record};
use std::io::Read;

/// Interfaces of a section at most.
const INTERFACES_MAX: usize = 1 << 12;

/// Bytes of an interface's options that are read at most.
const OPTIONS_MAX: usize = 1 << 16;

/// The section that is being read.
#[derive(Debug, Default)]
pub(super) struct Section {
    interfaces: Vec<Interface>,
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link: u16,
    snaplen: u32,
    /// Units of time stamps in a second.
    units: u128,
    /// Seconds to be added.
    offset_s: i64,
}

/// The head of a packet's block.
struct Head {
    interface: usize,
    time: u64,
    len: u32,
    original_len: u32,
}

impl Interface {
    fn time_ns(&self, time: u64) -> u64 {
        let ns = u128::from(time) * 1_000_000_000 / self.units;
        (i128::try_from(ns).unwrap_or(i128::MAX) + i128::from(self.offset_s) * 1_000_000_000).clamp(0, u64::MAX.into())
            as u64
    }
}

impl<R: Read> Reader<R> {
    /// Reads the rest of the first section's header, of which `magic` was the first word.
    pub(super) fn begin_section(&mut self) -> Result<Section, CaptureError> {
        let mut head = [0; 8];
        if !self.fill(&mut head, "section header")? {
            return Ok(Section::default());
        }
        self.section(head)
    }

    /// A section: its length and byte order, and the rest skipped.
    fn section(&mut self, head: [u8; 8]) -> Result<Section, CaptureError> {
        let [a, b, c, d, order @ ..] = head;
        self.big_endian = match (u32::from_le_bytes(order), u32::from_be_bytes(order)) {
            (BYTE_ORDER_MAGIC, _) => false,
            (_, BYTE_ORDER_MAGIC) => true,
            _ => return Err(self.format_error(format!("its byte order is {order:02x?}"))),
        };
        let len = self.word(&[a, b, c, d], 0);
        self.check_block(len, 28)?;
        self.skip(len - 12, "section header")?;
        Ok(Section::default())
    }

    /// Reads up to the next packet; `None` at the end.
    pub(super) fn next_block_packet(
        &mut self,
        section: &mut Section,
        packet: &mut Vec<u8>,
    ) -> Result<Option<Record>, CaptureError> {
        loop {
            self.record_at = self.offset;
            let mut head = [0; 8];
            match self.read_up_to(&mut head)? {
                0 => return Ok(None),
                8 => {}
                have => {
                    self.cut("block header", have, 8);
                    return Ok(None);
                }
            }
            let (block_type, len) = (self.word(&head, 0), self.word(&head, 4));
            if block_type == SECTION {
                let mut order = [0; 4];
                if !self.fill(&mut order, "section header")? {
                    return Ok(None);
                }
                let [_, _, _, _, a, b, c, d] = head;
                let [e, f, g, h] = order;
                *section = self.section([a, b, c, d, e, f, g, h])?;
                continue;
            }
            self.check_block(len, 12)?;
            let is_whole = match block_type {
                INTERFACE => self.interface(section, len)?,
                PACKET | OLD_PACKET | SIMPLE_PACKET => return self.block_packet(section, (block_type, len), packet),
                _ => self.skip(len - 8, "block")?,
            };
            if !is_whole {
                return Ok(None);
            }
        }
    }

    /// Reads a packet's block behind its head.
    fn block_packet(
        &mut self,
        section: &Section,
        (block_type, block_len): (u32, u32),
        packet: &mut Vec<u8>,
    ) -> Result<Option<Record>, CaptureError> {
        let mut fixed = [0; 20];
        let fixed_len = if block_type == SIMPLE_PACKET { 4 } else { 20 };
        self.check_block(block_len, 12 + fixed_len)?;
        if !self.fill(&mut fixed[..fixed_len as usize], "packet header")? {
            return Ok(None);
        }
        let room = block_len - 12 - fixed_len;
        let mut head = self.head(block_type, &fixed);
        let Some(interface) = section.interfaces.get(head.interface).copied() else {
            return Err(self.format_error(format!("packet {} is of an interface that is not there", self.packets + 1)));
        };
        if u32::from(interface.link) != LINK_ETHERNET {
            let link = interface.link;
            return Err(self.format_error(format!("its packets are of link type {link}, not Ethernet (1)")));
        }
        if block_type == SIMPLE_PACKET {
            let snaplen = if interface.snaplen == 0 { u32::MAX } else { interface.snaplen };
            head.len = head.original_len.min(snaplen).min(room);
        }
        if head.len > room.min(PACKET_MAX) {
            return Err(self.length_error(head.len, room.min(PACKET_MAX)));
        }
        packet.resize(head.len as usize, 0);
        if !self.fill(packet, "packet")? {
            return Ok(None);
        }
        self.packets += 1;
        // A file that ends here has its last packet all the same.
        self.skip(room - head.len + 4, "block")?;
        Ok(Some(Record { time_ns: interface.time_ns(head.time), original_len: head.original_len }))
    }

    fn head(&self, block_type: u32, fixed: &[u8; 20]) -> Head {
        let time = u64::from(self.word(fixed, 4)) << 32 | u64::from(self.word(fixed, 8));
        let (len, original_len) = (self.word(fixed, 12), self.word(fixed, 16));
        match block_type {
            SIMPLE_PACKET => Head { interface: 0, time: 0, len: 0, original_len: self.word(fixed, 0) },
            OLD_PACKET => Head { interface: self.half(fixed, 0).into(), time, len, original_len },
            _ => Head { interface: self.word(fixed, 0) as usize, time, len, original_len },
        }
    }

    /// Reads an interface's block behind its head; whether it is there whole.
    fn interface(&mut self, section: &mut Section, block_len: u32) -> Result<bool, CaptureError> {
        self.check_block(block_len, 20)?;
        if section.interfaces.len() == INTERFACES_MAX {
            return Err(self.format_error(format!("it has more than {INTERFACES_MAX} interfaces")));
        }
        let mut fixed = [0; 8];
        let room = (block_len - 20) as usize;
        let mut options = vec![0; room.min(OPTIONS_MAX)];
        if !self.fill(&mut fixed, "interface")? || !self.fill(&mut options, "interface")? {
            return Ok(false);
        }
        let (link, snaplen) = (self.half(&fixed, 0), self.word(&fixed, 4));
        let mut interface = Interface { link, snaplen, units: 1_000_000, offset_s: 0 };
        let mut rest = &options[..];
        while let Some((head, behind)) = rest.split_first_chunk::<4>() {
            let (code, len) = (self.half(head, 0), usize::from(self.half(head, 2)));
            let Some(value) = behind.get(..len).filter(|_| code != 0) else { break };
            match (code, value) {
                (IF_TSRESOL, [unit]) => interface.units = units(*unit),
                (IF_TSOFFSET, value) => {
                    interface.offset_s = value.first_chunk().map_or(0, |bytes| {
                        if self.big_endian { i64::from_be_bytes(*bytes) } else { i64::from_le_bytes(*bytes) }
                    });
                }
                _ => {}
            }
            rest = behind.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        }
        section.interfaces.push(interface);
        self.skip((room - options.len()) as u32 + 4, "interface")
    }

    fn check_block(&self, len: u32, least: u32) -> Result<(), CaptureError> {
        if len < least || !len.is_multiple_of(4) {
            return Err(self.format_error(format!("a block has a length of {len} bytes")));
        }
        Ok(())
    }

    fn half(&self, bytes: &[u8], at: usize) -> u16 {
        let bytes = *bytes[at..].first_chunk().expect("invariant: inside a header");
        if self.big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    }
}

/// Units of time in a second: a power of ten, or of two if the upper bit is set.
fn units(resolution: u8) -> u128 {
    let power = u32::from(resolution & 0x7f);
    let base: u128 = if resolution & 0x80 != 0 { 2 } else { 10 };
    base.checked_pow(power).unwrap_or(u128::MAX)
}
