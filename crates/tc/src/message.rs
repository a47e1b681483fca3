//! Messages of rtnetlink about disciplines and classes: written, and read without trust.
//!
//! A message is a header of 16 bytes, `struct tcmsg`, and attributes: length, type, value, padded to four bytes. Numbers
//! are in the machine's byte order. Source: Linux include/uapi/linux/netlink.h, rtnetlink.h.

/// Bytes of `struct nlmsghdr` and `struct tcmsg`.
pub(crate) const HEADER_BYTES: usize = 16;
pub(crate) const TC_BYTES: usize = 20;

/// Attributes of disciplines and classes.
pub(crate) const TCA_KIND: u16 = 1;
pub(crate) const TCA_OPTIONS: u16 = 2;
pub(crate) const TCA_STATS2: u16 = 7;

/// Bits of an attribute's type that are none of it: nested, in network byte order.
const TYPE_FLAGS: u16 = 0xc000;

/// The parent of a root discipline.
pub(crate) const TC_H_ROOT: u32 = 0xffff_ffff;

/// What a message does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Verb {
    NewQdisc = 36,
    DeleteQdisc = 37,
    GetQdisc = 38,
    NewClass = 40,
    DeleteClass = 41,
    GetClass = 42,
}

/// How it does it.
pub(crate) mod flag {
    pub const REQUEST: u16 = 1;
    pub const ACK: u16 = 4;
    pub const DUMP: u16 = 0x300;
    pub const EXCLUSIVE: u16 = 0x200;
    pub const CREATE: u16 = 0x400;
}

/// What a message is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subject {
    pub device: u32,
    pub handle: u32,
    pub parent: u32,
}

/// A message to the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    bytes: Vec<u8>,
}

impl Request {
    pub fn new(verb: Verb, flags: u16, subject: Subject) -> Self {
        let mut bytes = vec![0; HEADER_BYTES + TC_BYTES];
        bytes[4..6].copy_from_slice(&(verb as u16).to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | flag::REQUEST).to_ne_bytes());
        let Subject { device, handle, parent } = subject;
        for (at, word) in [(4, device), (8, handle), (12, parent)] {
            bytes[HEADER_BYTES + at..][..4].copy_from_slice(&word.to_ne_bytes());
        }
        Request { bytes }
    }

    /// Adds an attribute.
    pub fn put(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        self.nest(kind, |request| {
            request.bytes.extend(value);
        })
    }

    /// Adds an attribute that is a text with its NUL.
    pub fn put_text(&mut self, kind: u16, text: &str) -> &mut Self {
        self.put(kind, &[text.as_bytes(), &[0]].concat())
    }

    pub fn put_u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.put(kind, &value.to_ne_bytes())
    }

    /// Adds an attribute whose value is what `fill` adds.
    pub fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.bytes.len();
        self.bytes.extend([0, 0]);
        self.bytes.extend(kind.to_ne_bytes());
        fill(self);
        let len = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&len.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    /// Its bytes, under that number.
    pub fn finish(mut self, sequence: u32) -> Vec<u8> {
        let len = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

/// 32-bit words in a row: a structure of the kernel's.
pub(crate) fn words<const N: usize>(words: [u32; N]) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_ne_bytes).collect()
}

/// A message of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub kind: u16,
    pub sequence: u32,
    /// What is behind the header.
    pub body: &'a [u8],
}

/// The messages of a datagram, up to one that is cut.
pub(crate) fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let len = u32_at(datagram, 0)? as usize;
        let body = datagram.get(HEADER_BYTES..len)?;
        let message = Message { kind: u16_at(datagram, 4)?, sequence: u32_at(datagram, 8)?, body };
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// What a message about a discipline or class is about, and its attributes.
pub(crate) fn read_tc(body: &[u8]) -> Option<(Subject, &[u8])> {
    let word = |at| u32_at(body, at);
    let subject = Subject { device: word(4)?, handle: word(8)?, parent: word(12)? };
    Some((subject, body.get(TC_BYTES..)?))
}

/// The value of the first attribute of a type.
pub(crate) fn attribute(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let (len, kind) = (usize::from(u16_at(attributes, 0)?), u16_at(attributes, 2)?);
        let value = attributes.get(4..len)?;
        if kind & !TYPE_FLAGS == wanted {
            return Some(value);
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub(crate) fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    u32_at(bytes, at).map(u32::cast_signed)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_read() {
        let subject = Subject { device: 7, handle: 0x1_0000, parent: TC_H_ROOT };
        let mut request = Request::new(Verb::NewQdisc, flag::ACK, subject);
        request.put_text(TCA_KIND, "htb").nest(TCA_OPTIONS, |options| {
            options.put_u32(3, 9).put(4, &[1, 2, 3]);
        });
        let bytes = request.finish(5);
        let all: Vec<_> = messages(&bytes).collect();
        assert_eq!((all.len(), all[0].kind, all[0].sequence), (1, 36, 5));
        let (read, attributes) = read_tc(all[0].body).unwrap();
        assert_eq!((read, attribute(attributes, TCA_KIND)), (subject, Some(&b"htb\0"[..])));
        let options = attribute(attributes, TCA_OPTIONS).unwrap();
        assert_eq!((u32_at(attribute(options, 3).unwrap(), 0), attribute(options, 4)), (Some(9), Some(&[1, 2, 3][..])));
        assert_eq!(attribute(options, 5), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic_or_loop(bytes in proptest::collection::vec(prop_oneof![Just(0), 1..40_u8, any::<u8>()], 0..99)) {
            for message in messages(&bytes) {
                if let Some((_, attributes)) = read_tc(message.body) {
                    for kind in 0..8 {
                        let _ = attribute(attributes, kind);
                    }
                }
            }
            let _ = attribute(&bytes, 1);
        }
    }
}
