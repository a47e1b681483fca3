//! The configuration of traffic.

use crate::frame_template::{FRAME_SIZE_MIN, TCP, UDP};
use crate::pacer::CATCH_UP_NS;
use crate::{FlowSpace, FlowStream, parse};

/// A traffic profile. [`Profile::set`] reads it key by key.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The number of flows; by default, as many as the ranges hold.
    pub flows: Option<u32>,
    /// The cuckoo distributor's traffic: that many source addresses ([`subtable_source`]), the first with TCP, the
    /// others with UDP, each to the same destinations. Replaces `src` and `protocols`.
    pub subtables: Option<u16>,
    /// IPv4 sources.
    pub src: Option<Range>,
    /// IPv4 destinations; by default from 10.0.0.0 on, as many as the flows need.
    pub dst: Option<Range>,
    /// Source ports.
    pub sport: Range,
    /// Destination ports.
    pub dport: Range,
    /// IP protocols, by default UDP. Protocols other than TCP and UDP have no ports and a payload of zeros.
    pub protocols: Option<Vec<u8>>,
    /// The flags of TCP segments, as the header has them.
    pub tcp_flags: u8,
    /// The choice of the next flow.
    pub choice: Choice,
    /// Bytes of a frame, without the Ethernet checksum.
    pub frame_size: usize,
    /// Packets per second over all queues.
    pub rate: Rate,
    /// How much lost time a rate catches up, ns.
    pub catch_up_ns: u64,
    /// The total number of packets; unlimited by default.
    pub count: Option<u64>,
    /// The seed of the random choices.
    pub seed: u64,
    /// Ethernet source.
    pub src_mac: [u8; 6],
    /// Ethernet destination.
    pub dst_mac: [u8; 6],
}

/// Numbers from `first` to `last`, both included; at most 2^32 - 1 of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub(crate) first: u32,
    last: u32,
}

/// The choice of the next packet's flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// Uniformly random.
    Uniform,
    /// Each in turn.
    Sequential,
    /// Flows with this many packets each, [`SHORT_AT_ONCE`] of them in turn, then the next ones, like connections that
    /// come and go.
    Short(u32),
    /// Flow k (from 1) with a probability proportional to 1/k to the power of this exponent.
    Zipf(f64),
    /// This share of the packets, in percent, belongs to the flows of the last subtable (or protocol), uniformly random
    /// as the rest is. A packet of each subtable comes first.
    Hot(f64),
}

/// A TCP segment's flag ACK.
pub(crate) const TCP_ACK: u8 = 0x10;

/// Short flows under way at a time.
pub const SHORT_AT_ONCE: u32 = 64;

/// The packet rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// As fast as the switch takes them.
    Max,
    /// Packets per second.
    Pps(f64),
}

/// An unknown key, or a value that is invalid or contradicts others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileError {
    /// The key.
    pub key: &'static str,
    /// Its value.
    pub value: String,
    /// What was expected.
    pub expected: String,
}

impl Default for Profile {
    /// One flow of UDP.
    fn default() -> Self {
        Profile {
            flows: None,
            subtables: None,
            src: None,
            dst: None,
            sport: Range { first: 1000, last: 1000 },
            dport: Range { first: 2000, last: 2000 },
            protocols: None,
            tcp_flags: TCP_ACK,
            choice: Choice::Uniform,
            frame_size: FRAME_SIZE_MIN,
            rate: Rate::Max,
            catch_up_ns: CATCH_UP_NS,
            count: None,
            seed: 1,
            src_mac: [2, 0, 0, 0, 0, 1],
            dst_mac: [2, 0, 0, 0, 0, 2],
        }
    }
}

impl Range {
    /// From `first` to `last`; `None` if the range is empty or holds all 2^32 numbers.
    pub fn new(first: u32, last: u32) -> Option<Self> {
        (first <= last && last - first < u32::MAX).then_some(Range { first, last })
    }

    /// How many numbers.
    pub fn count(self) -> u32 {
        self.last - self.first + 1
    }
}

/// The longest frame: an MTU of 9216. Bytes.
const FRAME_SIZE_MAX: usize = 9230;
/// A longer catch-up would make a burst of a second.
const CATCH_UP_MAX_MS: u64 = 1000;
/// The number of sources that the upper ten bits tell apart, with room for others above.
const SUBTABLES_MAX: u16 = 512;
/// Up to this number, sources have the form i.0.0.0, where the rule of number i has a prefix of 7 + i bits, at most 32.
const SUBTABLES_BY_OCTET: u16 = 25;
/// The largest exponent: beyond it, rank 2 never appears.
const ZIPF_MAX: f64 = 20.0;

impl Profile {
    /// Every key and its meaning.
    pub const KEYS: &[(&'static str, &'static str)] = &[
        ("flows", "how many flows, such as 100k or 1M; default: as many as the ranges hold"),
        (
            "subtables",
            "1 to 512: sources i.0.0.0 (beyond 25: i times 2^22), the first tcp, the others udp (in place of src and protocol)",
        ),
        ("src", "IPv4 sources: 10.0.0.1, 10.0.0.1-10.0.0.9 or 10.0.0.0/24; default 1.0.0.1"),
        ("dst", "IPv4 destinations, likewise; default: from 10.0.0.0 on, as many as the flows need"),
        ("sport", "source ports: 80 or 1000-2000; default 1000"),
        ("dport", "destination ports; default 2000"),
        ("protocol", "udp, tcp, icmp or numbers, with commas between; default udp"),
        ("tcp-flags", "of TCP: ack (default), syn, or a number from 0 to 255"),
        (
            "choice",
            "which flow comes next: uniform (default), sequential, zipf:EXPONENT, hot:PERCENT of the packets in the last \
             subtable, or short:PACKETS of each flow",
        ),
        ("frame-size", "bytes of a frame without its checksum; default 60"),
        ("rate", "packets per second over all queues, such as 200k; default max"),
        ("catch-up", "milliseconds of lost time that a rate makes up for by a burst, up to 1000; default 10"),
        ("count", "packets in all; default: no end"),
        ("seed", "what the random choices start from; default 1"),
        ("src-mac", "Ethernet source; default 02:00:00:00:00:01"),
        ("dst-mac", "Ethernet destination; default 02:00:00:00:00:02"),
    ];

    /// Sets `key`. `None` if there is no such key.
    pub fn set(&mut self, key: &str, value: &str) -> Option<Result<(), ProfileError>> {
        let (key, _) = *Self::KEYS.iter().find(|(known, _)| *known == key)?;
        let value = value.trim();
        let wrong = |expected: &str| ProfileError { key, value: value.to_owned(), expected: expected.to_owned() };
        Some(self.set_known(key, value).map_err(wrong))
    }

    /// Sets a key that exists. The error describes the valid values.
    fn set_known(&mut self, key: &str, value: &str) -> Result<(), &'static str> {
        const FLOWS: &str = "a number of flows from 1 to 4294967295, such as 100k or 1M";
        const ADDRESSES: &str = "IPv4 addresses such as 10.0.0.1, 10.0.0.1-10.0.0.9 or 10.0.0.0/24";
        const PORTS: &str = "ports from 0 to 65535, such as 80 or 1000-2000";
        const MAC: &str = "an Ethernet address such as 02:00:00:00:00:01";
        let flows = |value| parse::count(value).and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
        let addresses = |value| parse::addresses(value).ok_or(ADDRESSES);
        let ports = |value| parse::ports(value).ok_or(PORTS);
        match key {
            "flows" => self.flows = Some(flows(value).ok_or(FLOWS)?),
            "subtables" => {
                let n = value.parse().ok().filter(|n| (1..=SUBTABLES_MAX).contains(n));
                self.subtables = Some(n.ok_or("a number of subtables from 1 to 512")?);
            }
            "src" => self.src = Some(addresses(value)?),
            "dst" => self.dst = Some(addresses(value)?),
            "sport" => self.sport = ports(value)?,
            "dport" => self.dport = ports(value)?,
            "protocol" => {
                let protocols = parse::protocols(value);
                self.protocols = Some(protocols.ok_or("udp, tcp, icmp or numbers from 0 to 255, with commas between")?);
            }
            "tcp-flags" => {
                let flags = parse::tcp_flags(value);
                self.tcp_flags = flags.ok_or("ack, syn, or a number from 0 to 255")?;
            }
            "choice" => {
                self.choice = choice(value)
                    .ok_or("uniform, sequential, zipf:EXPONENT from 0 to 20, hot:PERCENT, or short:PACKETS")?
            }
            "frame-size" => {
                let size = value.parse().ok().filter(|size| (FRAME_SIZE_MIN..=FRAME_SIZE_MAX).contains(size));
                self.frame_size = size.ok_or("a frame of 60 to 9230 bytes")?;
            }
            "rate" if value == "max" => self.rate = Rate::Max,
            "rate" => {
                let rate = parse::count(value).filter(|rate| (1..=1_000_000_000).contains(rate));
                self.rate = Rate::Pps(rate.ok_or("packets per second, such as 200k or 1M, or max")? as f64);
            }
            "catch-up" => {
                let ms = value.parse::<u64>().ok().filter(|ms| *ms <= CATCH_UP_MAX_MS);
                self.catch_up_ns = ms.ok_or("0 to 1000 milliseconds")? * 1_000_000;
            }
            "count" => self.count = Some(parse::count(value).ok_or("a number of packets, such as 200k")?),
            "seed" => self.seed = value.parse().map_err(|_| "a number from 0 to 18446744073709551615")?,
            "src-mac" => self.src_mac = parse::mac(value).ok_or(MAC)?,
            "dst-mac" => self.dst_mac = parse::mac(value).ok_or(MAC)?,
            _ => unreachable!("invariant: every key of KEYS is above"),
        }
        Ok(())
    }

    /// The flows, once everything is set.
    pub fn flow_space(&self) -> Result<FlowSpace, ProfileError> {
        let wrong = |key, value: String, expected: &str| ProfileError { key, value, expected: expected.to_owned() };
        let classes: Vec<(u8, u32)> = match self.subtables {
            Some(n) if self.src.is_some() || self.protocols.is_some() => {
                let why = "neither src nor protocol beside it, since it says both";
                return Err(wrong("subtables", n.to_string(), why));
            }
            Some(n) => (1..=n).map(|i| (if i == 1 { TCP } else { UDP }, subtable_source(i, n))).collect(),
            None => {
                let first = self.src.map_or(0x0100_0001, |range| range.first);
                self.protocols.as_deref().unwrap_or(&[UDP]).iter().map(|protocol| (*protocol, first)).collect()
            }
        };
        let sources = self.src.map_or(1, Range::count);
        let factors = [classes.len() as u32, sources, self.dport.count(), self.sport.count()];
        let without_dst = factors.iter().fold(1u64, |product, n| product.saturating_mul(u64::from(*n)));
        let dst = match self.dst {
            Some(range) => range,
            None => {
                let needed = u64::from(self.flows.unwrap_or(1)).div_ceil(without_dst).max(1) as u32;
                Range { first: 0x0a00_0000, last: 0x0a00_0000_u32.saturating_add(needed - 1) }
            }
        };
        let held = without_dst.saturating_mul(u64::from(dst.count()));
        let flows = match self.flows {
            Some(flows) if u64::from(flows) <= held => flows,
            Some(flows) => {
                return Err(wrong(
                    "flows",
                    flows.to_string(),
                    &format!("at most {held}, which is what the ranges hold"),
                ));
            }
            None => u32::try_from(held).map_err(|_| {
                wrong("flows", held.to_string(), "a number of flows: the ranges hold more than 4294967295")
            })?,
        };
        Ok(FlowSpace::new(flows, classes, sources, dst, self.dport, self.sport))
    }

    /// One stream of packets for each of `queues` receive queues. A flow is always in the same queue.
    pub fn streams(&self, queues: usize) -> Result<Vec<FlowStream>, ProfileError> {
        Ok(FlowStream::split(self, &self.flow_space()?, queues))
    }
}

/// The source address of number `i`, from 1, of `n` subtables: i.0.0.0 as in the seed, or if there are too many for
/// that, i in the upper ten bits.
pub fn subtable_source(i: u16, n: u16) -> u32 {
    u32::from(i) << if n <= SUBTABLES_BY_OCTET { 24 } else { 22 }
}

fn choice(text: &str) -> Option<Choice> {
    match text {
        "uniform" => Some(Choice::Uniform),
        "sequential" => Some(Choice::Sequential),
        _ if text.starts_with("short:") => {
            let packets = text.strip_prefix("short:")?.parse().ok()?;
            (packets > 0).then_some(Choice::Short(packets))
        }
        _ if text.starts_with("hot:") => {
            let percent: f64 = text.strip_prefix("hot:")?.parse().ok()?;
            (percent > 0.0 && percent < 100.0).then_some(Choice::Hot(percent))
        }
        _ => {
            let exponent: f64 = text.strip_prefix("zipf:")?.parse().ok()?;
            (0.0..=ZIPF_MAX).contains(&exponent).then_some(Choice::Zipf(exponent))
        }
    }
}

impl std::fmt::Display for ProfileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} = \"{}\": expected {}", self.key, self.value, self.expected)
    }
}

impl std::error::Error for ProfileError {}
