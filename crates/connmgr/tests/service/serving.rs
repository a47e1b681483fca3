//! Sockets: made, made anew, taken, removed; and snooping.

use crate::bench::Bench;
use crate::client::{Client, PATIENCE, Peer, all_flows};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sluice_connmgr::{
    ActiveTarget, Backend, BridgeSettings, ControllerSettings, Error, OpenFlowService, PassiveTarget, SocketError,
    SocketMode, TlsError, TlsFile, TlsFiles,
};
use sluice_fate::Limit;
use sluice_flow::PortNames;
use sluice_ofp::{FlowCommand, GROUP_ALL, GroupCommand, GroupMod, METER_ALL, MeterCommand, MeterMod};
use sluice_ofproto::FailMode;
use sluice_openflow::message::connection::{BUNDLE_ATOMIC, BUNDLE_ORDERED, BundleAdd, BundleControl, BundleStep};
use sluice_openflow::message::stats::{StatsReply, StatsRequest};
use sluice_openflow::{Message, Version};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

#[test]
fn sockets_go_with_the_bridge() {
    let bench = Bench::new();
    let sockets = ["mgmt", "snoop"].map(|kind| bench.socket(kind));
    assert!(sockets.iter().all(|socket| socket.exists()));
    bench.service.remove_bridge("br0");
    assert!(sockets.iter().all(|socket| !socket.exists()));
    // And it can be served again.
    bench.service.serve_bridge("br0", &BridgeSettings::default()).unwrap();
    bench.client(Version::V13).barrier();
    bench.service.stop();
    assert!(sockets.iter().all(|socket| !socket.exists()));
}

#[test]
fn sockets_have_the_mode_that_they_are_to_have() {
    for (mode, bits) in
        [(SocketMode::Private, 0o600), (SocketMode::OpenVSwitch, 0o750), (SocketMode::Bits(0o660), 0o660)]
    {
        let bench = Bench::not_served(FailMode::Secure);
        bench.service.start(bench.dir.path(), mode);
        let extra = bench.dir.path().join("br0.extra");
        let listeners = vec![PassiveTarget::Unix(extra.clone())];
        bench.service.serve_bridge("br0", &BridgeSettings { listeners, ..BridgeSettings::default() }).unwrap();
        for socket in [bench.socket("mgmt"), bench.socket("snoop"), extra] {
            let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, bits, "{}", socket.display());
        }
    }
}

#[test]
fn nothing_is_served_before_the_start() {
    let bench = Bench::new();
    let service = OpenFlowService::new(bench.ofproto.clone(), Arc::clone(&bench.switch) as Arc<dyn Backend>);
    service.serve_bridge("br1", &BridgeSettings::default()).unwrap();
    assert!(!bench.dir.path().join("br1.mgmt").exists());
}

/// An address of this machine that is free at the moment.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn a_bridge_listens_where_it_is_told() {
    let bench = Bench::new();
    let (first, second) = (free_address(), free_address());
    for (address, gone) in [(first, None), (second, Some(first))] {
        let settings = BridgeSettings { listeners: vec![PassiveTarget::Tcp(address)], ..BridgeSettings::default() };
        bench.service.serve_bridge("br0", &settings).unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Peer::greet(stream, Version::V13).barrier();
        assert!(gone.is_none_or(|gone| TcpStream::connect(gone).is_err()), "the earlier address is still served");
    }
}

#[test]
fn a_socket_of_its_own_is_there_while_it_is_wanted() {
    let bench = Bench::new();
    let path = bench.dir.path().join("br0.extra");
    let listeners = vec![format!("punix:{}", path.display()).parse().unwrap()];
    bench.service.serve_bridge("br0", &BridgeSettings { listeners, ..BridgeSettings::default() }).unwrap();
    Client::connect(&path, Version::V13).barrier();
    bench.service.serve_bridge("br0", &BridgeSettings::default()).unwrap();
    assert!(!path.exists());
}

#[test]
fn what_cannot_be_served_does_not_stop_the_rest() {
    let bench = Bench::not_served(FailMode::Secure);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = PassiveTarget::Tcp(taken.local_addr().unwrap());
    let settings = BridgeSettings { listeners: vec![target.clone()], ..BridgeSettings::default() };
    let error = bench.service.serve_bridge("br0", &settings).unwrap_err();
    assert!(matches!(&error, Error::Listen { bridge, .. } if bridge == "br0"), "{error}");
    assert!(error.to_string().starts_with(&format!("bridge br0: {target}: ")), "{error}");
    bench.client(Version::V13).barrier();
    // It is tried again.
    drop(taken);
    bench.service.serve_bridge("br0", &settings).unwrap();
    bench.service.serve_bridge("br0", &BridgeSettings::default()).unwrap();
    bench.client(Version::V13).barrier();
}

#[test]
fn the_socket_of_another_switch_is_respected() {
    let bench = Bench::new();
    let other = OpenFlowService::new(bench.ofproto.clone(), Arc::clone(&bench.switch) as Arc<dyn Backend>);
    other.start(bench.dir.path(), SocketMode::Private);
    let error = other.serve_bridge("br0", &BridgeSettings::default()).unwrap_err();
    assert!(matches!(error, Error::Socket(SocketError::InUse { .. })), "{error}");
    other.stop();
    bench.client(Version::V13).barrier();
}

#[test]
fn tls_files_that_are_wrong_are_named() {
    let bench = Bench::new();
    let path = bench.dir.path().join("key.pem");
    std::fs::write(&path, "no key\n").unwrap();
    let files = TlsFiles {
        private_key: path.clone(),
        certificate: path.clone(),
        ca_cert: path.clone(),
        bootstraps_ca_cert: false,
    };
    let error = bench.service.set_tls(Some(&files)).unwrap_err();
    assert!(matches!(&error, TlsError::Pem { file: TlsFile::PrivateKey, .. }), "{error}");
    assert!(error.to_string().starts_with(&format!("{}: no private key in PEM", path.display())), "{error}");
    bench.service.set_tls(None).unwrap();
}

#[test]
fn a_snooper_gets_the_messages_of_both_sides() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = ActiveTarget::Tcp(listener.local_addr().unwrap());
    let settings = BridgeSettings { controllers: vec![ControllerSettings::new(target)], ..BridgeSettings::default() };
    let bench = Bench::with_settings(&settings);
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut controller = Peer::greet(stream, Version::V13);
    let mut snooper = Client::connect(&bench.socket("snoop"), Version::V13);
    // Messages from before its time are not copied: the first copy shows that it has been added.
    let is_added = (0..1000).any(|_| {
        controller.barrier();
        let wait = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        poll(&mut [PollFd::new(&snooper.stream, PollFlags::IN)], Some(&wait)).unwrap() != 0
    });
    assert!(is_added, "nothing is copied");
    assert_eq!(controller.ask(&Message::EchoRequest(vec![42])), Message::EchoReply(vec![42]));
    let mut copied = std::iter::from_fn(|| snooper.receive().map(|(_, message)| message));
    assert!(copied.any(|message| message == Message::EchoRequest(vec![42])));
    assert_eq!(copied.next(), Some(Message::EchoReply(vec![42])));
}

/// Whether the switch says hello on a new connection; if not, it closes it.
fn is_greeted(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    matches!(std::io::Read::read(stream, &mut byte), Ok(1))
}

#[test]
fn peers_that_say_nothing_keep_neither_the_owner_nor_other_addresses_out() {
    let bench = Bench::new();
    let address = free_address();
    let settings = BridgeSettings { listeners: vec![PassiveTarget::Tcp(address)], ..BridgeSettings::default() };
    bench.service.serve_bridge("br0", &settings).unwrap();
    let mut idle: Vec<_> = (0..64).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert!(idle.iter_mut().all(is_greeted));
    let before = Limit::Connections.count();
    assert!(!is_greeted(&mut TcpStream::connect(address).unwrap()), "an address has its part of the connections");
    assert!(Limit::Connections.count() > before);
    bench.client(Version::V13).barrier();
    // Loopback has more addresses.
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 2], 0))).unwrap();
    rustix::net::connect(&socket, &address).unwrap();
    assert!(is_greeted(&mut TcpStream::from(socket)));
}

/// Half a hello, or a hello and then nothing, over IPv6 from one host's network: neither keeps anybody else out.
#[test]
fn half_a_hello_and_silence_over_ipv6_keep_nobody_else_out() {
    let bench = Bench::new();
    let v6 = TcpListener::bind("[::1]:0").unwrap().local_addr().unwrap();
    let v4 = free_address();
    let listeners = vec![PassiveTarget::Tcp(v6), PassiveTarget::Tcp(v4)];
    bench.service.serve_bridge("br0", &BridgeSettings { listeners, ..BridgeSettings::default() }).unwrap();
    let hello = Message::Hello(Some(Version::V14.bit())).write(Version::V14, 1);
    let mut silent: Vec<_> = (0..64).map(|_| TcpStream::connect(v6).unwrap()).collect();
    for (n, stream) in silent.iter_mut().enumerate() {
        assert!(is_greeted(stream));
        stream.write_all(&hello[..[4, 11, hello.len()][n % 3]]).unwrap();
    }
    let before = Limit::Connections.count();
    assert!(!is_greeted(&mut TcpStream::connect(v6).unwrap()));
    assert!(Limit::Connections.count() > before);
    assert!(is_greeted(&mut TcpStream::connect(v4).unwrap()), "another address has its own part");
    bench.client(Version::V13).barrier();
    // One that leaves makes room for another.
    drop(silent.pop());
    let deadline = Instant::now() + PATIENCE;
    while !is_greeted(&mut TcpStream::connect(v6).unwrap()) {
        assert!(Instant::now() < deadline, "a connection that has ended keeps its place");
        std::thread::sleep(Duration::from_millis(5));
    }
    bench.client(Version::V14).barrier();
}

/// A message of 32 kB for a bundle.
fn long_addition() -> Message {
    let rule = format!("actions={}", vec!["note:00.11.22.33"; 2000].join(","));
    let message = Client::flow_mod(FlowCommand::Add, &rule).write(Version::V14, 0);
    Message::BundleAdd(BundleAdd { id: 1, flags: 0, message })
}

/// Sends the addition forty times; how many of them were refused because there was no memory.
fn add_40<S: Read + Write>(client: &mut Peer<S>, add: &Message) -> usize {
    (0..40).for_each(|_| client.send(add));
    let messages = client.unasked();
    let errors = messages.iter().filter_map(|message| match message {
        Message::Error(code, _) => sluice_openflow::Error::from_code(*code, Version::V14),
        _ => None,
    });
    errors.inspect(|error| assert_eq!(*error, sluice_openflow::Error::BundleMsgTooMany)).count()
}

#[test]
fn bundles_of_peers_leave_half_of_the_memory_to_the_owner() {
    const LIMIT: usize = 1 << 20;
    let bench = Bench::new();
    let address = free_address();
    let settings = BridgeSettings { listeners: vec![PassiveTarget::Tcp(address)], ..BridgeSettings::default() };
    bench.service.serve_bridge("br0", &settings).unwrap();
    let memory = bench.service.bundle_memory();
    memory.set_limit(LIMIT);
    let add = long_addition();
    let mut peers: Vec<_> = (0..4)
        .map(|_| {
            let stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            Peer::greet(stream, Version::V14)
        })
        .collect();
    assert!(peers.iter_mut().all(|peer| add_40(peer, &add) >= 1), "together they fill their part");
    assert!(memory.usage().0 <= LIMIT / 2 && memory.usage().0 > LIMIT / 4);
    let refused = add_40(&mut bench.client(Version::V14), &add);
    assert!(refused < 30, "the owner has as much: {refused} of 40 were refused");
}

#[test]
fn bundles_of_all_connections_share_one_memory() {
    const LIMIT: usize = 1 << 20;
    let bench = Bench::new();
    let memory = bench.service.bundle_memory();
    memory.set_limit(LIMIT);
    let add = long_addition();
    let mut clients: Vec<_> = (0..4).map(|_| bench.client(Version::V14)).collect();
    let refused: Vec<_> = clients.iter_mut().map(|client| add_40(client, &add)).collect();
    assert!(refused.iter().all(|n| *n >= 1) && refused[1] < 40, "the first one leaves room for another: {refused:?}");
    assert!(memory.usage().0 <= LIMIT && memory.usage().0 > LIMIT / 2);
    drop(clients);
    while memory.usage().0 != 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Bundles that are opened and never used, ordered or atomic, on many connections: each has its few, and they take no
/// memory that others need.
#[test]
fn bundles_that_are_never_used_are_few_and_leave_the_memory_alone() {
    const OF_CONNECTION: usize = 16;
    let bench = Bench::new();
    let control = |id, step, flags| Message::BundleControl(BundleControl { id, step, is_reply: false, flags });
    let mut idle: Vec<_> = (0..20).map(|_| bench.client(Version::V14)).collect();
    let before = Limit::Bundles.count();
    for client in &mut idle {
        let opened = (0..100).filter(|id| {
            let flags = [BUNDLE_ATOMIC, BUNDLE_ORDERED, BUNDLE_ATOMIC | BUNDLE_ORDERED][*id as usize % 3];
            matches!(client.ask(&control(*id, BundleStep::Open, flags)), Message::BundleControl(_))
        });
        assert_eq!(opened.count(), OF_CONNECTION);
        assert_eq!(client.refused(&control(500, BundleStep::Open, 0)), sluice_openflow::Error::BundleOutOfBundles);
    }
    assert!(Limit::Bundles.count() >= before + 20 * (101 - OF_CONNECTION as u64));
    assert_eq!(bench.service.bundle_memory().usage().0, 0);
    let mut another = bench.client(Version::V14);
    assert!(matches!(another.ask(&control(1, BundleStep::Open, BUNDLE_ATOMIC)), Message::BundleControl(_)));
    // One that is given up makes room for another.
    idle[0].send(&control(0, BundleStep::Discard, BUNDLE_ATOMIC));
    assert!(matches!(idle[0].ask(&control(99, BundleStep::Open, 0)), Message::BundleControl(_)));
}

/// Clients that ask for all rules again and again and never read, each answer far longer than what a connection may leave
/// unread: few of their questions are answered, and others are.
#[test]
fn clients_that_ask_for_rules_and_do_not_read_cost_few_answers() {
    const CLIENTS: usize = 8;
    let bench = Bench::new();
    let mut polite = bench.client(Version::V14);
    let note = vec!["01"; 4000].join(".");
    (1..=300)
        .for_each(|n| polite.send(&Client::flow_mod(FlowCommand::Add, &format!("priority={n},actions=note:{note}"))));
    polite.barrier();
    let question = StatsRequest::Flows(Box::new(all_flows()));
    let question = Message::StatsRequest(question, false).write(Version::V14, 9);
    let before = bench.switch.credits.load(SeqCst);
    let greedy = (0..CLIENTS).map(|_| {
        let mut client = bench.client(Version::V14);
        client.stream.set_nonblocking(true).unwrap();
        let asked = (0..100_000).take_while(|_| client.stream.write_all(&question).is_ok()).count();
        assert!(asked > 100 && asked < 100_000, "{asked} questions were taken");
        client
    });
    let greedy: Vec<_> = greedy.collect();
    let credits = || bench.switch.credits.load(SeqCst) - before;
    // The last client's first question may still be on its way.
    while credits() < CLIENTS {
        std::thread::yield_now();
    }
    let credits = credits();
    assert!((CLIENTS..CLIENTS * 8).contains(&credits), "{credits} answers were begun");
    let sum = StatsRequest::Aggregate(Box::new(all_flows()));
    let Message::StatsReply(StatsReply::Aggregate(_, sum), false) = polite.ask(&Message::StatsRequest(sum, false))
    else {
        panic!("no sum")
    };
    assert_eq!(sum.flows, 300);
    drop(greedy);
}

/// A client that asks for all groups, which are many times what a connection may leave unread, and does not read: the
/// answer is made as it reads, so groups that go meanwhile are not in it.
#[test]
fn a_client_that_asks_for_groups_and_does_not_read_holds_a_part_of_them() {
    const GROUPS: u32 = 400;
    let bench = Bench::new();
    let mut polite = bench.client(Version::V14);
    let note = vec!["01"; 15_000].join(".");
    let group = |text: &str, command| GroupMod::parse(text, command, &PortNames::NONE).unwrap();
    let bucket = format!("bucket=bucket_id:0,actions=note:{note},bucket=bucket_id:1,actions=note:{note}");
    for id in 0..GROUPS {
        let add = group(&format!("group_id={id},type=all,{bucket}"), GroupCommand::Add);
        polite.send(&Message::GroupMod(Box::new(add)));
    }
    polite.barrier();
    for question in [StatsRequest::GroupDescs(GROUP_ALL), StatsRequest::Groups(GROUP_ALL)] {
        polite.send(&Message::StatsRequest(question, false));
        assert_eq!(groups_of_reply(&mut polite), GROUPS as usize);
    }
    let mut slow = bench.client(Version::V14);
    slow.send(&Message::StatsRequest(StatsRequest::GroupDescs(GROUP_ALL), false));
    let patience = Timespec { tv_sec: 10, tv_nsec: 0 };
    assert_ne!(poll(&mut [PollFd::new(&slow.stream, PollFlags::IN)], Some(&patience)).unwrap(), 0);
    polite.send(&Message::GroupMod(Box::new(group("", GroupCommand::Delete))));
    polite.barrier();
    let told = groups_of_reply(&mut slow);
    assert!(told > 0 && told < GROUPS as usize, "{told} groups were told of");
}

/// Many meters come in parts, each of which is told of once; of one that there is not, an error.
#[test]
fn meters_are_told_of_in_parts() {
    const METERS: u32 = 300;
    let bench = Bench::new();
    let mut client = bench.client(Version::V13);
    for id in 1..=METERS {
        let add = MeterMod::parse(&format!("meter={id},kbps,bands=type=drop,rate={id}"), MeterCommand::Add).unwrap();
        client.send(&Message::MeterMod(add));
    }
    for wanted in [StatsRequest::MeterConfigs, StatsRequest::Meters] {
        client.send(&Message::StatsRequest(wanted(METER_ALL), false));
        let (mut told, mut parts) = (Vec::new(), 0);
        loop {
            let (meters, more): (Vec<u32>, bool) = match client.receive() {
                Some((_, Message::StatsReply(StatsReply::MeterConfigs(all), more))) => {
                    (all.iter().map(|meter| meter.meter).collect(), more)
                }
                Some((_, Message::StatsReply(StatsReply::Meters(all), more))) => {
                    (all.iter().map(|meter| meter.meter).collect(), more)
                }
                other => panic!("{other:?}"),
            };
            told.extend(meters);
            parts += 1;
            if !more {
                break;
            }
        }
        assert!(parts > 1 && told.into_iter().eq(1..=METERS), "{parts} parts");
        let none = Message::StatsRequest(wanted(METERS + 1), false);
        assert_eq!(client.refused(&none), sluice_openflow::Error::MeterModUnknownMeter);
    }
}

/// How many groups the messages of a reply tell of.
fn groups_of_reply(client: &mut Client) -> usize {
    let mut told = 0;
    loop {
        let more = match client.receive() {
            Some((_, Message::StatsReply(StatsReply::GroupDescs(groups), more))) => {
                told += groups.len();
                more
            }
            Some((_, Message::StatsReply(StatsReply::Groups(groups), more))) => {
                told += groups.len();
                more
            }
            other => panic!("{other:?}"),
        };
        if !more {
            return told;
        }
    }
}
