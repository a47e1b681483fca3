//! Packets from and to controllers.

use crate::backend;
use crate::connection::Connection;
use crate::hub::Packet;
use sluice_flow::{FieldId, FlowKey, Match, Metadata, PacketKey, extract};
use sluice_ofproto::{ExecuteRequest, PacketOutRequest, ResumeRequest};
use sluice_openflow::message::connection::AsyncKind;
use sluice_openflow::{Continuation, Error, Message, PacketIn, PacketInFormat, PacketOut, check_prerequisites};
use std::sync::Arc;

/// What a packet's bytes say; nothing if they are too few to be one.
fn read_packet(bytes: &[u8]) -> Option<PacketKey> {
    let mut key = PacketKey::ZERO;
    extract(bytes, &Metadata::of_port(0), &mut key).ok().map(|()| key)
}

impl Connection {
    /// Does with a packet what a controller says.
    pub(crate) fn packet_out(&mut self, m: &PacketOut) -> Result<(), Error> {
        let Some(packet) = self.controllers_packet(m)? else { return Ok(()) };
        let translated = self.switch.ofproto.packet_out(&self.hub.bridge, &packet, self.switch.now_ms());
        let translated = translated.map_err(|error| crate::flows::refusal(&error))?;
        self.send_out(&m.data, translated)
    }

    /// Sends a packet as it was translated.
    pub(crate) fn send_out(&self, data: &[u8], translated: ExecuteRequest) -> Result<(), Error> {
        let ExecuteRequest { known, actions } = translated;
        let packet = backend::PacketOut { key: known, bytes: data.to_vec(), actions };
        self.switch.backend.send_packet(packet).map_err(|_| Error::RequestBadPacket)
    }

    /// Lets a packet go on that waited for the controller.
    pub(crate) fn resume(&mut self, m: PacketIn) -> Result<(), Error> {
        // Without a continuation, or with one of a bridge that has gone, nobody knows how.
        let continuation = m.continuation.filter(|c| c.bridge == self.hub.id).ok_or(Error::ResumeStale)?;
        let Some(key) = read_packet(&m.data) else { return Ok(()) };
        let packet = ResumeRequest::new(&key, &m.metadata, continuation.paused, m.data.len() as u64);
        let translated = self.switch.ofproto.resume(&self.hub.bridge, &packet, self.switch.now_ms());
        let translated = translated.map_err(|error| crate::flows::refusal(&error))?;
        self.send_out(&m.data, translated)
    }

    /// What the tables are to know of a controller's packet; nothing if it is too short to be one.
    pub(crate) fn controllers_packet(&self, m: &PacketOut) -> Result<Option<PacketOutRequest>, Error> {
        if m.buffer_id.is_some() {
            return Err(Error::RequestBufferUnknown);
        }
        // OpenFlow allows what is too short to be a packet, an empty one included: there is nothing to send.
        let Some(key) = read_packet(&m.data) else { return Ok(None) };
        let packet = PacketOutRequest::new(&key, &m.metadata, m.actions.clone(), m.data.len() as u64);
        let exactly = Match::new(FlowKey::ONES, &packet.key);
        check_prerequisites(&m.actions, &exactly, None, self.version())?;
        Ok(Some(packet))
    }

    /// Hands a packet to the controller, if it wants it, as soon as its limit allows.
    pub(crate) fn packet_in(&mut self, packet: &Arc<Packet>) {
        if !self.wants_packet(packet) {
            return;
        }
        match &mut self.limits {
            None => self.send_packet(packet),
            Some(limits) => {
                if let Some(packet) = limits.offer(packet, self.switch.now_ms()) {
                    self.send_packet(&packet);
                }
            }
        }
    }

    /// Sends the packets that had to wait, as far as the limit allows.
    pub(crate) fn send_delayed(&mut self) {
        if self.limits.is_none() {
            return;
        }
        let now_ms = self.switch.now_ms();
        while let Some(packet) = self.limits.as_mut().and_then(|limits| limits.next(now_ms)) {
            // It may have changed its mind meanwhile.
            if self.wants_packet(&packet) {
                self.send_packet(&packet);
            }
        }
    }

    fn wants_packet(&self, packet: &Packet) -> bool {
        let wants = self.session.wants(AsyncKind::PacketIn, packet.reason as u32);
        wants && packet.controller_id == self.session.controller_id()
    }

    fn send_packet(&mut self, packet: &Packet) {
        let max_len = usize::from(self.session.connection_config().miss_send_len);
        let length = if packet.is_miss() { packet.bytes.len().min(max_len) } else { packet.bytes.len() };
        let format = self.session.packet_in_format();
        // What only a continuation could use is not for controllers that cannot have one.
        let userdata = if format == PacketInFormat::Nxt2 { packet.context.userdata.clone() } else { Vec::new() };
        let bridge = self.hub.id;
        let continuation = packet.context.paused.clone().map(|paused| Box::new(Continuation { bridge, paused }));
        let message = PacketIn {
            format,
            reason: packet.reason,
            table: packet.context.table,
            cookie: packet.cookie,
            total_len: packet.total_len as u32,
            metadata: packet.context.metadata,
            data: packet.bytes[..length].to_vec(),
            userdata,
            continuation,
        };
        debug_assert!(message.metadata.field(FieldId::InPort).1 != 0, "a packet-in says where it came in");
        self.session.send(&Message::PacketIn(Box::new(message)));
    }
}
