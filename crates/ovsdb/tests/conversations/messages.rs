//! Any sequence of messages, well-formed or not, at any time: a session goes on or hangs up, and never panics.

use crate::peer::{Peer, ZERO_ID, config, server_schema, standalone, uuid};
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_ovsdb::{Action, AtomicType, Column, Config, DisconnectReason, LockState, Message, Table, Txn};

fn schema() -> Value {
    json!({"name": "db", "tables": {"T": {"columns": {
        "n": {"type": "integer"},
        "s": {"type": {"key": "string", "min": 0, "max": "unlimited"}},
    }}}})
}

/// Parts of messages, right and wrong.
fn part() -> impl Strategy<Value = Value> {
    let row = uuid(1).to_string();
    prop::sample::select(vec![
        json!(null),
        json!(true),
        json!([]),
        json!({}),
        json!("db"),
        json!("lock"),
        json!(ZERO_ID),
        json!(["monid", "db"]),
        json!(["monid", "_Server"]),
        json!({"locked": false}),
        json!({"error": "not owner"}),
        schema(),
        server_schema(),
        json!({"Database": {ZERO_ID: {"initial": standalone(&schema())}}}),
        json!({"Database": {ZERO_ID: {"delete": null}}}),
        json!({"T": {row.as_str(): {"initial": {"n": 3}}}}),
        json!({"T": {row.as_str(): {"insert": {"s": ["set", ["a", "b"]]}}}}),
        json!({"T": {row.as_str(): {"modify": {"s": "a"}}}}),
        json!({"T": {row.as_str(): {"new": {"n": 4}, "old": {}}}}),
        json!({"T": {row.as_str(): {"delete": null}}}),
        json!([false, ZERO_ID, {"T": {row.as_str(): {"initial": {}}}}]),
        json!([true, ZERO_ID, {}]),
        json!([{"count": 1}, {}]),
        json!([null]),
    ])
}

#[derive(Clone, Debug)]
enum Step {
    /// The expected reply to the oldest request that waits.
    Answer,
    Reply(Value),
    Error(Value),
    Notify(&'static str, Vec<Value>),
    Ask,
    Write(i64),
    Pass(u64),
    HangUp,
}

fn step() -> impl Strategy<Value = Step> {
    let methods = ["update", "update2", "update3", "locked", "stolen", "monitor_canceled", "echo"];
    prop_oneof![
        8 => Just(Step::Answer),
        2 => part().prop_map(Step::Reply),
        1 => part().prop_map(Step::Error),
        4 => (prop::sample::select(methods.to_vec()), prop::collection::vec(part(), 0..4))
            .prop_map(|(method, params)| Step::Notify(method, params)),
        1 => Just(Step::Ask),
        2 => (0..3i64).prop_map(Step::Write),
        1 => (0..9000u64).prop_map(Step::Pass),
        1 => Just(Step::HangUp),
    ]
}

/// What a good server says.
fn answer(method: &str, params: &Value) -> Value {
    match method {
        "get_schema" if params[0] == "_Server" => server_schema(),
        "get_schema" => schema(),
        "monitor_cond" if params[0] == "_Server" => {
            json!({"Database": {ZERO_ID: {"initial": standalone(&schema())}}})
        }
        "monitor_cond_since" => json!([false, ZERO_ID, {"T": {uuid(1).to_string(): {"initial": {}}}}]),
        "lock" => json!({"locked": true}),
        "transact" => json!(params.as_array().unwrap()[1..].iter().map(|_| json!({})).collect::<Vec<_>>()),
        _ => json!({}),
    }
}

proptest! {
    #[test]
    fn a_session_survives_any_server(steps in prop::collection::vec(step(), 1..60)) {
        let column = [Column::scalar("n", AtomicType::Integer), Column::set("s", AtomicType::String)];
        let config = Config { lock: Some("lock".into()), ..config(vec![Table::new("T", column)]) };
        let mut peer = Peer::new(config);
        let mut waiting: Vec<(String, Value, Value)> = Vec::new();
        for step in steps {
            match step {
                Step::Answer if !waiting.is_empty() => {
                    let (method, params, id) = waiting.remove(0);
                    peer.reply(id, answer(&method, &params));
                }
                Step::Reply(result) if !waiting.is_empty() => peer.reply(waiting.remove(0).2, result),
                Step::Error(error) if !waiting.is_empty() => {
                    peer.receive(Message::Error { error, id: waiting.remove(0).2 });
                }
                Step::Answer | Step::Reply(_) | Step::Error(_) => peer.reply(json!(99), json!({})),
                Step::Notify(method, params) => peer.notify(method, params.into()),
                Step::Ask => {
                    peer.receive(Message::Request { method: "echo".into(), params: json!([]), id: json!(1) });
                }
                Step::Write(number) => {
                    let mut txn = Txn::new();
                    txn.set("T", uuid(1), "n", number);
                    peer.session.commit(&txn).unwrap();
                }
                Step::Pass(ms) => peer.pass(ms),
                Step::HangUp if peer.session.is_connected() => {
                    peer.session.disconnected(peer.now_ms, DisconnectReason::ClosedByPeer);
                }
                Step::HangUp => {}
            }
            while let Some(action) = peer.next_action() {
                match action {
                    Action::Connect(_) => peer.session.connected(peer.now_ms),
                    Action::Send(Message::Request { method, params, id }) => waiting.push((method, params, id)),
                    Action::Send(_) => {}
                    Action::Disconnect => waiting.clear(),
                }
            }
            prop_assert!(peer.session.is_connected() || !peer.session.is_synced());
            prop_assert!(peer.session.is_connected() || peer.session.lock() == LockState::Unknown);
        }
    }
}
