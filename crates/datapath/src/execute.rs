//! Actions, one by one, on one packet.
//!
//! An action that sends the packet somewhere takes a copy, unless it is the last of its kind: that one takes the
//! packet. So a list that outputs once copies nothing. Every handle, packet or copy, meets one fate.

use crate::action_context::ActionContext;
use crate::compose::PathRecorder;
use crate::fragments::Reassembly;
use crate::meter::{Meters, PmdMeters};
use crate::recirc::{Origin, Recirc};
use crate::report::PacketIn;
use crate::track;
use crate::tx::{TxPorts, discard};
use crate::walk::Context;
use sluice_action::{Action, HashAlgorithm, Header, MaskedField, PortNo, edit};
use sluice_conntrack::fragments::is_fragment;
use sluice_conntrack::{ConnCache, Conntrack};
use sluice_fate::{Counter, DropReason};
use sluice_flow::hash::{five_tuple, symmetric_l3l4};
use sluice_flow::{PacketKey, extract_again};
use sluice_packet::headers::ETHERNET_SIZE;
use sluice_simd::hash::splitmix64;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// Connections a PMD keeps at hand, in 2 MiB.
const RECENT_CONNECTIONS: usize = 1 << 17;

/// What actions work with: where packets go.
pub(crate) struct Executor {
    pub tx: TxPorts,
    pub recirc: Recirc,
    pub meters: PmdMeters,
    pub conntrack: Arc<Conntrack>,
    /// Connections this PMD met lately.
    pub recent: ConnCache,
    /// Packets that are followed to make composed entries.
    pub recorder: PathRecorder,
    pub reassembly: Reassembly,
    packet_ins: SyncSender<PacketIn>,
    pub random: u64,
}

impl Executor {
    pub fn new(
        (conntrack, reassembly): (Arc<Conntrack>, Reassembly),
        recirc: Recirc,
        meters: Arc<Meters>,
        packet_ins: SyncSender<PacketIn>,
        random: u64,
    ) -> Self {
        let (recent, meters) = (ConnCache::new(RECENT_CONNECTIONS), PmdMeters::new(meters));
        let (tx, recorder) = (TxPorts::default(), PathRecorder::default());
        Executor { tx, recirc, meters, conntrack, recent, reassembly, recorder, packet_ins, random }
    }

    /// Ends a burst: sends what waits, and settles with the meters.
    #[inline]
    pub fn end_burst(&mut self, context: &mut Context<'_, '_>) {
        self.tx.flush(context.buffers, context.tally);
        self.meters.settle();
    }

    /// Executes `actions` on a packet.
    pub fn execute(
        &mut self,
        actions: &[Action],
        mut action_context: ActionContext<'_>,
        context: &mut Context<'_, '_>,
    ) {
        let Some(last) = actions.iter().rposition(Action::sends) else {
            return self.end(actions, action_context, context);
        };
        for (i, action) in actions[..last].iter().enumerate() {
            if let Action::Ct(ct) = action {
                match self.gather(ct, &actions[i + 1..], action_context, context) {
                    Some(alone) => action_context = alone,
                    None => return,
                }
            }
            if action.sends() {
                self.send_copy(action, &mut action_context, context);
            } else if let Err(reason) = self.change(action, &mut action_context, context) {
                return discard(action_context.packet, reason, context.buffers, context.tally);
            }
        }
        self.track_behind(&actions[last + 1..], &action_context, context);
        self.send(&actions[last], action_context, context);
    }

    /// Takes actions that send the packet nowhere. A `ct` among them may begin a connection all the same.
    fn end(&mut self, actions: &[Action], mut action_context: ActionContext<'_>, context: &mut Context<'_, '_>) {
        let up_to_last_ct = actions.iter().rposition(tracks).map_or(0, |last| last + 1);
        for (i, action) in actions[..up_to_last_ct].iter().enumerate() {
            if let Action::Ct(ct) = action {
                match self.gather(ct, &actions[i + 1..up_to_last_ct], action_context, context) {
                    Some(alone) => action_context = alone,
                    None => return,
                }
            }
            if let Err(reason) = self.change(action, &mut action_context, context) {
                return discard(action_context.packet, reason, context.buffers, context.tally);
            }
        }
        discard(action_context.packet, action_context.no_output, context.buffers, context.tally);
    }

    /// Lets a scratch copy meet the `ct`s that stand behind the last action that sends.
    fn track_behind(&mut self, actions: &[Action], action_context: &ActionContext<'_>, context: &mut Context<'_, '_>) {
        let Some(last) = actions.iter().rposition(tracks) else { return };
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
            return self.end(actions, scratch, context);
        }
        let mut changes = actions[..=last].iter();
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
        // What a controller gets are bytes of its own, which are no copy in a buffer of ours.
        if let Action::Controller { .. } = action {
            match self.tell_controller(action, action_context) {
                Ok(()) => context.tally[Counter::Delivered] += 1,
                Err(reason) => context.tally.drop(reason, 1),
            }
            return;
        }
        let mut key = *action_context.key;
        match context.buffers.copy(&action_context.packet) {
            Ok(packet) => {
                let copy = action_context.with_copy(packet, &mut key);
                self.send_now(action, copy, context);
            }
            Err(reason) => context.tally.drop(reason, 1),
        }
        if let Action::Output(_) = action {
            action_context.cut = 0;
        }
    }

    /// Lets the packet itself meet the last action that sends.
    fn send(&mut self, action: &Action, action_context: ActionContext<'_>, context: &mut Context<'_, '_>) {
        if let Action::Sample { probability, .. } = action
            && !self.chance(*probability)
        {
            return discard(action_context.packet, action_context.no_output, context.buffers, context.tally);
        }
        self.send_now(action, action_context, context);
    }

    fn send_now(&mut self, action: &Action, mut action_context: ActionContext<'_>, context: &mut Context<'_, '_>) {
        match action {
            Action::Output(port) => self.output(*port, action_context, context),
            Action::Recirc(id) => self.recirculate(*id, action_context, context),
            Action::Clone(actions) | Action::Sample { actions, .. } => {
                action_context.cut = 0;
                self.execute(actions, action_context, context);
            }
            Action::CheckPktLen { len, greater, less_or_equal } => {
                let is_greater = action_context.packet.frame.len() > usize::from(*len);
                self.execute(if is_greater { greater } else { less_or_equal }, action_context, context);
            }
            _ => {
                let told = self.tell_controller(action, &action_context);
                context.buffers.give_frame(action_context.packet.frame);
                match told {
                    Ok(()) => context.tally[Counter::Delivered] += 1,
                    Err(reason) => context.tally.drop(reason, 1),
                }
            }
        }
    }

    /// Changes the packet as an action says; `Err` if the packet is not one that it can be done to.
    fn change(
        &mut self,
        action: &Action,
        action_context: &mut ActionContext<'_>,
        context: &mut Context<'_, '_>,
    ) -> Result<(), DropReason> {
        match action {
            // What is too long now is left out, whatever is pushed or popped before the output. Source: OVS lib/dp-packet.h.
            Action::Trunc(len) => {
                action_context.cut =
                    action_context.packet.frame.len().saturating_sub((*len as usize).max(ETHERNET_SIZE));
            }
            Action::Drop => return Err(action_context.no_output),
            Action::Ct(ct) => {
                let entropy = splitmix64(&mut self.random);
                let Executor { conntrack, recent, recorder, .. } = self;
                track::track(conntrack, (recent, recorder), ct, entropy, action_context, context)?;
            }
            Action::CtClear => track::forget(action_context),
            Action::Meter(meter) => {
                if !self.meters.admit(*meter, action_context.packet.frame.len(), context.now_ms) {
                    return Err(DropReason::Meter);
                }
            }
            Action::Hash { algorithm, basis } => hash(*algorithm, *basis, action_context)?,
            Action::Set { header: Header::PktMark | Header::SkbPriority | Header::Tunnel, fields } => {
                fields.iter().for_each(|field| set_in_key(field, action_context.key));
            }
            Action::Set { header, fields } => {
                edit(action, &mut action_context.packet)?;
                if track::renames(*header, fields) {
                    action_context.carried.forget();
                }
                match header {
                    // The header is there, or the edit would have failed; so the key has its fields.
                    Header::Ethernet | Header::Ipv4 => {
                        fields.iter().for_each(|field| set_in_key(field, action_context.key));
                    }
                    // Of these a key may know less than there is, behind broken headers.
                    _ => action_context.is_dirty = true,
                }
            }
            _ => {
                edit(action, &mut action_context.packet)?;
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
                return discard(packet, DropReason::ActionMismatch, context.buffers, context.tally);
            }
            packet.frame.truncate(len);
        }
        match self.tx.slot(port) {
            Some(slot) => self.tx.push_in_order(origin.arrival, slot, packet, context.buffers, context.tally),
            None => discard(packet, DropReason::TxNoPort, context.buffers, context.tally),
        }
    }

    fn recirculate(&mut self, id: u32, mut action_context: ActionContext<'_>, context: &mut Context<'_, '_>) {
        if action_context.origin.depth >= self.recirc.max {
            return discard(action_context.packet, DropReason::RecircDepth, context.buffers, context.tally);
        }
        if let Err(reason) = action_context.renew_key() {
            return discard(action_context.packet, reason, context.buffers, context.tally);
        }
        let ActionContext { packet, key, origin, carried, .. } = action_context;
        key.set(sluice_flow::layout::RECIRC_ID, &id.to_be_bytes());
        self.recirc.push(packet, *key, Origin { depth: origin.depth + 1, ..origin }, carried);
    }

    /// Queues a message for a controller; `Err` if there is no room.
    fn tell_controller(&mut self, action: &Action, action_context: &ActionContext<'_>) -> Result<(), DropReason> {
        let Action::Controller { reason, controller_id, max_len, cookie, recirc_id, continuation } = *action else {
            return Ok(());
        };
        let mut key = *action_context.key;
        let bytes = action_context.packet.bytes();
        if action_context.is_dirty {
            extract_again(bytes, &mut key).map_err(DropReason::from)?;
        }
        // What is to go on goes whole.
        let length = if continuation { bytes.len() } else { bytes.len().min(usize::from(max_len)) };
        let message = PacketIn {
            key,
            bytes: bytes[..length].to_vec(),
            total_len: bytes.len(),
            reason,
            controller_id,
            cookie,
            recirc_id,
            continuation,
        };
        self.packet_ins.try_send(message).map_err(|_| DropReason::ControllerQueue)
    }

    /// True with a probability of `probability` in 2^32; always if that is as large as it gets.
    fn chance(&mut self, probability: u32) -> bool {
        probability == u32::MAX || ((splitmix64(&mut self.random) >> 32) as u32) < probability
    }
}

/// Whether an action may begin a connection.
fn tracks(action: &Action) -> bool {
    matches!(action, Action::Ct(_))
}

/// Hashes a packet into its key. Never to zero, which means that it was not hashed.
fn hash(algorithm: HashAlgorithm, basis: u32, action_context: &mut ActionContext<'_>) -> Result<(), DropReason> {
    action_context.renew_key()?;
    let hash = match algorithm {
        HashAlgorithm::L4 => five_tuple(action_context.key, basis),
        HashAlgorithm::SymmetricL4 => symmetric_l3l4(action_context.key, basis, false),
    };
    action_context.key.set(sluice_flow::layout::DP_HASH, &hash.max(1).to_be_bytes());
    Ok(())
}

/// Sets a field in a key. Fields of tables only (queue priority) are not in it.
fn set_in_key(field: &MaskedField, key: &mut PacketKey) {
    if field.span.offset >= sluice_flow::layout::PACKET_KEY_SIZE {
        return;
    }
    let mut bytes = [0; 16];
    bytes[..field.span.size].copy_from_slice(key.get(field.span));
    let pairs = field.value.iter().zip(&field.mask);
    bytes.iter_mut().zip(pairs).for_each(|(to, (value, mask))| *to = *to & !mask | value & mask);
    key.set(field.span, &bytes[..field.span.size]);
}
