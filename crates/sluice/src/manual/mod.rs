//! `sluice manual`: man pages, completions for shells, and the reference pages of the guide, all from what the program itself
//! knows: its arguments, the configuration, the commands of the control socket, drop reasons.

mod man;
mod reference;

use crate::Cli;
use anyhow::{Context, Result};
use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::Shell;
use std::path::PathBuf;

/// Write man pages, completions for shells, or reference pages of this version
#[derive(Args, Debug)]
pub struct ManualArgs {
    /// What to write; all but man pages go to standard output
    what: Page,
    /// The directory for man pages
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
}

/// What can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Page {
    /// Man pages: sluice(1), one for each of its commands, and sluice.toml(5)
    Man,
    /// Completion for bash
    Bash,
    /// Completion for zsh
    Zsh,
    /// Each key of the configuration, in Markdown
    Configuration,
    /// The program's commands and those of its control socket, in Markdown
    Commands,
    /// Each reason for which packets are dropped, and what to do about it, in Markdown
    Drops,
}

/// Does as `args` say, and returns what is to be printed.
///
/// # Errors
/// If man pages cannot be written.
pub fn write(args: &ManualArgs) -> Result<String> {
    let text = match args.what {
        Page::Man => {
            man::write(Cli::command(), &args.out).with_context(|| format!("man pages in {}", args.out.display()))?;
            String::new()
        }
        Page::Bash => completion(Shell::Bash),
        Page::Zsh => completion(Shell::Zsh),
        Page::Configuration => reference::configuration(),
        Page::Commands => reference::commands(Cli::command()),
        Page::Drops => reference::drops(),
    };
    Ok(text)
}

fn completion(shell: Shell) -> String {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "sluice", &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_know_the_commands() {
        for shell in [Shell::Bash, Shell::Zsh] {
            let text = completion(shell);
            for command in Cli::command().get_subcommands() {
                assert!(text.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
        }
    }
}
