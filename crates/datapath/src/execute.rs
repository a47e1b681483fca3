//! Actions, one by one, on one packet.
//!
//! An action that sends the packet somewhere takes a copy, unless it is the last of its kind: that one takes the
//! packet. So a list that outputs once copies nothing. Every handle, packet or copy, meets one fate.

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
use sluice_conntrack::{CachedConn, ConnCache, Conntrack};
use sluice_fate::{Counter, DropReason};
use sluice_flow::hash::{five_tuple, symmetric_l3l4};
use sluice_flow::{PacketKey, ParseError, extract_again};
use sluice_packet::Packet;
use sluice_packet::headers::ETHERNET_SIZE;
use sluice_simd::hash::splitmix64;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// How a packet has come to a list of actions.
pub(crate) struct Passage {
    pub origin: Origin,
    pub carried: CachedConn,
    /// Why it ends if the actions send it nowhere.
    pub no_output: DropReason,
}

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

/// A packet on its way through a list of actions.
pub(crate) struct Traveller<'k> {
    pub packet: Packet,
    pub key: &'k mut PacketKey,
    pub origin: Origin,
    /// Its connection, from an earlier `ct`.
    pub carried: CachedConn,
    /// Why it ends if the actions send it nowhere.
    pub no_output: DropReason,
    /// The next output leaves out so many bytes of the end.
    pub cut: usize,
    /// Whether its bytes have changed since its key was read.
    pub is_dirty: bool,
}

impl Traveller<'_> {
    /// Reads the key anew if the bytes have changed since.
    pub fn renew_key(&mut self) -> Result<(), DropReason> {
        if self.is_dirty {
            extract_again(self.packet.bytes(), self.key)?;
            self.is_dirty = false;
        }
        debug_assert_eq!(Ok(*self.key), read_again(&self.packet, self.key), "a key patched, and the bytes");
        Ok(())
    }
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

    /// Does what `actions` say to a packet.
    pub fn run(
        &mut self,
        actions: &[Action],
        packet: Packet,
        key: &mut PacketKey,
        passage: Passage,
        context: &mut Context<'_, '_>,
    ) {
        let Passage { origin, carried, no_output } = passage;
        self.walk(actions, Traveller { packet, key, origin, carried, no_output, cut: 0, is_dirty: false }, context);
    }

    pub(crate) fn walk(&mut self, actions: &[Action], mut traveller: Traveller<'_>, context: &mut Context<'_, '_>) {
        let Some(last) = actions.iter().rposition(sends) else { return self.end(actions, traveller, context) };
        for (i, action) in actions[..last].iter().enumerate() {
            if let Action::Ct(ct) = action {
                match self.gather(ct, &actions[i + 1..], traveller, context) {
                    Some(alone) => traveller = alone,
                    None => return,
                }
            }
            if sends(action) {
                self.send_copy(action, &mut traveller, context);
            } else if let Err(reason) = self.change(action, &mut traveller, context) {
                return discard(traveller.packet, reason, context.buffers, context.tally);
            }
        }
        self.track_behind(&actions[last + 1..], &traveller, context);
        self.send(&actions[last], traveller, context);
    }

    /// Takes actions that send the packet nowhere. A `ct` among them may begin a connection all the same.
    fn end(&mut self, actions: &[Action], mut traveller: Traveller<'_>, context: &mut Context<'_, '_>) {
        let up_to_last_ct = actions.iter().rposition(tracks).map_or(0, |last| last + 1);
        for (i, action) in actions[..up_to_last_ct].iter().enumerate() {
            if let Action::Ct(ct) = action {
                match self.gather(ct, &actions[i + 1..up_to_last_ct], traveller, context) {
                    Some(alone) => traveller = alone,
                    None => return,
                }
            }
            if let Err(reason) = self.change(action, &mut traveller, context) {
                return discard(traveller.packet, reason, context.buffers, context.tally);
            }
        }
        discard(traveller.packet, traveller.no_output, context.buffers, context.tally);
    }

    /// Lets a scratch copy meet the `ct`s that stand behind the last action that sends.
    fn track_behind(&mut self, actions: &[Action], traveller: &Traveller<'_>, context: &mut Context<'_, '_>) {
        let Some(last) = actions.iter().rposition(tracks) else { return };
        let Traveller { origin, carried, no_output, cut, is_dirty, .. } = *traveller;
        let mut key = *traveller.key;
        let packet = match context.buffers.copy(&traveller.packet) {
            Ok(packet) => packet,
            Err(reason) => {
                context.tally[Counter::Cloned] += 1;
                return context.tally.drop(reason, 1);
            }
        };
        let mut scratch = Traveller { packet, key: &mut key, origin, carried, no_output, cut, is_dirty };
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
    fn send_copy(&mut self, action: &Action, traveller: &mut Traveller<'_>, context: &mut Context<'_, '_>) {
        if let Action::Sample { probability, .. } = action
            && !self.chance(*probability)
        {
            return;
        }
        context.tally[Counter::Cloned] += 1;
        // What a controller gets are bytes of its own, which are no copy in a buffer of ours.
        if let Action::Controller { .. } = action {
            match self.tell_controller(action, traveller) {
                Ok(()) => context.tally[Counter::Delivered] += 1,
                Err(reason) => context.tally.drop(reason, 1),
            }
            return;
        }
        let mut key = *traveller.key;
        match context.buffers.copy(&traveller.packet) {
            Ok(packet) => {
                let Traveller { origin, carried, no_output, cut, is_dirty, .. } = *traveller;
                let copy = Traveller { packet, key: &mut key, origin, carried, no_output, cut, is_dirty };
                self.send_now(action, copy, context);
            }
            Err(reason) => context.tally.drop(reason, 1),
        }
        if let Action::Output(_) = action {
            traveller.cut = 0;
        }
    }

    /// Lets the packet itself meet the last action that sends.
    fn send(&mut self, action: &Action, traveller: Traveller<'_>, context: &mut Context<'_, '_>) {
        if let Action::Sample { probability, .. } = action
            && !self.chance(*probability)
        {
            return discard(traveller.packet, traveller.no_output, context.buffers, context.tally);
        }
        self.send_now(action, traveller, context);
    }

    fn send_now(&mut self, action: &Action, mut traveller: Traveller<'_>, context: &mut Context<'_, '_>) {
        match action {
            Action::Output(port) => self.output(*port, traveller, context),
            Action::Recirc(id) => self.recirculate(*id, traveller, context),
            Action::Clone(actions) | Action::Sample { actions, .. } => {
                traveller.cut = 0;
                self.walk(actions, traveller, context);
            }
            Action::CheckPktLen { len, greater, less_or_equal } => {
                let is_greater = traveller.packet.frame.len() > usize::from(*len);
                self.walk(if is_greater { greater } else { less_or_equal }, traveller, context);
            }
            _ => {
                let told = self.tell_controller(action, &traveller);
                context.buffers.give_frame(traveller.packet.frame);
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
        traveller: &mut Traveller<'_>,
        context: &mut Context<'_, '_>,
    ) -> Result<(), DropReason> {
        match action {
            // What is too long now is left out, whatever is pushed or popped before the output. Source: OVS lib/dp-packet.h.
            Action::Trunc(len) => {
                traveller.cut = traveller.packet.frame.len().saturating_sub((*len as usize).max(ETHERNET_SIZE));
            }
            Action::Drop => return Err(traveller.no_output),
            Action::Ct(ct) => {
                let entropy = splitmix64(&mut self.random);
                let Executor { conntrack, recent, recorder, .. } = self;
                track::track(conntrack, (recent, recorder), ct, entropy, traveller, context)?;
            }
            Action::CtClear => track::forget(traveller),
            Action::Meter(meter) => {
                if !self.meters.admit(*meter, traveller.packet.frame.len(), context.now_ms) {
                    return Err(DropReason::Meter);
                }
            }
            Action::Hash { algorithm, basis } => hash(*algorithm, *basis, traveller)?,
            Action::Set { header: Header::PktMark | Header::SkbPriority | Header::Tunnel, fields } => {
                fields.iter().for_each(|field| set_in_key(field, traveller.key));
            }
            Action::Set { header, fields } => {
                edit(action, &mut traveller.packet)?;
                if track::renames(*header, fields) {
                    traveller.carried.forget();
                }
                match header {
                    // The header is there, or the edit would have failed; so the key has its fields.
                    Header::Ethernet | Header::Ipv4 => {
                        fields.iter().for_each(|field| set_in_key(field, traveller.key));
                    }
                    // Of these a key may know less than there is, behind broken headers.
                    _ => traveller.is_dirty = true,
                }
            }
            _ => {
                edit(action, &mut traveller.packet)?;
                traveller.is_dirty = true;
            }
        }
        Ok(())
    }

    fn output(&mut self, port: PortNo, traveller: Traveller<'_>, context: &mut Context<'_, '_>) {
        let Traveller { mut packet, origin, cut, .. } = traveller;
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

    fn recirculate(&mut self, id: u32, mut traveller: Traveller<'_>, context: &mut Context<'_, '_>) {
        if traveller.origin.depth >= self.recirc.max {
            return discard(traveller.packet, DropReason::RecircDepth, context.buffers, context.tally);
        }
        if let Err(reason) = traveller.renew_key() {
            return discard(traveller.packet, reason, context.buffers, context.tally);
        }
        let Traveller { packet, key, origin, carried, .. } = traveller;
        key.set(sluice_flow::layout::RECIRC_ID, &id.to_be_bytes());
        self.recirc.push(packet, *key, Origin { depth: origin.depth + 1, ..origin }, carried);
    }

    /// Queues a message for a controller; `Err` if there is no room.
    fn tell_controller(&mut self, action: &Action, traveller: &Traveller<'_>) -> Result<(), DropReason> {
        let Action::Controller { reason, controller_id, max_len, cookie, recirc_id, continuation } = *action else {
            return Ok(());
        };
        let mut key = *traveller.key;
        let bytes = traveller.packet.bytes();
        if traveller.is_dirty {
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

/// Whether an action takes a packet or a copy of it. The others change the packet.
fn sends(action: &Action) -> bool {
    match action {
        Action::Output(_)
        | Action::Recirc(_)
        | Action::Clone(_)
        | Action::Sample { .. }
        | Action::CheckPktLen { .. }
        | Action::Controller { .. } => true,
        Action::Set { .. }
        | Action::PushVlan { .. }
        | Action::PopVlan
        | Action::PushMpls { .. }
        | Action::PopMpls { .. }
        | Action::Ct(_)
        | Action::CtClear
        | Action::Hash { .. }
        | Action::Meter(_)
        | Action::Trunc(_)
        | Action::Drop => false,
    }
}

/// Hashes a packet into its key. Never to zero, which means that it was not hashed.
fn hash(algorithm: HashAlgorithm, basis: u32, traveller: &mut Traveller<'_>) -> Result<(), DropReason> {
    traveller.renew_key()?;
    let hash = match algorithm {
        HashAlgorithm::L4 => five_tuple(traveller.key, basis),
        HashAlgorithm::SymmetricL4 => symmetric_l3l4(traveller.key, basis, false),
    };
    traveller.key.set(sluice_flow::layout::DP_HASH, &hash.max(1).to_be_bytes());
    Ok(())
}

/// The plain twin of patching a key.
fn read_again(packet: &Packet, key: &PacketKey) -> Result<PacketKey, ParseError> {
    let mut again = *key;
    extract_again(packet.bytes(), &mut again).map(|()| again)
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
