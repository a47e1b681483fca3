//! Streams follow the profile: correct frames, every flow in one queue, the same packets for ever.

use proptest::prelude::*;
use sluice_traffic::{Choice, Profile, Rate};
use std::collections::{HashMap, HashSet};

fn profile(keys: &[(&str, &str)]) -> Profile {
    let mut profile = Profile::default();
    keys.iter().for_each(|(key, value)| profile.set(key, value).expect("known key").unwrap());
    profile
}

/// The frame of a flow, and its number.
fn frames(profile: &Profile, queue: usize, queues: usize, n: usize) -> Vec<(u32, Vec<u8>)> {
    let mut stream = profile.streams(queues).unwrap().swap_remove(queue);
    let mut flows = vec![0; n];
    let picked = stream.pick(&mut flows);
    flows[..picked]
        .iter()
        .map(|flow| {
            let mut frame = vec![0xee; stream.frame_size()];
            stream.writer().write(*flow, &mut frame);
            (*flow, frame)
        })
        .collect()
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// One's complement sum of 16-bit big-endian words, the slow way.
fn sum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes.chunks(2).map(|p| u32::from(p[0]) << 8 | u32::from(*p.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Flows (i, j) = (1, 0), (2, 3) and (20, 49999), byte by byte as a script independent of this crate writes them.
#[test]
fn subtables_are_the_distributors_traffic() {
    let profile = profile(&[("subtables", "20"), ("flows", "1M"), ("choice", "sequential")]);
    let all = frames(&profile, 0, 1, 1_000_000);
    // This crate writes a valid TCP checksum; the script writes 0.
    let tcp = hex("020000000002 020000000001 0800 4500002e00000000 4006 6fcb 01000000 0a000000 \
         03e8 07d0 00000000 00000000 5010 0400 9517 0000 000000000000");
    let udp = hex("020000000002 020000000001 0800 4500002e00000000 4011 6ebd 02000000 0a000003 \
         03e8 07d0 001a 0000 000000000000000000000000000000000000");
    let last = hex("020000000002 020000000001 0800 4500002e00000000 4011 9970 14000000 0a00c34f \
         03e8 07d0 001a 0000 000000000000000000000000000000000000");
    assert_eq!(all[0].1, tcp);
    assert_eq!(all[3 * 20 + 1].1, udp);
    assert_eq!(all[999_999].1, last);
    let different: HashSet<&[u8]> = all.iter().map(|(_, frame)| &frame[23..38]).collect();
    assert_eq!(different.len(), 1_000_000, "every flow is another");
}

/// These numbers must never change, since measurements are compared over years. (A script computed those of the uniform
/// choice from the published generator.)
#[test]
fn streams_are_the_same_for_ever() {
    let first = |keys: &[(&str, &str)], queue, queues| -> Vec<u32> {
        frames(&profile(keys), queue, queues, 6).into_iter().map(|(flow, _)| flow).collect()
    };
    assert_eq!(first(&[("flows", "1M")], 0, 1), [371337, 672405, 907740, 693005, 121635, 703060]);
    assert_eq!(first(&[("flows", "1M"), ("seed", "2")], 0, 1), [911460, 979459, 862508, 66314, 427868, 886984]);
    assert_eq!(first(&[("flows", "1M"), ("choice", "zipf:1.0")], 0, 1), [7, 341, 8424, 446, 121635, 703060]);
    assert_eq!(first(&[("flows", "1M")], 2, 3), [774297, 486248, 263856, 345259, 376474, 922331]);
    assert_eq!(first(&[("flows", "4"), ("choice", "sequential")], 0, 1), [0, 1, 2, 3, 0, 1]);
}

#[test]
fn batches_of_one_and_of_many_are_the_same_packets() {
    for choice in ["uniform", "sequential", "zipf:0.8"] {
        let profile = profile(&[("flows", "5000"), ("choice", choice)]);
        let (mut ones, mut many) = (profile.streams(1).unwrap(), profile.streams(1).unwrap());
        let mut want = [0; 96];
        many[0].pick(&mut want);
        for flow in want {
            let mut one = [0];
            ones[0].pick(&mut one);
            assert_eq!(one, [flow]);
        }
    }
}

#[test]
fn short_flows_have_their_packets_a_few_flows_at_a_time_and_never_come_back_early() {
    for (packets, flows) in [(1, 200), (3, 200), (10, 64), (100, 65), (2, 1)] {
        let profile = profile(&[("flows", &flows.to_string()), ("choice", &format!("short:{packets}"))]);
        let mut stream = profile.streams(1).unwrap().remove(0);
        let mut all = vec![0; 2 * flows * packets];
        // With odd batch sizes.
        all.chunks_mut(7).for_each(|batch| assert_eq!(stream.pick(batch), batch.len()));
        let (first, again) = all.split_at(flows * packets);
        assert_eq!(first, again, "then they begin anew");
        for flow in 0..flows as u32 {
            let at: Vec<_> = first.iter().enumerate().filter(|(_, f)| **f == flow).map(|(i, _)| i).collect();
            assert_eq!(at.len(), packets, "flow {flow}");
            assert!(at.last().unwrap() - at[0] <= 64 * packets, "flow {flow}");
        }
    }
    assert!(Profile::default().set("choice", "short:0").unwrap().is_err());
}

#[test]
fn queues_share_flows_rate_and_count() {
    for choice in [Choice::Uniform, Choice::Sequential, Choice::Zipf(1.0), Choice::Hot(95.0), Choice::Short(3)] {
        let profile = Profile { choice, count: Some(10_001), ..profile(&[("flows", "3000"), ("rate", "3M")]) };
        let mut owner = HashMap::new();
        let (mut packets, mut rate) = (0, 0.0);
        for (queue, mut stream) in profile.streams(3).unwrap().into_iter().enumerate() {
            let Rate::Pps(part) = stream.rate() else { panic!("no rate") };
            rate += part;
            let mut flows = [0; 7];
            loop {
                let n = stream.pick(&mut flows);
                packets += n;
                flows[..n].iter().for_each(|flow| assert_eq!(*owner.entry(*flow).or_insert(queue), queue));
                if n < 7 {
                    break;
                }
            }
            assert!(stream.exhausted());
        }
        assert_eq!(packets, 10_001);
        assert!((rate - 3e6).abs() < 1.0);
        assert_eq!(owner.values().collect::<HashSet<_>>().len(), 3);
    }
}

#[test]
fn parts_of_a_count_add_up() {
    for count in 1..200 {
        for choice in [Choice::Uniform, Choice::Zipf(0.7)] {
            let profile = Profile { choice, count: Some(count), ..profile(&[("flows", "100")]) };
            let picked = |mut stream: sluice_traffic::FlowStream| stream.pick(&mut [0; 200]) as u64;
            let sum: u64 = profile.streams(7).unwrap().into_iter().map(picked).sum();
            assert_eq!(sum, count);
        }
    }
}

#[test]
fn hot_packets_belong_to_the_last_subtable() {
    for (subtables, expected) in [(20, 95_000), (1, 100_000)] {
        let keys = [("flows", "2000"), ("subtables", &subtables.to_string()), ("choice", "hot:95")];
        let mut stream = profile(&keys).streams(1).unwrap().pop().unwrap();
        let mut flows = vec![0; 100_000];
        assert_eq!(stream.pick(&mut flows), flows.len());
        let hot = flows.iter().filter(|flow| **flow % subtables == subtables - 1).count() as i64;
        assert!((hot - expected).abs() < 1000, "{hot} of 100000 with {subtables} subtables");
        assert!(flows.iter().collect::<HashSet<_>>().len() > 1500, "the others come, too");
    }
    assert!(Profile::default().set("choice", "hot:100").unwrap().is_err());
}

#[test]
fn fewer_flows_than_queues_leave_queues_idle() {
    let streams = profile(&[("choice", "zipf:1")]).streams(4).unwrap();
    assert_eq!(streams.iter().filter(|stream| !stream.exhausted()).count(), 1);
}

#[test]
fn errors_name_the_key_and_what_was_expected() {
    let mut profile = Profile::default();
    assert!(profile.set("flowz", "1").is_none());
    for (key, bad) in [
        ("flows", "0"),
        ("flows", "5000000000"),
        ("subtables", "513"),
        ("src", "10.0.0"),
        ("dport", "70000"),
        ("protocol", "tpc"),
        ("choice", "zipf"),
        ("choice", "zipf:NaN"),
        ("frame-size", "59"),
        ("rate", "fast"),
        ("rate", "0"),
        ("count", "-1"),
        ("seed", "x"),
        ("src-mac", "1"),
    ] {
        let error = profile.set(key, bad).unwrap().unwrap_err();
        assert_eq!((error.key, error.value.as_str()), (key, bad));
        assert!(!error.expected.is_empty());
    }
    assert_eq!(profile, Profile::default(), "a refused value changes nothing");
    let error = self::profile(&[("flows", "300"), ("dst", "10.0.0.0/24")]).flow_space().unwrap_err();
    assert_eq!(error.to_string(), "flows = \"300\": expected at most 256, which is what the ranges hold");
    assert!(self::profile(&[("dst", "10.0.0.0/8"), ("src", "20.0.0.0/8")]).flow_space().is_err());
    assert!(self::profile(&[("subtables", "3"), ("src", "20.0.0.0/8")]).flow_space().is_err());
}

proptest! {
    /// For any profile, lengths and checksums are correct, fields are within their ranges, and flows are distinct.
    #[test]
    fn frames_are_valid(
        (src, dst, sport, dport) in (1u32..4, 1u32..5, 1u32..3, 1u32..4),
        base in prop_oneof![Just(0u32), any::<u32>()],
        size in 60usize..200,
        protocols in prop::sample::subsequence(vec![6u8, 17, 1, 132], 1..4),
    ) {
        let base = base.min(u32::MAX - 10);
        let range = |count: u32| {
            let at = |n: u32| std::net::Ipv4Addr::from(base + n);
            format!("{}-{}", at(0), at(count - 1))
        };
        let names: Vec<String> = protocols.iter().map(u8::to_string).collect();
        let profile = profile(&[
            ("src", &range(src)), ("dst", &range(dst)), ("choice", "sequential"),
            ("sport", &format!("65000-{}", 64_999 + sport)), ("dport", &format!("1-{dport}")),
            ("protocol", &names.join(",")), ("frame-size", &size.to_string()),
        ]);
        let n = (src * dst * sport * dport) as usize * protocols.len();
        let all = frames(&profile, 0, 1, n);
        let space = profile.flow_space().unwrap();
        prop_assert_eq!(space.len() as usize, n);
        let mut seen = HashSet::new();
        for (index, frame) in &all {
            prop_assert_eq!(frame.len(), size);
            prop_assert_eq!(usize::from(u16::from_be_bytes([frame[16], frame[17]])), size - 14);
            prop_assert_eq!(sum(&frame[14..34]), 0xffff, "IPv4 checksum");
            let flow = space.flow(*index);
            prop_assert!(seen.insert((flow.src, flow.dst, flow.sport, flow.dport, flow.protocol)));
            prop_assert_eq!(&frame[26..30], &flow.src.to_be_bytes());
            prop_assert_eq!(&frame[30..34], &flow.dst.to_be_bytes());
            prop_assert!(flow.src - base < src && flow.dst - base < dst);
            prop_assert_eq!(frame[23], flow.protocol);
            if matches!(flow.protocol, 6 | 17) {
                prop_assert_eq!(&frame[34..36], &flow.sport.to_be_bytes());
                prop_assert_eq!(&frame[36..38], &flow.dport.to_be_bytes());
                prop_assert!(flow.sport >= 65_000 && u32::from(flow.sport) < 65_000 + sport);
            } else {
                prop_assert!(frame[34..].iter().all(|b| *b == 0));
            }
            if flow.protocol == 6 {
                let mut segment = frame[26..].to_vec();
                segment.extend([0, 6]);
                segment.extend(((size - 34) as u16).to_be_bytes());
                prop_assert_eq!(sum(&even(segment)), 0xffff, "TCP checksum");
            }
        }
    }
}

/// The pseudo-header's parts are even-sized; an odd payload is padded in front of them.
fn even(mut segment: Vec<u8>) -> Vec<u8> {
    if segment.len() % 2 == 1 {
        segment.insert(segment.len() - 4, 0);
    }
    segment
}
