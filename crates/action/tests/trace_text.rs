//! Packets as traces show them, against what Open vSwitch 3.1 printed for the same datapath flows.

use sluice_action::DatapathFlow;
use sluice_flow::{FlowKey, Match, PortNames};

#[test]
fn a_packet_shows_as_in_a_trace() {
    let lines: Vec<_> =
        include_str!("data/trace.txt").lines().filter(|l| !l.starts_with('#') && !l.is_empty()).collect();
    for [datapath, shown] in lines.as_chunks::<2>().0 {
        let flow = DatapathFlow::parse(datapath, &|_| None).unwrap_or_else(|e| panic!("{datapath}: {e}"));
        let key = FlowKey::of_packet(&flow.key);
        assert_eq!(Match::of_packet(&key).to_string(), *shown, "{datapath}");
        // No flow can match on a second tag, further labels, both link-layer addresses at once, or ports of IGMP.
        let beyond = ["vlan_tci1", "dl_vlan1", "mpls_lse1", "nd_tll", "nw_proto=2,"];
        if !beyond.iter().any(|part| shown.contains(part)) {
            let back = Match::parse(shown, &PortNames::NONE).unwrap_or_else(|e| panic!("{shown}: {e}"));
            assert!(back.contains(&key), "{shown}");
        }
    }
}
