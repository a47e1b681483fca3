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
    (Kind::Groups, 6, Version::V13),
    (Kind::GroupDescs, 7, Version::V13),
    (Kind::GroupFeatures, 8, Version::V13),
    (Kind::Meters, 9, Version::V13),
    (Kind::MeterConfigs, 10, Version::V13),
    (Kind::MeterFeatures, 11, Version::V13),
    (Kind::TableFeatures, 12, Version::V13),
    (Kind::PortDescs, 13, Version::V10),
    (Kind::TableDescs, 14, Version::V14),
    (Kind::QueueDescs, 15, Version::V14),
    (Kind::Monitors, 16, Version::V14),
];

/// Experimenters' numbers: the one version that has them, whose they are.
const EXPERIMENTER_KINDS: [(Kind, Version, u32, u32); 7] = [
    (Kind::Flows, Version::V10, NICIRA, 0),
    (Kind::Aggregate, Version::V10, NICIRA, 1),
    (Kind::Monitors, Version::V10, NICIRA, 2),
    (Kind::Groups, Version::V10, NICIRA, 7),
    (Kind::GroupDescs, Version::V10, NICIRA, 8),
    (Kind::GroupFeatures, Version::V10, NICIRA, 9),
    (Kind::Monitors, Version::V13, ONF, 1870),
];

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
    let known = EXPERIMENTER_KINDS.iter().find(|(_, v, whose, n)| (*v, *whose, *n) == (version, vendor, number));
    // In OpenFlow 1.0 only flows have both formats.
    let format = |kind| if matches!(kind, Kind::Flows | Kind::Aggregate) { Format::Nicira } else { Format::Standard };
    known.map(|(kind, ..)| (*kind, format(*kind), more)).ok_or(Error::RequestBadSubtype)
}

/// Writes that header. The flag that more follows is set later.
pub(super) fn put_head(kind: Kind, format: Format, version: Version, w: &mut Writer) {
    let own = EXPERIMENTER_KINDS.iter().find(|(k, v, ..)| *k == kind && *v == version);
    // OpenFlow 1.0 has groups from Nicira only.
    let standard = KINDS.iter().find(|(k, _, since)| *k == kind && version >= *since).map(|(_, n, _)| *n);
    match (standard, own) {
        (Some(number), _) if format == Format::Standard => {
            w.u16(number);
            w.u16(0);
            w.zeros(if version > Version::V10 { 4 } else { 0 });
        }
        (_, Some((_, _, vendor, number))) => {
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
