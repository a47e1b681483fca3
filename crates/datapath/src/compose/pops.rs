//! The megaflows by which packets lately lost a tunnel's header.
//!
//! All packets of a tunnel, whatever is in them, meet one megaflow with their outer headers: its mask has the addresses of
//! this end and the UDP port, and nothing of the sender. So the next packet that comes by a port is compared with the
//! megaflows of the last ones before any lookup. One that belongs to such a megaflow needs no hash of its outer headers
//! and no search for them: its one lookup is that of the inner packet.
//!
//! A remembered megaflow is a hint. It is a hit if it is live and contains the packet's key, as with every other index,
//! so no change of rules, ports or neighbours has to be announced here.

use super::path::FlowRef;
use crate::batch::Batch;
use crate::context::Context;
use arrayvec::ArrayVec;
use sluice_fate::Counter;
use sluice_flow_cache::Megaflow;
use sluice_packet::BatchMask;
use sluice_simd::isa::Kernel;
use sluice_simd::{Isa, VectorOps};

/// Megaflows that are remembered: of both address families, by two ports.
const POPS_MAX: usize = 4;
/// Packets after which it is decided whether comparing has paid.
const WINDOW: u32 = 4096;
/// One in this many must have been a packet of a tunnel.
const FOUND_OF: u32 = 8;
/// Otherwise nothing is remembered for this many windows.
const PAUSE: u32 = 32;

/// One PMD's memory of what took headers off.
#[derive(Debug, Default)]
pub(super) struct KnownPops {
    /// The one that was met last is the first.
    flows: ArrayVec<FlowRef, POPS_MAX>,
    /// Packets compared in this window, and found.
    compared: u32,
    found: u32,
    /// Packets left for which nothing is remembered.
    paused: u32,
}

impl KnownPops {
    /// Forgets all.
    pub fn clear(&mut self) {
        *self = KnownPops::default();
    }

    /// Remembers what took a header off.
    #[inline]
    pub fn remember(&mut self, flow: &Megaflow) {
        let flow = FlowRef::of(flow);
        if self.paused == 0 && self.flows.first() != Some(&flow) {
            self.remember_first(flow);
        }
    }

    #[cold]
    fn remember_first(&mut self, flow: FlowRef) {
        self.flows.retain(|known| *known != flow);
        if self.flows.is_full() {
            self.flows.pop();
        }
        self.flows.insert(0, flow);
    }

    /// Whether none is remembered.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Finds the packets of a batch just received that belong to a remembered megaflow: these are `known` afterwards.
    #[inline]
    pub fn find<'g>(&mut self, isa: Isa, batch: &mut Batch<'_, 'g>, context: &mut Context<'_, 'g>) {
        let n = batch.packets.len() as u32;
        self.paused = self.paused.saturating_sub(n);
        if self.flows.is_empty() {
            return;
        }
        for known in &self.flows {
            if let Some(flow) = known.get(context.flows) {
                isa.run(Compare { flow, batch });
                if batch.known == batch.all() {
                    break;
                }
            }
        }
        let found = batch.known.len();
        for counter in [Counter::MegaflowHits, Counter::ComposedHits] {
            context.tally[counter] += found as u64;
        }
        self.compared += n;
        self.found += found as u32;
        if self.compared >= WINDOW {
            let pays = self.found >= WINDOW / FOUND_OF;
            (self.compared, self.found) = (0, 0);
            if !pays {
                self.flows.clear();
                self.paused = WINDOW * PAUSE;
            }
        }
    }
}

/// Compares the packets of a batch with a megaflow.
struct Compare<'a, 'm, 'g> {
    flow: &'g Megaflow,
    batch: &'a mut Batch<'m, 'g>,
}

impl Kernel for Compare<'_, '_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<V: VectorOps>(self, ops: V) {
        for i in BatchMask(self.batch.all().0 & !self.batch.known.0) {
            if self.flow.contains_with(ops, &self.batch.keys[i]) {
                self.batch.hits[i] = Some(self.flow);
                self.batch.known.insert(i);
            }
        }
    }
}
