//! Bridges and ports: they come, go, fail, and have numbers.

use super::rig::Server;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

pub fn bridges_and_ports_come_and_go() {
    let server = Server::start();
    let daemon = server.daemon();
    daemon.await_configured();
    server
        .vsctl("--no-wait add-br br0 -- set bridge br0 datapath_type=netdev other_config:datapath-id=0000000000000abc");
    server.vsctl("add-port br0 p1 -- set interface p1 type=null");
    assert_eq!(server.vsctl("get interface p1 ofport error"), "1\n[]");
    assert_eq!(server.vsctl("get bridge br0 datapath_id"), "\"0000000000000abc\"");
    let ports = daemon.switch.port_status().remove("br0").unwrap();
    assert!(ports.iter().any(|port| port.name == "p1" && port.kind.as_deref() == Some("null")));
    server.vsctl("del-port p1 -- add-br br1");
    assert_eq!(daemon.switch.port_status().keys().collect::<Vec<_>>(), ["br0", "br1"]);
    server.vsctl("del-br br0");
    assert_eq!(daemon.switch.port_status().keys().collect::<Vec<_>>(), ["br1"]);
}

pub fn what_cannot_be_is_told_and_does_not_block_the_rest() {
    let server = Server::start();
    let daemon = server.daemon();
    daemon.await_configured();
    server.vsctl("--no-wait add-br br0 -- set bridge br0 datapath_type=netdev");
    let refused = |command: &str| {
        let output = server.try_vsctl(command);
        String::from_utf8(output.stderr).unwrap()
    };
    let error =
        refused("add-port br0 p1 -- set interface p1 type=nonsense -- add-port br0 p2 -- set interface p2 type=null");
    assert!(error.contains("could not open network device p1 (Address family not supported by protocol)"), "{error}");
    assert_eq!(server.vsctl("get interface p1 ofport"), "-1");
    assert_eq!(server.vsctl("get interface p2 ofport"), "1");
    assert!(refused("add-port br0 vxlan_sys_4789").contains("Error detected while setting up 'vxlan_sys_4789'"));
    server.vsctl("set interface p1 type=null");
    assert_eq!(server.vsctl("get interface p1 ofport error"), "2\n[]");
}

pub fn numbers_are_requested_kept_and_given_out() {
    let server = Server::start();
    let daemon = server.daemon();
    daemon.await_configured();
    server.vsctl("--no-wait add-br br0 -- set bridge br0 datapath_type=netdev");
    server.vsctl("add-port br0 p1 -- set interface p1 type=null ofport_request=7");
    server.vsctl("add-port br0 p2 -- set interface p2 type=null");
    server.vsctl("add-port br0 p3 -- set interface p3 type=null ofport_request=7");
    let ofports = |names: [&str; 3]| names.map(|name| server.vsctl(&format!("get interface {name} ofport")));
    assert_eq!(ofports(["p1", "p2", "p3"]), ["7", "1", "2"]);
    drop(daemon);
    let daemon = server.daemon();
    daemon.await_configured();
    assert_eq!(ofports(["p1", "p2", "p3"]), ["7", "1", "2"]);
}

pub fn a_patch_port_without_a_peer_says_so() {
    let server = Server::start();
    let daemon = server.daemon();
    daemon.await_configured();
    server.vsctl("--no-wait add-br br0 -- set bridge br0 datapath_type=netdev -- add-br br1");
    server.vsctl("add-port br0 a -- set interface a type=patch options:peer=b");
    let errors = || [server.vsctl("get interface a error"), server.vsctl("--if-exists get interface b error")];
    assert_eq!(errors(), ["\"No usable peer 'b' exists in 'netdev' datapath.\"", ""]);
    server.vsctl("add-port br1 b -- set interface b type=patch options:peer=c");
    assert!(errors().iter().all(|error| error.starts_with("\"No usable peer")), "{:?}", errors());
    server.vsctl("set interface b options:peer=a");
    assert_eq!(errors(), ["[]", "[]"]);
    server.vsctl("del-port b");
    assert!(errors()[0].starts_with("\"No usable peer 'b'"), "{:?}", errors());
}

/// The datapath id that the next connection of a bridge tells.
fn next_datapath_id(listener: &TcpListener) -> u64 {
    let (mut bridge, _) = listener.accept().unwrap();
    bridge.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // OFPT_HELLO and OFPT_FEATURES_REQUEST of OpenFlow 1.3.
    bridge.write_all(&[4, 0, 0, 8, 0, 0, 0, 1, 4, 5, 0, 8, 0, 0, 0, 2]).unwrap();
    loop {
        let mut header = [0; 8];
        bridge.read_exact(&mut header).unwrap();
        let mut body = vec![0; usize::from(u16::from_be_bytes([header[2], header[3]])) - header.len()];
        bridge.read_exact(&mut body).unwrap();
        // OFPT_FEATURES_REPLY
        if header[1] == 6 {
            return u64::from_be_bytes(body[..8].try_into().unwrap());
        }
    }
}

pub fn controllers_know_bridges_by_their_datapath_ids() {
    let server = Server::start();
    let daemon = server.daemon();
    daemon.await_configured();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("tcp:127.0.0.1:{}", listener.local_addr().unwrap().port());
    let id = "other_config:datapath-id=0000000000000abc";
    server.vsctl(&format!("add-br br0 -- set bridge br0 datapath_type=netdev {id} -- set-controller br0 {target}"));
    assert_eq!(next_datapath_id(&listener), 0xabc, "not even the first connection knows another id");
    server.vsctl("set bridge br0 other_config:datapath-id=0000000000000def");
    assert_eq!(next_datapath_id(&listener), 0xdef, "controllers are connected to anew");
}

pub fn vhost_sockets_are_where_the_setting_of_the_start_says() {
    let server = Server::start();
    let dir = server.socket().with_file_name("vhost");
    std::fs::create_dir(&dir).unwrap();
    server.vsctl("--no-wait set Open_vSwitch . other_config:vhost-sock-dir=vhost");
    let daemon = server.daemon();
    daemon.await_configured();
    server.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev");
    server.vsctl("add-port br0 v1 -- set interface v1 type=dpdkvhostuser options:vhost-sock-dir=/tmp");
    std::os::unix::net::UnixStream::connect(dir.join("v1")).unwrap();
    // Guests that are connected keep their sockets.
    server.vsctl(
        "remove Open_vSwitch . other_config vhost-sock-dir -- add-port br0 v2 -- set interface v2 type=dpdkvhostuser",
    );
    std::os::unix::net::UnixStream::connect(dir.join("v2")).unwrap();
}
