//! Settings of the whole switch, from `Open_vSwitch.other_config`. Source: Open vSwitch vswitchd/vswitch.xml.

use super::{Level, Note, Plan};
use crate::records::{OpenVswitchRecord, Smap};
use sluice_connmgr::{BUNDLE_IDLE_TIMEOUT, BUNDLE_MEMORY, TlsFiles};
use sluice_datapath::{AutoLb, InsertInvProb, Level as CacheLevel, MAX_IDLE_MS, RxqAlgorithm, RxqAssignment, numa};
use sluice_ofproto::RULE_MEMORY;
use sluice_vswitch::{PMD_SLEEP_MAX, PMDS_MAX};
use std::time::Duration;

/// The least `max-idle`.
const MAX_IDLE_MIN_MS: u64 = 500;

/// Keys that have no effect here, because what they tune works in another way or is not there.
const WITHOUT_EFFECT: [&str; 13] = [
    "enable-statistics",
    "flow-limit",
    "hw-offload",
    "max-revalidator",
    "min-revalidate-pps",
    "n-handler-threads",
    "n-offload-threads",
    "n-revalidator-threads",
    "per-port-memory",
    "shared-mempool-config",
    "tc-policy",
    "tx-flush-interval",
    "userspace-tso-enable",
];

impl Plan {
    /// Takes over the settings of the whole switch.
    pub(super) fn set_global(&mut self, row: &OpenVswitchRecord) {
        if let Some(ssl) = &row.ssl {
            let [private_key, certificate, ca_cert] =
                [&ssl.private_key, &ssl.certificate, &ssl.ca_cert].map(|file| file.into());
            let bootstraps_ca_cert = ssl.bootstrap_ca_cert;
            self.state.tls = Some(TlsFiles { private_key, certificate, ca_cert, bootstraps_ca_cert });
        }
        let config = &row.other_config;
        let max_idle_ms = config.number::<u32>("max-idle").map_or(MAX_IDLE_MS, u64::from).max(MAX_IDLE_MIN_MS);
        self.state.datapath.max_idle = Duration::from_millis(max_idle_ms);
        // Zero stands for the usual one.
        let idle_secs: Option<u32> = config.number("bundle-idle-timeout").filter(|secs| *secs != 0);
        let idle = idle_secs.map(|secs| Duration::from_secs(secs.into()));
        self.state.bundle_idle_timeout = idle.unwrap_or(BUNDLE_IDLE_TIMEOUT);
        let bundle_mib: Option<u32> = config.number("bundle-memory").filter(|mib| *mib != 0);
        self.state.bundle_memory = bundle_mib.map_or(BUNDLE_MEMORY, |mib| (mib as usize) << 20);
        let rule_mib: Option<u32> = config.number("rule-memory").filter(|mib| *mib != 0);
        self.state.rule_memory = rule_mib.map_or(RULE_MEMORY, |mib| (mib as usize) << 20);
        let sleep_us: Option<u32> = config.number("pmd-maxsleep").or_else(|| config.number("pmd-sleep-max"));
        self.state.datapath.pmd_sleep_max = Duration::from_micros(sleep_us.unwrap_or(0).into()).min(PMD_SLEEP_MAX);
        self.state.datapath.rxq_assignment = RxqAssignment {
            algorithm: self.rxq_algorithm(config.text("pmd-rxq-assign")),
            isolates: config.flag("pmd-rxq-isolate", true),
        };
        self.state.datapath.auto_lb = auto_lb(config);
        self.state.datapath.perf_metrics = config.flag("pmd-perf-metrics", false);
        self.set_caches(config);
        let cores = config.text("pmd-cpu-mask").map(cores_of_mask).unwrap_or_default();
        // A mask may name cores of larger machines. Without a core that there is, it counts for nothing.
        let cores: Vec<usize> = cores.into_iter().filter(|core| numa::has_core(*core)).take(PMDS_MAX).collect();
        if !cores.is_empty() {
            self.state.pmd_cores = cores;
        }
        self.notes.extend(without_effect(config));
    }

    /// Without a setting the autopilot decides about a cache.
    fn set_caches(&mut self, config: &Smap) {
        let lookup = &mut self.state.datapath.lookup;
        if let Some(probability) = config.number("emc-insert-inv-prob") {
            (lookup.emc, lookup.emc_insert_inv_prob) = (CacheLevel::On, InsertInvProb::OneIn(probability));
        }
        if config.text("smc-enable").is_some() {
            lookup.smc = if config.flag("smc-enable", false) { CacheLevel::On } else { CacheLevel::Off };
        }
    }

    fn rxq_algorithm(&mut self, name: Option<&str>) -> RxqAlgorithm {
        let Some(name) = name else { return RxqAlgorithm::default() };
        name.parse().unwrap_or_else(|()| {
            self.warn(
                "Unsupported rx queue to PMD assignment mode in pmd-rxq-assign, defaulting to 'cycles'.".to_owned(),
            );
            RxqAlgorithm::default()
        })
    }
}

/// When receive queues are assigned again by themselves. What is no allowed number counts for nothing. Source: Open vSwitch
/// lib/dpif-netdev.c, `dpif_netdev_set_config`.
fn auto_lb(config: &Smap) -> AutoLb {
    let usual = AutoLb::default();
    let percent = |key, usual| config.number::<u8>(key).filter(|n| *n <= 100).unwrap_or(usual);
    let minutes = config.number::<u32>("pmd-auto-lb-rebal-interval");
    AutoLb {
        is_enabled: config.flag("pmd-auto-lb", usual.is_enabled),
        interval_min: minutes.filter(|n| *n <= AutoLb::INTERVAL_MAX_MIN).unwrap_or(usual.interval_min).max(1),
        load_threshold: percent("pmd-auto-lb-load-threshold", usual.load_threshold),
        improvement_threshold: percent("pmd-auto-lb-improvement-threshold", usual.improvement_threshold),
    }
}

/// The cores of a mask: bit 0 of its last digit is core 0. What is no mask names none.
fn cores_of_mask(mask: &str) -> Vec<usize> {
    let digits = mask.trim_start_matches("0x").trim_start_matches("0X");
    let digits: Option<Vec<u32>> = digits.chars().rev().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.unwrap_or_default();
    (0..4 * digits.len()).filter(|core| digits[core / 4] >> (core % 4) & 1 == 1).collect()
}

fn without_effect(config: &Smap) -> Option<Note> {
    let keys: Vec<&str> = WITHOUT_EFFECT.into_iter().filter(|key| config.text(key).is_some()).collect();
    let text = format!("other_config: without effect in this switch: {}", keys.join(", "));
    (!keys.is_empty()).then(|| Note::once(Level::Info, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_balance_out_of_range_is_the_usual_one() {
        let of = |key: &str, value: &str| auto_lb(&Smap([(key.to_owned(), value.to_owned())].into()));
        let interval = |value| of("pmd-auto-lb-rebal-interval", value).interval_min;
        assert_eq!(["10", "0", "20000", "20001", "-1", "x"].map(interval), [10, 1, 20_000, 1, 1, 1]);
        let load = |value| of("pmd-auto-lb-load-threshold", value).load_threshold;
        assert_eq!(["0", "100", "101", "-1"].map(load), [0, 100, 95, 95]);
    }

    #[test]
    fn masks_name_cores_from_the_right() {
        assert_eq!(cores_of_mask("0x6"), [1, 2]);
        assert_eq!(cores_of_mask("10001"), [0, 16]);
        assert!(["", "0", "0xg"].iter().all(|mask| cores_of_mask(mask).is_empty()));
    }
}
