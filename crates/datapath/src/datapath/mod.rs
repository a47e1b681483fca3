//! The datapath as control threads see it: its [`ports`], and what it [`reports`].

mod ports;
mod reports;

pub use ports::PortPolling;

use crate::auto_lb::AutoLbState;
use crate::command::PmdCommand;
use crate::control::{Control, WorkerState};
use crate::device_statuses::DeviceStatuses;
use crate::meter::Meters;
use crate::no_tables::NoTables;
use crate::packet_samples::PacketSamples;
use crate::perf_metrics::PerfLog;
use crate::pmd_factory::PmdFactory;
use crate::progress::Watched;
use crate::punts::{Punted, Punts};
use crate::reassembly::Onward;
use crate::session_packets::{SessionPackets, SessionProtocol};
use crate::{Config, DatapathError, PacketIns, PacketOut};
use parking_lot::{Mutex, MutexGuard};
use sluice_action::{MegaflowStore, MeterStore, Upcall};
use sluice_conntrack::Conntrack;
use sluice_conntrack::fragments::Fragments;
use sluice_fate::Snapshot;
use sluice_flow_cache::{MegaflowTable, NOTICES_MAX};
use sluice_simd::{HashKey, hash::splitmix64};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// PMDs, their ports, and the megaflows they share.
///
/// Its PMDs rest at first. [`Datapath::start`] runs them as threads; without it, [`Datapath::run_once`] runs them in
/// the caller's. All methods may be called from any control thread.
pub struct Datapath {
    factory: PmdFactory,
    control: Mutex<Control>,
    packet_ins: Mutex<Option<PacketIns>>,
    session_packets: [Mutex<Option<SessionPackets>>; SessionProtocol::ALL.len()],
    packet_samples: Mutex<Option<PacketSamples>>,
}

/// What a round of [`Datapath::run_once`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// The most packets that a queue gave.
    pub fullest: usize,
    /// Whether no queue will ever give a packet again.
    pub exhausted: bool,
}

/// Connections that one call of [`Datapath::service`] examines: some milliseconds of work.
const EXPIRE_AT_ONCE: usize = 1 << 16;

impl Datapath {
    /// A datapath without ports, whose tables know nothing: every miss is a lost upcall until
    /// [`Datapath::set_upcalls`].
    ///
    /// # Errors
    /// If the configuration contradicts itself, or there is no memory for the megaflows.
    pub fn new(config: Config) -> Result<Self, DatapathError> {
        config.check()?;
        let mut seed = config.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        let secret = HashKey::from_seed(splitmix64(&mut seed));
        let memory = |cause| DatapathError::Memory { megaflows: config.max_megaflows, cause };
        let table =
            Arc::new(MegaflowTable::with_quota(config.max_megaflows, config.masks_a_port, &secret).map_err(memory)?);
        table.memory().set_limit(config.flow_memory);
        let shards = config.connection_tables.shards;
        let conntrack = sluice_conntrack::Config { shards, ..sluice_conntrack::Config::new(secret.clone()) };
        let conntrack = Arc::new(Conntrack::new(conntrack));
        let (fragments, meters) = (Arc::new(Fragments::<Onward>::default()), Arc::new(Meters::default()));
        let (punts, Punted { packet_ins, session_packets, packet_samples }) = Punts::new(config.packet_in_queue);
        let control = Control {
            workers: Vec::new(),
            ports: BTreeMap::new(),
            ingress_policers: BTreeMap::new(),
            egress_policers: BTreeMap::new(),
            egress_policed: BTreeMap::new(),
            tx_steering: BTreeMap::new(),
            device_statuses: DeviceStatuses::default(),
            cores: config.cores.clone(),
            owns_process: config.owns_process,
            has_main_worker: config.main_worker,
            is_started: false,
            unpinned: Vec::new(),
            upcalls: Box::new(|_| Box::new(NoTables)),
            ended: Snapshot::default(),
            rxq_assignment: config.rxq_assignment,
            settings: config.settings,
            vlan_limit: config.vlan_limit,
            miss_budget: config.miss_budget,
            sleep_max_us: config.sleep_max_us,
            perf_metrics: config.perf_metrics,
            perf_log: PerfLog::default(),
            auto_lb: AutoLbState::new(config.auto_lb),
            captures: Vec::new(),
            seed,
        };
        let watched = Watched::default();
        let capture_ids = AtomicU64::new(1);
        let factory = PmdFactory { config, secret, table, conntrack, fragments, meters, punts, watched, capture_ids };
        let datapath = Datapath {
            factory,
            control: Mutex::new(control),
            packet_ins: Mutex::new(Some(packet_ins)),
            session_packets: session_packets.map(|packets| Mutex::new(Some(packets))),
            packet_samples: Mutex::new(Some(packet_samples)),
        };
        datapath.reconcile_workers(&mut datapath.control())?;
        Ok(datapath)
    }

    /// Notices of deleted megaflows that the PMD with most of them has not read, and how many there may be.
    pub fn deletion_notices(&self) -> (usize, usize) {
        (self.factory.table.unread_notices(), NOTICES_MAX)
    }

    /// The meters.
    pub fn meters(&self) -> Arc<dyn MeterStore> {
        self.factory.meters.clone()
    }

    /// Gives each worker its way to the tables, also those to come; `make` gets the worker's number.
    pub fn set_upcalls(&self, make: impl FnMut(usize) -> Box<dyn Upcall> + Send + 'static) {
        let mut control = self.control();
        let mut make: Box<dyn FnMut(usize) -> Box<dyn Upcall> + Send> = Box::new(make);
        control.post_all(|worker| PmdCommand::SetUpcall(make(worker.pmd)));
        control.upcalls = make;
    }

    /// The connections.
    pub fn conntrack(&self) -> &Arc<Conntrack> {
        &self.factory.conntrack
    }

    /// The fragments that are held.
    pub fn fragments(&self) -> &Fragments<impl std::fmt::Debug> {
        &*self.factory.fragments
    }

    /// Makes memory for caches that have asked for more, which evict flows until then, and removes a bounded number of
    /// ended connections. Returns whether all were removed. Control threads call it several times a second.
    pub fn service(&self, now_ms: u64) -> bool {
        self.grow_caches();
        self.factory.conntrack.expire(now_ms, EXPIRE_AT_ONCE).is_complete
    }

    /// The megaflows.
    pub fn store(&self) -> Arc<dyn MegaflowStore> {
        self.factory.table.clone()
    }

    /// Changes the most megaflows that there may be; no more than the configuration allows.
    pub fn set_flow_limit(&self, limit: usize) {
        self.factory.table.set_limit(limit);
    }

    /// The receiving end of the messages to controllers. `None` after the first call.
    pub fn take_packet_ins(&self) -> Option<PacketIns> {
        self.packet_ins.lock().take()
    }

    /// The packets of a protocol's sessions, of all PMDs. Only the first call gets them.
    pub fn take_session_packets(&self, protocol: SessionProtocol) -> Option<SessionPackets> {
        self.session_packets[protocol as usize].lock().take()
    }

    /// Ends the wait of the owner of [`Datapath::take_session_packets`].
    pub fn wake_sessions(&self, protocol: SessionProtocol) {
        self.factory.punts.sessions(protocol).wake();
    }

    /// Waits until that owner is done with the packets that there are, at most so long; whether it sent any then.
    pub fn wait_for_sessions(&self, protocol: SessionProtocol, patience: Duration) -> bool {
        let is_owned = self.session_packets[protocol as usize].lock().is_none();
        is_owned && self.factory.punts.sessions(protocol).wait_until_handled(patience)
    }

    /// The sampled packets of all PMDs. Only the first call gets them.
    pub fn take_packet_samples(&self) -> Option<PacketSamples> {
        self.packet_samples.lock().take()
    }

    /// Ends the wait of the owner of [`Datapath::take_packet_samples`].
    pub fn wake_sflow(&self) {
        self.factory.punts.samples.wake();
    }

    /// Waits until that owner is done with the samples that there are, at most so long.
    pub fn wait_for_sflow(&self, patience: Duration) {
        if self.packet_samples.lock().is_none() {
            self.factory.punts.samples.wait_until_handled(patience);
        }
    }

    /// Waits until the owner of [`Datapath::take_packet_ins`] is done with the messages that there are; at most that
    /// long.
    pub fn wait_for_packet_ins(&self, patience: Duration) {
        if self.packet_ins.lock().is_none() {
            self.factory.punts.wait_until_handled(patience);
        }
    }

    /// Runs one iteration of every stopped PMD in the caller's thread, at that time.
    pub fn run_once(&self, now_ms: u64) -> Round {
        self.run_iterations(1, now_ms)
    }

    /// Runs this many iterations of every stopped PMD in the caller's thread, all at that time.
    pub fn run_iterations(&self, iterations: usize, now_ms: u64) -> Round {
        let mut control = self.control();
        let mut round = Round { fullest: 0, exhausted: true };
        for worker in &mut control.workers {
            let WorkerState::Stopped(pmd) = &mut worker.state else { continue };
            pmd.wake();
            for _ in 0..iterations {
                // The output must not depend on the cycles that it took.
                pmd.reset_deficits();
                round.fullest = round.fullest.max(pmd.run_once(now_ms));
            }
            pmd.publish();
            round.exhausted &= pmd.is_exhausted();
        }
        round
    }

    /// Whether no queue of any PMD will ever give a packet again, as of its last idle iteration.
    pub fn is_exhausted(&self) -> bool {
        self.control().workers.iter().all(|worker| worker.shared.exhausted.load(Relaxed))
    }

    /// The numbers of PMDs whose threads have panicked, which is a bug of ours. Their queues are not polled any more.
    pub fn lost_pmds(&self) -> Vec<usize> {
        let control = self.control();
        control.workers.iter().filter(|worker| worker.is_lost()).map(|worker| worker.shared.pmd).collect()
    }

    /// Sends a packet that the switch made, through the first worker.
    pub fn execute(&self, packet: PacketOut) {
        let mut control = self.control();
        if let Some(worker) = control.workers.first() {
            worker.shared.post(PmdCommand::Execute(packet));
        }
        control.deliver();
    }

    pub(crate) fn factory(&self) -> &PmdFactory {
        &self.factory
    }

    pub(crate) fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock()
    }
}

impl Drop for Datapath {
    fn drop(&mut self) {
        self.stop();
    }
}
