//! Ports on kernel devices, in a network namespace of this test's own. Needs root; run by `./ci.sh privileged`.
//!
//! Not a libtest harness: without privileges each case is skipped by name and with the reason, and the last line counts
//! passed, failed and skipped.

#[path = "netns/host.rs"]
mod host;
#[path = "netns/link.rs"]
mod link;
#[path = "netns/tap.rs"]
mod tap;

use sluice_testkit::cases::{self, Case};
use std::process::{Command, ExitCode, Stdio};

const CASES: &[Case] = &[
    ("af_packet::pings_of_all_sizes", || link::pings_of_all_sizes("af_packet")),
    ("af_packet::vlan_tags_stay", || link::vlan_tags_stay("af_packet")),
    ("af_packet::tcp_passes_with_offloads_on", || link::tcp_passes_with_offloads_on("af_packet")),
    ("af_packet::a_paced_stream_loses_nothing", || link::a_paced_stream_loses_nothing("af_packet")),
    ("af_packet::a_flood_leaks_nothing", || link::a_flood_leaks_nothing("af_packet")),
    ("af_packet::queues_share_the_flows", || link::queues_share_the_flows("af_packet")),
    ("af_packet::it_comes_back_with_its_device", || link::it_comes_back_with_its_device("af_packet")),
    ("af_packet::a_thread_can_sleep_until_there_are_packets", || {
        link::a_thread_can_sleep_until_there_are_packets("system")
    }),
    ("af_packet::a_lone_packet_is_handed_over_at_once", || link::a_lone_packet_is_handed_over_at_once("af_packet")),
    ("af_packet::a_packet_that_no_header_describes_stops_nobody", || {
        link::a_packet_that_no_header_describes_stops_nobody("af_packet")
    }),
    ("af_packet::segments_of_udp_are_split", || link::segments_of_udp_are_split("af_packet")),
    ("af_packet::captures_show_what_it_sends", || link::captures_show_what_it_sends("af_packet")),
    ("af_packet::what_cannot_be_opened_is_said", || link::what_cannot_be_opened_is_said("af_packet")),
    ("af_xdp::pings_of_all_sizes", || link::pings_of_all_sizes("af_xdp")),
    ("af_xdp::vlan_tags_stay", || link::vlan_tags_stay("af_xdp")),
    ("af_xdp::tcp_passes_with_offloads_on", || link::tcp_passes_with_offloads_on("af_xdp")),
    ("af_xdp::a_paced_stream_loses_nothing", || link::a_paced_stream_loses_nothing("af_xdp")),
    ("af_xdp::a_flood_leaks_nothing", || link::a_flood_leaks_nothing("af_xdp")),
    ("af_xdp::queues_share_the_flows", || link::queues_share_the_flows("af_xdp")),
    ("af_xdp::it_comes_back_with_its_device", || link::it_comes_back_with_its_device("af_xdp")),
    ("af_xdp::a_lone_packet_is_handed_over_at_once", || link::a_lone_packet_is_handed_over_at_once("af_xdp")),
    ("af_xdp::what_cannot_be_opened_is_said", || link::what_cannot_be_opened_is_said("af_xdp")),
    ("af_xdp::generic_mode_works_and_says_what_it_means", link::generic_mode_works_and_says_what_it_means),
    ("af_xdp::a_driver_without_xdp_falls_back_and_says_so", link::a_driver_without_xdp_falls_back_and_says_so),
    ("af_xdp::packets_cross_between_ports_in_place", link::packets_cross_between_ports_in_place),
    ("af_xdp::fewer_queues_than_the_device_are_noted", link::fewer_queues_than_the_device_are_noted),
    ("af_xdp::a_device_that_is_busy_is_said", link::a_device_that_is_busy_is_said),
    ("af_xdp::its_buffers_are_on_huge_pages_if_there_are_any", link::its_buffers_are_on_huge_pages_if_there_are_any),
    ("tap::missing_privileges_are_said", || link::missing_privileges_are_said("tap")),
    ("af_packet::missing_privileges_are_said", || link::missing_privileges_are_said("af_packet")),
    ("af_xdp::missing_privileges_are_said", || link::missing_privileges_are_said("af_xdp")),
    ("af_xdp::too_little_locked_memory_is_said", link::too_little_locked_memory_is_said),
    ("tap::capabilities_are_exact", || link::capabilities_are_exact("tap")),
    ("af_packet::capabilities_are_exact", || link::capabilities_are_exact("af_packet")),
    ("af_xdp::capabilities_are_exact", || link::capabilities_are_exact("af_xdp")),
    ("tap::the_kernel_pings_through_it", tap::the_kernel_pings_through_it),
    ("tap::queues_share_one_device", tap::queues_share_one_device),
    ("tap::an_internal_port_waits_to_be_set_up", tap::an_internal_port_waits_to_be_set_up),
    ("tap::a_device_that_is_there_is_opened", tap::a_device_that_is_there_is_opened),
    ("tap::an_internal_ports_device_outlasts_it", tap::an_internal_ports_device_outlasts_it),
    ("tap::its_mtu_changes_while_it_is_open", tap::its_mtu_changes_while_it_is_open),
    ("tap::the_kernel_tells_of_its_changes", tap::the_kernel_tells_of_its_changes),
    ("tap::what_cannot_be_opened_is_said", tap::what_cannot_be_opened_is_said),
    ("tap::it_is_made_anew_when_it_was_deleted", tap::it_is_made_anew_when_it_was_deleted),
    ("tap::a_device_that_is_down_takes_nothing", tap::a_device_that_is_down_takes_nothing),
];

/// Set in the process that runs inside the namespace.
const INSIDE: &str = "SLUICE_NETNS_CASE";

fn main() -> ExitCode {
    if let Ok(kind) = std::env::var(host::OPEN_ONLY) {
        return host::open_only(&kind);
    }
    if let Ok(name) = std::env::var(INSIDE) {
        let (_, case) = CASES.iter().find(|(known, _)| *known == name).expect("a case of that name");
        case();
        return ExitCode::SUCCESS;
    }
    let obstacle = obstacle();
    cases::run_by("netns", CASES, |_| obstacle.clone(), run_in_namespace)
}

/// Runs a case in a process and a network namespace of its own. Returns what it printed if it failed.
fn run_in_namespace((name, _): &Case) -> Result<(), String> {
    let this = std::env::current_exe().expect("the path of this program");
    let out = Command::new("unshare").arg("--net").arg(this).env(INSIDE, name).output().expect("unshare runs");
    if out.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned())
}

/// Why namespaces cannot be made here, if they cannot.
fn obstacle() -> Option<String> {
    if std::env::var_os("SLUICE_PRIVILEGED").is_none() {
        return Some("needs root and network namespaces; `./ci.sh privileged` runs it".into());
    }
    let tried =
        Command::new("unshare").args(["--net", "ip", "link"]).stdout(Stdio::null()).stderr(Stdio::piped()).output();
    match tried {
        Ok(out) if out.status.success() => None,
        Ok(out) => Some(String::from_utf8_lossy(&out.stderr).trim().to_owned()),
        Err(e) => Some(format!("unshare: {e}")),
    }
}
