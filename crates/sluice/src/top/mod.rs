//! `sluice top`: a running switch, live: ports, PMDs, levels, what the autopilots chose, the busiest megaflows.
//!
//! It asks `sluice/overview` over the control socket once a second; what it shows is made by `screen.rs`, a function of
//! two overviews.

mod screen;

use crate::ctl::client;
use crate::overview::Overview;
use crate::rundir;
use anyhow::{Context, Result, anyhow, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Show a running switch live; q ends
#[derive(clap::Args, Debug)]
pub struct TopArgs {
    /// The switch's control socket [default: sluice.ctl in the default rundir]
    #[arg(short, long, value_name = "SOCKET")]
    target: Option<PathBuf>,
    /// Print one screen, of the next second, and end
    #[arg(long)]
    once: bool,
    /// Seconds between two looks
    #[arg(short, long, value_name = "S", default_value_t = 1.0)]
    interval: f64,
}

/// How long the switch may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// What a screen measures when it is no terminal: width and height.
const PLAIN: (usize, usize) = (120, 60);

/// Shows the switch until told to end.
///
/// # Errors
/// If there is no switch, or no terminal.
pub fn run(args: &TopArgs) -> Result<()> {
    let target = args.target.clone().unwrap_or_else(|| rundir::default_rundir().join(rundir::CONTROL_SOCKET));
    if !(0.1..=3600.0).contains(&args.interval) {
        bail!("--interval {}: expected 0.1 to 3600 seconds", args.interval);
    }
    let interval = Duration::from_secs_f64(args.interval);
    let mut before = (ask(&target)?, Instant::now());
    if args.once {
        std::thread::sleep(interval);
        let now = ask(&target)?;
        print!("{}", screen::show(&before.0, &now, before.1.elapsed(), PLAIN));
        return Ok(());
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        bail!("top: expected a terminal; --once prints one screen");
    }
    let _terminal = RawTerminal::enter()?;
    loop {
        if is_told_to_end(interval)? {
            return Ok(());
        }
        let now = ask(&target)?;
        let size = tcgetwinsize(std::io::stdout()).map_or(PLAIN, |size| (size.ws_col.into(), size.ws_row.into()));
        let text = screen::show(&before.0, &now, before.1.elapsed(), size);
        let mut out = std::io::stdout().lock();
        // Each line erases what stood there; the rest of the screen goes after the last.
        write!(out, "\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\r\n"))?;
        out.flush()?;
        before = (now, Instant::now());
    }
}

fn ask(target: &Path) -> Result<Overview> {
    let answer = client::transact(target, Some(PATIENCE), "sluice/overview", &[])?;
    let json = answer.map_err(|error| anyhow!("{}", error.trim()))?;
    serde_json::from_str(&json).context("the switch's overview is of another version")
}

/// Waits so long for a key; whether it was one that ends.
fn is_told_to_end(most: Duration) -> Result<bool> {
    let until = Instant::now() + most;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let stdin = std::io::stdin();
        let wait = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut fds, Some(&wait)) {
            // A signal, such as that the window has another size.
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(false),
            other => other.context("waiting for a key")?,
        };
        let mut key = [0];
        // Ctrl-C, escape, q, or the end of input.
        if stdin.lock().read(&mut key)? == 0 || matches!(key[0], 3 | 27 | b'q' | b'Q') {
            return Ok(true);
        }
    }
}

/// A terminal without echo and line editing, on its other screen; as it was when dropped.
struct RawTerminal(Termios);

impl RawTerminal {
    fn enter() -> Result<RawTerminal> {
        let before = tcgetattr(std::io::stdin()).context("terminal")?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(std::io::stdin(), OptionalActions::Now, &raw).context("terminal")?;
        print!("\x1b[?1049h\x1b[?25l");
        Ok(RawTerminal(before))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        print!("\x1b[?25h\x1b[?1049l");
        let _ = std::io::stdout().flush();
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}
