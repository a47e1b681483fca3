//! Rings whose process dies, at every point, and is succeeded by another one.

use super::inflight::{Recordable, RecordedRing};
use super::*;
use crate::vhost_user::inflight_buffer::{InflightBuffer, InflightLayout, InflightShape};
use crate::vhost_user::testing::{AVAILABLE, LAYOUT, PACKED, SIZE, TestGuest, USED, VERSION_1, WITH_TABLES};
use crate::vhost_user::work;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;

const SHAPE: InflightShape = InflightShape { queues: 2, queue_size: SIZE };
/// The base of a packed ring that begins: a frontend whose back end died knows no later one.
const FIRST: u32 = 1 << 15;

fn buffer() -> InflightBuffer {
    InflightBuffer::map(SHAPE.create().unwrap(), SHAPE, (SHAPE.bytes(), 0)).unwrap()
}

/// A back end that begins with what the buffer's second queue says.
fn ring<F: Recordable>(
    guest: &TestGuest,
    buffer: &InflightBuffer,
    features: Features,
) -> Result<RunningRing<RecordedRing<F>>> {
    let base = if features.is_packed() { FIRST } else { 0 };
    RunningRing::new(RingSetup { base, inflight: buffer.of_queue(1), ..guest.setup(features) })
}

/// A chain that a driver made available.
#[derive(Clone, Debug)]
struct Offered {
    id: u16,
    descriptors: Vec<u16>,
    address: u64,
}

/// A driver that offers chains of either format, and sees that each comes back once, in order.
struct Driver<'a> {
    guest: &'a TestGuest,
    is_packed: bool,
    /// Descriptors that no chain has, of a split ring.
    free: VecDeque<u16>,
    /// Ring entries that were filled, and that came back.
    filled: u32,
    came_back: u32,
    under_way: VecDeque<Offered>,
    chains: u64,
}

impl<'a> Driver<'a> {
    fn new(guest: &'a TestGuest, is_packed: bool) -> Self {
        let free = (0..SIZE).collect();
        Driver { guest, is_packed, free, filled: 0, came_back: 0, under_way: VecDeque::new(), chains: 0 }
    }

    /// An entry of a packed ring counted from the start: its index, and whether its lap is an even one.
    fn place(entry: u32) -> (u16, bool) {
        ((entry % u32::from(SIZE)) as u16, (entry / u32::from(SIZE)).is_multiple_of(2))
    }

    /// Offers a chain of `n` descriptors, if there are as many.
    fn offer(&mut self, n: u16) {
        if usize::from(n) > self.free.len() {
            return;
        }
        let address = 0x1000 + 0x10 * (self.chains % 0x100);
        let descriptors: Vec<u16> = self.free.drain(..usize::from(n)).collect();
        let id = descriptors[0];
        for (i, at) in (0u16..).zip(&descriptors) {
            let (next, address) = (if i + 1 < n { DESC_NEXT } else { 0 }, address + u64::from(i));
            if self.is_packed {
                let (at, is_even) = Self::place(self.filled + u32::from(i));
                let flags = next | if is_even { AVAILABLE } else { USED };
                self.guest.describe(LAYOUT.descriptors, at, (address, 9, id, flags));
            } else {
                let successor = descriptors.get(usize::from(i) + 1).copied().unwrap_or(0);
                self.guest.describe(LAYOUT.descriptors, *at, (address, 9, next, successor));
            }
        }
        if self.is_packed {
            self.filled += u32::from(n);
        } else {
            self.guest.offer(self.filled as u16, &[id]);
            self.filled += 1;
        }
        self.under_way.push_back(Offered { id, descriptors, address });
        self.chains += 1;
    }

    /// Takes back what was used. It is what was offered first.
    fn take(&mut self) {
        while let Some(chain) = self.under_way.front().cloned() {
            let found = if self.is_packed {
                let (at, is_even) = Self::place(self.came_back);
                let entry = LAYOUT.descriptors + 16 * u64::from(at);
                let flags = self.guest.u16_at(entry + 14);
                let is_used = (flags & AVAILABLE != 0, flags & USED != 0) == (is_even, is_even);
                is_used.then(|| self.guest.u16_at(entry + 12))
            } else {
                let is_used = self.guest.u16_at(LAYOUT.used + 2) != self.came_back as u16;
                let entry = LAYOUT.used + 4 + 8 * u64::from(self.came_back % u32::from(SIZE));
                is_used.then(|| self.guest.u32_at(entry) as u16)
            };
            let Some(id) = found else { return };
            assert_eq!(id, chain.id, "chains are used in order");
            self.came_back += if self.is_packed { chain.descriptors.len() as u32 } else { 1 };
            self.under_way.pop_front();
            // Descriptors are offered again in another order than before.
            chain.descriptors.into_iter().for_each(|at| self.free.push_front(at));
        }
        assert!(
            self.is_packed || self.guest.u16_at(LAYOUT.used + 2) == self.came_back as u16,
            "no chain is used twice"
        );
    }
}

/// What a back end does between two looks of the driver's.
#[derive(Clone, Debug)]
struct Step {
    offers: Vec<u16>,
    gathers: [usize; 2],
    uses: usize,
    publishes: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let counts = (0usize..6, 0usize..4, 0usize..7, prop::bool::weighted(0.8));
    (prop::collection::vec(1u16..4, 0..5), counts).prop_map(|(offers, (first, second, uses, publishes))| Step {
        offers,
        gathers: [first, second],
        uses,
        publishes,
    })
}

/// One burst of a back end.
fn work_on<F: Recordable>(ring: &mut RunningRing<RecordedRing<F>>, offered: &[Offered], step: &Step) {
    let (mut burst, mut used) = (Burst::default(), 0);
    for n in step.gathers {
        ring.gather(n, Access::Read, &mut burst).unwrap();
        for chain in &burst.chains()[used..burst.chains().len().min(used + step.uses)] {
            let expected = &offered[used];
            let buffers: Vec<_> = burst.buffers(chain).iter().map(|buffer| buffer.address).collect();
            let addresses: Vec<_> = (0..expected.descriptors.len() as u64).map(|i| expected.address + i).collect();
            assert_eq!((chain.id, buffers), (expected.id, addresses));
            ring.put_used(chain, 0);
            used += 1;
        }
    }
    if step.publishes {
        ring.publish();
    }
}

/// Runs the steps. The back end dies after `deaths` points, and each successor after its number of them. Returns how
/// many died.
fn run_with_deaths<F: Recordable>(features: Features, steps: &[Step], deaths: &[u32]) -> usize {
    let (guest, buffer) = (TestGuest::new(), buffer());
    let mut driver = Driver::new(&guest, features.is_packed());
    let mut deaths = deaths.iter().copied();
    let (mut left, mut died) = (deaths.next(), 0);
    let mut running = None;
    // Two may die in these.
    let last = Step { offers: vec![], gathers: [9, 0], uses: 9, publishes: true };
    // A step that publishes nothing ends as if by death: the queues of a port always publish what they used.
    for step in steps.iter().chain([&last; 3]) {
        step.offers.iter().for_each(|n| driver.offer(*n));
        let offered: Vec<_> = driver.under_way.iter().cloned().collect();
        let outcome = crash::run(&mut left, || {
            let ring = running.get_or_insert_with(|| ring::<F>(&guest, &buffer, features).unwrap());
            work_on(ring, &offered, step);
        });
        if outcome.is_none() {
            (running, left, died) = (None, deaths.next(), died + 1);
        } else if !step.publishes {
            running = None;
        }
        driver.take();
    }
    assert!(driver.under_way.is_empty(), "a chain is lost: {:?}", driver.under_way);
    died
}

fn survive_every_death<F: Recordable>(features: Features, steps: &[Step], second: u32) {
    for first in 0.. {
        if run_with_deaths::<F>(features, steps, &[first, second]) == 0 {
            return;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Wherever a back end dies, and its successor once more, every chain comes back once and in order.
    #[test]
    fn no_chain_is_lost_or_used_twice(steps in prop::collection::vec(step(), 1..12), second in 0u32..60) {
        survive_every_death::<SplitRing>(VERSION_1, &steps, second);
        survive_every_death::<PackedRing>(PACKED, &steps, second);
    }
}

/// Uses all that a ring has. Returns ids.
fn drain<F: Recordable>(ring: &mut RunningRing<RecordedRing<F>>) -> Vec<u16> {
    let mut burst = Burst::default();
    ring.gather(32, Access::Read, &mut burst).unwrap();
    burst.chains().iter().for_each(|chain| ring.put_used(chain, 0));
    ring.publish();
    burst.chains().iter().map(|chain| chain.id).collect()
}

#[test]
fn chains_of_a_predecessor_that_had_no_order_come_first_by_their_counters() {
    let (guest, buffer) = (TestGuest::new(), buffer());
    (0..SIZE).for_each(|at| guest.describe(LAYOUT.descriptors, at, (0x1000, 9, 0, 0)));
    // It took 0 to 4, used 1, 2 and 4, and the guest has offered more over their entries.
    guest.offer(0, &[0, 1, 2, 3, 4]);
    guest.write_u16(LAYOUT.used + 2, 3);
    guest.offer(5, &[6, 1, 2, 4]);
    let words = buffer.of_queue(1).unwrap().words(InflightLayout::SPLIT).unwrap();
    words[1].store(1 | u64::from(SIZE) << 16 | 3 << 48, Relaxed);
    for (head, counter) in [(0, 70), (3, 50)] {
        words[2 + 2 * head].store(1, Relaxed);
        words[3 + 2 * head].store(counter, Relaxed);
    }
    let mut ring = ring::<SplitRing>(&guest, &buffer, VERSION_1).unwrap();
    assert_eq!(drain(&mut ring), [3, 0, 6, 1, 2, 4]);
    assert_eq!((guest.u16_at(LAYOUT.used + 2), drain(&mut ring)), (9, vec![]));
}

#[test]
fn chains_that_were_published_but_not_cleared_are_not_used_again() {
    let (guest, buffer) = (TestGuest::new(), buffer());
    (0..SIZE).for_each(|at| guest.describe(LAYOUT.descriptors, at, (0x1000, 9, 0, 0)));
    guest.offer(0, &[5, 2, 7]);
    // 2 and 5 were published together, and the list says so.
    guest.write_u16(LAYOUT.used + 2, 2);
    let words = buffer.of_queue(1).unwrap().words(InflightLayout::SPLIT).unwrap();
    words[1].store(1 | u64::from(SIZE) << 16 | 2 << 32, Relaxed);
    for (head, next, counter) in [(5, 0, 0), (2, 5, 1), (7, 0, 2)] {
        words[2 + 2 * head].store(1 | next << 48, Relaxed);
        words[3 + 2 * head].store(counter, Relaxed);
    }
    assert_eq!(drain(&mut ring::<SplitRing>(&guest, &buffer, VERSION_1).unwrap()), [7]);
}

#[test]
fn a_migrating_guest_hears_of_descriptors_that_a_successor_makes_available_again() {
    let (guest, buffer) = (TestGuest::new(), buffer());
    let mut driver = Driver::new(&guest, true);
    (0..2).for_each(|_| driver.offer(1));
    let mut dead = ring::<PackedRing>(&guest, &buffer, PACKED).unwrap();
    let mut burst = Burst::default();
    dead.gather(2, Access::Read, &mut burst).unwrap();
    burst.chains().iter().for_each(|chain| dead.put_used(chain, 0));
    let log = tempfile::tempfile().unwrap();
    log.set_len(1).unwrap();
    // The device's event area, which is written, too, is on another page.
    let layout = RingLayout { used: 0x2000, log: Some(0x2000), ..LAYOUT };
    let dirty = Some(Arc::new(DirtyLog::map(log.try_clone().unwrap(), 1, 0).unwrap()));
    let setup = RingSetup { layout, base: FIRST, log: dirty, inflight: buffer.of_queue(1), ..guest.setup(PACKED) };
    assert_eq!(guest.used_packed(), [(1, 0)], "the second, which the driver does not see yet");
    Ring::new(setup).unwrap();
    assert_eq!(guest.used_packed(), []);
    let mut logged = [0];
    log.read_exact_at(&mut logged, 0).unwrap();
    assert_eq!(logged[0], 1 << (LAYOUT.descriptors / 4096) | 1 << 2);
}

#[test]
fn records_of_another_ring_are_refused() {
    for (features, layout) in [(VERSION_1, InflightLayout::SPLIT), (PACKED, InflightLayout::PACKED)] {
        let refuses = |at: usize, word: u64| {
            let (guest, buffer) = (TestGuest::new(), buffer());
            let start = || Ring::new(RingSetup { inflight: buffer.of_queue(1), base: FIRST, ..guest.setup(features) });
            start().unwrap();
            let words = buffer.of_queue(1).unwrap().words(layout).unwrap();
            words[at].store(word, Relaxed);
            start().err()
        };
        // A version of the future, and the number of entries of another ring.
        assert_eq!(refuses(1, 2 | 8 << 16), Some(Broken::Inflight));
        assert_eq!(refuses(1, 1 | 9 << 16), Some(Broken::Inflight));
        // A chain in flight that the guest has not offered, or that is also free.
        let entry = layout.header + layout.entry;
        assert_eq!(refuses(entry, 1 | 1 << 32 | 1 << 48), Some(Broken::Inflight));
    }
    // A used index far from the guest's, and a place outside of the ring.
    let (guest, buffer) = (TestGuest::new(), buffer());
    guest.write_u16(LAYOUT.used + 2, 100);
    let words = buffer.of_queue(1).unwrap().words(InflightLayout::SPLIT).unwrap();
    words[1].store(1 | u64::from(SIZE) << 16, Relaxed);
    assert_eq!(ring::<SplitRing>(&guest, &buffer, VERSION_1).err(), Some(Broken::Inflight));
    let setup = RingSetup { size: SIZE, inflight: None, ..guest.setup(VERSION_1) };
    assert!(matches!(Ring::new(setup), Ok(Ring::Split(_))), "without a buffer there are no records");
}

proptest! {
    /// Whatever a frontend writes into the records, a ring starts or is refused, and its work stays bounded.
    #[test]
    fn hostile_records_are_refused_or_harmless(
        header in (0u16..3, 7u16..10, 0u16..10, 0u16..10, 0u16..10, 0u16..10, 0u32..0x300),
        entries in prop::collection::vec(prop::array::uniform4((0u16..3, 0u16..10, 0u16..10, 0u16..10)), SIZE as usize),
        offered in 0u16..10,
    ) {
        let word = |(a, b, c, d): (u16, u16, u16, u16)| {
            [d, c, b, a].iter().fold(0, |word, part| word << 16 | u64::from(*part))
        };
        for (features, layout) in [(WITH_TABLES, InflightLayout::SPLIT), (PACKED, InflightLayout::PACKED)] {
            let (guest, buffer) = (TestGuest::new(), buffer());
            (0..SIZE).for_each(|at| guest.describe(LAYOUT.descriptors, at, (0x1000, 9, 1, AVAILABLE)));
            guest.offer(0, &vec![3; offered.into()]);
            let words = buffer.of_queue(1).unwrap().words(layout).unwrap();
            words[1].store(word((header.0, header.1, header.2, header.3)), Relaxed);
            if layout == InflightLayout::PACKED {
                words[2].store(u64::from(header.4) | u64::from(header.5) << 16 | u64::from(header.6) << 32, Relaxed);
            }
            for (at, entry) in entries.iter().enumerate() {
                for i in 0..layout.entry {
                    words[layout.header + layout.entry * at + i].store(word(entry[i]), Relaxed);
                }
            }
            let setup = RingSetup { inflight: buffer.of_queue(1), base: FIRST, ..guest.setup(features) };
            let Ok(mut ring) = Ring::new(setup) else { continue };
            let mut burst = Burst::default();
            let (_, work) = work::counted(|| match &mut ring {
                Ring::RecordedSplit(ring) => ring.gather(32, Access::Read, &mut burst).map(|_| ring.publish()),
                Ring::RecordedPacked(ring) => ring.gather(32, Access::Read, &mut burst).map(|_| ring.publish()),
                Ring::Split(_) | Ring::Packed(_) => unreachable!("it has a buffer"),
            });
            prop_assert!(work.descriptors + work.accesses <= BUFFERS_MAX + 33, "{work:?}");
        }
    }
}
