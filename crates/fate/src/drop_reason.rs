//! The drop reasons, each with the explanation that `sluice ctl` prints and the advice of docs/reference/drops.md.

/// Declares each reason once: the variant, its explanation, its name and what to do.
macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $advice:literal;)+) => {
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

            /// What the operator can look at or do about it.
            pub const fn advice(self) -> &'static str {
                match self { $(DropReason::$variant => $advice,)+ }
            }
        }
    };
}

drop_reasons! {
    /// Frame shorter than an Ethernet header.
    RxRunt = "rx-runt", "Look at the sender, or at the capture that is replayed: no Ethernet device sends such frames.";
    /// Frame longer than the port's MTU allows.
    RxOversize = "rx-oversize", "Give the port the MTU of its network (`mtu`, `mtu_request`), or turn off segmentation offload at the sender.";
    /// Frame the port could not hand over whole (truncated capture, broken descriptor, chained buffer).
    RxError = "rx-error", "Look at the port's log lines. Of a capture: take it again with a longer snapshot length. Of a guest: its driver broke a ring.";
    /// The receiving port's OpenFlow configuration has no-receive.
    PortNoReceive = "port-no-receive", "`ovs-ofctl mod-port BRIDGE PORT receive` lifts it.";
    /// The rules say drop: no rule matched in a secure bridge, or the actions output to no port.
    Rules = "rules", "`ofproto/trace` shows which table drops a packet; `ovs-ofctl dump-flows` which rules count. This is also what ACLs do.";
    /// The upcall failed, or as many of the queue as may wait for the tables did; no actions were known for the packet.
    UpcallLost = "upcall-lost", "Look at the log for the reason of the translation's error. With `upcalls-deferred`: control threads need a core of their own.";
    /// The port's share of cycles for misses was used up.
    MissBudget = "miss-budget", "Too many new flows: find the port in `sluice/port-show`. `miss-budget` sets the share; `governor` eases flows of few packets.";
    /// Translation met a limit or found nothing to go on with (a bridge that has gone, an expired recirculation id).
    TranslationLimit = "translation-limit", "`ofproto/trace` with such a packet names the limit. Look for loops in rules, patch ports and groups.";
    /// Translation nested resubmits too deeply.
    RecursionTooDeep = "recursion-too-deep", "Rules resubmit in a circle: `ofproto/trace` shows it.";
    /// Translation resubmitted too often, or its actions became too long.
    TooManyResubmits = "too-many-resubmits", "Rules resubmit too often, or flood to very many ports: `ofproto/trace` shows it.";
    /// Translation pushed too much onto its stack.
    StackTooDeep = "stack-too-deep", "A rule pushes without popping: `ofproto/trace` shows it.";
    /// Translation took more steps of work (actions, buckets, ports of floods) than it may.
    TranslationWork = "translation-work", "Spread the work: fewer buckets in one group, fewer ports in one flood. `sluice/limits-show` has the bound.";
    /// An action needs more MPLS labels than a key holds.
    TooManyMplsLabels = "too-many-mpls-labels", "Push fewer labels.";
    /// No recirculation id was free for the port. Not cached: the next packet asks again.
    RecircIds = "recirc-ids", "`sluice/limits-show` shows how many there are. A port has too many flows through `ct` or `resubmit` after `pop_mpls`.";
    /// Recirculated more often than the limit allows.
    RecircDepth = "recirc-depth", "Rules recirculate in a circle: `ofproto/trace` shows it.";
    /// The port to send to does not exist, is down, or has left.
    TxNoPort = "tx-no-port", "A rule names a port that has gone or whose link is down: `ovs-ofctl show BRIDGE`, `sluice/port-show`.";
    /// The transmit ring or device took no more.
    TxFull = "tx-full", "The receiver is slower than the sender. A guest: look at its CPU. A device: its rate, `n-txq-desc`, flow control.";
    /// Longer than the output port's MTU.
    TxOversize = "tx-oversize", "Raise the port's MTU, or lower the senders'. What guests leave to be segmented is split at the size that they ask for, not at this port's MTU.";
    /// No buffer was free for a copy of the packet.
    NoBuffer = "no-buffer", "A receiver holds all buffers: look for a guest that does not read. With DPDK raise `mbufs`.";
    /// No room in front of the packet for a header to be pushed.
    NoHeadroom = "no-headroom", "Push fewer headers in one pass.";
    /// An action does not fit the packet (say, popping a tag it does not have).
    ActionMismatch = "action-mismatch", "Make the rule match what its action needs, as in `vlan_tci=0x1000/0x1000`.";
    /// The queue to the controller was full.
    ControllerQueue = "controller-queue", "The controller is slow or gone, or a rule sends it too much. `controller-rate-limit` and a `meter` bound it.";
    /// As many BFD packets of the port wait as may.
    BfdQueue = "bfd-queue", "A neighbour floods the port with BFD packets; a fair rate is one in some milliseconds.";
    /// As many LACP packets of the port wait as may.
    LacpQueue = "lacp-queue", "A neighbour floods the port with LACP packets; a fair rate is one a second.";
    /// No member of the bond works.
    BondDown = "bond-down", "`bond/show` and `lacp/show` tell why no member works: links that are down, or a partner that does not answer.";
    /// The bridge has no device for its LOCAL port.
    NoLocalPort = "no-local-port", "Set `local = true` for the bridge, or do not send to LOCAL.";
    /// It came by a tunnel that no port is.
    NoTunnelPort = "no-tunnel-port", "Add a tunnel port with that key and address, or stop the other end: `ofproto/list-tunnels`.";
    /// No header could be made for a tunnel: there is no route, the next hop's address is not known yet, or a field does
    /// not fit.
    TunnelPush = "tunnel-push", "`ovs/route/lookup ADDRESS` and `tnl/neigh/show` tell what is missing.";
    /// The header of a tunnel's packet is broken, or of a kind that no tunnel has: its version, flags, lengths or checksum.
    TunnelPop = "tunnel-pop", "Look at the other end, and at its type and options: `tcpdump` on the underlay shows the header.";
    /// Its tunnel's header has a congestion mark, and the packet within is not capable of one.
    TunnelEcn = "tunnel-ecn", "The underlay is congested; hosts that do not know ECN lose packets by RFC 6040.";
    /// A meter's band dropped it.
    Meter = "meter", "The meter does its work: `ovs-ofctl meter-stats`.";
    /// Beyond what the port that it came by may receive.
    IngressPolicer = "ingress-policer", "The policer does its work: `ingress_policing_rate` and `ingress_policing_burst` of the interface.";
    /// Beyond what the port that it was to leave by may send.
    EgressPolicer = "egress-policer", "The policer does its work: QoS of the port.";
    /// A fragment held for connection tracking when the port it came from was removed.
    FragmentPurged = "fragment-purged", "Nothing: the port was removed while its fragments waited.";
}
