//! Atoms: the values that columns are made of.

use crate::{DatumError, Uuid};
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::fmt;

/// The kind of an atom. Source: RFC 7047 section 3.1, `<atomic-type>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicType {
    /// A signed 64-bit integer.
    Integer,
    /// A double-precision number.
    Real,
    /// True or false.
    Boolean,
    /// A Unicode string.
    String,
    /// A row's UUID.
    Uuid,
}

impl AtomicType {
    /// The kind's name in a schema.
    pub const fn name(self) -> &'static str {
        match self {
            AtomicType::Integer => "integer",
            AtomicType::Real => "real",
            AtomicType::Boolean => "boolean",
            AtomicType::String => "string",
            AtomicType::Uuid => "uuid",
        }
    }

    /// The kind of that name.
    pub(crate) fn from_name(name: &str) -> Option<AtomicType> {
        [AtomicType::Integer, AtomicType::Real, AtomicType::Boolean, AtomicType::String, AtomicType::Uuid]
            .into_iter()
            .find(|kind| kind.name() == name)
    }

    /// The value that a new row's column of this kind has: 0, 0.0, false, "" or all zeros.
    pub(crate) fn default_atom(self) -> Atom {
        match self {
            AtomicType::Integer => Atom::Integer(0),
            AtomicType::Real => Atom::Real(Real::new(0.0)),
            AtomicType::Boolean => Atom::Boolean(false),
            AtomicType::String => Atom::String(String::new()),
            AtomicType::Uuid => Atom::Uuid(Uuid::ZERO),
        }
    }
}

impl fmt::Display for AtomicType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A double-precision number with a total order, so that sets of reals can be sorted. Negative zero is stored as zero,
/// as in Open vSwitch (`json_real_create` callers suppress it), because JSON texts of both mean the same number.
#[derive(Clone, Copy, Debug)]
pub struct Real(f64);

impl Real {
    /// A number; negative zero becomes zero.
    pub fn new(number: f64) -> Self {
        Real(if number == 0.0 { 0.0 } else { number })
    }

    /// The number.
    pub fn value(self) -> f64 {
        self.0
    }
}

impl PartialEq for Real {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Real {}

impl PartialOrd for Real {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Real {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// One value. Source: RFC 7047 section 5.1, `<atom>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Atom {
    /// A signed 64-bit integer.
    Integer(i64),
    /// A double-precision number.
    Real(Real),
    /// True or false.
    Boolean(bool),
    /// A Unicode string.
    String(String),
    /// A row's UUID.
    Uuid(Uuid),
}

impl Atom {
    /// The atom's kind.
    pub fn kind(&self) -> AtomicType {
        match self {
            Atom::Integer(_) => AtomicType::Integer,
            Atom::Real(_) => AtomicType::Real,
            Atom::Boolean(_) => AtomicType::Boolean,
            Atom::String(_) => AtomicType::String,
            Atom::Uuid(_) => AtomicType::Uuid,
        }
    }

    /// Reads an atom of a known kind.
    pub(crate) fn from_json(json: &Value, kind: AtomicType) -> Result<Atom, DatumError> {
        let atom = match kind {
            AtomicType::Integer => integer(json).map(Atom::Integer),
            AtomicType::Real => json.as_f64().map(|number| Atom::Real(Real::new(number))),
            AtomicType::Boolean => json.as_bool().map(Atom::Boolean),
            AtomicType::String => json.as_str().map(|text| Atom::String(text.to_owned())),
            AtomicType::Uuid => uuid(json).map(Atom::Uuid),
        };
        atom.ok_or(DatumError::Atom { expected: kind })
    }

    /// The atom as the protocol writes it. `name_of` gives the `named-uuid` of a row that the same transaction inserts.
    pub(crate) fn to_json(&self, name_of: &dyn Fn(Uuid) -> Option<String>) -> Value {
        match self {
            Atom::Integer(number) => json!(number),
            Atom::Real(number) => json!(number.value()),
            Atom::Boolean(flag) => json!(flag),
            Atom::String(text) => json!(text),
            Atom::Uuid(uuid) => match name_of(*uuid) {
                Some(name) => json!(["named-uuid", name]),
                None => json!(["uuid", uuid.to_string()]),
            },
        }
    }
}

/// JSON has one kind of number, so `5.0` is an integer, too.
fn integer(json: &Value) -> Option<i64> {
    /// 2⁶³: the least number above every `i64`; a double holds it exactly.
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    json.as_i64().or_else(|| {
        let number = json.as_f64().filter(|_| json.is_f64())?;
        (number.fract() == 0.0 && (-LIMIT..LIMIT).contains(&number)).then_some(number as i64)
    })
}

fn uuid(json: &Value) -> Option<Uuid> {
    match json.as_array()?.as_slice() {
        [tag, text] if tag == "uuid" => text.as_str()?.parse().ok(),
        _ => None,
    }
}

impl From<i64> for Atom {
    fn from(number: i64) -> Self {
        Atom::Integer(number)
    }
}

impl From<f64> for Atom {
    fn from(number: f64) -> Self {
        Atom::Real(Real::new(number))
    }
}

impl From<bool> for Atom {
    fn from(flag: bool) -> Self {
        Atom::Boolean(flag)
    }
}

impl From<&str> for Atom {
    fn from(text: &str) -> Self {
        Atom::String(text.to_owned())
    }
}

impl From<String> for Atom {
    fn from(text: String) -> Self {
        Atom::String(text)
    }
}

impl From<Uuid> for Atom {
    fn from(uuid: Uuid) -> Self {
        Atom::Uuid(uuid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_with_a_point_are_integers() {
        assert_eq!(Atom::from_json(&json!(5.0), AtomicType::Integer), Ok(Atom::Integer(5)));
        assert_eq!(Atom::from_json(&json!(5), AtomicType::Real), Ok(Atom::from(5.0)));
        assert_eq!(Atom::from_json(&json!(i64::MIN), AtomicType::Integer), Ok(Atom::Integer(i64::MIN)));
    }

    #[test]
    fn other_numbers_are_no_integers() {
        for json in [json!(5.5), json!(u64::MAX), json!(1e300), json!("5"), json!(null)] {
            let expected = Err(DatumError::Atom { expected: AtomicType::Integer });
            assert_eq!(Atom::from_json(&json, AtomicType::Integer), expected, "{json}");
        }
    }

    #[test]
    fn zeros_of_both_signs_are_equal() {
        assert_eq!(Atom::from(-0.0), Atom::from(0.0));
    }
}
