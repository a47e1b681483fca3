//! Servers that go, come back, or were never there.

use crate::server::{DATABASE, Server, Tester, run, schema};
use serde_json::json;
use sluice_ovsdb::{ChangeKind, Commit, Event, Remote, Txn, TxnStatus, Uuid};

/// Waits until the connection is lost.
fn until_lost(tester: &mut Tester) {
    tester.until("the end", |client| !client.session().is_connected());
    assert!(!tester.client.session().is_synced());
}

pub fn a_killed_server_is_found_again() {
    let mut server = Server::start();
    let mut client = server.client();
    let rows: Vec<Uuid> = (0..5).map(|number| client.insert(&format!("r{number}"))).collect();
    client.changes();
    server.kill();
    until_lost(&mut client);
    assert_eq!(client.names().len(), 5, "the contents stay readable");
    assert_eq!(client.commit(|txn| txn.set("Row", rows[0], "number", 1)), TxnStatus::TryAgain);

    // While nobody serves it, one row of the database changes and one goes.
    let of = |row: Uuid| json!([["_uuid", "==", ["uuid", row.to_string()]]]);
    let transaction = json!([
        DATABASE,
        {"op": "update", "table": "Row", "where": of(rows[1]), "row": {"number": 7}},
        {"op": "delete", "table": "Row", "where": of(rows[2])},
    ]);
    run("ovsdb-tool", &["transact", &server.path("conf.db").display().to_string(), &transaction.to_string()]);
    server.restart();
    client.until("the contents", |client| client.session().is_synced());
    let mut want = vec![(rows[1], ChangeKind::Modified, vec!["number"]), (rows[2], ChangeKind::Deleted, vec![])];
    want.sort_by_key(|change| change.0);
    let changes = client.changes();
    let changes: Vec<_> = changes.iter().map(|change| (change.uuid, change.kind, change.columns.clone())).collect();
    assert_eq!(changes, want);
    client.committed(|txn| txn.set("Row", rows[0], "number", 1));
}

pub fn a_server_dies_with_a_transaction_under_way() {
    let mut server = Server::start();
    let mut client = server.client();
    let row = client.insert("r1");
    server.signal("STOP");
    let mut txn = Txn::new();
    txn.set("Row", row, "number", 1);
    let commit = client.client.session_mut().commit(&txn).unwrap();
    let Commit::Incomplete(id) = commit else { panic!("{commit:?}") };
    client.step();
    server.kill();
    let end = client.until_event("the end", |event| matches!(event, Event::Finished(..)));
    assert_eq!(end, Event::Finished(id, TxnStatus::TryAgain));
    server.restart();
    client.until("the contents", |client| client.session().is_synced());
    client.committed(|again| *again = txn);
    assert_eq!(client.replica().row("Row", row).unwrap().get::<i64>("number"), 1);
}

/// A clustered database counts its transactions, so a client that comes back hears what it missed.
pub fn a_cluster_tells_what_happened_since() {
    let dir = tempfile::tempdir().unwrap();
    let [database, file] = ["conf.db", "lab.ovsschema"].map(|name| dir.path().join(name).display().to_string());
    std::fs::write(&file, schema().to_string()).unwrap();
    let raft = format!("unix:{}", dir.path().join("raft").display());
    run("ovsdb-tool", &["create-cluster", &database, &file, &raft]);
    let socket = dir.path().join("db.sock");
    let server = Server::launch(dir, socket, vec![]);
    let mut config = server.config();
    config.leader_only = true;
    let mut client = Tester::new(config);
    client.until("the contents", |client| client.session().is_synced());
    let mut writer = server.client();
    let row = client.insert("r1");
    client.changes();
    let last_id = client.client.session().last_id();
    assert_ne!(last_id, Uuid::ZERO);

    // Only the writer comes back at once; the other misses what it writes.
    server.appctl(&["ovsdb-server/reconnect"]);
    writer.until("the end", |client| !client.session().is_connected());
    writer.until("the contents", |client| client.session().is_synced());
    writer.committed(|txn| txn.set("Row", row, "number", 3));
    writer.insert("r2");
    until_lost(&mut client);
    client.until("the contents", |client| client.session().is_synced());
    assert_eq!(client.names(), ["r1", "r2"]);
    assert_eq!(client.changes().iter().count(), 2);
    assert_ne!(client.client.session().last_id(), last_id);
}

pub fn a_server_that_is_not_there_is_waited_for() {
    let mut server = Server::start();
    server.kill();
    let mut config = server.config();
    config.remotes = Remote::parse_list(&format!("unix:/nonexistent,{}", server.remote())).unwrap();
    let mut client = Tester::new(config);
    let failed =
        |event: &Event| event.to_string() == "unix:/nonexistent: connection attempt failed (No such file or directory)";
    client.until_event("the failure", failed);
    client.until_event("the other's failure", |event| {
        matches!(event, Event::Disconnected { remote, retry_ms: 1000, .. } if remote.to_string() == server.remote())
    });
    server.restart();
    client.until("the contents", |client| client.session().is_synced());
    let log: Vec<_> = client.events.iter().map(Event::to_string).collect();
    assert!(log.contains(&format!("{}: connected", server.remote())), "{log:?}");
}
