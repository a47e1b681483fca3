//! docs/flow-language.md against the code: every field and action is there, the facts are true, the examples work.
//! `BLESS=1` rewrites the facts.

use sluice_flow::field::{FIELDS, Field, Format, Prereq};
use sluice_flow::{Match, PortNames};
use sluice_ofp::ofpact::{ACTIONS, ActionId, ActionType};
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
        "reg" | "xreg" | "xxreg" | "nsh_c" | "tun_metadata" => format!("{stem}<N>"),
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
        assert!(
            !example.field_wide(field.id).1.is_zero(),
            "the example of {} does not match on it: {}",
            row[0],
            row[3]
        );
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

/// The name an action has on the page. `output` says three, and `nat` stands only within `ct`.
fn action_name(row: &ActionType) -> &'static str {
    match row.id {
        ActionId::Nat => "ct",
        _ => row.name().unwrap_or("output"),
    }
}

/// Every name of the page: those of all actions, and `drop`, which is none. `delete_field` is explained, but nothing
/// that it could delete is there.
fn page_names() -> BTreeSet<&'static str> {
    let known = ACTIONS.iter().filter(|row| row.id != ActionId::DeleteField);
    known.map(action_name).chain(["drop"]).collect()
}

#[test]
fn every_action_has_an_example_that_reads_back() {
    let text = std::fs::read_to_string(page()).expect("the page");
    let mut seen = BTreeSet::new();
    for row in text.lines().filter_map(cells).filter(|row| row.len() == 3) {
        let actions = OfAction::parse_list(&row[2], &PortNames::NONE).unwrap_or_else(|e| panic!("{}: {e}", row[2]));
        let shown = OfAction::display_list(&actions, &PortNames::NONE).to_string();
        assert_eq!(OfAction::parse_list(&shown, &PortNames::NONE).as_ref(), Ok(&actions), "{shown}");
        let first = actions.first().map_or("drop", |action| action_name(action.action_type()));
        assert_eq!(first, row[0], "the example of {} has another action: {}", row[0], row[2]);
        seen.insert(row[0].clone());
    }
    assert_eq!(seen.iter().map(String::as_str).collect::<BTreeSet<_>>(), page_names());
}

#[test]
fn the_page_begins_with_a_flow() {
    let text = std::fs::read_to_string(page()).expect("the page");
    let flow = text.split("```").nth(1).expect("a block of text").trim();
    FlowMod::parse(flow, FlowCommand::Add, &PortNames::NONE).unwrap_or_else(|e| panic!("{flow}: {e}"));
}
