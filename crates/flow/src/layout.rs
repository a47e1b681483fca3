//! Where every field lies in a key.
//!
//! All fields are in network byte order, so a prefix is a prefix of bytes and extraction copies. Line 0 holds all that
//! an ordinary IPv4 packet has. Lines behind it are there for packets that need them; byte [`PRESENCE`] says which; an
//! absent line compares as zero and is never read. Lines 1 to 3 are the same in the key of the datapath (`PacketKey`) and in
//! that of the tables (`FlowKey`). What follows differs: the datapath has a tunnel's Geneve options as they stood in the
//! header, tables have registers and metadata, and the options' values beside the lines.
//!
//! | line | what |
//! |---|---|
//! | 0 | port, recirculation, connection state, Ethernet, two VLAN tags, IPv4 or ARP, L4 |
//! | 1 | IPv6 addresses and label, ARP and neighbour-discovery addresses |
//! | 2 | connection label and original tuple, rare tunnel and ND fields |
//! | 3 | tunnel, MPLS labels |
//! | 4 to 7 of a `PacketKey` | the bytes of a tunnel's Geneve options and their number, see [`OPTIONS_LINE`] |
//! | 4 of a `FlowKey` | registers |
//! | 5 of a `FlowKey` | metadata, conjunction id, action-set output, packet type, NSH, a tunnel's IPv4 addresses and UDP port |
//!
//! An OpenFlow port number in `IN_PORT` and `ACTSET_OUTPUT` is a 16-bit one ([`crate::OfPort`]), zero-extended.
//! Addresses of an IPv4 tuple share bytes with those of an IPv6 one; `CT_IS_IPV6` tells them apart, and a match on such
//! an address covers that byte too. A tunnel has addresses of both families in tables, where rules may set and match
//! any of them. In the datapath a tunnel's IPv4 addresses stand as IPv6 addresses that map them (`::ffff:1.2.3.4`),
//! because no line has room for both; [`crate::FlowKey::of_packet`] and its reverse convert.

/// A field's place: `offset` from the start of the key and `size`, both in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// First byte.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
}

impl Span {
    /// The bytes it covers.
    pub const fn range(self) -> std::ops::Range<usize> {
        self.offset..self.offset + self.size
    }

    /// The line it lies in; a span never crosses lines.
    pub const fn line(self) -> usize {
        self.offset / 64
    }

    /// Bit `i`: it has a byte of word `i` of a [`FlowKey`](crate::FlowKey), eight bytes each.
    pub const fn words(self) -> u64 {
        if self.size == 0 {
            return 0;
        }
        let (first, last) = (self.offset / 8, (self.offset + self.size - 1) / 8);
        u64::MAX >> (63 - last) & u64::MAX << first
    }
}

macro_rules! spans {
    ($($(#[doc = $doc:literal])+ $name:ident = $offset:literal, $size:literal;)+) => {
        $($(#[doc = $doc])+ pub const $name: Span = Span { offset: $offset, size: $size };)+
        /// Every span, in order of offset.
        pub const SPANS: &[(&str, Span)] = &[$((stringify!($name), $name),)+];
    };
}

spans! {
    /// Datapath port number in a `PacketKey`, OpenFlow port number in a `FlowKey`.
    IN_PORT = 0, 4;
    /// Recirculation id, 0 on the first pass.
    RECIRC_ID = 4, 4;
    /// Hash computed by a `hash` action, 0 if none.
    DP_HASH = 8, 4;
    /// `pkt_mark`.
    PKT_MARK = 12, 4;
    /// Connection mark.
    CT_MARK = 16, 4;
    /// Connection zone.
    CT_ZONE = 20, 2;
    /// Connection state bits (new, est, rel, rpl, inv, trk, snat, dnat from bit 0).
    CT_STATE = 22, 1;
    /// Which of lines 1 to 7 the key, or the mask, has: bit `i` for line `i`. No match compares it.
    PRESENCE = 23, 1;
    /// Ethernet destination.
    DL_DST = 24, 6;
    /// Ethernet source.
    DL_SRC = 30, 6;
    /// Outer VLAN tag: TPID, 0 if none.
    VLAN0_TPID = 36, 2;
    /// Outer VLAN tag: TCI with the CFI bit set to say that the tag is there.
    VLAN0_TCI = 38, 2;
    /// Inner VLAN tag: TPID, 0 if none.
    VLAN1_TPID = 40, 2;
    /// Inner VLAN tag: TCI as for the outer one.
    VLAN1_TCI = 42, 2;
    /// Ethernet type behind the tags; 0x05ff for 802.2 frames without SNAP.
    DL_TYPE = 44, 2;
    /// TCP flags, the low 12 bits (neighbour discovery: options type).
    TCP_FLAGS = 46, 2;
    /// IPv4 source, or ARP sender protocol address.
    NW_SRC = 48, 4;
    /// IPv4 destination, or ARP target protocol address.
    NW_DST = 52, 4;
    /// IP protocol (IPv6: of the transport header), or ARP opcode's low byte.
    NW_PROTO = 56, 1;
    /// IP type of service: DSCP and ECN.
    NW_TOS = 57, 1;
    /// IP time to live or hop limit.
    NW_TTL = 58, 1;
    /// Fragment: bit 0 any fragment, bit 1 not the first.
    NW_FRAG = 59, 1;
    /// L4 source port, or ICMP type.
    TP_SRC = 60, 2;
    /// L4 destination port, or ICMP code.
    TP_DST = 62, 2;

    /// IPv6 source.
    IPV6_SRC = 64, 16;
    /// IPv6 destination.
    IPV6_DST = 80, 16;
    /// Neighbour-discovery target.
    ND_TARGET = 96, 16;
    /// IPv6 flow label, the low 20 bits.
    IPV6_LABEL = 112, 4;
    /// ARP sender hardware address, or ND source link-layer address.
    ARP_SHA = 116, 6;
    /// ARP target hardware address, or ND target link-layer address.
    ARP_THA = 122, 6;

    /// Connection label.
    CT_LABEL = 128, 16;
    /// Original tuple's IPv6 source; an IPv4 source is in the first four bytes.
    CT_SRC = 144, 16;
    /// Original tuple's IPv6 destination; an IPv4 destination is in the first four bytes.
    CT_DST = 160, 16;
    /// Original tuple's L4 source port.
    CT_TP_SRC = 176, 2;
    /// Original tuple's L4 destination port.
    CT_TP_DST = 178, 2;
    /// Original tuple's IP protocol.
    CT_NW_PROTO = 180, 1;
    /// 1 if the original tuple's addresses are IPv6, 0 if they are IPv4 or absent.
    CT_IS_IPV6 = 181, 1;
    /// ERSPAN version of the tunnel.
    TUN_ERSPAN_VER = 182, 1;
    /// ERSPAN version 2: direction.
    TUN_ERSPAN_DIR = 183, 1;
    /// Neighbour discovery reserved field, or IGMP group.
    ND_RESERVED = 184, 4;
    /// ERSPAN version 2: hardware id.
    TUN_ERSPAN_HWID = 188, 1;
    /// GTP-U flags.
    TUN_GTPU_FLAGS = 189, 1;
    /// GTP-U message type.
    TUN_GTPU_MSGTYPE = 190, 1;

    /// Tunnel key.
    TUN_ID = 192, 8;
    /// Tunnel source, IPv6.
    TUN_IPV6_SRC = 200, 16;
    /// Tunnel destination, IPv6.
    TUN_IPV6_DST = 216, 16;
    /// Tunnel flags.
    TUN_FLAGS = 232, 2;
    /// Tunnel type of service.
    TUN_TOS = 234, 1;
    /// Tunnel time to live.
    TUN_TTL = 235, 1;
    /// Outermost MPLS label stack entry: label 20 bits, TC 3, bottom of stack 1, TTL 8.
    MPLS0 = 236, 4;
    /// Second label stack entry.
    MPLS1 = 240, 4;
    /// Third label stack entry.
    MPLS2 = 244, 4;
    /// Tunnel VXLAN group policy id.
    TUN_GBP_ID = 248, 2;
    /// Tunnel VXLAN group policy flags.
    TUN_GBP_FLAGS = 250, 1;
    /// What the tunnel carried: 0 a frame; 1 a packet without an Ethernet header, in front of which the packet has one with
    /// zeros for addresses; 2 such a packet that has got addresses since.
    TUN_PAYLOAD = 251, 1;
    /// ERSPAN version 1: index, the low 20 bits.
    TUN_ERSPAN_IDX = 252, 4;

    /// Registers 0 to 15, four bytes each; xreg`i` is registers 2i and 2i+1, xxreg`i` registers 4i to 4i+3.
    REGS = 256, 64;

    /// OpenFlow metadata.
    METADATA = 320, 8;
    /// Conjunction id.
    CONJ_ID = 328, 4;
    /// Output port in the action set.
    ACTSET_OUTPUT = 332, 4;
    /// Queue priority.
    SKB_PRIORITY = 336, 4;
    /// Packet type: name space and type; 0 for Ethernet.
    PACKET_TYPE = 340, 4;
    /// NSH flags.
    NSH_FLAGS = 344, 1;
    /// NSH time to live.
    NSH_TTL = 345, 1;
    /// NSH metadata type.
    NSH_MDTYPE = 346, 1;
    /// NSH next protocol.
    NSH_NP = 347, 1;
    /// NSH service path: identifier 24 bits, index 8.
    NSH_PATH = 348, 4;
    /// NSH context headers 1 to 4 (metadata type 1).
    NSH_CONTEXT = 352, 16;

    /// Tunnel source, IPv4.
    TUN_IPV4_SRC = 368, 4;
    /// Tunnel destination, IPv4.
    TUN_IPV4_DST = 372, 4;
    /// Destination UDP port of the tunnel that the packet leaves by.
    TUN_TP_DST = 376, 2;
}

/// Register `i`, 0 to 15.
pub const fn reg(i: usize) -> Span {
    assert!(i < 16);
    Span { offset: REGS.offset + 4 * i, size: 4 }
}

/// [`TUN_PAYLOAD`] of a packet without an Ethernet header, and of one that has got addresses since.
pub const PAYLOAD_BARE: u8 = 1;
/// See [`PAYLOAD_BARE`].
pub const PAYLOAD_WITH_ETHERNET: u8 = 2;

/// Lines that both keys have.
pub const SHARED_LINES: usize = 4;
/// The first of the lines of a tunnel's Geneve options in a `PacketKey`: how many bytes they have, three bytes of zeros, and the
/// options as they stood in the header. Nothing but the first line is there if they fit into it.
pub const OPTIONS_LINE: usize = SHARED_LINES;
/// Where the options begin behind the start of that line.
pub const OPTIONS_OFFSET: usize = 4;
/// Bytes that the options of a header may have. Source: RFC 8926, 3.4: 63 words of four bytes.
pub const OPTIONS_MAX: usize = 252;

/// Size of a `PacketKey`.
pub const PACKET_KEY_SIZE: usize = 512;
/// Lines of a `PacketKey`.
pub const PACKET_LINES: usize = PACKET_KEY_SIZE / 64;
/// Lines of a `FlowKey`.
pub const FLOW_LINES: usize = 6;
/// Size of the lines of a `FlowKey`.
pub const FLOW_KEY_SIZE: usize = FLOW_LINES * 64;

const _: () = assert!(OPTIONS_OFFSET + OPTIONS_MAX == (PACKET_LINES - OPTIONS_LINE) * 64 && PACKET_LINES <= 8);
const _: () = assert!(REGS.line() == SHARED_LINES);

// No two spans overlap, none crosses a line, and all lie inside the key.
const _: () = {
    let mut i = 0;
    let mut end = 0;
    while i < SPANS.len() {
        let span = SPANS[i].1;
        assert!(span.offset >= end, "spans overlap or are out of order");
        end = span.offset + span.size;
        assert!((end - 1) / 64 == span.offset / 64, "a span crosses lines");
        i += 1;
    }
    assert!(end <= FLOW_KEY_SIZE);
};
