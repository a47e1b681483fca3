//! The replica: the declared part of a database, as the server last told it.
//!
//! **Contents.** Each declared table has its rows by UUID; each row has a value for every declared column, at the index
//! of its declaration. A column that the server lacks holds its default in every row.
//!
//! **Updates** change rows in place (`update.rs`). The first contents after a connection, or after a conversion of the
//! database, replace the replica by comparison: rows and columns that are as they were count as unchanged. So a
//! restarted server that tells everything again causes no work.
//!
//! **Changes** (`changes.rs`) accumulate, a bit a column and a record a row, until they are taken.
//!
//! Wrong answers: between an error in an update and the contents that the session then asks for, a replica may hold
//! part of that update. [`crate::Session::is_synced`] is false then.

mod changes;
mod row;
mod update;

pub use changes::{Change, ChangeKind, Changes};
pub use row::{FromDatum, Row};
pub(crate) use update::UpdateFormat;

use crate::{Column, ColumnType, ConfigError, Datum, Schema, Table, Uuid};
use changes::RowChange;
use std::collections::{BTreeMap, HashMap};

/// A copy of the declared tables.
#[derive(Debug)]
pub struct Replica {
    tables: Vec<TableReplica>,
    by_name: HashMap<&'static str, usize>,
}

/// What the server's schema lacks of what is declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lacking {
    /// The table.
    pub table: &'static str,
    /// The column; `None` if the whole table is lacking.
    pub column: Option<&'static str>,
}

#[derive(Debug)]
pub(crate) struct TableReplica {
    pub(crate) name: &'static str,
    pub(crate) columns: Vec<ColumnReplica>,
    by_name: HashMap<&'static str, usize>,
    is_present: bool,
    rows: BTreeMap<Uuid, Vec<Datum>>,
    changes: BTreeMap<Uuid, RowChange>,
}

#[derive(Debug)]
pub(crate) struct ColumnReplica {
    pub(crate) declared: Column,
    /// The server's type; `None` if the server lacks the column.
    pub(crate) server: Option<ColumnType>,
}

impl Replica {
    /// An empty replica of these tables. Until a schema is known, none is taken to be present.
    pub(crate) fn new(tables: &[Table]) -> Result<Self, ConfigError> {
        let mut by_name = HashMap::new();
        for (index, table) in tables.iter().enumerate() {
            if by_name.insert(table.name, index).is_some() {
                return Err(ConfigError::DuplicateTable(table.name));
            }
        }
        let tables = tables.iter().map(TableReplica::new).collect::<Result<_, _>>()?;
        Ok(Replica { tables, by_name })
    }

    /// The rows of a table, by UUID ascending.
    ///
    /// # Panics
    /// If the table is not declared.
    pub fn rows(&self, table: &str) -> impl Iterator<Item = Row<'_>> {
        let table = self.declared(table);
        table.rows.iter().map(move |(&uuid, values)| Row { table, uuid, values })
    }

    /// A row of a table.
    ///
    /// # Panics
    /// If the table is not declared.
    pub fn row(&self, table: &str, uuid: Uuid) -> Option<Row<'_>> {
        let table = self.declared(table);
        table.rows.get(&uuid).map(|values| Row { table, uuid, values })
    }

    /// The first row of a table: that of a table of one row, such as `Open_vSwitch`.
    ///
    /// # Panics
    /// If the table is not declared.
    pub fn first(&self, table: &str) -> Option<Row<'_>> {
        self.rows(table).next()
    }

    /// Whether the server has a column.
    ///
    /// # Panics
    /// If table or column is not declared.
    pub fn has_column(&self, table: &str, column: &str) -> bool {
        let table = self.declared(table);
        table.columns[table.declared_index(column)].server.is_some()
    }

    /// What changed since this was last asked; see [`Changes`].
    pub(crate) fn take_changes(&mut self) -> Changes {
        Changes::collect(self.tables.iter_mut())
    }

    /// Takes over the server's types; the rows stay as they are until contents come that have these types. Returns what
    /// is declared and lacking there, and whether anything differs from before.
    pub(crate) fn adopt_schema(&mut self, schema: &Schema) -> (Vec<Lacking>, bool) {
        let mut lacking = Vec::new();
        let mut differs = false;
        for table in &mut self.tables {
            differs |= table.adopt_schema(schema, &mut lacking);
        }
        (lacking, differs)
    }

    /// The tables and columns to ask the server for.
    pub(crate) fn monitored(&self) -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
        self.tables.iter().filter(|table| table.is_present).map(|table| {
            let present = table.columns.iter().filter(|column| column.server.is_some());
            (table.name, present.map(|column| column.declared.name).collect())
        })
    }

    pub(crate) fn index_of(&self, table: &str) -> Option<usize> {
        self.by_name.get(table).copied()
    }

    pub(crate) fn table(&self, index: usize) -> &TableReplica {
        &self.tables[index]
    }

    fn declared(&self, table: &str) -> &TableReplica {
        let index = self.index_of(table).unwrap_or_else(|| panic!("table {table} is not declared"));
        &self.tables[index]
    }
}

impl TableReplica {
    fn new(table: &Table) -> Result<Self, ConfigError> {
        if table.columns.len() > Table::COLUMNS_MAX {
            return Err(ConfigError::TooManyColumns { table: table.name, columns: table.columns.len() });
        }
        let mut by_name = HashMap::new();
        for (index, column) in table.columns.iter().enumerate() {
            if by_name.insert(column.name, index).is_some() {
                return Err(ConfigError::DuplicateColumn(table.name, column.name));
            }
        }
        Ok(TableReplica {
            name: table.name,
            columns: table.columns.iter().map(|&declared| ColumnReplica { declared, server: None }).collect(),
            by_name,
            is_present: false,
            rows: BTreeMap::new(),
            changes: BTreeMap::new(),
        })
    }

    pub(crate) fn column_index(&self, column: &str) -> Option<usize> {
        self.by_name.get(column).copied()
    }

    fn declared_index(&self, column: &str) -> usize {
        self.column_index(column).unwrap_or_else(|| panic!("column {column} of table {} is not declared", self.name))
    }

    pub(crate) fn is_present(&self) -> bool {
        self.is_present
    }

    pub(crate) fn values(&self, row: Uuid) -> Option<&[Datum]> {
        self.rows.get(&row).map(Vec::as_slice)
    }

    fn adopt_schema(&mut self, schema: &Schema, lacking: &mut Vec<Lacking>) -> bool {
        let was_present = std::mem::replace(&mut self.is_present, schema.has_table(self.name));
        let mut differs = was_present != self.is_present;
        if !self.is_present {
            lacking.push(Lacking { table: self.name, column: None });
        }
        for column in &mut self.columns {
            let known = schema.column(self.name, column.declared.name);
            let usable = known.copied().filter(|known| known.has_kinds_of(&column.declared.column_type));
            differs |= column.server != usable;
            column.server = usable;
            if self.is_present && usable.is_none() {
                lacking.push(Lacking { table: self.name, column: Some(column.declared.name) });
            }
        }
        differs
    }
}

impl ColumnReplica {
    /// The value in a row that does not say otherwise.
    fn default_value(&self) -> Datum {
        Datum::default_of(&self.effective_type())
    }

    /// The server's type where known, else the declared one.
    pub(crate) fn effective_type(&self) -> ColumnType {
        self.server.unwrap_or(self.declared.column_type)
    }
}
