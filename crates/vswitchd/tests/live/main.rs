//! A switch that real tools drive through a real database server, Debian's: each case has both of its own in a private
//! directory. No root is needed. Without ovsdb-server every case is skipped by name.

mod bridges;
mod rig;
mod settings;

use sluice_testkit::cases::{self, Case};
use std::process::ExitCode;

const CASES: [Case; 14] = [
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
    ("mirrors_are_those_of_the_rows", settings::mirrors_are_those_of_the_rows),
    ("a_devices_own_counters_are_told", settings::a_devices_own_counters_are_told),
    ("bridges_forward_and_describe_themselves_as_told", settings::bridges_forward_and_describe_themselves_as_told),
    ("settings_that_go_leave_the_usual_ones", settings::settings_that_go_leave_the_usual_ones),
    (
        "internal_interfaces_have_the_addresses_of_their_rows",
        settings::internal_interfaces_have_the_addresses_of_their_rows,
    ),
    ("options_change_while_the_device_stays", settings::options_change_while_the_device_stays),
    ("what_networks_rely_on_is_not_ignored_silently", settings::what_networks_rely_on_is_not_ignored_silently),
];

/// Debian's programs that every case needs.
const PROGRAMS: [&str; 4] = ["ovsdb-server", "ovsdb-tool", "ovs-vsctl", "ovs-ofctl"];

fn main() -> ExitCode {
    cases::run("vswitchd-live", &CASES, |_| cases::lacking(&PROGRAMS))
}
