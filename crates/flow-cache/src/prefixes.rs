//! Which prefix lengths of a field can match a value: a trie of eight bits a step.
//!
//! A node has a slot for each value of its eight bits. A slot has a bit for each of the eight lengths that may end
//! there. A prefix that ends in the node is written to all slots that it covers. Prefixes of one length do not overlap,
//! so each bit has one owner and can be cleared when the owner is removed. Looking up an IPv4 address takes at most
//! four loads.
//!
//! Senders can make arbitrary prefixes, so nodes are limited. When no node is left, a slot becomes *open*: any longer
//! prefix may match there, which only asks more subtables than necessary.

use hashbrown::HashMap;

/// Slots of a node.
const SLOTS: usize = 256;
/// The node of the first eight bits.
const ROOT: u32 = 0;
/// In [`NodeSlot::below`]: there is no child, and the other bits count the prefixes that would be below.
const OPEN: u32 = 1 << 31;

/// The nodes that may still be made by all tries of a PMD together.
#[derive(Debug)]
pub(crate) struct NodeQuota(pub usize);

#[derive(Clone, Copy, Debug, Default)]
struct NodeSlot {
    /// 0 for nothing, a child's number, or [`OPEN`] and a count.
    below: u32,
    /// Bit `n`: a prefix ends after `n + 1` more bits.
    ends: u8,
}

/// The prefixes of one field.
#[derive(Debug, Default)]
pub(crate) struct Prefixes {
    /// The nodes' slots; none before the first prefix.
    slots: Vec<NodeSlot>,
    /// For each node: prefixes that end in it plus slots with something below.
    used: Vec<u32>,
    free: Vec<u32>,
    counts: HashMap<(u128, u8), u32>,
}

/// Byte `step` of a value, the first byte in the high bits.
fn byte(value: u128, step: u8) -> usize {
    usize::from(value.to_be_bytes()[usize::from(step)])
}

fn place(node: u32, slot: usize) -> usize {
    node as usize * SLOTS + slot
}

impl Prefixes {
    /// Bit `n - 1` is set if a prefix of `n` bits matches, and possibly if none does.
    #[inline]
    pub fn lengths(&self, value: u128) -> u128 {
        let mut ends = [0; 16];
        let mut node = ROOT;
        for (step, byte) in value.to_be_bytes().into_iter().enumerate() {
            let Some(slot) = self.slots.get(place(node, usize::from(byte))) else { break };
            ends[step] = slot.ends;
            if slot.below == 0 {
                break;
            }
            if slot.below & OPEN != 0 {
                let longer = u128::MAX.checked_shl(8 * (step as u32 + 1)).unwrap_or(0);
                return u128::from_le_bytes(ends) | longer;
            }
            node = slot.below;
        }
        u128::from_le_bytes(ends)
    }

    /// Adds the prefix of `len` bits (at least 1) of `value`, whose further bits are zero.
    pub fn insert(&mut self, value: u128, len: u8, quota: &mut NodeQuota) {
        let count = self.counts.entry((value, len)).or_default();
        *count += 1;
        if *count > 1 {
            return;
        }
        if self.slots.is_empty() {
            // The root does not count: there is one for each field of a table with many masks.
            self.add_node();
        }
        let mut node = ROOT;
        for step in 0..(len - 1) / 8 {
            let at = place(node, byte(value, step));
            let below = self.slots[at].below;
            node = match below {
                0 if quota.0 > 0 => {
                    quota.0 -= 1;
                    let child = self.add_node();
                    self.slots[at].below = child;
                    self.used[node as usize] += 1;
                    child
                }
                0 => {
                    self.slots[at].below = OPEN | 1;
                    self.used[node as usize] += 1;
                    return;
                }
                open if open & OPEN != 0 => {
                    self.slots[at].below += 1;
                    return;
                }
                child => child,
            };
        }
        self.used[node as usize] += 1;
        self.mark(node, value, len, true);
    }

    /// Removes a prefix as often as it was added.
    pub fn remove(&mut self, value: u128, len: u8, quota: &mut NodeQuota) {
        let Some(count) = self.counts.get_mut(&(value, len)) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.counts.remove(&(value, len));
        let mut path = arrayvec::ArrayVec::<(u32, usize), 16>::new();
        let mut node = ROOT;
        for step in 0..(len - 1) / 8 {
            let at = place(node, byte(value, step));
            path.push((node, at));
            let below = &mut self.slots[at].below;
            if *below & OPEN != 0 {
                *below -= 1;
                if *below == OPEN {
                    self.take_below(path, quota);
                }
                return;
            }
            node = *below;
        }
        self.mark(node, value, len, false);
        self.used[node as usize] -= 1;
        if self.used[node as usize] == 0 && node != ROOT {
            self.free.push(node);
            quota.0 += 1;
            self.take_below(path, quota);
        }
    }

    /// Clears the last slot of a path, and frees the nodes that are then empty.
    fn take_below(&mut self, path: arrayvec::ArrayVec<(u32, usize), 16>, quota: &mut NodeQuota) {
        for (node, at) in path.into_iter().rev() {
            self.slots[at].below = 0;
            self.used[node as usize] -= 1;
            if self.used[node as usize] > 0 || node == ROOT {
                break;
            }
            self.free.push(node);
            quota.0 += 1;
        }
    }

    /// The nodes that count against the quota.
    pub fn nodes(&self) -> usize {
        (self.used.len() - self.free.len()).saturating_sub(1)
    }

    /// An empty node. A freed node is empty already.
    fn add_node(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.slots.resize(self.slots.len() + SLOTS, NodeSlot::default());
            self.used.push(0);
            self.used.len() as u32 - 1
        })
    }

    /// Sets or clears the bit of a prefix in the slots that it covers.
    fn mark(&mut self, node: u32, value: u128, len: u8, on: bool) {
        let bit = (len - 1) % 8;
        let first = place(node, byte(value, (len - 1) / 8));
        for slot in &mut self.slots[first..first + (128 >> bit)] {
            slot.ends = slot.ends & !(1 << bit) | u8::from(on) << bit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefix(value: u128, len: u8) -> u128 {
        value & !u128::MAX.checked_shr(len.into()).unwrap_or(0)
    }

    /// Values that share long prefixes.
    fn value() -> impl Strategy<Value = u128> {
        (0..4u128, 0..128u32, any::<u128>())
            .prop_map(|(high, at, noise)| high << 126 ^ 1 << at ^ if noise & 7 == 0 { noise } else { 0 })
    }

    proptest! {
        /// Against a list: nothing that matches is left out, whatever the quota; nothing else is let in while it
        /// lasts; and when all have gone, so have the nodes.
        #[test]
        fn lengths_that_match(
            steps in prop::collection::vec((0..4u8, value(), 1..=128u8), 1..80),
            quota in prop_oneof![Just(0usize), Just(3), Just(40), Just(100_000)],
        ) {
            let (mut tries, mut twin, mut left) = (Prefixes::default(), Vec::new(), NodeQuota(quota));
            for (kind, value, len) in steps {
                if kind == 0 && !twin.is_empty() {
                    let (value, len) = twin.swap_remove(usize::from(len) % twin.len());
                    tries.remove(value, len, &mut left);
                } else {
                    twin.push((prefix(value, len), len));
                    tries.insert(prefix(value, len), len, &mut left);
                }
                prop_assert_eq!(tries.nodes() + left.0, quota);
                for probe in twin.iter().map(|(value, _)| *value).chain([value, !value]) {
                    let matching = twin.iter().filter(|(value, len)| prefix(probe, *len) == *value);
                    let want = matching.fold(0, |bits, (_, len)| bits | 1u128 << (len - 1));
                    let have = tries.lengths(probe);
                    prop_assert_eq!(have & want, want);
                    prop_assert!(quota < 100_000 || have == want);
                }
            }
            twin.into_iter().for_each(|(value, len)| tries.remove(value, len, &mut left));
            prop_assert_eq!((left.0, tries.nodes()), (quota, 0));
            prop_assert!(tries.slots.iter().all(|slot| slot.below == 0 && slot.ends == 0));
        }
    }
}
