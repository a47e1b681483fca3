//! Ranges of bits of a field, as actions name them: `NXM_NX_REG0[4..7]`.

use crate::field::{Field, FieldId, Place, ones};
use crate::{FlowKey, Wide};
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
    pub fn get_wide(self, key: &FlowKey) -> Wide {
        self.field.field().get_wide(key).shr(self.start).and(&Wide::ones(self.n_bits))
    }

    /// The value of these bits; of more than 128, the low ones.
    pub fn get(self, key: &FlowKey) -> u128 {
        if self.field.field().is_wide() {
            return self.get_wide(key).low();
        }
        self.field.field().get(key) >> self.start & ones(self.n_bits)
    }

    /// [`SubField::set`], of any length.
    pub fn set_wide(self, key: &mut FlowKey, value: Wide) {
        let field: &Field = self.field.field();
        field.set_wide(key, field.get_wide(key).replaced(&value.shl(self.start), &self.mask_wide()));
    }

    /// Sets these bits, cutting what does not fit; see [`Field::set`].
    pub fn set(self, key: &mut FlowKey, value: u128) {
        if self.field.field().is_wide() {
            return self.set_wide(key, value.into());
        }
        let field: &Field = self.field.field();
        let mask = self.mask();
        if mask == field.all_ones() && field.place.n_bits == field.n_bits {
            // The field has no bits but these, so none of its own remain.
            return field.set(key, value & mask);
        }
        field.set(key, field.get(key) & !mask | value << self.start & mask);
    }

    /// These bits, as bits of the field's value. Of a tunnel's option: see [`SubField::mask_wide`].
    pub fn mask(self) -> u128 {
        ones(self.n_bits) << self.start
    }

    /// These bits, as bits of the field's value.
    pub fn mask_wide(self) -> Wide {
        Wide::ones(self.n_bits).shl(self.start)
    }

    /// Adds to a mask what reading these bits looks at.
    pub fn set_mask(self, to: &mut FlowKey) {
        match self.field.field() {
            field if field.is_wide() => field.set_mask_wide(to, self.mask_wide()),
            field => field.set_mask(to, self.mask()),
        }
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
