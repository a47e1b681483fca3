//! The loop: the database's events, the lock, reconfiguration, and the transactions that tell what came of it.
//!
//! Nothing is configured before the lock is held and the first contents are there. Writing is repeated until it
//! succeeds: what is written depends on the switch, what is sent on the replica. Source: Open vSwitch vswitchd/bridge.c,
//! `bridge_run`.

mod apply;
mod events;
mod refresh;

use crate::dpdk::{CannotInit, Dpdk};
use crate::plan::{DummyOverride, OfPortAllocators, Plan, PlanContext};
use crate::records::Records;
use crate::schema::{DATABASE, LOCK, tables};
use crate::status::Applied;
use crate::vhost_sock_dir::vhost_sock_dir;
use refresh::Periodic;
use sluice_ovsdb::{
    Client, Commit, Config, ConfigError, Interest, LockState, Remote, TlsConfig, Txn, TxnId, TxnStatus, Uuid,
};
use sluice_port::{LinkMonitor, RouteMonitor};
use sluice_vswitch::{DesiredState, Switch};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

/// What a [`Vswitchd`] is told at its start.
#[derive(Clone, Debug)]
pub struct Options {
    /// The database servers; several are a cluster's.
    pub remotes: Vec<Remote>,
    /// How TLS is spoken to servers of `ssl:` remotes.
    pub tls: Option<Arc<TlsConfig>>,
    /// Which types are dummies, for tests.
    pub dummies: DummyOverride,
    /// The directory of sockets.
    pub rundir: PathBuf,
    /// Whether sockets that the database names have to be in `rundir`.
    pub is_confined: bool,
}

/// Makes a switch what a database says.
pub struct Vswitchd {
    switch: Arc<Switch>,
    dummies: DummyOverride,
    rundir: PathBuf,
    is_confined: bool,
    /// Where sockets of listening vhost-user ports are; `None` before the first configuration, which decides it.
    vhost_sock_dir: Option<PathBuf>,
    dpdk: Dpdk,
    /// Why the daemon has to end, if so.
    failure: Option<CannotInit>,
    /// Lines that are logged once.
    noted: HashSet<String>,
    client: Client,
    numbers: OfPortAllocators,
    /// The database's contents have been received, once at least.
    was_synced: bool,
    /// The switch is configured as the contents say, once at least.
    was_reconfigured: bool,
    /// The tables are being filled after a restart. Once that is over, the database is no longer asked.
    flow_restore_wait: bool,
    /// What the switch is as far as the database does not say.
    base: DesiredState,
    /// What came of the last reconfiguration.
    applied: Applied,
    /// The transaction that says so.
    writing: Writing,
    /// Hears of devices of the kernel, unless the kernel does not tell.
    links: Option<LinkMonitor>,
    /// Hears of the kernel's routes, likewise: tunnels go by them.
    routes: Option<RouteMonitor>,
    /// A device came, went or changed: what could not be opened is tried again.
    links_changed: bool,
    status: Periodic,
    statistics: Periodic,
    statistics_interval_ms: u64,
    /// What is written next has the counters of new interfaces.
    tells_statistics: bool,
    is_configured: bool,
}

/// How far the database knows what came of the last reconfiguration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    /// It is to be told.
    Due,
    /// It is being told.
    UnderWay(TxnId),
    /// It knows.
    Done,
}

impl Vswitchd {
    /// For a switch whose threads and OpenFlow service run; it connects when it is first run.
    ///
    /// # Errors
    /// If a remote needs TLS and there is none.
    pub fn new(switch: Arc<Switch>, options: Options) -> Result<Self, ConfigError> {
        let config = Config { lock: Some(LOCK.into()), ..Config::new(DATABASE, tables(), options.remotes) };
        Ok(Vswitchd {
            base: switch.state(),
            switch,
            dummies: options.dummies,
            rundir: options.rundir,
            is_confined: options.is_confined,
            vhost_sock_dir: None,
            dpdk: Dpdk::default(),
            failure: None,
            noted: HashSet::new(),
            client: Client::new(config, options.tls)?,
            numbers: OfPortAllocators::new(),
            was_synced: false,
            was_reconfigured: false,
            flow_restore_wait: true,
            applied: Applied::default(),
            writing: Writing::Done,
            links: LinkMonitor::new().inspect_err(|error| tracing::info!("links are not watched: {error}")).ok(),
            routes: RouteMonitor::new().inspect_err(|error| tracing::info!("routes are not watched: {error}")).ok(),
            links_changed: false,
            status: Periodic::default(),
            statistics: Periodic::default(),
            statistics_interval_ms: 0,
            tells_statistics: false,
            is_configured: false,
        })
    }

    /// Takes a turn, without waiting for the database: what came from there is carried out, and what came of it written.
    pub fn run(&mut self, now_ms: u64) {
        self.client.run(now_ms);
        self.handle_events(now_ms);
        if self.client.session().lock() == LockState::Contended {
            self.take_bridges_down();
        }
        if self.client.session().lock() != LockState::Held || !self.was_synced {
            return;
        }
        let changes = self.client.session_mut().take_changes();
        let again = std::mem::take(&mut self.links_changed) && self.applied.lacks_interfaces();
        if changes.alert() || again || !self.was_reconfigured {
            self.was_reconfigured = true;
            self.reconfigure(now_ms);
        }
        if self.writing == Writing::Due {
            self.write();
        }
        self.refresh(now_ms);
        // What was committed is sent now.
        self.client.run(now_ms);
        self.handle_events(now_ms);
    }

    /// Another daemon has the lock: this one has no bridges until it gets the lock back. Source: `bridge_run`.
    fn take_bridges_down(&mut self) {
        if !std::mem::take(&mut self.was_reconfigured) {
            return;
        }
        self.numbers.clear();
        self.applied = Applied::default();
        self.writing = Writing::Done;
        if let Err(error) = self.switch.reconfigure(&self.base) {
            tracing::error!(target: "bridge", "bridges cannot be taken down: {error}");
        }
        self.switch.sync_bundles();
    }

    /// When to run next, if the socket of [`Vswitchd::interests`] does not become ready before; 0 for at once.
    pub fn deadline_ms(&self) -> Option<u64> {
        let refresh = if self.was_reconfigured { self.refresh_deadline_ms() } else { None };
        self.client.deadline_ms().into_iter().chain(refresh).min()
    }

    /// What to wait for: the database's socket, while there is one, and news of devices and routes.
    pub fn interests(&self) -> impl Iterator<Item = Interest<'_>> {
        let news = [self.links.as_ref().map(LinkMonitor::fd), self.routes.as_ref().map(RouteMonitor::fd)];
        let news = news.into_iter().flatten().map(|fd| Interest { fd, read: true, write: false });
        self.client.interest().into_iter().chain(news)
    }

    /// Waits until the database's socket is ready or its session has something to do, `limit_ms` at most. News of devices and
    /// routes, and statistics that are due, do not end it: for programs that wait for the database only.
    ///
    /// # Errors
    /// If the system cannot wait.
    pub fn wait(&self, now_ms: u64, limit_ms: u64) -> std::io::Result<()> {
        self.client.wait(now_ms, limit_ms)
    }

    /// Whether the first configuration is in force and the database knows.
    pub fn is_configured(&self) -> bool {
        self.is_configured
    }

    /// Why the daemon has to end, if it has to: the database requires something that cannot be had.
    pub fn failure(&self) -> Option<String> {
        self.failure.as_ref().map(CannotInit::to_string)
    }

    fn reconfigure(&mut self, now_ms: u64) {
        let records = Records::read(self.client.session().replica());
        self.update_flow_restore_wait(&records);
        let vhost_sock_dir = self.settle_vhost_sock_dir(&records);
        if let Some(row) = &records.open_vswitch
            && let Err(failure) =
                self.dpdk.follow(&row.other_config, &self.switch, &mut |note| note.log(&mut self.noted))
        {
            self.failure = Some(failure);
            return;
        }
        let context = PlanContext {
            base: &self.base,
            dummies: self.dummies,
            confinement: self.is_confined.then_some(&self.rundir),
            vhost_sock_dir: &vhost_sock_dir,
            has_dpdk: self.dpdk.is_running(),
            waits_for_flows: self.flow_restore_wait,
            now_ms,
        };
        let plan = Plan::make(&records, &context, &mut self.numbers);
        plan.notes.iter().for_each(|note| note.log(&mut self.noted));
        let interval = records.open_vswitch.as_ref().and_then(|row| row.other_config.number("stats-update-interval"));
        let interval = interval.unwrap_or(0);
        if interval != self.statistics_interval_ms {
            self.statistics_interval_ms = interval;
            self.statistics.request_revalidation();
        }
        let known: HashSet<Uuid> = self.applied.devices().map(|(interface, ..)| interface.uuid).collect();
        self.applied = apply::apply(&self.switch, &plan, &mut self.numbers);
        self.applied.has_dpdk = self.dpdk.is_running();
        self.applied.configuration = records.open_vswitch.map(|row| (row.uuid, row.next_cfg));
        // A new interface's counters come with its number.
        if self.applied.devices().any(|(interface, ..)| !known.contains(&interface.uuid)) {
            self.tells_statistics = true;
        }
        self.writing = Writing::Due;
    }

    /// Where sockets of listening vhost-user ports are. As in Open vSwitch, another setting needs a restart: guests are
    /// connected to these sockets.
    fn settle_vhost_sock_dir(&mut self, records: &Records) -> PathBuf {
        let settings = records.open_vswitch.as_ref().map(|row| &row.other_config);
        if let (None, Some(settings)) = (&self.vhost_sock_dir, settings) {
            let (dir, notes) = vhost_sock_dir(&self.rundir, settings);
            notes.iter().for_each(|note| note.log(&mut self.noted));
            self.vhost_sock_dir = Some(dir);
        }
        self.vhost_sock_dir.clone().unwrap_or_else(|| self.rundir.clone())
    }

    /// While `flow-restore-wait` is set, from the start on, no packet is answered from tables that are not filled yet, and
    /// no controller is connected to.
    fn update_flow_restore_wait(&mut self, records: &Records) {
        if self.flow_restore_wait {
            let row = records.open_vswitch.as_ref();
            self.flow_restore_wait = row.is_some_and(|row| row.other_config.flag("flow-restore-wait", false));
            self.switch.set_flow_restore_wait(self.flow_restore_wait);
        }
    }

    fn write(&mut self) {
        let mut txn = Txn::new();
        self.applied.write(&mut txn, self.dummies);
        refresh::write_devices(&self.switch, &self.applied, &mut txn);
        if self.tells_statistics {
            refresh::write_statistics(&self.switch, &self.applied, &mut txn);
            refresh::write_mirrors(&self.switch, &self.applied, &mut txn);
        }
        match self.client.session_mut().commit(&txn) {
            Ok(Commit::Incomplete(id)) => self.writing = Writing::UnderWay(id),
            Ok(Commit::Finished(status)) => self.written(&status),
            Err(error) => {
                tracing::error!("transaction: {error}");
                self.writing = Writing::Done;
            }
        }
    }

    /// A transaction that told of a configuration has ended.
    fn written(&mut self, status: &TxnStatus) {
        self.writing = match status {
            TxnStatus::TryAgain | TxnStatus::NotLocked => Writing::Due,
            TxnStatus::Unchanged | TxnStatus::Success { .. } | TxnStatus::Aborted => Writing::Done,
            TxnStatus::Error(error) => {
                tracing::warn!("transaction error: {error}");
                Writing::Done
            }
        };
        if self.writing == Writing::Done {
            self.is_configured = true;
            self.tells_statistics = false;
        }
    }
}
