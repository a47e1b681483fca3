//! Ports: descriptions, statistics, status, modifications.

use super::custom_stats;
use super::flow_stats::{put_duration, read_duration};
use crate::property;
use crate::wire::{Reader, Writer};
use crate::{Error, Version};
use sluice_flow::{Mac, OfPort};

/// Longest name, with the zero behind it.
const NAME_SIZE: usize = 16;

/// The configuration of a port: bits as in OpenFlow 1.0.
pub mod config {
    /// It is administratively down.
    pub const PORT_DOWN: u32 = 1;
    /// OpenFlow 1.0: no spanning tree.
    pub const NO_STP: u32 = 1 << 1;
    /// Packets received by it are dropped.
    pub const NO_RECV: u32 = 1 << 2;
    /// OpenFlow 1.0: spanning tree packets received by it are dropped.
    pub const NO_RECV_STP: u32 = 1 << 3;
    /// OpenFlow 1.0: it is left out of flooding.
    pub const NO_FLOOD: u32 = 1 << 4;
    /// Packets to be sent by it are dropped.
    pub const NO_FWD: u32 = 1 << 5;
    /// Its table misses are not reported.
    pub const NO_PACKET_IN: u32 = 1 << 6;
    /// Those of OpenFlow 1.1 and later.
    pub const ALL11: u32 = PORT_DOWN | NO_RECV | NO_FWD | NO_PACKET_IN;
    /// Those of OpenFlow 1.0.
    pub const ALL10: u32 = ALL11 | NO_STP | NO_RECV_STP | NO_FLOOD;
}

/// The state of a port: bits as in OpenFlow 1.1.
pub mod state {
    /// No link.
    pub const LINK_DOWN: u32 = 1;
    /// Blocked by a protocol outside OpenFlow.
    pub const BLOCKED: u32 = 1 << 1;
    /// Live for fast failover.
    pub const LIVE: u32 = 1 << 2;
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortDesc {
    /// Number.
    pub port: u16,
    /// Address.
    pub hw_addr: Mac,
    /// Name, at most 15 bytes.
    pub name: String,
    /// Bits of [`config`].
    pub config: u32,
    /// Bits of [`state`].
    pub state: u32,
    /// Features of the link now: bits of `OFPPF_*` as in OpenFlow 1.1.
    pub current: u32,
    /// Features that are advertised to the peer.
    pub advertised: u32,
    /// Features that it supports.
    pub supported: u32,
    /// Features that the peer advertises.
    pub peer: u32,
    /// Speed now, kilobits a second.
    pub current_speed: u32,
    /// Highest speed.
    pub max_speed: u32,
}

/// Speeds have the same bits in all versions.
const SPEEDS: u32 = 0x7f;

/// OpenFlow 1.0's feature bits, from those of OpenFlow 1.1, which has three more speeds and `other` in between.
fn features10(bits: u32) -> u32 {
    bits & SPEEDS | bits >> 11 << 7 & 0xf80
}

fn features11(bits: u32) -> u32 {
    bits & SPEEDS | (bits & 0xf80) << 4
}

impl PortDesc {
    pub(super) fn read(r: &mut Reader<'_>, version: Version) -> Result<PortDesc, Error> {
        match version {
            Version::V10 => Self::read10(r),
            Version::V11 | Version::V12 | Version::V13 => Self::read11(r),
            Version::V14 | Version::V15 => Self::read14(r),
        }
    }

    fn read10(r: &mut Reader<'_>) -> Result<PortDesc, Error> {
        let (port, hw_addr, name) = (r.u16()?, Mac(r.array()?), r.text(NAME_SIZE)?);
        let (config, state) = (r.u32()?, r.u32()?);
        let mut features = || r.u32().map(features11);
        Ok(PortDesc {
            port,
            hw_addr,
            name,
            config: config & config::ALL10,
            state: state & state::LINK_DOWN,
            current: features()?,
            advertised: features()?,
            supported: features()?,
            peer: features()?,
            ..PortDesc::default()
        })
    }

    fn read11(r: &mut Reader<'_>) -> Result<PortDesc, Error> {
        let port = port11(r)?;
        r.skip(4)?;
        let hw_addr = Mac(r.array()?);
        r.skip(2)?;
        let name = r.text(NAME_SIZE)?;
        let (config, state) = (r.u32()?, r.u32()?);
        let mut desc = PortDesc { port, hw_addr, name, config, state, ..PortDesc::default() };
        desc.read_ethernet(r)?;
        Ok(desc)
    }

    fn read14(r: &mut Reader<'_>) -> Result<PortDesc, Error> {
        let port = port11(r)?;
        let length = usize::from(r.u16()?);
        r.skip(2)?;
        let mut r = r.part(length.checked_sub(8).ok_or(Error::RequestBadLen)?)?;
        let hw_addr = Mac(r.array()?);
        r.skip(2)?;
        let name = r.text(NAME_SIZE)?;
        let (config, state) = (r.u32()?, r.u32()?);
        let mut desc = PortDesc { port, hw_addr, name, config, state, ..PortDesc::default() };
        property::each(r, |kind, body| {
            if kind == ETHERNET {
                body.skip(4)?;
                desc.read_ethernet(body)?;
            }
            Ok(())
        })?;
        Ok(desc)
    }

    fn read_ethernet(&mut self, r: &mut Reader<'_>) -> Result<(), Error> {
        (self.current, self.advertised, self.supported) = (r.u32()?, r.u32()?, r.u32()?);
        (self.peer, self.current_speed, self.max_speed) = (r.u32()?, r.u32()?, r.u32()?);
        Ok(())
    }

    pub(super) fn put(&self, version: Version, w: &mut Writer) {
        let port = OfPort(self.port);
        if version == Version::V10 {
            w.u16(port.0);
            w.put(&self.hw_addr.0);
            w.text(&self.name, NAME_SIZE);
            w.u32(self.config & config::ALL10);
            w.u32(self.state & state::LINK_DOWN);
            let features = [self.current, self.advertised, self.supported, self.peer];
            return features.into_iter().for_each(|bits| w.u32(features10(bits)));
        }
        w.u32(port.to_of11());
        if version < Version::V14 {
            w.zeros(4);
        } else {
            w.u16(40 + 32);
            w.zeros(2);
        }
        w.put(&self.hw_addr.0);
        w.zeros(2);
        w.text(&self.name, NAME_SIZE);
        w.u32(self.config & config::ALL11);
        w.u32(self.state);
        if version > Version::V13 {
            w.u16(ETHERNET);
            w.u16(32);
            w.zeros(4);
        }
        let numbers = [self.current, self.advertised, self.supported, self.peer, self.current_speed, self.max_speed];
        numbers.into_iter().for_each(|n| w.u32(n));
    }
}

/// The property about Ethernet, of ports and of their statistics.
const ETHERNET: u16 = 0;

fn port11(r: &mut Reader<'_>) -> Result<u16, Error> {
    OfPort::from_of11(r.u32()?).map(|port| port.0).ok_or(Error::RequestBadPort)
}

/// Reads a port's number, 16 bits in OpenFlow 1.0 and 32 later.
pub(super) fn read_port(r: &mut Reader<'_>, version: Version) -> Result<OfPort, Error> {
    if version == Version::V10 { r.u16().map(OfPort) } else { port11(r).map(OfPort) }
}

/// Writes a port's number.
pub(super) fn put_port(port: OfPort, version: Version, w: &mut Writer) {
    if version == Version::V10 { w.u16(port.0) } else { w.u32(port.to_of11()) }
}

/// The statistics of a port. Unknown counters are all ones.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the specification's")]
pub struct PortStats {
    pub port: u16,
    pub rx_packets: u64,
    pub tx_packets: u64,
    pub rx_bytes: u64,
    pub tx_bytes: u64,
    pub rx_dropped: u64,
    pub tx_dropped: u64,
    pub rx_errors: u64,
    pub tx_errors: u64,
    pub rx_frame_err: u64,
    pub rx_over_err: u64,
    pub rx_crc_err: u64,
    pub collisions: u64,
    /// Nanoseconds since it was added; from OpenFlow 1.3 on.
    pub duration_ns: u64,
    /// Counters that the switch names itself; from OpenFlow 1.4 on.
    pub custom: Vec<(String, u64)>,
}

impl PortStats {
    /// A port without known counters.
    pub fn unknown(port: OfPort) -> Self {
        const NO: u64 = u64::MAX;
        PortStats {
            port: port.0,
            rx_packets: NO,
            tx_packets: NO,
            rx_bytes: NO,
            tx_bytes: NO,
            rx_dropped: NO,
            tx_dropped: NO,
            rx_errors: NO,
            tx_errors: NO,
            rx_frame_err: NO,
            rx_over_err: NO,
            rx_crc_err: NO,
            collisions: NO,
            duration_ns: 0,
            custom: Vec::new(),
        }
    }

    fn counters(&mut self) -> [&mut u64; 12] {
        [
            &mut self.rx_packets,
            &mut self.tx_packets,
            &mut self.rx_bytes,
            &mut self.tx_bytes,
            &mut self.rx_dropped,
            &mut self.tx_dropped,
            &mut self.rx_errors,
            &mut self.tx_errors,
            &mut self.rx_frame_err,
            &mut self.rx_over_err,
            &mut self.rx_crc_err,
            &mut self.collisions,
        ]
    }

    pub(super) fn put(&self, version: Version, w: &mut Writer) {
        let (port, duration_ns) = (OfPort(self.port), self.duration_ns);
        let start = w.len();
        let counters = self.clone().counters().map(|counter| *counter);
        let (first, ethernet) = counters.split_at(8);
        match version {
            Version::V10 => {
                w.u16(port.0);
                w.zeros(6);
                counters.iter().for_each(|n| w.u64(*n));
            }
            Version::V11 | Version::V12 | Version::V13 => {
                w.u32(port.to_of11());
                w.zeros(4);
                counters.iter().for_each(|n| w.u64(*n));
                if version == Version::V13 {
                    put_duration(duration_ns, w);
                }
            }
            Version::V14 | Version::V15 => {
                w.zeros(4);
                w.u32(port.to_of11());
                put_duration(duration_ns, w);
                first.iter().for_each(|n| w.u64(*n));
                w.u16(ETHERNET);
                w.u16(40);
                w.zeros(4);
                ethernet.iter().for_each(|n| w.u64(*n));
                custom_stats::put(&self.custom, w);
                w.patch_u16(start, w.len() - start);
            }
        }
    }

    pub(super) fn read(r: &mut Reader<'_>, version: Version) -> Result<PortStats, Error> {
        let mut stats = PortStats::unknown(OfPort::NONE);
        if version < Version::V14 {
            stats.port = read_port(r, version)?.0;
            r.skip(if version == Version::V10 { 6 } else { 4 })?;
            for counter in stats.counters() {
                *counter = r.u64()?;
            }
            if version == Version::V13 {
                stats.duration_ns = read_duration(r)?;
            }
            return Ok(stats);
        }
        let length = usize::from(r.u16()?);
        let mut r = r.part(length.checked_sub(2).ok_or(Error::RequestBadLen)?)?;
        r.skip(2)?;
        stats.port = port11(&mut r)?;
        stats.duration_ns = read_duration(&mut r)?;
        let mut counters = stats.counters();
        let (first, ethernet) = counters.split_at_mut(8);
        for counter in first {
            **counter = r.u64()?;
        }
        let mut custom = Vec::new();
        property::each(r, |kind, body| {
            match kind {
                ETHERNET => {
                    body.skip(4)?;
                    for counter in ethernet.iter_mut() {
                        **counter = body.u64()?;
                    }
                }
                property::EXPERIMENTER => custom.extend(custom_stats::read(body)?),
                _ => {}
            }
            Ok(())
        })?;
        stats.custom = custom;
        Ok(stats)
    }
}

/// What happened to a port. Numbers are OpenFlow's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PortReason {
    /// It was added.
    Add = 0,
    /// It was removed.
    Delete = 1,
    /// It has changed.
    Modify = 2,
}

/// A port status message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// What happened.
    pub reason: PortReason,
    /// The port as it is now, or was last.
    pub desc: PortDesc,
}

pub(super) fn read_status(r: &mut Reader<'_>, version: Version) -> Result<PortStatus, Error> {
    let reason = match r.u8()? {
        0 => PortReason::Add,
        1 => PortReason::Delete,
        2 => PortReason::Modify,
        _ => return Err(Error::RequestBadReason),
    };
    r.skip(7)?;
    Ok(PortStatus { reason, desc: PortDesc::read(r, version)? })
}

pub(super) fn put_status(s: &PortStatus, version: Version, w: &mut Writer) {
    w.u8(s.reason as u8);
    w.zeros(7);
    s.desc.put(version, w);
}

/// A port-mod message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortMod {
    /// Which port.
    pub port: OfPort,
    /// Its address, which must be right.
    pub hw_addr: Mac,
    /// New values of bits of [`config`].
    pub config: u32,
    /// Bits that change.
    pub mask: u32,
    /// Features to advertise; zero: no change.
    pub advertise: u32,
}

pub(super) fn read_mod(r: &mut Reader<'_>, version: Version) -> Result<PortMod, Error> {
    let port = read_port(r, version).map_err(|_| Error::PortModBadPort)?;
    if version == Version::V10 {
        let (hw_addr, config, mask, advertise) = (Mac(r.array()?), r.u32()?, r.u32()?, r.u32()?);
        r.skip(4)?;
        let (config, mask, advertise) = (config & config::ALL10, mask & config::ALL10, features11(advertise));
        return Ok(PortMod { port, hw_addr, config, mask, advertise });
    }
    r.skip(4)?;
    let hw_addr = Mac(r.array()?);
    r.skip(2)?;
    let (config, mask) = (r.u32()? & config::ALL11, r.u32()? & config::ALL11);
    let mut advertise = 0;
    if version < Version::V14 {
        advertise = r.u32()?;
        r.skip(4)?;
    } else {
        property::each(r.part(r.len())?, |kind, body| {
            match kind {
                ETHERNET => advertise = property::u32(body)?,
                _ => return Err(property::unknown(kind, body)),
            }
            Ok(())
        })?;
    }
    Ok(PortMod { port, hw_addr, config, mask, advertise })
}

pub(super) fn put_mod(m: &PortMod, version: Version, w: &mut Writer) {
    put_port(m.port, version, w);
    if version == Version::V10 {
        w.put(&m.hw_addr.0);
        [m.config, m.mask, features10(m.advertise)].into_iter().for_each(|n| w.u32(n));
        return w.zeros(4);
    }
    w.zeros(4);
    w.put(&m.hw_addr.0);
    w.zeros(2);
    w.u32(m.config & config::ALL11);
    w.u32(m.mask & config::ALL11);
    if version < Version::V14 {
        w.u32(m.advertise);
        return w.zeros(4);
    }
    if m.advertise != 0 {
        property::put(ETHERNET, &m.advertise.to_be_bytes(), w);
    }
}
