//! The bytes that a megaflow takes beside its xlate cache, counted at least as high as they are.
//!
//! An action list that megaflows share is charged to each of them, and the notice of its deletion is charged before it is
//! posted. So the account never says less than the memory in use. It leaves out free records: these are at most a third of
//! those ever used at once, and 128 for each PMD.

use crate::counters::COUNTERS_BYTES;
use crate::{FlowDeleted, Megaflow};
use sluice_action::{ALLOCATION_BYTES, Actions, actions_bytes};
use sluice_flow::LINE_SIZE;

/// The state of a slot of the arena.
const SLOT_STATE: usize = 8;

/// An entry of a bucket of the index by match, at a load of at least three eighths of seven slots.
const INDEX_ENTRY: usize = 25;

/// What a PMD's subtables take: another such entry, and one of the megaflows whose prefixes are in the tries. The tries
/// have a bound of their own.
const SUBTABLE_ENTRY: usize = 2 * INDEX_ENTRY;

/// What decides the size of a megaflow, beside its actions.
pub(crate) struct Footprint {
    /// PMDs, each with counters and subtables.
    pub pmds: usize,
    /// Lines behind line 0 in which its mask has bits.
    pub further_lines: usize,
}

impl Footprint {
    /// The bytes of a megaflow with these actions.
    pub fn bytes(&self, actions: &Actions) -> u32 {
        let record = (size_of::<Megaflow>() + SLOT_STATE).next_multiple_of(64) + INDEX_ENTRY;
        // An allocation of lines is aligned to one, and so are the counts of references in front of them.
        let lines = if self.further_lines == 0 { 0 } else { (self.further_lines + 1) * LINE_SIZE + ALLOCATION_BYTES };
        let pmds = self.pmds * (COUNTERS_BYTES + SUBTABLE_ENTRY + size_of::<FlowDeleted>());
        u32::try_from(record + lines + pmds + actions_bytes(actions)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Installed, MegaflowTable, NOTICES_MAX};
    use sluice_action::{Action, FlowId, MegaflowStore, PortNo, Translation, XcacheHandle};
    use sluice_fate::{DropReason, Limit};
    use sluice_flow::{PacketKey, layout};
    use sluice_simd::HashKey;
    use std::collections::HashSet;
    use std::sync::Arc;

    /// Installs megaflow `n` of a port, with `outputs` actions.
    fn install(table: &MegaflowTable, port: u8, n: u32, outputs: u32) -> Installed {
        let mut key = PacketKey::ZERO;
        key.set(layout::IN_PORT, &[0, 0, 0, port]);
        key.set(layout::NW_SRC, &n.to_be_bytes());
        let mut mask = PacketKey::ZERO;
        mask.set(layout::IN_PORT, &[0xff; 4]);
        mask.set(layout::NW_SRC, &[0xff; 4]);
        let translation = Translation {
            mask,
            actions: (0..outputs).map(|port| Action::Output(PortNo(port))).collect(),
            no_output: DropReason::Rules,
            version: 0,
            cacheable: true,
            xcache: XcacheHandle(Arc::new(())),
        };
        table.install(0, &key, &translation, 0, |_| true, |_, _, _| ())
    }

    fn installed(table: &MegaflowTable, port: u8, outputs: u32) -> Vec<FlowId> {
        let ids = (0..10_000).map_while(|n| match install(table, port, n, outputs) {
            Installed::New(id) => Some(id),
            _ => None,
        });
        ids.collect()
    }

    #[test]
    fn memory_bounds_megaflows_and_large_ones_sooner() {
        let limit = 1 << 20;
        let table = MegaflowTable::new(1 << 14, &HashKey::from_seed(1)).unwrap();
        let _pmd = table.attach(0).unwrap();
        table.memory().set_limit(limit);
        let before = Limit::FlowMemory.count();
        let small = installed(&table, 1, 1);
        assert!(small.len() > 1500 && small.len() < 4096, "{} megaflows in a MiB", small.len());
        assert!(
            table.memory().used() <= limit && table.memory().is_nearly_full() && Limit::FlowMemory.count() > before
        );
        for id in small {
            table.remove(id).expect("it is there");
        }
        table.settle(&mut |_, _| ());
        assert_eq!(table.memory().used(), 0, "all charges are taken back");
        let large = installed(&table, 1, 500);
        assert!(!large.is_empty() && large.len() < 100, "{} megaflows of 500 actions", large.len());
    }

    /// Megaflow `n` of a port: of each three prefix lengths it is the only one.
    fn install_prefixes(table: &MegaflowTable, port: u8, n: u32) -> Installed {
        let (mut key, mut mask) = (PacketKey::ZERO, PacketKey::ZERO);
        key.set(layout::IN_PORT, &[0, 0, 0, port]);
        mask.set(layout::IN_PORT, &[0xff; 4]);
        let [src, dst, l4] = [n % 32, n / 32 % 32, n / 1024 % 16];
        for (span, unused) in [(layout::NW_SRC, src), (layout::NW_DST, dst)] {
            key.set(span, &(1u32 << unused).to_be_bytes());
            mask.set(span, &(!0u32 << unused).to_be_bytes());
        }
        key.set(layout::TP_DST, &(1u16 << l4).to_be_bytes());
        mask.set(layout::TP_DST, &(!0u16 << l4).to_be_bytes());
        let translation = Translation {
            mask,
            actions: [Action::Output(PortNo(1))].into(),
            no_output: DropReason::Rules,
            version: 0,
            cacheable: true,
            xcache: XcacheHandle(Arc::new(())),
        };
        table.install(0, &key, &translation, 0, |_| true, |_, _, _| ())
    }

    /// Megaflows of ever other prefix lengths: each is charged, and beyond a port's quota of masks they share those of
    /// whole bytes.
    #[test]
    fn megaflows_of_many_masks_take_bounded_memory() {
        const N: u32 = 10_000;
        const QUOTA: usize = 200;
        let table = MegaflowTable::with_quota(1 << 14, QUOTA, &HashKey::from_seed(1)).unwrap();
        let _pmd = table.attach(0).unwrap();
        let new = |port, n| matches!(install_prefixes(&table, port, n), Installed::New(_));
        let installed = (0..N).filter(|n| new(1, *n)).count();
        let mut masks = HashSet::new();
        table.for_each_view(|flow| _ = masks.insert(flow.matched.mask));
        assert!(installed > N as usize / 2, "{installed}");
        assert!(masks.len() > QUOTA && masks.len() <= 2 * QUOTA, "{} masks", masks.len());
        assert!(new(2, 33), "another port has masks of its own");
        assert!(table.memory().used() > 100 * installed as u64);
    }

    #[test]
    fn a_port_that_takes_the_memory_leaves_room_for_another() {
        let table = MegaflowTable::new(1 << 14, &HashKey::from_seed(1)).unwrap();
        table.memory().set_limit(1 << 20);
        let first = installed(&table, 2, 1).len();
        assert!(installed(&table, 1, 1).is_empty(), "all of it is in use");
        let table = MegaflowTable::new(1 << 14, &HashKey::from_seed(1)).unwrap();
        table.memory().set_limit(1 << 20);
        assert!(matches!(install(&table, 1, 1 << 20, 1), Installed::New(_)), "the other port is there first");
        let beside = installed(&table, 2, 1).len();
        assert!(beside < first && beside > first / 2, "{beside} of {first}");
        assert!(!installed(&table, 1, 1).is_empty());
    }

    #[test]
    fn unread_notices_of_deletions_end_installations_until_they_are_read() {
        let table = MegaflowTable::new(8, &HashKey::from_seed(1)).unwrap();
        let sides = [0, 1].map(|pmd| table.attach(pmd).unwrap());
        let before = Limit::DeletionNotices.count();
        let mut read = Vec::new();
        for n in 0..NOTICES_MAX as u32 {
            let Installed::New(id) = install(&table, 1, n, 1) else { panic!("{n} are unread") };
            table.remove(id);
            sides[0].notices.take(usize::MAX, &mut read);
        }
        assert_eq!((table.unread_notices(), Limit::DeletionNotices.count()), (NOTICES_MAX, before));
        assert_eq!(install(&table, 1, 7, 1), Installed::Full, "the other one has read none");
        assert_eq!(Limit::DeletionNotices.count(), before + 1);
        sides[1].notices.take(usize::MAX, &mut read);
        assert_eq!((read.len(), table.unread_notices()), (2 * NOTICES_MAX, 0));
        assert!(matches!(install(&table, 1, 7, 1), Installed::New(_)));
    }
}
