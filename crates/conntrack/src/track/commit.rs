//! Committing a connection with its first packet.

use super::Conntrack;
use super::slow_path::{CtContext, translate};
use crate::connection::{Connection, NewConnection};
use crate::expectation::Expectation;
use crate::key_fields::ct_state;
use crate::limits::Admission;
use crate::nat;
use crate::request::{CommitError, CtOutcome};
use crate::states::{self, ConnState};
use crate::table::TupleInUse;
use crate::tuple::Tuple;
use sluice_action::ct::Helper;
use sluice_action::ct::NatTarget;
use std::sync::Arc;

/// Attempts to insert with another tuple, after another PMD took the chosen one.
const RACES_MAX: usize = 16;

/// Why a connection was not committed.
enum Failure {
    /// A limit, or no free NAT tuple.
    Refused(CommitError),
    /// Another PMD has committed it.
    Begun,
}

impl Conntrack {
    /// Begins a connection with the packet, if the action asks for it and the packet may. `None` if another PMD has
    /// done so meanwhile.
    pub(super) fn begin(
        &self,
        ctx: &mut CtContext<'_>,
        expected: Option<&Expectation>,
    ) -> Option<(Option<Arc<Connection>>, CtOutcome)> {
        if !states::may_begin(&ctx.conn_key.tuple, ctx.l4()) {
            ctx.set_state(ct_state::INVALID);
            return Some((None, CtOutcome::Invalid));
        }
        let related = if expected.is_some() { ct_state::RELATED } else { 0 };
        ctx.set_state(ct_state::NEW | related);
        ctx.reply = false;
        if !ctx.request.commit && !ctx.request.force {
            return Some((None, CtOutcome::Tracked));
        }
        match self.make(ctx, expected) {
            Ok(connection) => {
                translate(ctx, &connection);
                Some((Some(connection), CtOutcome::Committed))
            }
            Err(Failure::Refused(refusal)) => Some((None, CtOutcome::NotCommitted(refusal))),
            Err(Failure::Begun) => {
                ctx.set_state(0);
                None
            }
        }
    }

    /// Makes the connection and inserts it, unless it exists.
    fn make(&self, ctx: &CtContext<'_>, expected: Option<&Expectation>) -> Result<Arc<Connection>, Failure> {
        let is_there = || !self.table.is_free(&ctx.conn_key.tuple, ctx.input.now_ms);
        if is_there() {
            return Err(Failure::Begun);
        }
        match self.try_make(ctx, expected) {
            // Another PMD may have committed this very connection meanwhile, and thereby used the last place or port.
            Err(Failure::Refused(_)) if is_there() => Err(Failure::Begun),
            result => result,
        }
    }

    fn try_make(&self, ctx: &CtContext<'_>, expected: Option<&Expectation>) -> Result<Arc<Connection>, Failure> {
        let exhausted = Err(Failure::Refused(CommitError::NatExhausted));
        let mut entropy = ctx.input.entropy;
        for _ in 0..RACES_MAX {
            let admission = self.limits.admit(ctx.conn_key.tuple.zone).map_err(Failure::Refused)?;
            let Some((reply, target)) = self.reply_tuple(ctx, expected, entropy) else {
                self.limits.release(&admission);
                return exhausted;
            };
            let connection = Arc::new(self.connection(ctx, expected, reply, target, admission));
            let Err(taken) = self.table.insert(&connection, ctx.input.now_ms) else { return Ok(connection) };
            self.limits.release(&connection.admission);
            match taken {
                TupleInUse::Original => return Err(Failure::Begun),
                // A new choice gives another tuple; without a choice the tuple would be the same.
                TupleInUse::Reply if target.is_some() && expected.is_none() => entropy = entropy.wrapping_add(1),
                TupleInUse::Reply => return exhausted,
            }
        }
        exhausted
    }

    /// The reply tuple, and what NAT changes. `None` if NAT found no free tuple.
    fn reply_tuple(
        &self,
        ctx: &CtContext<'_>,
        expected: Option<&Expectation>,
        entropy: u64,
    ) -> Option<(Tuple, Option<NatTarget>)> {
        let original = &ctx.conn_key.tuple;
        let mut reply = original.reversed();
        let Some(spec) = &ctx.request.nat else { return Some((reply, None)) };
        if let Some(expected) = expected {
            match expected.target {
                NatTarget::Src => reply.dst.addr = expected.addr,
                NatTarget::Dst => reply.src.addr = expected.addr,
            }
            return Some((reply, Some(expected.target)));
        }
        let Some(target) = spec.target else { return Some((reply, None)) };
        let is_free = |tuple: &Tuple| self.table.is_free(tuple, ctx.input.now_ms);
        let reply = nat::choose(spec, target, original, (self.table.key(), entropy), is_free)?;
        Some((reply, Some(target)))
    }

    fn connection(
        &self,
        ctx: &CtContext<'_>,
        expected: Option<&Expectation>,
        reply: Tuple,
        nat: Option<NatTarget>,
        admission: Admission,
    ) -> Connection {
        let original = ctx.conn_key.tuple;
        let (state, timeout) = ConnState::begin(&original, ctx.l4())
            .expect("invariant: a TCP header was read when it was asked may_begin");
        // A control connection is helped only by its protocol's helper; any other connection by the helper that is
        // named.
        let fits = |helper: &Helper| ctx.control.is_none_or(|control| control == *helper);
        let from = NewConnection {
            original,
            reply,
            parent: expected.map(|expected| Box::new(expected.parent)),
            nat,
            helper: ctx.request.helper.filter(fits),
            admission,
            timeouts: self.timeouts.in_force(original.zone),
            mark: expected.map_or(0, |expected| expected.mark),
            label: expected.map_or(0, |expected| expected.label),
            state,
            timeout,
        };
        Connection::new(from, ctx.input.now_ms)
    }
}
