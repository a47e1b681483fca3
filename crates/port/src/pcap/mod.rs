//! Capture ports: receive the packets of a file, write sent packets to a file.
//!
//! A file is read completely when the port is opened, so that errors in it are reported then. Without `loop` it is read
//! again while it is played, with one packet in memory; this is the only port whose poll may wait, for the disk. With
//! `loop` it is held in memory and never ends. With several receive queues, a flow is always in the same queue, by the
//! hash that a NIC would use.

pub mod next_generation;
mod next_generation_reader;
mod reader;
mod sink;
mod writer;

pub use reader::{CaptureError, Reader, Record};
pub use sink::FileSink;
pub use writer::Writer;

use crate::OptionKey;
use crate::config::{MAX_QUEUES, Options};
use crate::pace::Pace;
use crate::rss::{rss_hash, rss_queue};
use crate::stats::{self, QueueStats};
use crate::{Mtu, OpenError, Pools, Port, PortConfig, PortInfo, PortStats, RxQueue, TxQueue};
use parking_lot::Mutex;
use sluice_fate::{Counter, DropReason, Tally};
use sluice_mem::FramePool;
use sluice_packet::{Buffers, PacketBatch};
use sluice_traffic::Pacer;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

/// The options of this type.
pub(crate) const OPTIONS: &[OptionKey] = &[
    OptionKey { key: "rx", help: "capture to receive from (pcap or pcapng); default: receives nothing" },
    OptionKey {
        key: "tx",
        help: "capture to write what is sent into, a file or a pipe that has a reader; default: it is swallowed",
    },
    OptionKey { key: "loop", help: "true: hold the capture in memory and play it for ever; default false" },
    OptionKey { key: "rate", help: "packets per second over all queues, such as 200k; default: as fast as possible" },
    OptionKey::MAC,
];

/// The largest capture held in memory. Bytes of packets.
const LOAD_MAX: u64 = 2 << 30;

/// The clock that timestamps sent packets.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The system's time.
    System,
    /// Nanoseconds since 1970, set by the owner (`sluice replay`, where captures are the only clock).
    Given(Arc<AtomicU64>),
}

impl Clock {
    fn now_ns(&self) -> u64 {
        match self {
            Clock::System => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64),
            Clock::Given(time) => time.load(Relaxed),
        }
    }
}

/// A capture port.
#[derive(Debug)]
struct PcapPort {
    info: PortInfo,
    pool: Arc<dyn FramePool>,
    source: Source,
    /// Packets per second of a queue.
    rate: Option<f64>,
    rx: Vec<Arc<QueueStats>>,
    sink: Option<Arc<Mutex<Writer>>>,
    clock: Clock,
    tx: Vec<Arc<QueueStats>>,
    /// What is to be said of the capture that is received.
    notes: Vec<String>,
}

/// The source of received packets.
#[derive(Debug)]
enum Source {
    Nothing,
    Once(PathBuf),
    Loop(Arc<Loaded>),
}

/// A capture in memory.
#[derive(Debug, Default)]
struct Loaded {
    bytes: Vec<u8>,
    /// By queue.
    packets: Vec<Vec<LoadedPacket>>,
    /// What is to be said of the file's end.
    end_note: Option<String>,
}

#[derive(Clone, Copy, Debug)]
struct LoadedPacket {
    start: u32,
    len: u32,
    rss_hash: u32,
    is_cut: bool,
}

pub(crate) fn check_options(options: &Options<'_>) -> Result<(), OpenError> {
    files(options)?;
    pace(options).and_then(|_| options.mac()).map(drop)
}

/// The capture to receive from and the one to write, of which there is at least one.
fn files(options: &Options<'_>) -> Result<(Option<PathBuf>, Option<PathBuf>), OpenError> {
    let files = (options.path("rx"), options.path("tx"));
    if files == (None, None) {
        let expected = "a capture file to receive from (or tx, one to write into)";
        return Err(OpenError::MissingOption { port: options.port(), kind: "pcap", key: "rx", expected });
    }
    Ok(files)
}

/// Whether the capture begins again at its end, and at which rate its packets come.
fn pace(options: &Options<'_>) -> Result<(bool, Option<f64>), OpenError> {
    let is_loop = options.flag("loop")?.unwrap_or(false);
    Ok((is_loop, options.parse("rate", "packets per second, such as 200k or 1M", parse_rate)?))
}

pub(crate) fn open(options: &Options<'_>, pools: &mut Pools) -> Result<Box<dyn Port>, OpenError> {
    let PortConfig { n_rxq, mtu, .. } = *options.config;
    let (rx, tx) = files(options)?;
    let (is_loop, rate) = pace(options)?;
    let mac = options.mac()?;
    let refused = |cause| OpenError::Capture { port: options.port(), cause };
    let (source, end_note) = match &rx {
        None => (Source::Nothing, None),
        Some(path) if is_loop => {
            let mut loaded = Loaded::read(path, n_rxq).map_err(refused)?;
            let end_note = loaded.end_note.take();
            (Source::Loop(Arc::new(loaded)), end_note)
        }
        Some(path) => (Source::Once(path.clone()), check(path).map_err(refused)?),
    };
    let sink = match tx {
        None => None,
        Some(path) => Some(Writer::create(&path).map_err(|cause| OpenError::Device {
            port: options.port(),
            what: format!("{} cannot be written", path.display()),
            cause,
            remedy: "expected a file in a folder that exists and may be written, or a pipe that somebody reads",
        })?),
    };
    let pool = options.pool(pools)?;
    let mut port = PcapPort::new(mtu, mac, pool, sink, Clock::System);
    port.info.n_rxq = n_rxq;
    port.rate = rate.map(|rate| rate / n_rxq as f64);
    port.rx = (0..n_rxq).map(|_| Arc::default()).collect();
    port.source = source;
    let path = rx.unwrap_or_default();
    port.notes = end_note.map(|note| format!("{}: {note}", path.display())).into_iter().collect();
    Ok(Box::new(port))
}

/// A port that receives nothing and writes sent packets to `path`, with timestamps from `clock`.
pub fn sink(path: &Path, mtu: u32, pool: Arc<dyn FramePool>, clock: Clock) -> io::Result<Box<dyn Port>> {
    Ok(Box::new(PcapPort::new(mtu, [2, 0, 0, 0, 0, 0], pool, Some(Writer::create(path)?), clock)))
}

fn parse_rate(text: &str) -> Option<f64> {
    sluice_traffic::parse_count(text).filter(|rate| (1..=1_000_000_000).contains(rate)).map(|rate| rate as f64)
}

/// Opens a capture that can be read twice and waits for nobody.
fn open_file(path: &Path) -> Result<Reader, CaptureError> {
    let meta = std::fs::metadata(path).map_err(|cause| CaptureError::Io { path: path.to_owned(), cause })?;
    if !meta.is_file() && !meta.is_dir() {
        return Err(CaptureError::Format {
            path: path.to_owned(),
            found: "this is not a file but a pipe or device".into(),
        });
    }
    Reader::open(path)
}

/// Reads a capture to its end, to find errors in it. Returns what is to be said of its end.
fn check(path: &Path) -> Result<Option<String>, CaptureError> {
    let (mut reader, mut packet) = (open_file(path)?, Vec::new());
    while reader.next_packet(&mut packet)?.is_some() {}
    Ok(reader.end_note().map(str::to_owned))
}

impl Loaded {
    fn read(path: &Path, queues: usize) -> Result<Self, CaptureError> {
        let (mut reader, mut packet) = (open_file(path)?, Vec::new());
        let mut loaded = Loaded { packets: vec![Vec::new(); queues], ..Loaded::default() };
        while let Some(record) = reader.next_packet(&mut packet)? {
            let start = loaded.bytes.len();
            if (start + packet.len()) as u64 > LOAD_MAX {
                let bytes = std::fs::metadata(path).map_or(0, |file| file.len());
                return Err(CaptureError::TooLarge { path: path.to_owned(), bytes, max: LOAD_MAX });
            }
            let rss_hash = rss_hash(&packet);
            loaded.packets[rss_queue(rss_hash, queues)].push(LoadedPacket {
                start: start as u32,
                len: packet.len() as u32,
                rss_hash,
                is_cut: record.original_len as usize > packet.len(),
            });
            loaded.bytes.extend_from_slice(&packet);
        }
        loaded.end_note = reader.end_note().map(str::to_owned);
        Ok(loaded)
    }
}

impl PcapPort {
    fn new(mtu: u32, mac: [u8; 6], pool: Arc<dyn FramePool>, sink: Option<Writer>, clock: Clock) -> Self {
        PcapPort {
            info: PortInfo { kind: "pcap", n_rxq: 1, n_txq: MAX_QUEUES, mtu, mac },
            pool,
            source: Source::Nothing,
            rate: None,
            rx: vec![Arc::default()],
            sink: sink.map(|writer| Arc::new(Mutex::new(writer))),
            clock,
            tx: Vec::new(),
            notes: Vec::new(),
        }
    }
}

impl Port for PcapPort {
    fn info(&self) -> PortInfo {
        self.info.clone()
    }

    fn rx_queue(&mut self, queue: usize) -> Box<dyn RxQueue> {
        let feed = match &self.source {
            Source::Nothing => Feed::Ended,
            // It could be read before; if it has disappeared, there is nothing to receive.
            Source::Once(path) => Reader::open(path).map_or(Feed::Ended, |reader| Feed::Once {
                reader,
                packet: Vec::new(),
                queue,
                queues: self.info.n_rxq,
            }),
            Source::Loop(loaded) if loaded.packets[queue].is_empty() => Feed::Ended,
            Source::Loop(loaded) => Feed::Loop { loaded: Arc::clone(loaded), queue, next: 0 },
        };
        Box::new(PcapRx {
            feed,
            pace: self.rate.map(|rate| Pace::new(Pacer::new(rate, 0))),
            mtu: Mtu(self.info.mtu),
            pool: Arc::clone(&self.pool),
            stats: Arc::clone(&self.rx[queue]),
        })
    }

    fn tx_queue(&mut self, _pmd: usize) -> Box<dyn TxQueue> {
        let stats = Arc::new(QueueStats::default());
        self.tx.push(Arc::clone(&stats));
        Box::new(PcapTx { sink: self.sink.clone(), clock: self.clock.clone(), mtu: Mtu(self.info.mtu), stats })
    }

    fn stats(&self) -> PortStats {
        stats::total(self.rx.iter().map(Arc::as_ref), self.tx.iter().map(Arc::as_ref))
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What was sent is in the file soon, also if little is sent.
    fn service(&mut self) {
        if let Some(mut sink) = self.sink.as_ref().and_then(|sink| sink.try_lock()) {
            // A disk that is full, and a pipe that is, are found by the next packet, too, which counts it.
            let _ = sink.flush();
        }
    }
}

/// A receive queue of a capture.
#[derive(Debug)]
struct PcapRx {
    feed: Feed,
    pace: Option<Pace>,
    mtu: Mtu,
    pool: Arc<dyn FramePool>,
    stats: Arc<QueueStats>,
}

/// The packets that a queue has yet to receive.
#[derive(Debug)]
enum Feed {
    Once { reader: Reader, packet: Vec<u8>, queue: usize, queues: usize },
    Loop { loaded: Arc<Loaded>, queue: usize, next: usize },
    Ended,
}

/// A packet of a feed.
struct Fed<'a> {
    bytes: &'a [u8],
    rss_hash: u32,
    is_cut: bool,
}

impl Feed {
    /// The next packet; `None` at the end, for ever. An error, which opening would have found, is `Err` once, then the
    /// end.
    fn next(&mut self) -> Result<Option<Fed<'_>>, CaptureError> {
        match self {
            Feed::Ended => Ok(None),
            Feed::Loop { loaded, queue, next } => {
                let packets = &loaded.packets[*queue];
                let packet = packets[*next];
                *next = if *next + 1 == packets.len() { 0 } else { *next + 1 };
                let bytes = &loaded.bytes[packet.start as usize..][..packet.len as usize];
                Ok(Some(Fed { bytes, rss_hash: packet.rss_hash, is_cut: packet.is_cut }))
            }
            Feed::Once { reader, packet, queue, queues } => loop {
                let Some(record) = reader.next_packet(packet)? else { return Ok(None) };
                let rss_hash = rss_hash(packet);
                if rss_queue(rss_hash, *queues) == *queue {
                    let is_cut = record.original_len as usize > packet.len();
                    return Ok(Some(Fed { bytes: packet, rss_hash, is_cut }));
                }
            },
        }
    }
}

impl RxQueue for PcapRx {
    fn poll(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        if matches!(self.feed, Feed::Ended) {
            return;
        }
        let first = batch.len();
        let mut n = batch.room();
        if let Some(pace) = &mut self.pace {
            n = pace.ask(n);
        }
        // Buffers first: without one nothing is read, where a NIC would drop.
        let n = buffers.fill(&self.pool, n, usize::MAX, batch);
        let (mut used, mut bytes) = (first, 0);
        if let Some(pace) = &mut self.pace {
            self.stats.missed(pace.given_up() + pace.due - n);
        }
        for _ in 0..n {
            let fed = match self.feed.next() {
                Ok(Some(fed)) => fed,
                end => {
                    let failed = end.is_err();
                    drop(end);
                    self.stats.errors(usize::from(failed));
                    self.feed = Feed::Ended;
                    break;
                }
            };
            let why = match fed {
                Fed { is_cut: true, .. } => DropReason::RxError,
                Fed { bytes, .. } if !self.mtu.admits(bytes) => DropReason::RxOversize,
                Fed { bytes: from, rss_hash, .. } => {
                    let packet = &mut batch[used];
                    packet.frame.truncate(from.len());
                    packet.bytes_mut().copy_from_slice(from);
                    packet.rss_hash = rss_hash;
                    used += 1;
                    bytes += from.len();
                    continue;
                }
            };
            self.stats.drop_received(why, 1, tally);
        }
        buffers.give(batch.drain(used..));
        self.stats.carried(used - first, bytes);
    }

    fn exhausted(&self) -> bool {
        matches!(self.feed, Feed::Ended)
    }
}

/// A transmit queue that writes a capture, or discards. PMDs share the file, with one lock a batch.
#[derive(Debug)]
struct PcapTx {
    sink: Option<Arc<Mutex<Writer>>>,
    clock: Clock,
    mtu: Mtu,
    stats: Arc<QueueStats>,
}

impl TxQueue for PcapTx {
    fn send(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        let now_ns = self.clock.now_ns();
        let mut sink = self.sink.as_ref().map(|sink| sink.lock());
        let (mut sent, mut bytes, mut oversize, mut refused) = (0, 0, 0, 0);
        for packet in batch.iter().map(|packet| packet.bytes()) {
            if !self.mtu.admits(packet) {
                oversize += 1;
            } else if sink.as_mut().is_some_and(|sink| sink.write(now_ns, packet).is_err()) {
                refused += 1;
            } else {
                sent += 1;
                bytes += packet.len();
            }
        }
        drop(sink);
        tally[Counter::Sent] += sent as u64;
        self.stats.drop_unsent(DropReason::TxOversize, oversize, tally);
        self.stats.drop_unsent(DropReason::TxFull, refused, tally);
        self.stats.carried(sent, bytes);
        self.stats.errors(refused);
        buffers.give_batch(batch);
    }
}

#[cfg(test)]
mod tests;
