//! How much of what connections have bounds for is in use.

use crate::conn_handle::QUEUE_MAX;
use crate::conn_mgr::ConnMgr;
use crate::conn_origin::CLIENTS_MAX;
use crate::flow_monitor::{MONITORS_MAX, UPDATES_MAX};
use crate::snoop::{SNOOPERS_MAX, WAITING_MAX};
use crate::switch::Switch;
use sluice_fate::Limit;
use sluice_openflow::BUNDLES_MAX;

impl Switch {
    /// How much of a resource is in use, and its bound; `None` if it is not of connections. Where each connection,
    /// controller or bridge has a bound of its own, it is the one with most.
    pub fn limit_usage(&self, limit: Limit) -> Option<(usize, usize)> {
        let most = |of: &dyn Fn(&ConnMgr) -> usize| {
            self.all_conn_mgrs().iter().map(|conn_mgr| of(conn_mgr)).max().unwrap_or_default()
        };
        Some(match limit {
            Limit::BundleMemory => self.bundle_memory.usage(),
            Limit::PacketOuts => self.packet_out_memory.usage(),
            Limit::Connections => (most(&|it| it.fullest_pool()), CLIENTS_MAX),
            Limit::AsyncMessages => (most(&|it| it.most(|handle| handle.waiting())), QUEUE_MAX),
            Limit::Bundles => (most(&|it| it.most(|handle| handle.bundles())), BUNDLES_MAX),
            Limit::FlowMonitors => (most(&|it| it.most(|handle| handle.monitors().len())), MONITORS_MAX),
            Limit::MonitorUpdates => (most(&|it| it.most(|handle| handle.monitors().waiting())), UPDATES_MAX),
            Limit::Snoopers => (most(&|it| it.most_of_traffic(|traffic| traffic.snoopers())), SNOOPERS_MAX),
            Limit::SnoopedBytes => (most(&|it| it.most_of_traffic(|traffic| traffic.waiting_bytes())), WAITING_MAX),
            _ => return None,
        })
    }
}
