//! Reading classic capture files: microseconds or nanoseconds, either byte order.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

/// The first bytes of microsecond and nanosecond captures. Source: draft-ietf-opsawg-pcap, 4 (file header).
pub(super) const MAGIC_MICROS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOS: u32 = 0xa1b2_3c4d;
/// The first bytes of the newer format. Source: draft-ietf-opsawg-pcapng, 4.1 (section header block).
const MAGIC_NEXT_GENERATION: u32 = 0x0a0d_0d0a;
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
    big_endian: bool,
    /// Nanoseconds in a unit of a timestamp's fraction.
    fraction_ns: u64,
    /// Bytes and packets read so far.
    offset: u64,
    packets: u64,
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
    /// It is not a capture of the classic format.
    #[error("{}: {found}; expected a classic pcap file of Ethernet packets", path.display())]
    #[expect(missing_docs, reason = "the names say it")]
    Format { path: PathBuf, found: String },
    /// It ends within a packet.
    #[error("{}: packet {packet} at byte {offset}: the file ends after {have} bytes of its {part}; expected {want}", path.display())]
    #[expect(missing_docs, reason = "the names say it")]
    Cut { path: PathBuf, packet: u64, offset: u64, part: &'static str, have: usize, want: usize },
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
        let format = |found: String| CaptureError::Format { path: path.to_owned(), found };
        let mut reader =
            Reader { path: path.to_owned(), source, big_endian: false, fraction_ns: 1000, offset: 0, packets: 0 };
        let mut header = [0; FILE_HEADER];
        match reader.read_up_to(&mut header)? {
            FILE_HEADER => {}
            0 => return Err(format("the file is empty".into())),
            n => return Err(format(format!("the file ends after {n} of its header's {FILE_HEADER} bytes"))),
        }
        let magic = reader.word(&header, 0);
        (reader.big_endian, reader.fraction_ns) = match (magic, magic.swap_bytes()) {
            (MAGIC_MICROS, _) => (false, 1000),
            (_, MAGIC_MICROS) => (true, 1000),
            (MAGIC_NANOS, _) => (false, 1),
            (_, MAGIC_NANOS) => (true, 1),
            (MAGIC_NEXT_GENERATION, _) => {
                return Err(format("this is a pcapng file (`editcap -F pcap` converts it)".into()));
            }
            _ => return Err(format(format!("the file begins with {:02x?}", &header[..4]))),
        };
        // The upper bits are the length of a frame's checksum, if it has one.
        match reader.word(&header, 20) & 0x03ff_ffff {
            LINK_ETHERNET => Ok(reader),
            link => Err(format(format!("its packets are of link type {link}, not Ethernet (1)"))),
        }
    }

    /// Reads the next packet into `packet`, replacing its content. `None` at the end.
    pub fn next_packet(&mut self, packet: &mut Vec<u8>) -> Result<Option<Record>, CaptureError> {
        let (number, offset) = (self.packets + 1, self.offset);
        let mut header = [0; PACKET_HEADER];
        let have = self.read_up_to(&mut header)?;
        let cut = |path: &Path, part, have, want| CaptureError::Cut {
            path: path.to_owned(),
            packet: number,
            offset,
            part,
            have,
            want,
        };
        match have {
            0 => return Ok(None),
            PACKET_HEADER => {}
            _ => return Err(cut(&self.path, "header", have, PACKET_HEADER)),
        }
        let len = self.word(&header, 8);
        if len > PACKET_MAX {
            let path = self.path.clone();
            return Err(CaptureError::Length { path, packet: number, offset, len, max: PACKET_MAX });
        }
        packet.resize(len as usize, 0);
        let have = self.read_up_to(packet)?;
        if have < packet.len() {
            return Err(cut(&self.path, "bytes", have, packet.len()));
        }
        self.packets = number;
        let (seconds, fraction) = (self.word(&header, 0), self.word(&header, 4));
        Ok(Some(Record {
            time_ns: u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.fraction_ns,
            original_len: self.word(&header, 12),
        }))
    }

    fn word(&self, header: &[u8], at: usize) -> u32 {
        let bytes = *header[at..].first_chunk().expect("invariant: inside a header");
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    /// Fills `buffer` as far as the file goes. Returns how far.
    fn read_up_to(&mut self, buffer: &mut [u8]) -> Result<usize, CaptureError> {
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
