//! Groups: modifications, descriptions, statistics, features.

use super::flow_stats::{put_duration, read_duration};
use crate::action::{self, put_list};
use crate::oxm::{self, Numbering};
use crate::property;
use crate::wire::{Reader, Writer};
use crate::{Error, Version};
use sluice_flow::OfPort;
use sluice_ofp::consistency::Within;
use sluice_ofp::{BUCKET_ALL, Bucket, GROUP_ANY, GROUP_MAX, GroupCommand, GroupConfig, GroupKind, GroupMod, Selection};

/// Netronome's experimenter id, whose property has a group's selection method.
const NETRONOME: u32 = 0x0000_154d;
/// What Open vSwitch 2.4 took for it. Source: Open vSwitch, `NTR_COMPAT_VENDOR_ID`.
const NETRONOME_COMPAT: u32 = 0x0000_1540;
const SELECTION_METHOD: u32 = 1;
const METHOD_SIZE: usize = 16;

const COMMANDS: [(u16, GroupCommand); 6] = [
    (0, GroupCommand::Add),
    (1, GroupCommand::Modify),
    (2, GroupCommand::Delete),
    (3, GroupCommand::InsertBucket),
    (5, GroupCommand::RemoveBucket),
    (0x8000, GroupCommand::AddOrModify),
];

/// Whether a version has the second form of group messages, with numbered buckets. Nicira has it for OpenFlow 1.0.
fn has_bucket_ids(version: Version) -> bool {
    version == Version::V10 || version == Version::V15
}

/// Whether a version's group statistics have a duration. Source: Open vSwitch, `ofputil_append_group_stats`.
fn has_group_duration(version: Version) -> bool {
    version >= Version::V13 || version == Version::V10
}

fn kind(number: u8) -> Result<GroupKind, Error> {
    let known = [GroupKind::All, GroupKind::Select, GroupKind::Indirect, GroupKind::FastFailover];
    known.get(usize::from(number)).copied().ok_or(Error::GroupModBadType)
}

pub(super) fn read_mod(r: &mut Reader<'_>, version: Version) -> Result<GroupMod, Error> {
    let (number, kind_number) = (r.u16()?, r.u8()?);
    r.skip(1)?;
    let group = r.u32()?;
    let command = COMMANDS.iter().find(|(n, _)| *n == number).ok_or(Error::GroupModBadCommand)?.1;
    let by_bucket = matches!(command, GroupCommand::InsertBucket | GroupCommand::RemoveBucket);
    let mut command_bucket = BUCKET_ALL;
    let mut config = GroupConfig { kind: kind(kind_number)?, ..GroupConfig::default() };
    if has_bucket_ids(version) {
        let n = usize::from(r.u16()?);
        r.skip(2)?;
        command_bucket = r.u32()?;
        config.buckets = read_buckets15(r.or(Error::RequestBadLen).part(n)?, version, config.kind)?;
        r.skip(n)?;
        config.selection = read_selection(r.part(r.len())?)?;
    } else {
        if by_bucket {
            return Err(Error::GroupModBadCommand);
        }
        config.buckets = read_buckets11(r.part(r.len())?, version)?;
    }
    let refused = !has_bucket_ids(version);
    if refused && command == GroupCommand::Delete && !config.buckets.is_empty() {
        return Err(Error::GroupModInvalidGroup);
    }
    let change = GroupMod { command, group, command_bucket, config };
    check(&change)?;
    Ok(change)
}

/// The errors of a group-mod that do not depend on the groups that exist.
fn check(change: &GroupMod) -> Result<(), Error> {
    let GroupMod { command, group, config, .. } = change;
    let mut ids: Vec<u32> = config.buckets.iter().map(|b| b.id).collect();
    ids.sort_unstable();
    if ids.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Error::GroupModBadBucket);
    }
    if *group > GROUP_MAX && *command != GroupCommand::Delete {
        return Err(Error::GroupModInvalidGroup);
    }
    let selects = config.kind == GroupKind::Select;
    if *command != GroupCommand::Delete && config.kind == GroupKind::Indirect && config.buckets.len() != 1 {
        return Err(Error::GroupModInvalidGroup);
    }
    if !config.selection.method.is_empty() && !selects {
        return Err(Error::PropertyBadValue);
    }
    if *command == GroupCommand::RemoveBucket && !config.buckets.is_empty() {
        return Err(Error::GroupModBadBucket);
    }
    for bucket in &config.buckets {
        let is_live = bucket.watch_port.is_some() || bucket.watch_group.is_some();
        if bucket.weight != 0 && !selects && *command != GroupCommand::InsertBucket {
            return Err(Error::GroupModInvalidGroup);
        }
        match config.kind {
            GroupKind::All | GroupKind::Indirect if is_live => return Err(Error::GroupModWatchUnsupported),
            GroupKind::FastFailover if !is_live => return Err(Error::GroupModInvalidGroup),
            _ => {}
        }
    }
    Ok(())
}

pub(super) fn put_mod(m: &GroupMod, version: Version, w: &mut Writer) {
    w.u16(COMMANDS.iter().find(|(_, c)| *c == m.command).map_or(0, |(n, _)| *n));
    w.u8(m.config.kind as u8);
    w.zeros(1);
    w.u32(m.group);
    if has_bucket_ids(version) {
        let at = w.len();
        w.zeros(4);
        w.u32(m.command_bucket);
        let start = w.len();
        m.config.buckets.iter().for_each(|b| put_bucket15(b, m.config.kind, version, w));
        w.patch_u16(at, w.len() - start);
        put_selection(&m.config.selection, version, w);
    } else {
        m.config.buckets.iter().for_each(|b| put_bucket11(b, version, w));
    }
}

fn watch_port(number: u32) -> Result<Option<OfPort>, Error> {
    let port = OfPort::from_of11(number).ok_or(Error::GroupModBadWatch)?;
    Ok(Some(port).filter(|p| *p != OfPort::NONE))
}

fn read_buckets11(mut r: Reader<'_>, version: Version) -> Result<Vec<Bucket>, Error> {
    let mut buckets = Vec::new();
    while !r.is_empty() {
        let length = r.rest().first_chunk::<2>().map_or(0, |n| usize::from(u16::from_be_bytes(*n)));
        if length < 16 || !length.is_multiple_of(8) {
            return Err(Error::GroupModBadBucket);
        }
        let mut b = r.or(Error::GroupModBadBucket).part(length)?;
        r.skip(length)?;
        b.skip(2)?;
        let (weight, port, group) = (b.u16()?, b.u32()?, b.u32()?);
        b.skip(4)?;
        buckets.push(Bucket {
            id: buckets.len() as u32,
            weight,
            watch_port: watch_port(port)?,
            watch_group: Some(group).filter(|g| *g != GROUP_ANY),
            actions: action::read(b, version, Within::Bucket)?,
        });
    }
    Ok(buckets)
}

fn put_bucket11(b: &Bucket, version: Version, w: &mut Writer) {
    let start = w.len();
    w.u16(0);
    w.u16(b.weight);
    w.u32(b.watch_port.unwrap_or(OfPort::NONE).to_of11());
    w.u32(b.watch_group.unwrap_or(GROUP_ANY));
    w.zeros(4);
    put_list(&b.actions, version, w);
    w.patch_u16(start, w.len() - start);
}

/// Properties of buckets with numbers.
mod bucket_property {
    pub const WEIGHT: u16 = 0;
    pub const WATCH_PORT: u16 = 1;
    pub const WATCH_GROUP: u16 = 2;
}

fn read_buckets15(mut r: Reader<'_>, version: Version, kind: GroupKind) -> Result<Vec<Bucket>, Error> {
    let mut buckets = Vec::new();
    while !r.is_empty() {
        let length = r.rest().first_chunk::<2>().map_or(0, |n| usize::from(u16::from_be_bytes(*n)));
        if length < 8 || !length.is_multiple_of(8) {
            return Err(Error::GroupModBadBucket);
        }
        let mut b = r.or(Error::GroupModBadBucket).part(length)?;
        r.skip(length)?;
        b.skip(2)?;
        let actions_len = b.u16()?;
        let mut bucket = Bucket::new(b.u32()?, Vec::new());
        bucket.weight = u16::from(kind == GroupKind::Select);
        if bucket.id > sluice_ofp::BUCKET_MAX {
            return Err(Error::GroupModBadBucket);
        }
        bucket.actions = action::read(b.part(actions_len.into())?, version, Within::Bucket)?;
        property::each(b, |kind, body| {
            match kind {
                bucket_property::WEIGHT => bucket.weight = property::u16(body)?,
                bucket_property::WATCH_PORT => bucket.watch_port = watch_port(property::u32(body)?)?,
                bucket_property::WATCH_GROUP => {
                    bucket.watch_group = Some(property::u32(body)?).filter(|g| *g != GROUP_ANY);
                }
                _ => return Err(property::unknown(kind, body)),
            }
            Ok(())
        })?;
        buckets.push(bucket);
    }
    Ok(buckets)
}

fn put_bucket15(b: &Bucket, kind: GroupKind, version: Version, w: &mut Writer) {
    let start = w.len();
    w.zeros(4);
    w.u32(b.id);
    put_list(&b.actions, version, w);
    w.patch_u16(start + 2, w.len() - start - 8);
    if kind == GroupKind::Select || b.weight != 0 {
        property::put_u16(bucket_property::WEIGHT, b.weight, w);
    }
    if let Some(port) = b.watch_port {
        property::put(bucket_property::WATCH_PORT, &port.to_of11().to_be_bytes(), w);
    }
    if let Some(group) = b.watch_group {
        property::put(bucket_property::WATCH_GROUP, &group.to_be_bytes(), w);
    }
    w.patch_u16(start, w.len() - start);
}

fn read_selection(r: Reader<'_>) -> Result<Selection, Error> {
    let mut selection = Selection::default();
    property::each(r, |kind, body| {
        if kind != property::EXPERIMENTER {
            return Err(Error::PropertyBadType);
        }
        let mut rest = *body;
        if !matches!((rest.u32()?, rest.u32()?), (NETRONOME | NETRONOME_COMPAT, SELECTION_METHOD)) {
            return Err(property::unknown(kind, body));
        }
        *body = rest;
        body.skip(4)?;
        selection.method = body.text(METHOD_SIZE)?;
        selection.parameter = body.u64()?;
        if !["hash", "dp_hash"].contains(&selection.method.as_str()) {
            return Err(Error::PropertyBadValue);
        }
        selection.fields = oxm::read_field_masks(body.part(body.len())?)?;
        Ok(())
    })?;
    Ok(selection)
}

fn put_selection(s: &Selection, version: Version, w: &mut Writer) {
    if s.method.is_empty() {
        return;
    }
    let mut body = w.part();
    body.u32(NETRONOME);
    body.u32(SELECTION_METHOD);
    body.zeros(4);
    body.text(&s.method, METHOD_SIZE);
    body.u64(s.parameter);
    oxm::put_field_masks(&s.fields, Numbering::Oxm(version.max(Version::V13)), &mut body);
    property::put(property::EXPERIMENTER, &body.bytes, w);
}

/// The description of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupDesc {
    /// Number.
    pub group: u32,
    /// What it is.
    pub config: GroupConfig,
}

impl GroupDesc {
    pub(super) fn put(&self, version: Version, w: &mut Writer) {
        let start = w.len();
        w.u16(0);
        w.u8(self.config.kind as u8);
        w.zeros(1);
        w.u32(self.group);
        if has_bucket_ids(version) {
            let at = w.len();
            w.zeros(8);
            let first = w.len();
            self.config.buckets.iter().for_each(|b| put_bucket15(b, self.config.kind, version, w));
            w.patch_u16(at, w.len() - first);
            put_selection(&self.config.selection, version, w);
        } else {
            self.config.buckets.iter().for_each(|b| put_bucket11(b, version, w));
        }
        w.patch_u16(start, w.len() - start);
    }

    pub(super) fn read(r: &mut Reader<'_>, version: Version) -> Result<GroupDesc, Error> {
        let length = usize::from(r.u16()?);
        let mut r = r.part(length.checked_sub(2).ok_or(Error::RequestBadLen)?)?;
        let kind = kind(r.u8()?)?;
        r.skip(1)?;
        let group = r.u32()?;
        let mut config = GroupConfig { kind, ..GroupConfig::default() };
        if has_bucket_ids(version) {
            let n = usize::from(r.u16()?);
            r.skip(6)?;
            config.buckets = read_buckets15(r.part(n)?, version, kind)?;
            config.selection = read_selection(r)?;
        } else {
            config.buckets = read_buckets11(r, version)?;
        }
        Ok(GroupDesc { group, config })
    }
}

/// The statistics of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupStats {
    /// Number.
    pub group: u32,
    /// Flows and groups that refer to it.
    pub ref_count: u32,
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Nanoseconds since it was added.
    pub duration_ns: u64,
    /// Packets and bytes of each of its buckets.
    pub buckets: Vec<(u64, u64)>,
}

impl GroupStats {
    pub(super) fn put(&self, version: Version, w: &mut Writer) {
        let start = w.len();
        w.zeros(4);
        w.u32(self.group);
        w.u32(self.ref_count);
        w.zeros(4);
        w.u64(self.packets);
        w.u64(self.bytes);
        if has_group_duration(version) {
            put_duration(self.duration_ns, w);
        }
        for (packets, bytes) in &self.buckets {
            w.u64(*packets);
            w.u64(*bytes);
        }
        w.patch_u16(start, w.len() - start);
    }

    pub(super) fn read(r: &mut Reader<'_>, version: Version) -> Result<GroupStats, Error> {
        let length = usize::from(r.u16()?);
        let mut r = r.part(length.checked_sub(2).ok_or(Error::RequestBadLen)?)?;
        r.skip(2)?;
        let (group, ref_count) = (r.u32()?, r.u32()?);
        r.skip(4)?;
        let (packets, bytes) = (r.u64()?, r.u64()?);
        let duration_ns = if has_group_duration(version) { read_duration(&mut r)? } else { 0 };
        let mut buckets = Vec::new();
        while !r.is_empty() {
            buckets.push((r.u64()?, r.u64()?));
        }
        Ok(GroupStats { group, ref_count, packets, bytes, duration_ns, buckets })
    }
}

/// Features of groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupFeatures {
    /// Supported types, a bit for each.
    pub kinds: u32,
    /// `OFPGFC_*`.
    pub capabilities: u32,
    /// The most groups of each type.
    pub max_groups: [u32; 4],
    /// The actions that buckets of each type can have: a bit for each.
    pub actions: [u32; 4],
}

pub(super) fn put_features(f: &GroupFeatures, w: &mut Writer) {
    w.u32(f.kinds);
    w.u32(f.capabilities);
    f.max_groups.iter().chain(&f.actions).for_each(|n| w.u32(*n));
}

pub(super) fn read_features(r: &mut Reader<'_>) -> Result<GroupFeatures, Error> {
    let mut f = GroupFeatures { kinds: r.u32()?, capabilities: r.u32()?, ..GroupFeatures::default() };
    for n in f.max_groups.iter_mut().chain(&mut f.actions) {
        *n = r.u32()?;
    }
    Ok(f)
}
