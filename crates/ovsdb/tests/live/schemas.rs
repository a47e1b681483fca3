//! Schemas that are not the declared one.

use crate::server::{Server, Tester, schema, tables};
use serde_json::{Value, json};
use sluice_ovsdb::{AtomicType, Column, Config, Datum, Event, Lacking, Txn, TxnStatus};

/// A schema with a column `newer`, in which `number` may hold two elements.
fn newer() -> Value {
    let mut newer = schema();
    newer["version"] = json!("1.1.0");
    newer["tables"]["Row"]["columns"]["newer"] = json!({"type": "string"});
    newer["tables"]["Row"]["columns"]["number"] = json!({"type": {"key": "integer", "min": 0, "max": 2}});
    newer
}

/// A schema without the column `options` and the table Root.
fn older() -> Value {
    let mut older = schema();
    older["version"] = json!("0.9.0");
    older["tables"]["Row"]["columns"].as_object_mut().unwrap().remove("options");
    older["tables"].as_object_mut().unwrap().remove("Root");
    older
}

/// What the cases declare, and the newer column, too.
fn config(server: &Server) -> Config {
    let mut tables = tables();
    tables[1].columns.push(Column::scalar("newer", AtomicType::String));
    Config { tables, ..server.config() }
}

pub fn a_database_is_converted_underneath() {
    let server = Server::start();
    let mut client = Tester::new(config(&server));
    client.until("the contents", |client| client.session().is_synced());
    let row = client.insert("r1");
    let set = |txn: &mut Txn| {
        txn.set("Row", row, "newer", "x");
        txn.set("Row", row, "number", 1);
    };
    client.committed(set);
    assert_eq!(client.commit(set), TxnStatus::Unchanged, "the server lacks the newer column");
    client.changes();
    client.events.clear();

    server.convert(&newer());
    client.until_event("the conversion", |event| *event == Event::MonitorCanceled);
    assert_eq!(client.names(), ["r1"], "the old contents stay readable");
    client.until_event("the contents", |event| *event == Event::Synced);
    assert!(!client.events.iter().any(|event| matches!(event, Event::Disconnected { .. })), "{:?}", client.events);
    assert!(client.changes().is_empty(), "no value differs");
    assert!(client.replica().has_column("Row", "newer"));
    client.committed(set);
    // The newer type may hold two, and its differences are a set's.
    client.committed(|txn| txn.set("Row", row, "number", vec![1, 2]));
    assert_eq!(client.replica().row("Row", row).unwrap().get::<Vec<i64>>("number"), [1, 2]);
    client.committed(|txn| txn.set("Row", row, "number", 2));
    assert_eq!(client.replica().row("Row", row).unwrap().get::<Vec<i64>>("number"), [2]);

    client.events.clear();
    server.convert(&older());
    let gone = client.until_event("what is lacking", |event| matches!(event, Event::Lacking(_)));
    let lacking = |table, column| Lacking { table, column };
    let want = vec![lacking("Root", None), lacking("Row", Some("options")), lacking("Row", Some("newer"))];
    assert_eq!(gone, Event::Lacking(want));
    client.until("the contents", |client| client.session().is_synced());
    let kept = client.replica().row("Row", row).unwrap();
    assert_eq!((kept.get::<&str>("name"), kept.get::<&str>("newer")), ("r1", ""));
}

pub fn older_and_newer_schemas_will_do() {
    for schema in [older(), newer(), schema()] {
        let server = Server::with_schema(&schema);
        let mut client = Tester::new(config(&server));
        client.until("the contents", |client| client.session().is_synced());
        let row = client.insert("r1");
        client.committed(|txn| {
            txn.insert("Root");
            txn.set("Row", row, "number", 5);
            txn.set("Row", row, "options", Datum::map([("a", "b")]));
            txn.set("Row", row, "newer", "x");
        });
        let tables = &schema["tables"];
        let replica = client.replica();
        let has = |column: &str| tables["Row"]["columns"].get(column).is_some();
        let kept = replica.row("Row", row).unwrap();
        assert_eq!(kept.get::<Option<i64>>("number"), Some(5));
        assert_eq!(kept.key("options", "a"), has("options").then_some("b"));
        assert_eq!(kept.get::<&str>("newer"), if has("newer") { "x" } else { "" });
        assert_eq!(replica.rows("Root").count(), usize::from(tables.get("Root").is_some()));
    }
}
