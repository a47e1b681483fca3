//! A small pool, and packets in it.

use sluice_mem::{FramePool, HeapPool, PoolConfig};
use sluice_packet::{Buffers, Packet};
use std::sync::Arc;

/// A pool of 64 frames of 2 KiB, and the buffers of the one thread that uses it.
#[derive(Debug)]
pub struct TestPool {
    /// The pool.
    pub pool: Arc<dyn FramePool>,
    /// This thread's buffers.
    pub buffers: Buffers,
}

impl TestPool {
    /// Makes the pool.
    pub fn new() -> Self {
        let pool = HeapPool::new(PoolConfig { frames: 64, frame_size: 2048, reserve: 0 }).expect("memory for a test");
        TestPool { pool: Arc::new(pool), buffers: Buffers::new() }
    }

    /// A packet with these bytes. Give it back when done.
    pub fn packet(&mut self, bytes: &[u8]) -> Packet {
        self.buffers.write(&self.pool, bytes).expect("a test holds few packets at once, none longer than 2 KiB")
    }

    /// Gives a packet back, and returns its bytes.
    pub fn take_bytes(&mut self, packet: Packet) -> Vec<u8> {
        let bytes = packet.bytes().to_vec();
        self.buffers.give(std::iter::once(packet));
        bytes
    }
}

impl Default for TestPool {
    fn default() -> Self {
        Self::new()
    }
}
