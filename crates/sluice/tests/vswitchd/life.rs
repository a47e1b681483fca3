//! The daemon's start, its log and its end.

use crate::rig::{Rig, is_running};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The messages that tell of trouble.
fn complaints(log: &str) -> Vec<&str> {
    log.lines().filter(|line| ["|WARN|", "|ERR|", "|EMER|"].iter().any(|level| line.contains(level))).collect()
}

pub fn it_detaches_when_it_is_configured() {
    let rig = Rig::with_database();
    rig.run("ovs-vsctl", &["--no-wait", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"]);
    let started = rig.output("ovs-vswitchd", &["--detach", "--no-chdir", "--pidfile", "--log-file", "-vunixctl"]);
    assert!(started.status.success() && started.stdout.is_empty());
    let said = String::from_utf8(started.stderr).unwrap();
    // What Open vSwitch's own daemon says before it detaches.
    let allowed = [
        "|vlog|INFO|opened log file",
        "|ovs_numa|INFO|Discovered ",
        "|reconnect|INFO|",
        "|bridge|INFO|",
        "|connmgr|INFO|br0: added service",
        "|dpif_netdev|INFO|PMD ",
        "|ofproto_dpif|INFO|netdev@ovs-netdev: ",
    ];
    let is_allowed = |line: &&str| allowed.iter().any(|text| line.contains(text));
    assert_eq!(said.lines().filter(|line| !is_allowed(line)).collect::<Vec<_>>(), [""; 0]);
    // What ovs-vsctl would wait for is there at once.
    assert_eq!(rig.run("ovs-vsctl", &["--no-wait", "get", "Bridge", "br0", "datapath_id"]).trim().len(), 18);
    let pid = rig.pid("ovs-vswitchd.pid").unwrap();
    assert_eq!(std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap(), "ovs-vswitchd\n");
    assert_eq!(std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), rig.path("").canonicalize().unwrap());
    assert_eq!(rig.appctl(&["version"]), "ovs-vswitchd (Open vSwitch) 3.1.0\n");
    assert!(rig.appctl(&["list-commands"]).starts_with("The available commands are:\n"));
    assert!(rig.path(&format!("ovs-vswitchd.{pid}.ctl")).exists());
    rig.stop();
    assert!(!rig.path("ovs-vswitchd.pid").exists());
    assert!(!rig.path(&format!("ovs-vswitchd.{pid}.ctl")).exists());
    assert!(!rig.path("br0.mgmt").exists());
}

pub fn a_second_one_is_refused() {
    let rig = Rig::with_database();
    rig.start(&[]);
    let pid = rig.pid("ovs-vswitchd.pid").unwrap();
    let second = rig.output("ovs-vswitchd", &["--detach", "--no-chdir", "--pidfile"]);
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8(second.stderr).unwrap();
    let pidfile = rig.path("ovs-vswitchd.pid");
    let expected = format!("ovs-vswitchd: {}: already running as pid {pid}, aborting", pidfile.display());
    assert_eq!(said.lines().last(), Some(expected.as_str()));
    assert_eq!(rig.pid("ovs-vswitchd.pid"), Some(pid));
    let status = Command::new("kill").arg(pid.to_string()).status().unwrap();
    assert!(status.success());
    rig.wait_until("the end by SIGTERM", || !is_running(pid));
    assert!(!pidfile.exists() && !rig.path(&format!("ovs-vswitchd.{pid}.ctl")).exists());
    // A pidfile that nobody keeps locked is stale.
    std::fs::write(&pidfile, format!("{pid}\n")).unwrap();
    rig.start(&[]);
    rig.stop();
}

pub fn a_monitor_starts_it_again_after_a_crash() {
    let rig = Rig::with_database();
    rig.start(&["--monitor"]);
    let pid = rig.pid("ovs-vswitchd.pid").unwrap();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
    let monitor: u32 = parent.trim().parse().unwrap();
    assert!(Command::new("kill").args(["-ABRT", &pid.to_string()]).status().unwrap().success());
    rig.wait_until("the restart", || rig.pid("ovs-vswitchd.pid").is_some_and(|new| new != pid && is_running(new)));
    rig.wait_until("the control socket", || rig.output("ovs-appctl", &["version"]).status.success());
    assert!(is_running(monitor));
    rig.stop();
    rig.wait_until("the monitor's end", || !is_running(monitor));
}

pub fn it_waits_for_its_database_without_haste() {
    let rig = Rig::new();
    let args = ["unix:no.sock", "--pidfile", "--log-file", "--unixctl=x.ctl"];
    let mut child = rig.command("ovs-vswitchd").args(args).stderr(Stdio::null()).spawn().unwrap();
    rig.wait_until("the control socket", || rig.path("x.ctl").exists());
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(child.try_wait().unwrap(), None);
    let ticks = cpu_ticks(child.id());
    assert!(ticks < 100, "{ticks} hundredths of a second of processor time in 2 seconds");
    let socket = rig.path("x.ctl");
    rig.appctl(&["-t", socket.to_str().unwrap(), "exit"]);
    assert!(child.wait().unwrap().success());
    assert_eq!(complaints(&rig.read("ovs-vswitchd.log")), [""; 0]);
}

/// How often a process' threads have gone to sleep: its main thread alone, and all. Source: proc(5), status.
fn sleeps(pid: u32) -> [u64; 2] {
    let of = |task: &str| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/task/{task}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.map_or(0, |number| number.trim().parse::<u64>().unwrap())
    };
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let all = tasks.map(|task| of(task.unwrap().file_name().to_str().unwrap())).sum();
    [of(&pid.to_string()), all]
}

pub fn it_sleeps_while_there_is_nothing_to_do() {
    const SECONDS: u64 = 5;
    let rig = Rig::with_database();
    rig.start(&["--enable-dummy"]);
    rig.run("ovs-vsctl", &["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy"]);
    rig.run("ovs-vsctl", &["add-port", "br0", "p1", "--", "set", "interface", "p1", "type=dummy"]);
    let pid = rig.pid("ovs-vswitchd.pid").unwrap();
    // What the changes have brought with them is done.
    std::thread::sleep(Duration::from_secs(2));
    let before = sleeps(pid);
    std::thread::sleep(Duration::from_secs(SECONDS));
    let slept = [0, 1].map(|i| sleeps(pid)[i] - before[i]);
    assert!(slept[0] <= 8 * SECONDS, "the main loop woke {} times in {SECONDS} s", slept[0]);
    assert!(slept[1] <= 24 * SECONDS, "all threads woke {} times in {SECONDS} s", slept[1]);
    // And yet it learns at once: a command that asks for a port's address finds it.
    let packet = "in_port(1),eth(src=50:54:00:00:00:05,dst=ff:ff:ff:ff:ff:ff),eth_type(0x1234)";
    rig.appctl(&["netdev-dummy/receive", "p1", packet]);
    rig.wait_until("the address", || rig.appctl(&["fdb/show", "br0"]).contains("50:54:00:00:00:05"));
    rig.stop();
}

pub fn it_ends_as_open_vswitch_does() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::ExitStatusExt;
    let rig = Rig::with_database();
    // SIGHUP, too: there is no file to read again. Whoever started the test may have it ignored.
    for (name, number) in [("TERM", 15), ("HUP", 1)] {
        let mut child = rig.command("env");
        child.arg("--default-signal=HUP").arg(rig.path("ovs-vswitchd"));
        child.args(["--no-chdir", "--pidfile", "--log-file", "--unixctl=x.ctl"]);
        let mut child = child.stderr(Stdio::null()).spawn().unwrap();
        let log = || rig.read("ovs-vswitchd.log");
        rig.wait_until("the first configuration", || log().contains("|bridge|INFO|ovs-vswitchd ("));
        let mode = std::fs::metadata(rig.path("x.ctl")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o750, "the group may use the control socket");
        assert!(Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().signal(), Some(number), "{name}: {}", log());
        assert!(!rig.path("ovs-vswitchd.pid").exists() && !rig.path("x.ctl").exists());
        std::fs::remove_file(rig.path("ovs-vswitchd.log")).unwrap();
    }
}

/// Processor time of a process, in hundredths of a second. Source: proc(5), stat.
fn cpu_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum()
}

pub fn its_log_is_open_vswitchs() {
    let rig = Rig::with_database();
    rig.start(&["-vvconn", "-vconsole:emer", "-vsyslog:err", "-vfile:info"]);
    let last = "|bridge|INFO|ovs-vswitchd (Open vSwitch) 3.1.0\n";
    rig.wait_until("its version", || rig.read("ovs-vswitchd.log").contains(last));
    let log = rig.read("ovs-vswitchd.log");
    let first = log.lines().next().unwrap();
    assert!(first.ends_with(&format!("Z|00001|vlog|INFO|opened log file {}", rig.path("ovs-vswitchd.log").display())));
    assert_eq!(complaints(&log), [""; 0]);
    assert!(rig.appctl(&["vlog/list"]).contains("\nvconn              OFF        ERR       INFO\n"));
    assert!(rig.appctl(&["vlog/list-pattern"]).contains("\nFILE     none                              %D{"));
    rig.appctl(&["vlog/set", "PATTERN:file:%c says %m", "unixctl:dbg"]);
    rig.appctl(&["coverage/show"]);
    assert!(rig.read("ovs-vswitchd.log").contains("\nunixctl says received request coverage/show[], id=0\n"));
    std::fs::rename(rig.path("ovs-vswitchd.log"), rig.path("old.log")).unwrap();
    rig.appctl(&["vlog/reopen"]);
    assert!(rig.read("old.log").ends_with("vlog says closing log file\n"));
    assert!(rig.read("ovs-vswitchd.log").starts_with("vlog says opened log file "));
    rig.appctl(&["vlog/close"]);
    rig.appctl(&["vlog/disable-rate-limit", "dpif"]);
    let refused = rig.output("ovs-appctl", &["vlog/enable-rate-limit", "nonsense"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(refused.stderr.starts_with(b"unknown module\n"));
    rig.stop();
}

pub fn what_the_command_line_cannot_say_is_told() {
    let rig = Rig::new();
    let refused = |args: &[&str], text: &str| {
        let output = rig.output("ovs-vswitchd", args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), format!("ovs-vswitchd: {text}\n"));
    };
    refused(&["--nonsense"], "unexpected argument '--nonsense' found; use --help for usage");
    refused(&["unix:a", "unix:b"], "unexpected argument 'unix:b' found; use --help for usage");
    refused(&["-vnonsense:dbg"], "processing \"nonsense:dbg\": no destination, level, or module \"nonsense\"");
    refused(&["--enable-dummy=always"], "invalid value 'always' for '--enable-dummy[=<HOW>]'; use --help for usage");
    let version = rig.run("ovs-vswitchd", &["--version"]);
    let expected = concat!("ovs-vswitchd (Open vSwitch) 3.1.0\nSluice ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(version, expected);
    assert!(rig.run("ovs-vswitchd", &["--help"]).contains("--overwrite-pidfile"));
    let by_subcommand = Command::new(env!("CARGO_BIN_EXE_sluice")).args(["vswitchd", "--version"]).output().unwrap();
    assert_eq!(by_subcommand.stdout, expected.as_bytes());
    assert!(!Command::new(env!("CARGO_BIN_EXE_sluice")).args(["vswitchd", "--nonsense"]).status().unwrap().success());
}
