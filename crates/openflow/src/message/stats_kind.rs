//! Kinds of statistics and their numbers.

use super::Format;
use crate::error::{NICIRA, ONF};
use crate::wire::{Reader, Writer};
use crate::{Error, Version};

/// Kinds of statistics, as numbered: the standard's number, or Nicira's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Description,
    Flows,
    Aggregate,
    Tables,
    Ports,
    Queues,
    Groups,
    GroupDescs,
    GroupFeatures,
    Meters,
    MeterConfigs,
    MeterFeatures,
    TableFeatures,
    PortDescs,
    TableDescs,
    QueueDescs,
    Monitors,
}

/// A kind, its number, and the first version that has it.
const KINDS: [(Kind, u16, Version); 17] = [
    (Kind::Description, 0, Version::V10),
    (Kind::Flows, 1, Version::V10),
    (Kind::Aggregate, 2, Version::V10),
    (Kind::Tables, 3, Version::V10),
    (Kind::Ports, 4, Version::V10),
    (Kind::Queues, 5, Version::V10),
    (Kind::Groups, 6, Version::V11),
    (Kind::GroupDescs, 7, Version::V11),
    (Kind::GroupFeatures, 8, Version::V12),
    (Kind::Meters, 9, Version::V13),
    (Kind::MeterConfigs, 10, Version::V13),
    (Kind::MeterFeatures, 11, Version::V13),
    (Kind::TableFeatures, 12, Version::V13),
    (Kind::PortDescs, 13, Version::V10),
    (Kind::TableDescs, 14, Version::V14),
    (Kind::QueueDescs, 15, Version::V14),
    (Kind::Monitors, 16, Version::V14),
];

/// An experimenter's number for a kind.
struct ExperimenterKind {
    kind: Kind,
    /// The last version that has it.
    last: Version,
    vendor: u32,
    number: u32,
}

/// Nicira's number; versions from OpenFlow 1.0 on have it.
const fn nicira(kind: Kind, last: Version, number: u32) -> ExperimenterKind {
    ExperimenterKind { kind, last, vendor: NICIRA, number }
}

const EXPERIMENTER_KINDS: [ExperimenterKind; 7] = [
    nicira(Kind::Flows, Version::V10, 0),
    nicira(Kind::Aggregate, Version::V10, 1),
    nicira(Kind::Monitors, Version::V12, 2),
    nicira(Kind::Groups, Version::V10, 7),
    nicira(Kind::GroupDescs, Version::V10, 8),
    nicira(Kind::GroupFeatures, Version::V11, 9),
    ExperimenterKind { kind: Kind::Monitors, last: Version::V13, vendor: ONF, number: 1870 },
];

impl ExperimenterKind {
    fn is_in(&self, version: Version) -> bool {
        // The ONF's extensions are to OpenFlow 1.3 alone.
        version <= self.last && (self.vendor == NICIRA || version == self.last)
    }
}

/// A kind of its own by an experimenter's number.
const EXPERIMENTER: u16 = 0xffff;

/// A flag: more messages of this reply follow.
const MORE: u16 = 1;

/// Reads the header of a multipart message: kind, format, whether more follows.
pub(super) fn read_head(r: &mut Reader<'_>, version: Version) -> Result<(Kind, Format, bool), Error> {
    let (number, flags) = (r.u16()?, r.u16()?);
    if version > Version::V10 {
        r.skip(4)?;
    }
    let more = flags & MORE != 0;
    if number != EXPERIMENTER {
        let known = KINDS.iter().find(|(_, n, since)| *n == number && version >= *since);
        return known.map(|(kind, ..)| (*kind, Format::Standard, more)).ok_or(Error::RequestBadStat);
    }
    let vendor = r.u32()?;
    if vendor != NICIRA && vendor != ONF {
        return Err(Error::RequestBadVendor);
    }
    let number = r.u32()?;
    r.skip(if version == Version::V10 { 4 } else { 0 })?;
    let mut kinds = EXPERIMENTER_KINDS.iter();
    let known = kinds.find(|k| (k.vendor, k.number) == (vendor, number) && k.is_in(version));
    // In OpenFlow 1.0 only flows have both formats.
    let format = |kind| if matches!(kind, Kind::Flows | Kind::Aggregate) { Format::Nicira } else { Format::Standard };
    known.map(|k| (k.kind, format(k.kind), more)).ok_or(Error::RequestBadSubtype)
}

/// Writes that header. The flag that more follows is set later.
pub(super) fn put_head(kind: Kind, format: Format, version: Version, w: &mut Writer) {
    let own = EXPERIMENTER_KINDS.iter().find(|k| k.kind == kind && k.is_in(version));
    // OpenFlow 1.0 has groups from Nicira only, OpenFlow 1.1 their features.
    let standard = KINDS.iter().find(|(k, _, since)| *k == kind && version >= *since).map(|(_, n, _)| *n);
    match (standard, own) {
        (Some(number), _) if format == Format::Standard => {
            w.u16(number);
            w.u16(0);
            w.zeros(if version > Version::V10 { 4 } else { 0 });
        }
        (_, Some(ExperimenterKind { vendor, number, .. })) => {
            w.u16(EXPERIMENTER);
            w.u16(0);
            w.zeros(if version > Version::V10 { 4 } else { 0 });
            w.u32(*vendor);
            w.u32(*number);
            w.zeros(if version == Version::V10 { 4 } else { 0 });
        }
        _ => {
            w.u16(EXPERIMENTER);
            w.u16(0);
        }
    }
}
