//! A switch accepts every example in docs/flow-language.md, or refuses it by name: rules match the fields and run the
//! actions.

use sluice_action::PortNo;
use sluice_flow::geneve::OptionKind;
use sluice_flow::{Match, PortNames};
use sluice_ofp::{FlowCommand, FlowMod, GroupCommand, GroupMod, MeterCommand, MeterMod};
use sluice_ofproto::{BridgeConfig, Error, Ofproto, PortConfig};

/// The first and the last cell (the example) of the rows of tables with `columns` columns.
fn examples(columns: usize) -> Vec<(String, String)> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/flow-language.md");
    let text = std::fs::read_to_string(page).expect("the page");
    let rows = text.lines().filter_map(|line| {
        let inner = line.strip_prefix("| `")?.strip_suffix("` |")?.replace("\\|", "\u{0}");
        let cells: Vec<&str> = inner.split(" | ").collect();
        let cell = |text: &str| text.trim_matches(['`', ' ']).replace('\u{0}', "|");
        (cells.len() == columns).then(|| (cell(cells[0]), cell(cells[columns - 1])))
    });
    rows.collect()
}

fn switch() -> Ofproto {
    let ofproto = Ofproto::new();
    ofproto.add_bridge(BridgeConfig::new("br0"), 0).unwrap();
    for n in 1..=4 {
        ofproto.add_port("br0", PortConfig::new(&format!("p{n}"), n, PortNo(n.into()))).unwrap();
    }
    let group = GroupMod::parse("group_id=1,type=all,bucket=output:2", GroupCommand::Add, &PortNames::NONE).unwrap();
    ofproto.group_mod("br0", &group, 0).unwrap();
    for meter in ["meter=1,kbps,band=type=drop,rate=1000", "meter=3,pktps,band=type=drop,rate=10"] {
        ofproto.meter_mod("br0", &MeterMod::parse(meter, MeterCommand::Add).unwrap(), 0).unwrap();
    }
    let kind = OptionKind { class: 0x102, kind: 0x80, length: 4 };
    ofproto.map_tunnel_options("br0", &[(0, kind)]);
    ofproto
}

/// Whether a packet of that flow, with all other fields zero, matches the rule of priority 5.
fn meets(ofproto: &Ofproto, flow: &str) -> bool {
    let answer = ofproto.trace(&["br0", flow], 0).unwrap_or_else(|error| panic!("{flow}: {error}"));
    assert!(answer.contains("\nDatapath actions: "), "{answer}");
    answer.lines().any(|line| line.starts_with(" 0. ") && line.ends_with("priority 5"))
}

#[test]
fn every_action_is_done_or_refused_by_name() {
    let (mut done, mut refused) = (0, Vec::new());
    for (name, example) in examples(3) {
        let ofproto = switch();
        // The first match with the prerequisites of the action.
        let matches = ["in_port=1", "ip", "tcp", "dl_vlan=5", "tcp,dl_vlan=5", "mpls", "dl_type=0x894f"];
        let rules = matches
            .map(|m| FlowMod::parse(&format!("priority=5,{m} actions={example}"), FlowCommand::Add, &PortNames::NONE));
        let rule = rules.into_iter().find_map(Result::ok).unwrap_or_else(|| panic!("no match suits {example}"));
        match ofproto.flow_mod("br0", &rule, 0) {
            Ok(_) => {
                // Packets do not match a single clause.
                let flow = Match::of_packet(&rule.matches.key).to_string();
                assert_eq!(meets(&ofproto, &flow), name != "conjunction", "{example}");
                done += 1;
            }
            Err(Error::Unsupported { .. }) => refused.push(name),
            Err(other) => panic!("{example}: {other}"),
        }
    }
    assert!(done > 50, "{done} actions were done");
    assert_eq!(refused, ["dec_nsh_ttl", "encap", "decap"]);
}

#[test]
fn every_field_is_matched_or_refused_by_name() {
    let (mut matched, mut unmet, mut refused) = (0, Vec::new(), Vec::new());
    for (name, example) in examples(4) {
        let ofproto = switch();
        let text = format!("priority=5,{example} actions=output:2");
        let rule = FlowMod::parse(&text, FlowCommand::Add, &PortNames::NONE).unwrap_or_else(|e| panic!("{text}: {e}"));
        match ofproto.flow_mod("br0", &rule, 0) {
            Ok(_) if meets(&ofproto, &example) => matched += 1,
            Ok(_) => unmet.push(name),
            Err(Error::HiddenField(_) | Error::MissingField { .. }) => refused.push(name),
            Err(other) => panic!("{example}: {other}"),
        }
    }
    assert!(matched > 70, "{matched} fields were matched");
    // No frame is a packet without an Ethernet header, and none has an action set when its translation starts.
    assert_eq!(unmet, ["packet_type", "actset_output"]);
    let nsh = ["flags", "mdtype", "np", "spi", "si", "c<N>", "ttl"].map(|name| format!("nsh_{name}"));
    assert_eq!(refused, [&["dp_hash".to_owned(), "recirc_id".to_owned()][..], &nsh].concat());
}
