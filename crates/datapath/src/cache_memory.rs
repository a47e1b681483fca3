//! The memory of a PMD's caches, for control threads: they make more of it when a cache asks, and tell what it is.

use crate::Datapath;
use crate::caches::Caches;
use crate::report::PmdShared;
use sluice_mem::{ArrayMemory, Pages};
use std::sync::{Arc, MutexGuard, PoisonError};

/// The memory of each cache that is on.
#[derive(Debug, Default)]
pub(crate) struct CacheMemory {
    pub emc: Option<Arc<ArrayMemory>>,
    pub smc: Option<Arc<ArrayMemory>>,
    pub distributor: Option<Arc<ArrayMemory>>,
}

/// What a PMD's caches lie in.
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
        caches.emc.iter().for_each(|emc| self.emc = emc.memory());
        caches.smc.iter().for_each(|smc| self.smc = smc.memory());
        caches.distributor.iter().for_each(|distributor| self.distributor = distributor.memory());
    }

    fn named(&self) -> impl Iterator<Item = (&'static str, &ArrayMemory)> {
        let all = [("EMC", &self.emc), ("SMC", &self.smc), ("distributor", &self.distributor)];
        all.into_iter().filter_map(|(name, memory)| Some((name, memory.as_deref()?)))
    }
}

impl PmdShared {
    pub fn cache_memory(&self) -> MutexGuard<'_, CacheMemory> {
        self.cache_memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Datapath {
    /// Makes memory for caches that have asked for more: often, for they put flows out until it is there.
    pub fn service_caches(&self) {
        for pmd in self.shared() {
            pmd.cache_memory().named().for_each(|(_, memory)| memory.grow());
        }
    }

    /// What the caches of every PMD lie in, those that are on.
    pub fn cache_pages(&self) -> Vec<CachePages> {
        let mut all = Vec::new();
        for pmd in self.shared() {
            all.extend(pmd.cache_memory().named().map(|(cache, memory)| {
                let (resident, pages) = (memory.resident(), memory.pages());
                CachePages { pmd: pmd.pmd, cache, resident, pages }
            }));
        }
        all
    }
}
