//! What control threads read and change of the lookup while PMDs run: settings, autopilots, memory of caches.

use crate::cache_memory::CachePages;
use crate::caches::Caches;
use crate::command::PmdCommand;
use crate::config::check_settings;
use crate::control::Control;
use crate::tuner::Tuner;
use crate::{AutopilotReport, Datapath, DatapathError, MissBudget, Settings};
use sluice_action::PortNo;
use sluice_fate::{DropReason, Snapshot};
use sluice_packet::VlanLimit;
use sluice_policer::{EgressPolicer, IngressPolicer};
use sluice_port::{Port, TxSteering};
use sluice_simd::tsc;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};

impl Datapath {
    /// How packets are looked up now.
    pub fn settings(&self) -> Settings {
        self.control().settings
    }

    /// Changes how packets are looked up. Returns when every PMD does so.
    ///
    /// Memory of caches is allocated and freed here, not by a PMD. A cache that stays keeps its entries; a new cache is
    /// empty.
    ///
    /// # Errors
    /// If the settings are not valid. Nothing has changed then.
    pub fn set_settings(&self, settings: Settings) -> Result<(), DatapathError> {
        check_settings(&settings)?;
        let mut control = self.control();
        let old = std::mem::replace(&mut control.settings, settings);
        let (into, replaced) = mpsc::channel();
        let Control { workers, seed, .. } = &mut *control;
        for pmd in workers.iter().map(|worker| &worker.shared) {
            let caches = Caches::between(&old, &settings, seed);
            pmd.cache_memory().replace(&caches);
            let (caches, tuner) = (Box::new(caches), Tuner::new(&settings, tsc::now()));
            pmd.post(PmdCommand::SetSettings { settings, caches, tuner, into: into.clone() });
        }
        drop(into);
        control.deliver();
        control.wait_for(&replaced, control.workers.len());
        Ok(())
    }

    /// How many VLAN tags are read of a packet.
    pub fn vlan_limit(&self) -> VlanLimit {
        self.control().vlan_limit
    }

    /// Changes how many VLAN tags are read of a packet. Returns when every worker does so.
    pub fn set_vlan_limit(&self, vlan_limit: VlanLimit) {
        let mut control = self.control();
        control.vlan_limit = vlan_limit;
        let (into, done) = mpsc::channel();
        control.post_all(|_| PmdCommand::SetVlanLimit { vlan_limit, into: into.clone() });
        drop(into);
        control.wait_for(&done, control.workers.len());
    }

    /// Limits what a port receives; `None`: not any more. A new policer's buckets are full.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn set_ingress_policer(&self, port: PortNo, policer: Option<IngressPolicer>) -> Result<(), DatapathError> {
        let (mut control, policer) = (self.control(), policer.map(Arc::new));
        let Control { ports, ingress_policers, .. } = &mut *control;
        set_policer(ports, ingress_policers, port, policer.as_ref())?;
        control.post_all(|_| PmdCommand::SetIngressPolicer { port, policer: policer.clone() });
        Ok(())
    }

    /// Limits what is sent to a port, likewise.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn set_egress_policer(&self, port: PortNo, policer: Option<Arc<EgressPolicer>>) -> Result<(), DatapathError> {
        let mut control = self.control();
        let Control { ports, egress_policers, egress_policed, .. } = &mut *control;
        let before = egress_policers.get(&port).cloned();
        set_policer(ports, egress_policers, port, policer.as_ref())?;
        before.inspect(|before| *egress_policed.entry(port).or_default() += before.dropped());
        control.post_all(|_| PmdCommand::SetEgressPolicer { port, policer: policer.clone() });
        Ok(())
    }

    /// Changes how packets are spread over a port's transmit queues. Returns when all workers do so.
    ///
    /// # Errors
    /// If there is no such port.
    pub fn set_tx_steering(&self, port: PortNo, steering: TxSteering) -> Result<(), DatapathError> {
        let mut control = self.control();
        let Control { ports, tx_steering, workers, .. } = &mut *control;
        let queues = ports.get_mut(&port).ok_or(DatapathError::NoPort(port))?;
        if tx_steering.insert(port, steering).unwrap_or_default() == steering {
            return Ok(());
        }
        let (into, replaced) = mpsc::channel();
        for worker in workers.iter() {
            let queue = steering.queue(&mut **queues, worker.shared.pmd);
            worker.shared.post(PmdCommand::SetTxq { port, queue, into: into.clone() });
        }
        drop(into);
        control.deliver();
        control.wait_for(&replaced, control.workers.len());
        Ok(())
    }

    /// Changes what a receive queue's misses may cost.
    pub fn set_miss_budget(&self, budget: MissBudget) {
        let mut control = self.control();
        control.miss_budget = budget;
        control.post_all(|_| PmdCommand::SetMissBudget(budget));
    }

    /// Changes the longest sleep of an idle PMD in one iteration, microseconds; 0: it never sleeps.
    pub fn set_sleep_max(&self, sleep_max_us: u32) {
        let mut control = self.control();
        if std::mem::replace(&mut control.sleep_max_us, sleep_max_us) != sleep_max_us {
            log_sleep_max(sleep_max_us);
        }
        control.workers.iter().for_each(|worker| worker.shared.sleep_max_us.store(sleep_max_us, Relaxed));
    }

    /// What the autopilots have chosen: the workers in order, each with its core and its queues.
    pub fn autopilots(&self) -> Vec<(Option<usize>, Vec<AutopilotReport>)> {
        let mut control = self.control();
        let workers: Vec<_> = control.workers.iter().map(|worker| Arc::clone(&worker.shared)).collect();
        let told = workers.iter().map(|worker| {
            let (into, told) = mpsc::channel();
            worker.post(PmdCommand::ReportAutopilots(into));
            control.deliver();
            (worker.core, control.wait_for(&told, 1).pop().unwrap_or_default())
        });
        told.collect()
    }

    /// Makes memory for caches that have asked for more.
    pub(crate) fn grow_caches(&self) {
        for worker in &self.control().workers {
            worker.shared.cache_memory().named().for_each(|(_, memory)| memory.grow());
        }
    }

    /// The memory of every cache that is on.
    pub fn cache_pages(&self) -> Vec<CachePages> {
        let mut all = Vec::new();
        for pmd in self.control().workers.iter().map(|worker| &worker.shared) {
            all.extend(pmd.cache_memory().named().map(|(cache, memory)| {
                let (resident, pages) = (memory.resident(), memory.pages());
                CachePages { pmd: pmd.pmd, cache, resident, pages }
            }));
        }
        all
    }
}

impl Control {
    /// Adds what policers have dropped to the counters of a port, if it has them or had, or is of a type whose users look for
    /// them. Source of the names: Open vSwitch lib/netdev-dpdk.c, `netdev_dpdk_get_sw_custom_stats`.
    pub(crate) fn add_qos_drops(&self, port: PortNo, fates: &Snapshot, counters: &mut Vec<(String, u64)>) {
        let is_shown_always = counters.iter().any(|(name, _)| name == "ovs_tx_failure_drops");
        let egress = self.egress_policers.get(&port).map(|policer| policer.dropped());
        let before = self.egress_policed.get(&port).copied();
        let received = fates.dropped(DropReason::IngressPolicer);
        let was_limited = egress.or(before).is_some() || self.ingress_policers.contains_key(&port) || received != 0;
        if is_shown_always || was_limited {
            let sent = egress.unwrap_or(0) + before.unwrap_or(0);
            counters.push(("ovs_tx_qos_drops".to_owned(), sent));
            counters.push(("ovs_rx_qos_drops".to_owned(), received));
        }
    }
}

/// Notes a port's policer for workers and queues to come.
fn set_policer<T>(
    ports: &BTreeMap<PortNo, Box<dyn Port>>,
    policers: &mut BTreeMap<PortNo, Arc<T>>,
    port: PortNo,
    policer: Option<&Arc<T>>,
) -> Result<(), DatapathError> {
    if !ports.contains_key(&port) {
        return Err(DatapathError::NoPort(port));
    }
    match policer {
        Some(policer) => policers.insert(port, Arc::clone(policer)),
        None => policers.remove(&port),
    };
    Ok(())
}

/// Logs how long an idle PMD may sleep, as Open vSwitch does.
pub(crate) fn log_sleep_max(sleep_max_us: u32) {
    let enabled = if sleep_max_us == 0 { "disabled" } else { "enabled" };
    tracing::info!(target: "dpif_netdev", "PMD max sleep request is {sleep_max_us} usecs.");
    tracing::info!(target: "dpif_netdev", "PMD load based sleeps are {enabled}.");
}
