//! What a translation knows of the packets of a megaflow that are sampled.

use sluice_sflow::{Output, SampledTunnel};

/// Takes a share of the packets for a bridge's sFlow agent. The packet itself goes on as if nothing had been.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SFlowAction {
    /// The share, in 2^32; all packets if it is the maximum.
    pub probability: u32,
    /// Bytes of a packet that are sampled, at most.
    pub header_len: u32,
    /// The number of the bridge by which the packet came.
    pub bridge: u32,
    /// The datapath's meter that samples have to pass, if there is one for them.
    pub meter: Option<u32>,
    /// The index of the interface by which the packet came; 0: it has none.
    pub input: u32,
    /// Where it goes.
    pub output: Output,
    /// The tag control information of its outer VLAN tag as it is sent.
    pub dst_tci: u16,
    /// The IP protocol of the tunnel by which it came, if so; 0: unknown.
    pub ingress_protocol: u8,
    /// The UDP port to which it came by that tunnel; 0: unknown.
    pub ingress_port: u16,
    /// The tunnel by which it is sent.
    pub egress: Option<SampledTunnel>,
    /// What becomes of its MPLS labels; `None`: that is not told.
    pub labels: Option<LabelChange>,
}

/// What actions do to a stack of MPLS labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LabelChange {
    /// How many of the outer labels go.
    popped: u8,
    /// What is pushed then, the outer last.
    pushed: Vec<u32>,
}

/// Labels that a sample tells of, at most. Source: Open vSwitch lib/flow.h, `FLOW_MAX_MPLS_LABELS`.
pub const LABELS_MAX: usize = 3;

impl LabelChange {
    /// Pushes a label.
    pub fn push(&mut self, label: u32) {
        self.pushed.push(label);
    }

    /// Pops one.
    pub fn pop(&mut self) {
        if self.pushed.pop().is_none() {
            self.popped = self.popped.saturating_add(1);
        }
    }

    /// The labels of a packet that came with these, the outer first. None if they are too many, or too few to be popped.
    pub fn after(&self, came: &[u32]) -> Vec<u32> {
        let Some(kept) = came.get(usize::from(self.popped)..) else { return Vec::new() };
        let labels: Vec<u32> = self.pushed.iter().rev().chain(kept).copied().collect();
        if labels.len() > LABELS_MAX { Vec::new() } else { labels }
    }
}
