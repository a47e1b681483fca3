//! A profile's text: the keys of a stream, their types, and which of them exclude each other.

use super::{MEASUREMENT, TEACHING, Wrong};
use crate::generator::RATE_MAX;
use serde::Deserialize;
use serde_json::Value;
use std::path::PathBuf;

/// A profile's text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with \"streams\", a list")]
pub(super) struct FileText {
    pub(super) streams: Vec<StreamText>,
    port_pairs: Option<Value>,
}

/// A stream's text; a value of the wrong type is reported with its key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a stream: an object with \"flows\", \"rate\" and others")]
pub(super) struct StreamText {
    flows: Option<Value>,
    frame_size: Option<Value>,
    flow_mods: Option<Value>,
    rate: Option<Value>,
    frame_type: Option<Value>,
    stream_types: Option<Value>,
    port_pairs: Option<Value>,
    traffic_direction: Option<Value>,
    protocol: Option<Value>,
    choice: Option<Value>,
    pcap: Option<Value>,
}

/// A stream whose values are of the right types.
pub(super) struct Stream {
    pub(super) flows: Option<u32>,
    pub(super) frame_size: Option<Value>,
    pub(super) flow_mods: Option<String>,
    pub(super) rate: f64,
    pub(super) frame_type: String,
    pub(super) teaches: bool,
    pub(super) measures: bool,
    pub(super) port_pairs: Option<Vec<usize>>,
    pub(super) traffic_direction: Option<String>,
    pub(super) protocol: Option<String>,
    pub(super) choice: Option<String>,
    pub(super) pcap: Option<PathBuf>,
}

/// The most pairs of ports.
const PAIRS_MAX: usize = 64;

impl FileText {
    /// How many pairs of ports there are.
    pub(super) fn port_pairs(&self) -> Result<usize, Wrong> {
        let pairs = |value: &Value| number(value).filter(|n| (1..=PAIRS_MAX).contains(n));
        Ok(given("port_pairs", &self.port_pairs, pairs, &format!("1 to {PAIRS_MAX} pairs"))?.unwrap_or(1))
    }
}

impl StreamText {
    /// The same with types.
    pub(super) fn typed(&self) -> Result<Stream, Wrong> {
        const FLOWS: &str = "a number of flows from 1 to 4294967295";
        const WORD: &str = "a word in quotes";
        self.check_beside_pcap()?;
        let word = |value: &Value| value.as_str().map(str::to_owned);
        let flows = |value: &Value| value.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
        let rate = |value: &Value| value.as_f64().filter(|rate| *rate > 0.0 && *rate <= RATE_MAX);
        let rates = format!("packets a second, above 0 and at most {RATE_MAX:.0}");
        let pairs = |value: &Value| value.as_array()?.iter().map(number).collect();
        let (teaches, measures) = self.types()?;
        Ok(Stream {
            flows: given("flows", &self.flows, flows, FLOWS)?,
            frame_size: self.frame_size.clone(),
            flow_mods: given("flow_mods", &self.flow_mods, word, WORD)?,
            rate: given("rate", &self.rate, rate, &rates)?.ok_or_else(|| missing("rate", &rates))?,
            frame_type: given("frame_type", &self.frame_type, word, WORD)?.unwrap_or_else(|| "generic".to_owned()),
            teaches,
            measures,
            port_pairs: given("port_pairs", &self.port_pairs, pairs, "a list of pairs, such as [0, 1]")?,
            traffic_direction: given("traffic_direction", &self.traffic_direction, word, WORD)?,
            protocol: given("protocol", &self.protocol, word, WORD)?,
            choice: given("choice", &self.choice, word, WORD)?,
            pcap: given("pcap", &self.pcap, word, "the path of a capture in quotes")?.map(PathBuf::from),
        })
    }

    /// Whether it is for warming up, and whether it is measured.
    fn types(&self) -> Result<(bool, bool), Wrong> {
        let expected = format!("a list of \"{TEACHING}\", \"{MEASUREMENT}\" or both");
        let kinds = |value: &Value| value.as_array().filter(|kinds| !kinds.is_empty()).cloned();
        let kinds = given("stream_types", &self.stream_types, kinds, &expected)?;
        let kinds = kinds.ok_or_else(|| missing("stream_types", &expected))?;
        if let Some(other) = kinds.iter().find(|kind| *kind != TEACHING && *kind != MEASUREMENT) {
            return Err(("stream_types", shown(other), expected));
        }
        Ok((kinds.iter().any(|kind| kind == TEACHING), kinds.iter().any(|kind| kind == MEASUREMENT)))
    }

    /// A capture's packets are sent unchanged, so keys for generated packets are errors.
    fn check_beside_pcap(&self) -> Result<(), Wrong> {
        let makers = [
            ("flows", &self.flows),
            ("frame_size", &self.frame_size),
            ("flow_mods", &self.flow_mods),
            ("frame_type", &self.frame_type),
            ("protocol", &self.protocol),
            ("choice", &self.choice),
        ];
        let beside = makers.into_iter().find_map(|(key, value)| Some((key, value.as_ref()?)));
        match (&self.pcap, beside) {
            (Some(_), Some((key, value))) => {
                Err((key, shown(value), "no such key beside pcap, whose packets are sent as they are".to_owned()))
            }
            _ => Ok(()),
        }
    }
}

/// A value parsed by `read`; otherwise the key, the value and what was expected.
fn given<T>(
    key: &'static str,
    value: &Option<Value>,
    read: impl Fn(&Value) -> Option<T>,
    expected: &str,
) -> Result<Option<T>, Wrong> {
    let Some(value) = value else { return Ok(None) };
    read(value).map(Some).ok_or_else(|| (key, shown(value), expected.to_owned()))
}

fn missing(key: &'static str, expected: &str) -> Wrong {
    (key, "nothing".to_owned(), expected.to_owned())
}

fn number(value: &Value) -> Option<usize> {
    usize::try_from(value.as_u64()?).ok()
}

/// How much of a value an error repeats, characters.
const SHOWN_MAX: usize = 100;

/// A value as errors show it: strings without quotes.
fn shown(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    text.chars().take(SHOWN_MAX).collect()
}
