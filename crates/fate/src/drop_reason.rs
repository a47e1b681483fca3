//! The drop reasons, each with the explanation that `sluice ctl` prints.

/// Declares each reason once: the variant, its name and its explanation.
macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// Why a packet was neither sent nor delivered.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DropReason { $($(#[doc = $doc])+ $variant,)+ }

        impl DropReason {
            /// Every reason, in declaration order; `reason as usize` indexes it.
            pub const ALL: &[DropReason] = &[$(DropReason::$variant,)+];
            /// How many reasons there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The name used in statistics and in JSON, such as `rx-runt`.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$variant => $name,)+ }
            }

            /// The explanation for an operator.
            pub const fn explanation(self) -> &'static str {
                match self { $(DropReason::$variant => concat!($($doc),+).trim_ascii(),)+ }
            }
        }
    };
}

drop_reasons! {
    /// Frame shorter than an Ethernet header.
    RxRunt = "rx-runt",
    /// Frame longer than the port's MTU allows.
    RxOversize = "rx-oversize",
    /// Frame the port could not hand over whole (truncated capture, broken descriptor, chained buffer).
    RxError = "rx-error",
    /// The receiving port's OpenFlow configuration has no-receive.
    PortNoReceive = "port-no-receive",
    /// The rules say drop: no rule matched in a secure bridge, or the actions output to no port.
    Rules = "rules",
    /// The upcall failed; no actions were known for the packet.
    UpcallLost = "upcall-lost",
    /// The port's share of cycles for misses was used up.
    MissBudget = "miss-budget",
    /// Translation met a limit or found nothing to go on with (a bridge that has gone, an expired recirculation id).
    TranslationLimit = "translation-limit",
    /// Translation nested resubmits too deeply.
    RecursionTooDeep = "recursion-too-deep",
    /// Translation resubmitted too often, or its actions became too long.
    TooManyResubmits = "too-many-resubmits",
    /// Translation pushed too much onto its stack.
    StackTooDeep = "stack-too-deep",
    /// Translation took more steps of work (actions, buckets, ports of floods) than it may.
    TranslationWork = "translation-work",
    /// An action needs more MPLS labels than a key holds.
    TooManyMplsLabels = "too-many-mpls-labels",
    /// No recirculation id was free for the port. Not cached: the next packet asks again.
    RecircIds = "recirc-ids",
    /// Recirculated more often than the limit allows.
    RecircDepth = "recirc-depth",
    /// The port to send to does not exist, is down, or has left.
    TxNoPort = "tx-no-port",
    /// The transmit ring or device took no more.
    TxFull = "tx-full",
    /// Longer than the output port's MTU.
    TxOversize = "tx-oversize",
    /// No buffer was free for a copy of the packet.
    NoBuffer = "no-buffer",
    /// No room in front of the packet for a header to be pushed.
    NoHeadroom = "no-headroom",
    /// An action does not fit the packet (say, popping a tag it does not have).
    ActionMismatch = "action-mismatch",
    /// The queue to the controller was full.
    ControllerQueue = "controller-queue",
    /// As many BFD packets of the port wait as may.
    BfdQueue = "bfd-queue",
    /// As many LACP packets of the port wait as may.
    LacpQueue = "lacp-queue",
    /// No member of the bond works.
    BondDown = "bond-down",
    /// The bridge has no device for its LOCAL port.
    NoLocalPort = "no-local-port",
    /// It came by a tunnel that no port is.
    NoTunnelPort = "no-tunnel-port",
    /// No header could be made for a tunnel: there is no route, the next hop's address is not known yet, or a field does
    /// not fit.
    TunnelPush = "tunnel-push",
    /// The header of a tunnel's packet is broken, or of a kind that no tunnel has: its version, flags, lengths or checksum.
    TunnelPop = "tunnel-pop",
    /// Its tunnel's header has a congestion mark, and the packet within is not capable of one.
    TunnelEcn = "tunnel-ecn",
    /// A meter's band dropped it.
    Meter = "meter",
    /// Beyond what the port that it came by may receive.
    IngressPolicer = "ingress-policer",
    /// Beyond what the port that it was to leave by may send.
    EgressPolicer = "egress-policer",
    /// A fragment held for connection tracking when the port it came from was removed.
    FragmentPurged = "fragment-purged",
}
