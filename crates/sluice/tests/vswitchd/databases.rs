//! The database's lock, and servers behind TLS.

use crate::rig::Rig;
use std::process::Stdio;

/// What a daemon says of itself by a control socket.
fn shown(rig: &Rig, socket: &str) -> String {
    rig.appctl(&["-t", rig.path(socket).to_str().unwrap(), "dpif/show"])
}

pub fn without_the_lock_it_has_no_bridges() {
    let rig = Rig::with_database();
    rig.start(&["--unixctl=first.ctl", "--enable-dummy"]);
    rig.run("ovs-vsctl", &["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy"]);
    // A second one waits for the lock, and says so once.
    let args = ["--unixctl=second.ctl", "--enable-dummy", "--log-file=second.log", "--pidfile=second.pid"];
    let mut second = rig.command("ovs-vswitchd").args(args).stderr(Stdio::null()).spawn().unwrap();
    let told = "another ovs-vswitchd process is running, disabling this process";
    rig.wait_until("the second one's complaint", || rig.read("second.log").contains(told));
    assert_eq!([shown(&rig, "first.ctl").contains("br0"), shown(&rig, "second.ctl").contains("br0")], [true, false]);
    // The first one loses the lock: its bridge goes.
    let database = format!("unix:{}", rig.path("db.sock").display());
    let steal = ["steal", &database, "ovs_vswitchd"];
    let mut thief = rig.command("ovsdb-client").args(steal).stdout(Stdio::null()).spawn().unwrap();
    rig.wait_until("the end of the bridge", || !shown(&rig, "first.ctl").contains("br0"));
    assert!(rig.read("ovs-vswitchd.log").contains(told));
    assert!(!rig.path("br0.mgmt").exists());
    // Once the thief is gone, one of the two has the bridge again; when that ends, so does the other.
    thief.kill().unwrap();
    thief.wait().unwrap();
    let has_bridge = |socket: &str| shown(&rig, socket).contains("br0");
    rig.wait_until("the bridge", || has_bridge("first.ctl") || has_bridge("second.ctl"));
    let (holder, other) = if has_bridge("first.ctl") { ("first", "second") } else { ("second", "first") };
    let of = |name: &str| rig.path(&format!("{name}.ctl")).to_str().unwrap().to_owned();
    rig.appctl(&["-t", &of(holder), "exit"]);
    rig.wait_until("the other one's bridge", || has_bridge(&format!("{other}.ctl")));
    rig.run("ovs-vsctl", &["add-port", "br0", "p1", "--", "set", "interface", "p1", "type=dummy"]);
    assert_eq!(rig.read("second.log").matches(told).count(), 1);
    rig.appctl(&["-t", &of(other), "exit"]);
    assert!(second.wait().unwrap().success());
}

/// An authority, and a certificate that it has signed.
fn make_certificates(rig: &Rig) {
    let authority = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=authority"];
    rig.run("openssl", &[&authority[..], &["-keyout", "ca.key", "-out", "ca.pem"]].concat());
    let request = ["req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=switch", "-keyout", "key.pem"];
    rig.run("openssl", &[&request[..], &["-out", "request.pem"]].concat());
    std::fs::write(rig.path("extensions"), "basicConstraints=CA:FALSE\nsubjectAltName=DNS:switch\n").unwrap();
    let sign = ["x509", "-req", "-days", "2", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca.key"];
    let signed = ["-CAcreateserial", "-extfile", "extensions", "-out", "cert.pem"];
    rig.run("openssl", &[&sign[..], &signed].concat());
}

pub fn it_reaches_its_database_by_tls() {
    let rig = Rig::new();
    make_certificates(&rig);
    let files = ["--private-key=key.pem", "--certificate=cert.pem", "--ca-cert=ca.pem"];
    rig.start_database(&[&["--remote=pssl:0:127.0.0.1"], &files[..]].concat());
    let log = rig.read("ovsdb-server.log");
    let (_, port) = log.split_once("listening on port ").unwrap();
    let remote = format!("ssl:127.0.0.1:{}", port.split_whitespace().next().unwrap());
    // Without keys there is no such connection.
    let refused = rig.output("ovs-vswitchd", &[&remote]);
    assert_eq!(refused.status.code(), Some(1));
    rig.start(&[&[remote.as_str(), "--enable-dummy"], &files[..]].concat());
    rig.run("ovs-vsctl", &["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy"]);
    assert!(rig.read("ovs-vswitchd.log").contains(&format!("|reconnect|INFO|{remote}: connected")));
    rig.stop();
}
