//! A packet: its buffer, and what the port knows about it.

use sluice_mem::Frame;

/// A packet on its way through the switch: half a cache line, unique, moved and never cloned.
#[derive(Debug)]
#[repr(C)]
pub struct Packet {
    /// Its bytes.
    pub frame: Frame,
    /// The hash that the NIC computed, 0 if none. Its key is public, so it never selects a bucket.
    pub rss_hash: u32,
    /// The queue of the port that sends it, as rules chose it; 0: none. Open vSwitch: `skb_priority`.
    pub queue: u32,
}

const _: () = assert!(size_of::<Packet>() == 32);

impl Packet {
    /// A packet of which only the bytes are known.
    #[inline]
    pub fn new(frame: Frame) -> Self {
        Packet { frame, rss_hash: 0, queue: 0 }
    }

    /// Its bytes, from the Ethernet header on.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.frame.bytes()
    }

    /// Its bytes, for writing.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.frame.bytes_mut()
    }
}
