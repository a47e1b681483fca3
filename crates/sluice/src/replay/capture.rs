//! Captures, read whole (packets are sorted by time over all of them) and written.

use anyhow::Result;
use sluice_port::pcap::{Reader, Writer};
use std::path::Path;

/// A packet of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it was captured, nanoseconds since 1970.
    pub time_ns: u64,
    /// What was captured of it.
    pub bytes: Vec<u8>,
    /// Whether the capture was told to keep only the beginning.
    pub is_cut: bool,
}

impl Record {
    /// When it was captured, milliseconds since 1970.
    pub fn ms(&self) -> u64 {
        self.time_ns / 1_000_000
    }
}

/// Reads a capture as far as it goes, and says where it breaks off if it does.
///
/// # Errors
/// If it is none.
pub fn read(path: &Path) -> Result<(Vec<Record>, Option<String>)> {
    let mut reader = Reader::open(path)?;
    let (mut records, mut bytes) = (Vec::new(), Vec::new());
    while let Some(record) = reader.next_packet(&mut bytes)? {
        let is_cut = record.original_len as usize > bytes.len();
        records.push(Record { time_ns: record.time_ns, bytes: bytes.clone(), is_cut });
    }
    Ok((records, reader.end_note().map(str::to_owned)))
}

/// Writes packets in their order.
///
/// # Errors
/// If the file cannot be written.
pub fn write(path: &Path, records: &[Record]) -> std::io::Result<()> {
    let mut writer = Writer::create(path)?;
    records.iter().try_for_each(|record| writer.write(record.time_ns, &record.bytes))?;
    writer.finish().map(|_| ())
}
