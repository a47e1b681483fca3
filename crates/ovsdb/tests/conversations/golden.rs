//! Conversations that Open vSwitch 3.1.0 had with its database server, replayed: the session sends what ovs-vswitchd
//! sent, and understands what it was told.
//!
//! The files in `tests/data` are from the debug log of module jsonrpc of ovs-vswitchd: `>` before what it sent, `<`
//! before what it received, without the rest of each log line. In one, `ovs-vsctl` adds a bridge with a dummy port; in
//! the other, OVN's controller makes tunnels and ports for two machines.

use crate::peer::{Peer, config};
use serde_json::Value;
use sluice_ovsdb::{
    Atom, Column, ColumnType, Commit, Datum, Event, LockState, Message, Mutation, Schema, Table, Txn, TxnId, TxnStatus,
    Uuid,
};
use std::collections::{BTreeSet, HashMap};

/// A line: whether ovs-vswitchd sent it, and the message.
type Line = (bool, Message);

fn read(text: &str) -> Vec<Line> {
    let line = |line: &str| {
        let message = Message::from_json(serde_json::from_str(&line[2..]).unwrap()).unwrap();
        (line.starts_with('>'), message)
    };
    text.lines().map(line).collect()
}

/// The tables and columns that ovs-vswitchd monitored, with the types of the schema that it was told.
fn declared(lines: &[Line]) -> Vec<Table> {
    let requested = lines.iter().find_map(|(_, message)| match message {
        Message::Request { method, params, .. } if method == "monitor_cond_since" => params[2].as_object(),
        _ => None,
    });
    let schema = schema(lines);
    let table = |(table, request): (&String, &Value)| {
        let column = |name: &Value| {
            let name = name.as_str().unwrap();
            Column::new(leak(name), *schema.column(table, name).unwrap())
        };
        Table::new(leak(table), request[0]["columns"].as_array().unwrap().iter().map(column).collect::<Vec<_>>())
    };
    requested.unwrap().iter().map(table).collect()
}

fn schema(lines: &[Line]) -> Schema {
    let text = lines.iter().find_map(|(_, message)| match message {
        Message::Reply { result, .. } => result.get("Database")?.as_object()?.values().find_map(|row| {
            let row = &row["initial"];
            if row["name"] == "Open_vSwitch" { row["schema"].as_str() } else { None }
        }),
        _ => None,
    });
    Schema::from_json(&serde_json::from_str(text.unwrap()).unwrap()).unwrap()
}

/// Names in declarations live as long as the program.
fn leak(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

struct Replay {
    peer: Peer,
    tables: Vec<Table>,
    /// Recorded ids of requests, and ours.
    ids: HashMap<String, Value>,
    statuses: Vec<(TxnId, TxnStatus)>,
    transactions: usize,
}

impl Replay {
    fn run(text: &str) -> Replay {
        let lines = read(text);
        let tables = declared(&lines);
        let mut config = config(tables.clone());
        config.database = "Open_vSwitch".into();
        config.lock = Some("ovs_vswitchd".into());
        let mut peer = Peer::new(config);
        peer.accept();
        let mut replay = Replay { peer, tables, ids: HashMap::new(), statuses: Vec::new(), transactions: 0 };
        for (is_sent, message) in lines {
            if is_sent {
                replay.sent(message)
            } else {
                replay.received(message)
            }
            assert!(replay.peer.session.is_connected(), "{:?}", replay.peer.events());
        }
        replay
    }

    /// Expects the session to send this, or to send it when told to write the same.
    fn sent(&mut self, recorded: Message) {
        let Message::Request { method, params, id } = recorded else { panic!("a request was recorded") };
        if method == "transact" {
            self.commit(&params);
        }
        let (got, our_id) = self.peer.request(&method);
        assert_eq!(sorted(&got), sorted(&params), "{method}");
        self.ids.insert(id.to_string(), our_id);
    }

    fn received(&mut self, mut recorded: Message) {
        if let Message::Reply { id, .. } = &mut recorded {
            *id = self.ids[&id.to_string()].clone();
        }
        self.peer.receive(recorded);
        for event in self.peer.events() {
            match event {
                Event::Finished(id, status) => self.statuses.push((id, status)),
                Event::Disconnected { .. } | Event::Lacking(_) => panic!("{event}"),
                _ => {}
            }
        }
    }

    /// Writes what ovs-vswitchd wrote.
    fn commit(&mut self, params: &Value) {
        let mut txn = Txn::new();
        for operation in &params.as_array().unwrap()[1..] {
            if operation["op"] == "assert" {
                continue;
            }
            let table = self.tables.iter().find(|table| operation["table"] == table.name).unwrap();
            let row = uuid_of(&operation["where"][0][2]);
            let column = |name: &str| table.columns.iter().find(|column| column.name == name).unwrap();
            for (name, value) in operation.get("row").and_then(Value::as_object).into_iter().flatten() {
                let column = column(name);
                txn.set(table.name, row, column.name, datum(value, &column.column_type));
            }
            for mutation in operation.get("mutations").and_then(Value::as_array).into_iter().flatten() {
                assert_eq!(mutation[1], "insert");
                let column = column(mutation[0].as_str().unwrap());
                let elements = datum(&mutation[2], &column.column_type);
                txn.mutate(table.name, row, column.name, Mutation::Insert(elements));
            }
        }
        assert!(matches!(self.peer.session.commit(&txn), Ok(Commit::Incomplete(_))), "{params}");
        self.transactions += 1;
    }

    fn column<T>(&self, table: &str, column: &str, of: impl Fn(&sluice_ovsdb::Row<'_>, &str) -> T) -> Vec<T> {
        self.peer.session.replica().rows(table).map(|row| of(&row, column)).collect()
    }
}

/// Operations, and the elements of values, in one order: OVS's is that of hash tables.
fn sorted(params: &Value) -> Vec<Value> {
    let mut params = params.clone();
    params.sort_all_objects();
    sort_elements(&mut params);
    let mut operations = params.as_array().unwrap().clone();
    operations.sort_by_key(Value::to_string);
    operations
}

fn sort_elements(json: &mut Value) {
    match json {
        Value::Array(list) => {
            list.iter_mut().for_each(sort_elements);
            if let [Value::String(tag), Value::Array(elements)] = list.as_mut_slice()
                && (tag == "set" || tag == "map")
            {
                elements.sort_by_key(Value::to_string);
            }
        }
        Value::Object(members) => members.values_mut().for_each(sort_elements),
        _ => {}
    }
}

fn uuid_of(json: &Value) -> Uuid {
    json[1].as_str().unwrap().parse().unwrap()
}

fn atom(json: &Value) -> Atom {
    match json {
        Value::String(text) => text.as_str().into(),
        Value::Bool(flag) => (*flag).into(),
        Value::Number(number) => number.as_i64().unwrap().into(),
        other => uuid_of(other).into(),
    }
}

fn datum(json: &Value, column_type: &ColumnType) -> Datum {
    let list = || json[1].as_array().unwrap().iter();
    match (column_type.value, json[0].as_str()) {
        (Some(_), _) => Datum::map(list().map(|pair| (atom(&pair[0]), atom(&pair[1])))),
        (None, Some("set")) => Datum::set(list().map(atom)),
        (None, _) => Datum::set([atom(json)]),
    }
}

#[test]
fn ovs_with_a_dummy_port() {
    let replay = Replay::run(include_str!("../data/ovs-3.1.0-dummy.jsonrpc"));
    assert_eq!(replay.peer.session.lock(), LockState::Held);
    assert_eq!(replay.statuses.len(), replay.transactions);
    assert!(replay.statuses.iter().all(|(_, status)| *status == TxnStatus::Success { inserted: vec![] }));

    let replica = replay.peer.session.replica();
    let root = replica.first("Open_vSwitch").unwrap();
    assert_eq!((root.get::<i64>("next_cfg"), root.get::<i64>("cur_cfg")), (1, 1));
    assert_eq!(root.get::<Vec<&str>>("datapath_types"), ["dummy", "netdev"]);
    let bridge = replica.row("Bridge", root.get::<Vec<Uuid>>("bridges")[0]).unwrap();
    assert_eq!(bridge.get::<&str>("name"), "br0");
    assert_eq!(bridge.get::<Option<&str>>("fail_mode"), Some("secure"));
    assert_eq!(bridge.key("other_config", "hwaddr"), Some("aa:55:aa:55:00:00"));
    assert_eq!(bridge.get::<Vec<&str>>("protocols").len(), 6);
    let ports: Vec<_> = bridge.get::<Vec<Uuid>>("ports").into_iter().map(|port| replica.row("Port", port)).collect();
    assert!(ports.iter().all(Option::is_some) && ports.len() == 2);
    let mut interfaces = replay.column("Interface", "ofport", |row, column| {
        (row.get::<Option<i64>>(column), row.get::<&str>("name").to_owned(), row.datum("statistics").len())
    });
    interfaces.sort();
    assert_eq!(interfaces, [(Some(1), "p1".to_owned(), 10), (Some(65534), "br0".to_owned(), 10)]);
    let mac =
        replay.column("Interface", "mac_in_use", |row, column| row.get::<Option<&str>>(column).map(str::to_owned));
    assert!(mac.contains(&Some("aa:55:aa:55:00:00".into())), "{mac:?}");
}

#[test]
fn ovs_under_ovn() {
    let replay = Replay::run(include_str!("../data/ovn-23.03.1.jsonrpc"));
    assert_eq!(replay.statuses.len(), replay.transactions);
    assert!(replay.statuses.iter().all(|(_, status)| *status == TxnStatus::Success { inserted: vec![] }));
    let root = replay.peer.session.replica().first("Open_vSwitch").unwrap();
    assert_eq!(root.get::<i64>("next_cfg"), root.get::<i64>("cur_cfg"));
    assert_eq!(refer(&replay, "Open_vSwitch", "bridges"), rows(&replay, "Bridge"));
    assert_eq!(refer(&replay, "Bridge", "ports"), rows(&replay, "Port"));
    assert_eq!(refer(&replay, "Port", "interfaces"), rows(&replay, "Interface"));
    let types = replay.column("Interface", "type", |row, column| row.get::<&str>(column).to_owned());
    let types: BTreeSet<String> = types.into_iter().collect();
    assert_eq!(types, BTreeSet::from(["dummy", "gre", "internal", "patch"].map(str::to_owned)));
}

/// The rows that some column of a table refers to.
fn refer(replay: &Replay, table: &str, column: &str) -> BTreeSet<Uuid> {
    replay.column(table, column, |row, column| row.get::<Vec<Uuid>>(column)).concat().into_iter().collect()
}

fn rows(replay: &Replay, table: &str) -> BTreeSet<Uuid> {
    replay.peer.session.replica().rows(table).map(|row| row.uuid()).collect()
}
