//! An arm: one complete setting of the lookup. The autopilot chooses between arms.

use crate::EmcRecirc;
use crate::settings::{InsertInvProb, Level, Settings};
use sluice_flow_cache::DistributorTable;
use std::fmt::{self, Display};

/// Which levels are asked in front of the megaflow subtables, and how they are filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arm {
    /// How many of the megaflows that other levels find the exact match cache inserts; `None`: it is not asked.
    pub emc: Option<EmcInsert>,
    /// Which recirculated packets ask it, and are inserted.
    pub emc_recirc: EmcRecirc,
    /// Whether the signature match cache is asked.
    pub smc: bool,
    /// The table of the distributor that is asked, in front of the search.
    pub distributor: Option<DistributorTable>,
}

/// How many candidates the exact match cache inserts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EmcInsert {
    /// One in this many.
    OneIn(u32),
    /// As many as its occupancy and its hits suggest.
    Adaptive,
}

/// The insertion probabilities worth a try: every candidate, and OVS's DEFAULT_EM_FLOW_INSERT_INV_PROB.
const INV_PROBS: [EmcInsert; 2] = [EmcInsert::OneIn(100), EmcInsert::OneIn(1)];

/// The policies for recirculated packets worth a try.
const POLICIES: [EmcRecirc; 3] = [EmcRecirc::Threshold, EmcRecirc::Random, EmcRecirc::Rss];

impl Arm {
    /// The subtables alone.
    pub const BARE: Arm = Arm { emc: None, emc_recirc: EmcRecirc::Always, smc: false, distributor: None };

    /// Every arm that these settings allow, at least one. The first is the safe arm, which is never far from the best,
    /// whatever the traffic.
    pub fn all(settings: &Settings) -> Vec<Arm> {
        let smc = choices(settings.smc);
        let emc: Vec<Option<EmcInsert>> = choices(settings.emc_level())
            .iter()
            .flat_map(|on| match (on, settings.emc_insert_inv_prob) {
                (false, _) => vec![None],
                (true, InsertInvProb::OneIn(n)) => vec![Some(EmcInsert::OneIn(n))],
                (true, InsertInvProb::Adaptive) => vec![Some(EmcInsert::Adaptive)],
                (true, InsertInvProb::Auto) => INV_PROBS.map(Some).to_vec(),
            })
            .collect();
        let mut arms = Vec::new();
        for (&smc, &emc) in smc.iter().flat_map(|smc| emc.iter().map(move |emc| (smc, emc))) {
            // Behind a signature match cache there is nothing to gain: it names the megaflow itself.
            let asked = match settings.distributor {
                Level::Auto if smc => &[false][..],
                level => choices(level),
            };
            let table = settings.distributor_table.unwrap_or(DistributorTable::Own);
            let distributor = asked.iter().map(|asked| asked.then_some(table));
            let emc_recirc = settings.emc_recirc.unwrap_or(EmcRecirc::Always);
            arms.extend(distributor.map(|distributor| Arm { emc, emc_recirc, smc, distributor }));
        }
        // A safe arm has one cache: two that miss cost too much.
        arms.sort_by_key(|arm| {
            [arm.smc, arm.emc.is_some(), arm.distributor.is_some()].iter().filter(|on| **on).count() != 1
        });
        if settings.distributor_table.is_none() {
            // Beside another cache the tables differ by too little. At the end, where they move no other arm's number.
            let is_alone = |arm: &&Arm| arm.distributor.is_some() && arm.emc.is_none() && !arm.smc;
            let alone: Vec<Arm> = arms.iter().filter(is_alone).copied().collect();
            let others = [DistributorTable::Ht, DistributorTable::Vbf].map(Some);
            arms.extend(
                others.iter().flat_map(|&distributor| alone.iter().map(move |arm| Arm { distributor, ..*arm })),
            );
        }
        if settings.emc_recirc.is_none() {
            let is_usual = |n| settings.emc_insert_inv_prob != InsertInvProb::Auto || n == INV_PROBS[0];
            let policies: Vec<Arm> = arms
                .iter()
                .filter(|arm| arm.emc.is_some_and(is_usual) && arm.distributor.is_none())
                .flat_map(|arm| POLICIES.iter().map(|&emc_recirc| Arm { emc_recirc, ..*arm }))
                .collect();
            arms.extend(policies);
        }
        arms
    }

    /// Whether it is worth a try only where packets recirculate: the settings also allow the same arm with every packet
    /// in the exact match cache.
    pub fn is_for_recirculation(&self, settings: &Settings) -> bool {
        settings.emc_recirc.is_none() && self.emc_recirc != EmcRecirc::Always
    }
}

/// The choices for a level, the better guess first.
fn choices(level: Level) -> &'static [bool] {
    match level {
        Level::Auto => &[true, false],
        Level::On => &[true],
        Level::Off => &[false],
    }
}

/// Settings that allow this arm only.
impl From<Arm> for Settings {
    fn from(arm: Arm) -> Settings {
        let level = |on| if on { Level::On } else { Level::Off };
        Settings {
            emc: level(arm.emc.is_some()),
            smc: level(arm.smc),
            distributor: level(arm.distributor.is_some()),
            distributor_table: Some(arm.distributor.unwrap_or(DistributorTable::Own)),
            emc_recirc: Some(arm.emc_recirc),
            emc_insert_inv_prob: match arm.emc {
                None => InsertInvProb::OneIn(1),
                Some(EmcInsert::OneIn(n)) => InsertInvProb::OneIn(n),
                Some(EmcInsert::Adaptive) => InsertInvProb::Adaptive,
            },
            ..Settings::BARE
        }
    }
}

impl Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let emc = self.emc.map(|insert| match insert {
            EmcInsert::OneIn(1) => "EMC".to_owned(),
            EmcInsert::OneIn(n) => format!("EMC 1/{n}"),
            EmcInsert::Adaptive => "EMC 1/n".to_owned(),
        });
        let emc = emc.map(|emc| match self.emc_recirc {
            EmcRecirc::Always => emc,
            policy => format!("{emc} ({policy})"),
        });
        let smc = self.smc.then(|| "SMC".to_owned());
        let distributor = self.distributor.map(|table| match table {
            DistributorTable::Own => "distributor".to_owned(),
            table => format!("distributor ({})", table.name()),
        });
        let words: Vec<String> = emc.into_iter().chain(smc).chain(distributor).collect();
        f.pad(if words.is_empty() { "subtables alone".to_owned() } else { words.join(" + ") }.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_leave_what_they_say() {
        let names = |settings: &Settings| Arm::all(settings).iter().map(Arm::to_string).collect::<Vec<_>>();
        let auto = Settings::default();
        assert_eq!(
            names(&auto),
            [
                "SMC",
                "EMC 1/100",
                "EMC",
                "distributor",
                "EMC 1/100 + SMC",
                "EMC + SMC",
                "EMC 1/100 + distributor",
                "EMC + distributor",
                "subtables alone",
                "distributor (ht)",
                "distributor (vbf)",
                "EMC 1/100 (threshold)",
                "EMC 1/100 (random)",
                "EMC 1/100 (rss)",
                "EMC 1/100 (threshold) + SMC",
                "EMC 1/100 (random) + SMC",
                "EMC 1/100 (rss) + SMC"
            ]
        );
        assert_eq!(names(&Settings { emc: Level::On, emc_recirc: Some(EmcRecirc::Rss), ..auto }).len(), 6);
        let never = Settings { emc: Level::On, emc_insert_inv_prob: InsertInvProb::OneIn(0), ..auto };
        assert_eq!(names(&never), ["SMC", "distributor", "subtables alone", "distributor (ht)", "distributor (vbf)"]);
        let own = Settings { distributor_table: Some(DistributorTable::Own), ..never };
        assert_eq!(names(&own), ["SMC", "distributor", "subtables alone"]);
        let adaptive = Settings { emc: Level::On, emc_insert_inv_prob: InsertInvProb::Adaptive, ..Settings::BARE };
        assert_eq!(names(&adaptive), ["EMC 1/n"]);
        assert_eq!(names(&Settings::BARE), ["subtables alone"]);
    }

    #[test]
    fn an_arm_can_be_forced() {
        for arm in Arm::all(&Settings::default()) {
            assert_eq!(Arm::all(&Settings::from(arm)), [arm]);
        }
    }
}
