//! The values of the fields `tun_metadata0` to `tun_metadata63`, of a packet or as a mask.
//!
//! A table's key or mask has them beside its lines, and only if there are some: most packets and most rules have none, and
//! pay for a pointer. A value does not depend on what a bridge maps its field to, nor on where: it is a number,
//! and shorter options have zeros in front. So a rule stays what it is when the mapping changes.
//!
//! The classifier sees them as words behind those of the lines. Word 0 says which fields there are. Words `1 + 16 i` to
//! `16 + 16 i` are the value of field `i`, the lowest first.

use crate::wide::{WIDE_WORDS, Wide};
use std::sync::Arc;

/// The fields that there are. Source: Open vSwitch, `TUN_METADATA_NUM_OPTS`.
pub const TUN_METADATA_FIELDS: usize = 64;
/// Bytes of the longest value of one. Source: RFC 8926, 3.5: 31 words of four bytes.
pub const TUN_METADATA_BYTES: usize = 124;

/// Which of these fields there are, and their values. Copies share their memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TunMetadata(Option<Arc<Values>>);

/// What is there. At least one bit is set, and none of the values is zero: so equal metadata are equal field by field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Values {
    /// Bit `i`: there is field `i`. A field without bytes is there without a value.
    present: u64,
    /// Values by field, in order.
    values: Vec<(u8, Wide)>,
}

impl TunMetadata {
    /// No field.
    pub const NONE: TunMetadata = TunMetadata(None);

    /// Whether no field is there, and no bit of a value.
    #[inline]
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Bit `i`: there is field `i`; of a mask: whether it is there matters.
    #[inline]
    pub fn present(&self) -> u64 {
        self.0.as_ref().map_or(0, |values| values.present)
    }

    /// Whether there is field `i`; of a mask: whether that matters.
    #[inline]
    pub fn has(&self, i: usize) -> bool {
        i < TUN_METADATA_FIELDS && self.present() >> i & 1 != 0
    }

    /// The value of field `i`.
    pub fn value(&self, i: usize) -> Wide {
        let found = self.values().binary_search_by_key(&i, |(field, _)| usize::from(*field));
        found.map_or(Wide::ZERO, |at| self.values()[at].1)
    }

    /// Says that field `i` is there, or that it is not.
    pub fn set_present(&mut self, i: usize, is_there: bool) {
        if i < TUN_METADATA_FIELDS && self.has(i) != is_there {
            self.change(|values| values.present ^= 1 << i);
        }
    }

    /// Sets the value of field `i`, and leaves whether it is there.
    pub fn set_value(&mut self, i: usize, value: Wide) {
        if i < TUN_METADATA_FIELDS && self.value(i) != value {
            self.change(|values| values.put(i, value));
        }
    }

    /// The bits that both have.
    pub fn and(&self, mask: &TunMetadata) -> TunMetadata {
        if self.is_none() || mask.is_none() {
            return TunMetadata::NONE;
        }
        let values = self.values().iter().map(|(i, value)| (*i, value.and(&mask.value((*i).into()))));
        let values = values.filter(|(_, value)| !value.is_zero()).collect();
        Values { present: self.present() & mask.present(), values }.kept()
    }

    /// Takes away the bits of `other`.
    pub fn and_not(&mut self, other: &TunMetadata) {
        if self.is_none() || other.is_none() {
            return;
        }
        self.change(|values| {
            values.present &= !other.present();
            values.values.iter_mut().for_each(|(i, value)| *value = value.and_not(&other.value((*i).into())));
            values.values.retain(|(_, value)| !value.is_zero());
        });
    }

    /// Adds the bits of `other`.
    pub fn or_with(&mut self, other: &TunMetadata) {
        if other.is_none() {
            return;
        }
        if self.is_none() {
            return self.clone_from(other);
        }
        self.change(|values| {
            values.present |= other.present();
            for (i, value) in other.values() {
                let i = usize::from(*i);
                values.put(i, values.get(i).or(value));
            }
        });
    }

    /// The fields of which anything is said, in order.
    pub fn fields(&self) -> impl Iterator<Item = usize> + '_ {
        let with_value = self.values().iter().fold(0, |all, (i, _)| all | 1u64 << i);
        let said = self.present() | with_value;
        (0..TUN_METADATA_FIELDS).filter(move |i| said >> i & 1 != 0)
    }

    /// One of its words.
    pub fn word(&self, index: usize) -> u64 {
        match index.checked_sub(1) {
            _ if self.is_none() => 0,
            None => self.present(),
            Some(i) => self.value(i / WIDE_WORDS).0[i % WIDE_WORDS],
        }
    }

    /// Adds bits to one of its words.
    pub fn or_word(&mut self, index: usize, bits: u64) {
        if bits == 0 {
            return;
        }
        self.change(|values| match index.checked_sub(1) {
            None => values.present |= bits,
            Some(i) => {
                let mut value = values.get(i / WIDE_WORDS);
                value.0[i % WIDE_WORDS] |= bits;
                values.put(i / WIDE_WORDS, value);
            }
        });
    }

    /// The words that are not zero, in order.
    pub fn words(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let of_value = |(i, value): &(u8, Wide)| {
            let at = 1 + WIDE_WORDS * usize::from(*i);
            value.0.into_iter().enumerate().map(move |(word, bits)| (at + word, bits))
        };
        let values = self.values().iter().flat_map(of_value);
        std::iter::once((0, self.present())).chain(values).filter(|(_, bits)| *bits != 0)
    }

    fn values(&self) -> &[(u8, Wide)] {
        self.0.as_ref().map_or(&[], |values| &values.values)
    }

    fn change(&mut self, change: impl FnOnce(&mut Values)) {
        let values = Arc::make_mut(self.0.get_or_insert_default());
        change(values);
        if values.present == 0 && values.values.is_empty() {
            self.0 = None;
        }
    }
}

impl Values {
    fn kept(self) -> TunMetadata {
        let is_there = self.present != 0 || !self.values.is_empty();
        TunMetadata(is_there.then(|| Arc::new(self)))
    }

    fn get(&self, i: usize) -> Wide {
        let found = self.values.binary_search_by_key(&i, |(field, _)| usize::from(*field));
        found.map_or(Wide::ZERO, |at| self.values[at].1)
    }

    fn put(&mut self, i: usize, value: Wide) {
        match self.values.binary_search_by_key(&i, |(field, _)| usize::from(*field)) {
            Ok(at) if value.is_zero() => _ = self.values.remove(at),
            Ok(at) => self.values[at].1 = value,
            Err(_) if value.is_zero() => {}
            Err(at) => self.values.insert(at, (i as u8, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The plain twin: every field of which anything may be said.
    type Plain = [(bool, u64); 4];
    const FIELDS: [usize; 4] = [0, 1, 40, 63];

    fn plain() -> impl Strategy<Value = Plain> {
        // Few bits, so that they meet and values become zero.
        [(any::<bool>(), 0..4u64), (any::<bool>(), 0..4u64), (any::<bool>(), 0..4u64), (any::<bool>(), 0..4u64)]
    }

    fn made(plain: &Plain) -> TunMetadata {
        let mut out = TunMetadata::NONE;
        for (i, (is_there, value)) in FIELDS.into_iter().zip(plain) {
            out.set_present(i, *is_there);
            out.set_value(i, Wide::from(u128::from(*value)).shl(900));
        }
        out
    }

    fn zipped(a: &Plain, b: &Plain, f: impl Fn(u64, u64) -> u64) -> Plain {
        std::array::from_fn(|i| {
            let ((a_there, a), (b_there, b)) = (a[i], b[i]);
            (f(a_there.into(), b_there.into()) & 1 != 0, f(a, b) & 3)
        })
    }

    proptest! {
        /// Field by field; equal metadata are equal, however they were made.
        #[test]
        fn it_agrees_with_its_plain_twin(a in plain(), b in plain()) {
            let (made_a, made_b) = (made(&a), made(&b));
            prop_assert_eq!(made_a.and(&made_b), made(&zipped(&a, &b, |a, b| a & b)));
            let (mut with, mut without) = (made_a.clone(), made_a.clone());
            with.or_with(&made_b);
            prop_assert_eq!(&with, &made(&zipped(&a, &b, |a, b| a | b)));
            without.and_not(&made_b);
            prop_assert_eq!(&without, &made(&zipped(&a, &b, |a, b| a & !b)));
            prop_assert_eq!(made_a.is_none(), a == [(false, 0); 4]);
            let mut of_words = TunMetadata::NONE;
            made_a.words().for_each(|(index, bits)| of_words.or_word(index, bits));
            prop_assert_eq!(&of_words, &made_a);
            made_a.words().for_each(|(index, bits)| assert_eq!(made_a.word(index), bits));
            let said: Vec<_> = FIELDS.into_iter().zip(&a).filter(|(_, said)| **said != (false, 0)).map(|(i, _)| i).collect();
            prop_assert_eq!(made_a.fields().collect::<Vec<_>>(), said);
        }
    }
}
