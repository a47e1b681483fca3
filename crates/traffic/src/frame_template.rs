//! Writing a flow's frame: a template with addresses, ports and checksums filled in.

use crate::{Flow, Profile};

/// The shortest frame, bytes: Ethernet's minimum without its checksum.
pub const FRAME_SIZE_MIN: usize = 60;

/// IP protocol number of TCP.
pub(crate) const TCP: u8 = 6;
/// IP protocol number of UDP.
pub(crate) const UDP: u8 = 17;

const ETHERNET_HEADER: usize = 14;
const IPV4_HEADER: usize = 20;

/// The first 60 bytes of the frames of a class: those of its first flow, without checksums. All further bytes are
/// zeros.
///
/// Kept as little-endian words. Flows differ in words 3 (IPv4 checksum, source, half the destination), 4 (the other
/// half, ports) and 6 (TCP checksum). So a frame is written as a whole from registers, and no store overlaps another:
/// wide loads that follow are forwarded from the stores.
#[derive(Clone, Debug)]
#[repr(align(64))] // one cache line and a bit
pub(crate) struct FrameTemplate {
    words: [u64; 7],
    last: u32,
    /// Sum of the IPv4 header's 16-bit little-endian words, without the destination.
    ip_sum: u32,
    /// The same of the TCP header and its pseudo-header.
    tcp_sum: u32,
    /// Ones where the TCP checksum goes.
    tcp_checksum: u64,
    /// Ones where the ports go.
    ports: u64,
}

/// The difference to a class's first flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowDelta {
    pub(crate) src: u32,
    pub(crate) sport: u16,
    pub(crate) dport: u16,
}

impl FrameTemplate {
    /// A template for a profile's frames, for flows that begin with `first`. UDP has no checksum, as IPv4 allows.
    pub(crate) fn new(first: Flow, profile: &Profile) -> Self {
        let mut head = [0; FRAME_SIZE_MIN];
        let ip_len = (profile.frame_size - ETHERNET_HEADER) as u16;
        let l4_len = ip_len - IPV4_HEADER as u16;
        head[..6].copy_from_slice(&profile.dst_mac);
        head[6..12].copy_from_slice(&profile.src_mac);
        head[12..14].copy_from_slice(&[0x08, 0x00]);
        head[14] = 0x45;
        head[16..18].copy_from_slice(&ip_len.to_be_bytes());
        head[22] = 64;
        head[23] = first.protocol;
        head[26..30].copy_from_slice(&first.src.to_be_bytes());
        let has_ports = matches!(first.protocol, TCP | UDP);
        if has_ports {
            head[34..36].copy_from_slice(&first.sport.to_be_bytes());
            head[36..38].copy_from_slice(&first.dport.to_be_bytes());
        }
        match first.protocol {
            // Header length 20, window 1024.
            TCP => head[46..50].copy_from_slice(&[0x50, profile.tcp_flags, 0x04, 0x00]),
            UDP => head[38..40].copy_from_slice(&l4_len.to_be_bytes()),
            _ => {}
        }
        let sum =
            |bytes: &[u8]| bytes.as_chunks().0.iter().map(|pair| u32::from(u16::from_le_bytes(*pair))).sum::<u32>();
        let pseudo_header = sum(&head[26..30]) + u32::from(u16::from(TCP).to_be()) + u32::from(l4_len.to_be());
        FrameTemplate {
            words: std::array::from_fn(|i| u64::from_le_bytes(head.as_chunks().0[i])),
            last: u32::from_le_bytes(*head.last_chunk().expect("invariant: 60 bytes")),
            ip_sum: sum(&head[14..34]),
            tcp_sum: pseudo_header + sum(&head[34..54]),
            tcp_checksum: if first.protocol == TCP { 0xffff << 16 } else { 0 },
            ports: if has_ports { 0xffff_ffff << 16 } else { 0 },
        }
    }

    /// Writes the frame of the class's first flow with another destination, as many bytes as `frame` has.
    #[inline]
    pub(crate) fn write(&self, dst: u32, frame: &mut [u8]) {
        // The address as little-endian bytes of the frame.
        let dst = dst.to_be();
        let dst_sum = (dst & 0xffff) + (dst >> 16);
        let mut words = self.words;
        words[3] |= u64::from(dst) << 48 | finish(self.ip_sum + dst_sum);
        words[4] |= u64::from(dst >> 16);
        words[6] |= finish(self.tcp_sum + dst_sum) << 16 & self.tcp_checksum;
        let (head, tail) = frame.split_at_mut(FRAME_SIZE_MIN);
        let (chunks, last) = head.as_chunks_mut();
        for (to, word) in chunks.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        last.copy_from_slice(&self.last.to_le_bytes());
        if !tail.is_empty() {
            tail.fill(0);
        }
    }

    /// This template for another flow of its class.
    pub(crate) fn stepped(&self, step: FlowDelta) -> FrameTemplate {
        let mut out = self.clone();
        let (old_src, old_ports) = ((self.words[3] >> 16) as u32, (self.words[4] >> 16) as u32);
        let src = old_src.to_be().wrapping_add(step.src).to_be();
        let [sport, dport] = [old_ports as u16, (old_ports >> 16) as u16].map(u16::from_be);
        let (sport, dport) = (sport.wrapping_add(step.sport).to_be(), dport.wrapping_add(step.dport).to_be());
        let ports = (u32::from(dport) << 16 | u32::from(sport)) & (self.ports >> 16) as u32;
        out.words[3] = self.words[3] & !(0xffff_ffff << 16) | u64::from(src) << 16;
        out.words[4] = self.words[4] & !(0xffff_ffff << 16) | u64::from(ports) << 16;
        let halves = |word: u32| (word & 0xffff) + (word >> 16);
        // Ones' complement sums: subtracting is adding the complement, which each half does.
        out.ip_sum = self.ip_sum + halves(src) + halves(!old_src);
        out.tcp_sum = self.tcp_sum + halves(src) + halves(!old_src) + halves(ports) + halves(!old_ports);
        out
    }
}

/// The checksum of a sum of 16-bit words that is below 2^32.
#[inline]
fn finish(sum: u32) -> u64 {
    // The sum of both halves, including the carry, ends up in the upper half.
    u64::from(!(sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16)
}
