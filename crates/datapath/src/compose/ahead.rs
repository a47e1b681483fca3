//! The packets in front of a replay that are still to be tracked.
//!
//! A replay tracks its packet at once, before packets in front of it that take the passes one by one. Between different
//! connections nobody can tell, since what a packet does to a connection does not depend on others. So only packets that
//! may belong to the same connection as one in front, in either direction, and those behind a packet of which that is
//! not known, have to take the passes too.
//!
//! One order is not kept. A packet that NAT translates in one zone, and that a later zone tracks by its new addresses, may be
//! overtaken there by one that came by the same port, in the same batch, with these addresses.

use super::path::{Endpoints, IPV6, IPV6_WORDS};
use super::recorder::only_ct;
use sluice_flow::{PacketKey, layout};
use sluice_flow_cache::{FlowVerdict, Megaflow};
use sluice_simd::compare;
use sluice_simd::hash::finish;

/// Bits of the filter: with three packets in front that are still to be tracked, one in 170 others is taken for one of their
/// connections.
const BITS: usize = 512;

/// A filter over the connections of such packets.
pub(super) struct Ahead {
    connections: [u64; BITS / 64],
    /// There is a packet whose connection is not known.
    any: bool,
}

impl Ahead {
    /// No packet yet.
    #[inline]
    pub fn none() -> Self {
        Ahead { connections: [0; BITS / 64], any: false }
    }

    /// Adds a packet that takes the passes one by one.
    #[inline]
    pub fn add(&mut self, key: &PacketKey) {
        let bit = bit_of(key);
        self.connections[bit / 64] |= 1 << (bit % 64);
    }

    /// Adds a packet without a composed entry, by the megaflow that it meets; `None` if it meets what the tables say.
    pub fn add_met(&mut self, key: &PacketKey, flow: Option<&Megaflow>) {
        match flow {
            Some(flow) if flow.verdict() != FlowVerdict::Actions => {}
            // A fragment does not tell its ports.
            Some(flow) if only_ct(flow).is_some() && key.get(layout::NW_FRAG) == [0] => self.add(key),
            _ => self.any = true,
        }
    }

    /// Whether a packet's connection may be one of theirs.
    #[inline]
    pub fn may_have(&self, key: &PacketKey) -> bool {
        let bit = bit_of(key);
        self.any || self.connections[bit / 64] >> (bit % 64) & 1 != 0
    }
}

/// The bit of a connection, the same for both directions.
#[inline]
fn bit_of(key: &PacketKey) -> usize {
    let Endpoints { mut addresses, ports } = Endpoints::of_ipv4(key);
    if key.has_line(IPV6) {
        // Both directions have the same words, in another order.
        addresses = compare::words(&key.lines[IPV6].0)[..IPV6_WORDS].iter().fold(0, |all, word| all ^ word);
    }
    let (addresses, ports) = (addresses as u32 ^ (addresses >> 32) as u32, (ports ^ ports >> 16) as u16);
    // `finish` folds the halves: the ports meet the first two bytes of the addresses, which seldom differ.
    finish(u64::from(ports) << 32 | u64::from(addresses)) as usize % BITS
}
