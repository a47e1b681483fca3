//! Ranges of bits of a field, as actions name them: `NXM_NX_REG0[4..7]`.

use crate::FlowKey;
use crate::field::{Field, FieldId, Place, ones};
use std::fmt;

/// Bits `start..start + n_bits` of a field, bit 0 the lowest.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SubField {
    /// The field.
    pub field: FieldId,
    /// Lowest bit.
    pub start: u32,
    /// Number of bits, at least 1.
    pub n_bits: u32,
}

impl SubField {
    /// All bits of a field.
    pub fn whole(field: FieldId) -> Self {
        SubField { field, start: 0, n_bits: field.field().n_bits }
    }

    /// Whether it is all of its field.
    pub fn is_whole(self) -> bool {
        self.start == 0 && self.n_bits == self.field.field().n_bits
    }

    /// The value of these bits.
    pub fn get(self, key: &FlowKey) -> u128 {
        self.field.field().get(key) >> self.start & ones(self.n_bits)
    }

    /// Sets these bits, cutting what does not fit; see [`Field::set`].
    pub fn set(self, key: &mut FlowKey, value: u128) {
        let field: &Field = self.field.field();
        let mask = self.mask();
        field.set(key, field.get(key) & !mask | value << self.start & mask);
    }

    /// These bits, as bits of the field's value.
    pub fn mask(self) -> u128 {
        ones(self.n_bits) << self.start
    }

    /// Adds to a mask what reading these bits looks at.
    pub fn set_mask(self, to: &mut FlowKey) {
        self.field.field().set_mask(to, self.mask());
    }

    /// Where these bits lie in the key, for fields whose bits lie there as they are (see [`crate::field`]).
    pub fn place(self) -> Place {
        let place = self.field.field().place;
        Place { span: place.span, lsb: place.lsb + self.start, n_bits: self.n_bits }
    }
}

/// As actions are printed: `NXM_NX_REG0[4..7]`, `NXM_NX_REG0[4]`, `NXM_NX_REG0[]`.
impl fmt::Display for SubField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.field.field().subfield_name();
        match (self.is_whole(), self.n_bits) {
            (true, _) => write!(f, "{name}[]"),
            (false, 1) => write!(f, "{name}[{}]", self.start),
            (false, n) => write!(f, "{name}[{}..{}]", self.start, self.start + n - 1),
        }
    }
}

impl fmt::Debug for SubField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
