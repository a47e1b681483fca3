//! From a connection to a replica that follows the database.

use super::server_db::SERVER_DB;
use super::{DisconnectReason, Event, Request, Session};
use crate::replica::UpdateFormat;
use crate::{ProtocolError, Schema, Uuid};
use serde_json::{Map, Value, json};

/// Where a connection is on the way to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MonitorState {
    Disconnected,
    /// The database `_Server` is asked for its schema, or for its contents.
    AskingServerDb,
    /// The database is asked for its schema, or for its contents.
    AskingData,
    Monitoring,
}

/// The ways to ask for contents, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MonitorMethod {
    /// OVS 2.12 and later: what happened since a transaction.
    CondSince,
    /// OVS 2.6 and later: everything, then differences.
    Cond,
    /// RFC 7047: everything, then whole rows.
    Plain,
}

impl MonitorMethod {
    fn name(self) -> &'static str {
        match self {
            MonitorMethod::CondSince => "monitor_cond_since",
            MonitorMethod::Cond => "monitor_cond",
            MonitorMethod::Plain => "monitor",
        }
    }

    /// What to try on a server that refuses this one.
    fn fallback(self) -> Option<MonitorMethod> {
        match self {
            MonitorMethod::CondSince => Some(MonitorMethod::Cond),
            MonitorMethod::Cond => Some(MonitorMethod::Plain),
            MonitorMethod::Plain => None,
        }
    }

    fn format(self) -> UpdateFormat {
        match self {
            MonitorMethod::CondSince | MonitorMethod::Cond => UpdateFormat::Difference,
            MonitorMethod::Plain => UpdateFormat::OldAndNew,
        }
    }
}

impl Session {
    pub(super) fn begin_monitoring(&mut self) {
        self.state = MonitorState::AskingServerDb;
        self.request(Request::ServerSchema, "get_schema", json!([SERVER_DB]));
    }

    pub(super) fn monitor_reply(
        &mut self,
        request: Request,
        reply: Result<Value, Value>,
    ) -> Result<(), DisconnectReason> {
        match (request, reply) {
            (Request::ServerSchema, Ok(schema)) => {
                let params = self.server_db.monitor_params(&Schema::from_json(&schema).map_err(protocol)?);
                self.request(Request::ServerMonitor, "monitor_cond", params);
                Ok(())
            }
            (Request::ServerMonitor, Ok(contents)) => {
                self.server_db.replace(&contents).map_err(protocol)?;
                self.check_server()
            }
            // A server before OVS 2.9.
            (Request::ServerSchema | Request::ServerMonitor, Err(_)) => {
                self.ask_for_schema();
                Ok(())
            }
            (Request::DataSchema, Ok(schema)) => self.adopt_schema(&schema).map_err(protocol),
            (Request::DataSchema, Err(error)) => Err(refused("get_schema", &error)),
            (Request::DataMonitor(method), Ok(contents)) => self.contents(method, &contents).map_err(|e| self.lost(e)),
            (Request::DataMonitor(method), Err(error)) => {
                let fallback = method.fallback().ok_or_else(|| refused(method.name(), &error))?;
                self.ask_for_contents(fallback);
                Ok(())
            }
            (Request::SetDbChangeAware | Request::Lock | Request::Transact, _) => Ok(()),
        }
    }

    /// An `update`, `update2` or `update3` of one of the two databases.
    pub(super) fn update(&mut self, method: &str, params: &Value) -> Result<(), DisconnectReason> {
        let (monitor, updates) = (&params[0], &params[if method == "update3" { 2 } else { 1 }]);
        let format = if method == "update" { UpdateFormat::OldAndNew } else { UpdateFormat::Difference };
        if *monitor == monitor_id(SERVER_DB) && self.server_db.is_known() {
            self.server_db.update(updates, format).map_err(protocol)?;
            return self.recheck_server();
        }
        if *monitor != monitor_id(&self.config.database) || self.state != MonitorState::Monitoring {
            return Ok(());
        }
        let updated = self.replica.update(updates, format);
        let last_id = if method == "update3" { parse_id(&params[1]) } else { Ok(Uuid::ZERO) };
        self.last_id = updated.and(last_id).map_err(|e| self.lost(e))?;
        Ok(())
    }

    /// The server converts or removes a database and no longer tells about it. The old contents stay readable until the
    /// new ones come.
    pub(super) fn monitor_canceled(&mut self, monitor: &Value) {
        let has_begun = matches!(self.state, MonitorState::AskingData | MonitorState::Monitoring);
        if *monitor == monitor_id(&self.config.database) && has_begun {
            self.last_id = Uuid::ZERO;
            self.requests.retain(|_, request| !matches!(request, Request::DataSchema | Request::DataMonitor(_)));
            self.events.push_back(Event::MonitorCanceled);
            // The row in `_Server` may still have the old schema.
            self.ask_for_schema();
        } else if *monitor == monitor_id(SERVER_DB) {
            self.server_db.forget();
        }
    }

    /// Goes on once the server proves suitable.
    fn check_server(&mut self) -> Result<(), DisconnectReason> {
        let schema = self.server_db.check(&self.config).map_err(DisconnectReason::Unsuitable)?;
        let schema = serde_json::from_str(&schema);
        let schema = schema.map_err(|error| protocol(ProtocolError::Schema(error.to_string())))?;
        self.adopt_schema(&schema).map_err(protocol)
    }

    /// Looks whether the server still is suitable.
    fn recheck_server(&mut self) -> Result<(), DisconnectReason> {
        self.server_db.check(&self.config).map(drop).map_err(DisconnectReason::Unsuitable)
    }

    fn ask_for_schema(&mut self) {
        self.state = MonitorState::AskingData;
        let params = json!([self.config.database]);
        self.request(Request::DataSchema, "get_schema", params);
    }

    fn adopt_schema(&mut self, schema: &Value) -> Result<(), ProtocolError> {
        let (lacking, differs) = self.replica.adopt_schema(&Schema::from_json(schema)?);
        if differs {
            // What happened since would not tell the columns that are new to this client.
            self.last_id = Uuid::ZERO;
            if !lacking.is_empty() {
                self.events.push_back(Event::Lacking(lacking));
            }
        }
        self.state = MonitorState::AskingData;
        if self.server_db.is_known() {
            self.ask_for_contents(MonitorMethod::CondSince);
            self.request(Request::SetDbChangeAware, "set_db_change_aware", json!([true]));
        } else {
            self.ask_for_contents(MonitorMethod::Cond);
        }
        Ok(())
    }

    fn ask_for_contents(&mut self, method: MonitorMethod) {
        let tables: Map<String, Value> =
            self.replica.monitored().map(|(table, columns)| (table.into(), json!([{"columns": columns}]))).collect();
        let database = &self.config.database;
        let params = match method {
            MonitorMethod::CondSince => json!([database, monitor_id(database), tables, self.last_id.to_string()]),
            MonitorMethod::Cond | MonitorMethod::Plain => json!([database, monitor_id(database), tables]),
        };
        self.request(Request::DataMonitor(method), method.name(), params);
    }

    /// The first contents: everything, or what happened since the last transaction known.
    fn contents(&mut self, method: MonitorMethod, reply: &Value) -> Result<(), ProtocolError> {
        match (method, reply.as_array().map(Vec::as_slice)) {
            (MonitorMethod::CondSince, Some([Value::Bool(found), id, updates])) => {
                let id = parse_id(id)?;
                if *found {
                    self.replica.update(updates, method.format())?;
                } else {
                    self.replica.replace(updates, method.format())?;
                }
                self.last_id = id;
            }
            (MonitorMethod::CondSince, _) => {
                let problem = "expected [found, transaction id, updates]".into();
                return Err(ProtocolError::Malformed { message: "monitor_cond_since", problem });
            }
            (MonitorMethod::Cond | MonitorMethod::Plain, _) => {
                self.replica.replace(reply, method.format())?;
                self.last_id = Uuid::ZERO;
            }
        }
        self.state = MonitorState::Monitoring;
        self.reconnect.succeeded();
        self.events.push_back(Event::Synced);
        Ok(())
    }

    /// The replica may hold part of an update: everything must be asked for.
    fn lost(&mut self, error: ProtocolError) -> DisconnectReason {
        self.last_id = Uuid::ZERO;
        protocol(error)
    }
}

/// Names a monitor: as OVS does, by the database.
pub(super) fn monitor_id(database: &str) -> Value {
    json!(["monid", database])
}

fn parse_id(json: &Value) -> Result<Uuid, ProtocolError> {
    let id = json.as_str().and_then(|text| text.parse().ok());
    id.ok_or_else(|| ProtocolError::Malformed { message: "transaction id", problem: json.to_string() })
}

fn protocol(error: ProtocolError) -> DisconnectReason {
    DisconnectReason::Protocol(error)
}

fn refused(method: &'static str, error: &Value) -> DisconnectReason {
    protocol(ProtocolError::Refused { method, error: error.to_string() })
}
