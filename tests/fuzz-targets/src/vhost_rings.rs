//! Target `vhost-rings`: a guest's memory. The input is what the guest writes into its rings, in between polls.

use crate::input::Input;
use sluice_fate::{Counter, DropReason, Tally};
use sluice_packet::{BATCH_MAX, Buffers, PacketBatch};
use sluice_port::Pools;
use sluice_testkit::vhost_guest::{BUFFERS, GuestPort, INDIRECT, NEXT, Place, WRITE, feature, request};
use std::cell::RefCell;
use vm_memory::{Bytes, GuestAddress};

/// What the input chooses from: merged buffers, tables, event index, and the header of old drivers.
const FEATURES: [u64; 4] = [feature::MERGEABLE, feature::INDIRECT, feature::EVENT_INDEX, feature::VERSION_1];
/// Rings have up to this many entries, and a table as many descriptors.
const ENTRIES: u16 = 256;
/// Where tables begin; buffers are behind it.
const TABLE: u64 = BUFFERS;
/// The end of the guest's memory.
const END: u64 = 16 << 20;

/// Whatever the guest writes, nothing panics, a poll gives a batch at most, and no frame is lost.
pub fn vhost_rings(data: &[u8]) {
    thread_local!(static PORT: RefCell<Option<Target>> = const { RefCell::new(None) });
    PORT.with_borrow_mut(|port| port.get_or_insert_with(Target::new).run(&mut Input(data)));
}

/// A port and its guest, which are set up anew for each input.
struct Target(GuestPort);

impl Target {
    fn new() -> Self {
        Target(GuestPort::open(&mut Pools::new(256), feature::VERSION_1, ENTRIES))
    }

    fn run(&mut self, input: &mut Input<'_>) {
        let chosen = input.byte();
        let features = FEATURES.iter().enumerate().filter(|(bit, _)| chosen >> bit & 1 != 0);
        let features = features.fold(0, |sum, (_, feature)| sum | feature);
        self.set_up(features, 1 << (input.byte() % 9));
        let (mut buffers, mut tally) = (Buffers::new(), Tally::default());
        while !input.is_empty() {
            let what = input.byte();
            let ring = u32::from(what >> 7);
            match what & 7 {
                0 | 1 => {
                    let (at, descriptor) = read_descriptor(input);
                    self.0.guest.describe(ring, at, descriptor);
                }
                2 => self.describe_in_table(input),
                3 => self.name_heads(ring, input),
                4 => self.poll(&mut buffers, &mut tally),
                5 => self.send(input, &mut buffers, &mut tally),
                6 => self.0.guest.start(ring, u32::from(input.byte())),
                _ => self.write_event(ring, input),
            }
        }
        self.poll(&mut buffers, &mut tally);
        for ring in 0..2 {
            self.0.guest.take_used(ring).iter().for_each(|(head, _)| assert!(*head < u32::from(self.0.guest.size)));
        }
        assert_eq!(tally.conserved(), Ok(()));
        buffers.flush();
        assert_eq!(self.0.pool.available(), self.0.pool.capacity(), "a frame is lost");
    }

    /// Stops the rings, clears them, and starts them with these features and entries.
    fn set_up(&mut self, features: u64, size: u16) {
        let guest = &mut self.0.guest;
        (guest.size, guest.available, guest.used) = (size, [0; 2], [0; 2]);
        self.0.guest.say(request::SET_VRING_NUM, &[0u32, 1].map(u32::to_le_bytes).concat(), &[]);
        self.0.guest.say(request::SET_FEATURES, &features.to_le_bytes(), &[]);
        for ring in 0..2 {
            let place = Place::of(ring);
            for at in [place.descriptors, place.available, place.used, TABLE] {
                let zeros = [0; 16 * ENTRIES as usize];
                self.0.guest.memory.write_slice(&zeros, GuestAddress(at)).expect("inside");
            }
            self.0.guest.start(ring, 0);
        }
        // What was said is done when this is answered.
        self.0.guest.offered_features();
    }

    /// Writes a descriptor into the table that descriptors of rings may refer to.
    fn describe_in_table(&self, input: &mut Input<'_>) {
        let (at, (address, len, flags, next)) = read_descriptor(input);
        let rest = u64::from(len) | u64::from(flags) << 32 | u64::from(next) << 48;
        let bytes = [address, rest].map(u64::to_le_bytes).concat();
        self.0.guest.memory.write_slice(&bytes, GuestAddress(TABLE + 16 * u64::from(at))).expect("inside");
    }

    /// Makes chains available, or lets the index jump.
    fn name_heads(&mut self, ring: u32, input: &mut Input<'_>) {
        let n = input.byte();
        if n >= 0xf0 {
            self.0.guest.available[ring as usize] ^= u16::from(input.byte()) << (n & 7);
        }
        for head in input.bytes(usize::from(n % 40)) {
            self.0.guest.offer(ring, u16::from(*head));
        }
        self.0.guest.publish(ring);
    }

    /// Writes where the guest wants to be notified.
    fn write_event(&self, ring: u32, input: &mut Input<'_>) {
        let at = Place::of(ring).available + 4 + 2 * u64::from(self.0.guest.size);
        let event = u16::from(input.byte());
        self.0.guest.memory.write_obj(event, GuestAddress(at)).expect("inside");
    }

    fn poll(&mut self, buffers: &mut Buffers, tally: &mut Tally) {
        let mut batch = PacketBatch::new();
        self.0.rx.poll(&mut batch, buffers, tally);
        tally[Counter::Received] += batch.len() as u64;
        batch.discard(DropReason::Rules, buffers, tally);
    }

    /// Sends some packets.
    fn send(&mut self, input: &mut Input<'_>, buffers: &mut Buffers, tally: &mut Tally) {
        let (n, len) = (usize::from(input.byte()) % (BATCH_MAX + 1), 14 + 6 * usize::from(input.byte()));
        let mut batch = PacketBatch::new();
        buffers.fill(&self.0.pool, n, len, &mut batch);
        batch.iter_mut().for_each(|packet| packet.bytes_mut().fill(n as u8));
        tally[Counter::Originated] += batch.len() as u64;
        self.0.tx.send(&mut batch, buffers, tally);
        assert!(batch.is_empty());
    }
}

/// A descriptor, likely a valid one, and its place in its table.
fn read_descriptor(input: &mut Input<'_>) -> (u16, (u64, u32, u16, u16)) {
    let [at, place, len, flags, next] = [(); 5].map(|()| input.byte());
    let address = match place {
        0..16 => TABLE + 16 * u64::from(len),
        16..32 => END - u64::from(place),
        32..40 => u64::MAX - u64::from(place),
        _ => TABLE + 4096 * u64::from(place),
    };
    let long = u32::from(len);
    let len = match flags >> 3 & 3 {
        0 => long,
        1 => 16 * long,
        2 => 300 * long,
        _ => long << 24 | long,
    };
    (u16::from(at), (address, len, u16::from(flags) & (NEXT | WRITE | INDIRECT), u16::from(next)))
}
