//! What a transaction sends, and what it comes to.

use crate::peer::{Peer, ZERO_ID, config, uuid};
use serde_json::{Value, json};
use sluice_ovsdb::{
    AtomicType, Column, ColumnType, Commit, Config, Datum, Event, Mutation, Table, Txn, TxnError, TxnStatus, Uuid,
};
use std::collections::BTreeMap;

const REAL: &str = "11111111-1111-4111-8111-111111111111";

fn tables() -> Vec<Table> {
    vec![
        Table::new(
            "Bridge",
            [
                Column::scalar("name", AtomicType::String),
                Column::set("ports", AtomicType::Uuid),
                Column::string_map("other_config"),
                Column::new("stats", ColumnType::map(AtomicType::String, AtomicType::Integer)),
                Column::optional("tag", AtomicType::Integer),
                Column::scalar("lacking", AtomicType::String),
            ],
        ),
        Table::new("Port", [Column::scalar("name", AtomicType::String), Column::set("trunks", AtomicType::Integer)]),
        Table::new("Lacking", [Column::scalar("name", AtomicType::String)]),
    ]
}

fn schema() -> Value {
    let map = |value: &str| json!({"type": {"key": "string", "value": value, "min": 0, "max": "unlimited"}});
    json!({"name": "db", "tables": {
        "Bridge": {"columns": {
            "name": {"type": "string"},
            "ports": {"type": {"key": "uuid", "min": 0, "max": "unlimited"}},
            "other_config": map("string"),
            "stats": map("integer"),
            "tag": {"type": {"key": "integer", "min": 0}},
        }},
        "Port": {"columns": {
            "name": {"type": "string"},
            "trunks": {"type": {"key": "integer", "min": 0, "max": 4}},
        }},
    }})
}

const BRIDGE: Uuid = Uuid::from_u128(1);

fn synced(lock: Option<&str>) -> Peer {
    let row = json!({"name": "br0", "other_config": ["map", [["a", "1"]]], "ports": ["uuid", uuid(7).to_string()]});
    let config = Config { lock: lock.map(str::to_owned), ..config(tables()) };
    Peer::synced(config, &schema(), json!({"Bridge": {BRIDGE.to_string(): {"initial": row}}}))
}

fn where_bridge() -> Value {
    json!([["_uuid", "==", ["uuid", BRIDGE.to_string()]]])
}

fn txn(build: impl FnOnce(&mut Txn)) -> Txn {
    let mut txn = Txn::new();
    build(&mut txn);
    txn
}

/// Commits what must be sent; the operations, and the request's id.
fn operations(peer: &mut Peer, txn: &Txn) -> (Vec<Value>, Value) {
    let commit = peer.session.commit(txn);
    assert!(matches!(commit, Ok(Commit::Incomplete(_))), "{commit:?}");
    let (params, id) = peer.request("transact");
    assert_eq!(params[0], "db");
    (params.as_array().unwrap()[1..].to_vec(), id)
}

/// Commits what must not be sent.
fn finished(peer: &mut Peer, txn: &Txn) -> TxnStatus {
    let commit = peer.session.commit(txn);
    assert_eq!(peer.sent(), []);
    match commit {
        Ok(Commit::Finished(status)) => status,
        other => panic!("{other:?}"),
    }
}

/// What transactions came to since this was last asked.
fn statuses(peer: &mut Peer) -> Vec<TxnStatus> {
    let status = |event| match event {
        Event::Finished(_, status) => Some(status),
        _ => None,
    };
    peer.events().into_iter().filter_map(status).collect()
}

#[test]
fn what_the_database_has_is_not_sent() {
    let mut peer = synced(Some("l"));
    let same = txn(|txn| {
        txn.comment("nothing to see");
        txn.set("Bridge", BRIDGE, "name", "br0");
        txn.set("Bridge", BRIDGE, "ports", vec![uuid(7)]);
        txn.set("Bridge", BRIDGE, "other_config", BTreeMap::from([("a", "1")]));
        txn.set("Bridge", BRIDGE, "stats", Datum::EMPTY);
        txn.set("Bridge", BRIDGE, "tag", None::<i64>);
        txn.set("Bridge", BRIDGE, "lacking", "whatever");
        txn.delete("Bridge", uuid(99));
        txn.set("Bridge", uuid(99), "name", "gone");
        let row = txn.insert("Port");
        txn.delete("Port", row);
        txn.insert("Lacking");
    });
    assert_eq!(finished(&mut peer, &same), TxnStatus::Unchanged);
}

#[test]
fn only_what_differs_is_sent_and_the_lock_is_asserted() {
    let mut peer = synced(Some("l"));
    let changes = txn(|txn| {
        txn.set("Bridge", BRIDGE, "tag", 5);
        txn.set("Bridge", BRIDGE, "name", "br0");
        txn.set("Bridge", BRIDGE, "ports", Datum::EMPTY);
        txn.set("Bridge", BRIDGE, "tag", 6);
        txn.comment("one");
        txn.comment("two");
        txn.abort();
    });
    let (operations, id) = operations(&mut peer, &changes);
    let row = json!({"ports": ["set", []], "tag": 6});
    let want = [
        json!({"op": "update", "table": "Bridge", "where": where_bridge(), "row": row}),
        json!({"op": "comment", "comment": "one\ntwo"}),
        json!({"op": "abort"}),
        json!({"op": "assert", "lock": "l"}),
    ];
    assert_eq!(operations, want);
    peer.reply(id, json!([{"count": 1}, {}, {"error": "aborted"}, null]));
    assert_eq!(statuses(&mut peer), [TxnStatus::Aborted]);
}

#[test]
fn rows_that_are_inserted_refer_to_each_other() {
    let mut peer = synced(None);
    let mut rows = Vec::new();
    let inserts = txn(|txn| {
        let port = txn.insert("Port");
        let bridge = txn.insert("Bridge");
        txn.set("Port", port, "name", "p1");
        txn.set("Port", port, "trunks", Vec::<i64>::new());
        txn.set("Bridge", bridge, "ports", vec![port, uuid(8)]);
        rows = vec![port, bridge];
    });
    let (operations, id) = operations(&mut peer, &inserts);
    assert_eq!(operations[0], json!({"op": "insert", "table": "Port", "uuid-name": "row0", "row": {"name": "p1"}}));
    let ports = json!(["set", [["uuid", uuid(8).to_string()], ["named-uuid", "row0"]]]);
    assert_eq!(operations[1], json!({"op": "insert", "table": "Bridge", "uuid-name": "row1", "row": {"ports": ports}}));
    assert_eq!(operations.len(), 2);
    peer.reply(id, json!([{"uuid": ["uuid", REAL]}, {"uuid": ["uuid", uuid(9).to_string()]}]));
    let inserted = vec![(rows[0], REAL.parse().unwrap()), (rows[1], uuid(9))];
    assert_eq!(statuses(&mut peer), [TxnStatus::Success { inserted }]);
}

/// The update that a transaction causes comes before its reply; until then the replica has the old value.
#[test]
fn a_column_under_way_is_written_again() {
    let mut peer = synced(None);
    let set = |tag: Option<i64>| txn(|txn| txn.set("Bridge", BRIDGE, "tag", tag));
    let (_, first) = operations(&mut peer, &set(Some(5)));
    // The replica has no tag yet, but the database may have one now.
    let (second, second_id) = operations(&mut peer, &set(None));
    assert_eq!(second[0]["row"], json!({"tag": ["set", []]}));
    let modify = |tag: Value| json!({"Bridge": {BRIDGE.to_string(): {"modify": {"tag": tag}}}});
    peer.update3(ZERO_ID, modify(json!(5)));
    peer.reply(first, json!([{"count": 1}]));
    assert_eq!(peer.session.replica().row("Bridge", BRIDGE).unwrap().get::<i64>("tag"), 5);
    peer.update3(ZERO_ID, modify(json!(["set", []])));
    peer.reply(second_id, json!([{"count": 1}]));
    assert_eq!(finished(&mut peer, &set(None)), TxnStatus::Unchanged);
    assert_eq!(statuses(&mut peer).len(), 2);
}

#[test]
fn mutations_without_effect_are_not_sent() {
    let mut peer = synced(None);
    let without = txn(|txn| {
        let mut mutate = |column, mutation| txn.mutate("Bridge", BRIDGE, column, mutation);
        mutate("ports", Mutation::Insert(Datum::set([uuid(7)])));
        mutate("ports", Mutation::Delete(Datum::set([uuid(8)])));
        mutate("other_config", Mutation::Insert(Datum::map([("a", "2")])));
        mutate("other_config", Mutation::Delete(Datum::map([("a", "2")])));
        mutate("other_config", Mutation::Delete(Datum::set(["b"])));
        mutate("tag", Mutation::Add(1.into()));
    });
    assert_eq!(finished(&mut peer, &without), TxnStatus::Unchanged);
    let with = txn(|txn| {
        let mut mutate = |column, mutation| txn.mutate("Bridge", BRIDGE, column, mutation);
        mutate("ports", Mutation::Insert(Datum::set([uuid(7), uuid(8)])));
        mutate("ports", Mutation::Delete(Datum::set([uuid(7)])));
        mutate("other_config", Mutation::Insert(Datum::map([("b", "2")])));
        mutate("other_config", Mutation::Delete(Datum::map([("a", "1")])));
        mutate("other_config", Mutation::Delete(Datum::set(["a"])));
    });
    let (operations, _) = operations(&mut peer, &with);
    let [seven, eight] = [7, 8].map(|n| json!(["uuid", uuid(n).to_string()]));
    let mutations = json!([
        ["ports", "insert", ["set", [seven, eight]]],
        ["ports", "delete", seven],
        ["other_config", "insert", ["map", [["b", "2"]]]],
        ["other_config", "delete", ["map", [["a", "1"]]]],
        ["other_config", "delete", "a"],
    ]);
    assert_eq!(operations[0]["mutations"], mutations);
    assert_eq!((operations.len(), &operations[0]["op"]), (1, &json!("mutate")));
}

#[test]
fn verified_columns_are_waited_for() {
    let mut peer = synced(None);
    let verified = |peer: &Peer, changes: bool| {
        let row = peer.session.replica().row("Bridge", BRIDGE).unwrap();
        txn(|txn| {
            txn.verify(&row, "name");
            txn.verify(&row, "lacking");
            if changes {
                txn.delete("Bridge", BRIDGE);
            }
        })
    };
    let only_verified = verified(&peer, false);
    assert_eq!(finished(&mut peer, &only_verified), TxnStatus::Unchanged);
    let deleted = verified(&peer, true);
    let (operations, id) = operations(&mut peer, &deleted);
    let wait = json!({
        "op": "wait", "table": "Bridge", "timeout": 0, "where": where_bridge(),
        "columns": ["name"], "until": "==", "rows": [{"name": "br0"}],
    });
    assert_eq!(operations, [wait, json!({"op": "delete", "table": "Bridge", "where": where_bridge()})]);
    peer.reply(id, json!([{"error": "timed out"}, null]));
    assert_eq!(statuses(&mut peer), [TxnStatus::TryAgain]);
}

#[test]
fn nothing_is_sent_without_lock_or_contents() {
    let set = txn(|txn| txn.set("Bridge", BRIDGE, "tag", 5));
    let mut peer = synced(Some("l"));
    peer.notify("stolen", json!(["l"]));
    assert_eq!(finished(&mut peer, &set), TxnStatus::NotLocked);
    peer.notify("locked", json!(["l"]));
    operations(&mut peer, &set);
    peer.hang_up();
    assert_eq!(statuses(&mut peer), [TxnStatus::TryAgain]);
    assert_eq!(finished(&mut peer, &set), TxnStatus::TryAgain);
}

#[test]
fn errors_of_the_program_are_told() {
    let mut peer = synced(None);
    let mut error = |build: fn(&mut Txn)| peer.session.commit(&txn(build)).unwrap_err().to_string();
    assert_eq!(error(|txn| txn.set("Brigde", BRIDGE, "name", "x")), "table Brigde is not declared");
    assert_eq!(error(|txn| txn.set("Bridge", BRIDGE, "nmae", "x")), "column nmae of table Bridge is not declared");
    assert_eq!(error(|txn| txn.set("Bridge", uuid(99), "nmae", "x")), "column nmae of table Bridge is not declared");
    let name = "column name of table Bridge: ";
    assert_eq!(
        error(|txn| txn.set("Bridge", BRIDGE, "name", 5)),
        format!("{name}an element's kind is not the column's")
    );
    assert_eq!(error(|txn| txn.set("Bridge", BRIDGE, "name", Datum::EMPTY)), format!("{name}too few elements"));
    let two = |txn: &mut Txn| txn.set("Bridge", BRIDGE, "name", vec!["a", "b"]);
    assert_eq!(error(two), format!("{name}too many elements"));
    let map = |txn: &mut Txn| txn.set("Bridge", BRIDGE, "name", Datum::map([("a", "b")]));
    assert_eq!(error(map), format!("{name}a map for a column of sets"));
    let add = |txn: &mut Txn| txn.mutate("Bridge", BRIDGE, "name", Mutation::Add(1.into()));
    assert_eq!(error(add), format!("{name}the mutation needs a number of the column's kind"));
    let insert = |txn: &mut Txn| {
        let row = txn.insert("Bridge");
        txn.mutate("Bridge", row, "name", Mutation::Insert("a".into()));
    };
    assert_eq!(error(insert), format!("{name}a row that is being inserted cannot be mutated"));
    // The server's limit counts, not the declared one.
    let five = txn(|txn| {
        let row = txn.insert("Port");
        txn.set("Port", row, "trunks", vec![1, 2, 3, 4, 5]);
    });
    let problem = "too many elements";
    assert_eq!(peer.session.commit(&five), Err(TxnError::Value { table: "Port", column: "trunks", problem }));
}
