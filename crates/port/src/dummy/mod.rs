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

use crate::config::Options;
use crate::{DeviceStatus, OpenError, OptionKey, Pools, Port, PortConfig, PortInfo, PortStats, RxQueue, TxQueue};
use device::{Captures, Shape};
use queue::{DummyRx, DummyTx};
use sluice_mem::FramePool;
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
    notes: Vec<String>,
    /// The thread that serves the device's streams, if it has any. Ends with the port.
    _streams: Option<Streams>,
}

/// Opens a port of type `dummy` or `dummy-internal`.
pub(crate) fn open(options: &Options<'_>, pools: &mut Pools) -> Result<Box<dyn Port>, OpenError> {
    let ifindex = ifindex(options);
    open_device(options, pools, Shape { n_rxq: 1, n_txq: 1, numa_id: 0, ifindex, is_pmd: false })
}

/// Opens a port of type `dummy-pmd`.
pub(crate) fn open_pmd(options: &Options<'_>, pools: &mut Pools) -> Result<Box<dyn Port>, OpenError> {
    // As OVS: what is no number counts as not given.
    let number = |key| options.text(key).and_then(|text| text.parse::<u32>().ok());
    let queues = |key| (number(key).unwrap_or(1) as usize).clamp(1, crate::config::MAX_QUEUES);
    let shape = Shape {
        n_rxq: options.config.n_rxq,
        n_txq: queues("n_txq"),
        numa_id: number("numa_id").unwrap_or(0),
        ifindex: ifindex(options),
        is_pmd: true,
    };
    open_device(options, pools, shape)
}

fn ifindex(options: &Options<'_>) -> u32 {
    options.text("ifindex").and_then(|text| text.parse().ok()).unwrap_or(0)
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
    let device = DummyDevice::new(options.port(), info, &shape, captures);
    let device = Arc::new(device.map_err(|cause| out_of_descriptors(options, cause))?);
    let streams = Streams::start(options, &device, &mut notes).map_err(|cause| out_of_descriptors(options, cause))?;
    Ok(Box::new(DummyPort { device, pool, notes, _streams: streams }))
}

fn out_of_descriptors(options: &Options<'_>, cause: std::io::Error) -> OpenError {
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
        Box::new(DummyTx::new(Arc::clone(&self.device), pmd % self.device.info().n_txq))
    }

    fn numa_id(&self) -> u32 {
        self.device.numa_id()
    }

    fn is_up(&self) -> bool {
        self.device.is_up()
    }

    fn device_status(&self) -> DeviceStatus {
        DeviceStatus { ifindex: self.device.ifindex, ..DeviceStatus::of_info(&self.info(), self.is_up()) }
    }

    fn set_mtu(&mut self, mtu: u32, _pools: &mut Pools) -> std::io::Result<()> {
        // Longer packets than its buffers hold need other ones.
        if crate::Mtu(mtu).longest_frame() > self.pool.frame_size() {
            return Err(std::io::ErrorKind::Unsupported.into());
        }
        self.device.set_mtu(mtu);
        Ok(())
    }

    fn set_mac(&mut self, mac: [u8; 6]) -> std::io::Result<()> {
        self.device.set_mac(mac);
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
