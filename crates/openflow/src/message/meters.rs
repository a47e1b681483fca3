//! Meters and queues: modifications, descriptions, statistics, features.

use super::flow_stats::{put_duration, read_duration};
use super::ports::{put_port, read_port};
use crate::wire::{Reader, Writer};
use crate::{Error, Version};
use sluice_flow::OfPort;
use sluice_ofp::{Band, BandKind, MeterCommand, MeterConfig, MeterMod};

const KBPS: u16 = 1;
const PKTPS: u16 = 2;
const BURST: u16 = 4;
const STATS: u16 = 8;

const DROP: u16 = 1;
const DSCP_REMARK: u16 = 2;
const BAND_SIZE: u16 = 16;

pub(super) fn read_mod(r: &mut Reader<'_>) -> Result<MeterMod, Error> {
    let (number, flags, meter) = (r.u16()?, r.u16()?, r.u32()?);
    let command = match number {
        0 => MeterCommand::Add,
        1 => MeterCommand::Modify,
        2 => MeterCommand::Delete,
        _ => return Err(Error::MeterModBadCommand),
    };
    if command == MeterCommand::Delete {
        // The rest of the message is ignored.
        r.skip(r.len())?;
        return Ok(MeterMod { command, meter, config: MeterConfig::default() });
    }
    let both_rates = flags & KBPS != 0 && flags & PKTPS != 0;
    if flags & !(KBPS | PKTPS | BURST | STATS) != 0 || both_rates {
        return Err(Error::MeterModBadFlags);
    }
    let mut config = config(flags);
    config.bands = read_bands(r.part(r.len())?)?;
    Ok(MeterMod { command, meter, config })
}

fn config(flags: u16) -> MeterConfig {
    MeterConfig { packets: flags & PKTPS != 0, burst: flags & BURST != 0, stats: flags & STATS != 0, bands: Vec::new() }
}

fn flags(c: &MeterConfig) -> u16 {
    let rate = if c.packets { PKTPS } else { KBPS };
    rate | if c.burst { BURST } else { 0 } | if c.stats { STATS } else { 0 }
}

fn read_bands(mut r: Reader<'_>) -> Result<Vec<Band>, Error> {
    let mut bands = Vec::new();
    while !r.is_empty() {
        let (kind, length) = (r.u16()?, r.u16()?);
        if length != BAND_SIZE {
            return Err(Error::RequestBadLen);
        }
        let (rate, burst, precedence) = (r.u32()?, r.u32()?, r.u8()?);
        r.skip(3)?;
        let kind = match kind {
            DROP => BandKind::Drop,
            DSCP_REMARK => BandKind::DscpRemark(precedence),
            _ => return Err(Error::MeterModBadBand),
        };
        bands.push(Band { kind, rate, burst });
    }
    Ok(bands)
}

fn put_bands(bands: &[Band], w: &mut Writer) {
    for band in bands {
        let (kind, precedence) = match band.kind {
            BandKind::Drop => (DROP, 0),
            BandKind::DscpRemark(precedence) => (DSCP_REMARK, precedence),
        };
        w.u16(kind);
        w.u16(BAND_SIZE);
        w.u32(band.rate);
        w.u32(band.burst);
        w.u8(precedence);
        w.zeros(3);
    }
}

pub(super) fn put_mod(m: &MeterMod, w: &mut Writer) {
    w.u16(match m.command {
        MeterCommand::Add => 0,
        MeterCommand::Modify => 1,
        MeterCommand::Delete => 2,
    });
    w.u16(if m.command == MeterCommand::Delete { 0 } else { flags(&m.config) });
    w.u32(m.meter);
    put_bands(&m.config.bands, w);
}

/// The description of a meter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterDesc {
    /// Number.
    pub meter: u32,
    /// What it is.
    pub config: MeterConfig,
}

impl MeterDesc {
    pub(super) fn put(&self, w: &mut Writer) {
        w.u16(8 + BAND_SIZE * self.config.bands.len() as u16);
        w.u16(flags(&self.config));
        w.u32(self.meter);
        put_bands(&self.config.bands, w);
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<MeterDesc, Error> {
        let length = usize::from(r.u16()?);
        let mut r = r.part(length.checked_sub(2).ok_or(Error::RequestBadLen)?)?;
        let mut config = config(r.u16()?);
        let meter = r.u32()?;
        config.bands = read_bands(r)?;
        Ok(MeterDesc { meter, config })
    }
}

/// The statistics of a meter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeterStats {
    /// Number.
    pub meter: u32,
    /// Flows that use it.
    pub flows: u32,
    /// Packets that met it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Nanoseconds since it was added.
    pub duration_ns: u64,
    /// Packets and bytes above the rate of each of its bands.
    pub bands: Vec<(u64, u64)>,
}

impl MeterStats {
    pub(super) fn put(&self, w: &mut Writer) {
        w.u32(self.meter);
        w.u16((40 + 16 * self.bands.len()) as u16);
        w.zeros(6);
        w.u32(self.flows);
        w.u64(self.packets);
        w.u64(self.bytes);
        put_duration(self.duration_ns, w);
        for (packets, bytes) in &self.bands {
            w.u64(*packets);
            w.u64(*bytes);
        }
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<MeterStats, Error> {
        let meter = r.u32()?;
        let length = usize::from(r.u16()?);
        let mut r = r.part(length.checked_sub(6).ok_or(Error::RequestBadLen)?)?;
        r.skip(6)?;
        let (flows, packets, bytes) = (r.u32()?, r.u64()?, r.u64()?);
        let duration_ns = read_duration(&mut r)?;
        let mut bands = Vec::new();
        while !r.is_empty() {
            bands.push((r.u64()?, r.u64()?));
        }
        Ok(MeterStats { meter, flows, packets, bytes, duration_ns, bands })
    }
}

/// Features of meters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeterFeatures {
    /// The most meters.
    pub max_meters: u32,
    /// Supported band types, a bit for each.
    pub band_types: u32,
    /// `OFPMF_*`.
    pub capabilities: u32,
    /// The most bands of a meter.
    pub max_bands: u8,
    /// The highest colour.
    pub max_color: u8,
}

pub(super) fn put_features(f: &MeterFeatures, w: &mut Writer) {
    w.u32(f.max_meters);
    w.u32(f.band_types);
    w.u32(f.capabilities);
    w.u8(f.max_bands);
    w.u8(f.max_color);
    w.zeros(2);
}

pub(super) fn read_features(r: &mut Reader<'_>) -> Result<MeterFeatures, Error> {
    let (max_meters, band_types, capabilities) = (r.u32()?, r.u32()?, r.u32()?);
    let f = MeterFeatures { max_meters, band_types, capabilities, max_bands: r.u8()?, max_color: r.u8()? };
    r.skip(2)?;
    Ok(f)
}

/// Every queue of a port, in requests.
pub const QUEUE_ALL: u32 = 0xffff_ffff;

/// The statistics of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueStats {
    /// Its port.
    pub port: OfPort,
    /// Its number there.
    pub queue: u32,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets dropped.
    pub errors: u64,
    /// Nanoseconds since it was added; from OpenFlow 1.3 on.
    pub duration_ns: u64,
}

impl QueueStats {
    pub(super) fn put(&self, version: Version, w: &mut Writer) {
        if version >= Version::V14 {
            w.u16(48);
            w.zeros(6);
        }
        put_port(self.port, version, w);
        w.zeros(if version == Version::V10 { 2 } else { 0 });
        w.u32(self.queue);
        w.u64(self.bytes);
        w.u64(self.packets);
        w.u64(self.errors);
        if version >= Version::V13 {
            put_duration(self.duration_ns, w);
        }
    }

    pub(super) fn read(r: &mut Reader<'_>, version: Version) -> Result<QueueStats, Error> {
        r.skip(if version >= Version::V14 { 8 } else { 0 })?;
        let port = read_port(r, version)?;
        r.skip(if version == Version::V10 { 2 } else { 0 })?;
        let (queue, bytes, packets, errors) = (r.u32()?, r.u64()?, r.u64()?, r.u64()?);
        let duration_ns = if version >= Version::V13 { read_duration(r)? } else { 0 };
        Ok(QueueStats { port, queue, bytes, packets, errors, duration_ns })
    }
}

/// The configuration of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// Its port.
    pub port: OfPort,
    /// Its number there.
    pub queue: u32,
    /// Its guaranteed rate, in thousandths of the port's.
    pub min_rate: Option<u16>,
    /// Its highest rate, likewise.
    pub max_rate: Option<u16>,
}

const MIN_RATE: u16 = 1;
const MAX_RATE: u16 = 2;

impl QueueConfig {
    /// Writes the queue as an item of the message that versions before OpenFlow 1.4 have of its own.
    pub(super) fn put_old(&self, version: Version, w: &mut Writer) {
        let start = w.len();
        w.u32(self.queue);
        if version > Version::V11 {
            w.u32(self.port.to_of11());
        }
        let at = w.len();
        w.u16(0);
        w.zeros(if version < Version::V12 { 2 } else { 6 });
        for (kind, rate) in [(MIN_RATE, self.min_rate), (MAX_RATE, self.max_rate)] {
            if let Some(rate) = rate {
                w.u16(kind);
                w.u16(16);
                w.zeros(4);
                w.u16(rate);
                w.zeros(6);
            }
        }
        w.patch_u16(at, w.len() - start);
    }

    pub(super) fn read_old(r: &mut Reader<'_>, port: OfPort, version: Version) -> Result<QueueConfig, Error> {
        let queue = r.u32()?;
        // OpenFlow 1.2 added the port.
        let head = if version < Version::V12 { 8 } else { 16 };
        let port = if version < Version::V12 { port } else { read_port(r, version)? };
        let length = usize::from(r.u16()?);
        r.skip(if version < Version::V12 { 2 } else { 6 })?;
        let mut properties = r.part(length.checked_sub(head).ok_or(Error::RequestBadLen)?)?;
        let mut config = QueueConfig { port, queue, min_rate: None, max_rate: None };
        while !properties.is_empty() {
            let (kind, length) = (properties.u16()?, usize::from(properties.u16()?));
            let mut body = properties.part(length.checked_sub(4).ok_or(Error::RequestBadLen)?)?;
            body.skip(4)?;
            config.set(kind, body.u16()?);
        }
        Ok(config)
    }

    fn set(&mut self, kind: u16, rate: u16) {
        match kind {
            MIN_RATE => self.min_rate = Some(rate),
            MAX_RATE => self.max_rate = Some(rate),
            _ => {}
        }
    }

    /// Writes the queue as an item of OpenFlow 1.4's statistics.
    pub(super) fn put(&self, w: &mut Writer) {
        let start = w.len();
        w.u32(self.port.to_of11());
        w.u32(self.queue);
        w.zeros(8);
        for (kind, rate) in [(MIN_RATE, self.min_rate), (MAX_RATE, self.max_rate)] {
            if let Some(rate) = rate {
                crate::property::put_u16(kind, rate, w);
            }
        }
        w.patch_u16(start + 8, w.len() - start);
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<QueueConfig, Error> {
        let (port, queue, length) = (read_port(r, Version::V14)?, r.u32()?, usize::from(r.u16()?));
        r.skip(6)?;
        let mut config = QueueConfig { port, queue, min_rate: None, max_rate: None };
        let properties = r.part(length.checked_sub(16).ok_or(Error::RequestBadLen)?)?;
        crate::property::each(properties, |kind, body| {
            config.set(kind, body.u16()?);
            Ok(())
        })?;
        Ok(config)
    }
}
