//! How long the values of `tun_metadata0` to `tun_metadata63` are in messages: as long as the bridge maps them.
//!
//! The mapping is the bridge's, and each of its connections writes messages: so one table is shared, whose entries are read
//! without a lock. A message that is written while the mapping changes may have some fields by the old one and some by the new;
//! each field says its own length.

use std::array::from_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use sluice_flow::TUN_METADATA_FIELDS;

/// What stands for a field that is not mapped; no option is that long.
const UNMAPPED: u8 = u8::MAX;

/// The lengths that a bridge's fields have. Copies share one table. The default knows no mapping.
#[derive(Clone, Debug, Default)]
pub struct OptionLengths(Option<Arc<[AtomicU8; TUN_METADATA_FIELDS]>>);

impl OptionLengths {
    /// A bridge's table, in which no field is mapped yet.
    pub fn of_bridge() -> Self {
        OptionLengths(Some(Arc::new(from_fn(|_| AtomicU8::new(UNMAPPED)))))
    }

    /// Replaces the mapping by these fields and their lengths, in bytes. Fields that there are not are left out.
    pub fn set(&self, mapped: impl IntoIterator<Item = (usize, u8)>) {
        let mut lengths = [UNMAPPED; TUN_METADATA_FIELDS];
        for (field, length) in mapped {
            if let Some(to) = lengths.get_mut(field) {
                *to = length;
            }
        }
        let table = self.0.iter().flat_map(|table| table.iter());
        table.zip(lengths).for_each(|(to, length)| to.store(length, Relaxed));
    }

    /// The bytes of field `tun_metadata`i; `None` if no option is known to be mapped to it.
    pub fn get(&self, i: usize) -> Option<usize> {
        let length = self.0.as_ref()?.get(i)?.load(Relaxed);
        (length != UNMAPPED).then_some(length.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_the_bridges_mapping() {
        let of_bridge = OptionLengths::of_bridge();
        let of_connection = of_bridge.clone();
        of_bridge.set([(0, 0), (63, 124), (64, 4)]);
        assert_eq!([0, 1, 63, 64].map(|i| of_connection.get(i)), [Some(0), None, Some(124), None]);
        of_bridge.set([(1, 8)]);
        assert_eq!([0, 1, 63].map(|i| of_connection.get(i)), [None, Some(8), None]);
        let unknown = OptionLengths::default();
        unknown.set([(0, 4)]);
        assert_eq!(unknown.get(0), None);
    }
}
