//! `sluice capture`: a running switch's packets with what became of them, whatever its client does.
#![forbid(unsafe_code)]

mod common;

use common::{Daemon, PMD, bridge, one_line_failure, port, sluice};
use sluice_port::pcap::Reader;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

const RULES: &str = "cookie=0x7,priority=10,udp,actions=goto_table:1\n\
    cookie=0x8,table=1,priority=20,ip,nw_dst=10.0.0.0/30,actions=drop\n\
    cookie=0x9,table=1,priority=3,ip,actions=mod_nw_tos:32,output:2,output:3\n";

/// A generator whose packets are dropped by rules, sent by two ports, or too long for one of them.
fn start() -> Daemon {
    let options = "options = { flows = 8, rate = 5000, frame-size = 200, choice = \"sequential\" }";
    let config = PMD.to_owned()
        + &bridge("br0", "flows.txt")
        + &port("gen", 1, "generator", options)
        + &port("sink", 2, "null", "")
        + &port("small", 3, "null", "mtu = 68");
    Daemon::start_with(&config, &[("flows.txt", RULES)])
}

/// Captures, and returns the packets with the text of the whole file.
fn capture(daemon: &Daemon, args: &[&str]) -> (Vec<Vec<u8>>, String) {
    let (socket, file) = (daemon.socket(), daemon.dir.path().join("captured.pcapng"));
    let fixed = ["capture", "-t", socket.to_str().unwrap(), "-w", file.to_str().unwrap()];
    let output = sluice(&[&fixed, args].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let bytes = std::fs::read(&file).unwrap();
    let mut reader = Reader::new(&bytes[..], Path::new("captured")).unwrap();
    let (mut packet, mut packets) = (Vec::new(), Vec::new());
    while reader.next_packet(&mut packet).unwrap().is_some() {
        packets.push(packet.clone());
    }
    assert_eq!(reader.end_note(), None);
    assert!(said.starts_with(&format!("sluice: {} packets captured", packets.len())), "{said}");
    (packets, String::from_utf8_lossy(&bytes).into_owned())
}

/// How often a text holds another one.
fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

#[test]
fn what_a_port_receives_and_sends_is_captured_with_its_rules() {
    let daemon = start();
    let (packets, text) = capture(&daemon, &["-c", "40", "gen"]);
    assert_eq!(packets.len(), 40);
    assert!(packets.iter().all(|packet| packet.len() == 200 && packet[15] == 0), "as they came");
    assert_eq!(count(&text, "port=gen direction=rx verdict="), 40, "{text}");
    let first = "rule=cookie=0x7,table=0,priority=10 rule=cookie=0x";
    assert_eq!(count(&text, first), 40, "{text}");
    let dropped = "verdict=dropped reason=rules rule=cookie=0x7,table=0,priority=10 rule=cookie=0x8,table=1,priority=20 megaflow=";
    assert!(text.contains(dropped), "{text}");
    assert!(text.contains("verdict=actions:set(ipv4(tos=0x20/0xfc)),sink,small rule="), "{text}");
    assert!(text.contains("megaflow=recirc_id(0),in_port(gen),"), "{text}");

    let (packets, text) = capture(&daemon, &["-c", "20", "-s", "60", "sink"]);
    assert!(packets.iter().all(|packet| packet.len() == 60 && packet[15] == 0x20), "as they went, cut to 60 bytes");
    assert_eq!(count(&text, "port=sink direction=tx in_port=gen verdict=sent rule=cookie=0x7"), 20, "{text}");
    let (_, text) = capture(&daemon, &["-c", "5", "small"]);
    assert_eq!(
        count(&text, "port=small direction=tx in_port=gen verdict=dropped reason=tx-oversize rule="),
        5,
        "{text}"
    );
    let ended = daemon.signal("TERM");
    assert_eq!(ended.code, Some(0), "{}", ended.log);
}

#[test]
fn filters_are_matches_and_drops_have_reasons() {
    let daemon = start();
    let (packets, text) = capture(&daemon, &["-c", "30", "DROPS"]);
    assert_eq!(packets.len(), 30);
    assert!(count(&text, "direction=drop verdict=dropped reason=rules") > 0, "{text}");
    assert!(count(&text, "port=small direction=tx in_port=gen verdict=dropped reason=tx-oversize") > 0, "{text}");
    assert_eq!(count(&text, "verdict=dropped"), 30, "{text}");
    let (packets, text) = capture(&daemon, &["-c", "10", "DROPS", "in_port=gen,ip,nw_dst=10.0.0.0/30,nw_tos=0"]);
    assert!(packets.iter().all(|packet| packet[30..33] == [10, 0, 0] && packet[33] < 4), "{packets:?}");
    assert_eq!(count(&text, "reason=rules"), 10, "{text}");
    // A sent packet is matched as it goes, with headers of which no more than the beginning is kept.
    let (packets, _) = capture(&daemon, &["-c", "10", "-s", "20", "sink", "udp,nw_tos=32"]);
    assert_eq!((packets.len(), packets[0].len()), (10, 20));
    let (packets, text) = capture(&daemon, &["--seconds", "1", "gen", "tcp"]);
    assert_eq!((packets.len(), text.contains("sluice 0")), (0, true));
}

#[test]
fn what_is_wrong_is_said_in_a_line() {
    let daemon = start();
    let socket = daemon.socket();
    for (args, want) in [
        (&["nowhere"][..], "nowhere: no such port"),
        (&["gen", "tcp,tp_dst=x"], "filter tcp,tp_dst=x: "),
        (&["br0"], "br0: the port has no device, and so no packets"),
        (&["-c", "0", "gen"], "--count=0: expected 1 to "),
        (&["-s", "0", "gen"], "--snaplen=0: expected 1 to 262144"),
    ] {
        let fixed = ["capture", "-w", "/dev/null", "-t", socket.to_str().unwrap()];
        let line = one_line_failure(&sluice(&[&fixed, args].concat()));
        assert!(line.contains(want), "{line}\ninstead of {want}");
    }
}

/// Clients that do not read, and too many of them: packets flow, commands are answered, captures end with their clients.
#[test]
fn a_client_that_stalls_stops_nothing() {
    let daemon = start();
    let start_one = || {
        let mut stream = UnixStream::connect(daemon.socket()).unwrap();
        let request = "{\"id\":0,\"method\":\"sluice/capture\",\"params\":[\"gen\"]}";
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = [0; 16];
        stream.read_exact(&mut reply).unwrap();
        (stream, String::from_utf8_lossy(&reply).into_owned())
    };
    let stalled: Vec<_> = (0..8).map(|_| start_one()).collect();
    let mut refused = String::new();
    let (mut ninth, begun) = start_one();
    ninth.shutdown(std::net::Shutdown::Write).unwrap();
    ninth.read_to_string(&mut refused).unwrap();
    assert!((begun + &refused).contains("captures is 8: expected fewer captures at the same time"), "{refused}");
    let limits = daemon.ctl(&["sluice/limits-show"]);
    let line = limits.lines().find(|line| line.starts_with("limit-captures ")).unwrap();
    assert_eq!(line.split_whitespace().skip(1).take(3).collect::<Vec<_>>(), ["8", "8", "1"], "{line}");
    let received = |reply: &str| reply.trim().parse::<u64>().unwrap();
    let before = received(&daemon.ctl(&["coverage/read-counter", "received"]));
    daemon.wait_for(&["coverage/read-counter", "received"], |reply| received(reply) > before + 20_000);
    assert!(daemon.ctl(&["sluice/overview"]).contains("\"ports\""));
    drop(stalled);
    // Their places are free again.
    let free = || capture_ended(&daemon) >= 8;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !free() {
        assert!(std::time::Instant::now() < deadline, "{}", daemon.log());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(capture(&daemon, &["-c", "3", "gen"]).0.len(), 3);
    let ended = daemon.signal("TERM");
    assert_eq!(ended.code, Some(0), "{}", ended.log);
}

fn capture_ended(daemon: &Daemon) -> usize {
    count(&daemon.log(), "the capture has ended; ")
}
