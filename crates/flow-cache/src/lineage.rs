//! What a megaflow carried under the translations that it had before its present one.
//!
//! A record never changes while a PMD can read it. To modify a megaflow, the table puts another record in its place.
//! Both share a lineage, so the megaflow's statistics go on: packets of a batch under way that still count for the
//! earlier record count for the megaflow as well.

use crate::counters::{FlowCounters, add_up};
use parking_lot::Mutex;
use sluice_action::{FlowId, FlowStats};
use std::sync::Arc;

/// The earlier records of a megaflow.
#[derive(Debug, Default)]
pub(crate) struct Lineage(Mutex<EarlierRecords>);

#[derive(Debug, Default)]
struct EarlierRecords {
    /// Those that are not reclaimed yet: their counters are still their own.
    unreclaimed: Vec<FlowId>,
    /// What the reclaimed ones carried, by PMD.
    per_pmd: Vec<FlowStats>,
}

impl Lineage {
    /// The megaflow's present record becomes an earlier one.
    pub fn add(&self, id: FlowId) {
        self.0.lock().unreclaimed.push(id);
    }

    /// An earlier record is reclaimed. `clear` zeroes its counters; a reader sees what they held before or after.
    pub fn reclaim(&self, id: FlowId, pmds: impl Iterator<Item = FlowStats>, clear: impl FnOnce()) {
        let mut earlier = self.0.lock();
        earlier.unreclaimed.retain(|other| *other != id);
        for (pmd, carried) in pmds.enumerate() {
            if earlier.per_pmd.len() <= pmd {
                earlier.per_pmd.resize(pmd + 1, FlowStats::default());
            }
            add_up(&mut earlier.per_pmd[pmd], carried);
        }
        clear();
    }

    /// What the earlier records carried, by PMD.
    pub fn carried(&self, pmds: &[Arc<FlowCounters>]) -> Vec<FlowStats> {
        let earlier = self.0.lock();
        let each = |(pmd, counters): (usize, &Arc<FlowCounters>)| {
            let mut sum = earlier.per_pmd.get(pmd).copied().unwrap_or_default();
            earlier.unreclaimed.iter().for_each(|id| add_up(&mut sum, counters.read(*id)));
            sum
        };
        pmds.iter().enumerate().map(each).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Installed, MegaflowTable, PmdSide, Subtables};
    use sluice_action::{
        Action, FlowId, FlowModification, FlowStats, MegaflowStore, PortNo, Translation, XcacheHandle,
    };
    use sluice_fate::DropReason;
    use sluice_flow::PacketKey;
    use sluice_simd::HashKey;
    use std::sync::Arc;

    fn translation(port: u32) -> Translation {
        Translation {
            mask: PacketKey::ZERO,
            actions: Arc::new([Action::Output(PortNo(port))]),
            no_output: DropReason::Rules,
            version: 0,
            cacheable: true,
            xcache: XcacheHandle(Arc::new(())),
        }
    }

    /// The id of the only megaflow and its packets: those of its present record, and all by PMD.
    fn only(table: &MegaflowTable) -> (FlowId, u64, Vec<u64>) {
        let mut seen = Vec::new();
        table.for_each(&mut |flow| seen.push((flow.id, flow.stats.packets, flow.total())));
        let [(id, packets, total)] = seen[..] else { panic!("{seen:?}") };
        let mut per_pmd = Vec::new();
        table.for_each_view(|flow| {
            assert_eq!((flow.stats, flow.stats.created_ms), (total, 5));
            per_pmd = flow.per_pmd.iter().map(|one| one.map_or(0, |one| one.packets)).collect();
        });
        (id, packets, per_pmd)
    }

    fn count(side: &PmdSide, id: FlowId, packets: u64) {
        (0..packets).for_each(|_| side.counters.add(id, 60, 2, 9));
    }

    fn modify(
        table: &MegaflowTable,
        id: FlowId,
        earlier: &Translation,
        translation: &Translation,
    ) -> Option<FlowStats> {
        let mut modification = FlowModification { translation, is_current: &mut || true };
        table.modify(id, &earlier.xcache, &mut modification)
    }

    #[test]
    fn statistics_go_on_when_a_megaflow_is_modified() {
        let table = MegaflowTable::new(8, &HashKey::from_seed(1)).unwrap();
        let sides = [0, 1].map(|pmd| table.attach(pmd).unwrap());
        let said = [1, 2, 3].map(translation);
        let installed = table.install(0, &PacketKey::ZERO, &said[0], 5, |_| true, |_, _, _| ());
        let Installed::New(first) = installed else { panic!("{installed:?}") };
        count(&sides[0], first, 3);
        assert_eq!(modify(&table, first, &said[1], &said[1]), None, "it has another translation");
        let carried = modify(&table, first, &said[0], &said[1]).unwrap();
        assert_eq!((carried.packets, carried.used_ms), (3, Some(9)));
        // A batch under way still counts for the earlier record.
        count(&sides[1], first, 2);
        let (second, packets, per_pmd) = only(&table);
        assert_eq!((packets, &per_pmd[..]), (0, &[3, 2][..]));
        count(&sides[1], second, 10);
        assert_eq!(modify(&table, second, &said[1], &said[2]).unwrap().packets, 10);
        assert_eq!(only(&table).2, [3, 12]);
        // Both earlier records are reclaimed; the late packets are still credited to their own translation.
        let mut late = Vec::new();
        table.settle(&mut |xcache, stats| late.push((Arc::ptr_eq(&xcache.0, &said[0].xcache.0), stats.packets)));
        assert_eq!(late, [(true, 2)]);
        let (third, packets, per_pmd) = only(&table);
        assert_eq!((packets, &per_pmd[..], table.len()), (0, &[3, 12][..], 1));
        assert_eq!(table.remove(third).unwrap().packets, 0);
    }

    #[test]
    fn the_record_of_a_modified_megaflow_lies_beside_the_earlier_one() {
        let table = MegaflowTable::new(1 << 10, &HashKey::from_seed(1)).unwrap();
        let said = [1, 2].map(translation);
        let install = |pmd| match table.install(pmd, &PacketKey::ZERO, &said[0], 5, |_| true, |_, _, _| ()) {
            Installed::New(id) => id,
            other => panic!("{other:?}"),
        };
        let of_first = install(0);
        table.remove(of_first).unwrap();
        let of_second = install(1);
        modify(&table, of_second, &said[0], &said[1]).unwrap();
        assert_eq!((of_first.0, of_second.0, only(&table).0.0), (0, 64, 65));
    }

    /// Even if the earlier record is reclaimed before the PMD reads the notice.
    #[test]
    fn subtables_find_a_modified_megaflow_under_its_new_record() {
        let secret = HashKey::from_seed(1);
        let table = MegaflowTable::new(8, &secret).unwrap();
        let mut sides = [0, 1].map(|pmd| table.attach(pmd).unwrap());
        let said = [1, 2].map(translation);
        let Installed::New(first) = table.install(0, &PacketKey::ZERO, &said[0], 5, |_| true, |_, _, _| ()) else {
            panic!("the table is empty")
        };
        let mut subtables = [0, 1].map(|_| Subtables::new(&secret));
        {
            let guard = sides[0].reader.pin();
            subtables[0].insert(&PacketKey::ZERO, table.read(&guard).get(first.0).unwrap());
        }
        modify(&table, first, &said[0], &said[1]).unwrap();
        table.settle(&mut |_, _| panic!("nothing was counted"));
        let (second, ..) = only(&table);
        // The other PMD has never had the megaflow.
        for (pmd, had_it) in [(0, true), (1, false)] {
            let (PmdSide { reader, counters, notices }, mut deleted) = (&mut sides[pmd], Vec::new());
            notices.take(usize::MAX, &mut deleted);
            let guard = reader.pin();
            deleted.iter().for_each(|flow| subtables[pmd].read_notice(flow, table.read(&guard), counters));
            assert_eq!((subtables[pmd].flows(), counters.is_indexed(second)), (usize::from(had_it), had_it));
        }
    }

    #[test]
    fn a_packet_of_a_suspended_megaflow_modifies_it_as_well() {
        let table = MegaflowTable::new(8, &HashKey::from_seed(1)).unwrap();
        let side = table.attach(0).unwrap();
        let said = [1, 2].map(translation);
        let Installed::New(first) = table.install(0, &PacketKey::ZERO, &said[0], 5, |_| true, |_, _, _| ()) else {
            panic!("the table is empty")
        };
        count(&side, first, 3);
        assert_eq!(table.suspend(None, &mut |_, _, _| true), 1);
        let mut renewed = None;
        let renew = |_: &XcacheHandle, carried: FlowStats, is_kept| renewed = Some((carried.packets, is_kept));
        let installed = table.install(0, &PacketKey::ZERO, &said[1], 7, |_| true, renew);
        assert!(matches!(installed, Installed::Modified(id) if id != first), "{installed:?}");
        assert_eq!((renewed, only(&table).2), (Some((3, false)), vec![3]));
    }
}
