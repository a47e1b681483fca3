//! Target `switch`: what a switch remembers. The input is a byte that says which caches the switch has, then a list of
//! operations, a byte for the kind of each: rules, groups and meters that come, change and go, packets in bursts, and
//! time that passes. Rules learn, connections are tracked and translated, fragments wait. A second switch without caches
//! carries out the same: both send the same packets, whatever the first one's caches remember.

mod bench;
mod frames;
mod operation;
mod phrases;

use crate::input::Input;
use bench::Bench;
use operation::Operation;
use sluice_datapath::{Arm, DistributorTable, EmcInsert, Level, Settings};

/// Operations of one input: enough for state to build up, few enough for a thousand inputs a second.
const OPERATIONS_MAX: usize = 96;

/// Every packet has one fate, every lookup one answer, work has its bounds, and caches change nothing.
pub fn switch(data: &[u8]) {
    let mut input = Input(data);
    let caches = caches(input.byte());
    let operations: Vec<Operation> =
        std::iter::from_fn(|| (!input.is_empty()).then(|| Operation::read(&mut input))).take(OPERATIONS_MAX).collect();
    if !operations.iter().any(|operation| matches!(operation, Operation::Packets(_))) {
        return;
    }
    let mut cached = Bench::new(caches);
    let mut bare = Bench::new(Arm::BARE.into());
    for (number, operation) in operations.iter().enumerate() {
        let (with, without) = (cached.carry_out(operation), bare.carry_out(operation));
        assert_eq!(with, without, "sent after operation {number} of {operations:#?}");
    }
    cached.finish();
    bare.finish();
}

/// Entries of the larger caches, so few that they are made soon.
const CACHE_ENTRIES: usize = 64;

/// The caches that a byte stands for. An exact match cache is so small that its entries evict each other.
fn caches(byte: u8) -> Settings {
    let has = |bit: u8| byte >> bit & 1 == 1;
    let arm = Arm {
        emc: has(0).then_some(EmcInsert::OneIn(1)),
        smc: has(2),
        distributor: has(3).then_some(DistributorTable::Own),
        ..Arm::BARE
    };
    let (smc_entries, distributor_entries) = (CACHE_ENTRIES, Some(CACHE_ENTRIES));
    Settings {
        emc_entries: 8,
        smc_entries,
        distributor_entries,
        composed: if has(1) { Level::On } else { Level::Off },
        ..arm.into()
    }
}
