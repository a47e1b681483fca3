//! From a transaction to the operations that a `transact` request carries.

use super::{Mutation, RowEdit, Txn, Wait};
use crate::replica::{ColumnReplica, TableReplica};
use crate::{Atom, AtomicType, ColumnType, Datum, Replica, TxnError, Uuid};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashSet};

/// A column of a row: table and column by index.
pub(crate) type Cell = (usize, Uuid, usize);

/// What a transaction is compared with.
pub(crate) struct CompileContext<'a> {
    pub(crate) database: &'a str,
    pub(crate) replica: &'a Replica,
    /// Whether a transaction under way writes a column: then the replica's value is not the last word.
    pub(crate) is_being_written: &'a dyn Fn(Cell) -> bool,
    /// The lock to assert.
    pub(crate) lock: Option<&'a str>,
}

/// A transaction as the server gets it.
#[derive(Debug, PartialEq)]
pub(crate) struct Compiled {
    /// The parameters of `transact`.
    pub(crate) params: Value,
    /// The index of an insertion's result, and the row's provisional UUID.
    pub(crate) inserted: Vec<(usize, Uuid)>,
    pub(crate) writes: HashSet<Cell>,
    pub(crate) aborts: bool,
}

impl Txn {
    /// The operations; `None` if they would change nothing.
    pub(crate) fn compile(&self, context: &CompileContext<'_>) -> Result<Option<Compiled>, TxnError> {
        let mut compiler = Compiler::new(self, context);
        for wait in &self.waits {
            compiler.wait(wait)?;
        }
        let waits = compiler.operations.len();
        for edit in &self.rows {
            compiler.row(edit)?;
        }
        if compiler.operations.len() == waits {
            return Ok(None);
        }
        Ok(Some(compiler.finish(self)))
    }
}

struct Compiler<'a> {
    context: &'a CompileContext<'a>,
    /// The `uuid-name` of each row that is inserted.
    names: BTreeMap<Uuid, String>,
    operations: Vec<Value>,
    inserted: Vec<(usize, Uuid)>,
    writes: HashSet<Cell>,
}

impl<'a> Compiler<'a> {
    fn new(txn: &Txn, context: &'a CompileContext<'a>) -> Self {
        let inserted = txn.rows.iter().filter(|edit| edit.is_insert && !edit.is_delete);
        let names = inserted.enumerate().map(|(number, edit)| (edit.uuid, format!("row{number}"))).collect();
        Compiler { context, names, operations: Vec::new(), inserted: Vec::new(), writes: HashSet::new() }
    }

    fn wait(&mut self, wait: &Wait) -> Result<(), TxnError> {
        let (table, column) = self.find(wait.table, wait.column)?;
        // What the server lacks cannot have changed there.
        if self.columns(table)[column].server.is_none() {
            return Ok(());
        }
        let value = self.json(&wait.value);
        self.operations.push(json!({
            "op": "wait",
            "table": wait.table,
            "timeout": 0,
            "where": where_uuid(wait.uuid),
            "columns": [wait.column],
            "until": "==",
            "rows": [{wait.column: value}],
        }));
        Ok(())
    }

    fn row(&mut self, edit: &RowEdit) -> Result<(), TxnError> {
        let index = self.find_table(edit.table)?;
        let replica: &'a TableReplica = self.context.replica.table(index);
        let is_there = replica.values(edit.uuid).is_some();
        match (edit.is_insert, edit.is_delete) {
            (true, true) => Ok(()),
            (true, false) => self.insert(index, edit),
            (false, true) if is_there => {
                self.operations.push(json!({"op": "delete", "table": edit.table, "where": where_uuid(edit.uuid)}));
                Ok(())
            }
            (false, false) if is_there => {
                self.update(index, edit)?;
                self.mutations(index, edit)
            }
            // Somebody else deleted the row; only the names are checked.
            (false, _) => edit.columns.keys().try_for_each(|column| self.find(edit.table, column).map(drop)),
        }
    }

    fn insert(&mut self, table: usize, edit: &RowEdit) -> Result<(), TxnError> {
        let default = |column: &ColumnReplica| Datum::default_of(&column.effective_type());
        if let Some((column, _)) = edit.mutations.first() {
            let problem = "a row that is being inserted cannot be mutated";
            return Err(TxnError::Value { table: edit.table, column, problem });
        }
        let row = self.changed_columns(table, edit, &|index, value| *value != default(&self.columns(table)[index]))?;
        if self.context.replica.table(table).is_present() {
            self.inserted.push((self.operations.len(), edit.uuid));
            let name = &self.names[&edit.uuid];
            self.operations.push(json!({"op": "insert", "table": edit.table, "uuid-name": name, "row": row}));
        }
        Ok(())
    }

    fn update(&mut self, table: usize, edit: &RowEdit) -> Result<(), TxnError> {
        let old = self.context.replica.table(table).values(edit.uuid).unwrap_or_default();
        let differs = |column: usize, value: &Datum| {
            old.get(column) != Some(value) || (self.context.is_being_written)((table, edit.uuid, column))
        };
        let row = self.changed_columns(table, edit, &differs)?;
        if !row.is_empty() {
            self.record_writes(table, edit.uuid, row.keys().map(String::as_str));
            let condition = where_uuid(edit.uuid);
            self.operations.push(json!({"op": "update", "table": edit.table, "where": condition, "row": row}));
        }
        Ok(())
    }

    /// The columns of an edit that the server has and of which `differs` holds.
    fn changed_columns(
        &self,
        table: usize,
        edit: &RowEdit,
        differs: &dyn Fn(usize, &Datum) -> bool,
    ) -> Result<Map<String, Value>, TxnError> {
        let mut row = Map::new();
        for (&name, value) in &edit.columns {
            let (_, index) = self.find(edit.table, name)?;
            let column = &self.columns(table)[index];
            let declared = column.declared.column_type;
            let checked = value_for(value, &declared).check(&declared);
            let checked = checked.and_then(|()| value.check_len(&column.effective_type()));
            checked.map_err(|problem| TxnError::Value { table: edit.table, column: column.declared.name, problem })?;
            let value = value_for(value, &declared);
            if column.server.is_some() && differs(index, &value) {
                row.insert(name.to_owned(), self.json(&value));
            }
        }
        Ok(row)
    }

    fn mutations(&mut self, table: usize, edit: &RowEdit) -> Result<(), TxnError> {
        let old = self.context.replica.table(table).values(edit.uuid).unwrap_or_default();
        let mut mutations = Vec::new();
        for (name, mutation) in &edit.mutations {
            let (_, index) = self.find(edit.table, name)?;
            let column = &self.columns(table)[index];
            let declared = column.declared.column_type;
            let checked = check_argument(mutation, &declared);
            checked.map_err(|problem| TxnError::Value { table: edit.table, column: column.declared.name, problem })?;
            let cell = (table, edit.uuid, index);
            // The replica's value is not the one that is mutated if something is written before.
            let is_being_written = self.writes.contains(&cell) || (self.context.is_being_written)(cell);
            let value = old.get(index).filter(|_| !is_being_written);
            if column.server.is_some() && has_effect(mutation, value) {
                mutations.push(self.mutation(name, mutation));
                self.writes.insert(cell);
            }
        }
        if !mutations.is_empty() {
            let condition = where_uuid(edit.uuid);
            let mutate = json!({"op": "mutate", "table": edit.table, "where": condition, "mutations": mutations});
            self.operations.push(mutate);
        }
        Ok(())
    }

    fn record_writes<'b>(&mut self, table: usize, row: Uuid, columns: impl Iterator<Item = &'b str>) {
        let replica = self.context.replica.table(table);
        self.writes.extend(columns.filter_map(|name| Some((table, row, replica.column_index(name)?))));
    }

    fn finish(mut self, txn: &Txn) -> Compiled {
        if let Some(comment) = &txn.comment {
            self.operations.push(json!({"op": "comment", "comment": comment}));
        }
        if txn.aborts {
            self.operations.push(json!({"op": "abort"}));
        }
        if let Some(lock) = self.context.lock {
            self.operations.push(json!({"op": "assert", "lock": lock}));
        }
        let mut params = vec![json!(self.context.database)];
        params.append(&mut self.operations);
        Compiled { params: params.into(), inserted: self.inserted, writes: self.writes, aborts: txn.aborts }
    }

    fn json(&self, value: &Datum) -> Value {
        value.to_json(&|uuid| self.names.get(&uuid).cloned())
    }

    fn mutation(&self, column: &str, mutation: &Mutation) -> Value {
        let number = |number: &Atom| number.to_json(&|_| None);
        match mutation {
            Mutation::Add(n) => json!([column, "+=", number(n)]),
            Mutation::Subtract(n) => json!([column, "-=", number(n)]),
            Mutation::Multiply(n) => json!([column, "*=", number(n)]),
            Mutation::Divide(n) => json!([column, "/=", number(n)]),
            Mutation::Modulo(n) => json!([column, "%=", number(n)]),
            Mutation::Insert(elements) => json!([column, "insert", self.json(elements)]),
            Mutation::Delete(elements) => json!([column, "delete", self.json(elements)]),
        }
    }

    fn columns(&self, table: usize) -> &'a [ColumnReplica] {
        &self.context.replica.table(table).columns
    }

    fn find_table(&self, table: &str) -> Result<usize, TxnError> {
        self.context.replica.index_of(table).ok_or_else(|| TxnError::Table(table.to_owned()))
    }

    fn find(&self, table: &str, column: &str) -> Result<(usize, usize), TxnError> {
        let index = self.find_table(table)?;
        let column_index = self.context.replica.table(index).column_index(column);
        Ok((index, column_index.ok_or_else(|| TxnError::Column(table.to_owned(), column.to_owned()))?))
    }
}

fn where_uuid(row: Uuid) -> Value {
    json!([["_uuid", "==", ["uuid", row.to_string()]]])
}

/// `value`, but an empty set as an empty map where the column is one: `Option` and `Vec` know no maps.
fn value_for(value: &Datum, column_type: &ColumnType) -> Datum {
    if value.is_empty() && column_type.value.is_some() {
        return Datum::map::<Atom, Atom>([]);
    }
    value.clone()
}

fn check_argument(mutation: &Mutation, column_type: &ColumnType) -> Result<(), &'static str> {
    let keys = ColumnType { value: None, ..*column_type };
    match mutation {
        Mutation::Insert(none) | Mutation::Delete(none) if none.is_empty() => Ok(()),
        Mutation::Delete(elements) if elements.pairs().is_empty() => elements.check(&keys),
        Mutation::Insert(elements) | Mutation::Delete(elements) => elements.check(column_type),
        Mutation::Add(number)
        | Mutation::Subtract(number)
        | Mutation::Multiply(number)
        | Mutation::Divide(number)
        | Mutation::Modulo(number) => match number.kind() {
            AtomicType::Integer | AtomicType::Real if number.kind() == column_type.key => Ok(()),
            _ => Err("the mutation needs a number of the column's kind"),
        },
    }
}

/// Whether a mutation may change a value; `None` is a value that is not known. Arithmetic is left to the server, save
/// for adding nothing.
fn has_effect(mutation: &Mutation, value: Option<&Datum>) -> bool {
    let has_element = |atom: &Atom| value.is_none_or(|value| value.elements().binary_search(atom).is_ok());
    let lacks_element = |atom: &Atom| value.is_none_or(|value| value.elements().binary_search(atom).is_err());
    let has_key = |key: &Atom| value.is_none_or(|value| value.value_of(key).is_some());
    let lacks_key = |key: &Atom| value.is_none_or(|value| value.value_of(key).is_none());
    let is_empty = value.is_some_and(Datum::is_empty);
    match mutation {
        Mutation::Insert(new) => {
            new.elements().iter().any(lacks_element) || new.pairs().iter().any(|(key, _)| lacks_key(key))
        }
        Mutation::Delete(gone) => {
            let has_pair = |pair: &(Atom, Atom)| value.is_none_or(|value| value.value_of(&pair.0) == Some(&pair.1));
            gone.elements().iter().any(|atom| has_element(atom) || has_key(atom)) || gone.pairs().iter().any(has_pair)
        }
        Mutation::Add(number) | Mutation::Subtract(number) => !is_empty && *number != number.kind().default_atom(),
        Mutation::Multiply(_) | Mutation::Divide(_) | Mutation::Modulo(_) => !is_empty,
    }
}
