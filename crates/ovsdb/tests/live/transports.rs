//! TCP, TLS and sockets in the file system.

use crate::server::{Server, Tester, create, run, schema};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use sluice_ovsdb::{Config, ConfigError, Datum, Event, Remote};
use std::path::Path;
use std::sync::Arc;

/// The port that the server chose, from its log.
fn port(server: &Server) -> u16 {
    for _ in 0..1000 {
        let log = server.log();
        if let Some((_, rest)) = log.split_once("listening on port ") {
            return rest.split_whitespace().next().unwrap().parse().unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("the server does not listen: {}", server.log());
}

fn config(server: &Server, kind: &str) -> Config {
    let remotes = Remote::parse_list(&format!("{kind}:127.0.0.1:{}", port(server))).unwrap();
    Config { remotes, probe_interval_ms: 2000, ..server.config() }
}

fn serves(tester: &mut Tester) {
    tester.until("the contents", |client| client.session().is_synced());
    let row = tester.insert("r1");
    assert_eq!(tester.names(), ["r1"]);
    let text = "x".repeat(1 << 20);
    tester.committed(|txn| txn.set("Row", row, "options", Datum::map([("a", text.as_str())])));
    assert_eq!(tester.replica().row("Row", row).unwrap().key("options", "a"), Some(text.as_str()));
}

pub fn tcp_serves_and_is_probed() {
    let dir = tempfile::tempdir().unwrap();
    create(dir.path(), &schema());
    let socket = dir.path().join("db.sock");
    let server = Server::launch(dir, socket, vec!["--remote=ptcp:0:127.0.0.1".into()]);
    let mut client = Tester::new(config(&server, "tcp"));
    serves(&mut client);
    // The server answers probes, and when it no longer does, it is given up.
    let start = client.now_ms();
    while client.now_ms() < start + 5000 {
        client.client.wait(client.now_ms(), 50).unwrap();
        client.step();
    }
    assert!(client.client.session().is_synced());
    server.signal("STOP");
    let end = client.until_event("the end", |event| matches!(event, Event::Disconnected { .. }));
    assert!(end.to_string().contains("no response to inactivity probe"), "{end}");
    server.signal("CONT");
    client.until("the contents", |client| client.session().is_synced());
}

/// An authority and a certificate of it for 127.0.0.1.
fn make_certificates(dir: &Path) {
    let path = |name: &str| dir.join(name).display().to_string();
    let new = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=authority"];
    run("openssl", &[&new[..], &["-keyout", &path("ca.key"), "-out", &path("ca.pem")]].concat());
    let request = ["req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=server"];
    run("openssl", &[&request[..], &["-keyout", &path("key.pem"), "-out", &path("request.pem")]].concat());
    std::fs::write(dir.join("extensions"), "basicConstraints=CA:FALSE\nsubjectAltName=IP:127.0.0.1\n").unwrap();
    let [key, ca, request, extensions, certificate] =
        ["ca.key", "ca.pem", "request.pem", "extensions", "cert.pem"].map(path);
    let sign = ["x509", "-req", "-days", "2", "-in", &request, "-CA", &ca, "-CAkey", &key, "-CAcreateserial"];
    run("openssl", &[&sign[..], &["-extfile", &extensions, "-out", &certificate]].concat());
}

fn client_config(server: &Server, authority: &str) -> Arc<ClientConfig> {
    let certificate = |name: &str| CertificateDer::from_pem_file(server.path(name)).unwrap();
    let mut authorities = RootCertStore::empty();
    authorities.add(certificate(authority)).unwrap();
    let key = PrivateKeyDer::from_pem_file(server.path("key.pem")).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(authorities);
    Arc::new(builder.with_client_auth_cert(vec![certificate("cert.pem")], key).unwrap())
}

pub fn tls_serves_with_certificates_of_one_authority() {
    let dir = tempfile::tempdir().unwrap();
    create(dir.path(), &schema());
    make_certificates(dir.path());
    let file = |option: &str, name: &str| format!("--{option}={}", dir.path().join(name).display());
    let options = vec![
        "--remote=pssl:0:127.0.0.1".into(),
        file("private-key", "key.pem"),
        file("certificate", "cert.pem"),
        file("ca-cert", "ca.pem"),
    ];
    let socket = dir.path().join("db.sock");
    let server = Server::launch(dir, socket, options);
    let mut client = Tester::with_tls(config(&server, "ssl"), Some(client_config(&server, "ca.pem")));
    serves(&mut client);

    // A server that the authority did not sign for.
    let mut client = Tester::with_tls(config(&server, "ssl"), Some(client_config(&server, "cert.pem")));
    let end = client.until_event("the end", |event| matches!(event, Event::Disconnected { .. }));
    assert!(end.to_string().contains("connection attempt failed (invalid peer certificate"), "{end}");

    let without = sluice_ovsdb::Client::new(config(&server, "ssl"), None).err();
    assert!(matches!(without, Some(ConfigError::NoTls(_))));
}

/// A socket's address has room for 107 bytes.
pub fn a_socket_may_have_a_long_path() {
    let dir = tempfile::tempdir().unwrap();
    create(dir.path(), &schema());
    let deep = dir.path().join("d".repeat(100)).join("e".repeat(100));
    std::fs::create_dir_all(&deep).unwrap();
    let server = Server::launch(dir, deep.join("db.sock"), vec![]);
    let client = server.client();
    assert_eq!(client.names().len(), 0);
}
