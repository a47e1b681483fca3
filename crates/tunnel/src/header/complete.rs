//! Completing a header for a packet.

use super::*;
use sluice_packet::checksum;

/// What differs between packets of a header besides their frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerPacket {
    /// The UDP source port, by which networks spread flows.
    pub source_port: u16,
    /// The sequence number.
    pub sequence: u32,
    /// The time in units of 100 microseconds, for ERSPAN version 2.
    pub timestamp: u32,
}

/// Bytes that are copied at once.
const VECTOR: usize = 32;
/// A packet is too long for the length fields of its outer header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl TunnelHeader {
    /// Writes the header over the first bytes of `packet`, behind which the inner frame stands.
    ///
    /// # Errors
    /// If the packet is too long; its first bytes are undefined then.
    #[inline]
    pub fn complete(&self, packet: &mut [u8], per_packet: PerPacket) -> Result<(), TooLong> {
        self.copy_to(packet);
        let size = packet.len();
        match packet.first_chunk_mut() {
            Some(header) if self.is_plain => self.complete_plain(size, header, per_packet.source_port),
            _ => self.complete_any(packet, per_packet),
        }
    }

    /// Writes the header as it is. A short one is two vectors, which overlap: a call to copy a length that the compiler does
    /// not know takes as long as all that completes the header.
    #[inline]
    fn copy_to(&self, packet: &mut [u8]) {
        let packet = &mut packet[..self.bytes.len()];
        if self.bytes.len() <= 2 * VECTOR
            && let (Some(first), Some(last)) = (self.bytes.first_chunk::<VECTOR>(), self.bytes.last_chunk::<VECTOR>())
        {
            packet[..VECTOR].copy_from_slice(first);
            let at = packet.len() - VECTOR;
            packet[at..].copy_from_slice(last);
        } else {
            packet.copy_from_slice(&self.bytes);
        }
    }

    /// Completes a plain header, of which every field has a fixed place.
    #[inline]
    fn complete_plain(
        &self,
        size: usize,
        header: &mut [u8; IP_AT + IPV4_SIZE + UDP_SIZE],
        source_port: u16,
    ) -> Result<(), TooLong> {
        let size = u16::try_from(size - IP_AT).map_err(|_| TooLong)?;
        const L4_AT: usize = IP_AT + IPV4_SIZE;
        header[IP_AT + 2..IP_AT + 4].copy_from_slice(&size.to_be_bytes());
        let sum = checksum::finish(self.ipv4_sum + u64::from(size));
        header[IP_AT + 10..IP_AT + 12].copy_from_slice(&sum.to_be_bytes());
        header[L4_AT..L4_AT + 2].copy_from_slice(&source_port.to_be_bytes());
        header[L4_AT + 4..L4_AT + 6].copy_from_slice(&(size - IPV4_SIZE as u16).to_be_bytes());
        Ok(())
    }

    /// Completes any header.
    pub(super) fn complete_any(&self, packet: &mut [u8], per_packet: PerPacket) -> Result<(), TooLong> {
        let l4_at = self.l4_at();
        if self.is_ipv6() {
            let size = u16::try_from(packet.len() - l4_at).map_err(|_| TooLong)?;
            packet[IP_AT + 4..IP_AT + 6].copy_from_slice(&size.to_be_bytes());
        } else {
            let size = u16::try_from(packet.len() - IP_AT).map_err(|_| TooLong)?;
            packet[IP_AT + 2..IP_AT + 4].copy_from_slice(&size.to_be_bytes());
            let sum = checksum::finish(self.ipv4_sum + u64::from(size));
            packet[IP_AT + 10..IP_AT + 12].copy_from_slice(&sum.to_be_bytes());
        }
        if self.kind.is_gre() {
            self.complete_gre(&mut packet[l4_at..], per_packet);
        } else {
            if self.kind == TunnelKind::Gtpu {
                complete_gtpu(&mut packet[l4_at + UDP_SIZE..]);
            }
            self.complete_udp(packet, l4_at, per_packet.source_port);
        }
        Ok(())
    }

    fn complete_udp(&self, packet: &mut [u8], l4_at: usize, source_port: u16) {
        let (ip, l4) = packet.split_at_mut(l4_at);
        // That it fits was checked with the IP length.
        let size = l4.len() as u16;
        l4[..2].copy_from_slice(&source_port.to_be_bytes());
        l4[4..6].copy_from_slice(&size.to_be_bytes());
        if l4[6..UDP_SIZE] == [0, 0] {
            return;
        }
        l4[6..UDP_SIZE].fill(0);
        let sum = match checksum::finish(pseudo_header(&ip[IP_AT..], PROTO_UDP, size) + checksum::sum(l4)) {
            0 => 0xffff,
            sum => sum,
        };
        l4[6..UDP_SIZE].copy_from_slice(&sum.to_be_bytes());
    }

    fn complete_gre(&self, l4: &mut [u8], per_packet: PerPacket) {
        let flags = u16::from_be_bytes([l4[0], l4[1]]);
        let words = [GRE_CSUM, GRE_KEY].into_iter().filter(|flag| flags & flag != 0).count();
        if flags & GRE_SEQ != 0 {
            let at = GRE_SIZE + GRE_WORD * words;
            l4[at..at + GRE_WORD].copy_from_slice(&per_packet.sequence.to_be_bytes());
        }
        if l4[2..GRE_SIZE] == PROTO_ERSPAN2 {
            let at = GRE_SIZE + GRE_WORD + ERSPAN_SIZE;
            l4[at..at + 4].copy_from_slice(&per_packet.timestamp.to_be_bytes());
        }
        if flags & GRE_CSUM != 0 {
            let sum = checksum::internet(l4);
            l4[GRE_SIZE..GRE_SIZE + 2].copy_from_slice(&sum.to_be_bytes());
        }
    }
}

/// Writes the length of what stands behind the fixed part of GTP-U's header.
fn complete_gtpu(header: &mut [u8]) {
    let size = (header.len() - GTPU_SIZE) as u16;
    header[2..4].copy_from_slice(&size.to_be_bytes());
}

/// The sum of the pseudo header of an IP header, which is whole.
pub(super) fn pseudo_header(ip: &[u8], proto: u8, size: u16) -> u64 {
    let addresses = if ip[0] >> 4 == 4 { &ip[12..IPV4_SIZE] } else { &ip[8..IPV6_SIZE] };
    checksum::sum(addresses) + u64::from(proto) + u64::from(size)
}
