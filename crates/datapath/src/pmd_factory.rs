//! How workers are made: all that PMDs of one datapath have in common.

use crate::caches::Caches;
use crate::compose::Composer;
use crate::control::Control;
use crate::execute::Executor;
use crate::lookup::Levels;
use crate::meter::{Meters, PmdMeters};
use crate::misses::Misses;
use crate::perf_metrics::PerfMetrics;
use crate::pmd::Pmd;
use crate::pmd_shared::PmdShared;
use crate::progress::Watched;
use crate::punts::Punts;
use crate::reassembly::{Onward, Reassembly};
use crate::recirc::RecircQueue;
use crate::tracking::Tracking;
use crate::tx::TxPorts;
use crate::upcall::Upcalls;
use crate::walk::Walk;
use crate::{Config, DatapathError, tsc_hz};
use sluice_conntrack::fragments::{DATAGRAM_MAX, Fragments};
use sluice_conntrack::{ConnCache, Conntrack};
use sluice_flow_cache::MegaflowTable;
use sluice_mem::{FramePool, HeapPool, PoolConfig};
use sluice_simd::{HashKey, hash::splitmix64};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What PMDs of one datapath have in common.
pub(crate) struct PmdFactory {
    pub config: Config,
    pub secret: HashKey,
    pub table: Arc<MegaflowTable>,
    pub conntrack: Arc<Conntrack>,
    pub fragments: Arc<Fragments<Onward>>,
    pub meters: Arc<Meters>,
    pub punts: Punts,
    pub watched: Watched,
    /// The next capture's.
    pub capture_ids: AtomicU64,
}

impl PmdFactory {
    /// A PMD of that number that rests, with a queue to every port; `core`: `None` for the main worker.
    pub fn make(&self, control: &mut Control, number: usize, core: Option<usize>) -> Result<Box<Pmd>, DatapathError> {
        let memory = |cause| DatapathError::Memory { megaflows: self.config.max_megaflows, cause };
        let scratch = PoolConfig { frames: 1, frame_size: DATAGRAM_MAX, reserve: 0 };
        let scratch: Arc<dyn FramePool> = Arc::new(HeapPool::new(scratch).map_err(DatapathError::Buffers)?);
        let shared = Arc::new(PmdShared::new(number, core, control.sleep_max_us).map_err(DatapathError::Descriptor)?);
        self.watched.add(&shared);
        shared.perf.set(control.perf_metrics.then(|| PerfMetrics::new(control.perf_log, tsc_hz())));
        let caches = Caches::new(&control.settings, &mut control.seed);
        shared.cache_memory().replace(&caches);
        let levels = Levels::new(&self.secret, &control.settings, caches);
        let composer = Composer::new(&self.secret, self.conntrack.clone(), &control.settings);
        let reassembly = Reassembly::new(self.fragments.clone(), scratch);
        let mut random = splitmix64(&mut control.seed);
        let mut tx = TxPorts::default();
        let Control { ports, tx_steering, .. } = &mut *control;
        for (port, queues) in ports {
            let steering = tx_steering.get(port).copied().unwrap_or_default();
            tx.add(*port, steering.queue(&mut **queues, number));
        }
        for (port, policer) in &control.egress_policers {
            tx.set_policer(*port, Some(Arc::clone(policer)));
        }
        let executor = Executor {
            tx,
            tracking: Tracking {
                conntrack: self.conntrack.clone(),
                conn_cache: ConnCache::new(self.config.connection_tables.cached),
                reassembly,
                isa: control.settings.vector,
                random,
            },
            recirc: RecircQueue::new(self.config.recirculations),
            deferred: Box::default(),
            meters: PmdMeters::new(self.meters.clone()),
            resumed: Vec::new(),
            punts: self.punts.clone(),
            random: splitmix64(&mut random),
            sequence: 0,
            worker: number,
        };
        let misses = Misses::new(self.config.governor, control.miss_budget, self.config.max_idle_ms);
        let upcalls = Upcalls::new(number, (control.upcalls)(number), misses);
        let walk = Walk { levels, composer, upcalls, executor };
        let side = self.table.attach(number).map_err(memory)?;
        let config = Config { vlan_limit: control.vlan_limit, ..self.config.clone() };
        let taps = control.taps(number);
        let mut pmd = Pmd::new(shared, self.table.clone(), side, walk, taps, &config);
        pmd.publish();
        Ok(Box::new(pmd))
    }
}
