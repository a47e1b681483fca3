//! Bounds on shared resources, and how often each was met.
//!
//! A bound counts where it acts, on whatever thread that is, and says nothing there. One control thread reads the counts
//! and logs ([`LimitWatch`]). The counts are those of the process, as Open vSwitch's coverage counters are.
//! `docs/limits.md` has the table of bounds; a test sees that it names each.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Declares each bound once: the variant, its name, what sets it and what happens when it is met.
macro_rules! limits {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $key:literal,)+) => {
        /// A bound on a shared resource.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Limit { $($(#[doc = $doc])+ $variant,)+ }

        impl Limit {
            /// Every bound, in declaration order.
            pub const ALL: &[Limit] = &[$(Limit::$variant,)+];

            /// The name of its counter, such as `limit-recirc-ids`.
            pub const fn name(self) -> &'static str {
                match self { $(Limit::$variant => $name,)+ }
            }

            /// What sets it: a configuration key, a command, or a number that is fixed.
            pub const fn key(self) -> &'static str {
                match self { $(Limit::$variant => $key,)+ }
            }

            /// What happens when it is met.
            pub const fn explanation(self) -> &'static str {
                match self { $(Limit::$variant => concat!($($doc),+).trim_ascii(),)+ }
            }
        }
    };
}

limits! {
    /// A translation took more steps of work than it may; its packets are dropped.
    TranslationWork = "limit-translation-work", "fixed: 65536 steps",
    /// A translation's actions are longer than a megaflow's may be; each of its packets is translated by itself.
    ActionList = "limit-action-list", "fixed: 65535 bytes, as in Open vSwitch",
    /// The memory for megaflows is in use, or the port has more than its share; packets go on without a megaflow.
    FlowMemory = "limit-flow-memory", "flow-memory; equal shares by port from seven eighths on",
    /// There are as many megaflows as there may be, or the port has more than its share; packets go on without one.
    Megaflows = "limit-megaflows", "upcall/set-flow-limit, flow-memory; equal shares by port from seven eighths on",
    /// A PMD has not read as many notices of deleted megaflows as may wait; packets go on without a new megaflow.
    DeletionNotices = "limit-deletion-notices", "fixed: 262144 a PMD",
    /// A port that has more than its share of recirculation ids got no new one; its packets are dropped.
    RecircIds = "limit-recirc-ids", "fixed: 262144 ids, equal shares by port from seven eighths on",
    /// A port that has more than its share of held fragments got no room; the fragment goes on as invalid.
    Fragments = "limit-fragments", "dpctl/ipf-set-max-nfrags, equal shares by port from seven eighths on",
    /// Rules and groups take as much memory as they may, or their owner's more than its share: a flow-mod is refused
    /// with `OFPFMFC_TABLE_FULL`, a group-mod with `OFPGMFC_OUT_OF_GROUPS`, and a rule is not learned.
    RuleMemory = "limit-rule-memory", "rule-memory; equal shares by bridge and owner from seven eighths on",
    /// Bundles that are not committed take as much memory as they may, or the connection's more than its share; the
    /// message is refused with `OFPBFC_MSG_TOO_MANY`.
    BundleMemory = "limit-bundle-memory", "bundle-memory; equal shares by connection from seven eighths on",
    /// Packets that controllers have sent wait in as much memory as they may, or the connection's in more than its share;
    /// the connection is not read until there is room, and refused after a while.
    PacketOuts = "limit-packet-outs", "fixed: 4 MiB; equal shares by connection from seven eighths on",
    /// A listener has as many connections as it may have, or as it may have from that address; the new one is closed.
    Connections = "limit-connections", "fixed: 256 a bridge by .mgmt, 256 by other listeners, of these 64 an address",
    /// Sampled packets of a bridge waited for its sFlow agent, as many as may; the next ones are not sampled.
    SFlowSamples = "limit-sflow-samples", "fixed: 256 a bridge",
    /// An expected data connection (FTP, TFTP) gave way to a newer one, of its connection or of the fullest zone.
    Expectations = "limit-expectations", "fixed: 32 a connection, 16384 in all",
    /// The kernel has more routes than are read; tunnels do not use the others.
    KernelRoutes = "limit-kernel-routes", "fixed: 65536",
    /// A port has as many masks of megaflows as it may: the megaflow gets a mask of whole bytes, or there is none.
    Masks = "limit-masks", "fixed: 1024 a port, and as many again of whole bytes",
    /// A bridge has learned as many addresses as it may; the port with most of them loses its oldest.
    MacEntries = "limit-mac-entries", "mac-table-size of the bridge's other_config (8192)",
    /// A connection was not committed, because its zone or all zones together have as many as they may.
    CtConnections = "limit-ct-connections", "dpctl/ct-set-maxconns, dpctl/ct-set-limits",
    /// As many effects of packets wait as may, or as may of the port; this one is lost, and caused again by the next packet.
    Effects = "limit-effects", "fixed: 4096 a port, and seven times what is free",
    /// As many neighbours are known as may be; the bridge with most loses some.
    Neighbours = "limit-neighbours", "fixed: 16384",
    /// There are as many meters as there may be; the meter-mod is refused with `OFPMMFC_OUT_OF_METERS`.
    Meters = "limit-meters", "fixed: 262144, as in Open vSwitch",
    /// A bridge has as many mirrors as it may have; the others are left out.
    Mirrors = "limit-mirrors", "fixed: 32 a bridge, as in Open vSwitch",
    /// A connection has as many flow monitors as it may have; the request is refused with `OFPMOFC_UNKNOWN`.
    FlowMonitors = "limit-flow-monitors", "fixed: 256 a connection",
    /// As many updates of flow monitors wait for a connection as may: the monitors pause, and go on when it has read. A
    /// connection with far more of them, all of removed rules, ends.
    MonitorUpdates = "limit-monitor-updates", "fixed: 1024 a connection, then 65536 of removed rules",
    /// As many removed rules wait for their announcement as may; the oldest is lost.
    RemovedRules = "limit-removed-rules", "fixed: 4096",
    /// As many vacancy events wait for their announcement as may; the oldest is lost.
    VacancyEvents = "limit-vacancy-events", "fixed: 1024",
    /// As many asynchronous messages, or packets, wait for a connection as may; the message is lost.
    AsyncMessages = "limit-async-messages", "fixed: 1024 a connection; packets: controller_queue_size",
    /// As many packets wait for the thread that makes them packet-ins as may, or as may of the port; the packet is dropped.
    PacketIns = "limit-packet-ins", "fixed: 1024 a port, and seven times what is free",
    /// As many packets of a BFD or LACP session wait for it as may; the packet is dropped.
    SessionPackets = "limit-session-packets", "fixed: 16 a session",
    /// A connection has as many open bundles as it may have; the message is refused with `OFPBFC_OUT_OF_BUNDLES`.
    Bundles = "limit-bundles", "fixed: 16 a connection",
    /// A bundle has as many packets and changes of ports as it may have, or what its packets' translations take is too much:
    /// the message, or the bundle, is refused with `OFPBFC_MSG_TOO_MANY`.
    BundledPackets = "limit-bundled-packets", "fixed: 1024 a bundle, and 262144 actions and effects of all of them",
    /// A controller has as many snoopers as it may have; the connection to `BRIDGE.snoop` is closed.
    Snoopers = "limit-snoopers", "fixed: 8 a controller, as in Open vSwitch",
    /// Copies of messages that a snooper has not read take as much memory as they may; the next ones are lost to it.
    SnoopedBytes = "limit-snooped-bytes", "fixed: 1 MiB a snooper",
    /// There are as many captures as there may be; the new one is refused.
    Captures = "limit-captures", "fixed: 8",
    /// Captured packets that their client has not taken are as many as may be; the next ones are not captured.
    CapturedPackets = "limit-captured-packets", "fixed: 4096 and 8 MiB a PMD and capture",
    /// The control socket has as many connections as it may have; the client is told so and goes.
    ControlConnections = "limit-control-connections", "fixed: 64",
    /// A request on the control socket is too long, too slow or nested too deeply; its connection ends.
    ControlRequests = "limit-control-requests", "fixed: 4 MiB, 10 s, 127 levels",
    /// The metrics endpoint has as many clients as it may have; the one that came first is closed.
    MetricsClients = "limit-metrics-clients", "fixed: 32",
    /// A message of the database is too long or nested too deeply; its connection ends and is made again.
    DatabaseMessages = "limit-database-messages", "fixed: 256 MiB, 100 levels",
    /// There are as many datapaths made by `dpctl/add-dp` as there may be; the new one is refused.
    Datapaths = "limit-datapaths", "fixed: 16, of 65536 megaflows each",
    /// A file for `dpctl` is too long; the command is refused.
    DpctlFile = "limit-dpctl-file", "fixed: 16 MiB",
    /// A queue's number is higher than the kernel's discipline has; the queue is left out.
    Queues = "limit-queues", "fixed: 61440 a device, as in Open vSwitch",
    /// A guest's chain of descriptors was too long or broken; its ring rests until it is set up again.
    VhostChains = "limit-vhost-chains", "fixed: 256 descriptors a chain",
    /// A request for a trace made more text or passes than it may; the trace says where it is cut.
    TraceText = "limit-trace-text", "fixed: 4 MiB a pass, 64 passes",
}

static COUNTS: [AtomicU64; Limit::ALL.len()] = [const { AtomicU64::new(0) }; Limit::ALL.len()];
static HELD: [AtomicU64; Limit::ALL.len()] = [const { AtomicU64::new(0) }; Limit::ALL.len()];
static PEAKS: [AtomicU64; Limit::ALL.len()] = [const { AtomicU64::new(0) }; Limit::ALL.len()];

impl Limit {
    /// Counts that it was met. One addition to a shared counter: not for what each packet does.
    pub fn hit(self) {
        COUNTS[self as usize].fetch_add(1, Relaxed);
    }

    /// Counts that it was met for as many things at once.
    pub fn hit_times(self, times: usize) {
        COUNTS[self as usize].fetch_add(times as u64, Relaxed);
    }

    /// How often it was met since the process began.
    pub fn count(self) -> u64 {
        COUNTS[self as usize].load(Relaxed)
    }

    /// Whether it is on one packet, request, message or megaflow at a time: then nothing is in use in between.
    pub const fn is_of_each(self) -> bool {
        use Limit as L;
        let of_packets = matches!(self, L::ActionList | L::TranslationWork | L::VhostChains);
        let of_requests = matches!(self, L::BundledPackets | L::ControlRequests | L::DpctlFile | L::TraceText);
        of_packets || of_requests || matches!(self, L::DatabaseMessages)
    }

    /// Whether what is new takes the place of what is old there, and nothing is refused: a cache at work, not a fault.
    pub const fn is_turnover(self) -> bool {
        matches!(self, Limit::Expectations | Limit::MacEntries | Limit::Neighbours)
    }

    /// Counts one thing of a resource that only its owner's thread knows, until that is dropped.
    pub fn hold(self) -> Held {
        let before = HELD[self as usize].fetch_add(1, Relaxed);
        self.note_use(before + 1);
        Held(self)
    }

    /// How many things are held ([`Limit::hold`]).
    pub fn held(self) -> u64 {
        HELD[self as usize].load(Relaxed)
    }

    /// Notes how much is in use, for the peak. Owners are asked once a second, so a shorter peak may stay unseen.
    pub fn note_use(self, used: u64) {
        PEAKS[self as usize].fetch_max(used, Relaxed);
    }

    /// The most that was seen in use since the process began.
    pub fn peak(self) -> u64 {
        PEAKS[self as usize].load(Relaxed)
    }
}

/// One thing of a bounded resource. Its place is free when this is dropped.
#[derive(Debug)]
pub struct Held(Limit);

impl Drop for Held {
    fn drop(&mut self) {
        HELD[self.0 as usize].fetch_sub(1, Relaxed);
    }
}

/// The shortest time between two reports of a bound, milliseconds.
const REPORT_EVERY_MS: u64 = 60_000;

/// What was last reported of each bound.
#[derive(Debug)]
pub struct LimitWatch([Option<LimitReport>; Limit::ALL.len()]);

impl Default for LimitWatch {
    fn default() -> Self {
        LimitWatch([None; Limit::ALL.len()])
    }
}

#[derive(Clone, Copy, Debug)]
struct LimitReport {
    count: u64,
    at_ms: u64,
}

impl LimitWatch {
    /// Calls `report` for each bound that was met since its last report, with how often, at most once a minute each.
    pub fn look(&mut self, now_ms: u64, report: impl FnMut(Limit, u64)) {
        self.look_at(Limit::count, now_ms, report);
    }

    fn look_at(&mut self, count: impl Fn(Limit) -> u64, now_ms: u64, mut report: impl FnMut(Limit, u64)) {
        for (last, limit) in self.0.iter_mut().zip(Limit::ALL) {
            let count = count(*limit);
            let news = count - last.map_or(0, |last| last.count);
            let is_due = last.is_none_or(|last| now_ms >= last.at_ms + REPORT_EVERY_MS);
            if news > 0 && is_due {
                *last = Some(LimitReport { count, at_ms: now_ms });
                report(*limit, news);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_reported_once_a_minute_while_it_is_met() {
        let mut watch = LimitWatch::default();
        let mut reported = |count: u64, now_ms| {
            let mut all = Vec::new();
            watch.look_at(
                |limit| if limit == Limit::Expectations { count } else { 0 },
                now_ms,
                |l, n| all.push((l, n)),
            );
            all
        };
        assert_eq!(reported(0, 0), []);
        assert_eq!(reported(5, 1000), [(Limit::Expectations, 5)]);
        assert_eq!(reported(9, 60_999), []);
        assert_eq!(reported(9, 61_000), [(Limit::Expectations, 4)]);
        assert_eq!(reported(9, 200_000), []);
    }

    #[test]
    fn names_are_distinct_and_each_bound_says_what_sets_it() {
        let mut names: Vec<_> = Limit::ALL.iter().map(|limit| limit.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Limit::ALL.len());
        assert!(Limit::ALL.iter().all(|limit| !limit.key().is_empty() && limit.explanation().ends_with('.')));
        let before = Limit::TranslationWork.count();
        Limit::TranslationWork.hit();
        assert!(Limit::TranslationWork.count() > before);
    }

    #[test]
    fn what_is_held_counts_until_it_is_dropped_and_its_peak_stays() {
        let held: Vec<_> = (0..3).map(|_| Limit::MetricsClients.hold()).collect();
        assert_eq!((Limit::MetricsClients.held(), Limit::MetricsClients.peak()), (3, 3));
        drop(held);
        Limit::MetricsClients.note_use(2);
        assert_eq!((Limit::MetricsClients.held(), Limit::MetricsClients.peak()), (0, 3));
    }

    #[test]
    fn the_table_of_bounds_names_each() {
        let table = include_str!("../../../docs/limits.md");
        let lacking: Vec<_> =
            Limit::ALL.iter().filter(|limit| !table.contains(&format!("`{}`", limit.name()))).collect();
        assert!(lacking.is_empty(), "{lacking:?} are not in docs/limits.md");
    }
}
