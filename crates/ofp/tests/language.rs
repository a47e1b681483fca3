//! docs/flow-language.md against the code: every field and action is there, the facts are true, the examples work.
//! `BLESS=1` rewrites the facts.

use sluice_flow::field::{FIELDS, Field, Format, Prereq};
use sluice_flow::{Match, PortNames};
use sluice_ofp::{FlowCommand, FlowMod, OfAction};
use std::collections::BTreeSet;
use std::path::PathBuf;

fn page() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/flow-language.md")
}

/// Cells of a table's row; a bar that is text stands behind a backslash.
fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.strip_prefix("| `")?.strip_suffix(" |")?.replace("\\|", "\u{0}");
    let mut cells: Vec<String> = inner.split(" | ").map(|cell| cell.trim().replace('\u{0}', "|")).collect();
    let ends = [0, cells.len() - 1];
    ends.into_iter().for_each(|i| cells[i] = cells[i].trim_matches('`').to_owned());
    Some(cells)
}

fn written_as(format: Format) -> &'static str {
    match format {
        Format::Decimal => "decimal",
        Format::Hexadecimal => "hexadecimal",
        Format::Ethernet => "Ethernet address",
        Format::Ipv4 => "IPv4 address",
        Format::Ipv6 => "IPv6 address",
        Format::Port | Format::PortOxm => "port",
        Format::Frag => "word",
        Format::CtState | Format::TunFlags | Format::TcpFlags => "flags",
        Format::PacketType => "(space,type)",
    }
}

/// The facts that the table of fields has.
fn facts(field: &Field, sample: &str) -> String {
    let mut facts = vec![
        format!("{} bit{}", field.n_bits, if field.n_bits == 1 { "" } else { "s" }),
        written_as(field.format).to_owned(),
        if field.maskable { "masks" } else { "exact" }.to_owned(),
        if field.writable { "RW" } else { "RO" }.to_owned(),
    ];
    if field.prereq != Prereq::None && field.prereq != Prereq::Ethernet {
        facts.push(format!("needs {}", field.prereq.remedy()));
    }
    let digits = |name: &str| name.replace(|c: char| c.is_ascii_digit(), "<N>");
    if let Some(alias) = field.alias {
        facts.push(format!("also `{}`", if sample.contains("<N>") { digits(alias) } else { alias.to_owned() }));
    }
    for oxm in field.oxm.iter().flatten() {
        let name =
            if sample.contains("<N>") { oxm.name.trim_end_matches(|c: char| c.is_ascii_digit()) } else { oxm.name };
        facts.push(format!("`{name}{}`", if sample.contains("<N>") { "<N>" } else { "" }));
    }
    facts.join(", ")
}

/// The name a row has for a field: families share one.
fn row_name(field: &Field) -> String {
    let stem = field.name.trim_end_matches(|c: char| c.is_ascii_digit());
    match stem {
        "reg" | "xreg" | "xxreg" | "nsh_c" => format!("{stem}<N>"),
        _ => field.name.to_owned(),
    }
}

#[test]
fn fields_are_documented_as_they_are() {
    let text = std::fs::read_to_string(page()).expect("the page");
    let mut missing: BTreeSet<String> = FIELDS.iter().map(row_name).collect();
    let mut out = Vec::new();
    for line in text.lines() {
        let row = cells(line).filter(|row| row.len() == 4);
        let field = row.as_ref().and_then(|row| FIELDS.iter().find(|f| row_name(f) == row[0]).zip(Some(row)));
        let Some((field, row)) = field else {
            out.push(line.to_owned());
            continue;
        };
        missing.remove(&row[0]);
        let example = Match::parse(&row[3], &PortNames::NONE).unwrap_or_else(|e| panic!("{}: {e}", row[3]));
        assert_ne!(example.field(field.id).1, 0, "the example of {} does not match on it: {}", row[0], row[3]);
        let example = row[3].replace('|', "\\|");
        out.push(format!("| `{}` | {} | {} | `{example}` |", row[0], row[1], facts(field, &row[0])));
    }
    assert!(missing.is_empty(), "not documented: {missing:?}");
    let wanted = out.join("\n") + "\n";
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(page(), &wanted).expect("the page can be written");
    } else {
        let differs = text.lines().zip(wanted.lines()).find(|(have, want)| have != want);
        assert_eq!(text, wanted, "run with BLESS=1; first difference: {differs:?}");
    }
}

/// The name an action has on the page. A new variant does not compile without one, hence the length.
fn action_name(action: &OfAction) -> &'static str {
    match action {
        OfAction::Output { .. } | OfAction::OutputTrunc { .. } | OfAction::OutputReg { .. } => "output",
        OfAction::Controller(_) => "controller",
        OfAction::Enqueue { .. } => "enqueue",
        OfAction::Group(_) => "group",
        OfAction::Bundle(b) if b.dst.is_some() => "bundle_load",
        OfAction::Bundle(_) => "bundle",
        OfAction::SetField { .. } => "set_field",
        OfAction::Load { .. } => "load",
        OfAction::Move { .. } => "move",
        OfAction::SetVlanVid { push_if_needed: true, .. } => "mod_vlan_vid",
        OfAction::SetVlanVid { .. } => "set_vlan_vid",
        OfAction::SetVlanPcp { push_if_needed: true, .. } => "mod_vlan_pcp",
        OfAction::SetVlanPcp { .. } => "set_vlan_pcp",
        OfAction::StripVlan => "strip_vlan",
        OfAction::PopVlan => "pop_vlan",
        OfAction::PushVlan { .. } => "push_vlan",
        OfAction::ModDlSrc(_) => "mod_dl_src",
        OfAction::ModDlDst(_) => "mod_dl_dst",
        OfAction::ModNwSrc(_) => "mod_nw_src",
        OfAction::ModNwDst(_) => "mod_nw_dst",
        OfAction::ModNwTos(_) => "mod_nw_tos",
        OfAction::ModNwEcn(_) => "mod_nw_ecn",
        OfAction::ModNwTtl(_) => "mod_nw_ttl",
        OfAction::ModTpSrc(_) => "mod_tp_src",
        OfAction::ModTpDst(_) => "mod_tp_dst",
        OfAction::DecTtl { .. } => "dec_ttl",
        OfAction::SetMplsLabel(_) => "set_mpls_label",
        OfAction::SetMplsTc(_) => "set_mpls_tc",
        OfAction::SetMplsTtl(_) => "set_mpls_ttl",
        OfAction::DecMplsTtl => "dec_mpls_ttl",
        OfAction::PushMpls { .. } => "push_mpls",
        OfAction::PopMpls { .. } => "pop_mpls",
        OfAction::DecNshTtl => "dec_nsh_ttl",
        OfAction::DeleteField(_) => "delete_field",
        OfAction::Encap { .. } => "encap",
        OfAction::Decap { .. } => "decap",
        OfAction::SetTunnel { wide: true, .. } => "set_tunnel64",
        OfAction::SetTunnel { .. } => "set_tunnel",
        OfAction::SetQueue(_) => "set_queue",
        OfAction::PopQueue => "pop_queue",
        OfAction::FinTimeout { .. } => "fin_timeout",
        OfAction::Resubmit { .. } => "resubmit",
        OfAction::Learn(_) => "learn",
        OfAction::Conjunction { .. } => "conjunction",
        OfAction::Multipath(_) => "multipath",
        OfAction::Note(_) => "note",
        OfAction::Exit => "exit",
        OfAction::Sample(_) => "sample",
        OfAction::StackPush(_) => "push",
        OfAction::StackPop(_) => "pop",
        OfAction::Clone(_) => "clone",
        OfAction::Conntrack(_) => "ct",
        OfAction::CtClear => "ct_clear",
        // Only within ct, whose row has an example of it.
        OfAction::Nat(_) => "ct",
        OfAction::CheckPktLarger { .. } => "check_pkt_larger",
        OfAction::Meter(_) => "meter",
        OfAction::ClearActions => "clear_actions",
        OfAction::WriteActions(_) => "write_actions",
        OfAction::WriteMetadata { .. } => "write_metadata",
        OfAction::GotoTable(_) => "goto_table",
    }
}

/// The names that [`action_name`] gives but `delete_field`, which the page explains, and `drop`, which is no action.
const ACTION_ROWS: usize = 59;

#[test]
fn every_action_has_an_example_that_reads_back() {
    let text = std::fs::read_to_string(page()).expect("the page");
    let mut seen = BTreeSet::new();
    for row in text.lines().filter_map(cells).filter(|row| row.len() == 3) {
        let actions = OfAction::parse_list(&row[2], &PortNames::NONE).unwrap_or_else(|e| panic!("{}: {e}", row[2]));
        let shown = OfAction::display_list(&actions, &PortNames::NONE).to_string();
        assert_eq!(OfAction::parse_list(&shown, &PortNames::NONE).as_ref(), Ok(&actions), "{shown}");
        let first = actions.first().map_or("drop", action_name);
        assert_eq!(first, row[0], "the example of {} is of another action: {}", row[0], row[2]);
        seen.insert(row[0].clone());
    }
    assert_eq!(seen.len(), ACTION_ROWS, "{seen:?}");
}

#[test]
fn the_page_begins_with_a_flow() {
    let text = std::fs::read_to_string(page()).expect("the page");
    let flow = text.split("```").nth(1).expect("a block of text").trim();
    FlowMod::parse(flow, FlowCommand::Add, &PortNames::NONE).unwrap_or_else(|e| panic!("{flow}: {e}"));
}
