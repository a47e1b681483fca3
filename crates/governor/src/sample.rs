//! Whether counting flows pays: the costs of a miss, as measured, set against the flows of the sample.

/// What a miss costs, in cycles. An average of the last misses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Asking the tables.
    pub translate: u64,
    /// Installing a megaflow: now, and taking it away later.
    pub install: u64,
}

/// Cycles of a packet that finds its megaflow; what is saved by each packet that follows an installation. Rough: where it
/// matters, the two ways are near each other.
const HIT: u64 = 150;

/// Flows of the sample that are seen before the decision is looked at again.
const LOOK_EVERY: u64 = 64;

/// The other way must be cheaper by one part in so many.
const HYSTERESIS: u64 = 16;

/// What became of the flows of the sample, all of which are counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    flows: u64,
    setups: u64,
    counted: u64,
    costs: Costs,
    pays: bool,
}

impl Sample {
    /// Whether flows are to be counted.
    pub fn pays(&self) -> bool {
        self.pays
    }

    /// Takes in the cost of a translation, or of an installation.
    pub fn spent(&mut self, spent: Costs) {
        for (average, spent) in [(&mut self.costs.translate, spent.translate), (&mut self.costs.install, spent.install)]
        {
            if *average == 0 {
                *average = spent;
            } else if spent != 0 {
                // One interrupt must not decide.
                let spent = spent.min(*average * 8);
                *average = (*average * 31 + spent) / 32;
            }
        }
    }

    /// Notes a flow of the sample: its first packets, or more of them, and whether it got installed by them.
    pub fn note(&mut self, is_new: bool, packets: u64, is_set_up: bool) {
        self.flows += u64::from(is_new);
        self.setups += u64::from(is_set_up);
        self.counted += if is_set_up { packets.saturating_sub(1) } else { packets };
        if is_new && self.flows.is_multiple_of(LOOK_EVERY) {
            self.look();
        }
    }

    /// Decides anew, and forgets half.
    fn look(&mut self) {
        let Costs { translate, install } = self.costs;
        // With counting: each counted packet is translated, a flow that gets there is installed then.
        let counting = self.counted * translate + self.setups * (translate + install);
        // Without: every flow is installed at its first packet, and the others find it.
        let packets = self.counted + self.setups;
        let installing = self.flows * (translate + install) + packets.saturating_sub(self.flows) * HIT;
        let margin = installing / HYSTERESIS;
        self.pays = if self.pays { counting < installing + margin } else { counting + margin < installing };
        self.flows /= 2;
        self.setups /= 2;
        self.counted /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::THRESHOLD;

    /// A sample of flows of so many packets each, one packet a miss.
    fn of_flows(packets: u64, costs: Costs) -> Sample {
        let mut sample = Sample::default();
        sample.spent(costs);
        for _ in 0..10 * LOOK_EVERY {
            for packet in 1..=packets.min(THRESHOLD.into()) {
                sample.note(packet == 1, 1, packet == u64::from(THRESHOLD));
            }
        }
        sample
    }

    #[test]
    fn counting_pays_where_flows_are_short_and_installing_is_dear() {
        let dear = Costs { translate: 1000, install: 4000 };
        let pays = [1, 3, 5, 10, 100].map(|packets| of_flows(packets, dear).pays());
        assert_eq!(pays, [true, true, false, false, false]);
        let cheap = Costs { translate: 1000, install: 900 };
        assert_eq!([1, 3, 10].map(|packets| of_flows(packets, cheap).pays()), [true, false, false]);
    }

    #[test]
    fn it_changes_its_mind_within_a_few_looks() {
        let costs = Costs { translate: 1000, install: 1000 };
        let mut sample = of_flows(1, costs);
        assert!(sample.pays());
        for _ in 0..8 * LOOK_EVERY {
            (1..=5).for_each(|packet| sample.note(packet == 1, 1, packet == 5));
        }
        assert!(!sample.pays());
    }

    #[test]
    fn an_interrupt_does_not_decide() {
        let mut sample = Sample::default();
        (0..100).for_each(|_| sample.spent(Costs { translate: 1000, install: 0 }));
        sample.spent(Costs { translate: 10_000_000, install: 0 });
        assert!(sample.costs.translate < 1300);
    }
}
