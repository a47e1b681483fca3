//! Controllers that the switch connects to.

use crate::bench::Bench;
use crate::client::{Client, PATIENCE, Peer};
use sluice_connmgr::{ActiveTarget, BridgeSettings, ControllerKind, ControllerSettings, ControllerStatus, RateLimit};
use sluice_ofp::FlowCommand;
use sluice_ofproto::FailMode;
use sluice_openflow::{Message, Version};
use sluice_testkit::frame::udp4;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

type Controller = Peer<TcpStream>;

/// A place where the switch finds a controller, and settings for it.
fn controller() -> (TcpListener, ControllerSettings) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = ActiveTarget::Tcp(listener.local_addr().unwrap());
    (listener, ControllerSettings { max_backoff: Duration::from_millis(10), ..ControllerSettings::new(target) })
}

fn settings(controller: ControllerSettings) -> BridgeSettings {
    BridgeSettings { controllers: vec![controller], ..BridgeSettings::default() }
}

fn accept(listener: &TcpListener) -> Controller {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Peer::greet(stream, Version::V13)
}

#[test]
fn the_switch_connects_again() {
    let (listener, controller) = controller();
    let bench = Bench::with_settings(&settings(controller));
    for round in 0..3 {
        let mut controller = accept(&listener);
        controller.add(&format!("priority={round},actions=drop"));
        assert_eq!(controller.flows().len(), round + 1, "the rules stay");
    }
    bench.service.remove_bridge("br0");
    listener.set_nonblocking(true).unwrap();
    // A connection may have been made just before the end.
    while listener.accept().is_ok() {}
    std::thread::sleep(Duration::from_millis(50));
    assert!(listener.accept().is_err(), "the switch connects though the bridge is no longer served");
}

#[test]
fn a_controller_may_be_behind_a_unix_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("controller");
    let listener = UnixListener::bind(&path).unwrap();
    let bench = Bench::with_settings(&settings(ControllerSettings::new(ActiveTarget::Unix(path))));
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut controller: Client = Peer::greet(stream, Version::V15);
    controller.barrier();
    // Unlike a client, a controller gets asynchronous messages without asking.
    bench.add_port(3);
    bench.service.publish_ports();
    assert!(matches!(controller.next_unasked(), Message::PortStatus(_)));
}

#[test]
fn a_silent_controller_is_probed_and_then_left() {
    let (listener, controller) = controller();
    let controller = ControllerSettings { inactivity_probe: Duration::from_millis(100), ..controller };
    let _bench = Bench::with_settings(&settings(controller));
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // Before the controller says its last word, from which on it is silent.
    let began = Instant::now();
    let mut silent: Controller = Peer::greet(stream, Version::V13);
    assert!(matches!(silent.receive(), Some((_, Message::EchoRequest(_)))));
    // The switch's clock moves by some milliseconds at a time.
    assert!(began.elapsed() >= Duration::from_millis(90), "probed too early");
    assert!(silent.receive().is_none(), "the connection goes on");
    accept(&listener).barrier();
}

#[test]
fn a_controller_that_answers_stays() {
    let (listener, controller) = controller();
    // A busy machine may take the controller's core for a second.
    let controller = ControllerSettings { inactivity_probe: Duration::from_secs(2), ..controller };
    let _bench = Bench::with_settings(&settings(controller));
    let mut polite = accept(&listener);
    // Had it not heard the first answer, the switch would leave it at the time of the second question.
    for _ in 0..2 {
        assert!(matches!(polite.receive(), Some((_, Message::EchoRequest(_)))));
        polite.send(&Message::EchoReply(Vec::new()));
    }
    polite.barrier();
}

#[test]
fn packets_beyond_the_limit_wait() {
    let (listener, controller) = controller();
    let rate_limit = Some(RateLimit { packets_per_s: 10, burst: 4 });
    let bench = Bench::with_settings(&settings(ControllerSettings { rate_limit, ..controller }));
    let mut controller = accept(&listener);
    controller.add("actions=controller");
    let frame = udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2);
    (0..20).for_each(|_| bench.receive(1, &frame));
    (0..4).for_each(|_| assert!(matches!(controller.next_unasked(), Message::PacketIn(_))));
    assert_eq!(controller.unasked(), [], "the switch's time stands still");
    // As many as the burst wait, a tenth of a second for each; the others are lost.
    bench.switch.now_ms.fetch_add(10_000, SeqCst);
    (0..4).for_each(|_| assert!(matches!(controller.next_unasked(), Message::PacketIn(_))));
    bench.switch.now_ms.fetch_add(10_000, SeqCst);
    assert_eq!(controller.unasked(), []);
}

#[test]
fn a_standalone_bridge_leaves_it_to_its_controller() {
    let (listener, controller) = controller();
    let settings = BridgeSettings { fail_mode: FailMode::Standalone, ..settings(controller) };
    let bench = Bench::with_settings(&settings);
    let mut client = bench.client(Version::V13);
    assert!(client.flows().is_empty(), "the controller decides");
    let mut controller = accept(&listener);
    controller.barrier();
    controller.change(FlowCommand::Add, "actions=drop");
    drop(controller);
    bench.service.run();
    assert_eq!(client.flows().len(), 1, "the controller has been away for a moment only");
}

#[test]
fn new_settings_leave_other_connections_alone() {
    let (listener, first) = controller();
    let bench = Bench::with_settings(&settings(first.clone()));
    let (mut controller, mut client) = (accept(&listener), bench.client(Version::V10));
    client.add("in_port=1,actions=output:2");
    let (other_listener, second) = self::controller();
    let both = BridgeSettings { controllers: vec![first.clone(), second], ..BridgeSettings::default() };
    bench.service.serve_bridge("br0", &both).unwrap();
    let mut other = accept(&other_listener);
    [&mut controller, &mut other].into_iter().for_each(|peer| peer.barrier());
    // A reply may arrive before the connection notes that it is ready.
    let deadline = Instant::now() + Duration::from_secs(30);
    let statuses = || bench.service.controllers("br0");
    while !statuses().iter().all(ControllerStatus::is_connected) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(statuses().len() == 2 && statuses().iter().all(ControllerStatus::is_connected), "{:?}", statuses());
    bench.service.serve_bridge("br0", &settings(first)).unwrap();
    assert!(other.receive().is_none(), "the connection goes on");
    controller.barrier();
    assert_eq!(client.flows().len(), 1, "there was a controller all the time");
}

#[test]
fn the_first_controller_and_the_last_take_the_rules_along() {
    let bench = Bench::with_settings(&BridgeSettings { fail_mode: FailMode::Standalone, ..BridgeSettings::default() });
    let mut client = bench.client(Version::V13);
    assert_eq!(client.flows().len(), 1, "a standalone bridge begins with a rule");
    let (_listener, controller) = controller();
    let service = ControllerSettings { kind: ControllerKind::Service, ..controller.clone() };
    let with = |controller| BridgeSettings { fail_mode: FailMode::Standalone, ..settings(controller) };
    bench.service.serve_bridge("br0", &with(service)).unwrap();
    assert_eq!(client.flows().len(), 1, "a service controller decides nothing");
    bench.service.serve_bridge("br0", &with(controller)).unwrap();
    assert!(client.flows().is_empty(), "it is the controller's to decide");
    client.add("in_port=1,actions=output:2");
    bench
        .service
        .serve_bridge("br0", &BridgeSettings { fail_mode: FailMode::Standalone, ..Default::default() })
        .unwrap();
    assert_eq!(client.flows(), [" NORMAL"]);
}

#[test]
fn a_bridge_speaks_the_versions_it_may() {
    let versions = Version::V13.bit();
    let bench = Bench::with_settings(&BridgeSettings { versions, ..BridgeSettings::default() });
    bench.client(Version::V13).barrier();
    let mut stream = std::os::unix::net::UnixStream::connect(bench.socket("mgmt")).unwrap();
    stream.write_all(&Message::Hello(Some(Version::V14.bit())).write(Version::V14, 1)).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    assert!(bytes.ends_with(b"We support version 0x04, you support version 0x05, no common versions."));
}

#[test]
fn a_controller_may_be_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("tcp:localhost:{}", listener.local_addr().unwrap().port()).parse().unwrap();
    let _bench = Bench::with_settings(&settings(ControllerSettings::new(target)));
    accept(&listener).barrier();
}

#[test]
fn an_unreachable_controller_says_why() {
    let target = ActiveTarget::Unresolved("tcp:nowhere".into());
    let bench = Bench::with_settings(&settings(ControllerSettings::new(target)));
    let deadline = Instant::now() + Duration::from_secs(5);
    let failed = || bench.service.controllers("br0")[0].last_error.is_some();
    while !failed() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    let status = &bench.service.controllers("br0")[0];
    assert_eq!(status.last_error.as_deref(), Some("Address family not supported by protocol"));
    assert!(!status.is_connected() && status.pairs()["state"] != "ACTIVE");
}

#[test]
fn the_end_of_a_bridge_ends_its_connections() {
    let (listener, controller) = controller();
    let bench = Bench::with_settings(&settings(controller));
    let (mut controller, mut client) = (accept(&listener), bench.client(Version::V10));
    bench.service.remove_bridge("br0");
    assert!(controller.receive().is_none() && client.receive().is_none());
}
