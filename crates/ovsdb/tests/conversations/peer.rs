//! The other side of a session: plays the server message by message, in virtual time.

use serde_json::{Value, json};
use sluice_ovsdb::{Action, Config, DisconnectReason, Event, Message, Remote, Session, Table, Uuid};

pub const ZERO_ID: &str = "00000000-0000-0000-0000-000000000000";

pub struct Peer {
    pub session: Session,
    pub now_ms: u64,
    /// Actions that were not looked at yet.
    actions: Vec<Action>,
}

pub fn config(tables: Vec<Table>) -> Config {
    Config::new("db", tables, vec!["unix:/db.sock".parse::<Remote>().unwrap()])
}

pub fn uuid(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

impl Peer {
    pub fn new(config: Config) -> Self {
        Peer { session: Session::new(config).unwrap(), now_ms: 0, actions: Vec::new() }
    }

    /// Lets virtual time pass, step by step, as far as something is due.
    pub fn pass(&mut self, ms: u64) {
        let end = self.now_ms + ms;
        while let Some(deadline) = self.session.deadline_ms().filter(|&deadline| deadline <= end) {
            self.now_ms = self.now_ms.max(deadline);
            self.session.run(self.now_ms);
            let before = self.actions.len();
            self.take_actions();
            if self.actions[before..].iter().any(|action| matches!(action, Action::Connect(_))) {
                break;
            }
        }
        if self.actions.is_empty() {
            self.now_ms = end;
        }
    }

    /// Waits for the next attempt to connect and accepts it.
    pub fn accept(&mut self) {
        self.pass(60_000);
        match self.actions.pop() {
            Some(Action::Connect(_)) => self.session.connected(self.now_ms),
            other => panic!("expected an attempt to connect, got {other:?}"),
        }
        self.actions.clear();
    }

    pub fn hang_up(&mut self) {
        self.session.disconnected(self.now_ms, DisconnectReason::ClosedByPeer);
        self.actions.clear();
    }

    /// The next request, which must be of this method; its parameters and id.
    pub fn request(&mut self, method: &str) -> (Value, Value) {
        match self.next_action() {
            Some(Action::Send(Message::Request { method: got, params, id })) if got == method => (params, id),
            other => panic!("expected {method}, got {other:?}"),
        }
    }

    pub fn next_action(&mut self) -> Option<Action> {
        self.take_actions();
        if self.actions.is_empty() { None } else { Some(self.actions.remove(0)) }
    }

    /// The messages that the session sent since this was last asked.
    pub fn sent(&mut self) -> Vec<Message> {
        std::iter::from_fn(|| self.next_action())
            .map(|action| match action {
                Action::Send(message) => message,
                other => panic!("expected a message, got {other:?}"),
            })
            .collect()
    }

    pub fn receive(&mut self, message: Message) {
        self.session.received(self.now_ms, message);
    }

    pub fn reply(&mut self, id: Value, result: Value) {
        self.receive(Message::Reply { result, id });
    }

    pub fn refuse(&mut self, id: Value) {
        self.receive(Message::Error { error: json!("unknown method"), id });
    }

    pub fn notify(&mut self, method: &str, params: Value) {
        self.receive(Message::Notification { method: method.into(), params });
    }

    pub fn update3(&mut self, id: &str, updates: Value) {
        self.notify("update3", json!([["monid", "db"], id, updates]));
    }

    /// Answers what a session asks about the server, up to the request for contents; its parameters and id.
    pub fn introduce(&mut self, database: Value) -> (Value, Value) {
        let (_, id) = self.request("get_schema");
        self.reply(id, server_schema());
        self.skip_lock();
        let (_, id) = self.request("monitor_cond");
        self.reply(id, json!({"Database": {ZERO_ID: {"initial": database}}}));
        let request = self.request("monitor_cond_since");
        self.request("set_db_change_aware");
        request
    }

    /// Connects a session and gives it the database.
    pub fn synced(config: Config, schema: &Value, contents: Value) -> Self {
        let mut peer = Peer::new(config);
        peer.accept();
        let (_, id) = peer.introduce(standalone(schema));
        peer.reply(id, json!([false, ZERO_ID, contents]));
        assert!(peer.session.is_synced(), "{:?}", peer.events());
        peer.session.take_changes();
        peer.events();
        peer
    }

    pub fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.session.next_event()).collect()
    }

    /// Why the session hung up.
    pub fn hung_up(&mut self) -> Option<DisconnectReason> {
        assert_eq!(self.next_action(), Some(Action::Disconnect));
        self.events().into_iter().find_map(|event| match event {
            Event::Disconnected { reason, .. } => Some(reason),
            _ => None,
        })
    }

    fn skip_lock(&mut self) {
        self.take_actions();
        let is_lock =
            |action: &Action| matches!(action, Action::Send(Message::Request { method, .. }) if method == "lock");
        let lock = self.actions.iter().position(is_lock).map(|at| self.actions.remove(at));
        if let Some(Action::Send(Message::Request { id, .. })) = lock {
            self.reply(id, json!({"locked": true}));
        }
    }

    fn take_actions(&mut self) {
        self.actions.extend(std::iter::from_fn(|| self.session.next_action()));
    }
}

/// The row of a database that is no cluster's.
pub fn standalone(schema: &Value) -> Value {
    json!({"name": "db", "model": "standalone", "connected": true, "leader": true, "schema": schema.to_string()})
}

pub fn server_schema() -> Value {
    json!({"name": "_Server", "version": "1.2.0", "tables": {"Database": {"columns": {
        "name": {"type": "string"},
        "model": {"type": {"key": {"type": "string", "enum": ["set", ["clustered", "relay", "standalone"]]}}},
        "connected": {"type": "boolean"},
        "leader": {"type": "boolean"},
        "schema": {"type": {"key": "string", "min": 0}},
        "cid": {"type": {"key": "uuid", "min": 0}},
        "index": {"type": {"key": "integer", "min": 0}},
    }}}})
}
