//! The Geneve options that stand for tunnel metadata fields, one table for each bridge. Rules can name the fields for
//! which a packet's key has room; the others are kept for controllers and `ovs-save`, which read and restore the table.
//! Source: Open vSwitch, lib/tun-metadata.c.

use sluice_flow::FieldId;
use sluice_flow::geneve::OptionKind;
use sluice_ofp::{FlowCommand, FlowMod, OfAction};
use sluice_ofproto::Ofproto;
use sluice_openflow::message::tlv_table::{TLV_FIELDS, TlvCommand, TlvMap, TlvTableMod, TlvTableReply};
use sluice_openflow::{Error, OptionLengths};
use std::collections::BTreeMap;

/// Bytes that the values of all fields may have together. Source: Open vSwitch, `TUN_METADATA_TOT_OPT_SIZE`.
const SPACE: u32 = 256;

/// The mappings of a bridge.
#[derive(Clone, Debug)]
pub struct TlvTable {
    by_field: BTreeMap<u16, TlvMap>,
    /// The same for those who write messages.
    lengths: OptionLengths,
}

impl Default for TlvTable {
    fn default() -> Self {
        TlvTable { by_field: BTreeMap::new(), lengths: OptionLengths::of_bridge() }
    }
}

impl TlvTable {
    /// Changes the table, wholly or not at all.
    ///
    /// # Errors
    /// If a field or an option is mapped already, or the values are too long together.
    pub fn change(&mut self, change: &TlvTableMod) -> Result<(), Error> {
        match change.command {
            TlvCommand::Clear => self.by_field.clear(),
            TlvCommand::Delete => change.maps.iter().for_each(|map| _ = self.by_field.remove(&map.index)),
            TlvCommand::Add => {
                let mut new = self.clone();
                change.maps.iter().try_for_each(|map| new.add(*map))?;
                *self = new;
            }
        }
        Ok(())
    }

    /// Carries out a request: changes the table, and what the fields stand for in the bridge.
    ///
    /// # Errors
    /// As [`TlvTable::change`]; and if a field goes that a rule uses.
    pub fn carry_out(&mut self, change: &TlvTableMod, ofproto: &Ofproto, bridge: &str) -> Result<(), Error> {
        let mut new = self.clone();
        new.change(change)?;
        let gone: Vec<u16> = self.by_field.keys().filter(|i| !new.by_field.contains_key(i)).copied().collect();
        if !gone.is_empty() && is_used(&gone, ofproto, bridge) {
            return Err(Error::TlvModInvalidTlvDel);
        }
        let mapped: Vec<_> = new.by_field.values().map(option).collect();
        ofproto.map_tunnel_options(bridge, &mapped);
        self.lengths.set(mapped.iter().map(|(i, kind)| (*i, kind.length)));
        *self = new;
        Ok(())
    }

    fn add(&mut self, map: TlvMap) -> Result<(), Error> {
        if self.by_field.contains_key(&map.index) {
            return Err(Error::TlvModAlreadyMapped);
        }
        if self.by_field.values().any(|other| (other.class, other.kind) == (map.class, map.kind)) {
            return Err(Error::TlvModDupEntry);
        }
        let used: u32 = self.by_field.values().map(|other| u32::from(other.length)).sum();
        if used + u32::from(map.length) > SPACE {
            return Err(Error::TlvModTableFull);
        }
        self.by_field.insert(map.index, map);
        Ok(())
    }

    /// How long the fields' values are, now and after later changes.
    pub fn lengths(&self) -> OptionLengths {
        self.lengths.clone()
    }

    /// The table, as a reply has it.
    pub fn reply(&self) -> TlvTableReply {
        let maps = self.by_field.values().copied().collect();
        TlvTableReply { max_space: SPACE, max_fields: TLV_FIELDS, maps }
    }
}

/// A field and its option.
fn option(map: &TlvMap) -> (usize, OptionKind) {
    (map.index.into(), OptionKind { class: map.class, kind: map.kind, length: map.length })
}

/// Whether a rule of the bridge matches one of the fields or names it in an action.
fn is_used(fields: &[u16], ofproto: &Ofproto, bridge: &str) -> bool {
    let every_rule = FlowMod::new(FlowCommand::Delete);
    let rules = ofproto.rules(bridge, &every_rule).unwrap_or_default();
    let fields: Vec<_> = fields.iter().filter_map(|i| FieldId::tun_metadata((*i).into())).collect();
    rules.iter().any(|entry| {
        let named = OfAction::flattened(&entry.rule.actions).flat_map(OfAction::subfields);
        fields.iter().any(|field| field.field().is_present(&entry.matches.mask))
            || named.into_iter().any(|bits| fields.contains(&bits.field))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(maps: &[(u8, u8, u16)]) -> TlvTableMod {
        let map = |&(kind, length, index)| TlvMap { class: 0xffff, kind, length, index };
        TlvTableMod { command: TlvCommand::Add, maps: maps.iter().map(map).collect() }
    }

    #[test]
    fn a_change_that_fails_changes_nothing() {
        let mut table = TlvTable::default();
        table.change(&add(&[(0, 4, 0), (1, 124, 63)])).unwrap();
        for (change, error) in [
            (add(&[(7, 4, 7), (8, 4, 0)]), Error::TlvModAlreadyMapped),
            (add(&[(7, 4, 7), (1, 4, 8)]), Error::TlvModDupEntry),
            (add(&[(7, 124, 7), (8, 8, 8)]), Error::TlvModTableFull),
        ] {
            assert_eq!(table.change(&change), Err(error));
            assert_eq!(table.reply().maps.iter().map(|map| map.index).collect::<Vec<_>>(), [0, 63]);
        }
        table.change(&TlvTableMod { command: TlvCommand::Delete, ..add(&[(9, 4, 63)]) }).unwrap();
        assert_eq!(table.reply().maps.len(), 1);
        table.change(&TlvTableMod { command: TlvCommand::Clear, maps: Vec::new() }).unwrap();
        assert!(table.reply().maps.is_empty());
    }
}
