//! A switch as a child process in a directory of its own, and the ways to talk to it.
#![allow(dead_code, reason = "each test file uses a part")]

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The program under test.
pub const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");

/// Longer than anything here takes on a busy machine; it only ends tests that hang.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A port of a configuration.
pub fn port(name: &str, ofport: u32, kind: &str, more: &str) -> String {
    format!("[[bridge.port]]\nname = \"{name}\"\nofport = {ofport}\ntype = \"{kind}\"\n{more}\n")
}

/// A bridge of a configuration, its ports to follow.
pub fn bridge(name: &str, flows: &str) -> String {
    format!("[[bridge]]\nname = \"{name}\"\nflows = \"{flows}\"\n")
}

/// One PMD.
pub const PMD: &str = "[switch]\npmd-cores = [0]\n";

/// One PMD, a bridge with the rules of `flows.txt`, and from port 1 to port 2 what a generator with these options
/// makes: 60-byte UDP frames from 1.0.0.1.
pub fn from_generator_to_sink(options: &str) -> String {
    let generator = port("gen", 1, "generator", &format!("options = {{ {options} }}"));
    PMD.to_owned() + &bridge("br0", "flows.txt") + &generator + &port("sink", 2, "null", "")
}

/// A switch that runs.
pub struct Daemon {
    child: Child,
    pub dir: tempfile::TempDir,
}

/// What it left behind.
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub log: String,
    pub dir: tempfile::TempDir,
}

/// Runs `sluice` with `args` to its end.
pub fn sluice(args: &[&str]) -> Output {
    Command::new(SLUICE).args(args).stdin(Stdio::null()).output().unwrap()
}

/// Asserts that `output` is a failure told in one line, and returns the line.
pub fn one_line_failure(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(text.lines().count(), 1, "more than a line: {text}");
    text.trim_end().to_owned()
}

impl Daemon {
    /// Starts a switch with this configuration (to which the rundir is added) and waits for its control socket.
    pub fn start(config: &str) -> Daemon {
        Self::start_with(config, &[])
    }

    /// The same with files beside the configuration.
    pub fn start_with(config: &str, files: &[(&str, &str)]) -> Daemon {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        Self::write_config(dir.path(), config);
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let out = std::fs::File::create(dir.path().join("out")).unwrap();
        Self::spawn(dir, out.into(), log.into())
    }

    /// Starts a switch again with the configuration in a directory that another one has left.
    pub fn start_again(dir: tempfile::TempDir) -> Daemon {
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let out = std::fs::File::create(dir.path().join("out")).unwrap();
        Self::spawn(dir, out.into(), log.into())
    }

    /// Starts a switch whose standard output and standard error are these.
    pub fn start_writing_to(config: &str, stdout: impl Into<Stdio>, stderr: impl Into<Stdio>) -> Daemon {
        let dir = tempfile::tempdir().unwrap();
        Self::write_config(dir.path(), config);
        for name in ["log", "out"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        Self::spawn(dir, stdout.into(), stderr.into())
    }

    fn spawn(dir: tempfile::TempDir, out: Stdio, log: Stdio) -> Daemon {
        let child = Command::new(SLUICE)
            .args(["run", "--dump"])
            .arg(dir.path().join("switch.toml"))
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(log)
            .spawn()
            .unwrap();
        let mut daemon = Daemon { child, dir };
        let deadline = Instant::now() + PATIENCE;
        while !daemon.socket().exists() {
            let ended = daemon.child.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < deadline, "the switch did not start: {}", daemon.log());
            std::thread::sleep(Duration::from_millis(10));
        }
        daemon
    }

    /// Writes the configuration again, for `sluice/reload`.
    pub fn configure(&self, config: &str) {
        Self::write_config(self.dir.path(), config);
    }

    fn write_config(dir: &Path, config: &str) {
        let rundir = format!("rundir = \"{}\"\n", dir.join("run").display());
        let text = match config.split_once("[switch]\n") {
            Some((before, after)) => format!("{before}[switch]\n{rundir}{after}"),
            None => format!("[switch]\n{rundir}{config}"),
        };
        std::fs::write(dir.join("switch.toml"), text).unwrap();
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("run/sluice.ctl")
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    /// Its memory in use, KiB.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Sends a command with `sluice ctl`.
    pub fn ctl_output(&self, args: &[&str]) -> Output {
        Command::new(SLUICE).args(["ctl", "-T", "60", "-t"]).arg(self.socket()).args(args).output().unwrap()
    }

    /// The reply to a command that must succeed.
    pub fn ctl(&self, args: &[&str]) -> String {
        let output = self.ctl_output(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The error of a command that the switch must refuse: exit code 2, and the switch's text on standard error.
    pub fn refused(&self, args: &[&str]) -> String {
        let output = self.ctl_output(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
        let text = String::from_utf8(output.stderr).unwrap();
        let (error, tail) = text.rsplit_once("sluice: ").unwrap();
        assert!(tail.ends_with(": server returned an error\n"), "{text}");
        error.trim_end().to_owned()
    }

    /// Asks until the reply satisfies; fails with the last one.
    pub fn wait_for(&self, args: &[&str], satisfies: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let reply = self.ctl(args);
            if satisfies(&reply) {
                return reply;
            }
            assert!(Instant::now() < deadline, "{args:?} never satisfied: {reply}\nlog: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the log has a line that contains `text`.
    pub fn wait_for_log(&self, text: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.log().lines().any(|line| line.contains(text)) {
            assert!(Instant::now() < deadline, "the log never said {text}: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a signal, waits for the end.
    pub fn signal(self, signal: &str) -> Ended {
        self.send_signal(signal);
        self.ended()
    }

    /// Sends a signal.
    pub fn send_signal(&self, signal: &str) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap().success());
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end.
    pub fn ended(mut self) -> Ended {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "the switch does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        };
        let read = |name: &str| {
            let mut text = String::new();
            std::fs::File::open(self.dir.path().join(name)).unwrap().read_to_string(&mut text).unwrap();
            text
        };
        let (stdout, log) = (read("out"), read("log"));
        let dir = std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap());
        Ended { code: status.code(), stdout, log, dir }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
