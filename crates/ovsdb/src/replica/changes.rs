//! Which rows and columns changed.
//!
//! A row's changes between two questions are one record: an insertion swallows later modifications, a deletion swallows
//! earlier ones, and a row that came and went leaves nothing. A column that changed and changed back counts as changed.

use super::TableReplica;
use crate::Uuid;

/// What happened to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The row is new.
    Inserted,
    /// Some of its columns differ.
    Modified,
    /// The row is no longer there.
    Deleted,
}

/// A change of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The row's table.
    pub table: &'static str,
    /// The row.
    pub uuid: Uuid,
    /// What happened to it.
    pub kind: ChangeKind,
    /// The columns that differ, in the order of declaration; of inserted and deleted rows, none are listed.
    pub columns: Vec<&'static str>,
    /// Whether the change asks for attention: an insertion, a deletion, or a modification of a column that was not
    /// declared with [`crate::Column::omit_alert`].
    pub alert: bool,
}

/// The changes since they were last taken, by table in the order of declaration, then by UUID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes(Vec<Change>);

impl Changes {
    /// Whether a change asks for attention. What a client itself writes into columns with
    /// [`crate::Column::omit_alert`] does not.
    pub fn alert(&self) -> bool {
        self.0.iter().any(|change| change.alert)
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The changes of one table.
    pub fn of<'a>(&'a self, table: &'a str) -> impl Iterator<Item = &'a Change> {
        self.0.iter().filter(move |change| change.table == table)
    }

    /// All changes.
    pub fn iter(&self) -> std::slice::Iter<'_, Change> {
        self.0.iter()
    }

    pub(super) fn collect<'a>(tables: impl Iterator<Item = &'a mut TableReplica>) -> Changes {
        let mut list = Vec::new();
        for table in tables {
            for (uuid, change) in std::mem::take(&mut table.changes) {
                list.extend(change.describe(table, uuid));
            }
        }
        Changes(list)
    }
}

impl<'a> IntoIterator for &'a Changes {
    type Item = &'a Change;
    type IntoIter = std::slice::Iter<'a, Change>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// A set of column indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ChangedColumns(u128);

const _: () = assert!(crate::Table::COLUMNS_MAX == u128::BITS as usize);

impl ChangedColumns {
    pub(super) fn insert(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    fn contains(self, index: usize) -> bool {
        self.0 >> index & 1 == 1
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// What happened to a row since changes were last taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RowChange {
    /// The row was there when changes were last taken.
    was_there: bool,
    /// `None` until the first change is recorded.
    kind: Option<ChangeKind>,
    columns: ChangedColumns,
}

impl RowChange {
    pub(super) fn inserted(&mut self) {
        self.was_there = self.kind.is_some() && self.was_there;
        self.kind = Some(if self.was_there { ChangeKind::Modified } else { ChangeKind::Inserted });
        if self.was_there {
            // Deleted and inserted again: nobody compared the two.
            self.columns = ChangedColumns(u128::MAX);
        }
    }

    pub(super) fn modified(&mut self, columns: ChangedColumns) {
        self.was_there |= self.kind.is_none();
        self.kind.get_or_insert(ChangeKind::Modified);
        self.columns.0 |= columns.0;
    }

    pub(super) fn deleted(&mut self) {
        self.was_there |= self.kind.is_none();
        self.kind = Some(ChangeKind::Deleted);
    }

    fn describe(self, table: &TableReplica, uuid: Uuid) -> Option<Change> {
        let kind = self.kind.filter(|&kind| kind != ChangeKind::Deleted || self.was_there)?;
        let changed = |&(index, _): &(usize, &super::ColumnReplica)| self.columns.contains(index);
        let changed = || table.columns.iter().enumerate().filter(changed).map(|(_, column)| &column.declared);
        let (columns, alert) = match kind {
            ChangeKind::Modified => {
                (changed().map(|column| column.name).collect(), changed().any(|column| column.alert))
            }
            ChangeKind::Inserted | ChangeKind::Deleted => (Vec::new(), true),
        };
        Some(Change { table: table.name, uuid, kind, columns, alert })
    }
}
