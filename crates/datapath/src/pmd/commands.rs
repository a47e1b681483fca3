//! What a PMD does for control threads, between two iterations.

use super::Pmd;
use crate::capture::Taps;
use crate::command::{PmdCommand, Removed};
use crate::progress::Activity;
use crate::rxq::{QueueWait, Rxq};
use sluice_action::{FlowId, PortNo};
use sluice_port::RxQueue;
use sluice_simd::tsc;

impl Pmd {
    #[cold]
    pub(super) fn run_commands(&mut self) {
        self.shared.progress.enter(Activity::Commands);
        // Queues and pools may go.
        self.send_kept();
        let mut commands = std::mem::take(&mut self.commands);
        self.shared.take_commands(&mut commands);
        commands.drain(..).for_each(|command| self.run_command(command));
        self.commands = commands;
    }

    fn run_command(&mut self, command: PmdCommand) {
        match command {
            PmdCommand::AddRxq { queue, load, tuner, policer } => {
                let mut rxq = Rxq::new(queue, load, tuner, self.vlan_limit);
                rxq.policer = policer;
                self.rxqs.push(rxq);
            }
            PmdCommand::TakeRxq { port, queue, into } => {
                let mut taken = self.take_rxqs(|rxq| rxq.load.port == port && rxq.load.queue == queue);
                if let Some(taken) = taken.pop() {
                    let _ = into.send(taken);
                }
            }
            PmdCommand::AddTxq { port, queue } => self.walk.executor.tx.add(port, queue),
            PmdCommand::SetTxq { port, queue, into } => _ = into.send(self.walk.executor.tx.replace(port, queue)),
            PmdCommand::SetIngressPolicer { port, policer } => {
                let of_port = self.rxqs.iter_mut().filter(|rxq| rxq.load.port == port);
                of_port.for_each(|rxq| rxq.policer.clone_from(&policer));
            }
            PmdCommand::SetEgressPolicer { port, policer } => self.walk.executor.tx.set_policer(port, policer),
            PmdCommand::RemoveRxqs { port, into } => {
                let _ = into.send(self.take_rxqs(|rxq| rxq.load.port == port));
            }
            PmdCommand::RemovePort { port, into } => {
                let removed = self.remove_port(port);
                // If the datapath is being dropped, no thread waits for the queues: they close here.
                let _ = into.send(removed);
            }
            PmdCommand::SetUpcall(upcall) => self.walk.upcalls.tables = upcall,
            PmdCommand::SetSettings { settings, caches, tuner, into } => {
                self.walk.composer.set(&settings);
                self.walk.executor.tracking.isa = settings.vector;
                let replaced = self.walk.levels.set(&settings, *caches);
                self.rxqs.iter_mut().for_each(|rxq| rxq.tuner = tuner.clone());
                let _ = into.send(replaced);
            }
            PmdCommand::SetVlanLimit { vlan_limit, into } => {
                self.vlan_limit = vlan_limit;
                self.rxqs.iter_mut().for_each(|rxq| rxq.set_vlan_limit(vlan_limit));
                if let Some(taps) = &mut self.taps {
                    taps.set_vlan_limit(vlan_limit);
                }
                let _ = into.send(());
            }
            PmdCommand::ReportAutopilots(into) => {
                let now = tsc::now();
                let reports = self.rxqs.iter().map(|rxq| rxq.tuner.report(rxq.load.port, rxq.load.queue, now));
                let _ = into.send(reports.collect());
            }
            PmdCommand::Execute(out) => self.packet_outs.push_back(out),
            PmdCommand::SetMissBudget(budget) => self.walk.upcalls.misses.set_budget(budget),
            PmdCommand::AddTap(tap) => Taps::add(&mut self.taps, self.shared.pmd, self.vlan_limit, tap),
            PmdCommand::RemoveTap { id, into } => _ = into.send(Taps::remove(&mut self.taps, id)),
            PmdCommand::IndexFlow { id, into } => {
                self.index_flow(id);
                let _ = into.send(());
            }
            PmdCommand::Quiesce(into) => {
                self.rxqs.iter_mut().for_each(|rxq| rxq.wait = QueueWait::Ready);
                self.quiescing.push(into);
            }
        }
    }

    /// Looks up a megaflow, too, that no packet of this PMD has asked for.
    #[cold]
    fn index_flow(&mut self, id: FlowId) {
        // It may be the successor of one that is here, and takes its place.
        while self.side.notices.has_messages() {
            self.read_notices();
        }
        let guard = self.side.reader.pin();
        if let Some(flow) = self.table.read(&guard).get(id.0) {
            self.walk.levels.index(flow);
            self.side.counters.set_indexed(id);
        }
    }

    /// Stops polling these queues. Their packets that wait for the tables are dropped.
    fn take_rxqs(&mut self, is_taken: impl Fn(&Rxq) -> bool) -> Vec<Box<dyn RxQueue>> {
        let taken = self.rxqs.extract_if(.., |rxq| is_taken(rxq));
        taken
            .map(|mut rxq| {
                rxq.drop_misses(&mut self.walk, &mut self.buffers);
                rxq.publish(&mut self.tally);
                rxq.queue
            })
            .collect()
    }

    fn remove_port(&mut self, port: PortNo) -> Removed {
        let rxqs = self.take_rxqs(|rxq| rxq.load.port == port);
        let txq = self.walk.executor.tx.remove(port);
        self.drop_own_misses();
        self.walk.executor.tracking.reassembly.purge(port, &mut self.buffers, &mut self.tally);
        self.buffers.flush();
        (rxqs, txq)
    }
}
