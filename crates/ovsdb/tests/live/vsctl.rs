//! A client in the place of ovs-vswitchd: `ovs-vsctl` waits for it and reads what it writes.

use crate::server::{Server, Tester};
use serde_json::Value;
use sluice_ovsdb::{AtomicType, Column, Config, LockState, Remote, Table, Txn, Uuid};
use std::process::{Command, Stdio};

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

fn tables() -> Vec<Table> {
    let open_vswitch = [
        Column::scalar("next_cfg", AtomicType::Integer),
        Column::scalar("cur_cfg", AtomicType::Integer).omit_alert(),
        Column::set("bridges", AtomicType::Uuid),
        Column::set("iface_types", AtomicType::String).omit_alert(),
    ];
    let interface = [
        Column::scalar("name", AtomicType::String),
        Column::optional("ofport", AtomicType::Integer).omit_alert(),
        Column::optional("error", AtomicType::String).omit_alert(),
        Column::string_map("options"),
    ];
    let bridge = [Column::scalar("name", AtomicType::String), Column::set("ports", AtomicType::Uuid)];
    let port = [Column::scalar("name", AtomicType::String), Column::set("interfaces", AtomicType::Uuid)];
    vec![
        Table::new("Open_vSwitch", open_vswitch),
        Table::new("Bridge", bridge),
        Table::new("Port", port),
        Table::new("Interface", interface),
    ]
}

/// The reconfiguration of a switch that gives every interface a number but refuses those that are named `bad`.
fn reconfigure(daemon: &mut Tester) {
    let mut txn = Txn::new();
    let replica = daemon.replica();
    let root = replica.first("Open_vSwitch").unwrap();
    txn.set("Open_vSwitch", root.uuid(), "iface_types", vec!["internal", "system"]);
    txn.set("Open_vSwitch", root.uuid(), "cur_cfg", root.get::<i64>("next_cfg"));
    for (number, row) in (1i64..).zip(replica.rows("Interface")) {
        let is_bad = row.get::<&str>("name") == "bad";
        let ofport = row.get::<Option<i64>>("ofport").unwrap_or(if is_bad { -1 } else { number });
        txn.set("Interface", row.uuid(), "ofport", ofport);
        txn.set("Interface", row.uuid(), "error", is_bad.then_some("no such device"));
    }
    daemon.client.session_mut().commit(&txn).unwrap();
}

/// What became of a program, and how often the switch was reconfigured meanwhile.
struct End {
    succeeded: bool,
    text: String,
    reconfigurations: usize,
}

/// Serves while `ovs-vsctl` runs.
fn vsctl(server: &Server, daemon: &mut Tester, arguments: &[&str]) -> End {
    let mut command = Command::new("ovs-vsctl");
    command.arg(format!("--db={}", server.remote())).arg("--timeout=50").args(arguments);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut reconfigurations = 0;
    while child.try_wait().unwrap().is_none() {
        daemon.client.wait(daemon.now_ms(), 20).unwrap();
        daemon.step();
        // What the daemon writes itself asks for no attention.
        if daemon.changes().alert() {
            reconfigure(daemon);
            reconfigurations += 1;
        }
        daemon.step();
    }
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    End { succeeded: output.status.success(), text, reconfigurations }
}

pub fn ovs_vsctl_waits_for_the_daemon() {
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(SCHEMA).unwrap()).unwrap();
    let server = Server::with_schema(&schema);
    let lock = Some("ovs_vswitchd".into());
    let remotes = Remote::parse_list(&server.remote()).unwrap();
    let mut daemon = Tester::new(Config { lock, ..Config::new("Open_vSwitch", tables(), remotes) });
    daemon.until("lock and contents", |client| {
        client.session().is_synced() && client.session().lock() == LockState::Held
    });
    assert_eq!(daemon.replica().rows("Open_vSwitch").count(), 0);
    assert!(vsctl(&server, &mut daemon, &["--no-wait", "init"]).succeeded);
    daemon.until("the root row", |client| client.session().replica().first("Open_vSwitch").is_some());

    let end = vsctl(&server, &mut daemon, &["add-br", "br0", "--", "add-port", "br0", "p1"]);
    assert!(end.succeeded, "{}", end.text);
    assert!(end.reconfigurations <= 2, "{} reconfigurations, one for init and one for this", end.reconfigurations);
    let end = vsctl(&server, &mut daemon, &["get", "Interface", "p1", "ofport"]);
    assert!(end.text.trim().parse::<i64>().is_ok_and(|ofport| ofport > 0), "{}", end.text);

    let end = vsctl(&server, &mut daemon, &["add-port", "br0", "bad"]);
    assert!(end.text.contains("Error detected while setting up 'bad': no such device"), "{}", end.text);
    assert_eq!(end.reconfigurations, 1);

    assert!(vsctl(&server, &mut daemon, &["del-br", "br0"]).succeeded);
    let replica = daemon.replica();
    assert!(["Bridge", "Port", "Interface"].iter().all(|table| replica.rows(table).next().is_none()));
    let root = replica.first("Open_vSwitch").unwrap();
    assert_eq!((root.get::<i64>("next_cfg"), root.get::<Vec<Uuid>>("bridges").len()), (3, 0));
}
