//! A peer of the switch: a client that connects to it, or a controller that it connects to.

use sluice_flow::{Match, PortNames};
use sluice_ofp::{FlowCommand, FlowMod, OfAction};
use sluice_openflow::message::flow_mod::FlowModMessage;
use sluice_openflow::message::flow_stats::FlowRequest;
use sluice_openflow::message::stats::{StatsReply, StatsRequest};
use sluice_openflow::message::switch::SwitchConfig;
use sluice_openflow::{Error, Format, Framer, Message, Version};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Longer than anything here takes on a busy machine: it ends tests that hang.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Transaction ids of the switch's own messages and of changes here.
const NO_REPLY: u32 = 0;

/// A peer of the switch.
pub struct Peer<S> {
    pub stream: S,
    pub version: Version,
    framer: Framer,
    next_xid: u32,
    /// Messages that were no reply.
    unasked: VecDeque<Message>,
}

pub type Client = Peer<UnixStream>;

impl Client {
    /// Connects to a Unix socket and exchanges hellos.
    pub fn connect(socket: &Path, version: Version) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Peer::greet(stream, version)
    }
}

impl<S: Read + Write> Peer<S> {
    /// Exchanges hellos.
    pub fn greet(stream: S, version: Version) -> Self {
        let mut peer = Peer { stream, version, framer: Framer::default(), next_xid: 1, unasked: VecDeque::new() };
        peer.send(&Message::Hello(Some(version.bit())));
        assert!(matches!(peer.receive(), Some((_, Message::Hello(_)))));
        peer
    }

    /// Sends a message to which there is no reply, unless it is refused.
    pub fn send(&mut self, message: &Message) {
        self.stream.write_all(&message.write(self.version, NO_REPLY)).unwrap();
    }

    /// The next message with its transaction id; `None` once the switch has closed the connection.
    pub fn receive(&mut self) -> Option<(u32, Message)> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(message) = self.framer.next_message().unwrap() {
                let (_, xid, message) = Message::read(message, false).unwrap();
                return Some((xid, message));
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(n) => self.framer.push(&buffer[..n]),
                Err(error) => panic!("nothing comes: {error}"),
            }
        }
    }

    /// The reply to a request, or the error.
    pub fn ask(&mut self, request: &Message) -> Message {
        self.next_xid += 1;
        self.stream.write_all(&request.write(self.version, self.next_xid)).unwrap();
        loop {
            let (xid, message) = self.receive().expect("the switch closed the connection");
            if xid == self.next_xid {
                return message;
            }
            self.unasked.push_back(message);
        }
    }

    /// The error that a request is refused with.
    pub fn refused(&mut self, request: &Message) -> Error {
        match self.ask(request) {
            Message::Error(code, _) => Error::from_code(code, self.version).unwrap(),
            other => panic!("not refused: {other:?}"),
        }
    }

    /// Waits until the switch has carried out everything before.
    pub fn barrier(&mut self) {
        assert_eq!(self.ask(&Message::BarrierRequest), Message::BarrierReply);
    }

    /// The messages until now that were no reply, echo requests aside.
    pub fn unasked(&mut self) -> Vec<Message> {
        self.barrier();
        let all = std::mem::take(&mut self.unasked);
        all.into_iter().filter(|message| !matches!(message, Message::EchoRequest(_))).collect()
    }

    /// The next message that is no reply.
    pub fn next_unasked(&mut self) -> Message {
        loop {
            let message = self.unasked.pop_front();
            let message = message.unwrap_or_else(|| self.receive().expect("the switch closed the connection").1);
            if !matches!(message, Message::EchoRequest(_)) {
                return message;
            }
        }
    }

    /// Asks for asynchronous messages, which a client does not get unless it has set a length for packets.
    pub fn want_async(&mut self) {
        self.send(&Message::SetConfig(SwitchConfig { flags: 0, miss_send_len: 128 }));
        self.barrier();
    }

    /// A flow-mod as a message.
    pub fn flow_mod(command: FlowCommand, text: &str) -> Message {
        let flow = FlowMod::parse(text, command, &PortNames::NONE).unwrap();
        let message =
            FlowModMessage { flow: Box::new(flow), buffer_id: None, format: Format::Standard, table_in_command: false };
        Message::FlowMod(message)
    }

    /// Changes the rules.
    pub fn change(&mut self, command: FlowCommand, text: &str) {
        self.send(&Self::flow_mod(command, text));
        self.barrier();
        assert!(!self.unasked.iter().any(|message| matches!(message, Message::Error(..))), "{:?}", self.unasked);
    }

    /// Adds a rule.
    pub fn add(&mut self, text: &str) {
        self.change(FlowCommand::Add, text);
    }

    /// The rules as lines, without counters.
    pub fn flows(&mut self) -> Vec<String> {
        match self.ask(&Message::StatsRequest(StatsRequest::Flows(Box::new(all_flows())), false)) {
            Message::StatsReply(StatsReply::Flows(_, flows), false) => {
                let actions = |actions| OfAction::display_list(actions, &PortNames::NONE).to_string();
                flows.iter().map(|flow| format!("{} {}", flow.matches, actions(&flow.actions))).collect()
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A request for all rules.
pub fn all_flows() -> FlowRequest {
    FlowRequest {
        format: Format::Standard,
        matches: Match::ANY,
        table: None,
        out_port: None,
        out_group: None,
        cookie: 0,
        cookie_mask: 0,
    }
}
