//! Monitors and transactions.

use crate::server::{Server, run};
use serde_json::json;
use sluice_ovsdb::{ChangeKind, Datum, Mutation, Session, Txn, TxnStatus, Uuid};
use std::collections::{BTreeMap, BTreeSet};

pub fn what_one_client_writes_another_sees() {
    let server = Server::start();
    let (mut writer, mut watcher) = (server.client(), server.client());
    let status = writer.commit(|txn| {
        let [root, row] = ["Root", "Row"].map(|table| txn.insert(table));
        txn.set("Row", row, "name", "r1");
        txn.set("Root", root, "rows", vec![row]);
        txn.comment("first");
    });
    let TxnStatus::Success { inserted } = status else { panic!("{status:?}") };
    watcher.until("the rows", |client| client.session().replica().first("Root").is_some());
    let changes = watcher.changes();
    assert!(changes.alert() && changes.iter().all(|change| change.kind == ChangeKind::Inserted));
    let root = watcher.replica().first("Root").unwrap();
    assert_eq!(root.get::<Vec<Uuid>>("rows"), [inserted[1].1]);
    let root = root.uuid();

    // What asks for attention, and what does not.
    writer.committed(|txn| txn.set("Root", root, "cur_cfg", 1));
    watcher.until("cur_cfg", |client| client.session().replica().first("Root").unwrap().get::<i64>("cur_cfg") == 1);
    let changes = watcher.changes();
    assert_eq!((changes.alert(), changes.iter().count()), (false, 1));
    assert_eq!(writer.commit(|txn| txn.set("Root", root, "cur_cfg", 1)), TxnStatus::Unchanged);
    writer.commit(|txn| txn.set("Root", root, "next_cfg", 2));
    watcher.until("next_cfg", |client| client.session_mut().take_changes().alert());
}

/// A xorshift generator: the same numbers each time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// A number below a small limit, as a column holds it.
    fn integer(&mut self, limit: u64) -> i64 {
        i64::try_from(self.below(limit)).unwrap()
    }
}

#[derive(Debug, PartialEq)]
struct Values {
    numbers: BTreeSet<i64>,
    options: BTreeMap<String, String>,
    number: Option<i64>,
}

impl Values {
    fn random(random: &mut Random) -> Values {
        Values {
            numbers: (0..random.below(6)).map(|_| random.integer(8)).collect(),
            options: (0..random.below(5))
                .map(|_| (format!("k{}", random.below(5)), format!("v{}", random.below(3))))
                .collect(),
            number: Some(random.integer(3)).filter(|number| *number > 0),
        }
    }

    fn read(session: &Session, row: Uuid) -> Option<Values> {
        let row = session.replica().row("Row", row)?;
        let options = row.get::<BTreeMap<&str, &str>>("options");
        Some(Values {
            numbers: row.get::<Vec<i64>>("numbers").into_iter().collect(),
            options: options.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
            number: row.get("number"),
        })
    }
}

/// The server computes the differences here, not a test.
pub fn random_values_arrive_by_differences() {
    let server = Server::start();
    let (mut writer, mut watcher) = (server.client(), server.client());
    let row = writer.insert("r1");
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..200 {
        let values = Values::random(&mut random);
        let status = writer.commit(|txn| {
            txn.set("Row", row, "numbers", values.numbers.iter().copied().collect::<Vec<_>>());
            txn.set("Row", row, "options", Datum::map(values.options.clone()));
            txn.set("Row", row, "number", values.number);
        });
        assert!(matches!(status, TxnStatus::Success { .. } | TxnStatus::Unchanged), "{status:?}");
        let values = Some(values);
        assert_eq!(Values::read(writer.client.session(), row), values, "round {round}");
        watcher.until("the same values", |client| Values::read(client.session(), row) == values);
    }
    // A client that comes late sees the same.
    let late = server.client();
    assert_eq!(Values::read(late.client.session(), row), Values::read(watcher.client.session(), row));
}

/// The update comes before the reply, so nothing is written twice.
pub fn a_committed_transaction_is_in_the_replica() {
    let server = Server::start();
    let mut client = server.client();
    for number in 1..=50 {
        let name = format!("r{number}");
        let row = client.insert(&name);
        assert_eq!(client.replica().row("Row", row).map(|row| row.get::<&str>("name")), Some(name.as_str()));
        let set = |txn: &mut Txn| txn.set("Row", row, "number", number);
        client.committed(set);
        assert_eq!(client.commit(set), TxnStatus::Unchanged);
        let mutate = |txn: &mut Txn| {
            txn.mutate("Row", row, "number", Mutation::Add(1.into()));
            txn.mutate("Row", row, "numbers", Mutation::Insert(Datum::set([1, 2, 3])));
            txn.mutate("Row", row, "numbers", Mutation::Delete(2.into()));
            txn.mutate("Row", row, "options", Mutation::Insert(Datum::map([("a", "b")])));
        };
        client.committed(mutate);
        let row = client.replica().row("Row", row).unwrap();
        assert_eq!((row.get::<i64>("number"), row.get::<Vec<i64>>("numbers")), (number + 1, vec![1, 3]));
        assert_eq!(row.key("options", "a"), Some("b"));
        let uuid = row.uuid();
        client.commit(|txn| txn.delete("Row", uuid));
        assert_eq!(client.replica().rows("Row").count(), 0);
    }
}

pub fn refused_transactions_say_why() {
    let server = Server::start();
    let (mut client, mut other) = (server.client(), server.client());
    let row = client.insert("r1");
    let twice = client.commit(|txn| {
        let row = txn.insert("Row");
        txn.set("Row", row, "name", "r1");
    });
    assert!(matches!(&twice, TxnStatus::Error(why) if why.starts_with("constraint violation: ")), "{twice:?}");
    let too_large = client.commit(|txn| txn.set("Row", row, "number", 1001));
    assert!(matches!(&too_large, TxnStatus::Error(why) if why.contains("1001")), "{too_large:?}");
    let nothing = client.commit(|txn| {
        txn.set("Row", row, "number", 5);
        txn.abort();
    });
    assert_eq!(nothing, TxnStatus::Aborted);
    assert_eq!(client.replica().row("Row", row).unwrap().get::<Option<i64>>("number"), None);

    // Another client was faster.
    let mut txn = Txn::new();
    txn.verify(&client.replica().row("Row", row).unwrap(), "number");
    txn.set("Row", row, "flag", true);
    other.until("the row", |client| client.session().replica().row("Row", row).is_some());
    other.committed(|txn| txn.set("Row", row, "number", 7));
    assert_eq!(client.commit(|empty| *empty = txn), TxnStatus::TryAgain);
    assert_eq!(client.replica().row("Row", row).unwrap().get::<i64>("number"), 7);
    assert!(!client.replica().row("Row", row).unwrap().get::<bool>("flag"));
}

/// More than one call of `run` reads, at once and as one message.
pub fn many_rows_come_in_parts() {
    let server = Server::start();
    let mut client = server.client();
    let count = 20_000;
    let rows = (0..count).map(|number| {
        let row = json!({"name": format!("row number {number}"), "options": ["map", [["key", "x".repeat(50)]]]});
        json!({"op": "insert", "table": "Row", "row": row})
    });
    let operations: Vec<_> = std::iter::once(json!("Lab")).chain(rows).collect();
    // An argument has at most 128 KiB, so the operations go in parts.
    for part in operations[1..].chunks(800) {
        let transaction = json!([&operations[..1], part].concat()).to_string();
        run("ovsdb-client", &["transact", &server.remote(), &transaction]);
    }
    client.until("all rows", |client| client.session().replica().rows("Row").count() == count);
    let late = server.client();
    assert_eq!(late.replica().rows("Row").count(), count);
    assert_eq!(late.names(), client.names());
}
