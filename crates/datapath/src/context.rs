//! What every stage works with.

use crate::capture::Taps;
use crate::stage_cycles::StageClock;
use sluice_action::FlowId;
use sluice_fate::{DropReason, Tally};
use sluice_flow::{PacketKey, layout};
use sluice_flow_cache::{FlowCounters, Megaflow, MegaflowTable};
use sluice_packet::headers::ip_proto;
use sluice_packet::{Buffers, Packet, VlanLimit};
use sluice_simd::compare;
use sluice_sync::Slots;

/// The megaflows under the guard of this iteration, counters, buffers, tally and time.
pub(crate) struct Context<'a, 'g> {
    pub flows: Slots<'g, Megaflow>,
    pub table: &'a MegaflowTable,
    pub counters: &'a FlowCounters,
    pub buffers: &'a mut Buffers,
    pub tally: &'a mut Tally,
    pub clock: &'a mut StageClock,
    /// Captures, if there are any.
    pub taps: Option<&'a mut Taps>,
    pub now_ms: u64,
    /// How many tags are read of a packet whose key is extracted again.
    pub vlan_limit: VlanLimit,
}

impl<'g> Context<'_, 'g> {
    /// The same context with another tally.
    #[inline]
    pub fn counting_into<'b>(&'b mut self, tally: &'b mut Tally) -> Context<'b, 'g> {
        Context {
            flows: self.flows,
            table: self.table,
            counters: self.counters,
            buffers: self.buffers,
            tally,
            clock: self.clock,
            taps: self.taps.as_deref_mut(),
            now_ms: self.now_ms,
            vlan_limit: self.vlan_limit,
        }
    }

    /// Counts a packet of this key for a megaflow.
    #[inline(always)]
    pub fn count(&self, flow: FlowId, packet: &Packet, key: &PacketKey) {
        self.counters.add(flow, packet.frame.len() as u64, tcp_flags(key), self.now_ms);
    }

    /// Drops a packet for `reason`.
    #[inline]
    pub fn discard(&mut self, packet: Packet, reason: DropReason) {
        if let Some(taps) = &mut self.taps {
            taps.dropped(&packet, reason);
        }
        self.discard_untapped(packet, reason);
    }

    /// The same for a caller that has asked whether there are captures.
    #[inline]
    pub fn discard_untapped(&mut self, packet: Packet, reason: DropReason) {
        self.tally.drop(reason, 1);
        self.buffers.give_frame(packet.frame);
    }
}

/// The TCP flags of a packet, none if it is not TCP.
#[inline(always)]
pub(crate) fn tcp_flags(key: &PacketKey) -> u16 {
    let words = compare::words(&key.lines[0].0);
    let flags = (words[layout::TCP_FLAGS.offset / 8] >> (layout::TCP_FLAGS.offset % 8 * 8)) as u16;
    let proto = (words[layout::NW_PROTO.offset / 8] >> (layout::NW_PROTO.offset % 8 * 8)) as u8;
    if proto == ip_proto::TCP { u16::from_be(flags) } else { 0 }
}
