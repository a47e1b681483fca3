//! What an experiment is given: its size, a word when to stop, points already measured, a place for progress.

use crate::files;
use crate::progress::Progress;
use crate::record::{Point, Record, Size};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// The bench that experiments run on.
pub struct Lab {
    /// How much to run.
    pub size: Size,
    stop: Arc<AtomicBool>,
    /// Points of an earlier run that was stopped.
    done: Vec<Point>,
    /// When a quick look begins no more points.
    until: Option<Instant>,
    left_out: usize,
    /// What ended it early.
    failure: Option<anyhow::Error>,
    progress: Progress,
    /// Where points are kept meanwhile, and the record they belong to.
    kept: Option<(PathBuf, Record)>,
}

impl Lab {
    /// A bench whose experiments are to end once `stop` is set, and may take over the points `done`.
    pub fn new(size: Size, stop: Arc<AtomicBool>, done: Vec<Point>) -> Lab {
        Lab { size, stop, done, until: None, left_out: 0, failure: None, progress: Progress::on_stderr(), kept: None }
    }

    /// Keeps each point in a file as soon as it is measured, as part of this record: not even a power cut loses it.
    pub fn keep_in(&mut self, path: PathBuf, record: Record) {
        self.kept = Some((path, record));
    }

    /// Keeps the points so far; one that cannot be kept ends the experiment.
    pub fn keep(&mut self, points: &[Point]) {
        // Those of an earlier run lie there until there are more.
        let Some((path, record)) = self.kept.as_mut().filter(|_| points.len() > self.done.len()) else { return };
        record.findings.points = points.to_vec();
        if let Err(error) = files::put_json(path, record) {
            self.fail(error);
        }
    }

    /// Whether to end as soon as may be.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed) || self.failure.is_some()
    }

    /// Lets no point begin after that time but the first.
    pub fn end_by(&mut self, until: Instant) {
        self.until = Some(until);
    }

    /// Whether there is no time for another point.
    pub fn is_late(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Notes the number of points that were not measured for lack of time.
    pub fn leave_out(&mut self, points: usize) {
        self.left_out = points;
    }

    /// A sentence about points that there was no time for.
    pub fn left_out(&self) -> Option<String> {
        let n = self.left_out;
        (n != 0).then(|| {
            format!("{n} points were left out: the machine is busy, and a quick look is to end in two minutes.")
        })
    }

    /// Ends the experiment after the points that it has, which are kept.
    pub fn fail(&mut self, error: anyhow::Error) {
        self.failure.get_or_insert(error);
    }

    /// What ended it early, if something did.
    pub fn take_failure(&mut self) -> Option<anyhow::Error> {
        self.failure.take()
    }

    /// A point that an earlier run has measured there.
    pub fn done(&self, at: &BTreeMap<String, f64>) -> Option<Point> {
        self.done.iter().find(|point| point.at == *at).cloned()
    }

    /// Says how many steps there will be.
    pub fn expect_steps(&mut self, n: usize) {
        self.progress.begin(n);
    }

    /// Says that a step is done, and what it showed.
    pub fn step(&mut self, line: &str) {
        self.progress.step(line);
    }

    /// Shows that this share of the step under way is done.
    pub fn show_part(&self, share: f64) {
        self.progress.show_part(share);
    }

    /// Prints a line above the progress bar.
    pub fn say(&self, line: &str) {
        self.progress.say(line);
    }
}
