//! A victim beside an attacker, each at a port of one PMD: does the victim notice?

use super::table_of;
use crate::attack::{Attack, FLOODED_ZONE};
use crate::cores::Bound;
use crate::experiment::Experiment;
use crate::grid::{Grid, Place, Ready, Subject, place};
use crate::lab::Lab;
use crate::loss::{Loss, denied};
use crate::peer::storm::{self as peer_storm, OvsStorm};
use crate::record::{Axis, Chart, Figure, Findings, Point, Series, Table};
use crate::rig::Sample;
use crate::stat::Stat;
use crate::switch;
use crate::text;
use anyhow::{Result, anyhow, ensure};
use sluice_datapath::Settings;
use sluice_fate::{Counter, DropReason};
use sluice_trafficgen::{Generator, LaneFigures, Trial};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// An experiment of some attacks.
pub struct Storm {
    name: &'static str,
    about: &'static str,
    attacks: &'static [Attack],
}

/// What wears caches and the slow path out.
pub const STORM: Storm = Storm {
    name: "storm",
    about: "Does a port's established traffic notice what an attacker does at another?",
    attacks: &[Attack::NewFlows, Attack::TupleSpace, Attack::Alternating],
};

/// What wears the connection tracker out.
pub const SYN_FLOOD: Storm = Storm {
    name: "syn-flood",
    about: "Does a port's established traffic notice a flood of new connections at another?",
    attacks: &[Attack::SynFlood],
};

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

/// Connections that a flood has begun, in the end, and its packets that found the zone at its limit, millions a second.
const CONNECTIONS: &str = "connections";
const REFUSED: &str = "refused_mpps";

/// Connections that the attacker's zone may have.
const ZONE_LIMIT: u32 = 100_000;

/// The attacker's rates. The last is more than a port can take: its ring is always full.
const RATES: [f64; 3] = [0.1, 1.0, 10.0];

/// More than a switch carries: for its maximum.
const FLOOD_PPS: f64 = 40e6;

/// How long a switch carries the traffic before it is measured: quick and full.
const WARM: [Duration; 2] = [Duration::from_millis(500), Duration::from_millis(1500)];

/// The most that a victim may lose, percent.
const LOSS_MAX: f64 = 5.0;

impl Experiment for Storm {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn bound(&self) -> Bound {
        Bound::OffLast
    }

    fn run(&self, lab: &mut Lab) -> Result<Findings> {
        let span = lab.size.pick(Duration::from_millis(300), Duration::from_secs(1));
        let warm = lab.size.pick(WARM[0], WARM[1]);
        let mut maxima = [0.0; Attack::ALL.len()];
        for attack in self.attacks {
            let maximum = maximum(*attack, warm, span)?;
            lab.say(&format!(
                "{}: the victim alone: at most {:.2} Mpps, offered is half",
                attack.name(),
                maximum / 1e6
            ));
            maxima[*attack as usize] = maximum;
        }
        // A flood reaches its zone's limit at any rate, so all are worth a look.
        let rates: &[f64] = lab.size.pick(if self.attacks.len() == 1 { &RATES } else { &RATES[2..] }, &RATES);
        let places =
            self.attacks.iter().flat_map(|n| rates.iter().map(|r| place([(ATTACK, *n as usize as f64), (MPPS, *r)])));
        let set_up = |at: &Place, arm: usize| -> Result<Ready> {
            let attack = Attack::ALL[at[ATTACK] as usize];
            let attacker_pps = if arm == 0 { 0.0 } else { at[MPPS] * 1e6 };
            let victim_pps = maxima[attack as usize] / 2.0;
            Ok(Ready::Subject(Box::new(Scene { attack, victim_pps, attacker_pps, zone_limit: ZONE_LIMIT, warm })))
        };
        let grid = Grid {
            places: places.collect(),
            arms: vec![ALONE.to_owned(), ATTACKED.to_owned()],
            set_up: &set_up,
            figure: VICTIM,
            rounds: [1, 5],
            span: [Duration::from_millis(500), Duration::from_secs(1)],
        };
        let points = grid.run(lab);
        let (ovs, why) = if self.attacks.contains(&Attack::SynFlood) { (None, None) } else { peer(lab, self.attacks) };
        let mut notes = notes(self.attacks, &maxima, warm);
        notes.push(switch::ALONE_NOTE.to_owned());
        notes.extend(why);
        let shown = |title, figure| table_of(title, &points, &[ATTACK, MPPS], &[ALONE, ATTACKED], figure);
        let more = if self.attacks.contains(&Attack::SynFlood) {
            vec![
                shown("Connections of the attacker's zone in the end; it may have 100,000", CONNECTIONS),
                shown("Packets that found the zone at its limit, Mpps", REFUSED),
            ]
        } else {
            vec![shown("Megaflows in the end", MEGAFLOWS)]
        };
        Ok(Findings {
            tables: [verdicts(&points)].into_iter().chain(ovs).chain(more).collect(),
            figures: vec![figure(&points, self.attacks)],
            notes,
            points,
        })
    }

    fn losses(&self, points: &[Point]) -> Vec<Loss> {
        denied(&verdicts(points), "passes", &["attack", "Mpps"], &["victim's loss alone, %", "attacked, %", "at most"])
    }
}

/// How it was done.
fn notes(attacks: &[Attack], maxima: &[f64], warm: Duration) -> Vec<String> {
    let offered = |attack: &Attack| {
        let maximum = maxima[*attack as usize];
        format!("{} {:.2} of {:.2} Mpps", attack.name(), maximum / 2e6, maximum / 1e6)
    };
    let offered: Vec<String> = attacks.iter().map(offered).collect();
    vec![
        format!(
            "One PMD polls both ports. The victim offers half of what it reached alone ({}); packets come by the clock into \
             rings of 2048, and those that find theirs full are lost. The switch is warm for {:.1} s with all traffic \
             before it is measured.",
            offered.join(", "),
            warm.as_secs_f64()
        ),
        "Every repetition is a switch of its own with the defaults of `sluice run`; a packet of the victim at a wrong \
         port or out of order is an error. The attacker's highest rate is more than its port can take."
            .to_owned(),
    ]
}

/// What the victim reaches alone under the rules of an attack, packets a second.
fn maximum(attack: Attack, warm: Duration, span: Duration) -> Result<f64> {
    let scene = Scene { attack, victim_pps: FLOOD_PPS, attacker_pps: 0.0, zone_limit: ZONE_LIMIT, warm };
    let (lanes, _) = scene.play(span)?;
    Ok(lanes.iter().map(|lane| lane.received).sum::<u64>() as f64 / span.as_secs_f64())
}

/// Open vSwitch under the same attacks, or why not.
fn peer(lab: &mut Lab, attacks: &[Attack]) -> (Option<Table>, Option<String>) {
    if let Some(why) = peer_storm::obstacle() {
        return (None, Some(format!("Open vSwitch was not measured: {why}.")));
    }
    let (rounds, span) = lab.size.pick((1, Duration::from_secs(2)), (5, Duration::from_secs(1)));
    let mut rows = Vec::new();
    for attack in attacks {
        if lab.is_stopped() || lab.is_late() {
            break;
        }
        let row = OvsStorm { attack: *attack }.measure(rounds, span);
        let row = match row {
            Ok([alone, attacked]) => vec![
                attack.name().to_owned(),
                text::stat(Some(&alone)),
                text::stat(Some(&attacked)),
                format!("{:.0} %", 100.0 * (1.0 - attacked.median / alone.median)),
            ],
            Err(error) => return (None, Some(format!("Open vSwitch could not be measured: {error:#}."))),
        };
        lab.say(&format!("Open vSwitch: {}", row.join(", ")));
        rows.push(row);
    }
    let columns = ["attack", "victim alone, Mpps", "attacked, Mpps", "lost"].map(str::to_owned).to_vec();
    let title = format!(
        "Open vSwitch with DPDK, both ports read from captures as fast as its PMD polls them: median (least–most) of {rounds}"
    );
    let note = "Its DPDK ports cannot be paced, so its victim offers all that is polled; of two ports that cost the same each \
                gets half.";
    (Some(Table { title, columns, rows }), Some(note.to_owned()))
}

/// A victim and its attacker.
struct Scene {
    attack: Attack,
    victim_pps: f64,
    attacker_pps: f64,
    /// Of the attacker's zone, if it begins connections.
    zone_limit: u32,
    /// How long it carries the traffic before it is measured.
    warm: Duration,
}

impl Scene {
    /// What became of the lanes, and other figures.
    fn play(&self, span: Duration) -> Result<(Vec<LaneFigures>, Sample)> {
        let plan = self.attack.plan(self.victim_pps, self.attacker_pps)?;
        let (mut generator, switch) = switch::start_alone(&plan, &self.attack.rules(), Settings::default())?;
        switch.limit_zone(FLOODED_ZONE, self.zone_limit);
        let stop = AtomicBool::new(false);
        let trial = |duration| Trial { rate_pps: plan.rate_pps(), duration, is_warmup: false };
        generator.run(&trial(self.warm), &stop)?;
        let before = switch.totals();
        let lanes = generator.run(&trial(span), &stop)?.lanes;
        let counted = switch.totals().since(&before);
        counted.conserved().map_err(|unbalanced| anyhow!("packets are not conserved: {unbalanced:?}"))?;
        let victims = &lanes[..self.attack.victim_lanes()];
        for victim in victims {
            ensure!(victim.astray == 0, "{} packets of the victim came to another port", victim.astray);
            ensure!(victim.out_of_order == 0, "{} packets of the victim came out of order", victim.out_of_order);
        }
        let connections = switch.connections_of(FLOODED_ZONE);
        ensure!(
            connections <= self.zone_limit,
            "the zone has {connections} connections, and may have {}",
            self.zone_limit
        );
        let of_victims = |figure: fn(&LaneFigures) -> u64| victims.iter().map(figure).sum::<u64>();
        let (sent, received) = (of_victims(|lane| lane.sent), of_victims(|lane| lane.received));
        // The worse of both directions.
        let p99_ns = victims.iter().filter_map(|victim| victim.latency).map(|latency| latency.p99_ns).max();
        let taken = counted[Counter::Received].saturating_sub(received) as f64;
        let over_budget = counted.dropped(DropReason::MissBudget) as f64;
        let mega_a_second = |packets: f64| packets / span.as_secs_f64() / 1e6;
        let figures = [
            (LOSS, 100.0 * (1.0 - received as f64 / sent.max(1) as f64)),
            (P99, p99_ns.map_or(f64::NAN, |ns| ns as f64 / 1e3)),
            (VICTIM, mega_a_second(received as f64)),
            (TAKEN, mega_a_second(taken)),
            (REFUSED, mega_a_second(counted[Counter::ConntrackZoneLimit] as f64)),
            (CONNECTIONS, connections.into()),
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

fn figure(points: &[Point], attacks: &[Attack]) -> Figure {
    let line = |attack: &Attack| Series {
        name: attack.name().to_owned(),
        points: points
            .iter()
            .filter(|point| point.at(ATTACK) as usize == *attack as usize)
            .filter_map(|p| p.figure(ATTACKED, LOSS).map(|s| [p.at(MPPS), s.median, s.min, s.max]))
            .collect(),
    };
    Figure {
        title: "What the victim loses".to_owned(),
        caption: "Over the attacker's rate; error bars from the least to the most.".to_owned(),
        chart: Chart::Lines {
            x: Axis::log("attacker, Mpps"),
            y: Axis::linear("victim's loss, percent"),
            series: attacks.iter().map(line).collect(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attack_is_played_and_the_victim_carried_in_order() {
        for attack in Attack::ALL {
            let scene = Scene { attack, victim_pps: 10_000.0, attacker_pps: 20_000.0, zone_limit: 200, warm: WARM[0] };
            // A machine that is stopped meanwhile may carry nothing.
            let is_carried = (0..20).any(|_| {
                let (lanes, sample) = scene.play(Duration::from_millis(50)).unwrap();
                let is_refused =
                    attack != Attack::SynFlood || sample.0[CONNECTIONS] == 200.0 && sample.0[REFUSED] > 0.0;
                let victims = &lanes[..attack.victim_lanes()];
                lanes.len() == victims.len() + 1
                    && victims.iter().all(|victim| victim.received > 0)
                    && sample.0[MEGAFLOWS] > 1.0
                    && is_refused
            });
            assert!(is_carried, "{}", attack.name());
        }
    }
}
