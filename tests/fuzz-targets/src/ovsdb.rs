//! A database server that says anything: the bytes of a connection, in pieces.

use serde_json::Value;
use sluice_ovsdb::AtomicType::{Boolean, Integer, String, Uuid};
use sluice_ovsdb::{Action, Column, ColumnType, Commit, Config, Datum, Framer, Message, Remote, Session, Table, Txn};

/// Names that a client monitors, with columns of each shape.
fn config() -> Config {
    let row = Table::new(
        "Row",
        [
            Column::scalar("name", String),
            Column::scalar("flag", Boolean),
            Column::optional("number", Integer),
            Column::set("others", Uuid),
            Column::string_map("options"),
            Column::new("counters", ColumnType::map(String, Integer)),
        ],
    );
    let remotes = Remote::parse_list("unix:/db.sock").expect("a remote");
    Config { lock: Some("lock".into()), ..Config::new("Base", vec![row], remotes) }
}

/// The first byte chooses the size of the pieces; what follows is what the server says. Replies are for the requests that
/// the client has sent: an `id` of null in a message with a result or an error becomes that of the oldest one without a
/// reply, so that the fuzzer need not find numbers. In between, what was read is written back.
pub fn ovsdb(data: &[u8]) {
    let Some((&piece, data)) = data.split_first() else { return };
    let mut session = Session::new(config()).expect("a session");
    session.run(0);
    session.connected(0);
    let mut framer = Framer::default();
    let mut requests = std::collections::VecDeque::new();
    for (now_ms, bytes) in (1..).zip(data.chunks(1 + usize::from(piece))) {
        framer.push(bytes);
        loop {
            act(&mut session, &mut requests);
            let Ok(object) = framer.next_object() else { return };
            let Some(object) = object else { break };
            let Ok(message) = Message::from_json(answered(object, &mut requests)) else { return };
            session.received(now_ms, message);
            write_back(&mut session);
        }
        while session.next_event().is_some() {}
        session.run(now_ms);
    }
}

/// Takes note of what the client asks for.
fn act(session: &mut Session, requests: &mut std::collections::VecDeque<Value>) {
    while let Some(action) = session.next_action() {
        if let Action::Send(Message::Request { id, .. }) = action {
            requests.push_back(id);
        }
    }
}

fn answered(mut object: Value, requests: &mut std::collections::VecDeque<Value>) -> Value {
    let is_reply = object.get("result").is_some() || object.get("error").is_some();
    if is_reply
        && object.get("id").is_some_and(Value::is_null)
        && let Some(id) = requests.pop_front()
    {
        object["id"] = id;
    }
    object
}

/// What the replica has, written as it is, is no change; another value is one.
fn write_back(session: &mut Session) {
    session.take_changes();
    let rows: Vec<_> = session.replica().rows("Row").map(|row| (row.uuid(), row.datum("others").clone())).collect();
    let mut txn = Txn::new();
    for (uuid, others) in &rows {
        txn.set("Row", *uuid, "others", others.clone());
    }
    assert!(matches!(session.commit(&txn), Ok(Commit::Finished(_)) | Err(_)), "nothing changes");
    for (uuid, _) in rows {
        txn.set("Row", uuid, "name", "other");
        txn.set("Row", uuid, "counters", Datum::map([("n", 1)]));
    }
    let _ = session.commit(&txn);
}
