//! The clock is one for the process, so this is one test in a process of its own.

use parking_lot::{Condvar, Mutex};
use sluice_clock::{Timer, is_stopped, now_ms, stop, wait_for_due_timers, warp};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Real time in which everything here must have happened.
const PATIENCE: Duration = Duration::from_secs(20);

/// A thread that notes the times at which it was woken to work, every 500 ms.
#[derive(Default)]
struct Worker {
    state: Mutex<State>,
    woken: Condvar,
}

#[derive(Default)]
struct State {
    worked_at_ms: Vec<u64>,
    is_ending: bool,
}

impl Worker {
    fn timer(self: &Arc<Worker>) -> Timer {
        let worker = Arc::clone(self);
        Timer::new(move || {
            drop(worker.state.lock());
            worker.woken.notify_all();
        })
    }

    fn run(&self, timer: &Timer, began_ms: u64) {
        let mut due_ms = began_ms + 500;
        let mut state = self.state.lock();
        while !state.is_ending {
            let left = timer.set(Some(due_ms));
            if left.is_zero() {
                state.worked_at_ms.push(now_ms());
                due_ms = now_ms() + 500;
            } else {
                self.woken.wait_for(&mut state, left);
            }
        }
    }
}

#[test]
fn a_stopped_clock_moves_by_warps_and_wakes_those_that_are_due() {
    let real = now_ms();
    assert!(real > 0 && !is_stopped());
    warp(1_000_000);
    assert!((1_000_000..1_000_000 + 20_000).contains(&(now_ms() - real)), "a running clock can be warped");

    stop();
    let began_ms = now_ms();
    let worker = Arc::new(Worker::default());
    let timer = worker.timer();
    timer.set(Some(began_ms + 500));
    let thread = std::thread::spawn({
        let worker = Arc::clone(&worker);
        move || worker.run(&timer, began_ms)
    });
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(now_ms(), began_ms, "it stands still");

    let began = Instant::now();
    for step in 1..=20 {
        warp(100);
        assert!(wait_for_due_timers(PATIENCE));
        assert_eq!(now_ms(), began_ms + step * 100);
        let expected: Vec<u64> = (1..=step / 5).map(|n| began_ms + n * 500).collect();
        assert_eq!(worker.state.lock().worked_at_ms, expected, "step {step}");
    }
    assert!(began.elapsed() < PATIENCE);
    worker.state.lock().is_ending = true;
    worker.woken.notify_all();
    thread.join().unwrap();
    assert!(wait_for_due_timers(Duration::ZERO), "a timer that is gone is not due");

    let late = Timer::new(|| {});
    late.set(Some(now_ms()));
    assert!(!wait_for_due_timers(Duration::from_millis(1)), "nobody serves it");
}
