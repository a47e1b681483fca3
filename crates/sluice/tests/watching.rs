//! A running switch watched: `sluice top`, and the Prometheus endpoint.

mod common;

use common::{Daemon, one_line_failure, sluice};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const CONFIG: &str = "[switch]\npmd-cores = [0]\nmetrics = \"127.0.0.1:0\"\n\
    [[bridge]]\nname = \"br0\"\nflows = \"flows.txt\"\nfail-mode = \"secure\"\n\
    [[bridge.port]]\nname = \"gen\"\nofport = 1\ntype = \"generator\"\n\
    options = { flows = 50, count = 20000, choice = \"sequential\" }\n\
    [[bridge.port]]\nname = \"sink\"\nofport = 2\ntype = \"null\"\n";

fn switch() -> Daemon {
    let daemon = Daemon::start_with(CONFIG, &[("flows.txt", "ip,nw_dst=10.0.0.0/8,actions=output:2\n")]);
    daemon.wait_for(&["sluice/overview"], |json| json.contains("\"received\":20000"));
    // A port counts as it receives, a PMD now and then.
    daemon.wait_for(&["coverage/read-counter", "sent"], |n| n.trim() == "20000");
    daemon
}

/// A connection to the endpoint.
fn connect(daemon: &Daemon) -> TcpStream {
    let log = daemon.log();
    let address = log.split("metrics at http://").nth(1).unwrap().split('/').next().unwrap();
    TcpStream::connect(address).unwrap()
}

/// What the endpoint answers to a request.
fn ask(daemon: &Daemon, request: &str) -> String {
    let mut stream = connect(daemon);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn metrics_are_the_counters() {
    let daemon = switch();
    let answer = ask(&daemon, "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    for line in [
        "sluice_received_total 20000",
        "sluice_sent_total 20000",
        "sluice_port_received_packets_total{port=\"gen\",type=\"generator\"} 20000",
        "sluice_port_sent_packets_total{port=\"sink\",type=\"null\"} 20000",
        "sluice_port_up{port=\"sink\",type=\"null\"} 1",
        "sluice_subtables{pmd=\"0\",core=\"0\"} 1",
        "sluice_dropped_packets_total{reason=\"rx-runt\"} 0",
        "sluice_rules{bridge=\"br0\",table=\"0\"} 1",
        "sluice_table_missed_total{bridge=\"br0\",table=\"0\"} 0",
        "sluice_datapath_megaflows 1",
        "sluice_megaflows{pmd=\"0\",core=\"0\"} 1",
        "sluice_conntrack_connections 0",
        "sluice_limit_used{limit=\"megaflows\"} 1",
        "sluice_limit_met_total{limit=\"recirc-ids\"} 0",
        "# HELP sluice_upcalls_lost_total Upcalls that failed.",
        "sluice_captures 0",
    ] {
        assert!(answer.lines().any(|l| l == line), "no line {line} in\n{answer}");
    }
    assert!(answer.contains(concat!("sluice_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\",")), "{answer}");
    let resident = answer.lines().find_map(|line| line.strip_prefix("sluice_resident_memory_bytes ")).unwrap();
    assert!(resident.parse::<u64>().unwrap() > 1 << 20, "{resident}");
    assert!(answer.contains("sluice_autopilot_in_charge{port=\"gen\",queue=\"0\",levels="), "{answer}");
}

/// Drops by rules, by the device and by a port that is not there: each is a drop of the port that the packet came by.
#[test]
fn totals_are_the_sums_of_the_ports() {
    let rules = "ip,nw_dst=10.0.0.0/9,actions=drop\nip,nw_dst=10.128.0.0/10,actions=output:2\nip,actions=output:3\n";
    let small = "[[bridge.port]]\nname = \"small\"\nofport = 3\ntype = \"null\"\nmtu = 68\n";
    let config = format!("{CONFIG}{small}").replace("count = 20000", "count = 20000, frame-size = 200");
    let daemon = Daemon::start_with(&config, &[("flows.txt", rules)]);
    let done = |json: &str| {
        let all: serde_json::Value = serde_json::from_str(json).unwrap();
        let number = |value: &serde_json::Value| value.as_u64().unwrap();
        let (sent, dropped) = (number(&all["totals"]["sent"]), number(&all["totals"]["dropped"]));
        number(&all["totals"]["received"]) == 20_000 && sent + dropped == 20_000
    };
    let json = daemon.wait_for(&["sluice/overview"], done);
    let all: serde_json::Value = serde_json::from_str(&json).unwrap();
    let sum = |key: &str| all["ports"].as_array().unwrap().iter().map(|port| port[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!(all["totals"]["received"], sum("rx_packets"), "{json}");
    assert_eq!(all["totals"]["sent"], sum("tx_packets"), "{json}");
    assert_eq!(all["totals"]["dropped"], sum("dropped"), "{json}");
    assert!(sum("dropped") > 0, "{json}");
}

#[test]
fn the_endpoint_outlives_bad_clients() {
    let daemon = switch();
    assert!(ask(&daemon, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(ask(&daemon, "DELETE /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    assert!(ask(&daemon, "\r\n\r\n").starts_with("HTTP/1.1 405 "));
    assert!(ask(&daemon, "GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
    let ended = daemon.signal("TERM");
    assert_eq!(ended.code, Some(0), "{}", ended.log);
}

/// One that sends a byte now and then, many that send nothing, and some that do not read their answer.
#[test]
fn slow_idle_and_many_clients_stop_neither_others_nor_the_end() {
    let daemon = switch();
    let slow = connect(&daemon);
    let mut unread: Vec<TcpStream> = (0..5).map(|_| connect(&daemon)).collect();
    for stream in &mut unread {
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    }
    for _ in 0..3 {
        (&slow).write_all(b"G").unwrap();
        let began = Instant::now();
        assert!(ask(&daemon, "GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    }
    let idle: Vec<TcpStream> = (0..100).map(|_| connect(&daemon)).collect();
    let answer = ask(&daemon, "GET /metrics HTTP/1.1\r\n\r\n");
    let met = answer.lines().find(|line| line.starts_with("sluice_limit_met_total{limit=\"metrics-clients\"}"));
    assert!(met.is_some_and(|line| !line.ends_with(" 0")), "{met:?}");
    let closed = answer.lines().find_map(|line| line.strip_prefix("sluice_metrics_clients_closed_total ")).unwrap();
    assert!(closed.parse::<u32>().unwrap() >= 60, "{closed}");
    let began = Instant::now();
    let ended = daemon.signal("TERM");
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    drop((slow, unread, idle));
}

#[test]
fn top_shows_a_screen() {
    let daemon = switch();
    let socket = daemon.socket();
    let output = sluice(&["top", "--once", "--interval", "0.1", "-t", socket.to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for part in ["pps in", "gen  up ", "1 megaflows", "/255.0.0.0", "autopilot of", "busiest megaflows"] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    let line = one_line_failure(&sluice(&["top", "-t", socket.to_str().unwrap()]));
    assert_eq!(line, "sluice: top: expected a terminal; --once prints one screen without one");
    let line = one_line_failure(&sluice(&["top", "--once", "-t", "/nowhere/sluice.ctl"]));
    assert!(line.ends_with("No such file or directory (os error 2); is the switch running?"), "{line}");
}
