//! Compares `ofproto/trace` with recorded output of Open vSwitch 3.1. See `record_traces.py` for the files.

use sluice_action::PortNo;
use sluice_flow::PortNames;
use sluice_ofp::{FlowCommand, FlowMod, GroupCommand, GroupMod, MeterCommand, MeterMod};
use sluice_ofproto::{
    BridgeConfig, FragmentMode, Ofproto, PortConfig, PriorityTags, TableMiss, TableSettings, TrieField, VlanMode,
};
use std::collections::BTreeSet;

/// Traces with a narrower megaflow here, because that of OVS is too wide: the question, OVS's line, ours.
const NARROWER: &[(&str, &str, &str)] = &[(
    // A label stack entry is set as a whole; OVS gives every packet of this megaflow the traffic class of the first
    // one.
    "trace br0 in_port=2,mpls,mpls_label=5,mpls_tc=1,mpls_ttl=9,mpls_bos=1",
    "Megaflow: recirc_id=0,eth,mpls,in_port=2,mpls_label=5,mpls_ttl=9\n",
    "Megaflow: recirc_id=0,eth,mpls,in_port=2,mpls_label=5,mpls_tc=1,mpls_ttl=9,mpls_bos=1\n",
)];

/// A section of a case file.
struct Case<'a> {
    title: &'a str,
    lines: Vec<&'a str>,
}

fn cases(text: &str) -> Vec<Case<'_>> {
    let mut out: Vec<Case<'_>> = Vec::new();
    for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        match (line.strip_prefix("== "), out.last_mut()) {
            (Some(title), _) => out.push(Case { title, lines: Vec::new() }),
            (None, Some(case)) => case.lines.push(line),
            (None, None) => panic!("{line:?} stands before the first title"),
        }
    }
    out
}

/// Recorded output by title and question.
fn answers(text: &str) -> Vec<(&str, &str, String)> {
    let mut out: Vec<(&str, &str, String)> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        match line.strip_prefix("== ") {
            Some(title) => out.push((title, lines.next().expect("a question"), String::new())),
            None => {
                let answer = &mut out.last_mut().expect("an answer has a title").2;
                answer.push_str(line);
                answer.push('\n');
            }
        }
    }
    out
}

/// The datapath port number in OVS's dummy datapath: the digits of the port's name.
fn dummy_number(name: &str) -> PortNo {
    PortNo(name.chars().filter(char::is_ascii_digit).collect::<String>().parse().expect("names have digits"))
}

fn port(words: &[&str]) -> PortConfig {
    let number = words[1].parse().expect("a port number");
    let mut port = PortConfig::new(words[0], number, dummy_number(words[0]));
    let (mut tag, mut trunks, mut mode, mut cvlans) = (None, Vec::new(), "", None);
    for word in &words[2..] {
        match word.split_once('=') {
            Some(("peer", peer)) => port = PortConfig::patch(words[0], number, peer),
            Some(("tag", n)) => tag = Some(n.parse().expect("a VLAN")),
            Some(("trunks", list)) => trunks = list.split(',').map(|n| n.parse().expect("a VLAN")).collect(),
            Some(("vlan_mode", m)) => mode = m,
            Some(("cvlans", list)) => cvlans = Some(list.split(',').map(|n| n.parse().expect("a VLAN")).collect()),
            Some(("other_config:qinq-ethtype", "802.1q")) => {}
            Some(("other_config:priority-tags", "if-nonzero")) => port.priority_tags = PriorityTags::IfNonzero,
            Some(("other_config:priority-tags", "always")) => port.priority_tags = PriorityTags::Always,
            _ if *word == "no-flood" => port.no_flood = true,
            _ if *word == "no-forward" => port.no_forward = true,
            _ if *word == "no-receive" => port.no_receive = true,
            _ => panic!("{word}: what is that?"),
        }
    }
    let set = (!trunks.is_empty()).then(|| trunks.iter().copied().collect::<BTreeSet<u16>>());
    port.vlan = match mode {
        "native-tagged" => VlanMode::NativeTagged { vlan: tag.expect("a tag"), trunks: set },
        "native-untagged" => VlanMode::NativeUntagged { vlan: tag.expect("a tag"), trunks: set },
        "dot1q-tunnel" => VlanMode::Dot1qTunnel { vlan: tag.expect("a tag"), cvlans, tpid: 0x8100 },
        _ => VlanMode::of(tag, &trunks),
    };
    port
}

fn set_up(case: &Case<'_>) -> Ofproto {
    let ofproto = Ofproto::new();
    let mut bridges = 0;
    for line in &case.lines {
        let words: Vec<&str> = line.split(' ').collect();
        match words[0] {
            "bridge" => {
                let mut config = BridgeConfig { datapath_type: "dummy".into(), ..BridgeConfig::new(words[1]) };
                if let Some(list) = words.get(2).and_then(|option| option.strip_prefix("prefixes=")) {
                    config.prefixes = list.split(',').filter_map(TrieField::named).collect();
                }
                ofproto.add_bridge(config, 0).unwrap();
                let local = PortConfig::new(words[1], 0xfffe, PortNo(100 + bridges));
                ofproto.add_port(words[1], local).unwrap();
                bridges += 1;
                let mode = words.get(2).and_then(|option| match *option {
                    "fragments=drop" => Some(FragmentMode::Drop),
                    "fragments=nx-match" => Some(FragmentMode::NxMatch),
                    other if other.starts_with("prefixes=") => None,
                    _ => panic!("{option}: what is that?"),
                });
                if let Some(mode) = mode {
                    ofproto.set_fragments(words[1], mode).unwrap();
                }
            }
            "port" => ofproto.add_port(words[1], port(&words[2..])).unwrap(),
            "meter" => {
                let text = line.splitn(3, ' ').nth(2).expect("a meter");
                let meter = MeterMod::parse(text, MeterCommand::Add).unwrap_or_else(|e| panic!("{text}: {e}"));
                ofproto.meter_mod(words[1], &meter, 0).unwrap_or_else(|e| panic!("{}: {text}: {e}", case.title));
            }
            "group" => {
                let text = line.splitn(3, ' ').nth(2).expect("a group");
                let group = GroupMod::parse(text, GroupCommand::Add, &PortNames::NONE);
                let group = group.unwrap_or_else(|e| panic!("{}: {text}: {e}", case.title));
                ofproto.group_mod(words[1], &group, 0).unwrap_or_else(|e| panic!("{}: {text}: {e}", case.title));
            }
            "flow" => {
                let text = line.splitn(3, ' ').nth(2).expect("a flow");
                let flow = FlowMod::parse(text, FlowCommand::Add, &PortNames::NONE);
                let flow = flow.unwrap_or_else(|e| panic!("{}: {text}: {e}", case.title));
                ofproto.flow_mod(words[1], &flow, 0).unwrap_or_else(|e| panic!("{}: {text}: {e}", case.title));
            }
            _ => {}
        }
    }
    ofproto
}

/// Replaces recirculation ids, which depend on earlier traces, by their order. Only their equality matters.
fn with_ids_renumbered(answer: &str) -> String {
    let mut seen = Vec::new();
    let mut out = String::new();
    let mut rest = answer;
    const NAMES: [&str; 3] = ["recirc_id=", "recirc_id=0x", "recirc(0x"];
    while let Some((at, word)) =
        NAMES.iter().filter_map(|w| Some((rest.find(w)?, *w))).min_by_key(|(at, w)| (*at, usize::MAX - w.len()))
    {
        let start = at + word.len();
        let end = start + rest[start..].find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len() - start);
        let radix = if word.ends_with('x') { 16 } else { 10 };
        let id = u32::from_str_radix(&rest[start..end], radix).expect("an id");
        let is_new = id != 0 && !seen.contains(&id);
        seen.extend(is_new.then_some(id));
        let shown = seen.iter().position(|s| *s == id).map_or(0, |i| i + 1);
        out += &format!("{}{shown}", &rest[..start]);
        rest = &rest[end..];
    }
    out + rest
}

/// Our output without the lines that OVS does not have.
fn ask(ofproto: &Ofproto, question: &str) -> String {
    let args: Vec<&str> = question.split(' ').skip(1).collect();
    let answer = ofproto.trace(&args, 0).unwrap_or_else(|e| e);
    // One part per pass.
    let mut passes = answer.split("\nThe megaflow matches");
    let first = passes.next().unwrap_or_default().to_owned();
    let whole = passes.fold(first, |out, part| out + part.find("\nFinal flow").map_or("", |at| &part[at..]));
    // OVS names clauses of conjunctions since version 4.
    let lines = whole.trim_end().lines().filter(|line| !line.trim_start().starts_with("-> conj. "));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Sorts the outputs of a flood: they come in the order of port numbers here, of a hash table in OVS.
fn sorted_outputs(answer: &str) -> String {
    let line = |l: &str| match l.strip_prefix("Datapath actions: ") {
        Some(actions) if actions.split(',').all(|a| a.parse::<u32>().is_ok()) => {
            let mut ports: Vec<u32> = actions.split(',').map(|a| a.parse().expect("a number")).collect();
            ports.sort_unstable();
            format!("Datapath actions: {ports:?}\n")
        }
        _ => format!("{l}\n"),
    };
    answer.lines().map(line).collect()
}

fn replay(file: &str) {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traces");
    let read = |ext: &str| std::fs::read_to_string(format!("{dir}/{file}.{ext}")).expect("the file is there");
    let (questions, recorded) = (read("txt"), read("out"));
    let mut recorded = answers(&recorded).into_iter();
    let mut wrong = String::new();
    let mut asked = 0;
    for case in cases(&questions) {
        let ofproto = set_up(&case);
        for question in case.lines.iter().filter(|l| l.starts_with("trace ")) {
            let (title, recorded_question, mut want) = recorded.next().expect("every question was recorded");
            if let Some((_, theirs, ours)) = NARROWER.iter().find(|(asked, ..)| asked == question) {
                assert!(want.contains(theirs), "no difference any more: {want}");
                want = want.replace(theirs, ours);
            }
            assert_eq!((title, recorded_question), (case.title, *question), "record the answers again");
            let got = ask(&ofproto, question);
            asked += 1;
            let same = |a: &str| with_ids_renumbered(&sorted_outputs(a));
            if same(&got) != same(&want) {
                wrong += &format!("== {title}\n{question}\n-- OVS:\n{want}-- Sluice:\n{got}\n");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(asked > 0 && recorded.next().is_none(), "record the answers again");
}

#[test]
fn arp() {
    replay("arp");
}

#[test]
fn the_situations_of_ovs_classifier_tests() {
    replay("classifier");
}

#[test]
fn the_situations_of_ovs_datapath_tests() {
    replay("datapath");
}

#[test]
fn conntrack() {
    replay("conntrack");
}

#[test]
fn foundation() {
    replay("foundation");
}

#[test]
fn groups() {
    replay("groups");
}

#[test]
fn meters() {
    replay("meters");
}

#[test]
fn pipeline() {
    replay("pipeline");
}

#[test]
fn normal() {
    replay("normal");
}

#[test]
fn the_situations_of_ovs_tests() {
    replay("ovs-suite");
}

#[test]
fn a_trace_says_who_looked_at_each_bit() {
    let text = "== why
bridge br0
port br0 p1 1
port br0 p2 2
flow br0 in_port=1,ip actions=resubmit(,2)
flow br0 table=2,priority=100,tcp,nw_dst=10.0.0.0/8 actions=dec_ttl,mod_dl_src:00:11:22:33:44:55,output:2";
    let ofproto = set_up(&cases(text)[0]);
    let flow = "in_port=1,tcp,nw_dst=10.1.2.3,nw_ttl=64";
    let answer = ofproto.trace(&["br0", flow], 0).unwrap();
    let (_, rest) = answer.split_once("\n\nThe megaflow matches, because these looked at it:\n").expect("our lines");
    let (ours, _) = rest.split_once("\n\nFinal flow: ").expect("OVS's lines");
    let want = "  recirc_id=0,eth,ip,in_port=1,nw_frag=no: every translation
  nw_dst=10.0.0.0/8,nw_proto=6: search of table 2, bridge \"br0\"
  nw_ttl=64: dec_ttl in table 2, priority 100, bridge \"br0\"
  dl_src=00:00:00:00:00:00: mod_dl_src:00:11:22:33:44:55 in table 2, priority 100, bridge \"br0\"";
    assert_eq!(ours, want);
}

#[test]
fn what_an_action_looked_at_before_it_led_to_another_table_is_its_own() {
    let text = "== whose
bridge br0
port br0 p1 1
port br0 p2 2 peer=p3
bridge br1
port br1 p3 1 peer=p2
port br1 p4 2
flow br0 actions=NORMAL
flow br1 priority=5,dl_src=00:00:00:00:00:00/01:00:00:00:00:00 actions=resubmit(,1)
flow br1 table=1,udp actions=output:2";
    let ofproto = set_up(&cases(text)[0]);
    let answer = ofproto.trace(&["br0", "in_port=1,udp,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07"], 0).unwrap();
    let (_, rest) = answer.split_once("because these looked at it:\n").expect("our lines");
    let (ours, _) = rest.split_once("\n\nFinal flow: ").expect("OVS's lines");
    let want = "  recirc_id=0,eth,ip,in_port=1,nw_frag=no: every translation
  dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07: NORMAL in table 0, priority 32768, bridge \"br0\"
  nw_proto=17: search of table 1, bridge \"br1\"";
    assert_eq!(ours, want);
}

#[test]
fn padding_up_to_64_kib_changes_nothing() {
    let text = "== padding
bridge br0
port br0 p1 1
flow br0 priority=5,ip,ip_dst=1.1.1.2 actions=1
flow br0 priority=0 actions=drop";
    let ofproto = set_up(&cases(text)[0]);
    let packet = "00020202020000010101010008004500001c00010000401176cc01010101010101020d6a00350008ee3a";
    let padded = packet.to_owned() + &"0".repeat(2 * (65_535 - packet.len() / 2));
    let tail = |packet: &str| {
        let answer = ofproto.trace(&["br0", "in_port=2", packet], 0).unwrap();
        answer.lines().rev().take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    let want = ["Datapath actions: 1", "Megaflow: recirc_id=0,eth,ip,in_port=2,nw_dst=1.1.1.2,nw_frag=no"];
    assert_eq!(tail(packet), want);
    assert_eq!(tail(&padded), want);
}

#[test]
fn a_table_says_what_happens_to_packets_that_no_rule_matches() {
    let ofproto = Ofproto::new();
    ofproto.add_bridge(BridgeConfig::new("br0"), 0).unwrap();
    for number in 1..=2 {
        ofproto.add_port("br0", PortConfig::new(&format!("p{number}"), number, PortNo(number.into()))).unwrap();
    }
    for text in ["table=0,in_port=2,actions=goto_table:1", "table=2,actions=output:2"] {
        let flow = FlowMod::parse(text, FlowCommand::Add, &PortNames::NONE).unwrap();
        ofproto.flow_mod("br0", &flow, 0).unwrap();
    }
    let set = |table, miss| {
        ofproto.set_table("br0", Some(table), &TableSettings { miss: Some(miss), ..TableSettings::default() }).unwrap();
    };
    let last_line = |in_port: u16| {
        let answer = ofproto.trace(&["br0", &format!("in_port={in_port}")], 0).unwrap();
        answer.lines().last().unwrap().to_owned()
    };
    assert_eq!([last_line(1), last_line(2)].map(|line| line.ends_with("drop")), [true; 2]);
    // Table 0 leads on to table 1, which is empty and leads on to table 2.
    (0..2).for_each(|table| set(table, TableMiss::Continue));
    assert_eq!(last_line(1), "Datapath actions: 2");
    set(1, TableMiss::Drop);
    assert_eq!(last_line(1), "Datapath actions: drop");
    set(1, TableMiss::Controller);
    assert!([last_line(1), last_line(2)].iter().all(|line| line.contains("controller(reason=")), "{}", last_line(2));
}
