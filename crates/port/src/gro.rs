//! Generic receive offload: segments of one TCP connection that follow each other become one large frame again.
//!
//! A guest takes a large frame at the cost of one packet. Large frames that another guest left to split, and segments that
//! come from a wire, go through the switch as ordinary packets; where they leave to a guest that takes large frames, they
//! are merged. A large frame says how it is to be split: [`VnetHeader::segments`] gives the same segments, byte by byte.
//! Since the guest does not check the sum of a large frame, that of each segment is checked before.
//! Source: Virtual I/O Device (VIRTIO) 1.2, section 5.1.6; Linux, Documentation/networking/segmentation-offloads.rst.

use crate::offload::{FIN_AND_PUSH, VNET_HEADER, VnetHeader, pseudo_header, write_v4_checksum};
use arrayvec::ArrayVec;
use sluice_packet::headers::{be16, be32, ip_proto};
use sluice_packet::{Layers, Packet, checksum};

/// The large frames that a guest takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LargeFrames {
    /// Of TCP over IPv4.
    pub v4: bool,
    /// Of TCP over IPv6.
    pub v6: bool,
}

/// Bytes of headers that a large frame has at most: Ethernet, two tags, IP and TCP with all options. Segments with longer
/// ones, as extension headers make them, are not merged.
const HEADERS_MAX: usize = 14 + 2 * 4 + 60 + 60;

/// The most bytes of an IP packet.
const IP_MAX: usize = 65_535;

/// The smallest TCP header.
const TCP_MIN: usize = 20;

const ACK: u8 = 0x10;

/// Segments that are one large frame: its headers, behind which their payloads follow each other.
#[derive(Debug)]
pub(crate) struct Merged {
    /// How many packets it has.
    pub packets: usize,
    /// From the Ethernet header to the TCP header, its own included.
    pub headers: ArrayVec<u8, HEADERS_MAX>,
    offload: VnetHeader,
}

impl Merged {
    /// The packets at the beginning of `packets` that are one large frame, if these are two or more and it is one that the
    /// guest takes.
    pub fn of(packets: &[Packet], taken: LargeFrames) -> Option<Merged> {
        let (first, others) = packets.split_first()?;
        let first = Segment::of(first.bytes())?;
        let is_taken = if first.is_v6 { taken.v6 } else { taken.v4 };
        if !is_taken || first.flags() != ACK {
            return None;
        }
        let (size, most) = (first.payload().len(), IP_MAX - (first.payload - first.l3));
        let (mut count, mut carried, mut flags) = (1, size, ACK);
        for packet in others {
            let Some(next) = Segment::of(packet.bytes()) else { break };
            let more = next.payload().len();
            let fits = flags == ACK && carried == count * size && more <= size && carried + more <= most;
            if !fits || !next.continues(&first, carried, count) || !next.is_sound() {
                break;
            }
            if count == 1 && !first.is_sound() {
                return None;
            }
            (count, carried, flags) = (count + 1, carried + more, next.flags());
        }
        (count > 1).then(|| Merged {
            packets: count,
            headers: first.headers_of_all(carried, flags),
            offload: VnetHeader::large_tcp(first.is_v6, size as u16, first.l4 as u16),
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
        let is_whole = !ip.rerouted && ip.payload.is_some_and(|payload| payload.frag == 0) && ip.end == frame.len();
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
    fn is_sound(&self) -> bool {
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

    /// The headers of the large frame of which it is the first segment. In place of the checksum they have the sum of the
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

    const ALL: LargeFrames = LargeFrames { v4: true, v6: true };

    /// A large frame of TCP as a guest sends it, and its virtio-net header.
    pub(crate) fn large(
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
        (frame, VnetHeader::large_tcp(is_v6, size, l4 as u16))
    }

    /// The segments of a large frame.
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
    fn whole(merged: &Merged, packets: &[Packet]) -> Vec<u8> {
        let payloads = packets[..merged.packets].iter().flat_map(|packet| merged.payload(packet));
        merged.headers.iter().chain(payloads).copied().collect()
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
        /// The segments of a large frame become that frame, as many of them as a batch has.
        #[test]
        fn segments_become_the_frame_that_they_were(
            is_v6: bool, tags in 0..3u16, options in 0..8usize, push: bool, payload in 2..20_000usize, size in 1..1400u16,
        ) {
            prop_assume!(payload > usize::from(size));
            let (frame, header) = large(is_v6, tags, options, if push { 0x18 } else { 0x10 }, payload, size);
            let segments = segments(&frame, header);
            let segments = &segments[..segments.len().min(BATCH_MAX)];
            let packets = packets(segments);
            let merged = Merged::of(&packets, ALL).unwrap();
            prop_assert_eq!(merged.packets, segments.len());
            prop_assert_eq!(self::segments(&whole(&merged, &packets), merged.offload), segments);
        }

        /// What is merged of any packets, splits into these packets; nothing else is.
        #[test]
        fn what_is_merged_splits_into_the_same_packets(
            is_v6: bool, tags in 0..3u16, payload in 2..6000usize, size in 1..1400u16, at in any::<prop::sample::Index>(), fault in fault(),
        ) {
            let (frame, header) = large(is_v6, tags, 3, 0x18, payload, size);
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
                if let Some(merged) = Merged::of(&packets[from..], ALL) {
                    let again = segments(&whole(&merged, &packets[from..]), merged.offload);
                    prop_assert_eq!(&again[..], &frames[from..from + merged.packets]);
                    prop_assert!(merged.packets > 1);
                }
            }
        }
    }

    #[test]
    fn a_guest_gets_the_large_frames_that_it_takes() {
        for (is_v6, taken) in
            [(false, LargeFrames { v4: false, v6: true }), (true, LargeFrames { v4: true, v6: false })]
        {
            let (frame, header) = large(is_v6, 0, 0, 0x10, 3000, 1000);
            let packets = packets(&segments(&frame, header));
            assert!(Merged::of(&packets, taken).is_none() && Merged::of(&packets, ALL).is_some());
        }
    }

    #[test]
    fn a_segment_with_a_wrong_checksum_is_not_hidden_in_a_large_frame() {
        let (frame, header) = large(false, 0, 0, 0x10, 4000, 1000);
        for broken in 0..4 {
            let mut frames = segments(&frame, header);
            frames[broken][500] ^= 1;
            let merged = Merged::of(&packets(&frames), ALL).map(|merged| merged.packets);
            assert_eq!(merged, (broken > 1).then_some(broken), "{broken}");
        }
    }

    #[test]
    fn a_large_frame_is_an_ip_packet() {
        // Two large frames that follow each other: 72,000 bytes together.
        let size = 4000;
        let (frame, header) = large(false, 0, 0, 0x10, 9 * size, size as u16);
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
        let merged = Merged::of(&packets, ALL).unwrap();
        assert_eq!(merged.packets, 16, "the most of {size} bytes each in {IP_MAX}");
        assert_eq!(segments(&whole(&merged, &packets), merged.offload), frames[..16]);
    }
}
