//! Settings of the whole switch that translations depend on.

use crate::depends::Changes;
use crate::features::DpFeatures;
use crate::ofproto::Ofproto;
use sluice_flow::VlanLimit;
use std::sync::atomic::Ordering::SeqCst;

impl Ofproto {
    /// How many VLAN tags are read of a packet.
    pub fn vlan_limit(&self) -> VlanLimit {
        self.state().vlan_limit
    }

    /// Changes how many VLAN tags are read of a packet that a trace or a controller brings. The datapath has the same
    /// limit. A megaflow says nothing of tags behind the limit that it was made with, so once the datapath has the new one
    /// all are translated again ([`Ofproto::revalidate_all`]).
    pub fn set_vlan_limit(&self, vlan_limit: VlanLimit) {
        self.change(&mut self.writer(), |state| {
            state.vlan_limit = vlan_limit;
            state.features.set_vlan_limit(vlan_limit);
        });
    }

    /// Has all megaflows translated again.
    pub fn revalidate_all(&self) {
        self.announce(&Changes::everything());
    }

    /// What translation may use of the datapath.
    pub fn features(&self) -> DpFeatures {
        self.state().features.clone()
    }

    /// Changes what translation may use of the datapath.
    ///
    /// # Errors
    /// With OVS's text, if there is no such feature or value.
    pub fn set_feature(&self, name: &str, value: &str) -> Result<(), &'static str> {
        self.change(&mut self.writer(), |state| state.features.set(name, value))?;
        self.announce(&Changes::everything());
        Ok(())
    }

    /// `upcall/enable-megaflows` and `upcall/disable-megaflows`. If disabled, a megaflow matches every field of its
    /// packet. Present megaflows are revalidated.
    pub fn enable_megaflows(&self, enabled: bool) {
        self.0.megaflows.store(enabled, SeqCst);
        self.announce(&Changes::everything());
    }

    /// Whether dumps name megaflows by their identity alone. Here that only changes what the log says of them.
    pub fn use_ufid(&self, uses_ufid: bool) {
        self.0.uses_ufid.store(uses_ufid, SeqCst);
    }

    /// Whether the tables are being filled after a restart: until that is done they answer no packet, since rules that are
    /// missing yet would send it the wrong way.
    pub fn set_flow_restore_wait(&self, wait: bool) {
        self.0.flow_restore_wait.store(wait, SeqCst);
    }
}
