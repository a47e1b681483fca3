//! A switch that real tools drive through a real database server, Debian's: each case has both of its own in a private
//! directory. No root is needed. Without ovsdb-server every case is skipped by name.

mod bridges;
mod rig;
mod settings;

use std::process::{Command, ExitCode, Stdio};

type Case = (&'static str, fn());

const CASES: [Case; 12] = [
    ("bridges_and_ports_come_and_go", bridges::bridges_and_ports_come_and_go),
    ("what_cannot_be_is_told_and_does_not_block_the_rest", bridges::what_cannot_be_is_told_and_does_not_block_the_rest),
    ("numbers_are_requested_kept_and_given_out", bridges::numbers_are_requested_kept_and_given_out),
    ("a_patch_port_without_a_peer_says_so", bridges::a_patch_port_without_a_peer_says_so),
    ("controllers_know_bridges_by_their_datapath_ids", bridges::controllers_know_bridges_by_their_datapath_ids),
    (
        "vhost_sockets_are_where_the_setting_of_the_start_says",
        bridges::vhost_sockets_are_where_the_setting_of_the_start_says,
    ),
    ("zones_have_the_timeouts_of_their_rows", settings::zones_have_the_timeouts_of_their_rows),
    ("a_devices_own_counters_are_told", settings::a_devices_own_counters_are_told),
    ("bridges_forward_and_describe_themselves_as_told", settings::bridges_forward_and_describe_themselves_as_told),
    ("settings_that_go_leave_the_usual_ones", settings::settings_that_go_leave_the_usual_ones),
    ("options_change_while_the_device_stays", settings::options_change_while_the_device_stays),
    ("what_networks_rely_on_is_not_ignored_silently", settings::what_networks_rely_on_is_not_ignored_silently),
];

/// Debian's programs that every case needs.
const PROGRAMS: [&str; 4] = ["ovsdb-server", "ovsdb-tool", "ovs-vsctl", "ovs-ofctl"];

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
    println!("vswitchd-live: {passed} passed, {failed} failed, {skipped} skipped");
    ExitCode::from(u8::from(failed > 0))
}

fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}
