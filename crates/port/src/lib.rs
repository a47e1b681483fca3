//! Ports: where packets come from and go to.
//!
//! A [`Port`] is the control side: what it is, whether it is up, what it has counted. It gives out [`RxQueue`]s, each
//! polled by exactly one PMD, and [`TxQueue`]s, one for each PMD. Queues are called once a batch.
//!
//! [`open`] makes a port from its configuration; each type ("back end") is a module:
//!
//! | type | module | receives | sends |
//! |---|---|---|---|
//! | `generator` | [`generator`] | made-up traffic | swallows and counts |
//! | `null` | [`null`] | nothing | swallows and counts |
//! | `pcap` | [`pcap`] | what a capture holds, once or for ever | writes a capture |
//! | `tap` | `tap` | what the kernel sends through its device | the same way back |
//! | `af_packet` | `af_packet` | from a kernel device, one copy | likewise |
//! | `af_xdp` | `af_xdp` | from a kernel device, into its frames | from the same frames, without a copy |
//! | `vhost-user` | `vhost_user` | from a virtual machine's rings, one copy | likewise |
//! | `dpdk` | `dpdk` (feature `dpdk`) | any DPDK device, in its mbufs | the same |
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod af_packet;
#[allow(unsafe_code)]
mod af_xdp;
mod config;
#[cfg(feature = "dpdk")]
#[allow(unsafe_code)]
mod dpdk;
mod error;
pub mod generator;
mod mtu;
#[allow(unsafe_code)]
mod netdev;
#[cfg(not(feature = "dpdk"))]
mod no_dpdk;
pub mod null;
pub mod offload;
mod pace;
pub mod pcap;
mod pools;
mod queue;
mod rss;
mod stats;
mod tap;
#[allow(unsafe_code)]
mod user;
mod vhost_user;

pub use config::{OptionKey, PORT_TYPES, PortConfig, PortType, open};
pub use error::OpenError;
pub use mtu::Mtu;
pub use pools::{DpdkConfig, Pools};
pub use queue::{Port, PortInfo, PortStats, RxQueue, TxQueue};
pub use rss::{rss_hash, rss_queue};
pub use user::become_user;
