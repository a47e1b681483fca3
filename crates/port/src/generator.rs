//! The generator port: receives generated traffic, and discards what is sent to it.
//!
//! Frames are written into pool buffers and delivered like those of any port, so their cost is part of what is
//! measured; the example `generator_cost` prints it. Nothing is allocated or locked for a packet; the clock is read
//! once a poll, and only if there is a rate.

use crate::OptionKey;
use crate::config::{MAX_QUEUES, Options};
use crate::mtu::ETHERNET_HEADER;
use crate::null::NullTxq;
use crate::pace::Pace;
use crate::stats::{self, QueueStats};
use crate::{Mtu, OpenError, Pools, Port, PortConfig, PortInfo, PortStats, RxQueue, TxQueue};
use sluice_fate::Tally;
use sluice_mem::FramePool;
use sluice_packet::{BATCH_MAX, Buffers, PacketBatch};
use sluice_traffic::{FlowStream, Profile, ProfileError, flow_hash};
use std::sync::Arc;

/// The options of this type: those of a traffic profile, and the port's own address.
pub(crate) const OPTIONS: &[OptionKey] = &OPTION_TABLE;

const OPTION_TABLE: [OptionKey; Profile::KEYS.len() + 1] = {
    let mut table = [OptionKey::MAC; Profile::KEYS.len() + 1];
    let mut i = 0;
    while i < Profile::KEYS.len() {
        let (key, help) = Profile::KEYS[i];
        table[i] = OptionKey { key, help };
        i += 1;
    }
    table
};

/// A port that generates traffic.
#[derive(Debug)]
struct GeneratorPort {
    info: PortInfo,
    pool: Arc<dyn FramePool>,
    /// By queue; `None` once the queue has been handed out.
    streams: Vec<Option<FlowStream>>,
    rx: Vec<Arc<QueueStats>>,
    tx: Vec<Arc<QueueStats>>,
}

pub(crate) fn check_options(options: &Options<'_>) -> Result<(), OpenError> {
    profile(options).and_then(|_| options.mac()).map(drop)
}

pub(crate) fn open(options: &Options<'_>, pools: &mut Pools) -> Result<Box<dyn Port>, OpenError> {
    let PortConfig { n_rxq, mtu, .. } = *options.config;
    let (mac, profile) = (options.mac()?, profile(options)?);
    let refused = |error: ProfileError| options.bad(error.key, &error.value, &error.expected);
    let streams = profile.streams(n_rxq).map_err(refused)?;
    let size = profile.frame_size.max(Mtu(mtu).longest_frame());
    Ok(Box::new(GeneratorPort {
        info: PortInfo { kind: "generator", n_rxq, n_txq: MAX_QUEUES, mtu, mac },
        pool: pools.of_size(size).map_err(|cause| OpenError::Pool { port: options.port(), cause })?,
        rx: streams.iter().map(|_| Arc::default()).collect(),
        streams: streams.into_iter().map(Some).collect(),
        tx: Vec::new(),
    }))
}

/// The traffic that the options describe.
fn profile(options: &Options<'_>) -> Result<Profile, OpenError> {
    let refused = |error: ProfileError| options.bad(error.key, &error.value, &error.expected);
    let mut profile = Profile::default();
    for (key, value) in &options.config.options {
        // The only key that is not a profile's is the port's own.
        profile.set(key, value).unwrap_or(Ok(())).map_err(refused)?;
    }
    let mtu = options.config.mtu;
    let longest = mtu as usize + ETHERNET_HEADER;
    if profile.frame_size > longest {
        let expected = format!("at most {longest} bytes, for the port's mtu is {mtu}");
        return Err(options.bad("frame-size", &profile.frame_size.to_string(), &expected));
    }
    Ok(profile)
}

impl Port for GeneratorPort {
    fn info(&self) -> PortInfo {
        self.info.clone()
    }

    fn rx_queue(&mut self, queue: usize) -> Box<dyn RxQueue> {
        let stream = self.streams[queue].take().expect("each receive queue is given out once");
        Box::new(GeneratorRx {
            pace: stream.pacer().map(Pace::new),
            stream,
            pool: Arc::clone(&self.pool),
            stats: Arc::clone(&self.rx[queue]),
        })
    }

    fn tx_queue(&mut self, _pmd: usize) -> Box<dyn TxQueue> {
        let stats = Arc::new(QueueStats::default());
        self.tx.push(Arc::clone(&stats));
        Box::new(NullTxq { stats, mtu: Mtu(self.info.mtu) })
    }

    fn stats(&self) -> PortStats {
        stats::total(self.rx.iter().map(Arc::as_ref), self.tx.iter().map(Arc::as_ref))
    }
}

/// A queue of generated packets.
#[derive(Debug)]
struct GeneratorRx {
    stream: FlowStream,
    /// The rate, if there is one. Packets that were due but not generated count as missed.
    pace: Option<Pace>,
    pool: Arc<dyn FramePool>,
    stats: Arc<QueueStats>,
}

impl RxQueue for GeneratorRx {
    fn poll(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, _tally: &mut Tally) {
        if self.stream.exhausted() {
            return;
        }
        let first = batch.len();
        let mut n = batch.room();
        if let Some(pace) = &mut self.pace {
            n = pace.ask(n);
        }
        // Without a free buffer nothing is generated: a generator waits where a NIC would drop.
        let size = self.stream.frame_size();
        let n = buffers.fill(&self.pool, n, size, batch);
        let mut flows = [0; BATCH_MAX];
        let made = self.stream.pick(&mut flows[..n]);
        if made < n {
            buffers.give(batch.drain(first + made..));
        }
        let writer = self.stream.writer();
        for (packet, flow) in batch[first..].iter_mut().zip(flows) {
            packet.rss_hash = flow_hash(flow);
            writer.write(flow, packet.frame.bytes_mut());
        }
        self.stats.carried(made, made * size);
        if let Some(pace) = &mut self.pace {
            // After the stream's last packet nothing can be missed.
            let short = if self.stream.exhausted() { 0 } else { pace.due - made };
            self.stats.missed(pace.given_up() + short);
        }
    }

    fn exhausted(&self) -> bool {
        self.stream.exhausted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn config(n_rxq: usize, keys: &[(&str, &str)]) -> PortConfig {
        let options = keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        PortConfig { name: "g".into(), kind: "generator".into(), n_rxq, options, ..PortConfig::default() }
    }

    #[test]
    fn queues_together_make_the_profile() {
        let mut pools = Pools::new(256);
        let config =
            config(3, &[("flows", "1000"), ("choice", "sequential"), ("count", "1000"), ("frame-size", "100")]);
        let mut port = crate::open(&config, &mut pools).unwrap();
        let (mut buffers, mut tally, mut batch) = (Buffers::new(), Tally::default(), PacketBatch::new());
        let mut seen = HashSet::new();
        for queue in 0..3 {
            let mut rx = port.rx_queue(queue);
            while !rx.exhausted() {
                rx.poll(&mut batch, &mut buffers, &mut tally);
                for packet in batch.iter() {
                    assert_eq!((packet.bytes().len(), packet.bytes()[12]), (100, 8));
                    assert!(seen.insert(packet.bytes().to_vec()));
                    assert_ne!(packet.rss_hash, 0);
                }
                buffers.give(batch.drain(..));
            }
        }
        assert_eq!(seen.len(), 1000);
        assert_eq!((port.stats().rx_packets, port.stats().rx_bytes), (1000, 100_000));
        drop(buffers);
        let pool = pools.of_size(100).unwrap();
        assert_eq!(pool.available(), pool.capacity());
    }

    #[test]
    fn a_dry_pool_loses_no_packet_of_the_stream() {
        let mut pools = Pools::new(48);
        let mut port = crate::open(&config(1, &[("flows", "100"), ("choice", "sequential")]), &mut pools).unwrap();
        let mut rx = port.rx_queue(0);
        let (mut buffers, mut tally) = (Buffers::new(), Tally::default());
        let (mut first, mut second) = (PacketBatch::new(), PacketBatch::new());
        rx.poll(&mut first, &mut buffers, &mut tally);
        rx.poll(&mut second, &mut buffers, &mut tally);
        assert_eq!((first.len(), second.len()), (32, 16));
        let last_of_second = second.last().unwrap().bytes()[33];
        buffers.give(first.drain(..));
        buffers.give(second.drain(..));
        rx.poll(&mut first, &mut buffers, &mut tally);
        assert_eq!((last_of_second, first[0].bytes()[33]), (47, 48));
        buffers.give(first.drain(..));
    }

    #[test]
    fn a_rate_is_kept_from_the_start() {
        let mut port = crate::open(&config(1, &[("rate", "1")]), &mut Pools::new(64)).unwrap();
        let mut rx = port.rx_queue(0);
        let (mut buffers, mut tally, mut batch) = (Buffers::new(), Tally::default(), PacketBatch::new());
        rx.poll(&mut batch, &mut buffers, &mut tally);
        rx.poll(&mut batch, &mut buffers, &mut tally);
        assert_eq!(batch.len(), 1, "the second is due in a second");
        buffers.give(batch.drain(..));
    }

    #[test]
    fn what_a_rate_asked_for_and_was_not_made_is_missed() {
        // One packet a nanosecond, which is too fast, and fewer buffers than a batch.
        let keys = [("rate", "1000000000"), ("count", "20")];
        let mut port = crate::open(&config(1, &keys), &mut Pools::new(16)).unwrap();
        let mut rx = port.rx_queue(0);
        let (mut buffers, mut tally, mut batch) = (Buffers::new(), Tally::default(), PacketBatch::new());
        while batch.len() < 16 {
            rx.poll(&mut batch, &mut buffers, &mut tally);
        }
        let early = port.stats();
        assert!(early.rx_missed > 0 && early.rx_dropped == early.rx_missed, "{early:?}");
        buffers.give(batch.drain(..));
        // Packets after the last one are not missed.
        while !rx.exhausted() {
            rx.poll(&mut batch, &mut buffers, &mut tally);
        }
        let last = port.stats();
        rx.poll(&mut batch, &mut buffers, &mut tally);
        assert_eq!((port.stats(), port.stats().rx_packets), (last, 20));
        buffers.give(batch.drain(..));
    }

    #[test]
    fn what_does_not_fit_is_said() {
        for (keys, want) in [
            (vec![("flows", "many")], "flows = \"many\": expected a number of flows"),
            (vec![("catch-up", "-1")], "catch-up = \"-1\": expected 0 to 1000 milliseconds"),
            (vec![("frame-size", "1515")], "at most 1514 bytes"),
            (vec![("flows", "5"), ("dst", "10.0.0.1")], "at most 1, which"),
        ] {
            let error = crate::open(&config(1, &keys), &mut Pools::new(64)).map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with("port g: ") && error.contains(want), "{error}");
        }
    }
}
