//! A directory with everything that a daemon of Open vSwitch has: database server, sockets, pidfiles, logs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything here takes on a busy machine; it only ends cases that hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// The installation of a case. Dropping it ends its processes.
pub struct Rig {
    dir: tempfile::TempDir,
}

impl Rig {
    /// A directory in which `ovs-vswitchd` is the program under test.
    pub fn new() -> Rig {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_sluice"), dir.path().join("ovs-vswitchd")).unwrap();
        Rig { dir }
    }

    /// The same with a database server that runs.
    pub fn with_database() -> Rig {
        let rig = Rig::new();
        rig.start_database(&[]);
        rig
    }

    /// Starts a database server.
    pub fn start_database(&self, more: &[&str]) {
        self.run("ovsdb-tool", &["create", "conf.db", "/usr/share/openvswitch/vswitch.ovsschema"]);
        let usual = ["conf.db", "--detach", "--no-chdir", "--pidfile", "--log-file", "--remote=punix:db.sock"];
        self.run("ovsdb-server", &[&usual, more].concat());
        self.run("ovs-vsctl", &["--no-wait", "init"]);
    }

    /// A file of the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What a file of the directory holds; nothing if it is not there.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// A program of Debian's, or the one under test, in the directory.
    pub fn command(&self, program: &str) -> Command {
        let own = self.path(program);
        let mut command = if own.exists() { Command::new(own) } else { Command::new(program) };
        let dir = self.dir.path();
        command.current_dir(dir).stdin(Stdio::null()).env("OVS_SYSLOG_METHOD", "null").env("OVS_CTL_TIMEOUT", "60");
        command.envs(["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"].map(|name| (name, dir)));
        command
    }

    /// Runs a program to its end.
    pub fn output(&self, program: &str, args: &[&str]) -> Output {
        self.command(program).args(args).output().unwrap()
    }

    /// What a program that must succeed prints.
    pub fn run(&self, program: &str, args: &[&str]) -> String {
        let output = self.output(program, args);
        let said = String::from_utf8_lossy(&output.stderr);
        let log = self.read("ovs-vswitchd.log");
        assert!(output.status.success(), "{program} {args:?}: {}: {said}\nlog: {log}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    /// What the daemon answers to a command.
    pub fn appctl(&self, args: &[&str]) -> String {
        self.run("ovs-appctl", args)
    }

    /// Starts the daemon as Open vSwitch's scripts do.
    pub fn start(&self, more: &[&str]) {
        let usual = ["--detach", "--no-chdir", "--pidfile", "--log-file"];
        self.run("ovs-vswitchd", &[&usual, more].concat());
    }

    /// The process id in a pidfile.
    pub fn pid(&self, name: &str) -> Option<u32> {
        self.read(name).trim().parse().ok()
    }

    /// Waits until `is_so`.
    pub fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}: never\nlog: {}", self.read("ovs-vswitchd.log"));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends the daemon by command, and waits until its process is gone.
    pub fn stop(&self) {
        let pid = self.pid("ovs-vswitchd.pid").unwrap();
        self.appctl(&["exit", "--cleanup"]);
        self.wait_until("the daemon's end", || !is_running(pid));
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for pidfile in ["ovs-vswitchd.pid", "ovsdb-server.pid"] {
            if let Some(pid) = self.pid(pidfile) {
                let _ = Command::new("kill").arg(pid.to_string()).stderr(Stdio::null()).status();
            }
        }
    }
}

/// Whether there is a process of that number of which a thread has not ended. The first thread of one that is killed ends before
/// the others, which hold its files, and the lock of its pidfile with them.
pub fn is_running(pid: u32) -> bool {
    let tasks = std::fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task")).into_iter().flatten();
    let mut stats = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
    // A process that has ended stays a zombie until it is waited for.
    stats.any(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z")))
}
