//! OpenFlow clients of a running switch: a polite one, and hostile ones that must not disturb it.

mod common;

use common::Daemon;
use sluice_flow::PortNames;
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_openflow::message::connection::{AsyncKind, AsyncMasks};
use sluice_openflow::message::flow_mod::FlowModMessage;
use sluice_openflow::message::flow_stats::FlowRequest;
use sluice_openflow::message::monitor::{FlowEvent, FlowUpdate, MonitorCommand, MonitorFlags, MonitorRequest};
use sluice_openflow::message::stats::{StatsReply, StatsRequest};
use sluice_openflow::message::switch::{SwitchConfig, TABLE_VACANCY_EVENTS, TableMod, Vacancy};
use sluice_openflow::{Format, Framer, Message, Version};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

const CONFIG: &str = "[[bridge]]\nname = \"br0\"\n[[bridge.port]]\nname = \"p1\"\nofport = 1\ntype = \"null\"\n";

/// Longer than anything here takes on a busy machine; it only ends tests that hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client that knows how to behave.
struct Client {
    stream: UnixStream,
    framer: Framer,
    version: Version,
}

fn connect(daemon: &Daemon) -> UnixStream {
    let stream = UnixStream::connect(daemon.dir.path().join("run/br0.mgmt")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

impl Client {
    fn new(daemon: &Daemon, version: Version) -> Client {
        let mut client = Client { stream: connect(daemon), framer: Framer::default(), version };
        client.say(&Message::Hello(Some(version.bit())), 1);
        assert!(matches!(client.hear(), Message::Hello(_)));
        client
    }

    fn say(&mut self, message: &Message, xid: u32) {
        self.stream.write_all(&message.write(self.version, xid)).unwrap();
    }

    fn hear(&mut self) -> Message {
        let mut buffer = [0; 4096];
        loop {
            if let Some(message) = self.framer.next_message().unwrap() {
                return Message::read(message, false).unwrap().2;
            }
            let n = self.stream.read(&mut buffer).unwrap();
            assert!(n != 0, "the switch closed the connection");
            self.framer.push(&buffer[..n]);
        }
    }

    fn ask(&mut self, message: &Message) -> Message {
        self.say(message, 5);
        self.hear()
    }

    fn add(&mut self, text: &str) {
        self.change(FlowCommand::Add, text);
        assert_eq!(self.ask(&Message::BarrierRequest), Message::BarrierReply);
    }

    fn change(&mut self, command: FlowCommand, text: &str) {
        let flow = FlowMod::parse(text, command, &PortNames::NONE).unwrap();
        let message =
            FlowModMessage { flow: Box::new(flow), buffer_id: None, format: Format::Standard, table_in_command: false };
        self.say(&Message::FlowMod(message), 7);
    }

    /// The flows, as lines without counters.
    fn flows(&mut self) -> Vec<String> {
        let matches = sluice_flow::Match::ANY;
        let request = FlowRequest {
            format: Format::Standard,
            matches,
            table: None,
            out_port: None,
            out_group: None,
            cookie: 0,
            cookie_mask: 0,
        };
        match self.ask(&Message::StatsRequest(StatsRequest::Flows(Box::new(request)), false)) {
            Message::StatsReply(StatsReply::Flows(_, flows), false) => flows
                .iter()
                .map(|f| format!("{} {}", f.matches, sluice_ofp::OfAction::display_list(&f.actions, &PortNames::NONE)))
                .collect(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn debug_messages_of_connections_can_be_shown() {
    let daemon = Daemon::start(CONFIG);
    let shown = |line: &str| daemon.log().contains(line);
    Client::new(&daemon, Version::V10);
    assert!(!shown("|vconn|DBG|"), "{}", daemon.log());
    daemon.ctl(&["vlog/set", "vconn:dbg"]);
    let mut client = Client::new(&daemon, Version::V14);
    // The answer comes after the message has been logged.
    assert_eq!(client.ask(&Message::BarrierRequest), Message::BarrierReply);
    assert!(shown(": negotiated OpenFlow version 0x05 (we support version 0x"), "{}", daemon.log());
}

#[test]
fn a_client_adds_flows_and_sees_them() {
    let daemon = Daemon::start(CONFIG);
    for version in Version::SPOKEN {
        let mut client = Client::new(&daemon, version);
        client.add("in_port=1,actions=output:2");
        assert_eq!(client.flows(), ["in_port=1 output:2"], "{version}");
        assert_eq!(client.ask(&Message::EchoRequest(vec![1, 2])), Message::EchoReply(vec![1, 2]));
        // A message for switches' masters only is refused, and the connection goes on.
        assert!(matches!(client.ask(&Message::BarrierReply), Message::Error(..)));
        assert!(matches!(client.ask(&Message::FeaturesRequest), Message::FeaturesReply(_)));
    }
    let socket = daemon.dir.path().join("run/br0.mgmt");
    assert!(socket.symlink_metadata().unwrap().file_type().is_socket());
    assert_eq!(daemon.signal("TERM").code, Some(0));
    assert!(!socket.exists(), "the socket was left behind");
}

#[test]
fn hostile_clients_disturb_nobody() {
    let daemon = Daemon::start(CONFIG);
    let mut polite = Client::new(&daemon, Version::V13);
    polite.add("in_port=1,actions=output:2");

    // Half a header; a header that promises 64 KiB; many that say nothing.
    let mut half = connect(&daemon);
    half.write_all(&[4, 0, 0]).unwrap();
    let mut promise = Client::new(&daemon, Version::V13);
    promise.stream.write_all(&[4, 14, 0xff, 0xff, 0, 0, 0, 1]).unwrap();
    let silent: Vec<_> = (0..200).map(|_| connect(&daemon)).collect();

    // A length shorter than a header: where the next message begins is not known, so that is the end.
    let mut short = Client::new(&daemon, Version::V13);
    short.stream.write_all(&[4, 2, 0, 7, 0, 0, 0, 1, 4, 2, 0, 8]).unwrap();
    assert_eq!(short.stream.read(&mut [0; 64]).unwrap(), 0, "the connection goes on");

    // Asks for much and never reads: at some point nothing more is taken from it.
    let mut greedy = Client::new(&daemon, Version::V13);
    greedy.stream.set_nonblocking(true).unwrap();
    let question = Message::StatsRequest(StatsRequest::TableFeatures(Vec::new()), false).write(Version::V13, 3);
    let mut asked = 0usize;
    while asked < 100_000 && greedy.stream.write_all(&question).is_ok() {
        asked += 1;
    }
    assert!(asked < 100_000, "everything was taken from a client that does not read");

    assert_eq!(polite.flows(), ["in_port=1 output:2"]);
    let mut another = Client::new(&daemon, Version::V10);
    assert!(matches!(another.ask(&Message::FeaturesRequest), Message::FeaturesReply(_)));
    // One too many is shown the door; those that are in stay.
    let crowd: Vec<_> = (0..100).map(|_| connect(&daemon)).collect();
    assert_eq!(polite.flows(), ["in_port=1 output:2"]);
    drop((half, promise, silent, crowd));
    assert_eq!(daemon.signal("TERM").code, Some(0), "it ends with a stuck client");
}

/// The memory, in KiB, that the hostile crowd may add to the switch: ten times the sum of the switch's limits, and a
/// small part of the replies that the crowd asks for.
const CROWD_MEMORY_MAX: u64 = 1 << 20;

#[test]
fn a_hostile_crowd_costs_bounded_memory() {
    let daemon = Daemon::start(CONFIG);
    let mut polite = Client::new(&daemon, Version::V13);
    polite.add("in_port=1,actions=output:2");
    let before = daemon.resident_kib();

    // Thirty clients that ask for hundreds of megabytes each, and read nothing.
    let question = Message::StatsRequest(StatsRequest::TableFeatures(Vec::new()), false).write(Version::V13, 3);
    let greedy = (0..30).map(|_| {
        let mut client = Client::new(&daemon, Version::V13);
        client.stream.set_nonblocking(true).unwrap();
        let asked = (0..10_000).take_while(|_| client.stream.write_all(&question).is_ok()).count();
        assert!(asked > 100, "so few questions would have been no trouble: {asked}");
        client
    });
    let greedy: Vec<_> = greedy.collect();
    // Fifty that stop in the middle of the longest message there is.
    let halves = (0..50).map(|_| {
        let mut client = Client::new(&daemon, Version::V13);
        client.stream.write_all(&[4, 14, 0xff, 0xff, 0, 0, 0, 1]).unwrap();
        client.stream.write_all(&[0; 40_000]).unwrap();
        client
    });
    let halves: Vec<_> = halves.collect();
    // Thousands that come: there is no room for all at once, and what each says is wrong.
    for _ in 0..20 {
        let mut crowd: Vec<_> = (0..150).map(|_| connect(&daemon)).collect();
        for stream in &mut crowd {
            // Not a hello.
            _ = stream.write_all(&[4, 2, 0, 8, 0, 0, 0, 1]);
        }
        assert_eq!(polite.flows(), ["in_port=1 output:2"]);
        // That ends a connection, and so does having come too late.
        for stream in &mut crowd {
            while !matches!(stream.read(&mut [0; 512]), Ok(0) | Err(_)) {}
        }
    }
    let more = daemon.resident_kib().saturating_sub(before);
    assert!(more < CROWD_MEMORY_MAX, "{more} KiB more");
    let mut another = Client::new(&daemon, Version::V10);
    assert!(matches!(another.ask(&Message::FeaturesRequest), Message::FeaturesReply(_)));
    assert_eq!(polite.flows(), ["in_port=1 output:2"]);
    drop((greedy, halves));
    assert_eq!(daemon.signal("TERM").code, Some(0));
}

#[test]
fn a_controller_is_told_that_a_table_is_full() {
    let table = "[[bridge.table]]\nnumber = 3\nflow-limit = 4\n";
    let daemon = Daemon::start(&CONFIG.replace("[[bridge.port]]", &format!("{table}[[bridge.port]]")));
    let mut client = Client::new(&daemon, Version::V14);
    // A controller asks for packets before it gets anything unasked.
    client.say(&Message::SetConfig(SwitchConfig { flags: 0, miss_send_len: 128 }), 1);
    let mut masks = AsyncMasks::default();
    masks.0[AsyncKind::TableStatus as usize][0] = Some(0x18);
    client.say(&Message::SetAsync(masks), 2);
    let vacancy = Some(Vacancy { down: 30, up: 60, now: 0 });
    client
        .say(&Message::TableMod(TableMod { table: 3, config: TABLE_VACANCY_EVENTS, eviction_flags: None, vacancy }), 3);
    assert_eq!(client.ask(&Message::BarrierRequest), Message::BarrierReply);
    (1..=3).for_each(|i| client.change(FlowCommand::Add, &format!("table=3,priority={i},actions=drop")));
    let told = |client: &mut Client| loop {
        match client.hear() {
            Message::TableStatus(status) => {
                break (status.reason, status.table.table, status.table.vacancy.map(|v| v.now));
            }
            Message::EchoRequest(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(told(&mut client), (3, 3, Some(25)));
    client.change(FlowCommand::Delete, "table=3");
    assert_eq!(told(&mut client), (4, 3, Some(100)));
}

/// What a watcher knows: the flows by priority, with what they do.
#[derive(Default)]
struct Known {
    flows: BTreeMap<u16, String>,
    pauses: usize,
    resumed: usize,
}

impl Known {
    fn hear(&mut self, message: Message) {
        match message {
            // Whether it is there still: asked on a slow machine.
            Message::EchoRequest(_) => {}
            Message::MonitorPaused => self.pauses += 1,
            Message::MonitorResumed => self.resumed += 1,
            Message::StatsReply(StatsReply::Updates(updates), _) => updates.into_iter().for_each(|u| self.learn(u)),
            other => panic!("{other:?}"),
        }
    }

    fn learn(&mut self, update: FlowUpdate) {
        match update {
            FlowUpdate::Paused => self.pauses += 1,
            FlowUpdate::Resumed => self.resumed += 1,
            FlowUpdate::Abbreviated(xid) => panic!("not its own: {xid}"),
            FlowUpdate::Full(news) => match news.event {
                FlowEvent::Removed(_) => _ = self.flows.remove(&news.priority),
                _ => {
                    // The note is not worth keeping.
                    let first = &news.actions[..news.actions.len().min(1)];
                    let action = sluice_ofp::OfAction::display_list(first, &PortNames::NONE);
                    self.flows.insert(news.priority, action.to_string());
                }
            },
        }
    }
}

/// Flows that are added, of which some are changed and some deleted.
const FLOWS: u16 = 3_000;

/// What each of them does besides: so much that they are more than a connection may leave unread.
const NOTE_SIZE: usize = 1000;

#[test]
fn a_watcher_that_does_not_read_hears_of_everything_in_the_end() {
    let daemon = Daemon::start(CONFIG);
    for version in Version::SPOKEN {
        let mut busy = Client::new(&daemon, version);
        busy.change(FlowCommand::Delete, "");
        busy.add("priority=40000,actions=output:9");
        let mut watcher = Client::new(&daemon, version);
        let flags =
            MonitorFlags { initial: true, added: true, removed: true, modified: true, actions: true, own: false };
        let (command, matches) = (MonitorCommand::Add, sluice_flow::Match::ANY);
        let request = MonitorRequest { id: 1, command, flags, out_port: None, out_group: None, table: None, matches };
        watcher.say(&Message::StatsRequest(StatsRequest::Monitors(vec![request]), false), 3);
        let mut known = Known::default();
        known.hear(watcher.hear());
        assert_eq!(known.flows.get(&40_000).map(String::as_str), Some("output:9"), "{version}: there at the start");

        let note = format!("note:{}", vec!["01"; NOTE_SIZE].join("."));
        // Equal matches of many priorities are looked through one by one.
        let flow = |i: u16| format!("priority={i},tcp,nw_src=10.0.{}.{}", i / 256, i % 256);
        (1..=FLOWS).for_each(|i| busy.change(FlowCommand::Add, &format!("{},actions=output:1,{note}", flow(i))));
        for i in 1..=FLOWS {
            match i % 3 {
                0 => busy.change(FlowCommand::DeleteStrict, &flow(i)),
                1 => busy.change(FlowCommand::ModifyStrict, &format!("{},actions=output:2,{note}", flow(i))),
                _ => {}
            }
        }
        // Nobody else waits for the watcher.
        assert_eq!(busy.ask(&Message::BarrierRequest), Message::BarrierReply);

        let left = (1..=FLOWS).filter(|i| i % 3 != 0);
        let mut expected: BTreeMap<u16, String> = left.map(|i| (i, format!("output:{}", 1 + i % 3 % 2))).collect();
        expected.insert(40_000, "output:9".into());
        while known.flows != expected || known.pauses != known.resumed {
            known.hear(watcher.hear());
        }
        assert!(known.pauses != 0, "{version}: it was never too slow");
    }
    let limits = daemon.ctl(&["sluice/limits-show"]);
    let met = limits.lines().find(|line| line.starts_with("limit-monitor-updates")).unwrap();
    assert_ne!(met.split_whitespace().nth(3), Some("0"), "{met}");
    assert_eq!(daemon.signal("TERM").code, Some(0));
}
