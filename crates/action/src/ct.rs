//! The arguments of connection tracking: what a `ct(…)` action asks of the tracker.

/// A new value and the bits of the old one that it replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Masked<T> {
    /// The value; zero outside the mask.
    pub value: T,
    /// The bits that change.
    pub mask: T,
}

/// An application-level gateway: reads a control connection and lets the data connections it announces be related.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Helper {
    /// FTP, active and passive, with its IPv6 extensions.
    Ftp,
    /// TFTP.
    Tftp,
}

/// The arguments of a `ct(…)` action.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ct {
    /// The zone to look in.
    pub zone: u16,
    /// Make the connection if there is none.
    pub commit: bool,
    /// With a packet in the reply direction: end the connection and make one in the packet's. Says `commit` too.
    pub force: bool,
    /// Sets the mark.
    pub mark: Option<Masked<u32>>,
    /// Sets the label.
    pub label: Option<Masked<u128>>,
    /// Translate addresses.
    pub nat: Option<NatSpec>,
    /// Help the new connection so.
    pub helper: Option<Helper>,
}

/// Which address NAT changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NatTarget {
    /// The source.
    Src,
    /// The destination.
    Dst,
}

impl NatTarget {
    /// What is changed in packets the other way.
    pub fn flipped(self) -> Self {
        match self {
            NatTarget::Src => NatTarget::Dst,
            NatTarget::Dst => NatTarget::Src,
        }
    }
}

/// How the first port to try is picked from a range that was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PortChoice {
    /// Not said, which means [`PortChoice::Hash`].
    #[default]
    Unsaid,
    /// By a hash of the connection: the same again for the same connection.
    Hash,
    /// By the moment's entropy.
    Random,
}

/// The arguments of `nat(…)`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NatSpec {
    /// What a new connection's NAT changes. `None`: it has none; packets of connections that have are translated.
    pub target: Option<NatTarget>,
    /// Whether the addresses are IPv6.
    pub v6: bool,
    /// First and last address; an IPv4 one is in the first four bytes. All zero: the connection's own address.
    pub addrs: ([u8; 16], [u8; 16]),
    /// First and last port.
    pub ports: Option<(u16, u16)>,
    /// For the ports.
    pub choice: PortChoice,
    /// Choose the address by the client's address alone, so that a client keeps it for all destinations.
    pub persistent: bool,
}
