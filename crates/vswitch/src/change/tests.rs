use super::*;
use crate::desired::{DatapathSettings, Source};
use proptest::collection::vec;
use proptest::prelude::*;
use sluice_connmgr::ControllerSettings;
use sluice_datapath::Level;
use sluice_ofproto::{FailMode, VlanMode};
use std::collections::BTreeSet;

fn state(bridges: impl IntoIterator<Item = Bridge>) -> DesiredState {
    DesiredState { bridges: bridges.into_iter().collect(), ..DesiredState::default() }
}

fn bridge(name: &str, ports: &[Port]) -> Bridge {
    Bridge { ports: ports.to_vec(), ..Bridge::new(name) }
}

fn port(name: &str) -> Port {
    Port::new(name, "null")
}

fn add(port: &Port) -> Change {
    Change::AddPort { bridge: "br0".into(), port: port.clone().into() }
}

fn remove(port: &str) -> Change {
    Change::RemovePort { bridge: "br0".into(), port: port.into() }
}

#[test]
fn equal_states_take_no_step() {
    let state = state([bridge("br0", &[port("p1")])]);
    assert!(changes(&state, &state.clone()).is_empty());
}

#[test]
fn ports_come_go_change_and_are_replaced() {
    let old = [port("p1"), port("p2"), port("p3"), port("p4").numbered(4)];
    let jumbo = Port { mtu: Some(9000), vlan: VlanMode::Access(7), ..port("p3") };
    let renumbered = port("p4").numbered(5);
    let new = [port("p1"), jumbo.clone(), renumbered.clone(), port("p5")];
    let reopen = Change::ReconfigurePort { bridge: "br0".into(), port: jumbo.into() };
    let expected = [remove("p2"), remove("p4"), reopen, add(&renumbered), add(&port("p5"))];
    assert_eq!(changes(&state([bridge("br0", &old)]), &state([bridge("br0", &new)])), expected);
    let access = Port { vlan: VlanMode::Access(7), ..port("p1") };
    let set = Change::SetPort { bridge: "br0".into(), port: access.clone().into() };
    assert_eq!(changes(&state([bridge("br0", &old[..1])]), &state([bridge("br0", &[access])])), [set]);
}

#[test]
fn bridges_come_go_change_and_are_replaced() {
    let normal = NormalSettings { mac_age_s: 10, ..NormalSettings::default() };
    let aged = Bridge { normal: normal.clone(), ..Bridge::new("br1") };
    let other = Bridge { datapath_id: Some(7), ..Bridge::new("br2") };
    let old = state(["br0", "br1", "br2"].map(Bridge::new));
    let new = state([aged, other.clone(), Bridge::new("br3")]);
    let expected = [
        Change::RemoveBridge("br0".into()),
        Change::RemoveBridge("br2".into()),
        Change::SetNormal { bridge: "br1".into(), normal },
        Change::AddBridge(other.into()),
        Change::AddBridge(Bridge::new("br3").into()),
    ];
    assert_eq!(changes(&old, &new), expected);
}

#[test]
fn tables_and_fail_mode_change_while_the_bridge_stays() {
    let tables = vec![TableConfig { name: "main".into(), ..TableConfig::new(0) }];
    let new = Bridge { fail_mode: FailMode::Standalone, tables: tables.clone(), ..Bridge::new("br0") };
    let expected = [
        Change::SetTables { bridge: "br0".into(), tables },
        Change::SetOpenFlow { bridge: "br0".into(), settings: new.openflow() },
    ];
    assert_eq!(changes(&state([Bridge::new("br0")]), &state([new])), expected);
}

#[test]
fn tables_are_loaded_last() {
    let sources = Sources { rules: Some(Source::new("f", "actions=drop")), ..Sources::default() };
    let new = state([Bridge { sources: sources.clone(), ..bridge("br0", &[port("p1")]) }]);
    let set = Change::SetSources { bridge: "br0".into(), sources };
    assert_eq!(changes(&state([Bridge::new("br0")]), &new), [add(&port("p1")), set]);
}

#[test]
fn settings_of_the_start_are_told_from_others() {
    let mut new = DesiredState { pmd_cores: vec![2], main_worker: true, ..DesiredState::default() };
    new.datapath.flow_memory_bytes = 1 << 30;
    new.datapath.lookup.emc_entries = 1024;
    new.rule_memory = 1 << 20;
    let expected = [
        Change::AtNextStart(StartSetting::FlowMemory(1 << 30)),
        Change::SetWorkers { pmd_cores: vec![2], main_worker: true },
        Change::SetLookup(Box::new(new.datapath.lookup)),
        Change::SetRuleMemory(1 << 20),
    ];
    assert_eq!(changes(&DesiredState::default(), &new), expected);
}

/// Few names and few values, so that states have much in common.
fn any_port() -> impl Strategy<Value = Port> {
    let vlans = [VlanMode::Trunk(None), VlanMode::Access(1), VlanMode::Trunk(Some(BTreeSet::from([2])))];
    let kinds = prop_oneof!["null", "generator"];
    ("p[0-3]", kinds, 0..3u16, prop_oneof![Just(1500u32), Just(9000)], 1..3usize, 0..vlans.len()).prop_map(
        move |(name, kind, number, mtu, n_rxq, vlan)| Port {
            ofport_request: (number != 0).then_some(sluice_flow::OfPort(number)),
            mtu: Some(mtu),
            n_rxq,
            vlan: vlans[vlan].clone(),
            ..Port::new(&name, &kind)
        },
    )
}

fn any_source() -> impl Strategy<Value = Option<Source>> {
    proptest::option::of("[ab]").prop_map(|text| text.map(|text| Source::new("file", text)))
}

fn any_bridge() -> impl Strategy<Value = Bridge> {
    let sources = (any_source(), any_source(), any_source());
    let sources = sources.prop_map(|(meters, groups, rules)| Sources { meters, groups, rules, keeps_rules: false });
    let controllers = vec("unix:/[cd]", 0..3);
    ("br[0-2]", any::<bool>(), 1..3u64, controllers, sources, vec(any_port(), 0..4)).prop_map(
        |(name, has_local, age, controllers, sources, mut ports)| {
            unique_by(&mut ports, |port| port.name.clone());
            let normal = NormalSettings { mac_age_s: age, ..NormalSettings::default() };
            let controller = |target: String| ControllerSettings::new(target.parse().unwrap());
            let controllers = controllers.into_iter().map(controller).collect();
            ports.extend(has_local.then(|| Port::local(&name, "null")));
            Bridge { normal, controllers, sources, ports, ..Bridge::new(&name) }
        },
    )
}

fn any_state() -> impl Strategy<Value = DesiredState> {
    let numbers = (1..3usize, 1..3u64, 0..3u64, any::<bool>(), any::<bool>());
    (numbers, vec(any_bridge(), 0..4)).prop_map(|((core, idle, memory, off, budget), mut bridges)| {
        unique_by(&mut bridges, |bridge| bridge.name.clone());
        let mut datapath = DatapathSettings {
            vlan_limit: sluice_flow::VlanLimit::from_setting(idle),
            max_idle: Duration::from_secs(idle),
            flow_memory_bytes: memory << 20,
            pmd_sleep_max: Duration::from_micros(memory),
            perf_metrics: off,
            governor: if off { GovernorMode::Off } else { GovernorMode::Auto },
            miss_budget: if budget { MissBudget::Auto } else { MissBudget::PerMille(10) },
            ..DatapathSettings::default()
        };
        datapath.lookup.smc = if off { Level::Off } else { Level::Auto };
        let dpdk = budget.then(DpdkConfig::default);
        let tls = off.then(|| TlsFiles {
            private_key: "k".into(),
            certificate: "c".into(),
            ca_cert: "a".into(),
            bootstraps_ca_cert: false,
        });
        DesiredState {
            pmd_cores: vec![core],
            main_worker: off,
            bundle_memory: (idle as usize) << 20,
            rule_memory: (memory as usize) << 20,
            datapath,
            dpdk,
            tls,
            bridges,
            ..DesiredState::default()
        }
    })
}

fn unique_by<T>(items: &mut Vec<T>, name: impl Fn(&T) -> String) {
    let mut seen = BTreeSet::new();
    items.retain(|item| seen.insert(name(item)));
}

/// States mean the same in whatever order they list bridges and ports.
fn sorted(mut state: DesiredState) -> DesiredState {
    state.bridges.sort_by(|a, b| a.name.cmp(&b.name));
    state.bridges.iter_mut().for_each(|bridge| bridge.ports.sort_by(|a, b| a.name.cmp(&b.name)));
    state
}

/// At no time are there two bridges, or two ports of a bridge, of one name.
fn has_unique_names(state: &DesiredState) -> bool {
    let are_unique = |names: Vec<&String>| names.iter().collect::<BTreeSet<_>>().len() == names.len();
    let ports = |bridge: &Bridge| are_unique(bridge.ports.iter().map(|port| &port.name).collect());
    are_unique(state.bridges.iter().map(|bridge| &bridge.name).collect()) && state.bridges.iter().all(ports)
}

proptest! {
    #[test]
    fn the_steps_lead_from_one_state_to_the_other(old in any_state(), new in any_state()) {
        let mut state = old.clone();
        for change in changes(&old, &new) {
            state.apply(&change);
            prop_assert!(has_unique_names(&state), "{change:?}");
        }
        prop_assert_eq!(sorted(state), sorted(new));
    }
}
