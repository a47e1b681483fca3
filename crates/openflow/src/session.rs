//! The switch's end of one connection: versions, roles, formats, bundles. Bytes go in, requests come out; answers go in,
//! bytes come out. Time and sockets are others' business.

mod rights;

use crate::bundle::Bundles;
use crate::message::connection::{ASYNC_KINDS, AsyncKind, AsyncMasks, BundleAdd, BundleControl, Role, RoleMessage};
use crate::message::only_switches_send;
use crate::message::switch::{INVALID_TTL_TO_CONTROLLER, SwitchConfig};
use crate::{Error, Format, Framer, HEADER_SIZE, Header, MESSAGE_MAX, Message, PacketInFormat, Version};
use rights::{changes_switch, is_from_switch};
use sluice_ofp::ofpact::PacketInReason;

/// Bytes of an offending message that go back with the error: all that an error has room for behind its numbers, as Open
/// vSwitch does.
const OFFENDING_MAX: usize = MESSAGE_MAX - HEADER_SIZE - 12;

/// Bytes of a packet that a controller gets of table misses unless it says otherwise.
/// Source: OpenFlow 1.0, `OFP_DEFAULT_MISS_SEND_LEN`.
const MISS_SEND_LEN: u16 = 128;

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A controller that the switch connects to.
    Controller,
    /// Whoever connects to the switch: gets asynchronous messages only after it has asked for packets.
    Client,
}

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionState {
    /// The other side's hello has not come.
    Greeting,
    /// This version is spoken.
    Open(Version),
    /// Nothing is read any more.
    Closed,
}

/// A message, to be sent back if something is wrong with it.
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

/// What the switch is to do.
#[derive(Debug, PartialEq)]
pub enum Event {
    /// The versions are settled.
    Ready(Version),
    /// A request that concerns the switch.
    Request(Request, Message),
    /// A controller wants a role.
    Role(Request, RoleMessage),
    /// A bundle's messages are to be done, all or none; [`crate::bundled`] reads them.
    Commit(Request, BundleCommit),
    /// Another message's bytes were wrong; the error has been sent.
    Refused(Error),
}

/// A bundle that is to be done.
#[derive(Debug, PartialEq)]
pub struct BundleCommit {
    /// Its messages' bytes.
    pub messages: Vec<u8>,
    /// Whether all of them change flows and groups.
    pub only_tables: bool,
    /// Its control message, for the answer.
    pub control: BundleControl,
}

/// The switch's end of a connection.
#[derive(Debug)]
pub struct Session {
    peer: Peer,
    state: SessionState,
    framer: Framer,
    out: Vec<u8>,
    /// All that is said in either direction, if somebody wants to hear it.
    copies: Option<Vec<u8>>,
    bundles: Bundles,
    table_in_command: bool,
    flow_format: Format,
    packet_in_format: PacketInFormat,
    controller_id: u16,
    role: Role,
    masks: [[u32; 2]; ASYNC_KINDS],
    config: SwitchConfig,
}

impl Session {
    /// A new connection; the first bytes out are a hello.
    pub fn new(peer: Peer) -> Self {
        let mut session = Session {
            peer,
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
            config: SwitchConfig { flags: 0, miss_send_len: if peer == Peer::Controller { MISS_SEND_LEN } else { 0 } },
        };
        session.out = Message::Hello(Some(Version::all())).write(Version::V15, 0);
        session
    }

    /// How many bytes it will take now.
    pub fn free_space(&self) -> usize {
        self.framer.free_space()
    }

    /// Takes bytes that came, [`Session::free_space`] at most.
    pub fn push(&mut self, bytes: &[u8]) {
        self.framer.push(bytes);
    }

    /// Whether nothing is read any more: the connection is to be closed once what is written has gone.
    pub fn is_closed(&self) -> bool {
        self.state == SessionState::Closed
    }

    /// The version spoken, once it is settled.
    pub fn version(&self) -> Option<Version> {
        match self.state {
            SessionState::Open(version) => Some(version),
            _ => None,
        }
    }

    /// Bytes that wait to be sent.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Reads on: the next thing that the switch is to do, if a whole message has come.
    pub fn next_event(&mut self) -> Option<Event> {
        while self.state != SessionState::Closed {
            let mut framer = std::mem::take(&mut self.framer);
            let event = match framer.next_message() {
                Ok(Some(message)) => self.read(message),
                Ok(None) => {
                    self.framer = framer;
                    return None;
                }
                // Where the next message begins is not known.
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
        let SessionState::Open(version) = self.state else { return self.greet(&header, bytes) };
        // A second hello changes nothing.
        if header.kind == 0 {
            return None;
        }
        if let Some(copies) = &mut self.copies {
            copies.extend(bytes);
        }
        if header.version != version as u8 {
            self.refuse(&request, Error::RequestBadVersion);
            self.state = SessionState::Closed;
            return Some(Event::Refused(Error::RequestBadVersion));
        }
        let read = match only_switches_send(header.kind, version) {
            true => Err(Error::RequestBadType),
            false => Message::read(bytes, self.table_in_command),
        };
        let done = read.and_then(|(.., m)| self.handle(&request, m, version));
        match done {
            Ok(None) => None,
            Ok(Some(Handled::Request(message))) => Some(Event::Request(request, message)),
            Ok(Some(Handled::Role(m))) => Some(Event::Role(request, m)),
            Ok(Some(Handled::Commit(commit))) => Some(Event::Commit(request, commit)),
            Err(error) => {
                self.refuse(&request, error);
                Some(Event::Refused(error))
            }
        }
    }

    /// The first message must be a hello; the versions are settled by it.
    fn greet(&mut self, header: &Header, bytes: &[u8]) -> Option<Event> {
        let Ok((_, _, Message::Hello(bitmap))) = Message::read(bytes, false) else {
            self.state = SessionState::Closed;
            return Some(Event::Refused(Error::RequestBadType));
        };
        let common = match bitmap {
            Some(theirs) => Version::highest(theirs & Version::all()),
            // Without a bitmap: the lower of the two highest, if it is one of ours.
            None => Version::from_wire(header.version.min(Version::V15 as u8)),
        };
        let Some(version) = common else {
            let lowest = Version::from_wire(header.version).unwrap_or(Version::V10);
            let text = format!("versions spoken: {:#x}", Version::all()).into_bytes();
            let error = Message::Error(Error::HelloIncompatible.code(lowest), text);
            self.out.extend(error.write(lowest, header.xid));
            self.state = SessionState::Closed;
            return Some(Event::Refused(Error::HelloIncompatible));
        };
        self.state = SessionState::Open(version);
        self.masks = default_masks(version);
        Some(Event::Ready(version))
    }

    /// Does what concerns the connection alone; hands on the rest.
    fn handle(&mut self, request: &Request, message: Message, version: Version) -> Result<Option<Handled>, Error> {
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
            Message::RoleRequest(m) => return Ok(Some(Handled::Role(m))),
            Message::BundleAdd(m) => self.bundles.add(&m, request.xid, version, self.table_in_command)?,
            Message::BundleControl(control) => match self.bundles.control(&control)? {
                Some(commit) => return Ok(Some(Handled::Commit(commit))),
                None => self.bundle_done(request, &control),
            },
            Message::GetConfigRequest | Message::SetConfig(_) => {
                return Ok(Some(Handled::Request(self.config(message))));
            }
            Message::EchoReply(_) | Message::FlowAge => {}
            _ if is_from_switch(&message) => return Err(Error::RequestBadType),
            _ => return Ok(Some(Handled::Request(message))),
        }
        Ok(None)
    }

    /// Notes how much of a packet this controller wants, and whether it wants those whose time to live is over.
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

    /// What this connection has set of the configuration.
    pub fn connection_config(&self) -> SwitchConfig {
        self.config
    }

    /// Whoever wants packets that no flow matches wants those that a flow of priority 0 sends for that reason, too; before
    /// OpenFlow 1.3 there are no such flows. Source: Open vSwitch, `decode_async_mask`.
    fn set_masks(&mut self, masks: &AsyncMasks, version: Version) {
        for (own, new) in self.masks.iter_mut().flatten().zip(masks.0.iter().flatten()) {
            *own = new.unwrap_or(*own);
        }
        for own in &mut self.masks[AsyncKind::PacketIn as usize] {
            if *own & 1 << PacketInReason::NoMatch as u32 != 0 {
                *own |= 1 << PacketInReason::ExplicitMiss as u32;
                *own |= u32::from(version < Version::V13) << PacketInReason::ImplicitMiss as u32;
            }
        }
    }

    /// Copies what is said in either direction from now on, messages one after the other, or no more.
    pub fn copy(&mut self, wanted: bool) {
        if wanted != self.copies.is_some() {
            self.copies = wanted.then(Vec::new);
        }
    }

    /// What has been copied.
    pub fn take_copies(&mut self) -> Vec<u8> {
        self.copies.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn put(&mut self, message: &Message, xid: u32) {
        let Some(version) = self.version() else { return };
        let bytes = message.write(version, xid);
        if let Some(copies) = &mut self.copies {
            copies.extend(&bytes);
        }
        self.out.extend(bytes);
    }

    /// Sends an answer.
    pub fn reply(&mut self, request: &Request, message: &Message) {
        self.put(message, request.xid);
    }

    /// Sends an error about a request.
    pub fn refuse(&mut self, request: &Request, error: Error) {
        let Some(version) = self.version() else { return };
        self.put(&Message::Error(error.code(version), request.message.clone()), request.xid);
    }

    /// Sends an error about a message of a bundle: about the message that it came in.
    pub fn refuse_bundled(&mut self, control: &BundleControl, message: &[u8], error: Error) {
        if let (Ok(header), Some(version)) = (Header::read(message), self.version()) {
            let add = BundleAdd { id: control.id, flags: control.flags, message: message.to_vec() };
            let whole = Message::BundleAdd(add).write(version, header.xid);
            self.refuse(&Request::new(header.xid, &whole), error);
        }
    }

    /// Says that a bundle's step was taken.
    pub fn bundle_done(&mut self, request: &Request, control: &BundleControl) {
        let reply = BundleControl { is_reply: true, ..*control };
        self.reply(request, &Message::BundleControl(reply));
    }

    /// Sends a message that nobody asked for.
    pub fn send(&mut self, message: &Message) {
        self.put(message, 0);
    }

    /// Whether the controller wants an asynchronous message of this kind and reason.
    pub fn wants(&self, kind: AsyncKind, reason: u32) -> bool {
        let silent = self.peer == Peer::Client && self.config.miss_send_len == 0;
        let mask = self.masks[kind as usize][usize::from(self.role == Role::Secondary)];
        self.version().is_some() && !silent && reason < 32 && mask >> reason & 1 != 0
    }

    /// The connection's number, for `controller(id=…)`.
    pub fn controller_id(&self) -> u16 {
        self.controller_id
    }

    /// How packet-ins are to be written.
    pub fn packet_in_format(&self) -> PacketInFormat {
        self.packet_in_format
    }

    /// How flows are to be written, in OpenFlow 1.0.
    pub fn flow_format(&self) -> Format {
        self.flow_format
    }

    /// Whether flow-mods have the table's number in their command.
    pub fn table_in_command(&self) -> bool {
        self.table_in_command
    }

    /// What the controller may do.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Gives it a role.
    pub fn set_role(&mut self, role: Role) {
        self.role = role;
    }
}

/// What is handed on.
enum Handled {
    Request(Message),
    Role(RoleMessage),
    Commit(BundleCommit),
}

/// What a controller gets unless it says otherwise. Source: Open vSwitch, `ofputil_async_cfg_default`.
fn default_masks(version: Version) -> [[u32; 2]; ASYNC_KINDS] {
    let mut masks = [[0; 2]; ASYNC_KINDS];
    let mut packet_in = 0x3f & !(1 << PacketInReason::InvalidTtl as u32) | 1 << PacketInReason::ExplicitMiss as u32;
    if version == Version::V10 {
        packet_in |= 1 << PacketInReason::ImplicitMiss as u32;
    }
    masks[AsyncKind::PacketIn as usize][0] = packet_in;
    masks[AsyncKind::FlowRemoved as usize][0] = if version >= Version::V14 { 0x3f } else { 0xf };
    masks[AsyncKind::PortStatus as usize] = [0x7; 2];
    masks
}

#[cfg(test)]
mod tests;
