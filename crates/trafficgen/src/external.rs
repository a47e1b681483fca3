//! A program as generator: it is told rate and time, and prints its figures as JSON.
//!
//! `{rate}`, `{seconds}` and `{warmup}` (0 or 1) in its arguments are replaced. It prints one object, such as
//! `{"sent": 1000, "received": 999}`, `out_of_order` and `latency` (`p50_ns`, `p99_ns`, `p99_9_ns`, `max_ns`) optional.

use crate::generator::{Generator, GeneratorError, LaneFigures, Trial, TrialFigures, check_rate};
use crate::latency::Latency;
use serde::Deserialize;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A program that sends and counts.
#[derive(Clone, Debug)]
pub struct External {
    /// The program and its arguments; not empty.
    pub command: Vec<String>,
}

/// What a program may print.
const OUTPUT_MAX: u64 = 1 << 16;
/// How much longer than the trial it may take.
const GRACE: Duration = Duration::from_secs(30);
/// How often it is looked whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How much of its words an error repeats.
const QUOTED: usize = 200;

#[derive(Deserialize)]
struct Printed {
    sent: u64,
    received: u64,
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
            .spawn();
        let mut child = started.map_err(|source| GeneratorError::Start { program: program.clone(), source })?;
        // Read meanwhile: a full pipe would stall it.
        let out = reader(child.stdout.take());
        let err = reader(child.stderr.take());
        let ended = wait(&mut child, trial.duration + GRACE, stop);
        let join = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
        let died = |how, stderr: String| GeneratorError::Died { program: program.clone(), how, stderr };
        match ended {
            Err(how) => return Err(died(how, String::new())),
            Ok(status) if !status.success() => return Err(died(format!("it ended with {status}"), tail(&join(err)))),
            Ok(_) => {}
        }
        let printed = join(out);
        let nonsense = |why: String| GeneratorError::Nonsense {
            program: program.clone(),
            printed: printed.chars().take(QUOTED).collect(),
            why,
        };
        let figures: Printed = serde_json::from_str(&printed).map_err(|error| nonsense(error.to_string()))?;
        if figures.received > figures.sent {
            return Err(nonsense("more was received than sent".to_owned()));
        }
        let lane = LaneFigures {
            lane: program.clone(),
            sent: figures.sent,
            received: figures.received,
            out_of_order: figures.out_of_order,
            astray: 0,
            latency: figures.latency,
        };
        Ok(TrialFigures { lanes: vec![lane], latencies: None })
    }
}

/// Reads a pipe to its end, keeping what is not too much.
fn reader(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // A pipe that breaks has ended.
            let _ = (&mut pipe).take(OUTPUT_MAX).read_to_end(&mut bytes);
            let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits for the end; kills it when it is too late or time to stop, and says so.
fn wait(child: &mut Child, most: Duration, stop: &AtomicBool) -> Result<std::process::ExitStatus, String> {
    let until = Instant::now() + most;
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Ok(status);
        }
        let why = match (stop.load(Relaxed), Instant::now() > until) {
            (true, _) => "it was stopped".to_owned(),
            (_, true) => format!("it did not end within {} s and was killed", most.as_secs()),
            _ => {
                std::thread::sleep(LOOK_EVERY);
                continue;
            }
        };
        // It may have ended by itself just now.
        let _ = child.kill();
        let _ = child.wait();
        return Err(why);
    }
}

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
        let with_latency =
            r#"echo '{"sent":1,"received":1,"latency":{"p50_ns":1,"p99_ns":2,"p99_9_ns":3,"max_ns":4}}'"#;
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

    #[test]
    fn it_ends_when_it_is_time_to_stop() {
        let mut program = External { command: ["sleep", "1000"].map(str::to_owned).to_vec() };
        let trial = Trial { rate_pps: 1.0, duration: Duration::ZERO, is_warmup: false };
        let error = program.run(&trial, &AtomicBool::new(true)).unwrap_err().to_string();
        assert_eq!(error, "sleep: it was stopped");
    }
}
