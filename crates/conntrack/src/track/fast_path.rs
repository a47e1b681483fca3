//! The entry of the tracker: key extraction, and the short path for packets of recently used connections.

use super::Conntrack;
use super::slow_path::{CtContext, set_mark_and_label, track_again, translate};
use crate::conn_cache::ConnCache;
use crate::conn_key::{self, ConnKey};
use crate::connection::Connection;
use crate::key_fields::{self, ct_state};
use crate::request::{CachedConn, Checksums, ConnId, CtInput, CtOutcome, CtPacket};
use crate::states::CtUpdate;
use crate::tuple::Tuple;
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

/// The helper whose control connection a packet belongs to: named by the action, or implied by a well-known port.
#[inline]
fn control_of_key(key: &PacketKey, helper: Option<Helper>) -> Option<Helper> {
    let ports = &key.lines[0].0[layout::TP_SRC.offset..][..4];
    let ports = (u16::from_be_bytes([ports[0], ports[1]]), u16::from_be_bytes([ports[2], ports[3]]));
    control_of(key.get(layout::NW_PROTO)[0], ports, helper)
}

/// The same of a packet with this tuple.
pub(super) fn control(tuple: &Tuple, helper: Option<Helper>) -> Option<Helper> {
    control_of(tuple.proto, (tuple.src.port, tuple.dst.port), helper)
}

#[inline]
fn control_of(proto: u8, (src, dst): (u16, u16), helper: Option<Helper>) -> Option<Helper> {
    match proto {
        ip_proto::TCP if helper == Some(Helper::Ftp) || src == FTP_PORT || dst == FTP_PORT => Some(Helper::Ftp),
        ip_proto::UDP if helper == Some(Helper::Tftp) || dst == TFTP_PORT => Some(Helper::Tftp),
        _ => None,
    }
}

/// A packet's connection key and its hash, from [`Conntrack::extract`].
#[derive(Clone, Copy, Debug)]
pub struct LookupRef {
    pub(super) conn_key: Option<ConnKey>,
    pub(super) hash: u64,
}

impl LookupRef {
    /// A packet that cannot belong to a connection.
    pub const NONE: LookupRef = LookupRef { conn_key: None, hash: 0 };
}

impl Conntrack {
    /// Extracts a packet's connection key and prefetches its bucket of the connection cache.
    ///
    /// The first of three steps; each is best done for a whole batch before the next.
    ///
    /// Where the packet's key has no IP header there is no connection, although its bytes may have one behind a VLAN tag
    /// that is not read.
    #[inline]
    pub fn extract(
        &self,
        conn_cache: &ConnCache,
        packet: &Packet,
        key: &PacketKey,
        zone: u16,
        checksums: Checksums,
    ) -> LookupRef {
        if !key_fields::is_ip(key) {
            return LookupRef::NONE;
        }
        let Some(conn_key) = conn_key::read(packet.bytes(), zone, checksums) else { return LookupRef::NONE };
        let hash = conn_key.tuple.hash(self.table.key());
        conn_cache.prefetch(hash);
        LookupRef { conn_key: Some(conn_key), hash }
    }

    /// Prefetches the connection itself: the second step.
    #[inline]
    pub fn prefetch(&self, conn_cache: &ConnCache, lookup: &LookupRef) {
        if lookup.conn_key.is_some() {
            conn_cache.prefetch_connection(lookup.hash);
        }
    }

    /// Does what a `ct(…)` action does to a packet, except for the recirculation.
    ///
    /// The packet's key holds the state that an earlier pass wrote, and receives the new state. NAT rewrites addresses
    /// and ports in the packet and in the key.
    #[inline]
    pub fn execute(&self, conn_cache: &mut ConnCache, to: CtPacket<'_>, request: &Ct, input: &CtInput) -> CtOutcome {
        let lookup = self.extract(conn_cache, to.packet, to.key, request.zone, input.checksums);
        self.execute_extracted(conn_cache, &lookup, to, request, input)
    }

    /// The third step: [`Conntrack::execute`] for a packet whose key is extracted and that has not changed since.
    #[inline]
    pub fn execute_extracted(
        &self,
        conn_cache: &mut ConnCache,
        lookup: &LookupRef,
        to: CtPacket<'_>,
        request: &Ct,
        input: &CtInput,
    ) -> CtOutcome {
        let CtPacket { packet, key, cached } = to;
        let control = control_of_key(key, request.helper);
        let known = cached.0.take_if(|known| known.zone == request.zone && !request.force && control.is_none());
        cached.forget();
        let Some(conn_key) = lookup.conn_key else {
            key_fields::invalid(key, request.zone);
            return CtOutcome::Invalid;
        };
        let mut ctx = CtContext { packet, key, request, input, conn_key, reply: false, control };
        if known.is_none()
            && let Some((connection, reply)) = conn_cache.find(lookup.hash, &conn_key.tuple, input.now_ms)
        {
            ctx.reply = reply;
            if let Some(outcome) = self.track_cached(&mut ctx, connection) {
                *cached = CachedConn(request.nat.is_none().then(|| ConnId::of(connection)));
                return outcome;
            }
        }
        self.execute_slow(conn_cache, lookup.hash, &mut ctx, known, cached)
    }

    #[inline(never)]
    fn execute_slow(
        &self,
        conn_cache: &mut ConnCache,
        hash: u64,
        ctx: &mut CtContext<'_>,
        known: Option<ConnId>,
        cached: &mut CachedConn,
    ) -> CtOutcome {
        let now_ms = ctx.input.now_ms;
        if let Some(known) = known
            && let Some((connection, reply)) = self.table.find(&ctx.conn_key.tuple, now_ms)
            && ConnId::of(&connection) == known
        {
            ctx.reply = reply;
            track_again(ctx, &connection);
            *cached = CachedConn(ctx.request.nat.is_none().then_some(known));
            return CtOutcome::Tracked;
        }
        let (connection, outcome) = self.process(ctx);
        if let Some(connection) = &connection {
            // A packet of a translated connection may have been looked up by another tuple than its own.
            if connection.direction(&ctx.conn_key.tuple).is_some()
                && conn_cache.find(hash, &ctx.conn_key.tuple, now_ms).is_none()
                && ctx.conn_key.tuple.hash(self.table.key()) == hash
            {
                conn_cache.insert(hash, connection, now_ms);
            }
            *cached = CachedConn(ctx.request.nat.is_none().then(|| ConnId::of(connection)));
        }
        outcome
    }

    /// Tracks a packet of a cached connection that no application-level gateway reads. `None` if the packet needs the slow
    /// path, which gives every packet the same result.
    #[inline]
    fn track_cached(&self, ctx: &mut CtContext<'_>, connection: &Connection) -> Option<CtOutcome> {
        let request = ctx.request;
        let before = if key_fields::zone(ctx.key) == request.zone { ctx.state() } else { 0 };
        if request.force || ctx.control.is_some() || ctx.conn_key.related || before & ct_state::NAT != 0 {
            return None;
        }
        let l4 = &ctx.packet.bytes()[ctx.conn_key.l4..ctx.conn_key.end];
        let update = connection.update(l4, ctx.reply, self.checks_tcp_seq(), ctx.input.now_ms);
        let state = match update {
            CtUpdate::Valid(_) => {
                let reply = if ctx.reply { ct_state::REPLY } else { 0 };
                (before | ct_state::ESTABLISHED | reply) & !ct_state::NEW
            }
            CtUpdate::ValidNew(_) => before | ct_state::NEW,
            CtUpdate::Invalid => ct_state::INVALID,
            CtUpdate::New => {
                connection.end();
                return None;
            }
        };
        let related = if connection.parent.is_some() && update != CtUpdate::Invalid { ct_state::RELATED } else { 0 };
        ctx.set_state(state | related);
        if request.nat.is_some() {
            translate(ctx, connection);
        }
        ctx.set_state(ctx.state() | ct_state::TRACKED);
        let (mark, label) = set_mark_and_label(request, connection);
        let original = connection.parent.as_deref().unwrap_or(&connection.original);
        key_fields::write_all(ctx.key, request.zone, mark, label, original);
        // On an earlier pass a helper may have made the packet invalid; it stays invalid.
        Some(if ctx.state() & ct_state::INVALID != 0 { CtOutcome::Invalid } else { CtOutcome::Tracked })
    }
}
