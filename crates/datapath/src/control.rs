//! What control threads share under one lock: the workers, the ports, and the settings.

use crate::auto_lb::AutoLbState;
use crate::capture::ActiveCapture;
use crate::command::PmdCommand;
use crate::device_statuses::DeviceStatuses;
use crate::load::RxqLoad;
use crate::perf_metrics::{PerfLog, PerfMetrics};
use crate::pmd::Pmd;
use crate::pmd_shared::PmdShared;
use crate::rxq_assignment::RxqAssignment;
use crate::workers::Unpinned;
use crate::{MissBudget, Settings};
use sluice_action::{PortNo, Upcall};
use sluice_fate::Snapshot;
use sluice_packet::VlanLimit;
use sluice_policer::{EgressPolicer, IngressPolicer};
use sluice_port::{Port, TxSteering};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long control threads wait for a PMD that runs. It answers between two iterations, which take microseconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// From one look for PMDs whose thread has panicked to the next.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What control threads share.
pub(crate) struct Control {
    /// The main worker first, if there is one; then the PMDs in the order in which they came.
    pub workers: Vec<Worker>,
    pub ports: BTreeMap<PortNo, Box<dyn Port>>,
    /// What decides how much ports may receive and send, where that is limited.
    pub ingress_policers: BTreeMap<PortNo, Arc<IngressPolicer>>,
    pub egress_policers: BTreeMap<PortNo, Arc<EgressPolicer>>,
    /// What their devices said of themselves.
    pub device_statuses: DeviceStatuses,
    /// The cores that PMDs run on while there are any.
    pub cores: Vec<usize>,
    /// Whether other threads of the process keep off these cores.
    pub owns_process: bool,
    /// Whether queues on descriptors belong to a main worker.
    pub has_main_worker: bool,
    /// Whether workers run as threads.
    pub is_started: bool,
    /// PMDs that are not bound to their core, until somebody asks.
    pub unpinned: Vec<Unpinned>,
    /// Makes a worker's way to the tables.
    pub upcalls: Box<dyn FnMut(usize) -> Box<dyn Upcall> + Send>,
    /// What workers had counted that are gone.
    pub ended: Snapshot,
    /// How receive queues are assigned to PMDs.
    pub rxq_assignment: RxqAssignment,
    /// How packets are looked up now.
    pub settings: Settings,
    /// How many VLAN tags are read of a packet.
    pub vlan_limit: VlanLimit,
    /// How packets are spread over the transmit queues of ports where that is not by worker.
    pub tx_steering: BTreeMap<PortNo, TxSteering>,
    /// What egress policers that are gone have dropped, packets by port.
    pub egress_policed: BTreeMap<PortNo, u64>,
    /// What a receive queue's misses may cost now.
    pub miss_budget: MissBudget,
    /// The longest sleep of an idle PMD now, microseconds.
    pub sleep_max_us: u32,
    /// Whether workers keep metrics of their iterations, and which of these are logged.
    pub perf_metrics: bool,
    pub perf_log: PerfLog,
    /// Captures under way.
    pub captures: Vec<ActiveCapture>,
    pub auto_lb: AutoLbState,
    /// The seed of further secrets.
    pub seed: u64,
}

/// A PMD or the main worker, as control threads hold it.
pub(crate) struct Worker {
    pub shared: Arc<PmdShared>,
    pub state: WorkerState,
    /// What it had counted when its statistics were cleared, and when that was.
    pub baseline: Snapshot,
    pub cleared: Instant,
}

/// The state of a worker.
pub(crate) enum WorkerState {
    /// No thread runs it.
    Stopped(Box<Pmd>),
    /// Its thread, which returns it when it is told to stop.
    Running(JoinHandle<Box<Pmd>>),
    /// Its thread panicked.
    Panicked,
}

impl Worker {
    pub fn new(pmd: Box<Pmd>) -> Self {
        let shared = Arc::clone(&pmd.shared);
        Worker { shared, state: WorkerState::Stopped(pmd), baseline: Snapshot::default(), cleared: Instant::now() }
    }

    /// Makes its report count from now.
    pub fn clear_stats(&mut self) {
        (self.baseline, self.cleared) = (self.shared.stats.snapshot(), Instant::now());
        self.shared.perf.change(PerfMetrics::clear);
    }

    /// Whether its thread has panicked.
    pub fn is_lost(&self) -> bool {
        match &self.state {
            WorkerState::Stopped(_) => false,
            WorkerState::Running(thread) => thread.is_finished(),
            WorkerState::Panicked => true,
        }
    }

    /// Ends its thread.
    pub fn stop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        self.shared.wake();
        if let WorkerState::Running(_) = self.state
            && let WorkerState::Running(thread) = std::mem::replace(&mut self.state, WorkerState::Panicked)
            && let Ok(pmd) = thread.join()
        {
            self.state = WorkerState::Stopped(pmd);
        }
    }
}

impl Control {
    /// Posts a command to each worker, and lets resting ones run it.
    pub fn post_all(&mut self, mut command: impl FnMut(&PmdShared) -> PmdCommand) {
        self.workers.iter().for_each(|worker| worker.shared.post(command(&worker.shared)));
        self.deliver();
    }

    /// Lets resting workers run their commands.
    pub fn deliver(&mut self) {
        for worker in &mut self.workers {
            if let WorkerState::Stopped(pmd) = &mut worker.state {
                pmd.service_commands();
            }
        }
    }

    /// Waits for one answer from each of `n` workers that have a command, and returns the answers. A worker whose thread
    /// has panicked does not answer; all others are waited for, but none for longer than [`ANSWER_WITHIN`].
    pub fn wait_for<T>(&self, answers: &Receiver<T>, n: usize) -> Vec<T> {
        self.wait_until(answers, n, Instant::now() + ANSWER_WITHIN)
    }

    fn wait_until<T>(&self, answers: &Receiver<T>, n: usize, deadline: Instant) -> Vec<T> {
        let mut all = Vec::with_capacity(n);
        while all.len() != n {
            match answers.recv_timeout(LOOK_EVERY) {
                Ok(answer) => all.push(answer),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => {
                    self.log_missing_answers();
                    break;
                }
                Err(RecvTimeoutError::Timeout) => self.forget_commands_of_lost(),
                // Those that have not answered never will.
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        all
    }

    /// Drops the commands that no thread will run, and with them the places where their answers would come from.
    fn forget_commands_of_lost(&self) {
        let lost = self.workers.iter().filter(|worker| worker.is_lost());
        lost.for_each(|worker| worker.shared.take_commands(&mut Vec::new()));
    }

    fn log_missing_answers(&self) {
        for worker in self.workers.iter().filter(|worker| worker.shared.has_commands()) {
            let (pmd, within) = (worker.shared.pmd, ANSWER_WITHIN);
            tracing::error!(
                target: "dpif_netdev",
                "waited {within:?} for PMD {pmd} to run a command; the switch goes on without its answer"
            );
        }
    }

    /// Every receive queue, with the place of its worker.
    pub fn rxqs(&self) -> Vec<(usize, Arc<RxqLoad>)> {
        let of_worker = |(at, worker): (usize, &Worker)| {
            worker.shared.rxqs().iter().map(|rxq| (at, Arc::clone(rxq))).collect::<Vec<_>>()
        };
        self.workers.iter().enumerate().flat_map(of_worker).collect()
    }
}
