//! Bad input to a running switch: each gets one clear line, and the switch goes on. (At start: `start_errors.rs` and
//! `life.rs`; to `replay`: `replay.rs`.)
#![forbid(unsafe_code)]

mod common;

use common::{Daemon, from_generator_to_sink, one_line_failure, sluice};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

fn config() -> String {
    from_generator_to_sink("rate = 1000")
}

fn start() -> Daemon {
    Daemon::start_with(&config(), &[("flows.txt", "udp,actions=output:2\n")])
}

/// Asserts that packets still flow and commands are still answered.
fn goes_on(daemon: &Daemon) {
    let count = |text: &str| text.trim().parse::<u64>().expect("a number");
    let before = count(&daemon.ctl(&["coverage/read-counter", "sent"]));
    daemon.wait_for(&["coverage/read-counter", "sent"], |reply| count(reply) > before);
}

#[test]
fn wrong_types_and_ports_that_cannot_open_end_the_start_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.toml");
    let port = "[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"p1\"\n";
    for (config, expected) in [
        ("[switch]\npmd-cores = \"one\"\n".to_owned(), "s.toml:2: switch.pmd-cores: "),
        (format!("{port}ofport = \"x\"\ntype = \"null\"\n"), "s.toml:5: bridge[0].port[0].ofport: "),
        (format!("{port}ofport = 1\ntype = \"wire\"\n"), "wire"),
        ("[switch\n".to_owned(), "s.toml:1: "),
    ] {
        std::fs::write(&file, config).unwrap();
        let line = one_line_failure(&sluice(&["run", file.to_str().unwrap()]));
        assert!(line.contains(expected), "{line}");
    }
}

#[test]
fn flow_texts_ports_and_reloads_that_are_wrong_are_refused() {
    let daemon = start();
    let bad_file = daemon.dir.path().join("bad.txt");
    std::fs::write(&bad_file, "udp,actions=drop\n\n\n\n\n\nudp,nw_src=1.2.3,actions=drop\n").unwrap();
    let missing = "rx=/no/such.pcap";
    for (args, expected) in [
        (&["bridge/add-flow", "br0", "udp,actions=fly"][..], "column 13"),
        (&["bridge/add-flow", "br0", "udp,nw_src=10.0.0.0/33,actions=drop"], "column "),
        (
            &["bridge/add-flow", "br0", "priority=70000,actions=drop"],
            "column 10: found \"70000\", expected a number of at most 16 bits, 0 to 65535",
        ),
        (&["bridge/add-flow", "br0", "actions=output:NXM_NX_REG99[]"], "column "),
        (&["bridge/replace-flows", "br0", bad_file.to_str().unwrap()], "bad.txt: line 7, column "),
        (&["bridge/replace-flows", "br0", "/no/such/file"], "/no/such/file"),
        (&["bridge/add-port", "br0", "p9", "ofport=9", "type=pcap", missing], "/no/such.pcap"),
        (&["bridge/add-port", "br0", "p9", "ofport=9", "type=wire"], "wire"),
        (&["bridge/add-port", "br0", "p9", "ofport=70000", "type=null"], "70000"),
    ] {
        let error = daemon.refused(args);
        assert!(error.contains(expected) && error.lines().count() == 1, "{args:?}: {error}");
    }
    daemon.configure(&config().replace("null", "nonsense"));
    let error = daemon.refused(&["sluice/reload"]);
    assert!(error.contains("nonsense") && error.lines().count() == 1, "{error}");
    goes_on(&daemon);
    let rules = daemon.ctl(&["bridge/dump-flows", "br0"]);
    assert_eq!(rules.matches("actions=").count(), 1, "a refused change left something behind: {rules}");
}

/// Sends bytes to the control socket and returns what comes back until the switch closes the connection.
fn say(daemon: &Daemon, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(daemon.socket()).unwrap();
    // The switch may close before it has read everything.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    String::from_utf8_lossy(&reply).into_owned()
}

#[test]
fn control_requests_that_are_no_requests_do_no_harm() {
    let daemon = start();
    let endless = "[".repeat(64 << 20);
    let long = format!("{{\"id\":0,\"method\":\"version\",\"params\":[\"{}\"]}}", "x".repeat(64 << 20));
    for bytes in [
        &b"this is not JSON"[..],
        b"{\"id\":0,\"method\":7,\"params\":[]}",
        b"{\"id\":0,\"method\":\"version\",\"params\":[1,2]}",
        b"{\"id\":0,\"method\":\"version\"",
        b"\xff\xfe\x00\x01",
        b"[]",
        endless.as_bytes(),
        long.as_bytes(),
    ] {
        let reply = say(&daemon, bytes);
        assert!(!reply.contains("\"result\":\"sluice"), "a bad request was answered: {reply}");
        goes_on(&daemon);
    }
}
