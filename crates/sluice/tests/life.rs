//! How a switch starts, is reconfigured, and ends.

mod common;

use common::{Daemon, PMD, bridge, one_line_failure, port, sluice};

#[test]
fn signals_and_exit_end_it_cleanly() {
    for end in ["TERM", "INT", "exit"] {
        let daemon =
            Daemon::start_with(&(PMD.to_owned() + &bridge("br0", "f") + &port("p1", 1, "null", "")), &[("f", "")]);
        let socket = daemon.socket();
        let ended = if end == "exit" {
            daemon.ctl(&["exit"]);
            daemon.ended()
        } else {
            daemon.signal(end)
        };
        assert_eq!(ended.code, Some(0), "{end}: {}", ended.log);
        assert!(!socket.exists(), "{end}");
        assert!(ended.stdout.contains("pmd thread numa_id 0 core_id 0:\n"), "{}", ended.stdout);
    }
}

#[test]
fn its_sockets_are_its_owners() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    let config = PMD.to_owned() + &bridge("br0", "f") + &port("p1", 1, "null", "");
    let daemon = Daemon::start_with(&config, &[("f", "")]);
    let dir = daemon.socket().parent().unwrap().to_owned();
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut sockets = Vec::new();
    for path in files {
        let meta = path.symlink_metadata().unwrap();
        if meta.file_type().is_socket() {
            assert_eq!(meta.permissions().mode() & 0o7777, 0o600, "{}", path.display());
            sockets.push(path.file_name().unwrap().to_owned());
        }
    }
    sockets.sort();
    assert_eq!(sockets, ["br0.mgmt", "br0.snoop", "sluice.ctl"]);
}

#[test]
fn a_hangup_reads_the_configuration_again() {
    if ignores_hangup() {
        eprintln!("skipped: SIGHUP is ignored here (nohup), and so by the switch");
        return;
    }
    let config = PMD.to_owned() + &bridge("br0", "f") + &port("p1", 1, "null", "");
    let daemon = Daemon::start_with(&config, &[("f", "")]);
    daemon.configure(&(config.clone() + &port("p2", 2, "null", "")));
    daemon.send_signal("HUP");
    daemon.wait_for(&["dpif/show"], |text| text.contains("p2 2/"));
    // What is wrong changes nothing, and the log says what it is.
    daemon.configure("[[bridge]]\nname = \"br0\"\ncolour = \"red\"\n");
    daemon.send_signal("HUP");
    daemon.wait_for_log("|ERR|reload: ");
    assert!(daemon.log().contains("bridge[0].colour: unknown field"), "{}", daemon.log());
    assert!(daemon.ctl(&["dpif/show"]).contains("p2 2/"));
    assert_eq!(daemon.signal("TERM").code, Some(0));
}

/// A configuration in a directory of its own, and the command that runs it.
fn command_for(config: &str, files: &[(&str, &str)]) -> (tempfile::TempDir, std::process::Command) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let rundir = format!("[switch]\nrundir = \"{}\"\n", dir.path().join("run").display());
    std::fs::write(dir.path().join("s.toml"), config.replace("[switch]\n", &rundir)).unwrap();
    let mut command = std::process::Command::new(common::SLUICE);
    command.arg("run").arg(dir.path().join("s.toml")).stdin(std::process::Stdio::null());
    (dir, command)
}

const SHORT: &str = "[switch]\npmd-cores = [0]\nstop-after = \"200ms\"\n";

#[test]
fn the_end_is_a_summary_and_quiet_is_nothing() {
    let config = SHORT.to_owned() + &bridge("br0", "f") + &port("p1", 1, "null", "");
    let (_dir, mut command) = command_for(&config, &[("f", "udp,actions=drop\ntcp,actions=drop\n")]);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\nbridges: 1, rules: 2, megaflows: 0 (--dump shows them here; "), "{text}");
    assert!(!text.contains("udp actions=drop"), "{text}");
    let (_dir, mut command) = command_for(&config, &[("f", "")]);
    let output = command.arg("--quiet").output().unwrap();
    let (out, log) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!((output.status.code(), out.as_str()), (Some(0), ""), "{log}");
    assert!(!log.contains("|INFO|"), "{log}");
}

#[test]
fn a_check_opens_nothing_and_reads_everything() {
    let config = "[switch]\npmd-cores = [0]\n".to_owned()
        + &bridge("br0", "f")
        // A device that there is not: a check opens none.
        + &port("p1", 1, "af_packet", "options = { device = \"none0\" }");
    let (dir, mut command) = command_for(&config, &[("f", "in_port=p1,actions=drop\n")]);
    let output = command.arg("--check").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.ends_with("s.toml: can be run\n"), "{text}");
    assert!(!dir.path().join("run").exists(), "a check leaves nothing behind");
    let log_file = config.replace("[switch]\n", "[switch]\nlog-file = \"/no/such/sluice.log\"\n");
    let (_dir, mut command) = command_for(&log_file, &[("f", "")]);
    let line = one_line_failure(&command.arg("--check").output().unwrap());
    assert!(line.contains("s.toml: switch.log-file: /no/such/sluice.log: there is no directory /no/such"), "{line}");
    for (rules, expected) in [("in_port=p2,actions=drop\n", "/f: line 1"), ("udp,actions=nonsense\n", "/f: line 1")] {
        let (_dir, mut command) = command_for(&config, &[("f", rules)]);
        let line = one_line_failure(&command.arg("--check").output().unwrap());
        assert!(line.contains(expected), "{line}");
    }
}

#[test]
fn a_log_file_gets_the_lines_and_the_journal_their_levels() {
    let config = SHORT.replace("[switch]\n", "[switch]\nlog-file = \"sluice.log\"\n");
    let config = config + &bridge("br0", "f") + &port("bad", 1, "pcap", "options = { rx = \"missing.pcap\" }");
    let (dir, mut command) = command_for(&config, &[("f", "")]);
    let journal = std::fs::File::create(dir.path().join("journal")).unwrap();
    let id = std::os::unix::fs::MetadataExt::dev(&journal.metadata().unwrap());
    let inode = std::os::unix::fs::MetadataExt::ino(&journal.metadata().unwrap());
    let status = command.env("JOURNAL_STREAM", format!("{id}:{inode}")).stderr(journal).output().unwrap().status;
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let (journal, file) = (read("journal"), read("sluice.log"));
    assert!(status.success(), "{journal}");
    assert!(file.contains("|INFO|running, control socket ") && file.contains("|ERR|port bad: "), "{file}");
    assert!(
        journal.lines().all(|line| line.starts_with("<6>") || line.starts_with("<3>") || line.starts_with("<4>")),
        "{journal}"
    );
    assert!(journal.lines().any(|line| line.starts_with("<3>") && line.contains("port bad: ")), "{journal}");
}

#[test]
fn a_service_manager_is_told_of_the_start_and_the_end() {
    // Time for two signs of life on a busy machine, and no more than a socket's queue holds.
    let config = SHORT.replace("200ms", "1s") + &bridge("br0", "f") + &port("p1", 1, "null", "");
    let (dir, mut command) = command_for(&config, &[("f", "")]);
    let socket = std::os::unix::net::UnixDatagram::bind(dir.path().join("notify")).unwrap();
    // As that of systemd, which any user may write: the switch has left root.
    let all: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(dir.path().join("notify"), all).unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    let output =
        command.env("NOTIFY_SOCKET", dir.path().join("notify")).env("WATCHDOG_USEC", "400000").output().unwrap();
    assert!(output.status.success());
    let mut told = Vec::new();
    let mut bytes = [0; 256];
    while told.last().is_none_or(|last: &String| !last.starts_with("STOPPING=1")) {
        let size = socket.recv(&mut bytes).unwrap();
        told.push(String::from_utf8_lossy(&bytes[..size]).into_owned());
    }
    assert!(told[0].starts_with("READY=1\n"), "{told:?}");
    assert!(told.iter().filter(|text| *text == "WATCHDOG=1").count() >= 2, "{told:?}");
}

#[test]
fn a_group_may_use_the_sockets_if_it_is_named() {
    use std::os::unix::fs::MetadataExt;
    let config = PMD.replace("[switch]\n", "[switch]\nsocket-mode = \"0666\"\n")
        + &bridge("br0", "f")
        + &port("p1", 1, "null", "");
    let daemon = Daemon::start_with(&config, &[("f", "")]);
    for name in ["sluice.ctl", "br0.mgmt"] {
        let meta = daemon.socket().with_file_name(name).symlink_metadata().unwrap();
        assert_eq!(meta.mode() & 0o777, 0o666, "{name}");
    }
}

/// Whether this process ignores SIGHUP, which is signal 1.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & 1 != 0
}

#[test]
fn it_ends_by_itself_and_prints_what_it_did() {
    let config = "[switch]\npmd-cores = [0]\nstop-after = \"5s\"\n".to_owned()
        + &bridge("br0", "f")
        + &port("gen", 1, "generator", "options = { rate = 1000 }")
        + &port("sink", 2, "null", "");
    let ended = Daemon::start_with(&config, &[("f", "udp,actions=output:2\n")]).ended();
    assert_eq!(ended.code, Some(0), "{}", ended.log);
    let out = &ended.stdout;
    assert!(out.contains(" Mpps ") && out.contains(" cycles/pkt "), "no live line: {out}");
    assert!(out.contains("  Rx packets:   "), "{out}");
    assert!(
        out.contains("\nrules of br0:\n cookie=0x0, duration=") && out.contains(" udp actions=output:sink\n"),
        "{out}"
    );
    assert!(out.contains("\nmegaflows: 1\nrecirc_id(0),in_port(1),"), "{out}");
    // What the rule counted is what was received: nothing is lost between the datapath and the tables.
    let number = |text: &str, name: &str| -> u64 {
        let rest = text.split(name).nth(1).unwrap().trim_start();
        rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    };
    assert_eq!(number(out, "n_packets="), number(out, "Rx packets:"), "{out}");
}

#[test]
fn two_switches_do_not_share_a_rundir() {
    let config = PMD.to_owned() + &bridge("br0", "f");
    let daemon = Daemon::start_with(&config, &[("f", "")]);
    let line =
        String::from_utf8(sluice(&["run", daemon.dir.path().join("switch.toml").to_str().unwrap()]).stderr).unwrap();
    assert!(line.trim_end().ends_with("another switch listens on it; end it, or set switch.rundir"), "{line}");
    // Nor one of other bridges, which leaves nothing behind.
    let other = daemon.dir.path().join("other.toml");
    let config = std::fs::read_to_string(daemon.dir.path().join("switch.toml")).unwrap();
    std::fs::write(&other, config.replace("br0", "br1")).unwrap();
    let line = one_line_failure(&sluice(&["run", other.to_str().unwrap()]));
    assert!(line.contains("sluice.ctl: another switch listens on it"), "{line}");
    assert!(!daemon.socket().with_file_name("br1.mgmt").exists());
    assert_eq!(daemon.ctl(&["dpctl/dump-dps"]), "netdev@ovs-netdev\n");
}

#[test]
fn what_cannot_start_says_why_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("bad.txt"), "udp,actions=drop\n\n# six\n\n\n\nudp,nw_src=1.2.3,actions=drop\n").unwrap();
    let rundir = format!("[switch]\nrundir = \"{}\"\npmd-cores = [0]\n", at("run").display());
    for (config, expected) in [
        (bridge("br0", "missing.txt"), "missing.txt: cannot be read: No such file"),
        (bridge("br0", "bad.txt"), "bad.txt: line 7, column "),
    ] {
        std::fs::write(at("s.toml"), rundir.clone() + &config).unwrap();
        let output = sluice(&["run", at("s.toml").to_str().unwrap()]);
        let text = String::from_utf8(output.stderr.clone()).unwrap();
        let errors: Vec<_> = text.lines().filter(|line| line.starts_with("sluice: ")).collect();
        assert_eq!((output.status.code(), errors.len()), (Some(1), 1), "{text}");
        assert!(errors[0].contains(expected), "{}", errors[0]);
    }
}

/// Where it fails after controllers could connect already.
#[test]
fn what_cannot_start_leaves_no_socket() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let run = dir.path().join("run");
    let config = format!(
        "[switch]\nrundir = \"{}\"\npmd-cores = [0]\nmetrics = \"{}\"\n{}",
        run.display(),
        taken.local_addr().unwrap(),
        bridge("br0", "f")
    );
    std::fs::write(dir.path().join("f"), "").unwrap();
    std::fs::write(dir.path().join("s.toml"), config).unwrap();
    let output = sluice(&["run", dir.path().join("s.toml").to_str().unwrap()]);
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("cannot listen: Address already in use"), "{text}");
    assert_eq!(std::fs::read_dir(&run).unwrap().count(), 0);
}

/// Log lines of errors.
fn errors(log: &str) -> Vec<&str> {
    log.lines().filter(|line| line.contains("|ERR")).collect()
}

/// As a misspelt key does: only another configuration helps.
#[test]
fn a_bad_value_of_an_option_ends_the_start_with_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.toml");
    for (kind, key, value) in [
        ("generator", "flows", "many"),
        ("null", "mac", "1:2"),
        ("tap", "device", "a/b"),
        ("af_packet", "device", "a/b"),
        ("af_xdp", "mode", "fast"),
    ] {
        let run = format!("[switch]\nrundir = \"{}\"\npmd-cores = [0]\n", dir.path().join("run").display());
        let option = format!("options = {{ {key} = \"{value}\" }}");
        std::fs::write(dir.path().join("f"), "").unwrap();
        std::fs::write(&file, run + &bridge("br0", "f") + &port("bad", 1, kind, &option)).unwrap();
        let checks: &[&[&str]] = if kind == "tap" { &[&["run"]] } else { &[&["run"], &["run", "--check"]] };
        for arguments in checks {
            let output = sluice(&[*arguments, &[file.to_str().unwrap()]].concat());
            let text = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{kind}: {text}");
            let last = text.lines().last().unwrap();
            let expected = format!(": {key} = \"{value}\": expected ");
            assert!(last.starts_with("sluice: ") && last.contains(&expected), "{kind}: {last}");
        }
    }
}

#[test]
fn a_port_that_cannot_be_opened_is_one_line_and_the_others_run() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("junk.pcap"), "this is no capture at all, but long enough for a header").unwrap();
    let mut cut = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];
    std::fs::write(at("empty.pcap"), &cut).unwrap();
    cut.extend([0, 0, 0, 0, 0, 0, 0, 0, 60, 0, 0, 0, 60, 0, 0, 0, 1, 2, 3]);
    cut[32..36].copy_from_slice(&[0xff; 4]);
    std::fs::write(at("absurd.pcap"), &cut).unwrap();
    let capture = |name: &str| format!("options = {{ rx = \"{}\" }}", at(name).display());
    let _busy = std::os::unix::net::UnixListener::bind(at("taken")).unwrap();
    let listened_at = "taken: Address already in use (os error 98); choose a path in ".to_owned();
    for (kind, (more, expected)) in [
        ("pcap", (capture("missing.pcap"), "missing.pcap: cannot be read: No such file".to_owned())),
        ("pcap", (capture("junk.pcap"), "expected a pcap or pcapng file".into())),
        (
            "pcap",
            (capture("absurd.pcap"), "packet 1 at byte 24: a length of 4294967295 bytes; expected at most ".into()),
        ),
        (
            "vhost-user",
            (format!("options = {{ path = \"{}\", mode = \"server\" }}", at("taken").display()), listened_at),
        ),
        #[cfg(not(feature = "dpdk"))]
        ("dpdk", ("options = { devargs = \"net_null0\" }".into(), "`cargo build --release --features dpdk`".into())),
        ("af_packet", (String::new(), "device bad: find it: No such device".into())),
        ("af_xdp", (String::new(), "device bad: find it: No such device".into())),
    ] {
        let config = PMD.to_owned()
            + &bridge("br0", "f")
            + &port("gen", 1, "generator", "options = { rate = 1000 }")
            + &port("bad", 2, kind, &more)
            + &port("sink", 3, "null", "");
        // Rules may name it.
        let daemon = Daemon::start_with(&config, &[("f", "in_port=gen,actions=output:bad,output:sink\n")]);
        let log = daemon.log();
        let errors = errors(&log);
        assert_eq!(errors.len(), 1, "{kind}: {log}");
        assert!(errors[0].contains("port bad: ") && errors[0].contains(&expected), "{kind}: {}", errors[0]);
        daemon.wait_for(&["dpctl/show", "-s"], |text| !text.split("sink").nth(1).unwrap().contains("TX packets:0 "));
        assert!(daemon.ctl(&["dpif/show"]).contains("closed=\"port bad: "), "{}", daemon.ctl(&["dpif/show"]));
        assert_eq!(daemon.signal("TERM").code, Some(0));
    }
}

#[test]
fn a_port_opens_when_its_device_is_there() {
    let ports = |more: &str| {
        PMD.to_owned() + &bridge("br0", "f") + &port("gen", 1, "generator", "options = { rate = 1000 }") + more
    };
    let capture = |n| port("cap", 2, "pcap", &format!("options = {{ rx = \"{n}.pcap\" }}"));
    let daemon = Daemon::start_with(&ports(&capture(1)), &[("f", "actions=drop\n")]);
    assert!(daemon.log().contains("1.pcap"), "{}", daemon.log());
    let empty = [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];
    std::fs::write(daemon.dir.path().join("1.pcap"), empty).unwrap();
    daemon.wait_for(&["dpif/show"], |text| text.contains("cap 2/2: (pcap: mtu=1500"));
    assert!(daemon.log().contains("port cap could be opened now"), "{}", daemon.log());
    // A port that a reload adds and that cannot be opened is told of, stays configured and can be taken away again.
    daemon.configure(&ports(&capture(2)));
    let error = daemon.refused(&["sluice/reload"]);
    assert!(error.contains("2.pcap: cannot be read: No such file"), "{error}");
    daemon.configure(&ports(""));
    assert_eq!(daemon.ctl(&["sluice/reload"]), "br0: port cap removed\n");
    assert!(!daemon.ctl(&["dpif/show"]).contains("cap"));
}

#[test]
fn queues_are_dealt_in_turn_and_pinned_ones_stay() {
    let config = "[switch]\npmd-cores = [0, 1]\n".to_owned()
        + &bridge("br0", "f")
        + &port("a", 1, "generator", "n-rxq = 4\noptions = { rate = 10 }\npmd-rxq-affinity = \"0:1,1:1,2:1\"");
    let daemon = Daemon::start_with(&config, &[("f", "actions=drop\n")]);
    let queues_of = |text: &str, core: &str| -> Vec<usize> {
        let part = text.split(&format!("core_id {core}:\n")).nth(1).unwrap().split("pmd thread").next().unwrap();
        let of = |line: &str| {
            line.split("queue-id:").nth(1).map(|rest| rest.trim().split(' ').next().unwrap().parse().unwrap())
        };
        part.lines().filter_map(of).collect()
    };
    let show = daemon.ctl(&["dpif-netdev/pmd-rxq-show"]);
    assert_eq!((queues_of(&show, "0"), queues_of(&show, "1")), (vec![3], vec![0, 1, 2]), "{show}");
    daemon.ctl(&["dpif-netdev/pmd-rxq-rebalance"]);
    let show = daemon.ctl(&["dpif-netdev/pmd-rxq-show"]);
    assert_eq!((queues_of(&show, "0"), queues_of(&show, "1")), (vec![3], vec![0, 1, 2]), "{show}");
    for (affinity, expected) in [
        ("4:0", "queue 4; the port has 1, counted from 0 (n-rxq)"),
        ("0:7", "core 7 has no PMD; expected one of switch.pmd-cores = [0, 1]"),
        ("0", "\"0\" does not pin queues; expected QUEUE:CORE"),
    ] {
        let affinity = format!("pmd-rxq-affinity={affinity}");
        let error = daemon.refused(&["bridge/add-port", "br0", "b", "ofport=2", "type=null", &affinity]);
        assert!(error.contains(expected), "{error}");
    }
}

/// Where `pmd-rxq-show` says that the only queue of a port is.
fn core_of(show: &str, port: &str) -> u32 {
    let (before, _) = show.split_once(&format!("  port: {port} ")).unwrap_or_else(|| panic!("no {port} in {show}"));
    before.rsplit("core_id ").next().unwrap().split(':').next().unwrap().parse().unwrap()
}

#[test]
fn queues_are_dealt_by_the_cycles_they_cost() {
    let generator =
        |name: &str, n, rate: &str| port(name, n, "generator", &format!("options = {{ rate = \"{rate}\" }}"));
    let config = "[switch]\npmd-cores = [0, 1, 2]\n".to_owned()
        + &bridge("br0", "f")
        + &generator("heavy1", 1, "max")
        + &generator("light1", 2, "10")
        + &generator("light2", 3, "10")
        + &generator("heavy2", 4, "max")
        + &generator("pinned", 5, "10")
        + "pmd-rxq-affinity = \"0:2\"\n";
    let daemon = Daemon::start_with(&config, &[("f", "actions=drop\n")]);
    let rxq_show = ["dpif-netdev/pmd-rxq-show"];
    let show = daemon.ctl(&rxq_show);
    assert_eq!(core_of(&show, "heavy1"), core_of(&show, "heavy2"), "dealt back and forth: {show}");
    assert_eq!(core_of(&show, "pinned"), 2, "{show}");
    assert!(show.contains("core_id 2:\n  isolated : true\n  port: pinned"), "{show}");
    // An interval in which both were measured.
    let usage = |show: &str, port: &str| -> u32 {
        let line = show.lines().find(|line| line.contains(&format!("port: {port} "))).unwrap();
        line.rsplit("usage:").next().unwrap().trim().trim_end_matches(" %").parse().unwrap_or(0)
    };
    daemon.wait_for(&rxq_show, |show| ["heavy1", "heavy2"].iter().all(|port| usage(show, port) > 10));
    assert_eq!(daemon.ctl(&["dpif-netdev/pmd-rxq-rebalance"]), "pmd rxq rebalance requested.\n");
    let show = daemon.ctl(&rxq_show);
    assert_ne!(core_of(&show, "heavy1"), core_of(&show, "heavy2"), "{show}");
    assert_ne!(core_of(&show, "light1"), core_of(&show, "light2"), "{show}");
    assert_eq!(core_of(&show, "pinned"), 2, "{show}");
    // Where they are now they are polled.
    for port in ["heavy1", "light1", "heavy2", "light2", "pinned"] {
        let count = |text: &str| -> u64 {
            let rest = text.split("RX packets:").nth(1).unwrap();
            rest.split(' ').next().unwrap().parse().unwrap()
        };
        let before = count(&daemon.ctl(&["sluice/port-show", port]));
        daemon.wait_for(&["sluice/port-show", port], |text| count(text) > before);
    }
}

#[test]
fn an_idle_switch_sleeps_if_it_may() {
    let start = |datapath: &str| {
        let config = PMD.to_owned() + datapath + &bridge("br0", "f") + &port("p1", 1, "null", "");
        Daemon::start_with(&config, &[("f", "")])
    };
    let number = |text: &str| text.trim().parse::<u64>().unwrap();
    let count = |daemon: &Daemon, name| number(&daemon.ctl(&["coverage/read-counter", name]));
    let awake = start("");
    awake.wait_for(&["coverage/read-counter", "idle_iterations"], |n| number(n) > 10_000);
    assert_eq!(count(&awake, "sleep_iterations"), 0);
    drop(awake);
    // Behind each iteration that found nothing.
    let asleep = start("[datapath]\npmd-sleep-max = \"500us\"\n");
    asleep.wait_for(&["coverage/read-counter", "sleep_iterations"], |n| number(n) > 1000);
    asleep.wait_for(&["dpif-netdev/pmd-perf-show"], |text| {
        let line = text.lines().find(|line| line.contains("- sleep iterations:")).unwrap();
        let share = line.split('(').nth(1).unwrap().split('%').next().unwrap();
        share.trim().parse::<f64>().unwrap() > 95.0
    });
}

#[test]
fn reload_applies_what_changed_and_leaves_the_rest() {
    let ports = port("gen", 1, "generator", "options = { rate = 1000 }") + &port("sink", 2, "null", "");
    let daemon =
        Daemon::start_with(&(PMD.to_owned() + &bridge("br0", "f") + &ports), &[("f", "udp,actions=output:2\n")]);
    daemon.wait_for(&["coverage/read-counter", "sent"], |n| n.trim() != "0");
    assert_eq!(daemon.ctl(&["sluice/reload"]), "nothing changed\n");

    daemon.ctl(&["bridge/add-flow", "br0", "tcp,actions=drop"]);
    daemon.configure(
        &(PMD.to_owned()
            + &bridge("br0", "f")
            + &ports
            + &port("more", 3, "null", "")
            + "[[bridge]]\nname = \"br1\"\n"),
    );
    assert_eq!(daemon.ctl(&["sluice/reload"]), "br0: port more added\nbr1: added\n");
    assert_eq!(daemon.ctl(&["ofproto/list"]), "br0\nbr1\n");
    // Rules that a command added stay, since the file of rules has not changed.
    assert_eq!(daemon.ctl(&["bridge/dump-flows", "br0"]).lines().count(), 2);

    std::fs::write(daemon.dir.path().join("f"), "udp,actions=output:3\n").unwrap();
    let said = daemon.ctl(&["sluice/reload"]);
    assert!(said.starts_with("br0: rules replaced, and 1 removed that the file never listed ("), "{said}");
    daemon.wait_for(&["dpctl/show", "-s"], |text| !text.split("more").nth(1).unwrap().contains("TX packets:0 "));
    assert_eq!(daemon.ctl(&["bridge/dump-flows", "br0"]).lines().count(), 1);

    daemon.configure("[[bridge]]\nname = \"br0\"\ncolour = \"red\"\n");
    let error = daemon.refused(&["sluice/reload"]);
    assert!(error.contains("switch.toml:5: bridge[0].colour: unknown field") && error.lines().count() == 1, "{error}");
    std::fs::write(daemon.dir.path().join("f"), "udp,actions=\n\nnonsense\n").unwrap();
    daemon.configure(&(PMD.to_owned() + &bridge("br0", "f")));
    let error = daemon.refused(&["sluice/reload"]);
    assert!(error.contains("/f: line ") && error.lines().count() == 1, "{error}");
    // Nothing of a configuration that is wrong is applied.
    assert!(daemon.ctl(&["dpif/show"]).contains("more 3/3"));
    assert_eq!(daemon.signal("TERM").code, Some(0));
}

#[test]
fn reload_keeps_rules_of_others_if_it_is_told_to() {
    let ports = port("gen", 1, "generator", "options = { rate = 1000 }") + &port("sink", 2, "null", "");
    let config = PMD.to_owned() + &bridge("br0", "f") + "keep-rules = true\n" + &ports;
    let first = "udp,actions=output:2\nicmp,actions=drop\npriority=7,ip,actions=drop\n";
    let daemon = Daemon::start_with(&config, &[("f", first)]);
    daemon.wait_for(&["coverage/read-counter", "sent"], |n| n.trim() != "0");
    daemon.ctl(&["bridge/add-flow", "br0", "tcp,actions=drop"]);
    std::fs::write(
        daemon.dir.path().join("f"),
        "udp,actions=output:2\npriority=7,ip,actions=output:2\narp,actions=drop\n",
    )
    .unwrap();
    assert_eq!(daemon.ctl(&["sluice/reload"]), "br0: rules replaced\n");
    let rules = daemon.ctl(&["bridge/dump-flows", "br0"]);
    for (rule, is_there) in [
        ("tcp,actions=drop", true),
        ("icmp,actions=drop", false),
        ("arp,actions=drop", true),
        ("priority=7,ip,actions=output:2", true),
        ("udp,actions=output:2", true),
    ] {
        assert_eq!(rules.contains(rule), is_there, "{rule}: {rules}");
    }
    // What is listed as before is as before, with its counters.
    assert!(!rules.lines().any(|line| line.contains("udp") && line.contains("n_packets=0,")), "{rules}");
    std::fs::write(daemon.dir.path().join("f"), "udp,actions=output:2\n\nudp,actions=output:70000\n").unwrap();
    let error = daemon.refused(&["sluice/reload"]);
    assert!(error.contains("f: line 3"), "{error}");
}

#[test]
fn reload_applies_files_of_groups_and_meters() {
    let config = PMD.to_owned()
        + &bridge("br0", "f")
        + "groups = \"g\"\nmeters = \"m\"\n"
        + &port("p1", 1, "null", "")
        + &port("p2", 2, "null", "");
    let rules = "udp,actions=meter:1,group:1\ntcp,actions=group:2\nicmp,actions=group:7\n";
    let groups = "group_id=1,type=all,bucket=output:p1\ngroup_id=2,type=all,bucket=output:p1\n";
    let group_7 = "group_id=7,type=all,bucket=output:p2\n";
    let meter =
        |rate: u32| format!("meter=1 pktps bands=type=drop rate={rate}\nmeter=2 pktps bands=type=drop rate=1\n");
    let both = format!("{groups}{group_7}");
    let daemon = Daemon::start_with(&config, &[("f", rules), ("g", &both), ("m", &meter(100))]);
    let write = |name: &str, text: &str| std::fs::write(daemon.dir.path().join(name), text).unwrap();
    let dump = |what: &str| daemon.ctl(&[what, "br0"]);
    assert_eq!(daemon.ctl(&["sluice/reload"]), "nothing changed\n");

    // One of a command stays; what the file says otherwise changes; what it lists no more goes, and rules that use it.
    daemon.ctl(&["bridge/add-group", "br0", "group_id=9,type=all,bucket=output:p1"]);
    write("g", &groups.replace("2,type=all,bucket=output:p1", "2,type=all,bucket=output:p2"));
    assert_eq!(daemon.ctl(&["sluice/reload"]), "br0: groups replaced\n");
    let shown: String = [(1, 1), (2, 2), (9, 1)]
        .map(|(group, port)| format!(" group_id={group},type=all,bucket=bucket_id:0,actions=output:p{port}\n"))
        .concat();
    assert_eq!(dump("bridge/dump-groups"), shown);
    assert_eq!(dump("bridge/dump-flows").lines().count(), 2);

    write("m", meter(200).lines().next().unwrap());
    assert_eq!(daemon.ctl(&["sluice/reload"]), "br0: meters replaced\n");
    assert_eq!(dump("bridge/dump-meters"), "meter=1 pktps bands=\ntype=drop rate=200\n");
    assert_eq!(dump("bridge/dump-flows").lines().count(), 2);

    // A file that is wrong is told with its place, and changes nothing.
    write("g", "group_id=1,type=all,bucket=output:p2\ngroup_id=x\n");
    let error = daemon.refused(&["sluice/reload"]);
    assert!(error.contains("/g: line 2, column ") && error.lines().count() == 1, "{error}");
    write("g", groups);
    write("m", "meter=1 pktps bands=type=drop rate=5\nmeter=1\n");
    let error = daemon.refused(&["sluice/reload"]);
    assert!(error.contains("/m: line 2: column ") && error.lines().count() == 1, "{error}");
    assert_eq!((dump("bridge/dump-groups"), dump("bridge/dump-meters").contains("rate=200")), (shown, true));

    // Without files both go, and all rules that used them.
    daemon.configure(&config.replace("groups = \"g\"\nmeters = \"m\"\n", ""));
    write("f", "actions=drop\n");
    assert_eq!(daemon.ctl(&["sluice/reload"]), "br0: meters replaced\nbr0: groups replaced\nbr0: rules replaced\n");
    assert_eq!(dump("bridge/dump-groups").lines().count(), 1);
    assert_eq!((dump("bridge/dump-meters"), dump("bridge/dump-flows").lines().count()), (String::new(), 1));
}

#[test]
fn the_bad_start_of_replay_and_ctl_is_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let out = out.to_str().unwrap();
    let line =
        one_line_failure(&sluice(&["replay", "--flows", "/no/such", "--in", "1=/no/such.pcap", "--out-dir", out]));
    assert!(line.starts_with("sluice: /no/such.pcap: "), "{line}");
}
