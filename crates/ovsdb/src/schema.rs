//! The server's schema, as far as a client needs it: which tables and columns there are, and their types.
//!
//! A client is older or newer than its server. What the schema lacks is neither monitored nor written, and the schema's
//! numbers of elements decide how a difference is read.

use crate::{AtomicType, ColumnType, ProtocolError};
use serde_json::Value;
use std::collections::BTreeMap;

/// A database's schema. Source: RFC 7047 section 3.2, `<database-schema>`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    /// The database's name.
    pub name: String,
    /// The schema's version, three numbers with points between them.
    pub version: String,
    tables: BTreeMap<String, BTreeMap<String, ColumnType>>,
}

impl Schema {
    /// Reads a schema.
    ///
    /// # Errors
    /// With the part that is not as RFC 7047 has it.
    pub fn from_json(json: &Value) -> Result<Schema, ProtocolError> {
        let text = |key: &str| json.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let tables = object(json, "tables")?
            .iter()
            .map(|(table, json)| Ok((table.clone(), columns(json)?)))
            .collect::<Result<_, ProtocolError>>()?;
        Ok(Schema { name: text("name"), version: text("version"), tables })
    }

    /// Whether the schema has a table.
    pub fn has_table(&self, table: &str) -> bool {
        self.tables.contains_key(table)
    }

    /// The type of a column, if the schema has it.
    pub fn column(&self, table: &str, column: &str) -> Option<&ColumnType> {
        self.tables.get(table)?.get(column)
    }
}

fn object<'a>(json: &'a Value, key: &str) -> Result<&'a serde_json::Map<String, Value>, ProtocolError> {
    let found = json.get(key).and_then(Value::as_object);
    found.ok_or_else(|| ProtocolError::Schema(format!("no object {key:?}")))
}

fn columns(table: &Value) -> Result<BTreeMap<String, ColumnType>, ProtocolError> {
    let column = |(name, json): (&String, &Value)| {
        let parsed = json.get("type").and_then(column_type);
        let parsed = parsed.ok_or_else(|| ProtocolError::Schema(format!("type of column {name:?}")));
        Ok((name.clone(), parsed?))
    };
    object(table, "columns")?.iter().map(column).collect()
}

fn column_type(json: &Value) -> Option<ColumnType> {
    if json.is_string() {
        return atom_kind(json).map(ColumnType::scalar);
    }
    let limit = |key: &str| match json.get(key) {
        None => Some(1),
        Some(Value::String(text)) if text == "unlimited" => Some(ColumnType::UNLIMITED),
        Some(number) => number.as_u64().and_then(|number| u32::try_from(number).ok()),
    };
    let value = match json.get("value") {
        None => None,
        Some(json) => Some(atom_kind(json)?),
    };
    Some(ColumnType { key: atom_kind(json.get("key")?)?, value, min: limit("min")?, max: limit("max")? })
}

/// A kind's name, or an object that restrains the kind further; the server watches over those limits.
fn atom_kind(json: &Value) -> Option<AtomicType> {
    AtomicType::from_name(json.as_str().or_else(|| json.get("type")?.as_str())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn types_of_all_shapes_are_read() {
        let schema = json!({"name": "D", "version": "1.2.3", "tables": {"T": {"columns": {
            "scalar": {"type": "string"},
            "optional": {"type": {"key": {"type": "integer", "minInteger": 1}, "min": 0}},
            "prefixes": {"type": {"key": "string", "min": 0, "max": 3}},
            "map": {"type": {"key": "string", "value": {"type": "uuid", "refTable": "T"}, "min": 0, "max": "unlimited"}},
        }}}});
        let schema = Schema::from_json(&schema).unwrap();
        assert_eq!((schema.name.as_str(), schema.version.as_str()), ("D", "1.2.3"));
        assert_eq!(schema.column("T", "scalar"), Some(&ColumnType::scalar(AtomicType::String)));
        assert_eq!(schema.column("T", "optional"), Some(&ColumnType::optional(AtomicType::Integer)));
        assert_eq!(schema.column("T", "prefixes").unwrap().max, 3);
        assert_eq!(schema.column("T", "map"), Some(&ColumnType::map(AtomicType::String, AtomicType::Uuid)));
        assert!(schema.column("T", "none").is_none() && schema.column("none", "map").is_none());
    }

    #[test]
    fn broken_schemas_are_refused() {
        let column = |json: Value| json!({"tables": {"T": {"columns": {"c": json}}}});
        let broken = [
            json!(null),
            json!({"tables": []}),
            json!({"tables": {"T": {}}}),
            column(json!({})),
            column(json!({"type": "float"})),
            column(json!({"type": {"key": "string", "max": -1}})),
            column(json!({"type": {"key": "string", "value": 7}})),
        ];
        for json in broken {
            assert!(Schema::from_json(&json).is_err(), "{json}");
        }
    }
}
