//! Every command on a switch that runs, its text and its errors.

mod common;

use common::{Daemon, PMD, bridge, from_generator_to_sink, port};
use sluice_fate::Limit;
use std::process::Command;

fn config() -> String {
    from_generator_to_sink("rate = 2000, flows = 10")
}

fn start() -> Daemon {
    Daemon::start_with(&config(), &[("flows.txt", "udp,actions=output:2\n")])
}

fn traffic(daemon: &Daemon) {
    daemon.wait_for(&["coverage/read-counter", "sent"], |n| n.trim().parse::<u64>().unwrap() > 100);
}

#[test]
fn the_process_tells_about_itself() {
    let daemon = start();
    assert_eq!(daemon.ctl(&["version"]), concat!("sluice ", env!("CARGO_PKG_VERSION"), "\n"));
    let commands = daemon.ctl(&["list-commands"]);
    assert!(commands.starts_with("The available commands are:\n"), "{commands}");
    assert!(commands.contains("\n  bridge/add-flow         bridge flow\n"), "{commands}");
    assert!(commands.contains("\n  dpctl/dump-flows        [-m] [--names] [dp] [filter=..] [type=..] [pmd=..]\n"));
    assert!(commands.contains("\n  version                 \n"));
    assert_eq!(daemon.ctl(&["vlog/set", "ctl:dbg"]), "");
    assert!(daemon.ctl(&["vlog/list"]).contains("\nunixctl            DBG        DBG        DBG\n"));
    assert_eq!(daemon.ctl(&["vlog/set", "info"]), "");
    assert!(daemon.log().contains("|unixctl|DBG|received request vlog/list[], id=0\n"), "{}", daemon.log());
    assert!(daemon.ctl(&["memory/show"]).contains("bridges:1 megaflows:"));
}

#[test]
fn wrong_requests_get_ovs_errors() {
    let daemon = start();
    let cases: &[(&[&str], &str)] = &[
        (&["fly"], "\"fly\" is not a valid command (use \"list-commands\" to see a list of valid commands)"),
        (&["dpif/dump-flows"], "\"dpif/dump-flows\" command requires at least 1 arguments"),
        (&["exit", "a", "b"], "\"exit\" command takes at most 1 arguments"),
        (&["exit", "now"], "\"now\": expected --cleanup or nothing"),
        (&["bridge/dump-flows", "brx"], "Unknown bridge"),
        // Commands of ours say what there is.
        (&["bridge/add-flow", "brx", "actions=drop"], "no bridge \"brx\"; expected one of br0"),
        (&["bridge/del-port", "brx", "p1"], "no bridge \"brx\"; expected one of br0"),
        (&["dpif/dump-flows", "brx"], "no such bridge"),
        (&["dpctl/dump-flows", "nodp"], "sluice: datapath not found (Invalid argument)"),
        (&["dpctl/dump-flows", "type=bogus"], "sluice: Failed to parse type (bogus) (Invalid argument)"),
        (&["dpctl/show", "nodp"], "sluice: opening datapath nodp failed (No such device)"),
        (&["coverage/read-counter", "nonsense"], "No such counter"),
        (&["dpctl/get-flow", "ufid:1"], "sluice: parsing flow ufid"),
        (
            &["dpctl/get-flow", "ufid:00000000-0000-0000-0000-000000000001"],
            "sluice: getting flow (No such file or directory)",
        ),
        (
            &["dpctl/cache-set-size", "ovs-netdev", "x", "5"],
            "sluice: Setting caches not supported (Operation not supported)",
        ),
        (&["dpctl/offload-stats-show"], "sluice: retrieving offload statistics (Invalid argument)"),
        (&["dpif/show-dp-features", "brx"], "no such bridge"),
        (&["mdb/show", "br0"], "multicast snooping is disabled"),
        (&["qos/show-types", "p9"], "no such interface"),
        (&["bond/show", "b1"], "no such bond"),
        (&["vlog/set", "nonsense"], "no destination, level, or module \"nonsense\""),
        (&["bridge/del-port", "br0", "nonsense"], "bridge \"br0\" has no port named \"nonsense\""),
    ];
    for (args, error) in cases {
        assert_eq!(daemon.refused(args), *error, "{args:?}");
    }
    assert!(daemon.refused(&["dpctl/dump-flows", "filter=bogus"]).starts_with("sluice: Failed to parse filter ("));
}

#[test]
fn features_of_the_datapath_are_shown_and_turned_off() {
    let daemon = start();
    let shown = daemon.ctl(&["dpif/show-dp-features", "br0"]);
    assert!(shown.contains("\nClone action: Yes\n") && shown.contains("\nMax VLAN headers: 1\n"), "{shown}");
    assert_eq!(daemon.ctl(&["dpif/set-dp-features", "br0", "clone", "false"]), "");
    let clone = daemon.ctl(&["dpif/set-dp-features", "br0", "clone"]);
    assert_eq!(clone, "clone (Clone action) : [run time]:false, [boot time]:true\n");
    assert_eq!(daemon.ctl(&["dpif/set-dp-features", "br0", "wings", "true"]).trim(), "Unexpected support field");
}

#[test]
fn what_this_switch_never_has_is_answered_as_if_none_were_configured() {
    let daemon = start();
    for command in ["stp/show", "rstp/show", "bond/show", "lacp/show", "bfd/show", "cfm/show"] {
        assert_eq!(daemon.ctl(&[command]), "", "{command}");
    }
    assert_eq!(daemon.ctl(&["bond/list"]), "bond\ttype\trecircID\tmembers\n");
    assert_eq!(daemon.ctl(&["qos/show", "br0"]), "QoS not configured on br0\n");
    assert_eq!(daemon.ctl(&["dpctl/cache-get-size"]), "netdev@ovs-netdev:\n");
}

#[test]
fn pmds_are_shown() {
    let daemon = start();
    traffic(&daemon);
    let perf = daemon.ctl(&["dpif-netdev/pmd-perf-show", "-nh"]);
    assert!(
        perf.starts_with("\nTime: ") && perf.contains("\npmd thread numa_id 0 core_id 0:\n\n  Iterations:  "),
        "{perf}"
    );
    for line in ["  - EMC hits:  ", "  - Megaflow hits:  ", "  - Upcalls:  ", "  Tx batches:  ", "  EMC entries:  "] {
        assert!(perf.contains(line), "{line} is not in {perf}");
    }
    assert_eq!(daemon.ctl(&["dpif-netdev/pmd-perf-show", "-pmd", "7"]), "");
    let stats = daemon.ctl(&["dpif-netdev/pmd-stats-show"]);
    assert!(stats.starts_with("pmd thread numa_id 0 core_id 0:\n  packets received: "), "{stats}");
    let rxqs = daemon.ctl(&["dpif-netdev/pmd-rxq-show"]);
    assert!(
        rxqs.starts_with(
            "Displaying last 60 seconds pmd usage %\npmd thread numa_id 0 core_id 0:\n  isolated : false\n"
        ),
        "{rxqs}"
    );
    assert!(rxqs.contains("  port: gen               queue-id:  0 (enabled)   pmd usage: "), "{rxqs}");

    assert_eq!(daemon.ctl(&["dpif-netdev/pmd-rxq-rebalance"]), "pmd rxq rebalance requested.\n");
    assert_eq!(daemon.refused(&["dpif-netdev/pmd-rxq-rebalance", "nodp"]), "please specify an existing datapath");
}

#[test]
fn ports_and_megaflows_are_shown() {
    let daemon = start();
    traffic(&daemon);
    let show = daemon.ctl(&["dpctl/show"]);
    assert!(
        show.starts_with("netdev@ovs-netdev:\n  lookups: hit:")
            && show.contains("  flows: 1\n  port 1: gen (generator: "),
        "{show}"
    );
    assert!(
        daemon
            .ctl(&["dpctl/show", "-s"])
            .contains("  port 2: sink (null: mtu=1500, n_rxq=1, n_txq=64)\n    RX packets:0 errors:0 ")
    );
    let show = daemon.ctl(&["dpif/show"]);
    assert!(show.contains("\n  br0:\n    br0 65534/none: (internal)\n    gen 1/1: (generator: "), "{show}");
    assert_eq!(daemon.ctl(&["dpctl/dump-dps"]), "netdev@ovs-netdev\n");
    assert_eq!(daemon.ctl(&["dpif/dump-dps"]), "netdev@br0\n");
    assert_eq!(daemon.ctl(&["ofproto/list"]), "br0\n");
    assert!(daemon.ctl(&["upcall/show"]).starts_with("netdev@ovs-netdev:\n  flows         : (current 1) (avg "));

    const FLOW: &str =
        "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x0800),ipv4(proto=17,frag=no), packets:";
    let flows = daemon.ctl(&["dpctl/dump-flows"]);
    assert!(
        flows.starts_with(&format!("flow-dump from pmd on cpu core: 0\n{FLOW}")) && flows.ends_with(", actions:2\n"),
        "{flows}"
    );
    let named = daemon.ctl(&["dpctl/dump-flows", "--names", "netdev@ovs-netdev"]);
    assert!(named.contains(",in_port(gen),") && named.ends_with(", actions:sink\n"), "{named}");
    let more = daemon.ctl(&["dpctl/dump-flows", "-m"]);
    assert!(
        more.contains("\nufid:")
            && more.contains(",ipv4(src=1.0.0.1/0.0.0.0,")
            && more.ends_with(", dp:ovs, actions:sink\n"),
        "{more}"
    );
    assert!(daemon.ctl(&["dpif/dump-flows", "br0"]).starts_with(FLOW));
    assert!(daemon.ctl(&["dpif/dump-flows", "-m", "--no-names", "br0"]).starts_with("ufid:"));
    assert!(daemon.ctl(&["dpctl/dump-flows", "pmd=0", "filter=udp"]).starts_with(FLOW));
    for nothing in ["pmd=5", "pmd=-1", "filter=tcp", "type=offloaded"] {
        assert_eq!(daemon.ctl(&["dpctl/dump-flows", nothing]), "", "{nothing}");
    }
}

#[test]
fn without_megaflows_every_field_is_matched() {
    let daemon = start();
    traffic(&daemon);
    let exact = |text: &str| text.lines().filter(|l| l.contains("ipv4(src=") && l.contains("udp(src=")).count();
    daemon.wait_for(&["dpctl/dump-flows"], |text| text.contains("ipv4(proto=17,frag=no)") && exact(text) == 0);
    assert_eq!(daemon.ctl(&["upcall/disable-megaflows"]), "megaflows disabled\n");
    let shown = daemon.wait_for(&["dpctl/dump-flows"], |text| exact(text) == 10);
    assert!(!shown.contains("ipv4(proto=17,frag=no)"), "wide ones are left: {shown}");
    assert_eq!(daemon.ctl(&["upcall/enable-megaflows"]), "megaflows enabled\n");
    daemon.wait_for(&["dpctl/dump-flows"], |text| text.contains("ipv4(proto=17,frag=no)") && exact(text) == 0);
}

#[test]
fn statistics_are_cleared_but_events_are_not() {
    let daemon = start();
    traffic(&daemon);
    daemon.ctl(&["dpif-netdev/pmd-stats-clear"]);
    let stats = daemon.ctl(&["dpif-netdev/pmd-stats-show"]);
    assert!(stats.contains("  miss with success upcall: 0\n"), "{stats}");
    assert_eq!(daemon.ctl(&["coverage/read-counter", "upcalls"]), "1\n");
    assert_eq!(daemon.ctl(&["coverage/read-counter", "dp_packet_batch_grow"]), "0\n");
    let show = daemon.ctl(&["coverage/show"]);
    assert!(
        show.starts_with("Event coverage, avg rate over last: 5 seconds, last minute, last hour,  hash="),
        "{show}"
    );
    assert!(show.contains("/sec   total: ") && show.ends_with(" events never hit\n"), "{show}");
}

#[test]
fn rules_change_while_packets_flow() {
    let daemon = start();
    traffic(&daemon);
    daemon.ctl(&["bridge/add-flow", "br0", "priority=40000,cookie=0x5,udp,nw_src=1.0.0.1,actions=drop"]);
    daemon.ctl(&["revalidator/wait"]);
    daemon.wait_for(&["sluice/drops"], |text| text.starts_with("rules "));
    let rules = daemon.ctl(&["bridge/dump-flows", "br0"]);
    assert!(rules.contains("priority=40000,udp,nw_src=1.0.0.1,actions=drop\n"), "{rules}");
    daemon.wait_for(&["bridge/dump-flows", "br0"], |rules| !rules.lines().next().unwrap().contains("n_packets=0,"));

    daemon.ctl(&["bridge/mod-flows", "br0", "nw_src=1.0.0.1,udp,actions=output:sink"]);
    let rules = daemon.ctl(&["bridge/dump-flows", "br0"]);
    assert!(rules.contains("priority=40000,udp,nw_src=1.0.0.1,actions=output:2\n"), "{rules}");
    daemon.ctl(&["bridge/del-flows", "--strict", "br0", "priority=40000,udp,nw_src=1.0.0.1"]);
    assert_eq!(daemon.ctl(&["bridge/dump-flows", "br0"]).lines().count(), 1);

    let file = daemon.dir.path().join("new.txt");
    std::fs::write(&file, "tcp,actions=drop\narp,actions=drop\n").unwrap();
    daemon.ctl(&["bridge/replace-flows", "br0", file.to_str().unwrap()]);
    let rules = daemon.ctl(&["bridge/dump-flows", "br0"]);
    assert!(rules.lines().count() == 2 && rules.contains(" arp,actions=drop\n"), "{rules}");
    daemon.ctl(&["bridge/del-flows", "br0"]);
    assert_eq!(daemon.ctl(&["bridge/dump-flows", "br0"]), "");

    std::fs::write(&file, "tcp,actions=drop\n\n\n\n\n\nudp,nw_src=300.0.0.1,actions=drop\n").unwrap();
    let error = daemon.refused(&["bridge/replace-flows", "br0", file.to_str().unwrap()]);
    assert!(error.contains("new.txt: line 7, column ") && error.lines().count() == 1, "{error}");
    assert_eq!(daemon.ctl(&["bridge/dump-flows", "br0"]), "");
    std::fs::write(&file, "# a rule, a blank line, and another\nip,actions=drop\n\ncheck_overlap,udp,actions=drop\n")
        .unwrap();
    let error = daemon.refused(&["bridge/replace-flows", "br0", file.to_str().unwrap()]);
    assert!(error.ends_with("new.txt: line 4: another rule of priority 32768 overlaps in table 0"), "{error}");
    assert_eq!(daemon.ctl(&["bridge/dump-flows", "br0"]), "");
    let error = daemon.refused(&["bridge/add-flow", "br0", "udp,actions=fly"]);
    assert!(error.starts_with("line 1, column ") && error.lines().count() == 1, "{error}");
    assert!(daemon.refused(&["bridge/replace-flows", "br0", "/no/such"]).starts_with("/no/such: cannot be read: "));
}

#[test]
fn ports_come_and_go_while_packets_flow() {
    let daemon = start();
    traffic(&daemon);
    daemon.ctl(&["bridge/add-port", "br0", "sink3", "ofport=3", "type=null", "mtu=9000"]);
    daemon.ctl(&["bridge/mod-flows", "br0", "udp,actions=output:sink3"]);
    daemon.wait_for(&["dpctl/show", "-s"], |text| !text.split("sink3").nth(1).unwrap().contains("TX packets:0 "));
    assert_eq!(
        daemon.refused(&["bridge/add-port", "br0", "sink3", "ofport=4", "type=null"]),
        "port sink3: bridge br0 has one of that name already"
    );
    let error = daemon.refused(&["bridge/add-port", "br0", "sink4", "ofport=3", "type=null"]);
    assert!(error.contains("bridge \"br0\" has port 3 already: \"sink3\""), "{error}");
    for (words, error) in [
        (&["type=null"][..], "port x: expected ofport=N, its OpenFlow number from 1 to 65279"),
        (&["ofport=9", "type=nul"], "port.type: this build has no port type \"nul\"; expected one of "),
        (&["ofport=9", "type=null", "speed=1"], "port.options.speed: unknown to type null; expected one of "),
        (&["ofport=9", "type=pcap", "rx=/no/such.pcap"], "port x: /no/such.pcap: "),
    ] {
        let refused = daemon.refused(&[&["bridge/add-port", "br0", "x"], words].concat());
        assert!(refused.starts_with(error) && refused.lines().count() == 1, "{refused}");
    }
    daemon.ctl(&["bridge/del-port", "br0", "sink3"]);
    assert!(!daemon.ctl(&["dpif/show"]).contains("sink3"));
    daemon.wait_for(&["sluice/drops"], |text| text.contains("tx-no-port") || text.contains("rules"));
}

/// What has come by a port meets the rules, and is counted, before the port goes.
#[test]
fn a_port_that_is_removed_at_full_rate_leaves_no_packet_without_a_rule() {
    let config = from_generator_to_sink("flows = 1000");
    let daemon = Daemon::start_with(&config, &[("flows.txt", "udp,actions=output:2\n")]);
    let add = ["bridge/add-port", "br0", "gen", "ofport=1", "type=generator", "flows=1000"];
    for round in 1..=20 {
        traffic(&daemon);
        daemon.ctl(&["bridge/del-port", "br0", "gen"]);
        let count = |name| daemon.ctl(&["coverage/read-counter", name]).trim().parse::<u64>().unwrap();
        let rules = daemon.ctl(&["bridge/dump-flows", "br0"]);
        assert!(rules.contains(&format!("n_packets={}, ", count("received"))), "round {round}: {rules}");
        assert_eq!((count("upcalls_lost"), count("sent")), (0, count("received")));
        daemon.ctl(&add);
    }
}

#[test]
fn stations_and_traces_are_shown() {
    let config = config().replace("flows = \"flows.txt\"", "flows = \"flows.txt\"\nfail-mode = \"standalone\"");
    let daemon = Daemon::start_with(&config, &[("flows.txt", "priority=1,tcp,actions=drop\n")]);
    let shown = daemon.wait_for(&["fdb/show", "br0"], |text| text.contains("02:00:00:00:00:01"));
    assert!(shown.starts_with(" port  VLAN  MAC                Age\n    1     0  02:00:00:00:00:01 "), "{shown}");
    daemon.ctl(&["fdb/add", "br0", "sink", "0", "02:00:00:00:00:99"]);
    assert!(daemon.ctl(&["fdb/show", "br0"]).contains("    2     0  02:00:00:00:00:99  static\n"));
    daemon.ctl(&["fdb/del", "br0", "0", "02:00:00:00:00:99"]);
    assert_eq!(daemon.ctl(&["fdb/flush", "br0"]), "table successfully flushed\n");
    assert!(daemon.ctl(&["fdb/stats-show", "br0"]).contains("br0"));
    assert_eq!(daemon.ctl(&["fdb/stats-clear"]), "statistics successfully cleared\n");
    assert_eq!(daemon.refused(&["fdb/show", "brx"]), "no such bridge");

    let trace = daemon.ctl(&["ofproto/trace", "br0", "in_port=gen,tcp"]);
    assert!(trace.contains("\nbridge(\"br0\")\n-------------\n 0. tcp, priority 1\n    drop\n"), "{trace}");
    assert!(trace.contains("\nDatapath actions: drop\n"), "{trace}");
    assert!(daemon.refused(&["ofproto/trace", "brx", "tcp"]).contains("unknown bridge"));
}

#[test]
fn ovs_appctl_is_the_same_client() {
    let Ok(found) = Command::new("ovs-appctl").arg("--version").output() else {
        return eprintln!("ovs-appctl is not installed: not compared");
    };
    assert!(found.status.success());
    let daemon = start();
    let ask = |args: &[&str]| Command::new("ovs-appctl").arg("-t").arg(daemon.socket()).args(args).output().unwrap();
    let shown = ask(&["version"]);
    assert_eq!((shown.status.code(), String::from_utf8(shown.stdout).unwrap()), (Some(0), daemon.ctl(&["version"])));
    let refused = ask(&["fly"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8(refused.stderr).unwrap().starts_with("\"fly\" is not a valid command (use "));
}

#[test]
fn groups_change_under_traffic() {
    let config = PMD.to_owned()
        + &bridge("br0", "f")
        + "groups = \"g\"\n"
        + &port("gen", 1, "generator", "options = { rate = 2000, flows = 100 }")
        + &port("a", 2, "null", "")
        + &port("b", 3, "null", "");
    let files =
        [("g", "group_id=1,type=select,bucket=output:a,bucket=output:b\n"), ("f", "in_port=gen,actions=group:1\n")];
    let daemon = Daemon::start_with(&config, &files);
    let sent = |daemon: &Daemon, port: &str| {
        let show = daemon.ctl(&["dpctl/show", "-s"]);
        let rest = show.split(&format!(": {port} (")).nth(1).unwrap().split("TX packets:").nth(1).unwrap();
        rest.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let has_more = |daemon: &Daemon, port: &str| {
        let before = sent(daemon, port);
        daemon.wait_for(&["dpctl/show", "-s"], |_| sent(daemon, port) > before + 10);
    };
    ["a", "b"].iter().for_each(|port| has_more(&daemon, port));
    assert_eq!(
        daemon.ctl(&["bridge/dump-groups", "br0"]),
        " group_id=1,type=select,bucket=bucket_id:0,actions=output:a,bucket=bucket_id:1,actions=output:b\n"
    );
    // Without its first bucket, all goes to the second, from the next look at the megaflows on.
    daemon.ctl(&["bridge/remove-buckets", "br0", "group_id=1,command_bucket_id=0"]);
    daemon.ctl(&["revalidator/wait"]);
    let (before_a, before_b) = (sent(&daemon, "a"), sent(&daemon, "b"));
    daemon.wait_for(&["dpctl/show", "-s"], |_| sent(&daemon, "b") > before_b + 100);
    assert!(sent(&daemon, "a") <= before_a + 64, "packets under way, and no more");
    let stats = daemon.ctl(&["bridge/dump-group-stats", "br0"]);
    assert!(stats.starts_with(" group_id=1,duration=") && stats.contains(",ref_count=1,packet_count="), "{stats}");
    assert!(stats.contains(",bucket0:packet_count="), "{stats}");
    daemon.ctl(&[
        "bridge/insert-buckets",
        "br0",
        "group_id=1,command_bucket_id=last,bucket=bucket_id=5,weight=9,output:a",
    ]);
    has_more(&daemon, "a");
    daemon.ctl(&["bridge/mod-group", "br0", "group_id=1,type=all,bucket=output:a,bucket=output:b"]);
    ["a", "b"].iter().for_each(|port| has_more(&daemon, port));
    assert!(daemon.refused(&["bridge/add-group", "br0", "group_id=1,type=all"]).contains("group 1 is there already"));
    assert!(
        daemon
            .refused(&["bridge/add-flow", "br0", "udp,actions=group:9"])
            .contains("there is no such group; add it before")
    );
    // The rules that send to a group go with it.
    daemon.ctl(&["bridge/del-groups", "br0"]);
    assert_eq!(daemon.ctl(&["bridge/dump-flows", "br0"]), "");
    assert_eq!(daemon.ctl(&["bridge/dump-groups", "br0"]), "");
}

#[test]
fn meters_limit_and_go_with_their_rules() {
    let config = PMD.to_owned()
        + &bridge("br0", "f")
        + "meters = \"m\"\n"
        + &port("gen", 1, "generator", "options = { rate = 5000 }")
        + &port("sink", 2, "null", "");
    let files =
        [("m", "meter=1 pktps bands=type=drop rate=100\n"), ("f", "udp,actions=meter:1,output:2\nactions=output:2\n")];
    let daemon = Daemon::start_with(&config, &files);
    daemon.wait_for(&["bridge/meter-stats", "br0"], |text| !text.contains("0: packet_count:0 "));
    let stats = daemon.ctl(&["bridge/meter-stats", "br0"]);
    assert!(
        stats.starts_with("meter:1 flow_count:1 packet_in_count:") && stats.contains("s bands:\n0: packet_count:"),
        "{stats}"
    );
    assert_eq!(daemon.ctl(&["bridge/dump-meters", "br0"]), "meter=1 pktps bands=\ntype=drop rate=100\n");
    assert!(daemon.ctl(&["dpctl/dump-flows"]).contains("actions:meter(0),2"), "{}", daemon.ctl(&["dpctl/dump-flows"]));
    daemon.ctl(&["bridge/mod-meter", "br0", "meter=1 kbps burst bands=type=drop rate=1000000 burst_size=1000000"]);
    assert!(
        daemon.ctl(&["bridge/dump-meters", "br0"]).starts_with("meter=1 kbps burst bands=\ntype=drop rate=1000000")
    );
    for (args, expected) in [
        (["bridge/add-meter", "br0", "meter=1 pktps bands=type=drop rate=1"], "meter 1 is there already"),
        (["bridge/mod-meter", "br0", "meter=2 pktps bands=type=drop rate=1"], "there is no meter 2"),
        (["bridge/add-meter", "br0", "meter=2 pktps bands=type=dscp_remark rate=1 prec_level=1"], "bands of type drop"),
        (["bridge/add-flow", "br0", "tcp,actions=meter:9,output:2"], "meter:9: there is no such meter"),
    ] {
        let error = daemon.refused(&args);
        assert!(error.contains(expected), "{error}");
    }
    daemon.ctl(&["bridge/del-meters", "br0", "meter=1"]);
    assert_eq!(daemon.ctl(&["bridge/dump-flows", "br0"]).lines().count(), 1);
    assert_eq!(daemon.ctl(&["bridge/dump-meters", "br0"]), "");
}

/// More rules and groups than are written at a time: each is there once, in order, and counted.
#[test]
fn long_dumps_have_all_of_it() {
    const RULES: usize = 3000;
    let daemon = start();
    let groups: Vec<_> = (1..=100).map(|id| format!("group_id={id},type=all,bucket=output:1")).collect();
    groups.iter().for_each(|group| _ = daemon.ctl(&["bridge/add-group", "br0", group]));
    let file = daemon.dir.path().join("many");
    let lines: String =
        (0..RULES).map(|n| format!("table=3,priority=7,reg0={n},actions=group:{}\n", 1 + n % 100)).collect();
    std::fs::write(&file, lines).unwrap();
    daemon.ctl(&["bridge/replace-flows", "br0", file.to_str().unwrap()]);
    let dump = daemon.ctl(&["bridge/dump-flows", "br0"]);
    let numbers: Vec<usize> = dump
        .lines()
        .filter_map(|line| {
            let number = line.split("reg0=0x").nth(1).or_else(|| line.contains("reg0=0,").then_some("0,"))?;
            usize::from_str_radix(number.split([',', ' ']).next()?, 16).ok()
        })
        .collect();
    assert_eq!(dump.lines().count(), RULES);
    assert_eq!(numbers, (0..RULES).collect::<Vec<_>>());
    let shown = daemon.ctl(&["bridge/dump-groups", "br0"]);
    assert_eq!(shown.lines().count(), groups.len());
    let stats = daemon.ctl(&["bridge/dump-group-stats", "br0"]);
    assert_eq!(stats.matches("ref_count=30,").count(), groups.len(), "{stats}");
}

#[test]
fn limits_are_shown_with_their_use() {
    let daemon = start();
    traffic(&daemon);
    let shown = daemon.ctl(&["sluice/limits-show"]);
    let column = |name: &str, n: usize| {
        let line = shown.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {shown}"));
        line.split_whitespace().nth(n).unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(column("limit-flow-memory", 2), 256 << 20);
    assert!(column("limit-flow-memory", 1) > 500 && column("limit-megaflows", 1) >= 1, "{shown}");
    assert_eq!(column("limit-rule-memory", 2), 2 << 30);
    assert!(column("limit-rule-memory", 1) > 500, "{shown}");
    // All but the bounds on one packet, request or message at a time say what is in use, and its peak.
    for limit in Limit::ALL {
        let line = shown.lines().find(|line| line.split(' ').next() == Some(limit.name())).unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        let numbers = [1, 2, 4].map(|at| words[at].parse::<u64>().ok());
        match (limit.is_of_each(), numbers) {
            (false, [Some(used), Some(bound), Some(peak)]) => assert!(used <= peak && bound > 0, "{line}"),
            (true, [None, None, None]) => assert_eq!([words[1], words[2], words[4]], ["-"; 3]),
            _ => panic!("{line}"),
        }
    }
    // The one that asks, and what the configuration has.
    assert!(column("limit-control-connections", 1) >= 1 && column("limit-control-connections", 2) == 64, "{shown}");
    assert_eq!([column("limit-connections", 2), column("limit-expectations", 2)], [256, 16_384]);
    assert_eq!([column("limit-expectations", 1), column("limit-deletion-notices", 2)], [0, 1 << 18]);
    assert_eq!((column("limit-bundle-memory", 1), column("limit-bundle-memory", 2)), (0, 256 << 20));
}

#[test]
fn two_ports_with_sessions_find_each_other() {
    let ends = "[[bridge]]\nname = \"a\"\n[[bridge.port]]\nname = \"p0\"\nofport = 1\ntype = \"patch\"\noptions = { peer = \"p1\" }\n\
                bfd = { min-tx = 1000, min-rx = 1000 }\n[[bridge]]\nname = \"b\"\n[[bridge.port]]\nname = \"p1\"\nofport = 1\n\
                type = \"patch\"\noptions = { peer = \"p0\" }\nbfd = { min-tx = 1000, min-rx = 1000 }\n";
    let daemon = Daemon::start_with(&format!("{}{ends}", config()), &[("flows.txt", "udp,actions=output:2\n")]);
    for name in ["p0", "p1"] {
        daemon.wait_for(&["bfd/show", name], |text| text.contains("Remote Session State: up\n"));
    }
    let all = daemon.ctl(&["bfd/show"]);
    assert!(all.starts_with("---- p0 ----\n  Forwarding: true\n") && all.contains("---- p1 ----\n"), "{all}");
    assert_eq!(daemon.ctl(&["bfd/set-forwarding", "p0", "false"]).trim(), "OK");
    assert!(daemon.ctl(&["bfd/show", "p0"]).starts_with("  Forwarding: false\n"));
    assert_eq!(daemon.refused(&["bfd/set-forwarding", "p9", "true"]), "no such BFD object");
    assert_eq!(daemon.refused(&["bfd/set-forwarding", "maybe"]), "unknown fault string");
    assert_eq!(daemon.refused(&["bfd/show", "p9"]), "no such bfd object");
}
