//! Counters of a port that have names instead of places: an experimenter's property of port statistics.
//!
//! Source: Open vSwitch, include/openflow/intel-ext.h, `intel_port_custom_stats`.

use crate::Error;
use crate::property::{self, EXPERIMENTER};
use crate::wire::{Reader, Writer};

/// The experimenter. Source: `INTEL_VENDOR_ID`.
const INTEL: u32 = 0xaa01;
/// Its property. Source: `INTEL_PORT_STATS_CUSTOM`.
const CUSTOM: u32 = 2;

/// Writes counters; nothing if there are none. Names are cut after 255 bytes.
pub(super) fn put(counters: &[(String, u64)], w: &mut Writer) {
    if counters.is_empty() {
        return;
    }
    let mut body = Writer::default();
    body.u32(INTEL);
    body.u32(CUSTOM);
    body.zeros(2);
    body.u16(counters.len() as u16);
    for (name, value) in counters {
        let name = &name.as_bytes()[..name.len().min(usize::from(u8::MAX))];
        body.u8(name.len() as u8);
        body.put(name);
        body.u64(*value);
    }
    property::put(EXPERIMENTER, &body.bytes, w);
}

/// The counters of an experimenter's property; none if it is another one.
pub(super) fn read(body: &mut Reader<'_>) -> Result<Vec<(String, u64)>, Error> {
    if (body.u32()?, body.u32()?) != (INTEL, CUSTOM) {
        return Ok(Vec::new());
    }
    body.skip(2)?;
    let counters = body.u16()?;
    (0..counters)
        .map(|_| {
            let len = usize::from(body.u8()?);
            Ok((String::from_utf8_lossy(body.take(len)?).into_owned(), body.u64()?))
        })
        .collect()
}
