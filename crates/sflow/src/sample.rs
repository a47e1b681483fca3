//! What is sampled.

use std::net::Ipv4Addr;

/// Where a sample comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// The interface of that index.
    Interface(u32),
    /// The bridge of that sub-agent.
    Bridge(u32),
}

impl Source {
    /// Its number in datagrams. Open vSwitch numbers bridges from 1000, as physical entities.
    pub(crate) fn id(self) -> u32 {
        const ENTITY: u32 = 2 << 24;
        match self {
            Source::Interface(index) => index & 0xff_ffff,
            Source::Bridge(sub_id) => ENTITY | (1000 + sub_id) & 0xff_ffff,
        }
    }
}

/// Where a packet went, as the field `output` of a flow sample says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Output(pub u32);

impl Output {
    /// Nowhere, for a reason that is not told.
    pub const DROPPED: Output = Output(0x4000_0000 | 256);
    const SEVERAL: u32 = 0x8000_0000;

    /// Out of `count` ports, of which only this one's interface index may be told (0: it has none).
    pub fn to(count: u32, ifindex: u32) -> Self {
        match count {
            0 => Output::DROPPED,
            1 if ifindex != 0 => Output(ifindex),
            count => Output(Output::SEVERAL | count),
        }
    }
}

/// The outer header of a packet in a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SampledTunnel {
    /// The IP protocol; 0: unknown.
    pub protocol: u8,
    /// The type of service.
    pub tos: u8,
    /// The addresses; 0.0.0.0: unknown.
    pub src: Ipv4Addr,
    /// See `src`.
    pub dst: Ipv4Addr,
    /// The ports of UDP; 0: unknown.
    pub src_port: u16,
    /// See `src_port`.
    pub dst_port: u16,
    /// The number of the virtual network; 0: none.
    pub vni: u32,
}

/// A sampled packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSample<'a> {
    /// The index of the interface by which it came; 0: unknown.
    pub input: u32,
    /// Where it went.
    pub output: Output,
    /// The tag control information of its outer VLAN tag as it came, and as it was sent.
    pub src_tci: u16,
    /// See `src_tci`.
    pub dst_tci: u16,
    /// Its first bytes.
    pub header: &'a [u8],
    /// Its length.
    pub frame_len: u32,
    /// The tunnel by which it came.
    pub ingress: Option<SampledTunnel>,
    /// The tunnel by which it was sent.
    pub egress: Option<SampledTunnel>,
    /// The MPLS labels with which it was sent, the outer first.
    pub labels: &'a [u32],
}

/// Counters of an interface. What is unknown is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the IF-MIB")]
pub struct InterfaceCounters {
    pub speed_bps: u64,
    /// 0: unknown, 1: full duplex, 2: half duplex.
    pub direction: u32,
    pub is_admin_up: bool,
    pub is_oper_up: bool,
    pub in_octets: u64,
    pub in_packets: u64,
    pub in_multicast: Option<u64>,
    pub in_broadcast: Option<u64>,
    pub in_discards: Option<u64>,
    pub in_errors: Option<u64>,
    pub out_octets: u64,
    pub out_packets: u64,
    pub out_multicast: Option<u64>,
    pub out_broadcast: Option<u64>,
    pub out_discards: Option<u64>,
    pub out_errors: Option<u64>,
    /// The counters of the Ethernet record.
    pub alignment_errors: Option<u64>,
    pub fcs_errors: Option<u64>,
    pub frames_too_long: Option<u64>,
}

/// What a datapath has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are Open vSwitch's, of dpctl/show")]
pub struct DatapathCounters {
    pub hit: u64,
    pub missed: u64,
    pub lost: u64,
    pub flows: u64,
}

/// What the process has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceCounters {
    /// Milliseconds of processor time in the program.
    pub user_ms: u64,
    /// The same in the kernel.
    pub system_ms: u64,
    /// The most memory that was resident, bytes.
    pub memory_bytes: u64,
}

/// A record of a sample of counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CounterRecord {
    /// An interface's Ethernet counters.
    Ethernet(InterfaceCounters),
    /// The datapath id of the interface's bridge, and its OpenFlow number.
    OpenFlowPort {
        /// See above.
        datapath_id: u64,
        /// See above.
        number: u32,
    },
    /// The interface's name.
    PortName(String),
    /// An interface's counters; with its index.
    Interface(u32, InterfaceCounters),
    /// What the process has used.
    Resources(ResourceCounters),
    /// What the datapath has counted.
    Datapath(DatapathCounters),
}
