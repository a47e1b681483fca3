//! The commands of the control socket: each declared once, with what it is called, how it is used, how many arguments
//! it takes and what answers it.

mod absent;
mod bfd;
mod bond;
mod bridge;
mod capture;
mod conntrack;
pub mod datapath;
mod dpctl;
mod dpctl_flows;
mod dpctl_ports;
mod dpdk;
mod features;
mod fragments;
mod group;
mod implementations;
mod limits;
mod megaflows;
mod meter;
mod netdev_dummy;
pub mod options;
mod packet_filter;
mod process;
mod qos;
mod settings;
mod time;
mod tunnel;

pub use limits::{note_peaks, usage};

use crate::process::Process;
use serde_json::Value;
use sluice_clock::heartbeat::Heartbeat;
use sluice_unixctl::{Commands, Pieces, Streamed};
use sluice_vswitch::Switch;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// What a command answers: text, or the text of an error.
pub type Reply = Result<String, String>;

/// Reads `[NAME] up|down`: the device, if one is named, and whether it is to be up.
fn admin_state<'a>(args: &[&'a str]) -> Result<(Option<&'a str>, bool), String> {
    let (name, state) = match args {
        [state] => (None, state),
        [name, state] => (Some(*name), state),
        _ => return Err("Invalid Admin State".to_owned()),
    };
    match state.to_ascii_lowercase().as_str() {
        "up" => Ok((name, true)),
        "down" => Ok((name, false)),
        _ => Err("Invalid Admin State".to_owned()),
    }
}

/// A command of the control socket.
struct Command {
    /// Its name.
    name: &'static str,
    /// Its arguments, for `list-commands`.
    usage: &'static str,
    /// How many it takes.
    args: RangeInclusive<usize>,
    /// What answers it.
    run: Run,
}

/// What answers a command.
enum Run {
    /// For commands about the switch.
    Switch(fn(&Switch, &[&str]) -> Reply),
    /// For commands about the process that runs it.
    Process(fn(&Process, &[&str]) -> Reply),
    /// For commands whose reply may be long: it is made while it is sent.
    Pieces(fn(&Arc<Process>, &[&str]) -> Result<Pieces, String>),
    /// For commands that go on sending when they have answered.
    Stream(fn(&Arc<Process>, &[&str]) -> Result<Streamed, String>),
}

/// Any number of arguments. Source: OVS takes INT_MAX for it.
const ANY: usize = i32::MAX as usize;

const fn command(
    name: &'static str,
    usage: &'static str,
    args: RangeInclusive<usize>,
    run: fn(&Switch, &[&str]) -> Reply,
) -> Command {
    Command { name, usage, args, run: Run::Switch(run) }
}

const fn process_command(
    name: &'static str,
    usage: &'static str,
    args: RangeInclusive<usize>,
    run: fn(&Process, &[&str]) -> Reply,
) -> Command {
    Command { name, usage, args, run: Run::Process(run) }
}

const fn long_command(
    name: &'static str,
    usage: &'static str,
    args: RangeInclusive<usize>,
    run: fn(&Arc<Process>, &[&str]) -> Result<Pieces, String>,
) -> Command {
    Command { name, usage, args, run: Run::Pieces(run) }
}

/// Every command, by name.
const COMMANDS: &[Command] = &[
    command("bfd/set-forwarding", "[interface] normal|false|true", 1..=2, bfd::set_forwarding),
    command("bfd/show", "[interface]", 0..=1, bfd::show),
    command("bond/disable-member", "port member", 2..=2, bond::disable_member),
    command("bond/disable-slave", "", 2..=2, bond::disable_member),
    command("bond/enable-member", "port member", 2..=2, bond::enable_member),
    command("bond/enable-slave", "", 2..=2, bond::enable_member),
    command("bond/hash", "mac [vlan] [basis]", 1..=3, bond::hash),
    command("bond/list", "", 0..=0, bond::list),
    command("bond/migrate", "port hash member", 3..=3, bond::migrate),
    command("bond/set-active-member", "port member", 2..=2, bond::set_active_member),
    command("bond/set-active-slave", "", 2..=2, bond::set_active_member),
    command("bond/show", "[port]", 0..=1, bond::show),
    command("bridge/add-flow", "bridge flow", 2..=2, bridge::add_flow),
    command("bridge/add-group", "bridge group", 2..=2, group::add),
    command("bridge/add-meter", "bridge meter", 2..=2, meter::add),
    command("bridge/add-port", "bridge name ofport=N type=TYPE [KEY=VALUE]...", 2..=ANY, bridge::add_port),
    command("bridge/del-flows", "[--strict] bridge [match]", 1..=3, bridge::del_flows),
    command("bridge/del-groups", "bridge [group]", 1..=2, group::delete),
    command("bridge/del-meters", "bridge [meter]", 1..=2, meter::delete),
    command("bridge/del-port", "bridge name", 2..=2, bridge::del_port),
    long_command("bridge/dump-flows", "[--offload-stats] bridge", 1..=2, bridge::dump_flows),
    long_command("bridge/dump-group-stats", "bridge", 1..=1, group::dump_stats),
    long_command("bridge/dump-groups", "bridge", 1..=1, group::dump),
    command("bridge/dump-meters", "bridge", 1..=1, meter::dump),
    command("bridge/insert-buckets", "bridge group", 2..=2, group::insert_buckets),
    command("bridge/meter-stats", "bridge", 1..=1, meter::stats),
    command("bridge/mod-flows", "[--strict] bridge flow", 2..=3, bridge::mod_flows),
    command("bridge/mod-group", "bridge group", 2..=2, group::modify),
    command("bridge/mod-meter", "bridge meter", 2..=2, meter::modify),
    command("bridge/remove-buckets", "bridge group", 2..=2, group::remove_buckets),
    command("bridge/replace-flows", "bridge file", 2..=2, bridge::replace_flows),
    command("cfm/show", "[interface]", 0..=1, absent::cfm_show),
    command("coverage/read-counter", "COUNTER", 1..=1, process::coverage_read_counter),
    process_command("coverage/show", "", 0..=0, process::coverage_show),
    command("dpctl/add-dp", "dp [iface...]", 1..=ANY, dpctl_ports::add_dp),
    command("dpctl/add-flow", "[dp] flow actions", 2..=ANY, dpctl_flows::add_flow),
    command("dpctl/add-flows", "[dp] file", 1..=ANY, dpctl_flows::add_flows),
    command("dpctl/add-if", "dp iface...", 2..=ANY, dpctl_ports::add_if),
    command("dpctl/cache-get-size", "[dp]", 0..=1, dpctl::cache_get_size),
    command("dpctl/cache-set-size", "dp cache <size>", 3..=3, dpctl::cache_set_size),
    command("dpctl/ct-bkts", "[dp] [gt=N]", 0..=2, conntrack::buckets),
    command("dpctl/ct-del-limits", "[dp] zone=N1[,N2]...", 1..=2, conntrack::del_limits),
    command("dpctl/ct-disable-tcp-seq-chk", "[dp]", 0..=1, conntrack::disable_tcp_seq_chk),
    command("dpctl/ct-enable-tcp-seq-chk", "[dp]", 0..=1, conntrack::enable_tcp_seq_chk),
    command("dpctl/ct-get-limits", "[dp] [zone=N1[,N2]...]", 0..=2, conntrack::get_limits),
    command("dpctl/ct-get-maxconns", "[dp]", 0..=1, conntrack::get_maxconns),
    command("dpctl/ct-get-nconns", "[dp]", 0..=1, conntrack::get_nconns),
    command("dpctl/ct-get-tcp-seq-chk", "[dp]", 0..=1, conntrack::get_tcp_seq_chk),
    command("dpctl/ct-set-limits", "[dp] [default=L] [zone=N,limit=L]...", 1..=ANY, conntrack::set_limits),
    command("dpctl/ct-set-maxconns", "[dp] maxconns", 1..=2, conntrack::set_maxconns),
    command("dpctl/ct-stats-show", "[dp] [zone=N]", 0..=3, conntrack::stats_show),
    command("dpctl/del-dp", "dp", 1..=1, dpctl_ports::del_dp),
    command("dpctl/del-flow", "[dp] flow", 1..=ANY, dpctl_flows::del_flow),
    command("dpctl/del-flows", "[dp] [file]", 0..=ANY, dpctl_flows::del_flows),
    command("dpctl/del-if", "dp iface...", 2..=ANY, dpctl_ports::del_if),
    long_command("dpctl/dump-conntrack", "[-m] [-s] [dp] [zone=N]", 0..=4, conntrack::dump),
    command("dpctl/dump-dps", "", 0..=0, datapath::dpctl_dump_dps),
    long_command(
        "dpctl/dump-flows",
        "[-m] [--names] [dp] [filter=..] [type=..] [pmd=..]",
        0..=8,
        megaflows::dpctl_dump_flows,
    ),
    command("dpctl/flush-conntrack", "[dp] [zone=N] [ct-orig-tuple] [ct-reply-tuple]", 0..=4, conntrack::flush),
    command("dpctl/get-flow", "[dp] ufid", 1..=4, dpctl::get_flow),
    command("dpctl/ipf-get-status", "[dp]", 0..=2, fragments::get_status),
    command("dpctl/ipf-set-disabled", "[dp] v4|v6", 1..=2, fragments::disable),
    command("dpctl/ipf-set-enabled", "[dp] v4|v6", 1..=2, fragments::enable),
    command("dpctl/ipf-set-max-nfrags", "[dp] maxfrags", 1..=2, fragments::set_max_nfrags),
    command("dpctl/ipf-set-min-frag", "[dp] v4|v6 minfragment", 2..=3, fragments::set_min_frag),
    command("dpctl/mod-flow", "[dp] flow actions", 2..=ANY, dpctl_flows::mod_flow),
    command("dpctl/mod-flows", "[dp] file", 1..=ANY, dpctl_flows::mod_flows),
    command("dpctl/offload-stats-show", "[dp]", 0..=1, dpctl::offload_stats_show),
    command("dpctl/set-if", "dp iface...", 2..=ANY, dpctl_ports::set_if),
    command("dpctl/show", "[-s] [dp...]", 0..=ANY, datapath::dpctl_show),
    command("dpdk/get-malloc-stats", "", 0..=0, dpdk::malloc_stats),
    command("dpdk/lcore-list", "", 0..=0, dpdk::lcore_list),
    command("dpdk/log-list", "", 0..=0, dpdk::log_list),
    command("dpdk/log-set", "{level | pattern:level}", 0..=ANY, dpdk::log_set),
    command("dpif-dummy/change-port-number", "dp port new-number", 3..=3, datapath::change_port_number),
    command("dpif-netdev/bond-show", "[dp]", 0..=1, bond::show_tables),
    command("dpif-netdev/dpif-impl-get", "", 0..=0, implementations::dpif_impl_get),
    command("dpif-netdev/dpif-impl-set", "dpif_implementation_name", 1..=1, implementations::dpif_impl_set),
    command("dpif-netdev/miniflow-parser-get", "", 0..=0, implementations::miniflow_parser_get),
    command(
        "dpif-netdev/pmd-perf-log-set",
        "on|off [-b before] [-a after] [-e|-ne] [-us usec] [-q qlen]",
        0..=10,
        datapath::pmd_perf_log_set,
    ),
    command(
        "dpif-netdev/pmd-perf-show",
        "[-nh] [-it iter-history-len] [-ms ms-history-len] [-pmd core] [dp]",
        0..=8,
        datapath::pmd_perf_show,
    ),
    command("dpif-netdev/pmd-rxq-rebalance", "[dp]", 0..=1, datapath::pmd_rxq_rebalance),
    command("dpif-netdev/pmd-rxq-show", "[-pmd core] [-secs secs] [dp]", 0..=5, datapath::pmd_rxq_show),
    command("dpif-netdev/pmd-stats-clear", "[-pmd core] [dp]", 0..=3, datapath::pmd_stats_clear),
    command("dpif-netdev/pmd-stats-show", "[-pmd core] [dp]", 0..=3, datapath::pmd_stats_show),
    command("dpif/dump-dps", "", 0..=0, datapath::dpif_dump_dps),
    long_command("dpif/dump-flows", "[-m] [--names | --no-names] bridge", 1..=ANY, megaflows::dpif_dump_flows),
    command("dpif/set-dp-features", "bridge", 1..=3, features::set),
    command("dpif/show", "", 0..=0, datapath::dpif_show),
    command("dpif/show-dp-features", "bridge", 1..=1, features::show),
    process_command("exit", "[--cleanup]", 0..=1, process::exit),
    command("fdb/add", "bridge port vlan mac", 4..=4, bridge::fdb_add),
    command("fdb/del", "bridge vlan mac", 3..=3, bridge::fdb_del),
    command("fdb/flush", "[bridge]", 0..=1, bridge::fdb_flush),
    command("fdb/show", "bridge", 1..=1, bridge::fdb_show),
    command("fdb/stats-clear", "[bridge]", 0..=1, bridge::fdb_stats_clear),
    command("fdb/stats-show", "bridge", 1..=1, bridge::fdb_stats_show),
    command("lacp/show", "[port]", 0..=1, bond::lacp_show),
    command("lacp/show-stats", "[port]", 0..=1, bond::lacp_show_stats),
    command("list-commands", "", 0..=0, list_commands),
    command("mdb/flush", "[bridge]", 0..=1, absent::mdb_flush),
    command("mdb/show", "bridge", 1..=1, absent::mdb_show),
    command("memory/show", "", 0..=0, process::memory_show),
    command("netdev-dpdk/detach", "pci address of device", 1..=1, dpdk::detach),
    command("netdev-dpdk/get-mempool-info", "[netdev]", 0..=1, dpdk::mempool_info),
    command("netdev-dpdk/set-admin-state", "[netdev] up|down", 1..=2, dpdk::set_admin_state),
    command("netdev-dummy/conn-state", "[netdev]", 0..=1, netdev_dummy::conn_state),
    command("netdev-dummy/ip4addr", "[netdev] ipaddr/mask-prefix-len", 2..=2, netdev_dummy::ip4addr),
    command("netdev-dummy/ip6addr", "[netdev] ip6addr", 2..=2, netdev_dummy::ip6addr),
    command(
        "netdev-dummy/receive",
        "name [--qid queue_id] packet|flow [--len packet_len]",
        2..=ANY,
        netdev_dummy::receive,
    ),
    command("netdev-dummy/set-admin-state", "[netdev] up|down", 1..=2, netdev_dummy::set_admin_state),
    command("odp-execute/action-impl-set", "name", 1..=1, implementations::action_impl_set),
    command("odp-execute/action-impl-show", "", 0..=0, implementations::action_impl_show),
    command("ofproto/list", "", 0..=0, bridge::ofproto_list),
    command("ofproto/list-tunnels", "", 0..=0, tunnel::list),
    command(
        "ofproto/trace",
        "{[dp_name] odp_flow | bridge br_flow} [OPTIONS...] [-generate|packet]",
        1..=ANY,
        bridge::ofproto_trace,
    ),
    command(
        "ofproto/trace-packet-out",
        "[-consistent] {[dp_name] odp_flow | bridge br_flow} [OPTIONS...] [-generate|packet] actions",
        2..=ANY,
        bridge::ofproto_trace_packet_out,
    ),
    command("ovs/route/add", "ip_addr/prefix_len out_br_name [gw] [pkt_mark=mark]", 2..=4, tunnel::add_route),
    command("ovs/route/del", "ip_addr/prefix_len [pkt_mark=mark]", 1..=2, tunnel::del_route),
    command("ovs/route/lookup", "ip_addr [pkt_mark=mark]", 1..=2, tunnel::lookup_route),
    command("ovs/route/show", "", 0..=0, tunnel::show_routes),
    command("qos/show", "interface", 1..=1, qos::show),
    command("qos/show-types", "interface", 1..=1, qos::show_types),
    command("revalidator/pause", "", 0..=0, datapath::revalidator_pause),
    command("revalidator/purge", "", 0..=0, datapath::revalidator_purge),
    command("revalidator/resume", "", 0..=0, datapath::revalidator_resume),
    command("revalidator/wait", "", 0..=0, datapath::revalidator_wait),
    command("rstp/show", "[bridge]", 0..=1, absent::rstp_show),
    command("rstp/tcn", "[bridge]", 0..=1, absent::rstp_tcn),
    command("sluice/autopilot-show", "", 0..=0, settings::autopilot_show),
    Command {
        name: "sluice/capture",
        usage: "[--snaplen=N] [--count=N] [--seconds=N] port|DROPS [filter]",
        args: 1..=5,
        run: Run::Stream(capture::capture),
    },
    command("sluice/ct-del-timeouts", "ZONE", 1..=1, conntrack::del_timeouts),
    command("sluice/ct-get-timeouts", "", 0..=0, conntrack::get_timeouts),
    command("sluice/ct-set-timeouts", "ZONE NAME=SECONDS...", 2..=ANY, conntrack::set_timeouts),
    command("sluice/drops", "", 0..=0, process::drops),
    command("sluice/limits-show", "", 0..=0, limits::limits_show),
    command("sluice/overview", "", 0..=0, process::overview),
    command("sluice/port-show", "[port]", 0..=1, datapath::port_show),
    process_command("sluice/reload", "", 0..=0, process::reload),
    command("sluice/set", "[setting=value]...", 0..=ANY, settings::set),
    command("stp/show", "[bridge]", 0..=1, absent::stp_show),
    command("stp/tcn", "[bridge]", 0..=1, absent::stp_tcn),
    process_command("time/stop", "", 0..=0, time::stop),
    process_command("time/warp", "[large_msecs] msecs", 1..=2, time::warp),
    command("tnl/arp/aging", "[SECS]", 0..=1, tunnel::age),
    command("tnl/arp/flush", "", 0..=0, tunnel::flush),
    command("tnl/arp/set", "BRIDGE IP MAC", 3..=3, tunnel::set_neighbour),
    command("tnl/arp/show", "", 0..=0, tunnel::show_neighbours),
    command("tnl/neigh/aging", "[SECS]", 0..=1, tunnel::age),
    command("tnl/neigh/flush", "", 0..=0, tunnel::flush),
    command("tnl/neigh/set", "BRIDGE IP MAC", 3..=3, tunnel::set_neighbour),
    command("tnl/neigh/show", "", 0..=0, tunnel::show_neighbours),
    command("tnl/ports/show", "", 0..=0, tunnel::show_ports),
    command("upcall/disable-megaflows", "", 0..=0, datapath::upcall_disable_megaflows),
    command("upcall/disable-ufid", "", 0..=0, datapath::upcall_disable_ufid),
    command("upcall/enable-megaflows", "", 0..=0, datapath::upcall_enable_megaflows),
    command("upcall/enable-ufid", "", 0..=0, datapath::upcall_enable_ufid),
    command("upcall/set-flow-limit", "flow-limit-number", 1..=1, datapath::upcall_set_flow_limit),
    command("upcall/show", "", 0..=0, datapath::upcall_show),
    process_command("version", "", 0..=0, process::version),
    process_command("vlog/close", "", 0..=0, process::vlog_close),
    process_command("vlog/disable-rate-limit", "[module]...", 0..=ANY, process::vlog_disable_rate_limit),
    process_command("vlog/enable-rate-limit", "[module]...", 0..=ANY, process::vlog_enable_rate_limit),
    process_command("vlog/list", "", 0..=0, process::vlog_list),
    process_command("vlog/list-pattern", "", 0..=0, process::vlog_list_pattern),
    process_command("vlog/reopen", "", 0..=0, process::vlog_reopen),
    process_command("vlog/set", "{spec | PATTERN:destination:pattern}", 0..=ANY, process::vlog_set),
];

/// The commands on one switch.
pub struct CommandTable(pub Arc<Process>);

impl Command {
    /// Its arguments as text, if their number is right.
    fn texts<'a>(&self, args: &'a [Value]) -> Result<Vec<&'a str>, String> {
        let name = self.name;
        let (least, most) = (*self.args.start(), *self.args.end());
        if args.len() < least {
            return Err(format!("\"{name}\" command requires at least {least} arguments"));
        }
        if args.len() > most {
            return Err(format!("\"{name}\" command takes at most {most} arguments"));
        }
        let texts: Option<Vec<&str>> = args.iter().map(Value::as_str).collect();
        texts.ok_or_else(|| format!("\"{name}\" command has non-string argument"))
    }
}

impl Commands for CommandTable {
    fn call(&self, name: &str, args: &[Value]) -> Reply {
        let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
            return Err(format!(
                "\"{name}\" is not a valid command (use \"list-commands\" to see a list of valid commands)"
            ));
        };
        let texts = command.texts(args)?;
        let heartbeat = Heartbeat::of("ctl-conn");
        let _busy = heartbeat.begin(command.name);
        match command.run {
            Run::Switch(run) => run(self.0.switch(), &texts),
            Run::Process(run) => run(&self.0, &texts),
            Run::Pieces(run) => Ok(run(&self.0, &texts)?.collect()),
            Run::Stream(_) => Err(format!("\"{name}\" needs a connection of its own")),
        }
    }

    fn pieces(&self, name: &str, args: &[Value]) -> Option<Result<Pieces, String>> {
        let command = COMMANDS.iter().find(|command| command.name == name)?;
        let Run::Pieces(run) = command.run else { return None };
        let heartbeat = Heartbeat::of("ctl-conn");
        let begun = {
            let _busy = heartbeat.begin(command.name);
            command.texts(args).and_then(|texts| run(&self.0, &texts))
        };
        Some(begun.map(|mut pieces| {
            // The time in which the client reads is not the thread's work.
            let next = move || {
                let _busy = heartbeat.begin(command.name);
                pieces.next()
            };
            Box::new(std::iter::from_fn(next)) as Pieces
        }))
    }

    fn stream(&self, name: &str, args: &[Value]) -> Option<Result<Streamed, String>> {
        let command = COMMANDS.iter().find(|command| command.name == name)?;
        let Run::Stream(run) = command.run else { return None };
        Some(command.texts(args).and_then(|texts| run(&self.0, &texts)))
    }
}

/// The name and the arguments of every command, by name.
pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    COMMANDS.iter().map(|command| (command.name, command.usage))
}

fn list_commands(_: &Switch, _: &[&str]) -> Reply {
    let lines: String = COMMANDS.iter().map(|c| format!("  {:<23} {}\n", c.name, c.usage)).collect();
    Ok(format!("The available commands are:\n{lines}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_sorted_and_named_once() {
        assert!(COMMANDS.is_sorted_by(|a, b| a.name < b.name));
    }
}
