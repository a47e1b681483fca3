//! The switch's end of one connection: versions, roles, formats, bundles. Bytes go in and requests come out; replies go
//! in and bytes come out. It knows neither time nor sockets.

mod rights;

use crate::bundle::Bundles;
use crate::message::connection::{ASYNC_KINDS, AsyncKind, AsyncMasks, BundleAdd, BundleControl, Role, RoleMessage};
use crate::message::only_switches_send;
use crate::message::switch::{INVALID_TTL_TO_CONTROLLER, SwitchConfig};
use crate::{
    Error, Format, Framer, HEADER_SIZE, Header, MESSAGE_MAX, Message, MessageText, N_TABLES, OptionLengths,
    PacketInFormat, Version, VersionBitmap,
};
use rights::{changes_switch, is_from_switch};
use sluice_fate::MemoryShare;
use sluice_ofp::ofpact::PacketInReason;

/// Bytes of an offending message that its error carries: as many as fit behind the error's type and code, as in Open
/// vSwitch.
const OFFENDING_MAX: usize = MESSAGE_MAX - HEADER_SIZE - 12;

/// The last of the types that are the same in all versions.
const ECHO_REPLY: u8 = 3;

/// Bytes of a table miss's packet that a controller gets by default.
/// Source: OpenFlow 1.0, `OFP_DEFAULT_MISS_SEND_LEN`.
const MISS_SEND_LEN: u16 = 128;

/// Messages that are logged a minute. Source: Open vSwitch, vconn.c, `ofmsg_rl`.
const MESSAGES_LOGGED: u64 = 600;

/// Reasons of packet-ins that OpenFlow 1.4 has beside [`PacketInReason::Action`], as bits.
const PARTS_OF_ACTION: u32 =
    1 << PacketInReason::ActionSet as u32 | 1 << PacketInReason::Group as u32 | 1 << PacketInReason::PacketOut as u32;

/// The peer of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A controller that the switch connects to.
    Controller,
    /// A client that connects to the switch. It gets asynchronous messages only after it has asked for packets.
    Client,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionState {
    /// The peer's hello has not come.
    Greeting,
    /// A version has been negotiated.
    Open(Version),
    /// No more messages are read.
    Closed,
}

/// A message that may be refused: its first bytes go back with the error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its transaction.
    pub xid: u32,
    /// Its bytes.
    message: Vec<u8>,
}

impl Request {
    fn new(xid: u32, message: &[u8]) -> Self {
        Request { xid, message: message[..message.len().min(OFFENDING_MAX)].to_vec() }
    }
}

/// Something for the switch to do or to know.
#[derive(Debug, PartialEq)]
pub enum Event {
    /// A version has been negotiated.
    Ready(Version),
    /// A request to carry out.
    Request(Request, Message),
    /// A controller requests a role.
    Role(Request, RoleMessage),
    /// A bundle's messages are to be carried out, all or none; [`crate::bundled`] reads them.
    Commit(Request, BundleCommit),
    /// A message could not be read; the error has been sent.
    Refused(Error),
    /// A message was of this version, not of the negotiated one; the error has been sent.
    BadVersion(u8),
}

/// A bundle to carry out.
#[derive(Debug, PartialEq)]
pub struct BundleCommit {
    /// Its messages' bytes.
    pub messages: Vec<u8>,
    /// Whether all of them change flows and groups.
    pub only_tables: bool,
    /// Its control message, for the reply.
    pub control: BundleControl,
}

/// The switch's end of a connection.
#[derive(Debug)]
pub struct Session {
    peer: Peer,
    /// The versions that may be spoken, and those that the peer speaks, once that is known.
    versions: [VersionBitmap; 2],
    state: SessionState,
    framer: Framer,
    out: Vec<u8>,
    /// Copies of the messages in both directions, if they are wanted.
    copies: Option<Vec<u8>>,
    bundles: Bundles,
    table_in_command: bool,
    flow_format: Format,
    packet_in_format: PacketInFormat,
    controller_id: u16,
    role: Role,
    masks: [[u32; 2]; ASYNC_KINDS],
    config: SwitchConfig,
    /// Whether the controller gets no asynchronous messages before it asks for them.
    is_silent: bool,
    /// How long tunnel options are in what is sent.
    option_lengths: OptionLengths,
    /// The peer's name in the log of messages; `None`: they are not logged.
    log_name: Option<String>,
}

impl Session {
    /// A new connection that may speak some versions, [`Version::all`] for example. Its first output is a hello.
    pub fn new(peer: Peer, versions: u32) -> Self {
        let versions = versions & Version::all();
        let mut session = Session {
            peer,
            versions: [VersionBitmap(versions), VersionBitmap(0)],
            state: SessionState::Greeting,
            framer: Framer::default(),
            out: Vec::new(),
            copies: None,
            bundles: Bundles::default(),
            table_in_command: false,
            flow_format: Format::Standard,
            packet_in_format: PacketInFormat::Standard,
            controller_id: 0,
            role: Role::Equal,
            masks: default_masks(Version::V10),
            is_silent: false,
            option_lengths: OptionLengths::default(),
            log_name: None,
            config: SwitchConfig { flags: 0, miss_send_len: if peer == Peer::Controller { MISS_SEND_LEN } else { 0 } },
        };
        session.out = Message::Hello(Some(versions)).write(Version::highest(versions).unwrap_or(Version::V10), 0);
        session
    }

    /// Charges the memory of its bundles to that share. Called before the first bundle.
    pub fn use_bundle_memory(&mut self, share: MemoryShare) {
        self.bundles = Bundles::new(share);
    }

    /// Writes tunnel options as long as a bridge maps them.
    pub fn use_option_lengths(&mut self, lengths: OptionLengths) {
        self.option_lengths = lengths;
    }

    /// The message of a request that is forwarded to this peer.
    pub fn written(&self, message: &Message, xid: u32) -> Vec<u8> {
        message.write_with(&self.option_lengths, self.version().unwrap_or(Version::V10), xid)
    }

    /// The controller gets no asynchronous messages before it asks for them. Called before its hello is read.
    pub fn begin_silent(&mut self) {
        self.is_silent = true;
    }

    /// Logs the messages in both directions from now on, those that wait to be sent first: for `vlog/set vconn:dbg`.
    pub fn log_as(&mut self, name: String) {
        self.log_name = Some(name);
        self.log("sent (Success)", &self.out);
    }

    fn log(&self, what: &str, messages: &[u8]) {
        let Some(name) = self.log_name.as_ref().filter(|_| tracing::enabled!(target: "vconn", tracing::Level::DEBUG))
        else {
            return;
        };
        let mut rest = messages;
        while let Some((message, after)) = Header::read(rest)
            .ok()
            .and_then(|header| rest.split_at_checked(usize::from(header.length).max(HEADER_SIZE)))
        {
            rest = after;
            let text = MessageText::new(message, self.table_in_command);
            tracing::debug!(target: "vconn", rate_limit = MESSAGES_LOGGED, "{name}: {what}: {text}");
        }
    }

    /// Bytes that [`Session::push`] takes now.
    pub fn free_space(&self) -> usize {
        self.framer.free_space()
    }

    /// Takes bytes that the peer has sent, [`Session::free_space`] at most.
    pub fn push(&mut self, bytes: &[u8]) {
        self.framer.push(bytes);
    }

    /// Whether no more messages are read: the connection is to be closed once its output has been sent.
    pub fn is_closed(&self) -> bool {
        self.state == SessionState::Closed
    }

    /// The negotiated version, if there is one.
    pub fn version(&self) -> Option<Version> {
        match self.state {
            SessionState::Open(version) => Some(version),
            _ => None,
        }
    }

    /// The versions that may be spoken, and those that the peer speaks: none before its hello.
    pub fn versions(&self) -> [VersionBitmap; 2] {
        self.versions
    }

    /// Bytes that wait to be sent.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Reads messages until one of them is for the switch; `None` if none is.
    pub fn next_event(&mut self) -> Option<Event> {
        while self.state != SessionState::Closed {
            let mut framer = std::mem::take(&mut self.framer);
            let event = match framer.next_message() {
                Ok(Some(message)) => self.read(message),
                Ok(None) => {
                    self.framer = framer;
                    return None;
                }
                // The beginning of the next message is unknown.
                Err(error) => {
                    self.state = SessionState::Closed;
                    Some(Event::Refused(error))
                }
            };
            self.framer = framer;
            if event.is_some() {
                return event;
            }
        }
        None
    }

    fn read(&mut self, bytes: &[u8]) -> Option<Event> {
        let header = Header::read(bytes).ok()?;
        let request = Request::new(header.xid, bytes);
        self.log("received", bytes);
        let SessionState::Open(version) = self.state else { return self.greet(&header, bytes) };
        // A second hello has no effect.
        if header.kind == 0 {
            return None;
        }
        if let Some(copies) = &mut self.copies {
            copies.extend(bytes);
        }
        // Hellos, errors and echoes are the same in all versions.
        if header.version != version as u8 && header.kind > ECHO_REPLY {
            self.refuse_version(&request, header.version);
            return Some(Event::BadVersion(header.version));
        }
        let read = match only_switches_send(header.kind, version) {
            true => Err(Error::RequestBadType),
            false => Message::read(bytes, self.table_in_command),
        };
        let done = read.and_then(|(.., m)| self.handle(&request, m, version));
        match done {
            Ok(None) => None,
            Ok(Some(Handover::Request(message))) => Some(Event::Request(request, message)),
            Ok(Some(Handover::Role(m))) => Some(Event::Role(request, m)),
            Ok(Some(Handover::Commit(commit))) => Some(Event::Commit(request, commit)),
            Err(error) => {
                self.refuse(&request, error);
                Some(Event::Refused(error))
            }
        }
    }

    /// The first message must be a hello. It settles the version.
    fn greet(&mut self, header: &Header, bytes: &[u8]) -> Option<Event> {
        let Ok((_, _, Message::Hello(bitmap))) = Message::read(bytes, false) else {
            self.state = SessionState::Closed;
            return Some(Event::Refused(Error::RequestBadType));
        };
        let theirs = bitmap.map_or(VersionBitmap::up_to(header.version), VersionBitmap);
        self.versions[1] = theirs;
        let [ours, _] = self.versions;
        let Some(version) = Version::highest(ours.0 & theirs.0) else {
            // The error is in the peer's version.
            let version = Version::highest(theirs.0).unwrap_or(Version::V10);
            let text = format!("We support {ours}, you support {theirs}, no common versions.").into_bytes();
            let error = Message::Error(Error::HelloIncompatible.code(version), text);
            self.out.extend(error.write(version, header.xid));
            self.state = SessionState::Closed;
            return Some(Event::Refused(Error::HelloIncompatible));
        };
        self.state = SessionState::Open(version);
        self.masks = if self.is_silent { [[0; 2]; ASYNC_KINDS] } else { default_masks(version) };
        Some(Event::Ready(version))
    }

    /// Carries out messages that concern the connection alone; the others are for the switch.
    fn handle(&mut self, request: &Request, message: Message, version: Version) -> Result<Option<Handover>, Error> {
        if self.role == Role::Secondary && changes_switch(&message) {
            return Err(Error::RequestIsSecondary);
        }
        match message {
            Message::EchoRequest(data) => self.reply(request, &Message::EchoReply(data)),
            Message::SetFlowFormat(format) => self.flow_format = format,
            Message::FlowModTableId(set) => self.table_in_command = set,
            Message::SetPacketInFormat(format) => self.packet_in_format = format,
            Message::SetControllerId(id) => self.controller_id = id,
            Message::GetAsyncRequest => {
                let masks = AsyncMasks::within(&self.masks, version);
                self.reply(request, &Message::GetAsyncReply(masks));
            }
            Message::SetAsync(masks) => self.set_masks(&masks, version),
            // Open vSwitch keeps rules of its own in the table behind the last.
            Message::FlowMod(m) if m.flow.table == Some(N_TABLES) => return Err(Error::RequestEperm),
            Message::RoleRequest(m) => return Ok(Some(Handover::Role(m))),
            Message::BundleAdd(m) => self.bundles.add(request, &m, version, self.table_in_command)?,
            Message::BundleControl(control) => match self.bundles.control(request, &control)? {
                Some(commit) => return Ok(Some(Handover::Commit(commit))),
                None => self.bundle_done(request, &control),
            },
            Message::GetConfigRequest | Message::SetConfig(_) => {
                return Ok(Some(Handover::Request(self.config(message))));
            }
            Message::EchoReply(_) | Message::FlowAge => {}
            _ if is_from_switch(&message) => return Err(Error::RequestBadType),
            _ => return Ok(Some(Handover::Request(message))),
        }
        Ok(None)
    }

    /// Notes how many bytes of a packet the controller wants, and whether it wants packets with an invalid TTL.
    fn config(&mut self, message: Message) -> Message {
        if let Message::SetConfig(config) = message {
            self.config.miss_send_len = config.miss_send_len;
            let wants = config.flags & INVALID_TTL_TO_CONTROLLER != 0;
            let bit = 1 << PacketInReason::InvalidTtl as u32;
            let primary = &mut self.masks[AsyncKind::PacketIn as usize][0];
            *primary = if wants { *primary | bit } else { *primary & !bit };
            self.config.flags = config.flags & INVALID_TTL_TO_CONTROLLER;
        }
        message
    }

    /// The part of the configuration that each connection has for itself.
    pub fn connection_config(&self) -> SwitchConfig {
        self.config
    }

    /// A controller that wants packets which no flow matches also wants those that the table-miss flow sends; before
    /// OpenFlow 1.3 there is no such flow. Before OpenFlow 1.4 one reason covers all actions.
    /// Source: Open vSwitch, `decode_async_mask`, `ofconn_set_async_config`.
    fn set_masks(&mut self, masks: &AsyncMasks, version: Version) {
        for (own, new) in self.masks.iter_mut().flatten().zip(masks.0.iter().flatten()) {
            *own = new.unwrap_or(*own);
        }
        for own in &mut self.masks[AsyncKind::PacketIn as usize] {
            if version < Version::V14 && *own & 1 << PacketInReason::Action as u32 != 0 {
                *own |= PARTS_OF_ACTION;
            }
            if *own & 1 << PacketInReason::NoMatch as u32 != 0 {
                *own |= 1 << PacketInReason::ExplicitMiss as u32;
                *own |= u32::from(version < Version::V13) << PacketInReason::ImplicitMiss as u32;
            }
        }
        // A client that says what it wants gets it. Source: Open vSwitch, `handle_nxt_set_async_config`.
        if self.peer == Peer::Client && self.config.miss_send_len == 0 {
            self.config.miss_send_len = MISS_SEND_LEN;
        }
    }

    /// Begins or ends copying the messages in both directions.
    pub fn copy(&mut self, wanted: bool) {
        if wanted != self.copies.is_some() {
            self.copies = wanted.then(Vec::new);
        }
    }

    /// The copies since the last call: messages, one after the other.
    pub fn take_copies(&mut self) -> Vec<u8> {
        self.copies.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn put(&mut self, message: &Message, xid: u32) {
        let Some(version) = self.version() else { return };
        let bytes = message.write_with(&self.option_lengths, version, xid);
        self.log("sent (Success)", &bytes);
        if let Some(copies) = &mut self.copies {
            copies.extend(&bytes);
        }
        self.out.extend(bytes);
    }

    /// Sends a reply.
    pub fn reply(&mut self, request: &Request, message: &Message) {
        self.put(message, request.xid);
    }

    /// Sends an error about a request.
    pub fn refuse(&mut self, request: &Request, error: Error) {
        let Some(version) = self.version() else { return };
        self.put(&Message::Error(error.code(version), request.message.clone()), request.xid);
    }

    /// Sends an error about a message of another version, in that version if there is one.
    fn refuse_version(&mut self, request: &Request, version: u8) {
        let version = Version::from_wire(version).unwrap_or(Version::V15);
        let code = Error::RequestBadVersion.code(version);
        let bytes = Message::Error(code, request.message.clone()).write(version, request.xid);
        if let Some(copies) = &mut self.copies {
            copies.extend(&bytes);
        }
        self.out.extend(bytes);
    }

    /// Sends an error about a message of a bundle: the error refers to the bundle-add message that carried it.
    pub fn refuse_bundled(&mut self, control: &BundleControl, message: &[u8], error: Error) {
        if let (Ok(header), Some(version)) = (Header::read(message), self.version()) {
            let add = BundleAdd { id: control.id, flags: control.flags, message: message.to_vec() };
            let whole = Message::BundleAdd(add).write(version, header.xid);
            self.refuse(&Request::new(header.xid, &whole), error);
        }
    }

    /// Notes the time. Bundles that no message was about for `idle_max_ms` end with an error about what opened them.
    pub fn expire_bundles(&mut self, now_ms: u64, idle_max_ms: u64) {
        for request in self.bundles.expire(now_ms, idle_max_ms) {
            self.refuse(&request, Error::BundleTimeout);
        }
    }

    /// How many bundles are open.
    pub fn open_bundles(&self) -> usize {
        self.bundles.len()
    }

    /// When the next bundle ends that no message is about, if bundles may be idle for `idle_max_ms`.
    pub fn bundles_due_ms(&self, idle_max_ms: u64) -> Option<u64> {
        self.bundles.due_ms(idle_max_ms)
    }

    /// Confirms a bundle's control message. Replies have no flags, as in Open vSwitch.
    pub fn bundle_done(&mut self, request: &Request, control: &BundleControl) {
        let reply = BundleControl { is_reply: true, flags: 0, ..*control };
        self.reply(request, &Message::BundleControl(reply));
    }

    /// Sends an asynchronous message.
    pub fn send(&mut self, message: &Message) {
        self.put(message, 0);
    }

    /// Whether the controller wants an asynchronous message of this kind and reason.
    pub fn wants(&self, kind: AsyncKind, reason: u32) -> bool {
        let silent = self.peer == Peer::Client && self.config.miss_send_len == 0;
        let mask = self.masks[kind as usize][usize::from(self.role == Role::Secondary)];
        self.version().is_some() && !silent && reason < 32 && mask >> reason & 1 != 0
    }

    /// The connection's controller id, for `controller(id=…)`.
    pub fn controller_id(&self) -> u16 {
        self.controller_id
    }

    /// The format of packet-ins.
    pub fn packet_in_format(&self) -> PacketInFormat {
        self.packet_in_format
    }

    /// The format of flows in OpenFlow 1.0.
    pub fn flow_format(&self) -> Format {
        self.flow_format
    }

    /// Whether flow-mods have the table's number in their command.
    pub fn table_in_command(&self) -> bool {
        self.table_in_command
    }

    /// The controller's role.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Sets the controller's role.
    pub fn set_role(&mut self, role: Role) {
        self.role = role;
    }
}

/// A message that the connection alone cannot handle.
enum Handover {
    Request(Message),
    Role(RoleMessage),
    Commit(BundleCommit),
}

/// The asynchronous messages that a controller gets by default. Source: Open vSwitch, `ofputil_async_cfg_default`.
fn default_masks(version: Version) -> [[u32; 2]; ASYNC_KINDS] {
    let mut masks = [[0; 2]; ASYNC_KINDS];
    let mut packet_in = 0x3f & !(1 << PacketInReason::InvalidTtl as u32) | 1 << PacketInReason::ExplicitMiss as u32;
    if version < Version::V13 {
        packet_in |= 1 << PacketInReason::ImplicitMiss as u32;
    }
    masks[AsyncKind::PacketIn as usize][0] = packet_in;
    masks[AsyncKind::FlowRemoved as usize][0] = if version >= Version::V14 { 0x3f } else { 0xf };
    masks[AsyncKind::PortStatus as usize] = [0x7; 2];
    masks
}

#[cfg(test)]
mod tests;
