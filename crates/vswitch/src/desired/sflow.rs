//! Samples of a bridge's packets and counters, for collectors.

use sluice_sflow::{DEFAULT_HEADER, DEFAULT_POLLING_S, DEFAULT_SAMPLING, HEADER_MAX};

/// How a bridge is sampled. Source: `ovs-vswitchd.conf.db(5)`, `sFlow`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SFlow {
    /// Where samples go: `HOST` or `HOST:PORT`, an IPv6 address in brackets.
    pub targets: Vec<String>,
    /// One packet in this many is sampled.
    pub sampling: u32,
    /// Seconds between samples of an interface's counters; 0: none.
    pub polling_s: u32,
    /// Bytes of a packet that are sampled, [`HEADER_MAX`] at most.
    pub header_len: u32,
    /// The device whose address collectors are to know the switch by, or an address; `None`: the one from which the first
    /// target is reached.
    pub agent: Option<String>,
    /// The address if there is no other.
    pub control_ip: Option<std::net::IpAddr>,
}

impl SFlow {
    /// With the usual settings.
    pub fn new(targets: Vec<String>) -> Self {
        SFlow {
            targets,
            sampling: DEFAULT_SAMPLING,
            polling_s: DEFAULT_POLLING_S,
            header_len: DEFAULT_HEADER,
            agent: None,
            control_ip: None,
        }
    }

    /// The same with another length of headers, as far as there may be.
    pub fn with_header(self, header_len: u32) -> Self {
        SFlow { header_len: header_len.min(HEADER_MAX), ..self }
    }

    /// Whether there is anything to do: somebody to send to, and something to send.
    pub fn is_wanted(&self) -> bool {
        !self.targets.is_empty() && self.sampling != 0
    }
}
