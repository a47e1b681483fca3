//! Settings: in force when `ovs-vsctl` returns, and no longer once they are removed.

use super::rig::Server;
use sluice_conntrack::Timeout;
use sluice_vswitch::DesiredState;

pub fn zones_have_the_timeouts_of_their_rows() {
    let server = Server::start();
    let daemon = server.daemon();
    daemon.await_configured();
    let timeouts = || daemon.switch.datapath().conntrack().timeouts();
    server.vsctl("-- --id=@dp create Datapath datapath_version=0 -- set Open_vSwitch . datapaths:netdev=@dp");
    let capability = |name: &str| server.vsctl(&format!("get Datapath . capabilities:{name}"));
    let capabilities = ["ct_zero_snat", "max_vlan_headers", "sample_nesting", "tnl_push_pop", "ct_flush"];
    assert_eq!(capabilities.map(capability), ["\"true\"", "\"1\"", "\"true\"", "\"false\"", "\"true\""]);
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
    let normal = || daemon.switch.state().bridge("br0").unwrap().normal;
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
    server.vsctl("add-port br0 p1 -- set interface p1 type=null bfd:enable=true ingress_policing_rate=100");
    let status = "{bfd=unsupported, ingress_policing_rate=unsupported}";
    assert_eq!(server.vsctl("get interface p1 status"), status);
    server.vsctl("set bridge br0 stp_enable=true mcast_snooping_enable=true");
    assert_eq!(server.vsctl("get bridge br0 status"), "{mcast_snooping_enable=unsupported, stp_enable=unsupported}");
    server.vsctl("clear interface p1 bfd -- set interface p1 ingress_policing_rate=0 lldp:enable=true");
    server.vsctl("set bridge br0 stp_enable=false mcast_snooping_enable=false");
    assert_eq!(server.vsctl("get interface p1 status -- get bridge br0 status"), "{}\n{}");
}

pub fn a_devices_own_counters_are_told() {
    let server = Server::start();
    let daemon = server.daemon();
    daemon.await_configured();
    server.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy -- add-port br0 d1 -- set interface d1 type=dummy");
    let counter = |name: &str| server.vsctl(&format!("get interface d1 statistics:{name}"));
    assert_eq!(["rx_custom_packets_1", "rx_custom_packets_2", "rx_packets"].map(counter), ["0", "0", "0"]);
}
