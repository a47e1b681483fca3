//! Generic receive offload: consecutive segments of one TCP connection become one GSO frame again.
//!
//! A guest takes a GSO frame (a frame that stands for many segments) at the cost of one packet. Segments into which another
//! guest's GSO frame was split, and those that come from a wire, go through the switch as ordinary packets; where they leave
//! to a guest that takes GSO frames, they are merged. Such a frame says how it is to be split: [`VnetHeader::segments`] gives
//! the same segments, byte by byte. Since the guest does not verify the checksum of a GSO frame, that of each segment is
//! verified before.
//! Source: Virtual I/O Device (VIRTIO) 1.2, section 5.1.6; Linux, Documentation/networking/segmentation-offloads.rst.

use crate::offload::{FIN_AND_PUSH, VNET_HEADER, VnetHeader, pseudo_header, write_v4_checksum};
use arrayvec::ArrayVec;
use sluice_packet::headers::{be16, be32, ip_proto};
use sluice_packet::{Layers, Packet, checksum};

/// The GSO frames that a guest takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GuestTso {
    /// Of TCP over IPv4.
    pub v4: bool,
    /// Of TCP over IPv6.
    pub v6: bool,
}

/// Bytes of headers that a GSO frame has at most: Ethernet, two tags, IP and TCP with all options. Segments with longer
/// ones, as extension headers make them, are not merged.
const HEADERS_MAX: usize = 14 + 2 * 4 + 60 + 60;

/// The most bytes of an IP packet.
const IP_MAX: usize = 65_535;

/// The smallest TCP header.
const TCP_MIN: usize = 20;

const ACK: u8 = 0x10;

/// Consecutive segments merged into one GSO frame: its headers. The payload stays in the packets.
#[derive(Debug, PartialEq)]
pub(crate) struct GsoFrame {
    /// How many packets it has.
    pub packets: usize,
    /// From the Ethernet header to the TCP header, its own included.
    pub headers: ArrayVec<u8, HEADERS_MAX>,
    /// Whether another segment can follow.
    pub is_open: bool,
    offload: VnetHeader,
}

impl GsoFrame {
    /// Merges as many packets from the front of `packets` as one GSO frame can have. `None` if that is fewer than two, or
    /// the guest does not take such frames. The first `known` packets were one open frame before.
    pub fn of(packets: &[Packet], known: usize, tso: GuestTso) -> Option<GsoFrame> {
        let first = Segment::of(packets.first()?.bytes())?;
        let is_taken = if first.is_v6 { tso.v6 } else { tso.v4 };
        if !is_taken || first.flags() != ACK {
            return None;
        }
        let (gso_size, payload_max) = (first.payload().len(), IP_MAX - (first.payload - first.l3));
        let known = known.max(1);
        let (mut count, mut payload, mut flags) = (known, known * gso_size, ACK);
        for packet in &packets[known..] {
            let Some(next) = Segment::of(packet.bytes()) else { break };
            let next_len = next.payload().len();
            // A shorter segment, and one that pushes or finishes, is the last.
            let fits = flags == ACK
                && payload == count * gso_size
                && next_len <= gso_size
                && payload + next_len <= payload_max;
            if !fits || !next.continues(&first, payload, count) || !next.has_valid_checksums() {
                break;
            }
            if count == 1 && !first.has_valid_checksums() {
                return None;
            }
            (count, payload, flags) = (count + 1, payload + next_len, next.flags());
        }
        (count > 1).then(|| GsoFrame {
            packets: count,
            headers: first.headers_of_all(payload, flags),
            is_open: flags == ACK && payload == count * gso_size && payload + gso_size <= payload_max,
            offload: VnetHeader::gso_tcp(first.is_v6, gso_size as u16, first.l4 as u16),
        })
    }

    /// The frame's virtio-net header. The frame takes `buffers` buffers.
    pub fn vnet_header(&self, buffers: u16) -> [u8; VNET_HEADER] {
        self.offload.to_bytes(self.headers.len() as u16, buffers)
    }

    /// The payload of one of its packets.
    pub fn payload<'a>(&self, packet: &'a Packet) -> &'a [u8] {
        &packet.bytes()[self.headers.len()..]
    }
}

/// A whole TCP segment with payload, and nothing behind it.
#[derive(Clone, Copy, Debug)]
struct Segment<'a> {
    frame: &'a [u8],
    is_v6: bool,
    /// Where the IP header is, the TCP header and the payload.
    l3: usize,
    l4: usize,
    payload: usize,
}

impl<'a> Segment<'a> {
    fn of(frame: &'a [u8]) -> Option<Self> {
        let layers = Layers::of(frame)?;
        let (ip, (proto, l4)) = (layers.ip?, layers.l4()?);
        let is_whole = layers.is_ethernet_ii()
            && !ip.rerouted
            && ip.payload.is_some_and(|payload| payload.frag == 0)
            && ip.end == frame.len();
        if proto != ip_proto::TCP || !is_whole {
            return None;
        }
        let size = usize::from(*frame.get(l4 + 12)? >> 4) * 4;
        let payload = l4 + size;
        let has_payload = size >= TCP_MIN && payload < frame.len() && payload <= HEADERS_MAX;
        has_payload.then_some(Segment { frame, is_v6: ip.v6, l3: layers.l3, l4, payload })
    }

    fn payload(&self) -> &'a [u8] {
        &self.frame[self.payload..]
    }

    fn flags(&self) -> u8 {
        self.frame[self.l4 + 13]
    }

    /// Where its IPv4 header is.
    fn v4_header(&self) -> std::ops::Range<usize> {
        self.l3..self.l3 + usize::from(self.frame[self.l3] & 15) * 4
    }

    /// The sum of the pseudo header of `size` bytes of TCP.
    fn pseudo_header(&self, size: usize) -> u64 {
        pseudo_header(&self.frame[self.l3..], self.is_v6, ip_proto::TCP, size)
    }

    /// Whether its checksums are right.
    fn has_valid_checksums(&self) -> bool {
        let tcp = &self.frame[self.l4..];
        checksum::finish(self.pseudo_header(tcp.len()) + checksum::sum(tcp)) == 0
            && (self.is_v6 || checksum::internet(&self.frame[self.v4_header()]) == 0)
    }

    /// Whether it follows `count` segments that begin with `first` and have `carried` bytes of payload together. Then its
    /// headers differ from those of `first` only in lengths, sums, place in the stream, and the flags FIN and PSH.
    fn continues(&self, first: &Segment<'_>, carried: usize, count: usize) -> bool {
        if (self.l3, self.l4, self.payload) != (first.l3, first.l4, first.payload)
            || self.flags() & !FIN_AND_PUSH != ACK
        {
            return false;
        }
        let (l3, l4, own) = (self.l3, self.l4, self.frame);
        let mut expected = first.headers();
        let mut same = |at: std::ops::Range<usize>| expected[at.clone()].copy_from_slice(&own[at]);
        // Lengths are right already: the segment ends with its frame.
        if self.is_v6 {
            same(l3 + 4..l3 + 6);
        } else {
            same(l3 + 2..l3 + 4);
            same(l3 + 10..l3 + 12);
        }
        same(l4 + 13..l4 + 14);
        same(l4 + 16..l4 + 18);
        if !self.is_v6 {
            let id = be16(first.frame, l3 + 4).unwrap_or(0).wrapping_add(count as u16);
            expected[l3 + 4..l3 + 6].copy_from_slice(&id.to_be_bytes());
        }
        let sequence = be32(first.frame, l4 + 4).unwrap_or(0).wrapping_add(carried as u32);
        expected[l4 + 4..l4 + 8].copy_from_slice(&sequence.to_be_bytes());
        expected[..] == own[..self.payload]
    }

    fn headers(&self) -> ArrayVec<u8, HEADERS_MAX> {
        self.frame[..self.payload].iter().copied().collect()
    }

    /// The headers of the GSO frame of which it is the first segment. In place of the checksum they have the sum of the
    /// pseudo header, as a guest expects it.
    fn headers_of_all(&self, payload: usize, flags: u8) -> ArrayVec<u8, HEADERS_MAX> {
        let (l3, l4, mut headers) = (self.l3, self.l4, self.headers());
        let size = headers.len() + payload;
        if self.is_v6 {
            headers[l3 + 4..l3 + 6].copy_from_slice(&((size - l3 - 40) as u16).to_be_bytes());
        } else {
            headers[l3 + 2..l3 + 4].copy_from_slice(&((size - l3) as u16).to_be_bytes());
            write_v4_checksum(&mut headers[self.v4_header()]);
        }
        headers[l4 + 13] = flags;
        let sum = !checksum::finish(self.pseudo_header(size - l4));
        headers[l4 + 16..l4 + 18].copy_from_slice(&sum.to_be_bytes());
        headers
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use sluice_mem::FramePool;
    use sluice_packet::{BATCH_MAX, Buffers};
    use sluice_testkit::frame;
    use std::sync::Arc;

    const ALL: GuestTso = GuestTso { v4: true, v6: true };

    /// A GSO frame of TCP as a guest sends it, and its virtio-net header.
    pub(crate) fn gso_frame(
        is_v6: bool,
        tags: u16,
        options: usize,
        flags: u16,
        payload: usize,
        size: u16,
    ) -> (Vec<u8>, VnetHeader) {
        let mut builder = frame::ethernet();
        for tag in 0..tags {
            builder = builder.vlan(tag + 5);
        }
        builder = if is_v6 { builder.ipv6([0xfd; 16], [0xfe; 16]) } else { builder.ipv4([10, 0, 0, 1], [10, 0, 0, 2]) };
        let bytes: Vec<u8> = (0..payload).map(|i| (i * 7 % 251) as u8).collect();
        let builder = builder.tcp(1000, 2000).tcp_flags(flags).tcp_options(&vec![1; 4 * options]).payload(&bytes);
        let frame = builder.build();
        let l4 = frame.len() - payload - 20 - 4 * options;
        (frame, VnetHeader::gso_tcp(is_v6, size, l4 as u16))
    }

    /// The segments of a GSO frame.
    pub(crate) fn segments(frame: &[u8], header: VnetHeader) -> Vec<Vec<u8>> {
        let mut segments = header.segments(frame).unwrap();
        let (mut out, mut all) = (vec![0; segments.longest()], Vec::new());
        while let Some(len) = segments.next_into(&mut out) {
            all.push(out[..len].to_vec());
        }
        all
    }

    fn packets(frames: &[Vec<u8>]) -> Vec<Packet> {
        let pool: Arc<dyn FramePool> = crate::Pools::new(frames.len().max(1)).of_size(9000).unwrap();
        let mut buffers = Buffers::new();
        frames.iter().map(|frame| buffers.write(&pool, frame).unwrap()).collect()
    }

    /// The frame that some packets become, whole.
    fn whole(merged: &GsoFrame, packets: &[Packet]) -> Vec<u8> {
        let payloads = packets[..merged.packets].iter().flat_map(|packet| merged.payload(packet));
        merged.headers.iter().chain(payloads).copied().collect()
    }

    /// Completes the checksum of a merged frame, as if it were an ordinary one.
    fn complete(whole: &mut [u8], merged: &GsoFrame) {
        let mut header = merged.vnet_header(1);
        header[1] = 0;
        VnetHeader::read(&header).unwrap().complete(whole).unwrap();
    }

    fn has_valid_checksums(frame: &[u8]) -> bool {
        Segment::of(frame).is_some_and(|segment| segment.has_valid_checksums())
    }

    /// A way in which a segment is not the one that is due.
    #[derive(Clone, Copy, Debug)]
    enum Fault {
        Flip(prop::sample::Index, u8),
        Missing,
        Twice,
        Pad,
    }

    fn fault() -> impl Strategy<Value = Fault> {
        prop_oneof![
            4 => (any::<prop::sample::Index>(), 1..=255u8).prop_map(|(at, bits)| Fault::Flip(at, bits)),
            1 => Just(Fault::Missing),
            1 => Just(Fault::Twice),
            1 => Just(Fault::Pad),
        ]
    }

    proptest! {
        /// The segments of a GSO frame become that frame, as many of them as a batch has. The guest that completes its
        /// checksum, as it may, has the frame as it was before it was split.
        #[test]
        fn segments_become_the_frame_that_they_were(
            is_v6: bool, tags in 0..3u16, options in 0..8usize, push: bool, payload in 2..20_000usize, size in 1..1400u16,
            known in 2..BATCH_MAX,
        ) {
            prop_assume!(payload > usize::from(size));
            let (frame, header) = gso_frame(is_v6, tags, options, if push { 0x18 } else { 0x10 }, payload, size);
            let segments = segments(&frame, header);
            let all = segments.len();
            let segments = &segments[..all.min(BATCH_MAX)];
            let packets = packets(segments);
            let merged = GsoFrame::of(&packets, 0, ALL).unwrap();
            prop_assert_eq!(merged.packets, segments.len());
            // In two parts, the first of which is open, it is the same.
            if known < segments.len() {
                prop_assert!(GsoFrame::of(&packets[..known], 0, ALL).unwrap().is_open);
                prop_assert_eq!(&GsoFrame::of(&packets, known, ALL).unwrap(), &merged);
            }
            let is_last = segments.len() == all && (push || payload % usize::from(size) != 0);
            prop_assert_eq!(merged.is_open, !is_last);
            let mut whole = whole(&merged, &packets);
            prop_assert_eq!(self::segments(&whole, merged.offload), segments);
            complete(&mut whole, &merged);
            prop_assert!(has_valid_checksums(&whole));
            if segments.len() == all {
                prop_assert_eq!(whole, frame);
            }
        }

        /// What is merged of any packets, splits into these packets; nothing else is.
        #[test]
        fn what_is_merged_splits_into_the_same_packets(
            is_v6: bool, tags in 0..3u16, payload in 2..6000usize, size in 1..1400u16, at in any::<prop::sample::Index>(), fault in fault(),
        ) {
            let (frame, header) = gso_frame(is_v6, tags, 3, 0x18, payload, size);
            let mut frames = segments(&frame, header);
            frames.truncate(BATCH_MAX - 1);
            let i = at.index(frames.len());
            match fault {
                Fault::Flip(byte, bits) => {
                    let byte = byte.index(frames[i].len());
                    frames[i][byte] ^= bits;
                }
                Fault::Missing => drop(frames.remove(i)),
                Fault::Twice => frames.insert(i, frames[i].clone()),
                Fault::Pad => frames[i].push(0),
            }
            let packets = packets(&frames);
            for from in 0..packets.len() {
                if let Some(merged) = GsoFrame::of(&packets[from..], 0, ALL) {
                    let again = segments(&whole(&merged, &packets[from..]), merged.offload);
                    prop_assert_eq!(&again[..], &frames[from..from + merged.packets]);
                    prop_assert!(merged.packets > 1);
                }
            }
        }
    }

    #[test]
    fn a_guest_gets_the_gso_frames_that_it_takes() {
        for (is_v6, taken) in [(false, GuestTso { v4: false, v6: true }), (true, GuestTso { v4: true, v6: false })] {
            let (frame, header) = gso_frame(is_v6, 0, 0, 0x10, 3000, 1000);
            let packets = packets(&segments(&frame, header));
            assert!(GsoFrame::of(&packets, 0, taken).is_none() && GsoFrame::of(&packets, 0, ALL).is_some());
        }
    }

    #[test]
    fn a_segment_with_a_wrong_checksum_is_not_hidden_in_a_gso_frame() {
        let (frame, header) = gso_frame(false, 0, 0, 0x10, 4000, 1000);
        for broken in 0..4 {
            let mut frames = segments(&frame, header);
            frames[broken][500] ^= 1;
            let merged = GsoFrame::of(&packets(&frames), 0, ALL).map(|merged| merged.packets);
            assert_eq!(merged, (broken > 1).then_some(broken), "{broken}");
        }
    }

    #[test]
    fn a_checksum_of_zero_stays_zero() {
        let (mut frame, header) = gso_frame(false, 0, 0, 0x10, 2000, 1000);
        // A payload that takes the first segment's sum to where its checksum is 0.
        let payload = frame.len() - 2000;
        let sum = be16(&segments(&frame, header)[0], payload - 4).unwrap();
        let word = u32::from(be16(&frame, payload).unwrap()) + u32::from(sum);
        frame[payload..payload + 2].copy_from_slice(&((word + (word >> 16)) as u16).to_be_bytes());
        let segments = segments(&frame, header);
        assert_eq!(be16(&segments[0], payload - 4), Some(0));
        let packets = packets(&segments);
        let merged = GsoFrame::of(&packets, 0, ALL).unwrap();
        assert_eq!(self::segments(&whole(&merged, &packets), merged.offload), segments);
    }

    #[test]
    fn frames_with_a_length_of_their_own_are_not_merged() {
        let (frame, header) = gso_frame(false, 0, 0, 0x10, 2000, 1000);
        let snap = |segment: &Vec<u8>| {
            let len = (segment.len() - 14 + 8) as u16;
            [&segment[..12], &len.to_be_bytes(), &[0xaa, 0xaa, 3, 0, 0, 0], &segment[12..]].concat()
        };
        let packets = packets(&segments(&frame, header).iter().map(snap).collect::<Vec<_>>());
        assert!(GsoFrame::of(&packets, 0, ALL).is_none());
        assert!(header.segments(&snap(&frame)).is_err());
    }

    #[test]
    fn a_gso_frame_is_an_ip_packet() {
        // Two GSO frames that follow each other: 72,000 bytes together.
        let size = 4000;
        let (frame, header) = gso_frame(false, 0, 0, 0x10, 9 * size, size as u16);
        let mut frames = segments(&frame, header);
        for i in 0..9 {
            let mut later = frames[i].clone();
            let (id, sequence) = (be16(&later, 18).unwrap(), be32(&later, 38).unwrap());
            later[18..20].copy_from_slice(&(id + 9).to_be_bytes());
            later[38..42].copy_from_slice(&(sequence + 9 * size as u32).to_be_bytes());
            for (at, from, pseudo) in
                [(24, 14..34, 0), (50, 34..later.len(), Segment::of(&later).unwrap().pseudo_header(20 + size))]
            {
                later[at..at + 2].fill(0);
                let sum = checksum::finish(pseudo + checksum::sum(&later[from]));
                later[at..at + 2].copy_from_slice(&sum.to_be_bytes());
            }
            frames.push(later);
        }
        let packets = packets(&frames);
        let merged = GsoFrame::of(&packets, 0, ALL).unwrap();
        assert_eq!(merged.packets, 16, "the most of {size} bytes each in {IP_MAX}");
        assert_eq!(segments(&whole(&merged, &packets), merged.offload), frames[..16]);
    }
}
