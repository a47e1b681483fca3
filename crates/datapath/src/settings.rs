//! Settings of the lookup, which can change while the datapath runs: which levels are used, and how the exact match
//! cache is filled. The autopilot decides what is "auto".

use crate::EmcRecirc;
use sluice_flow_cache::{CACHE_ENTRIES_MAX, DistributorTable, SubtableSearch};
use sluice_simd::Isa;
use sluice_simd::isa::NoIsa;
use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Whether a level of the lookup is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Level {
    /// The autopilot decides, for each receive queue.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never. The level then has no memory.
    Off,
}

/// How many candidates of the exact match cache are inserted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InsertInvProb {
    /// The autopilot decides.
    #[default]
    Auto,
    /// One in this many; 0: none, which turns the cache off.
    OneIn(u32),
    /// More or fewer, by how full the cache is and how often it answers.
    Adaptive,
}

/// The settings of the lookup.
///
/// Every combination produces the same packets and megaflow counters. They differ in cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Exact match cache.
    pub emc: Level,
    /// Signature match cache.
    pub smc: Level,
    /// The most flows that the signature match cache holds, 1 to 2^28; it begins with 2^20 if it may, and doubles when flows
    /// evict each other.
    pub smc_entries: usize,
    /// Cuckoo distributor.
    pub distributor: Level,
    /// What the distributor keeps its hints in; `None`: the autopilot decides.
    pub distributor_table: Option<DistributorTable>,
    /// The most flows that the distributor holds, 1 to 2^28; `None`: 2^24 in its own table, 2^18 in the others.
    pub distributor_entries: Option<usize>,
    /// The vector instructions of the distributor; `None`: those of everything else.
    pub distributor_vector: Option<Isa>,
    /// How the megaflow subtables are searched.
    pub search: SubtableSearch,
    /// The vector instructions in use.
    pub vector: Isa,
    /// How many candidates the exact match cache takes.
    pub emc_insert_inv_prob: InsertInvProb,
    /// Which recirculated packets use the exact match cache; `None`: the autopilot decides.
    pub emc_recirc: Option<EmcRecirc>,
    /// The occupancy of the exact match cache above which those policies keep packets away, percent.
    pub emc_recirc_threshold: u8,
    /// Entries of each PMD's exact match cache, 1 to 2^28.
    pub emc_entries: usize,
    /// Composed entries: one lookup for all passes of a tracked packet.
    pub composed: Level,
}

/// An invalid setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// There is no such setting.
    #[error("unknown setting \"{0}\"; expected one of {keys}", keys = Settings::KEYS.join(", "))]
    Key(String),
    /// The setting has no such value.
    #[error("{key}: \"{value}\"; expected {expected}")]
    Value {
        /// Which setting.
        key: &'static str,
        /// The value given.
        value: String,
        /// The values allowed.
        expected: &'static str,
    },
    /// The processor lacks these vector instructions.
    #[error("vector: {0}")]
    Vector(#[from] NoIsa),
}

/// Entries of the exact match cache by default. Source: OVS, EM_FLOW_HASH_SHIFT.
const EMC_ENTRIES: usize = 8192;
/// The most flows of the signature match cache by default, in 128 MiB.
const SMC_ENTRIES: usize = 1 << 24;
/// The occupancy above which packets stay away, percent. Source: EMC_RECIRCT_NO_INSERT_THRESHOLD of the patch that `emc_recirc.rs` names.
pub(crate) const EMC_RECIRC_THRESHOLD: u8 = 50;
/// The entries that a cache may be told to have.
pub(crate) const CACHE_ENTRIES_ALLOWED: RangeInclusive<usize> = 1..=CACHE_ENTRIES_MAX;
/// The same in words.
pub(crate) const CACHE_ENTRIES_EXPECTED: &str = "a number from 1 to 268435456";

impl Default for Settings {
    fn default() -> Self {
        Settings {
            emc: Level::Auto,
            smc: Level::Auto,
            distributor: Level::Auto,
            distributor_table: None,
            smc_entries: SMC_ENTRIES,
            distributor_entries: None,
            distributor_vector: None,
            search: SubtableSearch { prunes: true, ranks: true },
            vector: Isa::best(),
            emc_insert_inv_prob: InsertInvProb::Auto,
            emc_recirc: None,
            emc_recirc_threshold: EMC_RECIRC_THRESHOLD,
            emc_entries: EMC_ENTRIES,
            composed: Level::Auto,
        }
    }
}

impl Settings {
    /// The names of the settings, as in the configuration file.
    pub const KEYS: &[&str] = &[
        "emc",
        "smc",
        "distributor",
        "distributor-table",
        "distributor-entries",
        "distributor-vector",
        "subtable-pruning",
        "subtable-ranking",
        "vector",
        "emc-entries",
        "emc-insert-inv-prob",
        "emc-recirc",
        "emc-recirc-threshold",
        "smc-entries",
        "composed",
    ];

    /// Settings that leave nothing to decide: every level off, the subtables alone.
    pub const BARE: Settings = Settings {
        emc: Level::Off,
        smc: Level::Off,
        distributor: Level::Off,
        distributor_table: Some(DistributorTable::Own),
        smc_entries: SMC_ENTRIES,
        distributor_entries: None,
        distributor_vector: None,
        search: SubtableSearch { prunes: true, ranks: true },
        vector: Isa::SCALAR,
        emc_insert_inv_prob: InsertInvProb::OneIn(1),
        emc_recirc: Some(EmcRecirc::Always),
        emc_recirc_threshold: EMC_RECIRC_THRESHOLD,
        emc_entries: EMC_ENTRIES,
        composed: Level::Off,
    };

    /// Changes one setting, both as text.
    ///
    /// # Errors
    /// If the setting or its value is unknown. Nothing has changed then.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        let wrong = |key, expected| SettingError::Value { key, value: value.into(), expected };
        match key {
            "emc" => self.emc = value.parse().map_err(|()| wrong("emc", Level::EXPECTED))?,
            "smc" => self.smc = value.parse().map_err(|()| wrong("smc", Level::EXPECTED))?,
            "distributor" => self.distributor = value.parse().map_err(|()| wrong("distributor", Level::EXPECTED))?,
            "distributor-table" => {
                let table = DistributorTable::ALL.into_iter().find(|table| table.name() == value);
                let expected = "\"auto\", \"own\", \"ht\" or \"vbf\"";
                self.distributor_table = or_auto(value, table).ok_or_else(|| wrong("distributor-table", expected))?;
            }
            "distributor-entries" => {
                let expected = "\"auto\" or a number from 1 to 268435456";
                self.distributor_entries =
                    or_auto(value, entries(value)).ok_or_else(|| wrong("distributor-entries", expected))?;
            }
            "distributor-vector" if value == "auto" => self.distributor_vector = None,
            "distributor-vector" => self.distributor_vector = Some(Isa::named(value)?),
            "subtable-pruning" => {
                self.search.prunes = on_or_off(value).ok_or_else(|| wrong(SUBTABLE_PRUNING, ON_OR_OFF))?
            }
            "subtable-ranking" => {
                self.search.ranks = on_or_off(value).ok_or_else(|| wrong(SUBTABLE_RANKING, ON_OR_OFF))?
            }
            "vector" if value == "auto" => self.vector = Isa::best(),
            "vector" => self.vector = Isa::named(value)?,
            "emc-entries" => {
                self.emc_entries = entries(value).ok_or_else(|| wrong("emc-entries", CACHE_ENTRIES_EXPECTED))?
            }
            "smc-entries" => {
                self.smc_entries = entries(value).ok_or_else(|| wrong("smc-entries", CACHE_ENTRIES_EXPECTED))?
            }
            "emc-insert-inv-prob" => {
                let expected = "\"auto\", \"adaptive\" or a whole number from 0 to 4294967295";
                self.emc_insert_inv_prob = value.parse().map_err(|()| wrong("emc-insert-inv-prob", expected))?;
            }
            "emc-recirc" if value == "auto" => self.emc_recirc = None,
            "emc-recirc" => {
                let expected = "\"auto\", \"always\", \"threshold\", \"penalty\", \"random\", \"rss\", \"random-all\" or \"rss-all\"";
                self.emc_recirc = Some(value.parse().map_err(|()| wrong("emc-recirc", expected))?);
            }
            "emc-recirc-threshold" => {
                let percent = value.parse().ok().filter(|percent| *percent <= 100);
                self.emc_recirc_threshold =
                    percent.ok_or_else(|| wrong("emc-recirc-threshold", "a number from 0 to 100"))?;
            }
            "composed" => self.composed = value.parse().map_err(|()| wrong("composed", Level::EXPECTED))?,
            _ => return Err(SettingError::Key(key.into())),
        }
        Ok(())
    }

    /// Every setting with its value as text, in the order of [`Settings::KEYS`].
    pub fn values(&self) -> [(&'static str, String); Self::KEYS.len()] {
        let values = [
            self.emc.to_string(),
            self.smc.to_string(),
            self.distributor.to_string(),
            self.distributor_table.map_or(AUTO, DistributorTable::name).to_owned(),
            self.distributor_entries.map_or(AUTO.to_owned(), |entries| entries.to_string()),
            self.distributor_vector.map_or(AUTO, Isa::name).to_owned(),
            if self.search.prunes { "on" } else { "off" }.to_owned(),
            if self.search.ranks { "on" } else { "off" }.to_owned(),
            self.vector.name().to_owned(),
            self.emc_entries.to_string(),
            self.emc_insert_inv_prob.to_string(),
            self.emc_recirc.map_or(AUTO.to_owned(), |policy| policy.to_string()),
            self.emc_recirc_threshold.to_string(),
            self.smc_entries.to_string(),
            self.composed.to_string(),
        ];
        let mut keys = Self::KEYS.iter();
        values.map(|value| (*keys.next().expect("invariant: a value a key"), value))
    }

    /// Whether the exact match cache is used. It is off if nothing is inserted.
    pub(crate) fn emc_level(&self) -> Level {
        if self.emc_insert_inv_prob == InsertInvProb::OneIn(0) { Level::Off } else { self.emc }
    }
}

const AUTO: &str = "auto";
const SUBTABLE_PRUNING: &str = "subtable-pruning";
const SUBTABLE_RANKING: &str = "subtable-ranking";
const ON_OR_OFF: &str = "\"on\" or \"off\"";

/// How many entries a cache is to have.
fn entries(text: &str) -> Option<usize> {
    text.parse().ok().filter(|n| CACHE_ENTRIES_ALLOWED.contains(n))
}

/// The value itself, or nothing for "auto"; `None` if it is neither.
fn or_auto<T>(text: &str, value: Option<T>) -> Option<Option<T>> {
    if text == AUTO { Some(None) } else { value.map(Some) }
}

fn on_or_off(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

impl Level {
    const EXPECTED: &str = "\"auto\", \"on\" or \"off\"";
}

impl Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Level::Auto => "auto",
            Level::On => "on",
            Level::Off => "off",
        })
    }
}

impl FromStr for Level {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "auto" => Ok(Level::Auto),
            "on" => Ok(Level::On),
            "off" => Ok(Level::Off),
            _ => Err(()),
        }
    }
}

impl Display for InsertInvProb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InsertInvProb::Auto => f.pad("auto"),
            InsertInvProb::Adaptive => f.pad("adaptive"),
            InsertInvProb::OneIn(n) => n.fmt(f),
        }
    }
}

impl FromStr for InsertInvProb {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "auto" => Ok(InsertInvProb::Auto),
            "adaptive" => Ok(InsertInvProb::Adaptive),
            number => number.parse().map(InsertInvProb::OneIn).map_err(|_| ()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_can_be_set() {
        let mut settings = Settings::BARE;
        let told = [
            ("emc", "on"),
            ("smc", "auto"),
            ("distributor", "on"),
            ("distributor-table", "vbf"),
            ("distributor-entries", "1000"),
            ("distributor-vector", "scalar"),
            ("subtable-pruning", "off"),
            ("subtable-ranking", "off"),
            ("vector", "scalar"),
            ("emc-entries", "256"),
            ("emc-insert-inv-prob", "adaptive"),
            ("emc-recirc", "rss-all"),
            ("emc-recirc-threshold", "30"),
            ("smc-entries", "4096"),
            ("composed", "on"),
        ];
        told.iter().for_each(|(key, value)| settings.set(key, value).unwrap());
        assert_eq!(settings.values().map(|(key, value)| (key, value)), told.map(|(k, v)| (k, v.to_owned())));
        let mut copy = Settings::default();
        settings.values().iter().for_each(|(key, value)| copy.set(key, value).unwrap());
        assert_eq!(copy, settings);
    }

    #[test]
    fn what_is_wrong_is_named_and_changes_nothing() {
        let mut settings = Settings::default();
        for (key, value, error) in [
            ("emcc", "on", "unknown setting \"emcc\"; expected one of emc, smc, "),
            ("emc", "yes", "emc: \"yes\"; expected \"auto\", \"on\" or \"off\""),
            ("distributor", "vbf", "distributor: \"vbf\"; expected \"auto\", \"on\" or \"off\""),
            ("distributor-table", "x", "distributor-table: \"x\"; expected \"auto\", \"own\""),
            ("vector", "mmx", "vector: \"mmx\" is unknown; this CPU has \"scalar\""),
            ("emc-entries", "0", "emc-entries: \"0\"; expected a number from 1 to 268435456"),
            ("smc-entries", "268435457", "smc-entries: \"268435457\"; expected a number from 1 to 268435456"),
            ("emc-recirc", "never", "emc-recirc: \"never\"; expected \"auto\", \"always\", \"threshold\""),
            (
                "emc-insert-inv-prob",
                "-1",
                "emc-insert-inv-prob: \"-1\"; expected \"auto\", \"adaptive\" or a whole number",
            ),
            ("emc-recirc-threshold", "101", "emc-recirc-threshold: \"101\"; expected a number from 0 to 100"),
            ("distributor-entries", "0", "distributor-entries: \"0\"; expected \"auto\" or a number from 1"),
            ("subtable-pruning", "auto", "subtable-pruning: \"auto\"; expected \"on\" or \"off\""),
        ] {
            let told = settings.set(key, value).unwrap_err().to_string();
            assert!(told.starts_with(error), "{told}");
        }
        assert_eq!(settings, Settings::default());
    }
}
