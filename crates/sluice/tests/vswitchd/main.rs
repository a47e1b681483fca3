//! The program under the name `ovs-vswitchd`, with Debian's tools and database server: each case has them in a private
//! directory and, as root, a network namespace for all. No root is needed. Without the programs every case is skipped by
//! name.

mod databases;
mod life;
mod numa;
mod restart;
mod rig;

use sluice_testkit::cases::{self, Case};
use std::process::ExitCode;

const CASES: [Case; 15] = [
    ("it_detaches_when_it_is_configured", life::it_detaches_when_it_is_configured),
    ("a_second_one_is_refused", life::a_second_one_is_refused),
    ("a_monitor_starts_it_again_after_a_crash", life::a_monitor_starts_it_again_after_a_crash),
    ("it_waits_for_its_database_without_haste", life::it_waits_for_its_database_without_haste),
    ("flows_survive_a_restart_by_ovs_ctl", restart::flows_survive_a_restart_by_ovs_ctl),
    ("internal_devices_survive_a_restart", restart::internal_devices_survive_a_restart),
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
    cases::in_own_network(|| cases::run("vswitchd-process", &CASES, |_| cases::lacking(&PROGRAMS)))
}
