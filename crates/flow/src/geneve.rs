//! Options of Geneve headers, and the fields that stand for them. Source: RFC 8926, 3.5; Open vSwitch lib/tun-metadata.c.
//!
//! The datapath keeps the options of a packet as they stood in its header ([`PacketKey::put_options`]): it does not know which
//! bridge they are for. The translation, which does, reads them by the bridge's [`OptionMap`] as fields, and turns the mask
//! of these fields into one of the bytes ([`OptionMap::mask`]). So each bridge maps its own, and what no field stands for
//! is kept, shown, and matched by nobody.

use crate::key::LINE_SIZE;
use crate::layout::{self, OPTIONS_LINE, OPTIONS_MAX, OPTIONS_OFFSET, PACKET_LINES};
use crate::{Match, PacketKey, TUN_METADATA_BYTES, TUN_METADATA_FIELDS, TunMetadata, Wide, tunnel_flags};
use std::fmt::{self, Write as _};

/// The bit of a type that says that a receiver who does not know the option must drop the packet.
pub const CRITICAL: u8 = 0x80;
/// Bytes of an option in front of its value.
pub const OPTION_HEADER: usize = 4;
/// The bits of an option's last header byte that are its value's length, in words of four bytes.
pub(crate) const LENGTH: u8 = 0x1f;

/// What an option is: its class and type, and the bytes of its value, a multiple of 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OptionKind {
    /// Who gives out the types.
    pub class: u16,
    /// The type, with the critical bit.
    pub kind: u8,
    /// Bytes of the value, 0 to 124.
    pub length: u8,
}

/// An option with its value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GeneveOption {
    /// What it is.
    pub kind: OptionKind,
    /// The value, as many bytes as the kind says.
    pub value: Box<[u8]>,
}

/// The options that a bridge's fields stand for, in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OptionMap(Vec<(u8, OptionKind)>);

/// A list of options with a wrong length, or with a critical one that is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an option of a Geneve header has a wrong length, or is critical and unknown")]
pub struct UnfitOptions;

/// The options of a packet as they stood in its header, or the mask of such bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct OptionBytes {
    bytes: [u8; OPTIONS_MAX],
    length: u8,
}

/// The options of a list, one after another, each with the place of its header.
pub fn options(list: &[u8]) -> impl Iterator<Item = Result<(usize, OptionKind, &[u8]), UnfitOptions>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = list.get(at..).filter(|rest| !rest.is_empty())?;
        let read = (|| {
            let (header, rest) = rest.split_first_chunk::<OPTION_HEADER>()?;
            let length = (header[3] & LENGTH) * 4;
            let value = rest.get(..length.into())?;
            Some((OptionKind { class: u16::from_be_bytes([header[0], header[1]]), kind: header[2], length }, value))
        })();
        let start = at;
        // After an error nothing can follow.
        at = read.map_or(list.len(), |(_, value)| start + OPTION_HEADER + value.len());
        Some(read.map(|(kind, value)| (start, kind, value)).ok_or(UnfitOptions))
    })
}

/// Whether a list consists of whole options.
pub fn is_whole(list: &[u8]) -> bool {
    let mut rest = list;
    while let [_, _, _, length, behind @ ..] = rest {
        let Some(next) = behind.get(usize::from(length & LENGTH) * 4..) else { return false };
        rest = next;
    }
    rest.is_empty()
}

impl OptionMap {
    /// What field `tun_metadata`i stands for.
    pub fn get(&self, i: usize) -> Option<OptionKind> {
        let at = self.0.binary_search_by_key(&i, |(field, _)| usize::from(*field)).ok()?;
        Some(self.0[at].1)
    }

    /// Maps field `tun_metadata`i; false if there is no such field, or if no option has that length.
    pub fn set(&mut self, i: usize, kind: OptionKind) -> bool {
        let length = usize::from(kind.length);
        if i >= TUN_METADATA_FIELDS || length > TUN_METADATA_BYTES || !length.is_multiple_of(4) {
            return false;
        }
        match self.0.binary_search_by_key(&i, |(field, _)| usize::from(*field)) {
            Ok(at) => self.0[at].1 = kind,
            Err(at) => self.0.insert(at, (i as u8, kind)),
        }
        true
    }

    /// Whether no field stands for an option.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The field that stands for options of a class and type, and their length.
    fn known(&self, class: u16, kind: u8) -> Option<(usize, u8)> {
        let found = self.0.iter().find(|(_, known)| (known.class, known.kind) == (class, kind));
        found.map(|(i, known)| ((*i).into(), known.length))
    }

    /// The field that stands for an option.
    pub fn field_of(&self, kind: OptionKind) -> Option<usize> {
        self.known(kind.class, kind.kind).filter(|(_, length)| *length == kind.length).map(|(i, _)| i)
    }

    /// The fields of a packet that has these options. Of an option that comes twice the last counts.
    ///
    /// # Errors
    /// If an option ends behind the list, has another length than the one of its class and type that a field stands for, or
    /// is critical and no field stands for it. Source: Open vSwitch lib/tun-metadata.c, `tun_metadata_from_geneve_udpif`.
    pub fn read(&self, list: &[u8]) -> Result<TunMetadata, UnfitOptions> {
        let mut fields = TunMetadata::NONE;
        for option in options(list) {
            let (_, kind, value) = option?;
            match self.known(kind.class, kind.kind) {
                Some((i, length)) if length == kind.length => {
                    fields.set_present(i, true);
                    fields.set_value(i, Wide::from_be(value));
                }
                None if kind.kind & CRITICAL == 0 => {}
                _ => return Err(UnfitOptions),
            }
        }
        Ok(fields)
    }

    /// The mask of a packet's options that says what a mask of the fields says.
    ///
    /// It has the whole header of every option, since each takes part in the answer of [`OptionMap::read`]: one that is
    /// unknown might be critical. Of values it has what the fields' mask has. Of an option that comes twice, the value that
    /// does not count is matched like the one that does.
    pub fn mask(&self, list: &[u8], fields: &TunMetadata) -> OptionBytes {
        let mut out = OptionBytes::NONE;
        out.length = list.len().min(OPTIONS_MAX) as u8;
        for (at, kind, value) in options(list).map_while(Result::ok) {
            let Some(to) = out.bytes.get_mut(at..at + OPTION_HEADER + value.len()) else { break };
            let (header, to) = to.split_at_mut(OPTION_HEADER);
            header.fill(0xff);
            if let Some(i) = self.field_of(kind) {
                fields.value(i).put_be(to);
            }
        }
        if !is_whole(list) {
            // Where the list breaks off depends on every length in it.
            out.bytes[..out.length.into()].fill(0xff);
        }
        out
    }

    /// The options that a packet with these fields has, in the order of the fields.
    pub fn options_of(&self, fields: &TunMetadata) -> Vec<GeneveOption> {
        let there = self.0.iter().filter(|(i, _)| fields.has((*i).into()));
        there
            .map(|(i, kind)| {
                let value = fields.value((*i).into()).to_be(kind.length.into()).into();
                GeneveOption { kind: *kind, value }
            })
            .collect()
    }

    /// The same as they stand in a header; of more than a header can have, the first.
    pub fn list_of(&self, fields: &TunMetadata) -> Vec<u8> {
        let mut list = Vec::new();
        for option in if fields.is_none() { Vec::new() } else { self.options_of(fields) } {
            if list.len() + OPTION_HEADER + option.value.len() <= OPTIONS_MAX {
                option.write(&mut list);
            }
        }
        list
    }

    /// Makes a mask that has all bits of an option a mask of the whole field, as one without a mask is. Bits in front of an
    /// option's value are zero in every packet.
    pub fn complete(&self, mask: &mut TunMetadata) {
        for (i, kind) in &self.0 {
            let (i, all) = (usize::from(*i), Wide::ones(8 * u32::from(kind.length)));
            let value = mask.value(i);
            if !value.is_zero() && value.and(&all) == all {
                // A field without bytes has no value that could be asked for.
                mask.set_value(
                    i,
                    if kind.length == 0 { Wide::ZERO } else { Wide::ones(8 * TUN_METADATA_BYTES as u32) },
                );
            }
        }
    }

    /// A match with the masks that [`OptionMap::complete`] makes, if they differ.
    pub fn completed(&self, matches: &Match) -> Option<Match> {
        if matches.mask.tun_metadata.is_none() {
            return None;
        }
        let mut mask = matches.mask.clone();
        self.complete(&mut mask.tun_metadata);
        (mask != matches.mask).then(|| Match::new(mask, &matches.key))
    }
}

impl OptionBytes {
    /// The bytes of a list; `None` if no header has room for it.
    pub fn new(list: &[u8]) -> Option<OptionBytes> {
        let mut out = OptionBytes::NONE;
        out.bytes.get_mut(..list.len())?.copy_from_slice(list);
        out.length = list.len() as u8;
        Some(out)
    }

    /// No options.
    pub const NONE: OptionBytes = OptionBytes { bytes: [0; OPTIONS_MAX], length: 0 };

    /// All bytes that options may have.
    pub fn all(&self) -> &[u8; OPTIONS_MAX] {
        &self.bytes
    }
}

impl std::ops::Deref for OptionBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length).min(OPTIONS_MAX)]
    }
}

impl fmt::Debug for OptionBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl PacketKey {
    /// Gives a key that has no options the options of its packet's header; of more than a header can have, the first.
    pub fn put_options(&mut self, list: &[u8]) {
        let list = &list[..list.len().min(OPTIONS_MAX)];
        if list.is_empty() {
            return;
        }
        let flags = self.number(layout::TUN_FLAGS) as u16 | tunnel_flags::OPTIONS;
        self.set(layout::TUN_FLAGS, &flags.to_be_bytes());
        self.put_option_bytes(list.len() as u8, list);
    }

    /// Gives a mask that of its packet's options. That there are some, and how many bytes, is always in it.
    pub fn put_options_mask(&mut self, mask: &OptionBytes) {
        let flags = self.number(layout::TUN_FLAGS) as u16 | tunnel_flags::OPTIONS;
        self.set(layout::TUN_FLAGS, &flags.to_be_bytes());
        if mask.length != 0 {
            self.put_option_bytes(0xff, mask);
        }
    }

    fn put_option_bytes(&mut self, length: u8, list: &[u8]) {
        let first = self.make_present(OPTIONS_LINE);
        first.0[0] = length;
        let (head, rest) = list.split_at(list.len().min(LINE_SIZE - OPTIONS_OFFSET));
        first.0[OPTIONS_OFFSET..][..head.len()].copy_from_slice(head);
        for (i, part) in rest.chunks(LINE_SIZE).enumerate() {
            self.make_present(OPTIONS_LINE + 1 + i).0[..part.len()].copy_from_slice(part);
        }
    }

    /// The options of its packet's header; of a mask, that of all bytes that there may be.
    pub fn options(&self) -> OptionBytes {
        let mut out = OptionBytes::NONE;
        let first = &self.line(OPTIONS_LINE).0;
        out.length = first[0].min(OPTIONS_MAX as u8);
        if out.length == 0 {
            return out;
        }
        let (head, rest) = out.bytes.split_at_mut(LINE_SIZE - OPTIONS_OFFSET);
        head.copy_from_slice(&first[OPTIONS_OFFSET..]);
        for (to, line) in rest.chunks_mut(LINE_SIZE).zip(OPTIONS_LINE + 1..PACKET_LINES) {
            to.copy_from_slice(&self.line(line).0[..to.len()]);
        }
        // What stands behind the last option counts no more than a field that is not there.
        out.bytes[usize::from(out.length)..].fill(0);
        out
    }
}

impl GeneveOption {
    /// An option whose value is a number.
    pub fn new(kind: OptionKind, value: Wide) -> Self {
        GeneveOption { kind, value: value.to_be(kind.length.into()).into() }
    }

    /// Whether a receiver that does not know it must drop the packet.
    pub fn is_critical(&self) -> bool {
        self.kind.kind & CRITICAL != 0
    }

    /// Appends it as it stands in a header.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.kind.header());
        out.extend(&self.value[..]);
    }
}

impl OptionKind {
    /// What stands in front of the value.
    pub fn header(self) -> [u8; OPTION_HEADER] {
        let [high, low] = self.class.to_be_bytes();
        [high, low, self.kind, self.length / 4]
    }
}

/// `class=0x102,type=0x80,len=4`, zeros as `0`.
impl fmt::Display for OptionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = |n: u16| if n == 0 { "0".to_owned() } else { format!("{n:#x}") };
        write!(f, "class={},type={},len={}", hex(self.class), hex(self.kind.into()), self.length)
    }
}

/// `{class=0x102,type=0x80,len=4,0xa}`.
impl fmt::Display for GeneveOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}", self.kind)?;
        if self.value.is_empty() { f.write_char('}') } else { write!(f, ",{}}}", Wide::from_be(&self.value)) }
    }
}

/// The options of a list as a datapath's flow shows them, each in braces: `{class=0x102,type=0x80,len=4,0xa/0xf}`. A value of
/// which the mask has no bit is left out; without a mask, all are shown.
pub fn show<'a>(list: &'a [u8], mask: Option<&'a [u8]>) -> impl fmt::Display + 'a {
    fmt::from_fn(move |f| {
        for (at, kind, value) in options(list).map_while(Result::ok) {
            let at = at + OPTION_HEADER;
            let all = Wide::ones(8 * u32::from(kind.length));
            let mask = mask.map_or(all, |mask| mask.get(at..at + value.len()).map_or(Wide::ZERO, Wide::from_be));
            write!(f, "{{{kind}")?;
            if !mask.is_zero() {
                write!(f, ",{}", Wide::from_be(value))?;
            }
            if !mask.is_zero() && mask != all {
                write!(f, "/{mask}")?;
            }
            f.write_char('}')?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests;
