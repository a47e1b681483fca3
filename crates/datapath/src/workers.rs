//! The workers of a datapath, which come and go while it runs: PMDs and the main worker, and which queues are whose.
//!
//! With a main worker, a queue that a thread can wait for belongs to it, and PMDs exist only while there is a queue that
//! must be polled, as in Open vSwitch. Without one, the PMDs poll all queues. A queue that moves is handed over by its
//! old worker after all its packets have been sent, so that flows keep their order and nothing is lost.

use crate::command::PmdCommand;
use crate::control::{Control, Worker, WorkerState};
use crate::load::{Placement, RxqLoad};
use crate::rxq_assignment::{AssignMode, PmdPlace, PolledQueue, RxqAssignment};
use crate::tuner::Tuner;
use crate::{Datapath, DatapathError, control_cores, numa, thread};
use sluice_port::RxQueue;
use sluice_simd::tsc;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

/// The longest a worker takes to hand a queue over, unless its thread has ended.
const HANDOVER_MAX: Duration = Duration::from_secs(2);

/// A queue that no worker has yet.
pub(crate) struct NewRxq {
    pub queue: Box<dyn RxQueue>,
    pub load: Arc<RxqLoad>,
}

/// A PMD thread that is not bound to its core.
#[derive(Debug)]
pub struct Unpinned {
    /// Its number.
    pub pmd: usize,
    /// The reason.
    pub source: std::io::Error,
}

impl Datapath {
    /// Starts a thread for every resting worker, PMDs on their cores. PMDs whose core cannot be used run on any core;
    /// they are returned.
    pub fn start(&self) -> Result<Vec<Unpinned>, DatapathError> {
        let mut control = self.control();
        control.is_started = true;
        control.start_resting()?;
        control.part_threads();
        Ok(std::mem::take(&mut control.unpinned))
    }

    /// The PMDs that have started since this was asked last and are not bound to their core.
    pub fn take_unpinned(&self) -> Vec<Unpinned> {
        std::mem::take(&mut self.control().unpinned)
    }

    /// Stops every thread. Its worker rests, and keeps its queues and caches.
    pub fn stop(&self) {
        let mut control = self.control();
        control.is_started = false;
        control.workers.iter().for_each(|worker| worker.shared.ask_to_stop());
        control.workers.iter_mut().for_each(Worker::stop);
    }

    /// Changes which PMDs there are while the datapath runs: one on each of `cores`; and whether there is a main worker.
    /// Queues move to the workers that there are then, and nothing is lost.
    ///
    /// # Errors
    /// If there would be no worker at all, or a thread cannot be started.
    pub fn set_workers(&self, cores: &[usize], has_main_worker: bool) -> Result<(), DatapathError> {
        if cores.is_empty() && !has_main_worker {
            return Err(DatapathError::Config { what: "the number of PMD cores", value: 0, expected: "at least one" });
        }
        let mut control = self.control();
        control.cores = cores.to_vec();
        control.has_main_worker = has_main_worker;
        self.reconcile_workers(&mut control)
    }

    /// Makes PMDs if there are none, for queues to come that must be polled.
    pub(crate) fn make_pmds_for(&self, control: &mut Control, must_be_polled: bool) -> Result<(), DatapathError> {
        if must_be_polled {
            let wanted = control.wanted(true);
            self.reconcile_to(control, wanted)?;
        }
        Ok(())
    }

    /// Makes and ends workers so that they are those that there should be, and gives each queue to its worker.
    pub(crate) fn reconcile_workers(&self, control: &mut Control) -> Result<(), DatapathError> {
        let wanted = control.wanted(false);
        self.reconcile_to(control, wanted)
    }

    fn reconcile_to(&self, control: &mut Control, mut missing: Vec<Option<usize>>) -> Result<(), DatapathError> {
        let mut is_leaving = Vec::with_capacity(control.workers.len());
        for worker in &control.workers {
            let kept = missing.iter().position(|core| *core == worker.shared.core);
            kept.map(|at| missing.remove(at));
            is_leaving.push(kept.is_none());
        }
        if missing.is_empty() && !is_leaving.contains(&true) {
            return Ok(());
        }
        for core in missing {
            let worker = self.make_worker(control, core)?;
            log_pmd(core, "created");
            let at = if core.is_none() { 0 } else { control.workers.len() };
            control.workers.insert(at, worker);
            is_leaving.insert(at, false);
        }
        if control.is_started {
            control.start_resting()?;
        }
        control.reassign(&is_leaving, Vec::new());
        let mut is_leaving = is_leaving.into_iter();
        let (going, staying) =
            std::mem::take(&mut control.workers).into_iter().partition(|_| is_leaving.next() == Some(true));
        control.workers = staying;
        let going: Vec<Worker> = going;
        for worker in going {
            log_pmd(worker.shared.core, "destroyed");
            self.end_worker(control, worker);
        }
        control.part_threads();
        log_pmds(control);
        Ok(())
    }

    fn make_worker(&self, control: &mut Control, core: Option<usize>) -> Result<Worker, DatapathError> {
        let is_free = |number: &usize| control.workers.iter().all(|worker| worker.shared.pmd != *number);
        let number = (0..).find(is_free).expect("invariant: there are more numbers than workers");
        Ok(Worker::new(self.factory().make(control, number, core)?))
    }

    /// Ends a worker that has no queue any more.
    fn end_worker(&self, control: &mut Control, mut worker: Worker) {
        worker.stop();
        if let WorkerState::Stopped(pmd) = &mut worker.state {
            // Packets that the switch made may wait.
            pmd.run_once(sluice_clock::now_ms());
            pmd.rest();
        }
        control.ended.add(&worker.shared.stats.snapshot());
        self.factory().table.detach(worker.shared.pmd);
    }

    /// Assigns the receive queues to the PMDs again, by their load in the last minute. Returns how many moved.
    pub fn rebalance(&self) -> usize {
        self.control().reassign_to_all(Vec::new())
    }

    /// Changes how receive queues are assigned to PMDs.
    pub fn set_rxq_assignment(&self, assignment: RxqAssignment) {
        let mut control = self.control();
        let before = std::mem::replace(&mut control.rxq_assignment, assignment);
        if assignment != before {
            assignment.log_change(before);
            control.reassign_to_all(Vec::new());
        }
    }

    /// Waits until every worker has found its queues empty. A worker whose queues never are answers after some
    /// iterations.
    ///
    /// What a port had received before this was called has then been sent, dropped, or handed to controllers.
    pub fn quiesce(&self) {
        let mut control = self.control();
        let (into, idle) = mpsc::channel();
        control.post_all(|_| PmdCommand::Quiesce(into.clone()));
        drop(into);
        for worker in &mut control.workers {
            if let WorkerState::Stopped(pmd) = &mut worker.state {
                pmd.run_until_idle(sluice_clock::now_ms());
            }
        }
        control.wait_for(&idle, control.workers.len());
    }
}

/// Logs what became of a PMD, as Open vSwitch does; `core`: `None` for the main worker, which always is.
fn log_pmd(core: Option<usize>, done: &str) {
    if let Some(core) = core {
        let node = numa::node_of(core);
        tracing::info!(target: "dpif_netdev", "PMD thread on numa_id: {node}, core id: {core:2} {done}.");
    }
}

/// Logs how many PMDs there are on each NUMA node.
fn log_pmds(control: &Control) {
    let mut nodes: BTreeMap<u32, usize> = BTreeMap::new();
    let cores = control.workers.iter().filter_map(|worker| worker.shared.core);
    cores.for_each(|core| *nodes.entry(numa::node_of(core)).or_default() += 1);
    for (node, pmds) in nodes {
        tracing::info!(target: "dpif_netdev", "There are {pmds} pmd threads on numa node {node}");
    }
}

impl Control {
    /// The workers that there should be, by core; `None`: the main worker. `must_poll`: there is, or will be, a queue
    /// that must be polled.
    fn wanted(&self, must_poll: bool) -> Vec<Option<usize>> {
        let mut wanted = Vec::with_capacity(self.cores.len() + 1);
        if self.has_main_worker {
            wanted.push(None);
        }
        if !self.has_main_worker || must_poll || self.rxqs().iter().any(|(_, rxq)| !rxq.can_be_waited_for) {
            wanted.extend(self.cores.iter().copied().map(Some));
        }
        wanted
    }

    /// Starts a thread for every resting worker.
    fn start_resting(&mut self) -> Result<(), DatapathError> {
        for worker in &mut self.workers {
            let pmd = worker.shared.pmd;
            if let WorkerState::Stopped(_) = worker.state
                && let WorkerState::Stopped(resting) = std::mem::replace(&mut worker.state, WorkerState::Panicked)
            {
                let thread = thread::start(resting).map_err(|cause| DatapathError::Thread { pmd, cause })?;
                worker.state = WorkerState::Running(thread.handle);
                self.unpinned.extend(thread.pinned.err().map(|source| Unpinned { pmd, source }));
            }
        }
        Ok(())
    }

    /// Keeps control threads off the PMDs' cores.
    fn part_threads(&self) {
        if self.owns_process && self.is_started {
            let cores: Vec<usize> = self.workers.iter().filter_map(|worker| worker.shared.core).collect();
            control_cores::keep_off(&cores);
        }
    }

    /// Gives a queue to the worker at that place.
    pub fn give(&mut self, at: usize, queue: Box<dyn RxQueue>, load: &Arc<RxqLoad>) {
        let worker = &self.workers[at].shared;
        worker.rxqs().push(Arc::clone(load));
        worker.exhausted.store(false, std::sync::atomic::Ordering::Relaxed);
        let tuner = Tuner::new(&self.settings, tsc::now());
        let policer = self.ingress_policers.get(&load.port).cloned();
        worker.post(PmdCommand::AddRxq { queue, load: Arc::clone(load), tuner, policer });
        self.deliver();
    }

    /// [`Control::reassign`] when no worker leaves.
    pub fn reassign_to_all(&mut self, new: Vec<NewRxq>) -> usize {
        let is_leaving = vec![false; self.workers.len()];
        self.reassign(&is_leaving, new)
    }

    /// Assigns all queues, also those that no worker has yet, to workers that do not leave, and moves those whose worker
    /// changes; how many did.
    fn reassign(&mut self, is_leaving: &[bool], new: Vec<NewRxq>) -> usize {
        self.auto_lb.forget();
        let mut rxqs: Vec<(Option<usize>, Arc<RxqLoad>)> =
            self.rxqs().into_iter().map(|(at, q)| (Some(at), q)).collect();
        rxqs.extend(new.iter().map(|new| (None, Arc::clone(&new.load))));
        rxqs.sort_by_key(|(_, rxq)| (rxq.port, rxq.queue));
        let worker_of = self.assign(is_leaving, &rxqs);
        let mut moved = 0;
        for ((from, rxq), to) in rxqs.iter().zip(&worker_of) {
            moved += usize::from(from.is_some_and(|from| from != *to && self.move_rxq(from, *to, rxq)));
        }
        for NewRxq { queue, load } in new {
            let at = rxqs.iter().position(|(_, rxq)| Arc::ptr_eq(rxq, &load));
            self.give(at.map_or(0, |at| worker_of[at]), queue, &load);
        }
        moved
    }

    /// The place of the worker for each queue: the main worker if it can wait for it or there is no PMD, else a PMD.
    fn assign(&self, is_leaving: &[bool], rxqs: &[(Option<usize>, Arc<RxqLoad>)]) -> Vec<usize> {
        let is_staying = |(at, worker): (usize, &Worker)| Some((worker.shared.core.filter(|_| !is_leaving[at])?, at));
        let mut pmds: Vec<(usize, usize)> = self.workers.iter().enumerate().filter_map(is_staying).collect();
        pmds.sort_unstable();
        let is_waited_for = |rxq: &RxqLoad| rxq.can_be_waited_for && self.has_main_worker;
        let is_polled = |rxq: &RxqLoad| !(pmds.is_empty() || is_waited_for(rxq));
        let polled = rxqs.iter().filter(|(_, rxq)| is_polled(rxq)).map(|(_, rxq)| {
            let Placement { numa, core } = *rxq.placement.lock();
            PolledQueue { port: &rxq.port_name, queue: rxq.queue, numa, core, cycles: rxq.load.sum() }
        });
        let polled: Vec<PolledQueue<'_>> = polled.collect();
        let places: Vec<_> = pmds.iter().map(|&(core, _)| PmdPlace { core, numa: numa::node_of(core) }).collect();
        let mut pmd_of = self.rxq_assignment.assign(&places, &polled, AssignMode::Apply).into_iter();
        let worker = |rxq: &RxqLoad| if is_polled(rxq) { pmd_of.next().map_or(0, |pmd| pmds[pmd].1) } else { 0 };
        rxqs.iter().map(|(_, rxq)| rxq).map(Arc::as_ref).map(worker).collect()
    }

    /// Moves a queue from worker to worker; whether its old worker let go of it.
    fn move_rxq(&mut self, from: usize, to: usize, rxq: &Arc<RxqLoad>) -> bool {
        let Some(queue) = self.take_rxq(from, rxq) else { return false };
        // Its new worker has other caches, so earlier measurements are void.
        self.give(to, queue, rxq);
        true
    }

    /// Takes a queue from the worker at that place; `None` if the worker does not let go of it.
    pub fn take_rxq(&mut self, from: usize, rxq: &Arc<RxqLoad>) -> Option<Box<dyn RxQueue>> {
        let (into, taken) = mpsc::channel();
        let old = &self.workers[from].shared;
        old.post(PmdCommand::TakeRxq { port: rxq.port, queue: rxq.queue, into });
        self.deliver();
        // Every packet the queue gave has been sent when the worker answers, so flows keep their order.
        let queue = taken.recv_timeout(HANDOVER_MAX).ok()?;
        self.workers[from].shared.rxqs().retain(|other| !Arc::ptr_eq(other, rxq));
        Some(queue)
    }
}
