use super::*;
use crate::vhost_user::testing::{LAYOUT, SIZE, TestGuest, VERSION_1, WITH_EVENTS, WITH_TABLES, descriptor};
use crate::vhost_user::work;
use proptest::prelude::*;
use std::io::Read;

/// Gathers into a new burst.
fn gathered(ring: &mut RunningRing<SplitRing>, n: usize, access: Access) -> Result<Burst> {
    let mut burst = Burst::default();
    ring.gather(n, access, &mut burst).map(|_| burst)
}

fn buffers(burst: &Burst) -> Vec<Vec<(u64, u32)>> {
    let of = |chain: &Chain| burst.buffers(chain).iter().map(|buffer| (buffer.address, buffer.len)).collect();
    burst.chains().iter().map(of).collect()
}

#[test]
fn chains_are_taken_and_used_in_order() {
    let guest = TestGuest::new();
    guest.describe(LAYOUT.descriptors, 0, (0x1000, 4, DESC_NEXT, 2));
    guest.describe(LAYOUT.descriptors, 2, (0x2000, 6, 0, 0));
    guest.describe(LAYOUT.descriptors, 5, (0x4000, 7, 0, 0));
    guest.offer(0, &[0, 5]);
    let mut ring = guest.ring(VERSION_1);
    let burst = gathered(&mut ring, 32, Access::Read).unwrap();
    assert_eq!(buffers(&burst), [vec![(0x1000, 4), (0x2000, 6)], vec![(0x4000, 7)]]);
    assert_eq!(burst.chains()[0].len, 10);
    ring.put_used(&burst.chains()[0], 0);
    ring.put_used(&burst.chains()[1], 3);
    assert_eq!(guest.used(), [], "not seen before it is published");
    ring.publish();
    assert_eq!((guest.used(), ring.format.position()), (vec![(0, 0), (5, 3)], 2));
    assert_eq!(gathered(&mut ring, 32, Access::Read).unwrap().chains().len(), 0);
    guest.offer(2, &[5]);
    assert_eq!(gathered(&mut ring, 1, Access::Write).unwrap_err(), Broken::Direction);
}

#[test]
fn a_burst_grows_chain_by_chain_and_what_is_not_used_comes_again() {
    let guest = TestGuest::new();
    (0..4).for_each(|at| guest.describe(LAYOUT.descriptors, at, (0x1000, 100 + u32::from(at), DESC_WRITE, 0)));
    guest.offer(0, &[3, 2, 1, 0]);
    let mut ring = guest.ring(VERSION_1);
    let mut burst = gathered(&mut ring, 2, Access::Write).unwrap();
    assert_eq!(ring.gather(1, Access::Write, &mut burst), Ok(1));
    assert_eq!(buffers(&burst), [[(0x1000, 103)], [(0x1000, 102)], [(0x1000, 101)]]);
    ring.put_used(&burst.chains()[0], 1);
    ring.publish();
    assert_eq!(buffers(&gathered(&mut ring, 9, Access::Write).unwrap())[0], [(0x1000, 102)]);
}

#[test]
fn an_available_index_that_goes_back_breaks_the_ring() {
    let guest = TestGuest::new();
    (0..4).for_each(|at| guest.describe(LAYOUT.descriptors, at, (0x1000, 100, 0, 0)));
    guest.offer(0, &[0, 1, 2, 3]);
    let mut ring = guest.ring(VERSION_1);
    let mut burst = gathered(&mut ring, 3, Access::Read).unwrap();
    guest.write_u16(LAYOUT.available + 2, 2);
    assert_eq!(ring.gather(9, Access::Read, &mut burst), Err(Broken::Index));
}

#[test]
fn endless_empty_and_foreign_descriptors_break_the_ring() {
    let guest = TestGuest::new();
    let breaks = |descriptor| {
        guest.describe(LAYOUT.descriptors, 0, descriptor);
        guest.offer(0, &[0]);
        gathered(&mut guest.ring(VERSION_1), 1, Access::Read).err()
    };
    assert_eq!(breaks((0x1000, 4, DESC_NEXT, 0)), Some(Broken::Endless));
    assert_eq!(breaks((0x1000, 0, 0, 0)), Some(Broken::Empty));
    assert_eq!(breaks((0x1000, 4, DESC_NEXT, 8)), Some(Broken::Index));
    assert_eq!(breaks((0x1000, 16, DESC_INDIRECT, 0)), Some(Broken::Table));
    assert_eq!(breaks((0x1000, 4, 0, 0)), None);
    guest.offer(0, &[0; 9]);
    assert_eq!(gathered(&mut guest.ring(VERSION_1), 1, Access::Read).err(), Some(Broken::Index));
    guest.offer(0, &[8]);
    assert_eq!(gathered(&mut guest.ring(VERSION_1), 1, Access::Read).err(), Some(Broken::Index));
}

#[test]
fn a_burst_has_a_bound() {
    let guest = TestGuest::new();
    // A table of 250 buffers, named by every descriptor.
    (0..250).for_each(|at| guest.describe(0x1000, at, (0x2800, 1, DESC_NEXT, at + 1)));
    guest.describe(0x1000, 250, (0x2800, 1, 0, 0));
    (0..SIZE).for_each(|at| guest.describe(LAYOUT.descriptors, at, (0x1000, 251 * 16, DESC_INDIRECT, 0)));
    guest.offer(0, &[0, 1, 2, 3, 4, 5, 6, 7]);
    let burst = gathered(&mut guest.ring(WITH_TABLES), 32, Access::Read).unwrap();
    assert_eq!(burst.chains().len(), 3);
    assert!(burst.is_full() && burst.buffers.len() < BURST_MAX + CHAIN_MAX);
}

#[test]
fn the_guest_is_notified_unless_it_says_no() {
    let guest = TestGuest::new();
    guest.describe(LAYOUT.descriptors, 0, (0x1000, 4, 0, 0));
    let (mut ring, mut call) = guest.ring_with_call(VERSION_1);
    assert_eq!(guest.u16_at(LAYOUT.used), 1, "we poll, so the guest need not notify us");
    for (flags, is_called) in [(0, true), (1, false), (0, true)] {
        guest.write_u16(LAYOUT.available, flags);
        guest.offer(ring.format.position() as u16, &[0]);
        let burst = gathered(&mut ring, 1, Access::Read).unwrap();
        ring.put_used(&burst.chains()[0], 0);
        ring.publish();
        assert_eq!(call.read(&mut [0; 8]).is_ok(), is_called);
        ring.publish();
        assert!(call.read(&mut [0; 8]).is_err(), "nothing new");
    }
}

#[test]
fn with_an_event_index_the_guest_is_notified_when_it_is_passed() {
    let guest = TestGuest::new();
    guest.describe(LAYOUT.descriptors, 0, (0x1000, 4, 0, 0));
    // The guest's own flag has no meaning then.
    guest.write_u16(LAYOUT.available, 1);
    let (mut ring, mut call) = guest.ring_with_call(WITH_EVENTS);
    assert_eq!(guest.u16_at(LAYOUT.used), 0);
    let event = LAYOUT.available + 4 + 2 * u64::from(SIZE);
    let mut notified = Vec::new();
    for round in 0..12 {
        guest.write_u16(event, if round < 8 { 6 } else { 9 });
        guest.offer(round, &[0]);
        let burst = gathered(&mut ring, 1, Access::Read).unwrap();
        ring.put_used(&burst.chains()[0], 0);
        ring.publish();
        if call.read(&mut [0; 8]).is_ok() {
            notified.push(round);
        }
    }
    // The first time it is not known what the guest saw before.
    assert_eq!(notified, [0, 6, 9]);
    assert_eq!(guest.u16_at(LAYOUT.used + 4 + 8 * u64::from(SIZE)), u16::MAX, "it need not notify us");
}

#[test]
fn a_ring_continues_behind_its_last_used_entry() {
    let guest = TestGuest::new();
    guest.write_u16(LAYOUT.used + 2, 41);
    assert_eq!(guest.ring(VERSION_1).format.position(), 41);
}

#[test]
fn a_ring_outside_of_memory_is_refused() {
    let guest = TestGuest::new();
    for layout in [
        RingLayout { descriptors: 0x2ff0, ..LAYOUT },
        RingLayout { available: 0x2ff0, ..LAYOUT },
        RingLayout { used: 0x3000, ..LAYOUT },
        RingLayout { used: u64::MAX - 3, ..LAYOUT },
    ] {
        assert_eq!(Ring::new(RingSetup { layout, ..guest.setup(WITH_EVENTS) }).err(), Some(Broken::Address));
    }
}

proptest! {
    /// For any ring the chains are those of the plain twin, or both refuse them; whatever the guest wrote, nothing
    /// panics and no more is worked on than the bounds allow.
    #[test]
    fn chains_are_those_of_the_plain_twin(
        descriptors in prop::collection::vec(descriptor(), 8),
        inner in prop::collection::vec(descriptor(), 16),
        heads in prop::collection::vec(0u16..9, 8),
        (next, waiting, n) in (any::<u16>(), 0u16..10, 0usize..12),
        write: bool,
        tables: bool,
    ) {
        let guest = TestGuest::new();
        let flip = |(address, len, flags, next)| (address, len, flags ^ if write { DESC_WRITE } else { 0 }, next);
        descriptors.into_iter().zip(0..).for_each(|(d, at)| guest.describe(LAYOUT.descriptors, at, flip(d)));
        // Where many addresses point.
        inner.into_iter().zip(0..).for_each(|(d, at)| guest.describe(0x1000, at, flip(d)));
        heads.iter().zip(0..).for_each(|(head, at)| guest.write_u16(LAYOUT.available + 4 + 2 * at, *head));
        guest.write_u16(LAYOUT.available + 2, next.wrapping_add(waiting));
        guest.write_u16(LAYOUT.used + 2, next);
        let mut ring = guest.ring(if tables { WITH_TABLES } else { VERSION_1 });
        let access = if write { Access::Write } else { Access::Read };
        let mut burst = Burst::default();
        let (ours, work) = work::counted(|| ring.gather(n, access, &mut burst));
        prop_assert!(work.descriptors + work.accesses <= BUFFERS_MAX + n, "{work:?}");
        let plain: Result<Vec<_>> = plain::waiting(&guest, next).and_then(|waiting| {
            let n = n.min(waiting.into()) as u16;
            (0..n).map(|ahead| plain::chain(&guest, next.wrapping_add(ahead), write, tables)).collect()
        });
        // A burst that asks for no chain does not look.
        if n > 0 {
            prop_assert_eq!(ours.map(|_| ()), plain.as_ref().map(|_| ()).map_err(|why| *why));
        }
        if let (Ok(_), Ok(plain)) = (ours, plain) {
            let chains: Vec<plain::PlainChain> = burst.chains().iter().map(|c| (c.id, burst.buffers(c).to_vec())).collect();
            prop_assert_eq!(&chains, &plain[..chains.len()]);
            prop_assert!(chains.len() == plain.len() || burst.is_full());
            for chain in burst.chains() {
                let sum: u64 = burst.buffers(chain).iter().map(|buffer| u64::from(buffer.len)).sum();
                prop_assert_eq!(u64::from(chain.len), sum);
                ring.put_used(chain, 7);
            }
            ring.publish();
            prop_assert_eq!(guest.u16_at(LAYOUT.used + 2), next.wrapping_add(chains.len() as u16));
            for ((head, _), at) in chains.iter().zip(0u16..) {
                let entry = LAYOUT.used + 4 + 8 * u64::from(next.wrapping_add(at) % SIZE);
                prop_assert_eq!((guest.u32_at(entry), guest.u32_at(entry + 4)), (u32::from(*head), 7));
            }
        }
    }

    /// However a guest's offers and our bursts interleave, chains are used in the order in which they were offered, and
    /// each once: also those that join a burst of which some are used.
    #[test]
    fn chains_are_used_as_they_were_offered(steps in prop::collection::vec((0usize..9, 0usize..9, 0usize..9, any::<bool>()), 1..40)) {
        let guest = TestGuest::new();
        (0..SIZE).for_each(|at| guest.describe(LAYOUT.descriptors, at, (0x1000, 100, 0, 0)));
        let (mut ring, mut burst) = (guest.ring(VERSION_1), Burst::default());
        let (mut offered, mut seen_used, mut of_burst) = (Vec::new(), 0, 0);
        for (offer, gather, uses, starts_anew) in steps {
            // The driver offers what it has: it does so in an order of its own.
            let free = usize::from(SIZE) - (offered.len() - seen_used);
            for _ in 0..offer.min(free) {
                let head = (offered.len() * 3 % usize::from(SIZE)) as u16;
                guest.offer(offered.len() as u16, &[head]);
                offered.push(head);
            }
            if starts_anew {
                burst.clear();
                of_burst = 0;
            }
            ring.gather(gather, Access::Read, &mut burst).unwrap();
            let uses = uses.min(burst.chains().len() - of_burst);
            for chain in &burst.chains()[of_burst..of_burst + uses] {
                ring.put_used(chain, 0);
            }
            of_burst += uses;
            ring.publish();
            let end = usize::from(guest.u16_at(LAYOUT.used + 2));
            for (at, head) in (0u64..).zip(&offered).take(end).skip(seen_used) {
                prop_assert_eq!(guest.u32_at(LAYOUT.used + 4 + 8 * (at % u64::from(SIZE))), u32::from(*head));
            }
            seen_used = end;
        }
    }

    #[test]
    fn an_event_is_passed_once(event: u16, old: u16, steps in prop::collection::vec(1u16..500, 1..50)) {
        let (mut at, mut passed, mut way) = (old, 0, 0u32);
        for step in steps {
            let new = at.wrapping_add(step);
            passed += u32::from(has_passed(event, new, at));
            (at, way) = (new, way + u32::from(step));
        }
        prop_assert_eq!(passed, u32::from(u32::from(event.wrapping_sub(old)) < way));
    }
}
