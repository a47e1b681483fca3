//! The two-rate three-colour marker of RFC 4115.

use crate::bucket::{Rate, TokenBucket};

/// What a marker makes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Color {
    /// Within the committed rate.
    Green,
    /// Beyond it and within the excess rate.
    Yellow,
    /// Beyond both.
    Red,
}

impl Color {
    fn worse(self) -> Self {
        match self {
            Color::Green => Color::Yellow,
            Color::Yellow | Color::Red => Color::Red,
        }
    }
}

/// A packet as markers see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marked {
    /// Its tokens.
    pub tokens: u64,
    /// Its queue.
    pub queue: u32,
    /// Its colour so far.
    pub color: Color,
}

/// The rates of a marker, in bytes. Open vSwitch: `cir`, `cbs`, `eir`, `ebs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrTcmRates {
    /// Committed information rate: bytes a second.
    pub cir: u64,
    /// Committed burst size: bytes.
    pub cbs: u64,
    /// Excess information rate: bytes a second.
    pub eir: u64,
    /// Excess burst size: bytes.
    pub ebs: u64,
}

impl TrTcmRates {
    /// Whether there is a burst for each rate. Source: DPDK lib/meter, `rte_meter_trtcm_rfc4115_profile_config`.
    pub fn is_valid(&self) -> bool {
        (self.cir == 0 || self.cbs != 0) && (self.eir == 0 || self.ebs != 0)
    }
}

/// A marker.
///
/// | colour before | committed bucket has the tokens | excess bucket has them | colour | takes of |
/// |---|---|---|---|---|
/// | green | yes | | green | committed |
/// | green | no | yes | yellow | excess |
/// | yellow | | yes | yellow | excess |
/// | green, yellow | no | no | red | |
/// | red | | | red | |
#[derive(Debug)]
pub struct TrTcm {
    rates: TrTcmRates,
    committed: TokenBucket,
    excess: TokenBucket,
}

impl TrTcm {
    /// A marker with full buckets.
    pub fn new(rates: TrTcmRates) -> Self {
        let committed = TokenBucket::new(Rate { per_second: rates.cir, burst: rates.cbs });
        let excess = TokenBucket::new(Rate { per_second: rates.eir, burst: rates.ebs });
        TrTcm { rates, committed, excess }
    }

    /// Its rates.
    pub fn rates(&self) -> TrTcmRates {
        self.rates
    }

    /// Colours those packets of a batch that `is_meant` selects, in order.
    pub fn mark(&self, batch: &mut [Marked], now_ns: u64, is_meant: impl Fn(&Marked) -> bool) {
        // No bucket depends on the other, so bucket by bucket comes to the same as packet by packet.
        for (bucket, color) in [(&self.committed, Color::Green), (&self.excess, Color::Yellow)] {
            let is_of = |packet: &&mut Marked| is_meant(packet) && packet.color == color;
            let sum = batch.iter_mut().filter(is_of).map(|packet| packet.tokens).sum();
            let mut grant = bucket.grant(sum, now_ns);
            for packet in batch.iter_mut().filter(is_of) {
                if !grant.spend(packet.tokens) {
                    packet.color = color.worse();
                }
            }
        }
    }
}
