//! What an interface may receive: bytes and packets a second.

use crate::bucket::{Rate, TokenBucket};

/// Bytes of a kilobit.
const KILOBIT_BYTES: u64 = 1000 / 8;
/// Packets of a thousand.
const KILOPACKET: u64 = 1000;
/// Bursts of interfaces that name none. Source: Open vSwitch lib/netdev-linux.c, `netdev_linux_set_policing`.
const BURST_KBITS: u32 = 8000;
const BURST_KPKTS: u32 = 16;

/// Columns `ingress_policing_*` of an interface; a rate of 0 is no limit, a burst of 0 the usual one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicingRates {
    /// Kilobits a second.
    pub kbits: u32,
    /// The burst of it, kilobits.
    pub kbits_burst: u32,
    /// Thousands of packets a second.
    pub kpkts: u32,
    /// The burst of it, thousands of packets.
    pub kpkts_burst: u32,
}

/// A policer of what an interface receives.
#[derive(Debug)]
pub struct IngressPolicer {
    bytes: Option<TokenBucket>,
    packets: Option<TokenBucket>,
}

impl PolicingRates {
    /// Whether nothing is limited.
    pub fn is_unlimited(&self) -> bool {
        self.kbits == 0 && self.kpkts == 0
    }
}

impl IngressPolicer {
    /// The policer of these rates; `None` if they limit nothing.
    pub fn new(rates: PolicingRates) -> Option<Self> {
        let bucket = |rate: u32, burst: u32, usual: u32, unit: u64| {
            let burst = if burst == 0 { usual } else { burst };
            let rate = Rate { per_second: u64::from(rate) * unit, burst: u64::from(burst) * unit };
            (rate.per_second != 0).then(|| TokenBucket::new(rate))
        };
        let bytes = bucket(rates.kbits, rates.kbits_burst, BURST_KBITS, KILOBIT_BYTES);
        let packets = bucket(rates.kpkts, rates.kpkts_burst, BURST_KPKTS, KILOPACKET);
        (bytes.is_some() || packets.is_some()).then_some(IngressPolicer { bytes, packets })
    }

    /// Decides about a batch of packets, by their [`tokens`](crate::tokens_of): calls `verdict` with each one's place
    /// and whether it may pass. One that may not takes no tokens.
    pub fn admit(&self, tokens: &[u64], now_ns: u64, mut verdict: impl FnMut(usize, bool)) {
        let sum = tokens.iter().sum();
        let mut bytes = self.bytes.as_ref().map(|bucket| bucket.grant(sum, now_ns));
        let mut packets = self.packets.as_ref().map(|bucket| bucket.grant(tokens.len() as u64, now_ns));
        for (i, cost) in tokens.iter().enumerate() {
            let passes = bytes.as_ref().is_none_or(|grant| grant.covers(*cost))
                && packets.as_mut().is_none_or(|grant| grant.spend(1))
                && bytes.as_mut().is_none_or(|grant| grant.spend(*cost));
            verdict(i, passes);
        }
    }
}
