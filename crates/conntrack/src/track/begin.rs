//! The first packet of a connection.

use super::Conntrack;
use super::execute::{Pass, translate};
use crate::connection::{Beginning, Connection};
use crate::expectation::Expectation;
use crate::limits::Admission;
use crate::nat;
use crate::request::{Outcome, Refusal};
use crate::stamp::ct_state;
use crate::states::{self, State};
use crate::table::Taken;
use crate::tuple::Tuple;
use sluice_action::ct::Helper;
use sluice_action::ct::NatTarget;
use std::sync::Arc;

/// Tries to insert with a tuple chosen anew, after another PMD took the one chosen first.
const RACES_MAX: usize = 16;

/// Why a begun connection is not there.
enum Failure {
    /// It may not be.
    Refused(Refusal),
    /// Another PMD has begun it.
    Begun,
}

impl Conntrack {
    /// Begins a connection with the packet, if it is asked for and can be. `None` if another PMD has begun it meanwhile.
    pub(super) fn begin(
        &self,
        pass: &mut Pass<'_>,
        expected: Option<&Expectation>,
    ) -> Option<(Option<Arc<Connection>>, Outcome)> {
        if !states::may_begin(&pass.sighting.tuple, pass.l4()) {
            pass.set_state(ct_state::INVALID);
            return Some((None, Outcome::Invalid));
        }
        let related = if expected.is_some() { ct_state::RELATED } else { 0 };
        pass.set_state(ct_state::NEW | related);
        pass.reply = false;
        if !pass.request.commit && !pass.request.force {
            return Some((None, Outcome::Tracked));
        }
        match self.make(pass, expected) {
            Ok(connection) => {
                translate(pass, &connection);
                Some((Some(connection), Outcome::Committed))
            }
            Err(Failure::Refused(refusal)) => Some((None, Outcome::Refused(refusal))),
            Err(Failure::Begun) => {
                pass.set_state(0);
                None
            }
        }
    }

    /// Makes the connection and puts it into the table, unless it is there.
    fn make(&self, pass: &Pass<'_>, expected: Option<&Expectation>) -> Result<Arc<Connection>, Failure> {
        let is_there = || !self.table.is_free(&pass.sighting.tuple, pass.moment.now_ms);
        if is_there() {
            return Err(Failure::Begun);
        }
        match self.try_make(pass, expected) {
            // Another PMD may have begun this very connection meanwhile and with it used up the last place or port.
            Err(Failure::Refused(_)) if is_there() => Err(Failure::Begun),
            result => result,
        }
    }

    fn try_make(&self, pass: &Pass<'_>, expected: Option<&Expectation>) -> Result<Arc<Connection>, Failure> {
        let exhausted = Err(Failure::Refused(Refusal::NatExhausted));
        let mut entropy = pass.moment.entropy;
        for _ in 0..RACES_MAX {
            let admission = self.limits.admit(pass.sighting.tuple.zone).map_err(Failure::Refused)?;
            let Some((reply, target)) = self.reply_tuple(pass, expected, entropy) else {
                self.limits.release(&admission);
                return exhausted;
            };
            let connection = Arc::new(self.connection(pass, expected, reply, target, admission));
            let Err(taken) = self.table.insert(&connection, pass.moment.now_ms) else { return Ok(connection) };
            self.limits.release(&connection.admission);
            match taken {
                Taken::Original => return Err(Failure::Begun),
                // Chosen anew, it will be another; without a choice it would be the same.
                Taken::Reply if target.is_some() && expected.is_none() => entropy = entropy.wrapping_add(1),
                Taken::Reply => return exhausted,
            }
        }
        exhausted
    }

    /// What answers will look like, and what NAT changes. `None` if NAT found nothing free.
    fn reply_tuple(
        &self,
        pass: &Pass<'_>,
        expected: Option<&Expectation>,
        entropy: u64,
    ) -> Option<(Tuple, Option<NatTarget>)> {
        let original = &pass.sighting.tuple;
        let mut reply = original.reversed();
        let Some(spec) = &pass.request.nat else { return Some((reply, None)) };
        if let Some(expected) = expected {
            match expected.target {
                NatTarget::Src => reply.dst.addr = expected.addr,
                NatTarget::Dst => reply.src.addr = expected.addr,
            }
            return Some((reply, Some(expected.target)));
        }
        let Some(target) = spec.target else { return Some((reply, None)) };
        let is_free = |tuple: &Tuple| self.table.is_free(tuple, pass.moment.now_ms);
        let reply = nat::choose(spec, target, original, (self.table.key(), entropy), is_free)?;
        Some((reply, Some(target)))
    }

    fn connection(
        &self,
        pass: &Pass<'_>,
        expected: Option<&Expectation>,
        reply: Tuple,
        nat: Option<NatTarget>,
        admission: Admission,
    ) -> Connection {
        let original = pass.sighting.tuple;
        let (state, timeout) =
            State::begin(&original, pass.l4()).expect("invariant: a TCP header was read when it was asked may_begin");
        // A control connection is helped only by the helper of its protocol; one of neither by any that was named.
        let fits = |helper: &Helper| pass.control.is_none_or(|control| control == *helper);
        let from = Beginning {
            original,
            reply,
            parent: expected.map(|expected| Box::new(expected.parent)),
            nat,
            helper: pass.request.helper.filter(fits),
            admission,
            timeouts: self.timeouts.in_force(original.zone),
            mark: expected.map_or(0, |expected| expected.mark),
            label: expected.map_or(0, |expected| expected.label),
            state,
            timeout,
        };
        Connection::new(from, pass.moment.now_ms)
    }
}
