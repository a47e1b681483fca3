//! Statistics of tables. Before OpenFlow 1.3 they also have what later became the features of tables, as bitmaps.

use crate::action::standard_actions;
use crate::oxm::basic_number;
use crate::wire::{Reader, Writer};
use crate::{Error, Version};
use sluice_flow::field::{FIELDS, Field};

/// Longest name of a table, with the zero behind it.
const NAME_SIZE: usize = 32;

/// OpenFlow 1.0's wildcards: all of `OFPFW_ALL`.
const WILDCARDS10: u64 = 0x3f_ffff;

/// OpenFlow 1.1's fields: all of `OFPFMF_*` but the one for the type of the match.
const FIELDS11: u64 = 0xfbff;

/// What a table can do, as bitmaps. Which of them there are, and what their bits mean, depends on the version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableBitmaps {
    /// Fields that it can match; from OpenFlow 1.1 on.
    pub matches: u64,
    /// Fields that can be wildcards.
    pub wildcards: u64,
    /// Actions that an action set can have; from OpenFlow 1.1 on.
    pub write_actions: u32,
    /// Actions that can be applied; from OpenFlow 1.1 on.
    pub apply_actions: u32,
    /// Fields that actions of an action set can set; OpenFlow 1.2.
    pub write_setfields: u64,
    /// Fields that applied actions can set; OpenFlow 1.2.
    pub apply_setfields: u64,
    /// Bits of the metadata that can be matched; OpenFlow 1.2.
    pub metadata_match: u64,
    /// Bits of the metadata that can be written; OpenFlow 1.2.
    pub metadata_write: u64,
    /// Instructions; from OpenFlow 1.1 on.
    pub instructions: u32,
}

impl TableBitmaps {
    /// A table that can do everything; only the last one cannot send packets to another.
    pub fn of_everything(version: Version, is_last: bool) -> Self {
        if version == Version::V10 {
            return TableBitmaps { wildcards: WILDCARDS10, ..TableBitmaps::default() };
        }
        let actions = standard_actions(version).fold(0, |bits, n| bits | 1 << n);
        // From goto-table, 1, to clear-actions, 5. Source: OpenFlow 1.1, `OFPIT_*`.
        let instructions = if is_last { 0x3c } else { 0x3e };
        let common =
            TableBitmaps { write_actions: actions, apply_actions: actions, instructions, ..TableBitmaps::default() };
        if version == Version::V11 {
            return TableBitmaps { matches: FIELDS11, wildcards: FIELDS11, ..common };
        }
        let (matches, writable) = (oxm_fields(|_| true), oxm_fields(|field| field.writable));
        TableBitmaps {
            matches,
            wildcards: matches,
            write_setfields: writable,
            apply_setfields: writable,
            metadata_match: u64::MAX,
            metadata_write: u64::MAX,
            ..common
        }
    }
}

/// Fields by their numbers in OpenFlow 1.2.
fn oxm_fields(wanted: impl Fn(&Field) -> bool) -> u64 {
    let numbers = FIELDS.iter().filter(|field| wanted(field)).filter_map(|field| basic_number(field, Version::V12));
    numbers.filter(|n| *n < 64).fold(0, |bits, n| bits | 1 << n)
}

/// The statistics of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Number.
    pub table: u8,
    /// Name; before OpenFlow 1.3.
    pub name: String,
    /// What it can do; before OpenFlow 1.3.
    pub bitmaps: TableBitmaps,
    /// What happens to packets that no flow matches, `OFPTC_TABLE_MISS_*`; OpenFlow 1.1 and 1.2.
    pub config: u32,
    /// The most flows that it can hold; before OpenFlow 1.3.
    pub max_entries: u32,
    /// Flows that it holds.
    pub active: u32,
    /// Lookups.
    pub lookups: u64,
    /// Lookups that found a flow.
    pub matched: u64,
}

impl TableStats {
    pub(super) fn put(&self, version: Version, w: &mut Writer) {
        w.u8(self.table);
        w.zeros(if matches!(version, Version::V11 | Version::V12) { 7 } else { 3 });
        if version < Version::V13 {
            w.text(&self.name, NAME_SIZE);
            self.put_bitmaps(version, w);
            w.u32(self.max_entries);
        }
        w.u32(self.active);
        w.u64(self.lookups);
        w.u64(self.matched);
    }

    fn put_bitmaps(&self, version: Version, w: &mut Writer) {
        let b = &self.bitmaps;
        match version {
            Version::V10 => return w.u32(b.wildcards as u32),
            Version::V11 => {
                w.u32(b.wildcards as u32);
                w.u32(b.matches as u32);
                [b.instructions, b.write_actions, b.apply_actions].into_iter().for_each(|n| w.u32(n));
            }
            _ => {
                w.u64(b.matches);
                w.u64(b.wildcards);
                w.u32(b.write_actions);
                w.u32(b.apply_actions);
                let wide = [b.write_setfields, b.apply_setfields, b.metadata_match, b.metadata_write];
                wide.into_iter().for_each(|n| w.u64(n));
                w.u32(b.instructions);
            }
        }
        w.u32(self.config);
    }

    pub(super) fn read(r: &mut Reader<'_>, version: Version) -> Result<TableStats, Error> {
        let mut stats = TableStats { table: r.u8()?, ..TableStats::default() };
        r.skip(if matches!(version, Version::V11 | Version::V12) { 7 } else { 3 })?;
        if version < Version::V13 {
            stats.name = r.text(NAME_SIZE)?;
            stats.read_bitmaps(r, version)?;
            stats.max_entries = r.u32()?;
        }
        (stats.active, stats.lookups, stats.matched) = (r.u32()?, r.u64()?, r.u64()?);
        Ok(stats)
    }

    fn read_bitmaps(&mut self, r: &mut Reader<'_>, version: Version) -> Result<(), Error> {
        let b = &mut self.bitmaps;
        match version {
            Version::V10 => {
                b.wildcards = r.u32()?.into();
                return Ok(());
            }
            Version::V11 => {
                (b.wildcards, b.matches) = (r.u32()?.into(), r.u32()?.into());
                (b.instructions, b.write_actions, b.apply_actions) = (r.u32()?, r.u32()?, r.u32()?);
            }
            _ => {
                (b.matches, b.wildcards) = (r.u64()?, r.u64()?);
                (b.write_actions, b.apply_actions) = (r.u32()?, r.u32()?);
                (b.write_setfields, b.apply_setfields) = (r.u64()?, r.u64()?);
                (b.metadata_match, b.metadata_write) = (r.u64()?, r.u64()?);
                b.instructions = r.u32()?;
            }
        }
        self.config = r.u32()?;
        Ok(())
    }
}
