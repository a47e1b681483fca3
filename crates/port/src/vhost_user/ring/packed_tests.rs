//! Packed rings, with a driver that goes around them.

use super::*;
use crate::vhost_user::testing::{AVAILABLE, LAYOUT, PACKED, SIZE, TestGuest, USED, VERSION_1, descriptor};
use crate::vhost_user::work;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::io::Read;

/// The wrap counter as it begins.
const FIRST: u16 = 1 << 15;
const PACKED_WITH_TABLES: Features = Features(PACKED.0 | 1 << 28);
const PACKED_WITH_EVENTS: Features = Features(PACKED.0 | 1 << 29);

/// A driver that offers chains and takes back what was used.
struct Driver<'a> {
    guest: &'a TestGuest,
    /// Descriptors offered, and descriptors taken back, since the start.
    offered: u32,
    taken: u32,
    /// The chains under way: id and descriptors.
    under_way: VecDeque<(u16, u16)>,
    chains: u16,
}

impl<'a> Driver<'a> {
    fn new(guest: &'a TestGuest) -> Self {
        Driver { guest, offered: 0, taken: 0, under_way: VecDeque::new(), chains: 0 }
    }

    fn free(&self) -> u16 {
        SIZE - (self.offered - self.taken) as u16
    }

    /// The index of a descriptor counted from the start, and the wrap counter there.
    fn place(entry: u32) -> (u16, bool) {
        ((entry % u32::from(SIZE)) as u16, (entry / u32::from(SIZE)).is_multiple_of(2))
    }

    /// Offers a chain of `n` descriptors. Returns its id.
    fn offer(&mut self, n: u16, flags: u16) -> u16 {
        let id = self.chains.wrapping_mul(3);
        for i in 0..n {
            let (at, wrap) = Self::place(self.offered + u32::from(i));
            let next = if i + 1 < n { DESC_NEXT } else { 0 };
            let made_available = if wrap { AVAILABLE } else { USED };
            // The id is that of the last descriptor.
            let id = if i + 1 < n { 0xdead } else { id };
            let address = 0x1000 + 0x100 * u64::from(at);
            self.guest.describe(LAYOUT.descriptors, at, (address, 100, id, flags | next | made_available));
        }
        self.offered += u32::from(n);
        self.under_way.push_back((id, n));
        self.chains += 1;
        id
    }

    /// What was used since the last time: ids and written bytes.
    fn take(&mut self) -> Vec<(u16, u32)> {
        let mut taken = Vec::new();
        while let Some((id, n)) = self.under_way.front().copied() {
            let (at, wrap) = Self::place(self.taken);
            let entry = LAYOUT.descriptors + 16 * u64::from(at);
            let flags = self.guest.u16_at(entry + 14);
            if (flags & AVAILABLE != 0, flags & USED != 0) != (wrap, wrap) {
                break;
            }
            assert_eq!(self.guest.u16_at(entry + 12), id, "chains are used in order");
            taken.push((id, self.guest.u32_at(entry + 8)));
            self.taken += u32::from(n);
            self.under_way.pop_front();
        }
        taken
    }
}

fn packed_ring(guest: &TestGuest, base: u16, features: Features) -> RunningRing<PackedRing> {
    RunningRing::new(RingSetup { base: base.into(), ..guest.setup(features) }).unwrap()
}

#[test]
fn packed_chains_are_taken_and_used_in_order_lap_after_lap() {
    let guest = TestGuest::new();
    let (mut ring, mut driver) = (packed_ring(&guest, FIRST, PACKED), Driver::new(&guest));
    assert_eq!(guest.u32_at(LAYOUT.used), 1 << 16, "it need not notify us");
    for _ in 0..20 {
        let ids = [driver.offer(1, 0), driver.offer(2, 0), driver.offer(3, 0)];
        let mut burst = Burst::default();
        assert_eq!(ring.gather(32, Access::Read, &mut burst), Ok(3));
        assert_eq!(burst.chains().iter().map(|chain| chain.len).collect::<Vec<_>>(), [100, 200, 300]);
        burst.chains().iter().for_each(|chain| ring.put_used(chain, 0));
        assert!(driver.take().is_empty(), "not seen before it is published");
        ring.publish();
        assert_eq!(driver.take(), ids.map(|id| (id, 0)));
        assert_eq!(ring.gather(32, Access::Read, &mut Burst::default()), Ok(0));
    }
    // 120 descriptors are fifteen laps of eight.
    assert_eq!(ring.format.position(), 0);
}

#[test]
fn a_packed_ring_continues_where_its_frontend_says() {
    let guest = TestGuest::new();
    let mut driver = Driver::new(&guest);
    (driver.offered, driver.taken) = (13, 13);
    let mut ring = packed_ring(&guest, 5, PACKED);
    let id = driver.offer(1, DESC_WRITE);
    let mut burst = Burst::default();
    assert_eq!(ring.gather(32, Access::Write, &mut burst), Ok(1));
    ring.put_used(&burst.chains()[0], 60);
    ring.publish();
    assert_eq!((driver.take(), ring.format.position()), (vec![(id, 60)], 6 << 16 | 6));
    assert_eq!(guest.u16_at(LAYOUT.descriptors + 5 * 16 + 14), DESC_WRITE, "the wrap counter is 0, and it was written");
    let beyond = RingSetup { base: u32::from(FIRST | SIZE), ..guest.setup(PACKED) };
    assert_eq!(Ring::new(beyond).err(), Some(Broken::Index));
}

#[test]
fn a_table_of_a_packed_ring_has_its_buffers_one_after_the_other() {
    let guest = TestGuest::new();
    // The flag of a successor has no meaning in a table.
    guest.describe(0x1000, 0, (0x2000, 10, 0, DESC_NEXT));
    guest.describe(0x1000, 1, (0x2100, 20, 0, 0));
    guest.describe(LAYOUT.descriptors, 0, (0x1000, 32, 7, DESC_INDIRECT | AVAILABLE));
    let mut burst = Burst::default();
    packed_ring(&guest, FIRST, PACKED_WITH_TABLES).gather(1, Access::Read, &mut burst).unwrap();
    let chain = burst.chains()[0];
    assert_eq!((chain.id, chain.descriptors, chain.len), (7, 1, 30));
    assert_eq!(burst.buffers(&chain).iter().map(|buffer| buffer.address).collect::<Vec<_>>(), [0x2000, 0x2100]);
    let without = packed_ring(&guest, FIRST, PACKED).gather(1, Access::Read, &mut Burst::default());
    assert_eq!(without, Err(Broken::Table));
}

#[test]
fn a_chain_as_long_as_a_packed_ring_is_the_longest() {
    let guest = TestGuest::new();
    let mut driver = Driver::new(&guest);
    driver.offer(SIZE, 0);
    assert_eq!(packed_ring(&guest, FIRST, PACKED).gather(1, Access::Read, &mut Burst::default()), Ok(1));
    guest.describe(LAYOUT.descriptors, SIZE - 1, (0x1000, 100, 0, DESC_NEXT | AVAILABLE));
    let endless = packed_ring(&guest, FIRST, PACKED).gather(1, Access::Read, &mut Burst::default());
    assert_eq!(endless, Err(Broken::Endless));
}

/// Which of twenty publications of one descriptor each notify the guest.
fn notified(features: Features, event: impl Fn(u16) -> u32) -> Vec<u16> {
    let guest = TestGuest::new();
    let (_, call) = guest.ring_with_call(VERSION_1);
    let mut ring = packed_ring(&guest, FIRST, features);
    ring.set_call(Some(Arc::new(Call::new(call.try_clone().unwrap()).unwrap())));
    let (mut driver, mut call) = (Driver::new(&guest), call);
    let mut wants = |round: u16| {
        guest.write(LAYOUT.available, &event(round).to_le_bytes());
        driver.offer(1, 0);
        let mut burst = Burst::default();
        ring.gather(1, Access::Read, &mut burst).unwrap();
        ring.put_used(&burst.chains()[0], 0);
        ring.publish();
        driver.take();
        call.read(&mut [0; 8]).is_ok()
    };
    (0..20).filter(|round| wants(*round)).collect()
}

#[test]
fn a_packed_ring_notifies_as_the_driver_says() {
    let event = |flags: u32, wrap: u16, at: u16| flags << 16 | u32::from(at | wrap);
    assert_eq!(notified(PACKED, |_| event(0, 0, 0)).len(), 20);
    assert!(notified(PACKED, |_| event(1, 0, 0)).is_empty());
    // The first time it is not known what the guest saw before. Then descriptor 6 of the first lap, 1 and 7 of the second.
    let at = |round| match round {
        0..7 => event(2, FIRST, 6),
        7..10 => event(2, 0, 1),
        10..17 => event(2, 0, 7),
        _ => event(2, 0, 1),
    };
    assert_eq!(notified(PACKED_WITH_EVENTS, at), [0, 6, 9, 15]);
}

proptest! {
    /// For any packed ring the chains are those of the plain twin, or both refuse them, and the work is bounded.
    #[test]
    fn packed_chains_are_those_of_the_plain_twin(
        descriptors in prop::collection::vec((descriptor(), 0u8..8), 8),
        inner in prop::collection::vec(descriptor(), 16),
        (at, wrap, n) in (0..SIZE, any::<bool>(), 1usize..12),
        (write, tables) in (any::<bool>(), any::<bool>()),
    ) {
        let guest = TestGuest::new();
        let flip = |flags| flags ^ if write { DESC_WRITE } else { 0 };
        let base = at | if wrap { FIRST } else { 0 };
        for (((address, len, flags, id), kind), entry) in descriptors.into_iter().zip(0u16..) {
            // Nearly all are available when the device reaches them.
            let wrap = wrap == (entry >= at);
            let ours = match kind { 0 => 0, 1 => AVAILABLE | USED, _ if wrap => AVAILABLE, _ => USED };
            guest.describe(LAYOUT.descriptors, entry, (address, len, id, flip(flags) | ours));
        }
        inner.into_iter().zip(0..).for_each(|((address, len, flags, id), at)| {
            guest.describe(0x1000, at, (address, len, id, flip(flags)));
        });
        let mut ring = packed_ring(&guest, base, if tables { PACKED_WITH_TABLES } else { PACKED });
        let access = if write { Access::Write } else { Access::Read };
        let mut burst = Burst::default();
        let (ours, work) = work::counted(|| ring.gather(n, access, &mut burst));
        prop_assert!(work.descriptors + work.accesses <= BUFFERS_MAX + n);
        let mut plain = Ok(Vec::new());
        let mut place = base;
        while let Ok(chains) = &mut plain && chains.len() < n {
            match plain::packed_chain(&guest, place, write, tables) {
                Ok(Some((chain, count))) => {
                    chains.push(chain);
                    let index = (place & !FIRST) + count;
                    let wrap = (place & FIRST) ^ if index >= SIZE { FIRST } else { 0 };
                    place = (index % SIZE) | wrap;
                }
                Ok(None) => break,
                Err(why) => plain = Err(why),
            }
        }
        match (ours, plain) {
            (Ok(_), Ok(plain)) => {
                let chains: Vec<plain::PlainChain> = burst.chains().iter().map(|c| (c.id, burst.buffers(c).to_vec())).collect();
                prop_assert_eq!(&chains, &plain[..chains.len()]);
                prop_assert!(chains.len() == plain.len() || burst.is_full());
            }
            // A burst that is full does not reach the chain that is refused.
            (Ok(_), Err(_)) => prop_assert!(burst.is_full()),
            (ours, plain) => prop_assert_eq!(ours.map(|_| ()), plain.map(|_| ())),
        }
    }

    /// However a guest's offers and our bursts interleave, chains are used in order, each once.
    #[test]
    fn packed_chains_are_used_as_they_were_offered(
        steps in prop::collection::vec((prop::collection::vec(1u16..4, 0..5), 0usize..9, 0usize..9, any::<bool>()), 1..40),
    ) {
        let guest = TestGuest::new();
        let (mut ring, mut driver) = (packed_ring(&guest, FIRST, PACKED), Driver::new(&guest));
        let (mut burst, mut of_burst) = (Burst::default(), 0);
        for (offers, gather, uses, starts_anew) in steps {
            for n in offers {
                if n <= driver.free() {
                    driver.offer(n, 0);
                }
            }
            if starts_anew {
                burst.clear();
                of_burst = 0;
            }
            ring.gather(gather, Access::Read, &mut burst).unwrap();
            let uses = uses.min(burst.chains().len() - of_burst);
            let used: Vec<Chain> = burst.chains()[of_burst..of_burst + uses].to_vec();
            used.iter().for_each(|chain| ring.put_used(chain, 9));
            of_burst += uses;
            prop_assert_eq!(driver.take(), vec![]);
            ring.publish();
            prop_assert_eq!(driver.take(), used.iter().map(|chain| (chain.id, 9)).collect::<Vec<_>>());
        }
    }
}
