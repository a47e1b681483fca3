//! Cuts a byte stream into JSON objects.
//!
//! JSON-RPC over a stream has no delimiter: objects stand back to back. The framer counts braces and brackets outside
//! strings to find where an object ends, and leaves the judgement of what is in between to the JSON parser. It reads
//! each byte once, however the stream is split, and holds at most one message's bytes more than it was last given.

use crate::FrameError;
use serde_json::Value;
use sluice_fate::Limit;

/// Levels of nesting that a message may have. The protocol's own need ten; `serde_json` refuses more than 127.
pub const NESTING_MAX: usize = 100;

/// Bytes that a message may have by default. A whole database comes as one message, in which a port with its interface
/// and statistics takes about a kilobyte (`tests/data`).
pub const MESSAGE_MAX_BYTES: usize = 256 << 20;

/// Once the consumed bytes at the buffer's front are this many, and most of it, they are dropped.
const COMPACT_BYTES: usize = 64 << 10;

/// Finds messages in a stream.
///
/// Errors: after an error every call returns that error, because the end of a broken message cannot be found.
#[derive(Debug)]
pub struct Framer {
    buffer: Vec<u8>,
    /// Where the message under way, or the space before it, begins.
    start: usize,
    /// The first byte that was not looked at.
    scanned: usize,
    depth: usize,
    string: StringState,
    max_bytes: usize,
    error: Option<FrameError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StringState {
    Outside,
    Inside,
    Escape,
}

impl Default for Framer {
    fn default() -> Self {
        Framer::new(MESSAGE_MAX_BYTES)
    }
}

impl Framer {
    /// A framer that refuses messages of more than `max_bytes`.
    pub fn new(max_bytes: usize) -> Self {
        Framer {
            buffer: Vec::new(),
            start: 0,
            scanned: 0,
            depth: 0,
            string: StringState::Outside,
            max_bytes,
            error: None,
        }
    }

    /// Takes bytes of the stream. After an error they are dropped.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.error.is_none() {
            self.buffer.extend_from_slice(bytes);
        }
    }

    /// The next whole object.
    ///
    /// # Errors
    /// If the stream is no sequence of JSON objects within the limits; then always the same.
    pub fn next_object(&mut self) -> Result<Option<Value>, FrameError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let found = self.scan().and_then(|end| end.map(|end| self.take(end)).transpose());
        if let Err(error) = &found {
            if matches!(error, FrameError::TooLong { .. } | FrameError::TooDeep { .. }) {
                Limit::DatabaseMessages.hit();
            }
            self.error = Some(error.clone());
            self.buffer = Vec::new();
        }
        found
    }

    /// The end of the object under way, if it has come.
    fn scan(&mut self) -> Result<Option<usize>, FrameError> {
        while let Some(&byte) = self.buffer.get(self.scanned) {
            if self.depth == 0 {
                self.begin(byte)?;
                continue;
            }
            self.scanned += 1;
            if self.scanned - self.start > self.max_bytes {
                return Err(FrameError::TooLong { limit: self.max_bytes });
            }
            match (self.string, byte) {
                (StringState::Escape, _) => self.string = StringState::Inside,
                (StringState::Inside, b'\\') => self.string = StringState::Escape,
                (StringState::Inside, b'"') => self.string = StringState::Outside,
                (StringState::Inside, _) => {}
                (StringState::Outside, b'"') => self.string = StringState::Inside,
                (StringState::Outside, b'{' | b'[') if self.depth == NESTING_MAX => {
                    return Err(FrameError::TooDeep { limit: NESTING_MAX });
                }
                (StringState::Outside, b'{' | b'[') => self.depth += 1,
                (StringState::Outside, b'}' | b']') => self.depth -= 1,
                (StringState::Outside, _) => {}
            }
            if self.depth == 0 {
                return Ok(Some(self.scanned));
            }
        }
        self.compact();
        Ok(None)
    }

    /// Looks at a byte between messages.
    fn begin(&mut self, byte: u8) -> Result<(), FrameError> {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => {}
            b'{' => self.depth = 1,
            _ => return Err(FrameError::NotObject(byte)),
        }
        self.start = if byte == b'{' { self.scanned } else { self.scanned + 1 };
        self.scanned += 1;
        Ok(())
    }

    fn take(&mut self, end: usize) -> Result<Value, FrameError> {
        let object = serde_json::from_slice(&self.buffer[self.start..end]);
        self.start = end;
        object.map_err(|error| FrameError::NotJson(error.to_string()))
    }

    fn compact(&mut self) {
        if self.start == self.buffer.len() || self.start >= COMPACT_BYTES.max(self.buffer.len() / 2) {
            self.buffer.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
        }
        if self.buffer.is_empty() {
            self.buffer.shrink_to(COMPACT_BYTES);
        }
    }
}
