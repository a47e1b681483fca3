//! A progress bar on the terminal, below the lines that are printed meanwhile; lines alone where there is no terminal.

use std::io::{IsTerminal, Stderr, Write};

/// Letters in the bar.
const WIDTH: usize = 24;

/// How far something is.
#[derive(Debug)]
pub struct Progress {
    out: Stderr,
    on_terminal: bool,
    /// From 0 to 1; `None` before the beginning.
    share: Option<f64>,
    steps: usize,
    done: usize,
}

impl Progress {
    /// On standard error.
    pub fn on_stderr() -> Progress {
        let out = std::io::stderr();
        Progress { on_terminal: out.is_terminal(), out, share: None, steps: 0, done: 0 }
    }

    /// Says how many steps there will be.
    pub fn begin(&mut self, steps: usize) {
        (self.steps, self.done) = (steps.max(1), 0);
        self.show(0.0);
    }

    /// Says that a step is done, with a line about it.
    pub fn step(&mut self, line: &str) {
        self.done += 1;
        self.say(line);
        self.show(self.done as f64 / self.steps.max(1) as f64);
    }

    /// Shows how far it is, from 0 to 1.
    pub fn show(&mut self, share: f64) {
        self.share = Some(share);
        if self.on_terminal {
            // Nobody may be looking any more.
            let _ = write!(self.out, "\r{}\x1b[K", bar(share)).and_then(|()| self.out.flush());
        }
    }

    /// Prints a line.
    pub fn say(&mut self, line: &str) {
        let _ = if self.on_terminal { writeln!(self.out, "\r{line}\x1b[K") } else { writeln!(self.out, "{line}") };
        if let Some(share) = self.share {
            self.show(share);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.on_terminal {
            let _ = write!(self.out, "\r\x1b[K").and_then(|()| self.out.flush());
        }
    }
}

fn bar(share: f64) -> String {
    let share = share.clamp(0.0, 1.0);
    let full = (share * WIDTH as f64).round() as usize;
    format!("[{}{}] {:.0} %", "#".repeat(full), ".".repeat(WIDTH - full), share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_stays_within_its_ends() {
        assert_eq!(bar(0.5), format!("[{}{}] 50 %", "#".repeat(12), ".".repeat(12)));
        assert_eq!(bar(7.0), format!("[{}] 100 %", "#".repeat(24)));
        assert_eq!(bar(-1.0), format!("[{}] 0 %", ".".repeat(24)));
    }
}
