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

    /// Whether a key's value is `true`; of an absent key, `default`. With the default true, only `false` is false.
    /// Source: lib/smap.c, `smap_get_bool`.
    pub fn flag(&self, key: &str, default: bool) -> bool {
        match self.text(key) {
            None => default,
            Some(text) if default => !text.eq_ignore_ascii_case("false"),
            Some(text) => text.eq_ignore_ascii_case("true"),
        }
    }

    /// A key's value as a number, decimal or behind `0x`. Source: lib/smap.c, `smap_get_int`.
    pub fn number<T: TryFrom<i64>>(&self, key: &str) -> Option<T> {
        let text = self.text(key)?.trim();
        let number = match text.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16).ok()?,
            None => text.parse::<i64>().ok()?,
        };
        T::try_from(number).ok()
    }
}
