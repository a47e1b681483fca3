//! What the user of this crate declares: the tables and columns of interest, and their types.

use crate::AtomicType;

/// The type of a column.
///
/// Shape:  a set of `min` to `max` atoms, or of pairs if `value` is given. A scalar is a set of exactly one.
/// Source: RFC 7047 section 3.2, `<type>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnType {
    /// Kind of the elements, or of a map's keys.
    pub key: AtomicType,
    /// Kind of a map's values; sets have none.
    pub value: Option<AtomicType>,
    /// Least number of elements: 0 or 1.
    pub min: u32,
    /// Greatest number of elements; [`ColumnType::UNLIMITED`] if there is no limit.
    pub max: u32,
}

impl ColumnType {
    /// The `max` of a column without a limit.
    pub const UNLIMITED: u32 = u32::MAX;

    /// Exactly one atom.
    pub const fn scalar(key: AtomicType) -> Self {
        ColumnType { key, value: None, min: 1, max: 1 }
    }

    /// No atom or one.
    pub const fn optional(key: AtomicType) -> Self {
        ColumnType { key, value: None, min: 0, max: 1 }
    }

    /// Any number of different atoms.
    pub const fn set(key: AtomicType) -> Self {
        ColumnType { key, value: None, min: 0, max: Self::UNLIMITED }
    }

    /// Any number of pairs with different keys.
    pub const fn map(key: AtomicType, value: AtomicType) -> Self {
        ColumnType { key, value: Some(value), min: 0, max: Self::UNLIMITED }
    }

    /// Whether `modify` carries a difference rather than the new value. Source: OVS lib/ovsdb-types.h,
    /// `ovsdb_type_is_composite`.
    pub(crate) const fn is_composite(&self) -> bool {
        self.max > 1
    }

    /// Whether a value of one type can be read as one of the other: numbers of elements may differ.
    pub(crate) fn has_kinds_of(&self, other: &ColumnType) -> bool {
        self.key == other.key && self.value == other.value
    }
}

/// A column that is to be monitored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name in the schema.
    pub name: &'static str,
    /// Its type. The server's may allow other numbers of elements; if the server's has other kinds of atoms, the column
    /// is left out as if the server lacked it.
    pub column_type: ColumnType,
    /// Whether a change of it asks for attention: [`crate::Changes::alert`]. Source: OVS lib/ovsdb-idl.h,
    /// `OVSDB_IDL_ALERT`.
    pub alert: bool,
}

impl Column {
    /// A column whose changes ask for attention.
    pub const fn new(name: &'static str, column_type: ColumnType) -> Self {
        Column { name, column_type, alert: true }
    }

    /// Exactly one atom; see [`ColumnType::scalar`].
    pub const fn scalar(name: &'static str, key: AtomicType) -> Self {
        Column::new(name, ColumnType::scalar(key))
    }

    /// No atom or one; see [`ColumnType::optional`].
    pub const fn optional(name: &'static str, key: AtomicType) -> Self {
        Column::new(name, ColumnType::optional(key))
    }

    /// Any number of atoms; see [`ColumnType::set`].
    pub const fn set(name: &'static str, key: AtomicType) -> Self {
        Column::new(name, ColumnType::set(key))
    }

    /// A map of strings to strings, such as `other_config` and `external_ids`: Open vSwitch's "smap".
    pub const fn string_map(name: &'static str) -> Self {
        Column::new(name, ColumnType::map(AtomicType::String, AtomicType::String))
    }

    /// The same column, but changes of it ask for no attention: for columns that the client itself writes. Source: OVS
    /// lib/ovsdb-idl.c, `ovsdb_idl_omit_alert`.
    pub const fn omit_alert(mut self) -> Self {
        self.alert = false;
        self
    }
}

/// A table that is to be monitored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its name in the schema.
    pub name: &'static str,
    /// The columns of interest, at most [`Table::COLUMNS_MAX`].
    pub columns: Vec<Column>,
}

impl Table {
    /// A row's changed columns are a bit set of this size. Open vSwitch's widest table, Interface, has 46 columns.
    pub const COLUMNS_MAX: usize = 128;

    /// A table with these columns.
    pub fn new(name: &'static str, columns: impl Into<Vec<Column>>) -> Self {
        Table { name, columns: columns.into() }
    }
}
