//! A limit on messages that repeat: a token bucket for each place in the source.

use std::time::{Duration, Instant};

/// A minute of tokens, in which buckets are counted.
const MINUTE: Duration = Duration::from_secs(60);

/// The limit of one place in the source.
#[derive(Debug)]
pub(crate) struct RateLimit {
    /// Messages a minute, and at once.
    limit: u32,
    /// What may be written now, in messages.
    tokens: f64,
    filled: Instant,
    left_out: Option<LeftOut>,
}

/// Messages that were not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LeftOut {
    count: u32,
    first: Instant,
    last: Instant,
}

/// Whether a message is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It is, behind a line that tells what was left out before it.
    Write { summary: Option<String> },
    /// It is not.
    Drop,
}

impl RateLimit {
    /// A limit of that many messages a minute.
    pub(crate) fn new(limit: u32, now: Instant) -> Self {
        RateLimit { limit, tokens: f64::from(limit.max(1)), filled: now, left_out: None }
    }

    /// Decides about a message.
    pub(crate) fn decide(&mut self, now: Instant) -> Decision {
        let limit = f64::from(self.limit.max(1));
        let earned = now.saturating_duration_since(self.filled).as_secs_f64() / MINUTE.as_secs_f64() * limit;
        self.tokens = (self.tokens + earned).min(limit);
        self.filled = now;
        if self.tokens < 1.0 {
            let left_out = self.left_out.get_or_insert(LeftOut { count: 0, first: now, last: now });
            left_out.count += 1;
            left_out.last = now;
            return Decision::Drop;
        }
        self.tokens -= 1.0;
        Decision::Write { summary: self.left_out.take().map(|left_out| left_out.text(now)) }
    }
}

impl LeftOut {
    fn text(self, now: Instant) -> String {
        let since = |then: Instant| now.saturating_duration_since(then).as_secs();
        format!(
            "Dropped {} log messages in last {} seconds (most recently, {} seconds ago) due to excessive rate",
            self.count,
            since(self.first),
            since(self.last)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_out_is_told() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut limit = RateLimit::new(2, start);
        let written = Decision::Write { summary: None };
        assert_eq!(limit.decide(at(0)), written);
        assert_eq!(limit.decide(at(0)), written);
        assert_eq!(limit.decide(at(1)), Decision::Drop);
        assert_eq!(limit.decide(at(20)), Decision::Drop);
        let text = "Dropped 2 log messages in last 30 seconds (most recently, 11 seconds ago) due to excessive rate";
        assert_eq!(limit.decide(at(31)), Decision::Write { summary: Some(text.into()) });
        assert_eq!(limit.decide(at(31)), Decision::Drop);
        // Nothing is saved up beyond the limit.
        assert!((0..2).all(|_| limit.decide(at(1000)) != Decision::Drop));
        assert_eq!(limit.decide(at(1000)), Decision::Drop);
    }
}
