//! What can be wrong: with bytes, messages, values, declarations and requests.

use crate::AtomicType;
use thiserror::Error;

/// A stream that is not JSON-RPC. Nothing after it can be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// A message begins with something other than an object's brace.
    #[error("expected '{{' at a message's beginning, got byte {0:#04x}")]
    NotObject(u8),
    /// A message is longer than the limit.
    #[error("message of more than {limit} bytes")]
    TooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// Arrays and objects stand in each other deeper than the limit.
    #[error("message with more than {limit} levels of nesting")]
    TooDeep {
        /// The limit in levels.
        limit: usize,
    },
    /// The object is not JSON.
    #[error("not JSON: {0}")]
    NotJson(String),
    /// The object is JSON but no JSON-RPC message.
    #[error("not a JSON-RPC message: {0}")]
    NotMessage(&'static str),
}

/// A value that does not fit its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DatumError {
    /// An atom of another kind.
    #[error("expected an atom of type {expected}")]
    Atom {
        /// The kind that the column has.
        expected: AtomicType,
    },
    /// Neither an atom, nor a set, nor a map as the column's type has it.
    #[error("expected {0}")]
    Shape(&'static str),
    /// An element of a set, or a key of a map, twice.
    #[error("an element or a key occurs twice")]
    Duplicate,
}

/// An error of the peer: it breaks the protocol or refuses what the client cannot do without.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// A message's content is not as the protocol has it.
    #[error("{message}: {problem}")]
    Malformed {
        /// The message: a method, or a method's reply.
        message: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// A value does not fit its column.
    #[error("{table} row {row}, column {column}: {source}")]
    Datum {
        /// The table's name.
        table: &'static str,
        /// The row's UUID.
        row: crate::Uuid,
        /// The column's name.
        column: &'static str,
        /// What is wrong.
        source: DatumError,
    },
    /// An update changes a row that is not there, or inserts one that is: replica and database differ.
    #[error("{table} row {row}: {operation} does not fit the replica")]
    Inconsistent {
        /// The table's name.
        table: &'static str,
        /// The row's UUID.
        row: crate::Uuid,
        /// `insert`, `modify` or `delete`.
        operation: &'static str,
    },
    /// A schema cannot be understood.
    #[error("schema: {0}")]
    Schema(String),
    /// The server refuses a request.
    #[error("server refused {method}: {error}")]
    Refused {
        /// The request's method.
        method: &'static str,
        /// The server's error, as JSON.
        error: String,
    },
}

/// A declaration that cannot be worked with.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// A table is declared twice.
    #[error("table {0} is declared twice")]
    DuplicateTable(&'static str),
    /// A column is declared twice in a table.
    #[error("column {1} is declared twice in table {0}")]
    DuplicateColumn(&'static str, &'static str),
    /// A table has too many columns.
    #[error("table {table} declares {columns} columns; at most {} are possible", crate::Table::COLUMNS_MAX)]
    TooManyColumns {
        /// The table's name.
        table: &'static str,
        /// The number of its columns.
        columns: usize,
    },
    /// There is no server to connect to.
    #[error("no remote is given")]
    NoRemote,
    /// A remote's text cannot be understood.
    #[error("remote {text:?}: {problem}")]
    Remote {
        /// The text.
        text: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A remote needs TLS, and nothing says which keys and certificates to use.
    #[error("remote {0} needs a TLS configuration")]
    NoTls(String),
}

/// A transaction that cannot be written down: an error of the program, not of the server.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TxnError {
    /// The table is not declared.
    #[error("table {0} is not declared")]
    Table(String),
    /// The column is not declared.
    #[error("column {1} of table {0} is not declared")]
    Column(String, String),
    /// The value does not fit the column's type.
    #[error("column {column} of table {table}: {problem}")]
    Value {
        /// The table's name.
        table: &'static str,
        /// The column's name.
        column: &'static str,
        /// What is wrong.
        problem: &'static str,
    },
}
