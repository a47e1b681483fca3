//! A client's conversation with a database server: messages and time go in, actions and events come out. No sockets, no
//! clock, no threads.
//!
//! **A connection's steps** (`monitor.rs`), as in OVS lib/ovsdb-cs.c:
//!
//! ```text
//!  connected ─► get_schema _Server ─► monitor_cond _Server ─► monitor_cond_since DATABASE ─► monitoring
//!       │              │ refused             │ refused               │ refused                   │ monitor_canceled
//!       └─► lock       └──────────┬──────────┘                  monitor_cond, then monitor       │
//!                                 └─► get_schema DATABASE ──────────► ▲ ◄── get_schema DATABASE ◄┘
//! ```
//!
//! The row of the database in `_Server` has the schema, and says of a cluster's server whether it is connected and the
//! leader (`server_db.rs`). The lock is asked for without waiting; writes assert it (`transact.rs`).
//!
//! **Loss of the connection** leaves the replica readable as it was, ends transactions under way with
//! [`TxnStatus::TryAgain`] and forgets the lock. Reconnection asks for what happened since the last transaction known.
//! A server that does not know that transaction sends everything, which is compared with the replica, so that only what
//! differs counts as changed. After an error in an update, or a conversion, everything is asked for.
//!
//! **A driver** (such as [`crate::Client`]) does the [`Action`]s of [`Session::next_action`], reports what came of
//! them, and calls [`Session::run`] when [`Session::deadline_ms`] has come. `now_ms` counts from any fixed point and
//! never decreases.

mod event;
mod monitor;
mod server_db;
mod transact;

pub use event::{Action, DisconnectReason, Event, LockState};

use crate::jsonrpc::Message;
use crate::reconnect::{PROBE_INTERVAL_MS, Reconnect, Step, Timeout};
use crate::txn::InFlight;
use crate::{Changes, ConfigError, Remote, Replica, Table, TxnId, TxnStatus, Uuid};
use monitor::{MonitorMethod, MonitorState};
use serde_json::{Value, json};
use server_db::ServerDb;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// What a session is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The database's name, such as `Open_vSwitch`.
    pub database: String,
    /// The tables and columns of interest.
    pub tables: Vec<Table>,
    /// The servers, tried in this order; several are a cluster's.
    pub remotes: Vec<Remote>,
    /// The lock to hold for writing. Without one, every client may write.
    pub lock: Option<String>,
    /// Whether, of a cluster, only the leader will do.
    pub leader_only: bool,
    /// Silence on `tcp:` and `ssl:` before the server is probed, in milliseconds; 0 for no probes.
    pub probe_interval_ms: u64,
}

impl Config {
    /// A session without a lock, with any server of a cluster and Open vSwitch's probe interval.
    pub fn new(database: &str, tables: Vec<Table>, remotes: Vec<Remote>) -> Self {
        Config {
            database: database.to_owned(),
            tables,
            remotes,
            lock: None,
            leader_only: false,
            probe_interval_ms: PROBE_INTERVAL_MS,
        }
    }
}

/// A request that awaits its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    ServerSchema,
    ServerMonitor,
    DataSchema,
    DataMonitor(MonitorMethod),
    SetDbChangeAware,
    Lock,
    Transact,
}

/// A client's side of a conversation, across connections.
#[derive(Debug)]
pub struct Session {
    config: Config,
    reconnect: Reconnect,
    /// Index of the remote that is connected to, or was last.
    remote: usize,
    /// Attempts to connect so far.
    attempts: usize,
    is_connected: bool,
    state: MonitorState,
    server_db: ServerDb,
    replica: Replica,
    /// The last transaction that the replica has.
    last_id: Uuid,
    next_id: u64,
    requests: HashMap<u64, Request>,
    in_flight: BTreeMap<u64, InFlight>,
    lock: LockState,
    actions: VecDeque<Action>,
    events: VecDeque<Event>,
}

impl Session {
    /// A session that is about to connect.
    ///
    /// # Errors
    /// If a table or column is declared twice, a table has too many columns, or there is no remote.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        if config.remotes.is_empty() {
            return Err(ConfigError::NoRemote);
        }
        Ok(Session {
            reconnect: Reconnect::new(config.remotes.len()),
            remote: 0,
            attempts: 0,
            is_connected: false,
            state: MonitorState::Disconnected,
            server_db: ServerDb::new(),
            replica: Replica::new(&config.tables)?,
            last_id: Uuid::ZERO,
            next_id: 0,
            requests: HashMap::new(),
            in_flight: BTreeMap::new(),
            lock: LockState::Unknown,
            actions: VecDeque::new(),
            events: VecDeque::new(),
            config,
        })
    }

    /// The replica. It is empty before the first [`Event::Synced`] and stays as it is while there is no server.
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    /// The rows and columns that changed since this was last asked.
    pub fn take_changes(&mut self) -> Changes {
        self.replica.take_changes()
    }

    /// Whether the replica follows the database now.
    pub fn is_synced(&self) -> bool {
        self.state == MonitorState::Monitoring
    }

    /// Whether there is a connection.
    pub fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// The lock's state.
    pub fn lock(&self) -> LockState {
        self.lock
    }

    /// The last transaction that the replica has; zeros if the server counts none.
    pub fn last_id(&self) -> Uuid {
        self.last_id
    }

    /// What happened next, in order.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// What the driver is to do next, in order.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Session::run`] has something to do next, if nothing else happens.
    pub fn deadline_ms(&self) -> Option<u64> {
        self.reconnect.deadline_ms()
    }

    /// Does what is due.
    pub fn run(&mut self, now_ms: u64) {
        match self.reconnect.run(now_ms) {
            None => {}
            Some(Step::Connect) => self.connect(),
            Some(Step::Probe) => self.actions.push_back(Action::Send(Message::probe())),
            Some(Step::Disconnect(Timeout::Connecting)) => self.hang_up(now_ms, DisconnectReason::ConnectTimeout),
            Some(Step::Disconnect(Timeout::Silence { ms })) => {
                self.hang_up(now_ms, DisconnectReason::Silence { ms });
            }
        }
    }

    /// There is a connection.
    pub fn connected(&mut self, now_ms: u64) {
        self.is_connected = true;
        let probes = self.remote().needs_probes();
        self.reconnect.set_probe_interval(if probes { self.config.probe_interval_ms } else { 0 });
        self.reconnect.connected(now_ms);
        self.events.push_back(Event::Connected(self.remote().clone()));
        self.begin_monitoring();
        if let Some(lock) = self.config.lock.clone() {
            self.request(Request::Lock, "lock", json!([lock]));
        }
    }

    /// The connection, or the attempt at one, has ended.
    pub fn disconnected(&mut self, now_ms: u64, reason: DisconnectReason) {
        let retry_ms = self.reconnect.disconnected(now_ms);
        self.is_connected = false;
        self.state = MonitorState::Disconnected;
        self.server_db.forget();
        self.lock = LockState::Unknown;
        self.requests.clear();
        self.actions.clear();
        for id in std::mem::take(&mut self.in_flight).into_keys() {
            self.events.push_back(Event::Finished(TxnId(id), TxnStatus::TryAgain));
        }
        self.events.push_back(Event::Disconnected { remote: self.remote().clone(), reason, retry_ms });
    }

    /// Bytes came, whether or not they make a message: the server is there.
    pub fn activity(&mut self, now_ms: u64) {
        self.reconnect.activity(now_ms);
    }

    /// A message came.
    pub fn received(&mut self, now_ms: u64, message: Message) {
        if !self.is_connected {
            return;
        }
        self.reconnect.activity(now_ms);
        let handled = match message {
            Message::Request { method, params, id } => {
                let reply = match method.as_str() {
                    "echo" => Message::echo_reply(params, id),
                    _ => Message::Error { error: json!("unknown method"), id },
                };
                self.actions.push_back(Action::Send(reply));
                Ok(())
            }
            Message::Notification { method, params } => self.notification(&method, &params),
            Message::Reply { result, id } => self.reply(&id, Ok(result)),
            Message::Error { error, id } => self.reply(&id, Err(error)),
        };
        if let Err(reason) = handled {
            self.hang_up(now_ms, reason);
        }
    }

    fn remote(&self) -> &Remote {
        &self.config.remotes[self.remote]
    }

    fn connect(&mut self) {
        self.remote = self.attempts % self.config.remotes.len();
        self.attempts = self.attempts.wrapping_add(1);
        let remote = self.remote().clone();
        self.events.push_back(Event::Connecting(remote.clone()));
        self.actions.push_back(Action::Connect(remote));
    }

    fn hang_up(&mut self, now_ms: u64, reason: DisconnectReason) {
        self.disconnected(now_ms, reason);
        self.actions.push_back(Action::Disconnect);
    }

    fn request(&mut self, request: Request, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.requests.insert(id, request);
        self.actions.push_back(Action::Send(Message::Request { method: method.to_owned(), params, id: json!(id) }));
        id
    }

    /// A reply's result, or an error reply's error. Replies to what was given up meanwhile are ignored, and so are
    /// those to probes.
    fn reply(&mut self, id: &Value, reply: Result<Value, Value>) -> Result<(), DisconnectReason> {
        let Some(id) = id.as_u64() else { return Ok(()) };
        match self.requests.remove(&id) {
            None | Some(Request::SetDbChangeAware) => Ok(()),
            Some(Request::Lock) => self.lock_reply(reply),
            Some(Request::Transact) => {
                self.transact_reply(id, reply.as_ref());
                Ok(())
            }
            Some(request) => self.monitor_reply(request, reply),
        }
    }

    fn notification(&mut self, method: &str, params: &Value) -> Result<(), DisconnectReason> {
        match method {
            "update" | "update2" | "update3" => self.update(method, params),
            "monitor_canceled" => {
                self.monitor_canceled(&params[0]);
                Ok(())
            }
            "locked" | "stolen" => {
                self.lock_notification(method, &params[0]);
                Ok(())
            }
            // Open vSwitch may learn to tell more.
            _ => Ok(()),
        }
    }
}
