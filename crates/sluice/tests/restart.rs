//! Rules, groups and meters outlast an orderly end, if the configuration says so.

mod common;

use common::{Daemon, PMD, bridge, port};

const FILES: &[(&str, &str)] = &[("f", "priority=1,actions=drop\n"), ("g", "group_id=9,type=all,bucket=output:1\n")];

fn config(keeps: &str) -> String {
    PMD.replace("cores = [0]\n", &format!("cores = [0]\n{keeps}"))
        + &bridge("br0", "f").replace("flows", "groups = \"g\"\nflows")
        + &port("p1", 1, "null", "")
        + &port("p2", 2, "null", "")
}

/// The tables, without what changes with time.
fn tables(daemon: &Daemon) -> [String; 3] {
    let flows = daemon.ctl(&["bridge/dump-flows", "br0"]);
    let changes = ["duration=", "n_packets=", "n_bytes="];
    let stays = |line: &str| {
        let words = line.split(", ").filter(|word| !changes.iter().any(|name| word.trim().starts_with(name)));
        words.collect::<Vec<_>>().join(", ") + "\n"
    };
    let mut flows: Vec<String> = flows.lines().map(stays).collect();
    flows.sort();
    [flows.concat(), daemon.ctl(&["bridge/dump-groups", "br0"]), daemon.ctl(&["bridge/dump-meters", "br0"])]
}

/// Changes that a controller or operator makes: of every kind, and of what the files have loaded, too.
fn change(daemon: &Daemon) {
    let meter = "meter=7,kbps,burst,bands=type=drop rate=900 burst_size=77";
    daemon.ctl(&["bridge/add-meter", "br0", meter]);
    daemon.ctl(&["bridge/del-groups", "br0", "group_id=9"]);
    let group = "group_id=1,type=select,selection_method=hash,fields(ip_src,tcp_dst),bucket=weight:3,output:1,bucket=weight:1,output:2";
    daemon.ctl(&["bridge/add-group", "br0", group]);
    daemon.ctl(&["bridge/del-flows", "br0"]);
    let flows = [
        "cookie=0x12,priority=9,send_flow_rem,importance=3,tcp,nw_dst=10.0.0.0/8,tp_dst=0x50/0xfff0,actions=meter:7,group:1",
        "table=3,hard_timeout=600,idle_timeout=300,ipv6,ipv6_src=fd00::/8,actions=learn(table=4,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),resubmit(,4)",
        "ct_state=-trk,ip,actions=ct(table=3,zone=5,nat)",
        "priority=5,in_port=2,actions=conjunction(4,1/2)",
        "actions=NORMAL",
    ];
    flows.iter().for_each(|flow| _ = daemon.ctl(&["bridge/add-flow", "br0", flow]));
}

#[test]
fn tables_survive_an_orderly_restart() {
    let daemon = Daemon::start_with(&config("keep-tables = true\n"), FILES);
    change(&daemon);
    let before = tables(&daemon);
    assert!(before[0].contains("conjunction(4,1/2)") && !before[0].contains("priority=1,"), "{}", before[0]);
    assert!(before[1].contains("group_id=1") && before[2].contains("meter=7"), "{before:?}");
    let mut dir = daemon.signal("TERM").dir;
    // Twice: what was restored is saved again.
    for _ in 0..2 {
        let daemon = Daemon::start_again(dir);
        assert_eq!(tables(&daemon), before, "{}", daemon.log());
        assert!(!daemon.dir.path().join("run/tables").exists());
        // The files have not changed since they were loaded.
        daemon.ctl(&["sluice/reload"]);
        assert_eq!(tables(&daemon), before);
        dir = daemon.signal("TERM").dir;
    }
}

#[test]
fn a_crash_begins_with_the_files_and_so_does_a_switch_that_keeps_nothing() {
    let daemon = Daemon::start_with(&config("keep-tables = true\n"), FILES);
    let loaded = tables(&daemon);
    change(&daemon);
    let dir = daemon.signal("TERM").dir;
    let daemon = Daemon::start_again(dir);
    assert_ne!(tables(&daemon), loaded);
    // The socket of a switch that was killed is in the way of the wait for the next one's.
    let socket = daemon.socket();
    let dir = daemon.signal("KILL").dir;
    std::fs::remove_file(socket).unwrap();
    let daemon = Daemon::start_again(dir);
    assert_eq!(tables(&daemon), loaded);
    change(&daemon);
    let dir = daemon.signal("TERM").dir;
    assert!(dir.path().join("run/tables/br0.flows").exists());
    let text = std::fs::read_to_string(dir.path().join("switch.toml")).unwrap();
    std::fs::write(dir.path().join("switch.toml"), text.replace("keep-tables = true\n", "")).unwrap();
    let daemon = Daemon::start_again(dir);
    assert_eq!(tables(&daemon), loaded);
    assert!(!daemon.dir.path().join("run/tables").exists(), "a later start must not find old ones");
}

#[test]
fn tables_that_are_refused_leave_those_of_the_files() {
    let daemon = Daemon::start_with(&config("keep-tables = true\n"), FILES);
    let loaded = tables(&daemon);
    let dir = daemon.signal("TERM").dir;
    std::fs::write(dir.path().join("run/tables/br0.flows"), "actions=fly\n").unwrap();
    let daemon = Daemon::start_again(dir);
    assert_eq!(tables(&daemon), loaded);
    let log = daemon.log();
    assert!(log.contains("bridge br0: does not get the tables of before the restart") && log.contains("fly"), "{log}");
}

#[test]
fn tables_that_another_version_has_written_are_refused_by_its_number() {
    let daemon = Daemon::start_with(&config("keep-tables = true\n"), FILES);
    let loaded = tables(&daemon);
    change(&daemon);
    let changed = tables(&daemon);
    let dir = daemon.signal("TERM").dir;
    let version = dir.path().join("run/tables/version");
    assert_eq!(std::fs::read_to_string(&version).unwrap(), "1\n");
    std::fs::write(&version, "2\n").unwrap();
    let daemon = Daemon::start_again(dir);
    assert_eq!(tables(&daemon), loaded);
    let refusal = "tables of before the restart are not read: they are of version 2, and this program reads version 1";
    assert!(daemon.log().contains(refusal), "{}", daemon.log());
    // They wait for the program that can read them.
    assert!(daemon.dir.path().join("run/tables.new/br0.flows").exists());
    // What was written before there was a version is read.
    change(&daemon);
    let dir = daemon.signal("TERM").dir;
    std::fs::remove_file(dir.path().join("run/tables/version")).unwrap();
    assert_eq!(tables(&Daemon::start_again(dir)), changed);
}

#[test]
fn many_rules_are_kept() {
    const RULES: usize = 150_000;
    let rule = |n: usize| format!("tcp,nw_dst=10.{}.{}.{},actions=drop\n", n >> 16, n >> 8 & 255, n & 255);
    let rules: String = (0..RULES).map(rule).collect();
    let daemon = Daemon::start_with(&config("keep-tables = true\n"), &[FILES[1], ("f", &rules)]);
    daemon.ctl(&["bridge/add-flow", "br0", "table=7,priority=77,actions=drop"]);
    let ended = daemon.signal("TERM");
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    let kept = std::fs::read_to_string(ended.dir.path().join("run/tables/br0.flows")).unwrap();
    assert_eq!(kept.lines().count(), RULES + 1);
    let daemon = Daemon::start_again(ended.dir);
    assert!(daemon.log().contains("bridge br0: has the rules"), "{}", daemon.log());
    assert!(daemon.ctl(&["bridge/dump-flows", "br0"]).contains("priority=77"));
}
