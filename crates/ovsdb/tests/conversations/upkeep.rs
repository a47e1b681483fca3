//! Connections in virtual time: attempts, probes, ends.

use crate::peer::{Peer, ZERO_ID, config, standalone};
use serde_json::json;
use sluice_ovsdb::{Action, Config, ConfigError, DisconnectReason, Event, Message, Remote, Session, Table};

fn with_remotes(remotes: &str) -> Config {
    Config { remotes: Remote::parse_list(remotes).unwrap(), ..config(vec![]) }
}

/// Lets every attempt fail; their times and remotes.
fn attempts(peer: &mut Peer, count: usize) -> Vec<(u64, String)> {
    let mut attempts = Vec::new();
    while attempts.len() < count {
        peer.pass(60_000);
        match peer.next_action() {
            Some(Action::Connect(remote)) => attempts.push((peer.now_ms, remote.to_string())),
            other => panic!("{other:?}"),
        }
        peer.session.disconnected(peer.now_ms, DisconnectReason::ConnectFailed("refused".into()));
    }
    attempts
}

#[test]
fn the_pause_between_attempts_doubles_to_eight_seconds() {
    let mut peer = Peer::new(config(vec![]));
    let times: Vec<_> = attempts(&mut peer, 6).into_iter().map(|(ms, _)| ms).collect();
    assert_eq!(times, [0, 1000, 3000, 7000, 15_000, 23_000]);
    let log: Vec<_> = peer.events().iter().map(Event::to_string).collect();
    assert_eq!(log[..2], ["unix:/db.sock: connecting...", "unix:/db.sock: connection attempt failed (refused)"]);
}

#[test]
fn all_servers_of_a_cluster_are_tried_before_a_pause() {
    let mut peer = Peer::new(with_remotes("tcp:10.0.0.1:6641,tcp:10.0.0.2:6641"));
    let [one, two] = ["tcp:10.0.0.1:6641".to_owned(), "tcp:10.0.0.2:6641".to_owned()];
    let want = [(0, one.clone()), (0, two.clone()), (1000, one), (3000, two)];
    assert_eq!(attempts(&mut peer, 4), want);
}

#[test]
fn once_a_server_served_all_are_tried_again_before_a_pause() {
    let mut peer = Peer::new(with_remotes("tcp:10.0.0.1:6641,tcp:10.0.0.2:6641"));
    attempts(&mut peer, 2);
    peer.accept();
    assert_eq!(peer.now_ms, 1000);
    let (_, id) = peer.introduce(standalone(&json!({"tables": {}})));
    peer.reply(id, json!([false, ZERO_ID, {}]));
    assert!(peer.session.is_synced());
    peer.hang_up();
    let times: Vec<_> = attempts(&mut peer, 3).into_iter().map(|(ms, _)| ms).collect();
    assert_eq!(times, [1000, 2000, 4000]);
}

#[test]
fn an_attempt_without_an_answer_is_given_up() {
    let mut peer = Peer::new(with_remotes("tcp:10.0.0.1:6641"));
    peer.pass(0);
    assert!(matches!(peer.next_action(), Some(Action::Connect(_))));
    peer.pass(1000);
    assert_eq!(peer.hung_up(), Some(DisconnectReason::ConnectTimeout));
}

#[test]
fn a_silent_server_is_probed_and_then_given_up() {
    let mut peer = Peer::new(with_remotes("tcp:10.0.0.1:6641"));
    peer.accept();
    peer.sent();
    peer.pass(4999);
    assert_eq!(peer.sent(), []);
    peer.pass(1);
    let probe = Message::Request { method: "echo".into(), params: json!([]), id: json!("echo") };
    assert_eq!(peer.sent(), std::slice::from_ref(&probe));
    peer.pass(4000);
    peer.reply(json!("echo"), json!([]));
    peer.pass(5000);
    assert_eq!(peer.sent(), [probe]);
    peer.pass(5000);
    assert_eq!(peer.hung_up(), Some(DisconnectReason::Silence { ms: 5000 }));
    peer.accept();
}

#[test]
fn bytes_of_a_long_message_are_an_answer() {
    let mut peer = Peer::new(with_remotes("tcp:10.0.0.1:6641"));
    peer.accept();
    peer.sent();
    for _ in 0..10 {
        peer.pass(4000);
        peer.session.activity(peer.now_ms);
    }
    assert_eq!(peer.sent(), []);
}

#[test]
fn sockets_in_the_file_system_get_no_probes() {
    let mut peer = Peer::new(config(vec![]));
    peer.accept();
    peer.sent();
    assert_eq!(peer.session.deadline_ms(), None);
}

#[test]
fn the_servers_echo_is_answered() {
    let mut peer = Peer::new(config(vec![]));
    peer.accept();
    peer.sent();
    let request = |method: &str| Message::Request { method: method.into(), params: json!([7]), id: json!("x") };
    peer.receive(request("echo"));
    peer.receive(request("dance"));
    let refusal = Message::Error { error: json!("unknown method"), id: json!("x") };
    assert_eq!(peer.sent(), [Message::Reply { result: json!([7]), id: json!("x") }, refusal]);
}

#[test]
fn messages_after_the_end_are_ignored() {
    let mut peer = Peer::new(config(vec![]));
    peer.accept();
    peer.sent();
    peer.hang_up();
    peer.reply(json!(0), json!({}));
    assert_eq!(peer.next_action(), None);
}

#[test]
fn a_connection_inherits_nothing_from_the_one_before() {
    let mut peer = Peer::new(config(vec![]));
    peer.accept();
    peer.session.disconnected(peer.now_ms, DisconnectReason::ClosedByPeer);
    assert_eq!(peer.next_action(), None, "what was to be sent is not sent to the next server");
    peer.accept();
    let (_, id) = peer.request("get_schema");
    assert_eq!(id, json!(1));
    peer.reply(json!(0), json!({"tables": {}}));
    assert_eq!(peer.next_action(), None, "a reply to the first connection's request");
}

#[test]
fn declarations_are_checked() {
    let error = |tables| Session::new(config(tables)).err();
    let column = |name| sluice_ovsdb::Column::string_map(name);
    assert_eq!(error(vec![Table::new("T", []), Table::new("T", [])]), Some(ConfigError::DuplicateTable("T")));
    let twice = Table::new("T", [column("c"), column("c")]);
    assert_eq!(error(vec![twice]), Some(ConfigError::DuplicateColumn("T", "c")));
    let names: Vec<_> = (0..=Table::COLUMNS_MAX).map(|n| &*Box::leak(format!("c{n}").into_boxed_str())).collect();
    let wide = |count: usize| Table::new("T", names[..count].iter().map(|name| column(name)).collect::<Vec<_>>());
    assert_eq!(error(vec![wide(Table::COLUMNS_MAX)]), None);
    let columns = Table::COLUMNS_MAX + 1;
    assert_eq!(error(vec![wide(columns)]), Some(ConfigError::TooManyColumns { table: "T", columns }));
    assert_eq!(Session::new(Config { remotes: vec![], ..config(vec![]) }).err(), Some(ConfigError::NoRemote));
}
