//! What happens to a switch is in its log: a line for each port, file of rules, controller, limit and reload.
#![forbid(unsafe_code)]

mod common;

use common::{Daemon, PMD, bridge, port};
use sluice_openflow::{Message, Version};
use std::io::Write;
use std::net::{Shutdown, TcpListener};

/// How many lines of the log contain `text`.
fn count(daemon: &Daemon, text: &str) -> usize {
    daemon.log().lines().filter(|line| line.contains(text)).count()
}

/// A port that another one of the same name may replace.
fn capture(dir: &Daemon) -> std::path::PathBuf {
    dir.dir.path().join("late.pcap")
}

#[test]
fn a_port_is_added_when_it_is_open_and_not_before() {
    let ports = port("p1", 1, "null", "") + &port("late", 2, "pcap", "options = { rx = \"late.pcap\" }");
    let daemon = Daemon::start_with(&(PMD.to_owned() + &bridge("br0", "f") + &ports), &[("f", "")]);
    assert_eq!(count(&daemon, "|bridge|INFO|bridge br0: added interface p1 on port 1"), 1, "{}", daemon.log());
    assert_eq!(count(&daemon, "|ERR|port late: "), 1, "{}", daemon.log());
    assert_eq!(count(&daemon, "added interface late"), 0, "{}", daemon.log());
    let empty = [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];
    std::fs::write(capture(&daemon), empty).unwrap();
    daemon.wait_for_log("|INFO|bridge br0: port late could be opened now");

    // By command: one that opens and goes again, and one that does not open, which its user is told of.
    daemon.ctl(&["bridge/add-port", "br0", "p3", "ofport=3", "type=null"]);
    daemon.wait_for_log("|INFO|bridge br0: added interface p3 on port 3");
    daemon.ctl(&["bridge/del-port", "br0", "p3"]);
    daemon.wait_for_log("|INFO|bridge br0: deleted interface p3 on port 3");
    daemon.refused(&["bridge/add-port", "br0", "p4", "ofport=4", "type=pcap", "rx=/no/such.pcap"]);
    assert_eq!(count(&daemon, "added interface p4"), 0, "{}", daemon.log());
}

/// The other end of a vhost-user socket is not there: that is a link without a peer.
#[test]
fn a_link_that_is_down_is_a_line() {
    let config = PMD.to_owned()
        + &bridge("br0", "f")
        + &port("vm", 1, "vhost-user", "options = { path = \"vm.sock\", mode = \"server\" }");
    let daemon = Daemon::start_with(&config, &[("f", "")]);
    daemon.wait_for_log("|INFO|bridge br0: added interface vm on port 1");
    daemon.wait_for_log("|INFO|bridge br0: port vm is down");
}

#[test]
fn rules_that_are_loaded_are_counted_with_their_file() {
    let config = PMD.to_owned() + &bridge("br0", "f") + "groups = \"g\"\n" + &port("p1", 1, "null", "");
    let groups = "group_id=1,type=all,bucket=output:p1\n";
    let daemon = Daemon::start_with(&config, &[("f", "udp,actions=drop\ntcp,actions=group:1\n"), ("g", groups)]);
    let path = |name: &str| daemon.dir.path().join(name).display().to_string();
    let log = daemon.log();
    for line in [
        format!("|INFO|bridge br0: groups loaded from {}: 1", path("g")),
        format!("|INFO|bridge br0: rules loaded from {}: 2", path("f")),
    ] {
        assert!(log.contains(&line), "no line {line}: {log}");
    }
    std::fs::write(path("other"), "icmp,actions=drop\n").unwrap();
    daemon.ctl(&["bridge/replace-flows", "br0", &path("other")]);
    daemon.wait_for_log(&format!("|INFO|bridge br0: rules loaded from {}: 1", path("other")));
}

/// By command, as by SIGHUP.
#[test]
fn a_reload_is_a_line_for_each_step() {
    let ports = port("p1", 1, "null", "");
    let config = PMD.to_owned() + &bridge("br0", "f") + &ports;
    let daemon = Daemon::start_with(&config, &[("f", "udp,actions=drop\n")]);
    daemon.ctl(&["sluice/reload"]);
    daemon.wait_for_log("|INFO|reload: nothing changed");
    std::fs::write(daemon.dir.path().join("f"), "tcp,actions=drop\nudp,actions=drop\n").unwrap();
    daemon.configure(&(config.clone() + &port("p2", 2, "null", "")));
    daemon.ctl(&["sluice/reload"]);
    for line in ["|INFO|reload: br0: port p2 added", "|INFO|reload: br0: rules replaced", "/f: 2"] {
        daemon.wait_for_log(line);
    }
    let missing = port("p3", 3, "pcap", "options = { rx = \"missing.pcap\" }");
    daemon.configure(&(config + &missing));
    daemon.refused(&["sluice/reload"]);
    daemon.wait_for_log("|ERR|reload: port p3: ");
    daemon.wait_for_log("|INFO|reload: br0: port p2 removed");
    daemon.configure("[[bridge]]\nname = \"br0\"\ncolour = \"red\"\n");
    daemon.refused(&["sluice/reload"]);
    daemon.wait_for_log("|ERR|reload: ");
    daemon.wait_for_log("bridge[0].colour: unknown field");
}

#[test]
fn a_controller_that_comes_and_goes_is_a_line_each() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("tcp:{}", listener.local_addr().unwrap());
    let daemon = Daemon::start(&format!("{PMD}[[bridge]]\nname = \"br0\"\ncontrollers = [\"{target}\"]\n"));
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(&Message::Hello(Some(Version::V13.bit())).write(Version::V13, 1)).unwrap();
    daemon.wait_for_log(&format!("|rconn|INFO|br0<->{target}: connecting..."));
    daemon.wait_for_log(&format!("|rconn|INFO|br0<->{target}: connected"));
    // An end with unread data would be a reset.
    drop(listener);
    stream.shutdown(Shutdown::Write).unwrap();
    daemon.wait_for_log(&format!("|rconn|INFO|br0<->{target}: connection closed by peer"));
    daemon.wait_for_log(&format!("|rconn|INFO|br0<->{target}: connection failed ("));
}

#[test]
fn a_limit_that_is_met_is_a_line_with_what_sets_it() {
    let config = PMD.replace("[switch]\n", "[switch]\nrule-memory = \"64KiB\"\n") + &bridge("br0", "f");
    let daemon = Daemon::start_with(&config, &[("f", "")]);
    let rules: String = (0..10_000).map(|n| format!("priority={n},actions=drop\n")).collect();
    let file = daemon.dir.path().join("many");
    std::fs::write(&file, rules).unwrap();
    daemon.refused(&["bridge/replace-flows", "br0", file.to_str().unwrap()]);
    daemon.wait_for_log("|WARN|limit-rule-memory was met ");
    let log = daemon.log();
    let line = log.lines().find(|line| line.contains("limit-rule-memory")).unwrap();
    assert!(line.contains(" Set by: ") && line.contains("rule-memory"), "{line}");
}

#[test]
fn the_start_and_the_end_are_lines() {
    let daemon = Daemon::start_with(&(PMD.to_owned() + &bridge("br0", "f")), &[("f", "")]);
    daemon.wait_for_log(&format!("|INFO|running, control socket {}", daemon.socket().display()));
    let ended = daemon.signal("TERM");
    assert!(ended.log.contains("|INFO|ending: SIGTERM"), "{}", ended.log);
}
