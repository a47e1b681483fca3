//! Meters from text, one a line.

use crate::desired::Source;
use crate::error::Error;
use sluice_ofp::{MeterCommand, MeterMod};
use sluice_ofproto::Ofproto;
use std::collections::BTreeSet;

/// The meters of a source.
#[derive(Debug)]
pub(crate) struct Meters {
    pub source: Source,
    /// With the numbers of their lines, from 1.
    meters: Vec<(usize, MeterMod)>,
}

impl Meters {
    /// Reads meters.
    pub fn parse(source: &Source) -> Result<Self, Error> {
        let mut meters = Vec::new();
        for (line, number) in source.text.lines().zip(1..) {
            let line = line.split('#').next().unwrap_or("").trim();
            if line.is_empty() {
                continue;
            }
            let meter = MeterMod::parse(line, MeterCommand::Add).map_err(|e| {
                source.error(format!("line {number}: column {}: found {}, expected {}", e.column, e.found, e.expected))
            })?;
            meters.push((number, meter));
        }
        Ok(Meters { source: source.clone(), meters })
    }

    /// The numbers of the meters.
    pub fn ids(&self) -> BTreeSet<u32> {
        self.meters.iter().map(|(_, change)| change.meter).collect()
    }

    /// Adds the meters; one that is there already is changed.
    pub fn load(&self, ofproto: &Ofproto, bridge: &str, now_ms: u64) -> Result<(), Error> {
        let there: BTreeSet<u32> = ofproto.meters(bridge)?.iter().map(|meter| meter.id).collect();
        for (line, change) in &self.meters {
            let command = if there.contains(&change.meter) { MeterCommand::Modify } else { MeterCommand::Add };
            let done = ofproto.meter_mod(bridge, &MeterMod { command, ..change.clone() }, now_ms);
            done.map_err(|error| self.source.error(format!("line {line}: {error}")))?;
        }
        Ok(())
    }
}
