//! A file that captures are written into. If it is a pipe its reader may stall, which must not stop the writer: what the
//! pipe does not take is kept up to a bound, then refused, a packet at a time.

use rustix::fs::OFlags;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Bytes that wait for the file at most; more than the longest packet.
const BUFFER_MAX: usize = 1 << 19;

/// Bytes at which the buffer is written.
const WRITE_AT: usize = 1 << 18;

/// A file with a buffer. One call of `write` is taken whole, or refused whole.
#[derive(Debug)]
pub struct FileSink {
    file: File,
    is_regular: bool,
    buffer: Vec<u8>,
    /// The bytes of the buffer that are written.
    written: usize,
}

impl FileSink {
    /// Creates or truncates a file, or opens a pipe that has a reader.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let mut options = File::options();
        // Opening a pipe without a reader would wait for one.
        options.write(true).create(true).truncate(true).custom_flags(OFlags::NONBLOCK.bits() as i32);
        let opened = options.open(path).map_err(|cause| match cause.raw_os_error() {
            Some(code) if code == rustix::io::Errno::NXIO.raw_os_error() => {
                io::Error::new(cause.kind(), "the pipe has no reader yet")
            }
            _ => cause,
        });
        Ok(Self::of(opened?))
    }

    /// Writes to the end of a file.
    pub(super) fn append(path: &Path) -> io::Result<Self> {
        Ok(Self::of(File::options().append(true).create(true).open(path)?))
    }

    fn of(file: File) -> Self {
        let is_regular = file.metadata().is_ok_and(|meta| meta.is_file());
        FileSink { file, is_regular, buffer: Vec::new(), written: 0 }
    }

    /// The bytes in the file.
    pub(super) fn file_len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Writes as much of the buffer as the file takes without waiting for a reader.
    fn drain(&mut self) -> io::Result<()> {
        while self.written < self.buffer.len() {
            match self.file.write(&self.buffer[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => self.written += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.buffer.clear();
        self.written = 0;
        Ok(())
    }

    fn waiting(&self) -> usize {
        self.buffer.len() - self.written
    }
}

impl Write for FileSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.waiting() + bytes.len() > WRITE_AT {
            let drained = self.drain();
            let is_refused = match &drained {
                Ok(()) => false,
                // Of a disk that is full nothing is kept.
                Err(_) if self.is_regular => true,
                Err(_) => self.waiting() + bytes.len() > BUFFER_MAX,
            };
            if is_refused {
                return drained.map(|()| 0);
            }
            self.buffer.drain(..self.written);
            self.written = 0;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.drain()
    }
}

impl Drop for FileSink {
    fn drop(&mut self) {
        let _ = self.drain();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcap::{Reader, Writer};
    use std::io::Read;

    /// A reader that stalls costs packets, not time; what it reads afterwards is a whole capture.
    #[test]
    fn a_stalled_pipe_refuses_packets_and_stays_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        assert_eq!(FileSink::create(&path).unwrap_err().to_string(), "the pipe has no reader yet");
        let reading = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(&path).unwrap();
        let mut writer = Writer::create(&path).unwrap();
        let taken = (0..2000u64).filter(|time| writer.write(*time * 1000, &[7; 1000]).is_ok()).count();
        assert!((WRITE_AT / 1016..2000).contains(&taken), "{taken} packets were taken");
        let mut bytes = Vec::new();
        let mut reading = io::BufReader::new(reading);
        while writer.flush().is_err() {
            let _ = reading.read_to_end(&mut bytes);
        }
        drop(writer);
        let _ = reading.read_to_end(&mut bytes);
        let (mut reader, mut packet, mut read) = (Reader::new(&bytes[..], &path).unwrap(), Vec::new(), 0);
        while reader.next_packet(&mut packet).unwrap().is_some() {
            assert_eq!(packet, [7; 1000]);
            read += 1;
        }
        assert_eq!((read, reader.end_note()), (taken, None));
    }
}
