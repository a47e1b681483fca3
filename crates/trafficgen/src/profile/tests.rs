//! Valid profiles, and the errors of invalid ones.

use super::*;
use crate::stamp::Stamp;
use std::collections::HashSet;

/// The seed's own example, with the brace it lacks.
const SEED: &str = r#"{ "streams": [
  { "flows": 100, "frame_size": 64,
    "flow_mods": "function:create_flow_mod_object(use_src_ip_flows=True, use_dst_ip_flows=True)",
    "rate": 1000000, "frame_type": "generic",
    "stream_types": [ "teaching_warmup", "measurement" ] } ] }"#;

fn parse(text: &str) -> Result<Plan, String> {
    Plan::parse(text, Path::new("p.json")).map_err(|error| error.to_string())
}

/// The flows among a lane's first packets, by addresses and ports.
fn flows(lane: &mut Lane, packets: u64) -> HashSet<Vec<u8>> {
    let stamp = Stamp { trial: 0, lane: 0, number: 0, due_ns: 0 };
    let flow = |number| {
        let mut frame = vec![0; lane.frames.size(number)];
        lane.frames.write(number, &stamp, &mut frame);
        frame[26..38].to_vec()
    };
    (0..packets).map(flow).collect()
}

#[test]
fn the_seeds_profile() {
    let mut plan = parse(SEED).unwrap();
    assert_eq!((plan.ports, plan.rate_pps()), (2, 1e6));
    let lane = &mut plan.lanes[0];
    assert!(lane.teaches && lane.measures);
    assert_eq!((lane.from, lane.to, lane.frames.size(0)), (0, 1, 60));
    let seen = flows(lane, 300);
    assert_eq!(seen.len(), 100);
    assert!(seen.iter().map(|f| f[..4].to_vec()).collect::<HashSet<_>>().len() > 1, "sources vary");
    assert!(seen.iter().map(|f| f[4..8].to_vec()).collect::<HashSet<_>>().len() > 1, "destinations vary");
}

#[test]
fn pairs_directions_sizes() {
    let plan = parse(
        r#"{ "port_pairs": 3, "streams": [
             { "flows": 5, "frame_size": "IMIX", "rate": 10, "stream_types": ["measurement"],
               "traffic_direction": "bidirectional", "choice": "zipf:1.1" },
             { "flows": 5, "rate": 10, "stream_types": ["teaching_warmup"], "port_pairs": [2],
               "traffic_direction": "revunidirectional" } ] }"#,
    )
    .unwrap();
    assert_eq!((plan.ports, plan.lanes.len()), (6, 7));
    let ends: Vec<_> = plan.lanes.iter().map(|lane| (lane.from, lane.to)).collect();
    assert_eq!(ends, [(0, 1), (1, 0), (2, 3), (3, 2), (4, 5), (5, 4), (5, 4)]);
    assert_eq!((plan.rate_pps(), plan.longest()), (60.0, 1514));
}

#[test]
fn a_reverse_lane_answers_the_forward_one() {
    let mut plan =
        parse(&SEED.replace("\"generic\"", "\"generic\", \"traffic_direction\": \"bidirectional\"")).unwrap();
    let mut forward = plan.lanes.remove(0);
    let mut reverse = plan.lanes.remove(0);
    let swapped = |f: &Vec<u8>| [&f[4..8], &f[..4], &f[10..12], &f[8..10]].concat();
    let there: HashSet<Vec<u8>> = flows(&mut forward, 100).iter().map(swapped).collect();
    assert_eq!(flows(&mut reverse, 100), there);
}

/// A profile of a capture.
fn captured(name: &str) -> String {
    format!(r#"{{ "streams": [ {{ "pcap": "{name}", "rate": 1000, "stream_types": ["measurement"] }} ] }}"#)
}

/// A capture of packets of these lengths.
fn capture(path: &Path, lengths: &[usize]) {
    let mut writer = sluice_port::pcap::Writer::create(path).unwrap();
    (1..).zip(lengths).for_each(|(byte, length)| writer.write(0, &vec![byte; *length]).unwrap());
    writer.flush().unwrap();
}

/// Captures of other programs, complete and truncated.
#[test]
fn captures_are_read_or_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    capture(&path("good"), &[60, 1514]);
    let good = std::fs::read(path("good")).unwrap();
    let changed = |name: &str, at: usize, bytes: &[u8]| {
        let mut capture = good.clone();
        capture[at..at + bytes.len()].copy_from_slice(bytes);
        std::fs::write(path(name), capture).unwrap();
    };
    changed("nanoseconds", 0, &0xa1b2_3c4d_u32.to_le_bytes());
    changed("raw", 20, &101u32.to_le_bytes());
    changed("pcapng", 0, &[0x0a, 0x0d, 0x0d, 0x0a]);
    changed("long", 32, &[0xff; 8]);
    std::fs::write(path("cut"), &good[..105]).unwrap();
    std::fs::write(path("empty"), b"").unwrap();
    std::fs::write(path("text"), "not a capture at all, but a letter").unwrap();
    capture(&path("none"), &[]);
    capture(&path("runt"), &[60, 10]);
    capture(&path("jumbo"), &[9231]);
    let read = |name: &str| Plan::parse(&captured(name), &path("p.json")).map_err(|error| error.to_string());
    for good in ["good", "nanoseconds"] {
        assert_eq!(read(good).unwrap().longest(), 1514);
    }
    for (name, want) in [
        ("raw", "its packets are of link type 101, not Ethernet"),
        ("pcapng", "its byte order is "),
        ("long", "packet 1 at byte 24: a length of 4294967295 bytes"),
        ("cut", "the file breaks off at byte 105, within a packet header (5 of 16 bytes)"),
        ("empty", "the file is empty"),
        ("text", "expected a pcap or pcapng file"),
        ("none", "pcap: none: it has no packets: expected at least one"),
        ("runt", "pcap: runt: packet 2 has 10 bytes: expected packets of 14 to 9230 bytes"),
        ("jumbo", "pcap: jumbo: packet 1 has 9231 bytes"),
        (".", "s a directory"),
    ] {
        let error = read(name).map(|_| ()).expect_err(name);
        assert!(error.contains("stream 0: ") && error.contains(want), "{error}\ninstead of {want}");
    }
}

#[test]
fn a_profile_without_end_is_not_read() {
    let error = Plan::text(Path::new("/dev/zero")).unwrap_err().to_string();
    assert_eq!(error, "/dev/zero: expected a traffic profile of at most 1048576 bytes");
}

#[test]
fn what_is_wrong_is_said() {
    let stream = |change: &str, by: &str| SEED.replace(change, by);
    for (text, want) in [
        (stream("1000000", "0"), "p.json: stream 0: rate: 0: expected packets a second, above 0"),
        (stream("1000000", "1e12"), "rate: 1000000000000.0: expected packets a second"),
        (stream("1000000", "1e308"), "rate: 1e+308: expected packets a second"),
        (stream("1000000", "-5"), "rate: -5: expected packets a second"),
        (stream("1000000", "\"fast\""), "rate: fast: expected packets a second"),
        (stream("\"rate\": 1000000, ", ""), "p.json: stream 0: rate: nothing: expected packets a second"),
        (stream("\"flows\": 100", "\"flows\": -1"), "flows: -1: expected a number of flows"),
        (stream("\"flows\": 100", "\"flows\": 1e99"), "flows: 1e+99: expected a number of flows"),
        (stream("\"flows\": 100", "\"flows\": 99999999999"), "flows: 99999999999: expected a number of flows"),
        (stream("\"flows\": 100, ", ""), "flows: nothing: expected a number of flows"),
        (stream("\"generic\"", "7"), "frame_type: 7: expected a word in quotes"),
        (stream("\"generic\"", "\"generic\", \"port_pairs\": 0"), "port_pairs: 0: expected a list of pairs"),
        (stream("[ \"teaching_warmup\", \"measurement\" ]", "[]"), "stream_types: []: expected a list of"),
        (
            stream("[ \"teaching_warmup\", \"measurement\" ]", "\"measurement\""),
            "stream_types: measurement: expected a list",
        ),
        (stream(", \"measurement\"", ""), "p.json: streams: expected at least one with \"measurement\""),
        ("[]".to_owned(), "expected an object with \"streams\""),
        ("null".to_owned(), "expected an object with \"streams\""),
        (r#"{ "streams": [7] }"#.to_owned(), "expected a stream: an object"),
        (stream("\"frame_size\": 64", "\"frame_size\": 63"), "frame_size: 63: expected 64 to"),
        (stream("\"frame_size\": 64", "\"frame_size\": \"big\""), "frame_size: \"big\": expected 64 to"),
        (stream("\"flows\": 100", "\"flows\": 0"), "flows: 0: expected a number of flows"),
        (stream("\"generic\"", "\"garp\""), "frame_type: garp: expected generic or icmp"),
        (stream("\"generic\"", "\"generic\", \"protocol\": \"tcp\""), "frame_size: 64: expected at least 76 for tcp"),
        (
            stream("measurement", "measure"),
            "stream_types: measure: expected a list of \"teaching_warmup\", \"measurement\" or both",
        ),
        (stream("use_src_ip_flows=True", "use_src_mac_flows=True"), "flow_mods: function:"),
        (stream("function:", "f:"), "expected function:create_flow_mod_object("),
        (stream("\"rate\"", "\"rat\""), "p.json: unknown field `rat`"),
        (SEED[..SEED.len() - 2].to_owned(), "p.json: EOF while parsing"),
        (r#"{ "streams": [] }"#.to_owned(), "streams: expected at least one"),
        (SEED.replace("{ \"streams\"", "{ \"port_pairs\": 0, \"streams\""), "port_pairs: 0: expected 1 to 64"),
        (stream("\"generic\"", "\"generic\", \"port_pairs\": [1]"), "port_pairs: 1: expected pairs from 0 to 0"),
        (
            SEED.replace("{ \"streams\"", "{ \"port_pairs\": \"all\", \"streams\""),
            "p.json: port_pairs: all: expected 1 to 64",
        ),
        (stream("\"flows\": 100", "\"pcap\": \"none.pcap\""), "frame_size: 64: expected no such key beside pcap"),
        (captured("none.pcap"), "p.json: stream 0: none.pcap: cannot be read: No such file"),
    ] {
        let error = parse(&text).map(|_| ()).expect_err(&text);
        assert!(error.contains(want), "{error}\ninstead of {want}");
    }
}

/// The bytes of a frame that are a field which `flow_mods` may name.
const FIELDS: [(&str, std::ops::Range<usize>); 4] =
    [("src_ip", 26..30), ("dst_ip", 30..34), ("src_port", 34..36), ("dst_port", 36..38)];

#[test]
fn flow_mods_vary_what_they_name_and_nothing_else() {
    for named in 1..16 {
        let chosen: Vec<bool> = (0..4).map(|i| named >> i & 1 == 1).collect();
        let words: Vec<String> = FIELDS
            .iter()
            .zip(&chosen)
            .map(|((name, _), c)| format!("use_{name}_flows={}", if *c { "True" } else { "False" }))
            .collect();
        let text = SEED.replace("use_src_ip_flows=True, use_dst_ip_flows=True", &words.join(", "));
        let mut plan = parse(&text).unwrap();
        let seen = flows(&mut plan.lanes[0], 300);
        assert_eq!(seen.len(), 100, "{words:?}");
        for ((name, at), chosen) in FIELDS.iter().zip(chosen) {
            let values: HashSet<&[u8]> = seen.iter().map(|flow| &flow[at.start - 26..at.end - 26]).collect();
            assert_eq!(values.len() > 1, chosen, "{name} of {words:?}");
        }
    }
}

/// How often each flow appears among a lane's first packets.
fn counts(choice: &str, packets: u64) -> Vec<u64> {
    let text = SEED.replace("\"generic\"", &format!("\"generic\", \"choice\": \"{choice}\""));
    let lane = &mut parse(&text).unwrap().lanes[0];
    let stamp = Stamp { trial: 0, lane: 0, number: 0, due_ns: 0 };
    let mut counts = std::collections::HashMap::<Vec<u8>, u64>::new();
    for number in 0..packets {
        let mut frame = vec![0; lane.frames.size(number)];
        lane.frames.write(number, &stamp, &mut frame);
        *counts.entry(frame[26..38].to_vec()).or_default() += 1;
    }
    let mut counts: Vec<u64> = counts.into_values().collect();
    counts.sort_unstable();
    counts
}

/// The seed is fixed, so these numbers never change.
#[test]
fn flows_come_in_turn_evenly_or_by_zipfs_law() {
    assert_eq!(counts("sequential", 1000), [10; 100]);
    let uniform = counts("uniform", 100_000);
    assert!(uniform.len() == 100 && uniform[0] > 800 && uniform[99] < 1200, "{uniform:?}");
    let zipf = counts("zipf:1.0", 100_000);
    // The first of a hundred has 1 / H(100) = 19.3 % of the packets, the second half of that.
    assert!(
        zipf.len() == 100 && (18_000..20_600).contains(&zipf[99]) && (9000..10_400).contains(&zipf[98]),
        "{zipf:?}"
    );
}

#[test]
fn a_capture_is_sent_frame_by_frame_again_and_again() {
    let dir = tempfile::tempdir().unwrap();
    capture(&dir.path().join("in.pcap"), &[60, 100, 1514]);
    // The first is padded, so that the stamp lies behind the headers.
    let short = [vec![1; 60], vec![0; 12]].concat();
    let sent = [short, vec![2; 100], vec![3; 1514]];
    let mut plan = Plan::parse(&captured("in.pcap"), &dir.path().join("p.json")).unwrap();
    assert_eq!(plan.longest(), 1514);
    let lane = &mut plan.lanes[0];
    for number in 0..7 {
        let want = &sent[number as usize % 3];
        let stamp = Stamp { trial: 1, lane: 0, number: number as u32, due_ns: 5 };
        let mut frame = vec![0; lane.frames.size(number)];
        lane.frames.write(number, &stamp, &mut frame);
        let end = want.len() - STAMP_SIZE;
        assert_eq!((frame.len(), &frame[..end]), (want.len(), &want[..end]));
        assert_eq!(Stamp::read(&frame), Some(stamp), "the last bytes are the stamp");
    }
}
