//! Choosing the address and port that NAT gives a connection.
//!
//! As in Open vSwitch, a hash selects the address. Ports are tried in sequence, up to 128, from the sender's own port
//! on (or from one selected by hash, if a range was given), then from random ports with fewer attempts each time, so
//! that a nearly full range is detected quickly. Random port choice and persistence, which OVS's userspace tracker
//! accepts and ignores, are implemented here.

use crate::tuple::Tuple;
use sluice_action::ct::{NatSpec, NatTarget, PortChoice};
use sluice_simd::HashKey;
use sluice_simd::hash::{finish, splitmix64};

/// Ports tried in sequence. Source: OVS lib/conntrack.c, max_attempts.
const ATTEMPTS: u32 = 128;
/// With fewer attempts than this there is no further round. Source: as above.
const ATTEMPTS_MIN: u32 = 16;
/// The ports that may replace an unprivileged port. Source: as above, MIN_NAT_EPHEMERAL_PORT.
const EPHEMERAL: (u16, u16) = (1024, 65535);

/// The reply tuple of a new connection: one for which `is_free` holds. `None` if none was found.
pub(crate) fn choose(
    spec: &NatSpec,
    target: NatTarget,
    original: &Tuple,
    source: (&HashKey, u64),
    is_free: impl Fn(&Tuple) -> bool,
) -> Option<Tuple> {
    let (key, mut entropy) = source;
    let hash = range_hash(spec, original, key);
    let mut reply = original.reversed();
    let address =
        address(spec, target, original, if spec.persistent { sender_hash(spec, original, key) } else { hash });
    match target {
        NatTarget::Src => reply.dst.addr = address,
        NatTarget::Dst => reply.src.addr = address,
    }
    if !original.has_ports() {
        return is_free(&reply).then_some(reply);
    }
    let start = match spec.choice {
        PortChoice::Unsaid | PortChoice::Hash => hash,
        PortChoice::Random => splitmix64(&mut entropy) as u32,
    };
    let given = spec.ports.map(|(min, max)| Ports::in_range(min, max.max(min), start));
    if let (NatTarget::Dst, Some(ports)) = (target, given) {
        let base = reply;
        if let Some(port) = ports.search(&mut entropy, |port| is_free(&with_ports(&base, port, base.dst.port))) {
            return Some(with_ports(&base, port, base.dst.port));
        }
        reply.src.port = ports.start;
    }
    let ports = given.filter(|_| target == NatTarget::Src).unwrap_or_else(|| Ports::like(original.src.port));
    let port = ports.search(&mut entropy, |port| is_free(&with_ports(&reply, reply.src.port, port)))?;
    Some(with_ports(&reply, reply.src.port, port))
}

fn with_ports(reply: &Tuple, src: u16, dst: u16) -> Tuple {
    let mut out = *reply;
    (out.src.port, out.dst.port) = (src, dst);
    out
}

/// A range of ports and where to start. A start outside the range is tried first.
#[derive(Clone, Copy, Debug)]
struct Ports {
    min: u16,
    max: u16,
    start: u16,
}

impl Ports {
    fn in_range(min: u16, max: u16, hash: u32) -> Self {
        let count = u32::from(max - min) + 1;
        Ports { min, max, start: min + (hash % count) as u16 }
    }

    /// The ports that may replace `own`: privileged ones for a privileged one. Source: RFC 6056, and OVS
    /// set_sport_range.
    fn like(own: u16) -> Self {
        let (min, max) = match own {
            0..512 => (1, 511),
            512..1024 => (600, 1023),
            _ => EPHEMERAL,
        };
        Ports { min, max, start: own }
    }

    fn search(&self, entropy: &mut u64, is_free: impl Fn(u16) -> bool) -> Option<u16> {
        let count = u32::from(self.max - self.min) + 1;
        let in_range = |port| (self.min..=self.max).contains(&port);
        let (mut attempts, mut port) = (count.min(ATTEMPTS), self.start);
        loop {
            for _ in 0..attempts {
                if is_free(port) {
                    return Some(port);
                }
                port = if !in_range(port) || port == self.max { self.min } else { port + 1 };
            }
            if attempts >= count || attempts < ATTEMPTS_MIN {
                return None;
            }
            attempts /= 2;
            port = self.min + (splitmix64(entropy) % u64::from(count)) as u16;
        }
    }
}

/// The words of the range, in a line of the hash of its own.
fn range_words(spec: &NatSpec) -> [u64; 8] {
    let word = |addr: &[u8; 16], i: usize| u64::from_le_bytes(addr.as_chunks::<8>().0[i]);
    let (min, max) = &spec.addrs;
    let (first, last) = spec.ports.unwrap_or((0, 0));
    let ports = u64::from(first) | u64::from(last) << 16;
    [word(min, 0), word(min, 1), word(max, 0), word(max, 1), ports, 0, 0, 0]
}

/// A hash of the connection, including its direction, and the range.
fn range_hash(spec: &NatSpec, original: &Tuple, key: &HashKey) -> u32 {
    finish(key.line(0, &original.words()).wrapping_add(key.line(1, &range_words(spec)))) as u32
}

/// A hash of the sender's address, its zone and the range.
fn sender_hash(spec: &NatSpec, original: &Tuple, key: &HashKey) -> u32 {
    let mut sender = Tuple { zone: original.zone, v6: original.v6, ..Tuple::default() };
    sender.src.addr = original.src.addr;
    range_hash(spec, &sender, key)
}

/// The address that the hash selects from the range. Only part of a range wider than 32 bits is used.
fn address(spec: &NatSpec, target: NatTarget, original: &Tuple, hash: u32) -> [u8; 16] {
    let (min, max) = &spec.addrs;
    if *min == [0; 16] {
        return match target {
            NatTarget::Src => original.src.addr,
            NatTarget::Dst => original.dst.addr,
        };
    }
    // An IPv4 address is in the first four bytes.
    let shift = if original.v6 { 0 } else { 96 };
    let (min, max) = (u128::from_be_bytes(*min) >> shift, u128::from_be_bytes(*max) >> shift);
    let count = max.saturating_sub(min).min(0xffff_fffe) + 1;
    ((min + u128::from(hash) % count) << shift).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::collections::HashSet;

    fn original(src_port: u16) -> Tuple {
        let mut tuple = Tuple { proto: 17, zone: 1, ..Tuple::default() };
        tuple.src.addr[..4].copy_from_slice(&[10, 0, 0, 1]);
        tuple.dst.addr[..4].copy_from_slice(&[10, 0, 0, 2]);
        (tuple.src.port, tuple.dst.port) = (src_port, 53);
        tuple
    }

    fn v4(last: u8) -> [u8; 16] {
        let mut addr = [0; 16];
        addr[..4].copy_from_slice(&[192, 168, 0, last]);
        addr
    }

    fn spec(target: NatTarget, ports: Option<(u16, u16)>) -> NatSpec {
        NatSpec { target: Some(target), addrs: (v4(1), v4(1)), ports, ..NatSpec::default() }
    }

    #[test]
    fn the_own_port_is_kept_while_it_is_free_and_privileged_ones_stay_so() {
        let key = HashKey::from_seed(1);
        for (own, class) in [(5000, EPHEMERAL), (300, (1, 511)), (700, (600, 1023)), (520, (600, 1023))] {
            let taken = RefCell::new(HashSet::new());
            for i in 0..5 {
                let free = |tuple: &Tuple| !taken.borrow().contains(&tuple.dst.port);
                let reply = choose(&spec(NatTarget::Src, None), NatTarget::Src, &original(own), (&key, 9), free);
                let port = reply.expect("the range is nearly empty").dst.port;
                assert!(i > 0 || port == own);
                assert!(port == own || (class.0..=class.1).contains(&port), "{own} became {port}");
                assert!(taken.borrow_mut().insert(port));
            }
        }
    }

    #[test]
    fn a_small_range_is_used_to_the_last_port_and_then_said_to_be_full() {
        let key = HashKey::from_seed(2);
        for target in [NatTarget::Src, NatTarget::Dst] {
            let taken = RefCell::new(HashSet::new());
            for i in 0..=16 {
                let free = |tuple: &Tuple| {
                    tuple.dst.port != 5000 && target == NatTarget::Dst
                        || !taken.borrow().contains(&(tuple.src.port, tuple.dst.port)) && target == NatTarget::Src
                        || target == NatTarget::Dst && !taken.borrow().contains(&(tuple.src.port, tuple.dst.port))
                };
                let spec = spec(target, Some((1000, 1015)));
                match choose(&spec, target, &original(5000), (&key, i), free) {
                    Some(reply) => assert!(taken.borrow_mut().insert((reply.src.port, reply.dst.port))),
                    None => assert!(i == 16 && target == NatTarget::Src, "refused at {i}"),
                }
            }
            // Destination ports exhausted: the sender's port changes instead.
            assert_eq!(
                taken.borrow().iter().filter(|(_, dst)| *dst != 5000).count(),
                if target == NatTarget::Dst { 1 } else { 16 }
            );
        }
    }

    #[test]
    fn addresses_spread_over_the_range_and_persistence_holds_them() {
        let key = HashKey::from_seed(3);
        let range = |persistent| NatSpec { addrs: (v4(10), v4(19)), persistent, ..spec(NatTarget::Src, None) };
        let used = |persistent| -> HashSet<_> {
            let reply = |port| choose(&range(persistent), NatTarget::Src, &original(port), (&key, 0), |_| true);
            (2000..2200).map(|port| reply(port).expect("all is free").dst.addr).collect()
        };
        assert_eq!(used(false), (10..20).map(v4).collect());
        assert_eq!(used(true).len(), 1);
        let own = NatSpec { addrs: ([0; 16], [0; 16]), ..spec(NatTarget::Src, None) };
        let reply = choose(&own, NatTarget::Src, &original(7), (&key, 0), |_| true);
        assert_eq!(reply, Some(original(7).reversed()));
    }

    #[test]
    fn wide_ranges_do_not_overflow() {
        let key = HashKey::from_seed(4);
        let mut tuple = original(9);
        tuple.v6 = true;
        let spec = NatSpec { addrs: ([1; 16], [0xff; 16]), ports: Some((0, 65535)), ..spec(NatTarget::Src, None) };
        assert!(choose(&spec, NatTarget::Src, &tuple, (&key, 0), |_| true).is_some());
        assert!(choose(&spec, NatTarget::Src, &tuple, (&key, 0), |_| false).is_none());
        let backwards = NatSpec { addrs: (v4(9), v4(1)), ports: Some((9, 1)), ..spec };
        assert!(choose(&backwards, NatTarget::Dst, &original(1), (&key, 0), |_| true).is_some());
    }
}
