//! Target `switch`: what a switch remembers. The input is a list of operations, a byte for the kind of each: rules,
//! groups and meters that come, change and go, packets in bursts, and time that passes. Rules learn, connections are
//! tracked and translated, fragments wait. A second switch without caches carries out the same: both send the same
//! packets, whatever the first one's caches remember.

mod bench;
mod frames;
mod operation;
mod phrases;

use crate::input::Input;
use bench::Bench;
use operation::Operation;
use sluice_datapath::{Arm, Level, Settings};

/// Operations of one input: enough for state to build up, few enough for a thousand inputs a second.
const OPERATIONS_MAX: usize = 96;

/// Every packet has one fate, every lookup one answer, work has its bounds, and caches change nothing.
pub fn switch(data: &[u8]) {
    let mut input = Input(data);
    let operations: Vec<Operation> =
        std::iter::from_fn(|| (!input.is_empty()).then(|| Operation::read(&mut input))).take(OPERATIONS_MAX).collect();
    if !operations.iter().any(|operation| matches!(operation, Operation::Packets(_))) {
        return;
    }
    let arm = Arm { emc: Some(1), smc: true, distributor: true, ..Arm::BARE };
    // An exact match cache so small that entries evict each other.
    let mut cached = Bench::new(Settings { emc_entries: 8, composed: Level::On, ..arm.into() });
    let mut bare = Bench::new(Arm::BARE.into());
    for (number, operation) in operations.iter().enumerate() {
        let (with, without) = (cached.carry_out(operation), bare.carry_out(operation));
        assert_eq!(with, without, "sent after operation {number} of {operations:#?}");
    }
    cached.finish();
    bare.finish();
}
