//! The database `_Server`: what a server says about itself and its databases.
//!
//! Source: ovsdb-server(5), `_Server`; OVS lib/ovsdb-cs.c, `ovsdb_cs_check_server_db__`.

use super::Config;
use super::monitor::monitor_id;
use crate::replica::UpdateFormat;
use crate::{AtomicType, Column, ProtocolError, Replica, Schema, Table};
use serde_json::{Value, json};

/// The database's name.
pub(super) const SERVER_DB: &str = "_Server";

const DATABASE: &str = "Database";

#[derive(Debug)]
pub(super) struct ServerDb {
    /// `None` until the server has told its contents.
    replica: Option<Replica>,
    /// The columns that are asked for, with the types of this server.
    asked: Option<Replica>,
    /// The greatest Raft index of the database that any server showed: one with a lesser index has older contents.
    min_index: i64,
}

impl ServerDb {
    pub(super) fn new() -> Self {
        ServerDb { replica: None, asked: None, min_index: 0 }
    }

    /// Whether the server has such a database.
    pub(super) fn is_known(&self) -> bool {
        self.replica.is_some()
    }

    /// Forgets this server, not the index.
    pub(super) fn forget(&mut self) {
        self.replica = None;
        self.asked = None;
    }

    /// The parameters of `monitor_cond` for a server with this schema.
    pub(super) fn monitor_params(&mut self, schema: &Schema) -> Value {
        let mut replica = Replica::new(&[database_table()]).expect("invariant: the table below is declared once");
        replica.adopt_schema(schema);
        let columns: Vec<_> = replica.monitored().flat_map(|(_, columns)| columns).collect();
        self.asked = Some(replica);
        json!([SERVER_DB, monitor_id(SERVER_DB), {DATABASE: [{"columns": columns}]}])
    }

    /// Takes the first contents.
    pub(super) fn replace(&mut self, contents: &Value) -> Result<(), ProtocolError> {
        if let Some(mut replica) = self.asked.take() {
            replica.replace(contents, UpdateFormat::Difference)?;
            replica.take_changes();
            self.replica = Some(replica);
        }
        Ok(())
    }

    pub(super) fn update(&mut self, updates: &Value, format: UpdateFormat) -> Result<(), ProtocolError> {
        self.replica.as_mut().map_or(Ok(()), |replica| {
            replica.update(updates, format)?;
            replica.take_changes();
            Ok(())
        })
    }

    /// The database's schema, as JSON; or why this server will not do.
    pub(super) fn check(&mut self, config: &Config) -> Result<String, &'static str> {
        let rows = self.replica.iter().flat_map(|replica| replica.rows(DATABASE));
        let row = rows.into_iter().find(|row| row.get::<&str>("name") == config.database);
        let row = row.ok_or("server does not have the database")?;
        let is_connected: bool = row.get("connected");
        match row.get("model") {
            "clustered" => {
                let index = row.get::<Option<i64>>("index").unwrap_or(0);
                if !is_connected {
                    return Err("clustered database server is disconnected from cluster");
                }
                if config.leader_only && !row.get::<bool>("leader") {
                    return Err("clustered database server is not cluster leader");
                }
                if index < self.min_index {
                    return Err("clustered database server has stale data");
                }
                self.min_index = index;
            }
            "relay" if !is_connected => return Err("database relay is not connected to its source"),
            _ => {}
        }
        row.get::<Option<&str>>("schema").map(str::to_owned).ok_or("database has no schema")
    }
}

fn database_table() -> Table {
    Table::new(
        DATABASE,
        [
            Column::scalar("name", AtomicType::String),
            Column::scalar("model", AtomicType::String),
            Column::scalar("connected", AtomicType::Boolean),
            Column::scalar("leader", AtomicType::Boolean),
            Column::optional("schema", AtomicType::String),
            Column::optional("cid", AtomicType::Uuid),
            Column::optional("index", AtomicType::Integer),
        ],
    )
}
