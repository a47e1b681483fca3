//! Writing groups.

use crate::{GroupConfig, GroupKind, OfAction, Selection};
use sluice_flow::text::value;
use sluice_flow::{FieldId, FieldValue, PortNames};
use std::fmt::{self, Formatter, Result};

/// A group as `dump-groups` prints it; see [`GroupConfig::display`].
#[derive(Clone, Copy, Debug)]
pub struct DisplayGroup<'a> {
    group: u32,
    config: &'a GroupConfig,
    ports: &'a PortNames,
}

impl GroupConfig {
    /// The group as `ovs-ofctl -O OpenFlow15 dump-groups` prints it, ports by the names they have.
    pub fn display<'a>(&'a self, group: u32, ports: &'a PortNames) -> DisplayGroup<'a> {
        DisplayGroup { group, config: self, ports }
    }
}

impl GroupKind {
    /// Its name in text.
    pub const fn name(self) -> &'static str {
        match self {
            GroupKind::All => "all",
            GroupKind::Select => "select",
            GroupKind::Indirect => "indirect",
            GroupKind::FastFailover => "ff",
        }
    }
}

impl fmt::Display for DisplayGroup<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let GroupConfig { kind, buckets, selection } = self.config;
        write!(f, "group_id={},type={}", self.group, kind.name())?;
        write_selection(f, selection)?;
        for bucket in buckets {
            write!(f, ",bucket=bucket_id:{},", bucket.id)?;
            if bucket.weight != u16::from(*kind == GroupKind::Select) {
                write!(f, "weight:{},", bucket.weight)?;
            }
            if let Some(port) = bucket.watch_port {
                write!(f, "watch_port:{},", self.ports.display(port))?;
            }
            if let Some(group) = bucket.watch_group {
                write!(f, "watch_group:{group},")?;
            }
            write!(f, "actions={}", OfAction::display_list(&bucket.actions, self.ports))?;
        }
        Ok(())
    }
}

fn write_selection(f: &mut Formatter<'_>, selection: &Selection) -> Result {
    if selection.method.is_empty() {
        return Ok(());
    }
    write!(f, ",selection_method={}", selection.method)?;
    if selection.parameter != 0 {
        write!(f, ",selection_method_param={}", selection.parameter)?;
    }
    let one = |f: &mut Formatter<'_>, (id, mask): &(FieldId, FieldValue)| {
        let (field, mask) = (id.field(), mask.wide());
        f.write_str(field.name)?;
        if mask == field.all_ones_wide() {
            return Ok(());
        }
        // A mask is written like a value of the field.
        write!(f, "={}", value::show_wide(field, mask, field.all_ones_wide(), &PortNames::NONE))
    };
    match &selection.fields[..] {
        [] => Ok(()),
        [field] => {
            f.write_str(",fields=")?;
            one(f, field)
        }
        _ => {
            f.write_str(",fields(")?;
            for (i, field) in selection.fields.iter().enumerate() {
                f.write_str(if i == 0 { "" } else { "," })?;
                one(f, field)?;
            }
            f.write_str(")")
        }
    }
}
