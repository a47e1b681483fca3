//! What a server sends for the step from one random database to the next leaves the replica with that database, and
//! the changes are those that a naive comparison finds. The server's side is computed here with sets and maps of the
//! standard library.

use crate::peer::{self, Peer, ZERO_ID, config, uuid};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use sluice_ovsdb::{AtomicType, ChangeKind, Column, ColumnType, Message, Table, Uuid};
use std::collections::{BTreeMap, BTreeSet};

/// A row as naive Rust types: one column of each kind of type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct NaiveRow {
    number: i64,
    flag: bool,
    tag: Option<i64>,
    trunks: BTreeSet<i64>,
    members: BTreeSet<Uuid>,
    other_config: BTreeMap<String, String>,
    queues: BTreeMap<i64, Uuid>,
    pair: BTreeMap<String, i64>,
}

type NaiveTable = BTreeMap<Uuid, NaiveRow>;

fn schema() -> Value {
    let set = |key: &str| json!({"type": {"key": key, "min": 0, "max": "unlimited"}});
    let map = |key: &str, value: &str| json!({"type": {"key": key, "value": value, "min": 0, "max": "unlimited"}});
    json!({"name": "db", "version": "1.0.0", "tables": {"T": {"columns": {
        "number": {"type": "integer"},
        "flag": {"type": "boolean"},
        "tag": {"type": {"key": "integer", "min": 0}},
        "trunks": set("integer"),
        "members": set("uuid"),
        "other_config": map("string", "string"),
        "queues": map("integer", "uuid"),
        "pair": {"type": {"key": "string", "value": "integer", "min": 0, "max": 1}},
    }}}})
}

fn table() -> Table {
    let pair = ColumnType { max: 1, ..ColumnType::map(AtomicType::String, AtomicType::Integer) };
    Table::new(
        "T",
        [
            Column::scalar("number", AtomicType::Integer),
            Column::scalar("flag", AtomicType::Boolean),
            Column::optional("tag", AtomicType::Integer),
            Column::set("trunks", AtomicType::Integer),
            Column::set("members", AtomicType::Uuid),
            Column::string_map("other_config"),
            Column::new("queues", ColumnType::map(AtomicType::Integer, AtomicType::Uuid)),
            Column::new("pair", pair),
        ],
    )
}

/// Few values, so that rows often have elements, keys and pairs in common.
fn naive_row() -> impl Strategy<Value = NaiveRow> {
    let text = || "[ab]?";
    let id = || (0..4u128).prop_map(uuid);
    (
        (0..3i64, any::<bool>(), prop::option::of(0..3i64)),
        prop::collection::btree_set(0..6i64, 0..5),
        prop::collection::btree_set(id(), 0..4),
        prop::collection::btree_map(text(), text(), 0..3),
        prop::collection::btree_map(0..4i64, id(), 0..4),
        prop::collection::btree_map(text(), 0..3i64, 0..2),
    )
        .prop_map(|((number, flag, tag), trunks, members, other_config, queues, pair)| NaiveRow {
            number,
            flag,
            tag,
            trunks,
            members,
            other_config,
            queues,
            pair,
        })
}

fn naive_table() -> impl Strategy<Value = NaiveTable> {
    prop::collection::btree_map((10..15u128).prop_map(uuid), naive_row(), 0..5)
}

fn json_uuid(uuid: &Uuid) -> Value {
    json!(["uuid", uuid.to_string()])
}

/// A set as OVS writes it: one element is bare.
fn json_set(elements: Vec<Value>) -> Value {
    if elements.len() == 1 { elements[0].clone() } else { json!(["set", elements]) }
}

fn json_map(pairs: Vec<(Value, Value)>) -> Value {
    json!(["map", pairs.into_iter().map(|(k, v)| json!([k, v])).collect::<Vec<_>>()])
}

/// The columns of a row, whole.
fn columns(row: &NaiveRow) -> BTreeMap<&'static str, Value> {
    BTreeMap::from([
        ("number", json!(row.number)),
        ("flag", json!(row.flag)),
        ("tag", json_set(row.tag.iter().map(|tag| json!(tag)).collect())),
        ("trunks", json_set(row.trunks.iter().map(|trunk| json!(trunk)).collect())),
        ("members", json_set(row.members.iter().map(json_uuid).collect())),
        ("other_config", json_map(row.other_config.iter().map(|(k, v)| (json!(k), json!(v))).collect())),
        ("queues", json_map(row.queues.iter().map(|(k, v)| (json!(k), json_uuid(v))).collect())),
        ("pair", json_map(row.pair.iter().map(|(k, v)| (json!(k), json!(v))).collect())),
    ])
}

/// What `update2` says of a set: the elements that are in one of both.
fn set_difference<T: Ord + Clone>(old: &BTreeSet<T>, new: &BTreeSet<T>, json: impl Fn(&T) -> Value) -> Value {
    json_set(old.symmetric_difference(new).map(json).collect())
}

/// What `update2` says of a map: pairs that went, and pairs that are new or have another value.
fn map_difference<K: Ord, V: PartialEq>(
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
    json: impl Fn(&K, &V) -> (Value, Value),
) -> Value {
    let gone = old.iter().filter(|(k, _)| !new.contains_key(k));
    let came = new.iter().filter(|(k, v)| old.get(k) != Some(v));
    json_map(gone.chain(came).map(|(k, v)| json(k, v)).collect())
}

/// The columns that differ, as `modify` has them.
fn difference(old: &NaiveRow, new: &NaiveRow) -> Map<String, Value> {
    let mut columns: Map<String, Value> =
        changed(old, new).into_iter().map(|name| (name.into(), columns(new)[name].clone())).collect();
    let mut replace = |name: &str, value: Value| {
        if let Some(column) = columns.get_mut(name) {
            *column = value;
        }
    };
    replace("trunks", set_difference(&old.trunks, &new.trunks, |trunk| json!(trunk)));
    replace("members", set_difference(&old.members, &new.members, json_uuid));
    replace("other_config", map_difference(&old.other_config, &new.other_config, |k, v| (json!(k), json!(v))));
    replace("queues", map_difference(&old.queues, &new.queues, |k, v| (json!(k), json_uuid(v))));
    columns
}

/// The names of the columns that differ, in the order of declaration.
fn changed(old: &NaiveRow, new: &NaiveRow) -> Vec<&'static str> {
    let (old, new) = (columns(old), columns(new));
    table().columns.iter().map(|column| column.name).filter(|name| old[name] != new[name]).collect()
}

/// A row without the columns that have their default.
fn without_defaults(row: &NaiveRow) -> Value {
    let row: Map<_, _> =
        changed(&NaiveRow::default(), row).into_iter().map(|name| (name.into(), columns(row)[name].clone())).collect();
    row.into()
}

fn rows_of<'a>(
    old: &'a NaiveTable,
    new: &'a NaiveTable,
) -> impl Iterator<Item = (Uuid, Option<&'a NaiveRow>, Option<&'a NaiveRow>)> {
    let all: BTreeSet<_> = old.keys().chain(new.keys()).copied().collect();
    all.into_iter().map(|uuid| (uuid, old.get(&uuid), new.get(&uuid))).filter(|(_, old, new)| old != new)
}

/// The step from `old` to `new` as `update2` and `update3` have it.
fn update2(old: &NaiveTable, new: &NaiveTable) -> Value {
    let rows: Map<_, _> = rows_of(old, new)
        .map(|(uuid, old, new)| {
            let update = match (old, new) {
                (None, Some(new)) => json!({"insert": without_defaults(new)}),
                (Some(old), Some(new)) => json!({"modify": difference(old, new)}),
                (_, None) => json!({"delete": null}),
            };
            (uuid.to_string(), update)
        })
        .collect();
    json!({ "T": rows })
}

/// The same as RFC 7047 has it.
fn update1(old: &NaiveTable, new: &NaiveTable) -> Value {
    let rows: Map<_, _> = rows_of(old, new)
        .map(|(uuid, old, new)| {
            let mut members = Map::new();
            members.extend(old.map(|old| ("old".to_owned(), json!(columns(old)))));
            members.extend(new.map(|new| ("new".to_owned(), json!(columns(new)))));
            (uuid.to_string(), Value::from(members))
        })
        .collect();
    json!({ "T": rows })
}

fn initial(contents: &NaiveTable) -> Value {
    let rows: Map<_, _> =
        contents.iter().map(|(uuid, row)| (uuid.to_string(), json!({"initial": without_defaults(row)}))).collect();
    json!({ "T": rows })
}

/// The replica as naive types.
fn contents(peer: &Peer) -> NaiveTable {
    let owned = |map: BTreeMap<&str, &str>| map.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    let row = |row: sluice_ovsdb::Row<'_>| NaiveRow {
        number: row.get("number"),
        flag: row.get("flag"),
        tag: row.get("tag"),
        trunks: row.get::<Vec<i64>>("trunks").into_iter().collect(),
        members: row.get::<Vec<Uuid>>("members").into_iter().collect(),
        other_config: owned(row.get("other_config")),
        queues: row.get("queues"),
        pair: row.get::<BTreeMap<&str, i64>>("pair").into_iter().map(|(k, v)| (k.to_owned(), v)).collect(),
    };
    peer.session.replica().rows("T").map(|r| (r.uuid(), row(r))).collect()
}

/// Checks what the session says has changed against a naive comparison.
fn check_changes(peer: &mut Peer, old: &NaiveTable, new: &NaiveTable) -> Result<(), TestCaseError> {
    let want: Vec<_> = rows_of(old, new)
        .map(|(uuid, old, new)| match (old, new) {
            (Some(old), Some(new)) => (uuid, ChangeKind::Modified, changed(old, new)),
            (None, _) => (uuid, ChangeKind::Inserted, vec![]),
            (_, None) => (uuid, ChangeKind::Deleted, vec![]),
        })
        .collect();
    let got = peer.session.take_changes();
    prop_assert_eq!(got.alert(), !want.is_empty());
    let got: Vec<_> = got.iter().map(|change| (change.uuid, change.kind, change.columns.clone())).collect();
    prop_assert_eq!(got, want);
    Ok(())
}

/// A session with a server that knows only RFC 7047.
fn old_peer(contents: &NaiveTable) -> Peer {
    let mut peer = Peer::new(config(vec![table()]));
    peer.accept();
    let (_, id) = peer.request("get_schema");
    peer.refuse(id);
    let (_, id) = peer.request("get_schema");
    peer.reply(id, schema());
    let (_, id) = peer.request("monitor_cond");
    peer.refuse(id);
    let (_, id) = peer.request("monitor");
    peer.reply(id, update1(&NaiveTable::new(), contents));
    assert!(peer.session.is_synced());
    peer.session.take_changes();
    peer
}

proptest! {
    #[test]
    fn differences_lead_to_the_new_contents(steps in prop::collection::vec(naive_table(), 1..5)) {
        let mut peer = Peer::synced(config(vec![table()]), &schema(), initial(&steps[0]));
        prop_assert_eq!(contents(&peer), steps[0].clone());
        for step in steps.windows(2) {
            peer.update3(ZERO_ID, update2(&step[0], &step[1]));
            prop_assert_eq!(contents(&peer), step[1].clone());
            check_changes(&mut peer, &step[0], &step[1])?;
        }
    }

    #[test]
    fn whole_rows_lead_to_the_new_contents(steps in prop::collection::vec(naive_table(), 1..5)) {
        let mut peer = old_peer(&steps[0]);
        prop_assert_eq!(contents(&peer), steps[0].clone());
        for step in steps.windows(2) {
            peer.notify("update", json!([["monid", "db"], update1(&step[0], &step[1])]));
            prop_assert_eq!(contents(&peer), step[1].clone());
            check_changes(&mut peer, &step[0], &step[1])?;
        }
    }

    /// A server that was restarted tells everything; only what differs counts as changed.
    #[test]
    fn a_new_connection_is_compared(old in naive_table(), new in naive_table()) {
        let mut peer = Peer::synced(config(vec![table()]), &schema(), initial(&old));
        peer.hang_up();
        prop_assert_eq!(contents(&peer), old.clone());
        peer.accept();
        let (_, id) = peer.introduce(peer::standalone(&schema()));
        peer.reply(id, json!([false, ZERO_ID, initial(&new)]));
        prop_assert_eq!(contents(&peer), new.clone());
        check_changes(&mut peer, &old, &new)?;
    }

    /// Several steps between two questions count as one, as far as rows come and go.
    #[test]
    fn changes_accumulate(steps in prop::collection::vec(naive_table(), 2..6)) {
        let mut peer = Peer::synced(config(vec![table()]), &schema(), initial(&steps[0]));
        for step in steps.windows(2) {
            peer.update3(ZERO_ID, update2(&step[0], &step[1]));
        }
        let (first, last) = (&steps[0], &steps[steps.len() - 1]);
        let mut got: BTreeMap<Uuid, sluice_ovsdb::Change> =
            peer.session.take_changes().iter().map(|change| (change.uuid, change.clone())).collect();
        for (uuid, old, new) in rows_of(first, last) {
            let change = got.remove(&uuid);
            let change = change.ok_or_else(|| TestCaseError::fail("a change was not told"))?;
            match (old, new) {
                (Some(old), Some(new)) => {
                    prop_assert_eq!(change.kind, ChangeKind::Modified);
                    prop_assert!(changed(old, new).iter().all(|column| change.columns.contains(column)));
                }
                (None, _) => prop_assert_eq!(change.kind, ChangeKind::Inserted),
                (_, None) => prop_assert_eq!(change.kind, ChangeKind::Deleted),
            }
        }
        // What is left changed and changed back: rows that came and went are not told.
        prop_assert!(got.keys().all(|uuid| first.contains_key(uuid) && last.contains_key(uuid)));
    }

    /// Any JSON in an update's place leads to an update or to a new connection, never to a panic.
    #[test]
    fn any_update_is_applied_or_refused(
        kind in "initial|insert|modify|delete|old|new|x",
        column in "number|trunks|queues|pair|x",
        value in prop_oneof![
            Just(json!(null)), Just(json!(1)), Just(json!(["set", []])), Just(json!(["set", [1, 1]])), Just(json!(["map", []])),
            Just(json!(["map", [[1]]])), Just(json!(["uuid", "x"])), Just(json!([])), Just(json!({})),
        ],
        row in 9..12u128,
    ) {
        let start = NaiveTable::from([(uuid(10), NaiveRow::default())]);
        for method in ["update", "update2", "update3"] {
            let mut peer = Peer::synced(config(vec![table()]), &schema(), initial(&start));
            let updates = json!({"T": {uuid(row).to_string(): {kind.as_str(): {column.as_str(): value.clone()}}}});
            let params = if method == "update3" { json!([["monid", "db"], ZERO_ID, updates]) } else { json!([["monid", "db"], updates]) };
            peer.receive(Message::Notification { method: method.into(), params });
            prop_assert!(peer.session.is_synced() || peer.hung_up().is_some());
        }
    }
}
