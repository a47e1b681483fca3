//! Settings by key, as the database has them.

use std::collections::BTreeMap;

/// Settings by key.
pub type Settings = BTreeMap<String, String>;

/// The value of a key as a number; of an absent key, and one whose value is no number, 0.
/// Source: Open vSwitch lib/smap.c, `smap_get_ullong`.
pub(crate) fn number(settings: &Settings, key: &str) -> u64 {
    settings.get(key).and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// The same as 32 bits, and `usual` if it is 0.
pub(crate) fn number_or(settings: &Settings, key: &str, usual: u32) -> u32 {
    match u32::try_from(number(settings, key)).unwrap_or(u32::MAX) {
        0 => usual,
        number => number,
    }
}

/// Settings to be shown.
pub(crate) fn shown<const N: usize>(pairs: [(&str, u64); N]) -> Settings {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_string())).collect()
}
