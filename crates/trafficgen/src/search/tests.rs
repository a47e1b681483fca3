//! The search with simulated switches whose limits are known.

use super::*;
use proptest::prelude::*;

/// A switch that carries `limit_pps` and loses the rest.
fn carry(limit_pps: f64, trial: &Trial) -> TrialResult {
    let sent = (trial.rate_pps * trial.duration_s) as u64;
    TrialResult { sent, received: sent.min((limit_pps * trial.duration_s) as u64) }
}

fn run(search: &mut Search, mut switch: impl FnMut(&Trial) -> TrialResult) {
    while let Some(trial) = search.next_trial() {
        search.record(switch(&trial));
    }
}

fn config(limits: &[f64]) -> Config {
    Config { loss_limits: limits.to_vec(), ..Config::default() }
}

/// The highest rate whose loss is within `loss_limit` on a switch that carries `limit_pps`.
fn known(limit_pps: f64, loss_limit: f64) -> f64 {
    limit_pps / (1.0 - loss_limit)
}

proptest! {
    /// Every limit's answer is within the granularity of the true one, and never above it.
    #[test]
    fn a_switch_of_known_limit_is_measured(limit_pps in 2e4f64..19e6) {
        let mut search = Search::new(config(&[0.000_02, 0.0, 0.005])).unwrap();
        run(&mut search, |trial| carry(limit_pps, trial));
        for answer in search.answers() {
            let (rate, known) = (answer.rate_pps.unwrap(), known(limit_pps, answer.loss_limit));
            prop_assert!(rate <= known * 1.000_1, "{} of {}", rate, known);
            prop_assert!(rate >= known * (1.0 - 0.0015) - 1.0, "{} of {}", rate, known);
        }
        // Three bisections share their trials.
        prop_assert!(search.records().len() < 75, "{} trials", search.records().len());
        prop_assert!((search.progress() - 1.0).abs() < 1e-9);
    }

    /// Noise (one trial in ten loses packets it should not) lowers the answer, never raises it, and the search ends.
    #[test]
    fn noise_never_raises_the_answer(limit_pps in 1e5f64..19e6, seed in any::<u64>()) {
        let mut state = seed | 1;
        let mut search = Search::new(config(&[0.0, 0.005])).unwrap();
        run(&mut search, |trial| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let mut outcome = carry(limit_pps, trial);
            if state % 10 == 0 {
                outcome.received = outcome.received.saturating_sub(outcome.sent / 50);
            }
            outcome
        });
        for answer in search.answers() {
            if let Some(rate) = answer.rate_pps {
                prop_assert!(rate <= known(limit_pps, answer.loss_limit) * 1.000_1);
            }
        }
        prop_assert!(search.next_trial().is_none());
    }

    /// Where one trial in five loses packets it should not, most of several short trials find the rate that one long trial does not.
    #[test]
    fn most_of_several_trials_decide(limit_pps in 1e5f64..19e6, seed in any::<u64>()) {
        let noisy = |repeats| {
            let mut state = seed | 1;
            let mut search = Search::new(Config { repeats, sniff_s: 0.0, granularity: 0.01, trials_max: 2000, ..config(&[0.000_02]) }).unwrap();
            run(&mut search, |trial| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let outcome = carry(limit_pps, trial);
                let lost = if state % 5 == 0 { outcome.sent / 50 } else { 0 };
                TrialResult { received: outcome.received.saturating_sub(lost), ..outcome }
            });
            search.answers()[0].rate_pps.unwrap_or(0.0)
        };
        let known = known(limit_pps, 0.000_02);
        prop_assert!(noisy(99) >= known * 0.98, "{} of {}", noisy(99), known);
        prop_assert!(noisy(99) <= known * 1.000_1, "{} of {}", noisy(99), known);
        prop_assert!(noisy(1) <= known * 1.000_1);
    }

    /// Saved after any trial and loaded again, the search continues as if nothing had happened.
    #[test]
    fn it_resumes(limit_pps in 2e4f64..19e6, stop in 0usize..40) {
        let mut whole = Search::new(config(&[0.000_02, 0.0])).unwrap();
        run(&mut whole, |trial| carry(limit_pps, trial));
        let mut part = Search::new(config(&[0.000_02, 0.0])).unwrap();
        for _ in 0..stop {
            if let Some(trial) = part.next_trial() {
                part.record(carry(limit_pps, &trial));
            }
        }
        let mut resumed: Search = serde_json::from_str(&serde_json::to_string(&part).unwrap()).unwrap();
        run(&mut resumed, |trial| carry(limit_pps, trial));
        prop_assert_eq!(resumed.answers(), whole.answers());
        prop_assert_eq!(resumed.records().len(), whole.records().len());
    }
}

#[test]
fn a_switch_faster_than_the_generator_takes_three_trials() {
    let mut search = Search::new(config(&[0.0])).unwrap();
    run(&mut search, |trial| carry(1e9, trial));
    let kinds: Vec<_> = search.records().iter().map(|r| r.trial.kind).collect();
    assert_eq!(kinds, [TrialKind::Sniff, TrialKind::Search, TrialKind::Validation]);
    assert_eq!(search.answers()[0].rate_pps, Some(20e6));
}

#[test]
fn a_dead_switch_has_no_rate() {
    let mut search = Search::new(config(&[0.0, 0.005])).unwrap();
    run(&mut search, |trial| TrialResult { sent: (trial.rate_pps * trial.duration_s) as u64, received: 0 });
    assert!(search.answers().iter().all(|a| a.rate_pps.is_none()));
    assert!(search.records().iter().all(|r| r.trial.kind == TrialKind::Sniff), "nothing passed a sniff");
    let mut search = Search::new(config(&[0.0])).unwrap();
    run(&mut search, |_| TrialResult { sent: 0, received: 0 });
    assert_eq!(search.answers()[0].rate_pps, None, "a generator that sends nothing shows nothing");
}

/// A step ends as soon as most of its trials agree, and counts for the limits of which they say enough.
#[test]
fn a_step_ends_when_it_is_decided() {
    let mut search = Search::new(Config { repeats: 5, sniff_s: 0.0, ..config(&[0.0, 0.005]) }).unwrap();
    let lossy = |trial: &Trial| TrialResult { sent: trial.rate_pps as u64, received: (trial.rate_pps * 0.999) as u64 };
    run(&mut search, lossy);
    let kinds: Vec<_> = search.records().iter().map(|r| r.trial.kind).collect();
    assert_eq!(kinds[..6], [[TrialKind::Search; 3], [TrialKind::Validation; 3]].concat(), "passes the lax limit");
    assert_eq!(search.answers()[1].rate_pps, Some(20e6));
    assert_eq!(search.answers()[0].rate_pps, None, "the same trials failed the strict one, and all below did");
}

#[test]
fn a_rate_that_fails_its_validation_is_given_up() {
    // Carries 10 Mpps for up to half a minute, 8 Mpps for longer (a queue that fills slowly).
    let mut search = Search::new(config(&[0.0])).unwrap();
    run(&mut search, |trial| carry(if trial.duration_s > 30.0 { 8e6 } else { 10e6 }, trial));
    // Each failed validation halves the remaining range, so the answer is correct, but tight from one side only.
    let rate = search.answers()[0].rate_pps;
    assert!(rate.is_none_or(|r| r <= 8e6), "{rate:?}");
    assert!(search.records().iter().filter(|r| r.trial.kind == TrialKind::Validation).count() > 1);
}

#[test]
fn wrong_configurations_say_what_was_expected() {
    let error = |c: Config| Search::new(c).unwrap_err().to_string();
    assert!(error(Config { granularity: 0.0, ..Config::default() }).contains("granularity = 0: expected a share"));
    assert!(error(Config { max_rate_pps: 5.0, ..Config::default() }).contains("max_rate_pps = 5"));
    assert!(error(config(&[1.5])).contains("loss_limits = 1.5"));
    assert!(error(Config { repeats: 4, ..Config::default() }).contains("repeats = 4: expected an odd number"));
    assert!(error(config(&[])).contains("loss_limits is empty"));
}
