//! `sluice top`: a running switch, live: ports, PMDs, levels, what the autopilots chose, the busiest megaflows.
//!
//! It asks `sluice/overview` over the control socket once a second. `rates.rs` makes rates of two overviews,
//! `screen.rs` draws them, in tables of `section.rs`.

#![forbid(unsafe_code)]

mod overview;
mod rates;
mod screen;
mod section;

pub use overview::{FlowRow, Overview, PmdRow, PortRow, QueueRow, Totals};

use anyhow::{Context, Result, anyhow, bail};
use ratatui::DefaultTerminal;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::widgets::Widget;
use rates::Rates;
use screen::Screen;
use std::io::IsTerminal;
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
/// Width and height of a screen that is not a terminal.
const PLAIN: (u16, u16) = (120, 60);

/// Shows the switch until told to end: the one whose control socket is `default`, if the arguments name none.
///
/// # Errors
/// If there is no switch, or no terminal.
pub fn run(args: &TopArgs, default: PathBuf) -> Result<()> {
    let target = args.target.clone().unwrap_or(default);
    if !(0.1..=3600.0).contains(&args.interval) {
        bail!("--interval {}: expected 0.1 to 3600 seconds", args.interval);
    }
    let interval = Duration::from_secs_f64(args.interval);
    let before = (ask(&target)?, Instant::now());
    if args.once {
        std::thread::sleep(interval);
        let now = ask(&target)?;
        print!("{}", plain(&Screen(Rates::new(&before.0, &now, before.1.elapsed()))));
        return Ok(());
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        bail!("top: expected a terminal; --once prints one screen without one");
    }
    let mut terminal = ratatui::try_init().context("terminal")?;
    let done = watch(&mut terminal, &target, interval, before);
    // Before an error is told, or it would be told on the screen that goes.
    ratatui::restore();
    done
}

/// Draws a screen every interval, and at once when the terminal's size has changed.
fn watch(
    terminal: &mut DefaultTerminal,
    target: &Path,
    interval: Duration,
    mut before: (Overview, Instant),
) -> Result<()> {
    let mut now = before.clone();
    loop {
        let screen = Screen(Rates::new(&before.0, &now.0, now.1 - before.1));
        terminal.draw(|frame| frame.render_widget(&screen, frame.area())).context("terminal")?;
        match wait(now.1 + interval)? {
            Told::End => return Ok(()),
            Told::Redraw => continue,
            Told::Nothing => {}
        }
        let asked = (ask(target)?, Instant::now());
        before = std::mem::replace(&mut now, asked);
    }
}

fn ask(target: &Path) -> Result<Overview> {
    let answer = sluice_unixctl::transact(target, Some(PATIENCE), "sluice/overview", &[])?;
    let json = answer.map_err(|error| anyhow!("{}", error.trim()))?;
    serde_json::from_str(&json).context("the overview has a format that this version does not read")
}

/// What the terminal tells.
enum Told {
    Nothing,
    Redraw,
    End,
}

/// Waits until then for a key that ends, or another size.
fn wait(until: Instant) -> Result<Told> {
    while event::poll(until.saturating_duration_since(Instant::now())).context("terminal")? {
        match event::read().context("terminal")? {
            Event::Resize(..) => return Ok(Told::Redraw),
            Event::Key(key) => match key.code {
                KeyCode::Esc | KeyCode::Char('q' | 'Q') => return Ok(Told::End),
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(Told::End),
                _ => {}
            },
            _ => {}
        }
    }
    Ok(Told::Nothing)
}

/// The screen as plain lines.
fn plain(screen: &Screen<'_>) -> String {
    let (width, height) = PLAIN;
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    screen.render(buffer.area, &mut buffer);
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    let lines: Vec<String> = (0..height).map(|y| line(y).trim_end().to_owned()).collect();
    format!("{}\n", lines.join("\n").trim_end())
}
