//! Settings of the lookup, changed while PMDs run.

use crate::config::check_settings;
use crate::lookup::Caches;
use crate::mail::Mail;
use crate::{Datapath, DatapathError, Settings};
use std::sync::mpsc;

impl Datapath {
    /// How packets are looked up now.
    pub fn settings(&self) -> Settings {
        self.control().settings
    }

    /// Changes how packets are looked up. Returns when every PMD does so.
    ///
    /// Memory of caches is made and given back here, not by a PMD. A cache that stays keeps its entries; one that comes
    /// is empty.
    ///
    /// # Errors
    /// If there can be no such settings; nothing has changed then.
    pub fn set_settings(&self, settings: Settings) -> Result<(), DatapathError> {
        check_settings(&settings)?;
        let mut control = self.control();
        let old = std::mem::replace(&mut control.settings, settings);
        let (into, replaced) = mpsc::channel();
        for pmd in self.shared() {
            let caches = Caches::between(&old, &settings, &mut control.seed);
            pmd.mailbox.post(Mail::SetSettings { settings, caches: Box::new(caches), into: into.clone() });
        }
        drop(into);
        control.deliver();
        control.wait_for(&replaced, self.shared().len());
        Ok(())
    }
}
