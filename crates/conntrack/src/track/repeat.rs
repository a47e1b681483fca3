//! The shortest way: what `ct` did to a packet, done to the next one of the same tuple, its connection at hand.
//!
//! The state moves on as ever; what is left out is finding the connection, and writing into the key what the caller knows.

use super::Conntrack;
use super::enter::control;
use crate::connection::Connection;
use crate::extract;
use crate::recent::Recent;
use crate::request::{Carried, Checksums, Known, Outcome};
use crate::stamp::{self, ct_state};
use crate::states::Step;
use sluice_action::Ct;
use sluice_flow::{PacketKey, layout};
use sluice_packet::Packet;
use sluice_packet::headers::ip_proto;
use std::ops::Range;
use std::sync::Arc;

/// A packet's connection, to be met again by packets of the same tuple, in the same zone.
#[derive(Clone, Debug)]
pub struct Standing(Arc<Connection>);

const _: () = assert!(size_of::<Option<Standing>>() == 8);

/// What a `ct` wrote into a packet's key, and in which direction of its connection the packet went. The original tuple,
/// which it wrote too, is the connection's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// `ct_state`.
    pub state: u8,
    /// `ct_zone`.
    pub zone: u16,
    /// Against the direction of the connection's first packet.
    pub reply: bool,
    /// Whether a later `ct` in the zone knows the packet again ([`Carried`]).
    pub is_carried: bool,
    /// `ct_mark` and `ct_label`; `None` if it is all the same to whoever reads the stamp.
    pub marks: Option<(u32, u128)>,
}

/// What became of a packet that was to be tracked as one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeated {
    /// It is tracked, and its key would have the stamp. The key is as it was.
    Same,
    /// It is tracked, and what was found is another thing than the stamp. It stands in the key.
    Other(Outcome),
}

/// Where the L4 header and payload of a packet are that may be tracked as one before it.
#[derive(Clone, Debug)]
pub struct Body {
    l4: Range<usize>,
    is_tcp: bool,
}

/// Where in a TCP header the flags are.
const FLAGS_AT: usize = 13;
/// TCP flags of segments that open and close connections.
const OPEN_OR_CLOSE: u8 = 0x07;
const ACK: u8 = 0x10;

impl Standing {
    /// Asks the processor for what a packet reads of the connection.
    #[inline]
    pub fn prefetch(&self) {
        sluice_simd::prefetch::read(Arc::as_ptr(&self.0));
    }

    /// Whether its connection is there. If so, no other live one has its tuples.
    #[inline]
    pub fn is_live(&self, now_ms: u64) -> bool {
        !self.0.is_over(now_ms)
    }

    /// Whether its connection has been taken out of the table.
    pub fn is_removed(&self) -> bool {
        self.0.is_removed()
    }
}

impl Conntrack {
    /// How a packet that `request` has just tracked stands, and what was written into its key. `None` if packets like it
    /// have to go the whole way each time: those of no connection, translated ones, control connections of helpers, and
    /// whatever is not TCP or UDP; or if the request does more to a connection than follow it.
    pub fn standing(
        &self,
        recent: &Recent,
        (packet, key): (&Packet, &PacketKey),
        request: &Ct,
        now_ms: u64,
    ) -> Option<(Standing, Stamp)> {
        if request.force || request.mark.is_some() || request.label.is_some() || control(key, request.helper).is_some()
        {
            return None;
        }
        // Checksums were looked at when it was tracked.
        let sought = self.seek(recent, packet, request.zone, Checksums::Good);
        let tuple = sought.sighting.filter(|sighting| !sighting.related)?.tuple;
        let (connection, reply) = recent.find(sought.hash, &tuple, now_ms)?;
        let state = stamp::state(key);
        let is_plain = state & (ct_state::INVALID | ct_state::NAT) == 0 && stamp::zone(key) == request.zone;
        if !tuple.has_ports() || !is_plain {
            return None;
        }
        let label = key.get(layout::CT_LABEL).first_chunk().map_or(0, |label| u128::from_be_bytes(*label));
        let marks = Some((key.number(layout::CT_MARK) as u32, label));
        Some((
            Standing(connection.clone()),
            Stamp { state, zone: request.zone, reply, is_carried: request.nat.is_none(), marks },
        ))
    }

    /// Where in a packet its L4 header and payload are, if it may be tracked as one before: a sound one of TCP or UDP that
    /// does not open or close a connection.
    #[inline]
    pub fn body(packet: &Packet) -> Option<Body> {
        let bytes = packet.bytes();
        let (l4, proto) = extract::plain_body(bytes).or_else(|| {
            let sighting = extract::sight(bytes, 0, Checksums::Unknown).filter(|sighting| !sighting.related)?;
            Some((sighting.l4..sighting.end, sighting.tuple.proto))
        })?;
        match proto {
            ip_proto::UDP => Some(Body { l4, is_tcp: false }),
            ip_proto::TCP => {
                (bytes[l4.start + FLAGS_AT] & (OPEN_OR_CLOSE | ACK) == ACK).then_some(Body { l4, is_tcp: true })
            }
            _ => None,
        }
    }

    /// Tracks a packet of a standing whose connection is live, in the zone of `stamp`. `body` is [`Conntrack::body`] of it.
    #[inline]
    pub fn repeat(
        &self,
        standing: &Standing,
        (packet, body): (&Packet, &Body),
        key: &mut PacketKey,
        stamp: &Stamp,
        now_ms: u64,
        carried: &mut Carried,
    ) -> Repeated {
        let connection = &*standing.0;
        let settled = if body.is_tcp { None } else { connection.update_settled(now_ms) };
        let step = settled.unwrap_or_else(|| {
            let l4 = &packet.bytes()[body.l4.clone()];
            connection.update(&mut connection.lock(), l4, stamp.reply, self.checks_tcp_seq(), now_ms)
        });
        let related = if connection.is_related { ct_state::RELATED } else { 0 };
        let reply = if stamp.reply { ct_state::REPLY } else { 0 };
        let state = ct_state::TRACKED
            | match step {
                Step::Valid(_) => ct_state::ESTABLISHED | reply | related,
                Step::StillNew(_) => ct_state::NEW | related,
                Step::Invalid | Step::Replaced => ct_state::INVALID,
            };
        if state == stamp.state && stamp.marks.is_none_or(|marks| marks == connection.marks()) {
            return Repeated::Same;
        }
        let (mark, label) = connection.marks();
        stamp::set_state(key, state);
        stamp::write_all(key, stamp.zone, mark, label, connection.parent.as_deref().unwrap_or(&connection.original));
        *carried = Carried(stamp.is_carried.then(|| Known::of(connection)));
        Repeated::Other(if state & ct_state::INVALID != 0 { Outcome::Invalid } else { Outcome::Tracked })
    }
}
