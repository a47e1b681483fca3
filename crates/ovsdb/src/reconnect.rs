//! When to connect, when to ask whether the peer is there, and when to give it up.
//!
//! ```text
//!            connect                connected
//!  backoff ──────────► connecting ────────────► active ◄────────── anything received
//!     ▲                    │ too long             │ silence             │
//!     └────────────────────┴──── silence ◄──── idle (probe sent) ───────┘
//! ```
//!
//! The pause before an attempt begins at [`BACKOFF_MIN_MS`] and doubles to [`BACKOFF_MAX_MS`]; a connection that lasted
//! longer than the pause before it takes it back to the beginning. With several remotes, each is tried once before the
//! first pause.
//!
//! Time is an argument: milliseconds from any fixed point. Source: OVS lib/reconnect.c.

/// The first pause. Source: OVS lib/reconnect.h, `RECONNECT_DEFAULT_MIN_BACKOFF`.
pub const BACKOFF_MIN_MS: u64 = 1000;
/// The longest pause. Source: as above, `RECONNECT_DEFAULT_MAX_BACKOFF`.
pub const BACKOFF_MAX_MS: u64 = 8000;
/// Silence before a probe, and again before the connection is given up. Source: as above,
/// `RECONNECT_DEFAULT_PROBE_INTERVAL`.
pub const PROBE_INTERVAL_MS: u64 = 5000;

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Connect to the next remote.
    Connect,
    /// Ask the peer whether it is there.
    Probe,
    /// Give the connection up, or the attempt at one.
    Disconnect(Timeout),
}

/// What lasted too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timeout {
    Connecting,
    Silence { ms: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Backoff { until_ms: u64 },
    Connecting { since_ms: u64 },
    Active { connected_ms: u64, activity_ms: u64 },
    Idle { connected_ms: u64, activity_ms: u64, probed_ms: u64 },
}

/// The connection's state in time.
#[derive(Debug)]
pub(crate) struct Reconnect {
    phase: Phase,
    backoff_ms: u64,
    /// Attempts, this one included, before the next pause.
    free_tries: usize,
    remotes: usize,
    /// 0: no probes.
    probe_interval_ms: u64,
}

impl Reconnect {
    pub(crate) fn new(remotes: usize) -> Self {
        let phase = Phase::Backoff { until_ms: 0 };
        Reconnect { phase, backoff_ms: 0, free_tries: remotes, remotes, probe_interval_ms: 0 }
    }

    /// Sets the silence before a probe; 0 for no probes.
    pub(crate) fn set_probe_interval(&mut self, ms: u64) {
        self.probe_interval_ms = ms;
    }

    /// What is due at `now_ms`. A step that is returned counts as taken.
    pub(crate) fn run(&mut self, now_ms: u64) -> Option<Step> {
        if self.deadline_ms().is_none_or(|deadline| now_ms < deadline) {
            return None;
        }
        match self.phase {
            Phase::Backoff { .. } => {
                self.phase = Phase::Connecting { since_ms: now_ms };
                Some(Step::Connect)
            }
            Phase::Connecting { .. } => Some(Step::Disconnect(Timeout::Connecting)),
            Phase::Active { connected_ms, activity_ms } => {
                self.phase = Phase::Idle { connected_ms, activity_ms, probed_ms: now_ms };
                Some(Step::Probe)
            }
            Phase::Idle { .. } => Some(Step::Disconnect(Timeout::Silence { ms: self.probe_interval_ms })),
        }
    }

    /// When [`Reconnect::run`] has something to do next, if nothing else happens.
    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        let probe = |from_ms: u64| (self.probe_interval_ms != 0).then(|| from_ms + self.probe_interval_ms);
        match self.phase {
            Phase::Backoff { until_ms } => Some(until_ms),
            Phase::Connecting { since_ms } => Some(since_ms + self.backoff_ms.max(BACKOFF_MIN_MS)),
            Phase::Active { activity_ms, .. } => probe(activity_ms),
            Phase::Idle { probed_ms, .. } => probe(probed_ms),
        }
    }

    pub(crate) fn connected(&mut self, now_ms: u64) {
        self.phase = Phase::Active { connected_ms: now_ms, activity_ms: now_ms };
    }

    /// Something was received.
    pub(crate) fn activity(&mut self, now_ms: u64) {
        if let Phase::Active { connected_ms, .. } | Phase::Idle { connected_ms, .. } = self.phase {
            self.phase = Phase::Active { connected_ms, activity_ms: now_ms };
        }
    }

    /// The server serves: after the next disconnection, each remote is tried once before there is a pause.
    pub(crate) fn succeeded(&mut self) {
        self.free_tries = self.remotes;
    }

    /// The connection, or the attempt at one, has ended. Returns the pause until the next attempt in milliseconds.
    pub(crate) fn disconnected(&mut self, now_ms: u64) -> u64 {
        let lasted_ms = match self.phase {
            Phase::Active { connected_ms, activity_ms } | Phase::Idle { connected_ms, activity_ms, .. } => {
                Some(activity_ms.saturating_sub(connected_ms))
            }
            Phase::Backoff { .. } | Phase::Connecting { .. } => None,
        };
        self.backoff_ms = if self.free_tries > 1 {
            self.free_tries -= 1;
            0
        } else if lasted_ms.is_some_and(|lasted| lasted >= self.backoff_ms) {
            BACKOFF_MIN_MS
        } else {
            (self.backoff_ms * 2).clamp(BACKOFF_MIN_MS, BACKOFF_MAX_MS)
        };
        self.phase = Phase::Backoff { until_ms: now_ms + self.backoff_ms };
        self.backoff_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails attempts at virtual times; returns the times of the attempts.
    fn attempts(remotes: usize, count: usize) -> Vec<u64> {
        let mut reconnect = Reconnect::new(remotes);
        let mut now = 0;
        let mut times = Vec::new();
        while times.len() < count {
            now = reconnect.deadline_ms().unwrap();
            assert_eq!(reconnect.run(now), Some(Step::Connect));
            times.push(now);
            reconnect.disconnected(now);
        }
        assert!(now > 0);
        times
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        assert_eq!(attempts(1, 7), [0, 1000, 3000, 7000, 15_000, 23_000, 31_000]);
    }

    #[test]
    fn several_remotes_are_tried_at_once() {
        assert_eq!(attempts(3, 5), [0, 0, 0, 1000, 3000]);
    }

    #[test]
    fn silence_is_probed_and_then_given_up() {
        let mut reconnect = Reconnect::new(1);
        reconnect.set_probe_interval(PROBE_INTERVAL_MS);
        assert_eq!(reconnect.run(0), Some(Step::Connect));
        reconnect.connected(10);
        assert_eq!((reconnect.run(5009), reconnect.run(5010)), (None, Some(Step::Probe)));
        reconnect.activity(5100);
        assert_eq!((reconnect.run(10_099), reconnect.run(10_100)), (None, Some(Step::Probe)));
        assert_eq!(reconnect.run(15_099), None);
        assert_eq!(reconnect.run(15_100), Some(Step::Disconnect(Timeout::Silence { ms: 5000 })));
        assert_eq!(reconnect.disconnected(15_100), 1000);
    }

    #[test]
    fn without_an_interval_silence_is_fine() {
        let mut reconnect = Reconnect::new(1);
        reconnect.run(0);
        reconnect.connected(0);
        assert_eq!(reconnect.deadline_ms(), None);
        assert_eq!(reconnect.run(u64::MAX), None);
    }

    #[test]
    fn an_attempt_that_hangs_is_given_up() {
        let mut reconnect = Reconnect::new(1);
        reconnect.run(0);
        assert_eq!((reconnect.run(999), reconnect.run(1000)), (None, Some(Step::Disconnect(Timeout::Connecting))));
    }

    #[test]
    fn a_connection_that_lasted_takes_the_pause_back() {
        let mut reconnect = Reconnect::new(1);
        for _ in 0..4 {
            reconnect.run(reconnect.deadline_ms().unwrap());
            reconnect.disconnected(0);
        }
        let now = reconnect.deadline_ms().unwrap();
        reconnect.run(now);
        reconnect.connected(now);
        reconnect.activity(now + 60_000);
        assert_eq!(reconnect.disconnected(now + 60_000), BACKOFF_MIN_MS);
    }
}
