//! Target `packet`: extraction and edits.
//!
//! Shape of the input: one byte with the number of edits (mod 16), each edit as an opcode, 16 bytes of value and a byte
//! that stretches to a mask; the rest is the packet.

use crate::input::Input;
use sluice_flow::{Metadata, PacketKey, VlanLimit, extract, extract_again};
use sluice_mem::{FramePool, HeapPool, PoolConfig};
use sluice_packet::edit::{self, Field};
use sluice_packet::{Buffers, Layers, Packet};
use std::cell::RefCell;
use std::sync::Arc;

const FIELDS: [Field; 30] = [
    Field::EthernetSrc,
    Field::EthernetDst,
    Field::Mpls,
    Field::ArpOp,
    Field::ArpSpa,
    Field::ArpTpa,
    Field::ArpSha,
    Field::ArpTha,
    Field::Ipv4Src,
    Field::Ipv4Dst,
    Field::Ipv4Tos,
    Field::Ipv4Ttl,
    Field::Ipv6Src,
    Field::Ipv6Dst,
    Field::Ipv6Label,
    Field::Ipv6TrafficClass,
    Field::Ipv6HopLimit,
    Field::TcpSrc,
    Field::TcpDst,
    Field::UdpSrc,
    Field::UdpDst,
    Field::SctpSrc,
    Field::SctpDst,
    Field::IcmpType,
    Field::IcmpCode,
    Field::NdReserved,
    Field::NdTarget,
    Field::NdOptionType,
    Field::NdSourceLink,
    Field::NdTargetLink,
];

thread_local! {
    static POOL: RefCell<(Arc<dyn FramePool>, Buffers)> = RefCell::new({
        let config = PoolConfig { frames: 64, frame_size: 2048, reserve: 8 };
        let pool: Arc<dyn FramePool> = Arc::new(HeapPool::new(config).expect("a small pool"));
        (pool, Buffers::new())
    });
}

/// Extraction never panics, says the same when asked again, and an edit that says it was done was done: reading and
/// editing agree about where headers are, and nothing outside the packet's own length changes.
pub fn packet(data: &[u8]) {
    let mut input = Input(data);
    let n = usize::from(input.byte() % 16);
    let edits: Vec<_> = (0..n).map(|_| (input.byte(), input.bytes(16), input.byte())).collect();
    let bytes = input.bytes(2000);
    POOL.with_borrow_mut(|(pool, buffers)| {
        let mut packet = buffers.write(pool, bytes).expect("the pool's frames are long enough");
        if key_of(packet.bytes()).is_some() {
            for (opcode, value, mask) in edits {
                apply(&mut packet, opcode, value, mask);
                key_of(packet.bytes()).expect("edits leave the Ethernet header");
            }
        }
        buffers.give_frame(packet.frame);
    });
}

/// The packet's key, read in every way there is.
fn key_of(bytes: &[u8]) -> Option<PacketKey> {
    let mut key = PacketKey::default();
    for limit in [1, 2].map(VlanLimit::from_setting) {
        extract(bytes, &Metadata::of_port(7).with_vlan_limit(limit), &mut key).ok()?;
        let mut again = key;
        extract_again(bytes, limit, &mut again).expect("it was no runt a moment ago");
        assert_eq!(key, again, "extract and extract_again differ");
    }
    assert_eq!(key.in_port(), 7);
    Some(key)
}

fn apply(packet: &mut Packet, opcode: u8, value: &[u8], mask: u8) {
    let len = packet.bytes().len();
    match opcode {
        0 => {
            if edit::push_vlan(packet, 0x8100, u16::from(mask) << 4 | 0x1000).is_ok() {
                assert_eq!(packet.bytes().len(), len + 4);
            }
        }
        1 => {
            if edit::pop_vlan(packet).is_ok() {
                assert_eq!(packet.bytes().len(), len - 4);
            }
        }
        2 => {
            if edit::push_mpls(packet, 0x8847, 0x0001_0140, VlanLimit::MAX).is_ok() {
                assert_eq!(packet.bytes().len(), len + 4);
            }
        }
        3 => {
            if edit::pop_mpls(packet, 0x0800, VlanLimit::MAX).is_ok() {
                assert_eq!(packet.bytes().len(), len - 4);
            }
        }
        _ => set(packet, FIELDS[usize::from(opcode) % FIELDS.len()], value, mask),
    }
}

fn set(packet: &mut Packet, field: Field, value: &[u8], mask: u8) {
    let layers = Layers::of(packet.bytes()).expect("an Ethernet header is there");
    let before = packet.bytes().to_vec();
    let mask = [mask; 16];
    match edit::set(packet.bytes_mut(), &layers, field, value, &mask) {
        Ok(()) => {
            assert_eq!(before.len(), packet.bytes().len());
            // Doing it twice changes nothing more, checksums included.
            let once = packet.bytes().to_vec();
            edit::set(packet.bytes_mut(), &layers, field, value, &mask).expect("the header is still there");
            assert_eq!(once, packet.bytes(), "setting {field:?} again changed the packet");
        }
        Err(_) => assert_eq!(before, packet.bytes(), "a refused edit changed the packet"),
    }
}
