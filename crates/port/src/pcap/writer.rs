//! Writing classic capture files, in microseconds.

use super::reader::{LINK_ETHERNET, MAGIC_MICROS, PACKET_HEADER, PACKET_MAX};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes a capture. Buffered data reaches the file when the buffer is full, at `flush` and `finish`, or on drop.
#[derive(Debug)]
pub struct Writer<W: Write = BufWriter<File>> {
    sink: W,
}

impl Writer {
    /// Creates or truncates the file, and writes its header.
    pub fn create(path: &Path) -> io::Result<Self> {
        Writer::new(BufWriter::with_capacity(1 << 18, File::create(path)?))
    }
}

impl Writer {
    /// Appends to the file. One that does not exist or is empty gets its header at once.
    pub fn append(path: &Path) -> io::Result<Self> {
        let file = File::options().append(true).create(true).open(path)?;
        let is_empty = file.metadata()?.len() == 0;
        let sink = BufWriter::with_capacity(1 << 16, file);
        let mut writer = if is_empty { Writer::new(sink)? } else { Writer { sink } };
        writer.flush()?;
        Ok(writer)
    }
}

impl Writer {
    /// Whether it is a file whose writes wait for no reader.
    pub fn is_regular_file(&self) -> bool {
        self.sink.get_ref().metadata().is_ok_and(|meta| meta.is_file())
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
        Ok(Writer { sink })
    }

    /// Writes a packet with time `time_ns` (since 1970). Nanoseconds are cut off; seconds beyond 2106 wrap.
    pub fn write(&mut self, time_ns: u64, packet: &[u8]) -> io::Result<()> {
        let (seconds, micros) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000 / 1000);
        let words = [seconds as u32, micros as u32, packet.len() as u32, packet.len() as u32];
        let mut header = [0; PACKET_HEADER];
        header.as_chunks_mut().0.iter_mut().zip(words).for_each(|(to, word)| *to = word.to_le_bytes());
        self.sink.write_all(&header)?;
        self.sink.write_all(packet)
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
