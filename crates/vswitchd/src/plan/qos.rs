//! What interfaces may receive and ports may send.
//! Source: Open vSwitch vswitchd/bridge.c, `iface_configure_qos`.

use crate::records::{InterfaceRecord, QosRecord, QueueRecord};
use sluice_policer::PolicingRates;
use sluice_vswitch::{Qos, Queue};

/// The limits of what an interface may receive.
pub(super) fn policing(interface: &InterfaceRecord) -> PolicingRates {
    let number = |n: i64| u32::try_from(n.max(0)).unwrap_or(u32::MAX);
    let [kbits, kbits_burst, kpkts, kpkts_burst] = interface.policing.map(number);
    PolicingRates { kbits, kbits_burst, kpkts, kpkts_burst }
}

/// The queues of a port.
pub(super) fn qos(record: &QosRecord) -> Qos {
    let queues = record.queues.iter().filter_map(|(number, row)| Some((u32::try_from(*number).ok()?, queue(row))));
    Qos { kind: record.kind.clone(), settings: record.other_config.0.clone(), queues: queues.collect() }
}

fn queue(record: &QueueRecord) -> Queue {
    let dscp = record.dscp.and_then(|dscp| u8::try_from(dscp).ok()).filter(|dscp| *dscp < 64);
    Queue { dscp, settings: record.other_config.0.clone() }
}
