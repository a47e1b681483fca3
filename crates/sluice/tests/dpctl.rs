//! Datapaths, ports and megaflows that a user makes by `dpctl`.

mod common;

use common::{Daemon, PMD, bridge, port};

const DP: &str = "dummy@dp0";
const KEY: &str = "in_port(1),eth(src=00:00:00:00:00:01,dst=00:00:00:00:00:02),eth_type(0x0800),ipv4(src=10.0.0.0/255.0.0.0,proto=17,frag=no)";
const PACKET: &str = "in_port(1),eth(src=00:00:00:00:00:01,dst=00:00:00:00:00:02),eth_type(0x0800),\
                      ipv4(src=10.1.2.3,dst=10.0.0.9,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=2)";

/// A switch whose own datapath sends UDP from the dummy p1 to p2.
fn start() -> Daemon {
    let ports = port("p1", 1, "dummy", "") + &port("p2", 2, "dummy", "") + &port("p3", 3, "dummy", "");
    let config = PMD.to_owned() + &bridge("br0", "flows.txt") + &ports;
    let daemon = Daemon::start_with(&config, &[("flows.txt", "in_port=1,udp,actions=output:2\n")]);
    daemon.ctl(&["netdev-dummy/set-admin-state", "up"]);
    daemon
}

/// What a port of the datapath has sent.
fn sent(daemon: &Daemon, datapath: &str, port: &str) -> u64 {
    let shown = daemon.ctl(&["dpctl/show", "-s", datapath]);
    let (_, of_port) = shown.split_once(&format!(": {port} (")).unwrap_or_else(|| panic!("{port}: {shown}"));
    let (_, tx) = of_port.split_once("TX packets:").unwrap();
    tx.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_datapath_that_a_user_makes_carries_what_its_megaflows_say() {
    let daemon = start();
    assert_eq!(daemon.ctl(&["dpctl/add-dp", DP]), "");
    assert_eq!(daemon.refused(&["dpctl/add-dp", DP]), "sluice: add_dp (File exists)");
    assert_eq!(daemon.ctl(&["dpctl/dump-dps"]), "netdev@ovs-netdev\ndummy@dp0\n");
    assert_eq!(daemon.ctl(&["dpctl/add-if", DP, "v1,type=dummy,port_no=1", "v2,type=dummy"]), "");
    assert_eq!(
        daemon.refused(&["dpctl/add-if", DP, "v2,type=dummy"]),
        "sluice: adding v2 to dummy@dp0 failed (File exists)"
    );
    let taken = "sluice: adding v3 to dummy@dp0 failed (Device or resource busy)";
    assert_eq!(daemon.refused(&["dpctl/add-if", DP, "v3,type=dummy,port_no=2"]), taken);
    // Without a megaflow nothing passes.
    daemon.ctl(&["netdev-dummy/receive", "v1", PACKET]);
    assert_eq!(sent(&daemon, DP, "v2"), 0);
    assert_eq!(daemon.ctl(&["dpctl/add-flow", DP, KEY, "set(ipv4(ttl=9)),v2"]), "");
    for _ in 0..3 {
        daemon.ctl(&["netdev-dummy/receive", "v1", PACKET]);
    }
    assert_eq!(sent(&daemon, DP, "v2"), 3);
    let flows = daemon.ctl(&["dpctl/dump-flows", DP]);
    let flow = format!("recirc_id(0),{KEY}, packets:3, bytes:318, used:");
    assert!(flows.contains(&flow) && flows.ends_with("actions:set(ipv4(ttl=9)),2\n"), "{flows}");
    assert_eq!(daemon.refused(&["dpctl/add-flow", DP, KEY, "1"]), "sluice: updating flow table (File exists)");
    let stats = daemon.ctl(&["dpctl/mod-flow", "-s", DP, KEY, "drop"]);
    assert!(stats.starts_with("packets:3, bytes:318, used:"), "{stats}");
    daemon.ctl(&["netdev-dummy/receive", "v1", PACKET]);
    assert_eq!(sent(&daemon, DP, "v2"), 3);
    let flows = daemon.ctl(&["dpctl/dump-flows", "--names", "dp0"]);
    assert!(
        flows.contains("in_port(v1)") && flows.contains("packets:4") && flows.ends_with("actions:drop\n"),
        "{flows}"
    );
    assert_eq!(daemon.ctl(&["dpctl/del-flow", DP, KEY]), "");
    assert_eq!(daemon.ctl(&["dpctl/dump-flows", DP]), "");
    assert_eq!(daemon.ctl(&["dpctl/del-if", DP, "v2", "1"]), "");
    assert_eq!(daemon.refused(&["dpctl/del-if", DP, "v2"]), "sluice: no port named v2");
    let local = daemon.refused(&["dpctl/del-if", DP, "dp0"]);
    assert_eq!(local, "sluice: deleting port dp0 from dummy@dp0 failed (Invalid argument)");
    assert_eq!(daemon.ctl(&["dpctl/del-dp", DP]), "");
    assert_eq!(daemon.refused(&["dpctl/del-dp", DP]), "sluice: opening datapath (No such device)");
    assert_eq!(daemon.ctl(&["dpctl/dump-dps"]), "netdev@ovs-netdev\n");
}

#[test]
fn the_tables_judge_what_is_put_into_the_switchs_own_datapath() {
    let daemon = start();
    daemon.ctl(&["revalidator/pause"]);
    assert_eq!(daemon.ctl(&["dpctl/add-flow", KEY, "3"]), "");
    daemon.ctl(&["netdev-dummy/receive", "p1", PACKET]);
    assert_eq!(sent(&daemon, "ovs-netdev", "p3"), 1, "until then it is followed");
    daemon.ctl(&["revalidator/resume"]);
    // The rules send to 2, and look at no bit that the megaflow leaves open.
    daemon.wait_for(&["dpctl/dump-flows"], |flows| flows.contains(KEY) && flows.contains("actions:2\n"));
    daemon.ctl(&["netdev-dummy/receive", "p1", PACKET]);
    assert_eq!((sent(&daemon, "ovs-netdev", "p2"), sent(&daemon, "ovs-netdev", "p3")), (1, 1));
    // One that leaves open what the rules look at goes.
    daemon.ctl(&["dpctl/del-flows"]);
    daemon.ctl(&["revalidator/pause"]);
    assert_eq!(daemon.ctl(&["dpctl/add-flow", "in_port(1),eth(),eth_type(0x0800)", "3"]), "");
    let wide = "recirc_id(0),in_port(1),eth(),eth_type(0x0800), packets:0, bytes:0, used:never, actions:3\n";
    assert!(daemon.ctl(&["dpctl/dump-flows"]).contains(wide));
    daemon.ctl(&["revalidator/resume"]);
    daemon.wait_for(&["dpctl/dump-flows"], |flows| !flows.contains(wide));
}

#[test]
fn flows_are_put_by_file_and_wrong_ones_are_refused() {
    let daemon = start();
    daemon.ctl(&["dpctl/add-dp", DP]);
    let key = |last: u8| format!("in_port(1),eth(src=00:00:00:00:00:01,dst=00:00:00:00:00:0{last}),eth_type(0x1234)");
    let [a, b, c] = [1, 2, 3].map(key);
    let text = format!("# three\nadd {a} 1\n{b} 2 # two\nadd {c} 3\n\nmodify {a} drop\ndelete {b}\nadd\n");
    let file = daemon.dir.path().join("flows");
    std::fs::write(&file, text).unwrap();
    let told = daemon.ctl(&["dpctl/add-flows", DP, file.to_str().unwrap()]);
    assert_eq!(told, "sluice: Failed parsing line number 8, skipped!\n");
    let flows = daemon.ctl(&["dpctl/dump-flows", DP, "pmd=-1"]);
    assert!(
        flows.contains(&a) && !flows.contains(&b) && flows.contains(&c) && flows.contains("actions:drop\n"),
        "{flows}"
    );
    let ufid = daemon.ctl(&["dpctl/dump-flows", "-m", DP, "pmd=-1"])[..41].to_owned();
    assert!(daemon.ctl(&["dpctl/get-flow", DP, &ufid]).contains("actions:"));
    assert_eq!(daemon.ctl(&["dpctl/del-flow", DP, &ufid]), "");
    assert_eq!(daemon.ctl(&["dpctl/del-flows", DP]), "");
    assert_eq!(daemon.ctl(&["dpctl/dump-flows", DP]), "");
    let cases: &[(&[&str], &str)] = &[
        (&["dpctl/add-flow", DP, "eth(),eth_type(0x0800)", "1"], "sluice: updating flow table (Invalid argument)"),
        (&["dpctl/mod-flow", DP, &a, "1"], "sluice: updating flow table (No such file or directory)"),
        (&["dpctl/add-flow", "dummy@none", &a, "1"], "sluice: datapath not found (Invalid argument)"),
        (&["dpctl/set-if", DP, "dp0,type=system"], "sluice: dp0: can't change type from dummy-internal to system"),
        (&["dpctl/set-if", DP, "dp0,port_no=7"], "sluice: dp0: can't change port number from 0 to 7"),
        (&["dpctl/del-dp", "netdev@ovs-netdev"], "sluice: del_dp (Device or resource busy)"),
    ];
    for (args, error) in cases {
        assert_eq!(daemon.refused(args), *error, "{args:?}");
    }
    let unknown = daemon.refused(&["dpctl/add-flow", DP, &a, "userspace(pid=1)"]);
    assert!(unknown.starts_with("sluice: parsing actions (line 1, column 1: found \"userspace\""), "{unknown}");
    assert_eq!(daemon.ctl(&["dpctl/mod-flow", "--may-create", DP, &a, "1"]), "");
}

#[test]
fn datapaths_and_files_of_flows_are_bounded() {
    let daemon = start();
    (0..16).for_each(|n| assert_eq!(daemon.ctl(&["dpctl/add-dp", &format!("dummy@d{n}")]), ""));
    assert!(daemon.refused(&["dpctl/add-dp", "dummy@another"]).starts_with("sluice: add_dp ("));
    let file = daemon.dir.path().join("flows");
    std::fs::File::create(&file).unwrap().set_len((16 << 20) + 1).unwrap();
    assert!(daemon.refused(&["dpctl/add-flows", "dummy@d0", file.to_str().unwrap()]).contains("file too large"));
    let limits = daemon.ctl(&["sluice/limits-show"]);
    for name in ["limit-datapaths", "limit-dpctl-file"] {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        assert_eq!(line.split_whitespace().nth(3), Some("1"), "{line}");
    }
    daemon.ctl(&["dpctl/del-dp", "dummy@d3"]);
    assert_eq!(daemon.ctl(&["dpctl/add-dp", "dummy@another"]), "");
}

#[test]
fn a_port_of_no_bridge_is_sent_to() {
    let daemon = start();
    assert_eq!(daemon.ctl(&["dpctl/add-if", "netdev@ovs-netdev", "v9,type=dummy"]), "");
    assert!(daemon.ctl(&["dpctl/show"]).contains("  port 9: v9 (dummy)\n"));
    daemon.ctl(&["revalidator/pause"]);
    assert_eq!(daemon.ctl(&["dpctl/add-flow", KEY, "v9"]), "");
    daemon.ctl(&["netdev-dummy/receive", "p1", PACKET]);
    assert_eq!(sent(&daemon, "ovs-netdev", "v9"), 1);
    assert_eq!(daemon.ctl(&["dpctl/del-if", "ovs-netdev", "v9"]), "");
    assert!(!daemon.ctl(&["dpctl/show"]).contains("v9"));
    // A bridge's port goes, too.
    assert_eq!(daemon.ctl(&["dpctl/del-if", "ovs-netdev", "p3"]), "");
    assert!(!daemon.ctl(&["dpif/show"]).contains("p3"));
}
