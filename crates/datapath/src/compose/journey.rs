//! Journeys: packets that are followed from their first pass to their last, so that those behind them need not.

use super::HOPS_MAX;
use super::route::{Route, addresses_and_ports};
use arrayvec::ArrayVec;
use sluice_action::Action;
use sluice_conntrack::{Stamp, Standing};
use sluice_flow::PacketKey;
use sluice_flow_cache::{Megaflow, Verdict};
use sluice_packet::BATCH_MAX;
use sluice_simd::compare;

/// The journeys of a batch of received packets. A packet carries the number of its own, 0 if it is on none.
#[derive(Debug, Default)]
pub(crate) struct Journeys(ArrayVec<Journey, BATCH_MAX>);

#[derive(Debug)]
struct Journey {
    /// Line 0 of the key of the first pass.
    words: [u64; 8],
    hash: u64,
    route: Route,
    standings: ArrayVec<Standing, HOPS_MAX>,
    /// What the `ct` under way has written.
    stamp: Option<Stamp>,
    /// Nothing is noted any more.
    is_over: bool,
}

/// A journey at its end.
pub(super) struct Done {
    pub hash: u64,
    pub addresses_and_ports: (u64, u32),
    pub route: Route,
    pub standings: ArrayVec<Standing, HOPS_MAX>,
}

/// Whether a megaflow tracks its packets and looks them up again, and does nothing else.
#[inline]
pub(super) fn tracks(flow: &Megaflow) -> bool {
    flow.verdict() == Verdict::Actions && matches!(flow.actions()[..], [Action::Ct(_), Action::Recirc(_)])
}

impl Journeys {
    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets all.
    #[inline]
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Begins one for a packet just received: its number.
    pub(super) fn begin(&mut self, key: &PacketKey, hash: u64, first: &Megaflow) -> u16 {
        let words = compare::words(&key.lines[0].0);
        let (route, standings) = (Route::begin(first), ArrayVec::new());
        self.0.push(Journey { words, hash, route, standings, stamp: None, is_over: false });
        self.0.len() as u16
    }

    /// Whether that journey is under way.
    #[inline]
    pub fn has(&self, number: u16) -> bool {
        number != 0 && self.0.get(usize::from(number) - 1).is_some_and(|journey| !journey.is_over)
    }

    fn under_way(&mut self, number: u16) -> Option<&mut Journey> {
        let at = usize::from(number).checked_sub(1)?;
        self.0.get_mut(at).filter(|journey| !journey.is_over)
    }

    /// Notes what a `ct` made of the packet; `None` ends the journey.
    pub fn track(&mut self, number: u16, found: Option<(Standing, Stamp)>) {
        let Some(journey) = self.under_way(number) else { return };
        let is_next = journey.standings.len() == journey.route.hops().len() && journey.stamp.is_none();
        // In the zone of the pass before, a packet is known again, and not counted.
        let is_new = |stamp: &Stamp| journey.route.hops().last().is_none_or(|hop| hop.stamp.zone != stamp.zone);
        match found.filter(|(_, stamp)| is_next && is_new(stamp)) {
            Some((standing, stamp)) if !journey.standings.is_full() => {
                journey.standings.push(standing);
                journey.stamp = Some(stamp);
            }
            _ => journey.give_up(),
        }
    }

    /// Notes the megaflow found in a pass after a `ct`. What is returned is at its end.
    pub(super) fn arrive(&mut self, number: u16, key: &PacketKey, flow: Option<&Megaflow>) -> Option<Done> {
        let journey = self.under_way(number)?;
        let (Some(stamp), Some(flow)) = (journey.stamp.take(), flow) else {
            journey.give_up();
            return None;
        };
        let is_last = flow.verdict() != Verdict::Actions;
        if !(is_last || tracks(flow)) || !journey.route.add(stamp, key.recirc_id(), flow) {
            journey.give_up();
            return None;
        }
        is_last.then(|| journey.end())
    }
}

impl Journey {
    /// Ends it without a result.
    fn give_up(&mut self) {
        self.is_over = true;
    }

    fn end(&mut self) -> Done {
        let mut route = self.route.clone();
        route.finish(&self.words);
        self.is_over = true;
        Done {
            hash: self.hash,
            addresses_and_ports: addresses_and_ports(&self.words),
            route,
            standings: std::mem::take(&mut self.standings),
        }
    }
}
