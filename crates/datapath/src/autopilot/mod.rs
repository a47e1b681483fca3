//! The autopilot: which of several numbered arms is active for a receive queue's packets, decided from measured cycles. What an
//! arm is, module `tuner` knows.
//!
//! One arm is in charge. Now and then another arm is active for a contiguous slice, long enough to warm its cache, and
//! is compared with the arm in charge before and after the slice: a *trial*. After the start and after a sudden change
//! the safe arm is active first and fills its cache, then all arms are compared: a *tournament*. The arm in charge is
//! replaced only by an arm that is clearly cheaper, and at most once a second under steady traffic.
//!
//! - An arm whose cache has not filled in its trial is given more time now and then, if that may make it the cheapest.
//! - Bad arms are tried ever more rarely, and a ledger keeps the cost of trials under 1 % of all cycles.
//! - If sudden changes follow each other quickly, as when a sender tries to provoke tournaments, the safe arm takes
//!   over and tournaments get rarer.
//! - At low load, and where other work takes the core, nothing is tried, and nothing is said of costs ([`low_load`],
//!   [`other_work`]).
//! - Everything is counted in chunks of at least 256 packets and half a millisecond. The few bursts that are many times as
//!   dear as all others are set aside ([`outliers`]); a chunk that was disturbed otherwise is one value of a median.
//!
//! This is plain state: cycles and time are arguments, and arms are numbers. A burst costs a few additions and comparisons.

mod doing;
mod filling;
mod ledger;
mod low_load;
mod other_work;
mod outliers;
mod sample;
#[cfg(test)]
mod tests;
mod tournament;
mod trial;
mod view;

pub use doing::{Doing, Why};
pub(crate) use sample::Sample;

use filling::Filling;
use ledger::Ledger;
use low_load::LowLoad;
use other_work::OtherWork;
use outliers::Outliers;
use sample::{Look, Usual};
use std::cmp::Ordering;
use tournament::{Next, Tournament};
use trial::{Trial, Verdict};

/// Packets of a chunk at least.
const CHUNK_PACKETS: u64 = 256;
/// Length of a chunk at least, in parts of a millisecond.
const CHUNKS_PER_MS: u64 = 2;
/// Abort the chunk of a tried arm that is this much dearer than the arm in charge, over this many packets: a receive
/// ring would overflow. One such chunk may be an interrupt; two in a row end the slice. The filling of a cache, in which many
/// interrupts fall, takes more to end.
const HOPELESS: f64 = 4.0;
const HOPELESS_PACKETS: u64 = 64;
const HOPELESS_IN_A_ROW: u32 = 2;
const HOPELESS_FILLING: u32 = 8;
/// Surprising chunks, less usual ones, that make a sudden change. A chunk that follows another surprising one and is
/// much dearer than usual counts for up to `DEAR`. The first counts once, because it may be an interrupt.
const SURPRISES: u32 = 7;
const DEAR: f64 = 3.0;
/// How long the safe arm fills its cache before a tournament.
const WARM_MS: u64 = 40;
const WARM_PACKETS: u64 = 1024;
/// An arm must be cheaper by this share to take over, and by more than the noise between chunks.
const HYSTERESIS: f64 = 0.02;
/// An arm that is cheaper by this share takes over after one trial.
const CLEARLY: f64 = 0.1;
/// Any other arm must win this many trials in a row.
const WINS: u32 = 2;
/// The shortest time between two changes under steady load.
const DWELL_MS: u64 = 1000;
/// Time from a lost trial to the arm's next one, doubled by each further loss, up to 2^7 times.
const RETRY_MS: u64 = 500;
const RETRY_DOUBLINGS: u32 = 7;
/// The shortest and the longest time between two tournaments; it doubles when one follows within `QUICKLY_MS`.
const TOURNAMENTS_MS: (u64, u64) = (1000, 16_000);
const QUICKLY_MS: u64 = 4000;
/// Under steady traffic, the time between two fillings of an arm's cache. It doubles with each that was in vain, up to 2^5 times;
/// those of the safe arm come as often as before.
const FILLS_APART_MS: u64 = 60_000;
const FILLS_DOUBLINGS: u32 = 5;
/// Milliseconds that filling the cache of an arm not in charge may cost beyond what is saved for trials. Until that is paid back,
/// nothing else is tried.
const FILLING_CREDIT_MS: u64 = 200;

/// What is known of an arm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// Cycles a packet when last measured, and when that was, TSC.
    pub measured: Option<(f64, u64)>,
    /// When its next trial is due, TSC.
    pub next_trial: u64,
    /// Trials lost in a row.
    losses: u32,
    /// Trials won in a row.
    wins: u32,
    /// Cycles that its last trial cost beyond what the arm in charge would have taken.
    excess: f64,
    /// Before this time its cache is not filled further, TSC.
    fill_after: u64,
    /// Fillings in a row that were in vain.
    vain_fills: u32,
    /// Whether it differs from others only for recirculated packets.
    for_recirculation: bool,
}

#[derive(Clone, Debug)]
enum Phase {
    /// The safe arm fills its cache, before all arms are compared.
    Warm(Warming),
    /// All arms are active in turn, after the safe arm has warmed.
    Tournament(Tournament),
    /// An arm fills its cache further, which may make it the cheapest.
    Fill(Box<Filling>),
    /// The arm in charge is active. A tournament may be due.
    Cruise { tournament_at: Option<u64> },
    /// Another arm is active, or the arm in charge again for comparison.
    Trial(Box<Trial>),
    /// The arm in charge is active, and nothing is measured.
    Resting(Rest),
}

/// Why nothing is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    LowLoad,
    OtherWork,
}

/// How the safe arm warms.
#[derive(Clone, Copy, Debug)]
struct Warming {
    /// When it began, TSC.
    since: u64,
    /// Packets since then.
    packets: u64,
    /// Share of cached passes at the end.
    share: f64,
}

/// What the core does for others, at the end of a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoreNow {
    /// The time, in cycles, that the thread has run or chosen to sleep.
    pub own_time: u64,
    /// Another hardware thread computes on the core.
    pub is_shared: bool,
}

/// The autopilot of one receive queue.
#[derive(Clone, Debug)]
pub(crate) struct Autopilot {
    ms: u64,
    arms: Vec<Known>,
    in_charge: usize,
    /// The arm in charge when a tournament began.
    before: usize,
    active: usize,
    phase: Phase,
    chunk: Sample,
    outliers: Outliers,
    chunk_began: u64,
    usual: Usual,
    /// Cycles a packet of the arm in charge, as of the last chunk.
    yardstick: f64,
    surprises: u32,
    was_surprised: bool,
    /// Chunks in a row that were hopeless.
    hopeless: u32,
    recirculates: bool,
    load: LowLoad,
    other_work: OtherWork,
    /// The core was shared when the last chunk ended.
    is_shared: bool,
    ledger: Ledger,
    tournament_at: u64,
    tournaments_apart: u64,
    changed_at: u64,
    changes: u64,
    tournaments: u64,
    why: Why,
}

impl Known {
    /// The order in which arms are tried that are all due: the cheapest when last measured first, such as in a tournament that a change of
    /// load cut short; those that were never measured last; of equal ones that which has been due for longer.
    fn trial_order(&self, other: &Known) -> Ordering {
        let cost = |arm: &Known| arm.measured.map_or(f64::INFINITY, |(cost, _)| cost);
        cost(self).total_cmp(&cost(other)).then(self.next_trial.cmp(&other.next_trial))
    }
}

/// The arm that is safe.
const SAFE: usize = 0;

impl Warming {
    fn new(since: u64) -> Self {
        Warming { since, packets: 0, share: 0.0 }
    }
}

impl Autopilot {
    /// The first arm is safe. `for_recirculation` says for each arm whether it differs from others only for
    /// recirculated packets. `hz` is the TSC's frequency, `now` its value.
    pub fn new(for_recirculation: &[bool], hz: u64, now: u64) -> Self {
        let known = |for_recirculation: &bool| Known {
            measured: None,
            next_trial: now,
            losses: 0,
            wins: 0,
            excess: 0.0,
            fill_after: now,
            vain_fills: 0,
            for_recirculation: *for_recirculation,
        };
        let ms = (hz / 1000).max(1);
        Autopilot {
            ms,
            arms: for_recirculation.iter().map(known).collect(),
            in_charge: SAFE,
            before: SAFE,
            active: SAFE,
            phase: Phase::Warm(Warming::new(now)),
            chunk: Sample::default(),
            outliers: Outliers::default(),
            chunk_began: now,
            usual: Usual::default(),
            yardstick: f64::INFINITY,
            surprises: 0,
            was_surprised: false,
            hopeless: 0,
            recirculates: false,
            load: LowLoad::default(),
            other_work: OtherWork::default(),
            is_shared: false,
            ledger: Ledger::new(ms as f64),
            tournament_at: now,
            tournaments_apart: TOURNAMENTS_MS.0 * ms,
            changed_at: now,
            changes: 0,
            tournaments: 0,
            why: if for_recirculation.len() == 1 { Why::Forced } else { Why::Start },
        }
    }

    /// The active arm.
    #[inline]
    pub fn active(&self) -> usize {
        self.active
    }

    /// Notes what a burst took with the active arm; it ended `now`. At the end of a chunk `core` is asked.
    #[inline]
    pub fn record(&mut self, burst: &Sample, now: u64, core: impl FnOnce() -> CoreNow) {
        self.chunk.add_burst(burst);
        self.outliers.push(burst);
        let Sample { packets, cycles, .. } = self.chunk;
        let is_whole = packets >= CHUNK_PACKETS && now.saturating_sub(self.chunk_began) >= self.ms / CHUNKS_PER_MS;
        let is_tried = self.active != self.in_charge;
        if is_whole || is_tried && packets >= HOPELESS_PACKETS && self.is_hopeless(packets, cycles) {
            self.end_chunk(now, core());
        }
    }

    fn is_hopeless(&self, packets: u64, cycles: u64) -> bool {
        cycles as f64 > HOPELESS * self.yardstick * packets as f64
    }

    #[cold]
    fn end_chunk(&mut self, now: u64, core: CoreNow) {
        let mut chunk = std::mem::take(&mut self.chunk);
        self.outliers.set_aside(&mut chunk);
        let elapsed = now.saturating_sub(std::mem::replace(&mut self.chunk_began, now));
        self.recirculates = chunk.recirculates();
        let is_interrupted = self.other_work.push(chunk.cycles, elapsed, core.own_time, self.ms);
        let was_shared = std::mem::replace(&mut self.is_shared, core.is_shared) || core.is_shared;
        self.ledger.earn((chunk.cycles - chunk.aside_cycles) as f64, was_shared);
        if !is_interrupted {
            self.load.push(&chunk, elapsed);
        }
        if let Some(rest) = self.why_rest() {
            return self.rest(rest);
        }
        if is_interrupted || chunk.sets_up_flows() {
            // An interruption spoils a comparison, which begins again. It does not spoil the filling of a cache. If that began
            // again, too, a core that is interrupted every 30 ms would never see a comparison.
            let fills_on = matches!(self.phase, Phase::Warm(_) | Phase::Fill(_)) && !chunk.sets_up_flows();
            if !fills_on {
                self.wait(now);
            }
            return;
        }
        if was_shared {
            return self.pause(&chunk);
        }
        if self.active != self.compared() {
            return self.go_on();
        }
        if self.active != self.in_charge {
            let is_hopeless = chunk.cost() > HOPELESS * self.yardstick;
            self.hopeless = if is_hopeless { self.hopeless + 1 } else { 0 };
            self.ledger.spend(chunk.excess(self.yardstick));
        }
        let enough = if matches!(self.phase, Phase::Fill(_)) { HOPELESS_FILLING } else { HOPELESS_IN_A_ROW };
        let hopeless = self.hopeless >= enough;
        if self.active != self.in_charge && self.hopeless != 0 && !hopeless {
            return;
        }
        self.hopeless = 0;
        match std::mem::replace(&mut self.phase, Phase::Cruise { tournament_at: None }) {
            Phase::Warm(warming) => self.warm(&chunk, warming, now),
            Phase::Tournament(tournament) => self.tournament(tournament, &chunk, hopeless, now),
            Phase::Fill(filling) => self.fill(&chunk, filling, hopeless, now),
            Phase::Cruise { tournament_at } => self.cruise(&chunk, tournament_at, now),
            Phase::Trial(trial) => self.trial(trial, &chunk, hopeless, now),
            Phase::Resting(_) => self.resume(now),
        }
        if self.usual.is_known() {
            self.yardstick = self.usual.cost();
        }
    }

    /// Another machine on the same core makes arms dearer, and not alike. Until it has gone the arm in charge is active, and what
    /// is compared waits.
    fn pause(&mut self, chunk: &Sample) {
        if self.active != self.in_charge {
            // The chunk's cycles are those of a shared core, so what they were too many is told by the arms' costs.
            let dearness = self.arms[self.active].measured.map_or(HOPELESS, |(cost, _)| cost / self.yardstick);
            self.ledger.spend(chunk.cycles as f64 * (1.0 - 1.0 / dearness));
            (self.active, self.hopeless) = (self.in_charge, 0);
        }
    }

    /// What was compared goes on. Its data has left the processor's caches.
    fn go_on(&mut self) {
        match &mut self.phase {
            Phase::Tournament(tournament) => tournament.go_on(),
            Phase::Trial(trial) => trial.go_on(),
            _ => {}
        }
        self.active = self.compared();
    }

    /// The arm that is active while nothing disturbs.
    fn compared(&self) -> usize {
        match &self.phase {
            Phase::Tournament(tournament) => tournament.active(),
            Phase::Trial(trial) if !trial.is_over() => trial.arm,
            Phase::Fill(filling) => filling.arm,
            _ => self.in_charge,
        }
    }

    /// While many flows are new, as after a change of rules, nothing is compared: all arms miss, and the traffic will
    /// be as before. The same holds while other work had the core. A tournament begins afterwards.
    fn wait(&mut self, now: u64) {
        self.hopeless = 0;
        match &self.phase {
            Phase::Warm(_) | Phase::Tournament(..) => self.begin_tournament(now),
            Phase::Trial(trial) => self.give_up(trial.arm, now),
            Phase::Fill(filling) if filling.arm != self.in_charge => self.give_up(filling.arm, now),
            Phase::Fill(_) | Phase::Cruise { .. } | Phase::Resting(_) => {}
        }
    }

    /// The arm in charge is active again; the other one is tried later.
    fn give_up(&mut self, arm: usize, now: u64) {
        self.arms[arm].next_trial = now + RETRY_MS * self.ms;
        self.active = self.in_charge;
        self.phase = Phase::Cruise { tournament_at: None };
    }

    /// Why nothing is to be measured now, if so.
    fn why_rest(&self) -> Option<Rest> {
        match () {
            () if self.arms.len() == 1 => None,
            () if self.other_work.takes_core() => Some(Rest::OtherWork),
            () => self.load.is_low().then_some(Rest::LowLoad),
        }
    }

    /// The arm that was in charge stays so, what was measured is forgotten, and what was tried is given up.
    fn rest(&mut self, why: Rest) {
        if let Phase::Resting(was) = &mut self.phase {
            *was = why;
            return;
        }
        (self.in_charge, self.active, self.phase) = (self.before, self.before, Phase::Resting(why));
        self.arms.iter_mut().for_each(|arm| arm.measured = None);
        (self.usual, self.yardstick) = (Usual::default(), f64::INFINITY);
        (self.surprises, self.was_surprised, self.hopeless) = (0, false, 0);
        if matches!(self.why, Why::Unsteady | Why::Uneven) {
            self.why = Why::Start;
        }
    }

    /// There is load again, and the core is the PMD's: the arms are compared if they never were, else the one in charge goes on.
    fn resume(&mut self, now: u64) {
        self.phase = Phase::Cruise { tournament_at: None };
        if self.tournaments == 0 {
            self.begin_tournament(now);
        }
    }

    fn warm(&mut self, chunk: &Sample, mut warming: Warming, now: u64) {
        self.usual.learn(chunk);
        self.arms[SAFE].measured = Some((self.usual.cost(), now));
        warming.packets += chunk.packets;
        warming.share = self.usual.cached_share();
        let is_warm = now.saturating_sub(warming.since) >= WARM_MS * self.ms && warming.packets >= WARM_PACKETS;
        self.phase = if !is_warm || !self.other_work.is_measured() {
            Phase::Warm(warming)
        } else if self.eligible().count() < 2 {
            Phase::Cruise { tournament_at: None }
        } else {
            self.tournaments += 1;
            let tournament = Tournament::new(self.eligible(), warming.share);
            self.active = tournament.active();
            Phase::Tournament(tournament)
        };
    }

    /// The arms that may be active now, the safe one first.
    fn eligible(&self) -> impl Iterator<Item = usize> + use<> {
        let recirculates = self.recirculates;
        let may: Vec<bool> = self.arms.iter().map(|arm| recirculates || !arm.for_recirculation).collect();
        may.into_iter().enumerate().filter(|(_, may)| *may).map(|(arm, _)| arm)
    }

    /// Lets an arm fill its cache, which answers this share of the passes; the best other arm costs `rival`. The safe arm is in
    /// charge meanwhile. Which arm takes over is decided at the end.
    fn begin_filling(&mut self, arm: usize, share: f64, rival: f64, now: u64) {
        self.active = arm;
        let known = &mut self.arms[arm];
        let doublings = if arm == SAFE { 0 } else { known.vain_fills.min(FILLS_DOUBLINGS) };
        known.fill_after = now + (FILLS_APART_MS << doublings) * self.ms;
        known.vain_fills += 1;
        if arm == SAFE {
            self.in_charge = SAFE;
            self.usual = Usual::default();
        }
        self.phase = Phase::Fill(Box::new(Filling::new(arm, arm == SAFE, share, rival, now, self.ms)));
    }

    /// Lets an arm fill its cache as long as that helps. Then all arms are compared if it is the safe one; another one is tried.
    fn fill(&mut self, chunk: &Sample, mut filling: Box<Filling>, hopeless: bool, now: u64) {
        let (arm, is_in_charge) = (filling.arm, filling.arm == self.in_charge);
        if is_in_charge {
            self.usual.learn(chunk);
        }
        let cost = if is_in_charge { self.usual.cost() } else { chunk.cost() };
        self.arms[arm].measured = Some((cost, now));
        let is_too_dear = hopeless || !is_in_charge && !self.ledger.affords(-((FILLING_CREDIT_MS * self.ms) as f64));
        if filling.push(chunk, now) && !is_too_dear {
            self.phase = Phase::Fill(filling);
            return;
        }
        if is_in_charge {
            self.begin_tournament(now);
        } else if hopeless {
            self.give_up(arm, now);
        } else {
            self.phase = Phase::Trial(Box::new(Trial::of_filled(arm, self.yardstick)));
        }
    }

    fn tournament(&mut self, mut tournament: Tournament, chunk: &Sample, hopeless: bool, now: u64) {
        if !self.usual.is_comparable(chunk) {
            // The load changed during the tournament: the safe arm takes over, and another tournament follows.
            self.take_charge(SAFE, Why::Uneven, now);
            self.phase = Phase::Cruise { tournament_at: Some(now + self.tournaments_apart) };
            return;
        }
        let arms = &mut self.arms;
        match tournament.push(chunk.cost(), hopeless, |arm, cost| arms[arm].measured = Some((cost, now))) {
            Next::Measure(arm) => {
                self.active = arm;
                self.phase = Phase::Tournament(tournament);
            }
            Next::Over { best, cost, safe_cost } => {
                let margin = self.usual.deviation().max(HYSTERESIS);
                let share = tournament.warm_share();
                let may_fill = now >= self.arms[SAFE].fill_after && Filling::is_worth_it(share, safe_cost, cost);
                let winner = if cost < safe_cost * (1.0 - margin) && !may_fill { best } else { SAFE };
                for (n, arm) in self.arms.iter_mut().enumerate() {
                    // Trials are spread over time, and arms that seem bad come last.
                    let cost = arm.measured.map_or(1.0, |(c, _)| (c / cost).min(HOPELESS));
                    let wait = (RETRY_MS as f64 * cost * (1.0 + n as f64 / 4.0)) as u64 * self.ms;
                    (arm.losses, arm.wins, arm.next_trial) = (0, 0, now + wait);
                }
                self.tournament_at = now;
                self.take_charge(winner, Why::Tournament, now);
                if may_fill {
                    self.begin_filling(SAFE, share, cost, now);
                }
            }
        }
    }

    /// Puts an arm in charge. What is usual is learnt again.
    fn take_charge(&mut self, arm: usize, why: Why, now: u64) {
        if arm != self.before {
            self.changes += 1;
            self.changed_at = now;
        }
        (self.before, self.in_charge, self.active, self.why) = (arm, arm, arm, why);
        self.arms[arm].vain_fills = 0;
        self.usual = Usual::default();
        self.surprises = 0;
        self.phase = Phase::Cruise { tournament_at: None };
    }

    fn cruise(&mut self, chunk: &Sample, tournament_at: Option<u64>, now: u64) {
        self.phase = Phase::Cruise { tournament_at };
        if tournament_at.is_some_and(|at| now >= at) {
            return self.begin_tournament(now);
        }
        if self.watch(chunk, now) {
            return;
        }
        self.arms[self.in_charge].measured = Some((self.usual.cost(), now));
        if !self.usual.is_known() || self.surprises != 0 {
            return;
        }
        let due = self.eligible().filter(|arm| *arm != self.in_charge && self.arms[*arm].next_trial <= now);
        let Some(next) = due.min_by(|a, b| self.arms[*a].trial_order(&self.arms[*b])) else { return };
        // Before the first trial its cost is unknown; a chunk's length is the guess.
        let excess = self.arms[next].excess.max((self.ms / CHUNKS_PER_MS) as f64);
        if self.ledger.affords(excess) {
            self.phase = Phase::Trial(Box::new(Trial::new(next, self.usual.cost())));
            self.active = next;
        }
    }

    /// Compares a chunk of the arm in charge with what is usual. True if the traffic changed suddenly.
    fn watch(&mut self, chunk: &Sample, now: u64) -> bool {
        if !self.usual.is_known() || self.arms.len() == 1 {
            self.usual.learn(chunk);
            return false;
        }
        let look = self.usual.look(chunk);
        if look == Look::Usual {
            self.usual.learn(chunk);
            self.surprises = self.surprises.saturating_sub(1);
            self.was_surprised = false;
            return false;
        }
        let dearness = (chunk.cost() / self.yardstick).clamp(1.0, DEAR) as u32;
        self.surprises += if self.was_surprised { dearness } else { 1 };
        self.was_surprised = true;
        if self.surprises < SURPRISES {
            return false;
        }
        self.surprises = 0;
        self.usual = Usual::default();
        if look == Look::Surprising {
            self.changed_suddenly(now);
        }
        look == Look::Surprising
    }

    fn changed_suddenly(&mut self, now: u64) {
        self.arms.iter_mut().for_each(|arm| (arm.fill_after, arm.vain_fills) = (now, 0));
        let since = now.saturating_sub(self.tournament_at);
        if since >= self.tournaments_apart {
            let quickly = since < QUICKLY_MS * self.ms;
            let apart = if quickly { self.tournaments_apart * 2 } else { TOURNAMENTS_MS.0 * self.ms };
            self.tournaments_apart = apart.min(TOURNAMENTS_MS.1 * self.ms);
            return self.begin_tournament(now);
        }
        self.take_charge(SAFE, Why::Unsteady, now);
        self.phase = Phase::Cruise { tournament_at: Some(self.tournament_at + self.tournaments_apart) };
    }

    /// Lets the safe arm fill its cache, then all arms compete. The winner takes over at the end.
    fn begin_tournament(&mut self, now: u64) {
        self.tournament_at = now;
        (self.in_charge, self.active) = (SAFE, SAFE);
        self.usual = Usual::default();
        self.phase = Phase::Warm(Warming::new(now));
    }

    fn trial(&mut self, mut trial: Box<Trial>, chunk: &Sample, hopeless: bool, now: u64) {
        if self.active != self.in_charge {
            trial.push(chunk, hopeless, !self.ledger.affords(0.0));
            self.phase = Phase::Trial(trial);
            self.active = self.compared();
            return;
        }
        if self.watch(chunk, now) {
            return;
        }
        match trial.compare(chunk) {
            None => self.phase = Phase::Trial(trial),
            Some(verdict) => self.judge(&trial, verdict, now),
        }
    }

    fn judge(&mut self, trial: &Trial, verdict: Verdict, now: u64) {
        let (ms, contender) = (self.ms, trial.arm);
        let known = &mut self.arms[contender];
        match verdict {
            Verdict::Unclear => known.next_trial = now + RETRY_MS * ms,
            Verdict::Cheaper { by, cost, excess, early } => {
                (known.measured, known.excess) = (Some((cost, now)), excess);
                let (share, rival) = (trial.cached_share(), self.usual.cost());
                let is_cheaper = by >= self.usual.deviation().max(HYSTERESIS);
                let may_fill = now >= known.fill_after && (contender == SAFE || !is_cheaper);
                if may_fill && Filling::is_worth_it(share, cost, rival) {
                    return self.begin_filling(contender, share, rival, now);
                }
                if !is_cheaper {
                    known.wins = 0;
                    known.next_trial = now + (RETRY_MS << known.losses.min(RETRY_DOUBLINGS)) * ms;
                    known.losses += u32::from(!early);
                    return;
                }
                // Its cache would not be as full in a second trial.
                (known.wins, known.losses) = (if trial.is_filled { WINS } else { known.wins + 1 }, 0);
                known.next_trial = now;
                if by < CLEARLY && known.wins < WINS {
                    return;
                }
                if now.saturating_sub(self.changed_at) < DWELL_MS * ms {
                    known.next_trial = self.changed_at + DWELL_MS * ms;
                    return;
                }
                known.wins = 0;
                self.arms[self.before].next_trial = now + 2 * DWELL_MS * ms;
                self.take_charge(contender, Why::Trial(by), now);
            }
        }
    }
}
