//! The state of a connection by protocol, and how packets change it.

use crate::tcp::{Segment, Tcp};
use crate::timeouts::Timeout;
use crate::tuple::Tuple;
use sluice_packet::headers::ip_proto;

/// The result of a packet (OVS: `ct_update_res`), with the timeout that applies from now on; `None` leaves the expiry
/// as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CtUpdate {
    /// It belongs to an established connection.
    Valid(Option<Timeout>),
    /// It belongs to a connection that is not yet established.
    ValidNew(Timeout),
    /// It does not fit the connection's state.
    Invalid,
    /// It begins a new connection with the same tuple; this one is over.
    New,
}

/// The state of a connection, by protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ConnState {
    Tcp(Tcp),
    /// ICMP and ICMPv6: whether there was a reply.
    Icmp {
        answered: bool,
    },
    /// UDP and all other protocols.
    Other(OtherState),
}

/// Which packets have been seen (OVS: `other_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtherState {
    /// One packet.
    First,
    /// Several, in one direction.
    Multiple,
    /// In both directions.
    Bidir,
}

/// Whether a packet with this tuple and L4 header may begin a connection.
pub(crate) fn may_begin(tuple: &Tuple, l4: &[u8]) -> bool {
    use crate::conn_key::{icmp, icmpv6};
    match tuple.proto {
        ip_proto::TCP => Segment::of(l4).is_some_and(|segment| segment.may_begin()),
        // In the other address family, too, since Open vSwitch looks at the protocol only.
        ip_proto::ICMP => matches!(l4.first(), Some(&(icmp::ECHO | icmp::TIMESTAMP | icmp::INFORMATION))),
        ip_proto::ICMPV6 => l4.first() == Some(&icmpv6::ECHO),
        _ => true,
    }
}

/// The timeout of settled connections.
pub(crate) const SETTLED: Timeout = Timeout::OtherBidir;

impl ConnState {
    /// The result of every further packet, if packets no longer change the state.
    #[inline]
    pub fn settled(&self) -> Option<CtUpdate> {
        matches!(self, ConnState::Other(OtherState::Bidir)).then_some(CtUpdate::Valid(Some(SETTLED)))
    }

    /// The state after the first packet, and its timeout. `None` if the packet cannot begin a connection.
    pub fn begin(tuple: &Tuple, l4: &[u8]) -> Option<(ConnState, Timeout)> {
        Some(match tuple.proto {
            ip_proto::TCP => (ConnState::Tcp(Tcp::begin(&Segment::of(l4)?)), Timeout::TcpFirstPacket),
            ip_proto::ICMP | ip_proto::ICMPV6 => (ConnState::Icmp { answered: false }, Timeout::IcmpFirst),
            _ => (ConnState::Other(OtherState::First), Timeout::OtherFirst),
        })
    }

    /// Moves on for a packet of the connection. `check_seq`: check TCP sequence numbers.
    #[inline]
    pub fn update(&mut self, l4: &[u8], reply: bool, check_seq: bool) -> CtUpdate {
        match self {
            ConnState::Tcp(tcp) => match Segment::of(l4) {
                Some(segment) => tcp.update(&segment, reply, check_seq),
                None => CtUpdate::Invalid,
            },
            ConnState::Icmp { answered } => {
                *answered |= reply;
                if *answered {
                    CtUpdate::Valid(Some(Timeout::IcmpReply))
                } else {
                    CtUpdate::ValidNew(Timeout::IcmpFirst)
                }
            }
            ConnState::Other(talk) => {
                *talk = match talk {
                    OtherState::Bidir => OtherState::Bidir,
                    _ if reply => OtherState::Bidir,
                    _ => OtherState::Multiple,
                };
                match talk {
                    OtherState::Bidir => CtUpdate::Valid(Some(Timeout::OtherBidir)),
                    _ => CtUpdate::ValidNew(Timeout::OtherMultiple),
                }
            }
        }
    }
}
