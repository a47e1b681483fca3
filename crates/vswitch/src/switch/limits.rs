//! How much of each bounded resource is in use, asked of the part that owns it.

use super::Switch;
use super::datapaths::DATAPATHS_MAX;
use sluice_fate::Limit;
use sluice_port::ROUTES_MAX;

/// How much of a resource is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitUsage {
    /// Now.
    pub used: u64,
    /// At most.
    pub bound: u64,
}

impl Switch {
    /// How much of a resource is in use; `None` if its bound is on each packet, request or message. Where ports, bridges,
    /// connections or PMDs have a bound each, it is the one that is nearest to it.
    pub fn limit_usage(&self, limit: Limit) -> Option<LimitUsage> {
        let store = self.datapath().store();
        let (used, bound) = match limit {
            Limit::FlowMemory => {
                let memory = store.memory();
                return Some(LimitUsage { used: memory.used(), bound: memory.limit() });
            }
            Limit::Megaflows => (store.len(), store.capacity()),
            Limit::KernelRoutes => (self.kernel_routes.lock().len(), ROUTES_MAX),
            Limit::Datapaths => (self.made_datapaths().len(), DATAPATHS_MAX),
            Limit::Queues => self.setup().assembly.qos().usage(),
            _ => self
                .ofproto()
                .limit_usage(limit)
                .or_else(|| self.datapath().limit_usage(limit))
                .or_else(|| self.openflow().limit_usage(limit))?,
        };
        Some(LimitUsage { used: used as u64, bound: bound as u64 })
    }
}
