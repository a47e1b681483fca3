//! The state of a connection, by protocol, and what a packet does to it.

use crate::tcp::{Segment, Tcp};
use crate::timeouts::Timeout;
use crate::tuple::Tuple;
use sluice_packet::headers::ip_proto;

/// What a packet did to its connection, and what the connection's end is counted from now on. No timeout: it stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CtUpdate {
    /// It belongs to an established connection.
    Valid(Option<Timeout>),
    /// It belongs to one that is not yet established.
    ValidNew(Timeout),
    /// It does not fit.
    Invalid,
    /// It begins a new connection between the same ends; this one is over.
    New,
}

/// The state of a connection, by protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ConnState {
    Tcp(Tcp),
    /// ICMP and ICMPv6: whether there was an answer.
    Icmp {
        answered: bool,
    },
    /// UDP and all others.
    Other(OtherState),
}

/// How much has been said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtherState {
    /// One packet.
    First,
    /// Several, one way.
    Multiple,
    /// Both ways.
    Bidir,
}

/// Whether a connection may begin with a packet of that tuple and L4 header.
pub(crate) fn may_begin(tuple: &Tuple, l4: &[u8]) -> bool {
    use crate::conn_key::{icmp, icmpv6};
    match tuple.proto {
        ip_proto::TCP => Segment::of(l4).is_some_and(|segment| segment.may_begin()),
        // In the other family too: as Open vSwitch, which looks at the protocol alone.
        ip_proto::ICMP => matches!(l4.first(), Some(&(icmp::ECHO | icmp::TIMESTAMP | icmp::INFORMATION))),
        ip_proto::ICMPV6 => l4.first() == Some(&icmpv6::ECHO),
        _ => true,
    }
}

/// What a settled connection's end is counted from.
pub(crate) const SETTLED: Timeout = Timeout::OtherBidir;

impl ConnState {
    /// The step of every further packet, if no packet changes the state any more.
    #[inline]
    pub fn settled(&self) -> Option<CtUpdate> {
        matches!(self, ConnState::Other(OtherState::Bidir)).then_some(CtUpdate::Valid(Some(SETTLED)))
    }

    /// The state after the packet that begins the connection, and its timeout. `None` if it cannot begin one.
    pub fn begin(tuple: &Tuple, l4: &[u8]) -> Option<(ConnState, Timeout)> {
        Some(match tuple.proto {
            ip_proto::TCP => (ConnState::Tcp(Tcp::begin(&Segment::of(l4)?)), Timeout::TcpFirstPacket),
            ip_proto::ICMP | ip_proto::ICMPV6 => (ConnState::Icmp { answered: false }, Timeout::IcmpFirst),
            _ => (ConnState::Other(OtherState::First), Timeout::OtherFirst),
        })
    }

    /// Takes a packet of the connection. `check_seq`: judge TCP sequence numbers.
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
