//! A bucket of tokens, shared by threads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const NS_PER_S: u128 = 1_000_000_000;

/// The highest rate and the largest burst: no device carries a millionth of it.
const TOKENS_MAX: u64 = 1 << 61;

/// How fast a bucket fills, and how much it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Tokens a second.
    pub per_second: u64,
    /// Tokens of a full bucket.
    pub burst: u64,
}

/// A bucket of tokens.
///
/// It counts tokens from time 0 on: those that the rate has made, which follow from the time, and those that are gone,
/// spent or spilled, which is the one word that changes. The difference is what the bucket holds. Both may wrap.
///
/// In any span of time no more is spent than the burst and what the rate makes in it, rounded up.
#[derive(Debug)]
pub struct TokenBucket {
    rate: Rate,
    gone: AtomicU64,
}

impl TokenBucket {
    /// A full bucket.
    pub fn new(rate: Rate) -> Self {
        let rate = Rate { per_second: rate.per_second.min(TOKENS_MAX), burst: rate.burst.min(TOKENS_MAX) };
        TokenBucket { rate, gone: AtomicU64::new(0_u64.wrapping_sub(rate.burst)) }
    }

    /// How fast it fills, and how much it holds.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Tokens that the rate has made until then.
    fn made(&self, now_ns: u64) -> u64 {
        (u128::from(self.rate.per_second) * u128::from(now_ns) / NS_PER_S) as u64
    }

    /// What the bucket holds.
    fn level(&self, made: u64, gone: u64) -> u64 {
        let level = made.wrapping_sub(gone);
        // The clock of another thread was up to a second ahead of ours when it took tokens.
        let is_behind = level > u64::MAX - self.rate.per_second.max(1);
        if is_behind { 0 } else { level.min(self.rate.burst) }
    }

    /// Takes up to `wanted` tokens, to be spent now. What is left of them goes back when the grant is dropped.
    pub fn grant(&self, wanted: u64, now_ns: u64) -> Grant<'_> {
        let made = self.made(now_ns);
        let mut gone = self.gone.load(Relaxed);
        loop {
            let level = self.level(made, gone);
            let left = level.min(wanted);
            if left == 0 {
                return Grant { bucket: self, left };
            }
            let next = made.wrapping_sub(level - left);
            match self.gone.compare_exchange_weak(gone, next, Relaxed, Relaxed) {
                Ok(_) => return Grant { bucket: self, left },
                Err(now) => gone = now,
            }
        }
    }
}

/// Tokens that were taken of a bucket.
#[derive(Debug)]
#[must_use = "dropped, it puts all tokens back"]
pub struct Grant<'a> {
    bucket: &'a TokenBucket,
    left: u64,
}

impl Grant<'_> {
    /// Whether the tokens cover this cost.
    pub fn covers(&self, cost: u64) -> bool {
        cost <= self.left
    }

    /// Spends this cost if the tokens cover it. Returns whether they did.
    pub fn spend(&mut self, cost: u64) -> bool {
        let covers = self.covers(cost);
        if covers {
            self.left -= cost;
        }
        covers
    }
}

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        if self.left != 0 {
            self.bucket.gone.fetch_sub(self.left, Relaxed);
        }
    }
}
