//! Writing a flow's frame: a ready-made one with addresses, ports and checksums put in.

use crate::Flow;

/// The shortest frame, bytes: Ethernet's minimum without its checksum.
pub const FRAME_SIZE_MIN: usize = 60;

/// Bytes that are written for the shortest frame, too: one cache line, so a buffer must have as many.
pub const HEAD_SIZE: usize = 64;

/// IP protocol number of TCP.
pub(crate) const TCP: u8 = 6;
/// IP protocol number of UDP.
pub(crate) const UDP: u8 = 17;

const ETHERNET_HEADER: usize = 14;
const IPV4_HEADER: usize = 20;

/// The first 64 bytes of a class's frames, as little-endian words, with zeros where flows differ.
///
/// Behind them a frame is zeros. What differs lies in words 3 (IPv4 checksum, source, half the destination), 4 (the
/// other half, ports) and 6 (TCP checksum), so a frame is written whole, in registers, and no store overlaps another:
/// whoever reads it next with wide loads finds each forwarded.
#[derive(Clone, Debug)]
pub(crate) struct FrameTemplate {
    words: [u64; HEAD_SIZE / 8],
    /// Sum of the IPv4 header's 16-bit little-endian words.
    ip_sum: u32,
    /// The same of the TCP header and its pseudo-header, addresses and ports left out.
    tcp_sum: u32,
    /// All ones where the ports and TCP's checksum are to be written.
    ports: u64,
    tcp_checksum: u64,
}

impl FrameTemplate {
    /// A template for frames of `size` bytes. UDP goes without a checksum, as IPv4 allows.
    pub(crate) fn new(protocol: u8, size: usize, src_mac: [u8; 6], dst_mac: [u8; 6]) -> Self {
        let mut head = [0; HEAD_SIZE];
        let ip_len = (size - ETHERNET_HEADER) as u16;
        let l4_len = ip_len - IPV4_HEADER as u16;
        head[..6].copy_from_slice(&dst_mac);
        head[6..12].copy_from_slice(&src_mac);
        head[12..14].copy_from_slice(&[0x08, 0x00]);
        head[14] = 0x45;
        head[16..18].copy_from_slice(&ip_len.to_be_bytes());
        head[22] = 64;
        head[23] = protocol;
        match protocol {
            // Header length 20, flag ACK, window 1024.
            TCP => head[46..50].copy_from_slice(&[0x50, 0x10, 0x04, 0x00]),
            UDP => head[38..40].copy_from_slice(&l4_len.to_be_bytes()),
            _ => {}
        }
        let sum =
            |bytes: &[u8]| bytes.as_chunks().0.iter().map(|pair| u32::from(u16::from_le_bytes(*pair))).sum::<u32>();
        FrameTemplate {
            words: std::array::from_fn(|i| u64::from_le_bytes(head.as_chunks().0[i])),
            ip_sum: sum(&head[14..34]),
            tcp_sum: sum(&head[34..54]) + u32::from(u16::from(TCP).to_be()) + u32::from(l4_len.to_be()),
            ports: if matches!(protocol, TCP | UDP) { u64::MAX } else { 0 },
            tcp_checksum: if protocol == TCP { u64::MAX } else { 0 },
        }
    }

    /// Writes the frame of `flow`, as many bytes as `frame` has.
    #[inline]
    pub(crate) fn write(&self, flow: Flow, frame: &mut [u8]) {
        // Addresses and ports as their bytes stand in the frame, read little-endian.
        let (src, dst) = (u64::from(flow.src.to_be()), u64::from(flow.dst.to_be()));
        let ports = (u64::from(flow.sport.to_be()) | u64::from(flow.dport.to_be()) << 16) & self.ports;
        let addresses = (src & 0xffff) + (src >> 16) + (dst & 0xffff) + (dst >> 16);
        let ip_checksum = finish(u64::from(self.ip_sum) + addresses);
        let tcp_sum = u64::from(self.tcp_sum) + addresses + (ports & 0xffff) + (ports >> 16);
        let mut words = self.words;
        words[3] = ip_checksum | src << 16 | dst << 48;
        words[4] |= dst >> 16 | ports << 16;
        words[6] |= finish(tcp_sum) << 16 & self.tcp_checksum;
        let (head, tail) = frame.split_at_mut(HEAD_SIZE);
        for (to, word) in head.as_chunks_mut().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        if !tail.is_empty() {
            tail.fill(0);
        }
    }
}

/// The checksum of a sum of 16-bit words.
#[inline]
fn finish(sum: u64) -> u64 {
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    !sum & 0xffff
}
