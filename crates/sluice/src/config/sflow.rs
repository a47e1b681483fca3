//! `bridge.sflow`: samples for collectors.

use serde::Deserialize;
use sluice_sflow::{DEFAULT_HEADER, DEFAULT_POLLING_S, DEFAULT_SAMPLING, HEADER_MAX};
use sluice_vswitch::Invalid;

/// How a bridge is sampled.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SFlow {
    /// Where samples go.
    pub targets: Vec<String>,
    /// One packet in this many is sampled.
    #[serde(default = "sampling")]
    pub sampling: u32,
    /// Seconds between samples of an interface's counters; 0: none.
    #[serde(default = "polling")]
    pub polling: u32,
    /// Bytes of a packet that are sampled.
    #[serde(default = "header")]
    pub header: u32,
    /// The device, or the address, by which collectors know the switch.
    #[serde(default)]
    pub agent: Option<String>,
}

fn sampling() -> u32 {
    DEFAULT_SAMPLING
}

fn polling() -> u32 {
    DEFAULT_POLLING_S
}

fn header() -> u32 {
    DEFAULT_HEADER
}

impl SFlow {
    pub(super) fn desired(&self) -> Result<sluice_vswitch::SFlow, Invalid> {
        if self.targets.is_empty() {
            return Err(Invalid::new(
                "sflow.targets",
                "expected addresses of collectors, such as [\"192.0.2.1:6343\"]",
            ));
        }
        if self.sampling == 0 {
            return Err(Invalid::new("sflow.sampling", "0; expected at least 1"));
        }
        if self.header > HEADER_MAX {
            let expected = format!("{}; expected at most {HEADER_MAX} bytes", self.header);
            return Err(Invalid::new("sflow.header", expected));
        }
        Ok(sluice_vswitch::SFlow {
            sampling: self.sampling,
            polling_s: self.polling,
            header_len: self.header,
            agent: self.agent.clone(),
            ..sluice_vswitch::SFlow::new(self.targets.clone())
        })
    }
}
