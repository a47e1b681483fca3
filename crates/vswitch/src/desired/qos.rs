//! What a port may receive and send, and by which queues.

use sluice_tc::Settings;
use std::collections::BTreeMap;

/// The queues of a port, and how they share its rate: rows of tables `QoS` and `Queue` of Open vSwitch's database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Qos {
    /// Its type: one of `sluice_tc::Discipline::TYPES` on a device of the kernel, a policer's on others.
    pub kind: String,
    /// What its type wants to know.
    pub settings: Settings,
    /// The queues, by number.
    pub queues: BTreeMap<u32, Queue>,
}

/// A queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// The DSCP with which its packets leave; `None`: the one that they have.
    pub dscp: Option<u8>,
    /// What the type of the port's QoS wants to know of a queue.
    pub settings: Settings,
}

impl Qos {
    /// The DSCP of the queues that have one.
    pub(crate) fn dscp(&self) -> BTreeMap<u32, u8> {
        self.queues.iter().filter_map(|(number, queue)| Some((*number, queue.dscp?))).collect()
    }
}
