//! Packets from and to controllers.

use super::connection::Connection;
use super::hub::Packet;
use sluice_action::PortNo;
use sluice_flow::{FieldId, FlowKey, Match, Metadata, PacketKey, extract, layout};
use sluice_ofproto::{ControllersPacket, Translated};
use sluice_openflow::message::connection::AsyncKind;
use sluice_openflow::{Error, Message, PacketIn, PacketInFormat, PacketOut, check_prerequisites};
use std::sync::Arc;

/// The datapath port of packets that come from none.
const NO_PORT: PortNo = PortNo(u32::MAX);

impl Connection {
    /// Does with a packet what a controller says.
    pub(super) fn packet_out(&mut self, m: &PacketOut) -> Result<(), Error> {
        let Some(packet) = self.controllers_packet(m)? else { return Ok(()) };
        let translated = self.switch.ofproto.packet_out(&self.hub.bridge, &packet, self.switch.now_ms());
        let translated = translated.map_err(|error| super::flows::refusal(&error))?;
        self.send_out(m, translated)
    }

    /// Sends a packet as it was translated.
    pub(super) fn send_out(&self, m: &PacketOut, translated: Translated) -> Result<(), Error> {
        let in_port = translated.in_port.unwrap_or(NO_PORT);
        self.switch.send_packet(in_port, m.data.clone(), translated.actions).map_err(|_| Error::RequestBadPacket)
    }

    /// What the tables are to know of a controller's packet; nothing if it is too short to be one.
    pub(super) fn controllers_packet(&self, m: &PacketOut) -> Result<Option<ControllersPacket>, Error> {
        if m.buffer_id.is_some() {
            return Err(Error::RequestBufferUnknown);
        }
        let mut key = PacketKey::ZERO;
        // OpenFlow allows what is too short to be a packet, an empty one included: there is nothing to send.
        if extract(&m.data, &Metadata::of_port(0), &mut key).is_err() {
            return Ok(None);
        }
        let mut flow = FlowKey::of_packet(&key);
        for (line, (said, mask)) in flow.lines.iter_mut().zip(m.metadata.key.lines.iter().zip(m.metadata.mask.lines)) {
            line.0
                .iter_mut()
                .zip(said.0.iter().zip(mask.0))
                .for_each(|(to, (said, mask))| *to = *to & !mask | said & mask);
        }
        flow.set_number(layout::IN_PORT, m.in_port().0.into());
        let exactly = Match::new(FlowKey::ONES, &flow);
        check_prerequisites(&m.actions, &exactly, None, self.version())?;
        Ok(Some(ControllersPacket { key: flow, actions: m.actions.clone(), length: m.data.len() as u64 }))
    }

    /// Hands a packet to the controller, if it wants it, as soon as its limit allows.
    pub(super) fn packet_in(&mut self, packet: &Arc<Packet>) {
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
    pub(super) fn send_delayed(&mut self) {
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
        let message = PacketIn {
            format,
            reason: packet.reason,
            table: packet.context.table,
            cookie: packet.cookie,
            total_len: packet.total_len as u32,
            metadata: packet.context.metadata,
            data: packet.bytes[..length].to_vec(),
            userdata,
        };
        debug_assert!(message.metadata.field(FieldId::InPort).1 != 0, "a packet-in says where it came in");
        self.session.send(&Message::PacketIn(Box::new(message)));
    }
}
