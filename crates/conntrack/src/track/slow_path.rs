//! The slow path, which handles every packet.

use super::Conntrack;
use crate::conn_key::ConnKey;
use crate::connection::Connection;
use crate::expectation::Expectation;
use crate::ftp;
use crate::key_fields::{self, ct_state};
use crate::request::{CtInput, CtOutcome};
use crate::rewrite;
use crate::states::CtUpdate;
use sluice_action::Ct;
use sluice_action::ct::Helper;
use sluice_action::ct::NatTarget;
use sluice_flow::PacketKey;
use sluice_packet::Packet;
use std::sync::Arc;

/// A packet in the tracker, and what is known about it.
pub(crate) struct CtContext<'a> {
    pub packet: &'a mut Packet,
    pub key: &'a mut PacketKey,
    pub request: &'a Ct,
    pub input: &'a CtInput,
    pub conn_key: ConnKey,
    /// It is in the reply direction.
    pub reply: bool,
    /// It belongs to a helper's control connection.
    pub control: Option<Helper>,
}

impl CtContext<'_> {
    pub fn l4(&self) -> &[u8] {
        &self.packet.bytes()[self.conn_key.l4..self.conn_key.end]
    }

    pub fn state(&self) -> u8 {
        key_fields::state(self.key)
    }

    pub fn set_state(&mut self, state: u8) {
        key_fields::set_state(self.key, state);
    }
}

impl Conntrack {
    /// Tracks any packet.
    pub(super) fn process(&self, ctx: &mut CtContext<'_>) -> (Option<Arc<Connection>>, CtOutcome) {
        if ctx.state() != 0 && key_fields::zone(ctx.key) != ctx.request.zone {
            ctx.set_state(0);
        }
        let (mut connection, mut expected, mut outcome) = (None, None, CtOutcome::Tracked);
        // Again if another PMD was faster to begin the same connection, but not for ever.
        for _ in 0..4 {
            connection = self.look(ctx);
            match self.meet(ctx, &mut connection) {
                Met::Known => {}
                Met::Nothing => {
                    ctx.set_state(ct_state::INVALID);
                    outcome = CtOutcome::Invalid;
                }
                Met::First => {
                    expected = self.expectations.find(&ctx.conn_key.tuple);
                    match self.begin(ctx, expected.as_ref()) {
                        Some((begun, what)) => (connection, outcome) = (begun, what),
                        None => continue,
                    }
                }
            }
            break;
        }
        write(ctx, connection.as_ref(), expected.as_ref());
        if let Some(connection) = &connection {
            self.help(ctx, connection);
        }
        if ctx.state() & ct_state::INVALID != 0 {
            outcome = CtOutcome::Invalid;
        }
        (connection, outcome)
    }

    /// Finds the packet's connection. A packet that was translated on an earlier pass is found by the reversed tuple.
    fn look(&self, ctx: &mut CtContext<'_>) -> Option<Arc<Connection>> {
        let tuple = &mut ctx.conn_key.tuple;
        if key_fields::state(ctx.key) & ct_state::NAT == 0 {
            let (connection, reply) = self.table.find(tuple, ctx.input.now_ms)?;
            ctx.reply = reply;
            return Some(connection);
        }
        let (connection, against) = self.table.find(&tuple.reversed(), ctx.input.now_ms)?;
        ctx.reply = !against;
        *tuple = if ctx.reply { connection.reply } else { connection.original };
        Some(connection)
    }

    /// Updates the packet's connection, if it has one.
    fn meet(&self, ctx: &mut CtContext<'_>, connection: &mut Option<Arc<Connection>>) -> Met {
        if ctx.request.force
            && ctx.reply
            && let Some(wrong_way) = connection.take()
        {
            wrong_way.end();
            ctx.reply = false;
        }
        if let Some(connection) = connection {
            let is_over = self.update_with_helper(ctx, connection);
            if ctx.request.nat.is_some() && !is_over {
                translate(ctx, connection);
            }
            return if is_over { Met::First } else { Met::Known };
        }
        if ctx.state() & ct_state::NAT != 0
            && ctx.request.nat.is_none()
            && let Some(original) = key_fields::original(ctx.key, &ctx.conn_key.tuple)
            && let Some((found, _)) = self.table.find(&original, ctx.input.now_ms)
        {
            let is_over = self.update(ctx, &found);
            *connection = Some(found);
            return if is_over { Met::First } else { Met::Known };
        }
        if ctx.conn_key.related { Met::Nothing } else { Met::First }
    }

    /// Moves the connection's state on, and writes the packet's state. True if the packet ends the connection and
    /// begins another.
    fn update(&self, ctx: &mut CtContext<'_>, connection: &Connection) -> bool {
        let mut state = ctx.state();
        let reply = if ctx.reply { ct_state::REPLY } else { 0 };
        if ctx.conn_key.related {
            ctx.set_state(state | ct_state::RELATED | reply);
            return false;
        }
        if connection.parent.is_some() {
            state |= ct_state::RELATED;
        }
        match connection.update(ctx.l4(), ctx.reply, self.checks_tcp_seq(), ctx.input.now_ms) {
            CtUpdate::Valid(_) => ctx.set_state((state | ct_state::ESTABLISHED | reply) & !ct_state::NEW),
            CtUpdate::ValidNew(_) => ctx.set_state(state | ct_state::NEW),
            CtUpdate::Invalid => ctx.set_state(ct_state::INVALID),
            CtUpdate::New => {
                ctx.set_state(state);
                connection.end();
                return true;
            }
        }
        false
    }

    /// As `update`, for a control connection whose sequence numbers a helper has shifted: the state follows the numbers
    /// of the end that sent them.
    fn update_with_helper(&self, ctx: &mut CtContext<'_>, connection: &Connection) -> bool {
        let skew = connection.skew();
        if ctx.control != Some(Helper::Ftp) || skew.bytes == 0 || ctx.request.nat.is_none() {
            return self.update(ctx, connection);
        }
        let is_plain = !ftp::is_announcement(ctx.l4(), ctx.conn_key.tuple.v6);
        let against = ctx.reply != skew.in_reply;
        if against && is_plain {
            ftp::shift(ctx.packet, &ctx.conn_key, skew, ctx.reply);
        }
        let is_over = self.update(ctx, connection);
        if !against && is_plain && !is_over {
            ftp::shift(ctx.packet, &ctx.conn_key, skew, ctx.reply);
        }
        is_over
    }

    /// Lets the connection's helper read the packet.
    fn help(&self, ctx: &mut CtContext<'_>, connection: &Connection) {
        if connection.helper.is_none() {
            return;
        }
        let reply = ctx.state() & ct_state::REPLY != 0;
        match ctx.control {
            Some(Helper::Ftp) => ftp::read(ctx, connection, &self.expectations),
            Some(Helper::Tftp) => {
                self.expectations.add(connection.original.src.port, connection, reply, connection.marks());
            }
            None => {}
        }
    }
}

/// How a packet relates to the existing connections.
enum Met {
    /// It belongs to one.
    Known,
    /// It would begin one.
    First,
    /// It is an error about no known connection.
    Nothing,
}

/// Translates a packet as its connection requires, unless that has been done.
pub(super) fn translate(ctx: &mut CtContext<'_>, connection: &Connection) {
    let (Some(target), state) = (connection.nat, ctx.state()) else { return };
    if state & ct_state::NAT != 0 && key_fields::zone(ctx.key) == ctx.request.zone {
        return;
    }
    let target = if ctx.reply { target.flipped() } else { target };
    let done = match target {
        NatTarget::Src => ct_state::SRC_NAT,
        NatTarget::Dst => ct_state::DST_NAT,
    };
    ctx.set_state(state & !ct_state::NAT | done);
    rewrite::translate(ctx.packet, ctx.key, &ctx.conn_key, &connection.translated(ctx.reply), target);
}

/// Writes the result into the key.
fn write(ctx: &mut CtContext<'_>, connection: Option<&Arc<Connection>>, expected: Option<&Expectation>) {
    ctx.set_state(ctx.state() | ct_state::TRACKED);
    let zone = ctx.request.zone;
    match (connection, expected) {
        (Some(connection), _) => {
            let (mark, label) = set_mark_and_label(ctx.request, connection);
            key_fields::write(ctx.key, zone, mark, label);
            key_fields::write_original(ctx.key, Some(connection.parent.as_deref().unwrap_or(&connection.original)));
        }
        (None, Some(expected)) => {
            key_fields::write(ctx.key, zone, expected.mark, expected.label);
            key_fields::write_original(ctx.key, Some(&expected.parent));
        }
        (None, None) => {
            key_fields::write(ctx.key, zone, 0, 0);
            key_fields::write_original(ctx.key, Some(&ctx.conn_key.tuple));
        }
    }
}

/// Sets mark and label as requested, and returns them; a data connection keeps those of its control connection.
#[inline]
pub(super) fn set_mark_and_label(request: &Ct, connection: &Connection) -> (u32, u128) {
    let is_asked = request.mark.is_some() || request.label.is_some();
    if is_asked && connection.parent.is_none() {
        connection.set_marks(request.mark, request.label)
    } else {
        connection.marks()
    }
}

/// Handles a packet that this zone has already tracked: the state does not move on.
pub(super) fn track_again(ctx: &mut CtContext<'_>, connection: &Connection) {
    if ctx.request.nat.is_some() {
        translate(ctx, connection);
    }
    let (mark, label) = set_mark_and_label(ctx.request, connection);
    key_fields::write(ctx.key, ctx.request.zone, mark, label);
}
