//! What is written back to the database.
//!
//! Each function sets the columns as they are to be; the transaction leaves out those that are so already.

pub mod mac;
mod types;

use crate::plan::DummyOverride;
use crate::schema::{BRIDGE, INTERFACE, OPEN_VSWITCH};
use sluice_flow::OfPort;
use sluice_ovsdb::{Datum, Txn, Uuid};

/// What came of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The row of table `Open_vSwitch`, and the configuration's number.
    pub configuration: Option<(Uuid, i64)>,
    /// The bridges there are.
    pub bridges: Vec<AppliedBridge>,
    /// Every interface, whether or not it could be opened.
    pub interfaces: Vec<AppliedInterface>,
}

/// A bridge that there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedBridge {
    /// Its row.
    pub uuid: Uuid,
    /// Its OpenFlow datapath id.
    pub datapath_id: u64,
}

/// What came of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedInterface {
    /// Its row.
    pub uuid: Uuid,
    /// Its OpenFlow number, or why it could not be opened; Open vSwitch gives no reason for some.
    pub ofport: Result<OfPort, Option<String>>,
}

impl Applied {
    /// What tools wait for, and look at then.
    pub fn write(&self, txn: &mut Txn, dummies: DummyOverride) {
        if let Some((row, number)) = self.configuration {
            txn.set(OPEN_VSWITCH, row, "cur_cfg", number);
            txn.set(OPEN_VSWITCH, row, "datapath_types", Datum::set(dummies.datapath_types().iter().copied()));
            txn.set(OPEN_VSWITCH, row, "iface_types", Datum::set(types::interface_types(dummies)));
        }
        for bridge in &self.bridges {
            txn.set(BRIDGE, bridge.uuid, "datapath_id", Datum::from(format!("{:016x}", bridge.datapath_id)));
        }
        for interface in &self.interfaces {
            interface.write(txn);
        }
    }
}

impl AppliedInterface {
    fn write(&self, txn: &mut Txn) {
        let (ofport, error) = match &self.ofport {
            Ok(number) => (i64::from(number.0), None),
            Err(error) => (-1, error.clone()),
        };
        txn.set(INTERFACE, self.uuid, "ofport", Datum::set([ofport]));
        txn.set(INTERFACE, self.uuid, "error", Datum::from(error));
    }
}
