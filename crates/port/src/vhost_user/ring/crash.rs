//! A process that dies, in tests: at any point of those at which a successor could find something else.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// What ends the process.
struct Death;

thread_local!(static LEFT: Cell<Option<u32>> = const { Cell::new(None) });

/// A point at which the process may die.
pub fn point() {
    match LEFT.get() {
        None => (),
        Some(0) => {
            LEFT.set(None);
            resume_unwind(Box::new(Death));
        }
        Some(left) => LEFT.set(Some(left - 1)),
    }
}

/// Runs something that dies after `left` points, which are counted down; never if that is `None`. `None` if it died.
pub fn run<R>(left: &mut Option<u32>, run: impl FnOnce() -> R) -> Option<R> {
    LEFT.set(*left);
    let result = catch_unwind(AssertUnwindSafe(run));
    *left = LEFT.take();
    match result {
        Ok(result) => Some(result),
        Err(why) if why.is::<Death>() => None,
        Err(why) => resume_unwind(why),
    }
}
