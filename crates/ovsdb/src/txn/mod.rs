//! Transactions: what a client wants changed, all of it or nothing.
//!
//! A [`Txn`] only collects. [`crate::Session::commit`] compares it with the replica and sends what differs; if nothing
//! does, nothing is sent ([`TxnStatus::Unchanged`]). So a client writes the state that it wants as often as it likes.
//!
//! **What is left out as changing nothing:** columns that already have the value, unless a transaction under way writes
//! them, too; inserted columns that get their default; mutations without effect; tables and columns that the server's
//! schema lacks; changes of rows that are not, or no longer, there.
//!
//! **Order** of operations: `wait`s of verified columns, then rows as they were first touched, each with its values
//! before its mutations, then comment, abort, and the assertion of the session's lock.
//!
//! **Ends** ([`TxnStatus`]): a transaction that was under way when the connection broke may have been committed; it is
//! reported as [`TxnStatus::TryAgain`], and the replica tells after reconnection. Since what is left out depends on the
//! replica, trying again is always right.
//!
//! Source: RFC 7047 section 5.2; OVS lib/ovsdb-idl.c, `ovsdb_idl_txn_commit`.

mod compile;
mod reply;

pub(crate) use compile::CompileContext;
pub(crate) use reply::{InFlight, status_of};

use crate::{Atom, Datum, Row, Uuid};
use std::collections::{BTreeMap, HashMap};

/// Inserted rows get such UUIDs until the server gives them real ones. Real ones are of version 4, so that their 13th
/// digit is 4; here it is f.
const PROVISIONAL: u128 = 0xffff_ffff_ffff_ffff << 64;

/// Identifies a transaction under way in one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnId(pub(crate) u64);

/// What a transaction came to. Source: OVS lib/ovsdb-idl.h, `enum ovsdb_idl_txn_status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnStatus {
    /// Nothing differs from the replica; nothing was sent.
    Unchanged,
    /// The database has it. The replica had it before this was reported.
    Success {
        /// The real UUID for each provisional one that [`Txn::insert`] gave.
        inserted: Vec<(Uuid, Uuid)>,
    },
    /// [`Txn::abort`] was asked for; everything else would have been committed.
    Aborted,
    /// A verified column differs, the connection broke, or nothing can be sent just now. The transaction should be made
    /// again from the replica as it is then.
    TryAgain,
    /// The session's lock is not held.
    NotLocked,
    /// The server refuses it: a constraint, a reference, a permission.
    Error(String),
}

/// What [`crate::Session::commit`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Commit {
    /// The transaction is under way; an event will say what it came to.
    Incomplete(TxnId),
    /// It has ended without being sent.
    Finished(TxnStatus),
}

/// A change of a column relative to the value that the database has then. Source: RFC 7047 section 5.1, `<mutation>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Adds to each number.
    Add(Atom),
    /// Subtracts from each number.
    Subtract(Atom),
    /// Multiplies each number.
    Multiply(Atom),
    /// Divides each number.
    Divide(Atom),
    /// Takes each integer's remainder.
    Modulo(Atom),
    /// Adds elements, or pairs of which the keys are not there yet.
    Insert(Datum),
    /// Removes elements; of a map, pairs, or keys given as a set.
    Delete(Datum),
}

/// A transaction.
#[derive(Clone, Debug, Default)]
pub struct Txn {
    rows: Vec<RowEdit>,
    by_row: HashMap<(&'static str, Uuid), usize>,
    waits: Vec<Wait>,
    inserted: u64,
    comment: Option<String>,
    aborts: bool,
}

/// What becomes of a row.
#[derive(Clone, Debug)]
struct RowEdit {
    table: &'static str,
    uuid: Uuid,
    is_insert: bool,
    is_delete: bool,
    columns: BTreeMap<&'static str, Datum>,
    mutations: Vec<(&'static str, Mutation)>,
}

/// A column that must have this value for the transaction to succeed.
#[derive(Clone, Debug)]
struct Wait {
    table: &'static str,
    uuid: Uuid,
    column: &'static str,
    value: Datum,
}

impl Txn {
    /// A transaction that does nothing yet.
    pub fn new() -> Self {
        Txn::default()
    }

    /// Inserts a row with defaults. Its UUID is provisional: good for this transaction's other calls and as a value in
    /// other rows; [`TxnStatus::Success`] has the real one.
    pub fn insert(&mut self, table: &'static str) -> Uuid {
        self.inserted += 1;
        let uuid = Uuid::from_u128(PROVISIONAL | u128::from(self.inserted));
        self.edit(table, uuid).is_insert = true;
        uuid
    }

    /// Gives a column a value, whatever earlier calls did to it.
    pub fn set(&mut self, table: &'static str, row: Uuid, column: &'static str, value: impl Into<Datum>) {
        let edit = self.edit(table, row);
        edit.mutations.retain(|(mutated, _)| *mutated != column);
        edit.columns.insert(column, value.into());
    }

    /// Changes a column relative to the value that the database has then: for sets and maps that others write, too. Of
    /// a row that this transaction inserts, columns can only be set.
    pub fn mutate(&mut self, table: &'static str, row: Uuid, column: &'static str, mutation: Mutation) {
        self.edit(table, row).mutations.push((column, mutation));
    }

    /// Deletes a row. A row that this transaction inserts is not inserted.
    pub fn delete(&mut self, table: &'static str, row: Uuid) {
        self.edit(table, row).is_delete = true;
    }

    /// Lets the transaction end with [`TxnStatus::TryAgain`] unless the column still has the value that it has in
    /// `row`.
    ///
    /// # Panics
    /// If the column is not declared.
    pub fn verify(&mut self, row: &Row<'_>, column: &'static str) {
        let value = row.datum(column).clone();
        self.waits.push(Wait { table: row.table(), uuid: row.uuid(), column, value });
    }

    /// Text for the database's log; several become lines.
    pub fn comment(&mut self, text: &str) {
        match &mut self.comment {
            Some(comment) => {
                comment.push('\n');
                comment.push_str(text);
            }
            None => self.comment = Some(text.to_owned()),
        }
    }

    /// Lets the server try the transaction and then undo it: [`TxnStatus::Aborted`].
    pub fn abort(&mut self) {
        self.aborts = true;
    }

    fn edit(&mut self, table: &'static str, uuid: Uuid) -> &mut RowEdit {
        let next = self.rows.len();
        let index = *self.by_row.entry((table, uuid)).or_insert(next);
        if index == next {
            self.rows.push(RowEdit {
                table,
                uuid,
                is_insert: false,
                is_delete: false,
                columns: BTreeMap::new(),
                mutations: Vec::new(),
            });
        }
        &mut self.rows[index]
    }
}
