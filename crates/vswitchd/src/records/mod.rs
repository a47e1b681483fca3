//! Rows as plain types, each with the rows that it refers to.

mod bridge;
mod controller;
mod datapath;
mod feature;
mod flow_table;
mod global;
mod interface;
mod manager;
mod mirror;
mod port;
mod qos;
mod sflow;
mod smap;

pub use bridge::BridgeRecord;
pub use controller::ControllerRecord;
pub use datapath::DatapathRecord;
pub use feature::Feature;
pub use flow_table::FlowTableRecord;
pub use global::OpenVswitchRecord;
pub use interface::InterfaceRecord;
pub use manager::ManagerRecord;
pub use mirror::{MirrorRecord, PortRef};
pub use port::PortRecord;
pub use qos::{QosRecord, QueueRecord};
pub use sflow::SFlowRecord;
pub use smap::Smap;

use crate::schema::OPEN_VSWITCH;
use sluice_ovsdb::Replica;

/// What the database says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Records {
    /// The row of table `Open_vSwitch`; a database may have none, which means no bridges.
    pub open_vswitch: Option<OpenVswitchRecord>,
    /// The bridges that it refers to, by UUID.
    pub bridges: Vec<BridgeRecord>,
    /// The datapaths that it refers to, by type.
    pub datapaths: Vec<DatapathRecord>,
}

impl Records {
    /// Reads a replica.
    pub fn read(replica: &Replica) -> Self {
        let row = replica.first(OPEN_VSWITCH);
        let bridges = row.iter().flat_map(|row| BridgeRecord::read_all(replica, row)).collect();
        let datapaths = row.iter().flat_map(|row| DatapathRecord::read_all(replica, row)).collect();
        Records { open_vswitch: row.as_ref().map(|row| OpenVswitchRecord::read(replica, row)), bridges, datapaths }
    }
}
