//! Values of columns: sets and maps, and the differences between them that a monitor sends.
//!
//! Both are sorted vectors without duplicates. Nearly every column holds no element or one, where a vector costs no
//! allocation or one; bond members, trunks and `other_config` hold tens. Comparison, and with it the search for
//! changes, is one linear pass.

use crate::{Atom, AtomicType, ColumnType, DatumError, Uuid};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The value of a column.
///
/// Shape:  a set or a map; a scalar is a set of one element. Elements and keys are different and ascend.
/// Errors: reading reports what does not fit the type's kinds. The number of elements is not limited: a newer schema
/// may allow more than the client declares. Source: RFC 7047 section 5.1, `<value>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datum(Elements);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Elements {
    Set(Vec<Atom>),
    Map(Vec<(Atom, Atom)>),
}

impl Datum {
    /// The empty set.
    pub const EMPTY: Datum = Datum(Elements::Set(Vec::new()));

    /// A set of these elements; duplicates count once.
    pub fn set<A: Into<Atom>>(elements: impl IntoIterator<Item = A>) -> Self {
        let mut atoms: Vec<Atom> = elements.into_iter().map(Into::into).collect();
        atoms.sort();
        atoms.dedup();
        Datum(Elements::Set(atoms))
    }

    /// A map of these pairs; of several with one key the last counts.
    pub fn map<K: Into<Atom>, V: Into<Atom>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        let map: BTreeMap<Atom, Atom> = pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        Datum(Elements::Map(map.into_iter().collect()))
    }

    /// The value of a column of a new row. Source: RFC 7047 section 5.2.1.
    pub fn default_of(column_type: &ColumnType) -> Self {
        match (column_type.value, column_type.min) {
            (None, 0) => Datum::EMPTY,
            (None, _) => Datum(Elements::Set(vec![column_type.key.default_atom()])),
            (Some(_), 0) => Datum(Elements::Map(Vec::new())),
            (Some(value), _) => Datum(Elements::Map(vec![(column_type.key.default_atom(), value.default_atom())])),
        }
    }

    /// Number of elements or pairs.
    pub fn len(&self) -> usize {
        match &self.0 {
            Elements::Set(atoms) => atoms.len(),
            Elements::Map(pairs) => pairs.len(),
        }
    }

    /// Whether there is neither element nor pair.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A set's elements, ascending; a map has none.
    pub fn elements(&self) -> &[Atom] {
        match &self.0 {
            Elements::Set(atoms) => atoms,
            Elements::Map(_) => &[],
        }
    }

    /// A map's pairs, keys ascending; a set has none.
    pub fn pairs(&self) -> &[(Atom, Atom)] {
        match &self.0 {
            Elements::Set(_) => &[],
            Elements::Map(pairs) => pairs,
        }
    }

    /// The value of a map's key.
    pub fn value_of(&self, key: &Atom) -> Option<&Atom> {
        let pairs = self.pairs();
        pairs.binary_search_by(|(k, _)| k.cmp(key)).ok().map(|at| &pairs[at].1)
    }

    /// Reads a value: an atom, `["set", […]]` or `["map", [[key, value]…]]`.
    pub(crate) fn from_json(json: &Value, column_type: &ColumnType) -> Result<Datum, DatumError> {
        let tagged = match json.as_array().map(Vec::as_slice) {
            Some([tag, Value::Array(list)]) => tag.as_str().map(|tag| (tag, list)),
            _ => None,
        };
        match (tagged, column_type.value) {
            (Some(("map", list)), Some(value)) => map_from_json(list, column_type.key, value),
            // An empty map may be written as an empty set. Source: OVS lib/ovsdb-data.c, `ovsdb_datum_from_json`.
            (Some(("set", list)), Some(_)) if list.is_empty() => Ok(Datum(Elements::Map(Vec::new()))),
            (_, Some(_)) => Err(DatumError::Shape("[\"map\", […]]")),
            (Some(("set", list)), None) => set_from_json(list, column_type.key),
            (_, None) => Atom::from_json(json, column_type.key).map(|atom| Datum(Elements::Set(vec![atom]))),
        }
    }

    /// The value as the protocol writes it. `name_of` gives the `named-uuid` of a row that the same transaction
    /// inserts.
    pub(crate) fn to_json(&self, name_of: &dyn Fn(Uuid) -> Option<String>) -> Value {
        match &self.0 {
            Elements::Set(atoms) => match atoms.as_slice() {
                [atom] => atom.to_json(name_of),
                _ => json!(["set", atoms.iter().map(|atom| atom.to_json(name_of)).collect::<Vec<_>>()]),
            },
            Elements::Map(pairs) => {
                let pairs: Vec<_> =
                    pairs.iter().map(|(k, v)| json!([k.to_json(name_of), v.to_json(name_of)])).collect();
                json!(["map", pairs])
            }
        }
    }

    /// The value after a `modify` that carries `difference`: of a set, its elements change sides; of a map, an equal
    /// pair goes, another value replaces and a new key comes. A column of at most one element carries its new value.
    ///
    /// `server_type` must be the server's, for it decides which of the two a message carries.
    /// Source: ovsdb-server(7), "Monitor Conditional"; OVS lib/ovsdb-data.c, `ovsdb_datum_apply_diff`.
    pub(crate) fn with_difference(&self, difference: Datum, server_type: &ColumnType) -> Datum {
        match (&self.0, &difference.0) {
            _ if !server_type.is_composite() => difference,
            (Elements::Set(old), Elements::Set(toggled)) => Datum(Elements::Set(toggle_elements(old, toggled))),
            (Elements::Map(old), Elements::Map(changed)) => Datum(Elements::Map(change_pairs(old, changed))),
            // Only a declaration that contradicts itself gets here: `from_json` reads both with one type.
            _ => difference,
        }
    }

    /// Whether kinds and shape are those of a type.
    pub(crate) fn check(&self, column_type: &ColumnType) -> Result<(), &'static str> {
        match (&self.0, column_type.value) {
            (Elements::Set(atoms), None) if atoms.iter().all(|a| a.kind() == column_type.key) => Ok(()),
            (Elements::Map(pairs), Some(value)) => {
                let fits = pairs.iter().all(|(k, v)| k.kind() == column_type.key && v.kind() == value);
                if fits { Ok(()) } else { Err("a pair's kinds are not the column's") }
            }
            (Elements::Set(_), None) => Err("an element's kind is not the column's"),
            (Elements::Set(_), Some(_)) => Err("a set for a column of maps"),
            (Elements::Map(_), None) => Err("a map for a column of sets"),
        }
    }

    /// Whether a column may hold as many elements.
    pub(crate) fn check_len(&self, column_type: &ColumnType) -> Result<(), &'static str> {
        match self.len() {
            len if len < column_type.min as usize => Err("too few elements"),
            len if len > column_type.max as usize => Err("too many elements"),
            _ => Ok(()),
        }
    }
}

fn set_from_json(list: &[Value], kind: AtomicType) -> Result<Datum, DatumError> {
    let mut atoms = list.iter().map(|json| Atom::from_json(json, kind)).collect::<Result<Vec<_>, _>>()?;
    atoms.sort();
    if atoms.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(DatumError::Duplicate);
    }
    Ok(Datum(Elements::Set(atoms)))
}

fn map_from_json(list: &[Value], key: AtomicType, value: AtomicType) -> Result<Datum, DatumError> {
    let pair = |json: &Value| match json.as_array().map(Vec::as_slice) {
        Some([k, v]) => Ok((Atom::from_json(k, key)?, Atom::from_json(v, value)?)),
        _ => Err(DatumError::Shape("a pair of atoms")),
    };
    let mut pairs = list.iter().map(pair).collect::<Result<Vec<_>, _>>()?;
    pairs.sort();
    if pairs.windows(2).any(|two| two[0].0 == two[1].0) {
        return Err(DatumError::Duplicate);
    }
    Ok(Datum(Elements::Map(pairs)))
}

/// The symmetric difference of two ascending lists.
fn toggle_elements(old: &[Atom], toggled: &[Atom]) -> Vec<Atom> {
    let (mut old, mut toggled) = (old.iter().peekable(), toggled.iter().peekable());
    let mut new = Vec::new();
    while let (Some(a), Some(b)) = (old.peek(), toggled.peek()) {
        match a.cmp(b) {
            std::cmp::Ordering::Less => new.extend(old.next().cloned()),
            std::cmp::Ordering::Greater => new.extend(toggled.next().cloned()),
            std::cmp::Ordering::Equal => {
                old.next();
                toggled.next();
            }
        }
    }
    new.extend(old.chain(toggled).cloned());
    new
}

fn change_pairs(old: &[(Atom, Atom)], changed: &[(Atom, Atom)]) -> Vec<(Atom, Atom)> {
    let (mut old, mut changed) = (old.iter().peekable(), changed.iter().peekable());
    let mut new = Vec::new();
    while let (Some(a), Some(b)) = (old.peek(), changed.peek()) {
        match a.0.cmp(&b.0) {
            std::cmp::Ordering::Less => new.extend(old.next().cloned()),
            std::cmp::Ordering::Greater => new.extend(changed.next().cloned()),
            std::cmp::Ordering::Equal => {
                if a.1 != b.1 {
                    new.push((*b).clone());
                }
                old.next();
                changed.next();
            }
        }
    }
    new.extend(old.chain(changed).cloned());
    new
}

impl<A: Into<Atom>> From<A> for Datum {
    fn from(atom: A) -> Self {
        Datum(Elements::Set(vec![atom.into()]))
    }
}

impl<A: Into<Atom>> From<Option<A>> for Datum {
    fn from(atom: Option<A>) -> Self {
        Datum::set(atom)
    }
}

impl<A: Into<Atom>> From<Vec<A>> for Datum {
    fn from(atoms: Vec<A>) -> Self {
        Datum::set(atoms)
    }
}

impl<K: Into<Atom>, V: Into<Atom>> From<BTreeMap<K, V>> for Datum {
    fn from(pairs: BTreeMap<K, V>) -> Self {
        Datum::map(pairs)
    }
}
