//! Features, configuration, description and tables of a switch.

use super::ports::PortDesc;
use crate::property;
use crate::wire::{Reader, Writer};
use crate::{Error, Version};

/// Capabilities of a switch: bits of [`Features::capabilities`], as in OpenFlow 1.4.
pub mod capability {
    /// Statistics of flows.
    pub const FLOW_STATS: u32 = 1;
    /// Of tables.
    pub const TABLE_STATS: u32 = 1 << 1;
    /// Of ports.
    pub const PORT_STATS: u32 = 1 << 2;
    /// Of groups; in OpenFlow 1.0 the bit says spanning tree.
    pub const GROUP_STATS: u32 = 1 << 3;
    /// Fragments are reassembled.
    pub const IP_REASM: u32 = 1 << 5;
    /// Statistics of queues.
    pub const QUEUE_STATS: u32 = 1 << 6;
    /// OpenFlow 1.0: addresses of ARP can be matched.
    pub const ARP_MATCH_IP: u32 = 1 << 7;
    /// Ports that would make loops are blocked.
    pub const PORT_BLOCKED: u32 = 1 << 8;
    /// Bundles.
    pub const BUNDLES: u32 = 1 << 9;
    /// Flow monitoring.
    pub const FLOW_MONITORING: u32 = 1 << 10;
}

/// The features of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Datapath id.
    pub datapath_id: u64,
    /// Packets that it can buffer for controllers.
    pub n_buffers: u32,
    /// Tables.
    pub n_tables: u8,
    /// The auxiliary id of the connection, 0 for the main one.
    pub auxiliary_id: u8,
    /// Bits of [`capability`].
    pub capabilities: u32,
    /// OpenFlow 1.0: the supported actions, a bit for each.
    pub actions: u32,
    /// Its ports; before OpenFlow 1.3.
    pub ports: Vec<PortDesc>,
}

pub(super) fn read_features(r: &mut Reader<'_>, version: Version) -> Result<Features, Error> {
    let (datapath_id, n_buffers, n_tables, auxiliary_id) = (r.u64()?, r.u32()?, r.u8()?, r.u8()?);
    r.skip(2)?;
    let (capabilities, actions) = (r.u32()?, r.u32()?);
    let mut ports = Vec::new();
    while version < Version::V13 && !r.is_empty() {
        ports.push(PortDesc::read(r, version)?);
    }
    Ok(Features { datapath_id, n_buffers, n_tables, auxiliary_id, capabilities, actions, ports })
}

pub(super) fn put_features(f: &Features, version: Version, w: &mut Writer) {
    let port_size = if version == Version::V10 { 48 } else { 64 };
    w.u64(f.datapath_id);
    w.u32(f.n_buffers);
    w.u8(f.n_tables);
    w.u8(if version < Version::V13 { 0 } else { f.auxiliary_id });
    w.zeros(2);
    w.u32(f.capabilities);
    w.u32(if version == Version::V10 { f.actions } else { 0 });
    if version < Version::V13 {
        // Controllers request ports that do not fit by port descriptions.
        f.ports.iter().take((usize::from(u16::MAX) - 32) / port_size).for_each(|port| port.put(version, w));
    }
}

/// Fragments are dropped; bits of [`SwitchConfig::flags`].
pub const FRAG_DROP: u16 = 1;
/// The first fragment has its ports. Nicira's.
pub const FRAG_NX_MATCH: u16 = 3;
/// All bits about fragments.
pub const FRAG_MASK: u16 = 3;
/// Packets with an invalid TTL go to controllers. Before OpenFlow 1.3.
pub const INVALID_TTL_TO_CONTROLLER: u16 = 4;

/// The configuration of a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchConfig {
    /// `FRAG_*` and others.
    pub flags: u16,
    /// Bytes of a packet that a controller gets.
    pub miss_send_len: u16,
}

/// The description of a switch, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// Manufacturer.
    pub manufacturer: String,
    /// Hardware.
    pub hardware: String,
    /// Software.
    pub software: String,
    /// Serial number.
    pub serial: String,
    /// The datapath, for people.
    pub datapath: String,
}

/// Sizes of the texts of a description.
const TEXT_SIZE: usize = 256;
const SERIAL_SIZE: usize = 32;

pub(super) fn read_description(r: &mut Reader<'_>) -> Result<Description, Error> {
    Ok(Description {
        manufacturer: r.text(TEXT_SIZE)?,
        hardware: r.text(TEXT_SIZE)?,
        software: r.text(TEXT_SIZE)?,
        serial: r.text(SERIAL_SIZE)?,
        datapath: r.text(TEXT_SIZE)?,
    })
}

pub(super) fn put_description(d: &Description, w: &mut Writer) {
    w.text(&d.manufacturer, TEXT_SIZE);
    w.text(&d.hardware, TEXT_SIZE);
    w.text(&d.software, TEXT_SIZE);
    w.text(&d.serial, SERIAL_SIZE);
    w.text(&d.datapath, TEXT_SIZE);
}

/// Longest name of a table, with the zero behind it.
const TABLE_NAME_SIZE: usize = 32;

/// A table may evict flows when it is full; a bit of [`TableMod::config`].
pub const TABLE_EVICTION: u32 = 1 << 2;
/// It sends vacancy events.
pub const TABLE_VACANCY_EVENTS: u32 = 1 << 3;

/// A table-mod, or the description of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableMod {
    /// Which; 255: all.
    pub table: u8,
    /// `TABLE_*`; before OpenFlow 1.4 what to do with packets that no flow matches.
    pub config: u32,
    /// OpenFlow 1.4: the criteria of eviction, bits of `OFPTMPEF14_*`.
    pub eviction_flags: Option<u32>,
    /// OpenFlow 1.4: the thresholds of vacancy events.
    pub vacancy: Option<Vacancy>,
}

/// The thresholds of vacancy events: percent of a table that is vacant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vacancy {
    /// An event is sent when vacancy falls below this.
    pub down: u8,
    /// An event is sent when vacancy rises above this.
    pub up: u8,
    /// Vacancy now.
    pub now: u8,
}

const TABLE_EVICTION_PROPERTY: u16 = 2;
const TABLE_VACANCY_PROPERTY: u16 = 3;

pub(super) fn read_table_mod(r: &mut Reader<'_>, version: Version) -> Result<TableMod, Error> {
    let table = r.u8()?;
    r.skip(3)?;
    let mut m = TableMod { table, config: r.u32()?, ..TableMod::default() };
    if version >= Version::V14 {
        read_table_properties(r, &mut m)?;
    }
    // Source: Open vSwitch, `parse_table_mod_vacancy_property`.
    if m.vacancy.is_some_and(|v| v.down > v.up || v.up > 100 || v.now != 0) {
        return Err(Error::PropertyBadValue);
    }
    Ok(m)
}

fn read_table_properties(r: &mut Reader<'_>, m: &mut TableMod) -> Result<(), Error> {
    property::each(r.part(r.len())?, |kind, body| {
        match kind {
            TABLE_EVICTION_PROPERTY => m.eviction_flags = Some(property::u32(body)?),
            TABLE_VACANCY_PROPERTY => {
                m.vacancy = Some(Vacancy { down: body.u8()?, up: body.u8()?, now: body.u8()? });
                body.skip(1)?;
                body.end()?;
            }
            // Source: Open vSwitch, `ofputil_decode_table_mod`.
            _ => return Err(Error::RequestBadType),
        }
        Ok(())
    })
}

pub(super) fn put_table_mod(m: &TableMod, version: Version, w: &mut Writer) {
    w.u8(m.table);
    w.zeros(3);
    w.u32(m.config);
    if version >= Version::V14 {
        put_table_properties(m, w);
    }
}

fn put_table_properties(m: &TableMod, w: &mut Writer) {
    if let Some(flags) = m.eviction_flags {
        property::put(TABLE_EVICTION_PROPERTY, &flags.to_be_bytes(), w);
    }
    if let Some(v) = m.vacancy {
        property::put(TABLE_VACANCY_PROPERTY, &[v.down, v.up, v.now, 0], w);
    }
}

/// Writes a table as an item of a reply of OpenFlow 1.4.
pub(super) fn put_table_desc(m: &TableMod, w: &mut Writer) {
    let start = w.len();
    w.u16(0);
    w.u8(m.table);
    w.zeros(1);
    w.u32(m.config);
    put_table_properties(m, w);
    w.patch_u16(start, w.len() - start);
}

pub(super) fn read_table_desc(r: &mut Reader<'_>) -> Result<TableMod, Error> {
    let length = usize::from(r.u16()?);
    let mut r = r.part(length.checked_sub(2).ok_or(Error::RequestBadLen)?)?;
    let table = r.u8()?;
    r.skip(1)?;
    let mut m = TableMod { table, config: r.u32()?, ..TableMod::default() };
    read_table_properties(&mut r, &mut m)?;
    Ok(m)
}

/// The features of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableFeatures {
    /// Number.
    pub table: u8,
    /// OpenFlow 1.5: what to do with this in a request.
    pub command: u8,
    /// Name.
    pub name: String,
    /// Bits of the metadata that can be matched.
    pub metadata_match: u64,
    /// Bits of the metadata that can be written.
    pub metadata_write: u64,
    /// OpenFlow 1.5: `OFPTFF_*`; before, nothing.
    pub capabilities: u32,
    /// The most flows that it can hold.
    pub max_entries: u32,
    /// Properties by number, as they stand in the message: lists of instructions, tables, actions and fields.
    pub properties: Vec<(u16, Vec<u8>)>,
}

impl TableFeatures {
    pub(super) fn put(&self, w: &mut Writer) {
        let start = w.len();
        w.u16(0);
        w.u8(self.table);
        w.u8(self.command);
        w.zeros(4);
        w.text(&self.name, TABLE_NAME_SIZE);
        w.u64(self.metadata_match);
        w.u64(self.metadata_write);
        w.u32(self.capabilities);
        w.u32(self.max_entries);
        self.properties.iter().for_each(|(kind, value)| property::put(*kind, value, w));
        w.patch_u16(start, w.len() - start);
    }

    pub(super) fn read(r: &mut Reader<'_>) -> Result<TableFeatures, Error> {
        let mut r2 = r.or(Error::PropertyBadLen);
        let length = usize::from(r2.u16()?);
        let mut r2 = r2.part(length.checked_sub(2).ok_or(Error::PropertyBadLen)?)?;
        r.skip(length)?;
        let (table, command) = (r2.u8()?, r2.u8()?);
        r2.skip(4)?;
        let mut f = TableFeatures { table, command, name: r2.text(TABLE_NAME_SIZE)?, ..TableFeatures::default() };
        (f.metadata_match, f.metadata_write) = (r2.u64()?, r2.u64()?);
        (f.capabilities, f.max_entries) = (r2.u32()?, r2.u32()?);
        property::each(r2, |kind, body| {
            f.properties.push((kind, body.take(body.len())?.to_vec()));
            Ok(())
        })?;
        Ok(f)
    }
}
