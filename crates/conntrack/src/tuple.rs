//! The tuple that identifies a connection in one direction.

use sluice_packet::headers::ip_proto;
use sluice_simd::HashKey;
use sluice_simd::hash::finish;

/// One end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// IPv6 address, or an IPv4 address in the first four bytes and zeros.
    pub addr: [u8; 16],
    /// TCP or UDP port, or ICMP identifier (the same at both ends); zero for other protocols.
    pub port: u16,
    /// ICMP type of the packets that this end sends; at the other end, that of the replies.
    pub icmp_type: u8,
    /// ICMP code; always zero, since only messages with that code have connections.
    pub icmp_code: u8,
}

/// A connection as a packet's sender sees it. Without NAT, replies have the reversed tuple.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// The sender.
    pub src: Endpoint,
    /// The receiver.
    pub dst: Endpoint,
    /// Whether the addresses are IPv6.
    pub v6: bool,
    /// IP protocol.
    pub proto: u8,
    /// Connection zone.
    pub zone: u16,
}

impl Tuple {
    /// The tuple of the other direction.
    #[inline]
    pub fn reversed(&self) -> Tuple {
        Tuple { src: self.dst, dst: self.src, ..*self }
    }

    /// Whether it has ports that NAT may change.
    #[inline]
    pub fn has_ports(&self) -> bool {
        matches!(self.proto, ip_proto::TCP | ip_proto::UDP)
    }

    /// Whether its ends have ICMP types in place of ports.
    #[inline]
    pub fn is_icmp(&self) -> bool {
        matches!((self.proto, self.v6), (ip_proto::ICMP, false) | (ip_proto::ICMPV6, true))
    }

    /// Its hash, which is the same for the reversed tuple, so that a connection without NAT is in the table once.
    ///
    /// The ends are sorted and then hashed with different addends. (A sum of two hashes would also work, but tuples
    /// with equal ends, or with ends swapped between connections, would collide under every hash key.)
    #[inline]
    pub fn hash(&self, key: &HashKey) -> u64 {
        let (low, high) = if self.src <= self.dst { (&self.src, &self.dst) } else { (&self.dst, &self.src) };
        finish(key.line(0, &Tuple { src: *low, dst: *high, ..*self }.words()))
    }

    /// The whole tuple as a cache line.
    pub(crate) fn words(&self) -> [u64; 8] {
        let ([a, b, c], [d, e, f]) = (self.src.words(), self.dst.words());
        let rest = u64::from(self.zone) | u64::from(self.proto) << 16 | u64::from(self.v6) << 24;
        [a, b, c, d, e, f, rest, 0]
    }
}

impl Endpoint {
    /// Its twenty bytes in three words.
    fn words(&self) -> [u64; 3] {
        let (halves, _) = self.addr.as_chunks::<8>();
        let rest = u64::from(self.port) | u64::from(self.icmp_type) << 16 | u64::from(self.icmp_code) << 24;
        [u64::from_le_bytes(halves[0]), u64::from_le_bytes(halves[1]), rest]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_have_one_hash_and_other_tuples_another() {
        let key = HashKey::from_seed(1);
        let end = |last: u8, port| Endpoint { addr: [last; 16], port, ..Endpoint::default() };
        let a = Tuple { src: end(1, 10), dst: end(2, 20), v6: true, proto: 6, zone: 5 };
        assert_eq!(a.hash(&key), a.reversed().hash(&key));
        let swapped_ports = Tuple { src: end(1, 20), dst: end(2, 10), ..a };
        for other in [swapped_ports, Tuple { zone: 6, ..a }, Tuple { proto: 17, ..a }, Tuple { v6: false, ..a }] {
            assert_ne!(a.hash(&key), other.hash(&key), "{other:?}");
        }
    }
}
