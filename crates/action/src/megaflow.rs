//! Megaflows as both the datapath and the tables see them.

use crate::{Actions, FlowMemory, Translation};
use sluice_fate::DropReason;
use sluice_flow::PacketKey;
use sluice_flow::layout::{self, PACKET_LINES};
use sluice_packet::headers::ETHERNET_SIZE;
use std::any::Any;
use std::sync::Arc;

/// A megaflow's stable name: its place in the shared arena. Reused after the record has been reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId(pub u32);

/// Mask and masked key: what packets a megaflow stands for. This pair is its identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MegaflowMatch {
    /// Which bits matter.
    pub mask: PacketKey,
    /// What they are; zero outside the mask.
    pub key: PacketKey,
}

impl MegaflowMatch {
    /// The megaflow of `key` under `mask`.
    pub fn new(mask: PacketKey, key: &PacketKey) -> Self {
        let mut masked = PacketKey::ZERO;
        for i in 0..PACKET_LINES {
            let line = key.line(i).and(mask.line(i));
            if i == 0 || !line.is_zero() {
                *masked.make_present(i) = line;
            }
        }
        // The mask says nothing about presence, so line 0 must keep what make_present recorded.
        let presence = (1..PACKET_LINES)
            .filter(|&i| !masked.lines[i].is_zero() && !mask.line(i).is_zero())
            .fold(0, |p, i| p | 1 << i);
        masked.lines[0].0[sluice_flow::layout::PRESENCE.offset] = presence;
        MegaflowMatch { mask, key: masked }
    }

    /// Whether `key` belongs to it.
    #[inline]
    pub fn contains(&self, key: &PacketKey) -> bool {
        agree_under(&self.mask, &self.key, key)
    }
}

/// Whether two keys are the same under a mask, that is, belong to the same megaflow of that mask.
#[inline]
pub fn agree_under(mask: &PacketKey, a: &PacketKey, b: &PacketKey) -> bool {
    let mut first = mask.lines[0];
    let present = std::mem::take(&mut first.0[layout::PRESENCE.offset]);
    a.lines[0].agrees_under(&b.lines[0], &first)
        && (1..PACKET_LINES).filter(|i| present >> i & 1 != 0).all(|i| a.line(i).agrees_under(b.line(i), mask.line(i)))
}

/// The traffic of a megaflow, over all PMDs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowStats {
    /// Packets.
    pub packets: u64,
    /// Bytes of those packets.
    pub bytes: u64,
    /// When the last one came, milliseconds of the switch's clock; `None` if none has.
    pub used_ms: Option<u64>,
    /// All TCP flags seen, or-ed.
    pub tcp_flags: u16,
    /// When it was installed, milliseconds of the switch's clock.
    pub created_ms: u64,
}

impl FlowStats {
    /// What came, for packets with that key: the datapath counts those without an Ethernet header with the zeros that stand
    /// in front of them.
    pub fn as_received(self, key: &PacketKey) -> FlowStats {
        let is_bare = key.number(layout::TUN_PAYLOAD) == u64::from(layout::PAYLOAD_BARE);
        let filler = if is_bare { self.packets * ETHERNET_SIZE as u64 } else { 0 };
        FlowStats { bytes: self.bytes.saturating_sub(filler), ..self }
    }
}

/// What a translation remembers, as the datapath sees it.
pub trait Xcache: Any + Send + Sync {
    /// The memory that it takes. The tables charge it to the account of [`MegaflowStore::memory`].
    fn bytes(&self) -> u64;
}

/// A translation that remembers nothing.
impl Xcache for () {
    fn bytes(&self) -> u64 {
        0
    }
}

impl dyn Xcache {
    /// As the type that it is.
    pub fn downcast_ref<T: Any>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }
}

/// What the translation remembers for itself (the rules to credit, say). The datapath carries it and never looks in.
#[derive(Clone)]
pub struct XcacheHandle(pub Arc<dyn Xcache>);

impl std::fmt::Debug for XcacheHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("XcacheHandle(…)")
    }
}

/// A megaflow that is live or suspended, as the revalidator sees it.
pub struct FlowDump<'a> {
    /// Its name.
    pub id: FlowId,
    /// The bits that its packets agree on.
    pub mask: &'a PacketKey,
    /// What is done with its packets.
    pub actions: &'a Actions,
    /// Why they end if the actions send them nowhere.
    pub no_output: DropReason,
    /// What the translation remembers for itself.
    pub xcache: &'a XcacheHandle,
    /// What it has carried since it was installed or last modified.
    pub stats: FlowStats,
    /// What it carried before that.
    pub earlier: FlowStats,
    /// Whether no packet follows it until it is resumed.
    pub is_suspended: bool,
    /// The memory that it takes, with its xlate cache.
    pub bytes: u64,
}

impl FlowDump<'_> {
    /// When its last packet came; when it was installed, if none has.
    pub fn used_ms(&self) -> u64 {
        self.stats.used_ms.max(self.earlier.used_ms).unwrap_or(self.stats.created_ms)
    }

    /// What it has carried since it was installed.
    pub fn total(&self) -> FlowStats {
        FlowStats {
            packets: self.stats.packets + self.earlier.packets,
            bytes: self.stats.bytes + self.earlier.bytes,
            used_ms: self.stats.used_ms.max(self.earlier.used_ms),
            tcp_flags: self.stats.tcp_flags | self.earlier.tcp_flags,
            created_ms: self.stats.created_ms,
        }
    }
}

/// Another translation for a suspended megaflow.
pub struct FlowModification<'a> {
    /// What is done with its packets from now on. Its mask is part of the megaflow's, which stays.
    pub translation: &'a Translation,
    /// Whether the tables are still those of the translation; asked with the store locked.
    pub is_current: &'a mut dyn FnMut() -> bool,
}

/// Whether a change affects the megaflow with this id, mask and xlate cache.
pub type AffectedFlow<'a> = dyn FnMut(FlowId, &PacketKey, &XcacheHandle) -> bool + 'a;

/// The shared megaflow records, as the revalidator sees them. Control threads only.
pub trait MegaflowStore: Send + Sync {
    /// Calls `visit` for every megaflow, suspended ones too.
    ///
    /// Its statistics leave out the packet whose miss installed it: `Upcall::credit` credits that one, as every packet
    /// is that follows a translation instead of a megaflow.
    fn for_each(&self, visit: &mut dyn FnMut(&FlowDump<'_>));

    /// Suspends every live megaflow, or every one `among` these, for which `affected` returns true. Lookups then miss
    /// it until it is resumed here or by a packet that asks the tables again and hears the same. Returns how many.
    ///
    /// A megaflow being installed is either visited, or its installation asks afterwards whether it is current.
    fn suspend(&self, among: Option<&[FlowId]>, affected: &mut AffectedFlow<'_>) -> usize;

    /// Calls `visit` for every live megaflow that was installed, modified or resumed since the last call. One whose
    /// installation is under way is visited now, or its installation asks afterwards whether it is current.
    fn take_fresh(&self, visit: &mut dyn FnMut(FlowId, &PacketKey, &XcacheHandle));

    /// Lets lookups find a suspended megaflow again if `is_current` says, with the store locked, that nothing has
    /// changed since it was looked at. Whether it did.
    fn resume(&self, id: FlowId, is_current: &mut dyn FnMut() -> bool) -> bool;

    /// The most megaflows there can be.
    fn capacity(&self) -> usize;

    /// The account of the memory that megaflows take.
    fn memory(&self) -> &Arc<FlowMemory>;

    /// Removes a megaflow and returns its statistics so far; `None` if it is gone already.
    ///
    /// Packets of a batch under way may still follow its actions: `settle` tells about those.
    fn remove(&self, id: FlowId) -> Option<FlowStats>;

    /// As [`MegaflowStore::remove`], if the megaflow of that name is still the one of this xlate cache: packets may
    /// have replaced one that was suspended, and its name may be another's by now.
    fn remove_same(&self, id: FlowId, xcache: &XcacheHandle) -> Option<FlowStats>;

    /// Gives a megaflow another translation, if it is still the one of this xlate cache and the translation is current:
    /// its match and its statistics stay. Returns what it has carried since it was installed or last modified; `None`
    /// if it was not modified.
    ///
    /// Packets of a batch under way may still follow the earlier actions: `settle` tells about those.
    fn modify(&self, id: FlowId, xcache: &XcacheHandle, modification: &mut FlowModification<'_>) -> Option<FlowStats>;

    /// Reclaims the records of removed megaflows that no PMD can see any more, and calls `visit` for each that carried
    /// packets after `remove` had returned, with those packets only. To be called now and then, say once a dump.
    fn settle(&self, visit: &mut dyn FnMut(&XcacheHandle, FlowStats));

    /// Makes memory ready for megaflows that may come, so that a PMD need not wait for the kernel. To be called now and
    /// then by a thread that may wait.
    ///
    /// # Errors
    /// If there is no memory; the store goes on with what it has.
    fn make_room(&self) -> std::io::Result<()> {
        Ok(())
    }

    /// How many live megaflows there are.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;
    use sluice_flow::layout::Span;

    /// A field of each line of a key.
    const FIELDS: [Span; 5] = [layout::NW_TTL, layout::IPV6_DST, layout::CT_LABEL, layout::MPLS1, OPTION];
    const OPTION: Span = Span { offset: 64 * layout::OPTIONS_LINE + 70, size: 4 };

    fn keys() -> impl Strategy<Value = PacketKey> {
        prop::collection::vec((select(&FIELDS[..]), 0..3u8), 0..4).prop_map(|fields| {
            let mut key = PacketKey::ZERO;
            fields.iter().for_each(|(span, value)| key.set(*span, &[*value; 16][..span.size]));
            key
        })
    }

    #[test]
    fn zeros_in_front_of_a_packet_are_not_counted() {
        let stats = FlowStats { packets: 3, bytes: 306, ..FlowStats::default() };
        let mut key = PacketKey::ZERO;
        assert_eq!(stats.as_received(&key), stats);
        key.set(layout::TUN_PAYLOAD, &[layout::PAYLOAD_BARE]);
        assert_eq!(stats.as_received(&key).bytes, 264);
    }

    proptest! {
        /// Field by field, absent lines being zero.
        #[test]
        fn keys_agree_under_a_mask_if_one_is_of_the_others_megaflow(mask in keys(), a in keys(), b in keys()) {
            let same = FIELDS.iter().all(|span| {
                let bits = |key: &PacketKey| -> Vec<u8> {
                    key.get(*span).iter().zip(mask.get(*span)).map(|(byte, mask)| byte & mask).collect()
                };
                bits(&a) == bits(&b)
            });
            prop_assert_eq!(agree_under(&mask, &a, &b), same);
            prop_assert_eq!(MegaflowMatch::new(mask, &a).contains(&b), same);
        }
    }
}
