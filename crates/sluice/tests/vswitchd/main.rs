//! The program under the name `ovs-vswitchd`, with Debian's tools and database server: each case has them in a private
//! directory. No root is needed. Without the programs every case is skipped by name.

mod databases;
mod life;
mod numa;
mod restart;
mod rig;

use std::process::{Command, ExitCode, Stdio};

type Case = (&'static str, fn());

const CASES: [Case; 14] = [
    ("it_detaches_when_it_is_configured", life::it_detaches_when_it_is_configured),
    ("a_second_one_is_refused", life::a_second_one_is_refused),
    ("a_monitor_starts_it_again_after_a_crash", life::a_monitor_starts_it_again_after_a_crash),
    ("it_waits_for_its_database_without_haste", life::it_waits_for_its_database_without_haste),
    ("flows_survive_a_restart_by_ovs_ctl", restart::flows_survive_a_restart_by_ovs_ctl),
    ("its_log_is_open_vswitchs", life::its_log_is_open_vswitchs),
    ("it_sleeps_while_there_is_nothing_to_do", life::it_sleeps_while_there_is_nothing_to_do),
    ("it_ends_as_open_vswitch_does", life::it_ends_as_open_vswitch_does),
    ("queues_are_polled_on_the_node_of_their_device", numa::queues_are_polled_on_the_node_of_their_device),
    ("without_the_lock_it_has_no_bridges", databases::without_the_lock_it_has_no_bridges),
    ("it_reaches_its_database_by_tls", databases::it_reaches_its_database_by_tls),
    ("it_takes_over_its_databases_authority", databases::it_takes_over_its_databases_authority),
    ("it_takes_over_a_controllers_authority", databases::it_takes_over_a_controllers_authority),
    ("what_the_command_line_cannot_say_is_told", life::what_the_command_line_cannot_say_is_told),
];

/// Debian's programs that every case needs.
const PROGRAMS: [&str; 8] = [
    "ovsdb-server",
    "ovsdb-tool",
    "ovsdb-client",
    "ovs-vsctl",
    "ovs-appctl",
    "ovs-ofctl",
    "ovs-testcontroller",
    "openssl",
];

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).filter(|arg| !arg.starts_with('-')).unwrap_or_default();
    let cases: Vec<_> = CASES.iter().filter(|(name, _)| name.contains(&wanted)).collect();
    if std::env::args().any(|arg| arg == "--list") {
        cases.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let lacking = PROGRAMS.into_iter().find(|program| !is_installed(program));
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, case) in cases {
        if let Some(program) = lacking {
            println!("test {name} ... SKIPPED: {program} is not installed (ci/install-packages)");
            skipped += 1;
        } else if std::panic::catch_unwind(case).is_ok() {
            println!("test {name} ... ok");
            passed += 1;
        } else {
            println!("test {name} ... FAILED");
            failed += 1;
        }
    }
    println!("vswitchd-process: {passed} passed, {failed} failed, {skipped} skipped");
    ExitCode::from(u8::from(failed > 0))
}

fn is_installed(program: &str) -> bool {
    Command::new(program)
        .arg(if program == "openssl" { "version" } else { "--version" })
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}
