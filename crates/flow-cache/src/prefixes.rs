//! Which prefix lengths of a field can match a value: a trie of eight bits a step.
//!
//! A node has a slot for each value of its eight bits. A slot has a bit for each of the eight lengths that may end
//! there. A prefix that ends in the node is written to all slots that it covers. Prefixes of one length do not overlap,
//! so each bit has one owner and can be cleared when the owner is removed. Looking up an IPv4 address takes at most
//! four loads.
//!
//! Senders can make arbitrary prefixes, so nodes are limited, and shared between ports. When none is left, a slot
//! becomes *open*: any longer prefix may match there, which only asks more subtables than necessary.

use crate::node_pool::{Below, Child, NodePool};
use arrayvec::ArrayVec;

/// Steps of the longest value.
const STEPS: usize = 16;

/// The prefixes of one field.
#[derive(Debug)]
pub(crate) struct Prefixes {
    root: Below,
    /// The ingress port whose share its nodes count for.
    port: u32,
}

/// The number of the step in which a prefix of `len` bits ends, and how many of its bits that takes: one to eight.
fn end_of(len: u8) -> (usize, u8) {
    (usize::from((len - 1) / 8), (len - 1) % 8 + 1)
}

impl Prefixes {
    /// None yet, of packets of that port.
    pub fn new(port: u32) -> Self {
        Prefixes { root: Below::default(), port }
    }

    /// Bit `n - 1` is set if a prefix of `n` bits matches, and possibly if none does.
    #[inline(always)]
    pub fn lengths(&self, pool: &NodePool, value: u128) -> u128 {
        let mut ends = [0; STEPS];
        let mut below = self.root;
        for (step, byte) in value.to_be_bytes().into_iter().enumerate() {
            match below.child() {
                Child::Nothing => break,
                Child::Open(_) => return u128::from_le_bytes(ends) | u128::MAX << (8 * step),
                Child::Node(node) => {
                    let slot = pool.slot(node, byte);
                    ends[step] = slot.ends;
                    below = slot.below;
                }
            }
        }
        u128::from_le_bytes(ends)
    }

    /// Adds the prefix of `len` bits (at least 1) of `value`, whose further bits are zero.
    pub fn insert(&mut self, pool: &mut NodePool, value: u128, len: u8) {
        let (bytes, (last, bits)) = (value.to_be_bytes(), end_of(len));
        // The slot that the next node is below, if that is not the root.
        let mut above = None;
        for (step, &byte) in bytes.iter().enumerate() {
            let node = match self.child(pool, above) {
                Child::Node(node) => node,
                Child::Open(prefixes) => return self.set_child(pool, above, Child::Open(prefixes + 1)),
                Child::Nothing => match pool.take(self.port) {
                    None => return self.set_child(pool, above, Child::Open(1)),
                    Some(node) => {
                        self.set_child(pool, above, Child::Node(node));
                        node
                    }
                },
            };
            if step == last {
                return pool.add_end(node, byte, bits);
            }
            above = Some((node, byte));
        }
    }

    /// Removes a prefix once that was added. What it went through is still there: a slot stays open, and a node stays, as
    /// long as there is any prefix that went through.
    pub fn remove(&mut self, pool: &mut NodePool, value: u128, len: u8) {
        let (bytes, (last, bits)) = (value.to_be_bytes(), end_of(len));
        let (mut path, mut above) = (ArrayVec::<_, STEPS>::new(), None);
        for (step, &byte) in bytes.iter().enumerate() {
            match self.child(pool, above) {
                Child::Nothing => return,
                Child::Open(prefixes) => {
                    self.set_child(pool, above, Child::Open(prefixes - 1));
                    break;
                }
                Child::Node(node) => {
                    path.push((above, node));
                    if step == last {
                        pool.remove_end(node, byte, bits);
                        break;
                    }
                    above = Some((node, byte));
                }
            }
        }
        for (above, node) in path.into_iter().rev() {
            if !pool.is_unused(node) {
                break;
            }
            pool.put_back(self.port, node);
            self.set_child(pool, above, Child::Nothing);
        }
    }

    /// Removes all prefixes.
    pub fn clear(&mut self, pool: &mut NodePool) {
        if let Child::Node(root) = std::mem::take(&mut self.root).child() {
            pool.put_back_all(self.port, root);
        }
    }

    fn child(&self, pool: &NodePool, above: Option<(u32, u8)>) -> Child {
        above.map_or(self.root.child(), |(node, byte)| pool.child(node, byte))
    }

    fn set_child(&mut self, pool: &mut NodePool, above: Option<(u32, u8)>, child: Child) {
        match above {
            None => self.root = child.into(),
            Some((node, byte)) => pool.set_child(node, byte, child),
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
            clear: bool,
            quota in prop_oneof![Just(0usize), Just(3), Just(40), Just(100_000)],
        ) {
            let (mut trie, mut twin, mut pool) = (Prefixes::new(1), Vec::new(), NodePool::new(quota));
            for (kind, value, len) in steps {
                if kind == 0 && !twin.is_empty() {
                    let (value, len) = twin.swap_remove(usize::from(len) % twin.len());
                    trie.remove(&mut pool, value, len);
                } else {
                    twin.push((prefix(value, len), len));
                    trie.insert(&mut pool, prefix(value, len), len);
                }
                for probe in twin.iter().map(|(value, _)| *value).chain([value, !value]) {
                    let matching = twin.iter().filter(|(value, len)| prefix(probe, *len) == *value);
                    let want = matching.fold(0, |bits, (_, len)| bits | 1u128 << (len - 1));
                    let have = trie.lengths(&pool, probe);
                    prop_assert_eq!(have & want, want);
                    prop_assert!(quota < 100_000 || have == want);
                }
            }
            if clear {
                trie.clear(&mut pool);
            } else {
                twin.into_iter().for_each(|(value, len)| trie.remove(&mut pool, value, len));
            }
            prop_assert_eq!((pool.left(), trie.root), (quota, Below::default()));
            prop_assert!(pool.is_blank());
        }
    }
}
