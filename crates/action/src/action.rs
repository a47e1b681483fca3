//! Datapath actions.

use crate::{BondTarget, Ct, SFlowAction};
use sluice_flow::geneve::GeneveOption;
use sluice_flow::layout::Span;
use sluice_flow::{Mac, TunnelKey};
use sluice_tunnel::TunnelKind;
use sluice_tunnel::header::TunnelHeader;

/// A datapath port number. Unique in the switch, over all bridges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortNo(pub u32);

/// The header that a set action rewrites, as the megaflow text names it (`set(ipv4(…))`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are the protocols'")]
pub enum Header {
    Ethernet,
    Ipv4,
    Ipv6,
    Arp,
    Nd,
    Tcp,
    Udp,
    Sctp,
    Icmp,
    Icmpv6,
    Mpls,
    PktMark,
    SkbPriority,
}

/// One field's new value, and which of its bits change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MaskedField {
    /// The field, by its place in the key.
    pub span: Span,
    /// The value, in the first `span.size` bytes; zero outside the mask.
    pub value: [u8; 16],
    /// The bits that change, likewise.
    pub mask: [u8; 16],
}

/// What a [`Action::Hash`] is made from. Source: OVS, `ovs_hash_alg`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HashAlgorithm {
    /// Addresses, protocol, ports.
    #[default]
    L4,
    /// The same, equal for both directions.
    SymmetricL4,
}

/// One thing to do to a packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send it out of a port.
    Output(PortNo),
    /// Send it out of the port that a bucket of a bond has.
    BondOutput {
        /// The bond's table.
        bond: BondTarget,
        /// The bucket.
        bucket: u8,
    },
    /// Send it out of the port that a bond has for the bucket of its hash, made from addresses, protocol and ports.
    LbOutput {
        /// The bond's table.
        bond: BondTarget,
        /// What the hash begins with.
        basis: u32,
    },
    /// Rewrite fields of one header.
    Set {
        /// The header.
        header: Header,
        /// Its fields that change.
        fields: Box<[MaskedField]>,
    },
    /// Note the tunnel that the packet is to leave by, for an output to the port that serves it.
    SetTunnel(Box<SetTunnel>),
    /// Put a tunnel's header in front of it.
    TunnelPush(std::sync::Arc<TunnelPush>),
    /// Take off the header of a tunnel that came to this switch, and look up what was within.
    TunnelPop {
        /// The datapath port that serves the tunnel, by which the packet within comes.
        backend: PortNo,
        /// What the header is.
        kind: TunnelKind,
    },
    /// Give a packet without an Ethernet header one with these addresses.
    PushEth {
        /// The source.
        src: Mac,
        /// The destination.
        dst: Mac,
    },
    /// Take off the Ethernet header, for a tunnel that carries packets without one.
    ///
    /// The bytes stay in front of the packet until the tunnel's header takes their place.
    PopEth,
    /// Push an 802.1Q or 802.1ad tag.
    PushVlan {
        /// The tag protocol id.
        tpid: u16,
        /// The tag, CFI bit included.
        tci: u16,
    },
    /// Take off the outer VLAN tag.
    PopVlan,
    /// Push an MPLS label stack entry behind Ethernet and VLAN headers.
    PushMpls {
        /// 0x8847 or 0x8848.
        ethertype: u16,
        /// The whole entry.
        lse: u32,
    },
    /// Take off the outer MPLS label stack entry.
    PopMpls {
        /// The Ethernet type of what is behind it.
        ethertype: u16,
    },
    /// Find the packet's connection, and write its state into the key.
    Ct(Box<Ct>),
    /// Forget the packet's connection and its state.
    CtClear,
    /// Let the packet pass this meter, which may drop it.
    Meter(u32),
    /// Hash the packet into its key's `dp_hash`.
    Hash {
        /// What from.
        algorithm: HashAlgorithm,
        /// What the hash begins with.
        basis: u32,
    },
    /// Look the packet up again under a recirculation id.
    Recirc(u32),
    /// The next output leaves out what is beyond that length now, bytes.
    Trunc(u32),
    /// Do these to a copy; the packet itself goes on unchanged.
    Clone(Actions),
    /// Do these with a probability of `probability` in 2^32.
    Sample {
        /// In 2^32.
        probability: u32,
        /// What to do.
        actions: Actions,
    },
    /// Choose by the packet's length.
    CheckPktLen {
        /// The threshold, bytes.
        len: u16,
        /// For packets longer than it.
        greater: Actions,
        /// For the others.
        less_or_equal: Actions,
    },
    /// Hand it to a controller.
    Controller {
        /// OpenFlow reason (0 no match, 1 action, 2 invalid TTL …).
        reason: u8,
        /// Which controller connection, 0 by default.
        controller_id: u16,
        /// Bytes of the packet at most.
        max_len: u16,
        /// Cookie of the rule that asked.
        cookie: u64,
        /// Recirculation id that names the state of the translation.
        recirc_id: u32,
        /// Whether the controller gets all that is needed to let it go on from here: then it gets the whole packet.
        continuation: bool,
    },
    /// Take a share of the packets for an sFlow agent.
    SFlow(std::sync::Arc<SFlowAction>),
    /// Hand it to the BFD session of a port.
    Bfd {
        /// The number of the port's bridge.
        bridge: u32,
        /// The port's OpenFlow number.
        port: u16,
    },
    /// Hand it to the LACP aggregator of a port.
    Lacp {
        /// The number of the port's bridge.
        bridge: u32,
        /// The port's OpenFlow number.
        port: u16,
    },
    /// Drop it (only ever alone; an empty list does the same).
    Drop,
}

/// The tunnel that a packet is to leave by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SetTunnel {
    /// Its fields.
    pub key: TunnelKey,
    /// Its options of Geneve.
    pub options: Box<[GeneveOption]>,
}

/// A tunnel's header to be pushed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TunnelPush {
    /// The datapath port that serves the tunnel.
    pub backend: PortNo,
    /// The header.
    pub header: TunnelHeader,
    /// The datapath port of the device from which the outer packet comes.
    pub out_port: PortNo,
}

/// A list of actions.
pub type Actions = std::sync::Arc<[Action]>;

impl Action {
    /// The lists of actions within it.
    pub fn nested(&self) -> [&[Action]; 2] {
        match self {
            Action::Clone(actions) | Action::Sample { actions, .. } => [actions, &[]],
            Action::CheckPktLen { greater, less_or_equal, .. } => [greater, less_or_equal],
            _ => [&[], &[]],
        }
    }

    /// Whether it, or an action within it, looks the packet up again.
    pub fn recirculates(&self) -> bool {
        matches!(self, Action::Recirc(_) | Action::TunnelPop { .. })
            || self.nested().into_iter().flatten().any(Action::recirculates)
    }

    /// Whether it takes the packet or a copy of it. The others change the packet.
    pub fn sends(&self) -> bool {
        match self {
            Action::Output(_)
            | Action::BondOutput { .. }
            | Action::LbOutput { .. }
            | Action::Recirc(_)
            | Action::Clone(_)
            | Action::Sample { .. }
            | Action::CheckPktLen { .. }
            | Action::TunnelPop { .. }
            | Action::Controller { .. }
            | Action::Bfd { .. }
            | Action::Lacp { .. } => true,
            Action::Set { .. }
            | Action::SetTunnel(_)
            | Action::TunnelPush(_)
            | Action::PushEth { .. }
            | Action::PopEth
            | Action::PushVlan { .. }
            | Action::PopVlan
            | Action::PushMpls { .. }
            | Action::PopMpls { .. }
            | Action::Ct(_)
            | Action::CtClear
            | Action::Hash { .. }
            | Action::Meter(_)
            | Action::Trunc(_)
            | Action::SFlow(_)
            | Action::Drop => false,
        }
    }
}
