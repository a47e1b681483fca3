//! Reading capture files: classic ones in microseconds or nanoseconds and either byte order, and pcapng.
//!
//! A capture that breaks off, because its writer was killed or its disk full, is read as far as it goes;
//! [`Reader::end_note`] says so. One that is empty has no packets.

use super::next_generation;
use super::next_generation_reader::Section;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

/// The first bytes of microsecond and nanosecond captures. Source: draft-ietf-opsawg-pcap, 4 (file header).
pub(super) const MAGIC_MICROS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOS: u32 = 0xa1b2_3c4d;
/// Link type of Ethernet.
pub(super) const LINK_ETHERNET: u32 = 1;

/// The longest packet in a capture. Source: libpcap, MAXIMUM_SNAPLEN.
pub(super) const PACKET_MAX: u32 = 262_144;

pub(super) const FILE_HEADER: usize = 24;
pub(super) const PACKET_HEADER: usize = 16;

/// Reads a capture packet by packet, with one packet and a file buffer in memory.
#[derive(Debug)]
pub struct Reader<R = BufReader<File>> {
    path: PathBuf,
    source: R,
    pub(super) big_endian: bool,
    /// The section under way, if it is a pcapng file.
    section: Option<Section>,
    /// Nanoseconds in a unit of a timestamp's fraction.
    fraction_ns: u64,
    /// Bytes and packets read so far.
    pub(super) offset: u64,
    pub(super) packets: u64,
    /// Where the record under way begins.
    pub(super) record_at: u64,
    /// Where and how it broke off.
    end_note: Option<String>,
}

/// A captured packet's properties other than its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Capture time, nanoseconds since 1970.
    pub time_ns: u64,
    /// Its original length, which is longer than what was captured if the capture was truncated.
    pub original_len: u32,
}

/// An error in a capture, and where it is.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// It cannot be read.
    #[error("{}: cannot be read: {cause}", path.display())]
    #[expect(missing_docs, reason = "the names say it")]
    Io { path: PathBuf, cause: io::Error },
    /// It is not a capture of a known format.
    #[error("{}: {found}; expected a pcap or pcapng file of Ethernet packets", path.display())]
    #[expect(missing_docs, reason = "the names say it")]
    Format { path: PathBuf, found: String },
    /// A packet's length is impossible.
    #[error("{}: packet {packet} at byte {offset}: a length of {len} bytes; expected at most {max}", path.display())]
    #[expect(missing_docs, reason = "the names say it")]
    Length { path: PathBuf, packet: u64, offset: u64, len: u32, max: u32 },
    /// It is too large to hold in memory.
    #[error("{}: {bytes} bytes are too many to be held in memory, where loop wants it; expected at most {max}; play it once, or a shorter one", path.display())]
    #[expect(missing_docs, reason = "the names say it")]
    TooLarge { path: PathBuf, bytes: u64, max: u64 },
}

impl Reader {
    /// Opens a capture and reads its header.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        let failed = |cause| CaptureError::Io { path: path.to_owned(), cause };
        let file = File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        Reader::new(BufReader::with_capacity(1 << 18, file), path)
    }
}

impl<R: Read> Reader<R> {
    /// Reads the header of a capture from `source`; `path` names it in errors.
    pub fn new(source: R, path: &Path) -> Result<Self, CaptureError> {
        let mut reader = Reader {
            path: path.to_owned(),
            source,
            big_endian: false,
            section: None,
            fraction_ns: 1000,
            offset: 0,
            packets: 0,
            record_at: 0,
            end_note: None,
        };
        let mut magic = [0; 4];
        match reader.read_up_to(&mut magic)? {
            4 => {}
            0 => {
                reader.end_note = Some("the file is empty".into());
                return Ok(reader);
            }
            have => {
                reader.cut("file header", have, FILE_HEADER);
                return Ok(reader);
            }
        }
        let word = reader.word(&magic, 0);
        (reader.big_endian, reader.fraction_ns) = match (word, word.swap_bytes()) {
            (MAGIC_MICROS, _) => (false, 1000),
            (_, MAGIC_MICROS) => (true, 1000),
            (MAGIC_NANOS, _) => (false, 1),
            (_, MAGIC_NANOS) => (true, 1),
            // The same in either byte order.
            (next_generation::SECTION, _) => {
                reader.section = Some(reader.begin_section()?);
                return Ok(reader);
            }
            _ => return Err(reader.format_error(format!("the file begins with {magic:02x?}"))),
        };
        let mut header = [0; FILE_HEADER - 4];
        if !reader.fill(&mut header, "file header")? {
            return Ok(reader);
        }
        // The upper bits are the length of a frame's checksum, if it has one.
        match reader.word(&header, 16) & 0x03ff_ffff {
            LINK_ETHERNET => Ok(reader),
            link => Err(reader.format_error(format!("its packets are of link type {link}, not Ethernet (1)"))),
        }
    }

    /// Reads the next packet into `packet`, replacing its content. `None` at the end, or where the file breaks off.
    pub fn next_packet(&mut self, packet: &mut Vec<u8>) -> Result<Option<Record>, CaptureError> {
        if self.end_note.is_some() {
            return Ok(None);
        }
        if let Some(mut section) = self.section.take() {
            let next = self.next_block_packet(&mut section, packet);
            self.section = Some(section);
            return next;
        }
        self.record_at = self.offset;
        let mut header = [0; PACKET_HEADER];
        match self.read_up_to(&mut header)? {
            0 => return Ok(None),
            PACKET_HEADER => {}
            have => {
                self.cut("packet header", have, PACKET_HEADER);
                return Ok(None);
            }
        }
        let len = self.word(&header, 8);
        if len > PACKET_MAX {
            return Err(self.length_error(len, PACKET_MAX));
        }
        packet.resize(len as usize, 0);
        if !self.fill(packet, "packet")? {
            return Ok(None);
        }
        self.packets += 1;
        let (seconds, fraction) = (self.word(&header, 0), self.word(&header, 4));
        Ok(Some(Record {
            time_ns: u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.fraction_ns,
            original_len: self.word(&header, 12),
        }))
    }

    /// Where and how the file breaks off, once its last packet was read; `None` if it does not.
    pub fn end_note(&self) -> Option<&str> {
        self.end_note.as_deref()
    }

    /// Notes that the file breaks off within `part`, of which it has `have` of `want` bytes.
    pub(super) fn cut(&mut self, part: &str, have: usize, want: usize) {
        let (read, offset) = (self.packets, self.offset);
        self.end_note = Some(format!(
            "the file breaks off at byte {offset}, within a {part} ({have} of {want} bytes); packets read before that: {read}"
        ));
    }

    pub(super) fn format_error(&self, found: String) -> CaptureError {
        CaptureError::Format { path: self.path.clone(), found }
    }

    pub(super) fn length_error(&self, len: u32, max: u32) -> CaptureError {
        let (path, packet, offset) = (self.path.clone(), self.packets + 1, self.record_at);
        CaptureError::Length { path, packet, offset, len, max }
    }

    /// Fills `buffer`. False, with a note, if the file breaks off before that.
    pub(super) fn fill(&mut self, buffer: &mut [u8], part: &str) -> Result<bool, CaptureError> {
        let (have, want) = (self.read_up_to(buffer)?, buffer.len());
        if have < want {
            self.cut(part, have, want);
        }
        Ok(have == want)
    }

    /// Passes over `n` bytes. False, with a note, if the file breaks off before that.
    pub(super) fn skip(&mut self, n: u32, part: &str) -> Result<bool, CaptureError> {
        let mut passed = [0; 4096];
        let mut left = n as usize;
        while left != 0 {
            let piece = left.min(passed.len());
            if !self.fill(&mut passed[..piece], part)? {
                return Ok(false);
            }
            left -= piece;
        }
        Ok(true)
    }

    pub(super) fn word(&self, header: &[u8], at: usize) -> u32 {
        let bytes = *header[at..].first_chunk().expect("invariant: inside a header");
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    /// Fills `buffer` as far as the file goes. Returns how far.
    pub(super) fn read_up_to(&mut self, buffer: &mut [u8]) -> Result<usize, CaptureError> {
        let mut have = 0;
        while have < buffer.len() {
            match self.source.read(&mut buffer[have..]) {
                Ok(0) => break,
                Ok(n) => have += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(CaptureError::Io { path: self.path.clone(), cause }),
            }
        }
        self.offset += have as u64;
        Ok(have)
    }
}
