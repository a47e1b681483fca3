//! Forced settings of the lookup: the arms that experiments compare.

use crate::grid::Ready;
use crate::rig::{Rig, Workload};
use anyhow::Result;
use sluice_datapath::{Arm, SettingError, Settings};
use std::time::Duration;

/// A setting by name, as the configuration's keys: what is not said is off, and vectors are the best there are.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name in tables and plots.
    pub name: &'static str,
    /// Keys and values.
    pub keys: &'static [(&'static str, &'static str)],
}

/// Subtables alone, those skipped that cannot match: what every other setting is compared with.
pub const SEARCH: Setting = Setting { name: "search", keys: &[] };
/// Every subtable asked in turn, ranked: the search of the seeds' Open vSwitch.
pub const PLAIN: Setting = Setting { name: "plain search", keys: &[("subtable-pruning", "off")] };
/// The same in the order in which the subtables came.
pub const UNRANKED: Setting =
    Setting { name: "unranked search", keys: &[("subtable-pruning", "off"), ("subtable-ranking", "off")] };
/// The distributor with a plain search behind it, as in the seed.
pub const SEEDS_DISTRIBUTOR: Setting = Setting {
    name: "distributor",
    keys: &[("subtable-pruning", "off"), ("distributor", "on"), ("distributor-table", "own")],
};
/// The same without ranking.
pub const UNRANKED_DISTRIBUTOR: Setting = Setting {
    name: "distributor, unranked",
    keys: &[
        ("subtable-pruning", "off"),
        ("subtable-ranking", "off"),
        ("distributor", "on"),
        ("distributor-table", "own"),
    ],
};
/// The autopilot with nothing to choose but whether the distributor is asked, and with which table.
pub const AUTO_DISTRIBUTOR: Setting = Setting {
    name: "auto distributor",
    keys: &[("subtable-pruning", "off"), ("distributor", "auto"), ("distributor-table", "auto")],
};
/// The exact match cache alone, one in a hundred misses inserted, as in Open vSwitch.
pub const EMC: Setting = Setting { name: "emc", keys: &[("emc", "on"), ("emc-insert-inv-prob", "100")] };
/// The exact match cache alone, every miss inserted.
pub const EMC_ALWAYS: Setting = Setting { name: "emc 1:1", keys: &[("emc", "on"), ("emc-insert-inv-prob", "1")] };
/// The signature match cache alone.
pub const SMC: Setting = Setting { name: "smc", keys: &[("smc", "on")] };
/// Both caches.
pub const BOTH: Setting =
    Setting { name: "emc+smc", keys: &[("emc", "on"), ("emc-insert-inv-prob", "100"), ("smc", "on")] };
/// What the switch does unless told otherwise.
pub const AUTO: Setting = Setting {
    name: "auto",
    keys: &[
        ("emc", "auto"),
        ("smc", "auto"),
        ("distributor", "auto"),
        ("distributor-table", "auto"),
        ("emc-insert-inv-prob", "auto"),
    ],
};

/// The distributor alone, in front of a plain search as in the seed: every table it runs on, each with room for a million
/// flows. Of one table's settings only the vectors of the distributor differ.
pub const DISTRIBUTORS: [Setting; 9] = [
    Setting { name: "own scalar", keys: &distributor("own", "scalar") },
    Setting { name: "own avx2", keys: &distributor("own", "avx2") },
    Setting { name: "own avx512", keys: &distributor("own", "avx512") },
    Setting { name: "ht scalar", keys: &distributor("ht", "scalar") },
    Setting { name: "ht avx2", keys: &distributor("ht", "avx2") },
    Setting { name: "ht avx512", keys: &distributor("ht", "avx512") },
    Setting { name: "vbf scalar", keys: &distributor("vbf", "scalar") },
    Setting { name: "vbf avx2", keys: &distributor("vbf", "avx2") },
    Setting { name: "vbf avx512", keys: &distributor("vbf", "avx512") },
];

const fn distributor(table: &'static str, vector: &'static str) -> [(&'static str, &'static str); 5] {
    [
        ("subtable-pruning", "off"),
        ("distributor", "on"),
        ("distributor-table", table),
        ("distributor-entries", "1048576"),
        ("distributor-vector", vector),
    ]
}

impl Setting {
    /// The datapath's settings.
    ///
    /// # Errors
    /// If this processor has no such vectors.
    pub fn settings(&self) -> Result<Settings, SettingError> {
        let mut settings = Settings { vector: Settings::default().vector, ..Settings::BARE };
        self.keys.iter().try_for_each(|(key, value)| settings.set(key, value))?;
        Ok(settings)
    }

    /// A switch that does `workload` with this, its caches warm after a few packets of each of `flows`, its answers
    /// checked. What the autopilot may choose, it has had time to choose.
    ///
    /// # Errors
    /// If an answer is wrong, or the switch cannot be made.
    pub fn rig(&self, workload: &Workload, flows: u64) -> Result<Ready> {
        self.rig_of(workload, flows, false)
    }

    /// The same, with cycles counted by stage.
    ///
    /// # Errors
    /// As [`Setting::rig`].
    pub fn profiled_rig(&self, workload: &Workload, flows: u64) -> Result<Ready> {
        self.rig_of(workload, flows, true)
    }

    fn rig_of(&self, workload: &Workload, flows: u64, profile: bool) -> Result<Ready> {
        let settings = match self.settings() {
            Err(SettingError::Vector(why)) => return Ok(Ready::NotApplicable(why.to_string())),
            other => other?,
        };
        let mut rig = Rig::new(workload, settings, profile)?;
        rig.check((flows * PACKETS_A_FLOW).clamp(*WARM_PACKETS.start(), *WARM_PACKETS.end()), &settings)?;
        fill(&rig, flows, &settings);
        Ok(Ready::Subject(Box::new(rig)))
    }
}

/// Runs a switch with `settings` until its caches hold what they can of that many flows, and the autopilot has chosen, if it may.
pub fn fill(rig: &Rig, flows: u64, settings: &Settings) {
    let filling = FILLING_A_FLOW * flows.min(FLOWS_MAX) as u32;
    rig.run(filling);
    if let Some(time) = time_to_choose(settings) {
        rig.run_alone(time);
    }
}

/// How long the autopilot runs with the core for itself before it is measured, if these settings leave it a choice.
pub fn time_to_choose(settings: &Settings) -> Option<Duration> {
    (Arm::all(settings).len() > 1).then_some(CHOOSING)
}

/// Before a setting is measured it runs this long for each flow. A table takes most of a second to fill with a million flows.
const FILLING_A_FLOW: Duration = Duration::from_micros(3);
/// Further flows add nothing to that time.
const FLOWS_MAX: u64 = 8_000_000;
/// In this time the autopilot compares all arms once, and repeats comparisons that an interruption spoiled. It cannot do so during the
/// measurement, because other switches evict its data between the slices. The experiment `adaptation` counts from the start.
const CHOOSING: Duration = Duration::from_secs(3);

/// Packets of each flow that warm the caches.
const PACKETS_A_FLOW: u64 = 4;
/// The least number, so that an insertion probability of 1/100 fills a cache; and the most, to bound the time.
const WARM_PACKETS: std::ops::RangeInclusive<u64> = 1_000_000..=160_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_can_be_set_where_the_processor_has_it() {
        let more = [PLAIN, UNRANKED, SEEDS_DISTRIBUTOR, UNRANKED_DISTRIBUTOR, AUTO_DISTRIBUTOR];
        for setting in [SEARCH, EMC, EMC_ALWAYS, SMC, BOTH, AUTO].into_iter().chain(more).chain(DISTRIBUTORS) {
            match setting.settings() {
                Ok(_) => {}
                Err(SettingError::Vector(_)) => assert!(setting.name.contains("avx"), "{}", setting.name),
                Err(error) => panic!("{}: {error}", setting.name),
            }
        }
    }
}
