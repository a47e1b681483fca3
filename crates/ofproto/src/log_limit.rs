//! A limit on how often a message is logged, so that packets cannot fill the log.

use parking_lot::Mutex;

/// A token bucket: one message a second, and some at once. Source: OVS lib/vlog.h, `VLOG_RATE_LIMIT_INIT`.
#[derive(Debug)]
pub(crate) struct LogLimit(Mutex<Bucket>);

#[derive(Debug)]
struct Bucket {
    /// Thousandths of messages.
    tokens: u64,
    filled_ms: u64,
    /// As much as it holds.
    burst: u64,
}

/// What a message costs.
const MESSAGE: u64 = 1000;
impl LogLimit {
    /// At most `messages` at once.
    pub fn with_burst(messages: u64) -> Self {
        let burst = messages * MESSAGE;
        LogLimit(Mutex::new(Bucket { tokens: burst, filled_ms: 0, burst }))
    }

    /// Whether a message may be logged now. If so, it counts.
    pub fn admits(&self, now_ms: u64) -> bool {
        let mut bucket = self.0.lock();
        let earned = now_ms.saturating_sub(bucket.filled_ms);
        bucket.tokens = bucket.tokens.saturating_add(earned).min(bucket.burst);
        bucket.filled_ms = now_ms;
        let admits = bucket.tokens >= MESSAGE;
        if admits {
            bucket.tokens -= MESSAGE;
        }
        admits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_at_once_then_one_a_second() {
        let limit = LogLimit::with_burst(5);
        let admitted = |now_ms, times: usize| (0..times).filter(|_| limit.admits(now_ms)).count();
        assert_eq!(admitted(1_000_000, 10), 5);
        assert_eq!(admitted(1_000_999, 10), 0);
        assert_eq!(admitted(1_001_000, 10), 1);
        assert_eq!(admitted(1_100_000, 10), 5);
    }
}
