//! Any rows make a plan that the switch can carry out, and the plan says what a naive reading of the rows says.

use super::*;
use crate::records::{BridgeRecord, InterfaceRecord, MirrorRecord, OpenVswitchRecord, PortRecord, PortRef};
use crate::records::{QosRecord, QueueRecord, Smap};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use sluice_ofproto::VlanMode;

const NAMES: [&str; 12] = [
    "br0",
    "br1",
    "p0",
    "p1",
    "p2",
    "p3",
    "p4",
    "a/b",
    "",
    "vxlan_sys_1",
    "ovs-system",
    "a-name-too-long-for-a-device",
];

/// The first is good.
const MACS: [&str; 4] = ["aa:55:c0:ff:ee:00", "01:55:c0:ff:ee:00", "00:00:00:00:00:00", "nonsense"];

fn any_name() -> impl Strategy<Value = String> {
    select(&NAMES[..]).prop_map(str::to_owned)
}

/// A number that may be far from what the column should hold.
fn any_number() -> impl Strategy<Value = i64> {
    prop_oneof![-1..4i64, Just(4094), Just(4095), Just(65534), Just(70_000), any::<i64>()]
}

fn any_smap(keys: &'static [&'static str]) -> impl Strategy<Value = Smap> {
    let value =
        prop_oneof![select(&["true", "false", "", "p1", "0x3", "5", "-7", "x"][..]).prop_map(str::to_owned), ".*"];
    btree_map(select(keys).prop_map(str::to_owned), value, 0..keys.len()).prop_map(Smap)
}

fn any_interface() -> impl Strategy<Value = InterfaceRecord> {
    let kinds =
        ["", "internal", "null", "patch", "tap", "dummy", "dummy-pmd", "dpdkvhostuserclient", "dpdk", "nonsense"];
    let options = any_smap(&["peer", "vhost-server-path", "n_rxq", "colour"]);
    let numbers = [(); 3].map(|()| option::of(any_number()));
    let (mac, policing) = (option::of(select(&MACS[..]).prop_map(str::to_owned)), [(); 4].map(|()| any_number()));
    let rest = (mac, policing);
    (any_name(), select(kinds.to_vec()), options, numbers, rest).prop_map(|(name, kind, options, numbers, rest)| {
        let ([ofport_request, ofport, mtu_request], (mac, policing)) = (numbers, rest);
        let (kind, lacking) = (kind.to_owned(), Vec::new());
        InterfaceRecord {
            uuid: Uuid::ZERO,
            name,
            kind,
            options,
            other_config: Smap::default(),
            ofport_request,
            ofport,
            mtu_request,
            mac,
            bfd: Smap::default(),
            policing,
            lacking,
        }
    })
}

fn any_qos() -> impl Strategy<Value = QosRecord> {
    let kinds = ["", "linux-htb", "egress-policer", "trtcm-policer", "nonsense"];
    let config = || any_smap(&["max-rate", "min-rate", "burst", "cir", "cbs"]);
    let queue = (option::of(any_number()), config());
    let queue = queue.prop_map(|(dscp, other_config)| QueueRecord { dscp, other_config });
    (select(kinds.to_vec()), config(), btree_map(any_number(), queue, 0..3))
        .prop_map(|(kind, other_config, queues)| QosRecord { kind: kind.to_owned(), other_config, queues })
}

fn any_port() -> impl Strategy<Value = PortRecord> {
    let modes = ["access", "trunk", "native-tagged", "native-untagged", "dot1q-tunnel", "nonsense"];
    let vlans = || btree_set(any_number(), 0..3);
    let keys = &["priority-tags", "qinq-ethtype", "lacp-system-id", "lacp-system-priority", "bond-rebalance-interval"];
    let config = any_smap(keys);
    let bonds = ["active-backup", "balance-slb", "balance-tcp", "nonsense"];
    let lacp = option::of(select(vec!["active", "passive", "off", "nonsense"]));
    let bond = (option::of(select(bonds.to_vec())), lacp);
    let rows = (any_name(), vec(any_interface(), 0..3), any::<bool>(), bond, option::of(any_qos()));
    (rows, option::of(any_number()), vlans(), vlans(), option::of(select(modes.to_vec())), config).prop_map(
        |((name, interfaces, protected, (bond_mode, lacp), qos), tag, trunks, cvlans, mode, other_config)| PortRecord {
            uuid: Uuid::ZERO,
            name,
            interfaces,
            protected,
            tag,
            trunks,
            cvlans,
            vlan_mode: mode.map(str::to_owned),
            other_config,
            bond_mode: bond_mode.map(str::to_owned),
            lacp: lacp.map(str::to_owned),
            qos,
            ..PortRecord::default()
        },
    )
}

fn any_mirror() -> impl Strategy<Value = MirrorRecord> {
    let port = || any_name().prop_map(|name| PortRef { uuid: Uuid::ZERO, name });
    let numbers = (option::of(any::<i64>()), option::of(any::<i64>()), btree_set(any::<i64>(), 0..3));
    (any::<bool>(), vec(port(), 0..3), option::of(port()), numbers).prop_map(
        |(select_all, select_src_port, output_port, (output_vlan, snaplen, select_vlan))| MirrorRecord {
            uuid: Uuid::ZERO,
            name: "m".to_owned(),
            select_all,
            select_dst_port: select_src_port.clone(),
            select_src_port,
            select_vlan,
            output_port,
            output_vlan,
            snaplen,
        },
    )
}

fn any_bridge() -> impl Strategy<Value = BridgeRecord> {
    let keys = &["mac-table-size", "mac-aging-time", "forward-bpdu", "datapath-id", "hwaddr", "dp-desc"];
    let types = select(vec!["", "netdev", "system", "dummy", "nonsense"]);
    (any_name(), types, option::of(".*"), any_smap(keys), vec(any_port(), 0..5), vec(any_mirror(), 0..3)).prop_map(
        |(name, datapath_type, fail_mode, other_config, ports, mirrors)| BridgeRecord {
            uuid: Uuid::ZERO,
            name,
            datapath_type: datapath_type.to_owned(),
            fail_mode,
            protocols: Vec::new(),
            flow_tables: BTreeMap::new(),
            controllers: Vec::new(),
            sflow: None,
            mirrors,
            flood_vlans: [7, -1, 70_000].into(),
            lacking: Vec::new(),
            other_config,
            ports,
        },
    )
}

fn any_records() -> impl Strategy<Value = Records> {
    let keys = &["pmd-cpu-mask", "max-idle", "pmd-maxsleep", "vlan-limit", "flow-limit"];
    let mask = option::of("(0x)?[0-9a-f]{0,80}");
    (vec(any_bridge(), 0..4), any_smap(keys), mask).prop_map(|(bridges, mut other_config, mask)| {
        other_config.0.extend(mask.map(|mask| ("pmd-cpu-mask".to_owned(), mask)));
        let row = OpenVswitchRecord { uuid: Uuid::ZERO, next_cfg: 1, other_config, managers: Vec::new(), ssl: None };
        let mut records = Records { open_vswitch: Some(row), bridges, datapaths: Vec::new() };
        number_rows(&mut records);
        records
    })
}

/// Rows have different UUIDs.
fn number_rows(records: &mut Records) {
    let mut next = 0;
    let mut number = |uuid: &mut Uuid| {
        next += 1;
        *uuid = Uuid::from_u128(next);
    };
    for bridge in &mut records.bridges {
        number(&mut bridge.uuid);
        bridge.ports.iter_mut().flat_map(|port| &mut port.interfaces).for_each(|row| number(&mut row.uuid));
    }
}

fn any_dummies() -> impl Strategy<Value = DummyOverride> {
    select(vec![DummyOverride::Unavailable, DummyOverride::None, DummyOverride::System, DummyOverride::All])
}

fn plan(records: &Records, dummies: DummyOverride, numbers: &mut OfPortAllocators) -> Plan {
    let base = DesiredState { pmd_cores: Vec::new(), main_worker: true, ..DesiredState::default() };
    let context = PlanContext {
        base: &base,
        dummies,
        confinement: None,
        vhost_sock_dir: Path::new("/run/openvswitch"),
        has_dpdk: false,
        waits_for_flows: false,
        now_ms: 0,
    };
    Plan::make(records, &context, numbers)
}

#[test]
fn bounds_on_memory_are_in_mebibytes_and_zero_is_the_usual_one() {
    let planned = |text: &str| {
        let keys = ["bundle-memory", "rule-memory"].map(|key| (key.to_owned(), text.to_owned()));
        let other_config = Smap(keys.into_iter().collect());
        let row = OpenVswitchRecord { uuid: Uuid::ZERO, next_cfg: 1, other_config, managers: Vec::new(), ssl: None };
        let records = Records { open_vswitch: Some(row), bridges: Vec::new(), datapaths: Vec::new() };
        let state = plan(&records, DummyOverride::Unavailable, &mut OfPortAllocators::new()).state;
        (state.bundle_memory, state.rule_memory)
    };
    assert_eq!(planned("3"), (3 << 20, 3 << 20));
    let usual = DesiredState::default();
    assert_eq!([planned("0"), planned("x")], [(usual.bundle_memory, usual.rule_memory); 2]);
}

proptest! {
    #[test]
    fn any_rows_make_a_state_that_can_be(records in any_records(), dummies in any_dummies()) {
        let mut numbers = OfPortAllocators::new();
        let first = plan(&records, dummies, &mut numbers);
        prop_assert!(first.state.check().is_ok(), "{:?}", first.state.check());
        let again = plan(&records, dummies, &mut numbers);
        prop_assert_eq!(first.state, again.state, "the same rows make the same state");
    }

    #[test]
    fn each_interface_is_there_or_refused(records in any_records(), dummies in any_dummies()) {
        let plan = plan(&records, dummies, &mut OfPortAllocators::new());
        let planned = plan.bridges.iter().flat_map(|bridge| &bridge.interfaces).filter_map(|interface| interface.uuid);
        let all: Vec<Uuid> = planned.chain(plan.refused.iter().map(|refused| refused.interface)).collect();
        prop_assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len(), "no row has two fates");
        for bridge in records.bridges.iter().filter(|row| plan.bridges.iter().any(|b| b.uuid == row.uuid)) {
            let mut names = HashSet::new();
            let rows = bridge.ports.iter().flat_map(|port| &port.interfaces);
            for row in rows.filter(|row| names.insert(&row.name)) {
                prop_assert!(all.contains(&row.uuid), "{:?}", row);
            }
        }
    }

    #[test]
    fn internal_interfaces_but_for_local_have_the_good_addresses_of_their_rows(records in any_records()) {
        let plan = plan(&records, DummyOverride::Unavailable, &mut OfPortAllocators::new());
        let rows = records.bridges.iter().flat_map(|bridge| &bridge.ports).flat_map(|port| &port.interfaces);
        let rows: BTreeMap<Uuid, &InterfaceRecord> = rows.map(|row| (row.uuid, row)).collect();
        for bridge in &plan.bridges {
            for interface in &bridge.interfaces {
                let row = rows[&interface.uuid.unwrap()];
                let is_good = row.mac.as_deref() == Some(MACS[0]) && row.kind == "internal" && row.name != bridge.name;
                prop_assert_eq!(interface.mac, is_good.then(|| MACS[0].parse().unwrap()), "{:?}", row);
            }
        }
    }

    #[test]
    fn ports_are_what_their_rows_say(records in any_records()) {
        let plan = plan(&records, DummyOverride::Unavailable, &mut OfPortAllocators::new());
        for bridge in &plan.state.bridges {
            let record = records.bridges.iter().find(|row| row.name == bridge.name).unwrap();
            let mut numbers = HashSet::new();
            for port in &bridge.ports {
                prop_assert!(numbers.insert(port.ofport_request.unwrap()));
                let has_it = |row: &&PortRecord| row.interfaces.iter().any(|interface| interface.name == port.name);
                let row = record.ports.iter().find(has_it).unwrap();
                let bundles = bridge.bundles.iter().filter(|bundle| bundle.members.contains(&port.name));
                let bundles: Vec<_> = bundles.collect();
                prop_assert!(bundles.len() <= 1 && port.speaks_lacp == bundles.iter().any(|bundle| bundle.lacp.is_some()));
                let has_bond = bundles.iter().any(|bundle| bundle.bond.is_some());
                prop_assert_eq!(has_bond, row.interfaces.len() > 1, "{:?}", row);
                prop_assert_eq!(port.is_protected, row.protected);
                match (&row.vlan_mode, row.tag) {
                    (None, Some(tag @ 0..=4094)) => prop_assert_eq!(&port.vlan, &VlanMode::Access(tag as u16)),
                    (None, _) => prop_assert!(matches!(port.vlan, VlanMode::Trunk(_))),
                    (Some(mode), _) => prop_assert_eq!(mode == "access", matches!(port.vlan, VlanMode::Access(_))),
                }
            }
        }
    }
}
