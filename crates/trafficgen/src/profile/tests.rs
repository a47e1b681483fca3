//! Profiles read, and what is said of wrong ones.

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

#[test]
fn what_is_wrong_is_said() {
    let stream = |change: &str, by: &str| SEED.replace(change, by);
    for (text, want) in [
        (stream("1000000", "0"), "p.json: stream 0: rate: 0: expected packets a second, above 0"),
        (stream("1000000", "1e12"), "rate: 1000000000000: expected packets a second"),
        (stream("\"frame_size\": 64", "\"frame_size\": 63"), "frame_size: 63: expected 64 to"),
        (stream("\"frame_size\": 64", "\"frame_size\": \"big\""), "frame_size: \"big\": expected 64 to"),
        (stream("\"flows\": 100", "\"flows\": 0"), "flows: 0: expected a number of flows"),
        (stream("\"generic\"", "\"garp\""), "frame_type: garp: expected generic or icmp"),
        (stream("\"generic\"", "\"generic\", \"protocol\": \"tcp\""), "frame_size: 64: expected at least 76 for tcp"),
        (stream("measurement", "measure"), "stream_types: measure: expected teaching_warmup or measurement"),
        (stream("use_src_ip_flows=True", "use_src_mac_flows=True"), "flow_mods: function:"),
        (stream("function:", "f:"), "expected function:create_flow_mod_object("),
        (stream("\"rate\"", "\"rat\""), "p.json: unknown field `rat`"),
        (SEED[..SEED.len() - 2].to_owned(), "p.json: EOF while parsing"),
        (r#"{ "streams": [] }"#.to_owned(), "streams: expected at least one"),
        (SEED.replace("{ \"streams\"", "{ \"port_pairs\": 0, \"streams\""), "port_pairs: 0: expected 1 to 64"),
        (stream("\"generic\"", "\"generic\", \"port_pairs\": [1]"), "port_pairs: 1: expected pairs from 0 to 0"),
        (stream("\"flows\": 100", "\"pcap\": \"none.pcap\""), "none.pcap"),
    ] {
        let error = parse(&text).map(|_| ()).expect_err(&text);
        assert!(error.contains(want), "{error}\ninstead of {want}");
    }
}
