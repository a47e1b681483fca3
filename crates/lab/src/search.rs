//! `sluice lab search`: the highest rate a switch carries with a traffic profile, after RFC 2544.

use crate::progress::Progress;
use crate::record::{Axis, Chart, FORMAT, Figure, Findings, Record, Series, Size, Table};
use crate::sheet::Sheet;
use crate::text::number;
use crate::{command, files, noise, report, switch, text};
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use sluice_datapath::Settings;
use sluice_fate::{Counter, Snapshot};
use sluice_trafficgen::search::{self, Config, Search, TrialKind};
use sluice_trafficgen::{External, Generator, LaneFigures, OverPorts, Plan, Trial, TrialFigures};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Search the highest rate at which a switch loses no more than it may (RFC 2544), with a traffic profile
#[derive(clap::Args, Debug)]
pub struct SearchArgs {
    /// The traffic profile (JSON)
    profile: PathBuf,
    /// Rules of the switch in this process (ovs-ofctl syntax); default: the ports of a pair send to each other
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ports", "program"])]
    rules: Option<PathBuf>,
    /// A setting of the lookup in the switch in this process, as sluice/set takes it, such as emc=off
    #[arg(long = "set", value_name = "SETTING=VALUE", conflicts_with_all = ["ports", "program"])]
    settings: Vec<String>,
    /// A switch elsewhere: the generator's own ports, such as af_packet:veth0,af_packet:veth1, in the profile's order
    #[arg(long, value_name = "TYPE:DEVICE,…", value_delimiter = ',', conflicts_with = "program")]
    ports: Vec<String>,
    /// Highest loss, share of the packets
    #[arg(
        long,
        value_name = "SHARE,…",
        value_delimiter = ',',
        allow_negative_numbers = true,
        default_value = "0.00002,0,0.005"
    )]
    loss: Vec<f64>,
    /// Where to begin, packets a second
    #[arg(long, value_name = "PPS", allow_negative_numbers = true, default_value_t = 20e6)]
    max_rate: f64,
    /// Below this is none, packets a second
    #[arg(long, value_name = "PPS", allow_negative_numbers = true, default_value_t = 1e3)]
    min_rate: f64,
    /// How close passed and failed rate must come, as a share
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true, default_value_t = 0.001)]
    granularity: f64,
    /// Length of a sniff, seconds; 0: none
    #[arg(long, value_name = "S", allow_negative_numbers = true, default_value_t = 3.0)]
    sniff: f64,
    /// Length of a search trial, seconds
    #[arg(long, value_name = "S", allow_negative_numbers = true, default_value_t = 30.0)]
    search: f64,
    /// Length of a final validation, seconds
    #[arg(long, value_name = "S", allow_negative_numbers = true, default_value_t = 60.0)]
    validation: f64,
    /// Trials a step, of which most decide: for machines on which other work takes the processor now and then
    #[arg(long, value_name = "N", default_value_t = 1)]
    repeats: usize,
    /// Length of the warm-up before the first trial, seconds; 0: none
    #[arg(long, value_name = "S", allow_negative_numbers = true, default_value_t = 2.0)]
    warmup: f64,
    /// Where records and report go
    #[arg(long, value_name = "DIR", default_value = "lab-results")]
    out: PathBuf,
    /// Go on from the trials that an interrupted search left in the directory
    #[arg(long)]
    resume: bool,
    /// A program that sends: told {rate}, {seconds} and {warmup}, prints {"sent": N, "received": N, "seconds": S}
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

/// A search as it is kept between trials.
#[derive(Serialize, Deserialize)]
struct State {
    /// The profile's text: another one cannot be gone on with.
    profile: String,
    search: Search,
    /// What each trial gave, by lane.
    lanes: Vec<Vec<LaneFigures>>,
    /// What the caches answered in each trial; empty if the switch is elsewhere.
    #[serde(default)]
    pmd: Vec<String>,
    /// Latencies of the last trial that was a validation: from, to, packets.
    latencies: Vec<(u64, u64, u64)>,
}

/// A warm-up's rate as a share of the highest.
const WARMUP_SHARE: f64 = 0.1;
/// Said at the end of a search that was interrupted.
const STOPPED: &str = "stopped: the trials so far are kept; --resume goes on from there";

/// Does what the arguments say.
///
/// # Errors
/// If profile or numbers are wrong, or a trial could not be run; trials so far are kept.
pub fn run(args: &SearchArgs) -> Result<()> {
    let text = Plan::text(&args.profile)?;
    let plan = Plan::parse(&text, &args.profile)?;
    let config = Config {
        max_rate_pps: args.max_rate,
        min_rate_pps: args.min_rate,
        loss_limits: args.loss.clone(),
        granularity: args.granularity,
        sniff_s: args.sniff,
        search_s: args.search,
        validation_s: args.validation,
        repeats: args.repeats,
        ..Config::default()
    };
    ensure!(search::is_length(args.warmup), "--warmup {}: expected seconds up to a week, 0 for none", args.warmup);
    files::make_dir(&args.out)?;
    let kept = args.out.join("search-state.json");
    let mut state = State {
        profile: text,
        search: Search::new(config).map_err(in_options)?,
        lanes: Vec::new(),
        pmd: Vec::new(),
        latencies: Vec::new(),
    };
    if args.resume {
        state = resumed(&kept, state)?;
    }
    let stop = command::stop_on_signals()?;
    let (began, clock) = (command::utc(), Instant::now());
    let steal = noise::CpuTime::now();
    let done = {
        let mut generator = Under::new(args, &plan)?;
        trials(&mut state, &mut generator, args, &kept, &stop)
    };
    let stolen = noise::CpuTime::now().steal_percent_since(steal);
    let mut record = Record {
        format: FORMAT.to_owned(),
        experiment: "search".to_owned(),
        about: format!("Which rate is carried, of {}?", args.profile.display()),
        command: command::command_line(),
        began,
        seconds: clock.elapsed().as_secs_f64(),
        size: Size::Full,
        interrupted: state.search.next_trial().is_some(),
        sheet: Sheet::of_this_machine(stolen),
        findings: findings(&state),
        noise: noise::steal(stolen),
    };
    record.findings.notes.push(plan.to_string());
    files::put_json(&args.out.join("search.json"), &record)?;
    answers(&state).rows.iter().for_each(|row| println!("{}", row.join("  ")));
    println!("report: {}", report::write(&args.out)?.display());
    done
}

/// The state of an earlier search of the same profile with the same numbers; the fresh one if there is none.
fn resumed(path: &Path, fresh: State) -> Result<State> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(fresh),
        Err(error) => return Err(error).with_context(|| format!("{}: cannot be read", path.display())),
    };
    let state: State = serde_json::from_str(&text)
        .with_context(|| format!("{}: expected a search's state; remove it", path.display()))?;
    ensure!(
        state.profile == fresh.profile && state.search.config() == fresh.search.config(),
        "{}: of another profile or other numbers; leave out --resume to begin anew",
        path.display()
    );
    Ok(state)
}

/// A generator, and the switch in this process if that is what it sends through.
struct Under {
    generator: Box<dyn Generator>,
    switch: Option<switch::Running>,
}

impl Under {
    fn new(args: &SearchArgs, plan: &Plan) -> Result<Under> {
        if !args.program.is_empty() {
            return Ok(Under { generator: Box::new(External { command: args.program.clone() }), switch: None });
        }
        if args.ports.is_empty() {
            let rules = match &args.rules {
                Some(path) => std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))?,
                None => switch::pairs(plan.ports),
            };
            let (generator, switch) = switch::start_with(plan, &rules, settings(&args.settings)?)?;
            return Ok(Under { generator: Box::new(generator), switch: Some(switch) });
        }
        if args.ports.len() != plan.ports {
            bail!("--ports has {} ports: expected {}, as the profile has pairs", args.ports.len(), plan.ports);
        }
        let mut pools = sluice_port::Pools::default();
        let ports = args.ports.iter().map(|port| switch::open(port, plan, &mut pools)).collect::<Result<Vec<_>>>()?;
        let pool = pools.of_size(plan.longest())?;
        Ok(Under { generator: Box::new(OverPorts::new(plan, ports, pool)), switch: None })
    }
}

/// What takes the time of a search.
const BISECTION: &str = "each limit of loss takes trials that halve the distance between what passed and what failed";

/// The options that set the search's numbers.
const OPTIONS: [(&str, &str); 8] = [
    ("max_rate_pps", "--max-rate"),
    ("min_rate_pps", "--min-rate"),
    ("loss_limits", "--loss"),
    ("granularity", "--granularity"),
    ("sniff_s", "--sniff"),
    ("search_s", "--search"),
    ("validation_s", "--validation"),
    ("repeats", "--repeats"),
];

/// What is wrong with the search's numbers, by the options that set them.
fn in_options(error: search::ConfigError) -> anyhow::Error {
    let named = |text: &str| OPTIONS.iter().fold(text.to_owned(), |text, (key, option)| text.replace(key, option));
    match error {
        search::ConfigError::OutOfRange { key, value, expected } => {
            let option = OPTIONS.iter().find(|(known, _)| *known == key).map_or(key, |(_, option)| option);
            anyhow::anyhow!("{option} {value}: expected {}", named(expected))
        }
        other => anyhow::anyhow!("{}", named(&other.to_string())),
    }
}

/// How long a search takes at most, if its validations pass: a sniff and a trial for each halving, for each limit.
fn most_seconds(args: &SearchArgs) -> f64 {
    let halvings = (1.0 / args.granularity.max(1e-9)).log2().ceil() + 1.0;
    let step = halvings * (args.sniff + args.search) + args.validation;
    args.warmup + args.repeats as f64 * args.loss.len() as f64 * step
}

/// The settings told, over the defaults.
fn settings(told: &[String]) -> Result<Settings> {
    let mut settings = Settings::default();
    for one in told {
        let (key, value) = one.split_once('=').with_context(|| format!("--set {one}: expected SETTING=VALUE"))?;
        settings.set(key, value).with_context(|| format!("--set {one}"))?;
    }
    Ok(settings)
}

/// What the switch's caches answered in a trial, if it is in this process.
fn pmd_statistics(before: &Snapshot, after: &Snapshot) -> String {
    let counted = after.since(before);
    let share = |counter| 100.0 * counted[counter] as f64 / counted[Counter::Passes].max(1) as f64;
    format!(
        "EMC {:.1} %, SMC {:.1} %, megaflows {:.1} %, upcalls {}",
        share(Counter::EmcHits),
        share(Counter::SmcHits),
        share(Counter::MegaflowHits),
        counted[Counter::Upcalls]
    )
}

/// Runs trial after trial, keeping the state after each.
fn trials(state: &mut State, under: &mut Under, args: &SearchArgs, kept: &Path, stop: &AtomicBool) -> Result<()> {
    let progress = Progress::on_stderr();
    progress.say(&format!("a search of {} at most: {}", text::span(most_seconds(args)), BISECTION));
    progress.show(state.search.progress());
    let mut is_warm = args.warmup == 0.0;
    while let Some(next) = state.search.next_trial() {
        if !is_warm {
            is_warm = true;
            warm_up(&mut *under.generator, args, stop, &progress)?;
        }
        let trial =
            Trial { rate_pps: next.rate_pps, duration: Duration::from_secs_f64(next.duration_s), is_warmup: false };
        let before = under.switch.as_ref().map(switch::Running::totals);
        let figures = under.generator.run(&trial, stop);
        ensure!(!stop.load(Relaxed), STOPPED);
        let after = under.switch.as_ref().map(switch::Running::totals);
        let figures = figures.context("the trials so far are kept; --resume goes on from there")?;
        take(state, &next, figures);
        state.pmd.push(before.zip(after).map_or(String::new(), |(before, after)| pmd_statistics(&before, &after)));
        files::put_json(kept, state)?;
        progress.say(&line(state));
        progress.show(state.search.progress());
    }
    Ok(())
}

/// Teaches the switch the flows of streams that are for that.
fn warm_up(generator: &mut dyn Generator, args: &SearchArgs, stop: &AtomicBool, progress: &Progress) -> Result<()> {
    let trial = Trial {
        rate_pps: args.max_rate * WARMUP_SHARE,
        duration: Duration::from_secs_f64(args.warmup),
        is_warmup: true,
    };
    let taught = generator.run(&trial, stop);
    ensure!(!stop.load(Relaxed), STOPPED);
    match taught {
        Ok(figures) => progress.say(&format!("warm-up: {} packets", figures.outcome().sent)),
        Err(sluice_trafficgen::GeneratorError::Nothing(_)) => progress.say("no stream is for warming up"),
        Err(error) => return Err(error).context("warm-up"),
    }
    Ok(())
}

fn take(state: &mut State, trial: &search::Trial, figures: TrialFigures) {
    state.search.record(figures.outcome());
    if let (TrialKind::Validation, Some(latencies)) = (trial.kind, &figures.latencies) {
        state.latencies = latencies.bins();
    }
    state.lanes.push(figures.lanes);
}

/// The last trial in a line.
fn line(state: &State) -> String {
    row(state, state.lanes.len() - 1).join("  ").trim_end().to_owned()
}

/// A trial as cells.
fn row(state: &State, i: usize) -> Vec<String> {
    let record = &state.search.records()[i];
    let lanes = &state.lanes[i];
    let worst = lanes.iter().filter_map(|lane| lane.latency).max_by_key(|l| l.p99_9_ns);
    let us = |ns: u64| number(ns as f64 / 1e3);
    let latency = worst.map_or("-".to_owned(), |l| {
        format!("{}/{}/{}/{} µs", us(l.p50_ns), us(l.p99_ns), us(l.p99_9_ns), us(l.max_ns))
    });
    let sum = |count: fn(&LaneFigures) -> u64| lanes.iter().map(count).sum::<u64>();
    vec![
        format!("{:?}", record.trial.kind).to_lowercase(),
        format!("≤ {} %", record.trial.loss_limit * 100.0),
        format!("{:.4} Mpps", record.trial.rate_pps / 1e6),
        format!("{} s", record.trial.duration_s),
        format!("lost {} of {}", record.outcome.sent.saturating_sub(record.outcome.received), record.outcome.sent),
        format!("{:.5} %", record.outcome.loss() * 100.0),
        if record.passed { "passed" } else { "failed" }.to_owned(),
        latency,
        format!("{} out of order, {} astray", sum(|l| l.out_of_order), sum(|l| l.astray)),
        state.pmd.get(i).cloned().unwrap_or_default(),
    ]
}

fn answers(state: &State) -> Table {
    let max = state.search.config().max_rate_pps;
    let row = |answer: search::Answer| {
        let rate = match answer.rate_pps {
            // No trial failed there: the switch may carry more.
            Some(rate) if rate >= max => {
                format!("{:.4} Mpps, which is the given maximum: it may carry more (--max-rate)", rate / 1e6)
            }
            Some(rate) => format!("{:.4} Mpps", rate / 1e6),
            None if answer.is_final => "none".to_owned(),
            None => "not known yet".to_owned(),
        };
        vec![format!("loss of at most {} %:", answer.loss_limit * 100.0), rate]
    };
    Table {
        title: "The highest rate that passed its validation".to_owned(),
        columns: ["loss", "rate"].map(str::to_owned).to_vec(),
        rows: state.search.answers().into_iter().map(row).collect(),
    }
}

fn lanes_table(state: &State) -> Option<Table> {
    let at = state.search.records().iter().rposition(|r| r.trial.kind == TrialKind::Validation && r.passed)?;
    let row = |lane: &LaneFigures| {
        let us = |pick: fn(&sluice_trafficgen::Latency) -> u64| {
            lane.latency.as_ref().map_or("-".to_owned(), |l| number(pick(l) as f64 / 1e3))
        };
        let counts = [lane.sent, lane.received, lane.out_of_order, lane.astray].map(|n| n.to_string());
        let times = [us(|l| l.p50_ns), us(|l| l.p99_ns), us(|l| l.p99_9_ns), us(|l| l.max_ns)];
        [lane.lane.clone()].into_iter().chain(counts).chain(times).collect()
    };
    let heads = ["lane", "sent", "received", "out of order", "astray", "p50 µs", "p99 µs", "p99.9 µs", "max µs"];
    Some(Table {
        title: "The last validation that passed, by lane".to_owned(),
        columns: heads.map(str::to_owned).to_vec(),
        rows: state.lanes[at].iter().map(row).collect(),
    })
}

fn findings(state: &State) -> Findings {
    let heads = ["trial", "limit", "rate", "length", "lost", "loss", "verdict", "p50/p99/p99.9/max", "order", "PMD"];
    let mut tables = vec![answers(state)];
    tables.extend(lanes_table(state));
    tables.push(Table {
        title: "Every trial".to_owned(),
        columns: heads.map(str::to_owned).to_vec(),
        rows: (0..state.lanes.len()).map(|i| row(state, i)).collect(),
    });
    let mut points: Vec<[f64; 4]> = state
        .search
        .records()
        .iter()
        .map(|r| [r.trial.rate_pps / 1e6, 100.0 * r.outcome.loss(), 100.0 * r.outcome.loss(), 100.0 * r.outcome.loss()])
        .collect();
    points.sort_by(|a, b| a[0].total_cmp(&b[0]));
    let mut figures = vec![Figure {
        title: "Loss over rate".to_owned(),
        caption: "Every trial, whatever its length.".to_owned(),
        chart: Chart::Lines {
            x: Axis::linear("Mpps"),
            y: Axis::linear("lost, percent"),
            series: vec![Series { name: "trials".to_owned(), points }],
        },
    }];
    if !state.latencies.is_empty() {
        let us = |ns: u64| ns as f64 / 1e3;
        figures.push(Figure {
            title: "Latency in the last validation".to_owned(),
            caption: "From when a packet was due to when the switch sent it.".to_owned(),
            chart: Chart::Histogram {
                x: Axis::log("µs"),
                bins: state.latencies.iter().map(|(from, to, n)| (us((*from).max(1)), us(*to + 1), *n)).collect(),
            },
        });
    }
    Findings { points: Vec::new(), tables, figures, notes: Vec::new() }
}
