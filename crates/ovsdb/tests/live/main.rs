//! Clients of real database servers, Debian's: each case has servers of its own in a private directory. No root is
//! needed. Without ovsdb-server every case is skipped by name.

mod contents;
mod lock;
mod outages;
mod schemas;
mod server;
mod transports;
mod vsctl;

use std::process::{Command, ExitCode};

type Case = (&'static str, fn());

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
    let wanted = std::env::args().nth(1).filter(|arg| !arg.starts_with('-')).unwrap_or_default();
    let cases: Vec<_> = CASES.iter().filter(|(name, _)| name.contains(&wanted)).collect();
    if std::env::args().any(|arg| arg == "--list") {
        cases.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, case) in cases {
        if let Some(program) = obstacle(name) {
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
    println!("ovsdb-live: {passed} passed, {failed} failed, {skipped} skipped");
    ExitCode::from(u8::from(failed > 0))
}

/// The program that a case needs and that is not installed.
fn obstacle(case: &str) -> Option<&'static str> {
    let mut needed = vec!["ovsdb-server", "ovsdb-tool", "ovsdb-client", "ovs-appctl"];
    match case {
        "tls_serves_with_certificates_of_one_authority" => needed.push("openssl"),
        "ovs_vsctl_waits_for_the_daemon" => needed.push("ovs-vsctl"),
        _ => {}
    }
    needed.into_iter().find(|program| Command::new(program).arg("--version").output().is_err())
}
