//! Standard output and standard error: a reader that is slow or gone never stops a thread that writes.
//!
//! The descriptors may be shared with other processes, so they stay blocking. Instead, poll(2) is asked before each
//! write, and a write is no longer than what a pipe that is ready takes at once. What the reader does not take in time
//! is dropped and counted.

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What one write takes at most, bytes: a pipe that is ready has at least that much space. Source: pipe(7), `PIPE_BUF`.
const WRITE_MAX: usize = 4096;

/// How long a line of the log waits for a reader that has taken the lines before.
const LINE_PATIENCE: Duration = Duration::from_millis(20);

/// Both streams may be the same pipe: between poll(2) and a write, no other thread of this process may write.
static WRITING: Mutex<()> = Mutex::new(());

/// Texts of standard output that were not taken whole.
static OUTPUT_DROPPED: AtomicU64 = AtomicU64::new(0);

/// The same of standard error.
static ERROR_DROPPED: AtomicU64 = AtomicU64::new(0);

/// Whether the last line for standard error was dropped: the next one does not wait.
static ERROR_IS_STALLED: AtomicBool = AtomicBool::new(false);

/// Texts that were dropped since the start because nobody read them in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsoleDropped {
    /// Of standard output.
    pub output: u64,
    /// Of standard error: lines of the log.
    pub error: u64,
}

/// What was dropped since the start.
pub fn console_dropped() -> ConsoleDropped {
    ConsoleDropped { output: OUTPUT_DROPPED.load(Relaxed), error: ERROR_DROPPED.load(Relaxed) }
}

/// Writes a text to standard output as far as its reader takes it; the reader gets that much time.
pub fn write_output(text: &str, patience: Duration) {
    if !write_all(std::io::stdout().as_fd(), text.as_bytes(), patience) {
        OUTPUT_DROPPED.fetch_add(1, Relaxed);
    }
}

/// Writes a line of the log to standard error.
pub(crate) fn write_error_line(line: &str) {
    let patience = if ERROR_IS_STALLED.load(Relaxed) { Duration::ZERO } else { LINE_PATIENCE };
    let is_written = write_all(std::io::stderr().as_fd(), format!("{line}\n").as_bytes(), patience);
    ERROR_IS_STALLED.store(!is_written, Relaxed);
    if !is_written {
        ERROR_DROPPED.fetch_add(1, Relaxed);
    }
}

/// Whether standard error is the journal's: each line then begins with its level. Source: systemd.exec(5), `$JOURNAL_STREAM`.
pub(crate) fn is_journal() -> bool {
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    rustix::fs::fstat(std::io::stderr()).is_ok_and(|found| names_stream(&stream, found.st_dev, found.st_ino))
}

fn names_stream(stream: &str, device: u64, inode: u64) -> bool {
    stream.split_once(':').is_some_and(|(dev, ino)| dev.parse() == Ok(device) && ino.parse() == Ok(inode))
}

/// A line of the log as the journal wants it: its level is in front of each line of it.
pub(crate) fn for_journal(severity: u32, line: &str) -> String {
    let lines: Vec<_> = line.lines().map(|line| format!("<{severity}>{line}")).collect();
    lines.join("\n")
}

/// Writes `bytes`; whether all of them were taken in time.
fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8], patience: Duration) -> bool {
    while !bytes.is_empty() {
        // Other threads may write while this one waits.
        if !is_ready(to, patience) {
            return false;
        }
        let _writing = WRITING.lock();
        if !is_ready(to, Duration::ZERO) {
            continue;
        }
        match rustix::io::write(to, &bytes[..bytes.len().min(WRITE_MAX)]) {
            Ok(written) => bytes = &bytes[written..],
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            // The reader is gone.
            Err(_) => return false,
        }
    }
    true
}

/// Whether a write would not wait: there is space, or an error that the write will tell.
fn is_ready(to: BorrowedFd<'_>, patience: Duration) -> bool {
    let timeout = Timespec::try_from(patience).ok();
    let mut polled = [PollFd::from_borrowed_fd(to, PollFlags::OUT)];
    matches!(poll(&mut polled, timeout.as_ref()), Ok(1..))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::time::Instant;

    #[test]
    fn the_journal_is_known_by_its_stream_and_gets_levels() {
        assert!(names_stream("8:31", 8, 31) && !names_stream("8:31", 8, 32));
        assert!(!names_stream("", 0, 0) && !names_stream("8", 8, 0) && !names_stream("a:b", 0, 0));
        assert_eq!(for_journal(4, "one\ntwo"), "<4>one\n<4>two");
    }

    #[test]
    fn a_pipe_that_nobody_reads_costs_the_patience_and_no_more() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let began = Instant::now();
        let large = vec![b'x'; 1 << 20];
        assert!(!write_all(writer.as_fd(), &large, Duration::from_millis(10)));
        assert!(!write_all(writer.as_fd(), b"more", Duration::ZERO));
        assert!(began.elapsed() < Duration::from_secs(30));
        // Space for less than a whole write: the pipe takes nothing, and nothing waits.
        let mut some = [0; 100];
        reader.read_exact(&mut some).unwrap();
        assert!(!write_all(writer.as_fd(), &large[..WRITE_MAX], Duration::ZERO));
    }

    #[test]
    fn a_reader_that_reads_gets_everything() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let large: Vec<u8> = (0..1_000_000u32).map(|i| i as u8).collect();
        let expected = large.clone();
        let thread = std::thread::spawn(move || write_all(writer.as_fd(), &large, Duration::from_secs(30)));
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        assert!(thread.join().unwrap());
        assert!(got == expected);
    }

    #[test]
    fn a_reader_that_is_gone_is_no_wait() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        assert!(!write_all(writer.as_fd(), b"text", Duration::from_secs(30)));
    }
}
