//! Megaflows that a user changes and deletes by hand: what they have carried is credited as if they had changed by
//! themselves.

use crate::ofproto::Ofproto;
use crate::revalidate::ExpiredFlow;
use crate::xlate_cache::XlateCache;
use sluice_action::{FlowId, FlowModification, MegaflowStore, Translation, XcacheHandle};

impl Ofproto {
    /// Gives a megaflow another translation; its mask and statistics stay. Whether it was still there.
    pub fn modify_megaflow(
        &self,
        store: &dyn MegaflowStore,
        (id, xcache): (FlowId, &XcacheHandle),
        translation: &Translation,
    ) -> bool {
        let mut modification = FlowModification { translation, is_current: &mut || true };
        let Some(carried) = store.modify(id, xcache, &mut modification) else { return false };
        let mut effects = Vec::new();
        if let Some(xcache) = xcache.0.downcast_ref::<XlateCache>() {
            self.credit_last(xcache, carried, &mut effects);
        }
        self.delete_flows(store, Vec::new(), &mut effects);
        true
    }

    /// Deletes a megaflow.
    pub fn delete_megaflow(&self, store: &dyn MegaflowStore, id: FlowId, xcache: XcacheHandle) {
        self.delete_flows(store, vec![ExpiredFlow { id, xcache, is_idle: false }], &mut Vec::new());
    }
}
