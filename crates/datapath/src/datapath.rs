//! The datapath as control threads see it.

use crate::auto_lb::AutoLbState;
use crate::command::PmdCommand;
use crate::control::{Control, Worker, WorkerState};
use crate::device_statuses::DeviceStatuses;
use crate::load::{Load, Placement, RxqLoad};
use crate::meter::Meters;
use crate::no_tables::NoTables;
use crate::packet_samples::PacketSamples;
use crate::perf_metrics::PerfLog;
use crate::pmd_factory::PmdFactory;
use crate::progress::Watched;
use crate::punts::{Punted, Punts};
use crate::reassembly::Onward;
use crate::reconfigure::log_sleep_max;
use crate::session_packets::{SessionPackets, SessionProtocol};
use crate::workers::NewRxq;
use crate::{Config, DatapathError, FlowReport, PORTS_MAX, PacketIns, PacketOut, PmdReport, PortReport};
use crate::{USAGE_INTERVAL, USAGE_SPAN};
use parking_lot::{Mutex, MutexGuard};
use sluice_action::{FlowId, MegaflowStore, MeterStore, PortNo, Upcall};
use sluice_conntrack::Conntrack;
use sluice_conntrack::fragments::Fragments;
use sluice_fate::{PmdStats, Snapshot};
use sluice_flow_cache::{MegaflowTable, NOTICES_MAX, ufid};
use sluice_port::dummy::DummyDevice;
use sluice_port::{DeviceStatus, LinkChanges, Pools, Port, PortConfig, PortInfo};
use sluice_simd::{HashKey, hash::splitmix64};
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
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

/// How the receive queues of a port are to be polled.
#[derive(Clone, Copy, Debug)]
pub struct PortPolling<'a> {
    /// The port's name, for the log.
    pub name: &'a str,
    /// The cores whose PMDs certain queues are pinned to, by queue.
    pub affinity: &'a BTreeMap<usize, usize>,
}

impl PortPolling<'_> {
    fn placement(&self, numa: u32, queue: usize) -> Placement {
        Placement { numa, core: self.affinity.get(&queue).copied() }
    }

    /// A port's receive queue, to be given to a worker.
    fn rxq(&self, number: PortNo, port: &mut dyn Port, at: usize) -> NewRxq {
        let queue = port.rx_queue(at);
        let load = RxqLoad {
            port: number,
            port_name: self.name.to_owned(),
            queue: at,
            placement: Mutex::new(self.placement(port.numa_id(), at)),
            can_be_waited_for: queue.readiness().is_some(),
            load: Load::default(),
            fates: PmdStats::default(),
        };
        NewRxq { queue, load: Arc::new(load) }
    }
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

    /// Removes connections that have ended; only a part of them if there are very many. To be called some times a
    /// second.
    pub fn expire_connections(&self, now_ms: u64) -> bool {
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

    /// Adds a port of which nothing else is known. Its receive queues are assigned to PMDs, or go to the main worker.
    pub fn add_port(&self, number: PortNo, port: Box<dyn Port>) -> Result<(), DatapathError> {
        self.add_port_polled(number, port, &PortPolling { name: &number.0.to_string(), affinity: &BTreeMap::new() })
    }

    /// Adds a port with a name, whose receive queues may be pinned.
    pub fn add_port_polled(
        &self,
        number: PortNo,
        mut port: Box<dyn Port>,
        polling: &PortPolling<'_>,
    ) -> Result<(), DatapathError> {
        let mut control = self.control();
        if control.ports.contains_key(&number) {
            return Err(DatapathError::PortExists(number));
        }
        if number.0 >= PORTS_MAX {
            return Err(DatapathError::PortNumber(number));
        }
        if control.ports.is_empty() {
            // Open vSwitch makes its datapath with the first port, and says so then.
            log_sleep_max(control.sleep_max_us);
            control.auto_lb.settings.log_change(None);
        }
        control.post_all(|worker| PmdCommand::AddTxq { port: number, queue: port.tx_queue(worker.pmd) });
        let rxqs: Vec<_> = (0..port.info().n_rxq).map(|queue| polling.rxq(number, &mut *port, queue)).collect();
        control.ports.insert(number, port);
        let must_be_polled = rxqs.iter().any(|rxq| !rxq.load.can_be_waited_for);
        self.make_pmds_for(&mut control, must_be_polled)?;
        control.reassign_to_all(rxqs);
        Ok(())
    }

    /// Pins receive queues of a port to the cores that `polling` says, and unpins the others.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn set_affinity(&self, number: PortNo, polling: &PortPolling<'_>) -> Result<(), DatapathError> {
        let mut control = self.control();
        let numa = control.ports.get(&number).ok_or(DatapathError::NoPort(number))?.numa_id();
        for (_, rxq) in control.rxqs().iter().filter(|(_, rxq)| rxq.port == number) {
            *rxq.placement.lock() = polling.placement(numa, rxq.queue);
        }
        control.reassign_to_all(Vec::new());
        Ok(())
    }

    /// Changes a port's options and receive queues without closing its device. Queues that it keeps are polled on; what
    /// could not be as the options say is returned, for the log.
    ///
    /// # Errors
    /// If there is no such port, or it must be opened again for that.
    pub fn reconfigure_port(
        &self,
        number: PortNo,
        config: &PortConfig,
        polling: &PortPolling<'_>,
    ) -> std::io::Result<Vec<String>> {
        let mut control = self.control();
        let Control { ports, .. } = &mut *control;
        let port = ports.get_mut(&number).ok_or(std::io::ErrorKind::NotFound)?;
        let n_before = port.info().n_rxq;
        sluice_port::reconfigure(&mut **port, config)?;
        let (numa, n_rxq, notes) = (port.numa_id(), port.info().n_rxq, port.notes().to_vec());
        let new = (n_before..n_rxq).map(|queue| polling.rxq(number, &mut **port, queue)).collect();
        for (worker, rxq) in control.rxqs().into_iter().filter(|(_, rxq)| rxq.port == number) {
            if rxq.queue < n_rxq {
                *rxq.placement.lock() = polling.placement(numa, rxq.queue);
            } else {
                control.take_rxq(worker, &rxq);
            }
        }
        control.reassign_to_all(new);
        Ok(notes)
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
        control.post_all(|worker| {
            worker.rxqs().retain(|rxq| rxq.port != number);
            PmdCommand::RemoveRxqs { port: number, into: into.clone() }
        });
        drop(into);
        control.wait_for(&removed, control.workers.len());
        Ok(())
    }

    /// Removes a port and returns it when no PMD uses it any more. From then on packets for it are dropped with a
    /// reason.
    pub fn del_port(&self, number: PortNo) -> Result<Box<dyn Port>, DatapathError> {
        let mut control = self.control();
        let port = control.ports.remove(&number).ok_or(DatapathError::NoPort(number))?;
        control.device_statuses.forget(number);
        control.ingress_policers.remove(&number);
        control.egress_policers.remove(&number);
        control.egress_policed.remove(&number);
        control.tx_steering.remove(&number);
        let (into, removed) = mpsc::channel();
        control.post_all(|worker| {
            worker.rxqs().retain(|rxq| rxq.port != number);
            PmdCommand::RemovePort { port: number, into: into.clone() }
        });
        drop(into);
        control.wait_for(&removed, control.workers.len());
        self.reconcile_workers(&mut control)?;
        // A PMD whose pinned queue has gone may take others.
        control.reassign_to_all(Vec::new());
        Ok(port)
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

    /// Lets every port reopen devices that have gone and come back. To be called about once a second.
    pub fn service_ports(&self) {
        self.control().ports.values_mut().for_each(|port| port.service());
    }

    /// What the devices of these ports say of themselves, in the same order; `None` for a number without a port.
    pub fn device_status(&self, ports: &[PortNo]) -> Vec<Option<DeviceStatus>> {
        let mut control = self.control();
        let Control { ports: there, device_statuses, .. } = &mut *control;
        device_statuses.update();
        ports.iter().map(|number| Some(device_statuses.of(*number, &**there.get(number)?))).collect()
    }

    /// The dummy devices among the ports, by number of the port.
    pub fn dummies(&self) -> Vec<Arc<DummyDevice>> {
        self.control().ports.values().filter_map(|port| port.dummy().cloned()).collect()
    }

    /// Changes a port's MTU without closing its device.
    ///
    /// # Errors
    /// If there is no such port, its device refuses, or it must be opened again for that.
    pub fn set_mtu(&self, number: PortNo, mtu: u32, pools: &mut Pools) -> std::io::Result<()> {
        let mut control = self.control();
        let port = control.ports.get_mut(&number).ok_or(std::io::ErrorKind::NotFound)?;
        port.set_mtu(mtu, pools)
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

    /// Sets a port of one of Open vSwitch's DPDK types up or down.
    ///
    /// # Errors
    /// If there is no such port, or its device refuses.
    pub fn set_admin_state(&self, number: PortNo, is_up: bool) -> std::io::Result<()> {
        let mut control = self.control();
        let port = control.ports.get_mut(&number).ok_or(std::io::ErrorKind::NotFound)?;
        port.set_admin_state(is_up)
    }

    /// What DPDK shows of the pool of a port's packet buffers, if that is DPDK's.
    pub fn mempool_info(&self, number: PortNo) -> Option<String> {
        self.control().ports.get(&number)?.mempool_info()
    }

    /// Tells a port whether a queueing discipline is to shape what its kernel device sends.
    ///
    /// # Errors
    /// If there is no such port, or the kernel gives it no socket for that.
    pub fn set_shaped(&self, number: PortNo, is_shaped: bool) -> std::io::Result<()> {
        let mut control = self.control();
        let port = control.ports.get_mut(&number).ok_or(std::io::ErrorKind::NotFound)?;
        port.set_shaped(is_shaped)
    }

    /// Deletes the devices that were made for ports and would outlast the process.
    pub fn delete_devices(&self) {
        self.control().ports.values_mut().for_each(|port| port.delete_device());
    }

    /// Closes all ports, once the threads have ended: what they leave in the file system goes with them. Threads that
    /// still hold the datapath for a moment cannot put that off until the process is gone.
    pub fn close_ports(&self) {
        let ports = std::mem::take(&mut self.control().ports);
        drop(ports);
    }

    /// Every port with what it is, by number.
    pub fn port_infos(&self) -> BTreeMap<PortNo, PortInfo> {
        self.control().ports.iter().map(|(number, port)| (*number, port.info())).collect()
    }

    /// Every port with whether its link is up, by number.
    pub fn links(&self) -> BTreeMap<PortNo, bool> {
        self.control().ports.iter().map(|(number, port)| (*number, port.is_up())).collect()
    }

    /// The ports of devices that changed, with whether their links are up, by number.
    pub fn changed_links(&self, changes: &LinkChanges) -> BTreeMap<PortNo, bool> {
        let control = self.control();
        // Index 0 is no device's: a message names the device that it is about.
        let concerned = control
            .ports
            .iter()
            .filter(|(_, port)| port.kernel_device().is_some_and(|device| changes.concern(device, 0)));
        concerned.map(|(number, port)| (*number, port.is_up())).collect()
    }

    /// Every port with what it is and what it has counted, by number.
    pub fn ports(&self) -> Vec<PortReport> {
        let control = self.control();
        // No queue changes its PMD meanwhile, because that takes the lock held here.
        let mut fates: HashMap<PortNo, Snapshot> = HashMap::new();
        for (_, rxq) in control.rxqs() {
            fates.entry(rxq.port).or_default().add(&rxq.fates.snapshot());
        }
        let ports = control.ports.iter().map(|(number, port)| {
            let fates = fates.remove(number).unwrap_or_default();
            let mut custom_stats = port.custom_stats();
            control.add_qos_drops(*number, &fates, &mut custom_stats);
            let (info, stats, is_up) = (port.info(), port.stats(), port.is_up());
            PortReport { number: *number, info, stats, custom_stats, is_up, fates }
        });
        ports.collect()
    }

    /// A report of each worker, the main worker first.
    pub fn pmds(&self) -> Vec<PmdReport> {
        self.pmds_over(USAGE_SPAN)
    }

    /// The same, with the usage in the last `span`, which is cut to whole intervals.
    pub fn pmds_over(&self, span: Duration) -> Vec<PmdReport> {
        let control = self.control();
        let intervals = (span.as_millis() / USAGE_INTERVAL.as_millis()) as usize;
        let report = |worker: &Worker| {
            let report = worker.shared.report(&worker.baseline, worker.cleared.elapsed(), intervals);
            PmdReport { is_isolated: report.is_isolated && control.rxq_assignment.isolates_pmds(), ..report }
        };
        control.workers.iter().map(report).collect()
    }

    /// What all workers have counted since the start, also those that are gone, regardless of
    /// [`Datapath::clear_stats`].
    pub fn totals(&self) -> Snapshot {
        let control = self.control();
        control.workers.iter().fold(control.ended.clone(), |mut sum, worker| {
            sum.add(&worker.shared.stats.snapshot());
            sum
        })
    }

    /// Makes the reports count from now. The counters themselves continue.
    pub fn clear_stats(&self) {
        self.control().workers.iter_mut().for_each(Worker::clear_stats);
    }

    /// The same for one worker; does nothing if there is none of that number.
    pub fn clear_pmd_stats(&self, pmd: usize) {
        let mut control = self.control();
        control.workers.iter_mut().filter(|worker| worker.shared.pmd == pmd).for_each(Worker::clear_stats);
    }

    /// Every megaflow with what it has carried, in the order in which they were installed.
    pub fn flows(&self) -> Vec<FlowReport> {
        let mut flows = Vec::new();
        self.factory.table.for_each_view(|flow| flows.push(FlowReport { ufid: ufid(&flow.matched), flow }));
        flows.sort_unstable_by_key(|report: &FlowReport| report.flow.serial);
        flows
    }

    /// The names of every megaflow, in the order in which they were installed.
    pub fn flow_names(&self) -> Vec<(u64, FlowId)> {
        self.factory.table.names()
    }

    /// The megaflows of these names with what they have carried. Those that have gone are left out.
    pub fn flows_named(&self, names: &[(u64, FlowId)]) -> Vec<FlowReport> {
        let flows = self.factory.table.views(names).into_iter();
        flows.map(|flow| FlowReport { ufid: ufid(&flow.matched), flow }).collect()
    }

    /// The `n` megaflows that were installed first, and the number of all.
    pub fn oldest_flows(&self, n: usize) -> (Vec<FlowReport>, usize) {
        let (flows, count) = self.factory.table.oldest(n);
        (flows.into_iter().map(|flow| FlowReport { ufid: ufid(&flow.matched), flow }).collect(), count)
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
