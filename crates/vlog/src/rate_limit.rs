//! A limit on messages that repeat: a token bucket for each place in the source.

/// A minute, in which limits are counted.
const MINUTE_MS: u64 = 60_000;

/// The limit of one place in the source.
#[derive(Debug)]
pub(crate) struct RateLimit {
    /// Messages a minute, and at once.
    limit: u32,
    /// What may be written now, in messages.
    tokens: f64,
    filled_ms: u64,
    left_out: Option<LeftOut>,
}

/// Messages that were not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LeftOut {
    count: u32,
    first_ms: u64,
    last_ms: u64,
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
    pub(crate) fn new(limit: u32, now_ms: u64) -> Self {
        RateLimit { limit, tokens: f64::from(limit.max(1)), filled_ms: now_ms, left_out: None }
    }

    /// Decides about a message.
    pub(crate) fn decide(&mut self, now_ms: u64) -> Decision {
        let limit = f64::from(self.limit.max(1));
        let earned = now_ms.saturating_sub(self.filled_ms) as f64 / MINUTE_MS as f64 * limit;
        self.tokens = (self.tokens + earned).min(limit);
        self.filled_ms = now_ms;
        if self.tokens < 1.0 {
            let left_out = self.left_out.get_or_insert(LeftOut { count: 0, first_ms: now_ms, last_ms: now_ms });
            left_out.count += 1;
            left_out.last_ms = now_ms;
            return Decision::Drop;
        }
        self.tokens -= 1.0;
        Decision::Write { summary: self.left_out.take().map(|left_out| left_out.text(now_ms)) }
    }
}

impl LeftOut {
    fn text(self, now_ms: u64) -> String {
        let since = |then_ms: u64| now_ms.saturating_sub(then_ms) / 1000;
        format!(
            "Dropped {} log messages in last {} seconds (most recently, {} seconds ago) due to excessive rate",
            self.count,
            since(self.first_ms),
            since(self.last_ms)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_out_is_told() {
        let at = |seconds: u64| 5_000_000 + seconds * 1000;
        let mut limit = RateLimit::new(2, at(0));
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
