//! Rows, and their values as types of Rust.

use super::TableReplica;
use crate::{Atom, Datum, Uuid};
use std::collections::BTreeMap;

/// A row of the replica.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    pub(super) table: &'a TableReplica,
    pub(super) uuid: Uuid,
    pub(super) values: &'a [Datum],
}

impl<'a> Row<'a> {
    /// The row's UUID.
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// The row's table.
    pub fn table(&self) -> &'static str {
        self.table.name
    }

    /// A column's value.
    ///
    /// # Panics
    /// If the column is not declared.
    pub fn datum(&self, column: &str) -> &'a Datum {
        &self.values[self.table.declared_index(column)]
    }

    /// A column's value as a type of Rust: `i64`, `f64`, `bool`, `&str` or [`Uuid`]; of an optional column an `Option`
    /// of these, of a set a `Vec`, of a map a `BTreeMap`. A scalar that the server left empty reads as its default.
    ///
    /// # Panics
    /// If the column is not declared, or its declared type is not that type's.
    pub fn get<T: FromDatum<'a>>(&self, column: &str) -> T {
        let index = self.table.declared_index(column);
        T::from_datum(&self.values[index]).unwrap_or_else(|| {
            let name = std::any::type_name::<T>();
            panic!("column {column} of table {} cannot be read as {name}", self.table.name)
        })
    }

    /// The value of a key in a map of strings. Source: OVS lib/smap.h, `smap_get`.
    ///
    /// # Panics
    /// If the column is not declared.
    pub fn key(&self, column: &str, key: &str) -> Option<&'a str> {
        self.datum(column).value_of(&Atom::from(key)).and_then(<&str>::from_atom)
    }
}

/// A type that a column's value can be read as.
pub trait FromDatum<'a>: Sized {
    /// The value; `None` if the column has another type.
    fn from_datum(datum: &'a Datum) -> Option<Self>;
}

/// A type that an atom can be read as.
trait FromAtom<'a>: Sized {
    fn from_atom(atom: &'a Atom) -> Option<Self>;
}

macro_rules! scalar {
    ($type:ty, $pattern:pat => $value:expr, $default:expr) => {
        impl<'a> FromAtom<'a> for $type {
            fn from_atom(atom: &'a Atom) -> Option<Self> {
                match atom {
                    $pattern => Some($value),
                    _ => None,
                }
            }
        }

        impl<'a> FromDatum<'a> for $type {
            fn from_datum(datum: &'a Datum) -> Option<Self> {
                match datum.elements() {
                    [] if datum.pairs().is_empty() => Some($default),
                    [atom] => <$type>::from_atom(atom),
                    _ => None,
                }
            }
        }
    };
}

scalar!(i64, Atom::Integer(number) => *number, 0);
scalar!(f64, Atom::Real(number) => number.value(), 0.0);
scalar!(bool, Atom::Boolean(flag) => *flag, false);
scalar!(&'a str, Atom::String(text) => text.as_str(), "");
scalar!(Uuid, Atom::Uuid(uuid) => *uuid, Uuid::ZERO);

impl<'a, T: FromAtom<'a>> FromDatum<'a> for Option<T> {
    /// Of a newer schema's set, the first element.
    fn from_datum(datum: &'a Datum) -> Option<Self> {
        if !datum.pairs().is_empty() {
            return None;
        }
        match datum.elements().first() {
            Some(atom) => T::from_atom(atom).map(Some),
            None => Some(None),
        }
    }
}

impl<'a, T: FromAtom<'a>> FromDatum<'a> for Vec<T> {
    fn from_datum(datum: &'a Datum) -> Option<Self> {
        let atoms = datum.elements().iter().map(T::from_atom).collect();
        if datum.pairs().is_empty() { atoms } else { None }
    }
}

impl<'a, K: FromAtom<'a> + Ord, V: FromAtom<'a>> FromDatum<'a> for BTreeMap<K, V> {
    fn from_datum(datum: &'a Datum) -> Option<Self> {
        let pairs = datum.pairs().iter().map(|(k, v)| Some((K::from_atom(k)?, V::from_atom(v)?))).collect();
        if datum.elements().is_empty() { pairs } else { None }
    }
}
