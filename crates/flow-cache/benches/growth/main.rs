//! The longest that one megaflow takes as tables grow to a million: no structure may be moved at once. With one mask, and
//! with 32 and 2000, of which pruning has the prefixes of most.
//!
//! `cargo bench -p sluice-flow-cache --bench growth` prints a table; without `--bench` it only checks that the
//! megaflows are there and gone again. Times are wall-clock, page faults included; the least over five rounds of the
//! longest step, since other work of the machine only ever adds.

use sluice_action::{FlowId, MegaflowStore, Translation, XcacheHandle};
use sluice_fate::DropReason;
use sluice_flow::{PacketKey, layout};
use sluice_flow_cache::{FlowDeleted, Installed, MegaflowTable, Subtables};
use sluice_simd::HashKey;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is done to a megaflow, in this order.
const STEPS: [&str; 4] = ["installed", "entered in its subtable", "removed", "taken out of its subtable"];

/// How long the longest repetition of a step took, and which it was.
#[derive(Clone, Copy, Default)]
struct Longest {
    time: Duration,
    at: usize,
}

impl Longest {
    /// Does the step once more.
    fn time<R>(&mut self, at: usize, work: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = work();
        let time = start.elapsed();
        if time > self.time {
            *self = Longest { time, at };
        }
        result
    }
}

fn main() {
    let full = std::env::args().any(|arg| arg == "--bench");
    let sizes: &[usize] = if full { &[10_000, 100_000, 1_000_000] } else { &[3000] };
    println!("{:>9} {:>5}  {:<26} {:>12}  {:>14}", "megaflows", "masks", "step", "longest, µs", "at megaflow");
    for (&flows, masks) in sizes.iter().flat_map(|flows| [(flows, 1), (flows, 32), (flows, 2000)]) {
        let mut least = round(flows, masks);
        for _ in 1..if full { 5 } else { 1 } {
            for (least, longest) in least.iter_mut().zip(round(flows, masks)) {
                if longest.time < least.time {
                    *least = longest;
                }
            }
        }
        for (step, longest) in STEPS.iter().zip(least) {
            println!(
                "{flows:>9} {masks:>5}  {step:<26} {:>12.1}  {:>14}",
                longest.time.as_secs_f64() * 1e6,
                longest.at
            );
        }
    }
}

/// Installs megaflows under a number of masks and removes them, as a PMD and a control thread do.
fn round(flows: usize, masks: usize) -> [Longest; STEPS.len()] {
    let secret = HashKey::from_seed(1);
    let table = MegaflowTable::new(1 << 20, &secret).expect("address space for the records");
    let mut side = table.attach(0).expect("address space for the counters");
    // The control thread keeps memory ready ahead of the PMD.
    let make_room = |made: usize| {
        if made.is_multiple_of(64) {
            table.make_room().expect("memory");
        }
    };
    let mut subtables = Subtables::new(&secret);
    let mut longest = [Longest::default(); STEPS.len()];
    let translations: Vec<_> = (0..masks).map(translation).collect();
    for at in 0..flows {
        make_room(at);
        let key = key(at);
        let installed =
            longest[0].time(at, || table.install(0, &key, &translations[at % masks], 0, |_| true, |_, _, _| ()));
        let Installed::New(FlowId(id)) = installed else { panic!("megaflow {at} is new and there is room") };
        let guard = side.reader.pin();
        let flow = table.read(&guard).get(id).expect("it was installed");
        assert!(longest[1].time(at, || subtables.insert(&key, flow)));
    }
    assert_eq!((subtables.flows(), subtables.subtables()), (flows, masks));
    for at in 0..flows {
        let removed = longest[2].time(at, || table.remove(FlowId(at as u32)));
        assert!(removed.is_some());
    }
    let mut notices = Vec::<FlowDeleted>::new();
    side.notices.take(usize::MAX, &mut notices);
    for (at, notice) in notices.iter().enumerate() {
        longest[3].time(at, || subtables.remove(notice));
    }
    assert_eq!(subtables.flows(), 0);
    longest
}

/// The key of a packet of megaflow number `at`.
fn key(at: usize) -> PacketKey {
    let mut key = PacketKey::ZERO;
    key.set(layout::NW_SRC, &(at as u32).to_be_bytes());
    key
}

/// What the megaflows of a mask do. Its number decides the prefixes of one address and of the ports; the other address is whole.
fn translation(number: usize) -> Translation {
    let mut mask = PacketKey::ZERO;
    mask.set(layout::IN_PORT, &[0xff; 4]);
    mask.set(layout::NW_SRC, &[0xff; 4]);
    mask.set(layout::NW_DST, &(!(u32::MAX >> (number % 32))).to_be_bytes());
    mask.set(layout::TP_SRC, &(!(u16::MAX >> (number / 32 % 16))).to_be_bytes());
    mask.set(layout::TP_DST, &(!(u16::MAX >> (number / 512 % 16))).to_be_bytes());
    Translation {
        mask,
        actions: Arc::new([]),
        no_output: DropReason::Rules,
        version: 0,
        cacheable: true,
        xcache: XcacheHandle(Arc::new(())),
    }
}
