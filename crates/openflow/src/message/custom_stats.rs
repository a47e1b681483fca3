//! Named counters of a port: an experimenter's property of port statistics.
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
    // Padded to a multiple of four bytes: Open vSwitch reads the stated number, os-ken reads words up to the end.
    body.zeros(body.bytes.len().next_multiple_of(4) - body.bytes.len());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_is_whole_words_and_reads_back() {
        for name in ["", "a", "ab", "abc", "abcd"] {
            let counters = vec![(name.to_owned(), 7), ("rx_drop_rules".to_owned(), u64::MAX)];
            let mut w = Writer::default();
            put(&counters, &mut w);
            let length = u16::from_be_bytes([w.bytes[2], w.bytes[3]]);
            assert_eq!(length % 4, 0, "{name}");
            assert_eq!(
                read(&mut Reader::new(&w.bytes[4..usize::from(length)], Error::RequestBadLen)).unwrap(),
                counters
            );
        }
    }
}
