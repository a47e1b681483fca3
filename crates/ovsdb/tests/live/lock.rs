//! Locks between clients.

use crate::server::{Server, Tester};
use sluice_ovsdb::{Config, Event, LockState, TxnStatus};
use std::process::{Command, Stdio};

fn with_lock(server: &Server) -> Tester {
    Tester::new(Config { lock: Some("lab".into()), ..server.config() })
}

fn holds(tester: &mut Tester, state: LockState) {
    tester.until("the lock's state", |client| client.session().lock() == state && client.session().is_synced());
}

pub fn a_lock_passes_between_clients() {
    let server = Server::start();
    let mut first = with_lock(&server);
    holds(&mut first, LockState::Held);
    let mut second = with_lock(&server);
    holds(&mut second, LockState::Contended);
    let row = first.insert("r1");
    second.until("the row", |client| client.session().replica().row("Row", row).is_some());
    assert_eq!(second.commit(|txn| txn.set("Row", row, "number", 1)), TxnStatus::NotLocked);
    drop(first);
    holds(&mut second, LockState::Held);
    second.committed(|txn| txn.set("Row", row, "number", 1));
}

pub fn a_stolen_lock_stops_writing() {
    let server = Server::start();
    let mut client = with_lock(&server);
    holds(&mut client, LockState::Held);
    let row = client.insert("r1");
    let mut thief = Command::new("ovsdb-client")
        .args(["steal", &server.remote(), "lab"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    client.until_event("the theft", |event| *event == Event::Lock(LockState::Contended));
    assert_eq!(client.commit(|txn| txn.set("Row", row, "number", 1)), TxnStatus::NotLocked);
    // When the thief goes, the lock comes back.
    thief.kill().unwrap();
    thief.wait().unwrap();
    holds(&mut client, LockState::Held);
    client.committed(|txn| txn.set("Row", row, "number", 1));
}
