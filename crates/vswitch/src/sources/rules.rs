//! Rules from text.

use crate::desired::Source;
use sluice_flow::PortNames;
use sluice_ofp::FlowMod;
use sluice_ofproto::Ofproto;

/// The rules of a source.
#[derive(Debug)]
pub(crate) struct Rules {
    pub source: Source,
    rules: Vec<FlowMod>,
}

impl Rules {
    /// Reads rules, whose ports may be named.
    pub fn parse(source: &Source, ports: &PortNames) -> Result<Self, crate::Error> {
        let rules = FlowMod::parse_file(&source.text, ports).map_err(|error| source.error(error))?;
        Ok(Rules { source: source.clone(), rules })
    }

    /// Adds the rules to those of a bridge, all or none.
    pub fn add(&self, ofproto: &Ofproto, bridge: &str, now_ms: u64) -> Result<(), crate::Error> {
        ofproto.bundle(bridge, &self.rules, now_ms).map_err(|error| self.refused(&error))?;
        Ok(())
    }

    /// Makes a bridge's rules these, all or none; those that are the same stay as they are.
    pub fn replace(&self, ofproto: &Ofproto, bridge: &str, now_ms: u64) -> Result<(), crate::Error> {
        ofproto.replace_flows(bridge, &self.rules, now_ms).map_err(|error| self.refused(&error))?;
        Ok(())
    }

    /// Why the tables refused the rules: with the line of the one to blame.
    fn refused(&self, error: &sluice_ofproto::Error) -> crate::Error {
        let sluice_ofproto::Error::InBundle { index, error } = error else { return self.source.error(error) };
        // As the text was read: comments and blank lines do not count.
        let says_something = |line: &str| !line.split('#').next().unwrap_or("").trim().is_empty();
        let lines = self.source.text.split('\n').enumerate().filter(|(_, line)| says_something(line));
        let line = lines.map(|(i, _)| i + 1).nth(index.saturating_sub(1)).unwrap_or(*index);
        self.source.error(format!("line {line}: {error}"))
    }
}
