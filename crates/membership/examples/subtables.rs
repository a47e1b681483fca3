//! Which subtable holds a flow? The use that DPDK's library was written for, with invented tables.
//!
//! Run with `cargo run -p sluice-membership --example subtables`.

use sluice_membership::{Ht, HtConfig, SetId, Summary};
use std::collections::HashMap;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let n = 20u16;
    // Subtable i holds the flows whose address ends in i; the summary stores which.
    let mut subtables: Vec<HashMap<[u8; 4], String>> = vec![HashMap::new(); usize::from(n)];
    let mut summary = Ht::new(&HtConfig { keys: 10_000, cache: false, seed: 42 })?;
    for i in 0..10_000u32 {
        let (flow, subtable) = (i.to_be_bytes(), (i % u32::from(n)) as u16);
        subtables[usize::from(subtable)].insert(flow, format!("output:{}", i % 4));
        summary.add(&flow, SetId::new(subtable + 1).expect("not zero"))?;
    }

    let (mut probes, mut wrong) = (0, 0);
    for i in 0..10_000u32 {
        let flow = i.to_be_bytes();
        // The summary names one subtable. If it is wrong, the others are searched as well.
        let named = summary.lookup(&flow).map(|set| usize::from(set.get()) - 1);
        let order = named.into_iter().chain((0..usize::from(n)).filter(|s| Some(*s) != named));
        for (tried, subtable) in order.enumerate() {
            probes += 1;
            if subtables[subtable].contains_key(&flow) {
                wrong += usize::from(tried > 0);
                break;
            }
        }
    }
    println!(
        "{n} subtables, 10000 flows: {:.4} subtables searched a flow, {wrong} wrong answers",
        f64::from(probes) / 1e4
    );
    Ok(())
}
