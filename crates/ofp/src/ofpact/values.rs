//! The arguments of a declared action, as what reads and writes all of them sees them.

use sluice_flow::SubField;

/// Arguments that a declared action has at most.
pub const ARGS_MAX: usize = 2;

/// An argument of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number or an address.
    Number(u64),
    /// Bits of a field.
    Bits(SubField),
}

/// The arguments of an action, as many as its row declares, in that order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values(pub [Value; ARGS_MAX]);

impl Values {
    /// No arguments.
    pub const NONE: Values = Values([Value::Number(0); ARGS_MAX]);

    /// A number alone.
    pub(super) fn number(number: impl Into<u64>) -> Values {
        Values([Value::Number(number.into()), Value::Number(0)])
    }

    /// Bits of a field alone.
    pub(super) fn bits(bits: SubField) -> Values {
        Values([Value::Bits(bits), Value::Number(0)])
    }

    /// Argument `i`, which the row declares as a number.
    pub(super) fn u64(&self, i: usize) -> u64 {
        match self.0[i] {
            Value::Number(number) => number,
            Value::Bits(bits) => unreachable!("invariant: the row declares a number, and it is {bits}"),
        }
    }

    /// Argument `i`, a number of at most 32 bits.
    pub(super) fn u32(&self, i: usize) -> u32 {
        self.u64(i) as u32
    }

    /// Argument `i`, a number of at most 16 bits.
    pub(super) fn u16(&self, i: usize) -> u16 {
        self.u64(i) as u16
    }

    /// Argument `i`, a number of at most 8 bits.
    pub(super) fn u8(&self, i: usize) -> u8 {
        self.u64(i) as u8
    }

    /// Argument `i`, which the row declares as bits of a field.
    pub(super) fn subfield(&self, i: usize) -> SubField {
        match self.0[i] {
            Value::Bits(bits) => bits,
            Value::Number(number) => unreachable!("invariant: the row declares bits, and it is {number}"),
        }
    }

    /// The bits of fields among the arguments.
    pub fn subfields(&self) -> impl Iterator<Item = SubField> {
        self.0.into_iter().filter_map(|value| match value {
            Value::Bits(bits) => Some(bits),
            Value::Number(_) => None,
        })
    }
}
