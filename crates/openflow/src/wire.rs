//! Reading and writing big-endian bytes. Reading is bounded: reading beyond the end is an error, which the maker of the
//! reader chooses.

use crate::{Error, OptionLengths};

/// Bytes that have not been read yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    /// The error when they end too early.
    short: Error,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8], short: Error) -> Self {
        Reader { bytes, short }
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The rest, which stays to be read.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.bytes.split_at_checked(n).ok_or(self.short)?;
        self.bytes = rest;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (taken, rest) = self.bytes.split_first_chunk::<N>().ok_or(self.short)?;
        self.bytes = rest;
        Ok(*taken)
    }

    pub fn u8(&mut self) -> Result<u8, Error> {
        self.array::<1>().map(|[b]| b)
    }

    pub fn u16(&mut self) -> Result<u16, Error> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Error> {
        self.array().map(u64::from_be_bytes)
    }

    /// A number of `n` bytes, at most 16.
    pub fn number(&mut self, n: usize) -> Result<u128, Error> {
        Ok(self.take(n)?.iter().fold(0, |number, b| number << 8 | u128::from(*b)))
    }

    pub fn skip(&mut self, n: usize) -> Result<(), Error> {
        self.take(n).map(drop)
    }

    /// Takes `n` bytes that must be zero.
    pub fn zeros(&mut self, n: usize) -> Result<(), Error> {
        if self.take(n)?.iter().all(|b| *b == 0) { Ok(()) } else { Err(Error::RequestMustBeZero) }
    }

    /// A reader of the next `n` bytes.
    pub fn part(&mut self, n: usize) -> Result<Reader<'a>, Error> {
        Ok(Reader { bytes: self.take(n)?, short: self.short })
    }

    /// The same bytes, with another error when they end too early.
    pub fn or(self, short: Error) -> Self {
        Reader { short, ..self }
    }

    /// A text of `n` bytes, ended by a zero if it is shorter.
    pub fn text(&mut self, n: usize) -> Result<String, Error> {
        let bytes = self.take(n)?;
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(n);
        Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    /// Checks that nothing is left.
    pub fn end(&self) -> Result<(), Error> {
        if self.is_empty() { Ok(()) } else { Err(self.short) }
    }
}

/// Bytes that are being written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writer {
    pub bytes: Vec<u8>,
    /// How long the values of tunnel options are written.
    pub option_lengths: OptionLengths,
}

impl Writer {
    /// No bytes yet.
    pub fn new(option_lengths: OptionLengths) -> Self {
        Writer { bytes: Vec::new(), option_lengths }
    }

    /// For a part of the same message: no bytes yet.
    pub fn part(&self) -> Writer {
        Writer::new(self.option_lengths.clone())
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn u8(&mut self, n: u8) {
        self.bytes.push(n);
    }

    pub fn u16(&mut self, n: u16) {
        self.bytes.extend(n.to_be_bytes());
    }

    pub fn u32(&mut self, n: u32) {
        self.bytes.extend(n.to_be_bytes());
    }

    pub fn u64(&mut self, n: u64) {
        self.bytes.extend(n.to_be_bytes());
    }

    /// The low `n` bytes of a number.
    pub fn number(&mut self, number: u128, n: usize) {
        self.bytes.extend(&number.to_be_bytes()[16 - n..]);
    }

    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    pub fn zeros(&mut self, n: usize) {
        self.bytes.resize(self.bytes.len() + n, 0);
    }

    /// A text in exactly `n` bytes, the last of them zero.
    pub fn text(&mut self, text: &str, n: usize) {
        let mut end = text.len().min(n - 1);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.put(&text.as_bytes()[..end]);
        self.zeros(n - end);
    }

    /// Adds zeros until the bytes from `start` on are a multiple of 8.
    pub fn pad8(&mut self, start: usize) {
        self.zeros((self.len() - start).next_multiple_of(8) - (self.len() - start));
    }

    /// Overwrites the two bytes at `at` with a number. Lengths beyond 16 bits are cut; framing refuses such
    /// messages.
    pub fn patch_u16(&mut self, at: usize, n: usize) {
        self.bytes[at..at + 2].copy_from_slice(&(n as u16).to_be_bytes());
    }
}
