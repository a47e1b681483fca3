//! vhost-user ports: a virtual machine's network device, of which this port is the back end.
//!
//! The frontend (a hypervisor, or DPDK's virtio-user) shares its memory and its rings over a Unix socket. The `vhost`
//! crate speaks that protocol on a thread of the port, and PMDs work on the rings. As a client the port connects to the
//! frontend's socket, repeatedly until one listens; as a server it listens. Either side may disconnect and come back;
//! the port is down meanwhile.
//!
//! The guest may change its memory at any time, so everything is copied before it is examined. One case has no defence:
//! a frontend that truncates its memory file while it is shared kills every process that accesses the memory, including
//! ours.

mod device;
mod link;
mod queue;
mod ring;

use crate::OptionKey;
use crate::config::Options;
use crate::stats::{self, QueueStats};
use crate::{Mtu, OpenError, Pools, Port, PortConfig, PortInfo, PortStats, RxQueue, TxQueue};
use device::RingSlot;
use link::{Link, Side};
use queue::{GuestReceive, GuestTransmit, Rings};
use sluice_mem::FramePool;
use std::path::PathBuf;
use std::sync::Arc;

/// The options of this type.
pub(crate) const OPTIONS: &[OptionKey] = &[
    OptionKey { key: "path", help: "the Unix socket" },
    OptionKey { key: "mode", help: "client (default): the frontend listens, we connect; server: we listen" },
    OptionKey::MAC,
];

/// The options of OVS's type that connects.
pub(crate) const CLIENT_OPTIONS: &[OptionKey] =
    &[OptionKey { key: "vhost-server-path", help: "the Unix socket" }, OptionKey::N_RXQ, OptionKey::MAC];

/// A virtual machine's network device.
#[derive(Debug)]
struct VhostUserPort {
    info: PortInfo,
    rings: Rings,
    pool: Arc<dyn FramePool>,
    rx: Vec<Arc<QueueStats>>,
    tx: Vec<Arc<QueueStats>>,
    link: Link,
}

pub(crate) fn open(options: &Options<'_>, pools: &mut Pools) -> Result<Box<dyn Port>, OpenError> {
    let path = required_path(options, "path")?;
    let side = options.parse("mode", "client or server", |text| match text {
        "client" => Some(Side::Client),
        "server" => Some(Side::Server),
        _ => None,
    })?;
    meet(options, pools, path, side.unwrap_or(Side::Client))
}

/// Opens a port of OVS that connects to the frontend.
pub(crate) fn open_client(options: &Options<'_>, pools: &mut Pools) -> Result<Box<dyn Port>, OpenError> {
    meet(options, pools, required_path(options, "vhost-server-path")?, Side::Client)
}

/// Opens a port of OVS that listens, at a socket named like the port.
pub(crate) fn open_server(options: &Options<'_>, pools: &mut Pools) -> Result<Box<dyn Port>, OpenError> {
    let PortConfig { base_dir, name, .. } = options.config;
    meet(options, pools, base_dir.join(name), Side::Server)
}

fn required_path(options: &Options<'_>, key: &'static str) -> Result<PathBuf, OpenError> {
    let (port, kind) = (options.port(), options.kind);
    let expected = "the Unix socket to meet the frontend at, such as /run/vm1.sock";
    options.path(key).ok_or(OpenError::MissingOption { port, kind, key, expected })
}

/// A port that meets its frontend at `path`.
fn meet(options: &Options<'_>, pools: &mut Pools, path: PathBuf, side: Side) -> Result<Box<dyn Port>, OpenError> {
    let PortConfig { n_rxq, mtu, .. } = *options.config;
    let pool = options.pool(pools)?;
    let rings: Rings = (0..n_rxq * 2).map(|_| RingSlot::default()).collect();
    let link = Link::start(&options.config.name, path.clone(), side, rings.clone());
    let link = link.map_err(|cause| OpenError::Device {
        port: options.port(),
        what: format!("cannot listen at {}", path.display()),
        cause,
        remedy: "choose a path in a directory you may write to, where no other process listens",
    })?;
    let info = PortInfo { kind: options.kind, n_rxq, n_txq: n_rxq, mtu, mac: options.mac()? };
    Ok(Box::new(VhostUserPort { info, rings, pool, rx: Vec::new(), tx: Vec::new(), link }))
}

impl Port for VhostUserPort {
    fn info(&self) -> PortInfo {
        self.info.clone()
    }

    fn rx_queue(&mut self, queue: usize) -> Box<dyn RxQueue> {
        let stats = Arc::new(QueueStats::default());
        self.rx.push(stats.clone());
        Box::new(GuestTransmit::new(self.rings.clone(), queue * 2 + 1, self.pool.clone(), Mtu(self.info.mtu), stats))
    }

    fn tx_queue(&mut self, pmd: usize) -> Box<dyn TxQueue> {
        let stats = Arc::new(QueueStats::default());
        self.tx.push(stats.clone());
        let queue = pmd % self.info.n_txq;
        Box::new(GuestReceive::new(self.rings.clone(), queue * 2, Mtu(self.info.mtu), stats))
    }

    fn is_up(&self) -> bool {
        self.link.is_connected() && self.rings.iter().take(2).all(|slot| slot.lock().ring.is_some())
    }

    fn stats(&self) -> PortStats {
        stats::total(self.rx.iter().map(Arc::as_ref), self.tx.iter().map(Arc::as_ref))
    }
}
