//! The caches of a PMD, made by control threads.

use crate::settings::{Level, Settings};
use sluice_flow_cache::{Distributor, DistributorTable, Emc, Smc};
use sluice_simd::hash::splitmix64;

/// The most flows that each PMD's signature match cache can hold, in 128 MiB. It begins with a million, as in OVS
/// (SMC_ENTRIES), and doubles when flows evict each other.
pub(crate) const SMC_ENTRIES: usize = 1 << 24;

/// The most flows that each PMD's distributor can hold, in 4 MiB.
pub(crate) const DISTRIBUTOR_ENTRIES: usize = 1 << 20;

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
            smc: ((old.smc == Level::Off) != (new.smc == Level::Off)).then(|| smc(new)),
            distributor: (distributor_table(old) != distributor_table(new)).then(|| distributor(new, seed)),
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
    let mut smc = Smc::new(SMC_ENTRIES);
    smc.set_on(settings.smc != Level::Off);
    smc
}

/// The distributor's table, if it has one.
fn distributor_table(settings: &Settings) -> Option<DistributorTable> {
    (settings.distributor != Level::Off).then_some(settings.distributor_table)
}

fn distributor(settings: &Settings, seed: &mut u64) -> Distributor {
    let mut distributor = Distributor::new(DISTRIBUTOR_ENTRIES, splitmix64(seed));
    distributor.set(distributor_table(settings));
    distributor
}
