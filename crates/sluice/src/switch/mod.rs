//! A switch that runs: the bridges, the datapath, and what the configuration says, for the commands to work on.
//!
//! Locks, in the order in which they are taken: `setup` (bridges, ports, configuration: held by whoever changes them),
//! then those of the crates below. Commands that only read take none of ours.

mod change;
mod files;
pub mod groups;
pub mod megaflows;
pub mod meters;
mod openflow;
mod ports;
mod reload;
mod revalidator;
pub mod rules;
mod start;

pub use ports::PortEntry;

use crate::config::Config;
use crate::text::coverage::Coverage;
use crate::text::datapath::{Lookups, UpcallFigures};
use revalidator::Revalidator;
use sluice_connmgr::OpenFlowService;
use sluice_datapath::Datapath;
use sluice_fate::{Counter, Snapshot};
use sluice_ofproto::Ofproto;
use sluice_port::Pools;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A switch.
pub struct Switch {
    /// Its configuration file.
    file: PathBuf,
    /// The tables.
    pub ofproto: Ofproto,
    /// The PMDs.
    pub datapath: Arc<Datapath>,
    /// The connections of controllers.
    pub openflow: OpenFlowService,
    revalidator: Arc<Revalidator>,
    setup: Mutex<Setup>,
    coverage: Mutex<Coverage>,
    end: End,
}

/// What the switch was told to be, and how it came to be so.
struct Setup {
    /// The configuration that is in force.
    config: Config,
    /// Every port but the bridges' own, by name.
    ports: BTreeMap<String, PortEntry>,
    /// Where ports take their packet buffers from.
    pools: Arc<Mutex<Pools>>,
    /// What each bridge's files said when they were last applied.
    applied: BTreeMap<String, files::Applied>,
}

/// Whether the end was asked for, and by what.
#[derive(Default)]
struct End {
    why: Mutex<Option<String>>,
    asked: Condvar,
}

/// Locks; whoever panicked with it held left whole values behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Switch {
    fn setup(&self) -> MutexGuard<'_, Setup> {
        lock(&self.setup)
    }

    /// Event rates.
    pub fn coverage(&self) -> MutexGuard<'_, Coverage> {
        lock(&self.coverage)
    }

    /// Everything counted since the start, over all PMDs.
    pub fn totals(&self) -> Snapshot {
        self.datapath.totals()
    }

    /// The switch's time, milliseconds.
    pub fn now_ms(&self) -> u64 {
        sluice_datapath::now_ms()
    }

    /// Asks for the end.
    pub fn end(&self, why: &str) {
        lock(&self.end.why).get_or_insert_with(|| why.to_owned());
        self.end.asked.notify_all();
    }

    /// Waits until `until` at most; why it is to end, if it is.
    pub fn wait_for_end(&self, until: Instant) -> Option<String> {
        let mut why = lock(&self.end.why);
        while why.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            why = self.end.asked.wait_timeout(why, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        why.clone()
    }

    /// Ends by itself after so long, if the configuration says so.
    pub fn stop_after(&self) -> Option<Duration> {
        self.setup().config.switch.stop_after.map(|after| after.0)
    }

    /// Where Prometheus may ask, if the configuration says so.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.setup().config.switch.metrics
    }

    /// What the lookups came to since the start.
    pub fn lookups(&self) -> Lookups {
        let totals = self.totals();
        Lookups {
            hit: totals[Counter::EmcHits] + totals[Counter::SmcHits] + totals[Counter::MegaflowHits],
            missed: totals[Counter::Upcalls] + totals[Counter::UpcallsLost],
            lost: totals[Counter::UpcallsLost],
            flows: self.datapath.store().len(),
        }
    }

    /// Whether there is a bridge of that name.
    pub fn has_bridge(&self, name: &str) -> bool {
        self.ofproto.bridges().iter().any(|bridge| bridge.name == name)
    }

    /// Waits until every megaflow has been looked at after now.
    pub fn revalidate(&self) {
        self.revalidator.wait();
    }

    /// Asks for a look at every megaflow soon: something that they depend on has changed.
    pub fn hurry(&self) {
        self.revalidator.hurry();
    }

    /// Deletes every megaflow.
    pub fn purge(&self) {
        self.revalidator.purge();
    }

    /// Whether megaflows leave open what did not decide; those there are go, so that the next packet of each is asked about.
    pub fn enable_megaflows(&self, enabled: bool) {
        self.ofproto.enable_megaflows(enabled);
        self.purge();
    }

    /// For `upcall/show`.
    pub fn upcall_figures(&self) -> UpcallFigures {
        self.revalidator.figures()
    }

    /// How many things of each kind there are, by name.
    pub fn memory_usage(&self) -> BTreeMap<&'static str, usize> {
        let bridges = self.ofproto.bridges();
        let rules =
            bridges.iter().filter_map(|b| self.ofproto.table_stats(&b.name).ok()).flatten().map(|t| t.rules).sum();
        let setup = self.setup();
        let frames = lock(&setup.pools).iter().map(|pool| sluice_mem::FramePool::capacity(&**pool)).sum();
        BTreeMap::from([
            ("bridges", bridges.len()),
            ("megaflows", self.datapath.store().len()),
            ("packet-buffers", frames),
            ("pmds", self.datapath.pmds().len()),
            ("ports", setup.ports.len()),
            ("rules", rules),
        ])
    }

    /// What has to be done several times a second: side effects of packets, timeouts of rules and connections.
    pub fn tick(&self) {
        self.datapath.service_caches();
        self.datapath.expire_connections(self.now_ms());
        let epoch = self.ofproto.epoch();
        self.ofproto.tick(self.now_ms());
        self.openflow.publish_removed();
        if self.ofproto.epoch() != epoch {
            self.revalidator.hurry();
        }
    }
}
