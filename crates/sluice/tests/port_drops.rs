//! What a port tells of the packets that ended at it or came from it: each with its reason, and the sums hold.

mod common;

use common::{Daemon, PMD, bridge, port};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The number behind `name` in a text.
fn number(text: &str, name: &str) -> u64 {
    let rest = text.split(name).nth(1).unwrap_or_else(|| panic!("no {name} in {text}")).trim_start();
    rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// Three ports that receive and two that send, all on two PMDs: 3000 packets leave twice, 2000 are too long for where
/// they are to go, and 1000 are dropped by a rule.
fn switch() -> Daemon {
    let generator = |n: u32, more: &str| {
        port(&format!("g{n}"), n, "generator", &format!("n-rxq = 2\noptions = {{ {more}, choice = \"sequential\" }}"))
    };
    let config = PMD.replace("[0]", "[0, 1]")
        + "metrics = \"127.0.0.1:0\"\n"
        + &bridge("br0", "f")
        + "fail-mode = \"secure\"\n"
        + &generator(1, "count = 3000")
        + &generator(2, "count = 2000, frame-size = 600")
        + &generator(3, "count = 1000")
        + &port("wide", 4, "null", "")
        + &port("narrow", 5, "null", "mtu = 100");
    let rules = "in_port=1,actions=output:4,output:5\nin_port=2,actions=output:5\nin_port=3,actions=drop\n";
    let daemon = Daemon::start_with(&config, &[("f", rules)]);
    daemon.wait_for(&["coverage/read-counter", "received"], |n| n.trim() == "6000");
    daemon
}

#[test]
fn each_port_tells_its_drops_by_reason() {
    let daemon = switch();
    let show = |port: &str| daemon.ctl(&["sluice/port-show", port]);
    let sums = "received:3000 copied:3000 released:0 = sent:6000 delivered:0 held:0 dropped:0\n";
    assert!(show("g1").starts_with("g1 (generator): up\n  RX packets:3000 bytes:180000 errors:0 missed:0\n"));
    assert!(show("g1").contains(sums), "{}", show("g1"));
    let long = show("g2");
    assert!(long.contains("received:2000 copied:0 released:0 = sent:0 delivered:0 held:0 dropped:2000\n"), "{long}");
    assert_eq!(number(&long, "    tx-oversize "), 2000, "{long}");
    assert_eq!(number(&show("g3"), "    rules "), 1000);
    let narrow = show("narrow");
    assert!(narrow.contains("  TX packets:3000 bytes:180000 errors:0 dropped:2000\n    tx-oversize "), "{narrow}");
    assert!(show("wide").ends_with("  TX packets:3000 bytes:180000 errors:0 dropped:0\n"), "{}", show("wide"));
    // What all received and copied is what all sent and dropped.
    let all = daemon.ctl(&["sluice/port-show"]);
    let sum = |name: &str| -> u64 {
        let lines = all.lines().filter(|line| line.starts_with("    received:"));
        lines.map(|line| number(line, name)).sum()
    };
    assert_eq!(sum("received:") + sum("copied:"), sum("sent:") + sum("dropped:"), "{all}");
    assert_eq!((sum("sent:"), sum("dropped:")), (6000, 3000), "{all}");
    let unknown = daemon.refused(&["sluice/port-show", "p9"]);
    assert!(unknown.starts_with("no port p9 is open; "), "{unknown}");

    // The endpoint says the same.
    let log = daemon.log();
    let address = log.split("metrics at http://").nth(1).unwrap().split('/').next().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    for line in [
        "sluice_port_received_and_dropped_packets_total{port=\"g3\",type=\"generator\",reason=\"rules\"} 1000",
        "sluice_port_received_and_dropped_packets_total{port=\"g1\",type=\"generator\",reason=\"rules\"} 0",
        "sluice_port_unsent_packets_total{port=\"narrow\",type=\"null\",reason=\"tx-oversize\"} 2000",
        "sluice_port_receive_missed_total{port=\"g1\",type=\"generator\"} 0",
    ] {
        assert!(answer.lines().any(|l| l == line), "no line {line} in\n{answer}");
    }
}

/// A reader of what a `pcap` port writes need not wait for the end of the switch, however little it writes.
#[test]
fn what_a_pcap_port_writes_is_in_the_file_soon() {
    let config = PMD.to_owned()
        + &bridge("br0", "f")
        + &port("gen", 1, "generator", "options = { count = 3 }")
        + &port("out", 2, "pcap", "options = { tx = \"out.pcap\" }");
    let daemon = Daemon::start_with(&config, &[("f", "in_port=1,actions=output:2\n")]);
    daemon.wait_for(&["coverage/read-counter", "sent"], |n| n.trim() == "3");
    let sent = Instant::now();
    // The capture's header, and three packets of 60 bytes with theirs.
    let whole = 24 + 3 * (16 + 60);
    let path = daemon.dir.path().join("out.pcap");
    while std::fs::metadata(&path).unwrap().len() < whole {
        assert!(sent.elapsed() < Duration::from_secs(20), "the switch keeps what it wrote");
        std::thread::sleep(Duration::from_millis(50));
    }
}
