//! Maps of strings such as `other_config`, and their values as types.

use sluice_ovsdb::Row;
use std::collections::BTreeMap;

/// A map of strings. Values that cannot be read count as absent. Source: Open vSwitch lib/smap.h.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Smap(pub BTreeMap<String, String>);

impl Smap {
    /// Reads a column.
    pub fn read(row: &Row<'_>, column: &str) -> Self {
        let pairs: BTreeMap<&str, &str> = row.get(column);
        Smap(pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
    }

    /// The value of a key.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }
}
