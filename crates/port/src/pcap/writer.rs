//! Writing classic capture files, in microseconds.

use super::reader::{LINK_ETHERNET, MAGIC_MICROS, PACKET_HEADER, PACKET_MAX};
use super::sink::FileSink;
use std::io::{self, Write};
use std::path::Path;

/// Writes a capture. Buffered data reaches the file when the buffer is full, at `flush` and `finish`, or on drop.
#[derive(Debug)]
pub struct Writer<W: Write = FileSink> {
    sink: W,
    /// The record under way, which goes to the sink in one call.
    record: Vec<u8>,
}

impl Writer {
    /// Creates or truncates the file, and writes its header.
    pub fn create(path: &Path) -> io::Result<Self> {
        Writer::new(FileSink::create(path)?)
    }

    /// Appends to the file. One that does not exist or is empty gets its header at once.
    pub fn append(path: &Path) -> io::Result<Self> {
        let sink = FileSink::append(path)?;
        let is_empty = sink.file_len()? == 0;
        let mut writer = if is_empty { Writer::new(sink)? } else { Writer { sink, record: Vec::new() } };
        writer.flush()?;
        Ok(writer)
    }
}

impl<W: Write> Writer<W> {
    /// Writes a capture's header into `sink`.
    pub fn new(mut sink: W) -> io::Result<Self> {
        let mut header = Vec::with_capacity(super::reader::FILE_HEADER);
        // Magic, version 2.4, two unused words, longest packet, link type.
        header.extend(MAGIC_MICROS.to_le_bytes());
        header.extend([2, 0, 4, 0]);
        [0, 0, PACKET_MAX, LINK_ETHERNET].iter().for_each(|word: &u32| header.extend(word.to_le_bytes()));
        sink.write_all(&header)?;
        Ok(Writer { sink, record: Vec::new() })
    }

    /// Writes a packet with time `time_ns` (since 1970). Nanoseconds are cut off; seconds beyond 2106 wrap.
    ///
    /// # Errors
    /// If the sink does not take it; then nothing of it is written.
    pub fn write(&mut self, time_ns: u64, packet: &[u8]) -> io::Result<()> {
        let (seconds, micros) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000 / 1000);
        let words = [seconds as u32, micros as u32, packet.len() as u32, packet.len() as u32];
        self.record.clear();
        self.record.reserve(PACKET_HEADER + packet.len());
        words.iter().for_each(|word| self.record.extend(word.to_le_bytes()));
        self.record.extend_from_slice(packet);
        self.sink.write_all(&self.record)
    }

    /// Passes buffered data to the system.
    pub fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }

    /// Ends the capture. `Ok` if every packet written is in the file.
    pub fn finish(mut self) -> io::Result<W> {
        self.sink.flush()?;
        Ok(self.sink)
    }
}
