//! Man pages.

use crate::config;
use clap::Command;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use std::path::Path;

/// Writes sluice(1), a page for each subcommand, and sluice.toml(5).
///
/// # Errors
/// If a file cannot be written.
pub fn write(program: Command, dir: &Path) -> std::io::Result<()> {
    clap_mangen::generate_to(program, dir)?;
    std::fs::write(dir.join("sluice.toml.5"), configuration())
}

/// sluice.toml(5): the annotated configuration as it stands.
fn configuration() -> String {
    let mut page = Roff::new();
    page.control("TH", ["sluice.toml", "5", "", concat!("sluice ", env!("CARGO_PKG_VERSION"))]);
    page.control("SH", ["NAME"]).text([roman("sluice.toml - configuration of the userspace switch sluice")]);
    page.control("SH", ["DESCRIPTION"]).text([
        bold("sluice run"),
        roman(" reads it at its start, and again after SIGHUP or "),
        bold("sluice ctl sluice/reload"),
        roman(". "),
        bold("sluice run --check "),
        italic("FILE"),
        roman(" tells whether it can be run. The package's service reads "),
        italic("/etc/sluice/sluice.toml"),
        roman(". Below is the whole configuration, each key with its default or an example."),
    ]);
    page.control("SH", ["CONFIGURATION"]).control("nf", []);
    for line in config::help().lines() {
        // An empty line of text would be lost.
        let line: Vec<Inline> = if line.is_empty() { vec![roman(" ")] } else { vec![roman(line)] };
        page.text(line);
    }
    page.control("fi", []);
    page.control("SH", ["SEE ALSO"])
        .text([roman("sluice(1), sluice-run(1), sluice-ctl(1), ovs-ofctl(8), ovs-appctl(8)")]);
    page.render()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn each_command_has_a_page_and_the_configuration_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        super::write(crate::Cli::command(), dir.path()).unwrap();
        let page = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        for command in crate::Cli::command().get_subcommands() {
            let text = page(&format!("sluice-{}.1", command.get_name()));
            assert!(text.contains(".SH NAME") && text.contains(".SH DESCRIPTION"), "{}", command.get_name());
        }
        assert!(page("sluice.1").contains("sluice\\-run(1)"));
        let configuration = page("sluice.toml.5");
        let keys = crate::config::help();
        let keys = keys.lines().filter_map(|line| line.split_once(" = ")).filter(|(key, _)| !key.starts_with('#'));
        for (key, _) in keys {
            assert!(configuration.contains(&key.replace('-', "\\-")), "{key}");
        }
    }
}
