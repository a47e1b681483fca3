//! `sluice lab`: which experiments, how large, and where the report goes.

use crate::core_distance;
use crate::crr::{ConnectArgs, ServeArgs};
use crate::experiment::Experiment;
use crate::experiment_list::{EXPERIMENTS, named};
use crate::files;
use crate::lab::Lab;
use crate::losses;
use crate::noise::{self, CpuTime};
use crate::record::{FORMAT, Findings, Record, Size};
use crate::report;
use crate::search::{self, SearchArgs};
use crate::sheet::Sheet;
use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use time::OffsetDateTime;

/// Run experiments and write their report; without a name, all of them
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct LabArgs {
    #[command(subcommand)]
    command: Option<LabCommand>,
    /// An experiment, "list" for their names, "quick" for a short look at all, "report" to render it
    /// again, "front-page" for the plot of the README from a record of "peer", "losses" for where Sluice loses by the reports below a directory, "core-distance" for
    /// the cycles that a cache line takes from the first core to the last
    what: Option<String>,
    /// A short look: few points, few repetitions
    #[arg(long)]
    quick: bool,
    /// Print the records as JSON
    #[arg(long)]
    json: bool,
    /// Where records and report go
    #[arg(long, value_name = "DIR", default_value = "lab-results")]
    out: PathBuf,
    /// Go on from points that an interrupted run of the same size left in the directory
    #[arg(long)]
    resume: bool,
}

#[derive(clap::Subcommand, Debug)]
enum LabCommand {
    Search(Box<SearchArgs>),
    /// The two ends of the experiment "crr", which starts them.
    #[command(hide = true)]
    CrrServe(ServeArgs),
    #[command(hide = true)]
    CrrConnect(ConnectArgs),
}

/// Does what the arguments say.
///
/// # Errors
/// If there is no such experiment, an answer is wrong, or a file cannot be written.
pub fn run(args: &LabArgs) -> Result<()> {
    match &args.command {
        Some(LabCommand::Search(args)) => return search::run(args),
        Some(LabCommand::CrrServe(args)) => return args.run(),
        Some(LabCommand::CrrConnect(args)) => return args.run(),
        None => {}
    }
    let (size, wanted): (Size, Vec<&dyn Experiment>) = match args.what.as_deref() {
        Some("list") => return list(),
        Some("report") => return say_report(&args.out),
        Some("core-distance") => return say_core_distance(),
        Some("front-page") => {
            print!("{}", crate::front_page::plot(&args.out)?);
            return Ok(());
        }
        Some("losses") => {
            print!("{}", losses::collect(&args.out)?);
            return Ok(());
        }
        Some("quick") => (Size::Quick, EXPERIMENTS.to_vec()),
        None => (if args.quick { Size::Quick } else { Size::Full }, EXPERIMENTS.to_vec()),
        Some(name) => {
            let experiment = named(name).with_context(|| unknown(name))?;
            (if args.quick { Size::Quick } else { Size::Full }, vec![experiment])
        }
    };
    let is_quick_look = size == Size::Quick && wanted.len() > 1;
    files::make_dir(&args.out)?;
    let stop = stop_on_signals()?;
    let deadline = is_quick_look.then(|| Instant::now() + QUICK_LOOK);
    for experiment in wanted {
        if let Some(why) = experiment.obstacle() {
            eprintln!("{}: left out: {why}", experiment.name());
            continue;
        }
        let (record, failure) = run_one(experiment, size, args, &stop, deadline)?;
        files::put_json(&args.out.join(format!("{}.json", experiment.name())), &record)?;
        record.noise.iter().for_each(|why| eprintln!("{}: {why}", experiment.name()));
        if args.json {
            println!("{}", serde_json::to_string_pretty(&record)?);
        }
        if let Some(error) = failure {
            say_report(&args.out)?;
            return Err(error.context(format!("{}: {KEPT}", experiment.name())));
        }
        if stop.load(Relaxed) {
            say_report(&args.out)?;
            bail!("stopped: {KEPT}");
        }
    }
    say_report(&args.out)
}

/// The time of a quick look at all experiments, less what first points may take beyond it; and the share of what is
/// left that one experiment may take.
const QUICK_LOOK: Duration = Duration::from_secs(85);
const QUICK_SHARE: f64 = 0.25;

/// Said of a run that ended early.
const KEPT: &str = "what was measured is kept; --resume goes on from there";

/// What may be asked besides an experiment.
const OTHERS: [&str; 7] = ["core-distance", "front-page", "list", "losses", "quick", "report", "search"];
/// Letters inserted, left out, changed or swapped within which a name was meant.
const TYPED_WRONG_MAX: usize = 2;

/// What is said to a name there is not, with the nearest there is.
fn unknown(name: &str) -> String {
    let experiments: Vec<&str> = EXPERIMENTS.iter().map(|e| e.name()).collect();
    let names = experiments.iter().copied().chain(OTHERS);
    let nearest = names.map(|known| (strsim::damerau_levenshtein(name, known), known)).min();
    let meant = nearest.filter(|(distance, _)| *distance <= TYPED_WRONG_MAX);
    let meant = meant.map(|(_, known)| format!("; did you mean {known}?")).unwrap_or_default();
    format!("{name}: expected an experiment ({}), {}{meant}", experiments.join(", "), OTHERS.join(", "))
}

fn say_core_distance() -> Result<()> {
    let cycles = core_distance::measure().context("core-distance: needs two cores")?;
    println!("{cycles}");
    Ok(())
}

/// Runs an experiment; what it found, and what ended it early.
fn run_one(
    experiment: &dyn Experiment,
    size: Size,
    args: &LabArgs,
    stop: &Arc<AtomicBool>,
    deadline: Option<Instant>,
) -> Result<(Record, Option<anyhow::Error>)> {
    eprintln!("== {}: {}", experiment.name(), experiment.about());
    let path = args.out.join(format!("{}.json", experiment.name()));
    let earlier = if args.resume { files::read(&path)? } else { None };
    let earlier = earlier.filter(|record| record.size == size);
    if let Some(whole) = earlier.as_ref().filter(|record| !record.interrupted) {
        eprintln!("{}: is whole; without --resume it is measured anew", experiment.name());
        return Ok((whole.clone(), None));
    }
    let done = earlier.map(|record| record.findings.points).unwrap_or_default();
    let mut record = Record {
        format: FORMAT.to_owned(),
        experiment: experiment.name().to_owned(),
        about: experiment.about().to_owned(),
        command: command_line(),
        began: utc(),
        seconds: 0.0,
        size,
        interrupted: true,
        sheet: Sheet::of_this_machine(0.0),
        noise: Vec::new(),
        findings: Findings::default(),
    };
    let mut lab = Lab::new(size, Arc::clone(stop), done);
    lab.keep_in(path, record.clone());
    if let Some(deadline) = deadline {
        let now = Instant::now();
        lab.end_by(now + deadline.saturating_duration_since(now).mul_f64(QUICK_SHARE));
    }
    experiment.bound().apply();
    let (clock, cpu) = (Instant::now(), CpuTime::now());
    let mut findings: Findings = experiment.run(&mut lab).with_context(|| experiment.name())?;
    findings.notes.extend(lab.left_out());
    let stolen = CpuTime::now().steal_percent_since(cpu);
    let failure = lab.take_failure();
    record.seconds = clock.elapsed().as_secs_f64();
    record.interrupted = stop.load(Relaxed) || failure.is_some();
    record.sheet = Sheet::of_this_machine(stolen);
    record.noise = noise::verdict(&findings.points);
    record.findings = findings;
    Ok((record, failure))
}

fn list() -> Result<()> {
    let mut out = String::new();
    for experiment in EXPERIMENTS {
        let obstacle = experiment.obstacle().map(|why| format!(" (not here: {why})")).unwrap_or_default();
        let (name, about, needs) = (experiment.name(), experiment.about(), experiment.needs());
        out += &format!("{name:<12} {about}{obstacle}\n{:<12} needs {needs}\n", "");
    }
    out += &format!("{:<12} Which rate does a switch carry with a traffic profile (RFC 2544)?\n", "search");
    let needs = "a profile, such as examples/profiles/seed.json; root for ports of another switch (--ports)";
    out += &format!("{:<12} needs {needs}\n", "");
    // Whether or not anybody reads it to its end.
    let _ = std::io::stdout().write_all(out.as_bytes());
    Ok(())
}

fn say_report(dir: &Path) -> Result<()> {
    println!("report: {}", report::write(dir)?.display());
    Ok(())
}

/// The first SIGINT or SIGTERM asks for the end, the second does not wait for it.
pub fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop)).context("signals")?;
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("signals")?;
    }
    Ok(stop)
}

/// The command line, with the program by its name alone.
pub fn command_line() -> String {
    let args: Vec<String> = std::env::args().skip(1).collect();
    format!("sluice {}", args.join(" "))
}

/// Now, as `2026-01-31 12:00`.
pub fn utc() -> String {
    let now = OffsetDateTime::now_utc();
    let (year, month, day) = now.to_calendar_date();
    format!("{year}-{:02}-{day:02} {:02}:{:02}", u8::from(month), now.hour(), now.minute())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::Loss;
    use crate::record::Point;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn what_was_meant_is_found() {
        for (typed, meant) in [("quik", "quick"), ("subtabels", "subtables"), ("recrc", "recirc"), ("Cold", "cold")] {
            assert!(unknown(typed).ends_with(&format!("; did you mean {meant}?")), "{}", unknown(typed));
        }
        assert!(
            unknown("nothing").ends_with("core-distance, front-page, list, losses, quick, report, search"),
            "{}",
            unknown("nothing")
        );
    }

    /// Fails the first time.
    struct Counted(AtomicUsize);

    impl Experiment for Counted {
        fn name(&self) -> &'static str {
            "counted"
        }

        fn about(&self) -> &'static str {
            "How often was it run?"
        }

        fn run(&self, lab: &mut Lab) -> Result<Findings> {
            if self.0.fetch_add(1, Relaxed) == 0 {
                lab.fail(anyhow::anyhow!("no link"));
            }
            Ok(Findings { notes: vec!["kept".to_owned()], ..Findings::default() })
        }

        fn losses(&self, _points: &[Point]) -> Vec<Loss> {
            Vec::new()
        }
    }

    #[test]
    fn a_failed_run_is_gone_on_with_and_a_whole_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().to_owned();
        let args = LabArgs { command: None, what: None, quick: true, json: false, out, resume: true };
        let counted = Counted(AtomicUsize::new(0));
        let run = || {
            let (record, failure) = run_one(&counted, Size::Quick, &args, &Arc::default(), None).unwrap();
            files::put_json(&dir.path().join("counted.json"), &record).unwrap();
            (record, failure.map(|error| error.to_string()), counted.0.load(Relaxed))
        };
        let (record, failure, runs) = run();
        assert_eq!((record.interrupted, failure.as_deref(), runs), (true, Some("no link"), 1));
        assert_eq!(record.findings.notes, ["kept"]);
        let (whole, failure, runs) = run();
        assert_eq!((whole.interrupted, failure, runs), (false, None, 2));
        let (again, _, runs) = run();
        assert_eq!((again, runs), (whole, 2));
    }
}
