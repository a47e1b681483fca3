//! OpenFlow clients of a running switch: a polite one, and hostile ones that must not disturb it.

mod common;

use common::Daemon;
use sluice_flow::{FlowCommand, FlowMod, PortNames};
use sluice_openflow::message::flow_mod::FlowModMessage;
use sluice_openflow::message::flow_stats::FlowRequest;
use sluice_openflow::message::stats::{StatsReply, StatsRequest};
use sluice_openflow::{Format, Framer, Message, Version};
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
        let flow = FlowMod::parse(text, FlowCommand::Add, &PortNames::NONE).unwrap();
        let message = FlowModMessage { flow, buffer_id: None, format: Format::Standard, table_in_command: false };
        self.say(&Message::FlowMod(Box::new(message)), 7);
        assert_eq!(self.ask(&Message::BarrierRequest), Message::BarrierReply);
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
                .map(|f| format!("{} {}", f.matches, sluice_flow::OfAction::display_list(&f.actions, &PortNames::NONE)))
                .collect(),
            other => panic!("{other:?}"),
        }
    }
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
