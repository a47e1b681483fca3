//! A progress bar on the terminal, below the lines that are printed meanwhile; lines alone where there is no terminal.

use crate::text;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Instant;

/// Parts in which a share is counted.
const PARTS: u64 = 1000;

/// How far something is.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    steps: usize,
    done: usize,
    began: Instant,
}

impl Progress {
    /// On standard error.
    pub fn on_stderr() -> Progress {
        Progress::on(ProgressDrawTarget::stderr())
    }

    fn on(target: ProgressDrawTarget) -> Progress {
        let style = ProgressStyle::with_template("[{bar:24}] {percent} %  {elapsed} so far{msg}");
        let style = style.expect("invariant: the template's keys are indicatif's").progress_chars("#>.");
        Progress {
            bar: ProgressBar::with_draw_target(Some(PARTS), target).with_style(style),
            steps: 0,
            done: 0,
            began: Instant::now(),
        }
    }

    /// Says how many steps there will be.
    pub fn begin(&mut self, steps: usize) {
        (self.steps, self.done, self.began) = (steps.max(1), 0, Instant::now());
        self.show_step();
    }

    /// Says that a step is done, with a line about it.
    pub fn step(&mut self, line: &str) {
        self.done += 1;
        // Where there is no bar, the lines tell how far it is.
        let far = if self.bar.is_hidden() { format!("  [{}]", self.how_far()) } else { String::new() };
        self.say(&format!("{line}{far}"));
        self.show_step();
    }

    /// Shows that this share of the step under way is done.
    pub fn show_part(&self, share: f64) {
        self.show((self.done as f64 + share) / self.steps.max(1) as f64);
    }

    fn show_step(&self) {
        self.bar.set_message(format!(", {}", self.how_far()));
        self.show(self.done as f64 / self.steps.max(1) as f64);
    }

    /// The points that are done, and the time that the others take if they are like these.
    fn how_far(&self) -> String {
        let (done, steps) = (self.done, self.steps);
        let left = self.began.elapsed().as_secs_f64() * (steps.saturating_sub(done)) as f64 / done.max(1) as f64;
        let left =
            if done == 0 || done >= steps { String::new() } else { format!(", about {} more", text::span(left)) };
        format!("{done} of {steps} points{left}")
    }

    /// Shows how far it is, from 0 to 1.
    pub fn show(&self, share: f64) {
        self.bar.set_position((share.clamp(0.0, 1.0) * PARTS as f64).round() as u64);
        // What is due now must be seen: the next step may be minutes away.
        self.bar.tick();
    }

    /// Prints a line.
    pub fn say(&self, line: &str) {
        if self.bar.is_hidden() { eprintln!("{line}") } else { self.bar.println(line) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use indicatif::InMemoryTerm;

    fn on(term: &InMemoryTerm) -> Progress {
        Progress::on(ProgressDrawTarget::term_like(Box::new(term.clone())))
    }

    #[test]
    fn lines_stand_above_the_bar() {
        let term = InMemoryTerm::new(10, 80);
        let mut progress = on(&term);
        progress.begin(2);
        progress.step("one flow: 50 cycles");
        let seen = term.contents();
        let bar = "one flow: 50 cycles\n[############>...........] 50 %";
        assert!(seen.starts_with(bar) && seen.ends_with(" so far, 1 of 2 points, about 0 seconds more"), "{seen}");
        drop(progress);
        assert_eq!(term.contents(), "one flow: 50 cycles", "the bar goes, the lines stay");
    }

    #[test]
    fn the_bar_stays_within_its_ends() {
        let term = InMemoryTerm::new(10, 80);
        let progress = on(&term);
        for (share, want) in [(7.0, "[########################] 100 %"), (-1.0, "[........................] 0 %")] {
            progress.show(share);
            assert!(term.contents().starts_with(want), "{}", term.contents());
        }
    }
}
