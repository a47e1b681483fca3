//! A bridge's table of tunnel options. No field of the table is matched or set yet: the table is kept for the tools that
//! save and restore it. Source: Open vSwitch, `tun-metadata.c`.

use sluice_openflow::Error;
use sluice_openflow::message::tlv_table::{MAX_OPTION_SPACE, TlvMapping, TlvTableCommand, TlvTableMod};

/// Options and their fields, in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlvMap(Vec<TlvMapping>);

impl TlvMap {
    /// The mappings.
    pub fn mappings(&self) -> &[TlvMapping] {
        &self.0
    }

    /// Carries out a change, as a whole or not at all.
    ///
    /// # Errors
    /// If a mapping is there already, or there is no space for it.
    pub fn change(&mut self, change: &TlvTableMod) -> Result<(), Error> {
        let mut new = self.clone();
        match change.command {
            TlvTableCommand::Clear => new.0.clear(),
            TlvTableCommand::Delete => {
                new.0.retain(|own| !change.mappings.iter().any(|mapping| is_same_option(own, mapping)));
            }
            TlvTableCommand::Add => change.mappings.iter().try_for_each(|mapping| new.add(*mapping))?,
        }
        *self = new;
        Ok(())
    }

    fn add(&mut self, mapping: TlvMapping) -> Result<(), Error> {
        let Err(place) = self.0.binary_search_by_key(&mapping.field, |own| own.field) else {
            return Err(Error::TlvModDupEntry);
        };
        if self.0.iter().any(|own| is_same_option(own, &mapping)) {
            return Err(Error::TlvModAlreadyMapped);
        }
        let used: u32 = self.0.iter().map(|own| u32::from(own.size)).sum();
        if used + u32::from(mapping.size) > MAX_OPTION_SPACE {
            return Err(Error::TlvModTableFull);
        }
        self.0.insert(place, mapping);
        Ok(())
    }
}

fn is_same_option(one: &TlvMapping, other: &TlvMapping) -> bool {
    (one.class, one.option) == (other.class, other.option)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: TlvMapping = TlvMapping { class: 0xffff, option: 0, size: 4, field: 0 };

    fn change(command: TlvTableCommand, mappings: &[TlvMapping]) -> TlvTableMod {
        TlvTableMod { command, mappings: mappings.to_vec() }
    }

    #[test]
    fn mappings_come_and_go() {
        let mut map = TlvMap::default();
        let second = TlvMapping { option: 1, field: 1, size: 124, ..FIRST };
        map.change(&change(TlvTableCommand::Add, &[second, FIRST])).unwrap();
        assert_eq!(map.mappings(), [FIRST, second]);
        map.change(&change(TlvTableCommand::Delete, &[TlvMapping { size: 8, field: 9, ..FIRST }])).unwrap();
        assert_eq!(map.mappings(), [second]);
        map.change(&change(TlvTableCommand::Add, &[])).unwrap();
        map.change(&change(TlvTableCommand::Clear, &[])).unwrap();
        assert_eq!(map, TlvMap::default());
    }

    #[test]
    fn a_change_that_does_not_fit_changes_nothing() {
        let mut map = TlvMap::default();
        map.change(&change(TlvTableCommand::Add, &[FIRST])).unwrap();
        let before = map.clone();
        let other = TlvMapping { option: 1, field: 1, size: 124, ..FIRST };
        let add = |second| change(TlvTableCommand::Add, &[other, second]);
        assert_eq!(map.change(&add(TlvMapping { field: 2, ..FIRST })), Err(Error::TlvModAlreadyMapped));
        assert_eq!(map.change(&add(TlvMapping { option: 2, ..FIRST })), Err(Error::TlvModDupEntry));
        let third = TlvMapping { option: 2, field: 2, ..other };
        let fourth = TlvMapping { option: 3, field: 3, size: 8, ..other };
        let full = change(TlvTableCommand::Add, &[other, third, fourth]);
        assert_eq!(map.change(&full), Err(Error::TlvModTableFull));
        assert_eq!(map, before);
    }
}
