//! `sluice/autopilot-show`: what the autopilot of each receive queue has chosen, and why.

use super::pmd::Thread;
use sluice_datapath::{ArmReport, AutopilotReport, Doing, Why};
use std::fmt::Write as _;
use std::time::Duration;

/// One PMD's queues; `name` gives a port's name.
pub fn show(thread: Thread, reports: &[AutopilotReport], name: impl Fn(&AutopilotReport) -> String) -> String {
    let mut out = thread.header();
    for report in reports {
        let _ = writeln!(out, "  port: {:<16}  queue-id: {:>2}", name(report), report.queue);
        queue(&mut out, report);
    }
    out
}

fn queue(out: &mut String, report: &AutopilotReport) {
    let chosen = report.arms[report.in_charge].arm;
    let _ = writeln!(out, "    {chosen} for {}: {}", time(report.changed_ago), why(report.why));
    let active = report.arms[report.active].arm;
    match report.doing {
        Doing::Cruising => {}
        Doing::Warming => out.push_str("    now: its cache fills, before all arms are compared\n"),
        Doing::Filling => {
            let _ = writeln!(out, "    now: the cache of {active} fills, which may make it the cheapest");
        }
        Doing::Comparing => {
            let _ = writeln!(out, "    now: all arms are compared; {active} flies");
        }
        Doing::Trying => {
            let _ = writeln!(out, "    now: another arm is compared with it; {active} flies");
        }
        Doing::LowLoad => {
            return out.push_str("    now: load is low: no packet waits, so nothing is tried and nothing measured\n");
        }
        Doing::OtherWork { percent } => {
            let _ = writeln!(
                out,
                "    now: other work takes the core, lately up to {percent} % of the time: nothing is tried and nothing measured"
            );
            return;
        }
    }
    if report.arms.iter().all(|arm| arm.cost.is_none()) {
        return out.push_str("    too few packets so far\n");
    }
    let _ = writeln!(out, "    {:<29} {:>10}  {:<12} next trial", "  arm", "cycles/pkt", "measured");
    // What cannot be tried, since nothing recirculates, is not shown.
    let shown = |(n, arm): &(usize, &ArmReport)| *n == report.in_charge || arm.next_trial.is_some();
    for (n, arm) in report.arms.iter().enumerate().filter(shown) {
        let mark = if n == report.in_charge { '*' } else { ' ' };
        let cost = arm.cost.map_or("-".into(), |cost| format!("{cost:.1}"));
        let measured = match arm.measured_ago {
            None => "never".into(),
            Some(_) if n == report.in_charge && n == report.active => "now".into(),
            Some(ago) => format!("{} ago", time(ago)),
        };
        let next = match arm.next_trial {
            None => "-".into(),
            Some(Duration::ZERO) => "when it can be afforded".into(),
            Some(wait) => format!("in {}", time(wait)),
        };
        let _ = writeln!(out, "    {mark} {:<27} {cost:>10}  {measured:<12} {next}", arm.arm);
    }
    let _ = writeln!(
        out,
        "    {} changes, {} comparisons of all; trying other arms has cost {:.2} % of all cycles",
        report.changes,
        report.tournaments,
        report.regret_share * 100.0
    );
}

fn why(why: Why) -> String {
    match why {
        Why::Start => "a safe choice; nothing has been compared yet".into(),
        Why::Forced => "the settings leave no other".into(),
        Why::Tournament => "the cheapest when all were compared, or the safe one when none was clearly cheaper".into(),
        Why::Trial(by) => format!("{:.1} % cheaper than the one before, side by side", by * 100.0),
        Why::Unsteady => "a safe choice; the traffic changes too often to compare".into(),
        Why::Uneven => "a safe choice; bursts became fuller or emptier while arms were compared".into(),
    }
}

/// A time, coarsely.
fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 1.0 { format!("{:.0} ms", seconds * 1e3) } else { format!("{seconds:.1} s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_action::PortNo;
    use sluice_datapath::{Arm, EmcInsert};

    #[test]
    fn a_queue_is_told_in_words_and_numbers() {
        let arm = |arm, cost, ago, next| ArmReport {
            arm,
            cost,
            measured_ago: cost.map(|_| Duration::from_millis(ago)),
            next_trial: next,
        };
        let smc = Arm { smc: true, ..Arm::BARE };
        let emc = Arm { emc: Some(EmcInsert::OneIn(100)), ..Arm::BARE };
        let mut report = AutopilotReport {
            port: PortNo(1),
            queue: 0,
            arms: vec![
                arm(smc, Some(71.26), 16, None),
                arm(emc, Some(103.0), 1500, Some(Duration::from_millis(250))),
                arm(Arm::BARE, None, 0, Some(Duration::ZERO)),
            ],
            in_charge: 0,
            active: 1,
            doing: Doing::Trying,
            why: Why::Trial(0.0714),
            changed_ago: Duration::from_secs(12),
            changes: 2,
            tournaments: 1,
            regret_share: 0.00123,
        };
        let expected = "\
pmd thread numa_id 0 core_id 3:
  port: p1                queue-id:  0
    SMC for 12.0 s: 7.1 % cheaper than the one before, side by side
    now: another arm is compared with it; EMC 1/100 flies
      arm                         cycles/pkt  measured     next trial
    * SMC                               71.3  16 ms ago    -
      EMC 1/100                        103.0  1.5 s ago    in 250 ms
      subtables alone                      -  never        when it can be afforded
    2 changes, 1 comparisons of all; trying other arms has cost 0.12 % of all cycles
";
        let shown = |report| show(Thread::Pmd { numa: 0, core: 3 }, &[report], |report| format!("p{}", report.port.0));
        assert_eq!(shown(report.clone()), expected);
        let alone = AutopilotReport { active: 0, doing: Doing::Cruising, ..report.clone() };
        assert!(shown(alone).contains("    * SMC                               71.3  now          -\n"));
        let low = AutopilotReport { doing: Doing::LowLoad, ..report.clone() };
        assert!(shown(low).ends_with(
            "side by side\n    now: load is low: no packet waits, so nothing is tried and nothing measured\n"
        ));
        let shared = AutopilotReport { doing: Doing::OtherWork { percent: 48 }, ..report.clone() };
        assert!(shown(shared).ends_with(
            "side by side\n    now: other work takes the core, lately up to 48 % of the time: nothing is tried and nothing measured\n"
        ));
        report.arms.iter_mut().for_each(|arm| arm.cost = None);
        assert!(shown(report).ends_with("flies\n    too few packets so far\n"));
    }
}
