//! Pushing and popping the headers of tunnels.

use crate::action_context::ActionContext;
use crate::batch::Batch;
use crate::context::Context;
use crate::tx::TxPorts;
use arrayvec::ArrayVec;
use sluice_action::{Action, PortNo, TunnelPush};
use sluice_fate::DropReason;
use sluice_flow::geneve::{self, OptionBytes};
use sluice_flow::hash::{five_tuple, five_tuples};
use sluice_flow::{Metadata, PacketKey, TunnelKey, extract_with};
use sluice_flow_cache::{Hits, Megaflow};
use sluice_packet::headers::ETHERNET_SIZE;
use sluice_packet::{BATCH_MAX, BatchMask, Packet, VlanLimit};
use sluice_simd::isa::Kernel;
use sluice_simd::vector_ops::Scalar;
use sluice_simd::{Isa, VectorOps};
use sluice_tunnel::TunnelKind;
use sluice_tunnel::header::{self, PLAIN_SIZE, PerPacket};

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
    context: &mut Context<'_, '_>,
) -> Result<(), DropReason> {
    action_context.renew_key(context.vlan_limit)?;
    let hash = five_tuple(action_context.key, 0);
    push_header(push, sequence, &mut action_context.packet, hash, context)?;
    action_context.pushed_tags = 0;
    action_context.conn.forget();
    // Most packets leave now: who needs the key of the outer packet extracts it.
    Metadata::of_key(action_context.key).without_hash_and_connection().put(action_context.key);
    action_context.is_dirty = true;
    Ok(())
}

/// Puts a header in front of a packet, whose key stays as it is. The `hash` of what is within chooses the source port.
#[inline]
fn push_header(
    push: &TunnelPush,
    sequence: &mut u32,
    packet: &mut Packet,
    hash: u32,
    context: &mut Context<'_, '_>,
) -> Result<(), DropReason> {
    let size = push.header.growth() as u16;
    if packet.frame.push_front(size).is_err() {
        make_headroom(packet, size, context)?;
        packet.frame.push_front(size).map_err(|_| DropReason::NoHeadroom)?;
    }
    let per_packet = PerPacket {
        source_port: source_port(hash),
        sequence: *sequence,
        timestamp: (context.now_ms * TIMESTAMPS_PER_MS) as u32,
    };
    *sequence = sequence.wrapping_add(1);
    push.header.complete(packet.bytes_mut(), per_packet).map_err(|_| DropReason::TxOversize)?;
    packet.rss_hash = 0;
    Ok(())
}

/// Puts a packet into a buffer that has room for a long header, as one with many options is.
#[cold]
fn make_headroom(packet: &mut Packet, size: u16, context: &mut Context<'_, '_>) -> Result<(), DropReason> {
    let copy = context.buffers.copy_behind(packet, size)?;
    if let Some(taps) = &mut context.taps {
        taps.copied(packet, &copy);
    }
    let old = std::mem::replace(packet, copy);
    context.buffers.give_frame(old.frame);
    Ok(())
}

/// Sends a whole batch by tunnels, if every packet is to get a header and to leave by a port, and nothing else. Otherwise
/// nothing is done, and it returns false.
///
/// Headers first, then ports: a packet that is copied just after its length was written waits for that (22 of 146 cycles a
/// packet, 2026-11-26). Mostly none is copied, since the whole batch leaves by one port.
pub(crate) fn send_batch(
    isa: Isa,
    batch: &mut Batch<'_, '_>,
    sequence: &mut u32,
    tx: &mut TxPorts,
    context: &mut Context<'_, '_>,
) -> bool {
    let n = batch.packets.len();
    let (mut pushes, mut slots) = (ArrayVec::<_, BATCH_MAX>::new(), ArrayVec::<_, BATCH_MAX>::new());
    for i in 0..n {
        let Some((push, port)) = batch.hits[i].and_then(push_and_output) else { return false };
        pushes.push(push);
        slots.push(tx.slot(port));
    }
    let hashes = five_tuples(isa, &batch.keys[..n], 0);
    let mut failed = ArrayVec::<(usize, DropReason), BATCH_MAX>::new();
    for (i, (packet, push)) in batch.packets.iter_mut().zip(&pushes).enumerate() {
        if let Err(reason) = push_header(push, sequence, packet, hashes[i], context) {
            failed.push((i, reason));
        }
    }
    if let Some(&Some(slot)) = slots.first()
        && failed.is_empty()
        && slots.iter().all(|other| *other == Some(slot))
    {
        tx.push_all(slot, batch.packets, context);
        return true;
    }
    let mut failed = failed.into_iter().peekable();
    for (i, packet) in batch.packets.drain(..).enumerate() {
        match (failed.next_if(|(at, _)| *at == i), slots[i]) {
            (Some((_, reason)), _) => context.discard(packet, reason),
            (None, Some(slot)) => tx.push(slot, packet, context),
            (None, None) => context.discard(packet, DropReason::TxNoPort),
        }
    }
    true
}

/// The header that a megaflow's packets are to get and the port by which they are to leave, if that is all that it says.
#[inline]
pub(crate) fn push_and_output(flow: &Megaflow) -> Option<(&TunnelPush, PortNo)> {
    match &flow.actions()[..] {
        [Action::TunnelPush(push), Action::Output(port)] => Some((push, *port)),
        _ => None,
    }
}

/// A hash as a port, evenly.
fn source_port(hash: u32) -> u16 {
    let ports = u64::from(SOURCE_PORTS.end - SOURCE_PORTS.start);
    SOURCE_PORTS.start + ((u64::from(hash) * ports) >> 32) as u16
}

/// By which port a packet has come once its header is off, and the type of the tunnel.
pub(crate) type Pop = (PortNo, TunnelKind);

/// Takes a header off a packet. Its key becomes that of what was within, which has come by the tunnel's port with the mark of
/// its outer packet and with the header's options. `None`: there is no such header, and the key is of no use.
pub(crate) fn pop(how: Pop, packet: &mut Packet, key: &mut PacketKey, vlan_limit: VlanLimit) -> Option<()> {
    pop_with(Scalar, how, packet, key, vlan_limit)
}

/// [`pop`], with an instruction set's vector operations.
///
/// The two ways to read a header do not meet before the end: what is known of a plain one stays known to the compiler.
#[inline(always)]
fn pop_with<V: VectorOps>(
    ops: V,
    how: Pop,
    packet: &mut Packet,
    key: &mut PacketKey,
    vlan_limit: VlanLimit,
) -> Option<()> {
    let (backend, kind) = how;
    let Some(tunnel) = header::pop_plain(kind, packet.bytes()) else {
        return pop_any(ops, how, packet, key, vlan_limit);
    };
    packet.frame.trim_front(PLAIN_SIZE as u16);
    carry(ops, &tunnel, backend, packet, key, vlan_limit)
}

/// The same for any header.
#[inline(always)]
fn pop_any<V: VectorOps>(
    ops: V,
    (backend, kind): Pop,
    packet: &mut Packet,
    key: &mut PacketKey,
    vlan_limit: VlanLimit,
) -> Option<()> {
    let Ok(popped) = header::pop(kind, packet.bytes()) else { return None };
    let mut options = None;
    if !popped.options.is_empty() {
        options = Some(read_options(packet.bytes().get(popped.options.clone())?)?);
    }
    // What came without an Ethernet header gets one: its bytes take the place of the outer header's last.
    let is_bare = popped.tunnel.payload_type != 0;
    let start = popped.inner.start - if is_bare { ETHERNET_SIZE } else { 0 };
    let Ok(size) = u16::try_from(start) else { return None };
    // Like Open vSwitch, what follows the outer packet's end stays: an inner frame may have padding, and tells its own length.
    packet.frame.trim_front(size);
    if is_bare && let Some(header) = packet.bytes_mut().first_chunk_mut::<ETHERNET_SIZE>() {
        let [.., high, low] = header;
        [*high, *low] = popped.tunnel.payload_type.to_be_bytes();
        header[..ETHERNET_SIZE - 2].fill(0);
    }
    carry(ops, &popped.tunnel, backend, packet, key, vlan_limit)?;
    if let Some(options) = options {
        key.put_options(&options);
    }
    Some(())
}

/// Makes a key that of what a tunnel carried, whose header is off.
#[inline(always)]
fn carry<V: VectorOps>(
    ops: V,
    tunnel: &TunnelKey,
    backend: PortNo,
    packet: &mut Packet,
    key: &mut PacketKey,
    vlan_limit: VlanLimit,
) -> Option<()> {
    packet.rss_hash = 0;
    // Added behind, in place of being the metadata of the key: a vector of what was just written word by word waits for the
    // writes (20 of 217 cycles a packet that was decapsulated, 2026-11-26).
    let known = Metadata::of_key(key).without_hash_and_connection().at_port(backend.0);
    if extract_with(ops, packet.bytes(), &Metadata::of_port(0).with_vlan_limit(vlan_limit), key).is_err() {
        return None;
    }
    known.add_to(key);
    tunnel.put(key);
    Some(())
}

/// Takes the headers of a whole batch off, if every packet is to lose one and nothing else is to be done: packets and keys stay
/// where they are for the next pass. Otherwise nothing is done, and it returns false.
pub(crate) fn pop_batch(isa: Isa, batch: &mut Batch<'_, '_>, context: &mut Context<'_, '_>) -> bool {
    if (0..batch.packets.len()).any(|i| only_pop(&batch.hits, i).is_none()) {
        return false;
    }
    let failed = isa.run(PopAll { batch, vlan_limit: context.vlan_limit });
    if !failed.is_empty() {
        drop_failed(failed, batch, context);
    }
    true
}

/// Takes the headers of a whole batch off, compiled for each instruction set. Returns the packets that have no such header.
struct PopAll<'a, 'm, 'g> {
    batch: &'a mut Batch<'m, 'g>,
    vlan_limit: VlanLimit,
}

impl Kernel for PopAll<'_, '_, '_> {
    type Output = BatchMask;

    #[inline(always)]
    fn run<V: VectorOps>(self, ops: V) -> BatchMask {
        let Batch { packets, keys, hits, origins, conns, .. } = self.batch;
        let mut failed = BatchMask::NONE;
        for i in 0..packets.len() {
            let Some(how) = only_pop(hits, i) else { continue };
            if pop_with(ops, how, &mut packets[i], &mut keys[i], self.vlan_limit).is_none() {
                failed.insert(i);
            }
            origins[i].depth += 1;
            conns[i].forget();
        }
        failed
    }
}

/// What takes a header off packet `i`, if that is all that its megaflow says.
#[inline(always)]
fn only_pop(hits: &Hits<'_>, i: usize) -> Option<Pop> {
    match &hits[i]?.actions()[..] {
        [Action::TunnelPop { backend, kind }] => Some((*backend, *kind)),
        _ => None,
    }
}

/// Drops the packets of a batch whose headers could not be taken off. The others move up.
#[cold]
fn drop_failed(failed: BatchMask, batch: &mut Batch<'_, '_>, context: &mut Context<'_, '_>) {
    for (dropped, i) in failed.enumerate() {
        let at = i - dropped;
        context.discard(batch.packets.remove(at), DropReason::TunnelPop);
        let end = batch.packets.len();
        for behind in at..end {
            batch.keys[behind] = batch.keys[behind + 1];
            batch.origins[behind] = batch.origins[behind + 1];
        }
    }
}

/// A header's options, which its bytes will no longer tell. `None`: the last one ends behind them.
#[inline(never)]
fn read_options(list: &[u8]) -> Option<OptionBytes> {
    if geneve::is_whole(list) { OptionBytes::new(list) } else { None }
}
