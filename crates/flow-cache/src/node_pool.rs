//! The nodes of all prefix tries of a PMD, in memory that never moves. See `prefixes.rs`.

use hashbrown::HashMap;

/// Slots of a node: one for each value of eight bits.
const SLOTS: usize = 256;

/// Prefixes that can end in a node, of one to eight bits each: 510.
const ENDS: usize = 512;

/// A slot of a node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeSlot {
    /// What is behind these eight bits.
    pub below: Below,
    /// Bit `n`: a prefix ends after `n + 1` of these bits.
    pub ends: u8,
}

/// What is below a slot, or a trie's root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Below(u32);

/// [`Below`], to be told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Child {
    Nothing,
    /// The number of a node.
    Node(u32),
    /// The number of prefixes below; there was no node for them.
    Open(u32),
}

impl Below {
    /// In [`Below`]: the other bits are a number of prefixes.
    const OPEN: u32 = 1 << 31;

    #[inline(always)]
    pub fn child(self) -> Child {
        match self.0 {
            0 => Child::Nothing,
            open if open & Self::OPEN != 0 => Child::Open(open & !Self::OPEN),
            node => Child::Node(node),
        }
    }
}

impl From<Child> for Below {
    fn from(child: Child) -> Self {
        match child {
            Child::Nothing | Child::Open(0) => Below(0),
            Child::Node(node) => Below(node),
            Child::Open(prefixes) => Below(Self::OPEN | prefixes),
        }
    }
}

/// A port may have this many times as many nodes as are left: one alone uses seven eighths of all, several have equal
/// parts, and the next one finds some. Source: Choudhury and Hahne, Dynamic queue length thresholds, 1998.
const FACTOR: usize = 7;

/// A limited number of nodes.
///
/// Shape:  nodes have numbers from 1 on.
/// Memory: 4 KiB a node, in address space for all from the first on, in pages that are provided when first written.
#[derive(Debug)]
pub(crate) struct NodePool {
    most: usize,
    slots: Vec<NodeSlot>,
    /// For each node and prefix that ends there: how often it was added.
    counts: Vec<u32>,
    /// For each node: prefixes that end in it plus slots with something below.
    used: Vec<u32>,
    free: Vec<u32>,
    /// How many each ingress port has.
    by_port: HashMap<u32, usize>,
}

impl NodePool {
    /// A pool of `most` nodes.
    pub fn new(most: usize) -> Self {
        NodePool {
            most,
            slots: Vec::new(),
            counts: Vec::new(),
            used: Vec::new(),
            free: Vec::new(),
            by_port: HashMap::new(),
        }
    }

    /// Takes an empty node for a port, if one is left for it.
    pub fn take(&mut self, port: u32) -> Option<u32> {
        let left = self.left();
        if left == 0 {
            return None;
        }
        let own = self.by_port.entry(port).or_default();
        if *own >= left * FACTOR {
            return None;
        }
        *own += 1;
        if let Some(node) = self.free.pop() {
            return Some(node);
        }
        if self.used.is_empty() {
            self.slots.reserve_exact((self.most + 1) * SLOTS);
            self.counts.reserve_exact((self.most + 1) * ENDS);
            self.used.reserve_exact(self.most + 1);
            self.free.reserve_exact(self.most);
            // Node 0 stands for none.
            self.add();
        }
        Some(self.add())
    }

    fn add(&mut self) -> u32 {
        self.slots.resize(self.slots.len() + SLOTS, NodeSlot::default());
        self.counts.resize(self.counts.len() + ENDS, 0);
        self.used.push(0);
        self.used.len() as u32 - 1
    }

    /// Puts an empty node of a port back.
    pub fn put_back(&mut self, port: u32, node: u32) {
        debug_assert!(self.used[node as usize] == 0, "node {node} is in use");
        self.free.push(node);
        if let Some(own) = self.by_port.get_mut(&port) {
            *own -= 1;
            if *own == 0 {
                self.by_port.remove(&port);
            }
        }
    }

    /// Puts a node of a port back with all that are below it, whatever ends in them.
    pub fn put_back_all(&mut self, port: u32, root: u32) {
        let mut nodes = vec![root];
        while let Some(node) = nodes.pop() {
            for slot in &mut self.slots[node as usize * SLOTS..][..SLOTS] {
                if let Child::Node(child) = std::mem::take(slot).below.child() {
                    nodes.push(child);
                }
            }
            self.counts[node as usize * ENDS..][..ENDS].fill(0);
            self.used[node as usize] = 0;
            self.put_back(port, node);
        }
    }

    /// How many nodes nobody has.
    pub fn left(&self) -> usize {
        self.most - (self.used.len().saturating_sub(1) - self.free.len())
    }

    /// A node's slot for eight bits.
    #[inline(always)]
    pub fn slot(&self, node: u32, byte: u8) -> NodeSlot {
        self.slots[node as usize * SLOTS + usize::from(byte)]
    }

    /// What is below a node's slot.
    pub fn child(&self, node: u32, byte: u8) -> Child {
        self.slot(node, byte).below.child()
    }

    /// Changes what is below a node's slot.
    pub fn set_child(&mut self, node: u32, byte: u8, child: Child) {
        let below = &mut self.slots[node as usize * SLOTS + usize::from(byte)].below;
        let was_used = std::mem::replace(below, child.into()) != Below::default();
        let is_used = *below != Below::default();
        let used = &mut self.used[node as usize];
        *used = *used + u32::from(is_used) - u32::from(was_used);
    }

    /// Whether nothing ends in a node, or below it.
    pub fn is_unused(&self, node: u32) -> bool {
        self.used[node as usize] == 0
    }

    /// Adds a prefix of one to eight bits that ends in a node.
    pub fn add_end(&mut self, node: u32, byte: u8, bits: u8) {
        let count = &mut self.counts[count_place(node, byte, bits)];
        *count += 1;
        if *count == 1 {
            self.used[node as usize] += 1;
            self.mark(node, byte, bits, true);
        }
    }

    /// Removes one that was added.
    pub fn remove_end(&mut self, node: u32, byte: u8, bits: u8) {
        let count = &mut self.counts[count_place(node, byte, bits)];
        *count -= 1;
        if *count == 0 {
            self.used[node as usize] -= 1;
            self.mark(node, byte, bits, false);
        }
    }

    /// Sets or clears the bit of a prefix in the slots that it covers.
    fn mark(&mut self, node: u32, byte: u8, bits: u8, on: bool) {
        let (first, bit) = (node as usize * SLOTS + usize::from(byte), bits - 1);
        for slot in &mut self.slots[first..first + (128 >> bit)] {
            slot.ends = slot.ends & !(1 << bit) | u8::from(on) << bit;
        }
    }

    /// Whether all nodes are as they were made.
    #[cfg(test)]
    pub fn is_blank(&self) -> bool {
        let no_slot = self.slots.iter().all(|slot| slot.below == Below::default() && slot.ends == 0);
        no_slot && self.counts.iter().chain(&self.used).all(|n| *n == 0)
    }
}

/// Where a prefix that ends in a node is counted: those of one bit first.
fn count_place(node: u32, byte: u8, bits: u8) -> usize {
    let first_of_length = (1 << bits) - 2;
    node as usize * ENDS + first_of_length + usize::from(byte >> (8 - bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_takes_all_it_can_leaves_nodes_to_the_next() {
        let mut pool = NodePool::new(800);
        let all = |pool: &mut NodePool, port| std::iter::from_fn(|| pool.take(port)).collect::<Vec<_>>();
        let first = all(&mut pool, 1);
        assert_eq!(first.len(), 700);
        let second = all(&mut pool, 2);
        assert!(second.len() > 80 && !all(&mut pool, 3).is_empty(), "{}", second.len());
        assert_eq!(pool.take(1), None);
        // When the first has given its nodes back, the second may have nearly as many.
        first.iter().for_each(|node| pool.put_back(1, *node));
        let more = second.len() + all(&mut pool, 2).len();
        assert!(more > 680 && more <= 700, "{more}");
    }
}
