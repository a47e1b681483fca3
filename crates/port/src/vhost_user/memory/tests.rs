use super::*;
use crate::vhost_user::testing::{REGIONS, TestGuest, USER, file_and_regions};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use vm_memory::{Bytes, GuestAddress};

#[test]
fn a_file_shorter_than_its_region_is_refused_and_so_are_regions_that_overlap() {
    let (file, regions) = file_and_regions();
    let map = |change: fn(&mut RegionInfo)| {
        let mut last = regions[1];
        change(&mut last);
        GuestMemory::map([(regions[0], file.try_clone().unwrap()), (last, file.try_clone().unwrap())]).is_ok()
    };
    assert!(map(|_| ()));
    assert!(!map(|region| region.size += 1));
    assert!(!map(|region| region.offset = u64::MAX));
    assert!(!map(|region| region.guest = u64::MAX));
    assert!(!map(|region| region.user = u64::MAX));
    assert!(!map(|region| region.size = 0));
    assert!(!map(|region| region.guest = 0x2fff));
}

#[test]
fn a_frontends_address_is_one_of_the_guests() {
    let memory = TestGuest::new().memory;
    for (guest, size) in REGIONS {
        assert_eq!(memory.guest_address(USER + guest), Ok(guest));
        assert_eq!(memory.guest_address(USER + guest + size - 1), Ok(guest + size - 1));
        assert_eq!(memory.guest_address(USER + guest + size), Err(Outside));
    }
    assert_eq!(memory.guest_address(0), Err(Outside));
}

#[test]
fn shared_words_are_in_one_region_and_aligned() {
    let guest = TestGuest::new();
    guest.write(0x2ff8, &[1, 2, 3, 4, 5, 6, 7, 8]);
    let words: Shared<AtomicU32> = guest.memory.shared(0x2ff8, 2).unwrap();
    assert_eq!((words[0].load(Relaxed), words[1].load(Relaxed)), (0x0403_0201, 0x0807_0605));
    words[1].store(9, Relaxed);
    assert_eq!(guest.bytes(0x2ffc, 4), [9, 0, 0, 0]);
    assert!(guest.memory.shared::<AtomicU32>(0x2ff8, 3).is_err(), "behind the region");
    assert!(guest.memory.shared::<AtomicU32>(0x2ff2, 1).is_err(), "not aligned");
    assert!(guest.memory.shared::<AtomicU64>(0x10, usize::MAX / 16).is_err(), "more than there can be");
    assert!(guest.memory.shared::<AtomicU64>(u64::MAX - 7, 1).is_err());
}

#[test]
fn the_log_has_the_pages_that_were_written() {
    let guest = TestGuest::new();
    let file = tempfile::tempfile().unwrap();
    file.set_len(9).unwrap();
    assert!(DirtyLog::map(file.try_clone().unwrap(), 9, 1).is_err(), "the file is too short");
    let mut view = View::new(guest.memory.clone(), 12);
    view.write(0x2000, &[1]).unwrap();
    view.set_log(Some(Arc::new(DirtyLog::map(file.try_clone().unwrap(), 1, 8).unwrap())));
    view.write(0x1fff, &[1; 2]).unwrap();
    view.write(0x4000, &[1; 0x1001]).unwrap();
    let mut bits = [0; 9];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut bits, 0).unwrap();
    assert_eq!(bits, [0, 0, 0, 0, 0, 0, 0, 0, 0b0011_0110]);
    // A page that the log does not have.
    view.log().unwrap().mark(u64::MAX - 5, 100);
}

proptest! {
    /// Copies are those of `vm-memory`, for any place and length, and what is outside is refused. The neighbours of a
    /// copy keep their bytes.
    #[test]
    fn copies_are_those_of_the_plain_twin(
        places in prop::collection::vec((0u64..0x7100, prop_oneof![4 => 0usize..300, 1 => 0usize..5000]), 1..20),
        seed: u8,
    ) {
        let (ours, theirs) = (TestGuest::new(), TestGuest::new());
        let mut view = View::new(ours.memory.clone(), 12);
        for ((at, len), round) in places.into_iter().zip((0u8..).map(|round| round.wrapping_add(seed))) {
            let bytes: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(round)).collect();
            let within = REGIONS.iter().any(|(start, size)| at >= *start && at < start + size && at + len as u64 <= start + size);
            // In one piece or in two.
            let (header, rest) = bytes.split_at(usize::from(round % 13).min(len));
            // A header that is there already is not written again; what is behind it is.
            let mut other = rest.to_vec();
            other.reverse();
            let written = match round % 3 {
                0 => view.write(at, &bytes),
                1 => view.write_behind(at, header, rest),
                _ => view.write_behind(at, header, &other).and_then(|()| view.write_behind(at, header, rest)),
            };
            prop_assert_eq!(written.is_ok(), within);
            if within {
                theirs.plain.write_slice(&bytes, GuestAddress(at)).unwrap();
                let mut back = vec![0; len];
                view.read(at, &mut back).unwrap();
                prop_assert_eq!(back, bytes);
            } else {
                prop_assert!(view.read(at, &mut vec![0; len]).is_err());
            }
            view.prefetch(at);
        }
        for (start, size) in REGIONS {
            prop_assert_eq!(ours.bytes(start, size as usize), theirs.bytes(start, size as usize));
        }
    }
}
