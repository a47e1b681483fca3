//! Which prefix lengths of a field can match a value: a trie of eight bits a step.
//!
//! A node has a slot for each value of its eight bits, with a bit for each of the eight lengths that may end there. A
//! prefix that ends in the step is written to all slots it covers; prefixes of one length do not overlap, so a bit has
//! one owner and can be cleared when that goes. A lookup of an IPv4 address takes at most four loads.

use std::collections::HashMap;

/// The node of the first eight bits.
const ROOT: u32 = 0;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Slot {
    child: u32,
    /// Bit `n`: a prefix ends after `n + 1` more bits.
    ends: u8,
}

struct Node {
    slots: Box<[Slot; 256]>,
    /// Prefixes and children that hang here.
    used: u32,
}

/// The prefixes of a field.
pub struct Prefixes {
    nodes: Vec<Node>,
    free: Vec<u32>,
    counts: HashMap<(u128, u8), u32>,
}

/// Byte `step` of a value, the first byte in the high bits.
fn byte(value: u128, step: u32) -> usize {
    (value >> (120 - 8 * step)) as usize & 0xff
}

impl Prefixes {
    pub fn new() -> Self {
        let mut prefixes = Prefixes { nodes: Vec::new(), free: Vec::new(), counts: HashMap::new() };
        prefixes.add_node();
        prefixes
    }

    fn add_node(&mut self) -> u32 {
        let node = Node { slots: Box::new([Slot { child: NONE, ends: 0 }; 256]), used: 0 };
        if let Some(at) = self.free.pop() {
            self.nodes[at as usize] = node;
            return at;
        }
        self.nodes.push(node);
        self.nodes.len() as u32 - 1
    }

    /// Sets or clears the bit of a prefix in the slots it covers.
    fn mark(&mut self, node: u32, value: u128, len: u8, on: bool) {
        let step = u32::from(len - 1) / 8;
        let bits = (len - 1) % 8;
        let first = byte(value, step);
        for slot in &mut self.nodes[node as usize].slots[first..first + (128 >> bits)] {
            slot.ends = slot.ends & !(1 << bits) | u8::from(on) << bits;
        }
    }

    /// Adds the first `len` bits of `value`, the rest zero.
    pub fn insert(&mut self, value: u128, len: u8) {
        let count = self.counts.entry((value, len)).or_default();
        *count += 1;
        if *count > 1 {
            return;
        }
        let mut at = ROOT;
        for step in 0..u32::from(len - 1) / 8 {
            let slot = byte(value, step);
            if self.nodes[at as usize].slots[slot].child == NONE {
                let child = self.add_node();
                self.nodes[at as usize].slots[slot].child = child;
                self.nodes[at as usize].used += 1;
            }
            at = self.nodes[at as usize].slots[slot].child;
        }
        self.nodes[at as usize].used += 1;
        self.mark(at, value, len, true);
    }

    pub fn remove(&mut self, value: u128, len: u8) {
        let count = self.counts.get_mut(&(value, len)).expect("it is in");
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.counts.remove(&(value, len));
        let mut path = vec![ROOT];
        for step in 0..u32::from(len - 1) / 8 {
            let at = path[step as usize];
            path.push(self.nodes[at as usize].slots[byte(value, step)].child);
        }
        self.mark(path[path.len() - 1], value, len, false);
        while let Some(at) = path.pop() {
            self.nodes[at as usize].used -= 1;
            if self.nodes[at as usize].used > 0 || at == ROOT {
                break;
            }
            self.free.push(at);
            let above = path[path.len() - 1] as usize;
            self.nodes[above].slots[byte(value, path.len() as u32 - 1)].child = NONE;
        }
    }

    /// Bit `n - 1`: a prefix of `n` bits matches.
    #[inline]
    pub fn lengths(&self, value: u128) -> u128 {
        let mut lengths = 0;
        let mut at = ROOT;
        let mut step = 0;
        while let Some(node) = self.nodes.get(at as usize) {
            let slot = node.slots[byte(value, step)];
            lengths |= u128::from(slot.ends) << (8 * step);
            at = slot.child;
            step += 1;
        }
        lengths
    }

    pub fn bytes(&self) -> usize {
        self.nodes.len() * size_of::<[Slot; 256]>() + self.counts.capacity() * 40
    }
}
