//! A tournament. After the start and after a sudden change earlier measurements are void: every arm is active in turn,
//! for short slices at first, and the better arms again for longer.

use arrayvec::ArrayVec;

/// Rounds: the most arms that take part, and how many chunks of each are measured after one that is not. The cheapest
/// chunk counts, because interrupts only add.
const ROUNDS: [(usize, usize); 3] = [(usize::MAX, 2), (4, 2), (2, 3)];

/// A tournament under way.
#[derive(Clone, Debug)]
pub(super) struct Tournament {
    round: usize,
    /// The arms of this round with the cost last measured, cycles a packet; the safe arm first.
    field: Vec<(usize, f64)>,
    /// The place in `field` of the arm whose slice it is.
    at: usize,
    warmed: bool,
    costs: ArrayVec<f64, 4>,
    /// Share of the passes that the safe arm's cache answered before.
    warm_share: f64,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Next {
    /// Make this arm active.
    Measure(usize),
    /// The tournament is over: the cheapest arm and its cost, and the cost of the safe arm.
    Over { best: usize, cost: f64, safe_cost: f64 },
}

impl Tournament {
    /// Between these arms. The first is the safe arm, whose cache answered `warm_share` of the passes before.
    pub fn new(arms: impl Iterator<Item = usize>, warm_share: f64) -> Self {
        let field = arms.map(|arm| (arm, f64::INFINITY)).collect();
        Tournament { round: 0, field, at: 0, warmed: false, costs: ArrayVec::new(), warm_share }
    }

    /// Share of the passes that the safe arm's cache answered before.
    pub fn warm_share(&self) -> f64 {
        self.warm_share
    }

    /// The arm whose slice it is.
    pub fn active(&self) -> usize {
        self.field[self.at].0
    }

    /// Another arm was active meanwhile: the next chunk of the slice is not measured.
    pub fn go_on(&mut self) {
        self.warmed = false;
    }

    /// Takes the cost of a chunk of the active arm. A hopeless chunk ends the slice. `note` receives each arm's cost.
    pub fn push(&mut self, cost: f64, hopeless: bool, mut note: impl FnMut(usize, f64)) -> Next {
        if hopeless {
            self.costs.clear();
            self.costs.push(cost);
        } else if self.warmed {
            self.costs.push(cost);
        }
        self.warmed = true;
        let wanted = ROUNDS[self.round].1;
        if !hopeless && self.costs.len() < wanted {
            return Next::Measure(self.active());
        }
        let cost = self.costs.iter().copied().fold(f64::INFINITY, f64::min);
        self.field[self.at].1 = cost;
        note(self.field[self.at].0, cost);
        self.costs.clear();
        self.warmed = false;
        self.at += 1;
        if self.at == self.field.len() && !self.next_round() {
            return self.outcome();
        }
        Next::Measure(self.active())
    }

    /// Keeps the best arms and the safe arm, which they are compared with. Returns whether there is another round.
    fn next_round(&mut self) -> bool {
        self.at = 0;
        self.round += 1;
        let Some((most, _)) = ROUNDS.get(self.round) else { return false };
        let (_, others) = self.field.split_first_mut().expect("invariant: the safe arm takes part");
        others.sort_by(|a, b| a.1.total_cmp(&b.1));
        self.field.truncate(*most);
        self.field.len() > 1
    }

    fn outcome(&self) -> Next {
        let best = self.field.iter().min_by(|a, b| a.1.total_cmp(&b.1)).expect("invariant: the safe arm takes part");
        Next::Over { best: best.0, cost: best.1, safe_cost: self.field[0].1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_after_a_pause_is_not_measured() {
        let mut tournament = Tournament::new([0, 1].into_iter(), 0.0);
        let push = |tournament: &mut Tournament, cost| {
            tournament.push(cost, false, |arm, cost| assert_eq!((arm, cost), (0, 100.0), "the cheapest counts"))
        };
        assert_eq!(push(&mut tournament, 1.0), Next::Measure(0));
        assert_eq!(push(&mut tournament, 100.0), Next::Measure(0));
        tournament.go_on();
        assert_eq!(push(&mut tournament, 1.0), Next::Measure(0));
        assert_eq!(push(&mut tournament, 100.0), Next::Measure(1));
    }
}
