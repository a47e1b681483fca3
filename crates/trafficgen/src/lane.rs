//! A lane: a stream's packets from one port to another.

use crate::stamp::{STAMP_SIZE, Stamp};
use sluice_traffic::{FlowStream, Profile, ProfileError};

/// A stream's packets from one port to another.
#[derive(Clone, Debug)]
pub struct Lane {
    /// For display: stream and ports.
    pub name: String,
    /// The port that sends, counted from 0.
    pub from: usize,
    /// The port at which packets should arrive.
    pub to: usize,
    /// Packets a second at the profile's own rate; in a search, its share of the total.
    pub rate_pps: f64,
    /// Whether it takes part in warm-ups.
    pub teaches: bool,
    /// Whether it takes part in measurements.
    pub measures: bool,
    pub(crate) frames: Frames,
}

impl Lane {
    /// A profile's packets from one port to another at that rate, for warm-ups and measurements.
    ///
    /// # Errors
    /// If the profile is invalid.
    pub fn made(name: &str, [from, to]: [usize; 2], rate_pps: f64, profile: &Profile) -> Result<Lane, ProfileError> {
        let frames = Frames::made(profile, &[(profile.frame_size, 1)])?;
        Ok(Lane { name: name.to_owned(), from, to, rate_pps, teaches: true, measures: true, frames })
    }

    /// The same for given frames, in sequence and repeated. There is at least one, and each has room for a stamp behind
    /// its headers.
    pub fn captured(name: &str, [from, to]: [usize; 2], rate_pps: f64, frames: Vec<Vec<u8>>) -> Lane {
        let frames = Frames::Captured { frames: std::sync::Arc::new(frames) };
        Lane { name: name.to_owned(), from, to, rate_pps, teaches: true, measures: true, frames }
    }
}

/// The source of frames.
#[derive(Clone, Debug)]
pub(crate) enum Frames {
    /// Generated: streams by frame size, in turn according to a pattern of their indexes.
    Made { sizes: Vec<FlowStream>, pattern: Vec<u8> },
    /// From a capture, in sequence.
    Captured { frames: std::sync::Arc<Vec<Vec<u8>>> },
}

/// Where the transport protocol's number is in generated frames, and where its header begins.
const PROTOCOL_AT: usize = 23;
const TRANSPORT_AT: usize = 34;
const TCP: u8 = 6;
const TCP_CHECKSUM_AT: usize = TRANSPORT_AT + 16;

impl Frames {
    /// Frames of several sizes, each as often as given in a round of the pattern; all sizes have the same flows.
    pub fn made(profile: &Profile, sizes: &[(usize, u8)]) -> Result<Frames, ProfileError> {
        let mut streams = Vec::new();
        for (frame_size, _) in sizes {
            let profile = Profile { frame_size: *frame_size, ..profile.clone() };
            streams.extend(profile.streams(1)?);
        }
        // Spread evenly: each step takes the size that is furthest behind its share.
        let all: u32 = sizes.iter().map(|(_, n)| u32::from(*n)).sum();
        let mut given = vec![0u32; sizes.len()];
        let pattern = (1..=all).map(|step| {
            let behind = |i: &usize| step as i64 * i64::from(sizes[*i].1) - i64::from(given[*i]) * i64::from(all);
            let next = (0..sizes.len()).max_by_key(|i| (behind(i), std::cmp::Reverse(*i))).unwrap_or(0);
            given[next] += 1;
            next as u8
        });
        let pattern = pattern.collect();
        Ok(Frames::Made { sizes: streams, pattern })
    }

    /// The size of packet number `number`, bytes.
    pub fn size(&self, number: u64) -> usize {
        match self {
            Frames::Made { sizes, pattern } => sizes[turn(pattern, number)].frame_size(),
            Frames::Captured { frames } => frames[(number % frames.len() as u64) as usize].len(),
        }
    }

    /// The longest frame, bytes.
    pub fn longest(&self) -> usize {
        match self {
            Frames::Made { sizes, .. } => sizes.iter().map(FlowStream::frame_size).max().unwrap_or(0),
            Frames::Captured { frames } => frames.iter().map(Vec::len).max().unwrap_or(0),
        }
    }

    /// Writes the frame of packet number `number`, whose size `frame` has, stamped.
    pub fn write(&mut self, number: u64, stamp: &Stamp, frame: &mut [u8]) {
        match self {
            Frames::Made { sizes, pattern } => {
                let stream = &mut sizes[turn(pattern, number)];
                let mut flow = [0];
                stream.pick(&mut flow);
                stream.writer().write(flow[0], frame);
            }
            Frames::Captured { frames } => {
                frame.copy_from_slice(&frames[(number % frames.len() as u64) as usize]);
            }
        }
        stamp.write(frame);
        if matches!(self, Frames::Made { .. }) && frame[PROTOCOL_AT] == TCP {
            cover(stamp, frame);
        }
    }
}

fn turn(pattern: &[u8], number: u64) -> usize {
    usize::from(pattern[(number % pattern.len() as u64) as usize])
}

/// Updates the TCP checksum of a frame, whose payload was zeros, to include its stamp.
fn cover(stamp: &Stamp, frame: &mut [u8]) {
    let is_odd = (frame.len() - STAMP_SIZE - TRANSPORT_AT) % 2 == 1;
    let old = u16::from_be_bytes([frame[TCP_CHECKSUM_AT], frame[TCP_CHECKSUM_AT + 1]]);
    let sum = u32::from(!old) + u32::from(stamp.sum(is_odd));
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[TCP_CHECKSUM_AT..TCP_CHECKSUM_AT + 2].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STAMP: Stamp = Stamp { trial: 1, lane: 2, number: 3, due_ns: 0x0102_0304_0506_0708 };

    #[test]
    fn sizes_take_turns_evenly() {
        let mut frames = Frames::made(&Profile::default(), &[(60, 7), (590, 4), (1514, 1)]).unwrap();
        let sizes: Vec<usize> = (0..24).map(|n| frames.size(n)).collect();
        assert_eq!([60, 590, 1514].map(|size| sizes.iter().filter(|s| **s == size).count()), [14, 8, 2]);
        assert!(sizes.windows(4).all(|w| w.contains(&60)), "{sizes:?}");
        let mut frame = vec![0xff; 1514];
        let long = sizes.iter().position(|s| *s == 1514).unwrap() as u64;
        frames.write(long, &STAMP, &mut frame);
        assert_eq!(Stamp::read(&frame), Some(STAMP));
        assert_eq!(frame[12..15], [8, 0, 0x45]);
    }

    proptest! {
        /// The sum over a TCP segment and its pseudo-header, including the stamp, is all ones.
        #[test]
        fn tcp_checksums_cover_the_stamp(size in 76usize..300, number: u32, due_ns: u64) {
            let profile = Profile { protocols: Some(vec![TCP]), ..Profile::default() };
            let mut frames = Frames::made(&profile, &[(size, 1)]).unwrap();
            let mut frame = vec![0; size];
            frames.write(0, &Stamp { number, due_ns, ..STAMP }, &mut frame);
            let mut bytes = frame[26..34].to_vec();
            bytes.extend([0, TCP]);
            bytes.extend(((size - TRANSPORT_AT) as u16).to_be_bytes());
            bytes.extend(&frame[TRANSPORT_AT..]);
            if bytes.len() % 2 == 1 {
                bytes.push(0);
            }
            let sum: u32 = bytes.chunks(2).map(|p| u32::from(u16::from_be_bytes([p[0], p[1]]))).sum();
            let sum = (sum & 0xffff) + (sum >> 16);
            prop_assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        }
    }
}
