//! The way in: which connection a packet is of, and the short way for packets of connections met lately.

use super::Conntrack;
use super::execute::{Pass, again, set_mark_and_label, translate};
use crate::connection::Connection;
use crate::extract::{self, Sighting};
use crate::recent::Recent;
use crate::request::{Carried, Checksums, Known, Moment, Outcome};
use crate::stamp::{self, ct_state};
use crate::states::Step;
use sluice_action::Ct;
use sluice_action::ct::Helper;
use sluice_flow::{PacketKey, layout};
use sluice_packet::Packet;
use sluice_packet::headers::ip_proto;

/// FTP's control port.
const FTP_PORT: u16 = 21;
/// TFTP's server port.
const TFTP_PORT: u16 = 69;

const _: () = assert!(layout::TP_DST.offset == layout::TP_SRC.offset + 2);

/// Whether a packet is of a control connection: of the protocol of the helper asked for, or by its port.
#[inline]
pub(super) fn control(key: &PacketKey, helper: Option<Helper>) -> Option<Helper> {
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
    pub(super) sighting: Option<Sighting>,
    pub(super) hash: u64,
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
            stamp::invalid(key, request.zone);
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
        let l4 = &pass.packet.bytes()[pass.sighting.l4..pass.sighting.end];
        let step = connection.update(&mut mutable, l4, pass.reply, self.checks_tcp_seq(), pass.moment.now_ms);
        let state = match step {
            Step::Valid(_) => {
                let reply = if pass.reply { ct_state::REPLY } else { 0 };
                (before | ct_state::ESTABLISHED | reply) & !ct_state::NEW
            }
            Step::StillNew(_) => before | ct_state::NEW,
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
        // A helper may have called it invalid on an earlier pass: then it stays so.
        Some(if pass.state() & ct_state::INVALID != 0 { Outcome::Invalid } else { Outcome::Tracked })
    }
}
