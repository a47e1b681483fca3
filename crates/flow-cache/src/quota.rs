//! The limits of one port, so that a port that floods the switch leaves room for others.
//!
//! **Masks.** A sender who knows the rules can make a new mask with every packet (tuple space explosion), and each mask
//! is a subtable that lookups may have to ask. A port at its quota gets no new masks of that kind: a megaflow whose
//! mask would be new gets a mask extended to whole bytes instead. That is always correct, since it matches fewer
//! packets, and there are few such masks unless many fields are used. Beyond twice the quota, packets are forwarded
//! without a megaflow.
//!
//! **Megaflows.** When seven eighths of all megaflows are in use, a port that has more than its share (an equal part
//! for each port that has any) gets no new ones; its packets are forwarded without. The same holds for the bytes of
//! their memory.

use crate::Mask;
use hashbrown::HashMap;
use sluice_fate::Limit;
use sluice_flow::PacketKey;
use sluice_flow::layout::PACKET_LINES;
use std::sync::Arc;

/// The usage of all ports.
#[derive(Debug)]
pub(crate) struct Quotas {
    ports: HashMap<u32, PortUsage>,
    /// Masks that a port may have; the same number again of masks extended to whole bytes.
    masks: usize,
}

/// The usage of one port.
#[derive(Debug, Default)]
struct PortUsage {
    megaflows: usize,
    /// The memory of these megaflows.
    bytes: u64,
    /// The number of megaflows for each mask, by the mask's address, which stays its own while megaflows hold it.
    masks: HashMap<usize, usize>,
}

fn address(mask: &Arc<Mask>) -> usize {
    Arc::as_ptr(mask).addr()
}

impl Quotas {
    /// No usage yet; each port may have `masks` masks.
    pub fn new(masks: usize) -> Self {
        Quotas { ports: HashMap::new(), masks }
    }

    /// The mask under which a port may install a megaflow that was translated with `mask`; `None` if it may install
    /// none. `shared` returns the one copy of a mask.
    pub fn admit(
        &self,
        port: u32,
        mask: &PacketKey,
        mut shared: impl FnMut(&PacketKey) -> Arc<Mask>,
    ) -> Option<Arc<Mask>> {
        let own = shared(mask);
        let Some(PortUsage { masks, .. }) = self.ports.get(&port) else { return Some(own) };
        if masks.len() < self.masks || masks.contains_key(&address(&own)) {
            return Some(own);
        }
        Limit::Masks.hit();
        let whole = shared(&whole_bytes(mask));
        (masks.len() < self.masks.saturating_mul(2) || masks.contains_key(&address(&whole))).then_some(whole)
    }

    /// Whether a port may have one more megaflow, when `used` of `capacity` are in use.
    pub fn has_room(&self, port: u32, used: usize, capacity: usize) -> bool {
        used < capacity - capacity / 8
            || self.ports.get(&port).is_none_or(|port| port.megaflows < capacity.div_ceil(self.ports.len()))
    }

    /// Whether a port has no more than its share of `limit` bytes with one more megaflow, which takes `bytes`.
    pub fn is_within_share(&self, port: u32, bytes: u32, limit: u64) -> bool {
        let ports = self.ports.len() + usize::from(!self.ports.contains_key(&port));
        let used = self.ports.get(&port).map_or(0, |port| port.bytes);
        used + u64::from(bytes) <= limit / ports as u64
    }

    /// How many masks the port with most has, and how many a port may have before they are of whole bytes.
    pub fn mask_usage(&self) -> (usize, usize) {
        (self.ports.values().map(|port| port.masks.len()).max().unwrap_or_default(), self.masks)
    }

    /// Counts a megaflow of a port under a mask, which takes `bytes`.
    pub fn add(&mut self, port: u32, mask: &Arc<Mask>, bytes: u32) {
        let port = self.ports.entry(port).or_default();
        port.megaflows += 1;
        port.bytes += u64::from(bytes);
        *port.masks.entry(address(mask)).or_default() += 1;
    }

    /// Uncounts a megaflow of a port.
    pub fn remove(&mut self, number: u32, mask: &Arc<Mask>, bytes: u32) {
        let Some(port) = self.ports.get_mut(&number) else { return };
        port.megaflows -= 1;
        port.bytes -= u64::from(bytes);
        if let Some(n) = port.masks.get_mut(&address(mask)) {
            *n -= 1;
            if *n == 0 {
                port.masks.remove(&address(mask));
            }
        }
        if port.megaflows == 0 {
            self.ports.remove(&number);
        }
    }
}

/// A mask extended to all bits of every byte in which `mask` has a bit.
fn whole_bytes(mask: &PacketKey) -> PacketKey {
    use sluice_flow::layout::PRESENCE;
    let mut whole = *mask;
    let presence = mask.lines[0].0[PRESENCE.offset];
    for i in (0..PACKET_LINES).filter(|&i| i == 0 || !mask.line(i).is_zero()) {
        whole.lines[i].0.iter_mut().filter(|byte| **byte != 0).for_each(|byte| *byte = 0xff);
    }
    // The presence byte is not a field.
    whole.lines[0].0[PRESENCE.offset] = presence;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_flow::layout;

    fn mask(bits: u32) -> PacketKey {
        let mut mask = PacketKey::ZERO;
        mask.set(layout::NW_SRC, &(!0u32 << (32 - bits)).to_be_bytes());
        mask
    }

    #[test]
    fn at_its_quota_a_port_gets_masks_of_whole_bytes_and_then_none() {
        let mut masks: HashMap<PacketKey, Arc<Mask>> = HashMap::new();
        let mut shared = |mask: &PacketKey| masks.entry(*mask).or_insert_with(|| Arc::new(Mask::new(mask))).clone();
        let (mut quotas, before) = (Quotas::new(2), Limit::Masks.count());
        let mut install = |quotas: &mut Quotas, bits| {
            let mask = quotas.admit(1, &mask(bits), &mut shared)?;
            quotas.add(1, &mask, 0);
            Some((mask.whole.get_bits(), mask))
        };
        let got: Vec<_> =
            [9, 10, 10, 11, 12, 17, 25].map(|bits| install(&mut quotas, bits).map(|(bits, _)| bits)).into();
        assert_eq!(got, [Some(9), Some(10), Some(10), Some(16), Some(16), Some(24), None]);
        assert!(Limit::Masks.count() >= before + 4);
        let (_, whole) = install(&mut quotas, 12).unwrap();
        let mut other = Quotas::new(0);
        other.add(1, &whole, 0);
        assert_eq!(other.admit(1, &mask(25), |mask| Arc::new(Mask::new(mask))).map(|_| ()), None);
        assert!(quotas.admit(2, &mask(25), |mask| Arc::new(Mask::new(mask))).is_some(), "another port has its own");
        // All of 16 bits go, and one of 25 has room.
        (0..3).for_each(|_| quotas.remove(1, &whole, 0));
        assert_eq!(install(&mut quotas, 25).map(|(bits, _)| bits), Some(32));
    }

    #[test]
    fn who_has_more_than_an_equal_share_gets_no_more_when_room_is_short() {
        let mut quotas = Quotas::new(8);
        let mask = Arc::new(Mask::new(&mask(8)));
        (0..13).for_each(|_| quotas.add(1, &mask, 100));
        assert!(quotas.has_room(1, 13, 16) && quotas.has_room(1, 15, 16), "who is alone may have all");
        assert!(quotas.is_within_share(1, 100, 1400) && !quotas.is_within_share(1, 101, 1400));
        quotas.add(2, &mask, 100);
        assert!(!quotas.is_within_share(1, 1, 1400) && quotas.is_within_share(2, 600, 1400));
        assert!(quotas.is_within_share(3, 466, 1400) && !quotas.is_within_share(3, 467, 1400));
        assert!(quotas.has_room(1, 13, 16) && !quotas.has_room(1, 14, 16));
        assert!(quotas.has_room(2, 14, 16) && quotas.has_room(3, 14, 16));
        (0..13).for_each(|_| quotas.remove(1, &mask, 100));
        assert!(quotas.ports.len() == 1 && quotas.has_room(1, 14, 16));
    }

    trait Bits {
        fn get_bits(&self) -> u32;
    }

    impl Bits for PacketKey {
        fn get_bits(&self) -> u32 {
            self.lines[0].0.iter().map(|byte| byte.count_ones()).sum()
        }
    }
}
