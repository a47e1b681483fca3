//! Options in headers, in keys and as fields.

use super::*;
use proptest::prelude::*;

fn kind() -> impl Strategy<Value = OptionKind> {
    // Few classes and types, so that options are found and come twice; short values and the longest.
    let words = prop_oneof![0..4u8, Just(31)];
    (0..2u16, prop_oneof![0..3u8, Just(0x80)], words).prop_map(|(class, kind, words)| OptionKind {
        class,
        kind,
        length: words * 4,
    })
}

fn option() -> impl Strategy<Value = GeneveOption> {
    kind().prop_flat_map(|kind| {
        proptest::collection::vec(0..3u8, usize::from(kind.length))
            .prop_map(move |value| GeneveOption { kind, value: value.into() })
    })
}

fn map() -> impl Strategy<Value = OptionMap> {
    proptest::collection::vec((0..TUN_METADATA_FIELDS, kind()), 0..6).prop_map(|mapped| {
        let mut map = OptionMap::default();
        for (i, kind) in mapped {
            if map.known(kind.class, kind.kind).is_none() {
                assert!(map.set(i, kind));
            }
        }
        map
    })
}

/// A list of the first of these options, as many as a header has room for, and where each ends.
fn list_of(sent: &[GeneveOption]) -> (Vec<u8>, Vec<usize>) {
    let (mut list, mut ends) = (Vec::new(), vec![0]);
    for option in sent {
        let mut bytes = Vec::new();
        option.write(&mut bytes);
        // Reserved bits are nobody's.
        bytes[3] |= 0xe0;
        if list.len() + bytes.len() > OPTIONS_MAX {
            break;
        }
        list.extend(bytes);
        ends.push(list.len());
    }
    (list, ends)
}

proptest! {
    /// What is read is the last option of each kind, found the plain way.
    #[test]
    fn the_last_option_of_a_kind_counts(map in map(), sent in proptest::collection::vec(option(), 0..6)) {
        let is_fit = |kind: OptionKind| match map.known(kind.class, kind.kind) {
            Some((_, length)) => length == kind.length,
            None => kind.kind & CRITICAL == 0,
        };
        let (list, ends) = list_of(&sent);
        let sent = &sent[..ends.len() - 1];
        let mut expected = Ok(TunMetadata::NONE);
        for option in sent {
            match (&mut expected, map.field_of(option.kind)) {
                _ if !is_fit(option.kind) => expected = Err(UnfitOptions),
                (Ok(fields), Some(i)) => {
                    fields.set_present(i, true);
                    fields.set_value(i, Wide::from_be(&option.value));
                }
                _ => {}
            }
        }
        let read = map.read(&list);
        prop_assert_eq!(&read, &expected);
        for cut in 0..list.len() {
            prop_assert_eq!(is_whole(&list[..cut]), ends.contains(&cut));
            prop_assert!(ends.contains(&cut) || map.read(&list[..cut]).is_err());
        }
        if let Ok(fields) = read {
            let mut written = Vec::new();
            map.options_of(&fields).iter().for_each(|option| option.write(&mut written));
            prop_assert_eq!(map.read(&written), Ok(fields));
        }
    }

    /// Two packets whose options agree under the mask of one's fields have the same fields under it, or both none.
    #[test]
    fn a_mask_of_bytes_says_what_the_mask_of_fields_says(
        map in map(),
        a in proptest::collection::vec(option(), 0..5),
        b in proptest::collection::vec(option(), 0..5),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        said in proptest::collection::vec((0..TUN_METADATA_FIELDS, prop_oneof![Just(0u8), Just(0xff), any::<u8>()]), 0..6),
        is_near in any::<bool>(),
    ) {
        let (a, _) = list_of(&a);
        let (mut b, _) = list_of(&b);
        if is_near {
            b.clone_from(&a);
            changes.iter().filter(|_| !a.is_empty()).for_each(|(at, bits)| b[at.index(a.len())] ^= bits);
        }
        let mut fields = TunMetadata::NONE;
        for (i, byte) in said {
            fields.set_present(i, true);
            fields.set_value(i, Wide::from_be(&[byte; 124]));
        }
        let (mut key_a, mut key_b, mut mask) = (PacketKey::ZERO, PacketKey::ZERO, PacketKey::ZERO);
        key_a.put_options(&a);
        key_b.put_options(&b);
        mask.put_options_mask(&map.mask(&key_a.options(), &fields));
        let agree = (0..PACKET_LINES).all(|i| {
            let bits = |key: &PacketKey| {
                let mut line = key.line(i).and(mask.line(i));
                if i == 0 { line.0[layout::PRESENCE.offset] = 0 }
                line
            };
            bits(&key_a) == bits(&key_b)
        });
        if agree {
            let under = |list: &[u8]| map.read(list).map(|read| read.and(&fields));
            prop_assert_eq!(under(&a), under(&b));
        }
    }

    /// Options come back from a key as they were.
    #[test]
    fn a_key_keeps_the_bytes(list in proptest::collection::vec(any::<u8>(), 0..OPTIONS_MAX), garbage in any::<u8>()) {
        let mut key = PacketKey { lines: [crate::Line([garbage; 64]); PACKET_LINES] };
        key.lines[0].0[layout::PRESENCE.offset] = 0;
        key.put_options(&list);
        prop_assert_eq!(&key.options()[..], &list[..]);
        let mut other = PacketKey::ZERO;
        other.lines[0] = key.lines[0];
        other.lines[0].0[layout::PRESENCE.offset] = 0;
        other.put_options(&list);
        prop_assert!(key == other || list.is_empty());
        let has_flag = key.number(layout::TUN_FLAGS) as u16 & tunnel_flags::OPTIONS != 0;
        prop_assert!(list.is_empty() || has_flag);
    }
}

#[test]
fn options_of_other_lengths_and_unknown_critical_ones_are_refused() {
    let mut map = OptionMap::default();
    assert!(map.set(2, OptionKind { class: 0x102, kind: 0x80, length: 4 }));
    let other_lengths = [&[1, 2, 0x80, 0][..], &[1, 2, 0x80, 2, 0, 0, 0, 0, 0, 0, 0, 0]];
    for wrong in other_lengths.into_iter().chain([&[1, 2, 0x81, 0][..]]) {
        assert_eq!(map.read(wrong), Err(UnfitOptions));
    }
    let read = map.read(&[1, 2, 1, 0, 1, 2, 0x80, 1, 0, 0, 0, 9]).unwrap();
    assert_eq!((read.has(2), read.value(2)), (true, 9.into()));
}

#[test]
fn a_mask_of_all_bits_of_an_option_is_that_of_the_field() {
    let mut map = OptionMap::default();
    assert!(
        map.set(0, OptionKind { class: 1, kind: 1, length: 4 })
            && map.set(9, OptionKind { class: 1, kind: 2, length: 0 })
    );
    assert!(!map.set(64, OptionKind { class: 1, kind: 3, length: 4 }));
    let mut mask = TunMetadata::NONE;
    for (i, bits) in [(0, 32), (9, 8), (5, 32)] {
        mask.set_present(i, true);
        mask.set_value(i, Wide::ones(bits));
    }
    map.complete(&mut mask);
    assert_eq!([0, 9, 5].map(|i| mask.value(i).bit_len()), [992, 0, 32]);
    mask.set_value(0, Wide::ones(31));
    map.complete(&mut mask);
    assert_eq!(mask.value(0), Wide::ones(31));
}

#[test]
fn options_are_shown_with_what_is_matched_of_them() {
    let list = [1, 2, 0x80, 1, 0, 0, 0, 10, 0xff, 0xff, 0, 1, 1, 2, 3, 4, 0, 0, 1, 0];
    let mut mask = [0; 20];
    mask[7] = 0xf;
    let matched = "{class=0x102,type=0x80,len=4,0xa/0xf}{class=0xffff,type=0,len=4}{class=0,type=0x1,len=0}";
    assert_eq!(show(&list, Some(&mask)).to_string(), matched);
    let whole = "{class=0x102,type=0x80,len=4,0xa}{class=0xffff,type=0,len=4,0x1020304}{class=0,type=0x1,len=0}";
    assert_eq!(show(&list, None).to_string(), whole);
}
