//! The datapath as control threads see it.

use crate::caches::Caches;
use crate::command::PmdCommand;
use crate::compose::Composer;
use crate::control::{Control, Engine};
use crate::execute::Executor;
use crate::load::{Load, RxqLoad};
use crate::lookup::Levels;
use crate::meter::{Meters, PmdMeters};
use crate::misses::Misses;
use crate::no_tables::NoTables;
use crate::pmd::Pmd;
use crate::pmd_shared::PmdShared;
use crate::punts::Punts;
use crate::reassembly::{Onward, Reassembly};
use crate::rebalance;
use crate::recirc::RecircQueue;
use crate::tracking::Tracking;
use crate::tuner::Tuner;
use crate::tx::TxPorts;
use crate::upcall::Upcalls;
use crate::walk::Walk;
use crate::{Config, DatapathError, FlowReport, PORTS_MAX, PacketIn, PacketOut, PmdReport, PortReport, thread};
use parking_lot::{Mutex, MutexGuard};
use sluice_action::{MegaflowStore, MeterStore, PortNo, Upcall};
use sluice_conntrack::Conntrack;
use sluice_conntrack::fragments::{DATAGRAM_MAX, Fragments};
use sluice_fate::{PmdStats, Snapshot};
use sluice_flow_cache::{MegaflowTable, ufid};
use sluice_mem::{FramePool, HeapPool, PoolConfig};
use sluice_port::{DeviceStatus, Port};
use sluice_simd::{HashKey, hash::splitmix64, tsc};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;

/// PMDs, their ports, and the megaflows they share.
///
/// Its PMDs rest at first. [`Datapath::start`] runs them as threads; without it, [`Datapath::run_once`] runs them in
/// the caller's. All methods may be called from any control thread.
pub struct Datapath {
    config: Config,
    table: Arc<MegaflowTable>,
    conntrack: Arc<Conntrack>,
    fragments: Arc<Fragments<Onward>>,
    meters: Arc<Meters>,
    pmds: Vec<Arc<PmdShared>>,
    control: Mutex<Control>,
    packet_ins: Mutex<Option<Receiver<PacketIn>>>,
}

/// A PMD thread that is not bound to its core.
#[derive(Debug)]
pub struct Unpinned {
    /// Its number.
    pub pmd: usize,
    /// The reason.
    pub source: std::io::Error,
}

/// What a round of [`Datapath::run_once`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// The most packets that a queue gave.
    pub fullest: usize,
    /// Whether no queue will ever give a packet again.
    pub exhausted: bool,
}

/// Connections that one call of [`Datapath::expire_connections`] examines: some milliseconds of work.
const EXPIRE_AT_ONCE: usize = 1 << 16;

impl Datapath {
    /// A datapath without ports, whose tables know nothing: every miss is a lost upcall until
    /// [`Datapath::set_upcalls`].
    pub fn new(config: Config) -> Result<Self, DatapathError> {
        config.check()?;
        let mut seed = config.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        let secret = HashKey::from_seed(splitmix64(&mut seed));
        let memory = |cause| DatapathError::Memory { megaflows: config.max_megaflows, cause };
        let table =
            Arc::new(MegaflowTable::with_quota(config.max_megaflows, config.masks_a_port, &secret).map_err(memory)?);
        let conntrack = Arc::new(Conntrack::new(sluice_conntrack::Config::new(secret.clone())));
        let fragments = Arc::new(Fragments::default());
        let scratch = PoolConfig { frames: config.cores.len().max(1), frame_size: DATAGRAM_MAX, reserve: 0 };
        let scratch: Arc<dyn FramePool> = Arc::new(HeapPool::new(scratch).map_err(DatapathError::Buffers)?);
        let meters = Arc::new(Meters::default());
        let (sender, receiver) = mpsc::sync_channel(config.packet_in_queue);
        let (mut pmds, mut engines) = (Vec::new(), Vec::new());
        for (number, core) in config.cores.iter().enumerate() {
            let shared = Arc::new(PmdShared::new(number, *core));
            let caches = Caches::new(&config.settings, &mut seed);
            shared.cache_memory().replace(&caches);
            let levels = Levels::new(&secret, &config.settings, caches);
            let composer = Composer::new(&secret, conntrack.clone(), config.settings.composed);
            let reassembly = Reassembly::new(fragments.clone(), scratch.clone());
            let mut random = splitmix64(&mut seed);
            let executor = Executor {
                tx: TxPorts::default(),
                tracking: Tracking::new(conntrack.clone(), reassembly, random),
                recirc: RecircQueue::new(config.recirculations),
                meters: PmdMeters::new(meters.clone()),
                punts: Punts::new(sender.clone()),
                random: splitmix64(&mut random),
            };
            let misses = Misses::new(config.governor, config.miss_budget, config.max_idle_ms);
            let upcalls = Upcalls { tables: Box::new(NoTables), misses };
            let walk = Walk { levels, composer, upcalls, executor };
            let side = table.attach(number).map_err(memory)?;
            let mut pmd = Pmd::new(shared.clone(), table.clone(), side, walk, &config);
            pmd.publish();
            engines.push(Engine::Resting(Box::new(pmd)));
            pmds.push(shared);
        }
        let baselines = vec![(Snapshot::default(), Instant::now()); pmds.len()];
        let (settings, vlan_limit) = (config.settings, config.vlan_limit);
        let control = Control { engines, ports: BTreeMap::new(), next_pmd: 0, baselines, settings, vlan_limit, seed };
        let packet_ins = Mutex::new(Some(receiver));
        Ok(Datapath { config, table, conntrack, fragments, meters, pmds, control: Mutex::new(control), packet_ins })
    }

    /// The meters.
    pub fn meters(&self) -> Arc<dyn MeterStore> {
        self.meters.clone()
    }

    /// Gives each PMD its way to the tables; `make` gets the PMD's number.
    pub fn set_upcalls(&self, mut make: impl FnMut(usize) -> Box<dyn Upcall>) {
        let mut control = self.control();
        self.pmds.iter().for_each(|pmd| pmd.mailbox.post(PmdCommand::SetUpcall(make(pmd.pmd))));
        control.deliver();
    }

    /// The connections.
    pub fn conntrack(&self) -> &Arc<Conntrack> {
        &self.conntrack
    }

    /// The fragments that are held.
    pub fn fragments(&self) -> &Fragments<impl std::fmt::Debug> {
        &*self.fragments
    }

    /// Removes connections that have ended; only a part of them if there are very many. To be called some times a
    /// second.
    pub fn expire_connections(&self, now_ms: u64) {
        self.conntrack.expire(now_ms, EXPIRE_AT_ONCE);
    }

    /// The megaflows.
    pub fn store(&self) -> Arc<dyn MegaflowStore> {
        self.table.clone()
    }

    /// The receiving end of the messages to controllers. `None` after the first call.
    pub fn take_packet_ins(&self) -> Option<Receiver<PacketIn>> {
        self.packet_ins.lock().take()
    }

    /// Starts a thread for every resting PMD, on its core. PMDs whose core cannot be used run on any core; they are
    /// returned.
    pub fn start(&self) -> Result<Vec<Unpinned>, DatapathError> {
        let mut control = self.control();
        let mut unpinned = Vec::new();
        for (pmd, engine) in control.engines.iter_mut().enumerate() {
            if let Engine::Resting(_) = engine
                && let Engine::Resting(resting) = std::mem::replace(engine, Engine::Lost)
            {
                let thread = thread::start(resting, self.config.sleep_max_us);
                let (thread, pinned) = thread.map_err(|cause| DatapathError::Thread { pmd, cause })?;
                *engine = Engine::Running(thread);
                unpinned.extend(pinned.err().map(|source| Unpinned { pmd, source }));
            }
        }
        Ok(unpinned)
    }

    /// Stops every thread. Its PMD rests, and keeps its queues and caches.
    pub fn stop(&self) {
        self.control().stop(&self.pmds);
    }

    /// Runs one iteration of every resting PMD in the caller's thread, at that time.
    pub fn run_once(&self, now_ms: u64) -> Round {
        self.run_turns(1, now_ms)
    }

    /// Runs `turns` iterations of every resting PMD in the caller's thread, all at that time.
    pub fn run_turns(&self, turns: usize, now_ms: u64) -> Round {
        let mut control = self.control();
        let mut round = Round { fullest: 0, exhausted: true };
        for engine in &mut control.engines {
            let Engine::Resting(pmd) = engine else { continue };
            pmd.wake();
            for _ in 0..turns {
                // The output must not depend on the cycles that it took.
                pmd.settle_deficits();
                round.fullest = round.fullest.max(pmd.run_once(now_ms));
            }
            pmd.publish();
            round.exhausted &= pmd.is_exhausted();
        }
        round
    }

    /// Whether no queue of any PMD will ever give a packet again, as of its last idle iteration.
    pub fn is_exhausted(&self) -> bool {
        self.pmds.iter().all(|pmd| pmd.exhausted.load(Relaxed))
    }

    /// Adds a port. Its receive queues are dealt to the PMDs in turn.
    pub fn add_port(&self, number: PortNo, port: Box<dyn Port>) -> Result<(), DatapathError> {
        self.add_port_pinned(number, port, &BTreeMap::new())
    }

    /// Adds a port with pinned receive queues: `affinity` maps queue numbers to PMD numbers.
    pub fn add_port_pinned(
        &self,
        number: PortNo,
        mut port: Box<dyn Port>,
        affinity: &BTreeMap<usize, usize>,
    ) -> Result<(), DatapathError> {
        let mut control = self.control();
        if control.ports.contains_key(&number) {
            return Err(DatapathError::PortExists(number));
        }
        if number.0 >= PORTS_MAX {
            return Err(DatapathError::PortNumber(number));
        }
        for pmd in &self.pmds {
            pmd.mailbox.post(PmdCommand::AddTxq { port: number, queue: port.tx_queue(pmd.pmd) });
        }
        for queue in 0..port.info().n_rxq {
            let pinned_to = affinity.get(&queue).and_then(|pmd| self.pmds.get(*pmd));
            let pmd = match pinned_to {
                Some(pmd) => pmd,
                None => {
                    control.next_pmd += 1;
                    &self.pmds[(control.next_pmd - 1) % self.pmds.len()]
                }
            };
            let load = Arc::new(RxqLoad {
                port: number,
                queue,
                pinned: pinned_to.is_some(),
                load: Load::default(),
                fates: PmdStats::default(),
            });
            pmd.rxqs().push(load.clone());
            pmd.exhausted.store(false, Relaxed);
            let tuner = Tuner::new(&control.settings, tsc::now());
            pmd.mailbox.post(PmdCommand::AddRxq { queue: port.rx_queue(queue), load, tuner });
        }
        control.ports.insert(number, port);
        control.deliver();
        Ok(())
    }

    /// Stops receiving from a port before it returns. Packets can still be sent to the port.
    ///
    /// To be called before the tables forget the port: packets received after that would match no rule.
    pub fn stop_receiving(&self, number: PortNo) -> Result<(), DatapathError> {
        let mut control = self.control();
        if !control.ports.contains_key(&number) {
            return Err(DatapathError::NoPort(number));
        }
        let (into, removed) = mpsc::channel();
        for pmd in &self.pmds {
            pmd.rxqs().retain(|rxq| rxq.port != number);
            pmd.mailbox.post(PmdCommand::RemoveRxqs { port: number, into: into.clone() });
        }
        drop(into);
        control.deliver();
        control.wait_for(&removed, self.pmds.len());
        Ok(())
    }

    /// Removes a port and returns it when no PMD uses it any more. From then on packets for it are dropped with a
    /// reason.
    pub fn del_port(&self, number: PortNo) -> Result<Box<dyn Port>, DatapathError> {
        let mut control = self.control();
        let port = control.ports.remove(&number).ok_or(DatapathError::NoPort(number))?;
        let (into, removed) = mpsc::channel();
        for pmd in &self.pmds {
            pmd.rxqs().retain(|rxq| rxq.port != number);
            pmd.mailbox.post(PmdCommand::RemovePort { port: number, into: into.clone() });
        }
        drop(into);
        control.deliver();
        control.wait_for(&removed, self.pmds.len());
        Ok(port)
    }

    /// Distributes the receive queues over the PMDs by their load in the last minute; pinned queues stay. Returns how
    /// many moved.
    pub fn rebalance(&self) -> usize {
        let mut control = self.control();
        let settings = control.settings;
        rebalance::rebalance(&self.pmds, &settings, || control.deliver())
    }

    /// The numbers of PMDs whose threads have panicked, which is a bug of ours. Their queues are not polled any more.
    pub fn lost_pmds(&self) -> Vec<usize> {
        let control = self.control();
        let lost = |engine: &Engine| match engine {
            Engine::Resting(_) => false,
            Engine::Running(thread) => thread.is_finished(),
            Engine::Lost => true,
        };
        control.engines.iter().enumerate().filter(|(_, engine)| lost(engine)).map(|(pmd, _)| pmd).collect()
    }

    /// Sends a packet that the switch made, through the first PMD.
    pub fn execute(&self, packet: PacketOut) {
        let mut control = self.control();
        self.pmds[0].mailbox.post(PmdCommand::Execute(packet));
        control.deliver();
    }

    /// Lets every port reopen devices that have gone and come back. To be called about once a second.
    pub fn service_ports(&self) {
        self.control().ports.values_mut().for_each(|port| port.service());
    }

    /// What the devices of these ports say of themselves, in the same order; `None` for a number without a port.
    pub fn device_status(&self, ports: &[PortNo]) -> Vec<Option<DeviceStatus>> {
        let control = self.control();
        ports.iter().map(|number| Some(control.ports.get(number)?.device_status())).collect()
    }

    /// Changes a port's Ethernet address.
    ///
    /// # Errors
    /// If there is no such port, or its device refuses.
    pub fn set_mac(&self, number: PortNo, mac: [u8; 6]) -> std::io::Result<()> {
        let mut control = self.control();
        let port = control.ports.get_mut(&number).ok_or(std::io::ErrorKind::NotFound)?;
        port.set_mac(mac)
    }

    /// Every port with what it is and what it has counted, by number.
    pub fn ports(&self) -> Vec<PortReport> {
        let control = self.control();
        // No queue changes its PMD meanwhile, because that takes the lock held here.
        let rxqs: Vec<_> = self.pmds.iter().flat_map(|pmd| pmd.rxqs().clone()).collect();
        let ports = control.ports.iter().map(|(number, port)| {
            let mut fates = Snapshot::default();
            rxqs.iter().filter(|rxq| rxq.port == *number).for_each(|rxq| fates.add(&rxq.fates.snapshot()));
            PortReport { number: *number, info: port.info(), stats: port.stats(), is_up: port.is_up(), fates }
        });
        ports.collect()
    }

    /// A report of each PMD.
    pub fn pmds(&self) -> Vec<PmdReport> {
        let control = self.control();
        let pairs = self.pmds.iter().zip(&control.baselines);
        pairs.map(|(pmd, (baseline, cleared))| pmd.report(baseline, cleared.elapsed())).collect()
    }

    /// What all PMDs have counted since the start, regardless of [`Datapath::clear_stats`].
    pub fn totals(&self) -> Snapshot {
        self.pmds.iter().fold(Snapshot::default(), |mut sum, pmd| {
            sum.add(&pmd.stats.snapshot());
            sum
        })
    }

    /// Makes the reports count from now. The counters themselves continue.
    pub fn clear_stats(&self) {
        (0..self.pmds.len()).for_each(|pmd| self.clear_pmd_stats(pmd));
    }

    /// The same for one PMD; does nothing if there is no PMD of that number.
    pub fn clear_pmd_stats(&self, pmd: usize) {
        if let Some(shared) = self.pmds.get(pmd) {
            self.control().baselines[pmd] = (shared.stats.snapshot(), Instant::now());
        }
    }

    /// Every megaflow with what it has carried.
    pub fn flows(&self) -> Vec<FlowReport> {
        let mut flows = Vec::new();
        self.table.for_each_view(|flow| flows.push(FlowReport { ufid: ufid(&flow.matched), flow }));
        flows
    }

    /// The PMDs, by number.
    pub(crate) fn shared(&self) -> &[Arc<PmdShared>] {
        &self.pmds
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
