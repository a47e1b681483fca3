//! Ports: where packets come from and go to.
//!
//! A [`Port`] is the control side: what the port is, whether it is up, its statistics. It provides [`RxQueue`]s, each
//! polled by exactly one PMD, and [`TxQueue`]s, one for each PMD. Queues are called once a batch, and work in place: a
//! received packet is a frame of a pool (`sluice-mem`), and a frame of the device's own pool is sent without a copy.
//! Ports with frames of the same length share a pool ([`Pools`]), so packets cross between them without a copy.
//!
//! A port whose device disappears stays: it is down, and [`Port::service`] opens the device again when it is back.
//!
//! [`open`] makes a port from its configuration. Each type is a module:
//!
//! | type | module | receives | sends |
//! |---|---|---|---|
//! | `generator` | [`generator`] | generated traffic | discards and counts |
//! | `null` | [`null`] | nothing | discards and counts |
//! | `pcap` | [`pcap`] | the packets of a capture, once or in a loop | writes a capture |
//! | `tap` | `tap` | what the kernel sends through its device | to the kernel |
//! | `af_packet` | `af_packet` | from a kernel device, one copy | likewise |
//! | `af_xdp` | `af_xdp` | from a kernel device, into its frames | from the same frames, without a copy |
//! | `vhost-user` | `vhost_user` | from a virtual machine's rings, one copy | likewise |
//! | `dpdk` | `dpdk` (feature `dpdk`) | any DPDK device, in its mbufs | likewise |
//! | `dummy`, `dummy-internal`, `dummy-pmd` | [`dummy`] | what commands and peers of its streams send | to peers and captures |
//!
//! Open vSwitch's names stand for the same implementations: `system` (`af_packet`), `internal` (`tap`), `afxdp`,
//! `dpdkvhostuser`, `dpdkvhostuserclient` (`vhost-user`).
//!
//! A PMD must poll most queues again and again. A queue on a descriptor of the kernel names it
//! ([`RxQueue::readiness`]), so that a thread can sleep until there is a packet.
//!
//! `unsafe` is allowed in the `sys` modules only, which wrap the kernel's, the C library's and DPDK's interfaces.
#![deny(unsafe_code)]

mod af_packet;
mod af_xdp;
mod bpf;
mod config;
mod device_status;
#[cfg(feature = "dpdk")]
mod dpdk;
pub mod dpdk_environment;
pub mod dummy;
mod error;
pub mod generator;
mod gro;
mod mtu;
mod netdev;
#[cfg(not(feature = "dpdk"))]
mod no_dpdk;
pub mod null;
pub mod offload;
mod pace;
pub mod pcap;
mod pools;
mod port_type;
mod queue;
mod rss;
mod stats;
mod tap;
mod tx_steering;
mod user;
mod vhost_user;

pub use config::{MAX_QUEUES, PortConfig, check, open, reconfigure};
pub use device_status::DeviceStatus;
pub use error::OpenError;
pub use mtu::Mtu;
pub use netdev::{
    KernelRoute, LinkChanges, LinkMonitor, NextHop, ROUTES_MAX, RouteMonitor, device_addresses, kernel_routes,
    neighbour_mac, next_hop,
};
pub use pools::{DpdkConfig, Pools};
pub use port_type::{OptionKey, PORT_TYPES, PortType, missing_from_build};
pub use queue::{Port, PortInfo, PortStats, RxQueue, TxQueue};
pub use rss::{rss_hash, rss_queue};
pub use tx_steering::TxSteering;
pub use user::become_user;
pub use vhost_user::SOCKET_DIR as VHOST_SOCKET_DIR;
