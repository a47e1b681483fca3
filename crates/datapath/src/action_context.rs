//! A packet on its way through a list of actions.

use crate::batch::Origin;
use sluice_conntrack::CachedConn;
use sluice_fate::DropReason;
use sluice_flow::{PacketKey, ParseError, extract_again};
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
        ActionContext { packet, key, origin, conn, no_output, cut: 0, is_dirty: false }
    }

    /// The same for a copy of the packet.
    pub fn with_copy<'c>(&self, packet: Packet, key: &'c mut PacketKey) -> ActionContext<'c> {
        let ActionContext { origin, conn, no_output, cut, is_dirty, .. } = *self;
        ActionContext { packet, key, origin, conn, no_output, cut, is_dirty }
    }

    /// Extracts the key again if the bytes have changed since.
    pub fn renew_key(&mut self, vlan_limit: VlanLimit) -> Result<(), DropReason> {
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
