//! Offloaded work: a checksum to complete, a large segment to split.
//!
//! Kernels and guests deliver frames with a virtio-net header that says what is left to do. The switch does that work
//! on receive, so that all further code sees ordinary packets. Source: Virtual I/O Device (VIRTIO) 1.2, section 5.1.6.

use sluice_packet::headers::{be16, be32, ip_proto};
use sluice_packet::{Layers, checksum};

/// Bytes of the header including its buffer count, as in virtio 1.
pub const VNET_HEADER: usize = 12;

/// The largest frame that may be left to split: the largest IP packet behind Ethernet and two tags.
pub const LARGEST_FRAME: usize = 65_535 + 14 + 8;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
/// Set in addition to a type if the segments carry an ECN echo; the header's flags say the same.
const GSO_ECN: u8 = 0x80;

/// Where headers of TCP and UDP have their checksums.
const TCP_CHECKSUM: u16 = 16;
const UDP_CHECKSUM: u16 = 6;

pub(crate) const FIN_AND_PUSH: u8 = 0x09;
const CWR: u8 = 0x80;

/// The fields of the virtio-net header, in host order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnetHeader {
    flags: u8,
    gso_type: u8,
    gso_size: u16,
    csum_start: u16,
    csum_offset: u16,
}

/// The work that a frame's header requests does not fit its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadError;

impl VnetHeader {
    /// Whether a header that begins with these bytes leaves nothing to do.
    #[inline]
    pub fn leaves_nothing([flags, gso_type]: [u8; 2]) -> bool {
        flags & NEEDS_CHECKSUM == 0 && gso_type == GSO_NONE
    }

    /// Reads a header of at least 10 bytes (little-endian, as virtio 1 and Linux on little-endian machines write it).
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let [flags, gso_type, _, _, size_l, size_h, start_l, start_h, offset_l, offset_h] =
            *bytes.first_chunk::<10>()?;
        Some(VnetHeader {
            flags,
            gso_type,
            gso_size: u16::from_le_bytes([size_l, size_h]),
            csum_start: u16::from_le_bytes([start_l, start_h]),
            csum_offset: u16::from_le_bytes([offset_l, offset_h]),
        })
    }

    /// The header of a GSO frame of TCP whose segments have `gso_size` bytes of payload. The TCP header is at `l4`, and in
    /// its checksum's place the sum of the pseudo header.
    pub(crate) fn gso_tcp(is_v6: bool, gso_size: u16, l4: u16) -> Self {
        let gso_type = if is_v6 { GSO_TCPV6 } else { GSO_TCPV4 };
        VnetHeader { flags: NEEDS_CHECKSUM, gso_type, gso_size, csum_start: l4, csum_offset: TCP_CHECKSUM }
    }

    /// Its bytes, with the bytes of all headers in front of the payload and the number of buffers that the frame takes.
    pub(crate) fn to_bytes(self, headers: u16, buffers: u16) -> [u8; VNET_HEADER] {
        let [headers, size, start, offset, buffers] =
            [headers, self.gso_size, self.csum_start, self.csum_offset, buffers].map(u16::to_le_bytes);
        let mut bytes = [self.flags, self.gso_type, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for (field, at) in [headers, size, start, offset, buffers].iter().zip((2..).step_by(2)) {
            bytes[at..at + 2].copy_from_slice(field);
        }
        bytes
    }

    /// Whether the frame must be split into segments.
    pub fn is_gso(&self) -> bool {
        self.gso_type != GSO_NONE
    }

    /// Completes the checksum of a frame that is no GSO frame, if that was left to do.
    pub fn complete(&self, frame: &mut [u8]) -> Result<(), OffloadError> {
        if self.flags & NEEDS_CHECKSUM == 0 {
            return Ok(());
        }
        let (start, at) = (usize::from(self.csum_start), usize::from(self.csum_start) + usize::from(self.csum_offset));
        if at + 2 > frame.len() {
            return Err(OffloadError);
        }
        // The field already holds the pseudo header's sum.
        let sum = checksum::finish(checksum::sum(&frame[start..]));
        let sum = if self.csum_offset == UDP_CHECKSUM { of_udp(sum) } else { sum };
        frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        Ok(())
    }

    /// Begins to split a GSO frame.
    pub fn segments<'a>(&self, frame: &'a [u8]) -> Result<Segments<'a>, OffloadError> {
        let udp = match self.gso_type & !GSO_ECN {
            GSO_TCPV4 | GSO_TCPV6 => false,
            GSO_UDP_L4 => true,
            // UDP fragmentation (type 3) is never offered.
            _ => return Err(OffloadError),
        };
        let layers = Layers::of(frame).ok_or(OffloadError)?;
        let ip = layers.ip.ok_or(OffloadError)?;
        let (proto, l4) = layers.l4().ok_or(OffloadError)?;
        let l4_size = match (udp, proto) {
            (false, ip_proto::TCP) => usize::from(*frame.get(l4 + 12).ok_or(OffloadError)? >> 4) * 4,
            (true, ip_proto::UDP) => 8,
            _ => return Err(OffloadError),
        };
        let payload = l4 + l4_size;
        // Behind a SNAP header the frame has a length of its own, which segments would repeat.
        let whole = layers.is_ethernet_ii() && !ip.rerouted && ip.payload.is_some_and(|p| p.frag == 0);
        let sound = whole && self.gso_size != 0 && (udp || l4_size >= 20) && payload <= ip.end && ip.end <= frame.len();
        if !sound {
            return Err(OffloadError);
        }
        Ok(Segments {
            frame: &frame[..ip.end],
            l3: layers.l3,
            l4,
            payload,
            v6: ip.v6,
            udp,
            size: usize::from(self.gso_size),
            done: 0,
            count: 0,
        })
    }
}

/// How much of a GSO frame has been split.
#[derive(Clone, Copy, Debug, Default)]
pub struct Position {
    /// Payload bytes written.
    done: usize,
    /// Segments written.
    count: u16,
}

/// A GSO frame that is being split.
#[derive(Debug)]
pub struct Segments<'a> {
    frame: &'a [u8],
    l3: usize,
    l4: usize,
    /// Where the payload begins. The bytes in front are repeated in every segment.
    payload: usize,
    v6: bool,
    udp: bool,
    /// Payload bytes of each segment except the last.
    size: usize,
    /// Payload bytes written so far.
    done: usize,
    /// Segments written so far.
    count: u16,
}

impl Segments<'_> {
    /// The position of the next segment, to continue from later.
    pub fn position(&self) -> Position {
        Position { done: self.done, count: self.count }
    }

    /// Continues from a position.
    pub fn seek(&mut self, to: Position) {
        (self.done, self.count) = (to.done, to.count);
    }

    /// Bytes of the longest segment.
    pub fn longest(&self) -> usize {
        self.payload + self.size.min(self.frame.len() - self.payload)
    }

    /// How many segments are not written yet.
    pub fn left(&self) -> usize {
        let payload = self.frame.len() - self.payload - self.done;
        if self.is_done() { 0 } else { payload.div_ceil(self.size).max(1) }
    }

    /// Whether all segments are written. A frame without payload is one segment.
    pub fn is_done(&self) -> bool {
        self.payload + self.done >= self.frame.len() && self.count > 0
    }

    /// Writes the next segment, complete and with correct checksums, to the start of `out`. Returns its length; `None`
    /// at the end, or if `out` is shorter than [`Segments::longest`].
    pub fn next_into(&mut self, out: &mut [u8]) -> Option<usize> {
        if self.is_done() {
            return None;
        }
        let from = self.payload + self.done;
        let part = &self.frame[from..self.frame.len().min(from + self.size)];
        let len = self.payload + part.len();
        let out = out.get_mut(..len)?;
        out[..self.payload].copy_from_slice(&self.frame[..self.payload]);
        out[self.payload..].copy_from_slice(part);
        let last = from + part.len() == self.frame.len();
        self.write_ip(out);
        if self.udp {
            self.write_udp(out)
        } else {
            self.write_tcp(out, last)
        }
        self.done += part.len();
        self.count += 1;
        Some(len)
    }

    fn write_ip(&self, out: &mut [u8]) {
        let (l3, len) = (self.l3, out.len());
        if self.v6 {
            out[l3 + 4..l3 + 6].copy_from_slice(&((len - l3 - 40) as u16).to_be_bytes());
            return;
        }
        out[l3 + 2..l3 + 4].copy_from_slice(&((len - l3) as u16).to_be_bytes());
        let id = be16(out, l3 + 4).unwrap_or(0).wrapping_add(self.count);
        out[l3 + 4..l3 + 6].copy_from_slice(&id.to_be_bytes());
        let header = usize::from(out[l3] & 15) * 4;
        write_v4_checksum(&mut out[l3..l3 + header]);
    }

    fn write_tcp(&self, out: &mut [u8], last: bool) {
        let l4 = self.l4;
        let sequence = be32(out, l4 + 4).unwrap_or(0).wrapping_add(self.done as u32);
        out[l4 + 4..l4 + 8].copy_from_slice(&sequence.to_be_bytes());
        if !last {
            out[l4 + 13] &= !FIN_AND_PUSH;
        }
        if self.count > 0 {
            out[l4 + 13] &= !CWR;
        }
        self.write_checksum(out, l4 + 16);
    }

    fn write_udp(&self, out: &mut [u8]) {
        let l4 = self.l4;
        let size = (out.len() - l4) as u16;
        out[l4 + 4..l4 + 6].copy_from_slice(&size.to_be_bytes());
        self.write_checksum(out, l4 + 6);
    }

    fn write_checksum(&self, out: &mut [u8], at: usize) {
        let proto = if self.udp { ip_proto::UDP } else { ip_proto::TCP };
        let pseudo = pseudo_header(&out[self.l3..], self.v6, proto, out.len() - self.l4);
        out[at..at + 2].fill(0);
        let sum = checksum::finish(pseudo + checksum::sum(&out[self.l4..]));
        let sum = if self.udp { of_udp(sum) } else { sum };
        out[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

/// A checksum as UDP sends it: 0 would mean that there is none (RFC 768).
fn of_udp(sum: u16) -> u16 {
    if sum == 0 { 0xffff } else { sum }
}

/// The sum of the pseudo header of `size` bytes of a protocol behind the IP header with which `ip` begins.
pub(crate) fn pseudo_header(ip: &[u8], is_v6: bool, proto: u8, size: usize) -> u64 {
    let addresses = if is_v6 { &ip[8..40] } else { &ip[12..20] };
    checksum::sum(addresses) + u64::from(proto) + size as u64
}

/// Writes the checksum of an IPv4 header.
pub(crate) fn write_v4_checksum(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = checksum::internet(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A TCP frame with `payload` bytes, its checksum field holding the pseudo header's sum.
    fn tcp(v6: bool, tags: usize, payload: usize) -> (Vec<u8>, usize) {
        let mut frame = vec![2; 12];
        (0..tags).for_each(|_| frame.extend([0x81, 0, 0, 5]));
        let size = (20 + payload) as u16;
        if v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(size.to_be_bytes());
            frame.extend([6, 64]);
            frame.extend([0xfe; 16]);
            frame.extend([0xfd; 16]);
        } else {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((size + 20).to_be_bytes());
            frame.extend([0xff, 0xfe, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        }
        let l4 = frame.len();
        frame.extend([0, 80, 1, 0, 0xff, 0xff, 0xff, 0, 0, 0, 0, 9, 0x50, 0x99, 2, 0, 0, 0, 0, 0]);
        frame.extend((0..payload).map(|i| i as u8));
        let addresses = if v6 { &frame[l4 - 32..l4] } else { &frame[l4 - 8..l4] };
        let pseudo = !checksum::finish(checksum::sum(addresses) + 6 + u64::from(size));
        frame[l4 + 16..l4 + 18].copy_from_slice(&pseudo.to_be_bytes());
        (frame, l4)
    }

    /// The same for UDP.
    fn udp(v6: bool, tags: usize, payload: usize) -> (Vec<u8>, usize) {
        let (tcp, l4) = tcp(v6, tags, payload);
        let size = (8 + payload) as u16;
        let mut frame = [&tcp[..l4], &[0, 80, 1, 0], &size.to_be_bytes(), &[0, 0], &tcp[l4 + 20..]].concat();
        let (l3, addresses) = if v6 { (l4 - 40, l4 - 32..l4) } else { (l4 - 20, l4 - 8..l4) };
        if v6 {
            frame[l3 + 4..l3 + 6].copy_from_slice(&size.to_be_bytes());
            frame[l3 + 6] = ip_proto::UDP;
        } else {
            frame[l3 + 2..l3 + 4].copy_from_slice(&(size + 20).to_be_bytes());
            frame[l3 + 9] = ip_proto::UDP;
            let sum = checksum::internet(&frame[l3..l4]);
            frame[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
        }
        let pseudo = !checksum::finish(checksum::sum(&frame[addresses]) + u64::from(ip_proto::UDP) + u64::from(size));
        frame[l4 + 6..l4 + 8].copy_from_slice(&pseudo.to_be_bytes());
        (frame, l4)
    }

    /// Chooses the first two payload bytes so that the datagram of the first `n` bytes has checksum zero.
    fn sum_up_to_zero(frame: &mut [u8], l4: usize, n: usize) {
        let layers = Layers::of(frame).unwrap();
        let (l3, is_v6) = (layers.l3, layers.ip.unwrap().v6);
        let addresses = if is_v6 { l3 + 8..l3 + 40 } else { l3 + 12..l3 + 20 };
        let size = (8 + n) as u64;
        let mut datagram = frame[l4..l4 + 8 + n].to_vec();
        datagram[4..6].copy_from_slice(&(size as u16).to_be_bytes());
        datagram[6..10].fill(0);
        let sum = checksum::finish(
            checksum::sum(&frame[addresses]) + u64::from(ip_proto::UDP) + size + checksum::sum(&datagram),
        );
        frame[l4 + 8..l4 + 10].copy_from_slice(&sum.to_be_bytes());
    }

    /// Whether the IP and L4 checksums are correct, by definition.
    fn sound(frame: &[u8]) -> bool {
        let layers = Layers::of(frame).unwrap();
        let (ip, (proto, l4)) = (layers.ip.unwrap(), layers.l4().unwrap());
        let l3 = layers.l3;
        let addresses = if ip.v6 { &frame[l3 + 8..l3 + 40] } else { &frame[l3 + 12..l3 + 20] };
        let size = (ip.end - l4) as u64;
        let l4_sum =
            checksum::finish(checksum::sum(addresses) + u64::from(proto) + size + checksum::sum(&frame[l4..ip.end]));
        ip.end == frame.len() && l4_sum == 0 && (ip.v6 || checksum::internet(&frame[l3..l3 + 20]) == 0)
    }

    proptest! {
        /// Segments are valid, short enough, and carry the payload in order; flags are on the right segments.
        #[test]
        fn segments_add_up(v6: bool, tags in 0usize..3, payload in 0usize..5000, size in 1u16..1500) {
            let (frame, l4) = tcp(v6, tags, payload);
            let header = VnetHeader { flags: 1, gso_type: if v6 { GSO_TCPV6 } else { GSO_TCPV4 }, gso_size: size, csum_start: l4 as u16, csum_offset: 16 };
            let mut segments = header.segments(&frame).unwrap();
            let (mut out, mut carried, mut n) = (vec![0; segments.longest()], vec![], 0u32);
            while let Some(len) = segments.next_into(&mut out) {
                let segment = &out[..len];
                prop_assert!(sound(segment));
                prop_assert!(len - l4 - 20 <= usize::from(size));
                let sequence = be32(segment, l4 + 4).unwrap();
                prop_assert_eq!(sequence, 0xffff_ff00u32.wrapping_add(carried.len() as u32));
                carried.extend_from_slice(&segment[l4 + 20..]);
                let last = carried.len() == payload;
                prop_assert_eq!(segment[l4 + 13], 0x10 | if last { 9 } else { 0 } | if n == 0 { CWR } else { 0 });
                n += 1;
                prop_assert_eq!(segments.left(), (payload - carried.len()).div_ceil(usize::from(size)));
                // Splitting may pause and continue anywhere.
                let at = segments.position();
                segments.seek(at);
            }
            prop_assert!(segments.is_done());
            prop_assert_eq!(&carried[..], &frame[l4 + 20..]);
            prop_assert_eq!(n as usize, payload.div_ceil(usize::from(size)).max(1));
        }

        /// A partial checksum is completed.
        #[test]
        fn a_checksum_is_completed(v6: bool, tags in 0usize..3, payload in 0usize..200) {
            let (mut frame, l4) = tcp(v6, tags, payload);
            if !v6 {
                let l3 = l4 - 20;
                let sum = checksum::internet(&frame[l3..l4]);
                frame[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
            }
            let header = VnetHeader { flags: 1, csum_start: l4 as u16, csum_offset: 16, ..VnetHeader::default() };
            header.complete(&mut frame).unwrap();
            prop_assert!(sound(&frame));
        }

        /// A large UDP frame splits into valid datagrams, each with its own length. A checksum of zero is not written
        /// as zero, which would mean that there is none.
        #[test]
        fn datagrams_add_up(v6: bool, tags in 0usize..3, payload in 1usize..3000, size in 1u16..1500, zero: bool) {
            let (mut frame, l4) = udp(v6, tags, payload);
            if zero && payload.min(size.into()) > 1 {
                sum_up_to_zero(&mut frame, l4, payload.min(size.into()));
            }
            let gso_type = GSO_UDP_L4;
            let header = VnetHeader { flags: 1, gso_type, gso_size: size, csum_start: l4 as u16, csum_offset: 6 };
            let mut segments = header.segments(&frame).unwrap();
            let (mut out, mut carried) = (vec![0; segments.longest()], vec![]);
            while let Some(len) = segments.next_into(&mut out) {
                let segment = &out[..len];
                prop_assert!(sound(segment));
                prop_assert_ne!(&segment[l4 + 6..l4 + 8], &[0, 0]);
                prop_assert_eq!(usize::from(u16::from_be_bytes([segment[l4 + 4], segment[l4 + 5]])), len - l4);
                prop_assert!(len - l4 - 8 <= usize::from(size));
                carried.extend_from_slice(&segment[l4 + 8..]);
            }
            prop_assert_eq!(&carried[..], &frame[l4 + 8..]);
        }

        /// The same for one that is not split.
        #[test]
        fn a_sum_of_zero_is_written_as_the_other_zero(v6: bool, tags in 0usize..3, payload in 2usize..200) {
            let (mut frame, l4) = udp(v6, tags, payload);
            sum_up_to_zero(&mut frame, l4, payload);
            let header = VnetHeader { flags: 1, csum_start: l4 as u16, csum_offset: 6, ..VnetHeader::default() };
            header.complete(&mut frame).unwrap();
            prop_assert_eq!(&frame[l4 + 6..l4 + 8], &[0xff, 0xff]);
        }

        /// For any guest input, nothing panics and no segment is longer than promised.
        #[test]
        fn nonsense_is_refused(header in prop::array::uniform12(any::<u8>()), v6: bool, cut in 0usize..120, flip in any::<prop::sample::Index>(), value: u8) {
            let (mut frame, _) = tcp(v6, 0, 60);
            frame.truncate(frame.len().saturating_sub(cut).max(1));
            let at = flip.index(frame.len());
            frame[at] = value;
            for gso_type in [header[1], GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4] {
                let header = VnetHeader { gso_type, ..VnetHeader::read(&header).unwrap() };
                let _ = header.complete(&mut frame.clone());
                if let Ok(mut segments) = header.segments(&frame) {
                    let mut out = vec![0; segments.longest()];
                    let mut n = 0;
                    while segments.next_into(&mut out).is_some() {
                        n += 1;
                        prop_assert!(n <= frame.len());
                    }
                }
            }
        }
    }
}
