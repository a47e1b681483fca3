//! How far two cores are from one another: what a cache line takes from one to the other.
//!
//! Two cores with one last-level cache are near, two without are far; what two threads do together can take twice as
//! long when they are far. A hypervisor may move a virtual machine's cores at any time, so that the distance of the same
//! two cores changes from one second to the next.

use crate::cores;
use sluice_simd::tsc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread;

/// Round trips that are timed together.
const ROUND_TRIPS: u32 = 100;

/// How often they are. Some are interrupted by other work.
const TIMES: usize = 60;

/// The number that both threads wait for and count up, in a cache line of its own.
#[repr(align(128))]
struct Ball(AtomicU32);

/// Cycles of the time-stamp counter that a written cache line takes from the first core to the last, or back; `None` with
/// one core only.
pub fn measure() -> Option<u64> {
    let [first, .., last] = cores::all() else { return None };
    let ball = Ball(AtomicU32::new(0));
    let trips = TIMES as u32 * ROUND_TRIPS;
    let measured = thread::scope(|scope| {
        scope.spawn(|| {
            cores::bind(*first);
            (0..trips).for_each(|trip| ball.pass(2 * trip + 1));
        });
        let server = scope.spawn(|| {
            cores::bind(*last);
            let mut trip = 0;
            let mut round_trips = || {
                let begin = tsc::now();
                for _ in 0..ROUND_TRIPS {
                    ball.0.store(2 * trip + 1, SeqCst);
                    ball.wait_for(2 * trip + 2);
                    trip += 1;
                }
                (tsc::now() - begin) / u64::from(2 * ROUND_TRIPS)
            };
            std::iter::repeat_with(&mut round_trips).take(TIMES).collect::<Vec<_>>()
        });
        server.join()
    });
    let mut cycles = measured.ok()?;
    cycles.sort_unstable();
    // The lower quartile: interruptions only add.
    Some(cycles[cycles.len() / 4])
}

impl Ball {
    /// Waits for a number and answers with the next one.
    fn pass(&self, number: u32) {
        self.wait_for(number);
        self.0.store(number + 1, SeqCst);
    }

    fn wait_for(&self, number: u32) {
        while self.0.load(SeqCst) != number {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_line_takes_some_cycles_but_not_a_millisecond() {
        let expected = if crate::cores::count() > 1 { 1..sluice_datapath::tsc_hz() / 1000 } else { 0..1 };
        assert!(expected.contains(&super::measure().unwrap_or_default()));
    }
}
