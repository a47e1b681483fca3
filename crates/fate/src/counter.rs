//! The counters of a PMD, other than drops.

/// Declares each counter once: the variant, its name and its explanation.
macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// A PMD's counter. The unit is packets unless the description says otherwise.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Counter { $($(#[doc = $doc])+ $variant,)+ }

        impl Counter {
            /// Every counter, in declaration order; `counter as usize` indexes it.
            pub const ALL: &[Counter] = &[$(Counter::$variant,)+];
            /// How many counters there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The name used in statistics and in JSON.
            pub const fn name(self) -> &'static str {
                match self { $(Counter::$variant => $name,)+ }
            }

            /// What it counts, in a sentence.
            pub const fn explanation(self) -> &'static str {
                match self { $(Counter::$variant => concat!($($doc),+).trim_ascii(),)+ }
            }
        }
    };
}

counters! {
    /// Packets a port handed over.
    Received = "received",
    /// Packets the switch made itself (packet-out, generated replies).
    Originated = "originated",
    /// Copies made because a packet went to more than one place.
    Cloned = "cloned",
    /// Packets a port accepted for sending.
    Sent = "sent",
    /// Packets delivered to a controller or a local port.
    Delivered = "delivered",
    /// Packets that began to be held (fragments that wait for reassembly, misses that wait for the tables). Never decreases:
    /// see `Released`.
    Held = "held",
    /// Held packets that continued.
    Released = "released",

    /// Lookup passes: the first pass of a packet and each recirculation.
    Passes = "passes",
    /// Passes answered by the exact match cache.
    EmcHits = "emc-hits",
    /// Passes that a policy kept away from the exact match cache.
    EmcBypassed = "emc-bypassed",
    /// Passes whose megaflow the insertion penalty kept out of it.
    EmcPenalised = "emc-penalised",
    /// Passes answered by the signature match cache.
    SmcHits = "smc-hits",
    /// Passes answered by a megaflow subtable.
    MegaflowHits = "megaflow-hits",
    /// Subtables probed for those hits.
    SubtableProbes = "subtable-probes",
    /// Megaflow hits in the subtable that the distributor named.
    DistributorHits = "distributor-hits",
    /// Passes for which the distributor named no subtable.
    DistributorMisses = "distributor-misses",
    /// Passes for which it named a subtable without a match.
    DistributorWrong = "distributor-wrong",
    /// Megaflow hits found by a composed entry, which covers all passes of a packet.
    ComposedHits = "composed-hits",
    /// Upcalls that returned actions.
    Upcalls = "upcalls",
    /// Upcalls that failed.
    UpcallsLost = "upcalls-lost",
    /// Upcalls put off because a control thread had the tables, or the PMD was to poll first; each is made at a later
    /// poll, or lost.
    UpcallsDeferred = "upcalls-deferred",
    /// TSC cycles spent in upcalls.
    UpcallCycles = "upcall-cycles",

    /// Megaflows installed by PMDs.
    MegaflowsInstalled = "megaflows-installed",
    /// Installed megaflows whose mask was extended because their port had reached its quota of masks.
    QuotaNarrowed = "quota-narrowed",
    /// Megaflows not installed because their port was at its quota; the packets were forwarded.
    QuotaRefused = "quota-refused",
    /// Megaflows not installed because another thread had the table locked for longer than a PMD waits; the packets were
    /// forwarded, and the next one of the flow tries again.
    InstallsSkipped = "installs-skipped",

    /// Flows whose first packet the flow-setup governor counted, as far as its counters tell flows apart.
    GovernedFlows = "governed-flows",
    /// Flows installed because their count was reached.
    GovernedSetups = "governed-setups",
    /// Flows installed at their first packet, without counting.
    GovernedShortcuts = "governed-shortcuts",
    /// Packets forwarded without a megaflow because their flow was still being counted.
    GovernedPackets = "governed-packets",

    /// Packets that began a connection.
    ConntrackCommits = "conntrack-commits",
    /// Packets that belong to no connection and cannot begin one (`ct_state` inv); they were forwarded.
    ConntrackInvalid = "conntrack-invalid",
    /// Connections not committed because their zone was at its limit; the packets were forwarded.
    ConntrackZoneLimit = "conntrack-zone-limit",
    /// Connections not committed because all zones together were at the limit; the packets were forwarded.
    ConntrackTableFull = "conntrack-table-full",
    /// Connections not committed because NAT found no free address and port; the packets were forwarded.
    ConntrackNatExhausted = "conntrack-nat-exhausted",

    /// Batches handed to a port for sending.
    TxBatches = "tx-batches",
    /// Loop iterations that received nothing.
    IdleIterations = "idle-iterations",
    /// Loop iterations that received something.
    BusyIterations = "busy-iterations",
    /// TSC cycles of the idle iterations.
    IdleCycles = "idle-cycles",
    /// TSC cycles of the busy iterations.
    BusyCycles = "busy-cycles",
    /// Loop iterations that slept.
    SleepIterations = "sleep-iterations",
    /// TSC cycles slept.
    SleepCycles = "sleep-cycles",
}
