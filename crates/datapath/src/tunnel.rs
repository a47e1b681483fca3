//! Pushing and popping the headers of tunnels.

use crate::action_context::ActionContext;
use crate::context::Context;
use sluice_action::{PortNo, TunnelPush};
use sluice_fate::DropReason;
use sluice_flow::geneve::OptionMap;
use sluice_flow::hash::five_tuple;
use sluice_flow::{Line, Metadata, PacketKey, extract, layout};
use sluice_packet::headers::ETHERNET_SIZE;
use sluice_packet::{Packet, VlanLimit};
use sluice_tunnel::TunnelKind;
use sluice_tunnel::header::{self, PerPacket};

/// The UDP source ports of tunnels. Source: Open vSwitch lib/netdev-native-tnl.c, `tnl_udp_port_min`.
const SOURCE_PORTS: std::ops::Range<u16> = 32768..61000;

/// Milliseconds to units of 100 microseconds.
const TIMESTAMPS_PER_MS: u64 = 10;

/// Puts a header in front of a packet. Its key says no longer by which tunnel it came, and its connection is forgotten.
///
/// A sequence number counts the packets that this PMD sends by all tunnels that number them: it rises, with gaps.
pub(crate) fn push(
    push: &TunnelPush,
    sequence: &mut u32,
    action_context: &mut ActionContext<'_>,
    context: &Context<'_, '_>,
) -> Result<(), DropReason> {
    action_context.renew_key(context.vlan_limit)?;
    let size = push.header.growth() as u16;
    action_context.packet.frame.push_front(size).map_err(|_| DropReason::NoHeadroom)?;
    let per_packet = PerPacket {
        source_port: source_port(five_tuple(action_context.key, 0)),
        sequence: *sequence,
        timestamp: (context.now_ms * TIMESTAMPS_PER_MS) as u32,
    };
    *sequence = sequence.wrapping_add(1);
    push.header.complete(action_context.packet.bytes_mut(), per_packet).map_err(|_| DropReason::TxOversize)?;
    action_context.packet.rss_hash = 0;
    action_context.pushed_tags = 0;
    action_context.conn.forget();
    // Most packets leave now: who needs the key of the outer packet extracts it.
    Metadata::of_key(action_context.key).without_hash_and_connection().put(action_context.key);
    action_context.is_dirty = true;
    Ok(())
}

/// A hash as a port, evenly.
fn source_port(hash: u32) -> u16 {
    let ports = u64::from(SOURCE_PORTS.end - SOURCE_PORTS.start);
    SOURCE_PORTS.start + ((u64::from(hash) * ports) >> 32) as u16
}

/// Takes a header off a packet. Its key becomes that of what was within, which has come by `backend` with the mark of its outer
/// packet and with the options that the map knows; if there is none, the key is of no use.
pub(crate) fn pop(
    (backend, kind, options): (PortNo, TunnelKind, Option<&OptionMap>),
    packet: &mut Packet,
    key: &mut PacketKey,
    vlan_limit: VlanLimit,
) -> Result<(), DropReason> {
    let popped = header::pop(kind, packet.bytes()).map_err(|_| DropReason::TunnelPop)?;
    let options = match options.filter(|_| !popped.options.is_empty()) {
        Some(map) => read_options(map, packet.bytes().get(popped.options.clone()))?,
        None => None,
    };
    // What came without an Ethernet header gets one: its bytes take the place of the outer header's last.
    let is_bare = popped.tunnel.payload_type != 0;
    let start = popped.inner.start - if is_bare { ETHERNET_SIZE } else { 0 };
    let size = u16::try_from(start).map_err(|_| DropReason::TunnelPop)?;
    // Like Open vSwitch, what follows the outer packet's end stays: an inner frame may have padding, and tells its own length.
    packet.frame.trim_front(size);
    if is_bare && let Some(header) = packet.bytes_mut().first_chunk_mut::<ETHERNET_SIZE>() {
        let [.., high, low] = header;
        [*high, *low] = popped.tunnel.payload_type.to_be_bytes();
        header[..ETHERNET_SIZE - 2].fill(0);
    }
    packet.rss_hash = 0;
    let known = Metadata::of_key(key).without_hash_and_connection().at_port(backend.0);
    extract(packet.bytes(), &known.with_vlan_limit(vlan_limit), key).map_err(|_| DropReason::TunnelPop)?;
    popped.tunnel.put(key);
    if let Some(options) = options {
        *key.make_present(layout::TUN_OPTIONS.line()) = options;
    }
    Ok(())
}

/// The line of a key that says which options a header has, if it has some that the map knows.
#[inline(never)]
fn read_options(map: &OptionMap, list: Option<&[u8]>) -> Result<Option<Line>, DropReason> {
    let mut key = PacketKey::ZERO;
    map.read(list.ok_or(DropReason::TunnelPop)?, &mut key).map_err(|_| DropReason::TunnelPop)?;
    let has_some = key.number(layout::TUN_OPTIONS_PRESENT) != 0;
    Ok(has_some.then(|| *key.line(layout::TUN_OPTIONS.line())))
}
