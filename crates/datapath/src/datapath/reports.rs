//! What a datapath tells of its ports, PMDs and megaflows.

use super::Datapath;
use crate::control::Worker;
use crate::{FlowReport, PmdReport, PortReport, USAGE_INTERVAL, USAGE_SPAN};
use sluice_action::{FlowId, PortNo};
use sluice_fate::Snapshot;
use sluice_flow_cache::ufid;
use std::collections::HashMap;
use std::time::Duration;

impl Datapath {
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
}
