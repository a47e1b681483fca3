//! A packet on its way through a list of actions.

use crate::batch::Origin;
use sluice_action::{Action, edit};
use sluice_conntrack::CachedConn;
use sluice_fate::DropReason;
use sluice_flow::{PacketKey, ParseError, extract_again};
use sluice_packet::edit::EditError;
use sluice_packet::{Packet, VlanLimit};

/// A packet, and what its actions know of it.
pub(crate) struct ActionContext<'k> {
    pub packet: Packet,
    pub key: &'k mut PacketKey,
    pub origin: Origin,
    /// Its connection, from an earlier `ct`.
    pub conn: CachedConn,
    /// Why it is dropped if the actions send it nowhere.
    pub no_output: DropReason,
    /// The next output leaves out this many bytes at the end.
    pub cut: usize,
    /// The tags that actions have pushed since the packet was read, less those that they have popped.
    pub pushed_tags: i8,
    /// Whether its bytes have changed since its key was extracted.
    pub is_dirty: bool,
}

impl<'k> ActionContext<'k> {
    /// A packet that meets its first action.
    #[inline]
    pub fn new(
        packet: Packet,
        key: &'k mut PacketKey,
        origin: Origin,
        conn: CachedConn,
        no_output: DropReason,
    ) -> Self {
        ActionContext { packet, key, origin, conn, no_output, cut: 0, pushed_tags: 0, is_dirty: false }
    }

    /// The same for a copy of the packet.
    pub fn with_copy<'c>(&self, packet: Packet, key: &'c mut PacketKey) -> ActionContext<'c> {
        let ActionContext { origin, conn, no_output, cut, pushed_tags, is_dirty, .. } = *self;
        ActionContext { packet, key, origin, conn, no_output, cut, pushed_tags, is_dirty }
    }

    /// Changes the packet's bytes as an action says.
    pub fn edit(&mut self, action: &Action, vlan_limit: VlanLimit) -> Result<(), EditError> {
        edit(action, &mut self.packet, vlan_limit.after_push(self.pushed_tags))?;
        match action {
            Action::PushVlan { .. } => self.pushed_tags = self.pushed_tags.saturating_add(1),
            Action::PopVlan => self.pushed_tags = self.pushed_tags.saturating_sub(1),
            _ => {}
        }
        Ok(())
    }

    /// Extracts the key as that of a packet that has just come.
    pub fn read_anew(&mut self, vlan_limit: VlanLimit) -> Result<(), DropReason> {
        self.is_dirty |= self.pushed_tags != 0;
        self.pushed_tags = 0;
        self.renew_key(vlan_limit)
    }

    /// Extracts the key again if the bytes have changed since: of tags, those that were read before, and those pushed.
    pub fn renew_key(&mut self, vlan_limit: VlanLimit) -> Result<(), DropReason> {
        let vlan_limit = vlan_limit.after_push(self.pushed_tags).min(VlanLimit::MAX);
        if self.is_dirty {
            extract_again(self.packet.bytes(), vlan_limit, self.key)?;
            self.is_dirty = false;
        }
        debug_assert_eq!(Ok(*self.key), self.extracted_again(vlan_limit), "a key patched, and the bytes");
        Ok(())
    }

    /// The plain twin of patching a key.
    fn extracted_again(&self, vlan_limit: VlanLimit) -> Result<PacketKey, ParseError> {
        let mut again = *self.key;
        extract_again(self.packet.bytes(), vlan_limit, &mut again).map(|()| again)
    }
}
