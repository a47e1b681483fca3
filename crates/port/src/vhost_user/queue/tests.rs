//! Packets to and from a guest whose rings and buffers are in the test's memory.

use super::*;
use crate::Pools;
use crate::vhost_user::ring::RingLayout;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

const LAYOUT: RingLayout = RingLayout { descriptors: 0, available: 0x100, used: 0x200 };
/// The distance between the guest's buffers.
const BUFFERS: u64 = 0x1000;
const APART: u64 = 0x400;
const NEXT: u16 = 1;
const WRITE: u16 = 2;

/// A guest's ring of eight entries. Some buffers are chained to the next one.
struct Guest {
    memory: Arc<GuestMemoryMmap>,
    rings: Rings,
}

impl Guest {
    /// With buffers of these lengths and flags. Each buffer that is not chained to its predecessor begins a chain.
    fn new(buffers: &[(u32, u16)], mergeable: bool) -> Self {
        let memory = Arc::new(GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x4000)]).unwrap());
        let (mut heads, mut is_chained) = (0u16, false);
        for ((len, flags), i) in buffers.iter().zip(0u16..) {
            let at = 16 * u64::from(i);
            memory.write_obj((BUFFERS + u64::from(i) * APART).to_le(), GuestAddress(at)).unwrap();
            memory.write_obj(len.to_le(), GuestAddress(at + 8)).unwrap();
            memory.write_obj(flags.to_le(), GuestAddress(at + 12)).unwrap();
            memory.write_obj((i + 1).to_le(), GuestAddress(at + 14)).unwrap();
            if !is_chained {
                memory.write_obj(i.to_le(), GuestAddress(LAYOUT.available + 4 + 2 * u64::from(heads))).unwrap();
                heads += 1;
            }
            is_chained = flags & NEXT != 0;
        }
        memory.write_obj(heads.to_le(), GuestAddress(LAYOUT.available + 2)).unwrap();
        let rings: Rings = [RingSlot::default()].into();
        let mut slot = rings[0].lock();
        slot.mergeable = mergeable;
        slot.ring = Some(Ring::new(memory.clone(), 8, LAYOUT, 0, None));
        drop(slot);
        Guest { memory, rings }
    }

    fn buffer(&self, i: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_slice(&mut bytes, GuestAddress(BUFFERS + i * APART)).unwrap();
        bytes
    }

    /// The used chains, and the bytes written to each.
    fn used(&self) -> Vec<(u32, u32)> {
        let read = |at: u64| self.memory.read_obj::<u32>(GuestAddress(LAYOUT.used + at)).unwrap();
        let n = u64::from(self.memory.read_obj::<u16>(GuestAddress(LAYOUT.used + 2)).unwrap());
        (0..n).map(|i| (read(4 + 8 * i), read(8 + 8 * i))).collect()
    }

    /// Sends it frames of these lengths.
    fn send(&self, frames: &[usize]) -> Tally {
        let (mut buffers, mut tally, mut batch) = (Buffers::new(), Tally::default(), PacketBatch::new());
        let pool: Arc<dyn FramePool> = Pools::new(64).of_size(1500).unwrap();
        for len in frames {
            batch.push(buffers.write(&pool, &frame(*len)).unwrap());
        }
        tally[Counter::Originated] += frames.len() as u64;
        GuestReceive::new(self.rings.clone(), 0, Mtu(1500), Arc::default()).send(&mut batch, &mut buffers, &mut tally);
        assert_eq!(tally.conserved(), Ok(()));
        tally
    }
}

fn frame(len: usize) -> Vec<u8> {
    (0..len).map(|i| i as u8).collect()
}

#[test]
fn a_packet_is_spread_over_merged_buffers() {
    let guest = Guest::new(&[(100, WRITE); 4], true);
    let tally = guest.send(&[250, 200]);
    assert_eq!((tally[Counter::Sent], tally.dropped(DropReason::TxFull)), (1, 1), "the second wants three buffers");
    assert_eq!(guest.used(), [(0, 100), (1, 100), (2, 62)]);
    let first = guest.buffer(0, 100);
    // The header has the number of buffers and nothing else, since sent packets are complete.
    assert_eq!((&first[..10], &first[10..12]), (&[0; 10][..], &3u16.to_le_bytes()[..]));
    let whole = [&first[VNET_HEADER..], &guest.buffer(1, 100), &guest.buffer(2, 62)].concat();
    assert_eq!(whole, frame(250));
}

#[test]
fn a_guest_that_does_not_merge_gets_what_fits_one_chain() {
    let guest = Guest::new(&[(100, WRITE), (100, WRITE | NEXT), (100, WRITE)], false);
    let tally = guest.send(&[150, 88]);
    assert_eq!((tally[Counter::Sent], tally.dropped(DropReason::TxOversize)), (1, 1));
    assert_eq!(guest.used(), [(0, 100)]);
    // The next chain has two buffers, which hold more.
    assert_eq!(guest.send(&[150])[Counter::Sent], 1);
    assert_eq!(guest.used()[1..], [(1, 162)]);
    assert_eq!([&guest.buffer(1, 100)[VNET_HEADER..], &guest.buffer(2, 62)].concat(), frame(150));
}

#[test]
fn chained_buffers_become_one_packet_and_what_is_too_long_is_named() {
    let guest = Guest::new(&[(12, NEXT), (100, NEXT), (50, 0), (1000, NEXT), (1000, 0), (11, 0)], false);
    guest.memory.write_slice(&frame(100), GuestAddress(BUFFERS + APART)).unwrap();
    guest.memory.write_slice(&[7; 50], GuestAddress(BUFFERS + 2 * APART)).unwrap();
    let pool: Arc<dyn FramePool> = Pools::new(64).of_size(1500).unwrap();
    let (mut buffers, mut tally, mut batch) = (Buffers::new(), Tally::default(), PacketBatch::new());
    let mut queue = GuestTransmit::new(guest.rings.clone(), 0, pool, Mtu(1500), Arc::default());
    queue.poll(&mut batch, &mut buffers, &mut tally);
    assert_eq!(
        batch.iter().map(|packet| packet.bytes().to_vec()).collect::<Vec<_>>(),
        [[frame(100), vec![7; 50]].concat()]
    );
    // Two kilobytes exceed the MTU, and eleven bytes are no header.
    assert_eq!((tally.dropped(DropReason::RxOversize), tally.dropped(DropReason::RxError)), (1, 1));
    assert_eq!(guest.used(), [(0, 0), (3, 0), (5, 0)], "all are the guest's again");
    tally[Counter::Received] += batch.len() as u64;
    batch.discard(DropReason::Rules, &mut buffers, &mut tally);
    assert_eq!(tally.conserved(), Ok(()));
}
