//! Guests whose memory is copied while the switch writes it, as in a live migration: when the switch has stopped, the copy is
//! the memory, page by page, whatever was copied when.

use sluice_fate::{DropReason, Tally};
use sluice_packet::{BATCH_MAX, Buffers, PacketBatch};
use sluice_port::Pools;
use sluice_testkit::vhost_guest::{BUFFERS, Guest, GuestPort, INDIRECT, NEXT, PAGE, Place, WRITE, feature};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// So many that the used ring has its index and most of its entries on different pages.
const SIZE: u16 = 1024;
/// Buffers of a ring, which its chains take in turns.
const BUFFERS_OF_RING: u64 = 64;
/// The distance of chains' buffers, which lie across pages.
const APART: u64 = PAGE + 1000;
/// Where the tables of descriptors are, apart from the buffers.
const TABLES: u64 = 8 << 20;
/// Migrations with each set of features, unless the environment says otherwise.
const MIGRATIONS: u64 = 60;

/// A ring's driver, with a chain of one buffer, two or three for each descriptor that begins one.
struct Driver {
    ring: u32,
    free: VecDeque<u16>,
}

impl Driver {
    fn new(guest: &mut Guest, ring: u32, features: u64) -> Self {
        let flags = if ring == 0 { WRITE } else { 0 };
        let address = |at: u16| BUFFERS + (u64::from(ring) * BUFFERS_OF_RING + u64::from(at) % BUFFERS_OF_RING) * APART;
        let has_tables = features & feature::INDIRECT != 0;
        for at in 0..SIZE {
            // Some chains have one buffer that is longer than any frame; others have two, the first with a header.
            match at % 4 {
                0 => guest.describe(ring, at, (address(at), 1600, flags, 0)),
                1 => guest.describe(ring, at, (address(at), 12, flags | NEXT, at + 1)),
                2 => guest.describe(ring, at, (address(at), 1600, flags, 0)),
                _ if has_tables => {
                    let table = TABLES + (u64::from(ring) * u64::from(SIZE) + u64::from(at)) * 64;
                    let parts = [(address(at), 12, flags | NEXT, 1), (address(at) + 100, 1600, flags, 0)];
                    guest.write_table(table, &parts);
                    guest.describe(ring, at, (table, 32, INDIRECT, 0));
                }
                _ => guest.describe(ring, at, (address(at), 1600, flags, 0)),
            }
        }
        Driver { ring, free: (0..SIZE).filter(|at| at % 4 != 2).collect() }
    }

    /// Makes all chains available that the switch has not got.
    fn offer(&mut self, guest: &mut Guest) {
        for head in self.free.drain(..) {
            guest.offer(self.ring, head);
        }
        guest.publish(self.ring);
    }

    fn take(&mut self, guest: &mut Guest) {
        self.free.extend(guest.take_used(self.ring).into_iter().map(|(head, _)| head as u16));
    }
}

/// What is there for the copy to begin with: rings, tables and buffers.
fn pages() -> Vec<u64> {
    let ring = |ring| {
        let place = Place::of(ring);
        let used = place.used / PAGE..=(place.used + 4 + 8 * u64::from(SIZE) + 2) / PAGE;
        written_by_guest(ring).chain(used)
    };
    let buffers = BUFFERS / PAGE..=(BUFFERS + 2 * BUFFERS_OF_RING * APART + 2000) / PAGE;
    let tables = TABLES / PAGE..=(TABLES + 2 * u64::from(SIZE) * 64) / PAGE;
    ring(0).chain(ring(1)).chain(buffers).chain(tables).collect()
}

/// The pages of a ring that the guest itself writes, of which its hypervisor knows by itself.
fn written_by_guest(ring: u32) -> impl Iterator<Item = u64> {
    let (place, size) = (Place::of(ring), u64::from(SIZE));
    let descriptors = place.descriptors / PAGE..=(place.descriptors + 16 * size - 1) / PAGE;
    descriptors.chain(place.available / PAGE..=(place.available + 4 + 2 * size + 1) / PAGE)
}

/// A generator of numbers, the same in each run. Source: Marsaglia, Xorshift RNGs, 2003.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Ends the PMD, also if an assertion fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn copies_are_the_memory(features: u64) {
    let migrations = std::env::var("SLUICE_TEST_MIGRATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(MIGRATIONS);
    let mut pools = Pools::new(1024);
    let GuestPort { mut guest, mut rx, mut tx, port, path, pool, .. } = GuestPort::open(&mut pools, features, SIZE);
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        // The PMD: frames of all lengths, no two alike.
        scope.spawn(|| {
            let (mut buffers, mut tally, mut random) = (Buffers::new(), Tally::default(), Random(7));
            while !stop.load(Relaxed) {
                let mut batch = PacketBatch::new();
                rx.poll(&mut batch, &mut buffers, &mut tally);
                batch.discard(DropReason::Rules, &mut buffers, &mut tally);
                for _ in 0..=random.below(BATCH_MAX as u64 - 1) {
                    let frame = vec![random.below(256) as u8; 60 + random.below(1440) as usize];
                    batch.push(buffers.write(&pool, &frame).unwrap());
                }
                tx.send(&mut batch, &mut buffers, &mut tally);
                written.store(tally[sluice_fate::Counter::Sent], Relaxed);
            }
            buffers.flush();
        });
        let _stop = StopOnDrop(&stop);
        let mut random = Random(11);
        let mut drivers = [0, 1].map(|ring| Driver::new(&mut guest, ring, features));
        for number in 0..migrations {
            let mut migration = guest.begin_migration(features, &pages());
            for _ in 0..random.below(8) {
                drivers.iter_mut().for_each(|driver| {
                    driver.take(&mut guest);
                    driver.offer(&mut guest);
                });
                (0..random.below(2000)).for_each(|_| std::hint::spin_loop());
                match random.below(4) {
                    0 => guest.replace_log(&mut migration),
                    _ => guest.copy_written(&mut migration),
                }
            }
            // The guest stops, and with it what it writes itself. The switch goes on with what it was offered.
            let guests: Vec<_> = written_by_guest(0).chain(written_by_guest(1)).collect();
            guest.copy(&mut migration, &guests);
            for _ in 0..random.below(3) {
                guest.copy_written(&mut migration);
            }
            let bases = guest.stop_migrating(&mut migration);
            let stale = guest.stale_pages(&migration);
            assert!(stale.is_empty(), "migration {number}, after {written:?} packets: pages {stale:x?}");
            drivers.iter_mut().for_each(|driver| driver.take(&mut guest));
            assert_eq!(
                bases.map(|base| base as u16),
                [0, 1].map(|ring| guest.base(ring) as u16),
                "where rings stopped"
            );
            // It runs on here, as after a migration that failed.
            guest.say_features(features);
            (0..2).for_each(|ring| guest.start(ring, bases[ring as usize]));
        }
    });
    assert!(written.load(Relaxed) > migrations, "{written:?} packets were written");
    drop((port, rx, tx, path));
}

#[test]
fn the_copy_of_a_guest_is_its_memory() {
    copies_are_the_memory(feature::VERSION_1);
}

#[test]
fn the_copy_of_a_guest_with_all_features_is_its_memory() {
    copies_are_the_memory(feature::VERSION_1 | feature::MERGEABLE | feature::EVENT_INDEX | feature::INDIRECT);
}

#[test]
fn the_copy_of_a_guest_with_packed_rings_is_its_memory() {
    copies_are_the_memory(feature::VERSION_1 | feature::RING_PACKED);
}

#[test]
fn the_copy_of_a_guest_with_packed_rings_and_all_features_is_its_memory() {
    let features = feature::MERGEABLE | feature::EVENT_INDEX | feature::INDIRECT;
    copies_are_the_memory(feature::VERSION_1 | feature::RING_PACKED | features);
}
