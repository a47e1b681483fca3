//! What a transaction leaves out changes nothing: whatever is sent, applied by a naive server, leads to the values that
//! all of it would have led to; even while replies and updates are late.

use crate::peer::{Peer, ZERO_ID, config, uuid};
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_ovsdb::{AtomicType, Column, Commit, Datum, Mutation, Table, Txn, Uuid};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const ROW: Uuid = Uuid::from_u128(1);

fn table() -> Table {
    let columns = [
        Column::optional("number", AtomicType::Integer),
        Column::set("numbers", AtomicType::Integer),
        Column::string_map("options"),
    ];
    Table::new("T", columns)
}

fn schema() -> Value {
    json!({"name": "db", "tables": {"T": {"columns": {
        "number": {"type": {"key": "integer", "min": 0}},
        "numbers": {"type": {"key": "integer", "min": 0, "max": "unlimited"}},
        "options": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}},
    }}}})
}

type Options = BTreeMap<String, String>;

/// The server's row.
#[derive(Clone, Debug, Default, PartialEq)]
struct NaiveRow {
    number: Option<i64>,
    numbers: BTreeSet<i64>,
    options: Options,
}

/// One call of a transaction.
#[derive(Clone, Debug)]
enum Call {
    SetNumber(Option<i64>),
    SetNumbers(BTreeSet<i64>),
    SetOptions(Options),
    Add(i64),
    InsertNumbers(BTreeSet<i64>),
    DeleteNumbers(BTreeSet<i64>),
    InsertOptions(Options),
    DeleteOptions(Options),
    DeleteKeys(BTreeSet<String>),
}

fn call() -> impl Strategy<Value = Call> {
    let numbers = || prop::collection::btree_set(0..3i64, 0..3);
    let options = || prop::collection::btree_map("[ab]", "[xy]", 0..3);
    prop_oneof![
        prop::option::of(0..3i64).prop_map(Call::SetNumber),
        numbers().prop_map(Call::SetNumbers),
        options().prop_map(Call::SetOptions),
        (-1..2i64).prop_map(Call::Add),
        numbers().prop_map(Call::InsertNumbers),
        numbers().prop_map(Call::DeleteNumbers),
        options().prop_map(Call::InsertOptions),
        options().prop_map(Call::DeleteOptions),
        prop::collection::btree_set("[ab]", 0..3).prop_map(Call::DeleteKeys),
    ]
}

impl Call {
    fn write(&self, txn: &mut Txn) {
        match self.clone() {
            Call::SetNumber(number) => txn.set("T", ROW, "number", number),
            Call::SetNumbers(numbers) => txn.set("T", ROW, "numbers", Datum::set(numbers)),
            Call::SetOptions(options) => txn.set("T", ROW, "options", options),
            Call::Add(number) => txn.mutate("T", ROW, "number", Mutation::Add(number.into())),
            Call::InsertNumbers(numbers) => txn.mutate("T", ROW, "numbers", Mutation::Insert(Datum::set(numbers))),
            Call::DeleteNumbers(numbers) => txn.mutate("T", ROW, "numbers", Mutation::Delete(Datum::set(numbers))),
            Call::InsertOptions(options) => txn.mutate("T", ROW, "options", Mutation::Insert(options.into())),
            Call::DeleteOptions(options) => txn.mutate("T", ROW, "options", Mutation::Delete(options.into())),
            Call::DeleteKeys(keys) => txn.mutate("T", ROW, "options", Mutation::Delete(Datum::set(keys))),
        }
    }

    fn apply(&self, row: &mut NaiveRow) {
        match self.clone() {
            Call::SetNumber(number) => row.number = number,
            Call::SetNumbers(numbers) => row.numbers = numbers,
            Call::SetOptions(options) => row.options = options,
            Call::Add(number) => row.number = row.number.map(|n| n + number),
            Call::InsertNumbers(numbers) => row.numbers.extend(numbers),
            Call::DeleteNumbers(numbers) => row.numbers.retain(|n| !numbers.contains(n)),
            Call::InsertOptions(options) => options.into_iter().for_each(|(k, v)| {
                row.options.entry(k).or_insert(v);
            }),
            Call::DeleteOptions(options) => row.options.retain(|k, v| options.get(k) != Some(v)),
            Call::DeleteKeys(keys) => row.options.retain(|k, _| !keys.contains(k)),
        }
    }
}

/// The elements of a value on the wire.
fn elements(json: &Value) -> Vec<Value> {
    match json[0].as_str() {
        Some("set" | "map") => json[1].as_array().unwrap().clone(),
        _ => vec![json.clone()],
    }
}

fn numbers(json: &Value) -> BTreeSet<i64> {
    elements(json).iter().map(|json| json.as_i64().unwrap()).collect()
}

fn texts(json: &Value) -> BTreeSet<String> {
    elements(json).iter().map(|json| json.as_str().unwrap().to_owned()).collect()
}

fn options(json: &Value) -> Options {
    let text = |json: &Value| json.as_str().unwrap().to_owned();
    elements(json).iter().map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

/// What the operations of a `transact` request say, as calls.
fn calls(params: &Value) -> Vec<Call> {
    let mut calls = Vec::new();
    for operation in &params.as_array().unwrap()[1..] {
        for (column, value) in operation.get("row").and_then(Value::as_object).into_iter().flatten() {
            calls.push(match column.as_str() {
                "number" => Call::SetNumber(numbers(value).first().copied()),
                "numbers" => Call::SetNumbers(numbers(value)),
                _ => Call::SetOptions(options(value)),
            });
        }
        for mutation in operation.get("mutations").and_then(Value::as_array).into_iter().flatten() {
            let value = &mutation[2];
            calls.push(match (mutation[0].as_str().unwrap(), mutation[1].as_str().unwrap()) {
                ("number", "+=") => Call::Add(value.as_i64().unwrap()),
                ("numbers", "insert") => Call::InsertNumbers(numbers(value)),
                ("numbers", "delete") => Call::DeleteNumbers(numbers(value)),
                ("options", "insert") => Call::InsertOptions(options(value)),
                ("options", "delete") if value[0] == "map" => Call::DeleteOptions(options(value)),
                ("options", "delete") => Call::DeleteKeys(texts(value)),
                other => panic!("{other:?}"),
            });
        }
    }
    calls
}

/// A row whole, as a server that knows only RFC 7047 tells it.
fn update1(row: &NaiveRow) -> Value {
    let pairs: Vec<_> = row.options.iter().map(|(k, v)| json!([k, v])).collect();
    let numbers: Vec<_> = row.numbers.iter().collect();
    let number: Vec<_> = row.number.iter().collect();
    let new = json!({"number": ["set", number], "numbers": ["set", numbers], "options": ["map", pairs]});
    json!({"T": {ROW.to_string(): {"old": {}, "new": new}}})
}

#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<Call>),
    /// The server's update and reply for the oldest transaction arrive.
    Arrive,
}

proptest! {
    #[test]
    fn what_is_left_out_changes_nothing(steps in prop::collection::vec(
        prop_oneof![
            3 => prop::collection::vec(call(), 1..5).prop_map(Step::Commit),
            2 => Just(Step::Arrive),
        ],
        1..20,
    )) {
        let contents = json!({"T": {uuid(1).to_string(): {"initial": {}}}});
        let mut peer = Peer::synced(config(vec![table()]), &schema(), contents);
        let (mut wanted, mut server) = (NaiveRow::default(), NaiveRow::default());
        // Each transaction's row after it, and its request's id.
        let mut under_way = VecDeque::new();
        for step in steps {
            match step {
                Step::Commit(calls_of_txn) => {
                    let mut txn = Txn::new();
                    for call in calls_of_txn {
                        call.write(&mut txn);
                        call.apply(&mut wanted);
                    }
                    if let Commit::Incomplete(_) = peer.session.commit(&txn).unwrap() {
                        let (params, id) = peer.request("transact");
                        calls(&params).iter().for_each(|call| call.apply(&mut server));
                        under_way.push_back((server.clone(), id));
                    }
                    prop_assert_eq!(&server, &wanted);
                }
                Step::Arrive => {
                    if let Some((row, id)) = under_way.pop_front() {
                        peer.notify("update", json!([["monid", "db"], update1(&row)]));
                        peer.reply(id, json!([{"count": 1}]));
                    }
                }
            }
        }
        prop_assert_eq!(peer.session.last_id().to_string(), ZERO_ID);
    }
}
