//! A port of type vhost-user, open, and its guest.

use super::Guest;
use sluice_fate::Tally;
use sluice_mem::FramePool;
use sluice_packet::Buffers;
use sluice_port::{Pools, Port, PortConfig, RxQueue, TxQueue, open};
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;

/// A port with one queue in each direction, its guest, and what a thread needs to use the queues.
pub struct GuestPort {
    /// The guest.
    pub guest: Guest,
    /// What the guest sends.
    pub rx: Box<dyn RxQueue>,
    /// What the guest receives.
    pub tx: Box<dyn TxQueue>,
    /// The port.
    pub port: Box<dyn Port>,
    /// Its socket.
    pub path: PathBuf,
    /// Its pool.
    pub pool: Arc<dyn FramePool>,
    /// The thread's buffers.
    pub buffers: Buffers,
    /// The thread's counters.
    pub tally: Tally,
    _dir: TempDir,
}

impl GuestPort {
    /// Opens a port. The guest has negotiated `features`, and its rings of `size` entries run.
    pub fn open(pools: &mut Pools, features: u64, size: u16) -> Self {
        let dir = tempfile::tempdir().expect("a folder for the socket");
        let path = dir.path().join("vm.sock");
        let options =
            [("path".to_owned(), path.display().to_string()), ("mode".to_owned(), "server".to_owned())].into();
        let config = PortConfig { name: "vm1".into(), kind: "vhost-user".into(), options, ..PortConfig::default() };
        let mut port = open(&config, pools).expect("a port that listens");
        let mut guest = Guest::connect(&path, features, size);
        (0..2).for_each(|ring| guest.start(ring, guest.base(ring)));
        // The port has done what it was told when it answers.
        guest.offered_features();
        let (rx, tx) = (port.rx_queue(0), port.tx_queue(0));
        let pool = pools.of_size(1500).expect("the port's pool");
        GuestPort { guest, rx, tx, port, path, pool, buffers: Buffers::new(), tally: Tally::default(), _dir: dir }
    }

    /// Closes the port, and checks that every packet has its fate and every frame is back.
    pub fn end(self) {
        let GuestPort { guest, rx, tx, port, pool, mut buffers, tally, .. } = self;
        assert_eq!(tally.conserved(), Ok(()));
        drop((port, rx, tx, guest));
        buffers.flush();
        assert_eq!(pool.available(), pool.capacity(), "a frame is lost");
    }
}
