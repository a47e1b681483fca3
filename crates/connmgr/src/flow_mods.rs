//! Changes of the tables: flow-mods, which are applied several at a time, and bundles.

use crate::close_reason::CloseReason;
use crate::conn_origin::ConnOrigin;
use crate::connection::Connection;
use crate::flows::refusal;
use crate::ports;
use sluice_clock::now_ms;
use sluice_ofp::FlowMod;
use sluice_ofproto::{BundleChange, ExecuteRequest, Requester, RuleOwner};
use sluice_openflow::message::connection::BUNDLE_ATOMIC;
use sluice_openflow::message::flow_mod::FlowModMessage;
use sluice_openflow::{BundleCommit, Error, Header, Message, Request, bundled};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

/// Flow-mods that are applied together at most. This many share the cost of the locks and of revalidation; with more, other
/// users of the tables would wait longer.
const BATCH_MAX: usize = 64;

/// Flow-mods that have come and are not applied yet. No later request is carried out before them.
#[derive(Default)]
pub struct PendingFlowMods(Vec<(Request, FlowModMessage)>);

impl Connection {
    /// Takes a flow-mod, to be applied together with those that follow it.
    pub(crate) fn queue_flow_mod(&mut self, request: Request, m: FlowModMessage) {
        if m.buffer_id.is_some() {
            return self.session.refuse(&request, Error::RequestBufferUnknown);
        }
        self.pending.0.push((request, m));
        // Flow updates name the request that made each change.
        if self.pending.0.len() >= BATCH_MAX || self.conn_mgr.is_monitored() {
            self.carry_out_flow_mods();
        }
    }

    /// Applies the flow-mods that wait.
    pub(crate) fn carry_out_flow_mods(&mut self) {
        let Some((first, _)) = self.pending.0.first() else { return };
        let by = Some(self.requester(first));
        let changes: Vec<&FlowMod> = self.pending.0.iter().map(|(_, m)| &*m.flow).collect();
        let done = self.switch.ofproto.flow_mods(&self.conn_mgr.bridge, &changes, by, self.switch.now_ms());
        let waiting = std::mem::take(&mut self.pending.0);
        match done {
            Ok((changed, refused)) => {
                refused.iter().for_each(|(i, error)| self.session.refuse(&waiting[*i].0, refusal(error)));
                let mut refused_next = refused.iter().map(|(i, _)| *i).peekable();
                for (i, (_, m)) in waiting.iter().enumerate() {
                    if refused_next.next_if_eq(&i).is_none() {
                        self.flow_mod_report.count(m.flow.command, now_ms());
                    }
                }
                if changed.deleted != 0 {
                    self.switch.publish_removed();
                }
                if refused.len() < waiting.len() {
                    self.switch.revalidate_soon();
                }
            }
            Err(error) => waiting.iter().for_each(|(request, _)| self.session.refuse(request, refusal(&error))),
        }
    }

    pub(crate) fn requester(&self, request: &Request) -> Requester {
        Requester { connection: self.handle.number(), xid: request.xid, owner: self.rule_owner() }
    }

    /// Who owns the rules and groups that it makes.
    pub(crate) fn rule_owner(&self) -> RuleOwner {
        match (self.handle.origin(), &self.controller) {
            // By its target, so that it has the same share after it has connected again.
            (ConnOrigin::Controller, Some(controller)) => RuleOwner::Controller(
                BuildHasherDefault::<DefaultHasher>::default().hash_one(controller.settings.target.to_string()),
            ),
            (ConnOrigin::Listener(_), _) => RuleOwner::Peers,
            _ => RuleOwner::Operator,
        }
    }

    /// Carries out a bundle's messages, all or none.
    pub(crate) fn commit(&mut self, request: &Request, commit: &BundleCommit) -> Result<(), CloseReason> {
        let table_in_command = self.session.table_in_command();
        // They are read when they are needed, because a message takes ten times as much memory once it is read.
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
        let (mut commands, mut has_groups) = (Vec::new(), false);
        let changes = messages().filter_map(|(_, message)| {
            match &message {
                Message::FlowMod(m) => commands.push(m.flow.command),
                Message::GroupMod(_) => has_groups = true,
                _ => {}
            }
            self.change(message)
        });
        let by = Some(self.requester(request));
        let done = self.switch.ofproto.ordered_bundle(&self.conn_mgr.bridge, changes, by, self.switch.now_ms());
        let packets = match done {
            Ok((_, packets)) => packets,
            Err((index, error)) => {
                let mut changes = messages().filter(|(_, message)| self.change(message.clone()).is_some());
                if let Some((bytes, _)) = changes.nth(index) {
                    self.session.refuse_bundled(&commit.control, bytes, refusal(&error));
                }
                self.session.refuse(request, Error::BundleMsgFailed);
                return Ok(());
            }
        };
        self.switch.revalidate_soon();
        self.switch.publish_removed();
        let mut packets = packets.into_iter();
        for (bytes, message) in others {
            if let Err(error) = self.carry_out_bundled(&message, &mut packets) {
                self.session.refuse_bundled(&commit.control, bytes, error);
            }
        }
        let now_ms = now_ms();
        commands.into_iter().for_each(|command| self.flow_mod_report.count(command, now_ms));
        if has_groups {
            for (bytes, group_mod) in messages().filter(|(_, message)| matches!(message, Message::GroupMod(_))) {
                self.forward(Header::read(bytes).map_or(0, |header| header.xid), group_mod);
            }
        }
        self.session.bundle_done(request, &commit.control);
        Ok(())
    }

    /// The change of the tables that a bundle's message asks for, if any.
    fn change(&self, message: Message) -> Option<BundleChange> {
        match message {
            Message::FlowMod(m) => Some(BundleChange::Flow(m.flow)),
            Message::GroupMod(m) => Some(BundleChange::Group(*m)),
            Message::PacketOut(m) => Some(BundleChange::Packet(Box::new(self.read_packet_out(&m).ok()??))),
            _ => None,
        }
    }

    /// Refuses messages that could fail after the tables have changed.
    fn check_bundled(&self, message: &Message, flags: u16) -> Result<(), Error> {
        match message {
            // Port changes cannot be made visible all at once. Source: Open vSwitch, `do_bundle_commit`.
            Message::PortMod(_) if flags & BUNDLE_ATOMIC != 0 => Err(Error::BundleMsgFailed),
            Message::PortMod(m) => ports::check_port_mod(&self.switch, &self.conn_mgr.bridge, m).map(drop),
            Message::PacketOut(m) => self.read_packet_out(m).map(drop),
            _ => Ok(()),
        }
    }

    /// Carries out what is left once the tables have changed: port changes, and packets, which have been translated.
    fn carry_out_bundled(
        &self,
        message: &Message,
        packets: &mut impl Iterator<Item = ExecuteRequest>,
    ) -> Result<(), Error> {
        match message {
            Message::PortMod(m) => ports::port_mod(&self.switch, &self.conn_mgr, &self.handle, m),
            Message::PacketOut(m) if self.read_packet_out(m)?.is_some() => match packets.next() {
                Some(translated) => self.send_out(&m.data, translated),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }
}
