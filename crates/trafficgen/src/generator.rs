//! The interface of generators.

use crate::latency::{Histogram, Latency};
use crate::search::TrialResult;
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Sends packets through a switch and reports what arrived.
pub trait Generator {
    /// Runs a trial. Ends early, with the results so far, once `stop` is set.
    ///
    /// # Errors
    /// If it could not be run as requested, so that its figures would be meaningless.
    fn run(&mut self, trial: &Trial, stop: &AtomicBool) -> Result<TrialFigures, GeneratorError>;
}

/// A trial to run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Packets a second, over all lanes.
    pub rate_pps: f64,
    /// How long.
    pub duration: Duration,
    /// Whether it only warms up the switch's caches: lanes for that take part, and nothing is counted.
    pub is_warmup: bool,
}

/// The results of a trial.
#[derive(Clone, Debug, Default)]
pub struct TrialFigures {
    /// By lane; an external program may report a single one.
    pub lanes: Vec<LaneFigures>,
    /// Latency over all lanes, if it was measured here.
    pub latencies: Option<Histogram>,
}

/// The results of a lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaneFigures {
    /// Which lane.
    pub lane: String,
    /// Packets sent.
    pub sent: u64,
    /// Packets that arrived at the right port.
    pub received: u64,
    /// Of those, packets that arrived after one that was sent later.
    pub out_of_order: u64,
    /// Packets that arrived at another port.
    pub astray: u64,
    /// Latency, if it was measured.
    pub latency: Option<Latency>,
}

impl TrialFigures {
    /// Packets sent and received, over all lanes.
    pub fn outcome(&self) -> TrialResult {
        let sum = |count: fn(&LaneFigures) -> u64| self.lanes.iter().map(count).sum();
        TrialResult { sent: sum(|lane| lane.sent), received: sum(|lane| lane.received) }
    }
}

/// Why a trial could not be run as requested.
#[derive(Debug, thiserror::Error)]
pub enum GeneratorError {
    /// It sends too slowly.
    #[error(
        "the generator sent {reached:.0} packets a second of the {asked:.0} asked for; ask for less (--max-rate), or use a faster generator"
    )]
    Rate {
        /// Packets a second.
        asked: f64,
        /// Packets a second.
        reached: f64,
    },
    /// An impossible rate.
    #[error("a rate of {0} packets a second: expected one above 0 and at most {max:.0}", max = RATE_MAX)]
    Impossible(f64),
    /// No lane takes part.
    #[error("no stream takes part: none has \"{0}\" among its stream_types")]
    Nothing(&'static str),
    /// A port has no buffers.
    #[error("the generator has no packet buffers left")]
    Buffers,
    /// A program could not be started.
    #[error("{program}: cannot be started: {why}")]
    Start {
        /// Its name.
        program: String,
        /// Why.
        why: std::io::Error,
    },
    /// A program failed.
    #[error("{program}: {how}{said}", said = if .stderr.is_empty() { String::new() } else { format!("; it said: {}", .stderr) })]
    Died {
        /// Its name.
        program: String,
        /// How it ended.
        how: String,
        /// The end of what it wrote.
        stderr: String,
    },
    /// A program's output is not the expected figures.
    #[error(
        "{program} printed {printed:?}: expected figures as JSON, such as {{\"sent\": 1000, \"received\": 999}}: {why}"
    )]
    Nonsense {
        /// Its name.
        program: String,
        /// The beginning of what it printed.
        printed: String,
        /// What is wrong with it.
        why: String,
    },
}

/// The highest rate, packets a second: 400 Gbit/s of shortest frames are 595 million.
pub const RATE_MAX: f64 = 1e9;

/// Whether a rate makes sense.
pub(crate) fn check_rate(rate_pps: f64) -> Result<(), GeneratorError> {
    // The comparison is false for NaN.
    if rate_pps > 0.0 && rate_pps <= RATE_MAX { Ok(()) } else { Err(GeneratorError::Impossible(rate_pps)) }
}

/// The share of the requested rate that must be reached.
const REACHED: f64 = 0.99;
/// Number of packets below which rounding exceeds that share.
const SMALL: f64 = 100.0;

/// Whether this many packets in that time reach the requested rate. A warm-up may be slower.
pub(crate) fn check_pace(trial: &Trial, sent: u64, took: Duration) -> Result<(), GeneratorError> {
    let seconds = took.as_secs_f64();
    let reached = sent as f64 / seconds;
    let is_slow = reached < REACHED * trial.rate_pps && trial.rate_pps * seconds > SMALL;
    if is_slow && !trial.is_warmup { Err(GeneratorError::Rate { asked: trial.rate_pps, reached }) } else { Ok(()) }
}

/// The most packets of a trial, with room for those of others on the same device.
pub(crate) fn most_packets(trial: &Trial) -> f64 {
    trial.rate_pps * trial.duration.as_secs_f64() / REACHED + SMALL
}
