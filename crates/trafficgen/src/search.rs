//! The RFC 2544-like search: the highest rate at which a switch loses no more than a limit.
//!
//! A bisection over rates, for several loss limits in one run. Each rate is first **sniffed** (a short trial that finds
//! hopeless rates cheaply), then **searched** (the trial that decides), and the final rate of a limit is **validated**
//! by a long trial. A rate that fails its validation counts as failed, and the bisection continues below it.
//!
//! Where something else takes the processor now and then, no long trial is without loss. A step may be several short
//! trials instead, of which most decide: the rate is then what the switch carries whenever it is let, and a switch that
//! loses packets by itself still fails most of them.
//!
//! One trial counts for every limit: loss is assumed to grow with the rate, so a trial that passed a strict limit
//! passes the lax ones, and a rate that failed a lax limit fails the strict ones. Limits are therefore searched from
//! the laxest to the strictest, each starting from what is known.
//!
//! The whole state is plain data, which can be saved after any trial and loaded to continue (`serde`). Source: RFC
//! 2544, section 26.1; seed "Testing the Performance Impact of the Exact Match Cache" (trial lengths, limits); IETF
//! draft-ietf-bmwg-mlrsearch (most of several trials: its goal exceed ratio of one half).

use crate::generator::RATE_MAX;
use serde::{Deserialize, Serialize};

/// The configuration of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The first rate, packets a second; also the highest.
    pub max_rate_pps: f64,
    /// A rate below this counts as none.
    pub min_rate_pps: f64,
    /// The loss limits, as shares of packets; each is searched for.
    pub loss_limits: Vec<f64>,
    /// How close the passed and the failed rate must get, as a share of the failed one.
    pub granularity: f64,
    /// Length of a sniff, seconds; 0 for none.
    pub sniff_s: f64,
    /// Length of a search trial, seconds.
    pub search_s: f64,
    /// Length of a validation, seconds.
    pub validation_s: f64,
    /// Trials of a step, of which most decide; an odd number.
    pub repeats: usize,
    /// The most trials; then the search ends with what it has.
    pub trials_max: usize,
}

impl Default for Config {
    /// Limits of 0.002 %, 0 and 0.5 %. Source: seed 004 and pbench's defaults.
    fn default() -> Self {
        Config {
            max_rate_pps: 20e6,
            min_rate_pps: 1e3,
            loss_limits: vec![0.000_02, 0.0, 0.005],
            granularity: 0.001,
            sniff_s: 3.0,
            search_s: 30.0,
            validation_s: 60.0,
            repeats: 1,
            trials_max: 200,
        }
    }
}

/// The smallest granularity, and the longest trial (a week, in seconds).
const GRANULARITY_MIN: f64 = 1e-6;
const TRIAL_MAX_S: f64 = 7.0 * 86_400.0;

/// The most trials of a step.
const REPEATS_MAX: usize = 99;

/// Whether this is a valid length; 0 means no trial.
pub fn is_length(seconds: f64) -> bool {
    (0.0..=TRIAL_MAX_S).contains(&seconds)
}

/// Why a search could not begin.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// A number out of its range.
    #[error("{key} = {value}: expected {expected}")]
    OutOfRange {
        /// The configuration's key.
        key: &'static str,
        /// What it was.
        value: f64,
        /// What it may be.
        expected: &'static str,
    },
    /// Nothing to search for.
    #[error("loss_limits is empty: expected at least one share of packets, such as 0.00002")]
    NoLimits,
}

/// The purpose of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialKind {
    /// Short: finds out whether a longer trial is worthwhile.
    Sniff,
    /// Decides whether the rate passes.
    Search,
    /// Confirms the final rate of a limit.
    Validation,
}

/// A trial to run: send at this rate for this long, and count what arrives.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Its purpose.
    pub kind: TrialKind,
    /// The limit being searched for.
    pub loss_limit: f64,
    /// Packets a second.
    pub rate_pps: f64,
    /// Seconds.
    pub duration_s: f64,
}

/// The result of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialResult {
    /// Packets sent.
    pub sent: u64,
    /// Of those, packets that arrived.
    pub received: u64,
}

impl TrialResult {
    /// The share that was lost; a trial that sent nothing lost everything.
    pub fn loss(&self) -> f64 {
        match self.sent {
            0 => 1.0,
            sent => sent.saturating_sub(self.received) as f64 / sent as f64,
        }
    }
}

/// A finished trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// The trial.
    pub trial: Trial,
    /// Its result.
    pub outcome: TrialResult,
    /// Whether the loss was within the limit searched for.
    pub passed: bool,
}

/// The knowledge about one limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Bounds {
    loss_limit: f64,
    /// The rates below the failed one that passed.
    passed_pps: Vec<f64>,
    /// The lowest rate that failed.
    failed_pps: Option<f64>,
    /// The rate that passed its validation.
    validated_pps: Option<f64>,
    /// Whether no rate passes.
    hopeless: bool,
}

/// The answer for one limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The limit.
    pub loss_limit: f64,
    /// The highest rate that passed its validation, packets a second. `None`: no rate did.
    pub rate_pps: Option<f64>,
    /// Whether the search for this limit is finished.
    pub is_final: bool,
}

/// A search under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Search {
    config: Config,
    /// From the laxest limit to the strictest.
    bounds: Vec<Bounds>,
    /// The rate that has passed its sniff and is to be searched.
    sniffed_pps: Option<f64>,
    /// The losses in the trials so far of a step that is not decided.
    losses: Vec<f64>,
    records: Vec<TrialRecord>,
}

impl Search {
    /// Begins a search.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        check(&config)?;
        let mut limits = config.loss_limits.clone();
        limits.sort_by(|a, b| b.total_cmp(a));
        limits.dedup();
        let bounds = limits
            .into_iter()
            .map(|loss_limit| Bounds {
                loss_limit,
                passed_pps: Vec::new(),
                failed_pps: None,
                validated_pps: None,
                hopeless: false,
            })
            .collect();
        Ok(Search { config, bounds, sniffed_pps: None, losses: Vec::new(), records: Vec::new() })
    }

    /// The next trial; `None` when every limit has its answer. Further calls return the same.
    pub fn next_trial(&self) -> Option<Trial> {
        if self.records.len() >= self.config.trials_max {
            return None;
        }
        let bounds = self.bounds.iter().find(|b| !b.is_settled())?;
        let trial =
            |kind, rate_pps, duration_s| Some(Trial { kind, loss_limit: bounds.loss_limit, rate_pps, duration_s });
        if bounds.is_narrow(&self.config) {
            return trial(TrialKind::Validation, bounds.highest_pps(), self.config.validation_s);
        }
        let rate_pps = match bounds.failed_pps {
            None => self.config.max_rate_pps,
            Some(failed) => (bounds.highest_pps().max(self.config.min_rate_pps) + failed) / 2.0,
        };
        if self.config.sniff_s > 0.0 && self.sniffed_pps != Some(rate_pps) {
            return trial(TrialKind::Sniff, rate_pps, self.config.sniff_s);
        }
        trial(TrialKind::Search, rate_pps, self.config.search_s)
    }

    /// Records the result of the next trial. Does nothing if there is none.
    pub fn record(&mut self, outcome: TrialResult) {
        let Some(trial) = self.next_trial() else { return };
        let loss = outcome.loss();
        self.records.push(TrialRecord { trial, outcome, passed: loss <= trial.loss_limit });
        self.losses.push(loss);
        if let Some(passes) = self.decided(trial.loss_limit) {
            self.take_step(&trial, passes);
            self.losses.clear();
        }
    }

    /// What most of a step's trials say of a limit, once they do.
    fn decided(&self, loss_limit: f64) -> Option<bool> {
        let passed = self.losses.iter().filter(|loss| **loss <= loss_limit).count();
        match (passed > self.config.repeats / 2, self.losses.len() - passed > self.config.repeats / 2) {
            (false, false) => None,
            (passes, _) => Some(passes),
        }
    }

    /// Every limit takes what the step's trials say of it; the one searched for is decided.
    fn take_step(&mut self, trial: &Trial, passes: bool) {
        self.sniffed_pps = (trial.kind == TrialKind::Sniff && passes).then_some(trial.rate_pps);
        let decided: Vec<_> = self.bounds.iter().map(|bounds| self.decided(bounds.loss_limit)).collect();
        for (bounds, decided) in self.bounds.iter_mut().zip(decided) {
            match (trial.kind, decided) {
                // A short trial proves only failure.
                (TrialKind::Sniff, Some(true)) | (_, None) => {}
                (TrialKind::Validation, Some(true)) => {
                    bounds.pass(trial.rate_pps);
                    if bounds.loss_limit == trial.loss_limit {
                        bounds.validated_pps = Some(trial.rate_pps);
                    }
                }
                (TrialKind::Search, Some(true)) => bounds.pass(trial.rate_pps),
                (_, Some(false)) => bounds.fail(trial.rate_pps),
            }
            bounds.hopeless |= bounds.failed_pps.is_some_and(|f| f <= self.config.min_rate_pps)
                || (bounds.passed_pps.is_empty() && bounds.is_narrow(&self.config));
        }
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Every trial so far.
    pub fn records(&self) -> &[TrialRecord] {
        &self.records
    }

    /// The answers, in the order of the configuration; final when [`Search::next_trial`] returns `None`.
    pub fn answers(&self) -> Vec<Answer> {
        let answer = |limit: &f64| {
            let bounds = self.bounds.iter().find(|b| b.loss_limit == *limit);
            Answer {
                loss_limit: *limit,
                rate_pps: bounds.and_then(|b| b.validated_pps),
                is_final: bounds.is_some_and(Bounds::is_settled),
            }
        };
        self.config.loss_limits.iter().map(answer).collect()
    }

    /// The progress from 0 to 1, for a progress bar: bisection steps done of those expected.
    pub fn progress(&self) -> f64 {
        let steps = (1.0 / self.config.granularity).log2().ceil() + 1.0;
        let done = |b: &Bounds| {
            if b.is_settled() {
                return 1.0;
            }
            let top = b.failed_pps.unwrap_or(self.config.max_rate_pps);
            let width = (top - b.highest_pps()) / top;
            ((1.0 / width.clamp(self.config.granularity, 1.0)).log2() / steps).min(0.95)
        };
        self.bounds.iter().map(done).sum::<f64>() / self.bounds.len() as f64
    }
}

impl Bounds {
    fn is_settled(&self) -> bool {
        self.hopeless || self.validated_pps.is_some()
    }

    /// The highest rate that passed, 0 if none has.
    fn highest_pps(&self) -> f64 {
        self.passed_pps.iter().copied().fold(0.0, f64::max)
    }

    /// Whether passed and failed rate are close enough, or the highest rate passed.
    fn is_narrow(&self, config: &Config) -> bool {
        match self.failed_pps {
            None => self.highest_pps() >= config.max_rate_pps,
            Some(failed) => failed - self.highest_pps().max(config.min_rate_pps) <= config.granularity * failed,
        }
    }

    fn pass(&mut self, rate_pps: f64) {
        // With noise, a rate above a failed one may pass; the failure stands.
        if self.failed_pps.is_none_or(|failed| rate_pps < failed) {
            self.passed_pps.push(rate_pps);
        }
    }

    fn fail(&mut self, rate_pps: f64) {
        let failed = self.failed_pps.unwrap_or(f64::INFINITY).min(rate_pps);
        self.failed_pps = Some(failed);
        // Earlier passes at this rate or above were luck.
        self.passed_pps.retain(|passed| *passed < failed);
        if self.validated_pps.is_some_and(|v| v >= failed) {
            self.validated_pps = None;
        }
    }
}

fn check(config: &Config) -> Result<(), ConfigError> {
    let rules: [(&'static str, f64, bool, &'static str); 7] = [
        ("min_rate_pps", config.min_rate_pps, config.min_rate_pps > 0.0, "a rate above 0"),
        (
            "max_rate_pps",
            config.max_rate_pps,
            config.max_rate_pps > config.min_rate_pps && config.max_rate_pps <= RATE_MAX,
            "a rate above min_rate_pps and at most 1e9, more than 400 Gbit/s carry",
        ),
        (
            "granularity",
            config.granularity,
            config.granularity >= GRANULARITY_MIN && config.granularity < 1.0,
            "a share from 0.000001 to below 1, such as 0.001",
        ),
        ("sniff_s", config.sniff_s, is_length(config.sniff_s), "seconds up to a week, 0 for no sniffing"),
        (
            "search_s",
            config.search_s,
            config.search_s > 0.0 && is_length(config.search_s),
            "seconds above 0, up to a week",
        ),
        (
            "validation_s",
            config.validation_s,
            config.validation_s > 0.0 && is_length(config.validation_s),
            "seconds above 0, up to a week",
        ),
        (
            "repeats",
            config.repeats as f64,
            config.repeats % 2 == 1 && config.repeats <= REPEATS_MAX,
            "an odd number of trials up to 99",
        ),
    ];
    if let Some((key, value, _, expected)) = rules.into_iter().find(|(_, _, good, _)| !good) {
        return Err(ConfigError::OutOfRange { key, value, expected });
    }
    if let Some(value) = config.loss_limits.iter().copied().find(|l| !(0.0..1.0).contains(l)) {
        return Err(ConfigError::OutOfRange {
            key: "loss_limits",
            value,
            expected: "shares from 0 up to 1, such as 0.00002",
        });
    }
    if config.loss_limits.is_empty() { Err(ConfigError::NoLimits) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
