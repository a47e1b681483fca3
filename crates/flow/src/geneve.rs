//! Options of Geneve headers as fields. Source: RFC 8926, 3.5; Open vSwitch lib/tun-metadata.c.
//!
//! A key has room for seven options of up to eight bytes, each at the place of its field `tun_metadata0` to
//! `tun_metadata6`. An [`OptionMap`] says which option a field stands for. Others are skipped, unless they are critical.

use crate::layout::{self, TUN_OPTIONS_MAX};
use crate::{FlowKey, Match, PacketKey};
use std::fmt;

/// Bytes of the longest value that a key holds.
pub const OPTION_VALUE_MAX: u8 = 8;
/// The bit of a type that says that a receiver who does not know the option must drop the packet.
pub const CRITICAL: u8 = 0x80;
/// Bytes of an option in front of its value.
const OPTION_HEADER: usize = 4;
/// The bits of an option's last header byte that are its value's length, in words of four bytes.
const LENGTH: u8 = 0x1f;

/// What an option is: its class and type, and the bytes of its value, a multiple of 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OptionKind {
    /// Who gives out the types.
    pub class: u16,
    /// The type, with the critical bit.
    pub kind: u8,
    /// Bytes of the value: 0, 4 or 8.
    pub length: u8,
}

/// An option with its value, as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GeneveOption {
    /// What it is.
    pub kind: OptionKind,
    /// The value.
    pub value: u64,
}

/// The options that fields stand for, by field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OptionMap([Option<OptionKind>; TUN_OPTIONS_MAX]);

/// A list of options with a wrong length, or with a critical one that is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an option of a Geneve header has a wrong length, or is critical and unknown")]
pub struct UnfitOptions;

impl OptionMap {
    /// What field `tun_metadata`i stands for.
    pub fn get(&self, i: usize) -> Option<OptionKind> {
        self.0.get(i).copied().flatten()
    }

    /// Maps field `tun_metadata`i; false if no key has room for it.
    pub fn set(&mut self, i: usize, kind: OptionKind) -> bool {
        let fits = kind.length <= OPTION_VALUE_MAX && kind.length.is_multiple_of(4);
        self.0.get_mut(i).filter(|_| fits).map(|at| *at = Some(kind)).is_some()
    }

    /// Whether no field stands for an option.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// The field that stands for an option.
    pub fn field_of(&self, kind: OptionKind) -> Option<usize> {
        self.0.iter().position(|known| *known == Some(kind))
    }

    /// Writes the options that fields stand for to a key. Of an option that comes twice the last counts.
    ///
    /// # Errors
    /// If an option ends behind the list, has another length than the one of its class and type that a field stands for, or
    /// is critical and no field stands for it.
    pub fn read(&self, mut list: &[u8], key: &mut PacketKey) -> Result<(), UnfitOptions> {
        while !list.is_empty() {
            let (header, rest) = list.split_first_chunk::<OPTION_HEADER>().ok_or(UnfitOptions)?;
            let length = header[3] & LENGTH;
            let (value, behind) = rest.split_at_checked(usize::from(length) * 4).ok_or(UnfitOptions)?;
            list = behind;
            let kind =
                OptionKind { class: u16::from_be_bytes([header[0], header[1]]), kind: header[2], length: length * 4 };
            if let Some(i) = self.field_of(kind) {
                put(key, i, value.iter().fold(0, |n, b| n << 8 | u64::from(*b)));
            } else if kind.kind & CRITICAL != 0
                || self.0.iter().flatten().any(|known| (known.class, known.kind) == (kind.class, kind.kind))
            {
                // Source: Open vSwitch lib/tun-metadata.c, `tun_metadata_from_geneve__`.
                return Err(UnfitOptions);
            }
        }
        Ok(())
    }

    /// A match without the values of options that have none, if it asks for such values: being there is all they are.
    pub fn without_empty_values(&self, matches: &Match) -> Option<Match> {
        let asks = |i: &usize| matches.mask.number(layout::tun_option(*i)) != 0;
        let is_empty = |i: &usize| self.get(*i).is_some_and(|kind| kind.length == 0);
        let mut trimmed = None;
        for i in (0..TUN_OPTIONS_MAX).filter(asks).filter(is_empty) {
            let trimmed = trimmed.get_or_insert(*matches);
            trimmed.key.set_number(layout::tun_option(i), 0);
            trimmed.mask.set_number(layout::tun_option(i), 0);
        }
        trimmed
    }

    /// The options that a key has, in the order of their fields.
    pub fn options_of(&self, key: &FlowKey) -> Vec<GeneveOption> {
        let present = key.number(layout::TUN_OPTIONS_PRESENT);
        let mapped = (0..TUN_OPTIONS_MAX).filter(|i| present >> i & 1 != 0).filter_map(|i| Some((i, self.get(i)?)));
        mapped.map(|(i, kind)| GeneveOption { kind, value: key.number(layout::tun_option(i)) }).collect()
    }
}

/// Gives a key the option of field `tun_metadata`i.
pub fn put(key: &mut PacketKey, i: usize, value: u64) {
    key.set(layout::tun_option(i), &value.to_be_bytes());
    let present = key.number(layout::TUN_OPTIONS_PRESENT) as u8 | 1 << i;
    key.set(layout::TUN_OPTIONS_PRESENT, &[present]);
}

impl GeneveOption {
    /// Whether a receiver that does not know it must drop the packet.
    pub fn is_critical(&self) -> bool {
        self.kind.kind & CRITICAL != 0
    }

    /// Appends it as it stands in a header.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.kind.class.to_be_bytes());
        out.extend([self.kind.kind, self.kind.length / 4]);
        out.extend(&self.value.to_be_bytes()[8 - usize::from(self.kind.length.min(OPTION_VALUE_MAX))..]);
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
        if self.kind.length != 0 { write!(f, ",{:#x}}}", self.value) } else { f.write_str("}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kind() -> impl Strategy<Value = OptionKind> {
        // Few classes and types, so that options are found and come twice.
        (0..2u16, 0..3u8, 0..4u8).prop_map(|(class, kind, words)| OptionKind { class, kind, length: words * 4 })
    }

    proptest! {
        /// What is read is the last option of each kind, found the plain way.
        #[test]
        fn the_last_option_of_a_kind_counts(
            mapped in proptest::collection::vec((0..TUN_OPTIONS_MAX, kind()), 0..5),
            sent in proptest::collection::vec((kind(), any::<u64>()), 0..6),
        ) {
            let mut map = OptionMap::default();
            for (i, kind) in mapped {
                if map.field_of(kind).is_none() {
                    prop_assert_eq!(map.set(i, kind), kind.length <= 8);
                }
            }
            let is_known = |kind: &OptionKind| {
                let same = map.0.iter().flatten().find(|known| (known.class, known.kind) == (kind.class, kind.kind));
                same.is_none() || map.field_of(*kind).is_some()
            };
            let sent: Vec<_> = sent.into_iter().filter(|(kind, _)| is_known(kind)).collect();
            let (mut list, mut ends) = (Vec::new(), vec![0]);
            let mut expected = FlowKey::ZERO;
            for (kind, value) in sent {
                let value = if kind.length == 0 { 0 } else { value >> (64 - 8 * u32::from(kind.length.min(8))) };
                list.extend(kind.class.to_be_bytes());
                list.extend([kind.kind, (kind.length / 4) | 0xe0]);
                list.resize(list.len() + usize::from(kind.length).saturating_sub(8), 7);
                list.extend(&value.to_be_bytes()[8 - usize::from(kind.length.min(8))..]);
                ends.push(list.len());
                for i in (0..TUN_OPTIONS_MAX).filter(|i| map.get(*i) == Some(kind)) {
                    expected.set_number(layout::tun_option(i), value);
                    let present = expected.number(layout::TUN_OPTIONS_PRESENT);
                    expected.set_number(layout::TUN_OPTIONS_PRESENT, present | 1 << i);
                }
            }
            let mut key = PacketKey::ZERO;
            prop_assert_eq!(map.read(&list, &mut key), Ok(()));
            prop_assert_eq!(FlowKey::of_packet(&key), expected);
            for cut in 0..list.len() {
                let read = map.read(&list[..cut], &mut PacketKey::ZERO.clone());
                prop_assert_eq!(read.is_ok(), ends.contains(&cut));
            }
            let mut written = Vec::new();
            map.options_of(&expected).iter().for_each(|option| option.write(&mut written));
            let mut again = PacketKey::ZERO;
            prop_assert_eq!(map.read(&written, &mut again), Ok(()));
            prop_assert_eq!(again, key);
        }
    }

    #[test]
    fn options_of_other_lengths_and_unknown_critical_ones_are_refused() {
        let mut map = OptionMap::default();
        assert!(map.set(2, OptionKind { class: 0x102, kind: 0x80, length: 4 }));
        let mut key = PacketKey::ZERO;
        let other_lengths = [&[1, 2, 0x80, 0][..], &[1, 2, 0x80, 2, 0, 0, 0, 0, 0, 0, 0, 0]];
        for wrong in other_lengths.into_iter().chain([&[1, 2, 0x81, 0][..]]) {
            assert_eq!(map.read(wrong, &mut key), Err(UnfitOptions));
        }
        assert_eq!(map.read(&[1, 2, 1, 0, 1, 2, 0x80, 1, 0, 0, 0, 9], &mut key), Ok(()));
        assert_eq!(key.number(layout::tun_option(2)), 9);
    }
}
