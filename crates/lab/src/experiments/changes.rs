//! Rules that change under many megaflows: how long the old ones are followed, how long the rate is down, and how long
//! iterations of the PMD take meanwhile.

use super::table_of;
use crate::cores::Bound;
use crate::experiment::Experiment;
use crate::grid::{Grid, Place, Ready, Subject, place};
use crate::lab::Lab;
use crate::loss::{Loss, denied};
use crate::probe::{Asking, Probe};
use crate::record::{Findings, Point, Table};
use crate::rig::Sample;
use crate::switch::{self, Running};
use crate::text;
use anyhow::{Context, Result, ensure};
use sluice_ofp::FlowCommand;
use sluice_traffic::{Choice, Profile};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The experiment.
pub struct Changes;

const FLOWS: &str = "flows";

const QUIET: &str = "no change";
const ONE: &str = "one flow's rule";
const ALL: &str = "all flows' rule";

/// From asking for a change to the reply, milliseconds: the longest.
const REPLY: &str = "reply_ms";
/// From the reply to the last packet handled by the old rule, milliseconds: the longest; 0 if there was none.
const OLD: &str = "old_rule_ms";
/// From the reply until the rate is back, milliseconds: the longest; until the next change if it did not come back.
const BACK: &str = "rate_back_ms";
/// Iteration times by the share of iterations, in thousandths, that did not exceed them; microseconds.
const P99_9: &str = "p99_9_us";
const P50: &str = "p50_us";
/// Iterations left out because the PMD was kept from running.
const INTERRUPTED: &str = "interrupted";
/// Packets a second, millions.
const MPPS: &str = "mpps";

/// What is promised of each. Source: the issue on flow setup.
const OLD_MAX_MS: f64 = 10.0;
const BACK_MAX_MS: f64 = 1000.0;
const P99_9_MAX_US: f64 = 100.0;

/// From one change to the next: the rate must be back by then.
const EVERY: Duration = Duration::from_millis(1500);
/// The rate is sampled at this interval; it is back when this many samples in a row have this share of the rate before.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const LOOKS: usize = 5;
const BACK_SHARE: f64 = 0.9;
/// How long all flows may take to get their megaflows.
const PATIENCE: Duration = Duration::from_secs(60);

impl Experiment for Changes {
    fn name(&self) -> &'static str {
        "changes"
    }

    fn about(&self) -> &'static str {
        "What do packets notice when rules change under many megaflows?"
    }

    fn bound(&self) -> Bound {
        Bound::OffLast
    }

    fn run(&self, lab: &mut Lab) -> Result<Findings> {
        let flows: &[f64] = lab.size.pick(&[50e3], &[10e3, 200e3]);
        let set_up = |at: &Place, arm: usize| -> Result<Ready> {
            Ok(Ready::Subject(Box::new(Scene { flows: at[FLOWS] as u32, arm: ARMS[arm] })))
        };
        let grid = Grid {
            places: flows.iter().map(|flows| place([(FLOWS, *flows)])).collect(),
            arms: ARMS.map(str::to_owned).to_vec(),
            set_up: &set_up,
            figure: MPPS,
            rounds: [1, 5],
            span: [EVERY, EVERY * 3],
        };
        let points = grid.run(lab);
        let table = |title: &str, figure| table_of(title, &points, &[FLOWS], &ARMS, figure);
        Ok(Findings {
            tables: vec![
                verdicts(&points),
                table("Mpps, changes included", MPPS),
                table("Iteration time that half do not exceed, µs", P50),
                table("Iterations left out because the PMD was kept from running", INTERRUPTED),
            ],
            figures: Vec::new(),
            notes: vec![
                "A megaflow a flow; packets of all flows in turn, as fast as one PMD takes them. Every 1.5 seconds the rule \
                 of all flows, or one of higher priority for one flow, sends to the other port. The PMD has a core of its \
                 own; the change is asked for, and the revalidator runs, on the other."
                    .to_owned(),
                "An iteration is from poll to poll. One above 80 µs is left out if by the thread's own clock another thread, \
                 or the host, had its core meanwhile."
                    .to_owned(),
                "The rate is back when 100 ms begin over which it is nine tenths of what it was in the 100 ms before the change, or \
                 more; looked at every 20 ms."
                    .to_owned(),
            ],
            points,
        })
    }

    fn losses(&self, points: &[Point]) -> Vec<Loss> {
        denied(
            &verdicts(points),
            "passes",
            &["megaflows", "change"],
            &[
                "old rule after the reply, ms (at most 10)",
                "rate back after, ms (at most 1000)",
                "p99.9 of iterations, µs (at most 100)",
            ],
        )
    }
}

const ARMS: [&str; 3] = [QUIET, ONE, ALL];

/// A switch with many megaflows whose rules change.
struct Scene {
    flows: u32,
    arm: &'static str,
}

/// What changes came to at worst, milliseconds.
#[derive(Default)]
struct Worst {
    reply: f64,
    old: f64,
    back: f64,
}

/// Reading the destination makes a megaflow of each flow.
fn rule(port: u16) -> String {
    format!("in_port=1,udp,actions=move:NXM_OF_IP_DST[]->NXM_NX_REG0[],output:{port}")
}

impl Subject for Scene {
    fn measure(&mut self, span: Duration) -> Result<Sample> {
        let profile = Profile { flows: Some(self.flows), choice: Choice::Sequential, ..Profile::default() };
        let (probe, ports) = Probe::new(&profile, Asking::WhenSuspect)?;
        let switch = switch::run(ports, &rule(2))?;
        let until = Instant::now() + PATIENCE;
        while switch.megaflows() < self.flows as usize {
            ensure!(Instant::now() < until, "{} of {} megaflows were installed", switch.megaflows(), self.flows);
            std::thread::sleep(LOOK_EVERY);
        }
        std::thread::sleep(EVERY);
        probe.take_iterations();
        let (began, sent) = (Instant::now(), probe.sent());
        let mut worst = Worst::default();
        for turn in 0.. {
            if began.elapsed() >= span {
                break;
            }
            self.turn(turn, &switch, &probe, &mut worst)?;
        }
        let iterations = probe.take_iterations();
        let us = |share| iterations.times.quantile(share) as f64 / 1e3;
        let figures = [
            (REPLY, worst.reply),
            (OLD, worst.old),
            (BACK, worst.back),
            (P99_9, us(0.999)),
            (P50, us(0.5)),
            (INTERRUPTED, iterations.interrupted as f64),
            (MPPS, (probe.sent() - sent) as f64 / began.elapsed().as_secs_f64() / 1e6),
        ];
        Ok(Sample(figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()))
    }
}

impl Scene {
    /// A change, and the time until the next.
    fn turn(&self, turn: u16, switch: &Running, probe: &Arc<Probe>, worst: &mut Worst) -> Result<()> {
        let ends = Instant::now() + EVERY;
        // Ports 2 and 3 take turns; as sinks they are 0 and 1.
        let (old, new) = (usize::from(turn % 2), 3 - turn % 2);
        let before = Look::now(probe);
        std::thread::sleep(LOOK_EVERY * LOOKS as u32);
        let usual = Look::now(probe).rate_since(&before)?;
        let asked = Instant::now();
        match self.arm {
            ALL => switch.change(FlowCommand::Modify, &rule(new))?,
            ONE => {
                switch.change(FlowCommand::Add, &format!("priority=40000,udp,nw_dst=10.0.0.1,actions=output:{new}"))?
            }
            _ => {}
        }
        let replied_ns = probe.now_ns();
        worst.reply = worst.reply.max(asked.elapsed().as_secs_f64() * 1e3);
        let mut looks = vec![Look::now(probe)];
        let mut back_ns = None;
        while Instant::now() < ends {
            std::thread::sleep(LOOK_EVERY);
            looks.push(Look::now(probe));
            let [first, .., last] = &looks[looks.len().saturating_sub(LOOKS + 1)..] else { continue };
            if back_ns.is_none() && looks.len() > LOOKS && last.rate_since(first)? >= BACK_SHARE * usual {
                back_ns = Some(first.ns);
            }
        }
        let back_ns = back_ns.unwrap_or(probe.now_ns());
        worst.back = worst.back.max((back_ns - replied_ns) as f64 / 1e6);
        if self.arm == ALL {
            worst.old = worst.old.max(probe.last_ns(old).saturating_sub(replied_ns) as f64 / 1e6);
            ensure!(probe.last_ns(1 - old) > replied_ns, "no packet followed the new rule");
        }
        Ok(())
    }
}

/// How many packets had been sent at a time.
struct Look {
    ns: u64,
    sent: u64,
}

impl Look {
    fn now(probe: &Probe) -> Look {
        Look { ns: probe.now_ns(), sent: probe.sent() }
    }

    /// Packets a nanosecond since an earlier look.
    fn rate_since(&self, earlier: &Look) -> Result<f64> {
        let passed = self.ns.checked_sub(earlier.ns).filter(|ns| *ns != 0).context("the clock stood still")?;
        Ok((self.sent - earlier.sent) as f64 / passed as f64)
    }
}

fn verdicts(points: &[Point]) -> Table {
    let rows = points.iter().flat_map(|point| {
        ARMS.iter().map(move |arm| {
            let value = |figure| point.figure(arm, figure).map_or(f64::NAN, |stat| stat.median);
            let passes = value(OLD) <= OLD_MAX_MS && value(BACK) <= BACK_MAX_MS && value(P99_9) <= P99_9_MAX_US;
            let shown = [REPLY, OLD, BACK, P99_9].map(|figure| text::stat(point.figure(arm, figure)));
            let at = [text::count(point.at(FLOWS)), (*arm).to_owned()];
            at.into_iter().chain(shown).chain([if passes { "yes" } else { "no" }.to_owned()]).collect()
        })
    });
    let columns = [
        "megaflows",
        "change",
        "reply, ms",
        "old rule after the reply, ms (at most 10)",
        "rate back after, ms (at most 1000)",
        "p99.9 of iterations, µs (at most 100)",
        "passes",
    ];
    Table {
        title: "Changes: the worst of a repetition; median over repetitions (least–most)".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_noticed_by_all_packets() {
        let mut scene = Scene { flows: 1000, arm: ALL };
        let sample = scene.measure(Duration::from_millis(1)).unwrap();
        assert!(sample.0[MPPS] > 0.0 && sample.0[P50] > 0.0);
        assert!(sample.0[REPLY] > 0.0);
    }
}
