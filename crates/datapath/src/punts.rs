//! Messages for controllers.

use crate::action_context::ActionContext;
use crate::context::Context;
use sluice_action::Action;
use sluice_fate::{Counter, DropReason};
use sluice_flow::{PacketKey, extract_again};
use sluice_packet::VlanLimit;
use std::sync::mpsc::SyncSender;

/// A message for a controller.
#[derive(Clone, Debug)]
pub struct PacketIn {
    /// What the datapath knew of the packet: port, recirculation id, marks, headers.
    pub key: PacketKey,
    /// The packet, cut to the length asked for.
    pub bytes: Vec<u8>,
    /// Its whole length.
    pub total_len: usize,
    /// OpenFlow reason.
    pub reason: u8,
    /// Which controller connection.
    pub controller_id: u16,
    /// Cookie of the rule that asked.
    pub cookie: u64,
    /// Recirculation id that names the state of the translation.
    pub recirc_id: u32,
    /// Whether the packet waits for the controller to let it go on.
    pub continuation: bool,
}

/// The bounded queue of packet-ins to their owner.
pub(crate) struct Punts {
    queue: SyncSender<PacketIn>,
}

impl Punts {
    pub fn new(queue: SyncSender<PacketIn>) -> Self {
        Punts { queue }
    }

    /// Sends the packet's bytes to a controller, as the action says, and counts that as its fate.
    pub fn punt(&self, action: &Action, action_context: &ActionContext<'_>, context: &mut Context<'_, '_>) {
        match self.send(action, action_context, context.vlan_limit) {
            Ok(()) => context.tally[Counter::Delivered] += 1,
            Err(reason) => context.tally.drop(reason, 1),
        }
    }

    fn send(
        &self,
        action: &Action,
        action_context: &ActionContext<'_>,
        vlan_limit: VlanLimit,
    ) -> Result<(), DropReason> {
        let Action::Controller { reason, controller_id, max_len, cookie, recirc_id, continuation } = *action else {
            return Ok(());
        };
        let mut key = *action_context.key;
        let bytes = action_context.packet.bytes();
        if action_context.is_dirty {
            extract_again(bytes, vlan_limit, &mut key).map_err(DropReason::from)?;
        }
        // A packet that the controller is to continue goes whole.
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
        self.queue.try_send(message).map_err(|_| DropReason::ControllerQueue)
    }
}
