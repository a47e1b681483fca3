//! Multipart messages: requests, and replies that may take many messages.

use super::Format;
use super::flow_stats::{self, Aggregate, FlowRequest, FlowStats};
use super::groups::{self, GroupDesc, GroupFeatures, GroupStats};
use super::meters::{self, MeterDesc, MeterFeatures, MeterStats, QueueConfig, QueueStats};
use super::monitor::{self, FlowUpdate, MonitorRequest};
use super::ports::{PortDesc, PortStats, put_port, read_port};
use super::stats_kind::{Kind, put_head, read_head};
use super::switch::{
    Description, TableFeatures, TableMod, put_description, put_table_desc, read_description, read_table_desc,
};
use super::table_stats::TableStats;
use crate::wire::{Reader, Writer};
use crate::{Error, MESSAGE_MAX, Version};
use sluice_flow::OfPort;

/// A multipart request.
#[derive(Clone, Debug, PartialEq)]
pub enum StatsRequest {
    /// The description of the switch.
    Description,
    /// Statistics of flows, one by one.
    Flows(Box<FlowRequest>),
    /// Aggregated statistics of flows.
    Aggregate(Box<FlowRequest>),
    /// Tables.
    Tables,
    /// Ports; `None`: all.
    Ports(Option<OfPort>),
    /// Queues of a port or of all, one or [`meters::QUEUE_ALL`].
    Queues(Option<OfPort>, u32),
    /// Statistics of a group; [`sluice_ofp::GROUP_ALL`]: all.
    Groups(u32),
    /// Descriptions of groups.
    GroupDescs(u32),
    /// Features of groups.
    GroupFeatures,
    /// Statistics of a meter; [`sluice_ofp::METER_ALL`]: all.
    Meters(u32),
    /// Descriptions of meters.
    MeterConfigs(u32),
    /// Features of meters.
    MeterFeatures,
    /// Features of tables; with tables in it, the features that they are to have.
    TableFeatures(Vec<TableFeatures>),
    /// The description of a port; `None`: of all.
    PortDescs(Option<OfPort>),
    /// The configuration of tables.
    TableDescs,
    /// The configuration of queues.
    QueueDescs(Option<OfPort>, u32),
    /// Requests for flow monitors.
    Monitors(Vec<MonitorRequest>),
}

/// A multipart reply, or a part of it.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "they answer the questions of the same names")]
pub enum StatsReply {
    Description(Box<Description>),
    Flows(Format, Vec<FlowStats>),
    Aggregate(Format, Aggregate),
    Tables(Vec<TableStats>),
    Ports(Vec<PortStats>),
    Queues(Vec<QueueStats>),
    Groups(Vec<GroupStats>),
    GroupDescs(Vec<GroupDesc>),
    GroupFeatures(GroupFeatures),
    Meters(Vec<MeterStats>),
    MeterConfigs(Vec<MeterDesc>),
    MeterFeatures(MeterFeatures),
    TableFeatures(Vec<TableFeatures>),
    PortDescs(Vec<PortDesc>),
    TableDescs(Vec<TableMod>),
    QueueDescs(Vec<QueueConfig>),
    /// Updates of flow monitors.
    Updates(Vec<FlowUpdate>),
}

/// A port in a request, where none means all.
fn read_any_port(r: &mut Reader<'_>, version: Version) -> Result<Option<OfPort>, Error> {
    // OpenFlow 1.0's queue requests have another number for all ports.
    read_port(r, version).map(|port| Some(port).filter(|p| ![OfPort::NONE, OfPort::ALL].contains(p)))
}

pub(super) fn read_request(r: &mut Reader<'_>, version: Version) -> Result<(StatsRequest, bool), Error> {
    let (kind, format, more) = read_head(r, version)?;
    let request = match kind {
        Kind::Description => StatsRequest::Description,
        Kind::Flows => StatsRequest::Flows(Box::new(flow_stats::read_request(r, version, format)?)),
        Kind::Aggregate => StatsRequest::Aggregate(Box::new(flow_stats::read_request(r, version, format)?)),
        Kind::Tables => StatsRequest::Tables,
        Kind::Ports => {
            let port = read_any_port(r, version)?;
            r.skip(if version == Version::V10 { 6 } else { 4 })?;
            StatsRequest::Ports(port)
        }
        Kind::Queues => {
            let port = read_any_port(r, version)?;
            r.skip(if version == Version::V10 { 2 } else { 0 })?;
            StatsRequest::Queues(port, r.u32()?)
        }
        Kind::Groups => StatsRequest::Groups(read_number(r)?),
        Kind::GroupDescs if (Version::V11..Version::V15).contains(&version) => {
            StatsRequest::GroupDescs(sluice_ofp::GROUP_ALL)
        }
        Kind::GroupDescs => StatsRequest::GroupDescs(read_number(r)?),
        Kind::GroupFeatures => StatsRequest::GroupFeatures,
        Kind::Meters => StatsRequest::Meters(read_number(r)?),
        Kind::MeterConfigs => StatsRequest::MeterConfigs(read_number(r)?),
        Kind::MeterFeatures => StatsRequest::MeterFeatures,
        Kind::TableFeatures => StatsRequest::TableFeatures(items(r, TableFeatures::read)?),
        Kind::PortDescs if version == Version::V15 => {
            let port = read_any_port(r, version)?;
            r.skip(4)?;
            StatsRequest::PortDescs(port)
        }
        Kind::PortDescs => StatsRequest::PortDescs(None),
        Kind::TableDescs => StatsRequest::TableDescs,
        Kind::QueueDescs => StatsRequest::QueueDescs(read_any_port(r, version)?, r.u32()?),
        Kind::Monitors => StatsRequest::Monitors(items(r, |r| monitor::read_request(r, version))?),
    };
    r.end()?;
    Ok((request, more))
}

/// A number with four bytes behind it.
fn read_number(r: &mut Reader<'_>) -> Result<u32, Error> {
    let number = r.u32()?;
    r.skip(4)?;
    Ok(number)
}

fn put_number(number: u32, w: &mut Writer) {
    w.u32(number);
    w.zeros(4);
}

pub(super) fn put_request(q: &StatsRequest, more: bool, version: Version, w: &mut Writer) {
    let start = w.len();
    let any = |port: &Option<OfPort>| port.unwrap_or(OfPort::NONE);
    let (kind, format) = match q {
        StatsRequest::Description => (Kind::Description, Format::Standard),
        StatsRequest::Flows(f) => (Kind::Flows, f.format),
        StatsRequest::Aggregate(f) => (Kind::Aggregate, f.format),
        StatsRequest::Tables => (Kind::Tables, Format::Standard),
        StatsRequest::Ports(_) => (Kind::Ports, Format::Standard),
        StatsRequest::Queues(..) => (Kind::Queues, Format::Standard),
        StatsRequest::Groups(_) => (Kind::Groups, Format::Standard),
        StatsRequest::GroupDescs(_) => (Kind::GroupDescs, Format::Standard),
        StatsRequest::GroupFeatures => (Kind::GroupFeatures, Format::Standard),
        StatsRequest::Meters(_) => (Kind::Meters, Format::Standard),
        StatsRequest::MeterConfigs(_) => (Kind::MeterConfigs, Format::Standard),
        StatsRequest::MeterFeatures => (Kind::MeterFeatures, Format::Standard),
        StatsRequest::TableFeatures(_) => (Kind::TableFeatures, Format::Standard),
        StatsRequest::PortDescs(_) => (Kind::PortDescs, Format::Standard),
        StatsRequest::TableDescs => (Kind::TableDescs, Format::Standard),
        StatsRequest::QueueDescs(..) => (Kind::QueueDescs, Format::Standard),
        StatsRequest::Monitors(_) => (Kind::Monitors, Format::Standard),
    };
    put_head(kind, format, version, w);
    w.patch_u16(start + 2, usize::from(more));
    match q {
        StatsRequest::Flows(f) | StatsRequest::Aggregate(f) => flow_stats::put_request(f, version, w),
        StatsRequest::Ports(port) => {
            put_port(any(port), version, w);
            w.zeros(if version == Version::V10 { 6 } else { 4 });
        }
        StatsRequest::Queues(port, queue) => {
            let all = if version == Version::V10 { OfPort::ALL } else { OfPort::NONE };
            put_port(port.unwrap_or(all), version, w);
            w.zeros(if version == Version::V10 { 2 } else { 0 });
            w.u32(*queue);
        }
        StatsRequest::GroupDescs(_) if (Version::V11..Version::V15).contains(&version) => {}
        StatsRequest::Groups(n)
        | StatsRequest::GroupDescs(n)
        | StatsRequest::Meters(n)
        | StatsRequest::MeterConfigs(n) => put_number(*n, w),
        StatsRequest::TableFeatures(tables) => tables.iter().for_each(|t| t.put(w)),
        StatsRequest::Monitors(all) => all.iter().for_each(|q| monitor::put_request(q, version, w)),
        StatsRequest::PortDescs(port) if version == Version::V15 => {
            put_port(any(port), version, w);
            w.zeros(4);
        }
        StatsRequest::QueueDescs(port, queue) => {
            put_port(any(port), version, w);
            w.u32(*queue);
        }
        _ => {}
    }
}

/// Items to the end of `r`.
fn items<T>(r: &mut Reader<'_>, mut read: impl FnMut(&mut Reader<'_>) -> Result<T, Error>) -> Result<Vec<T>, Error> {
    let mut all = Vec::new();
    while !r.is_empty() {
        all.push(read(r)?);
    }
    Ok(all)
}

pub(super) fn read_reply(r: &mut Reader<'_>, version: Version) -> Result<(StatsReply, bool), Error> {
    let (kind, format, more) = read_head(r, version)?;
    let reply = match kind {
        Kind::Description => StatsReply::Description(Box::new(read_description(r)?)),
        Kind::Flows => StatsReply::Flows(format, items(r, |r| FlowStats::read(r, version, format))?),
        Kind::Aggregate => StatsReply::Aggregate(format, flow_stats::read_aggregate(r, version)?),
        Kind::Tables => StatsReply::Tables(items(r, |r| TableStats::read(r, version))?),
        Kind::Ports => StatsReply::Ports(items(r, |r| PortStats::read(r, version))?),
        Kind::Queues => StatsReply::Queues(items(r, |r| QueueStats::read(r, version))?),
        Kind::Groups => StatsReply::Groups(items(r, |r| GroupStats::read(r, version))?),
        Kind::GroupDescs => StatsReply::GroupDescs(items(r, |r| GroupDesc::read(r, version))?),
        Kind::GroupFeatures => StatsReply::GroupFeatures(groups::read_features(r)?),
        Kind::Meters => StatsReply::Meters(items(r, MeterStats::read)?),
        Kind::MeterConfigs => StatsReply::MeterConfigs(items(r, MeterDesc::read)?),
        Kind::MeterFeatures => StatsReply::MeterFeatures(meters::read_features(r)?),
        Kind::TableFeatures => StatsReply::TableFeatures(items(r, TableFeatures::read)?),
        Kind::PortDescs => StatsReply::PortDescs(items(r, |r| PortDesc::read(r, version))?),
        Kind::TableDescs => StatsReply::TableDescs(items(r, read_table_desc)?),
        Kind::QueueDescs => StatsReply::QueueDescs(items(r, QueueConfig::read)?),
        Kind::Monitors => StatsReply::Updates(items(r, |r| FlowUpdate::read(r, version))?),
    };
    r.end()?;
    Ok((reply, more))
}

/// Writes an item.
type Put<'a> = dyn Fn(&mut Writer) + 'a;

impl StatsReply {
    fn kind(&self) -> (Kind, Format) {
        match self {
            StatsReply::Description(_) => (Kind::Description, Format::Standard),
            StatsReply::Flows(format, _) => (Kind::Flows, *format),
            StatsReply::Aggregate(format, _) => (Kind::Aggregate, *format),
            StatsReply::Tables(_) => (Kind::Tables, Format::Standard),
            StatsReply::Ports(_) => (Kind::Ports, Format::Standard),
            StatsReply::Queues(_) => (Kind::Queues, Format::Standard),
            StatsReply::Groups(_) => (Kind::Groups, Format::Standard),
            StatsReply::GroupDescs(_) => (Kind::GroupDescs, Format::Standard),
            StatsReply::GroupFeatures(_) => (Kind::GroupFeatures, Format::Standard),
            StatsReply::Meters(_) => (Kind::Meters, Format::Standard),
            StatsReply::MeterConfigs(_) => (Kind::MeterConfigs, Format::Standard),
            StatsReply::MeterFeatures(_) => (Kind::MeterFeatures, Format::Standard),
            StatsReply::TableFeatures(_) => (Kind::TableFeatures, Format::Standard),
            StatsReply::PortDescs(_) => (Kind::PortDescs, Format::Standard),
            StatsReply::TableDescs(_) => (Kind::TableDescs, Format::Standard),
            StatsReply::QueueDescs(_) => (Kind::QueueDescs, Format::Standard),
            StatsReply::Updates(_) => (Kind::Monitors, Format::Standard),
        }
    }

    /// Calls `item` with the bytes of every item. A reply that is no list is one item.
    fn each_item(&self, version: Version, item: &mut dyn FnMut(&Put<'_>)) {
        match self {
            StatsReply::Description(d) => item(&|w| put_description(d, w)),
            StatsReply::Flows(format, flows) => flows.iter().for_each(|f| item(&|w| f.put(version, *format, w))),
            StatsReply::Aggregate(_, a) => item(&|w| flow_stats::put_aggregate(a, version, w)),
            StatsReply::Tables(all) => all.iter().for_each(|t| item(&|w| t.put(version, w))),
            StatsReply::Ports(all) => all.iter().for_each(|p| item(&|w| p.put(version, w))),
            StatsReply::Queues(all) => all.iter().for_each(|q| item(&|w| q.put(version, w))),
            StatsReply::Groups(all) => all.iter().for_each(|g| item(&|w| g.put(version, w))),
            StatsReply::GroupDescs(all) => all.iter().for_each(|g| item(&|w| g.put(version, w))),
            StatsReply::GroupFeatures(f) => item(&|w| groups::put_features(f, w)),
            StatsReply::Meters(all) => all.iter().for_each(|m| item(&|w| m.put(w))),
            StatsReply::MeterConfigs(all) => all.iter().for_each(|m| item(&|w| m.put(w))),
            StatsReply::MeterFeatures(f) => item(&|w| meters::put_features(f, w)),
            StatsReply::TableFeatures(all) => all.iter().for_each(|t| item(&|w| t.put(w))),
            StatsReply::PortDescs(all) => all.iter().for_each(|p| item(&|w| p.put(version, w))),
            StatsReply::TableDescs(all) => all.iter().for_each(|t| item(&|w| put_table_desc(t, w))),
            StatsReply::QueueDescs(all) => all.iter().for_each(|q| item(&|w| q.put(w))),
            StatsReply::Updates(all) => all.iter().for_each(|u| item(&|w| u.put(version, w))),
        }
    }

    /// Writes it in as many messages as are needed; an item that fits into none is left out. `begin`
    /// writes a header, `more` says whether another reply follows this one.
    pub(super) fn put_parts(&self, more: bool, version: Version, mut begin: impl FnMut() -> Writer) -> Vec<Writer> {
        let (kind, format) = self.kind();
        let mut fresh = || {
            let mut w = begin();
            put_head(kind, format, version, &mut w);
            w
        };
        let mut parts = vec![fresh()];
        let mut scratch = parts[0].part();
        self.each_item(version, &mut |put| {
            scratch.bytes.clear();
            put(&mut scratch);
            let last = parts.last_mut().expect("invariant: there is a part from the start");
            if last.len() + scratch.len() <= MESSAGE_MAX {
                return last.put(&scratch.bytes);
            }
            let mut next = fresh();
            if next.len() + scratch.len() <= MESSAGE_MAX {
                next.put(&scratch.bytes);
                parts.push(next);
            } else if matches!(self, StatsReply::Flows(..)) {
                let text =
                    "Flow exceeded the maximum flow statistics reply size and was excluded from the response set";
                tracing::warn!(target: "ofp_flow", rate_limit = 5, "{text}");
            }
        });
        let n = parts.len();
        let flags_at = crate::HEADER_SIZE + 2;
        for (i, part) in parts.iter_mut().enumerate() {
            part.patch_u16(flags_at, usize::from(more || i + 1 < n));
        }
        parts
    }
}
