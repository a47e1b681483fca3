//! Target `flow-text`: flows as `ovs-ofctl` writes them. The input is the text.

use sluice_action::{DatapathFlow, parse_actions};
use sluice_flow::PortNames;
use sluice_ofp::{FlowCommand, FlowMod};

/// Reading never panics; what was read is written as text that reads as the same flow; an error stands in the text.
pub fn flow_text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let ports = PortNames::default();
    match FlowMod::parse_file(text, &ports) {
        Ok(flows) => {
            let added = flows.iter().filter(|flow| flow.command == FlowCommand::Add);
            added.for_each(|flow| comes_back(flow, &ports));
        }
        Err(error) => {
            let line = text.split('\n').nth(error.line - 1).expect("the error's line is in the text");
            assert!(error.column <= line.chars().count() + 1, "column {} of `{line}`", error.column);
        }
    }
    for command in [FlowCommand::Modify, FlowCommand::DeleteStrict] {
        let _ = FlowMod::parse(text, command, &ports);
    }
    let port = &|name: &str| name.strip_prefix('p')?.parse().ok();
    let _ = DatapathFlow::parse(text, port);
    let _ = parse_actions(text, port);
}

fn comes_back(flow: &FlowMod, ports: &PortNames) {
    let line = flow.line().display(ports).to_string();
    let again = match FlowMod::parse(&line, FlowCommand::Add, ports) {
        Ok(again) => again,
        Err(error) => panic!("`{line}` was written and does not read: {error}"),
    };
    assert_eq!(again.matches, flow.matches, "`{line}` reads as another match");
    assert_eq!(again.actions, flow.actions, "`{line}` reads as other actions");
    assert_eq!(again.line().display(ports).to_string(), line, "the text of the text differs");
}
