//! The shortest path: doing to a packet what `ct` did to an earlier packet of the same tuple.
//!
//! The caller remembers the connection ([`ConnRef`]) and what was written into the earlier packet's key
//! ([`CtMetadata`]). A replay moves the connection's state on as always, and translates the packet if the connection has
//! NAT; it saves the lookup, and writing connection fields whose content the caller knows already.

use super::Conntrack;
use super::fast_path::control;
use crate::conn_cache::ConnCache;
use crate::conn_key::{self, ConnKey};
use crate::connection::Connection;
use crate::key_fields::{self, ct_state};
use crate::request::{CachedConn, Checksums, ConnId, CtOutcome, CtPacket};
use crate::rewrite;
use crate::states::CtUpdate;
use crate::tuple::Tuple;
use sluice_action::Ct;
use sluice_action::ct::NatTarget;
use sluice_flow::{PacketKey, layout};
use sluice_packet::Packet;
use sluice_packet::headers::{ETHERNET_SIZE, ip_proto};
use sluice_simd::Isa;
use std::sync::Arc;

/// A packet's connection, for later packets of the same tuple in the same zone.
#[derive(Clone, Debug)]
pub struct ConnRef(Arc<Connection>);

const _: () = assert!(size_of::<Option<ConnRef>>() == 8);

/// What a `ct` wrote into a packet's key, except for the original tuple, which follows from the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CtMetadata {
    /// `ct_state`.
    pub state: u8,
    /// `ct_zone`.
    pub zone: u16,
    /// The packet goes against the direction of the connection's first packet.
    pub reply: bool,
    /// A later `ct` in the zone recognises the packet by its [`CachedConn`].
    pub is_cached: bool,
    /// `ct_mark` and `ct_label`; `None` if no later lookup reads them.
    pub marks: Option<(u32, u128)>,
}

/// A packet that was tracked, but with another result than the one expected.
#[derive(Debug)]
pub struct Diverged<'a> {
    connection: &'a Connection,
    state: u8,
    zone: u16,
    is_cached: bool,
    marks: (u32, u128),
}

/// Where the headers of a packet that may be replayed are.
#[derive(Clone, Copy, Debug)]
pub struct HeadersAt {
    l3: usize,
    l4: usize,
    /// Where the IP packet ends.
    end: usize,
    proto: u8,
}

/// Lines of a connection up to the end of its tuples.
const TUPLE_LINES: usize = (std::mem::offset_of!(Connection, reply) + size_of::<Tuple>()).div_ceil(64);

/// Where in a TCP header the flags are.
const FLAGS_AT: usize = 13;
/// TCP flags of segments that open and close connections.
const OPEN_OR_CLOSE: u8 = 0x07;
const ACK: u8 = 0x10;

impl ConnRef {
    /// Prefetches what a replay reads of the connection.
    #[inline]
    pub fn prefetch(&self) {
        sluice_simd::prefetch::read(Arc::as_ptr(&self.0));
    }

    /// Prefetches what [`ConnRef::has_addresses`] reads as well, and what a translation does.
    #[inline]
    pub fn prefetch_addresses(&self) {
        let first = Arc::as_ptr(&self.0).cast::<[u8; 64]>();
        (0..TUPLE_LINES).for_each(|line| sluice_simd::prefetch::read(first.wrapping_add(line)));
    }

    /// Whether the connection's packets, or its replies, are between these IPv6 addresses.
    #[inline]
    pub fn has_addresses(&self, reply: bool, src: &[u8], dst: &[u8]) -> bool {
        let tuple = if reply { &self.0.reply } else { &self.0.original };
        tuple.v6 && tuple.src.addr == *src && tuple.dst.addr == *dst
    }

    /// The tuple that a packet of the connection has when NAT has translated it.
    pub fn translated(&self, reply: bool) -> Tuple {
        self.0.translated(reply)
    }

    /// Whether the connection is live. No other live connection has its tuples.
    #[inline]
    pub fn is_live(&self, now_ms: u64) -> bool {
        !self.0.is_over(now_ms)
    }

    /// Whether the connection has been removed from the table.
    pub fn is_removed(&self) -> bool {
        self.0.is_removed()
    }
}

impl Diverged<'_> {
    /// Writes the result into the packet's key.
    pub fn write(&self, key: &mut PacketKey, cached: &mut CachedConn) -> CtOutcome {
        let (mark, label) = self.marks;
        key_fields::set_state(key, self.state);
        let original = self.connection.parent.as_deref().unwrap_or(&self.connection.original);
        key_fields::write_all(key, self.zone, mark, label, original);
        *cached = CachedConn(self.is_cached.then(|| ConnId::of(self.connection)));
        if self.state & ct_state::INVALID != 0 { CtOutcome::Invalid } else { CtOutcome::Tracked }
    }
}

impl CtMetadata {
    /// Whether the packet was translated.
    #[inline]
    pub fn is_translated(&self) -> bool {
        self.state & ct_state::NAT != 0
    }

    /// Whether a packet that gets this state, and its connection's mark and label, gets what is told here.
    #[inline(always)]
    fn fits(&self, connection: &Connection, state: u8) -> bool {
        state == self.state && self.marks.is_none_or(|marks| marks == connection.marks())
    }
}

/// Where the headers are of a packet that has a tuple of its own. Out of line: in line it costs each packet over plain IPv4
/// some instructions, too.
#[inline(never)]
fn headers_of_any(isa: Isa, bytes: &[u8]) -> Option<HeadersAt> {
    if let Some((l4, proto)) = conn_key::plain_l4_range_v6(isa, bytes) {
        return Some(HeadersAt { l3: ETHERNET_SIZE, l4: l4.start, end: l4.end, proto });
    }
    // Behind a routing header the checksum is over the final destination; after a translation the next `ct` finds it wrong,
    // which a replay does not look at again.
    let conn_key = conn_key::read(bytes, 0, Checksums::Unknown(isa)).filter(ConnKey::is_plain)?;
    let ConnKey { l3, l4, end, tuple, .. } = conn_key;
    Some(HeadersAt { l3, l4, end, proto: tuple.proto })
}

impl Conntrack {
    /// The connection of a packet that `request` has just tracked, and what was written into its key.
    ///
    /// `None` if packets like it cannot be replayed: packets without a connection, of a helper's control connection,
    /// neither TCP nor UDP; with NAT, of a connection that a helper announced; or if the request changes the connection.
    pub fn conn_ref(
        &self,
        conn_cache: &ConnCache,
        packet: &Packet,
        key: &PacketKey,
        request: &Ct,
        now_ms: u64,
    ) -> Option<(ConnRef, CtMetadata)> {
        if request.force || request.mark.is_some() || request.label.is_some() {
            return None;
        }
        // Tracking has verified the checksums.
        let lookup = self.extract(conn_cache, packet, key, request.zone, Checksums::Good);
        let tuple = lookup.conn_key.filter(|conn_key| !conn_key.related)?.tuple;
        let state = key_fields::state(key);
        if !tuple.has_ports() || state & ct_state::INVALID != 0 || key_fields::zone(key) != request.zone {
            return None;
        }
        let (connection, reply) = if state & ct_state::NAT == 0 {
            let (connection, reply) = conn_cache.find(lookup.hash, &tuple, now_ms)?;
            (connection.clone(), reply)
        } else {
            self.find_translated(&tuple, key, request, now_ms)?
        };
        let tuple = if reply { &connection.reply } else { &connection.original };
        if control(tuple, request.helper).is_some() {
            return None;
        }
        let label = key.get(layout::CT_LABEL).first_chunk().map_or(0, |label| u128::from_be_bytes(*label));
        let marks = Some((key.number(layout::CT_MARK) as u32, label));
        let metadata = CtMetadata { state, zone: request.zone, reply, is_cached: request.nat.is_none(), marks };
        Some((ConnRef(connection), metadata))
    }

    /// The connection of a packet that `request` has just translated to a tuple, and whether it is a reply.
    fn find_translated(
        &self,
        translated: &Tuple,
        key: &PacketKey,
        request: &Ct,
        now_ms: u64,
    ) -> Option<(Arc<Connection>, bool)> {
        // By the first packet's tuple: since the packet was translated, another connection may have got the tuples that the
        // addresses of today tell.
        let original = key_fields::original(key, translated)?;
        let (connection, _) = self.table.find(&original, now_ms)?;
        if request.nat.is_none() || connection.original != original {
            return None;
        }
        let reply = [false, true].into_iter().find(|reply| connection.translated(*reply) == *translated)?;
        Some((connection, reply))
    }

    /// Where the headers are of a packet, if it may be replayed: valid TCP or UDP without IPv6 extension headers that neither
    /// opens nor closes a connection. Checksums are computed by this instruction set.
    #[inline(always)]
    pub fn headers_at(isa: Isa, packet: &Packet) -> Option<HeadersAt> {
        let bytes = packet.bytes();
        let at = match conn_key::plain_l4_range_v4(isa, bytes) {
            Some((l4, proto)) => HeadersAt { l3: ETHERNET_SIZE, l4: l4.start, end: l4.end, proto },
            None => headers_of_any(isa, bytes)?,
        };
        match at.proto {
            ip_proto::UDP => Some(at),
            ip_proto::TCP => (bytes[at.l4..at.end][FLAGS_AT] & (OPEN_OR_CLOSE | ACK) == ACK).then_some(at),
            _ => None,
        }
    }

    /// Tracks a packet of a live connection, and translates it if the earlier one was. `Ok` if its key would receive exactly
    /// `expected`.
    #[inline(always)]
    pub fn replay<'c>(
        &self,
        conn_ref: &'c ConnRef,
        to: &mut CtPacket<'_>,
        at: HeadersAt,
        expected: &CtMetadata,
        now_ms: u64,
    ) -> Result<(), Diverged<'c>> {
        let connection = &*conn_ref.0;
        let settled = if at.proto == ip_proto::TCP { None } else { connection.update_settled(now_ms) };
        let update = settled.unwrap_or_else(|| {
            let l4 = &to.packet.bytes()[at.l4..at.end];
            connection.update(l4, expected.reply, self.checks_tcp_seq(), now_ms)
        });
        let related = if connection.is_related { ct_state::RELATED } else { 0 };
        let reply = if expected.reply { ct_state::REPLY } else { 0 };
        let state = ct_state::TRACKED
            | match update {
                CtUpdate::Valid(_) => ct_state::ESTABLISHED | reply | related,
                CtUpdate::ValidNew(_) => ct_state::NEW | related,
                CtUpdate::Invalid | CtUpdate::New => ct_state::INVALID,
            };
        if expected.fits(connection, state) {
            return Ok(());
        }
        let state = match expected.is_translated() {
            true => state | translate(connection, to.packet, to.key, at, expected),
            false => state,
        };
        if expected.fits(connection, state) {
            return Ok(());
        }
        let CtMetadata { zone, is_cached, .. } = *expected;
        Err(Diverged { connection, state, zone, is_cached, marks: connection.marks() })
    }
}

/// Translates a packet as the earlier one was, and returns the bit of the state that says so. Out of line: most packets are
/// not translated.
#[inline(never)]
fn translate(
    connection: &Connection,
    packet: &mut Packet,
    key: &mut PacketKey,
    HeadersAt { l3, l4, end, .. }: HeadersAt,
    expected: &CtMetadata,
) -> u8 {
    let done = expected.state & ct_state::NAT;
    let target = if done == ct_state::SRC_NAT { NatTarget::Src } else { NatTarget::Dst };
    let tuple = if expected.reply { connection.reply } else { connection.original };
    let conn_key = ConnKey { l3, l4, end, tuple, related: false };
    rewrite::translate(packet, key, &conn_key, &connection.translated(expected.reply), target);
    done
}
