//! A database server, and a switch that follows it, in a private directory.

use sluice_connmgr::SocketMode;
use sluice_vswitch::{DesiredState, Switch};
use sluice_vswitchd::{DummyOverride, Options, Remote, Vswitchd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Debian's schema of the database.
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// No case takes seconds on an idle machine; a busy one has time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A database server.
pub struct Server {
    dir: TempDir,
    child: Child,
}

/// A switch that follows a database.
pub struct Daemon {
    pub switch: Arc<Switch>,
    ends: Arc<AtomicBool>,
    is_configured: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// A server of a database that ovs-vsctl has initialised.
    pub fn start() -> Server {
        let dir = tempfile::tempdir().unwrap();
        let created = Command::new("ovsdb-tool").arg("create").arg(dir.path().join("db")).arg(SCHEMA).status();
        assert!(created.unwrap().success());
        let child = spawn(dir.path());
        let server = Server { dir, child };
        server.await_socket();
        server.vsctl("--no-wait init");
        server
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("db.sock")
    }

    /// A switch that follows this server.
    pub fn daemon(&self) -> Daemon {
        let switch = Switch::prepare(&DesiredState { pmd_cores: vec![0], ..DesiredState::default() }).unwrap();
        switch.start_openflow(self.dir.path(), SocketMode::OpenVSwitch).unwrap();
        let remotes = vec![Remote::Unix(self.socket())];
        let rundir = self.dir.path().to_owned();
        let options = Options { remotes, tls: None, dummies: DummyOverride::None, rundir, is_confined: false };
        let vswitchd = Vswitchd::new(Arc::clone(&switch), options).unwrap();
        Daemon::start(switch, vswitchd)
    }

    /// What ovs-vsctl says, which must succeed.
    pub fn vsctl(&self, command: &str) -> String {
        let output = self.try_vsctl(command);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ovs-vsctl {command}: {error}");
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// What ovs-vsctl says. Words that hold spaces cannot be given.
    pub fn try_vsctl(&self, command: &str) -> Output {
        let db = format!("--db=unix:{}", self.socket().display());
        let timeout = format!("--timeout={}", PATIENCE.as_secs());
        Command::new("ovs-vsctl").args([db, timeout]).args(command.split(' ')).output().unwrap()
    }

    /// What ovs-ofctl says of a bridge.
    pub fn ofctl(&self, command: &str, bridge: &str) -> String {
        let socket = format!("unix:{}", self.dir.path().join(format!("{bridge}.mgmt")).display());
        let output = Command::new("ovs-ofctl").args([command, &socket]).output().unwrap();
        assert!(output.status.success(), "ovs-ofctl {command}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    fn await_socket(&self) {
        await_that("the server listens", || std::os::unix::net::UnixStream::connect(self.socket()).is_ok());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(dir: &Path) -> Child {
    let remote = format!("--remote=punix:{}", dir.join("db.sock").display());
    let mut command = Command::new("ovsdb-server");
    command.arg("-vfile:off").arg("-vconsole:off").arg(format!("--unixctl={}", dir.join("ctl").display()));
    command.arg(remote).arg(dir.join("db")).spawn().unwrap()
}

impl Daemon {
    fn start(switch: Arc<Switch>, mut vswitchd: Vswitchd) -> Daemon {
        let (ends, is_configured) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
        let (told_end, configured) = (Arc::clone(&ends), Arc::clone(&is_configured));
        let began = Instant::now();
        let turns = move || {
            while !told_end.load(Ordering::Relaxed) {
                let now_ms = began.elapsed().as_millis() as u64;
                vswitchd.run(now_ms);
                configured.store(vswitchd.is_configured(), Ordering::Relaxed);
                vswitchd.wait(now_ms, 20).unwrap();
            }
        };
        Daemon { switch, ends, is_configured, thread: Some(std::thread::spawn(turns)) }
    }

    /// Waits until the first configuration is in force and written.
    pub fn await_configured(&self) {
        await_that("the first configuration is in force", || self.is_configured.load(Ordering::Relaxed));
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            self.switch.stop();
            assert!(ended.is_ok() || std::thread::panicking(), "the loop panicked");
        }
    }
}

/// Waits until something is so.
pub fn await_that(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
