//! Megaflows that a user puts by hand, beside those that upcalls install.

use super::{Installed, MegaflowTable};
use crate::Megaflow;
use crate::record::NewFlow;
use crate::tag_index::TagIndex;
use sluice_action::{FlowId, Translation, XcacheHandle};
use sluice_flow::{PacketKey, layout};
use std::sync::Arc;

/// Why a megaflow could not be put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutError {
    /// A megaflow of the same mask and masked key is there.
    Exists,
    /// A limit on megaflows, masks or their memory is reached.
    Full,
}

impl MegaflowTable {
    /// The megaflow to which a packet of this key belongs. Megaflows put by hand may overlap with others: then it is any of
    /// them. It looks at all megaflows.
    pub fn flow_of(&self, key: &PacketKey) -> Option<(FlowId, XcacheHandle)> {
        let mut found = None;
        self.for_each_record(|flow, _| {
            if found.is_none() && flow.contains(key) {
                found = Some((flow.id(), flow.xcache().clone()));
            }
        });
        found
    }

    /// Puts the megaflow of `key` under a translation's mask. No PMD has it in its subtables yet.
    ///
    /// # Errors
    /// If there is one, or no room for it.
    pub fn put(&self, key: &PacketKey, translation: &Translation, now_ms: u64) -> Result<FlowId, PutError> {
        let mut index = self.index.lock();
        let index = &mut *index;
        let port = key.number(layout::IN_PORT) as u32;
        let (quotas, masks) = (&index.quotas, &mut index.masks);
        // A quota may demand a narrower mask, which would be another megaflow than the one that was asked for.
        let mask = quotas.admit(port, &translation.mask, |mask| masks.shared(mask));
        let mask = mask.filter(|mask| mask.whole == translation.mask).ok_or(PutError::Full)?;
        let tag = TagIndex::tag(mask.hash_of(key, &self.secret));
        let guard = index.reader.pin();
        let records = self.arena.read(&guard);
        let is_it = |flow: &Megaflow| Arc::ptr_eq(flow.mask(), &mask) && flow.contains(key);
        let is_there = index.by_match.find(tag, |id| records.get_any(id).filter(|(flow, _)| is_it(flow))).is_some();
        drop(guard);
        if is_there {
            return Err(PutError::Exists);
        }
        let (bytes, share) = index.charges(&mask, translation);
        let flow = NewFlow { mask: &mask, key, pmd: 0, translation, created_ms: now_ms, lineage: None, bytes, share };
        match self.add(index, port, tag, &flow) {
            Installed::New(id) => Ok(id),
            _ => Err(PutError::Full),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_action::{Action, MegaflowStore, PortNo};
    use sluice_fate::DropReason;
    use sluice_simd::HashKey;

    fn key(in_port: u32, last: u8) -> PacketKey {
        let mut key = PacketKey::ZERO;
        key.set(layout::IN_PORT, &in_port.to_be_bytes());
        key.set(layout::NW_DST, &[10, 0, 0, last]);
        key
    }

    fn translation(mask: PacketKey) -> Translation {
        let xcache = XcacheHandle(Arc::new(()));
        let actions = [Action::Output(PortNo(1))].into();
        Translation { mask, actions, no_output: DropReason::Rules, version: 0, cacheable: true, xcache }
    }

    fn mask(of_address: [u8; 4]) -> PacketKey {
        let mut mask = PacketKey::ZERO;
        mask.set(layout::IN_PORT, &[0xff; 4]);
        mask.set(layout::NW_DST, &of_address);
        mask
    }

    #[test]
    fn a_match_is_put_once_and_found_by_the_keys_of_its_packets() {
        let table = MegaflowTable::new(16, &HashKey::from_seed(7)).unwrap();
        let (exact, prefix) = (translation(mask([0xff; 4])), translation(mask([0xff, 0xff, 0xff, 0])));
        let id = table.put(&key(1, 1), &exact, 0).unwrap();
        assert_eq!(table.put(&key(1, 1), &exact, 0), Err(PutError::Exists));
        assert_eq!(table.flow_of(&key(1, 1)).map(|(id, _)| id), Some(id));
        assert!(table.flow_of(&key(1, 2)).is_none() && table.flow_of(&key(2, 1)).is_none());
        // Another mask is another megaflow.
        table.put(&key(1, 9), &prefix, 0).unwrap();
        assert_eq!(table.put(&key(1, 5), &prefix, 0), Err(PutError::Exists));
        assert!(table.remove(id).is_some());
        assert!(table.flow_of(&key(1, 1)).is_some_and(|(other, _)| other != id));
    }

    #[test]
    fn a_full_table_takes_none() {
        let table = MegaflowTable::new(4, &HashKey::from_seed(7)).unwrap();
        let put = |last| table.put(&key(1, last), &translation(mask([0xff; 4])), 0);
        let done = (0..9).map(put).filter(Result::is_ok).count();
        assert!(done <= 4, "{done}");
        assert_eq!(put(10), Err(PutError::Full));
    }
}
