//! Changes of the tables: flow-mods one by one, which are done many at a time, and bundles.

use crate::connection::{Connection, End};
use crate::flows::refusal;
use crate::ports;
use sluice_ofp::FlowMod;
use sluice_ofproto::{BundleChange, ExecuteRequest, Requester};
use sluice_openflow::message::connection::BUNDLE_ATOMIC;
use sluice_openflow::message::flow_mod::FlowModMessage;
use sluice_openflow::{BundleCommit, Error, Message, Request, bundled};

/// Flow-mods that are done together at most. So many pay for the locks and the look at the megaflows; with more,
/// others wait longer for the tables.
const TOGETHER_MAX: usize = 64;

/// Flow-mods that have come and are not done yet: nothing that comes behind them is done before.
#[derive(Default)]
pub struct Waiting(Vec<(Request, Box<FlowModMessage>)>);

impl Connection {
    /// Takes a flow-mod, to be done with those that come behind it.
    pub(crate) fn take_flow_mod(&mut self, request: Request, m: Box<FlowModMessage>) {
        if m.buffer_id.is_some() {
            return self.session.refuse(&request, Error::RequestBufferUnknown);
        }
        // Open vSwitch keeps flows of its own in that table.
        if m.flow.table == Some(254) {
            return self.session.refuse(&request, Error::RequestEperm);
        }
        self.waiting.0.push((request, m));
        // Who watches is told which request each change came of.
        if self.waiting.0.len() >= TOGETHER_MAX || self.hub.is_watched() {
            self.do_flow_mods();
        }
    }

    /// Does the flow-mods that wait.
    pub(crate) fn do_flow_mods(&mut self) {
        let Some((first, _)) = self.waiting.0.first() else { return };
        let by = Some(self.requester(first));
        let changes: Vec<&FlowMod> = self.waiting.0.iter().map(|(_, m)| &m.flow).collect();
        let done = self.switch.ofproto.flow_mods(&self.hub.bridge, &changes, by, self.switch.now_ms());
        let waiting = std::mem::take(&mut self.waiting.0);
        match done {
            Ok((changed, refused)) => {
                refused.iter().for_each(|(i, error)| self.session.refuse(&waiting[*i].0, refusal(error)));
                if changed.deleted != 0 {
                    self.switch.publish_removed();
                }
                if refused.len() < waiting.len() {
                    self.switch.hurry();
                }
            }
            Err(error) => waiting.iter().for_each(|(request, _)| self.session.refuse(request, refusal(&error))),
        }
    }

    pub(crate) fn requester(&self, request: &Request) -> Requester {
        Requester { connection: self.mailbox.number(), xid: request.xid }
    }

    /// Does a bundle's messages, all or none.
    pub(crate) fn commit(&mut self, request: &Request, commit: &BundleCommit) -> Result<(), End> {
        let table_in_command = self.session.table_in_command();
        // Read while they are done: once read they take ten times as much memory.
        let messages = || bundled(&commit.messages, table_in_command);
        let is_other = |message: &Message| !matches!(message, Message::FlowMod(_) | Message::GroupMod(_));
        let others = if commit.only_tables { Vec::new() } else { messages().filter(|(_, m)| is_other(m)).collect() };
        for (bytes, message) in &others {
            if let Err(error) = self.check_bundled(message, commit.control.flags) {
                self.session.refuse_bundled(&commit.control, bytes, error);
                self.session.refuse(request, Error::BundleMsgFailed);
                return Ok(());
            }
        }
        let changes = messages().filter_map(|(_, message)| self.change(message));
        let by = Some(self.requester(request));
        let done = self.switch.ofproto.ordered_bundle(&self.hub.bridge, changes, by, self.switch.now_ms());
        let packets = match done {
            Ok((_, packets)) => packets,
            Err((place, error)) => {
                let mut changes = messages().filter(|(_, message)| self.change(message.clone()).is_some());
                if let Some((bytes, _)) = changes.nth(place) {
                    self.session.refuse_bundled(&commit.control, bytes, refusal(&error));
                }
                self.session.refuse(request, Error::BundleMsgFailed);
                return Ok(());
            }
        };
        self.switch.hurry();
        self.switch.publish_removed();
        let mut packets = packets.into_iter();
        for (bytes, message) in others {
            if let Err(error) = self.do_bundled(&message, &mut packets) {
                self.session.refuse_bundled(&commit.control, bytes, error);
            }
        }
        self.session.bundle_done(request, &commit.control);
        Ok(())
    }

    /// What a bundle's message is to the tables, if anything.
    fn change(&self, message: Message) -> Option<BundleChange> {
        match message {
            Message::FlowMod(m) => Some(BundleChange::Flow(Box::new(m.flow))),
            Message::GroupMod(m) => Some(BundleChange::Group(*m)),
            Message::PacketOut(m) => Some(BundleChange::Packet(Box::new(self.controllers_packet(&m).ok()??))),
            _ => None,
        }
    }

    /// Refuses what could not be done once the tables have changed.
    fn check_bundled(&self, message: &Message, flags: u16) -> Result<(), Error> {
        match message {
            // Changes of ports are seen one after the other. Source: Open vSwitch, `do_bundle_commit`.
            Message::PortMod(_) if flags & BUNDLE_ATOMIC != 0 => Err(Error::BundleMsgFailed),
            Message::PortMod(m) => ports::check_port_mod(&self.switch, &self.hub.bridge, m).map(drop),
            Message::PacketOut(m) => self.controllers_packet(m).map(drop),
            _ => Ok(()),
        }
    }

    /// Changes of ports, and packets, which have been translated.
    fn do_bundled(&self, message: &Message, packets: &mut impl Iterator<Item = ExecuteRequest>) -> Result<(), Error> {
        match message {
            Message::PortMod(m) => ports::port_mod(&self.switch, &self.hub, m),
            Message::PacketOut(m) if self.controllers_packet(m)?.is_some() => match packets.next() {
                Some(translated) => self.send_out(&m.data, translated),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }
}
