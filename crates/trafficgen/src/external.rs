//! A program as generator: it receives rate and time, and prints its figures as JSON.
//!
//! `{rate}`, `{seconds}` and `{warmup}` (0 or 1) in its arguments are replaced. It prints one object, such as `{"sent":
//! 1000, "received": 999}`, optionally with `seconds` (duration of sending), `out_of_order` and `latency` (`p50_ns`,
//! `p99_ns`, `p99_9_ns`, `max_ns`). It must have sent at the given rate; a trial at another rate is not a result. It
//! leads a process group, which ends with it.

use crate::generator::{
    Generator, GeneratorError, LaneFigures, Trial, TrialFigures, check_pace, check_rate, most_packets,
};
use crate::latency::Latency;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A program that sends and counts.
#[derive(Clone, Debug)]
pub struct External {
    /// The program and its arguments; not empty.
    pub command: Vec<String>,
}

/// How much of its output is kept, bytes.
const OUTPUT_MAX: usize = 1 << 16;
/// How much longer than the trial it may take.
const GRACE: Duration = Duration::from_secs(30);
/// How long it may take to end after a request, and its output after that.
const END_GRACE: Duration = Duration::from_secs(2);
/// How often to check whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How much of its output an error repeats.
const QUOTED: usize = 200;

#[derive(Deserialize)]
#[serde(expecting = "an object with \"sent\" and \"received\"")]
struct Printed {
    sent: u64,
    received: u64,
    seconds: Option<f64>,
    #[serde(default)]
    out_of_order: u64,
    latency: Option<Latency>,
}

impl Generator for External {
    fn run(&mut self, trial: &Trial, stop: &AtomicBool) -> Result<TrialFigures, GeneratorError> {
        check_rate(trial.rate_pps)?;
        let told = |text: &String| {
            let rate = text.replace("{rate}", &format!("{:.0}", trial.rate_pps));
            let seconds = rate.replace("{seconds}", &trial.duration.as_secs_f64().to_string());
            seconds.replace("{warmup}", if trial.is_warmup { "1" } else { "0" })
        };
        let command: Vec<String> = self.command.iter().map(told).collect();
        let program = command.first().cloned().unwrap_or_default();
        let started = Command::new(&program)
            .args(command.get(1..).unwrap_or_default())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn();
        let mut child = started.map_err(|why| GeneratorError::Start { program: program.clone(), why })?;
        let (out, err) = (Output::of(child.stdout.take()), Output::of(child.stderr.take()));
        let ended = wait(&mut child, trial.duration + GRACE, stop);
        let closed = out.wait() & err.wait();
        if !closed {
            // A process that it left behind still holds its output.
            signal(&child, Signal::KILL);
        }
        let said = [&err, &out].map(|output| tail(&output.text())).into_iter().find(|said| !said.is_empty());
        let died = |how| GeneratorError::Died { program: program.clone(), how, stderr: said.unwrap_or_default() };
        match ended {
            Err(how) => Err(died(how)),
            Ok(status) if !status.success() => Err(died(format!("it ended with {status}"))),
            Ok(_) => figures(&program, &out.text(), trial),
        }
    }
}

/// What a program printed, checked.
fn figures(program: &str, printed: &str, trial: &Trial) -> Result<TrialFigures, GeneratorError> {
    let nonsense = |why: String| GeneratorError::Nonsense {
        program: program.to_owned(),
        printed: printed.chars().take(QUOTED).collect(),
        why,
    };
    let figures: Printed = serde_json::from_str(printed).map_err(|error| nonsense(error.to_string()))?;
    if figures.received > figures.sent {
        return Err(nonsense("more was received than sent".to_owned()));
    }
    let took = match figures.seconds {
        None => trial.duration,
        Some(seconds) => {
            Duration::try_from_secs_f64(seconds).map_err(|_| nonsense("expected \"seconds\" from 0 on".to_owned()))?
        }
    };
    if !trial.is_warmup && figures.sent as f64 > most_packets(trial) {
        let asked = trial.rate_pps * trial.duration.as_secs_f64();
        return Err(nonsense(format!("more was sent than the {asked:.0} packets asked for")));
    }
    check_pace(trial, figures.sent, took)?;
    let lane = LaneFigures {
        lane: program.to_owned(),
        sent: figures.sent,
        received: figures.received,
        out_of_order: figures.out_of_order,
        astray: 0,
        latency: figures.latency,
    };
    Ok(TrialFigures { lanes: vec![lane], latencies: None })
}

/// The output of a pipe, read concurrently: a full pipe would stall the program.
struct Output {
    kept: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Output {
    fn of(pipe: Option<impl Read + Send + 'static>) -> Output {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&kept);
        let read = move || {
            let (Some(mut pipe), mut part) = (pipe, [0; 4096]) else { return };
            // A broken pipe has ended.
            while let Ok(n @ 1..) = pipe.read(&mut part) {
                let mut kept = keep.lock();
                let room = OUTPUT_MAX - kept.len();
                kept.extend_from_slice(&part[..n.min(room)]);
            }
        };
        Output { kept, reader: std::thread::spawn(read) }
    }

    /// Waits briefly for its end. Returns whether it has ended.
    fn wait(&self) -> bool {
        let until = Instant::now() + END_GRACE;
        while !self.reader.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.reader.is_finished()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.kept.lock()).into_owned()
    }
}

/// Waits for the end. Terminates it if it is late or should stop, and reports that.
fn wait(child: &mut Child, most: Duration, stop: &AtomicBool) -> Result<ExitStatus, String> {
    let until = Instant::now() + most;
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Ok(status);
        }
        let why = match (stop.load(Relaxed), Instant::now() > until) {
            (true, _) => "it was stopped".to_owned(),
            (_, true) => format!("it did not end within {} s and was ended", most.as_secs()),
            _ => {
                std::thread::sleep(LOOK_EVERY);
                continue;
            }
        };
        end(child);
        return Err(why);
    }
}

/// Asks the process group to end, and makes sure that it does.
fn end(child: &mut Child) {
    signal(child, Signal::TERM);
    let until = Instant::now() + END_GRACE;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
        std::thread::sleep(LOOK_EVERY);
    }
    signal(child, Signal::KILL);
    let _ = child.wait();
}

/// Sends a signal to the process group, which may be empty.
fn signal(child: &Child, signal: Signal) {
    let _ = kill_process_group(Pid::from_child(child), signal);
}

/// The end of a text, in a line.
fn tail(text: &str) -> String {
    text.trim().lines().last().unwrap_or_default().chars().take(QUOTED).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str) -> Result<TrialFigures, String> {
        let mut program = External { command: ["sh", "-c", script].map(str::to_owned).to_vec() };
        let trial = Trial { rate_pps: 1000.0, duration: Duration::from_secs(2), is_warmup: false };
        program.run(&trial, &AtomicBool::new(false)).map_err(|error| error.to_string())
    }

    #[test]
    fn it_is_told_rate_and_time_and_believed() {
        let figures = run(r#"echo "{\"sent\": $(( {rate} * {seconds} )), \"received\": 1999}""#).unwrap();
        assert_eq!((figures.lanes[0].sent, figures.lanes[0].received), (2000, 1999));
        let with_latency = r#"echo '{"sent":2000,"received":2000,"seconds":2,"latency":{"p50_ns":1,"p99_ns":2,"p99_9_ns":3,"max_ns":4}}'"#;
        assert_eq!(run(with_latency).unwrap().lanes[0].latency.unwrap().p99_9_ns, 3);
    }

    #[test]
    fn what_goes_wrong_is_said() {
        for (script, want) in [
            ("echo no device >&2; exit 3", "sh: it ended with exit status: 3; it said: no device"),
            ("kill -9 $$", "signal: 9"),
            ("echo hello", "sh printed \"hello\\n\": expected figures as JSON"),
            ("true", "sh printed \"\": expected figures"),
            ("echo '{\"sent\": 1, \"received\": 2}'", "more was received than sent"),
            ("echo '{\"sent\": 0, \"received\": 0}'", "the generator sent 0 packets a second of the 1000 asked for"),
            ("echo '{\"sent\": 2000, \"received\": 9, \"seconds\": 4}'", "sent 500 packets a second of the 1000"),
            (
                "echo '{\"sent\": 18446744073709551615, \"received\": 9}'",
                "more was sent than the 2000 packets asked for",
            ),
            ("echo '{\"sent\": 2000, \"received\": 9, \"seconds\": -1}'", "expected \"seconds\" from 0 on"),
            ("echo '{\"sent\": -1, \"received\": 1}'", "invalid value: integer `-1`"),
            ("echo '{\"sent\": 1, \"received\": 1e400}'", "number out of range"),
            ("echo '[]'", "expected an object with \"sent\" and \"received\""),
            ("printf '{\"sent\": 20'", "EOF while parsing"),
            ("echo '{\"sent\": 2000, \"received\": 9}'; echo done", "trailing characters"),
            ("head -c 300000 /dev/zero", "expected figures as JSON"),
        ] {
            let error = run(script).unwrap_err();
            assert!(error.contains(want), "{error}\ninstead of {want}");
        }
        let mut missing = External { command: vec!["/nowhere/gen".to_owned()] };
        let trial = Trial { rate_pps: 1.0, duration: Duration::ZERO, is_warmup: false };
        let error = missing.run(&trial, &AtomicBool::new(false)).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/gen: cannot be started: "), "{error}");
    }

    /// A program that ignores requests, has printed half its figures, and has started another.
    #[test]
    fn it_ends_with_all_that_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let script = format!("trap '' TERM; sleep 1000 & echo $! > {}; printf '{{\"sent\": '; wait", pid.display());
        let mut program = External { command: ["sh", "-c", &script].map(str::to_owned).to_vec() };
        let trial = Trial { rate_pps: 1.0, duration: Duration::from_secs(1000), is_warmup: false };
        let stop = AtomicBool::new(false);
        let error = std::thread::scope(|scope| {
            let run = scope.spawn(|| program.run(&trial, &stop).unwrap_err().to_string());
            let written = || std::fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n'));
            until("it started another", written);
            stop.store(true, Relaxed);
            run.join().unwrap()
        });
        assert!(error.starts_with("sh: it was stopped"), "{error}");
        is_gone(&pid);
    }

    /// A program that leaves a process behind which holds its output: its figures count, and that process ends.
    #[test]
    fn what_it_leaves_behind_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let script = format!(r#"sleep 1000 & echo $! > {}; echo '{{"sent": 2000, "received": 7}}'"#, pid.display());
        assert_eq!(run(&script).unwrap().lanes[0].received, 7);
        is_gone(&pid);
    }

    fn until(what: &str, mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}: not within a minute");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether the process named in a file has ended, or is about to be reaped by its new parent.
    fn is_gone(pid: &std::path::Path) {
        let pid = std::fs::read_to_string(pid).unwrap();
        let stat = format!("/proc/{}/stat", pid.trim());
        until("it ended", || std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z ")));
    }

    #[test]
    fn it_ends_when_it_is_time_to_stop() {
        let mut program = External { command: ["sleep", "1000"].map(str::to_owned).to_vec() };
        let trial = Trial { rate_pps: 1.0, duration: Duration::ZERO, is_warmup: false };
        let error = program.run(&trial, &AtomicBool::new(true)).unwrap_err().to_string();
        assert_eq!(error, "sleep: it was stopped");
    }
}
