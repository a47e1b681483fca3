//! Settings: in force when `ovs-vsctl` returns, and no longer once they are removed.

use super::rig::{Server, await_that};
use sluice_conntrack::Timeout;
use sluice_ofproto::{MirrorOutput, MirrorPorts};
use sluice_vswitch::DesiredState;

pub fn zones_have_the_timeouts_of_their_rows() {
    let server = Server::start();
    let daemon = server.daemon();
    daemon.await_configured();
    let timeouts = || daemon.switch.datapath().conntrack().timeouts();
    server.vsctl("-- --id=@dp create Datapath datapath_version=0 -- set Open_vSwitch . datapaths:netdev=@dp");
    let capability = |name: &str| server.vsctl(&format!("get Datapath . capabilities:{name}"));
    let capabilities = ["ct_zero_snat", "max_vlan_headers", "sample_nesting", "tnl_push_pop", "add_mpls", "ct_flush"];
    assert_eq!(capabilities.map(capability), ["\"true\"", "\"1\"", "\"true\"", "\"true\"", "\"false\"", "\"true\""]);
    server.vsctl("add-zone-tp netdev zone=5 icmp_first=10 udp_single=7");
    server.vsctl("add-zone-tp netdev zone=6 icmp_reply=3");
    let seen = timeouts();
    assert_eq!(seen.iter().map(|(zone, _)| *zone).collect::<Vec<_>>(), [5, 6]);
    assert_eq!(seen[0].1.seconds, [(Timeout::IcmpFirst, 10), (Timeout::OtherMultiple, 7)]);
    server.vsctl("del-zone-tp netdev zone=5");
    assert_eq!(timeouts().len(), 1);
    server.vsctl("clear Open_vSwitch . datapaths");
    assert!(timeouts().is_empty());
}

pub fn bridges_forward_and_describe_themselves_as_told() {
    let server = Server::start();
    let daemon = server.daemon();
    daemon.await_configured();
    let normal = || daemon.switch.state().bridge("br0").unwrap().normal.clone();
    server.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev");
    let usual = normal();
    assert_eq!((usual.mac_age_s, usual.mac_table_size, usual.forward_bpdu), (300, 8192, false));
    assert!(server.ofctl("dump-desc", "br0").ends_with("Serial Num: None\nDP Description: br0"));
    let config = "other_config:mac-table-size=20 other_config:mac-aging-time=5 other_config:forward-bpdu=true";
    server.vsctl(&format!("set bridge br0 {config} other_config:dp-desc=rack7 other_config:dp-sn=4711"));
    let told = normal();
    assert_eq!((told.mac_age_s, told.mac_table_size, told.forward_bpdu), (15, 20, true));
    assert!(server.ofctl("dump-desc", "br0").ends_with("Serial Num: 4711\nDP Description: rack7"));
    server.vsctl("clear bridge br0 other_config");
    assert_eq!(normal(), usual);
    assert!(server.ofctl("dump-desc", "br0").ends_with("Serial Num: None\nDP Description: br0"));
}

pub fn settings_that_go_leave_the_usual_ones() {
    let server = Server::start();
    let daemon = server.daemon();
    daemon.await_configured();
    let settings = |state: DesiredState| (state.pmd_cores, state.datapath.max_idle, state.tls.is_some());
    let usual = settings(daemon.switch.state());
    server.vsctl("set Open_vSwitch . other_config:pmd-cpu-mask=0x3 other_config:max-idle=4000");
    let told = settings(daemon.switch.state());
    assert_eq!((told.0, told.1.as_secs()), (vec![0, 1], 4));
    server.vsctl("clear Open_vSwitch . other_config");
    assert_eq!(settings(daemon.switch.state()), usual);
}

pub fn what_networks_rely_on_is_not_ignored_silently() {
    let server = Server::start();
    let daemon = server.daemon();
    daemon.await_configured();
    server.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev");
    server.vsctl("add-port br0 p1 -- set interface p1 type=null cfm_mpid=5 ingress_policing_rate=100");
    let status = "{cfm_mpid=unsupported}";
    assert_eq!(server.vsctl("get interface p1 status"), status);
    server.vsctl("set bridge br0 stp_enable=true mcast_snooping_enable=true");
    assert_eq!(server.vsctl("get bridge br0 status"), "{mcast_snooping_enable=unsupported, stp_enable=unsupported}");
    server.vsctl("clear interface p1 cfm_mpid -- set interface p1 ingress_policing_rate=0 lldp:enable=true");
    server.vsctl("set bridge br0 stp_enable=false mcast_snooping_enable=false");
    assert_eq!(server.vsctl("get interface p1 status -- get bridge br0 status"), "{}\n{}");
    let bond = "-- set interface e1 type=null -- set interface e2 type=null -- set port bond0 lacp=active";
    server.vsctl(&format!("add-bond br0 bond0 e1 e2 {bond}"));
    let lacp_current = |expected: &str| {
        await_that("LACP's state is in the database", || server.vsctl("get interface e1 lacp_current") == expected);
    };
    lacp_current("true");
    server.vsctl("set port bond0 lacp=off bond_mode=balance-slb");
    lacp_current("[]");
    assert_eq!(server.vsctl("get port bond0 status"), "{}");
}

pub fn mirrors_are_those_of_the_rows() {
    let server = Server::start();
    let daemon = server.daemon();
    daemon.await_configured();
    server.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure");
    for port in ["p1", "p2", "p3"] {
        server.vsctl(&format!("add-port br0 {port} -- set interface {port} type=dummy"));
    }
    server.vsctl(
        "-- --id=@in get port p1 -- --id=@out get port p3 -- --id=@m create mirror name=m0 \
                  select_src_port=@in output_port=@out snaplen=64 -- set bridge br0 mirrors=@m flood_vlans=9",
    );
    let bridge = || daemon.switch.state().bridge("br0").unwrap().clone();
    let [mirror] = &bridge().mirrors[..] else { panic!("{:?}", bridge().mirrors) };
    assert_eq!((mirror.name.as_str(), mirror.snaplen), ("m0", 64));
    assert_eq!(mirror.output, MirrorOutput::Port("p3".into()));
    assert_eq!(mirror.sources, MirrorPorts::Named(["p1".to_owned()].into()));
    assert_eq!(bridge().normal.flood_vlans, [9].into());
    await_that("the mirror's counters are told", || {
        server.vsctl("get mirror m0 statistics") == "{tx_bytes=0, tx_packets=0}"
    });
    // Without an output it is none, which keeps nothing else from being.
    server.vsctl("clear mirror m0 output_port -- set bridge br0 flood_vlans=8");
    assert_eq!((bridge().mirrors, bridge().normal.flood_vlans), (Vec::new(), [8].into()));
    server.vsctl("set mirror m0 select_all=true output_vlan=5");
    assert_eq!(bridge().mirrors[0].output, MirrorOutput::Vlan(5));
    server.vsctl("clear bridge br0 mirrors");
    assert!(bridge().mirrors.is_empty());
}

pub fn a_devices_own_counters_are_told() {
    let server = Server::start();
    let daemon = server.daemon();
    daemon.await_configured();
    server.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy -- add-port br0 d1 -- set interface d1 type=dummy");
    let counter = |name: &str| server.vsctl(&format!("get interface d1 statistics:{name}"));
    assert_eq!(["rx_custom_packets_1", "rx_custom_packets_2", "rx_packets"].map(counter), ["0", "0", "0"]);
}

pub fn internal_interfaces_have_the_addresses_of_their_rows() {
    let server = Server::start();
    let daemon = server.daemon();
    daemon.await_configured();
    server.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy other_config:hwaddr=aa:66:aa:66:00:00");
    let [good, other] = ["\"aa:55:c0:ff:ee:00\"", "\"aa:55:c0:ff:ee:01\""];
    server.vsctl(&format!("add-port br0 p1 -- set interface p1 type=internal mac={good}"));
    assert_eq!(server.vsctl("get interface p1 mac_in_use"), good);
    server.vsctl(&format!("set interface p1 mac={other}"));
    assert_eq!(server.vsctl("get interface p1 mac_in_use"), other);
    // A group's address is no host's, and that of the bridge's own port is a matter of the bridge.
    server.vsctl(&format!("set interface p1 mac=\"01:00:00:00:00:01\" -- set interface br0 mac={good}"));
    assert_eq!(
        server.vsctl("get interface p1 mac_in_use -- get interface br0 mac_in_use"),
        format!("{other}\n\"aa:66:aa:66:00:00\"")
    );
    // A device of another type has its own.
    server.vsctl(&format!("add-port br0 p2 -- set interface p2 type=dummy mac={good}"));
    assert_ne!(server.vsctl("get interface p2 mac_in_use"), good);
}

pub fn options_change_while_the_device_stays() {
    let server = Server::start();
    let daemon = server.daemon();
    daemon.await_configured();
    server
        .vsctl("add-br br0 -- set bridge br0 datapath_type=dummy -- set Open_vSwitch . other_config:pmd-cpu-mask=0x3");
    server.vsctl("add-port br0 p1 -- set interface p1 type=dummy-pmd options:n_rxq=2");
    server.vsctl("add-port br0 p2 -- set interface p2 type=dummy-pmd");
    let device = |name: &str| {
        let mut all = daemon.switch.datapath().dummies().into_iter();
        all.find(|device| device.name() == name).unwrap()
    };
    let (before, other) = (device("p1"), device("p2"));
    let queues = |name: &str| {
        let number = daemon.switch.port_status()["br0"].iter().find(|port| port.name == name).unwrap().number;
        let of_pmd = |pmd: sluice_datapath::PmdReport| {
            let of_port = pmd.rxqs.into_iter().filter(move |rxq| Some(rxq.port) == number);
            of_port.map(|rxq| (rxq.queue, pmd.core)).collect::<Vec<_>>()
        };
        let mut all: Vec<_> = daemon.switch.datapath().pmds().into_iter().flat_map(of_pmd).collect();
        all.sort_unstable();
        all
    };
    let numbers = |name: &str| queues(name).into_iter().map(|(queue, _)| queue).collect::<Vec<_>>();
    assert_eq!((numbers("p1"), numbers("p2")), (vec![0, 1], vec![0]));
    let seen = || server.vsctl("get interface p1 ofport mac_in_use statistics:rx_packets");
    let frame = || {
        // Ethernet, of a type that nobody knows.
        [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5][..], &[0; 46]].concat()
    };
    before.receive(0, frame());
    daemon.switch.quiesce();
    let capture = server.socket().with_file_name("p1.pcap");
    server.vsctl(&format!("set interface p1 options:n_rxq=4 options:n_txq=3 options:pcap={}", capture.display()));
    let told = seen();
    assert_eq!(numbers("p1"), [0, 1, 2, 3]);
    assert!(std::sync::Arc::ptr_eq(&before, &device("p1")), "the device was opened again");
    // Queues that are new work, what was counted is not forgotten, and options that go are gone.
    before.receive(3, frame());
    daemon.switch.quiesce();
    assert_eq!(daemon.switch.datapath().ports().iter().map(|port| port.stats.rx_packets).max(), Some(2));
    assert!(capture.metadata().unwrap().len() > 24 + 60);
    server.vsctl("set interface p1 other_config:pmd-rxq-affinity=0:1,2:0");
    let pinned = queues("p1");
    assert_eq!((pinned[0], pinned[2]), ((0, Some(1)), (2, Some(0))));
    server.vsctl("remove interface p1 options n_rxq -- remove interface p1 other_config pmd-rxq-affinity");
    assert_eq!(numbers("p1"), [0]);
    before.receive(0, frame());
    daemon.switch.quiesce();
    assert_eq!(daemon.switch.datapath().ports().iter().map(|port| port.stats.rx_packets).max(), Some(3));
    assert_eq!(seen().lines().take(2).collect::<Vec<_>>(), told.lines().take(2).collect::<Vec<_>>());
    assert!(std::sync::Arc::ptr_eq(&before, &device("p1")) && std::sync::Arc::ptr_eq(&other, &device("p2")));
}
