//! What a guest that means harm can do to a vhost-user port: its ring rests, its neighbours and the control threads do
//! not wait, and no frame is lost. And what the port says of an honest one.
//!
//! What a batch costs at most, counted in descriptors and bytes, is shown beside the rings (`vhost_user::work`).

use rustix::fs::OFlags;
use sluice_fate::{Counter, DropReason, Limit};
use sluice_packet::{BATCH_MAX, PacketBatch};
use sluice_port::Pools;
use sluice_testkit::vhost_guest::{
    AVAILABLE, BUFFERS, Described, Guest, GuestPort, INDIRECT, NEXT, Place, USED, WRITE, feature, request,
};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use vm_memory::{Bytes, GuestAddress};

const ALL_FEATURES: u64 = feature::VERSION_1 | feature::MERGEABLE | feature::INDIRECT;
const PACKED: u64 = ALL_FEATURES | feature::RING_PACKED;

/// A port with a guest that has other intentions.
struct Victim(GuestPort);

impl std::ops::Deref for Victim {
    type Target = GuestPort;

    fn deref(&self) -> &GuestPort {
        &self.0
    }
}

impl std::ops::DerefMut for Victim {
    fn deref_mut(&mut self) -> &mut GuestPort {
        &mut self.0
    }
}

impl Victim {
    /// With split rings of `size` entries, which run.
    fn new(size: u16) -> Self {
        Victim::with(ALL_FEATURES, size)
    }

    /// With these features, and rings of `size` entries, which run.
    fn with(features: u64, size: u16) -> Self {
        let victim = Victim(GuestPort::open(&mut Pools::new(1024), features, size));
        assert!(victim.port.is_up());
        victim
    }

    fn wait_until(&mut self, what: &str, is_so: impl Fn(&mut Self) -> bool) {
        let began = Instant::now();
        while !is_so(self) {
            assert!(began.elapsed() < Duration::from_secs(10), "{what}");
            std::thread::yield_now();
        }
    }

    /// Polls once. Returns how many packets came.
    fn poll(&mut self) -> usize {
        let GuestPort { rx, buffers, tally, .. } = &mut self.0;
        let mut batch = PacketBatch::new();
        rx.poll(&mut batch, buffers, tally);
        let came = batch.len();
        tally[Counter::Received] += came as u64;
        batch.discard(DropReason::Rules, buffers, tally);
        came
    }

    /// Sends a full batch. Returns how many packets the guest got.
    fn send(&mut self, len: usize) -> u64 {
        let GuestPort { tx, pool, buffers, tally, .. } = &mut self.0;
        let mut batch = PacketBatch::new();
        buffers.fill(pool, BATCH_MAX, len, &mut batch);
        batch.iter_mut().for_each(|packet| packet.bytes_mut().fill(7));
        tally[Counter::Originated] += BATCH_MAX as u64;
        let before = tally[Counter::Sent];
        tx.send(&mut batch, buffers, tally);
        tally[Counter::Sent] - before
    }

    /// Makes the chain that begins with `head` available `times`.
    fn offer(&mut self, ring: u32, head: u16, times: usize) {
        (0..times).for_each(|_| self.guest.offer(ring, head));
        self.guest.publish(ring);
    }

    /// Sets the rings up without the chains that were made available.
    fn set_up_again(&mut self) {
        for ring in 0..2 {
            self.guest.available[ring] = self.guest.used[ring];
            self.guest.publish(ring as u32);
            self.guest.start(ring as u32, u32::from(self.guest.used[ring]));
        }
        self.wait_until("the rings run", |victim| victim.port.is_up());
        // What comes behind their start is done, too: it locks a ring, and a poll does not wait for that.
        self.guest.offered_features();
    }

    /// Ends it, and checks that nothing is lost and nobody waits.
    fn end(self) {
        self.0.end();
    }
}

/// Writes a descriptor of a table at a guest's address. In a table for a packed ring the id comes before the flags.
fn describe_at(guest: &Guest, table: u64, at: u16, (address, len, flags, next): Described) {
    let rest = u64::from(len) | u64::from(flags) << 32 | u64::from(next) << 48;
    let bytes = [address, rest].map(u64::to_le_bytes).concat();
    guest.memory.write_slice(&bytes, GuestAddress(table + 16 * u64::from(at))).unwrap();
}

type Attack = (&'static str, fn(&Guest, u32, u16));

/// What a guest writes into a split ring, given the flags of an honest buffer. Entry 0 of the table begins each chain.
const ATTACKS: &[Attack] = &[
    ("descriptors without bytes", |guest, ring, flags| {
        let last = guest.size - 1;
        (0..last).for_each(|at| guest.write_descriptor(ring, at, (BUFFERS, 0, flags | NEXT, at + 1)));
        guest.write_descriptor(ring, last, (BUFFERS, 0, flags, 0));
    }),
    ("one descriptor with a header's bytes, then thousands without", |guest, ring, flags| {
        guest.write_descriptor(ring, 0, (BUFFERS, 12, flags | NEXT, 1));
        let last = guest.size - 1;
        (1..last).for_each(|at| guest.write_descriptor(ring, at, (BUFFERS, 0, flags | NEXT, at + 1)));
        guest.write_descriptor(ring, last, (BUFFERS, 0, flags, 0));
    }),
    ("a descriptor that follows itself", |guest, ring, flags| {
        guest.write_descriptor(ring, 0, (BUFFERS, 1, flags | NEXT, 0))
    }),
    ("two descriptors that follow each other", |guest, ring, flags| {
        guest.write_descriptor(ring, 0, (BUFFERS, 1, flags | NEXT, 1));
        guest.write_descriptor(ring, 1, (BUFFERS, 1, flags | NEXT, 0));
    }),
    ("a chain of all descriptors of one byte", |guest, ring, flags| {
        let last = guest.size - 1;
        (0..last).for_each(|at| guest.write_descriptor(ring, at, (BUFFERS, 1, flags | NEXT, at + 1)));
        guest.write_descriptor(ring, last, (BUFFERS, 1, flags, 0));
    }),
    ("a successor that the table does not have", |guest, ring, flags| {
        guest.write_descriptor(ring, 0, (BUFFERS, 1, flags | NEXT, guest.size));
    }),
    ("a buffer over the end of memory", |guest, ring, flags| {
        guest.write_descriptor(ring, 0, ((16 << 20) - 8, 100, flags, 0))
    }),
    ("a buffer over the end of addresses", |guest, ring, flags| {
        guest.write_descriptor(ring, 0, (u64::MAX - 8, 100, flags, 0))
    }),
    ("a buffer of four gigabytes without memory", |guest, ring, flags| {
        guest.write_descriptor(ring, 0, (1 << 40, u32::MAX, flags, 0));
    }),
    ("a buffer of the other direction", |guest, ring, flags| {
        guest.write_descriptor(ring, 0, (BUFFERS, 100, flags ^ WRITE, 0))
    }),
    ("an empty table", |guest, ring, _| guest.write_descriptor(ring, 0, (BUFFERS, 0, INDIRECT, 0))),
    ("a table of one and a half descriptors", |guest, ring, flags| {
        describe_at(guest, BUFFERS, 0, (BUFFERS + 4096, 100, flags, 0));
        guest.write_descriptor(ring, 0, (BUFFERS, 24, INDIRECT, 0));
    }),
    ("a table in a table", |guest, ring, _| {
        describe_at(guest, BUFFERS, 0, (BUFFERS, 16, INDIRECT, 0));
        guest.write_descriptor(ring, 0, (BUFFERS, 16, INDIRECT, 0));
    }),
    ("a table that goes round", |guest, ring, flags| {
        describe_at(guest, BUFFERS, 0, (BUFFERS + 4096, 1, flags | NEXT, 1));
        describe_at(guest, BUFFERS, 1, (BUFFERS + 4096, 1, flags | NEXT, 0));
        guest.write_descriptor(ring, 0, (BUFFERS, 32, INDIRECT, 0));
    }),
    ("a table of four gigabytes that leaves memory", |guest, ring, _| {
        guest.write_descriptor(ring, 0, ((16 << 20) - 8, 0xffff_fff0, INDIRECT, 0));
    }),
    ("a successor that a table does not have", |guest, ring, flags| {
        describe_at(guest, BUFFERS, 0, (BUFFERS + 4096, 1, flags | NEXT, 9));
        guest.write_descriptor(ring, 0, (BUFFERS, 16, INDIRECT, 0));
    }),
    ("a table with a successor", |guest, ring, flags| {
        describe_at(guest, BUFFERS, 0, (BUFFERS + 4096, 100, flags, 0));
        guest.write_descriptor(ring, 0, (BUFFERS, 16, INDIRECT | NEXT, 1));
        guest.write_descriptor(ring, 1, (BUFFERS + 4096, 100, flags, 0));
    }),
];

/// What a guest writes into a packed ring that begins, given the flags of an honest buffer that is available.
const PACKED_ATTACKS: &[Attack] = &[
    ("descriptors without bytes", |guest, ring, flags| {
        (0..guest.size).for_each(|at| guest.write_descriptor(ring, at, (BUFFERS, 0, 0, flags | NEXT)));
    }),
    ("one descriptor with a header's bytes, then thousands without", |guest, ring, flags| {
        guest.write_descriptor(ring, 0, (BUFFERS, 12, 0, flags | NEXT));
        (1..guest.size).for_each(|at| guest.write_descriptor(ring, at, (BUFFERS, 0, 0, flags | NEXT)));
    }),
    ("a chain that goes around", |guest, ring, flags| {
        (0..guest.size).for_each(|at| guest.write_descriptor(ring, at, (BUFFERS, 1, 0, flags | NEXT)));
    }),
    ("a chain of all descriptors of one byte", |guest, ring, flags| {
        (0..guest.size - 1).for_each(|at| guest.write_descriptor(ring, at, (BUFFERS, 1, 0, flags | NEXT)));
        guest.write_descriptor(ring, guest.size - 1, (BUFFERS, 1, 0, flags));
    }),
    ("a buffer over the end of memory", |guest, ring, flags| {
        guest.write_descriptor(ring, 0, ((16 << 20) - 8, 100, 0, flags));
    }),
    ("a buffer over the end of addresses", |guest, ring, flags| {
        guest.write_descriptor(ring, 0, (u64::MAX - 8, 100, 0, flags));
    }),
    ("a buffer of four gigabytes without memory", |guest, ring, flags| {
        guest.write_descriptor(ring, 0, (1 << 40, u32::MAX, 0, flags));
    }),
    ("a buffer of the other direction", |guest, ring, flags| {
        guest.write_descriptor(ring, 0, (BUFFERS, 100, 0, flags ^ WRITE));
    }),
    ("an empty table", |guest, ring, flags| guest.write_descriptor(ring, 0, (BUFFERS, 0, 0, flags | INDIRECT))),
    ("a table of one and a half descriptors", |guest, ring, flags| {
        describe_at(guest, BUFFERS, 0, (BUFFERS + 4096, 100, 0, flags));
        guest.write_descriptor(ring, 0, (BUFFERS, 24, 0, flags | INDIRECT));
    }),
    ("a table of 257 descriptors", |guest, ring, flags| {
        (0..257).for_each(|at| describe_at(guest, BUFFERS, at, (BUFFERS + 8192, 1, 0, flags)));
        guest.write_descriptor(ring, 0, (BUFFERS, 257 * 16, 0, flags | INDIRECT));
    }),
    ("a table of four gigabytes that leaves memory", |guest, ring, flags| {
        guest.write_descriptor(ring, 0, ((16 << 20) - 8, 0xffff_fff0, 0, flags | INDIRECT));
    }),
    ("a table with a successor", |guest, ring, flags| {
        describe_at(guest, BUFFERS, 0, (BUFFERS + 4096, 100, 0, flags));
        guest.write_descriptor(ring, 0, (BUFFERS, 16, 0, flags | INDIRECT | NEXT));
        guest.write_descriptor(ring, 1, (BUFFERS + 4096, 100, 0, flags));
    }),
];

#[test]
fn a_ring_of_such_chains_rests_until_it_is_set_up_again() {
    for size in [512, 32_768] {
        let mut victim = Victim::new(size);
        let before = Limit::VhostChains.count();
        for ((name, attack), errors) in ATTACKS.iter().zip(1..) {
            attack(&victim.guest, 1, 0);
            victim.offer(1, 0, usize::from(size));
            let came = (0..4).map(|_| victim.poll()).sum::<usize>();
            assert_eq!((came, victim.port.stats().rx_errors), (0, errors), "{name}, {size} entries");
            assert!(!victim.port.is_up(), "{name}: the ring of {size} entries rests");
            // The other direction, too.
            attack(&victim.guest, 0, WRITE);
            victim.offer(0, 0, usize::from(size));
            let got = (0..4).map(|_| victim.send(60)).sum::<u64>();
            assert_eq!((got, victim.port.stats().tx_errors), (0, errors), "{name}, {size} entries to write");

            victim.set_up_again();
            // Where no attack has written.
            victim.guest.describe(1, 0, (BUFFERS + 0x10_0000, 72, 0, 0));
            victim.guest.describe(0, 0, (BUFFERS + 0x10_0000, 72, WRITE, 0));
            (0..2).for_each(|ring| victim.offer(ring, 0, 1));
            assert_eq!((victim.poll(), victim.send(60)), (1, 1), "{name}: set up again, {size} entries");
            (0..2).for_each(|ring| assert_eq!(victim.guest.take_used(ring).len(), 1));
        }
        assert!(Limit::VhostChains.count() >= before + 2 * ATTACKS.len() as u64);
        victim.end();
    }
}

#[test]
fn a_packed_ring_of_such_chains_rests_until_it_is_set_up_again() {
    for size in [512, 32_768] {
        let mut victim = Victim::with(PACKED, size);
        for ((name, attack), errors) in PACKED_ATTACKS.iter().zip(1..) {
            attack(&victim.guest, 1, AVAILABLE);
            let came = (0..4).map(|_| victim.poll()).sum::<usize>();
            assert_eq!((came, victim.port.stats().rx_errors), (0, errors), "{name}, {size} entries");
            assert!(!victim.port.is_up(), "{name}: the ring of {size} entries rests");
            // The other direction, too.
            attack(&victim.guest, 0, WRITE | AVAILABLE);
            let got = (0..4).map(|_| victim.send(60)).sum::<u64>();
            assert_eq!((got, victim.port.stats().tx_errors), (0, errors), "{name}, {size} entries to write");

            victim.guest.renegotiate(PACKED, size);
            for ring in 0..2 {
                (0..size).for_each(|at| victim.guest.write_descriptor(ring, at, (0, 0, 0, 0)));
                victim.guest.start(ring, victim.guest.base(ring));
            }
            victim.wait_until("the rings run", |victim| victim.port.is_up());
            victim.guest.offered_features();
            // Where no attack has written.
            victim.guest.describe(1, 0, (BUFFERS + 0x10_0000, 72, 0, 0));
            victim.guest.describe(0, 0, (BUFFERS + 0x10_0000, 72, WRITE, 0));
            (0..2).for_each(|ring| victim.offer(ring, 0, 1));
            assert_eq!((victim.poll(), victim.send(60)), (1, 1), "{name}: set up again, {size} entries");
            (0..2).for_each(|ring| assert_eq!(victim.guest.take_used(ring).len(), 1));
            // Descriptor 0 is where the next attack begins.
            victim.guest.renegotiate(PACKED, size);
            (0..2).for_each(|ring| victim.guest.start(ring, victim.guest.base(ring)));
            victim.guest.offered_features();
        }
        victim.end();
    }
}

#[test]
fn a_packed_ring_that_begins_beyond_its_end_does_not_run() {
    let mut victim = Victim::with(PACKED, 256);
    victim.guest.start(1, 256);
    victim.guest.offered_features();
    assert!(!victim.port.is_up());
    victim.guest.start(1, victim.guest.base(1));
    victim.guest.offered_features();
    assert!(victim.port.is_up());
    victim.end();
}

#[test]
fn descriptors_made_available_again_and_again_cost_a_poll_its_bound() {
    let mut victim = Victim::with(PACKED, 4);
    // As often as it polls: each wrap counter finds a descriptor of its own.
    for flags in [AVAILABLE, USED].into_iter().cycle().take(100) {
        (0..4).for_each(|at| victim.guest.write_descriptor(1, at, (BUFFERS, 72, 0, flags)));
        assert_eq!(victim.poll(), 4, "one lap a poll");
    }
    assert!(victim.port.is_up());
    victim.end();
}

#[test]
fn an_index_that_jumps_beyond_the_ring_breaks_it() {
    for size in [1, 256, 32_768] {
        for jump in [u32::from(size) + 1, 40_000, 65_535] {
            let mut victim = Victim::new(size);
            victim.guest.describe(1, 0, (BUFFERS, 72, 0, 0));
            let index = GuestAddress(Place::of(1).available + 2);
            victim.guest.memory.write_obj(jump as u16, index).unwrap();
            assert_eq!((victim.poll(), victim.port.stats().rx_errors), (0, 1), "{size} entries, {jump} more");
            victim.end();
        }
    }
}

#[test]
fn the_smallest_and_the_largest_ring_carry_packets() {
    let shapes = [(ALL_FEATURES, 1, 1), (ALL_FEATURES, 32_768, BATCH_MAX), (PACKED, 1, 1), (PACKED, 32_768, BATCH_MAX)];
    for (features, size, at_once) in shapes {
        let mut victim = Victim::with(features, size);
        for at in 0..size {
            victim.guest.describe(1, at, (BUFFERS, 72, 0, 0));
            victim.guest.describe(0, at, (BUFFERS + 4096, 2048, WRITE, 0));
        }
        // More than the index counts.
        for round in 0..70_000 / at_once {
            for ring in [0, 1] {
                (0..at_once).for_each(|i| victim.guest.offer(ring, ((round * at_once + i) % usize::from(size)) as u16));
                victim.guest.publish(ring);
            }
            assert_eq!((victim.poll(), victim.send(60)), (at_once, at_once as u64), "round {round}");
            assert_eq!(victim.guest.take_used(1).len(), at_once);
            assert_eq!(victim.guest.take_used(0).len(), at_once);
        }
        assert!(victim.port.is_up());
        victim.end();
    }
}

#[test]
fn descriptors_a_poll_are_bounded_for_chains_of_any_honest_length() {
    // As long as a chain may be, and the whole ring of them.
    for (features, chains) in [(ALL_FEATURES, 32_768), (PACKED, 32_768 / 256)] {
        let mut victim = Victim::with(features, 32_768);
        for at in 0..256 {
            let flags = if at == 255 { 0 } else { NEXT };
            victim.guest.describe(1, at, (BUFFERS, if at == 0 { 12 } else { 1 }, flags, at + 1));
        }
        victim.offer(1, 0, chains);
        let came = victim.poll();
        assert!((1..=3).contains(&came), "{came} chains of 256 descriptors in a poll");
        assert!(victim.port.is_up(), "they are allowed");
        victim.end();
    }
}

#[test]
fn a_call_descriptor_that_is_full_or_blocks_does_not_hold_a_pmd() {
    let full = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
    rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    let (_reader, pipe) = std::io::pipe().unwrap();
    rustix::fs::fcntl_setfl(&pipe, OFlags::NONBLOCK).unwrap();
    while rustix::io::write(&pipe, &[0; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&pipe, OFlags::empty()).unwrap();
    for call in [full.as_fd(), pipe.as_fd()] {
        let mut victim = Victim::new(256);
        (0..256).for_each(|at| victim.guest.describe(1, at, (BUFFERS, 72, 0, 0)));
        victim.guest.set_call(1, call);
        victim.guest.offered_features();
        (0..4).for_each(|_| {
            victim.offer(1, 0, BATCH_MAX);
            assert_eq!(victim.poll(), BATCH_MAX);
        });
        victim.end();
    }
}

#[test]
fn a_guest_that_leaves_or_changes_its_memory_loses_no_frame() {
    leaves_or_changes_its_memory(Victim::new(256));
    leaves_or_changes_its_memory(Victim::with(PACKED, 256));
}

fn leaves_or_changes_its_memory(mut victim: Victim) {
    (0..256).for_each(|at| victim.guest.describe(1, at, (BUFFERS, 72, 0, 0)));
    (0..256).for_each(|at| victim.guest.describe(0, at, (BUFFERS + 4096, 2048, WRITE, 0)));
    let (mut offered, mut came) = (0, 0);
    for round in 0..2000 {
        if round % 10 == 0 {
            victim.guest.share_memory();
        }
        let free = 256 - (offered - came);
        let more = free.min(BATCH_MAX);
        victim.offer(1, 0, more);
        let waiting = victim.guest.available[0].wrapping_sub(victim.guest.used[0]);
        victim.offer(0, 0, 256 - usize::from(waiting));
        offered += more;
        came += victim.poll();
        let sent = victim.send(60) as usize;
        assert_eq!(victim.guest.take_used(0).len(), sent);
    }
    victim.guest.offered_features();
    while came < offered {
        came += victim.poll();
    }
    assert_eq!((came, victim.port.stats().rx_errors, victim.port.stats().tx_errors), (offered, 0, 0));
    // It leaves with packets in its rings.
    victim.offer(1, 0, 200);
    assert_eq!(victim.poll(), BATCH_MAX);
    victim.guest.socket.shutdown(Shutdown::Both).unwrap();
    // Those that wait in the ring may come until it stops.
    victim.wait_until("the port is down", |victim| victim.poll() == 0 && !victim.port.is_up());
    assert_eq!((victim.poll(), victim.send(60)), (0, 0));
    victim.end();
}

#[test]
fn the_status_says_what_the_guest_negotiated() {
    let mut victim = Victim::new(512);
    let details = |victim: &Victim| victim.port.device_status().details;
    let socket = victim.path.display().to_string();
    let connected = [
        ("mode", "server"),
        ("status", "connected"),
        ("socket", &socket),
        ("features", "0x0000000110008000"),
        ("num_of_vrings", "2"),
        ("vring_0_size", "512"),
        ("vring_1_size", "512"),
    ];
    assert_eq!(details(&victim), connected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    victim.guest.socket.shutdown(Shutdown::Both).unwrap();
    victim.wait_until("the guest has left", |victim| details(victim).len() == 2);
    let left = [("mode", "server"), ("status", "disconnected")];
    assert_eq!(details(&victim), left.map(|(key, value)| (key.to_owned(), value.to_owned())));
    victim.end();
}

#[test]
fn a_frontend_that_resets_the_owner_stops_the_rings_and_keeps_its_memory() {
    let features = ALL_FEATURES | feature::GUEST_ANNOUNCE;
    let mut victim = Victim::with(features, 8);
    victim.guest.say(request::RESET_OWNER, &[], &[]);
    victim.guest.offered_features();
    assert!(!victim.port.is_up());
    assert!(victim.port.device_status().details.contains(&("status".into(), "connected".into())));
    // The rings run again where they were, in memory that is not shared anew.
    victim.guest.say(request::SET_FEATURES, &features.to_le_bytes(), &[]);
    victim.guest.offered_features();
    assert!(victim.port.is_up());
    victim.guest.describe(1, 0, (BUFFERS, 72, 0, 0));
    victim.offer(1, 0, 1);
    assert_eq!(victim.poll(), 1);
    victim.end();
}

#[test]
fn rings_that_are_enabled_before_features_are_negotiated_run() {
    let mut victim = Victim::new(8);
    let path = victim.path.clone();
    victim.guest.reconnect_as_qemu(&path, ALL_FEATURES);
    victim.guest.offered_features();
    assert!(!victim.port.is_up(), "nothing is set up");
    victim.set_up_again();
    victim.guest.describe(1, 0, (BUFFERS, 72, 0, 0));
    victim.offer(1, 0, 1);
    assert_eq!(victim.poll(), 1);
    // A ring that is disabled stops, and goes on when it is enabled.
    for (enable, is_up) in [(0u32, false), (1, true)] {
        victim.guest.say(request::SET_VRING_ENABLE, &[1, enable].map(u32::to_le_bytes).concat(), &[]);
        victim.guest.offered_features();
        assert_eq!(victim.port.is_up(), is_up);
    }
    victim.offer(1, 0, 1);
    assert_eq!(victim.poll(), 1);
    victim.end();
}

#[test]
fn a_guest_that_has_migrated_is_announced_once() {
    let mut victim = Victim::new(8);
    let mac = [0x52, 0x54, 0, 1, 2, 3];
    victim.guest.say(request::SEND_RARP, &[&mac[..], &[0; 2]].concat(), &[]);
    victim.guest.offered_features();
    victim.guest.describe(1, 0, (BUFFERS, 72, 0, 0));
    victim.offer(1, 0, 1);
    let GuestPort { rx, buffers, tally, .. } = &mut victim.0;
    let mut batch = PacketBatch::new();
    rx.poll(&mut batch, buffers, tally);
    assert_eq!(batch.len(), 2, "the announcement, and what the guest sent");
    // Decoded by eye: a reverse request of the guest about itself, without IPv4 addresses.
    let rarp = [&[0xff; 6][..], &mac, &[0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3], &mac, &[0; 4], &mac, &[0; 4]].concat();
    assert_eq!((&batch[0].bytes()[..42], batch[0].bytes().len()), (&rarp[..], 60));
    tally[Counter::Received] += 2;
    batch.discard(DropReason::Rules, buffers, tally);
    assert_eq!(victim.poll(), 0);
    // One of another length is no such request, and ends the connection.
    victim.guest.say(request::SEND_RARP, &[0; 4], &[]);
    victim.wait_until("the port is down", |victim| !victim.port.is_up());
    victim.end();
}
