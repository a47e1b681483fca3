//! Dummy ports: devices without hardware, driven by control commands, as Open vSwitch's tests use them.
//!
//! A [`DummyDevice`] is the device. It receives what [`DummyDevice::receive`] queues or a peer sends over a stream, and
//! what it sends goes to the peers and into capture files. The port hands out queues that work on the shared device, all
//! under one lock: these ports are for tests, and their counters and captures must be exact rather than fast.
//!
//! | type | polled by |
//! |---|---|
//! | `dummy` | the main worker |
//! | `dummy-internal` | the main worker: the LOCAL port of a bridge |
//! | `dummy-pmd` | PMD threads; several queues |

mod device;
mod queue;
mod stream;

pub use device::{ConnState, DummyDevice};

use crate::config::{MAX_QUEUES, Options};
use crate::{DeviceStatus, OpenError, OptionKey, Pools, Port, PortConfig, PortInfo, PortStats, RxQueue, TxQueue};
use device::{Captures, Shape};
use queue::{DummyRx, DummyTx};
use sluice_mem::FramePool;
use std::io;
use std::sync::Arc;
use stream::Streams;

/// The options of the types `dummy` and `dummy-internal`.
pub(crate) const OPTIONS: &[OptionKey] = &[
    OptionKey { key: "pcap", help: "a capture file that what it receives and sends is appended to" },
    OptionKey { key: "rxq_pcap", help: "the same for what it receives" },
    OptionKey { key: "tx_pcap", help: "the same for what it sends" },
    OptionKey { key: "stream", help: "a peer to connect to: unix:FILE or tcp:ADDRESS:PORT" },
    OptionKey { key: "pstream", help: "where to listen for peers: punix:FILE or ptcp:PORT[:ADDRESS]" },
    OptionKey { key: "ifindex", help: "the index of the device in statuses" },
    OptionKey { key: "mac", help: "Ethernet address; default: aa:55 and a number that counts devices" },
];

/// The options of the type `dummy-pmd`.
pub(crate) const PMD_OPTIONS: &[OptionKey] = &[
    OPTIONS[0],
    OPTIONS[1],
    OPTIONS[2],
    OPTIONS[3],
    OPTIONS[4],
    OPTIONS[5],
    OPTIONS[6],
    OptionKey::N_RXQ,
    OptionKey { key: "n_txq", help: "transmit queues; default 1" },
    OptionKey { key: "numa_id", help: "the NUMA node of the device; default 0" },
];

/// The smallest frame buffer. Packets from commands may be longer than the MTU allows.
const FRAME_MIN: usize = 2048;

/// A dummy port.
struct DummyPort {
    device: Arc<DummyDevice>,
    pool: Arc<dyn FramePool>,
    /// As it was opened or changed last.
    config: PortConfig,
    notes: Vec<String>,
    /// The thread that serves the device's streams, if it has any. Ends with the port.
    streams: Option<Streams>,
}

/// Opens a port of type `dummy` or `dummy-internal`.
pub(crate) fn open(options: &Options<'_>, pools: &mut Pools) -> Result<Box<dyn Port>, OpenError> {
    open_device(options, pools, shape(options))
}

/// Opens a port of type `dummy-pmd`.
pub(crate) fn open_pmd(options: &Options<'_>, pools: &mut Pools) -> Result<Box<dyn Port>, OpenError> {
    open_device(options, pools, pmd_shape(options))
}

/// What the options say of a device that no PMD polls.
fn shape(options: &Options<'_>) -> Shape {
    Shape { n_rxq: 1, n_txq: 1, numa_id: 0, ifindex: number(options, "ifindex").unwrap_or(0), is_pmd: false }
}

/// What the options say of a device that PMDs poll.
fn pmd_shape(options: &Options<'_>) -> Shape {
    let queues = |key| (number(options, key).unwrap_or(1) as usize).clamp(1, MAX_QUEUES);
    Shape {
        n_rxq: options.config.n_rxq.clamp(1, MAX_QUEUES),
        n_txq: queues("n_txq"),
        numa_id: number(options, "numa_id").unwrap_or(0),
        is_pmd: true,
        ..shape(options)
    }
}

/// An option that is a number. As in OVS, what is no number counts as not given.
fn number(options: &Options<'_>, key: &'static str) -> Option<u32> {
    options.text(key).and_then(|text| text.parse().ok())
}

fn open_device(options: &Options<'_>, pools: &mut Pools, shape: Shape) -> Result<Box<dyn Port>, OpenError> {
    let PortConfig { mtu, .. } = *options.config;
    let given = options.text("mac").map(|_| options.mac()).transpose()?;
    let frame_size = crate::Mtu(mtu).longest_frame().max(FRAME_MIN);
    let pool = pools.of_size(frame_size).map_err(|cause| OpenError::Pool { port: options.port(), cause })?;
    let mut notes = Vec::new();
    let captures = Captures::open(options, &mut notes);
    let info = PortInfo {
        kind: options.kind,
        n_rxq: shape.n_rxq,
        n_txq: shape.n_txq,
        mtu,
        mac: given.unwrap_or_else(device::next_mac),
    };
    let device = DummyDevice::new(options.port(), &info, shape, captures);
    let device = Arc::new(device.map_err(|cause| out_of_descriptors(options, cause))?);
    let streams = Streams::start(options, &device, &mut notes).map_err(|cause| out_of_descriptors(options, cause))?;
    Ok(Box::new(DummyPort { device, pool, config: options.config.clone(), notes, streams }))
}

fn out_of_descriptors(options: &Options<'_>, cause: io::Error) -> OpenError {
    OpenError::Device {
        port: options.port(),
        what: "the dummy device cannot be made".to_owned(),
        cause,
        remedy: "raise the limit of open files",
    }
}

impl Port for DummyPort {
    fn info(&self) -> PortInfo {
        self.device.info()
    }

    fn rx_queue(&mut self, queue: usize) -> Box<dyn RxQueue> {
        Box::new(DummyRx::new(Arc::clone(&self.device), queue, Arc::clone(&self.pool)))
    }

    fn tx_queue(&mut self, pmd: usize) -> Box<dyn TxQueue> {
        Box::new(DummyTx::new(Arc::clone(&self.device), pmd))
    }

    fn numa_id(&self) -> u32 {
        self.device.shape().numa_id
    }

    fn is_up(&self) -> bool {
        self.device.is_up()
    }

    fn device_status(&self) -> DeviceStatus {
        DeviceStatus { ifindex: self.device.shape().ifindex, ..DeviceStatus::of_info(&self.info(), self.is_up()) }
    }

    fn set_mtu(&mut self, mtu: u32, _pools: &mut Pools) -> io::Result<()> {
        // Longer packets than its buffers hold need other ones.
        if crate::Mtu(mtu).longest_frame() > self.pool.frame_size() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.device.set_mtu(mtu);
        Ok(())
    }

    fn set_mac(&mut self, mac: [u8; 6]) -> io::Result<()> {
        self.device.set_mac(mac);
        Ok(())
    }

    fn reconfigure(&mut self, config: &PortConfig) -> io::Result<()> {
        let options = &Options { kind: self.info().kind, config };
        let differs = |keys: &[&str]| keys.iter().any(|key| config.options.get(*key) != self.config.options.get(*key));
        let (other_captures, other_streams) =
            (differs(&["pcap", "rxq_pcap", "tx_pcap"]), differs(&["stream", "pstream"]));
        if differs(&["mac"]) {
            self.device.set_mac(options.mac().map_err(io::Error::other)?);
        }
        self.notes.clear();
        self.device.set_shape(if self.device.shape().is_pmd { pmd_shape(options) } else { shape(options) })?;
        if other_captures {
            self.device.set_captures(Captures::open(options, &mut self.notes));
        }
        if other_streams {
            // The old socket has to go first: the new one may have its name.
            self.streams = None;
            self.streams = Streams::start(options, &self.device, &mut self.notes)?;
        }
        self.config = config.clone();
        Ok(())
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn stats(&self) -> PortStats {
        self.device.stats()
    }

    fn custom_stats(&self) -> Vec<(String, u64)> {
        self.device.custom_stats()
    }

    fn dummy(&self) -> Option<&Arc<DummyDevice>> {
        Some(&self.device)
    }
}

#[cfg(test)]
mod tests;
