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

/// Where a server behind TLS listens, by its log.
fn ssl_remote(rig: &Rig) -> String {
    let log = rig.read("ovsdb-server.log");
    let (_, port) = log.rsplit_once("listening on port ").unwrap();
    format!("ssl:127.0.0.1:{}", port.split_whitespace().next().unwrap())
}

/// An authority.
fn make_authority(rig: &Rig, name: &str) {
    let subject = format!("/CN=authority-{name}");
    let authority = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", &subject];
    let [key, certificate] = ["key", "pem"].map(|kind| format!("{name}.{kind}"));
    rig.run("openssl", &[&authority[..], &["-keyout", &key, "-out", &certificate]].concat());
}

/// An authority, and a certificate that it has signed.
fn make_certificates(rig: &Rig) {
    make_authority(rig, "ca");
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
    let remote = ssl_remote(&rig);
    // Without keys there is no such connection.
    let refused = rig.output("ovs-vswitchd", &[&remote]);
    assert_eq!(refused.status.code(), Some(1));
    rig.start(&[&[remote.as_str(), "--enable-dummy"], &files[..]].concat());
    rig.run("ovs-vsctl", &["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy"]);
    assert!(rig.read("ovs-vswitchd.log").contains(&format!("|reconnect|INFO|{remote}: connected")));
    rig.stop();
}

/// A certificate's bytes, as openssl reads them.
fn fingerprint(rig: &Rig, file: &str) -> String {
    rig.run("openssl", &["x509", "-in", file, "-noout", "-fingerprint", "-sha256"])
}

pub fn it_takes_over_its_databases_authority() {
    let rig = Rig::new();
    make_certificates(&rig);
    let keys = ["--private-key=key.pem", "--certificate=cert.pem"];
    let server = ["--remote=pssl:0:127.0.0.1", "--ca-cert=ca.pem", "--peer-ca-cert=ca.pem"];
    rig.start_database(&[&server[..], &keys].concat());
    let remote = ssl_remote(&rig);
    let daemon = [&[remote.as_str(), "--enable-dummy", "--bootstrap-ca-cert=taken.pem"], &keys[..]].concat();
    rig.start(&daemon);
    assert_eq!(fingerprint(&rig, "taken.pem"), fingerprint(&rig, "ca.pem"));
    let said = "|stream_ssl|INFO|successfully bootstrapped CA cert to taken.pem";
    assert_eq!(rig.read("ovs-vswitchd.log").matches(said).count(), 1);
    rig.run("ovs-vsctl", &["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy"]);
    rig.stop();
    // The file is what counts from then on: another authority is not believed, whatever the server sends.
    make_authority(&rig, "other");
    let args = [&[remote.as_str(), "--bootstrap-ca-cert=other.pem", "--log-file=second.log"], &keys[..]].concat();
    let mut second = rig.command("ovs-vswitchd").args(args).stderr(Stdio::null()).spawn().unwrap();
    rig.wait_until("a refusal", || rig.read("second.log").contains("invalid peer certificate: UnknownIssuer"));
    assert!(!rig.read("second.log").contains("bootstrapped"));
    second.kill().unwrap();
    second.wait().unwrap();
}

pub fn it_takes_over_a_controllers_authority() {
    let rig = Rig::with_database();
    make_certificates(&rig);
    rig.start(&["--enable-dummy"]);
    // A port that nobody uses, as far as one can know.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let path = |file: &str| rig.path(file).to_str().unwrap().to_owned();
    let (key, cert, taken) = (path("key.pem"), path("cert.pem"), path("taken.pem"));
    rig.run("ovs-vsctl", &["--", "--bootstrap", "set-ssl", &key, &cert, &taken]);
    let target = format!("ssl:127.0.0.1:{port}");
    let bridge = ["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy", "fail_mode=secure"];
    rig.run("ovs-vsctl", &[&bridge[..], &["--", "set-controller", "br0", &target]].concat());
    let listens = format!("pssl:{port}:127.0.0.1");
    let controller = |authority: &str| {
        let mut command = rig.command("ovs-testcontroller");
        command.args(["-p", "key.pem", "-c", "cert.pem", "-C", authority, "--unixctl=none"]);
        command.arg(&listens).stderr(Stdio::null()).spawn().unwrap()
    };
    // One that does not know who has signed its certificate cannot show that, and is not believed.
    make_authority(&rig, "other");
    let mut silent = controller("other.pem");
    let complaint = "could not bootstrap CA cert: obtained certificate is not self-signed";
    rig.wait_until("a complaint", || rig.read("ovs-vswitchd.log").contains(complaint));
    assert!(!rig.path("taken.pem").exists());
    silent.kill().unwrap();
    silent.wait().unwrap();
    let mut telling = controller("ca.pem");
    rig.wait_until("the controller", || {
        rig.run("ovs-vsctl", &["get", "controller", "br0", "is_connected"]) == "true\n"
    });
    assert_eq!(fingerprint(&rig, "taken.pem"), fingerprint(&rig, "ca.pem"));
    telling.kill().unwrap();
    telling.wait().unwrap();
    rig.stop();
}
