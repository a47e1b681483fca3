//! The shortest path: doing to a packet what `ct` did to an earlier packet of the same tuple.
//!
//! The caller remembers the connection ([`ConnRef`]) and what was written into the earlier packet's key
//! ([`CtMetadata`]). A replay moves the connection's state on as always; it saves the lookup, and writing a key whose
//! content the caller knows already.

use super::Conntrack;
use super::fast_path::control;
use crate::conn_cache::ConnCache;
use crate::conn_key;
use crate::connection::Connection;
use crate::key_fields::{self, ct_state};
use crate::request::{CachedConn, Checksums, ConnId, CtOutcome};
use crate::states::CtUpdate;
use crate::tuple::Tuple;
use sluice_action::Ct;
use sluice_flow::{PacketKey, layout};
use sluice_packet::Packet;
use sluice_packet::headers::ip_proto;
use std::ops::Range;
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

/// L4 header and payload of a packet that may be replayed.
#[derive(Clone, Copy, Debug)]
pub struct L4Bytes<'a> {
    bytes: &'a [u8],
    is_tcp: bool,
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

    /// Prefetches what [`ConnRef::has_addresses`] reads as well.
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

/// Range of L4 header and payload, and the protocol, of a packet that has a tuple of its own. Out of line: in line it
/// costs each packet over plain IPv4 some instructions, too.
#[inline(never)]
fn l4_range(bytes: &[u8]) -> Option<(Range<usize>, u8)> {
    conn_key::plain_l4_range_v6(bytes).or_else(|| {
        let conn_key = conn_key::read(bytes, 0, Checksums::Unknown).filter(|conn_key| !conn_key.related)?;
        Some((conn_key.l4..conn_key.end, conn_key.tuple.proto))
    })
}

impl Conntrack {
    /// The connection of a packet that `request` has just tracked, and what was written into its key.
    ///
    /// `None` if packets like it cannot be replayed: packets without a connection, with NAT, of a helper's control
    /// connection, neither TCP nor UDP; or if the request changes the connection.
    pub fn conn_ref(
        &self,
        conn_cache: &ConnCache,
        packet: &Packet,
        key: &PacketKey,
        request: &Ct,
        now_ms: u64,
    ) -> Option<(ConnRef, CtMetadata)> {
        if request.force || request.mark.is_some() || request.label.is_some() || control(key, request.helper).is_some()
        {
            return None;
        }
        // Tracking has verified the checksums.
        let lookup = self.extract(conn_cache, packet, key, request.zone, Checksums::Good);
        let tuple = lookup.conn_key.filter(|conn_key| !conn_key.related)?.tuple;
        let (connection, reply) = conn_cache.find(lookup.hash, &tuple, now_ms)?;
        let state = key_fields::state(key);
        let is_plain = state & (ct_state::INVALID | ct_state::NAT) == 0 && key_fields::zone(key) == request.zone;
        if !tuple.has_ports() || !is_plain {
            return None;
        }
        let label = key.get(layout::CT_LABEL).first_chunk().map_or(0, |label| u128::from_be_bytes(*label));
        let marks = Some((key.number(layout::CT_MARK) as u32, label));
        let metadata = CtMetadata { state, zone: request.zone, reply, is_cached: request.nat.is_none(), marks };
        Some((ConnRef(connection.clone()), metadata))
    }

    /// L4 header and payload of a packet, if it may be replayed: valid TCP or UDP that neither opens nor closes a
    /// connection.
    #[inline(always)]
    pub fn l4_bytes(packet: &Packet) -> Option<L4Bytes<'_>> {
        let bytes = packet.bytes();
        let (range, proto) = conn_key::plain_l4_range_v4(bytes).or_else(|| l4_range(bytes))?;
        let l4 = &bytes[range];
        match proto {
            ip_proto::UDP => Some(L4Bytes { bytes: l4, is_tcp: false }),
            ip_proto::TCP => {
                (l4[FLAGS_AT] & (OPEN_OR_CLOSE | ACK) == ACK).then_some(L4Bytes { bytes: l4, is_tcp: true })
            }
            _ => None,
        }
    }

    /// Tracks a packet of a live connection. `Ok` if its key would receive exactly `expected`.
    #[inline(always)]
    pub fn replay<'c>(
        &self,
        conn_ref: &'c ConnRef,
        l4: &L4Bytes<'_>,
        expected: &CtMetadata,
        now_ms: u64,
    ) -> Result<(), Diverged<'c>> {
        let connection = &*conn_ref.0;
        let settled = if l4.is_tcp { None } else { connection.update_settled(now_ms) };
        let update =
            settled.unwrap_or_else(|| connection.update(l4.bytes, expected.reply, self.checks_tcp_seq(), now_ms));
        let related = if connection.is_related { ct_state::RELATED } else { 0 };
        let reply = if expected.reply { ct_state::REPLY } else { 0 };
        let state = ct_state::TRACKED
            | match update {
                CtUpdate::Valid(_) => ct_state::ESTABLISHED | reply | related,
                CtUpdate::ValidNew(_) => ct_state::NEW | related,
                CtUpdate::Invalid | CtUpdate::New => ct_state::INVALID,
            };
        if state == expected.state && expected.marks.is_none_or(|marks| marks == connection.marks()) {
            return Ok(());
        }
        let CtMetadata { zone, is_cached, .. } = *expected;
        Err(Diverged { connection, state, zone, is_cached, marks: connection.marks() })
    }
}
