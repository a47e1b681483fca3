//! Packets from and to controllers.

use crate::async_msg::PacketInMsg;
use crate::backend;
use crate::connection::Connection;
use sluice_action::{ALLOCATION_BYTES, actions_bytes};
use sluice_fate::MemoryCharge;
use sluice_flow::{FieldId, FlowKey, Match, Metadata, PacketKey, VlanLimit, extract};
use sluice_ofproto::{ExecuteRequest, PacketOutRequest, ResumeRequest};
use sluice_openflow::message::connection::AsyncKind;
use sluice_openflow::{Continuation, Error, Message, PacketIn, PacketInFormat, PacketOut, check_prerequisites};
use std::sync::Arc;
use std::time::Duration;

/// The longest of the pauses, each twice as long as the one before, in which a connection waits for the datapath to send
/// its packets.
const PACKET_OUT_PAUSE_MAX_MS: u64 = 64;

/// Extracts a packet's fields; `None` if it has too few bytes.
fn read_packet(bytes: &[u8], vlan_limit: VlanLimit) -> Option<PacketKey> {
    let mut key = PacketKey::ZERO;
    extract(bytes, &Metadata::of_port(0).with_vlan_limit(vlan_limit), &mut key).ok().map(|()| key)
}

impl Connection {
    /// Sends a controller's packet.
    pub(crate) fn packet_out(&mut self, m: &PacketOut) -> Result<(), Error> {
        let Some(packet) = self.read_packet_out(m)? else { return Ok(()) };
        let translated = self.switch.ofproto.packet_out(&self.conn_mgr.bridge, &packet, self.switch.now_ms());
        let translated = translated.map_err(|error| crate::flows::refusal(&error))?;
        self.send_out(&m.data, translated)
    }

    /// All earlier requests have been carried out but for packets, which the datapath forwards by itself. What they tell
    /// this controller goes in front of the reply.
    pub(crate) fn barrier(&mut self) -> Message {
        if self.has_sent_packets.take() {
            self.switch.backend.wait_for_packets();
            self.send_async();
        }
        Message::BarrierReply
    }

    /// Sends a packet that has been translated.
    pub(crate) fn send_out(&self, data: &[u8], translated: ExecuteRequest) -> Result<(), Error> {
        let ExecuteRequest { known, actions } = translated;
        self.has_sent_packets.set(true);
        let size = size_of::<backend::PacketOut>() + actions_bytes(&actions) + ALLOCATION_BYTES + data.len();
        let charge = self.wait_for_room(size).ok_or(Error::RequestEperm)?;
        let packet = backend::PacketOut { key: known, bytes: data.to_vec(), actions, charge };
        self.switch.backend.send_packet(packet).map_err(|_| Error::RequestBadPacket)
    }

    /// The charge for a packet that waits for the datapath. If the connection's packets have filled their memory it waits
    /// a while, and meanwhile does not read its peer; `None` if there is no room after that either.
    fn wait_for_room(&self, size: usize) -> Option<MemoryCharge> {
        let pauses = std::iter::successors(Some(0), |ms: &u64| Some((2 * ms).max(1)));
        let mut attempts = pauses.take_while(|ms| *ms <= PACKET_OUT_PAUSE_MAX_MS).map(|ms| {
            std::thread::sleep(Duration::from_millis(ms));
            MemoryCharge::take(&self.packet_outs, size, 0)
        });
        attempts.find_map(|charge| charge)
    }

    /// Resumes a packet that was paused for the controller.
    pub(crate) fn resume(&mut self, m: PacketIn) -> Result<(), Error> {
        // It may have no continuation, or that of an earlier bridge of this name.
        let continuation = m.continuation.filter(|c| c.bridge == self.conn_mgr.id).ok_or(Error::ResumeStale)?;
        let Some(key) = read_packet(&m.data, self.switch.ofproto.vlan_limit()) else { return Ok(()) };
        let packet = ResumeRequest::new(&key, &m.metadata, continuation.paused, m.data.len() as u64);
        let translated = self.switch.ofproto.resume(&self.conn_mgr.bridge, &packet, self.switch.now_ms());
        let translated = translated.map_err(|error| crate::flows::refusal(&error))?;
        self.send_out(&m.data, translated)
    }

    /// Checks a packet-out and extracts the packet's fields; `None` if the packet has too few bytes.
    pub(crate) fn read_packet_out(&self, m: &PacketOut) -> Result<Option<PacketOutRequest>, Error> {
        if m.buffer_id.is_some() {
            return Err(Error::RequestBufferUnknown);
        }
        // OpenFlow allows packets that are too short, even empty ones: there is nothing to send.
        let Some(key) = read_packet(&m.data, self.switch.ofproto.vlan_limit()) else { return Ok(None) };
        let packet = PacketOutRequest::new(&key, &m.metadata, m.actions.clone(), m.data.len() as u64);
        let exactly = Match::new(FlowKey::ONES, &packet.key);
        check_prerequisites(&m.actions, &exactly, None, self.version())?;
        Ok(Some(packet))
    }

    /// Sends a packet-in, if the controller wants it, as soon as its limit allows.
    pub(crate) fn packet_in(&mut self, packet: &Arc<PacketInMsg>) {
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

    /// Sends the packets that the limit has delayed, as far as it allows now.
    pub(crate) fn send_delayed(&mut self) {
        if self.limits.is_none() {
            return;
        }
        let now_ms = self.switch.now_ms();
        while let Some(packet) = self.limits.as_mut().and_then(|limits| limits.next(now_ms)) {
            // The controller may have changed its settings meanwhile.
            if self.wants_packet(&packet) {
                self.send_packet(&packet);
            }
        }
    }

    fn wants_packet(&self, packet: &PacketInMsg) -> bool {
        let wants = self.session.wants(AsyncKind::PacketIn, packet.reason as u32);
        wants && packet.controller_id == self.session.controller_id()
    }

    fn send_packet(&mut self, packet: &PacketInMsg) {
        let max_len = usize::from(self.session.connection_config().miss_send_len);
        let length = if packet.is_miss() { packet.bytes.len().min(max_len) } else { packet.bytes.len() };
        let format = self.session.packet_in_format();
        // Only NXT_PACKET_IN2 carries user data.
        let userdata = if format == PacketInFormat::Nxt2 { packet.metadata.userdata.clone() } else { Vec::new() };
        let bridge = self.conn_mgr.id;
        let continuation = packet.metadata.paused.clone().map(|paused| Box::new(Continuation { bridge, paused }));
        let message = PacketIn {
            format,
            reason: packet.reason,
            table: packet.metadata.table,
            cookie: packet.cookie,
            total_len: packet.total_len as u32,
            metadata: packet.metadata.metadata.clone(),
            data: packet.bytes[..length].to_vec(),
            userdata,
            continuation,
        };
        debug_assert!(message.metadata.field(FieldId::InPort).1 != 0, "a packet-in says where it came in");
        self.session.send(&Message::PacketIn(Box::new(message)));
    }
}
