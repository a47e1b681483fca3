//! Clients of real database servers, Debian's: each case has servers of its own in a private directory. No root is
//! needed. Without ovsdb-server every case is skipped by name.

mod contents;
mod lock;
mod outages;
mod schemas;
mod server;
mod transports;
mod vsctl;

use sluice_testkit::cases::{self, Case};
use std::process::ExitCode;

const CASES: [Case; 17] = [
    ("what_one_client_writes_another_sees", contents::what_one_client_writes_another_sees),
    ("random_values_arrive_by_differences", contents::random_values_arrive_by_differences),
    ("a_committed_transaction_is_in_the_replica", contents::a_committed_transaction_is_in_the_replica),
    ("refused_transactions_say_why", contents::refused_transactions_say_why),
    ("many_rows_come_in_parts", contents::many_rows_come_in_parts),
    ("a_lock_passes_between_clients", lock::a_lock_passes_between_clients),
    ("a_stolen_lock_stops_writing", lock::a_stolen_lock_stops_writing),
    ("a_killed_server_is_found_again", outages::a_killed_server_is_found_again),
    ("a_server_dies_with_a_transaction_under_way", outages::a_server_dies_with_a_transaction_under_way),
    ("a_cluster_tells_what_happened_since", outages::a_cluster_tells_what_happened_since),
    ("a_server_that_is_not_there_is_waited_for", outages::a_server_that_is_not_there_is_waited_for),
    ("a_database_is_converted_underneath", schemas::a_database_is_converted_underneath),
    ("older_and_newer_schemas_will_do", schemas::older_and_newer_schemas_will_do),
    ("tcp_serves_and_is_probed", transports::tcp_serves_and_is_probed),
    ("tls_serves_with_certificates_of_one_authority", transports::tls_serves_with_certificates_of_one_authority),
    ("a_socket_may_have_a_long_path", transports::a_socket_may_have_a_long_path),
    ("ovs_vsctl_waits_for_the_daemon", vsctl::ovs_vsctl_waits_for_the_daemon),
];

fn main() -> ExitCode {
    cases::run("ovsdb-live", &CASES, obstacle)
}

/// The program that a case needs and that is not installed.
fn obstacle(case: &str) -> Option<String> {
    let mut needed = vec!["ovsdb-server", "ovsdb-tool", "ovsdb-client", "ovs-appctl"];
    match case {
        "tls_serves_with_certificates_of_one_authority" => needed.push("openssl"),
        "ovs_vsctl_waits_for_the_daemon" => needed.push("ovs-vsctl"),
        _ => {}
    }
    cases::lacking(&needed)
}
