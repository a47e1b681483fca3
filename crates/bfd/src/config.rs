//! What a session is asked for.

use std::net::Ipv4Addr;

/// Lost packets that take a session down, by default.
pub const DEFAULT_MULT: u8 = 3;

/// The addresses of control packets, by default: they stay within a tunnel or link. Source: Open vSwitch,
/// `BFD_DEFAULT_SRC_IP`, `BFD_DEFAULT_DST_IP`.
pub const DEFAULT_SRC_IP: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// See [`DEFAULT_SRC_IP`].
pub const DEFAULT_DST_IP: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 0);

/// The configuration of a session; the fields are the keys of `Interface:bfd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The other end's session goes down when this number of packets in a row are lost.
    pub mult: u8,
    /// Packets are sent no more often than that, ms.
    pub min_tx_ms: u32,
    /// Packets are taken no more often than that, ms.
    pub min_rx_ms: u32,
    /// `min_rx_ms` while the port carries nothing else, ms; 0: always `min_rx_ms`.
    pub decay_min_rx_ms: u32,
    /// Whether received traffic, too, shows that the port forwards.
    pub forwarding_if_rx: bool,
    /// Whether the other end is told that what lies behind this end is down.
    pub cpath_down: bool,
    /// Whether packets of tunnels with a key other than 0 are left alone.
    pub check_tnl_key: bool,
    /// Whether a tunnel's header has the flag that says so (OAM).
    pub oam: bool,
    /// `bfd_src_ip`.
    pub src_ip: Ipv4Addr,
    /// `bfd_dst_ip`.
    pub dst_ip: Ipv4Addr,
    /// `bfd_local_src_mac`, otherwise the port's.
    pub local_src_mac: Option<[u8; 6]>,
    /// `bfd_local_dst_mac`, otherwise that of Open vSwitch's BFD.
    pub local_dst_mac: Option<[u8; 6]>,
    /// `bfd_remote_dst_mac`: only packets to it are taken.
    pub remote_dst_mac: Option<[u8; 6]>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            mult: DEFAULT_MULT,
            min_tx_ms: 100,
            min_rx_ms: 1000,
            decay_min_rx_ms: 0,
            forwarding_if_rx: false,
            cpath_down: false,
            check_tnl_key: false,
            oam: false,
            src_ip: DEFAULT_SRC_IP,
            dst_ip: DEFAULT_DST_IP,
            local_src_mac: None,
            local_dst_mac: None,
            remote_dst_mac: None,
        }
    }
}

impl Config {
    /// `decay_min_rx_ms`, unless it is less than `min_rx_ms`: then there is no decay.
    pub(crate) fn decay_ms(&self) -> u64 {
        let is_set = self.decay_min_rx_ms >= self.min_rx_ms;
        if is_set { self.decay_min_rx_ms.into() } else { 0 }
    }
}
