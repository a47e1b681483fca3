//! The options of Geneve that fields stand for. Each bridge maps its own, but a packet's key has one place for each field,
//! filled when the header is popped and no bridge is known yet: what one bridge maps a field to, all do.

use sluice_flow::geneve::{OptionKind, OptionMap};
use std::collections::HashMap;
use std::sync::Arc;

/// What the bridges have mapped.
#[derive(Debug, Default)]
pub(crate) struct TunnelOptions {
    bridges: HashMap<String, Vec<(usize, OptionKind)>>,
    all: Arc<OptionMap>,
}

impl TunnelOptions {
    /// Replaces what a bridge maps. Of options longer than a key has room for, and of fields that there are not, nothing is
    /// kept: rules cannot name them.
    ///
    /// # Errors
    /// With the field, if another bridge has it stand for another option.
    pub fn map(&mut self, bridge: &str, mapped: &[(usize, OptionKind)]) -> Result<(), usize> {
        let others = self.bridges.iter().filter(|(name, _)| *name != bridge);
        let mut all = OptionMap::default();
        for (i, kind) in others.flat_map(|(_, mapped)| mapped) {
            all.set(*i, *kind);
        }
        for (i, kind) in mapped {
            let is_elsewhere = all.field_of(*kind).is_some_and(|field| field != *i);
            if is_elsewhere || all.get(*i).is_some_and(|known| known != *kind) {
                return Err(*i);
            }
            all.set(*i, *kind);
        }
        if mapped.is_empty() {
            self.bridges.remove(bridge);
        } else {
            self.bridges.insert(bridge.to_owned(), mapped.to_vec());
        }
        self.all = Arc::new(all);
        Ok(())
    }

    /// What popping a header reads. Also without a field it tells options that a packet must not have.
    pub fn to_read(&self) -> Arc<OptionMap> {
        Arc::clone(&self.all)
    }

    /// What all bridges have mapped.
    pub fn all(&self) -> OptionMap {
        *self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bridges_agree_or_are_refused() {
        let kind = |kind| OptionKind { class: 0x102, kind, length: 4 };
        let mut options = TunnelOptions::default();
        assert_eq!(options.map("a", &[(0, kind(1)), (1, kind(2))]), Ok(()));
        assert_eq!(options.map("b", &[(0, kind(1))]), Ok(()));
        assert_eq!(options.map("b", &[(1, kind(3))]), Err(1), "the field is taken");
        assert_eq!(options.map("b", &[(2, kind(2))]), Err(2), "the option is taken");
        assert_eq!((options.all().get(0), options.all().get(1)), (Some(kind(1)), Some(kind(2))));
        assert_eq!(options.map("a", &[]), Ok(()));
        assert_eq!((options.all().get(0), options.all().get(1)), (Some(kind(1)), None));
        assert_eq!(options.map("b", &[(9, kind(1)), (3, OptionKind { length: 124, ..kind(4) })]), Ok(()));
        assert!(options.to_read().is_empty());
    }
}
