//! What an experiment is given: its size, a word when to stop, points already measured, a place for progress.

use crate::progress::Progress;
use crate::record::{Point, Size};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The bench that experiments run on.
pub struct Lab {
    /// How much to run.
    pub size: Size,
    stop: Arc<AtomicBool>,
    /// Points of an earlier run that was stopped.
    done: Vec<Point>,
    progress: Progress,
}

impl Lab {
    /// A bench whose experiments are to end once `stop` is set, and may take over the points `done`.
    pub fn new(size: Size, stop: Arc<AtomicBool>, done: Vec<Point>) -> Lab {
        Lab { size, stop, done, progress: Progress::on_stderr() }
    }

    /// Whether to end as soon as may be.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
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

    /// Prints a line above the progress bar.
    pub fn say(&self, line: &str) {
        self.progress.say(line);
    }
}
