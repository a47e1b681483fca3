//! Reading whole flows, and files of them.

use super::action_check;
use super::action_parse::ActionReader;
use crate::consistency::Within;
use crate::{FlowCommand, FlowMod, OfAction};
use sluice_flow::PortNames;
use sluice_flow::text::{Delimiter, FlowTextError, MatchReader, Pair, Piece, SyntaxError, expect_no_tail, number};

impl FlowMod {
    /// Reads one flow as `ovs-ofctl add-flow`, `mod-flows` and `del-flows` take it. Changes and additions need
    /// `actions=…`, last.
    pub fn parse(text: &str, command: FlowCommand, ports: &PortNames) -> Result<FlowMod, FlowTextError> {
        read(Piece::new(text), command, ports).map_err(|e| e.located(text))
    }

    /// Reads a file of flows as `ovs-ofctl add-flows` takes it: one a line, `#` begins a comment, blank lines are
    /// skipped; a line may begin with `add`, `modify`, `modify_strict`, `delete` or `delete_strict`.
    pub fn parse_file(text: &str, ports: &PortNames) -> Result<Vec<FlowMod>, FlowTextError> {
        let mut flows = Vec::new();
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            let content = line.split('#').next().unwrap_or("");
            let piece = Piece { text: content, at }.trim();
            at += line.len();
            if !piece.is_empty() {
                let (command, flow) = leading_command(piece);
                flows.push(read(flow, command, ports).map_err(|e| e.located(text))?);
            }
        }
        Ok(flows)
    }
}

impl OfAction {
    /// Reads a list of actions and instructions, without knowing what the flow matches.
    pub fn parse_list(text: &str, ports: &PortNames) -> Result<Vec<OfAction>, FlowTextError> {
        ActionReader::new(ports).list(Piece::new(text), Within::Flow).map_err(|e| e.located(text))
    }
}

fn leading_command(text: Piece<'_>) -> (FlowCommand, Piece<'_>) {
    let end = text.text.find([',', ' ', '\t']).unwrap_or(text.text.len());
    let (word, rest) = text.split_at(end);
    match word.text {
        "add" => (FlowCommand::Add, rest),
        "modify" => (FlowCommand::Modify, rest),
        "modify_strict" => (FlowCommand::ModifyStrict, rest),
        "delete" => (FlowCommand::Delete, rest),
        "delete_strict" => (FlowCommand::DeleteStrict, rest),
        _ => (FlowCommand::Add, text),
    }
}

fn is_delete(command: FlowCommand) -> bool {
    matches!(command, FlowCommand::Delete | FlowCommand::DeleteStrict)
}

fn read(text: Piece<'_>, command: FlowCommand, ports: &PortNames) -> Result<FlowMod, SyntaxError> {
    let (head, actions) = split_actions(text)?;
    let mut flow = FlowMod::new(command);
    let mut reader = MatchReader::new(ports);
    let mut rest = head;
    while let Some(pair) = rest.next_pair()? {
        expect_no_tail(&pair)?;
        if !setting(&pair, &mut flow, ports)? && !reader.read(&pair)? {
            return Err(pair.key.error("a field to match or a setting of the flow"));
        }
    }
    flow.matches = reader.finish()?;
    match (actions, is_delete(command)) {
        (None, true) => {}
        (None, false) => return Err(text.split_at(text.text.len()).1.error("actions=… at the end")),
        (Some(actions), true) => return Err(actions.conflict("actions in a deletion", "only what to delete")),
        (Some(actions), false) => {
            let placed = ActionReader::new(ports).placed_list(actions, Within::Flow)?;
            action_check::prerequisites(&placed, &flow.matches, flow.table.unwrap_or(0))?;
            flow.actions = placed.into_iter().map(|p| p.action).collect();
        }
    }
    // A change that selects by no cookie adds the flow if there is none to change. Source: ovs-ofctl(8), `mod-flows`.
    if !is_delete(command) && flow.cookie_mask == 0 && flow.new_cookie.is_none() {
        flow.new_cookie = Some(0);
    }
    Ok(flow)
}

/// Splits off what stands behind `actions=`.
fn split_actions(text: Piece<'_>) -> Result<(Piece<'_>, Option<Piece<'_>>), SyntaxError> {
    let mut rest = text;
    loop {
        let start = rest.skip_gap();
        let word = ["actions", "action"].into_iter().find_map(|word| start.strip_prefix(word));
        if let Some(value) = word.and_then(|after| after.trim().strip_prefix("=")) {
            return Ok((text.split_at(start.at - text.at).0, Some(value)));
        }
        if rest.next_pair()?.is_none() {
            return Ok((text, None));
        }
    }
}

/// Reads what a flow has beside match and actions; `false` if the pair is none of that.
fn setting(pair: &Pair<'_>, flow: &mut FlowMod, ports: &PortNames) -> Result<bool, SyntaxError> {
    let (key, value) = (pair.key.text, pair.value);
    let adds = flow.command == FlowCommand::Add;
    let deletes = is_delete(flow.command);
    match key {
        "table" => flow.table = if value.text == "255" { None } else { Some(super::action_args::table(value)?) },
        "out_port" if deletes => flow.out_port = Some(ports.parse_piece(value)?),
        "out_group" if deletes => flow.out_group = Some(group(value)?),
        "priority" if flow.command != FlowCommand::Delete => flow.priority = number::u16(value)?,
        "idle_timeout" if !deletes => flow.idle_timeout = number::u16(value)?,
        "hard_timeout" if !deletes => flow.hard_timeout = number::u16(value)?,
        "importance" if adds => flow.importance = number::u16(value)?,
        "cookie" => cookie(pair, flow)?,
        // These let the output of dump-flows be read again.
        "duration" | "n_packets" | "n_bytes" | "idle_age" | "hard_age" => {}
        _ if pair.delimiter == Delimiter::None && !deletes => return Ok(flag(key, flow)),
        _ => return Ok(false),
    }
    Ok(true)
}

fn flag(key: &str, flow: &mut FlowMod) -> bool {
    let flags = &mut flow.flags;
    *match key {
        "send_flow_rem" => &mut flags.send_flow_rem,
        "check_overlap" => &mut flags.check_overlap,
        "reset_counts" => &mut flags.reset_counts,
        "no_packet_counts" => &mut flags.no_packet_counts,
        "no_byte_counts" => &mut flags.no_byte_counts,
        _ => return matches!(key, "no_readonly_table" | "allow_hidden_fields"),
    } = true;
    true
}

fn group(text: Piece<'_>) -> Result<u32, SyntaxError> {
    match text.text.to_ascii_lowercase().as_str() {
        "any" => Ok(0xffff_ffff),
        "all" => Ok(0xffff_fffc),
        _ => number::u32(text),
    }
}

fn cookie(pair: &Pair<'_>, flow: &mut FlowMod) -> Result<(), SyntaxError> {
    let value = pair.value;
    match value.split_once("/") {
        Some(_) if flow.command == FlowCommand::Add => {
            Err(value.error("a cookie without a mask (a mask selects flows to change or delete)"))
        }
        Some((cookie, mask)) => {
            (flow.cookie, flow.cookie_mask) = (number::u64(cookie)?, number::u64(mask)?);
            Ok(())
        }
        None if is_delete(flow.command) => {
            Err(value.error(format!("a cookie with a mask, to select flows by it ({}/-1)", value.text)))
        }
        None => {
            flow.new_cookie = Some(number::u64(value)?);
            flow.modify_cookie = flow.command != FlowCommand::Add;
            Ok(())
        }
    }
}
