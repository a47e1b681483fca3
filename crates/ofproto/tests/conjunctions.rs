//! Open vSwitch's own tests of conjunctions with many packets (`tests/classifier.at`), and what they expect.

use sluice_action::PortNo;
use sluice_flow::PortNames;
use sluice_ofp::{FlowCommand, FlowMod};
use sluice_ofproto::{BridgeConfig, Ofproto, PortConfig};

fn switch(flows: &[&str]) -> Ofproto {
    let ofproto = Ofproto::new();
    ofproto.add_bridge(BridgeConfig::new("br0"), 0).unwrap();
    for n in 1..=7 {
        ofproto.add_port("br0", PortConfig::new(&format!("p{n}"), n, PortNo(n.into()))).unwrap();
    }
    for text in flows {
        add(&ofproto, text).unwrap_or_else(|e| panic!("{text}: {e}"));
    }
    ofproto
}

fn add(ofproto: &Ofproto, text: &str) -> Result<(), String> {
    let flow = FlowMod::parse(text, FlowCommand::Add, &PortNames::NONE).map_err(|e| e.to_string())?;
    ofproto.flow_mod("br0", &flow, 0).map(|_| ()).map_err(|e| e.to_string())
}

/// The output port of a flow's packet.
fn output(ofproto: &Ofproto, flow: &str) -> u32 {
    let answer = ofproto.trace(&["br0", flow], 0).unwrap();
    let last = answer.lines().last().unwrap();
    let actions = last.strip_prefix("Datapath actions: ").unwrap_or_else(|| panic!("{flow}: {answer}"));
    actions.parse().unwrap_or_else(|_| panic!("{flow}: {answer}"))
}

/// "single conjunctive match"
#[test]
fn one_of_four_sources_with_one_of_four_destinations() {
    let mut flows: Vec<String> = vec!["conj_id=1,actions=3".into(), "priority=0,actions=2".into()];
    flows.extend([1, 4, 6, 7].map(|n| format!("priority=100,ip,ip_src=10.0.0.{n},actions=conjunction(1,1/2)")));
    flows.extend([2, 5, 7, 8].map(|n| format!("priority=100,ip,ip_dst=10.0.0.{n},actions=conjunction(1,2/2)")));
    flows.push("priority=100,ip,ip_src=10.0.0.1,ip_dst=10.0.0.4,actions=4".into());
    flows.push("priority=100,ip,ip_src=10.0.0.3,ip_dst=10.0.0.5,actions=5".into());
    let ofproto = switch(&flows.iter().map(String::as_str).collect::<Vec<_>>());
    for src in 0..8 {
        for dst in 0..8 {
            let want = match (src, dst) {
                (1, 4) => 4,
                (3, 5) => 5,
                (1 | 4 | 6 | 7, 2 | 5 | 7) => 3,
                _ => 2,
            };
            let flow = format!("in_port=1,dl_type=0x0800,nw_src=10.0.0.{src},nw_dst=10.0.0.{dst}");
            assert_eq!(output(&ofproto, &flow), want, "{flow}");
        }
    }
}

/// "multiple conjunctive match"
#[test]
fn three_conjunctions_share_their_clauses() {
    let ofproto = switch(&[
        "conj_id=1,actions=1",
        "conj_id=2,actions=2",
        "conj_id=3,actions=3",
        "priority=5,ip,ip_src=20.0.0.0/8,actions=conjunction(1,1/2),conjunction(2,1/2)",
        "priority=5,ip,ip_src=10.1.0.0/16,actions=conjunction(1,1/2),conjunction(3,2/3)",
        "priority=5,ip,ip_src=10.2.0.0/16,actions=conjunction(1,1/2),conjunction(2,1/2)",
        "priority=5,ip,ip_src=10.1.3.0/24,actions=conjunction(1,1/2),conjunction(3,2/3)",
        "priority=5,ip,ip_src=10.1.4.5/32,actions=conjunction(1,1/2),conjunction(2,1/2)",
        "priority=5,ip,ip_dst=20.0.0.0/8,actions=conjunction(1,2/2)",
        "priority=5,ip,ip_dst=10.1.0.0/16,actions=conjunction(1,2/2)",
        "priority=5,ip,ip_dst=10.2.0.0/16,actions=conjunction(1,2/2)",
        "priority=5,ip,ip_dst=10.1.3.0/24,actions=conjunction(1,2/2)",
        "priority=5,ip,ip_dst=10.1.4.5/32,actions=conjunction(1,2/2)",
        "priority=5,ip,ip_dst=30.0.0.0/8,actions=conjunction(2,2/2),conjunction(3,1/3)",
        "priority=5,ip,ip_dst=40.5.0.0/16,actions=conjunction(2,2/2),conjunction(3,1/3)",
        "priority=5,tcp,tcp_dst=80,actions=conjunction(3,3/3)",
        "priority=5,tcp,tcp_dst=443,actions=conjunction(3,3/3)",
        "priority=5,tcp,tcp_src=80,actions=conjunction(3,3/3)",
        "priority=5,tcp,tcp_src=443,actions=conjunction(3,3/3)",
        "priority=0,actions=4",
    ]);
    const SOURCES: [&str; 6] = ["20.0.0.1", "10.1.0.1", "10.2.0.1", "10.1.3.1", "10.1.4.5", "1.2.3.4"];
    const DESTINATIONS: [&str; 8] =
        ["20.0.0.1", "10.1.0.1", "10.2.0.1", "10.1.3.1", "10.1.4.5", "30.0.0.1", "40.5.0.1", "1.2.3.4"];
    let ports = [80, 443, 8080];
    for (a, src) in (1..).zip(SOURCES) {
        for (b, dst) in (1..).zip(DESTINATIONS) {
            for (from, to) in ports.iter().flat_map(|from| ports.map(|to| (*from, to))) {
                let want = match (a, b) {
                    (1..=5, 1..=5) => 1,
                    (1 | 3 | 5, 6 | 7) => 2,
                    (2 | 4, 6 | 7) if from != 8080 || to != 8080 => 3,
                    _ => 4,
                };
                let flow = format!(
                    "in_port=5,dl_type=0x0800,nw_proto=6,nw_src={src},nw_dst={dst},tcp_src={from},tcp_dst={to}"
                );
                assert_eq!(output(&ofproto, &flow), want, "{flow}");
            }
        }
    }
}

/// "conjunctive match priority fallback"
#[test]
fn where_no_conjunction_is_whole_rules_below_are_asked() {
    let ofproto = switch(&[
        "conj_id=1,actions=1",
        "conj_id=3,actions=3",
        "priority=5,ip,ip_src=10.0.0.1,actions=conjunction(1,1/2)",
        "priority=5,ip,ip_src=10.0.0.2,actions=conjunction(1,1/2)",
        "priority=5,ip,ip_dst=10.0.0.1,actions=conjunction(1,2/2)",
        "priority=5,ip,ip_dst=10.0.0.2,actions=conjunction(1,2/2)",
        "priority=5,ip,ip_dst=10.0.0.3,actions=conjunction(1,2/2)",
        "priority=4,ip,ip_src=10.0.0.3,ip_dst=10.0.0.2,actions=2",
        "priority=3,ip,ip_src=10.0.0.1,actions=conjunction(3,1/2)",
        "priority=3,ip,ip_src=10.0.0.3,actions=conjunction(3,1/2)",
        "priority=3,ip,ip_dst=10.0.0.2,actions=conjunction(3,2/2)",
        "priority=3,ip,ip_dst=10.0.0.3,actions=conjunction(3,2/2)",
        "priority=3,ip,ip_dst=10.0.0.4,actions=conjunction(3,2/2)",
        "priority=2,ip,ip_dst=10.0.0.1,actions=4",
        "priority=1,ip,ip_src=10.0.0.1,ip_dst=10.0.0.5,actions=5",
        "priority=0,actions=6",
    ]);
    for src in 0..4 {
        for dst in 0..6 {
            let want = match (src, dst) {
                (1 | 2, 1..=3) => 1,
                (3, 2) => 2,
                (1 | 3, 2..=4) => 3,
                (_, 1) => 4,
                (1, 5) => 5,
                _ => 6,
            };
            let flow = format!("in_port=7,dl_type=0x0800,nw_src=10.0.0.{src},nw_dst=10.0.0.{dst}");
            assert_eq!(output(&ofproto, &flow), want, "{flow}");
        }
    }
}

/// "conjunctive match and other actions"
#[test]
fn a_clause_may_have_notes_and_nothing_else() {
    let ofproto = switch(&[]);
    add(&ofproto, "actions=conjunction(3,1/2),note:41.42.43.44.45.46").unwrap();
    add(&ofproto, "actions=note:41.42.43.44.45.46,conjunction(3,1/2)").unwrap();
    for text in ["actions=output:1,conjunction(3,1/2)", "actions=conjunction(3,1/2),output:1"] {
        let error = add(&ofproto, text).unwrap_err();
        assert!(error.contains("conjunction") && error.contains("note"), "{text}: {error}");
    }
}

/// The clauses that a trace names, in the order of their tables and numbers.
fn clauses(ofproto: &Ofproto, question: &[&str]) -> Vec<String> {
    let answer = ofproto.trace(question, 0).unwrap();
    answer.lines().filter_map(|line| line.strip_prefix("     -> conj. ")).map(str::to_owned).collect()
}

/// "conjunctive match with same priority"
#[test]
fn a_trace_names_the_clauses_of_the_conjunction_that_was_whole() {
    let ofproto = switch(&[
        "conj_id=1,actions=2",
        "conj_id=2,actions=drop",
        "priority=10,ip,ip_dst=10.0.0.1,actions=conjunction(1,1/2)",
        "priority=10,ip,ip_src=10.0.0.2,actions=conjunction(1,2/2)",
        "priority=10,ip,ip_dst=10.0.0.3,actions=conjunction(2,1/2)",
        "priority=10,ip,in_port=1,actions=conjunction(2,2/2)",
        "priority=1,ip,ip_dst=10.0.0.1,actions=conjunction(1,1/2)",
    ]);
    let flow = "in_port=1,dl_type=0x0800,nw_dst=10.0.0.1,nw_src=10.0.0.2";
    assert_eq!(clauses(&ofproto, &["br0", flow]), ["priority=10,ip,nw_dst=10.0.0.1", "priority=10,ip,nw_src=10.0.0.2"]);
    assert_eq!(clauses(&ofproto, &["br0", "in_port=1,dl_type=0x0800,nw_dst=10.0.0.1"]), <[&str; 0]>::default());
}

/// "conjunctive match with metadata", with the tunnel fields that need no map.
#[test]
fn clauses_may_be_about_tunnels() {
    let ofproto = switch(&[
        "conj_id=7,actions=drop",
        "priority=5,tun_id=0x1,actions=conjunction(7,1/2)",
        "priority=5,tun_gbp_id=2,actions=conjunction(7,2/2)",
    ]);
    let named = clauses(&ofproto, &["br0", "tun_id=0x1,tun_gbp_id=2,in_port=1"]);
    assert_eq!(named, ["priority=5,tun_id=0x1", "priority=5,tun_gbp_id=2"]);
}

/// "conjunctive match with or without port map"
#[test]
fn clauses_name_ports_if_asked_to() {
    let ofproto = switch(&[
        "conj_id=1,actions=drop",
        "conj_id=2,actions=drop",
        "priority=10,ip,actions=conjunction(1,1/2),conjunction(2,1/2)",
        "priority=10,in_port=1,actions=conjunction(1,2/2)",
        "priority=10,in_port=2,actions=conjunction(1,2/2)",
        "priority=1,in_port=1,actions=drop",
    ]);
    let named = clauses(&ofproto, &["br0", "ip,in_port=p1", "--names"]);
    assert_eq!(named, ["priority=10,ip", "priority=10,in_port=p1"]);
    assert_eq!(clauses(&ofproto, &["br0", "ip,in_port=p2"]), ["priority=10,ip", "priority=10,in_port=2"]);
    // Rules may also have names.
    let answer = ofproto.trace(&["br0", "arp,in_port=p1", "--names"], 0).unwrap();
    assert!(answer.contains(" 0. in_port=p1, priority 1\n"), "{answer}");
}

/// "conjunctive match with resubmit"
#[test]
fn each_table_has_its_clauses() {
    let ofproto = switch(&[
        "conj_id=1,actions=resubmit(,2)",
        "priority=10,ip,actions=conjunction(1,1/2)",
        "priority=10,in_port=1,actions=conjunction(1,2/2)",
        "priority=10,in_port=2,actions=conjunction(1,2/2)",
        "table=2,conj_id=7,actions=resubmit(,3)",
        "table=2,priority=20,ip,actions=conjunction(7,1/2)",
        "table=2,priority=20,in_port=1,actions=conjunction(7,2/2)",
        "table=2,priority=20,in_port=2,actions=conjunction(7,2/2)",
        "table=3,actions=drop",
    ]);
    let want = ["priority=10,ip", "priority=10,in_port=p1", "priority=20,ip", "priority=20,in_port=p1"];
    assert_eq!(clauses(&ofproto, &["br0", "ip,in_port=p1", "--names"]), want);
}
