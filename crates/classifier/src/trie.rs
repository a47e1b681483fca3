//! A compressed binary trie of prefixes. For a value it tells which prefix lengths match, and how many of the value's
//! bits prove that no others do.
//!
//! The answers depend only on the set of prefixes, not on their order of insertion. They equal those of OVS's trie
//! (lib/classifier.c), whose nodes hold at most 32 bits, where these have no limit.
//!
//! A trie made with [`Trie::that_grows`] that has become large keeps prefixes of 16 bits and more in [`TrieBuckets`].
//! Its answer then combines those of the short prefixes and of one bucket.

use crate::buckets::{BUCKET_BITS, NO_ROOT, TrieBuckets};
use std::fmt::Debug;

/// A value as a string of bits, most significant first: `u32` for IPv4 addresses and ports, `u128` for IPv6 addresses.
pub(crate) trait TrieKey: Copy + Eq + Default + Debug {
    const WIDTH: u32;
    fn first(self, len: u32) -> Self;
    fn bit(self, at: u32) -> usize;
    fn equal_bits(self, other: Self) -> u32;
    fn bucket(self) -> usize;
}

macro_rules! bits {
    ($type:ty) => {
        impl TrieKey for $type {
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
            #[inline]
            fn bucket(self) -> usize {
                (self >> (Self::WIDTH - BUCKET_BITS)) as usize
            }
        }
    };
}
bits!(u32);
bits!(u128);

/// A trie's answer for a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prefixes {
    /// Bit `n - 1` is set if a prefix of length `n` matches.
    pub lengths: u128,
    /// This many leading bits of the value prove that no other prefix matches.
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
struct TrieNode<K> {
    /// All bits from the root; the rest is zero.
    prefix: K,
    /// The number of rules with exactly this prefix.
    rules: u32,
    children: [u32; 2],
    len: u8,
}

/// No such node.
const NONE: u32 = NO_ROOT;

/// A trie with more nodes than this is divided into buckets. Smaller ones have their upper levels in the L1 cache.
const NODES_MAX: usize = 8192;

/// The link that leads to a subtrie.
#[derive(Clone, Copy)]
enum ParentLink {
    Root,
    Bucket(usize),
    Child(u32, usize),
}

/// Prefixes of 1 to `K::WIDTH` bits, each counted.
#[derive(Clone, Debug)]
pub(crate) struct Trie<K> {
    nodes: Vec<TrieNode<K>>,
    /// The first unused node. Each leads to the next by its first child, so that removing allocates nothing.
    free: u32,
    /// All prefixes; in a divided trie, those shorter than a bucket's number.
    root: u32,
    buckets: Option<TrieBuckets>,
    may_divide: bool,
}

/// The answer of a part of a trie: the lengths that match, the most leading bits that the value shares with a prefix,
/// and whether a prefix that shares that many is longer.
#[derive(Clone, Copy, Default)]
struct PartialLookup {
    lengths: u128,
    shared: u32,
    deeper: bool,
}

impl PartialLookup {
    fn and(self, other: PartialLookup) -> Prefixes {
        let shared = self.shared.max(other.shared);
        let deeper = self.deeper && self.shared == shared || other.deeper && other.shared == shared;
        // The proof includes the first bit that differs from the longer prefix.
        Prefixes { lengths: self.lengths | other.lengths, proof_bits: shared + u32::from(deeper) }
    }
}

impl<K: TrieKey> Trie<K> {
    /// The size of a node.
    pub const NODE_SIZE: usize = size_of::<TrieNode<K>>();

    pub fn new() -> Self {
        Trie { nodes: Vec::new(), free: NONE, root: NONE, buckets: None, may_divide: false }
    }

    /// As [`new`](Self::new), for what may become many prefixes with different first bits.
    pub fn that_grows() -> Self {
        Trie { may_divide: true, ..Trie::new() }
    }

    fn add_node(&mut self, node: TrieNode<K>) -> u32 {
        if let Some(unused) = self.nodes.get_mut(self.free as usize) {
            let [next, _] = std::mem::replace(unused, node).children;
            return std::mem::replace(&mut self.free, next);
        }
        self.nodes.push(node);
        self.nodes.len() as u32 - 1
    }

    /// The link to the part of the trie that holds a prefix.
    fn home(&self, value: K, len: u32) -> ParentLink {
        if self.buckets.is_some() && len >= BUCKET_BITS { ParentLink::Bucket(value.bucket()) } else { ParentLink::Root }
    }

    fn follow(&self, link: ParentLink) -> u32 {
        match link {
            ParentLink::Root => self.root,
            ParentLink::Bucket(bucket) => self.buckets.as_ref().map_or(NONE, |buckets| buckets.root(bucket)),
            ParentLink::Child(node, side) => self.nodes[node as usize].children[side],
        }
    }

    fn set_link(&mut self, link: ParentLink, to: u32) {
        match (link, &mut self.buckets) {
            (ParentLink::Bucket(bucket), Some(buckets)) => buckets.set_root(bucket, to),
            (ParentLink::Child(node, side), _) => self.nodes[node as usize].children[side] = to,
            (ParentLink::Root | ParentLink::Bucket(_), _) => self.root = to,
        }
    }

    /// Adds the first `len` bits of `value`; `len` is at least 1.
    pub fn insert(&mut self, value: K, len: u32) {
        self.insert_counted(value, len, 1);
        if self.may_divide && self.buckets.is_none() && self.nodes.len() > NODES_MAX {
            self.divide();
        }
    }

    fn insert_counted(&mut self, value: K, len: u32, rules: u32) {
        let leaf = TrieNode { prefix: value.first(len), rules, children: [NONE; 2], len: len as u8 };
        let mut link = self.home(value, len);
        loop {
            let at = self.follow(link);
            let Some(node) = self.nodes.get_mut(at as usize) else {
                let leaf = self.add_node(leaf);
                return self.set_link(link, leaf);
            };
            let node_len = u32::from(node.len);
            let equal = value.equal_bits(node.prefix).min(node_len).min(len);
            if equal < node_len {
                let above = self.split(leaf, at, equal);
                return self.set_link(link, above);
            }
            if equal == len {
                node.rules += rules;
                return;
            }
            link = ParentLink::Child(at, value.bit(node_len));
        }
    }

    /// Puts a node of `equal` bits above node `below`: the new leaf itself, or the parent of both.
    fn split(&mut self, leaf: TrieNode<K>, below: u32, equal: u32) -> u32 {
        let old_side = self.nodes[below as usize].prefix.bit(equal);
        let mut above = leaf;
        if equal < u32::from(leaf.len) {
            above = TrieNode { prefix: leaf.prefix.first(equal), rules: 0, children: [NONE; 2], len: equal as u8 };
            above.children[1 - old_side] = self.add_node(leaf);
        }
        above.children[old_side] = below;
        self.add_node(above)
    }

    /// Moves prefixes that are long enough into buckets.
    fn divide(&mut self) {
        let old = std::mem::replace(self, Trie { buckets: Some(TrieBuckets::new()), ..Trie::that_grows() });
        let mut stack = vec![old.root];
        while let Some(at) = stack.pop() {
            if let Some(node) = old.nodes.get(at as usize) {
                if node.rules > 0 {
                    self.insert_counted(node.prefix, node.len.into(), node.rules);
                }
                stack.extend(node.children);
            }
        }
    }

    /// Removes one rule's prefix, which must have been inserted.
    pub fn remove(&mut self, value: K, len: u32) {
        let mut above = None;
        let mut link = self.home(value, len);
        let at = loop {
            let at = self.follow(link);
            match self.nodes.get(at as usize) {
                Some(node) if u32::from(node.len) < len => {
                    above = Some((at, link));
                    link = ParentLink::Child(at, value.bit(node.len.into()));
                }
                Some(_) => break at,
                None => {
                    debug_assert!(false, "a prefix is removed that was never inserted");
                    return;
                }
            }
        };
        self.nodes[at as usize].rules -= 1;
        if self.merge(at, link)
            && let Some((above, link)) = above
        {
            // Without the leaf, the node above may have only one child and no rule.
            self.merge(above, link);
        }
    }

    /// Removes a node that has neither a rule nor two children; whether it was a leaf.
    fn merge(&mut self, at: u32, link: ParentLink) -> bool {
        let node = self.nodes[at as usize];
        let only_child = match node.children {
            [child, NONE] | [NONE, child] if node.rules == 0 => child,
            _ => return false,
        };
        self.set_link(link, only_child);
        self.nodes[at as usize].children[0] = std::mem::replace(&mut self.free, at);
        only_child == NONE
    }

    /// The answer for `value`.
    pub fn lookup(&self, value: K) -> Prefixes {
        let short = self.lookup_from(self.root, value);
        let Some(buckets) = &self.buckets else {
            return short.and(PartialLookup::default());
        };
        let bucket = value.bucket();
        short.and(match buckets.root(bucket) {
            NONE => buckets.shared_bits(bucket).map_or(PartialLookup::default(), |shared| PartialLookup {
                lengths: 0,
                shared,
                deeper: true,
            }),
            root => self.lookup_from(root, value),
        })
    }

    fn lookup_from(&self, root: u32, value: K) -> PartialLookup {
        let mut found = PartialLookup::default();
        let mut at = root;
        while let Some(node) = self.nodes.get(at as usize) {
            let len = u32::from(node.len);
            found.shared = value.equal_bits(node.prefix).min(len);
            found.deeper = found.shared < len;
            if found.deeper {
                break;
            }
            if node.rules > 0 {
                found.lengths |= 1 << (len - 1);
            }
            if len == K::WIDTH {
                break;
            }
            found.deeper = node.children != [NONE; 2];
            at = node.children[value.bit(len)];
        }
        found
    }

    /// Whether it holds no prefix.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        let next = |at: &u32| self.nodes.get(*at as usize).map(|node| node.children[0]);
        let free = std::iter::successors(Some(self.free), next).take_while(|at| *at != NONE);
        self.root == NONE && self.nodes.len() == free.count()
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
            steps_until_divided in 0usize..20,
        ) {
            let mut trie = Trie::<u32>::new();
            let mut wide = Trie::<u128>::new();
            let mut divided = Trie::<u32>::that_grows();
            let mut plain_set: Vec<(u32, u32)> = Vec::new();
            for (step, (op, remove)) in ops.into_iter().enumerate() {
                if step == steps_until_divided {
                    divided.divide();
                }
                match plain_set.iter().position(|p| *p == op).filter(|_| remove) {
                    Some(at) => {
                        plain_set.swap_remove(at);
                        trie.remove(op.0, op.1);
                        divided.remove(op.0, op.1);
                        wide.remove(u128::from(op.0) << 96, op.1);
                    }
                    None => {
                        plain_set.push(op);
                        trie.insert(op.0, op.1);
                        divided.insert(op.0, op.1);
                        wide.insert(u128::from(op.0) << 96, op.1);
                    }
                }
                for ((near, len), far) in &probes {
                    let value = near | far & !u32::MAX.first(*len);
                    prop_assert_eq!(trie.lookup(value), plain(&plain_set, value), "value {:#x}", value);
                    prop_assert_eq!(divided.lookup(value), trie.lookup(value), "divided, value {:#x}", value);
                    prop_assert_eq!(wide.lookup(u128::from(value) << 96).lengths, trie.lookup(value).lengths);
                }
            }
            for (prefix, len) in plain_set {
                trie.remove(prefix, len);
                divided.remove(prefix, len);
            }
            prop_assert!(trie.is_empty() && divided.is_empty());
        }
    }
}
