//! A token bucket for the packets of a controller. Packets beyond its rate wait in a queue for each in-port. The queues
//! are served in turn, so that a flooding port leaves the others their share. When too many packets wait, the oldest of
//! the longest queue is lost. Source: Open vSwitch, `pinsched.c`.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};

/// The cost of a packet. Tokens are thousandths of a packet, so packets a second are tokens a millisecond.
const PACKET: u64 = 1000;

/// A limit, and the packets that wait because of it. Time is in milliseconds since any moment.
#[derive(Debug)]
pub struct PacketInLimit<T> {
    rate: u64,
    burst: usize,
    tokens: u64,
    filled_ms: u64,
    ports: BTreeMap<u16, VecDeque<T>>,
    waiting: usize,
    /// The port that was served last.
    last: u16,
    bypassed: u64,
    queued: u64,
    lost: u64,
}

/// What happened to the packets of a limit. Source: Open vSwitch, `pinsched_stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketInCounts {
    /// Sent at once.
    pub bypassed: u64,
    /// Made to wait.
    pub queued: u64,
    /// Lost because too many waited.
    pub dropped: u64,
    /// Waiting now.
    pub backlog: u64,
}

impl<T> PacketInLimit<T> {
    /// A limit of `rate` packets a second and `burst` packets at once. At most `burst` packets wait.
    pub fn new(rate: u32, burst: u32, now_ms: u64) -> Self {
        let burst = burst.max(1) as usize;
        let (tokens, ports) = (burst as u64 * PACKET, BTreeMap::new());
        PacketInLimit {
            rate: rate.max(1).into(),
            burst,
            tokens,
            filled_ms: now_ms,
            ports,
            waiting: 0,
            last: 0,
            bypassed: 0,
            queued: 0,
            lost: 0,
        }
    }

    /// Takes a packet of a port. Returns it if it may be sent now; else it waits.
    pub fn offer(&mut self, port: u16, packet: T, now_ms: u64) -> Option<T> {
        if self.waiting == 0 && self.take_token(now_ms) {
            self.bypassed += 1;
            return Some(packet);
        }
        self.queued += 1;
        if self.waiting >= self.burst {
            self.lose_one();
        }
        self.ports.entry(port).or_default().push_back(packet);
        self.waiting += 1;
        None
    }

    /// The next waiting packet, if it may be sent now.
    pub fn next(&mut self, now_ms: u64) -> Option<T> {
        if self.waiting == 0 || !self.take_token(now_ms) {
            return None;
        }
        let behind = self.ports.range((Excluded(self.last), Unbounded)).next();
        let port = *behind.or_else(|| self.ports.first_key_value())?.0;
        self.last = port;
        self.pop(port)
    }

    /// Milliseconds until the next waiting packet may be sent; `None` if none waits.
    pub fn wait_ms(&self) -> Option<u64> {
        (self.waiting != 0).then(|| PACKET.saturating_sub(self.tokens).div_ceil(self.rate))
    }

    /// What happened to its packets.
    pub fn counts(&self) -> PacketInCounts {
        let PacketInLimit { bypassed, queued, lost: dropped, waiting, .. } = *self;
        PacketInCounts { bypassed, queued, dropped, backlog: waiting as u64 }
    }

    /// Packets that were lost because too many waited.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn take_token(&mut self, now_ms: u64) -> bool {
        if self.tokens < PACKET && now_ms > self.filled_ms {
            let earned = self.rate.saturating_mul(now_ms - self.filled_ms);
            self.tokens = self.tokens.saturating_add(earned).min(self.burst as u64 * PACKET);
            self.filled_ms = now_ms;
        }
        let has_one = self.tokens >= PACKET;
        if has_one {
            self.tokens -= PACKET;
        }
        has_one
    }

    fn lose_one(&mut self) {
        let longest = self.ports.iter().max_by_key(|(_, waiting)| waiting.len()).map(|(port, _)| *port);
        self.lost += u64::from(longest.and_then(|port| self.pop(port)).is_some());
    }

    /// Takes the oldest packet of a port.
    fn pop(&mut self, port: u16) -> Option<T> {
        let waiting = self.ports.get_mut(&port)?;
        let packet = waiting.pop_front();
        if waiting.is_empty() {
            self.ports.remove(&port);
        }
        self.waiting -= usize::from(packet.is_some());
        packet
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let mut limit = PacketInLimit::new(100, 3, 0);
        let at_once: Vec<_> = (0..5).filter_map(|n| limit.offer(1, n, 0)).collect();
        assert_eq!((at_once, limit.wait_ms()), (vec![0, 1, 2], Some(10)));
        assert_eq!((limit.next(9), limit.next(10), limit.next(10), limit.next(20)), (None, Some(3), None, Some(4)));
        assert_eq!((limit.next(1000), limit.wait_ms()), (None, None));
        // However long it is idle, it has no more tokens than a burst.
        assert_eq!((0..9).filter_map(|n| limit.offer(1, n, 1_000_000)).count(), 3);
    }

    #[test]
    fn who_waits_lets_nobody_pass() {
        let mut limit = PacketInLimit::new(1000, 2, 0);
        (0..3).for_each(|n| _ = limit.offer(1, n, 0));
        // A token is there, but it is the first one's.
        assert_eq!(limit.offer(2, 9, 5), None);
        assert_eq!((limit.next(5), limit.next(5)), (Some(2), Some(9)));
    }

    #[test]
    fn a_port_that_floods_loses_its_own() {
        let mut limit = PacketInLimit::new(1, 4, 0);
        (0..4).for_each(|n| _ = limit.offer(9, (9, n), 0));
        limit.offer(2, (2, 0), 0);
        (0..100).for_each(|n| _ = limit.offer(1, (1, n), 0));
        assert_eq!(limit.lost(), 97);
        assert_eq!(limit.counts(), PacketInCounts { bypassed: 4, queued: 101, dropped: 97, backlog: 4 });
        let left: Vec<_> = (1..9).filter_map(|s| limit.next(s * 1000)).collect();
        assert_eq!(left, [(1, 97), (2, 0), (1, 98), (1, 99)]);
    }

    proptest! {
        /// Every packet is sent once, waits or is lost; no more wait than may, and no more are sent than tokens allow.
        #[test]
        fn packets_are_conserved(
            rate in 1u32..2000, burst in 1u32..20,
            steps in proptest::collection::vec((0u64..20, 0u16..4, any::<bool>()), 1..300),
        ) {
            let mut limit = PacketInLimit::new(rate, burst, 0);
            let (mut now, mut offered, mut gone) = (0, 0u64, Vec::new());
            for (pause, port, offers) in steps {
                now += pause;
                if offers {
                    gone.extend(limit.offer(port, offered, now));
                    offered += 1;
                } else {
                    gone.extend(limit.next(now));
                }
                prop_assert!(limit.waiting <= burst as usize);
                prop_assert_eq!(limit.ports.values().map(VecDeque::len).sum::<usize>(), limit.waiting);
                prop_assert_eq!(offered, gone.len() as u64 + limit.waiting as u64 + limit.lost());
                prop_assert!(gone.len() as u64 * PACKET <= u64::from(burst) * PACKET + u64::from(rate) * now);
            }
            let going = gone.len();
            gone.sort_unstable();
            gone.dedup();
            prop_assert_eq!(gone.len(), going);
        }
    }
}
