//! One packet through the tracker.

use super::Conntrack;
use crate::connection::{Connection, Mutable};
use crate::expectation::Expectation;
use crate::extract::{self, Sighting};
use crate::ftp;
use crate::recent::Recent;
use crate::request::{Carried, Checksums, Known, Moment, Outcome};
use crate::rewrite;
use crate::stamp::{self, ct_state};
use crate::states::Step;
use sluice_action::Ct;
use sluice_action::ct::Helper;
use sluice_action::ct::NatTarget;
use sluice_flow::{PacketKey, layout};
use sluice_packet::Packet;
use sluice_packet::headers::ip_proto;
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

/// FTP's control port.
const FTP_PORT: u16 = 21;
/// TFTP's server port.
const TFTP_PORT: u16 = 69;

const _: () = assert!(layout::TP_DST.offset == layout::TP_SRC.offset + 2);

/// Whether a packet is of a control connection: of the protocol of the helper asked for, or by its port.
#[inline]
fn control(key: &PacketKey, helper: Option<Helper>) -> Option<Helper> {
    let ports = &key.lines[0].0[layout::TP_SRC.offset..][..4];
    let (src, dst) = (u16::from_be_bytes([ports[0], ports[1]]), u16::from_be_bytes([ports[2], ports[3]]));
    match key.get(layout::NW_PROTO)[0] {
        ip_proto::TCP if helper == Some(Helper::Ftp) || src == FTP_PORT || dst == FTP_PORT => Some(Helper::Ftp),
        ip_proto::UDP if helper == Some(Helper::Tftp) || dst == TFTP_PORT => Some(Helper::Tftp),
        _ => None,
    }
}

/// A packet's connection by name, and where to look for it first.
#[derive(Clone, Copy, Debug)]
pub struct Sought {
    sighting: Option<Sighting>,
    hash: u64,
}

impl Sought {
    /// A packet that can be of no connection.
    pub const NOTHING: Sought = Sought { sighting: None, hash: 0 };
}

impl Conntrack {
    /// Reads the name of a packet's connection, and asks for the place to look for it. The first of three steps of which
    /// each is best done for a whole batch before the next.
    #[inline]
    pub fn seek(&self, recent: &Recent, packet: &Packet, zone: u16, checksums: Checksums) -> Sought {
        let Some(sighting) = extract::sight(packet.bytes(), zone, checksums) else { return Sought::NOTHING };
        let hash = sighting.tuple.hash(self.table.key());
        recent.prefetch(hash);
        Sought { sighting: Some(sighting), hash }
    }

    /// Asks for the connection itself: the second step.
    #[inline]
    pub fn approach(&self, recent: &Recent, sought: &Sought) {
        if sought.sighting.is_some() {
            recent.prefetch_connection(sought.hash);
        }
    }

    /// Tracks a packet: what a `ct(…)` action does to it, but for recirculating.
    ///
    /// `key` is the packet's: it has the state of an earlier pass, and gets this one's; where NAT rewrites the packet,
    /// addresses and ports in the key are rewritten too. See [`Carried`] for what to do with `carried`.
    #[inline]
    pub fn execute(
        &self,
        recent: &mut Recent,
        packet: &mut Packet,
        key: &mut PacketKey,
        request: &Ct,
        moment: &Moment,
        carried: &mut Carried,
    ) -> Outcome {
        let sought = self.seek(recent, packet, request.zone, moment.checksums);
        self.execute_sought(recent, &sought, (packet, key), request, moment, carried)
    }

    /// The third step: as [`Conntrack::execute`], for a packet that has been sought and not been changed since.
    #[inline]
    pub fn execute_sought(
        &self,
        recent: &mut Recent,
        sought: &Sought,
        (packet, key): (&mut Packet, &mut PacketKey),
        request: &Ct,
        moment: &Moment,
        carried: &mut Carried,
    ) -> Outcome {
        let control = control(key, request.helper);
        let known = carried.0.take_if(|known| known.zone == request.zone && !request.force && control.is_none());
        carried.forget();
        let Some(sighting) = sought.sighting else {
            stamp::set_state(key, ct_state::INVALID | ct_state::TRACKED);
            stamp::write(key, request.zone, 0, 0);
            stamp::write_original(key, None);
            return Outcome::Invalid;
        };
        let mut pass = Pass { packet, key, request, moment, sighting, reply: false, control };
        if known.is_none()
            && let Some((connection, reply)) = recent.find(sought.hash, &sighting.tuple, moment.now_ms)
        {
            pass.reply = reply;
            if let Some(outcome) = self.meet_recent(&mut pass, connection) {
                *carried = Carried(request.nat.is_none().then(|| Known::of(connection)));
                return outcome;
            }
        }
        self.execute_in_full(recent, sought.hash, &mut pass, known, carried)
    }

    #[inline(never)]
    fn execute_in_full(
        &self,
        recent: &mut Recent,
        hash: u64,
        pass: &mut Pass<'_>,
        known: Option<Known>,
        carried: &mut Carried,
    ) -> Outcome {
        let now_ms = pass.moment.now_ms;
        if let Some(known) = known
            && let Some((connection, reply)) = self.table.find(&pass.sighting.tuple, now_ms)
            && Known::of(&connection) == known
        {
            pass.reply = reply;
            again(pass, &connection);
            *carried = Carried(pass.request.nat.is_none().then_some(known));
            return Outcome::Tracked;
        }
        let (connection, outcome) = self.process(pass);
        if let Some(connection) = &connection {
            // A packet of a translated connection may have been looked for by another tuple than its own.
            if connection.direction(&pass.sighting.tuple).is_some()
                && recent.find(hash, &pass.sighting.tuple, now_ms).is_none()
                && pass.sighting.tuple.hash(self.table.key()) == hash
            {
                recent.insert(hash, connection, now_ms);
            }
            *carried = Carried(pass.request.nat.is_none().then(|| Known::of(connection)));
        }
        outcome
    }

    /// A packet of a connection met lately, that no application-level gateway reads: one hold of its lock. `None` if it
    /// is not so simple; then the packet goes the long way, which does the same to all packets.
    #[inline]
    fn meet_recent(&self, pass: &mut Pass<'_>, connection: &Connection) -> Option<Outcome> {
        let request = pass.request;
        let before = if stamp::zone(pass.key) == request.zone { pass.state() } else { 0 };
        if request.force || pass.control.is_some() || pass.sighting.related || before & ct_state::NAT != 0 {
            return None;
        }
        let mut mutable = connection.lock();
        let step = mutable.state.update(
            &pass.packet.bytes()[pass.sighting.l4..pass.sighting.end],
            pass.reply,
            self.checks_tcp_seq(),
        );
        let state = match step {
            Step::Valid(timeout) => {
                timeout.iter().for_each(|timeout| connection.prolong(*timeout, pass.moment.now_ms));
                let reply = if pass.reply { ct_state::REPLY } else { 0 };
                (before | ct_state::ESTABLISHED | reply) & !ct_state::NEW
            }
            Step::StillNew(timeout) => {
                connection.prolong(timeout, pass.moment.now_ms);
                before | ct_state::NEW
            }
            Step::Invalid => ct_state::INVALID,
            Step::Replaced => {
                connection.end();
                return None;
            }
        };
        let related = if connection.parent.is_some() && step != Step::Invalid { ct_state::RELATED } else { 0 };
        pass.set_state(state | related);
        if request.nat.is_some() {
            translate(pass, connection);
        }
        pass.set_state(pass.state() | ct_state::TRACKED);
        set_mark_and_label(&mut mutable, request, connection);
        let (mark, label) = (mutable.mark, mutable.label);
        drop(mutable);
        let original = connection.parent.as_deref().unwrap_or(&connection.original);
        stamp::write_all(pass.key, request.zone, mark, label, original);
        Some(if step == Step::Invalid { Outcome::Invalid } else { Outcome::Tracked })
    }

    fn process(&self, pass: &mut Pass<'_>) -> (Option<Arc<Connection>>, Outcome) {
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
        match connection.update(pass.l4(), pass.reply, self.checks_tcp_seq(), pass.moment.now_ms) {
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
fn set_mark_and_label(mutable: &mut Mutable, request: &Ct, connection: &Connection) {
    if connection.parent.is_some() {
        return;
    }
    if let Some(mark) = request.mark {
        mutable.mark = mark.value | mutable.mark & !mark.mask;
    }
    if let Some(label) = request.label {
        mutable.label = label.value | mutable.label & !label.mask;
    }
}

/// A packet that has been through this zone: no state moves on.
fn again(pass: &mut Pass<'_>, connection: &Connection) {
    if pass.request.nat.is_some() {
        translate(pass, connection);
    }
    let mut mutable = connection.lock();
    set_mark_and_label(&mut mutable, pass.request, connection);
    stamp::write(pass.key, pass.request.zone, mutable.mark, mutable.label);
}
