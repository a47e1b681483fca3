//! A victim beside an attacker, each at a port of one PMD: does the victim notice?

use super::table_of;
use crate::attack::Attack;
use crate::experiment::Experiment;
use crate::grid::{Grid, Place, Ready, Subject, place};
use crate::lab::Lab;
use crate::peer::storm::{self as peer_storm, OvsStorm};
use crate::record::{Axis, Chart, Figure, Findings, Point, Series, Table};
use crate::rig::Sample;
use crate::stat::Stat;
use crate::switch;
use crate::text;
use anyhow::{Result, anyhow, ensure};
use sluice_fate::{Counter, DropReason};
use sluice_trafficgen::{Generator, LaneFigures, Trial};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The experiment.
pub struct Storm;

/// The attack, by its number in [`Attack::ALL`], and the attacker's rate, Mpps.
const ATTACK: &str = "attack";
const MPPS: &str = "mpps";

const ALONE: &str = "alone";
const ATTACKED: &str = "attacked";

/// The victim's packets that did not come, percent.
const LOSS: &str = "loss_percent";
/// How late 99 of 100 of the victim's packets were at most, microseconds.
const P99: &str = "p99_us";
/// The victim's packets a second, millions.
const VICTIM: &str = "victim_mpps";
/// The attacker's packets that the switch took, millions a second.
const TAKEN: &str = "attacker_taken_mpps";
/// Of those, the ones dropped because misses are dear, percent.
const BUDGET: &str = "budget_percent";
/// Megaflows in the end.
const MEGAFLOWS: &str = "megaflows";

/// The attacker's rates. The last is more than a port can take: its ring is always full.
const RATES: [f64; 3] = [0.1, 1.0, 10.0];

/// More than a switch carries: for its maximum.
const FLOOD_PPS: f64 = 40e6;

/// How long a switch carries the traffic before it is measured.
const WARM: Duration = Duration::from_millis(1500);

/// The most that a victim may lose, percent.
const LOSS_MAX: f64 = 5.0;

impl Experiment for Storm {
    fn name(&self) -> &'static str {
        "storm"
    }

    fn about(&self) -> &'static str {
        "Does a port's established traffic notice what an attacker does at another?"
    }

    fn run(&self, lab: &mut Lab) -> Result<Findings> {
        let maximum = maximum(lab.size.pick(Duration::from_millis(300), Duration::from_secs(1)))?;
        lab.say(&format!("the victim alone: at most {:.2} Mpps, offered is half of that", maximum / 1e6));
        let rates: &[f64] = lab.size.pick(&RATES[2..], &RATES);
        let places =
            (0..Attack::ALL.len()).flat_map(|n| rates.iter().map(move |r| place([(ATTACK, n as f64), (MPPS, *r)])));
        let set_up = |at: &Place, arm: usize| -> Result<Ready> {
            let attack = Attack::ALL[at[ATTACK] as usize];
            let attacker_pps = if arm == 0 { 0.0 } else { at[MPPS] * 1e6 };
            Ok(Ready::Subject(Box::new(Scene { attack, victim_pps: maximum / 2.0, attacker_pps })))
        };
        let grid = Grid {
            places: places.collect(),
            arms: vec![ALONE.to_owned(), ATTACKED.to_owned()],
            set_up: &set_up,
            figure: VICTIM,
            rounds: [1, 5],
            span: [Duration::from_millis(500), Duration::from_secs(2)],
        };
        let points = grid.run(lab)?;
        let (ovs, why) = peer(lab);
        let mut notes = vec![
            format!(
                "One PMD polls both ports. The victim offers {:.2} Mpps, half of what it reached alone ({:.2} Mpps); packets \
                 come by the clock into rings of 2048, and those that find theirs full are lost. The switch is warm for \
                 {:.1} s with all traffic before it is measured.",
                maximum / 2e6,
                maximum / 1e6,
                WARM.as_secs_f64()
            ),
            "Every repetition is a switch of its own with the defaults of `sluice run`; a packet of the victim at a wrong \
             port or out of order is an error. The attacker's highest rate is more than its port can take."
                .to_owned(),
        ];
        notes.extend(why);
        Ok(Findings {
            tables: [verdicts(&points)]
                .into_iter()
                .chain(ovs)
                .chain([table_of("Megaflows in the end", &points, &[ATTACK, MPPS], &[ALONE, ATTACKED], MEGAFLOWS)])
                .collect(),
            figures: vec![figure(&points)],
            notes,
            points,
        })
    }
}

/// What the victim reaches alone, packets a second.
fn maximum(span: Duration) -> Result<f64> {
    let scene = Scene { attack: Attack::NewFlows, victim_pps: FLOOD_PPS, attacker_pps: 0.0 };
    let (lanes, _) = scene.play(span)?;
    Ok(lanes[0].received as f64 / span.as_secs_f64())
}

/// Open vSwitch under the same attacks, or why not.
fn peer(lab: &mut Lab) -> (Option<Table>, Option<String>) {
    if let Some(why) = peer_storm::obstacle() {
        return (None, Some(format!("Open vSwitch was not measured: {why}.")));
    }
    let span = lab.size.pick(Duration::from_secs(2), Duration::from_secs(10));
    let mut rows = Vec::new();
    for attack in Attack::ALL {
        if lab.is_stopped() {
            break;
        }
        let row = OvsStorm { attack }.measure(span);
        let row = match row {
            Ok([alone, attacked]) => vec![
                attack.name().to_owned(),
                format!("{:.2}", alone / 1e6),
                format!("{:.2}", attacked / 1e6),
                format!("{:.0} %", 100.0 * (1.0 - attacked / alone)),
            ],
            Err(error) => return (None, Some(format!("Open vSwitch could not be measured: {error:#}."))),
        };
        lab.say(&format!("Open vSwitch: {}", row.join(", ")));
        rows.push(row);
    }
    let columns = ["attack", "victim alone, Mpps", "attacked, Mpps", "lost"].map(str::to_owned).to_vec();
    let title = "Open vSwitch with DPDK, both ports read from captures as fast as its PMD polls them".to_owned();
    let note = "Its DPDK ports cannot be paced, so its victim offers all that is polled; of two ports that cost the same each \
                gets half.";
    (Some(Table { title, columns, rows }), Some(note.to_owned()))
}

/// A victim and its attacker.
struct Scene {
    attack: Attack,
    victim_pps: f64,
    attacker_pps: f64,
}

impl Scene {
    /// What became of the lanes, and other figures.
    fn play(&self, span: Duration) -> Result<(Vec<LaneFigures>, Sample)> {
        let plan = self.attack.plan(self.victim_pps, self.attacker_pps)?;
        let (mut generator, switch) = switch::start(&plan, &self.attack.rules())?;
        let stop = AtomicBool::new(false);
        let trial = |duration| Trial { rate_pps: plan.rate_pps(), duration, is_warmup: false };
        generator.run(&trial(WARM), &stop)?;
        let before = switch.totals();
        let lanes = generator.run(&trial(span), &stop)?.lanes;
        let counted = switch.totals().since(&before);
        counted.conserved().map_err(|unbalanced| anyhow!("packets are not conserved: {unbalanced:?}"))?;
        let victim = &lanes[0];
        ensure!(victim.astray == 0, "{} packets of the victim came to another port", victim.astray);
        ensure!(victim.out_of_order == 0, "{} packets of the victim came out of order", victim.out_of_order);
        let taken = counted[Counter::Received].saturating_sub(victim.received) as f64;
        let over_budget = counted.dropped(DropReason::MissBudget) as f64;
        let figures = [
            (LOSS, 100.0 * (1.0 - victim.received as f64 / victim.sent.max(1) as f64)),
            (P99, victim.latency.map_or(f64::NAN, |latency| latency.p99_ns as f64 / 1e3)),
            (VICTIM, victim.received as f64 / span.as_secs_f64() / 1e6),
            (TAKEN, taken / span.as_secs_f64() / 1e6),
            (BUDGET, 100.0 * over_budget / taken.max(1.0)),
            (MEGAFLOWS, switch.megaflows() as f64),
        ];
        Ok((lanes, Sample(figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())))
    }
}

impl Subject for Scene {
    fn measure(&mut self, span: Duration) -> Result<Sample> {
        Ok(self.play(span)?.1)
    }
}

fn attack(point: &Point) -> &'static str {
    Attack::ALL[point.at(ATTACK) as usize].name()
}

fn verdicts(points: &[Point]) -> Table {
    let columns = [
        "attack",
        "Mpps",
        "victim's loss alone, %",
        "attacked, %",
        "at most",
        "passes",
        "p99 alone, µs",
        "attacked, µs",
        "attacker taken, Mpps",
        "over its budget, %",
    ];
    let row = |point: &Point| {
        let shown = |arm, figure| text::stat(point.figure(arm, figure));
        let passes = |stat: &Stat| if stat.median <= LOSS_MAX { "yes" } else { "no" }.to_owned();
        vec![
            attack(point).to_owned(),
            point.at(MPPS).to_string(),
            shown(ALONE, LOSS),
            shown(ATTACKED, LOSS),
            LOSS_MAX.to_string(),
            point.figure(ATTACKED, LOSS).map_or("n/a".to_owned(), passes),
            shown(ALONE, P99),
            shown(ATTACKED, P99),
            shown(ATTACKED, TAKEN),
            shown(ATTACKED, BUDGET),
        ]
    };
    Table {
        title: "The victim beside its attacker: median (least–most)".to_owned(),
        columns: columns.map(str::to_owned).to_vec(),
        rows: points.iter().map(row).collect(),
    }
}

fn figure(points: &[Point]) -> Figure {
    let line = |n: usize| Series {
        name: Attack::ALL[n].name().to_owned(),
        points: points
            .iter()
            .filter(|point| point.at(ATTACK) == n as f64)
            .filter_map(|p| p.figure(ATTACKED, LOSS).map(|s| [p.at(MPPS), s.median, s.min, s.max]))
            .collect(),
    };
    Figure {
        title: "What the victim loses".to_owned(),
        caption: "Over the attacker's rate; error bars from the least to the most.".to_owned(),
        chart: Chart::Lines {
            x: Axis::log("attacker, Mpps"),
            y: Axis::linear("victim's loss, percent"),
            series: (0..Attack::ALL.len()).map(line).collect(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attack_is_played_and_the_victim_carried_in_order() {
        for attack in Attack::ALL {
            let scene = Scene { attack, victim_pps: 10_000.0, attacker_pps: 20_000.0 };
            // A machine that is stopped meanwhile may carry nothing.
            let is_carried = (0..20).any(|_| {
                let (lanes, sample) = scene.play(Duration::from_millis(50)).unwrap();
                lanes.len() == 2 && lanes[0].received > 0 && sample.0[MEGAFLOWS] > 1.0
            });
            assert!(is_carried, "{}", attack.name());
        }
    }
}
