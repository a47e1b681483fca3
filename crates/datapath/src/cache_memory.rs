//! The memory of a PMD's caches. Control threads make more of it when a cache asks, and report it.

use crate::caches::Caches;
use sluice_mem::{ArrayMemory, Pages};
use std::sync::Arc;

/// The memory of each cache that is on.
#[derive(Debug, Default)]
pub(crate) struct CacheMemory {
    pub emc: Option<Arc<ArrayMemory>>,
    pub smc: Option<Arc<ArrayMemory>>,
    pub distributor: Option<Arc<ArrayMemory>>,
}

/// The memory of one cache of a PMD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachePages {
    /// The PMD's number.
    pub pmd: usize,
    /// Name of the cache.
    pub cache: &'static str,
    /// Bytes that are resident.
    pub resident: usize,
    /// Their pages.
    pub pages: Pages,
}

impl CacheMemory {
    /// Notes the memory of caches on their way to the PMD.
    pub fn replace(&mut self, caches: &Caches) {
        if let Some(emc) = &caches.emc {
            self.emc = emc.memory();
        }
        if let Some(smc) = &caches.smc {
            self.smc = smc.memory();
        }
        if let Some(distributor) = &caches.distributor {
            self.distributor = distributor.memory();
        }
    }

    /// The caches that are on, by name.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, &ArrayMemory)> {
        let all = [("EMC", &self.emc), ("SMC", &self.smc), ("distributor", &self.distributor)];
        all.into_iter().filter_map(|(name, memory)| Some((name, memory.as_deref()?)))
    }
}
