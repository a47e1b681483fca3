//! Traffic profiles in JSON, in the form of seed 004: streams with flows, frame size, rate, and what varies.
//!
//! ```json
//! { "streams": [ { "flows": 100, "frame_size": 64, "rate": 1000000, "frame_type": "generic",
//!                  "flow_mods": "function:create_flow_mod_object(use_src_ip_flows=True, use_dst_ip_flows=True)",
//!                  "stream_types": ["teaching_warmup", "measurement"] } ] }
//! ```
//!
//! Extensions: `port_pairs` (number of port pairs, default 1) beside `streams`; in a stream `port_pairs` (which of
//! them, default all), `traffic_direction` (`unidirectional`, from the pair's first port, is the default;
//! `revunidirectional`, `bidirectional`), `protocol` (`udp`, `tcp`), `choice` (`uniform`, `sequential`,
//! `zipf:EXPONENT`), `frame_size` `"imix"` (64, 594 and 1518 bytes as 7 : 4 : 1), and `pcap` (a capture, relative to
//! the profile, whose packets are sent instead of generated ones; packets shorter than 72 bytes are padded so that the
//! stamp is behind their headers). Sizes include the Ethernet checksum.

use crate::lane::{Frames, Lane};
use crate::stamp::STAMP_SIZE;
use sluice_port::pcap::{CaptureError, Reader};
use sluice_traffic::{Profile, Range};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use text::{FileText, Stream};

mod text;

/// A profile, read and checked.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its lanes.
    pub lanes: Vec<Lane>,
    /// The number of ports.
    pub ports: usize,
}

/// An error in a profile. Reasons are part of the text.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// It cannot be read.
    #[error("{}: cannot be read: {why}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        why: std::io::Error,
    },
    /// It is too long.
    #[error("{}: expected a traffic profile of at most {TEXT_MAX} bytes", .path.display())]
    Long {
        /// The file.
        path: PathBuf,
    },
    /// It is not JSON of that form.
    #[error("{}: {why}; expected a traffic profile in JSON, such as examples/profiles/seed.json", .path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What and where.
        why: serde_json::Error,
    },
    /// A value is wrong.
    #[error("{}: {}{key}: {value}: expected {expected}", .path.display(), .stream.map(|n| format!("stream {n}: ")).unwrap_or_default())]
    Value {
        /// The file.
        path: PathBuf,
        /// Which stream, from 0; `None` for all streams together.
        stream: Option<usize>,
        /// Which key.
        key: &'static str,
        /// What it was.
        value: String,
        /// What was expected.
        expected: String,
    },
    /// A capture cannot be used.
    #[error("{}: stream {stream}: {why}", .path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// Which stream, from 0.
        stream: usize,
        /// Why.
        why: CaptureError,
    },
    /// No stream is measured.
    #[error("{}: streams: expected at least one with \"{MEASUREMENT}\" among its stream_types", .path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// Bytes of the Ethernet checksum, which frames here do not contain.
const CHECKSUM: usize = 4;
/// An invalid value: key, value, expected.
type Wrong = (&'static str, String, String);
/// The longest profile, bytes.
const TEXT_MAX: u64 = 1 << 20;
/// Limits of a capture: packets, bytes, and the longest packet.
const CAPTURE_MAX: usize = 1 << 20;
const CAPTURE_BYTES_MAX: usize = 1 << 30;
const FRAME_MAX: usize = 9230;
/// The shortest packet of a capture: an Ethernet header.
const PACKET_MIN: usize = 14;
/// The shortest TCP frame with room for a stamp, behind headers of 54 bytes. Shorter ones of a capture are padded.
const TCP_FRAME_MIN: usize = 54 + STAMP_SIZE;

impl Plan {
    /// The text of a profile, for [`Plan::parse`].
    ///
    /// # Errors
    /// If it cannot be read, or is too long to be one.
    pub fn text(path: &Path) -> Result<String, PlanError> {
        let failed = |why| PlanError::Read { path: path.into(), why };
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(TEXT_MAX + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > TEXT_MAX { Err(PlanError::Long { path: path.into() }) } else { Ok(text) }
    }

    /// Reads a profile. `path` is for errors, and the base of captures' paths.
    ///
    /// # Errors
    /// With the file, the stream, the key and what was expected.
    pub fn parse(text: &str, path: &Path) -> Result<Plan, PlanError> {
        let file: FileText = serde_json::from_str(text).map_err(|why| PlanError::Form { path: path.into(), why })?;
        let wrong = |stream| {
            move |(key, value, expected): Wrong| PlanError::Value { path: path.into(), stream, key, value, expected }
        };
        let pairs = file.port_pairs().map_err(wrong(None))?;
        let mut lanes = Vec::new();
        for (number, stream) in file.streams.iter().enumerate() {
            let stream = stream.typed().map_err(wrong(Some(number)))?;
            let capture = match &stream.pcap {
                None => None,
                Some(name) => Some(read_capture(path, number, name)?),
            };
            lanes.extend(stream.lanes(number, pairs, capture).map_err(wrong(Some(number)))?);
        }
        if !lanes.iter().any(|lane: &Lane| lane.measures) {
            return Err(PlanError::Empty { path: path.into() });
        }
        Ok(Plan { lanes, ports: 2 * pairs })
    }

    /// Packets a second over all lanes that are measured, as the profile has them.
    pub fn rate_pps(&self) -> f64 {
        self.lanes.iter().filter(|lane| lane.measures).map(|lane| lane.rate_pps).sum()
    }

    /// The longest frame, bytes.
    pub fn longest(&self) -> usize {
        self.lanes.iter().map(|lane| lane.frames.longest()).max().unwrap_or(0)
    }
}

impl Stream {
    fn lanes(&self, number: usize, pairs: usize, capture: Option<Arc<Vec<Vec<u8>>>>) -> Result<Vec<Lane>, Wrong> {
        let all: Vec<usize> = (0..pairs).collect();
        let pairs_of = self.port_pairs.as_ref().unwrap_or(&all);
        if let Some(pair) = pairs_of.iter().find(|pair| **pair >= pairs) {
            return Err(("port_pairs", pair.to_string(), format!("pairs from 0 to {}", pairs - 1)));
        }
        let directions: &[bool] = match self.traffic_direction.as_deref() {
            None | Some("unidirectional") => &[false],
            Some("revunidirectional") => &[true],
            Some("bidirectional") => &[false, true],
            Some(other) => {
                let expected = "unidirectional, revunidirectional or bidirectional";
                return Err(("traffic_direction", other.to_owned(), expected.to_owned()));
            }
        };
        let mut lanes = Vec::new();
        for pair in pairs_of {
            for &is_reverse in directions {
                let (from, to) = (2 * pair + usize::from(is_reverse), 2 * pair + usize::from(!is_reverse));
                let frames = match &capture {
                    Some(frames) => Frames::Captured { frames: Arc::clone(frames) },
                    None => self.frames(is_reverse)?,
                };
                lanes.push(Lane {
                    name: format!("stream {number}, port {from} to {to}"),
                    from,
                    to,
                    rate_pps: self.rate,
                    teaches: self.teaches,
                    measures: self.measures,
                    frames,
                });
            }
        }
        Ok(lanes)
    }

    fn frames(&self, is_reverse: bool) -> Result<Frames, Wrong> {
        let Some(flows) = self.flows else {
            let expected = "a number of flows from 1 to 4294967295, or a pcap";
            return Err(("flows", "nothing".to_owned(), expected.to_owned()));
        };
        let mut profile = Profile { flows: Some(flows), ..Profile::default() };
        let mut set = |key: &str, value: &str| match profile.set(key, value) {
            Some(Err(error)) => Err((error.key, error.value, error.expected)),
            _ => Ok(()),
        };
        set("choice", self.choice.as_deref().unwrap_or("sequential"))?;
        match (self.frame_type.as_str(), self.protocol.as_deref()) {
            ("generic", None | Some("udp")) => {}
            ("generic", Some("tcp")) => set("protocol", "tcp")?,
            ("icmp", None) => set("protocol", "icmp")?,
            ("generic" | "icmp", Some(other)) => {
                return Err(("protocol", other.to_owned(), "udp or tcp, of frame_type generic".to_owned()));
            }
            (other, _) => return Err(("frame_type", other.to_owned(), "generic or icmp".to_owned())),
        }
        self.vary(&mut profile, flows)?;
        if is_reverse {
            std::mem::swap(&mut profile.src, &mut profile.dst);
            std::mem::swap(&mut profile.sport, &mut profile.dport);
            std::mem::swap(&mut profile.src_mac, &mut profile.dst_mac);
        }
        let sizes = self.sizes()?;
        let is_tcp = self.protocol.as_deref() == Some("tcp");
        if let Some((size, _)) = sizes.iter().find(|(size, _)| is_tcp && *size < TCP_FRAME_MIN) {
            let expected = format!("at least {} for tcp, whose payload holds a stamp", TCP_FRAME_MIN + CHECKSUM);
            return Err(("frame_size", (size + CHECKSUM).to_string(), expected));
        }
        Frames::made(&profile, &sizes).map_err(|error| (error.key, error.value, error.expected))
    }

    /// Spreads the flows evenly over the fields that `flow_mods` names, so that the product of their ranges is at least
    /// the number of flows.
    fn vary(&self, profile: &mut Profile, flows: u32) -> Result<(), Wrong> {
        const FORM: &str =
            "function:create_flow_mod_object(use_src_ip_flows=True, …) with src_ip, dst_ip, src_port, dst_port";
        let text = self.flow_mods.as_deref().unwrap_or("function:create_flow_mod_object(use_dst_ip_flows=True)");
        let wrong = || ("flow_mods", text.to_owned(), FORM.to_owned());
        let inside = text.strip_prefix("function:create_flow_mod_object(").and_then(|rest| rest.strip_suffix(')'));
        let mut fields = Vec::new();
        for part in inside.ok_or_else(wrong)?.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part.split_once('=').map(|(key, value)| (key.trim(), value.trim())).ok_or_else(wrong)? {
                (
                    key @ ("use_src_ip_flows" | "use_dst_ip_flows" | "use_src_port_flows" | "use_dst_port_flows"),
                    "True",
                ) => {
                    fields.push(key);
                }
                (_, "False") => {}
                _ => return Err(wrong()),
            }
        }
        let mut left = flows;
        for (i, field) in fields.iter().enumerate() {
            let rest = (fields.len() - i) as f64;
            let most = if field.contains("_port_") { 64_000 } else { 1 << 24 };
            let n = if rest == 1.0 { left } else { f64::from(left).powf(1.0 / rest).ceil() as u32 }.clamp(1, most);
            left = left.div_ceil(n);
            let range = |first: u32| Range::new(first, first + (n - 1)).ok_or_else(wrong);
            match *field {
                "use_src_ip_flows" => profile.src = Some(range(0x0a00_0001)?),
                "use_dst_ip_flows" => profile.dst = Some(range(0x0800_0001)?),
                "use_src_port_flows" => profile.sport = range(1024)?,
                _ => profile.dport = range(1024)?,
            }
        }
        if left > 1 {
            let held = u64::from(flows).div_ceil(u64::from(left));
            return Err(("flows", flows.to_string(), format!("at most about {held}, which is what flow_mods vary")));
        }
        profile.src = profile.src.or(Range::new(0x0a00_0001, 0x0a00_0001));
        profile.dst = profile.dst.or(Range::new(0x0800_0001, 0x0800_0001));
        Ok(())
    }

    /// Frame sizes without checksum, and the share of each.
    fn sizes(&self) -> Result<Vec<(usize, u8)>, Wrong> {
        let wrong = |value: &serde_json::Value| {
            ("frame_size", value.to_string(), format!("64 to {} bytes, or \"imix\"", FRAME_MAX + CHECKSUM))
        };
        match &self.frame_size {
            None => Ok(vec![(60, 1)]),
            Some(value) if value.as_str().is_some_and(|text| text.eq_ignore_ascii_case("imix")) => {
                Ok(vec![(60, 7), (590, 4), (1514, 1)])
            }
            Some(value) => {
                let size = value.as_u64().and_then(|n| usize::try_from(n).ok());
                let size = size.filter(|n| (64..=FRAME_MAX + CHECKSUM).contains(n)).ok_or_else(|| wrong(value))?;
                Ok(vec![(size - CHECKSUM, 1)])
            }
        }
    }
}

/// A stream type: sent to warm up the switch's caches.
pub(crate) const TEACHING: &str = "teaching_warmup";
/// A stream type: sent and counted.
pub(crate) const MEASUREMENT: &str = "measurement";

/// The packets of a capture; `name` is relative to the profile.
fn read_capture(path: &Path, stream: usize, name: &Path) -> Result<Arc<Vec<Vec<u8>>>, PlanError> {
    let file = path.parent().unwrap_or(Path::new("")).join(name);
    let bad = |why| PlanError::Capture { path: path.into(), stream, why };
    let wrong = |what: String, expected: String| PlanError::Value {
        path: path.into(),
        stream: Some(stream),
        key: "pcap",
        value: format!("{}: {what}", name.display()),
        expected,
    };
    let mut reader = Reader::open(&file).map_err(bad)?;
    let (mut frames, mut packet, mut bytes) = (Vec::new(), Vec::new(), 0);
    while reader.next_packet(&mut packet).map_err(bad)?.is_some() {
        bytes += packet.len();
        if !(PACKET_MIN..=FRAME_MAX).contains(&packet.len()) {
            let expected = format!("packets of {PACKET_MIN} to {FRAME_MAX} bytes");
            return Err(wrong(format!("packet {} has {} bytes", frames.len() + 1, packet.len()), expected));
        }
        if frames.len() == CAPTURE_MAX || bytes > CAPTURE_BYTES_MAX {
            let expected = format!("at most {CAPTURE_MAX} packets of {CAPTURE_BYTES_MAX} bytes in all");
            return Err(wrong("it is too long".to_owned(), expected));
        }
        let mut frame = packet.clone();
        frame.resize(packet.len().max(TCP_FRAME_MIN), 0);
        frames.push(frame);
    }
    // A measurement is to send what its profile means.
    if let Some(note) = reader.end_note() {
        return Err(wrong(note.to_owned(), "a whole capture".to_owned()));
    }
    if frames.is_empty() {
        return Err(wrong("it has no packets".to_owned(), "at least one".to_owned()));
    }
    Ok(Arc::new(frames))
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} lanes over {} ports, {:.0} packets a second", self.lanes.len(), self.ports, self.rate_pps())
    }
}

#[cfg(test)]
mod tests;
