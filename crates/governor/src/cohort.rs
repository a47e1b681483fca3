//! Whether counting flows pays: a few flows followed to their end, with the costs of a miss as measured.
//!
//! A cohort is the next [`SIZE`] new flows of the sample. Each is counted exactly, and is over when it is set up, or when
//! no packet of it has come for as long as an unused megaflow stays: one that comes again after that is a new flow
//! whichever way. So a slow flow is not taken for a short one. Then both ways are priced for the whole cohort, and the
//! next one begins. Counting ends before that as soon as it cannot win any more, even if all flows that are not over end
//! now: to install flows that are short costs something, to count flows that last costs everything. While all flows are
//! installed, those that are followed are the only ones that cost more, so between cohorts there is a rest.

use crate::THRESHOLD;
use arrayvec::ArrayVec;

/// Flows of a cohort: enough that a sixteenth of the costs is no accident, few enough to be searched at each miss.
const SIZE: usize = 64;

/// Flows of the sample that are let go after a cohort for which counting did not pay.
const REST: usize = 3 * SIZE;

/// Cycles of a packet that finds its megaflow; what is saved by each packet that follows an installation. Rough: where it
/// matters, the two ways are near each other.
const HIT: u64 = 150;

/// The other way must be cheaper by one part in so many.
const HYSTERESIS: u64 = 16;

/// A flow that takes longer to be set up is forgotten by the counters before it gets there, milliseconds.
const SLOW_MS: u64 = crate::SHORT_GENERATION_MS;

/// Packets that such a flow is taken to have, each of which would be a miss while flows are counted.
const LASTING: u64 = 64;

/// What a miss costs, in cycles; of each the average of the last ones. A part that did not come up is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Asking the tables.
    pub translate: u64,
    /// Installing a megaflow.
    pub install: u64,
    /// Taking a dead one out of the indexes.
    pub remove: u64,
}

/// A flow being followed.
#[derive(Clone, Copy, Debug)]
struct Member {
    hash: u64,
    packets: u64,
    began_ms: u64,
    last_ms: u64,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Counted,
    /// Its count got to the threshold.
    SetUp,
    /// It did so, but slowly.
    SetUpSlowly,
    /// It ended before.
    Ended,
}

/// What became of a packet of a flow that is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Followed {
    pub is_new: bool,
    pub is_set_up: bool,
}

/// The flows followed now, and what they have taught.
#[derive(Clone, Debug)]
pub(crate) struct Cohort {
    members: ArrayVec<Member, SIZE>,
    idle_ms: u64,
    costs: Costs,
    pays: bool,
    /// When it is looked for flows that have ended.
    look_at_ms: u64,
    /// Flows left to let go.
    rest: usize,
}

impl Cohort {
    /// Nothing followed yet; a flow is over when no packet has come for `idle_ms`.
    pub fn new(idle_ms: u64) -> Self {
        Cohort { members: ArrayVec::new(), idle_ms, costs: Costs::default(), pays: false, look_at_ms: 0, rest: 0 }
    }

    /// Whether flows are to be counted.
    pub fn pays(&self) -> bool {
        self.pays
    }

    /// Follows nobody any more: those that are followed may be installed without its knowledge.
    pub fn abandon(&mut self) {
        self.members.clear();
    }

    /// Takes in the cost of a miss.
    pub fn spent(&mut self, spent: Costs) {
        let Costs { translate, install, remove } = &mut self.costs;
        for (average, spent) in [(translate, spent.translate), (install, spent.install), (remove, spent.remove)] {
            if *average == 0 {
                *average = spent;
            } else if spent != 0 {
                // One interrupt must not decide.
                let spent = spent.min(*average * 8);
                *average = (*average * 31 + spent) / 32;
            }
        }
    }

    /// Counts packets of a flow of the sample that is followed, or begins to follow it if there is room. `None` if it is
    /// not followed.
    pub fn follow(&mut self, hash: u64, packets: u64, now_ms: u64) -> Option<Followed> {
        if now_ms >= self.look_at_ms {
            self.look_at_ms = now_ms + self.idle_ms / 16 + 1;
            self.end_idle(now_ms);
        }
        let is_it = |member: &Member| member.hash == hash && member.state == State::Counted;
        let known = self.members.iter().position(is_it);
        let is_new = known.is_none();
        if is_new {
            if self.rest != 0 {
                self.rest -= 1;
                return None;
            }
            let member = Member { hash, packets: 0, began_ms: now_ms, last_ms: now_ms, state: State::Counted };
            self.members.try_push(member).ok()?;
        }
        let at = known.unwrap_or(self.members.len() - 1);
        let member = &mut self.members[at];
        member.packets += packets;
        member.last_ms = now_ms;
        let is_set_up = member.packets >= THRESHOLD.into();
        if is_set_up {
            let is_slow = now_ms.saturating_sub(member.began_ms) > SLOW_MS;
            member.state = if is_slow { State::SetUpSlowly } else { State::SetUp };
            self.look();
        }
        Some(Followed { is_new, is_set_up })
    }

    fn end_idle(&mut self, now_ms: u64) {
        let idle_ms = self.idle_ms;
        let is_over = |m: &&mut Member| m.state == State::Counted && now_ms.saturating_sub(m.last_ms) > idle_ms;
        self.members.iter_mut().filter(is_over).for_each(|member| member.state = State::Ended);
        self.look();
    }

    /// Decides, if enough is known.
    fn look(&mut self) {
        let is_over = self.members.is_full() && self.members.iter().all(|member| member.state != State::Counted);
        let missing = (SIZE - self.members.len()) as u64;
        // Those yet to come are taken to be of one packet: nothing speaks more for counting.
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
            self.rest = if self.pays { 0 } else { REST };
        }
    }

    /// What a flow costs that is counted first, and one that is installed at once; cycles.
    fn price(&self, member: &Member) -> (u64, u64) {
        let Costs { translate, install, remove } = self.costs;
        let set_up = translate + install + remove;
        match member.state {
            State::Counted | State::Ended => (member.packets * translate, set_up + (member.packets - 1) * HIT),
            State::SetUp => ((member.packets - 1) * translate + set_up, set_up + (member.packets - 1) * HIT),
            State::SetUpSlowly => (LASTING * translate, set_up + LASTING * HIT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEAR: Costs = Costs { translate: 1000, install: 3000, remove: 1000 };

    /// A cohort that has seen flows of so many packets each, `gap_ms` apart, one after another.
    fn after(mut cohort: Cohort, packets: u64, gap_ms: u64, now_ms: &mut u64) -> Cohort {
        for flow in 0..10 * SIZE as u64 {
            for _ in 0..packets {
                let Some(followed) = cohort.follow(flow ^ *now_ms << 20, 1, *now_ms) else { break };
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
        // Each of the flows has a packet in 99 ms, which is less than a megaflow stays unused.
        for round in 0..THRESHOLD.into() {
            for flow in 0..SIZE as u64 {
                cohort.follow(flow, 1, round * 99);
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
            cohort.follow(hash, 1, now_ms);
            cohort.pays()
        });
        assert!(asked.count() < SIZE * usize::from(THRESHOLD), "before the cohort is over");
    }

    #[test]
    fn an_interrupt_does_not_decide() {
        let mut cohort = Cohort::new(100);
        (0..100).for_each(|_| cohort.spent(Costs { translate: 1000, ..Costs::default() }));
        cohort.spent(Costs { translate: 10_000_000, ..Costs::default() });
        assert!(cohort.costs.translate < 1300);
    }
}
