//! How a session gets its contents: from old servers and new, with other schemas, across conversions, from clusters.

use crate::peer::{Peer, ZERO_ID, config, server_schema, standalone, uuid};
use serde_json::{Value, json};
use sluice_ovsdb::{
    AtomicType, Column, Config, DisconnectReason, Event, Lacking, LockState, Message, ProtocolError, Remote, Table,
};

const ID_1: &str = "11111111-1111-4111-8111-111111111111";
const ID_2: &str = "22222222-2222-4222-8222-222222222222";

fn tables() -> Vec<Table> {
    vec![
        Table::new(
            "Bridge",
            [
                Column::scalar("name", AtomicType::String),
                Column::optional("fail_mode", AtomicType::String).omit_alert(),
            ],
        ),
        Table::new("Port", [Column::set("trunks", AtomicType::Integer), Column::string_map("other_config")]),
    ]
}

fn schema() -> Value {
    json!({"name": "db", "version": "8.3.1", "tables": {
        "Bridge": {"columns": {
            "name": {"type": "string"},
            "fail_mode": {"type": {"key": {"type": "string", "enum": ["set", ["standalone", "secure"]]}, "min": 0}},
            "newer": {"type": "string"},
        }},
        "Port": {"columns": {
            "trunks": {"type": {"key": {"type": "integer", "minInteger": 0}, "min": 0, "max": 4096}},
            "other_config": {"type": {"key": "string", "value": "string", "min": 0, "max": "unlimited"}},
        }},
    }})
}

fn bridge(kind: &str, row: Value) -> Value {
    json!({"Bridge": {uuid(1).to_string(): {kind: row}}})
}

fn names(peer: &Peer) -> Vec<String> {
    peer.session.replica().rows("Bridge").map(|row| row.get::<&str>("name").to_owned()).collect()
}

fn synced() -> Peer {
    Peer::synced(config(tables()), &schema(), bridge("initial", json!({"name": "br0"})))
}

#[test]
fn schema_and_lock_are_asked_for_without_waiting() {
    let mut peer = Peer::new(Config { lock: Some("ovs_vswitchd".into()), ..config(tables()) });
    peer.accept();
    let request =
        |method: &str, params: Value, id: u64| Message::Request { method: method.into(), params, id: json!(id) };
    assert_eq!(
        peer.sent(),
        [request("get_schema", json!(["_Server"]), 0), request("lock", json!(["ovs_vswitchd"]), 1)]
    );
}

#[test]
fn only_what_the_schema_has_is_asked_for() {
    let mut peer = Peer::new(config(tables()));
    peer.accept();
    let mut older = schema();
    older["tables"]["Bridge"]["columns"].as_object_mut().unwrap().remove("fail_mode");
    older["tables"].as_object_mut().unwrap().remove("Port");
    let (params, id) = peer.introduce(standalone(&older));
    assert_eq!(params, json!(["db", ["monid", "db"], {"Bridge": [{"columns": ["name"]}]}, ZERO_ID]));
    peer.reply(id, json!([false, ZERO_ID, bridge("initial", json!({"name": "br0"}))]));
    let lacking = vec![Lacking { table: "Bridge", column: Some("fail_mode") }, Lacking { table: "Port", column: None }];
    let events = peer.events();
    assert_eq!(events[2..], [Event::Lacking(lacking), Event::Synced]);
    assert_eq!(events[2].to_string(), "the database schema lacks Bridge.fail_mode, Port");
    let replica = peer.session.replica();
    let row = replica.first("Bridge").unwrap();
    assert_eq!((row.get::<&str>("name"), row.get::<Option<&str>>("fail_mode")), ("br0", None));
    assert!(replica.has_column("Bridge", "name") && !replica.has_column("Bridge", "fail_mode"));
    assert_eq!(replica.rows("Port").count(), 0);
}

#[test]
fn a_column_of_other_kinds_counts_as_lacking() {
    let mut other = schema();
    other["tables"]["Bridge"]["columns"]["fail_mode"] = json!({"type": {"key": "integer", "min": 0}});
    let mut peer = Peer::new(config(tables()));
    peer.accept();
    let (params, _) = peer.introduce(standalone(&other));
    assert_eq!(params[2]["Bridge"], json!([{"columns": ["name"]}]));
}

/// A newer schema may allow more elements, as `Flow_Table.prefixes` did; then `modify` has a difference.
#[test]
fn the_servers_numbers_of_elements_decide() {
    let mut newer = schema();
    newer["tables"]["Bridge"]["columns"]["fail_mode"] = json!({"type": {"key": "string", "min": 0, "max": 2}});
    let contents = bridge("initial", json!({"fail_mode": "secure"}));
    let mut peer = Peer::synced(config(tables()), &newer, contents);
    peer.update3(ZERO_ID, bridge("modify", json!({"fail_mode": "b"})));
    let row = peer.session.replica().first("Bridge").unwrap();
    assert_eq!(row.get::<Vec<&str>>("fail_mode"), ["b", "secure"]);
    assert_eq!(row.get::<Option<&str>>("fail_mode"), Some("b"));
}

#[test]
fn a_server_without_server_database_gets_the_older_requests() {
    let mut peer = Peer::new(config(tables()));
    peer.accept();
    let (_, id) = peer.request("get_schema");
    peer.refuse(id);
    let (params, id) = peer.request("get_schema");
    assert_eq!(params, json!(["db"]));
    peer.reply(id, schema());
    let (_, id) = peer.request("monitor_cond");
    peer.reply(id, bridge("initial", json!({"name": "br0"})));
    assert_eq!((peer.session.is_synced(), names(&peer)), (true, vec!["br0".into()]));
    peer.notify("update2", json!([["monid", "db"], bridge("modify", json!({"name": "br1"}))]));
    assert_eq!(names(&peer), ["br1"]);
    assert_eq!(peer.sent(), []);
}

/// What one server can do says nothing about the next.
#[test]
fn an_older_server_may_follow_a_newer_one() {
    let mut peer = synced();
    peer.hang_up();
    peer.accept();
    let (_, id) = peer.request("get_schema");
    peer.refuse(id);
    let (_, id) = peer.request("get_schema");
    peer.reply(id, schema());
    peer.request("monitor_cond");
    assert_eq!(peer.sent(), []);
}

#[test]
fn a_server_that_refuses_every_request_is_left() {
    let mut peer = Peer::new(config(tables()));
    peer.accept();
    let (_, id) = peer.introduce(standalone(&schema()));
    peer.refuse(id);
    for method in ["monitor_cond", "monitor"] {
        let (params, id) = peer.request(method);
        assert_eq!(params.as_array().unwrap().len(), 3);
        peer.refuse(id);
    }
    let refused = ProtocolError::Refused { method: "monitor", error: "\"unknown method\"".into() };
    assert_eq!(peer.hung_up(), Some(DisconnectReason::Protocol(refused)));
}

#[test]
fn after_a_reconnection_what_happened_since_is_enough() {
    let mut peer = synced();
    peer.update3(ID_1, bridge("modify", json!({"fail_mode": "secure"})));
    assert!(!peer.session.take_changes().alert(), "the column asks for no attention");
    peer.hang_up();
    assert_eq!((peer.session.is_synced(), names(&peer)), (false, vec!["br0".into()]));
    peer.accept();
    let (params, id) = peer.introduce(standalone(&schema()));
    assert_eq!(params[3], ID_1);
    peer.reply(id, json!([true, ID_2, bridge("modify", json!({"name": "br1"}))]));
    let changes = peer.session.take_changes();
    let change = changes.of("Bridge").next().unwrap();
    assert_eq!((change.columns.as_slice(), changes.alert()), (["name"].as_slice(), true));
    let row = peer.session.replica().first("Bridge").unwrap();
    assert_eq!((row.get::<&str>("name"), row.get::<&str>("fail_mode")), ("br1", "secure"));
    assert_eq!(peer.session.last_id().to_string(), ID_2);
}

#[test]
fn a_server_that_forgot_tells_everything() {
    let mut peer = synced();
    peer.update3(ID_1, json!({}));
    peer.hang_up();
    peer.accept();
    let (_, id) = peer.introduce(standalone(&schema()));
    peer.reply(id, json!([false, ID_2, bridge("initial", json!({"name": "br0"}))]));
    assert!(peer.session.take_changes().is_empty(), "nothing differs");
    assert!(peer.session.is_synced());
}

/// What happened since would not tell a column that is new to the client.
#[test]
fn another_schema_after_a_reconnection_asks_for_everything() {
    let mut older = schema();
    older["tables"]["Bridge"]["columns"].as_object_mut().unwrap().remove("fail_mode");
    let mut peer = Peer::synced(config(tables()), &older, bridge("initial", json!({"name": "br0"})));
    peer.update3(ID_1, json!({}));
    peer.hang_up();
    peer.accept();
    let (params, _) = peer.introduce(standalone(&schema()));
    assert_eq!(params[3], ZERO_ID);
}

#[test]
fn updates_that_do_not_fit_lead_to_everything_anew() {
    let other_row = json!({"Bridge": {uuid(2).to_string(): {"modify": {"name": "x"}}}});
    let misfits = [
        bridge("insert", json!({})),
        bridge("modify", json!({"name": 5})),
        other_row,
        json!({"Bridge": {uuid(2).to_string(): {"delete": null}}}),
        json!({"Bridge": {"no-uuid": {"delete": null}}}),
        json!({"Bridge": []}),
        json!([]),
    ];
    for misfit in misfits {
        let mut peer = synced();
        peer.update3(ID_1, json!({}));
        peer.update3(ID_2, misfit.clone());
        assert!(matches!(peer.hung_up(), Some(DisconnectReason::Protocol(_))), "{misfit}");
        peer.accept();
        let (params, id) = peer.introduce(standalone(&schema()));
        assert_eq!(params[3], ZERO_ID);
        peer.reply(id, json!([false, ID_2, bridge("initial", json!({"name": "br0"}))]));
        assert_eq!(names(&peer), ["br0"]);
    }
}

#[test]
fn a_converted_database_is_read_anew() {
    let mut peer = synced();
    peer.update3(ID_1, json!({}));
    peer.notify("monitor_canceled", json!([["monid", "db"]]));
    assert_eq!(peer.events(), [Event::MonitorCanceled]);
    assert_eq!((peer.session.is_synced(), names(&peer)), (false, vec!["br0".into()]));
    let (params, id) = peer.request("get_schema");
    assert_eq!(params, json!(["db"]));
    let mut newer = schema();
    newer["tables"]["Bridge"]["columns"].as_object_mut().unwrap().remove("fail_mode");
    peer.reply(id, newer);
    let (params, id) = peer.request("monitor_cond_since");
    assert_eq!((&params[2]["Bridge"], &params[3]), (&json!([{"columns": ["name"]}]), &json!(ZERO_ID)));
    peer.request("set_db_change_aware");
    peer.reply(id, json!([false, ID_2, bridge("initial", json!({"name": "br0"}))]));
    assert!(peer.session.is_synced() && peer.session.take_changes().is_empty());
}

/// Converted again while the contents were on their way: what was asked for before does not count.
#[test]
fn two_conversions_in_a_row_are_survived() {
    let mut peer = synced();
    peer.update3(ID_1, json!({}));
    let canceled = json!([["monid", "db"]]);
    peer.notify("monitor_canceled", canceled.clone());
    let (_, first) = peer.request("get_schema");
    peer.notify("monitor_canceled", canceled);
    let (_, second) = peer.request("get_schema");
    peer.reply(first, schema());
    assert_eq!(peer.sent(), []);
    peer.reply(second, schema());
    let (params, id) = peer.request("monitor_cond_since");
    assert_eq!(params[3], ZERO_ID, "the schema is the same, but the transactions are not");
    peer.reply(id, json!([false, ID_2, {}]));
    assert_eq!((peer.session.is_synced(), names(&peer).len()), (true, 0));
}

#[test]
fn other_monitors_are_ignored() {
    let mut peer = synced();
    peer.notify("update3", json!([["monid", "other"], ID_1, bridge("delete", json!(null))]));
    peer.notify("update3", json!([]));
    peer.notify("monitor_canceled", json!([["monid", "other"]]));
    peer.notify("monitor_canceled", json!([]));
    peer.notify("news", json!([]));
    assert_eq!((peer.session.is_synced(), names(&peer).len()), (true, 1));
}

fn clustered(leader: bool, connected: bool, index: u64) -> Value {
    json!({
        "name": "db", "model": "clustered", "connected": connected, "leader": leader, "index": index,
        "cid": ["uuid", ID_1], "schema": schema().to_string(),
    })
}

/// Connects to a cluster of three and shows it this server.
fn cluster_server(leader_only: bool, database: &Value) -> Peer {
    let remotes = Remote::parse_list("tcp:10.0.0.1:1,tcp:10.0.0.2:1,tcp:10.0.0.3:1").unwrap();
    let mut peer = Peer::new(Config { remotes, leader_only, ..config(tables()) });
    peer.accept();
    show_server(&mut peer, database);
    peer
}

fn show_server(peer: &mut Peer, database: &Value) {
    let (_, id) = peer.request("get_schema");
    peer.reply(id, server_schema());
    let (_, id) = peer.request("monitor_cond");
    peer.reply(id, json!({"Database": {ZERO_ID: {"initial": database}}}));
}

#[test]
fn a_follower_will_do_unless_the_leader_is_wanted() {
    let mut peer = cluster_server(false, &clustered(false, true, 5));
    peer.request("monitor_cond_since");
    let mut peer = cluster_server(true, &clustered(false, true, 5));
    let not_leader = "clustered database server is not cluster leader";
    assert_eq!(peer.hung_up(), Some(DisconnectReason::Unsuitable(not_leader)));
    // The next server is asked at once.
    let before = peer.now_ms;
    peer.accept();
    assert_eq!(peer.now_ms, before);
    show_server(&mut peer, &clustered(true, true, 5));
    peer.request("monitor_cond_since");
}

#[test]
fn a_server_that_lost_its_cluster_or_lags_is_left() {
    let mut peer = cluster_server(false, &clustered(true, true, 9));
    peer.request("monitor_cond_since");
    let modify = json!([["monid", "_Server"], {"Database": {ZERO_ID: {"modify": {"connected": false}}}}]);
    peer.notify("update2", modify);
    let unsuitable = |why| Some(DisconnectReason::Unsuitable(why));
    peer.request("set_db_change_aware");
    assert_eq!(peer.hung_up(), unsuitable("clustered database server is disconnected from cluster"));
    peer.accept();
    show_server(&mut peer, &clustered(true, true, 8));
    assert_eq!(peer.hung_up(), unsuitable("clustered database server has stale data"));
}

#[test]
fn a_server_without_the_database_is_left() {
    let mut other = clustered(true, true, 1);
    other["name"] = json!("other");
    let mut peer = cluster_server(false, &other);
    assert_eq!(peer.hung_up(), Some(DisconnectReason::Unsuitable("server does not have the database")));
    let mut without_schema = clustered(true, true, 1);
    without_schema.as_object_mut().unwrap().remove("schema");
    let mut peer = cluster_server(false, &without_schema);
    assert_eq!(peer.hung_up(), Some(DisconnectReason::Unsuitable("database has no schema")));
}

#[test]
fn the_lock_comes_and_goes() {
    let mut peer = Peer::new(Config { lock: Some("ovs_vswitchd".into()), ..config(tables()) });
    peer.accept();
    peer.request("get_schema");
    let (_, id) = peer.request("lock");
    peer.reply(id, json!({"locked": false}));
    peer.notify("locked", json!(["other"]));
    assert_eq!(peer.session.lock(), LockState::Contended);
    peer.notify("locked", json!(["ovs_vswitchd"]));
    peer.notify("stolen", json!(["ovs_vswitchd"]));
    peer.notify("locked", json!(["ovs_vswitchd"]));
    let locks = |event: &Event| matches!(event, Event::Lock(_));
    let events: Vec<_> = peer.events().into_iter().filter(locks).collect();
    assert_eq!(events, [LockState::Contended, LockState::Held, LockState::Contended, LockState::Held].map(Event::Lock));
    peer.hang_up();
    assert_eq!(peer.session.lock(), LockState::Unknown);
}

#[test]
fn a_lock_reply_that_says_nothing_is_an_error() {
    let mut peer = Peer::new(Config { lock: Some("l".into()), ..config(tables()) });
    peer.accept();
    peer.request("get_schema");
    let (_, id) = peer.request("lock");
    peer.reply(id, json!({}));
    assert!(matches!(peer.hung_up(), Some(DisconnectReason::Protocol(_))));
}
