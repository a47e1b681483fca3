//! Captures from real programs through a ten-rule table: what `sluice replay` writes for each port is what a linear
//! interpreter of the same rules says, which shares no code with the switch. `tests/captures/make` made the captures.
#![forbid(unsafe_code)]

mod interpreter;
mod pcap;

use interpreter::{Interpreter, Packet};
use pcap::Record;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Host A, host B, and a monitor that sends nothing.
const INPUTS: [(u16, Option<&str>); 3] = [(1, Some("a.pcap")), (2, Some("b.pcap")), (3, None)];

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures").join(name)
}

/// What came in, in the order of the replay: by time, then port, then place in the file.
fn received() -> Vec<(u16, Record)> {
    let mut all = Vec::new();
    for (port, name) in INPUTS {
        let Some(name) = name else { continue };
        all.extend(pcap::read(&std::fs::read(data(name)).expect("a capture")).into_iter().map(|r| (port, r)));
    }
    all.sort_by_key(|(port, record)| (record.time_us, *port));
    all
}

/// What goes out of each port, and how many packets met each rule.
fn expected(rules: &str) -> (Vec<Vec<Record>>, Vec<u64>) {
    let ports: Vec<u16> = INPUTS.iter().map(|(port, _)| *port).collect();
    let mut interpreter = Interpreter::new(rules, &ports);
    let mut out = vec![Vec::new(); ports.len()];
    for (port, record) in received() {
        for (to, bytes) in interpreter.run(Packet::new(port, record.bytes)) {
            out[usize::from(to) - 1].push(Record { time_us: record.time_us, bytes });
        }
    }
    (out, interpreter.hits())
}

/// Replays with `arguments` added, and checks every port's capture.
fn replay_and_check(arguments: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let empty = folder.path().join("empty.pcap");
    std::fs::write(&empty, pcap::write(&[])).expect("an empty capture");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.arg("replay").arg("--flows").arg(data("rules.txt")).arg("--out-dir").arg(folder.path().join("out"));
    for (port, name) in INPUTS {
        command.arg("--in").arg(format!("{port}={}", name.map_or(empty.clone(), data).display()));
    }
    let run = command.args(arguments).output().expect("sluice starts");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let (want, _) = expected(&std::fs::read_to_string(data("rules.txt")).expect("rules"));
    for ((port, _), want) in INPUTS.iter().zip(want) {
        let got = pcap::read(&std::fs::read(folder.path().join(format!("out/{port}.pcap"))).expect("an output"));
        assert_eq!(got.len(), want.len(), "packets out of port {port}");
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            assert_eq!(got, want, "packet {i} out of port {port}");
        }
    }
}

#[test]
fn the_right_packets_leave_each_port() {
    replay_and_check(&[]);
}

#[test]
fn the_captures_reach_every_rule() {
    let rules = std::fs::read_to_string(data("rules.txt")).expect("rules");
    let (out, hits) = expected(&rules);
    assert_eq!(hits.len(), 10);
    assert!(hits.iter().all(|n| *n > 0), "packets by rule: {hits:?}");
    assert!(out.iter().all(|packets| packets.len() >= 10), "every port has something to say");
}

#[test]
fn the_captures_hold_what_they_should() {
    let all = received();
    let count =
        |wanted: fn(&Packet) -> bool| all.iter().filter(|(p, r)| wanted(&Packet::new(*p, r.bytes.clone()))).count();
    assert!(count(|p| p.ethertype() == 0x0806) > 2, "ARP");
    assert!(count(|p| p.icmp6_type() == Some(135)) > 2, "neighbour solicitations");
    assert!(count(|p| p.icmp6_type() == Some(136)) > 0, "neighbour advertisements");
    assert!(count(|p| p.is_later_fragment()) > 2, "fragments");
    assert!(count(|p| p.ports(17).is_some_and(|(_, to)| to == 53)) > 2, "DNS");
    assert!(count(|p| p.ports(6).is_some_and(|(from, _)| from == 8000)) > 5, "HTTP");
    assert!(count(|p| p.ethertype() == 0x86dd) > 20, "IPv6");
}
