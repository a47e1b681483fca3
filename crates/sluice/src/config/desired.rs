//! What the configuration file says, as the state that a switch is to be in. Files that it names are read with it.

use super::{
    AutoOr, Bridge, Config, ConfigError, Datapath, Dpdk, FailMode, InvProb, OverflowPolicy, Port, Table, TxSteering,
};
use sluice_connmgr::{ActiveTarget, ControllerSettings, PassiveTarget, RateLimit, TargetError, TlsFiles};
use sluice_datapath::{MissBudget, RxqAssignment, Settings};
use sluice_flow::VlanLimit;
use sluice_ofproto::{NormalSettings, TableConfig, TrieField, VlanMode};
use sluice_port::DpdkConfig;
use sluice_vswitch::{Bundle, DatapathSettings, DesiredState, Invalid, PATCH, Source, Sources};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Reads a file of rules, groups or meters.
///
/// # Errors
/// If it cannot be read: with the file, and what to do about it.
pub fn read_source(path: &Path) -> Result<Source, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|error| ConfigError::unreadable(path, &error))?;
    Ok(Source::new(path.display().to_string(), text))
}

impl Config {
    /// The state that a switch is to be in.
    ///
    /// # Errors
    /// If a file that it names cannot be read.
    pub fn desired(&self) -> Result<DesiredState, ConfigError> {
        let mut state = self.without_sources().expect("invariant: the file was checked when it was read");
        for (number, (bridge, said)) in state.bridges.iter_mut().zip(&self.bridge).enumerate() {
            bridge.sources = self.sources(said, number)?;
        }
        Ok(state)
    }

    fn sources(&self, bridge: &Bridge, number: usize) -> Result<Sources, ConfigError> {
        let read = |key: &str, file: &Option<PathBuf>| {
            let source = file.as_ref().map(|file| read_source(&self.resolve(file))).transpose();
            source.map_err(|error| self.refuse(&format!("bridge[{number}].{key}"), &error.to_string()))
        };
        Ok(Sources {
            meters: read("meters", &bridge.meters)?,
            groups: read("groups", &bridge.groups)?,
            rules: read("flows", &bridge.flows)?,
            keeps_rules: bridge.keep_rules,
        })
    }

    /// Checks that this build has the types of all ports, and that DPDK ports name a device. A start only logs this, and
    /// goes on with the other ports.
    ///
    /// # Errors
    /// With the first port that this build cannot open.
    pub fn check_build(&self) -> Result<(), ConfigError> {
        for (b, bridge) in self.bridge.iter().enumerate() {
            for (p, port) in bridge.port.iter().enumerate() {
                let path = format!("bridge[{b}].port[{p}]");
                if let Some(why) = sluice_port::missing_from_build(&port.kind) {
                    return Err(self.refuse(&format!("{path}.type"), &format!("\"{}\": {why}", port.kind)));
                }
                let names_device = ["devargs", "dpdk-devargs"].iter().any(|key| port.options.contains_key(*key));
                if port.kind == "dpdk" && !names_device {
                    let expected = "expected a device as DPDK names it, such as net_null0 or 0000:01:00.0";
                    return Err(self.refuse(&format!("{path}.options"), &format!("devargs is missing; {expected}")));
                }
            }
        }
        Ok(())
    }

    /// Checks what the file says, the files that it names aside.
    ///
    /// # Errors
    /// With the first key whose value cannot stand.
    pub(super) fn check(&self) -> Result<(), Invalid> {
        let state = self.without_sources()?;
        check_tunnels(&state)?;
        state.check()?;
        let known: Vec<_> = sluice_port::PORT_TYPES.iter().map(|kind| kind.name).collect();
        if let Some(kind) = self.switch.port_types.iter().find(|kind| !known.contains(&kind.as_str())) {
            let message = format!("\"{kind}\" is no port type; expected some of {}", known.join(", "));
            return Err(Invalid::new("switch.port-types", message));
        }
        if self.bridge.is_empty() {
            return Err(Invalid::new("bridge", "no bridge; expected at least one [[bridge]] with a name"));
        }
        Ok(())
    }

    fn without_sources(&self) -> Result<DesiredState, Invalid> {
        let has_tls = self.switch.tls.is_some();
        let bridges = self.bridge.iter().enumerate().map(|(i, bridge)| {
            let bridge = bridge.desired(has_tls);
            bridge.map_err(|invalid| invalid.within(&format!("bridge[{i}]")))
        });
        Ok(DesiredState {
            pmd_cores: self.switch.pmd_cores.iter().map(|core| *core as usize).collect(),
            main_worker: self.switch.main_worker,
            datapath: self.datapath.desired().map_err(|invalid| invalid.within("datapath"))?,
            dpdk: self.switch.dpdk.as_ref().map(Dpdk::desired),
            tls: self.switch.tls.as_ref().map(|tls| TlsFiles {
                private_key: self.resolve(&tls.private_key),
                certificate: self.resolve(&tls.certificate),
                ca_cert: self.resolve(&tls.ca_cert),
                bootstraps_ca_cert: false,
            }),
            bundle_memory: usize::try_from(self.switch.bundle_memory.0).unwrap_or(usize::MAX),
            rule_memory: usize::try_from(self.switch.rule_memory.0).unwrap_or(usize::MAX),
            bridges: bridges.collect::<Result<_, _>>()?,
            base_dir: self.directory.clone(),
            ..DesiredState::default()
        })
    }
}

/// Open vSwitch's words say what is wrong with a tunnel's options, but neither what they were nor what is expected.
fn check_tunnels(state: &DesiredState) -> Result<(), Invalid> {
    for (b, bridge) in state.bridges.iter().enumerate() {
        for (p, port) in bridge.ports.iter().enumerate().filter(|(_, port)| port.tunnel_kind().is_some()) {
            let Err(invalid) = port.check() else { continue };
            let invalid = invalid.within(&format!("bridge[{b}].port[{p}]"));
            if !invalid.key.ends_with(".options") {
                return Err(invalid);
            }
            let given: Vec<_> = port.options.iter().map(|(key, value)| format!("{key} = \"{value}\"")).collect();
            let given = if given.is_empty() { "nothing".to_owned() } else { given.join(", ") };
            let expected = "expected such as remote_ip = \"192.0.2.1\", key = \"7\" (docs/tunnels.md has all options)";
            return Err(Invalid::new(invalid.key, format!("{given}: {}; {expected}", invalid.message)));
        }
    }
    Ok(())
}

impl Dpdk {
    fn desired(&self) -> DpdkConfig {
        DpdkConfig {
            eal_args: self.eal_args.clone(),
            mbufs: self.mbufs,
            least_mbufs: self.mbufs,
            ..DpdkConfig::default()
        }
    }
}

impl Datapath {
    fn desired(&self) -> Result<DatapathSettings, Invalid> {
        let governor = self.governor.parse().map_err(|_| {
            let expected = "expected \"auto\", \"off\", \"classic\", \"shortcut\", \"2012-before\" or \"2012-after\"";
            Invalid::new("governor", format!("\"{}\" is unknown; {expected}", self.governor))
        })?;
        let algorithm = self.pmd_rxq_assign.parse().map_err(|()| {
            let expected = "expected \"cycles\", \"roundrobin\" or \"group\"";
            Invalid::new("pmd-rxq-assign", format!("\"{}\" is unknown; {expected}", self.pmd_rxq_assign))
        })?;
        if self.vlan_limit > 2 {
            return Err(Invalid::new("vlan-limit", format!("{}; expected 0, 1 or 2 tags", self.vlan_limit)));
        }
        Ok(DatapathSettings {
            lookup: self.settings()?,
            governor,
            miss_budget: match self.miss_budget {
                AutoOr::Auto => MissBudget::Auto,
                AutoOr::Is(share) => MissBudget::PerMille((share.0 * 1000.0).ceil() as u32),
            },
            vlan_limit: VlanLimit::from_setting(self.vlan_limit.into()),
            max_idle: self.max_idle.0,
            flow_memory_bytes: self.flow_memory.0,
            rxq_assignment: RxqAssignment { algorithm, isolates: self.pmd_rxq_isolate },
            pmd_sleep_max: self.pmd_sleep_max.0,
            perf_metrics: self.pmd_perf_metrics,
            ..DatapathSettings::default()
        })
    }

    /// How packets are to be looked up.
    fn settings(&self) -> Result<Settings, Invalid> {
        let mut settings = Settings {
            emc: self.emc,
            smc: self.smc,
            distributor: self.distributor,
            composed: self.composed,
            ..Settings::default()
        };
        let insert_inv_prob = match self.emc_insert_inv_prob {
            AutoOr::Auto => "auto".to_owned(),
            AutoOr::Is(InvProb::Adaptive) => "adaptive".to_owned(),
            AutoOr::Is(InvProb::OneIn(n)) => n.to_string(),
        };
        let distributor_entries = match self.distributor_entries {
            AutoOr::Auto => "auto".to_owned(),
            AutoOr::Is(n) => n.to_string(),
        };
        for (key, value) in [
            ("distributor-table", &self.distributor_table),
            ("distributor-entries", &distributor_entries),
            ("distributor-vector", &self.distributor_vector),
            ("subtable-pruning", &self.subtable_pruning),
            ("subtable-ranking", &self.subtable_ranking),
            ("vector", &self.vector),
            ("emc-recirc", &self.emc_recirc),
            ("emc-recirc-threshold", &self.emc_recirc_threshold.to_string()),
            ("emc-entries", &self.emc_entries.to_string()),
            ("smc-entries", &self.smc_entries.to_string()),
            ("emc-insert-inv-prob", &insert_inv_prob),
        ] {
            settings.set(key, value).map_err(|error| {
                // The key is said already.
                let said = error.to_string();
                let message = said.strip_prefix(key).map_or(said.as_str(), |rest| rest.trim_start_matches(": "));
                Invalid::new(key, message)
            })?;
        }
        Ok(settings)
    }
}

impl Bridge {
    fn desired(&self, has_tls: bool) -> Result<sluice_vswitch::Bridge, Invalid> {
        let rate_limit = RateLimit::new(self.controller_rate_limit, self.controller_burst_limit);
        let controllers = self.controllers.iter().map(|text| {
            let target = target("controllers", text, |target| has_tls || !matches!(target, ActiveTarget::Tls(_)))?;
            Ok(ControllerSettings { rate_limit, ..ControllerSettings::new(target) })
        });
        let listeners = self
            .listen
            .iter()
            .map(|text| target("listen", text, |target| has_tls || !matches!(target, PassiveTarget::Tls(_))));
        let ports = self.port.iter().enumerate().map(|(i, port)| {
            let port = port.desired();
            port.map_err(|invalid| invalid.within(&format!("port[{i}]")))
        });
        let mirrors = self.mirror.iter().enumerate().map(|(i, mirror)| {
            let mirror = mirror.desired(self);
            mirror.map_err(|invalid| invalid.within(&format!("mirror[{i}]")))
        });
        let bundles = self.bond.iter().enumerate().map(|(i, bond)| {
            let bond = bond.desired(self);
            bond.map_err(|invalid| invalid.within(&format!("bond[{i}]")))
        });
        let bundles: Vec<Bundle> = bundles.collect::<Result<_, _>>()?;
        let speaks_lacp = |name: &String| bundles.iter().any(|b| b.lacp.is_some() && b.members.contains(name));
        let local = self.local.then(|| sluice_vswitch::Port::local(&self.name, "tap"));
        Ok(sluice_vswitch::Bridge {
            datapath_id: self.datapath_id.as_deref().map(datapath_id).transpose()?,
            fail_mode: match self.fail_mode {
                FailMode::Secure => sluice_ofproto::FailMode::Secure,
                FailMode::Standalone => sluice_ofproto::FailMode::Standalone,
            },
            normal: NormalSettings { mac_age_s: self.mac_age.0.as_secs(), ..NormalSettings::default() },
            prefixes: self.prefixes.iter().map(|name| prefix(name)).collect::<Result<_, _>>()?,
            tables: self.table.iter().map(Table::desired).collect(),
            mirrors: mirrors.collect::<Result<_, _>>()?,
            sflow: self.sflow.as_ref().map(super::sflow::SFlow::desired).transpose()?,
            controllers: controllers.collect::<Result<_, _>>()?,
            listeners: listeners.collect::<Result<_, _>>()?,
            ports: ports
                .map(|port| port.map(|port| sluice_vswitch::Port { speaks_lacp: speaks_lacp(&port.name), ..port }))
                .chain(local.map(Ok))
                .collect::<Result<_, _>>()?,
            bundles: bundles.clone(),
            ..sluice_vswitch::Bridge::new(&self.name)
        })
    }
}

/// Where OpenFlow is spoken. Whether it can be without keys is `is_possible`.
fn target<T: FromStr<Err = TargetError>>(
    key: &str,
    text: &str,
    is_possible: impl FnOnce(&T) -> bool,
) -> Result<T, Invalid> {
    let target: T = text.parse().map_err(|error: TargetError| Invalid::new(key, error.to_string()))?;
    if !is_possible(&target) {
        let needed = "takes [switch.tls] with private-key, certificate and ca-cert";
        return Err(Invalid::new(key, format!("\"{text}\" {needed}")));
    }
    Ok(target)
}

fn datapath_id(text: &str) -> Result<u64, Invalid> {
    let is_id = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let id = u64::from_str_radix(text, 16).ok().filter(|_| is_id);
    id.ok_or_else(|| Invalid::new("datapath-id", format!("\"{text}\"; expected 16 hexadecimal digits")))
}

fn prefix(name: &str) -> Result<TrieField, Invalid> {
    let expected = "expected up to four of ip_dst, ip_src, ipv6_dst, ipv6_src";
    TrieField::named(name).ok_or_else(|| Invalid::new("prefixes", format!("\"{name}\"; {expected}")))
}

impl Table {
    fn desired(&self) -> TableConfig {
        let evicts = self.overflow_policy == OverflowPolicy::Evict;
        TableConfig { flow_limit: Some(self.flow_limit as usize), evicts, ..TableConfig::new(self.number) }
    }
}

impl Port {
    fn desired(&self) -> Result<sluice_vswitch::Port, Invalid> {
        Ok(sluice_vswitch::Port {
            ofport_request: Some(sluice_vswitch::Port::ofport(self.ofport)?),
            mtu: Some(self.mtu),
            vlan: VlanMode::of(self.tag, &self.trunks),
            n_rxq: self.n_rxq,
            rxq_affinity: self.pmd_rxq_affinity.0.clone(),
            tx_steering: match self.tx_steering {
                TxSteering::Thread => sluice_port::TxSteering::Thread,
                TxSteering::Hash => sluice_port::TxSteering::Hash,
            },
            bfd: self.bfd.as_ref().map(|bfd| bfd.desired()).transpose()?,
            policing: self.ingress_policing.desired(),
            qos: self.qos.as_ref().map(|qos| qos.desired(&self.kind)).transpose()?,
            options: self.options()?,
            ..sluice_vswitch::Port::new(&self.name, &self.kind)
        })
    }

    /// Its options as text.
    fn options(&self) -> Result<BTreeMap<String, String>, Invalid> {
        let options = self.options.iter().map(|(key, value)| match value {
            toml::Value::String(text) => Ok((key.clone(), text.clone())),
            toml::Value::Array(_) | toml::Value::Table(_) => {
                Err(Invalid::new(format!("options.{key}"), "expected a string, a number or a boolean"))
            }
            _ if self.kind == PATCH => Err(Invalid::new(format!("options.{key}"), "expected a string")),
            other => Ok((key.clone(), other.to_string())),
        });
        options.collect()
    }
}
