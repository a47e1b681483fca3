//! Actions, one by one, on one packet.
//!
//! An action that sends the packet somewhere takes a copy, unless it is the last of its kind: that one takes the
//! packet. So a list that outputs once copies nothing. Every handle, packet or copy, meets one fate.
//!
//! Nested lists are executed by recursion, as deep as translation nests them. A key is half a kilobyte, so what keeps a copy of
//! one and nests nothing is never inlined: its copy would be in the frame of each level. What stands behind a `ct` is not nested:
//! when a datagram is complete, its fragments wait on a stack of their own ([`Executor::resume_from`]), because a list
//! may have as many `ct` as it has actions.

use crate::action_context::ActionContext;
use crate::batch::{Batch, Origin};
use crate::compose::HOPS_MAX;
use crate::context::Context;
use crate::deferred::DeferredUpcalls;
use crate::meter::PmdMeters;
use crate::punts::Punts;
use crate::reassembly::Onward;
use crate::recirc::RecircQueue;
use crate::tracking::{Gathered, Tracking, forget, renames};
use crate::tunnel;
use crate::tx::TxPorts;
use sluice_action::{Action, Actions, BondTable, Ct, HashAlgorithm, Header, MaskedField, PortNo, SFlowAction};
use sluice_conntrack::CachedConn;
use sluice_conntrack::fragments::{HeldFragment, is_fragment};
use sluice_fate::{Counter, DropReason};
use sluice_flow::hash::{five_tuple, symmetric_l3l4};
use sluice_flow::{PacketKey, layout};
use sluice_packet::VlanLimit;
use sluice_packet::headers::ETHERNET_SIZE;
use sluice_simd::Isa;
use sluice_simd::hash::splitmix64;
use std::ops::Range;
use std::sync::Arc;

/// What actions work with.
pub(crate) struct Executor {
    pub tx: TxPorts,
    pub tracking: Tracking,
    pub recirc: RecircQueue,
    /// Packets whose misses wait for the tables: those of the queue that is served, or of the switch's own.
    pub deferred: Box<DeferredUpcalls>,
    pub meters: PmdMeters,
    pub punts: Punts,
    /// Fragments of complete datagrams that go on, the next one last, with the arrival that completed them.
    pub resumed: Vec<(HeldFragment<Onward>, u32)>,
    /// For actions that take a share of the packets.
    pub random: u64,
    /// The sequence number of the next packet of a tunnel that numbers them.
    pub sequence: u32,
    /// The number of the worker that this is part of.
    pub worker: usize,
}

impl Executor {
    /// Ends a burst: sends what waits, and settles with the meters.
    #[inline]
    pub fn end_burst(&mut self, context: &mut Context<'_, '_>) {
        self.tx.flush(context);
        self.meters.return_tokens();
        if let Some(taps) = &mut context.taps {
            taps.end_burst();
        }
    }

    /// Tracks a batch in place, if that is all it needs before its next pass; see [`Tracking::track_batch`].
    #[inline]
    pub fn track_in_place(&mut self, batch: &mut Batch<'_, '_>, context: &mut Context<'_, '_>) -> bool {
        let origins = &batch.origins[..batch.packets.len()];
        origins.iter().all(|origin| self.recirc.admits(origin)) && self.tracking.track_batch(batch, context)
    }

    /// Takes the headers of tunnels off a batch in place, if that is all it needs before its next pass; see
    /// [`tunnel::pop_batch`].
    #[inline]
    pub fn pop_in_place(&mut self, isa: Isa, batch: &mut Batch<'_, '_>, context: &mut Context<'_, '_>) -> bool {
        let origins = &batch.origins[..batch.packets.len()];
        if !origins.iter().all(|origin| self.recirc.admits(origin)) || !tunnel::pop_batch(isa, batch, context) {
            return false;
        }
        let origins = &batch.origins[..batch.packets.len()];
        batch.begins_path = origins.iter().all(|origin| self.recirc.admits_passes(origin, HOPS_MAX));
        true
    }

    /// Sends a batch by tunnels, if that is all that it needs; see [`tunnel::send_batch`].
    #[inline]
    pub fn send_by_tunnels(&mut self, isa: Isa, batch: &mut Batch<'_, '_>, context: &mut Context<'_, '_>) -> bool {
        tunnel::send_batch(isa, batch, &mut self.sequence, &mut self.tx, context)
    }

    /// Executes `actions` on a packet, and what it completes on the fragments that waited for it.
    #[inline]
    pub fn execute(&mut self, actions: &Actions, action_context: ActionContext<'_>, context: &mut Context<'_, '_>) {
        let waiting = self.resumed.len();
        self.execute_from(actions, 0, action_context, context);
        if self.resumed.len() > waiting {
            self.resume_from(waiting, context);
        }
    }

    /// Executes the actions from index `from` on. Fragments that go on are left in `resumed`.
    fn execute_from(
        &mut self,
        list: &Actions,
        from: usize,
        mut action_context: ActionContext<'_>,
        context: &mut Context<'_, '_>,
    ) {
        let actions = &list[from..];
        let Some(last) = actions.iter().rposition(Action::sends) else {
            return self.end(list, from, action_context, context);
        };
        for (i, action) in actions[..last].iter().enumerate() {
            if let Action::Ct(ct) = action {
                match self.gather(ct, ActionsBehind { list, from: from + i + 1 }, action_context, context) {
                    Some(alone) => action_context = alone,
                    None => return,
                }
            }
            if action.sends() {
                self.send_copy(action, &mut action_context, context);
            } else if let Err(reason) = self.change(action, &mut action_context, context) {
                return context.discard(action_context.packet, reason);
            }
        }
        self.track_behind(list, from + last + 1, &action_context, context);
        self.send(&actions[last], action_context, context);
    }

    /// Executes actions that send the packet nowhere. A `ct` among them may begin a connection all the same, and the packet
    /// may be sampled.
    fn end(
        &mut self,
        list: &Actions,
        from: usize,
        mut action_context: ActionContext<'_>,
        context: &mut Context<'_, '_>,
    ) {
        let actions = &list[from..];
        let up_to_last =
            actions.iter().rposition(|action| tracks(action) || samples(action)).map_or(0, |last| last + 1);
        for (i, action) in actions[..up_to_last].iter().enumerate() {
            if let Action::Ct(ct) = action {
                match self.gather(ct, ActionsBehind { list, from: from + i + 1 }, action_context, context) {
                    Some(alone) => action_context = alone,
                    None => return,
                }
            }
            if let Err(reason) = self.change(action, &mut action_context, context) {
                return context.discard(action_context.packet, reason);
            }
        }
        context.discard(action_context.packet, action_context.no_output);
    }

    /// Holds a fragment that meets a `ct` with `rest` behind it. If its datagram is complete now, all its fragments are
    /// put on `resumed`. Returns the packet if it goes on alone.
    fn gather<'k>(
        &mut self,
        ct: &Ct,
        rest: ActionsBehind<'_>,
        action_context: ActionContext<'k>,
        context: &mut Context<'_, '_>,
    ) -> Option<ActionContext<'k>> {
        let arrival = action_context.origin.arrival;
        match self.tracking.gather(ct, rest, action_context, context) {
            Gathered::Alone(action_context) => return Some(action_context),
            Gathered::Held => {}
            Gathered::Complete(mut fragments) => {
                self.resumed.extend(fragments.drain(..).rev().map(|fragment| (fragment, arrival)));
                self.tracking.reassembly.recycle(fragments);
            }
        }
        None
    }

    /// Lets a fragment go on, as if it had come with the packet of that arrival.
    pub fn resume(&mut self, fragment: HeldFragment<Onward>, arrival: u32, context: &mut Context<'_, '_>) {
        let waiting = self.resumed.len();
        self.resumed.push((fragment, arrival));
        self.resume_from(waiting, context);
    }

    /// Lets the fragments go on that stand on `resumed` above the first `waiting`, and those that they complete.
    #[cold]
    fn resume_from(&mut self, waiting: usize, context: &mut Context<'_, '_>) {
        while self.resumed.len() > waiting {
            self.resume_last(context);
        }
    }

    /// Executes the actions behind the `ct` of the fragment that stands last on `resumed`.
    fn resume_last(&mut self, context: &mut Context<'_, '_>) {
        let Some((mut fragment, arrival)) = self.resumed.pop() else { return };
        context.buffers.add_pool(&fragment.pool);
        let Onward { list, from, depth, conn, no_output, cut, pushed_tags, .. } = fragment.onward;
        let (origin, key) = (Origin { arrival, depth }, &mut fragment.key);
        let action_context = ActionContext::new(fragment.packet, key, origin, conn, no_output);
        self.execute_from(&list, from, ActionContext { cut, pushed_tags, ..action_context }, context);
    }

    /// Lets a scratch copy meet each `ct` that stands behind the last action that sends.
    #[inline]
    fn track_behind(
        &mut self,
        list: &Actions,
        from: usize,
        action_context: &ActionContext<'_>,
        context: &mut Context<'_, '_>,
    ) {
        if let Some(last) = list[from..].iter().rposition(tracks) {
            self.track_copy(list, from..from + last + 1, action_context, context);
        }
    }

    /// Lets a scratch copy meet these actions of a list, of which the last is a `ct` and none sends.
    #[inline(never)]
    fn track_copy(
        &mut self,
        list: &Actions,
        which: Range<usize>,
        action_context: &ActionContext<'_>,
        context: &mut Context<'_, '_>,
    ) {
        let mut key = *action_context.key;
        let packet = match context.buffers.copy(&action_context.packet) {
            Ok(packet) => packet,
            Err(reason) => {
                context.tally[Counter::Cloned] += 1;
                return context.tally.drop(reason, 1);
            }
        };
        let mut scratch = action_context.with_copy(packet, &mut key);
        if is_fragment(scratch.key) {
            // It may be held, and then is a packet of its own.
            context.tally[Counter::Cloned] += 1;
            let waiting = self.resumed.len();
            self.end(list, which.start, scratch, context);
            return self.resume_from(waiting, context);
        }
        let mut changes = list[which].iter();
        let _ = changes.try_for_each(|action| self.change(action, &mut scratch, context));
        context.buffers.give_frame(scratch.packet.frame);
    }

    /// Lets a copy of the packet meet an action that sends.
    fn send_copy(&mut self, action: &Action, action_context: &mut ActionContext<'_>, context: &mut Context<'_, '_>) {
        if let Action::Sample { probability, .. } = action
            && !self.chance(*probability)
        {
            return;
        }
        context.tally[Counter::Cloned] += 1;
        // A controller or a session gets bytes of its own, which are no copy in a buffer of ours.
        if let Action::Controller { .. } | Action::Bfd { .. } | Action::Lacp { .. } = action {
            return self.punts.punt(action, action_context, context);
        }
        let mut key = *action_context.key;
        match context.buffers.copy(&action_context.packet) {
            Ok(packet) => {
                if let Some(taps) = &mut context.taps {
                    taps.copied(&action_context.packet, &packet);
                }
                let copy = action_context.with_copy(packet, &mut key);
                self.send_now(action, copy, context);
            }
            Err(reason) => {
                if let Some(taps) = &mut context.taps {
                    taps.dropped(&action_context.packet, reason);
                }
                context.tally.drop(reason, 1);
            }
        }
        if let Action::Output(_) | Action::BondOutput { .. } | Action::LbOutput { .. } = action {
            action_context.cut = 0;
        }
    }

    /// Lets the packet itself meet the last action that sends.
    fn send(&mut self, action: &Action, action_context: ActionContext<'_>, context: &mut Context<'_, '_>) {
        if let Action::Sample { probability, .. } = action
            && !self.chance(*probability)
        {
            return context.discard(action_context.packet, action_context.no_output);
        }
        self.send_now(action, action_context, context);
    }

    fn send_now(&mut self, action: &Action, mut action_context: ActionContext<'_>, context: &mut Context<'_, '_>) {
        match action {
            Action::Output(port) => self.output(*port, action_context, context),
            Action::BondOutput { bond, bucket } => self.output_to_bucket(&bond.0, *bucket, action_context, context),
            Action::LbOutput { bond, basis } => self.balance(&bond.0, *basis, action_context, context),
            Action::Recirc(id) => self.recirculate(*id, action_context, context),
            Action::TunnelPop { backend, kind } => self.pop_tunnel((*backend, *kind), action_context, context),
            Action::Clone(actions) | Action::Sample { actions, .. } => {
                action_context.cut = 0;
                self.execute(actions, action_context, context);
            }
            Action::CheckPktLen { len, greater, less_or_equal } => {
                let is_greater = action_context.packet.frame.len() > usize::from(*len);
                self.execute(if is_greater { greater } else { less_or_equal }, action_context, context);
            }
            _ => {
                self.punts.punt(action, &action_context, context);
                context.buffers.give_frame(action_context.packet.frame);
            }
        }
    }

    /// Changes the packet as an action says; `Err` if the action does not fit the packet.
    fn change(
        &mut self,
        action: &Action,
        action_context: &mut ActionContext<'_>,
        context: &mut Context<'_, '_>,
    ) -> Result<(), DropReason> {
        match action {
            // The excess of this moment is cut, whatever is pushed or popped before the output. Source: OVS
            // lib/dp-packet.h.
            Action::Trunc(len) => {
                action_context.cut =
                    action_context.packet.frame.len().saturating_sub((*len as usize).max(ETHERNET_SIZE));
            }
            Action::Drop => return Err(action_context.no_output),
            Action::Ct(ct) => self.tracking.track(ct, action_context, context)?,
            Action::SFlow(sflow) => self.sample(sflow, action_context, context.now_ms),
            Action::CtClear => forget(action_context),
            Action::Meter(meter) => {
                if !self.meters.admit(*meter, action_context.packet.frame.len(), context.now_ms) {
                    return Err(DropReason::Meter);
                }
            }
            Action::TunnelPush(push) => tunnel::push(push, &mut self.sequence, action_context, context)?,
            // It is for a device that would make the tunnel's header; no port here is one.
            Action::SetTunnel(_) => {}
            Action::Hash { algorithm, basis } => hash(*algorithm, *basis, action_context, context.vlan_limit)?,
            Action::Set { header: Header::PktMark, fields } => {
                fields.iter().for_each(|field| set_in_key(field, action_context.key));
            }
            Action::Set { header: Header::SkbPriority, fields } => {
                action_context.packet.queue = fields.first().map_or(0, queue_of);
            }
            Action::Set { header, fields } => {
                action_context.edit(action, context.vlan_limit)?;
                if renames(*header, fields) {
                    action_context.conn.forget();
                }
                match header {
                    // The header is there, or the edit would have failed; so the key has its fields.
                    Header::Ethernet | Header::Ipv4 => {
                        fields.iter().for_each(|field| set_in_key(field, action_context.key));
                    }
                    // Behind broken headers a key may have fewer fields than the packet.
                    _ => action_context.is_dirty = true,
                }
            }
            Action::PushEth { src, dst } => {
                action_context.edit(action, context.vlan_limit)?;
                let key = &mut *action_context.key;
                key.set(layout::DL_SRC, &src.0);
                key.set(layout::DL_DST, &dst.0);
                if key.number(layout::TUN_PAYLOAD) == u64::from(layout::PAYLOAD_BARE) {
                    key.set(layout::TUN_PAYLOAD, &[layout::PAYLOAD_WITH_ETHERNET]);
                }
            }
            _ => {
                action_context.edit(action, context.vlan_limit)?;
                action_context.is_dirty = true;
            }
        }
        Ok(())
    }

    fn output(&mut self, port: PortNo, action_context: ActionContext<'_>, context: &mut Context<'_, '_>) {
        let ActionContext { mut packet, origin, cut, .. } = action_context;
        if cut > 0 {
            let len = packet.frame.len().saturating_sub(cut);
            if len < ETHERNET_SIZE {
                // Tags were popped after the cut.
                return context.discard(packet, DropReason::ActionMismatch);
            }
            packet.frame.truncate(len);
        }
        match self.tx.slot(port) {
            Some(slot) => self.tx.push_in_order(origin.arrival, slot, packet, context),
            None => context.discard(packet, DropReason::TxNoPort),
        }
    }

    fn output_to_bucket(
        &mut self,
        bond: &BondTable,
        bucket: u8,
        action_context: ActionContext<'_>,
        context: &mut Context<'_, '_>,
    ) {
        match bond.port(bucket) {
            Some(port) => self.output(port, action_context, context),
            None => context.discard(action_context.packet, DropReason::BondDown),
        }
    }

    /// Sends a packet by the member of a bond that its hash selects.
    fn balance(
        &mut self,
        bond: &BondTable,
        basis: u32,
        mut action_context: ActionContext<'_>,
        context: &mut Context<'_, '_>,
    ) {
        if let Err(reason) = action_context.read_anew(context.vlan_limit) {
            return context.discard(action_context.packet, reason);
        }
        let bucket = five_tuple(action_context.key, basis) as u8;
        bond.count(bucket, self.worker, action_context.packet.frame.len());
        self.output_to_bucket(bond, bucket, action_context, context);
    }

    #[inline(never)]
    fn recirculate(&mut self, id: u32, mut action_context: ActionContext<'_>, context: &mut Context<'_, '_>) {
        if !self.recirc.admits(&action_context.origin) {
            return context.discard(action_context.packet, DropReason::RecircDepth);
        }
        if let Err(reason) = action_context.read_anew(context.vlan_limit) {
            return context.discard(action_context.packet, reason);
        }
        let ActionContext { packet, key, origin, conn, .. } = action_context;
        key.set(layout::RECIRC_ID, &id.to_be_bytes());
        self.recirc.push(packet, key, Origin { depth: origin.depth + 1, ..origin }, conn);
    }

    /// Takes the header of a tunnel off, and lets what was within take another pass, as if it had come by the tunnel's port.
    #[inline(never)]
    fn pop_tunnel(&mut self, how: tunnel::Pop, action_context: ActionContext<'_>, context: &mut Context<'_, '_>) {
        let ActionContext { mut packet, key, origin, .. } = action_context;
        if !self.recirc.admits(&origin) {
            return context.discard(packet, DropReason::RecircDepth);
        }
        match tunnel::pop(how, &mut packet, key, context.vlan_limit) {
            Some(()) => {
                self.recirc.push(packet, key, Origin { depth: origin.depth + 1, ..origin }, CachedConn::default())
            }
            None => context.discard(packet, DropReason::TunnelPop),
        }
    }

    /// Takes a sample of the packet for the bridge's sFlow agent, if it is its turn.
    #[inline]
    fn sample(&mut self, sflow: &Arc<SFlowAction>, action_context: &ActionContext<'_>, now_ms: u64) {
        if !self.chance(sflow.probability) {
            return;
        }
        let len = action_context.packet.frame.len();
        if sflow.meter.is_none_or(|meter| self.meters.admit(meter, len, now_ms)) {
            self.punts.samples.send(sflow, action_context);
        }
    }

    /// True with a probability of `probability` in 2^32, and always if `probability` is the maximum.
    fn chance(&mut self, probability: u32) -> bool {
        probability == u32::MAX || ((splitmix64(&mut self.random) >> 32) as u32) < probability
    }
}

/// The actions of a list from an index on: those that stand behind a `ct`.
#[derive(Clone, Copy)]
pub(crate) struct ActionsBehind<'a> {
    pub list: &'a Actions,
    pub from: usize,
}

/// Whether an action may begin a connection.
fn tracks(action: &Action) -> bool {
    matches!(action, Action::Ct(_))
}

/// Whether an action takes samples.
fn samples(action: &Action) -> bool {
    matches!(action, Action::SFlow(_))
}

/// Hashes a packet into its key. Never to zero, which means that it was not hashed.
fn hash(
    algorithm: HashAlgorithm,
    basis: u32,
    action_context: &mut ActionContext<'_>,
    vlan_limit: VlanLimit,
) -> Result<(), DropReason> {
    action_context.read_anew(vlan_limit)?;
    let hash = match algorithm {
        HashAlgorithm::L4 => five_tuple(action_context.key, basis),
        HashAlgorithm::SymmetricL4 => symmetric_l3l4(action_context.key, basis, false),
    };
    action_context.key.set(layout::DP_HASH, &hash.max(1).to_be_bytes());
    Ok(())
}

/// The queue that an action sets; it is set as a whole.
fn queue_of(field: &MaskedField) -> u32 {
    let [a, b, c, d, ..] = field.value;
    u32::from_be_bytes([a, b, c, d])
}

/// Sets a field in a key.
fn set_in_key(field: &MaskedField, key: &mut PacketKey) {
    let mut bytes = [0; 16];
    bytes[..field.span.size].copy_from_slice(key.get(field.span));
    let pairs = field.value.iter().zip(&field.mask);
    bytes.iter_mut().zip(pairs).for_each(|(to, (value, mask))| *to = *to & !mask | value & mask);
    key.set(field.span, &bytes[..field.span.size]);
}
