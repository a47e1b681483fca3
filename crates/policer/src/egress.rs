//! What a port may send.

use crate::bucket::{Rate, TokenBucket};
use crate::trtcm::{Color, Marked, TrTcm, TrTcmRates};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The queue of packets that name none, or one that is not there.
const DEFAULT_QUEUE: u32 = 0;

/// A policer of what a port sends.
#[derive(Debug)]
pub struct EgressPolicer {
    kind: Kind,
    dropped: AtomicU64,
}

#[derive(Debug)]
enum Kind {
    /// `egress-policer`.
    Single(TokenBucket),
    /// `trtcm-policer`.
    ByQueue { port: TrTcm, queues: BTreeMap<u32, QueuePolicer> },
}

/// The policer of a queue of a port.
#[derive(Debug)]
pub struct QueuePolicer {
    marker: TrTcm,
    counts: [AtomicU64; 3],
}

/// What became of a queue's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Packets within the queue's rates.
    pub packets: u64,
    /// Their bytes, without Ethernet headers.
    pub bytes: u64,
    /// Packets beyond them.
    pub errors: u64,
}

impl QueuePolicer {
    /// A policer with full buckets.
    pub fn new(rates: TrTcmRates) -> Self {
        QueuePolicer { marker: TrTcm::new(rates), counts: Default::default() }
    }

    /// Its rates.
    pub fn rates(&self) -> TrTcmRates {
        self.marker.rates()
    }

    /// What became of its packets.
    pub fn counts(&self) -> QueueCounts {
        let [packets, bytes, errors] = [0, 1, 2].map(|at| self.counts[at].load(Relaxed));
        QueueCounts { packets, bytes, errors }
    }

    fn count(&self, counts: QueueCounts) {
        let QueueCounts { packets, bytes, errors } = counts;
        for (sum, n) in self.counts.iter().zip([packets, bytes, errors]).filter(|(_, n)| *n != 0) {
            sum.fetch_add(n, Relaxed);
        }
    }

    /// Colours its packets of a batch, and counts them.
    fn mark(&self, number: u32, batch: &mut [Marked], now_ns: u64) {
        self.marker.mark(batch, now_ns, |packet| packet.queue == number);
        let mut counts = QueueCounts::default();
        for packet in batch.iter().filter(|packet| packet.queue == number) {
            if packet.color == Color::Red {
                counts.errors += 1;
            } else {
                counts.packets += 1;
                counts.bytes += packet.tokens;
            }
        }
        self.count(counts);
    }
}

impl EgressPolicer {
    /// A policer of one rate.
    pub fn single(rate: Rate) -> Self {
        Self::of(Kind::Single(TokenBucket::new(rate)))
    }

    /// A policer that colours packets by their queues, and then by the port's rates. Without a queue
    /// [`DEFAULT_QUEUE`] it drops packets of queues that are not there.
    pub fn by_queue(port: TrTcmRates, queues: BTreeMap<u32, QueuePolicer>) -> Self {
        Self::of(Kind::ByQueue { port: TrTcm::new(port), queues })
    }

    fn of(kind: Kind) -> Self {
        EgressPolicer { kind, dropped: AtomicU64::new(0) }
    }

    /// That many red packets were dropped. To be called once a batch.
    pub fn count_dropped(&self, packets: usize) {
        if packets != 0 {
            self.dropped.fetch_add(packets as u64, Relaxed);
        }
    }

    /// How many were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Its queues, if it has any.
    pub fn queues(&self) -> Option<&BTreeMap<u32, QueuePolicer>> {
        match &self.kind {
            Kind::Single(_) => None,
            Kind::ByQueue { queues, .. } => Some(queues),
        }
    }

    /// Decides about a batch of packets, all green before: red ones are to be dropped.
    pub fn admit(&self, batch: &mut [Marked], now_ns: u64) {
        match &self.kind {
            Kind::Single(bucket) => {
                let mut grant = bucket.grant(batch.iter().map(|packet| packet.tokens).sum(), now_ns);
                for packet in batch.iter_mut().filter(|packet| !grant.spend(packet.tokens)) {
                    packet.color = Color::Red;
                }
            }
            Kind::ByQueue { port, queues } => {
                for packet in batch.iter_mut().filter(|packet| !queues.contains_key(&packet.queue)) {
                    packet.queue = DEFAULT_QUEUE;
                }
                let has_default = queues.contains_key(&DEFAULT_QUEUE);
                for packet in batch.iter_mut().filter(|packet| !has_default && packet.queue == DEFAULT_QUEUE) {
                    packet.color = Color::Red;
                }
                let has_packets = |number: u32, batch: &[Marked]| batch.iter().any(|packet| packet.queue == number);
                for (number, queue) in queues {
                    if has_packets(*number, batch) {
                        queue.mark(*number, batch, now_ns);
                    }
                }
                port.mark(batch, now_ns, |_| true);
            }
        }
    }
}
