//! The packets in front of a replay that are still to be tracked.
//!
//! A replay tracks its packet at once, before packets in front of it that take the passes one by one. Between different
//! connections nobody can tell, since what a packet does to a connection does not depend on others. So only packets that
//! may belong to the same connection as one in front, in either direction, and those behind a packet of which that is
//! not known, have to take the passes too.
//!
//! A packet whose entry translates it may also belong to the connection that its new addresses tell, in a later zone, or in
//! the same as a reply to it.
//!
//! One order is not kept. A packet without an entry that NAT translates in one zone, and that a later zone tracks by its new
//! addresses, may be overtaken there by one that came by the same port, in the same batch, with these addresses.

use super::path::{Endpoints, IPV6, IPV6_WORDS};
use super::recorder::only_ct;
use sluice_conntrack::Tuple;
use sluice_flow::{PacketKey, layout};
use sluice_flow_cache::{FlowVerdict, Megaflow};
use sluice_simd::compare;
use sluice_simd::hash::finish;

/// Bits of the filter: with three packets in front that are still to be tracked, one in 170 others is taken for one of their
/// connections.
const BITS: usize = 512;

/// The bit of a connection in the filter, the same for both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AheadBit(usize);

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
    pub fn add(&mut self, connection: AheadBit) {
        let AheadBit(bit) = connection;
        self.connections[bit / 64] |= 1 << (bit % 64);
    }

    /// Adds a packet without a composed entry, by the megaflow that it meets; `None` if it meets what the tables say.
    pub fn add_met(&mut self, key: &PacketKey, flow: Option<&Megaflow>) {
        match flow {
            Some(flow) if flow.verdict() != FlowVerdict::Actions => {}
            // A fragment does not tell its ports.
            Some(flow) if only_ct(flow).is_some() && key.get(layout::NW_FRAG) == [0] => self.add(AheadBit::of(key)),
            _ => self.any = true,
        }
    }

    /// Whether a packet's connection may be one of theirs.
    #[inline]
    pub fn may_have(&self, connection: AheadBit) -> bool {
        let AheadBit(bit) = connection;
        self.any || self.connections[bit / 64] >> (bit % 64) & 1 != 0
    }
}

impl AheadBit {
    /// That of the connection of a packet with this key.
    #[inline]
    pub fn of(key: &PacketKey) -> Self {
        let Endpoints { mut addresses, ports } = Endpoints::of_ipv4(key);
        if key.has_line(IPV6) {
            // Both directions have the same words, in another order.
            addresses = compare::words(&key.lines[IPV6].0)[..IPV6_WORDS].iter().fold(0, |all, word| all ^ word);
        }
        AheadBit::of_sums(addresses, ports ^ ports >> 16)
    }

    /// That of a connection with this tuple.
    pub fn of_tuple(tuple: &Tuple) -> Self {
        let sum = |addr: &[u8; 16]| {
            let (halves, _) = addr.as_chunks::<8>();
            // An IPv4 address is in the first four bytes, and zeros behind it.
            halves.iter().fold(0, |all, half| all ^ u64::from_le_bytes(*half))
        };
        let ports = (tuple.src.port ^ tuple.dst.port).swap_bytes();
        AheadBit::of_sums(sum(&tuple.src.addr) ^ sum(&tuple.dst.addr), u32::from(ports))
    }

    /// By the exclusive or of the addresses' words, and that of the ports in its low half.
    #[inline]
    fn of_sums(addresses: u64, ports: u32) -> Self {
        let addresses = addresses as u32 ^ (addresses >> 32) as u32;
        // `finish` folds the halves: the ports meet the first two bytes of the addresses, which seldom differ.
        AheadBit(finish(u64::from(ports as u16) << 32 | u64::from(addresses)) as usize % BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_conntrack::Endpoint;

    #[test]
    fn a_tuple_has_the_bit_of_its_packets_in_both_directions() {
        for v6 in [false, true] {
            for n in 1..50u8 {
                let size = if v6 { 16 } else { 4 };
                let end = |first: u8, port: u16| {
                    let addr = std::array::from_fn(|i| if i < size { first.wrapping_mul(7 + i as u8) } else { 0 });
                    Endpoint { addr, port, ..Endpoint::default() }
                };
                let (src, dst) = (end(n, 1000 + u16::from(n)), end(n + 100, 80));
                let tuple = Tuple { src, dst, v6, proto: 6, zone: 3 };
                for tuple in [tuple, tuple.reversed()] {
                    let mut key = PacketKey::ZERO;
                    let spans = [(layout::NW_SRC, layout::NW_DST), (layout::IPV6_SRC, layout::IPV6_DST)];
                    let (src, dst) = spans[usize::from(v6)];
                    key.set(src, &tuple.src.addr[..size]);
                    key.set(dst, &tuple.dst.addr[..size]);
                    key.set(layout::TP_SRC, &tuple.src.port.to_be_bytes());
                    key.set(layout::TP_DST, &tuple.dst.port.to_be_bytes());
                    assert_eq!(AheadBit::of(&key), AheadBit::of_tuple(&tuple));
                    assert_eq!(AheadBit::of(&key), AheadBit::of_tuple(&tuple.reversed()));
                }
            }
        }
    }
}
