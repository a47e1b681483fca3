//! A binary trie of prefixes with paths compressed: which prefix lengths can match a value, and how many of its bits
//! prove that no others can.
//!
//! Answers depend on the set of prefixes only, not on the order they came in, and equal those of OVS's trie
//! (lib/classifier.c), whose nodes are cut at 32 bits where these are not.

use std::fmt::Debug;

/// The bits of a value, most significant first: `u32` for IPv4 addresses and ports, `u128` for IPv6 addresses.
pub(crate) trait Bits: Copy + Eq + Default + Debug {
    const WIDTH: u32;
    fn first(self, len: u32) -> Self;
    fn bit(self, at: u32) -> usize;
    fn equal_bits(self, other: Self) -> u32;
}

macro_rules! bits {
    ($type:ty) => {
        impl Bits for $type {
            const WIDTH: u32 = <$type>::BITS;
            #[inline]
            fn first(self, len: u32) -> Self {
                if len == 0 { 0 } else { self & (<$type>::MAX << (Self::WIDTH - len)) }
            }
            #[inline]
            fn bit(self, at: u32) -> usize {
                (self >> (Self::WIDTH - 1 - at) & 1) as usize
            }
            #[inline]
            fn equal_bits(self, other: Self) -> u32 {
                (self ^ other).leading_zeros()
            }
        }
    };
}
bits!(u32);
bits!(u128);

/// What a trie says about a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prefixes {
    /// Bit `n - 1` is set if a prefix of length `n` in the trie matches.
    pub lengths: u128,
    /// So many leading bits of the value decide that no other prefix matches.
    pub proof_bits: u32,
}

impl Prefixes {
    /// Whether a prefix of this length, at least 1, can match.
    #[inline]
    pub fn may_match(&self, len: u32) -> bool {
        self.lengths >> (len - 1) & 1 != 0
    }
}

#[derive(Clone, Copy, Debug)]
struct Node<K> {
    /// All bits from the root, the rest zero.
    prefix: K,
    /// How many rules have exactly this prefix.
    rules: u32,
    children: [u32; 2],
    len: u8,
}

/// No such node.
const NONE: u32 = u32::MAX;

/// Prefixes of 1 to `K::WIDTH` bits, each counted.
#[derive(Clone, Debug)]
pub(crate) struct Trie<K> {
    nodes: Vec<Node<K>>,
    free: Vec<u32>,
    root: u32,
}

impl<K: Bits> Trie<K> {
    pub fn new() -> Self {
        Trie { nodes: Vec::new(), free: Vec::new(), root: NONE }
    }

    fn add_node(&mut self, node: Node<K>) -> u32 {
        if let Some(at) = self.free.pop() {
            self.nodes[at as usize] = node;
            return at;
        }
        self.nodes.push(node);
        self.nodes.len() as u32 - 1
    }

    fn add_leaf(&mut self, prefix: K, len: u32) -> u32 {
        self.add_node(Node { prefix: prefix.first(len), rules: 1, children: [NONE; 2], len: len as u8 })
    }

    fn set_link(&mut self, parent: Option<(u32, usize)>, to: u32) {
        match parent {
            None => self.root = to,
            Some((node, side)) => self.nodes[node as usize].children[side] = to,
        }
    }

    /// Adds the first `len` bits of `value`; `len` is at least 1.
    pub fn insert(&mut self, value: K, len: u32) {
        let mut parent = None;
        let mut at = self.root;
        while at != NONE {
            let node = self.nodes[at as usize];
            let node_len = u32::from(node.len);
            let equal = value.equal_bits(node.prefix).min(node_len).min(len);
            if equal < node_len {
                let above = self.split(value, len, at, equal);
                return self.set_link(parent, above);
            }
            if equal == len {
                self.nodes[at as usize].rules += 1;
                return;
            }
            let side = value.bit(node_len);
            parent = Some((at, side));
            at = node.children[side];
        }
        let leaf = self.add_leaf(value, len);
        self.set_link(parent, leaf);
    }

    /// Puts a node of `equal` bits above node `below`, and the new prefix into it or beside `below`.
    fn split(&mut self, value: K, len: u32, below: u32, equal: u32) -> u32 {
        let old_side = self.nodes[below as usize].prefix.bit(equal);
        let mut children = [NONE; 2];
        children[old_side] = below;
        if equal < len {
            children[1 - old_side] = self.add_leaf(value, len);
        }
        let rules = u32::from(equal == len);
        self.add_node(Node { prefix: value.first(equal), rules, children, len: equal as u8 })
    }

    /// Takes one rule's prefix out, which must be in.
    pub fn remove(&mut self, value: K, len: u32) {
        let mut grandparent = None;
        let mut parent: Option<(u32, usize)> = None;
        let mut at = self.root;
        while at != NONE && u32::from(self.nodes[at as usize].len) < len {
            let side = value.bit(u32::from(self.nodes[at as usize].len));
            grandparent = parent;
            parent = Some((at, side));
            at = self.nodes[at as usize].children[side];
        }
        let Some(node) = self.nodes.get_mut(at as usize) else {
            debug_assert!(false, "a prefix is removed that was never inserted");
            return;
        };
        node.rules -= 1;
        if !self.merge(at, parent) {
            return;
        }
        // A leaf went, so its parent may have one child left and no rule.
        if let Some((above, _)) = parent {
            self.merge(above, grandparent);
        }
    }

    /// Takes out a node that has neither a rule nor two children. Whether it was a leaf.
    fn merge(&mut self, at: u32, parent: Option<(u32, usize)>) -> bool {
        let node = self.nodes[at as usize];
        let only_child = match node.children {
            [child, NONE] | [NONE, child] if node.rules == 0 => child,
            _ => return false,
        };
        self.set_link(parent, only_child);
        self.free.push(at);
        only_child == NONE
    }

    /// What can match `value`.
    pub fn lookup(&self, value: K) -> Prefixes {
        let mut answer = Prefixes::default();
        let mut at = self.root;
        while at != NONE {
            let node = &self.nodes[at as usize];
            let len = u32::from(node.len);
            let equal = value.equal_bits(node.prefix).min(len);
            if equal < len {
                answer.proof_bits = equal + 1; // the first bit that differs too
                return answer;
            }
            if node.rules > 0 {
                answer.lengths |= 1 << (len - 1);
            }
            if len == K::WIDTH {
                answer.proof_bits = len;
                return answer;
            }
            at = node.children[value.bit(len)];
            // Nothing on this side: if there is something on the other, the bit that chose is part of the proof.
            answer.proof_bits = if node.children == [NONE; 2] { len } else { len + 1 };
        }
        answer
    }

    /// Whether no prefix is in it.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.root == NONE && self.nodes.len() == self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The answer from the definition: `proof_bits` is one more than the longest run of bits that the value shares
    /// with any prefix, unless that run is a whole prefix below which there is nothing.
    fn plain(prefixes: &[(u32, u32)], value: u32) -> Prefixes {
        let mut answer = Prefixes::default();
        let mut longest = 0;
        for &(prefix, len) in prefixes {
            let equal = value.equal_bits(prefix).min(len);
            if equal == len {
                answer.lengths |= 1 << (len - 1);
            }
            longest = longest.max(equal);
        }
        let deeper = prefixes.iter().any(|&(p, len)| len > longest && value.equal_bits(p) >= longest);
        answer.proof_bits = if deeper { longest + 1 } else { longest };
        answer
    }

    fn prefix() -> impl Strategy<Value = (u32, u32)> {
        // Few bits vary, so prefixes are shared, nested and equal.
        (prop::sample::select(vec![0u32, 1 << 31, 0xc0a8_0000, 0xc0a8_0100, 0xc0a8_01ff]), 0u32..4, 1u32..=32)
            .prop_map(|(base, low, len)| ((base | low).first(len), len))
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(
            ops in prop::collection::vec((prefix(), any::<bool>()), 1..60),
            probes in prop::collection::vec((prefix(), any::<u32>()), 1..20),
        ) {
            let mut trie = Trie::<u32>::new();
            let mut wide = Trie::<u128>::new();
            let mut plain_set: Vec<(u32, u32)> = Vec::new();
            for (op, remove) in ops {
                match plain_set.iter().position(|p| *p == op).filter(|_| remove) {
                    Some(at) => {
                        plain_set.swap_remove(at);
                        trie.remove(op.0, op.1);
                        wide.remove(u128::from(op.0) << 96, op.1);
                    }
                    None => {
                        plain_set.push(op);
                        trie.insert(op.0, op.1);
                        wide.insert(u128::from(op.0) << 96, op.1);
                    }
                }
                for ((near, len), far) in &probes {
                    let value = near | far & !u32::MAX.first(*len);
                    prop_assert_eq!(trie.lookup(value), plain(&plain_set, value), "value {:#x}", value);
                    prop_assert_eq!(wide.lookup(u128::from(value) << 96).lengths, trie.lookup(value).lengths);
                }
            }
            for (prefix, len) in plain_set {
                trie.remove(prefix, len);
            }
            prop_assert!(trie.is_empty());
        }
    }
}
