//! What came of a configuration.

use super::{interface, types};
use crate::plan::{DummyOverride, PlannedController};
use crate::records::Feature;
use crate::schema::{BRIDGE, DATAPATH, INTERFACE, OPEN_VSWITCH};
use sluice_action::PortNo;
use sluice_flow::OfPort;
use sluice_ovsdb::{Datum, Txn, Uuid};

/// The version of the datapath, which is part of this program. Source: Open vSwitch lib/dpif-netdev.c.
const DATAPATH_VERSION: &str = "<built-in>";

/// What came of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The row of table `Open_vSwitch`, and the configuration's number.
    pub configuration: Option<(Uuid, i64)>,
    /// The bridges there are.
    pub bridges: Vec<AppliedBridge>,
    /// The rows and names of bonds.
    pub bonds: Vec<(Uuid, String)>,
    /// Every interface, whether or not it could be opened.
    pub interfaces: Vec<AppliedInterface>,
    /// The rows of datapaths.
    pub datapaths: Vec<Uuid>,
    /// What each of them can do.
    pub capabilities: Vec<(&'static str, String)>,
    /// Whether DPDK runs.
    pub has_dpdk: bool,
}

/// A bridge that there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedBridge {
    /// Its row.
    pub uuid: Uuid,
    /// Its name.
    pub name: String,
    /// Its OpenFlow datapath id.
    pub datapath_id: u64,
    /// Its controllers.
    pub controllers: Vec<PlannedController>,
    /// The rows of its mirrors.
    pub mirrors: Vec<Uuid>,
    /// What it asks for and this build lacks.
    pub lacking: Vec<Feature>,
}

/// What came of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedInterface {
    /// Its row.
    pub uuid: Uuid,
    /// Its name, if there may be a port of it.
    pub name: String,
    /// What there is, or why it could not be opened; Open vSwitch gives no reason for some.
    pub live: Result<LiveInterface, Option<String>>,
}

/// An interface that there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveInterface {
    /// Its OpenFlow number.
    pub ofport: OfPort,
    /// Its number in the datapath; a patch port and a tunnel have none of their own.
    pub number: Option<PortNo>,
    /// The type of its device.
    pub kind: String,
    /// What keeps it from being of use although it is there.
    pub error: Option<String>,
    /// What it asks for and this build lacks.
    pub lacking: Vec<Feature>,
}

impl Applied {
    /// What tools wait for, and look at then.
    pub fn write(&self, txn: &mut Txn, dummies: DummyOverride) {
        if let Some((row, number)) = self.configuration {
            txn.set(OPEN_VSWITCH, row, "cur_cfg", number);
            txn.set(OPEN_VSWITCH, row, "datapath_types", Datum::set(dummies.datapath_types().iter().copied()));
            txn.set(OPEN_VSWITCH, row, "iface_types", Datum::set(types::interface_types(dummies, self.has_dpdk)));
            txn.set(OPEN_VSWITCH, row, "dpdk_initialized", self.has_dpdk);
            let version = sluice_port::dpdk_environment::version();
            txn.set(OPEN_VSWITCH, row, "dpdk_version", Datum::set([version.unwrap_or_else(|| "none".to_owned())]));
        }
        for bridge in &self.bridges {
            txn.set(BRIDGE, bridge.uuid, "datapath_id", Datum::set([format!("{:016x}", bridge.datapath_id)]));
            txn.set(BRIDGE, bridge.uuid, "datapath_version", DATAPATH_VERSION);
            txn.set(BRIDGE, bridge.uuid, "status", unsupported(&bridge.lacking));
        }
        for datapath in &self.datapaths {
            let capabilities = self.capabilities.iter().map(|(name, value)| (*name, value.as_str()));
            txn.set(DATAPATH, *datapath, "capabilities", Datum::map(capabilities));
        }
        for interface in &self.interfaces {
            interface.write(txn);
        }
    }

    /// The interfaces that have a device, with its number in the datapath.
    pub fn devices(&self) -> impl Iterator<Item = (&AppliedInterface, &LiveInterface, PortNo)> {
        self.interfaces.iter().filter_map(|interface| {
            let live = interface.live.as_ref().ok()?;
            Some((interface, live, live.number?))
        })
    }

    /// The interfaces without a device: patch ports and tunnels.
    pub fn vports(&self) -> impl Iterator<Item = &AppliedInterface> {
        let is_vport = |interface: &&AppliedInterface| matches!(&interface.live, Ok(live) if live.number.is_none());
        self.interfaces.iter().filter(is_vport)
    }

    /// Whether an interface could not be opened.
    pub fn lacks_interfaces(&self) -> bool {
        self.interfaces.iter().any(|interface| interface.live.is_err())
    }
}

impl LiveInterface {
    /// The column `status` of a device that has `details`.
    pub fn status(&self, details: &[(String, String)]) -> Datum {
        let lacking = relied_on(&self.lacking).map(|column| (column, UNSUPPORTED));
        Datum::map(lacking.chain(details.iter().map(|(key, value)| (key.as_str(), value.as_str()))))
    }
}

impl AppliedInterface {
    fn write(&self, txn: &mut Txn) {
        let (ofport, error) = match &self.live {
            Ok(live) => (i64::from(live.ofport.0), live.error.clone()),
            Err(error) => (-1, error.clone()),
        };
        txn.set(INTERFACE, self.uuid, "ofport", Datum::set([ofport]));
        txn.set(INTERFACE, self.uuid, "error", Datum::from(error));
        match &self.live {
            Err(_) => interface::clear(txn, self.uuid),
            Ok(live) => {
                if live.number.is_none() {
                    interface::write_virtual(txn, self.uuid);
                }
                txn.set(INTERFACE, self.uuid, "status", unsupported(&live.lacking));
            }
        }
    }
}

const UNSUPPORTED: &str = "unsupported";

/// The status of a row that asks for what this build lacks, if networks rely on that.
fn unsupported(lacking: &[Feature]) -> Datum {
    Datum::map(relied_on(lacking).map(|column| (column, UNSUPPORTED)))
}

/// The columns of features that networks rely on.
fn relied_on(lacking: &[Feature]) -> impl Iterator<Item = &'static str> {
    lacking.iter().filter(|feature| feature.is_for_safety()).map(|feature| feature.column())
}
