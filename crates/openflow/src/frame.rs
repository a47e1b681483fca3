//! Messages in a stream of bytes.

use crate::Error;

/// Bytes of the header that every message has: version, type, length, transaction id.
pub const HEADER_SIZE: usize = 8;

/// Longest message, bytes: its length has 16 bits.
pub const MESSAGE_MAX: usize = 0xffff;

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Version, by number.
    pub version: u8,
    /// Type of the message.
    pub kind: u8,
    /// Bytes, these eight included.
    pub length: u16,
    /// Transaction id: a reply has that of its request.
    pub xid: u32,
}

impl Header {
    /// Reads the header at the beginning of `bytes`.
    ///
    /// # Errors
    /// If there are too few of them.
    pub fn read(bytes: &[u8]) -> Result<Header, Error> {
        match bytes {
            [version, kind, a, b, c, d, e, f, ..] => Ok(Header {
                version: *version,
                kind: *kind,
                length: u16::from_be_bytes([*a, *b]),
                xid: u32::from_be_bytes([*c, *d, *e, *f]),
            }),
            _ => Err(Error::RequestBadLen),
        }
    }
}

/// Cuts a stream into messages. It holds less than two messages at any time, whatever the lengths say.
#[derive(Debug, Default)]
pub struct Framer {
    bytes: Vec<u8>,
    /// Bytes that have been returned already.
    done: usize,
}

impl Framer {
    /// Bytes that [`Framer::push`] takes now: zero only while a whole message waits.
    pub fn free_space(&self) -> usize {
        (2 * MESSAGE_MAX).saturating_sub(self.bytes.len() - self.done)
    }

    /// Adds bytes, [`Framer::free_space`] at most.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.done);
        self.done = 0;
        self.bytes.extend(bytes);
    }

    /// The next message, once all of it has come.
    ///
    /// # Errors
    /// If its length is shorter than a header: then the beginning of the next message is unknown.
    pub fn next_message(&mut self) -> Result<Option<&[u8]>, Error> {
        let waiting = &self.bytes[self.done..];
        if waiting.len() < HEADER_SIZE {
            return Ok(None);
        }
        let length = usize::from(Header::read(waiting)?.length);
        if length < HEADER_SIZE {
            return Err(Error::RequestBadLen);
        }
        if waiting.len() < length {
            return Ok(None);
        }
        let start = self.done;
        self.done += length;
        Ok(Some(&self.bytes[start..start + length]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_whole_however_they_came_in() {
        let stream = [1, 0, 0, 8, 0, 0, 0, 1, 4, 2, 0, 10, 0, 0, 0, 2, 9, 9, 1, 0];
        for size in 1..stream.len() {
            let mut framer = Framer::default();
            let mut seen = Vec::new();
            for chunk in stream.chunks(size) {
                framer.push(chunk);
                while let Some(message) = framer.next_message().unwrap() {
                    seen.push(message.to_vec());
                }
            }
            assert_eq!(seen, [&stream[..8], &stream[8..18]], "in chunks of {size}");
        }
    }

    #[test]
    fn a_length_below_eight_ends_the_stream() {
        let mut framer = Framer::default();
        framer.push(&[1, 0, 0, 7, 0, 0, 0, 1]);
        assert_eq!(framer.next_message(), Err(Error::RequestBadLen));
    }

    #[test]
    fn it_holds_two_messages_at_most() {
        let mut framer = Framer::default();
        framer.push(&[1, 2, 0xff, 0xff]);
        assert_eq!(framer.free_space(), 2 * MESSAGE_MAX - 4);
        assert_eq!(framer.next_message(), Ok(None));
    }
}
