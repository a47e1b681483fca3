//! From a configuration to a switch that runs, step by step; and its end.

use super::files::Files;
use super::openflow::AroundOpenFlow;
use super::revalidator::Revalidator;
use super::rules::dump;
use super::{End, Setup, Switch};
use crate::config::{self, AutoOr, Bridge, Config};
use crate::text::coverage::Coverage;
use crate::text::pages;
use anyhow::{Context, Result};
use sluice_connmgr::OpenFlowService;
use sluice_datapath::{Datapath, GovernorMode, MissBudget};
use sluice_ofproto::{BridgeConfig, FailMode, Ofproto, TableLimit, TrieField};
use sluice_port::Pools;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Memory of a megaflow: record, key, xlate cache, and its entries in one PMD's indexes, bytes.
const MEGAFLOW_BYTES: u64 = 512;

impl Switch {
    /// Opens ports, loads rules; no thread runs yet, so that root can be left in between.
    ///
    /// # Errors
    /// If a file of rules is wrong, or memory is short. A port that cannot be opened is logged and tried again.
    pub fn prepare(file: &Path, config: Config) -> Result<Arc<Switch>> {
        let datapath = Arc::new(Datapath::new(datapath_config(&config))?);
        let ofproto = Ofproto::new();
        ofproto.set_meters(datapath.meters());
        datapath.set_upcalls(|_| Box::new(ofproto.upcall()));
        ofproto.set_store(datapath.store());
        let limit = max_megaflows(&config.datapath) as usize;
        let revalidator = Revalidator::new(ofproto.clone(), datapath.store(), config.datapath.max_idle.0, limit);
        let revalidator = Arc::new(revalidator);
        let pools = Arc::new(Mutex::new(pools(&config)));
        let around = AroundOpenFlow {
            datapath: Arc::clone(&datapath),
            pools: Arc::clone(&pools),
            revalidator: Arc::clone(&revalidator),
        };
        let openflow = OpenFlowService::new(ofproto.clone(), Arc::new(around));
        let setup = Setup { pools, config: config.clone(), ports: BTreeMap::new(), applied: BTreeMap::new() };
        let switch = Arc::new(Switch {
            file: file.into(),
            ofproto,
            datapath,
            openflow,
            revalidator,
            setup: Mutex::new(setup),
            coverage: Mutex::new(Coverage::default()),
            end: End::default(),
        });
        // Now: the switch may not be allowed to read them later.
        switch.set_tls(&config)?;
        if let Some(caches) = pages::of_caches(&switch.datapath.cache_pages()) {
            tracing::info!("{caches}");
        }
        for bridge in &config.bridge {
            switch.add_bridge(bridge)?;
        }
        Ok(switch)
    }

    fn add_bridge(&self, bridge: &Bridge) -> Result<()> {
        let files = Files::read(&self.setup().config, bridge)?;
        self.ofproto.add_bridge(bridge_config(bridge), self.now_ms())?;
        let mut setup = self.setup();
        setup.add_local_port(&self.ofproto, &self.datapath, bridge)?;
        for port in &bridge.port {
            setup.add_or_log(&self.ofproto, &self.datapath, &bridge.name, port)?;
        }
        drop(setup);
        self.apply_files(&bridge.name, &files)?;
        Ok(())
    }

    /// Runs the threads.
    ///
    /// # Errors
    /// If there can be none.
    pub fn start(&self) -> Result<()> {
        for unpinned in self.datapath.start()? {
            tracing::warn!("PMD {} is not bound to its core: {}", unpinned.pmd, unpinned.source);
        }
        self.revalidator.start().context("revalidator thread")
    }

    /// Ends the threads and credits the rules with all that was carried.
    pub fn stop(&self) {
        self.datapath.stop();
        self.revalidator.stop();
        self.ofproto.tick(self.now_ms());
        self.revalidator.settle(self.now_ms());
    }

    /// Every bridge's rules with their counters, at the end.
    pub fn final_rules(&self) -> BTreeMap<String, String> {
        let bridges = self.ofproto.bridges().into_iter();
        let rules = bridges.map(|bridge| {
            let names = self.port_names(&bridge.name);
            let text = dump(&self.ofproto, &bridge.name, self.now_ms(), |line| format!(" {}", line.display(&names)));
            (bridge.name, text.unwrap_or_default())
        });
        rules.collect()
    }

    /// The types of all ports.
    pub fn port_kinds(&self) -> Vec<String> {
        self.setup().ports.values().map(|entry| entry.config.kind.clone()).collect()
    }
}

/// A bridge as the tables want to know it.
pub fn bridge_config(bridge: &Bridge) -> BridgeConfig {
    let id = bridge.datapath_id.as_deref().and_then(|id| u64::from_str_radix(id, 16).ok());
    let base = BridgeConfig::new(&bridge.name);
    BridgeConfig {
        datapath_id: id.unwrap_or(base.datapath_id),
        fail_mode: match bridge.fail_mode {
            config::FailMode::Secure => FailMode::Secure,
            config::FailMode::Standalone => FailMode::Standalone,
        },
        mac_age_s: bridge.mac_age.0.as_secs(),
        prefixes: bridge.prefixes.iter().filter_map(|name| TrieField::named(name)).collect(),
        limits: bridge.table.iter().map(table_limit).collect(),
        ..base
    }
}

fn table_limit(table: &config::Table) -> TableLimit {
    let evicts = table.overflow_policy == config::OverflowPolicy::Evict;
    TableLimit { table: table.number, rules: table.flow_limit as usize, evicts }
}

fn pools(config: &Config) -> Pools {
    #[cfg_attr(not(feature = "dpdk"), expect(unused_mut, reason = "DPDK's start is configured here"))]
    let mut pools = Pools::default();
    #[cfg(feature = "dpdk")]
    if let Some(dpdk) = &config.switch.dpdk {
        pools.set_dpdk_config(sluice_port::DpdkConfig { eal_args: dpdk.eal_args.clone(), mbufs: dpdk.mbufs });
    }
    let _ = config;
    pools
}

fn datapath_config(config: &Config) -> sluice_datapath::Config {
    sluice_datapath::Config {
        cores: config.switch.pmd_cores.iter().map(|core| *core as usize).collect(),
        settings: config.datapath.settings(),
        governor: config.datapath.governor.parse().unwrap_or(GovernorMode::Auto),
        miss_budget: match config.datapath.miss_budget {
            AutoOr::Auto => MissBudget::Auto,
            AutoOr::Is(share) => MissBudget::PerMille((share.0 * 1000.0).ceil() as u32),
        },
        max_idle_ms: u64::try_from(config.datapath.max_idle.0.as_millis()).unwrap_or(u64::MAX),
        max_megaflows: max_megaflows(&config.datapath),
        sleep_max_us: u32::try_from(config.datapath.pmd_sleep_max.0.as_micros()).unwrap_or(u32::MAX),
        ..sluice_datapath::Config::default()
    }
}

/// As many megaflows as the memory given to them holds.
fn max_megaflows(datapath: &config::Datapath) -> u32 {
    u32::try_from(datapath.flow_memory.0 / MEGAFLOW_BYTES).unwrap_or(u32::MAX).clamp(1, 1 << 28)
}
