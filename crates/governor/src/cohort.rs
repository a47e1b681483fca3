//! Does counting flows pay? A few flows are followed to their end and priced with measured costs.
//!
//! A cohort is the next [`SIZE`] new flows of the sample. Each is counted exactly. It is over when it is set up, or
//! when no packet of it has come for the idle timeout of megaflows: if it comes back later, it is a new flow either
//! way. So a slow flow does not pass for a short one. Then both ways are priced for the whole cohort, and the next one
//! begins.
//!
//! Counting stops earlier, as soon as it cannot win even if all flows still followed end now. Installing short flows
//! costs something; counting lasting flows costs far more. While all flows are installed, followed flows are the only
//! ones that cost extra, so there is a pause between cohorts, which gets longer while cohort after cohort says the same.
//! Each followed flow has four misses more than it would have had. With a pause of three cohorts that was 3 % of all
//! instructions at flows of ten packets (2026-11-27).

use crate::{SAMPLE, THRESHOLD};
use arrayvec::ArrayVec;

/// Flows of a cohort: enough for a difference of one sixteenth to be significant, few enough to search at each miss.
const SIZE: usize = 64;

/// Misses after a cohort for which counting did not pay, before the next one begins: those in which three times as many flows of the
/// sample come. The pause doubles with each further one, up to the most: every 53 thousand flows a cohort of 64.
const PAUSE: u64 = 3 * SIZE as u64 * SAMPLE;
const PAUSE_MAX: u64 = 4 * PAUSE;

/// Cycles of a packet that hits its megaflow. A rough value suffices: where it decides, both ways cost about the same.
const HIT: u64 = 150;

/// The other way must be cheaper by one part in this many.
const HYSTERESIS: u64 = 16;

/// The counters forget a flow that takes longer than this to reach the threshold, milliseconds.
const SLOW_MS: u64 = crate::SHORT_GENERATION_MS;

/// Assumed packets of such a flow. While flows are counted, each of them is a miss.
const LASTING: u64 = 64;

/// What a miss costs, in cycles. A part that did not occur is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Translation.
    pub translate: u64,
    /// Installation of the megaflow.
    pub install: u64,
    /// Removal of a deleted megaflow from the indexes.
    pub remove: u64,
}

/// A flow that is followed.
#[derive(Clone, Copy, Debug)]
struct Member {
    hash: u64,
    packets: u64,
    began_ms: u64,
    last_ms: u64,
    state: MemberState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberState {
    Counted,
    /// Its count reached the threshold.
    SetUp,
    /// Its count reached the threshold, but more slowly than [`SLOW_MS`].
    SetUpSlowly,
    /// It ended before the threshold.
    Ended,
}

/// The state of a followed flow after a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Followed {
    pub is_new: bool,
    pub is_set_up: bool,
    /// How many packets were counted now.
    pub packets: usize,
}

/// The flows followed now, and the conclusion from earlier ones.
#[derive(Clone, Debug)]
pub(crate) struct Cohort {
    members: ArrayVec<Member, SIZE>,
    idle_ms: u64,
    costs: Costs,
    pays: bool,
    /// When to look for idle flows again.
    next_sweep_ms: u64,
    /// Misses left in the pause.
    pause: u64,
    /// How long the next one is.
    next_pause: u64,
}

impl Cohort {
    /// Follows nothing yet. A flow is over when no packet has come for `idle_ms`.
    pub fn new(idle_ms: u64) -> Self {
        Cohort {
            members: ArrayVec::new(),
            idle_ms,
            costs: Costs::default(),
            pays: false,
            next_sweep_ms: 0,
            pause: 0,
            next_pause: PAUSE,
        }
    }

    /// Whether counting pays.
    pub fn pays(&self) -> bool {
        self.pays
    }

    /// Stops following: the flows may be installed without being reported here. What comes after may be other traffic, so
    /// it is looked at soon.
    pub fn abandon(&mut self) {
        self.members.clear();
        self.pause = self.pause.min(PAUSE);
        self.next_pause = PAUSE;
    }

    /// Adds the cost of a miss to the averages.
    pub fn spent(&mut self, spent: Costs) {
        let Costs { translate, install, remove } = &mut self.costs;
        for (average, spent) in [(translate, spent.translate), (install, spent.install), (remove, spent.remove)] {
            if *average == 0 {
                *average = spent;
            } else if spent != 0 {
                // Limits the weight of a single interrupt.
                let spent = spent.min(*average * 8);
                *average = (*average * 31 + spent) / 32;
            }
        }
    }

    /// Whether there is a pause, in which the miss is of no interest, whatever its flow.
    #[inline]
    pub fn rests(&mut self) -> bool {
        let rests = self.pause != 0;
        self.pause -= u64::from(rests);
        rests
    }

    /// Counts packets of a flow of the sample. Begins to follow the flow if the cohort is not full. `None` if it is not
    /// followed; then `packets` is not called, which compares with all that missed.
    pub fn follow(&mut self, hash: u64, packets: impl FnOnce() -> usize, now_ms: u64) -> Option<Followed> {
        if now_ms >= self.next_sweep_ms {
            self.next_sweep_ms = now_ms + self.idle_ms / 16 + 1;
            self.end_idle(now_ms);
        }
        let is_it = |member: &Member| member.hash == hash && member.state == MemberState::Counted;
        let known = self.members.iter().position(is_it);
        let is_new = known.is_none();
        if is_new {
            let member = Member { hash, packets: 0, began_ms: now_ms, last_ms: now_ms, state: MemberState::Counted };
            self.members.try_push(member).ok()?;
        }
        let at = known.unwrap_or(self.members.len() - 1);
        let (member, packets) = (&mut self.members[at], packets());
        member.packets += packets as u64;
        member.last_ms = now_ms;
        let is_set_up = member.packets >= THRESHOLD.into();
        if is_set_up {
            let is_slow = now_ms.saturating_sub(member.began_ms) > SLOW_MS;
            member.state = if is_slow { MemberState::SetUpSlowly } else { MemberState::SetUp };
            self.conclude();
        }
        Some(Followed { is_new, is_set_up, packets })
    }

    fn end_idle(&mut self, now_ms: u64) {
        let idle_ms = self.idle_ms;
        let is_over = |m: &&mut Member| m.state == MemberState::Counted && now_ms.saturating_sub(m.last_ms) > idle_ms;
        self.members.iter_mut().filter(is_over).for_each(|member| member.state = MemberState::Ended);
        self.conclude();
    }

    /// Decides whether counting pays, if enough is known.
    fn conclude(&mut self) {
        let is_over = self.members.is_full() && self.members.iter().all(|member| member.state != MemberState::Counted);
        let missing = (SIZE - self.members.len()) as u64;
        // Flows yet to come are assumed to have one packet, which favours counting most.
        let (counting, installing) =
            self.members.iter().map(|member| self.price(member)).fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
        let single = self.costs.translate + self.costs.install + self.costs.remove;
        let (counting, installing) = (counting + missing * self.costs.translate, installing + missing * single);
        let margin = installing / HYSTERESIS;
        if self.pays {
            self.pays = counting < installing + margin;
        } else if is_over {
            self.pays = counting + margin < installing;
        }
        if is_over {
            self.members.clear();
            self.pause = if self.pays { 0 } else { self.next_pause };
            self.next_pause = if self.pays { PAUSE } else { (2 * self.next_pause).min(PAUSE_MAX) };
        }
    }

    /// Cycles that a flow costs if it is counted first, and if it is installed at its first packet.
    fn price(&self, member: &Member) -> (u64, u64) {
        let Costs { translate, install, remove } = self.costs;
        let set_up = translate + install + remove;
        match member.state {
            MemberState::Counted | MemberState::Ended => {
                (member.packets * translate, set_up + (member.packets - 1) * HIT)
            }
            MemberState::SetUp => ((member.packets - 1) * translate + set_up, set_up + (member.packets - 1) * HIT),
            MemberState::SetUpSlowly => (LASTING * translate, set_up + LASTING * HIT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEAR: Costs = Costs { translate: 1000, install: 3000, remove: 1000 };

    /// A cohort that has seen flows of `packets` packets each, one flow every `gap_ms`.
    fn after(mut cohort: Cohort, packets: u64, gap_ms: u64, now_ms: &mut u64) -> Cohort {
        for flow in 0..10 * SIZE as u64 {
            for _ in 0..packets {
                let Some(followed) = cohort.follow(flow ^ *now_ms << 20, || 1, *now_ms) else { break };
                if followed.is_set_up {
                    break;
                }
            }
            *now_ms += gap_ms;
        }
        cohort
    }

    fn priced(costs: Costs) -> Cohort {
        let mut cohort = Cohort::new(100);
        cohort.spent(costs);
        cohort
    }

    #[test]
    fn counting_pays_where_flows_are_short_and_installing_is_dear() {
        let pays = |costs| [1, 3, 5, 10, 100].map(|packets| after(priced(costs), packets, 10, &mut 0).pays());
        assert_eq!(pays(DEAR), [true, true, false, false, false]);
        assert_eq!(pays(Costs { translate: 1000, install: 900, remove: 0 }), [true, false, false, false, false]);
    }

    #[test]
    fn a_flow_is_no_shorter_for_being_slow() {
        let mut cohort = priced(DEAR);
        // Each flow has a packet every 99 ms, which is less than the idle timeout.
        for round in 0..THRESHOLD.into() {
            for flow in 0..SIZE as u64 {
                cohort.follow(flow, || 1, round * 99);
            }
        }
        assert!(!cohort.pays() && cohort.members.is_empty(), "all are set up");
    }

    #[test]
    fn counting_ends_as_soon_as_it_cannot_win() {
        let mut now_ms = 0;
        let mut cohort = after(priced(DEAR), 1, 10, &mut now_ms);
        assert!(cohort.pays());
        now_ms += 1000;
        let asked = (0..).take_while(|flow| {
            let hash = (1 << 40) | (flow / u64::from(THRESHOLD));
            cohort.follow(hash, || 1, now_ms);
            cohort.pays()
        });
        assert!(asked.count() < SIZE * usize::from(THRESHOLD), "before the cohort is over");
    }

    /// How many flows of five packets and more pass until a cohort is over.
    fn until_over(cohort: &mut Cohort) -> u64 {
        let mut passed = 0;
        for flow in 0.. {
            passed += 1;
            if cohort.rests() {
                continue;
            }
            let hash = passed << 32 | flow;
            let is_last = cohort.members.len() == SIZE - 1;
            if cohort.follow(hash, || THRESHOLD.into(), 0).is_some() && is_last {
                break;
            }
        }
        passed
    }

    #[test]
    fn the_pause_gets_longer_while_nothing_changes() {
        let mut cohort = priced(DEAR);
        let flows: Vec<_> = (0..5).map(|_| until_over(&mut cohort) - SIZE as u64).collect();
        assert_eq!(flows, [0, PAUSE, 2 * PAUSE, PAUSE_MAX, PAUSE_MAX]);
        cohort.abandon();
        assert_eq!(until_over(&mut cohort) - SIZE as u64, PAUSE, "after a quiet time it is short again");
    }

    #[test]
    fn the_pause_is_short_after_counting_has_paid() {
        let mut cohort = priced(DEAR);
        (0..5).for_each(|_| _ = until_over(&mut cohort));
        let mut now_ms = 1000;
        while cohort.rests() {}
        cohort = after(cohort, 1, 10, &mut now_ms);
        assert!(cohort.pays());
        // Flows that last end that: the cohort goes on to its end, and the next one begins after the shortest pause.
        now_ms += 1000;
        let has_ended = (0..2 * SIZE as u64).any(|flow| {
            cohort.follow(1 << 41 | flow, || THRESHOLD.into(), now_ms);
            !cohort.pays()
        });
        assert!(has_ended && until_over(&mut cohort) < SIZE as u64);
        assert_eq!(until_over(&mut cohort) - SIZE as u64, PAUSE);
    }

    #[test]
    fn packets_of_flows_that_are_not_followed_are_not_counted() {
        let mut cohort = priced(DEAR);
        (0..SIZE as u64).for_each(|flow| assert!(cohort.follow(flow, || 1, 0).is_some()));
        assert_eq!(cohort.follow(1 << 32, || unreachable!("the cohort is full"), 0), None);
    }

    #[test]
    fn an_interrupt_does_not_decide() {
        let mut cohort = Cohort::new(100);
        (0..100).for_each(|_| cohort.spent(Costs { translate: 1000, ..Costs::default() }));
        cohort.spent(Costs { translate: 10_000_000, ..Costs::default() });
        assert!(cohort.costs.translate < 1300);
    }
}
