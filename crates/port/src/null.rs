//! The null port: discards and counts what is sent to it, and receives nothing.
//!
//! With a generator on the other side it shows the cost of the switch itself.

use crate::OptionKey;
use crate::config::{MAX_QUEUES, Options};
use crate::stats::{self, QueueStats};
use crate::{Mtu, OpenError, Pools, Port, PortConfig, PortInfo, PortStats, RxQueue, TxQueue};
use sluice_fate::{Counter, DropReason, Tally};
use sluice_packet::{Buffers, PacketBatch};
use std::sync::Arc;

/// The options of this type.
pub(crate) const OPTIONS: &[OptionKey] = &[OptionKey::MAC];

/// A null port.
#[derive(Debug)]
struct NullPort {
    info: PortInfo,
    tx: Vec<Arc<QueueStats>>,
}

pub(crate) fn check_options(options: &Options<'_>) -> Result<(), OpenError> {
    options.mac().map(drop)
}

pub(crate) fn open(options: &Options<'_>, _pools: &mut Pools) -> Result<Box<dyn Port>, OpenError> {
    let PortConfig { n_rxq, mtu, .. } = *options.config;
    let info = PortInfo { kind: "null", n_rxq, n_txq: MAX_QUEUES, mtu, mac: options.mac()? };
    Ok(Box::new(NullPort { info, tx: Vec::new() }))
}

impl Port for NullPort {
    fn info(&self) -> PortInfo {
        self.info.clone()
    }

    fn rx_queue(&mut self, _queue: usize) -> Box<dyn RxQueue> {
        Box::new(NullRxq)
    }

    fn tx_queue(&mut self, _pmd: usize) -> Box<dyn TxQueue> {
        let stats = Arc::new(QueueStats::default());
        self.tx.push(Arc::clone(&stats));
        Box::new(NullTxq { stats, mtu: Mtu(self.info.mtu) })
    }

    fn stats(&self) -> PortStats {
        stats::total([], self.tx.iter().map(Arc::as_ref))
    }
}

/// A receive queue without packets.
#[derive(Debug)]
struct NullRxq;

impl RxQueue for NullRxq {
    fn poll(&mut self, _batch: &mut PacketBatch, _buffers: &mut Buffers, _tally: &mut Tally) {}

    fn exhausted(&self) -> bool {
        true
    }
}

/// A transmit queue that returns every frame to its pool.
#[derive(Debug)]
pub(crate) struct NullTxq {
    pub(crate) stats: Arc<QueueStats>,
    pub(crate) mtu: Mtu,
}

impl NullTxq {
    /// Number and bytes of a batch's packets that are not too long.
    #[cold]
    fn admitted(&self, batch: &PacketBatch) -> (usize, usize) {
        let admitted = batch.iter().map(|packet| packet.bytes()).filter(|bytes| self.mtu.admits(bytes));
        admitted.fold((0, 0), |(packets, sum), bytes| (packets + 1, sum + bytes.len()))
    }
}

impl TxQueue for NullTxq {
    #[inline]
    fn send(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        let (mut sent, mut bytes, mut longest) = (batch.len(), 0, 0);
        for len in batch.iter().map(|packet| packet.frame.len()) {
            bytes += len;
            longest = longest.max(len);
        }
        if longest > self.mtu.always_admitted() {
            (sent, bytes) = self.admitted(batch);
            self.stats.drop_unsent(DropReason::TxOversize, batch.len() - sent, tally);
        }
        tally[Counter::Sent] += sent as u64;
        self.stats.carried(sent, bytes);
        buffers.give_batch(batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_swallows_what_fits_and_names_what_does_not() {
        let mut pools = Pools::new(64);
        let config = PortConfig { name: "n".into(), kind: "null".into(), mtu: 100, ..PortConfig::default() };
        let mut port = crate::open(&config, &mut pools).unwrap();
        let mut queue = port.tx_queue(0);
        let pool: Arc<dyn sluice_mem::FramePool> = pools.of_size(200).unwrap();
        let (mut buffers, mut tally, mut batch) = (Buffers::new(), Tally::default(), PacketBatch::new());
        for len in [60, 114, 115] {
            batch.push(buffers.write(&pool, &vec![0; len]).unwrap());
        }
        queue.send(&mut batch, &mut buffers, &mut tally);
        assert!(batch.is_empty());
        assert_eq!((tally[Counter::Sent], tally.dropped(DropReason::TxOversize)), (2, 1));
        let stats = port.stats();
        assert_eq!((stats.tx_packets, stats.tx_bytes, stats.tx_dropped), (2, 174, 1));
        drop(buffers);
        assert_eq!(pool.available(), 64);
    }
}
