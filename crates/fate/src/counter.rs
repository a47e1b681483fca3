//! The counters a PMD keeps besides drops.

/// Declares the counters once; names and sentences come from the same list.
macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// A PMD's counter. Units are packets unless the sentence says otherwise.
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
    /// Packets held back now (fragments waiting to be reassembled); goes up only, releases are `Released`.
    Held = "held",
    /// Held packets that went on.
    Released = "released",

    /// Passes through the lookup: first passes and recirculations.
    Passes = "passes",
    /// Passes answered by the exact match cache.
    EmcHits = "emc-hits",
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
    /// Passes for which it named a subtable that did not have them.
    DistributorWrong = "distributor-wrong",
    /// Megaflow hits that an entry for a whole traversal named.
    ComposedHits = "composed-hits",
    /// Upcalls that told what to do.
    Upcalls = "upcalls",
    /// Upcalls that failed.
    UpcallsLost = "upcalls-lost",
    /// TSC cycles spent in upcalls.
    UpcallCycles = "upcall-cycles",

    /// Megaflows installed by PMDs.
    MegaflowsInstalled = "megaflows-installed",
    /// Of those, the ones whose mask got more bits because their port was at its quota of masks.
    QuotaNarrowed = "quota-narrowed",
    /// Megaflows not installed because their port was at its quota; the packets went on.
    QuotaRefused = "quota-refused",

    /// Flows whose first packet the flow-setup governor counted, as far as its counters can tell flows apart.
    GovernedFlows = "governed-flows",
    /// Flows installed because their count was reached.
    GovernedSetups = "governed-setups",
    /// Flows installed at their first packet, without counting.
    GovernedShortcuts = "governed-shortcuts",
    /// Packets that got an answer and no megaflow because their flow was still being counted.
    GovernedPackets = "governed-packets",

    /// Packets that began a connection.
    ConntrackCommits = "conntrack-commits",
    /// Packets of no connection that could begin none (`ct_state` inv); they went on.
    ConntrackInvalid = "conntrack-invalid",
    /// Connections not begun because their zone was at its limit; the packets went on.
    ConntrackZoneLimit = "conntrack-zone-limit",
    /// Connections not begun because all zones together were at the limit; the packets went on.
    ConntrackTableFull = "conntrack-table-full",
    /// Connections not begun because NAT found no free address and port; the packets went on.
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
