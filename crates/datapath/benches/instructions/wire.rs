//! Frames, and the two ports that they go between: memory, no device.

use sluice_fate::{Counter, Tally};
use sluice_mem::{FramePool, HeapPool, PoolConfig};
use sluice_packet::{Buffers, PacketBatch, checksum};
use sluice_port::{Port, PortInfo, PortStats, RxQueue, TxQueue};
use std::sync::Arc;

pub const SYN: u8 = 0x02;
pub const ACK: u8 = 0x10;

const FRAME_SIZE: usize = 60;
const ETHERNET_SIZE: usize = 14;
const IPV4_SIZE: usize = 20;
const TCP_SIZE: usize = 20;
const IPV4_CHECKSUM_AT: usize = ETHERNET_SIZE + 10;
const IPV4_SRC_AT: usize = ETHERNET_SIZE + 12;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// One end of a connection.
#[derive(Clone, Copy)]
pub struct End {
    pub address: [u8; 4],
    pub port: u16,
}

/// A UDP frame without a UDP checksum.
pub fn udp(src: End, dst: End) -> Vec<u8> {
    let mut frame = ipv4(src, dst, UDP, 8);
    frame.extend([0, 8, 0, 0]);
    frame.resize(FRAME_SIZE, 0);
    frame
}

/// A TCP segment without data.
pub fn tcp(src: End, dst: End, flags: u8, seq: u32, ack: u32) -> Vec<u8> {
    let mut frame = ipv4(src, dst, TCP, TCP_SIZE);
    frame.extend([seq.to_be_bytes(), ack.to_be_bytes()].concat());
    frame.extend([0x50, flags, 0x10, 0, 0, 0, 0, 0]);
    let segment = ETHERNET_SIZE + IPV4_SIZE;
    let pseudo = [&src.address[..], &dst.address, &[0, TCP, 0, TCP_SIZE as u8], &frame[segment..]].concat();
    let sum = checksum::internet(&pseudo).to_be_bytes();
    frame[segment + 16..segment + 18].copy_from_slice(&sum);
    frame.resize(FRAME_SIZE, 0);
    frame
}

/// Ethernet, IPv4 and the ports, which TCP and UDP both begin with.
fn ipv4(src: End, dst: End, proto: u8, payload: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([0x45, 0, 0, (IPV4_SIZE + payload) as u8, 0, 0, 0, 0, 64, proto, 0, 0]);
    frame.extend([src.address, dst.address].concat());
    let sum = checksum::internet(&frame[ETHERNET_SIZE..]).to_be_bytes();
    frame[IPV4_CHECKSUM_AT..IPV4_CHECKSUM_AT + 2].copy_from_slice(&sum);
    frame.extend([src.port.to_be_bytes(), dst.port.to_be_bytes()].concat());
    frame
}

/// What comes in.
#[derive(Clone)]
pub struct Traffic {
    /// These frames in their order.
    pub frames: Vec<Vec<u8>>,
    /// After the last one the frame at this index comes again.
    pub again_from: usize,
    /// Each packet has a source address of its own, so that each begins a flow.
    pub new_flows: bool,
}

/// The port that frames come from. It never has too few.
pub struct Source {
    queue: Option<SourceQueue>,
}

/// The port that swallows what is sent.
pub struct Sink;

impl Source {
    pub fn new(traffic: Traffic, batch: usize) -> Self {
        let pool = HeapPool::new(PoolConfig { frames: 1024, frame_size: 2048, reserve: 0 }).expect("memory for frames");
        Source { queue: Some(SourceQueue { traffic, batch, next: 0, flow: 0, pool: Arc::new(pool) }) }
    }
}

struct SourceQueue {
    traffic: Traffic,
    batch: usize,
    next: usize,
    flow: u32,
    pool: Arc<dyn FramePool>,
}

impl RxQueue for SourceQueue {
    fn poll(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, _tally: &mut Tally) {
        for _ in 0..self.batch.min(batch.room()) {
            let frame = &mut self.traffic.frames[self.next];
            if self.traffic.new_flows {
                self.flow += 1;
                begin_flow(frame, self.flow.to_be_bytes());
            }
            batch.push(buffers.write(&self.pool, frame).expect("the pool is larger than what is under way"));
            self.next += 1;
            if self.next == self.traffic.frames.len() {
                self.next = self.traffic.again_from;
            }
        }
    }
}

/// Gives an IPv4 frame without a UDP checksum another source address. Not inlined: other scenarios count the loop around it.
#[inline(never)]
fn begin_flow(frame: &mut [u8], address: [u8; 4]) {
    let old = *frame[IPV4_SRC_AT..].first_chunk::<4>().expect("a whole header");
    let sum = frame[IPV4_CHECKSUM_AT..].first_chunk_mut().expect("a whole header");
    *sum = checksum::update(u16::from_be_bytes(*sum), &old, &address).to_be_bytes();
    frame[IPV4_SRC_AT..IPV4_SRC_AT + 4].copy_from_slice(&address);
}

impl Port for Source {
    fn info(&self) -> PortInfo {
        info("source")
    }
    fn rx_queue(&mut self, _queue: usize) -> Box<dyn RxQueue> {
        Box::new(self.queue.take().expect("it has one receive queue"))
    }
    fn tx_queue(&mut self, _pmd: usize) -> Box<dyn TxQueue> {
        Box::new(SinkQueue)
    }
    fn stats(&self) -> PortStats {
        PortStats::default()
    }
}

impl Port for Sink {
    fn info(&self) -> PortInfo {
        PortInfo { n_rxq: 0, ..info("sink") }
    }
    fn rx_queue(&mut self, _queue: usize) -> Box<dyn RxQueue> {
        unreachable!("it has no receive queue")
    }
    fn tx_queue(&mut self, _pmd: usize) -> Box<dyn TxQueue> {
        Box::new(SinkQueue)
    }
    fn stats(&self) -> PortStats {
        PortStats::default()
    }
}

fn info(kind: &'static str) -> PortInfo {
    PortInfo { kind, n_rxq: 1, n_txq: 1, mtu: 1500, mac: [2, 0, 0, 0, 0, 9] }
}

struct SinkQueue;

impl TxQueue for SinkQueue {
    fn send(&mut self, batch: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
        tally[Counter::Sent] += batch.len() as u64;
        buffers.give_batch(batch);
    }
}
