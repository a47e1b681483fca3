//! Fragments that met a `ct`: held until their datagram is complete, then each goes on with its own actions.

use sluice_action::{Actions, PortNo};
use sluice_conntrack::CachedConn;
use sluice_conntrack::fragments::{Fragments, HeldFragment};
use sluice_fate::{Counter, DropReason, Tally};
use sluice_mem::FramePool;
use sluice_packet::Buffers;
use std::sync::Arc;

/// What a fragment goes on with when it is released.
#[derive(Debug)]
pub(crate) struct Onward {
    /// Its actions, and the index of the first one behind the `ct`.
    pub list: Actions,
    pub from: usize,
    pub zone: u16,
    pub depth: u8,
    pub conn: CachedConn,
    pub no_output: DropReason,
    pub cut: usize,
    pub pushed_tags: i8,
}

/// The fragments that all PMDs hold, and one PMD's means to deal with them.
#[derive(Debug)]
pub(crate) struct Reassembly {
    pub held: Arc<Fragments<Onward>>,
    /// Frames for datagrams, each of the greatest length there is.
    scratch: Arc<dyn FramePool>,
    /// Memory for fragments that are released.
    released: Vec<HeldFragment<Onward>>,
}

impl Reassembly {
    pub fn new(held: Arc<Fragments<Onward>>, scratch: Arc<dyn FramePool>) -> Self {
        Reassembly { held, scratch, released: Vec::new() }
    }

    /// Where frames for datagrams come from.
    pub fn scratch(&self) -> &Arc<dyn FramePool> {
        &self.scratch
    }

    /// An empty list for released fragments; see [`Reassembly::recycle`].
    pub fn memory(&mut self) -> Vec<HeldFragment<Onward>> {
        std::mem::take(&mut self.released)
    }

    /// Takes the memory of an empty list back.
    pub fn recycle(&mut self, released: Vec<HeldFragment<Onward>>) {
        debug_assert!(released.is_empty());
        self.released = released;
    }

    /// The fragments whose datagrams did not become complete in time.
    pub fn take_expired(&mut self, now_ms: u64) -> Vec<HeldFragment<Onward>> {
        let mut expired = self.memory();
        self.held.take_expired(now_ms, &mut expired);
        expired
    }

    /// Drops the fragments that came from a port, because their buffers go away with it.
    pub fn purge(&mut self, port: PortNo, buffers: &mut Buffers, tally: &mut Tally) {
        self.held.take_of_port(port.0, &mut self.released);
        for fragment in self.released.drain(..) {
            buffers.add_pool(&fragment.pool);
            tally[Counter::Released] += 1;
            tally.drop(DropReason::FragmentPurged, 1);
            buffers.give_frame(fragment.packet.frame);
        }
    }
}
