//! A packet: its buffer, and what the port said about it.

use sluice_mem::Frame;

/// A packet on its way through the switch: half a cache line, unique, moved and never cloned.
#[derive(Debug)]
#[repr(C)]
pub struct Packet {
    /// Its bytes.
    pub frame: Frame,
    /// The hash the NIC computed, 0 if it did none. Metadata only: its key is public, so it never picks a bucket.
    pub rss_hash: u32,
    /// Offload work left to do, as the port received it; see the port crate.
    pub offload: u32,
}

const _: () = assert!(size_of::<Packet>() == 32);

impl Packet {
    /// A packet with nothing known about it but its bytes.
    #[inline]
    pub fn new(frame: Frame) -> Self {
        Packet { frame, rss_hash: 0, offload: 0 }
    }

    /// Its bytes, from the Ethernet header on.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.frame.bytes()
    }

    /// Its bytes, to be rewritten.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.frame.bytes_mut()
    }
}
