//! The reference pages of the guide. They are in git as well, so that they can be read there; a test compares.

use crate::command;
use crate::config;
use crate::text::coverage;
use clap::Command;
use sluice_fate::DropReason;
use std::fmt::Write as _;

/// What each command of the control socket does: `NAME: TEXT` a line.
const COMMAND_TEXTS: &str = include_str!("commands.txt");

/// Columns of the help texts of commands.
const WIDTH: usize = 110;

/// What stands under the title of each page.
fn note(what: &str) -> String {
    format!("<!-- Written by `sluice manual {what}`; a test compares. -->\n\n")
}

/// The configuration, every key.
pub fn configuration() -> String {
    let mut out = format!("# Configuration\n\n{}", note("configuration"));
    out += "`sluice run FILE` reads this; `sluice run --help-config` prints it, and `sluice run --check FILE` tells whether a \
            file can be run.\nUnder the name `ovs-vswitchd` the configuration is the database of Open vSwitch instead \
            ([how](../vswitchd.md)).\n\n```toml\n";
    out += config::REFERENCE;
    out += "```\n\n## Ports\n\nThe options of each type of port, as text, number or boolean: `options = { flows = \"1M\", seed = 7 }`.\n";
    for kind in sluice_port::PORT_TYPES {
        let _ = write!(out, "\n### {}\n\n{}.\n", kind.name, capitalized(kind.help));
        if !kind.options.is_empty() {
            out += "\n| option | |\n|---|---|\n";
        }
        for option in kind.options {
            let _ = writeln!(out, "| `{}` | {} |", option.key, cell(option.help));
        }
        if !kind.capabilities.is_empty() {
            let _ = writeln!(out, "\nCapabilities that the switch keeps for it: {}.", kind.capabilities.join(", "));
        }
    }
    out
}

/// The program's commands with their arguments, and those of the control socket.
pub fn commands(program: Command) -> String {
    let mut out = format!("# Commands\n\n{}", note("commands"));
    out += "The program's commands as their `--help` shows them, and then those that a switch which runs answers.\n";
    let mut program = program.term_width(WIDTH).disable_help_subcommand(true);
    program.build();
    add_help(&mut out, &mut program);
    out += "\n## Of the control socket\n\n`sluice ctl COMMAND`, or `ovs-appctl -t RUNDIR/sluice.ctl COMMAND`; in the place of \
            `ovs-vswitchd` plain `ovs-appctl COMMAND`.\nThe names without `sluice/` or `bridge/` are Open vSwitch's.\n\n\
            | command | arguments | |\n|---|---|---|\n";
    for (name, usage) in command::names() {
        let usage = if usage.is_empty() { String::new() } else { format!("`{}`", cell(usage)) };
        let _ = writeln!(out, "| `{name}` | {usage} | {} |", text_of(name).unwrap_or_default());
    }
    out
}

fn add_help(out: &mut String, command: &mut Command) {
    let name = command.get_bin_name().unwrap_or("sluice").to_owned();
    let help = command.render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    let _ = write!(out, "\n## {name}\n\n```text\n{}\n```\n", help.join("\n").trim_end());
    for inner in command.get_subcommands_mut().filter(|inner| !inner.is_hide_set()) {
        add_help(out, inner);
    }
}

/// Each drop reason, what it means and what to do.
pub fn drops() -> String {
    let mut out = format!("# Why packets are dropped\n\n{}", note("drops"));
    out += "Each packet that is dropped counts for one reason. `sluice ctl sluice/drops` shows those that there were, \
            `sluice/port-show` by port, the metrics\n`sluice_dropped_packets_total` with `reason`, and `coverage/show` under \
            the second name.\n\n| reason | in `coverage/show` | what it means | what to do |\n|---|---|---|---|\n";
    for reason in DropReason::ALL {
        let (meaning, advice) = (cell(reason.explanation()), cell(reason.advice()));
        let _ = writeln!(out, "| `{}` | `{}` | {meaning} | {advice} |", reason.name(), coverage::drop_name(*reason));
    }
    out
}

fn text_of(command: &str) -> Option<&'static str> {
    COMMAND_TEXTS
        .lines()
        .filter_map(|line| line.split_once(": "))
        .find(|(name, _)| *name == command)
        .map(|(_, text)| text)
}

/// Text for a cell of a table, where a bar would begin the next one.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_pages_in_git_are_those_of_this_version() {
        let pages =
            [("configuration", configuration()), ("commands", commands(crate::Cli::command())), ("drops", drops())];
        for (name, text) in pages {
            let path = format!("{}/../../docs/reference/{name}.md", env!("CARGO_MANIFEST_DIR"));
            let committed = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(committed == text, "stale: cargo run -p sluice -- manual {name} > docs/reference/{name}.md");
        }
    }

    #[test]
    fn each_command_of_the_control_socket_is_described_once() {
        let described: Vec<&str> = COMMAND_TEXTS.lines().filter_map(|line| Some(line.split_once(": ")?.0)).collect();
        let there: Vec<&str> = command::names().map(|(name, _)| name).collect();
        assert_eq!(described, there, "crates/sluice/src/manual/commands.txt");
    }
}
