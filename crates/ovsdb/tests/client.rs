//! The client on a socket whose other end the test holds: slow peers, cut messages, bytes of any kind.

use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_ovsdb::{
    Client, Column, Commit, Config, Datum, DisconnectReason, Event, FrameError, Framer, Message, Remote, Table, Txn,
    Uuid,
};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};

const ROW: Uuid = Uuid::from_u128(1);

struct Pair {
    client: Client,
    listener: UnixListener,
    peer: UnixStream,
    framer: Framer,
    now_ms: u64,
    _dir: tempfile::TempDir,
}

impl Pair {
    /// A client that has connected.
    fn new() -> Pair {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let table = Table::new("T", [Column::string_map("map")]);
        let mut client = Client::new(Config::new("db", vec![table], vec![Remote::Unix(path)]), None).unwrap();
        client.run(0);
        let (peer, _) = listener.accept().unwrap();
        peer.set_nonblocking(true).unwrap();
        Pair { client, listener, peer, framer: Framer::default(), now_ms: 0, _dir: dir }
    }

    /// Reads what the client has sent so far.
    fn sent(&mut self) -> Vec<Value> {
        let mut chunk = [0; 5000];
        loop {
            match self.peer.read(&mut chunk) {
                Ok(0) => panic!("the client hung up"),
                Ok(count) => self.framer.push(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        std::iter::from_fn(|| self.framer.next_object().unwrap()).collect()
    }

    fn reply(&mut self, request: &Value, result: Value) {
        let reply = Message::Reply { result, id: request["id"].clone() };
        self.peer.write_all(&reply.to_bytes()).unwrap();
        self.client.run(self.now_ms);
    }

    /// Plays a server that has no `_Server` and this row.
    fn sync(&mut self) {
        let request = self.sent().remove(0);
        let refusal = Message::Error { error: json!("unknown database"), id: request["id"].clone() };
        self.peer.write_all(&refusal.to_bytes()).unwrap();
        self.client.run(self.now_ms);
        let request = self.sent().remove(0);
        let map = json!({"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}});
        self.reply(&request, json!({"tables": {"T": {"columns": {"map": map}}}}));
        let request = self.sent().remove(0);
        self.reply(&request, json!({"T": {ROW.to_string(): {"initial": {}}}}));
        assert!(self.client.session().is_synced());
    }

    fn end(&mut self) -> Option<DisconnectReason> {
        std::iter::from_fn(|| self.client.session_mut().next_event()).find_map(|event| match event {
            Event::Disconnected { reason, .. } => Some(reason),
            _ => None,
        })
    }
}

#[test]
fn a_peer_that_reads_slowly_gets_everything_in_order() {
    let mut pair = Pair::new();
    pair.sync();
    assert!(!pair.client.interest().unwrap().write);
    let text = "x".repeat(100_000);
    for number in 0..20 {
        let mut txn = Txn::new();
        txn.set("T", ROW, "map", Datum::map([(format!("{number}"), text.as_str())]));
        assert!(matches!(pair.client.session_mut().commit(&txn), Ok(Commit::Incomplete(_))));
        pair.client.run(0);
    }
    assert!(pair.client.interest().unwrap().write, "more than a socket holds");
    let mut requests = Vec::new();
    while requests.len() < 20 {
        requests.extend(pair.sent());
        pair.client.run(0);
    }
    for (number, request) in requests.iter().enumerate() {
        let pairs = &request["params"][1]["row"]["map"][1];
        assert_eq!((pairs[0][0].as_str(), pairs[0][1].as_str()), (Some(&*number.to_string()), Some(text.as_str())));
    }
    assert!(!pair.client.interest().unwrap().write);
}

#[test]
fn a_peer_that_says_much_is_heard_whole() {
    let mut pair = Pair::new();
    pair.sync();
    let echo = Message::Request { method: "echo".into(), params: json!(["x".repeat(1000)]), id: json!(1) }.to_bytes();
    let count = 5000;
    let stream = echo.repeat(count);
    let (mut written, mut echoes) = (0, 0);
    while echoes < count {
        match pair.peer.write(&stream[written..]) {
            Ok(some) => written += some,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        pair.client.run(0);
        echoes += pair.sent().len();
    }
    assert_eq!((echoes, pair.end()), (count, None));
}

/// A socket's buffers may hold more than a call reads; then the next call is due at once.
#[test]
fn a_call_reads_so_much_and_no_more() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let remote = Remote::Tcp(listener.local_addr().unwrap());
    let mut client = Client::new(Config::new("db", vec![], vec![remote]), None).unwrap();
    client.run(0);
    let (mut peer, _) = listener.accept().unwrap();
    peer.set_nonblocking(true).unwrap();
    let notification = Message::Notification { method: "news".into(), params: json!(["x".repeat(10_000)]) }.to_bytes();
    let (mut at, mut calls) = (0, 0);
    while client.deadline_ms() != Some(0) {
        while let Ok(written) = peer.write(&notification[at..]) {
            at = (at + written) % notification.len();
        }
        client.run(1);
        calls += 1;
        assert!(calls < 1000, "never behind");
    }
    while client.deadline_ms() == Some(0) {
        client.run(1);
    }
    assert!(client.session().is_connected());
}

#[test]
fn what_is_no_message_ends_the_connection() {
    let mut pair = Pair::new();
    pair.peer.write_all(b"{\"id\":").unwrap();
    pair.client.run(1);
    assert_eq!(pair.end(), None);
    pair.peer.write_all(b"null} ?").unwrap();
    pair.client.run(2);
    assert_eq!(pair.end(), Some(DisconnectReason::Frame(FrameError::NotMessage("neither method nor id"))));
    assert!(pair.client.interest().is_none());
    // After the pause it connects again.
    pair.client.run(pair.client.deadline_ms().unwrap());
    pair.listener.accept().unwrap();
    assert!(pair.client.session().is_connected());
}

#[test]
fn a_message_that_is_cut_is_lost_with_the_connection() {
    let mut pair = Pair::new();
    pair.peer.write_all(b"{\"id\":1").unwrap();
    pair.peer.shutdown(std::net::Shutdown::Both).unwrap();
    pair.client.run(1);
    assert_eq!(pair.end(), Some(DisconnectReason::ClosedByPeer));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_bytes_at_any_time_are_survived(
        pieces in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(prop::sample::select(b"{}[]\":,0aeu\\ \xff".to_vec()), 1..30),
                Just(br#"{"id":0,"result":{"tables":{}},"error":null}"#.to_vec()),
                Just(br#"{"id":1,"result":{},"error":null}"#.to_vec()),
                Just(br#"{"id":null,"method":"update2","params":[["monid","db"],{}]}"#.to_vec()),
            ],
            1..12,
        ),
        cut in 1..40usize,
    ) {
        let mut pair = Pair::new();
        for piece in pieces.iter().flat_map(|piece| piece.chunks(cut)) {
            // The client may have hung up.
            let _ = pair.peer.write_all(piece);
            pair.now_ms += 100;
            pair.client.run(pair.now_ms);
            if pair.client.interest().is_none() {
                pair.now_ms = pair.client.deadline_ms().unwrap();
                pair.client.run(pair.now_ms);
                pair.peer = pair.listener.accept().unwrap().0;
                pair.peer.set_nonblocking(true).unwrap();
            }
        }
        prop_assert!(pair.client.session().is_connected());
    }
}
