//! vhost-user ports: a virtual machine's network device, of which this port is the back end.
//!
//! The frontend (a hypervisor, or DPDK's virtio-user) shares its memory and its rings over a Unix socket. The `vhost`
//! crate speaks that protocol on a thread of the port, and PMDs work on the rings. As a client the port connects to the
//! frontend's socket, repeatedly until one listens; as a server it listens. Either side may disconnect and come back;
//! the port is down meanwhile.
//!
//! A poll or a batch works on one burst: descriptors are read and prefetched together, each packet is copied once,
//! and one store shows the guest all that was used. A region of memory is mapped once and resolved with two
//! comparisons. What nearly every packet is (one buffer, or a header and one buffer; nothing left to do) takes a way
//! without loops; all else takes the general one. So 64 bytes cost 263 instructions to receive and 242 to send, and
//! 2.4 and 2.3 cache lines, of which two are the guest's buffer
//! (`benches/record/epyc-avx512-2vcpu-kvm/2026-11-22-vhost-rings.txt`).
//!
//! Rings are split or packed, as the guest negotiates. What receives and sends does not know the format. A frontend that
//! keeps a buffer for it gets records of the chains in flight, so that a switch that is killed has a successor that loses
//! none ([`ring::RecordedRing`]); guests of others pay nothing for that.
//!
//! Work is bounded, whatever a guest writes: chains and bursts have a most of descriptors, and what no driver does
//! breaks the ring, which then rests until it is set up again. Tests count that work and not its time.
//!
//! The guest may change its memory at any time, so everything is copied before it is examined. One case has no defence:
//! a frontend that truncates its memory file while it is shared kills every process that accesses the memory, including
//! ours.
//!
//! | module | what it has |
//! |---|---|
//! | [`link`] | the socket, and the thread that serves it |
//! | [`request`] | requests that the `vhost` crate does not take |
//! | [`send_rarp`] | a guest that has migrated, announced |
//! | [`device`] | what the frontend configured |
//! | [`slot`] | a ring as that thread and a PMD share it |
//! | [`memory`] | the guest's memory: mapped, resolved, copied, logged |
//! | [`ring`] | rings, a burst at a time |
//! | [`inflight_buffer`] | where chains are recorded while they are in flight |
//! | [`guest_transmit`], [`guest_receive`] | packets from and to the guest |

mod device;
mod feature;
mod guest_receive;
mod guest_transmit;
mod inflight_buffer;
mod link;
mod memory;
mod request;
mod ring;
mod send_rarp;
mod slot;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod work;

use crate::OptionKey;
use crate::config::Options;
use crate::stats::{self, QueueStats};
use crate::{DeviceStatus, Mtu, OpenError, PORT_TYPES, Pools, Port, PortConfig, PortInfo, PortStats, RxQueue, TxQueue};
use device::{DeviceReport, Offer};
use feature::Features;
use guest_receive::GuestReceive;
use guest_transmit::GuestTransmit;
use link::{Link, Side, SocketAccess};
use nix::unistd::{Group, User};
use slot::RingSlot;
use sluice_fate::DropReason;
use sluice_mem::FramePool;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The options of this type.
pub(crate) const OPTIONS: &[OptionKey] = &[
    OptionKey { key: "path", help: "the Unix socket" },
    OptionKey { key: "mode", help: "client (default): the frontend listens, we connect; server: we listen" },
    OptionKey { key: SOCKET_MODE, help: "a server's socket: its mode; default 0600, and 0660 with socket-group" },
    OptionKey { key: SOCKET_GROUP, help: "a server's socket: its group, by name or number, such as kvm" },
    OptionKey {
        key: SOCKET_USER,
        help: "a server's socket: its owner, by name or number, such as libvirt-qemu; takes root",
    },
    TX_RETRIES_MAX,
    GUEST_TSO,
    OptionKey::MAC,
];

/// The options of OVS's type that connects.
pub(crate) const CLIENT_OPTIONS: &[OptionKey] = &[
    OptionKey { key: "vhost-server-path", help: "the Unix socket" },
    TX_RETRIES_MAX,
    GUEST_TSO,
    OptionKey::N_RXQ,
    OptionKey::MAC,
];

/// The options that say who may connect to a socket that we listen on.
const SOCKET_MODE: &str = "socket-mode";
const SOCKET_GROUP: &str = "socket-group";
const SOCKET_USER: &str = "socket-user";

const TX_RETRIES_MAX: OptionKey = OptionKey {
    key: "tx-retries-max",
    help: "how often the rest of a batch is tried again while the guest's ring is full: 0 to 32; default 8",
};

const GUEST_TSO: OptionKey = OptionKey {
    key: "guest-tso",
    help: "whether the guest may take TCP segments merged into one frame; default true; false for guests that forward or \
           use XDP",
};

/// Bounds of the option `tx-retries-max`, and its default. Source: Open vSwitch lib/netdev-dpdk.c,
/// `VHOST_ENQ_RETRY_MAX`, `VHOST_ENQ_RETRY_DEF`.
const RETRIES: std::ops::RangeInclusive<u8> = 0..=32;
const DEFAULT_RETRIES: u8 = 8;

/// The options of OVS's type that listens.
pub(crate) const SERVER_OPTIONS: &[OptionKey] = &[
    OptionKey { key: SOCKET_DIR, help: "the folder of the Unix socket; default: that of the configuration file" },
    TX_RETRIES_MAX,
    GUEST_TSO,
    OptionKey::N_RXQ,
    OptionKey::MAC,
];

/// The option that says where the sockets of listening ports of OVS's are.
pub const SOCKET_DIR: &str = "vhost-sock-dir";

/// A virtual machine's network device.
#[derive(Debug)]
struct VhostUserPort {
    /// As it was opened or changed last.
    config: PortConfig,
    info: PortInfo,
    offer: Offer,
    pool: Arc<dyn FramePool>,
    rx: Vec<Arc<QueueStats>>,
    tx: Vec<Arc<QueueStats>>,
    link: Link,
    side: Side,
    path: PathBuf,
    /// How often the rest of a batch to the guest is tried again.
    retries_max: Arc<AtomicU8>,
    /// Whether commands have left it up.
    is_admin_up: bool,
    /// Calls of `service` until another breach of the guest's is logged.
    calls_until_warning: u32,
}

/// Calls of `service` between two warnings about breaches of the guest's: about a minute.
const WARN_EVERY_CALLS: u32 = 60;

pub(crate) fn check_options(options: &Options<'_>) -> Result<(), OpenError> {
    required_path(options, "path")?;
    side_and_access(options)?;
    features(options)?;
    retries_max(options).map(drop)
}

pub(crate) fn open(options: &Options<'_>, pools: &mut Pools) -> Result<Box<dyn Port>, OpenError> {
    let path = required_path(options, "path")?;
    let (side, access) = side_and_access(options)?;
    meet(options, pools, path, side, access)
}

/// Which side of the socket the port is, and who may connect to it.
fn side_and_access(options: &Options<'_>) -> Result<(Side, SocketAccess), OpenError> {
    let side = options.parse("mode", "client or server", |text| match text {
        "client" => Some(Side::Client),
        "server" => Some(Side::Server),
        _ => None,
    })?;
    let side = side.unwrap_or(Side::Client);
    let access = socket_access(options)?;
    if side == Side::Client
        && let Some(key) = [SOCKET_MODE, SOCKET_GROUP, SOCKET_USER].into_iter().find(|key| options.text(key).is_some())
    {
        return Err(options.bad(
            key,
            options.text(key).unwrap_or_default(),
            "mode = \"server\" with it: the frontend makes its own socket",
        ));
    }
    Ok((side, access))
}

/// Who may connect to a socket that we listen on.
fn socket_access(options: &Options<'_>) -> Result<SocketAccess, OpenError> {
    let user = |name: &str| User::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
    let group = |name: &str| Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw());
    let number = |text: &str| text.parse().ok();
    let owner = options.parse(SOCKET_USER, "a user of this machine", |text| user(text).or_else(|| number(text)))?;
    let group = options.parse(SOCKET_GROUP, "a group of this machine", |text| group(text).or_else(|| number(text)))?;
    let mode = options.parse(SOCKET_MODE, "octal digits, as in \"0660\"", |text| {
        u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777)
    })?;
    Ok(SocketAccess { owner, group, mode: mode.unwrap_or(if group.is_some() { 0o660 } else { 0o600 }) })
}

/// Opens a port of OVS that connects to the frontend.
pub(crate) fn open_client(options: &Options<'_>, pools: &mut Pools) -> Result<Box<dyn Port>, OpenError> {
    meet(options, pools, required_path(options, "vhost-server-path")?, Side::Client, SocketAccess::default())
}

/// Opens a port of OVS that listens, at a socket named like the port.
pub(crate) fn open_server(options: &Options<'_>, pools: &mut Pools) -> Result<Box<dyn Port>, OpenError> {
    let PortConfig { base_dir, name, .. } = options.config;
    let path = options.path(SOCKET_DIR).unwrap_or_else(|| base_dir.clone()).join(name);
    meet(options, pools, path, Side::Server, SocketAccess::default())
}

/// How often the rest of a batch is tried again. As in OVS, its types take a value that is none for the default.
fn retries_max(options: &Options<'_>) -> Result<u8, OpenError> {
    let parse = |text: &str| text.parse().ok().filter(|n| RETRIES.contains(n));
    let given = options.parse(TX_RETRIES_MAX.key, "a number from 0 to 32", parse);
    let is_of_ovs = PORT_TYPES.iter().any(|kind| kind.name == options.kind && kind.ignores_other_options);
    Ok(if is_of_ovs { given.unwrap_or(None) } else { given? }.unwrap_or(DEFAULT_RETRIES))
}

/// The features that the guest may choose from.
fn features(options: &Options<'_>) -> Result<Features, OpenError> {
    let takes_gso = options.flag(GUEST_TSO.key)?.unwrap_or(true);
    Ok(if takes_gso { Features::OFFERED } else { Features::OFFERED.without(Features::GUEST_TSO) })
}

fn required_path(options: &Options<'_>, key: &'static str) -> Result<PathBuf, OpenError> {
    let (port, kind) = (options.port(), options.kind);
    let expected = "the Unix socket to meet the frontend at, such as /run/vm1.sock";
    options.path(key).ok_or(OpenError::MissingOption { port, kind, key, expected })
}

/// The options that name the socket.
const PATH_KEYS: [&str; 2] = ["path", "vhost-server-path"];

/// The configuration as far as it cannot change while the port is open.
fn without_changeable(config: &PortConfig) -> PortConfig {
    let mut config = config.clone();
    config.options.remove(TX_RETRIES_MAX.key);
    for key in PATH_KEYS {
        // A port that has a path keeps one.
        config.options.entry(key.to_owned()).and_modify(String::clear);
    }
    config
}

/// A port that meets its frontend at `path`.
fn meet(
    options: &Options<'_>,
    pools: &mut Pools,
    path: PathBuf,
    side: Side,
    access: SocketAccess,
) -> Result<Box<dyn Port>, OpenError> {
    let PortConfig { n_rxq, mtu, .. } = *options.config;
    let (pool, retries_max) = (options.pool_for_copies(pools)?, AtomicU8::new(retries_max(options)?));
    let rings = (0..n_rxq * 2).map(|_| Arc::new(RingSlot::default())).collect();
    let offer = Offer { rings, features: features(options)? };
    let link = Link::start(&options.config.name, path.clone(), side, access, offer.clone());
    let link = link.map_err(|cause| OpenError::Device {
        port: options.port(),
        what: format!("cannot listen at {}", path.display()),
        cause,
        remedy: "choose a path in a directory you may write to, where no other process listens; only root gives a socket \
                 away, so such a port is opened at the start",
    })?;
    let info = PortInfo { kind: options.kind, n_rxq, n_txq: n_rxq, mtu, mac: options.mac()? };
    let config = options.config.clone();
    let (rx, tx) = (Vec::new(), Vec::new());
    Ok(Box::new(VhostUserPort {
        config,
        info,
        offer,
        pool,
        rx,
        tx,
        link,
        side,
        path,
        retries_max: retries_max.into(),
        is_admin_up: true,
        calls_until_warning: 0,
    }))
}

impl Port for VhostUserPort {
    fn info(&self) -> PortInfo {
        self.info.clone()
    }

    fn rx_queue(&mut self, queue: usize) -> Box<dyn RxQueue> {
        let stats = Arc::new(QueueStats::default());
        self.rx.push(stats.clone());
        Box::new(GuestTransmit::new(
            self.offer.rings[queue * 2 + 1].clone(),
            self.pool.clone(),
            Mtu(self.info.mtu),
            stats,
        ))
    }

    fn tx_queue(&mut self, pmd: usize) -> Box<dyn TxQueue> {
        let stats = Arc::new(QueueStats::default());
        self.tx.push(stats.clone());
        let queue = pmd % self.info.n_txq;
        Box::new(GuestReceive::new(
            self.offer.rings[queue * 2].clone(),
            Mtu(self.info.mtu),
            self.retries_max.clone(),
            stats,
        ))
    }

    fn is_up(&self) -> bool {
        self.is_admin_up && self.link.is_connected() && self.offer.rings.iter().take(2).all(|slot| slot.is_running())
    }

    /// Its details are those of Open vSwitch. Source: lib/netdev-dpdk.c, `netdev_dpdk_vhost_user_get_status`.
    fn device_status(&self) -> DeviceStatus {
        let mode = if self.side == Side::Client { "client" } else { "server" };
        let mut details = vec![("mode".to_owned(), mode.to_owned())];
        let mut add = |key: &str, value: String| details.push((key.to_owned(), value));
        match self.link.device_report() {
            None => add("status", "disconnected".to_owned()),
            Some(DeviceReport { features, ring_sizes }) => {
                add("status", "connected".to_owned());
                add("socket", self.path.display().to_string());
                add("features", format!("{features:#018x}"));
                add("num_of_vrings", ring_sizes.len().to_string());
                for (number, size) in ring_sizes.iter().enumerate() {
                    add(&format!("vring_{number}_size"), size.to_string());
                }
            }
        }
        DeviceStatus { details, is_admin_up: self.is_admin_up, ..DeviceStatus::of_info(&self.info(), self.is_up()) }
    }

    fn set_admin_state(&mut self, is_up: bool) -> io::Result<()> {
        self.is_admin_up = is_up;
        self.offer.rings.iter().for_each(|slot| slot.set_admin_state(is_up));
        Ok(())
    }

    fn mempool_info(&self) -> Option<String> {
        self.pool.dump()
    }

    /// Batches are tried again as often as it says now, and a client that no frontend is connected to looks for one
    /// elsewhere.
    fn reconfigure(&mut self, config: &PortConfig) -> io::Result<()> {
        let options = Options { kind: self.info.kind, config };
        if without_changeable(config) != without_changeable(&self.config) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let retries_max = retries_max(&options).map_err(|_| io::ErrorKind::Unsupported)?;
        let path = PATH_KEYS.into_iter().find_map(|key| options.path(key));
        if let Some(path) = path.filter(|path| *path != self.path) {
            if self.side != Side::Client || self.link.is_connected() {
                return Err(io::ErrorKind::Unsupported.into());
            }
            // Two links would both set up the rings.
            self.link.end();
            self.link =
                Link::start(&config.name, path.clone(), Side::Client, SocketAccess::default(), self.offer.clone())?;
            self.path = path;
        }
        if self.retries_max.swap(retries_max, Relaxed) != retries_max {
            let name = &config.name;
            tracing::info!(target: "netdev_dpdk", "Max Tx retries for vhost device '{name}' set to {retries_max}");
        }
        self.config = config.clone();
        Ok(())
    }

    fn service(&mut self) {
        self.calls_until_warning = self.calls_until_warning.saturating_sub(1);
        for (number, slot) in self.offer.rings.iter().enumerate() {
            let name = &self.config.name;
            let broken = slot.take_broken();
            let blocks = slot.call().is_some_and(|call| call.forbid_if_blocking());
            if self.calls_until_warning > 0 || broken.is_none() && !blocks {
                continue;
            }
            self.calls_until_warning = WARN_EVERY_CALLS;
            if let Some(why) = broken {
                tracing::warn!(
                    "port {name}: the guest broke its ring {number}: {why}; it rests until it is set up again"
                );
            }
            if blocks {
                tracing::warn!(
                    "port {name}: ring {number}: the guest let its call descriptor block; it gets no more calls"
                );
            }
        }
    }

    fn stats(&self) -> PortStats {
        stats::total(self.rx.iter().map(Arc::as_ref), self.tx.iter().map(Arc::as_ref))
    }

    /// Those of Open vSwitch that count here. Source: lib/netdev-dpdk.c, `netdev_dpdk_get_sw_custom_stats`.
    fn custom_stats(&self) -> Vec<(String, u64)> {
        let drops = self.stats().tx_drops;
        let retries = self.tx.iter().map(|queue| queue.retries()).sum();
        let counters = [
            ("ovs_tx_retries", retries),
            ("ovs_tx_failure_drops", drops[DropReason::TxFull as usize]),
            ("ovs_tx_mtu_exceeded_drops", drops[DropReason::TxOversize as usize]),
        ];
        counters.map(|(name, n)| (name.to_owned(), n)).into()
    }
}
