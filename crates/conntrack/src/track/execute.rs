//! One packet through the tracker: the long way.

use super::Conntrack;
use crate::connection::{Connection, Mutable};
use crate::expectation::Expectation;
use crate::extract::Sighting;
use crate::ftp;
use crate::request::{Moment, Outcome};
use crate::rewrite;
use crate::stamp::{self, ct_state};
use crate::states::Step;
use sluice_action::Ct;
use sluice_action::ct::Helper;
use sluice_action::ct::NatTarget;
use sluice_flow::PacketKey;
use sluice_packet::Packet;
use std::sync::Arc;

/// A packet on its way through, and what has been found out about it.
pub(crate) struct Pass<'a> {
    pub packet: &'a mut Packet,
    pub key: &'a mut PacketKey,
    pub request: &'a Ct,
    pub moment: &'a Moment,
    pub sighting: Sighting,
    /// It goes against the direction of the connection's first packet.
    pub reply: bool,
    /// It is of a control connection.
    pub control: Option<Helper>,
}

impl Pass<'_> {
    pub fn l4(&self) -> &[u8] {
        &self.packet.bytes()[self.sighting.l4..self.sighting.end]
    }

    pub fn state(&self) -> u8 {
        stamp::state(self.key)
    }

    pub fn set_state(&mut self, state: u8) {
        stamp::set_state(self.key, state);
    }
}

impl Conntrack {
    /// A packet that is not known to be simple.
    pub(super) fn process(&self, pass: &mut Pass<'_>) -> (Option<Arc<Connection>>, Outcome) {
        if pass.state() != 0 && stamp::zone(pass.key) != pass.request.zone {
            pass.set_state(0);
        }
        let (mut connection, mut expected, mut outcome) = (None, None, Outcome::Tracked);
        // Once more if another PMD was quicker to begin the same connection; not for ever.
        for _ in 0..4 {
            connection = self.look(pass);
            match self.meet(pass, &mut connection) {
                Met::Known => {}
                Met::Nothing => {
                    pass.set_state(ct_state::INVALID);
                    outcome = Outcome::Invalid;
                }
                Met::First => {
                    expected = self.expectations.find(&pass.sighting.tuple);
                    match self.begin(pass, expected.as_ref()) {
                        Some((begun, what)) => (connection, outcome) = (begun, what),
                        None => continue,
                    }
                }
            }
            break;
        }
        write(pass, connection.as_ref(), expected.as_ref());
        if let Some(connection) = &connection {
            self.help(pass, connection);
        }
        if pass.state() & ct_state::INVALID != 0 {
            outcome = Outcome::Invalid;
        }
        (connection, outcome)
    }

    /// Finds the packet's connection. One that has been translated on an earlier pass is found by its reverse.
    fn look(&self, pass: &mut Pass<'_>) -> Option<Arc<Connection>> {
        let tuple = &mut pass.sighting.tuple;
        if stamp::state(pass.key) & ct_state::NAT == 0 {
            let (connection, reply) = self.table.find(tuple, pass.moment.now_ms)?;
            pass.reply = reply;
            return Some(connection);
        }
        let (connection, against) = self.table.find(&tuple.reversed(), pass.moment.now_ms)?;
        pass.reply = !against;
        *tuple = if pass.reply { connection.reply } else { connection.original };
        Some(connection)
    }

    /// Takes the packet into its connection, if it has one.
    fn meet(&self, pass: &mut Pass<'_>, connection: &mut Option<Arc<Connection>>) -> Met {
        if pass.request.force
            && pass.reply
            && let Some(wrong_way) = connection.take()
        {
            wrong_way.end();
            pass.reply = false;
        }
        if let Some(connection) = connection {
            let is_over = self.update_with_helper(pass, connection);
            if pass.request.nat.is_some() && !is_over {
                translate(pass, connection);
            }
            return if is_over { Met::First } else { Met::Known };
        }
        if pass.state() & ct_state::NAT != 0
            && pass.request.nat.is_none()
            && let Some(original) = stamp::original(pass.key, &pass.sighting.tuple)
            && let Some((found, _)) = self.table.find(&original, pass.moment.now_ms)
        {
            let is_over = self.update(pass, &found);
            *connection = Some(found);
            return if is_over { Met::First } else { Met::Known };
        }
        if pass.sighting.related { Met::Nothing } else { Met::First }
    }

    /// Moves the connection's state on and says what the packet is in it. True if the packet ends the connection and
    /// begins another.
    fn update(&self, pass: &mut Pass<'_>, connection: &Connection) -> bool {
        let mut state = pass.state();
        let reply = if pass.reply { ct_state::REPLY } else { 0 };
        if pass.sighting.related {
            pass.set_state(state | ct_state::RELATED | reply);
            return false;
        }
        if connection.parent.is_some() {
            state |= ct_state::RELATED;
        }
        let mut mutable = connection.lock();
        let step = connection.update(&mut mutable, pass.l4(), pass.reply, self.checks_tcp_seq(), pass.moment.now_ms);
        drop(mutable);
        match step {
            Step::Valid(_) => pass.set_state((state | ct_state::ESTABLISHED | reply) & !ct_state::NEW),
            Step::StillNew(_) => pass.set_state(state | ct_state::NEW),
            Step::Invalid => pass.set_state(ct_state::INVALID),
            Step::Replaced => {
                pass.set_state(state);
                connection.end();
                return true;
            }
        }
        false
    }

    /// As `update`, but of a control connection whose sequence numbers a helper has shifted: the state follows those
    /// of the end that sent them.
    fn update_with_helper(&self, pass: &mut Pass<'_>, connection: &Connection) -> bool {
        let skew = connection.lock().skew;
        if pass.control != Some(Helper::Ftp) || skew.bytes == 0 || pass.request.nat.is_none() {
            return self.update(pass, connection);
        }
        let is_plain = !ftp::is_announcement(pass.l4(), pass.sighting.tuple.v6);
        let against = pass.reply != skew.in_reply;
        if against && is_plain {
            ftp::shift(pass.packet, &pass.sighting, skew, pass.reply);
        }
        let is_over = self.update(pass, connection);
        if !against && is_plain && !is_over {
            ftp::shift(pass.packet, &pass.sighting, skew, pass.reply);
        }
        is_over
    }

    /// Lets the connection's helper read the packet.
    fn help(&self, pass: &mut Pass<'_>, connection: &Connection) {
        if connection.helper.is_none() {
            return;
        }
        let reply = pass.state() & ct_state::REPLY != 0;
        match pass.control {
            Some(Helper::Ftp) => ftp::read(pass, connection, &self.expectations),
            Some(Helper::Tftp) => {
                let inherited = {
                    let mutable = connection.lock();
                    (mutable.mark, mutable.label)
                };
                self.expectations.add(connection.original.src.port, connection, reply, inherited);
            }
            None => {}
        }
    }
}

/// How a packet stands to the connections there are.
enum Met {
    /// It is of one.
    Known,
    /// It would be the first of one.
    First,
    /// It is an error about none.
    Nothing,
}

/// Translates a packet as its connection wants, unless that has been done.
pub(super) fn translate(pass: &mut Pass<'_>, connection: &Connection) {
    let (Some(target), state) = (connection.nat, pass.state()) else { return };
    if state & ct_state::NAT != 0 && stamp::zone(pass.key) == pass.request.zone {
        return;
    }
    let (target, sent_against) = match pass.reply {
        false => (target, &connection.reply),
        true => (target.flipped(), &connection.original),
    };
    let done = match target {
        NatTarget::Src => ct_state::SRC_NAT,
        NatTarget::Dst => ct_state::DST_NAT,
    };
    pass.set_state(state & !ct_state::NAT | done);
    rewrite::translate(pass.packet, pass.key, &pass.sighting, &sent_against.reversed(), target);
}

/// Writes what was found into the key.
fn write(pass: &mut Pass<'_>, connection: Option<&Arc<Connection>>, expected: Option<&Expectation>) {
    pass.set_state(pass.state() | ct_state::TRACKED);
    let zone = pass.request.zone;
    match (connection, expected) {
        (Some(connection), _) => {
            let (mark, label) = {
                let mut mutable = connection.lock();
                set_mark_and_label(&mut mutable, pass.request, connection);
                (mutable.mark, mutable.label)
            };
            stamp::write(pass.key, zone, mark, label);
            stamp::write_original(pass.key, Some(connection.parent.as_deref().unwrap_or(&connection.original)));
        }
        (None, Some(expected)) => {
            stamp::write(pass.key, zone, expected.mark, expected.label);
            stamp::write_original(pass.key, Some(&expected.parent));
        }
        (None, None) => {
            stamp::write(pass.key, zone, 0, 0);
            stamp::write_original(pass.key, Some(&pass.sighting.tuple));
        }
    }
}

/// Sets mark and label as asked for; a data connection keeps its control connection's.
#[inline]
pub(super) fn set_mark_and_label(mutable: &mut Mutable, request: &Ct, connection: &Connection) {
    if connection.parent.is_some() {
        return;
    }
    if request.mark.is_none() && request.label.is_none() {
        return;
    }
    connection.note_marked();
    if let Some(mark) = request.mark {
        mutable.mark = mark.value | mutable.mark & !mark.mask;
    }
    if let Some(label) = request.label {
        mutable.label = label.value | mutable.label & !label.mask;
    }
}

/// A packet that has been through this zone: no state moves on.
pub(super) fn again(pass: &mut Pass<'_>, connection: &Connection) {
    if pass.request.nat.is_some() {
        translate(pass, connection);
    }
    let mut mutable = connection.lock();
    set_mark_and_label(&mut mutable, pass.request, connection);
    stamp::write(pass.key, pass.request.zone, mutable.mark, mutable.label);
}
