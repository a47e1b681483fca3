//! Table updates: what a monitor's reply and its notifications say, applied to the replica.
//!
//! There are two formats. That of RFC 7047 gives a modified row whole, as `old` and `new`. Open vSwitch's gives a
//! difference, and leaves out columns that have their default in rows that are `initial` or `insert`.

use super::changes::{ChangedColumns, RowChange};
use super::{Replica, TableReplica};
use crate::{Datum, DatumError, ProtocolError, Uuid};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

type Object = Map<String, Value>;

/// How row updates are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpdateFormat {
    /// `{"old": ROW, "new": ROW}`. Source: RFC 7047 section 4.1.6, `update`.
    OldAndNew,
    /// `{"initial": ROW}`, `{"insert": ROW}`, `{"modify": DIFFERENCE}` or `{"delete": null}`. Source: ovsdb-server(7),
    /// `update2` and `update3`.
    Difference,
}

/// A row update, whichever its format.
enum RowUpdate<'a> {
    Insert(&'a Object),
    /// New values of some columns.
    Replace(&'a Object),
    /// Differences of some columns.
    Modify(&'a Object),
    Delete,
}

impl RowUpdate<'_> {
    fn name(&self) -> &'static str {
        match self {
            RowUpdate::Insert(_) => "insert",
            RowUpdate::Replace(_) | RowUpdate::Modify(_) => "modify",
            RowUpdate::Delete => "delete",
        }
    }
}

impl Replica {
    /// Applies changes. After an error the replica may hold part of them.
    pub(crate) fn update(&mut self, updates: &Value, format: UpdateFormat) -> Result<(), ProtocolError> {
        for (table, rows) in as_object(updates)? {
            // Tables that were not asked for are none of the client's business.
            let Some(index) = self.index_of(table) else { continue };
            for (uuid, json) in as_object(rows)? {
                let row = parse_row_update(json, format)?;
                self.tables[index].update_row(parse_uuid(uuid)?, &row)?;
            }
        }
        Ok(())
    }

    /// Replaces everything by first contents. What is as it was counts as unchanged.
    pub(crate) fn replace(&mut self, updates: &Value, format: UpdateFormat) -> Result<(), ProtocolError> {
        let updates = as_object(updates)?;
        let none = Object::new();
        for table in &mut self.tables {
            let rows = updates.get(table.name).map_or(Ok(&none), as_object)?;
            table.replace(rows, format)?;
        }
        Ok(())
    }
}

impl TableReplica {
    fn replace(&mut self, rows: &Object, format: UpdateFormat) -> Result<(), ProtocolError> {
        let mut gone: BTreeSet<Uuid> = self.rows.keys().copied().collect();
        for (uuid, json) in rows {
            let uuid = parse_uuid(uuid)?;
            let update = parse_row_update(json, format)?;
            let RowUpdate::Insert(columns) = update else { return Err(self.inconsistent(uuid, &update)) };
            let values = self.whole_row(uuid, columns)?;
            if gone.remove(&uuid) {
                self.overwrite(uuid, values);
            } else {
                self.insert(uuid, values);
            }
        }
        for uuid in gone {
            self.delete(uuid);
        }
        Ok(())
    }

    fn update_row(&mut self, uuid: Uuid, update: &RowUpdate<'_>) -> Result<(), ProtocolError> {
        match (update, self.rows.get(&uuid)) {
            (RowUpdate::Insert(columns), None) => {
                let values = self.whole_row(uuid, columns)?;
                self.insert(uuid, values);
            }
            (RowUpdate::Replace(columns), Some(old)) => {
                let values = self.with_columns(uuid, old.clone(), columns, |_, new, _| new)?;
                self.overwrite(uuid, values);
            }
            (RowUpdate::Modify(columns), Some(old)) => {
                let values = self.with_columns(uuid, old.clone(), columns, Datum::with_difference)?;
                self.overwrite(uuid, values);
            }
            (RowUpdate::Delete, Some(_)) => self.delete(uuid),
            _ => return Err(self.inconsistent(uuid, update)),
        }
        Ok(())
    }

    /// A row of which columns with their default were left out.
    fn whole_row(&self, uuid: Uuid, columns: &Object) -> Result<Vec<Datum>, ProtocolError> {
        let defaults = self.columns.iter().map(super::ColumnReplica::default_value).collect();
        self.with_columns(uuid, defaults, columns, |_, new, _| new)
    }

    /// `values` with the columns that a message names changed by `change`.
    fn with_columns(
        &self,
        row: Uuid,
        mut values: Vec<Datum>,
        columns: &Object,
        change: impl Fn(&Datum, Datum, &crate::ColumnType) -> Datum,
    ) -> Result<Vec<Datum>, ProtocolError> {
        for (name, json) in columns {
            let Some(index) = self.column_index(name) else { continue };
            let column = &self.columns[index];
            let column_type = column.effective_type();
            let new = Datum::from_json(json, &column_type).map_err(|source: DatumError| ProtocolError::Datum {
                table: self.name,
                row,
                column: column.declared.name,
                source,
            })?;
            values[index] = change(&values[index], new, &column_type);
        }
        Ok(values)
    }

    fn insert(&mut self, uuid: Uuid, values: Vec<Datum>) {
        self.rows.insert(uuid, values);
        self.change(uuid).inserted();
    }

    fn overwrite(&mut self, uuid: Uuid, values: Vec<Datum>) {
        let old = self.rows.get(&uuid).map_or(&[] as &[Datum], Vec::as_slice);
        let mut changed = ChangedColumns::default();
        for (index, (old, new)) in old.iter().zip(&values).enumerate() {
            if old != new {
                changed.insert(index);
            }
        }
        if !changed.is_empty() {
            self.rows.insert(uuid, values);
            self.change(uuid).modified(changed);
        }
    }

    fn delete(&mut self, uuid: Uuid) {
        self.rows.remove(&uuid);
        self.change(uuid).deleted();
    }

    fn change(&mut self, uuid: Uuid) -> &mut RowChange {
        self.changes.entry(uuid).or_default()
    }

    fn inconsistent(&self, row: Uuid, update: &RowUpdate<'_>) -> ProtocolError {
        ProtocolError::Inconsistent { table: self.name, row, operation: update.name() }
    }
}

fn parse_row_update(json: &Value, format: UpdateFormat) -> Result<RowUpdate<'_>, ProtocolError> {
    let members = as_object(json)?;
    match format {
        UpdateFormat::OldAndNew => match (members.get("old"), members.get("new")) {
            (None, Some(new)) => Ok(RowUpdate::Insert(as_object(new)?)),
            (Some(_), Some(new)) => Ok(RowUpdate::Replace(as_object(new)?)),
            (Some(_), None) => Ok(RowUpdate::Delete),
            (None, None) => Err(malformed("row update without old and new".into())),
        },
        UpdateFormat::Difference => match members.iter().next() {
            Some((kind, columns)) if kind == "initial" || kind == "insert" => {
                Ok(RowUpdate::Insert(as_object(columns)?))
            }
            Some((kind, columns)) if kind == "modify" => Ok(RowUpdate::Modify(as_object(columns)?)),
            Some((kind, _)) if kind == "delete" => Ok(RowUpdate::Delete),
            other => Err(malformed(format!("row update {:?}", other.map(|(kind, _)| kind)))),
        },
    }
}

fn as_object(json: &Value) -> Result<&Object, ProtocolError> {
    json.as_object().ok_or_else(|| malformed("expected an object".into()))
}

fn parse_uuid(text: &str) -> Result<Uuid, ProtocolError> {
    text.parse().map_err(|error: crate::uuid::BadUuid| malformed(format!("{text:?}: {error}")))
}

fn malformed(problem: String) -> ProtocolError {
    ProtocolError::Malformed { message: "table updates", problem }
}
