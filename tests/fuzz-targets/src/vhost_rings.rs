//! Target `vhost-rings`: a guest's memory. The input is what the guest writes into its rings, in between polls, and what
//! its frontend has in the records of chains in flight.

use crate::input::Input;
use sluice_fate::{Counter, DropReason, Tally};
use sluice_packet::{BATCH_MAX, Buffers, PacketBatch};
use sluice_port::Pools;
use sluice_port::offload::VnetHeader;
use sluice_testkit::frame;
use sluice_testkit::vhost_guest::{
    AVAILABLE, BUFFERS, Described, GuestPort, INDIRECT, Inflight, NEXT, Place, USED, WRITE, feature,
};
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use vm_memory::{Bytes, GuestAddress};

/// What the input chooses from: merged buffers, tables, event index, the header of old drivers, and packed rings.
const FEATURES: [u64; 5] =
    [feature::MERGEABLE, feature::INDIRECT, feature::EVENT_INDEX, feature::VERSION_1, feature::RING_PACKED];
/// A bit of the first byte: the rings have records. And one: they are not empty.
const HAS_RECORDS: u8 = 1 << 5;
const HAS_OLD_RECORDS: u8 = 1 << 6;
/// And one: the guest takes GSO frames, and what it gets are the segments of one.
const TAKES_LARGE: u8 = 1 << 7;
/// A bit of a step's byte: what it sends is the last of its iteration, so that nothing is kept.
const LAST_OF_ITERATION: u8 = 1 << 3;
/// The virtio-net header of a GSO frame of TCP over IPv4, without the size of its segments.
const LARGE_HEADER: [u8; 10] = [1, 1, 54, 0, 0, 0, 34, 0, 16, 0];
/// Rings have up to this many entries, and a table as many descriptors.
const ENTRIES: u16 = 256;
/// Where tables begin; buffers are behind it.
const TABLE: u64 = BUFFERS;
/// How often the input starts rings again: each time costs messages to another thread, which take longer than all else.
const STARTS_MAX: usize = 8;
/// The end of the guest's memory.
const END: u64 = 16 << 20;

/// Whatever the guest writes, nothing panics, a poll gives a batch at most, and no frame is lost.
pub fn vhost_rings(data: &[u8]) {
    thread_local!(static PORTS: RefCell<[Option<Target>; 2]> = const { RefCell::new([None, None]) });
    let has_records = data.first().is_some_and(|first| first & HAS_RECORDS != 0);
    PORTS.with_borrow_mut(|ports| {
        ports[usize::from(has_records)].get_or_insert_with(|| Target::new(has_records)).run(&mut Input(data));
    });
}

/// A port and its guest, which are set up anew for each input.
struct Target {
    port: GuestPort,
    /// Whether its rings are packed now.
    is_packed: bool,
    /// Whether the guest takes GSO frames.
    takes_large: bool,
    /// Where chains in flight are recorded, if they are.
    inflight: Option<Inflight>,
}

impl Target {
    fn new(has_records: bool) -> Self {
        let port = GuestPort::open(&mut Pools::new(256), feature::VERSION_1, ENTRIES);
        let inflight = has_records.then(|| port.guest.ask_inflight());
        Target { port, is_packed: false, takes_large: false, inflight }
    }

    fn run(&mut self, input: &mut Input<'_>) {
        let chosen = input.byte();
        let features = FEATURES.iter().enumerate().filter(|(bit, _)| chosen >> bit & 1 != 0);
        let large = if chosen & TAKES_LARGE != 0 { feature::GUEST_LARGE } else { 0 };
        let features = features.fold(large, |sum, (_, feature)| sum | feature);
        self.takes_large = large != 0;
        self.is_packed = features & feature::RING_PACKED != 0;
        self.set_up(features, 1 << (input.byte() % 9), (chosen & HAS_OLD_RECORDS != 0).then_some(&mut *input));
        let (mut buffers, mut tally, mut starts) = (Buffers::new(), Tally::default(), 0);
        while !input.is_empty() {
            let what = input.byte();
            let ring = u32::from(what >> 7);
            match what & 7 {
                0 | 1 => {
                    let (at, descriptor) = read_descriptor(input);
                    self.port.guest.write_descriptor(ring, at, self.in_format(descriptor));
                }
                2 => self.describe_in_table(input),
                3 if self.is_packed => self.invert(ring, input),
                3 => self.name_heads(ring, input),
                4 => self.poll(&mut buffers, &mut tally),
                5 => self.send(what & LAST_OF_ITERATION != 0, input, &mut buffers, &mut tally),
                6 => {
                    let base = u32::from(input.byte()) | u32::from(input.byte()) << 8;
                    if starts < STARTS_MAX {
                        self.port.guest.start(ring, base);
                        starts += 1;
                    }
                }
                _ => self.write_event(ring, input),
            }
        }
        self.poll(&mut buffers, &mut tally);
        self.port.tx.send_kept(&mut buffers, &mut tally);
        for ring in 0..2 {
            self.port
                .guest
                .take_used(ring)
                .iter()
                .for_each(|(head, _)| assert!(*head < u32::from(self.port.guest.size)));
        }
        assert_eq!(tally.conserved(), Ok(()));
        buffers.flush();
        assert_eq!(self.port.pool.available(), self.port.pool.capacity(), "a frame is lost");
    }

    /// Stops the rings, clears them, and starts them with these features and entries, and with old records.
    fn set_up(&mut self, features: u64, size: u16, records: Option<&mut Input<'_>>) {
        self.port.guest.renegotiate(features, size);
        if let Some(inflight) = &self.inflight {
            let len = inflight.file.metadata().expect("a file").len() as usize;
            inflight.file.write_all_at(&vec![0; len], 0).expect("inside");
            if let Some(input) = records {
                write_records(input, &inflight.file);
            }
            self.port.guest.hand_inflight(inflight);
        }
        for ring in 0..2 {
            let place = Place::of(ring);
            for at in [place.descriptors, place.available, place.used, TABLE] {
                let zeros = [0; 16 * ENTRIES as usize];
                self.port.guest.memory.write_slice(&zeros, GuestAddress(at)).expect("inside");
            }
            self.port.guest.start(ring, self.port.guest.base(ring));
        }
        // What was said is done when this is answered.
        self.port.guest.offered_features();
    }

    /// A descriptor as the ring's format has it. In a packed ring the id comes before the flags, and its high bits say
    /// whether the descriptor is available.
    fn in_format(&self, (address, len, flags, next): Described) -> Described {
        let available = [AVAILABLE, USED, AVAILABLE | USED, 0][usize::from(next >> 6 & 3)];
        if self.is_packed { (address, len, next, flags | available) } else { (address, len, flags, next) }
    }

    /// Writes a descriptor into the table that descriptors of rings may refer to.
    fn describe_in_table(&self, input: &mut Input<'_>) {
        let (at, descriptor) = read_descriptor(input);
        let (address, len, third, fourth) = self.in_format(descriptor);
        let rest = u64::from(len) | u64::from(third) << 32 | u64::from(fourth) << 48;
        let bytes = [address, rest].map(u64::to_le_bytes).concat();
        self.port.guest.memory.write_slice(&bytes, GuestAddress(TABLE + 16 * u64::from(at))).expect("inside");
    }

    /// Makes chains available, or lets the index jump.
    fn name_heads(&mut self, ring: u32, input: &mut Input<'_>) {
        let n = input.byte();
        if n >= 0xf0 {
            self.port.guest.available[ring as usize] ^= u16::from(input.byte()) << (n & 7);
        }
        for head in input.bytes(usize::from(n % 40)) {
            self.port.guest.offer(ring, u16::from(*head));
        }
        self.port.guest.publish(ring);
    }

    /// Makes used descriptors of a packed ring available again, or the reverse.
    fn invert(&self, ring: u32, input: &mut Input<'_>) {
        let (first, n) = (u64::from(input.byte()), u64::from(input.byte()));
        for at in first..first + n {
            let flags = GuestAddress(Place::of(ring).descriptors + 16 * at + 14);
            let old: u16 = self.port.guest.memory.read_obj(flags).expect("inside");
            self.port.guest.memory.write_obj(old ^ AVAILABLE, flags).expect("inside");
        }
    }

    /// Writes where the guest wants to be notified.
    fn write_event(&self, ring: u32, input: &mut Input<'_>) {
        let available = Place::of(ring).available;
        let at = available + if self.is_packed { 0 } else { 4 + 2 * u64::from(self.port.guest.size) };
        let event = u16::from(input.byte());
        self.port.guest.memory.write_obj(event, GuestAddress(at)).expect("inside");
        if self.is_packed {
            let (wrap, flags) = (input.byte() << 7, u16::from(input.byte() & 3));
            self.port.guest.memory.write_obj(wrap, GuestAddress(available + 1)).expect("inside");
            self.port.guest.memory.write_obj(flags, GuestAddress(available + 2)).expect("inside");
        }
    }

    fn poll(&mut self, buffers: &mut Buffers, tally: &mut Tally) {
        let mut batch = PacketBatch::new();
        self.port.rx.poll(&mut batch, buffers, tally);
        tally[Counter::Received] += batch.len() as u64;
        batch.discard(DropReason::Rules, buffers, tally);
    }

    /// Sends some packets, the last of an iteration or not.
    fn send(&mut self, is_last: bool, input: &mut Input<'_>, buffers: &mut Buffers, tally: &mut Tally) {
        let (n, len) = (usize::from(input.byte()) % (BATCH_MAX + 1), 14 + 6 * usize::from(input.byte()));
        let mut batch = PacketBatch::new();
        buffers.fill(&self.port.pool, n, len, &mut batch);
        if self.takes_large && len > 54 {
            write_segments(&mut batch);
        } else {
            batch.iter_mut().for_each(|packet| packet.bytes_mut().fill(n as u8));
        }
        tally[Counter::Originated] += batch.len() as u64;
        self.port.tx.send(&mut batch, buffers, tally);
        assert!(batch.is_empty());
        if is_last {
            self.port.tx.send_kept(buffers, tally);
            assert!(!self.port.tx.keeps_packets());
        }
    }
}

/// Makes packets of one length the segments of a GSO frame.
fn write_segments(batch: &mut PacketBatch) {
    let Some(size) = batch.first().map(|packet| packet.frame.len() - 54) else { return };
    let whole = frame::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tcp(1, 2).tcp_flags(0x10);
    let whole = whole.payload(&vec![1; size * batch.len()]).build();
    let mut header = LARGE_HEADER;
    header[4..6].copy_from_slice(&(size as u16).to_le_bytes());
    let header = VnetHeader::read(&header).expect("ten bytes are a header");
    let mut segments = header.segments(&whole).expect("a GSO frame of TCP");
    for packet in batch.iter_mut() {
        segments.next_into(packet.bytes_mut()).expect("as many segments as packets");
    }
}

/// Writes a header that is likely a valid one, of a ring of either format, and some entries.
fn write_records(input: &mut Input<'_>, file: &File) {
    let [version, first, second, third] = [(); 4].map(|()| u16::from(input.byte()));
    let header = [version & 3, ENTRIES, first, second, third, third ^ version >> 2, version >> 4];
    file.write_all_at(&header.map(u16::to_le_bytes).concat(), 8).expect("inside");
    for _ in 0..input.byte() % 32 {
        let [at, part, value] = [(); 3].map(|()| input.byte());
        let at = 16 + 16 * u64::from(at) + u64::from(part % 16);
        file.write_all_at(&[value], at).expect("inside");
    }
}

/// A descriptor, likely a valid one, and its place in its table.
fn read_descriptor(input: &mut Input<'_>) -> (u16, Described) {
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
