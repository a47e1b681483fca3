//! The modules of the log: those of Open vSwitch 3.1.0, and the crates of the switch.
//!
//! Every name that a build of Open vSwitch's daemon may know is known here, so that scripts and tests which set levels
//! need no change.

/// The modules of crates of the switch, by the targets of their messages. The module of a target is the one that names
/// the longest part of its path.
const CRATES: &[CrateModule] = &[
    CrateModule { name: "bridge", targets: &["sluice_vswitchd"], aliases: &[] },
    CrateModule { name: "command", targets: &["sluice::command"], aliases: &[] },
    CrateModule { name: "connmgr", targets: &["sluice_connmgr"], aliases: &["openflow"] },
    CrateModule { name: "port", targets: &["sluice_port"], aliases: &[] },
    CrateModule { name: "sluice", targets: &["sluice"], aliases: &[] },
    CrateModule { name: "switch", targets: &["sluice_vswitch"], aliases: &["vswitch"] },
    CrateModule { name: "unixctl", targets: &["sluice_unixctl"], aliases: &["ctl"] },
];

/// Names of crates that log nothing under their own name: `vlog/set` takes them.
const SILENT: &[&str] = &["datapath", "flow_cache", "mem", "privileges"];

/// The modules of Open vSwitch 3.1.0 on Linux, with and without DPDK.
const OPEN_VSWITCH: &[&str] = &[
    "backtrace",
    "bfd",
    "bond",
    "bridge",
    "bundle",
    "bundles",
    "cfm",
    "collectors",
    "command_line",
    "connmgr",
    "conntrack",
    "conntrack_tp",
    "coverage",
    "ct_dpif",
    "daemon",
    "daemon_unix",
    "dns_resolve",
    "dpdk",
    "dpif",
    "dpif_lookup_autovalidator",
    "dpif_lookup_avx512_gather",
    "dpif_lookup_generic",
    "dpif_mfex_extract_study",
    "dpif_netdev",
    "dpif_netdev_extract",
    "dpif_netdev_impl",
    "dpif_netdev_lookup",
    "dpif_netlink",
    "dpif_netlink_rtnl",
    "entropy",
    "fail_open",
    "fatal_signal",
    "flow",
    "hmap",
    "in_band",
    "ipf",
    "ipfix",
    "jsonrpc",
    "lacp",
    "lldp",
    "lldpd",
    "lldpd_structs",
    "lockfile",
    "memory",
    "meta_flow",
    "native_tnl",
    "netdev",
    "netdev_afxdp",
    "netdev_dpdk",
    "netdev_dummy",
    "netdev_linux",
    "netdev_offload",
    "netdev_offload_dpdk",
    "netdev_offload_tc",
    "netdev_vport",
    "netflow",
    "netlink",
    "netlink_conntrack",
    "netlink_notifier",
    "netlink_socket",
    "nx_match",
    "odp_execute",
    "odp_execute_avx512",
    "odp_execute_impl",
    "odp_util",
    "ofp_actions",
    "ofp_bundle",
    "ofp_connection",
    "ofp_errors",
    "ofp_flow",
    "ofp_group",
    "ofp_match",
    "ofp_meter",
    "ofp_monitor",
    "ofp_msgs",
    "ofp_packet",
    "ofp_port",
    "ofp_protocol",
    "ofp_queue",
    "ofp_table",
    "ofp_util",
    "ofproto",
    "ofproto_dpif",
    "ofproto_dpif_mirror",
    "ofproto_dpif_monitor",
    "ofproto_dpif_rid",
    "ofproto_dpif_upcall",
    "ofproto_dpif_xlate",
    "ofproto_xlate_cache",
    "ovs_lldp",
    "ovs_numa",
    "ovs_rcu",
    "ovs_replay",
    "ovs_router",
    "ovs_thread",
    "ovsdb_cs",
    "ovsdb_error",
    "ovsdb_idl",
    "ox_stat",
    "pcap",
    "pmd_perf",
    "poll_loop",
    "process",
    "rconn",
    "reconnect",
    "route_table",
    "rstp",
    "rstp_sm",
    "sflow",
    "sha1",
    "signals",
    "socket_util",
    "socket_util_unix",
    "stopwatch",
    "stp",
    "stream",
    "stream_fd",
    "stream_nossl",
    "stream_replay",
    "stream_ssl",
    "stream_tcp",
    "stream_unix",
    "svec",
    "system_stats",
    "tc",
    "timeval",
    "tunnel",
    "unixctl",
    "userspace_tso",
    "util",
    "uuid",
    "vconn",
    "vconn_stream",
    "vlog",
    "vswitchd",
];

/// A crate of the switch as a module of the log.
struct CrateModule {
    /// Its name in the log and in `vlog/set`.
    name: &'static str,
    /// The targets that its messages come from.
    targets: &'static [&'static str],
    /// Other names that `vlog/set` takes for it.
    aliases: &'static [&'static str],
}

/// A module's place in [`names`].
pub(crate) type ModuleIndex = usize;

/// What a name in `vlog/set` selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selected {
    /// A module.
    Module(ModuleIndex),
    /// A crate that logs nothing.
    Silent,
}

/// The names of all modules, in alphabetical order.
pub(crate) fn names() -> &'static [&'static str] {
    static NAMES: std::sync::LazyLock<Vec<&str>> = std::sync::LazyLock::new(|| {
        let mut names: Vec<_> = OPEN_VSWITCH.iter().copied().chain(CRATES.iter().map(|own| own.name)).collect();
        names.sort_unstable();
        names.dedup();
        names
    });
    &NAMES
}

/// The module that a message of `target` belongs to. What belongs to no other is the program's.
pub(crate) fn of_target(target: &str) -> ModuleIndex {
    let covers = |own: &str| target.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    let targets = CRATES.iter().flat_map(|module| module.targets.iter().map(|own| (*own, module.name)));
    let longest = targets.filter(|(own, _)| covers(own)).max_by_key(|(own, _)| own.len());
    let name = longest.map_or(target, |(_, name)| name);
    index(name).or_else(|| index("sluice")).expect("invariant: the program is a module")
}

/// What `name` selects in `vlog/set`, in upper or lower case.
pub(crate) fn named(name: &str) -> Option<Selected> {
    let alias = |own: &&CrateModule| own.aliases.iter().any(|alias| alias.eq_ignore_ascii_case(name));
    let name = CRATES.iter().find(alias).map_or(name, |own| own.name);
    let silent = || SILENT.iter().any(|own| own.eq_ignore_ascii_case(name)).then_some(Selected::Silent);
    index(&name.to_ascii_lowercase()).map(Selected::Module).or_else(silent)
}

/// Whether the module is a crate of the switch that Open vSwitch does not know.
pub(crate) fn is_own(module: ModuleIndex) -> bool {
    !OPEN_VSWITCH.contains(&names()[module])
}

fn index(name: &str) -> Option<ModuleIndex> {
    names().binary_search(&name).ok()
}

#[cfg(test)]
mod tests;
