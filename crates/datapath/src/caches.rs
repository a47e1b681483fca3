//! The caches of a PMD, made by control threads.

use crate::settings::{Level, Settings};
use sluice_flow_cache::{Distributor, DistributorTable, Emc, Smc};
use sluice_simd::hash::splitmix64;

/// Caches on their way to a PMD or back; `None` for a cache that stays as it is.
pub(crate) struct Caches {
    pub emc: Option<Emc>,
    pub smc: Option<Smc>,
    pub distributor: Option<Distributor>,
}

impl Caches {
    /// Empty caches for these settings. `seed` is drawn from.
    pub fn new(settings: &Settings, seed: &mut u64) -> Self {
        let distributor = Some(distributor(settings, seed));
        Caches { emc: Some(emc(settings, seed)), smc: Some(smc(settings)), distributor }
    }

    /// The caches that must be replaced to get from `old` to `new` settings.
    pub fn between(old: &Settings, new: &Settings, seed: &mut u64) -> Self {
        Caches {
            emc: (emc_entries(old) != emc_entries(new)).then(|| emc(new, seed)),
            smc: ((old.smc == Level::Off, old.smc_entries) != (new.smc == Level::Off, new.smc_entries))
                .then(|| smc(new)),
            distributor: ((distributor_tables(old), old.distributor_entries)
                != (distributor_tables(new), new.distributor_entries))
                .then(|| distributor(new, seed)),
        }
    }
}

fn emc_entries(settings: &Settings) -> usize {
    if settings.emc_level() == Level::Off { 0 } else { settings.emc_entries }
}

fn emc(settings: &Settings, seed: &mut u64) -> Emc {
    Emc::new(emc_entries(settings), 1, splitmix64(seed))
}

fn smc(settings: &Settings) -> Smc {
    let mut smc = Smc::new(settings.smc_entries);
    smc.set_on(settings.smc != Level::Off);
    smc
}

/// The distributor's tables; none if it is off.
fn distributor_tables(settings: &Settings) -> &[DistributorTable] {
    match (settings.distributor, &settings.distributor_table) {
        (Level::Off, _) => &[],
        (_, None) => &DistributorTable::ALL,
        (_, Some(table)) => std::slice::from_ref(table),
    }
}

fn distributor(settings: &Settings, seed: &mut u64) -> Distributor {
    let mut distributor = Distributor::new(settings.distributor_entries, splitmix64(seed));
    distributor.set(distributor_tables(settings));
    distributor
}
