//! Flow text against what ovs-ofctl 3.1 made of the same lines (tests/data/corpus.txt, made by ovs-ofctl itself).

use sluice_flow::PortNames;
use sluice_ofp::{FlowCommand, FlowMod, OfAction};

/// Each case: the flow as written, its match and its actions as Open vSwitch shows them.
fn cases() -> Vec<[&'static str; 3]> {
    let text: &'static str = include_str!("data/corpus.txt");
    let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with('#') && !l.is_empty()).collect();
    let (cases, rest) = lines.as_chunks::<3>();
    assert!(rest.is_empty() && cases.len() > 300, "each case has three lines");
    let behind = |line: &'static str, what: &str| line.strip_prefix(what).unwrap_or_else(|| panic!("{line}"));
    cases.iter().map(|[flow, m, a]| [*flow, behind(m, "match: "), behind(a, "actions: ")]).collect()
}

#[test]
fn flows_read_as_open_vswitch_reads_them() {
    let mut wrong = Vec::new();
    for [flow, matches, actions] in cases() {
        match FlowMod::parse(flow, FlowCommand::Add, &PortNames::NONE) {
            Err(e) => wrong.push(format!("{flow}\n    {e}")),
            Ok(parsed) => {
                let got = parsed.matches.display(&PortNames::NONE, parsed.priority).to_string();
                if got != matches {
                    wrong.push(format!("{flow}\n    match   {got}\n    wanted  {matches}"));
                }
                let got = OfAction::display_list(&parsed.actions, &PortNames::NONE).to_string();
                if got != actions {
                    wrong.push(format!("{flow}\n    actions {got}\n    wanted  {actions}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} flows differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_is_printed_reads_back_as_the_same() {
    for [flow, ..] in cases() {
        let Ok(parsed) = FlowMod::parse(flow, FlowCommand::Add, &PortNames::NONE) else { continue };
        let text = parsed.to_string();
        let again = FlowMod::parse(&text, FlowCommand::Add, &PortNames::NONE).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(again.matches, parsed.matches, "{flow}: {text}");
        assert_eq!(again.actions, parsed.actions, "{flow}: {text}");
        assert_eq!((again.priority, again.table.unwrap_or(0)), (parsed.priority, parsed.table.unwrap_or(0)), "{text}");
    }
}

#[test]
fn what_open_vswitch_refuses_is_refused() {
    let lines = include_str!("data/rejected.txt").lines().filter(|l| !l.starts_with('#') && !l.is_empty());
    let taken: Vec<_> = lines.filter(|l| FlowMod::parse(l, FlowCommand::Add, &PortNames::NONE).is_ok()).collect();
    assert!(taken.is_empty(), "taken:\n{}", taken.join("\n"));
}
