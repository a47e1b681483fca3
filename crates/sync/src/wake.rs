//! Waking a thread that sleeps until another one has something for it, without a wake-up for each thing.

use crate::primitive::atomic::{AtomicBool, Ordering, fence};

/// One thread's wish to be woken, which another one fulfils once.
///
/// The sleeper wishes, then looks whether there is something already, then sleeps. The other puts something down, then
/// asks whether to wake. Each writes, fences, and reads what the other wrote, so at least one of them sees the other:
/// nothing lies there while the sleeper sleeps.
#[derive(Debug, Default)]
pub struct WakeWish {
    is_wished: AtomicBool,
}

impl WakeWish {
    /// No wish yet.
    pub fn new() -> Self {
        WakeWish { is_wished: AtomicBool::new(false) }
    }

    /// Wishes to be woken. What is there already is to be looked for afterwards.
    pub fn wish(&self) {
        self.is_wished.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether to wake the sleeper, for what was put down before. The wish is fulfilled then: one of several threads that
    /// ask is told so.
    #[inline]
    pub fn take(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_wished.load(Ordering::Relaxed) && self.is_wished.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread;

    /// Two threads put one thing down each while a third one falls asleep: what it has not seen wakes it.
    #[test]
    fn nothing_lies_there_while_the_sleeper_sleeps() {
        loom::model(|| {
            let wish = Arc::new(WakeWish::new());
            let put = Arc::new(AtomicUsize::new(0));
            let wakes = Arc::new(AtomicUsize::new(0));
            let threads = [(); 2].map(|()| {
                let (wish, put, wakes) = (wish.clone(), put.clone(), wakes.clone());
                thread::spawn(move || {
                    put.fetch_add(1, Ordering::Relaxed);
                    if wish.take() {
                        wakes.fetch_add(1, Ordering::Relaxed);
                    }
                })
            });
            wish.wish();
            let seen = put.load(Ordering::Relaxed);
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            let wakes = wakes.load(Ordering::Relaxed);
            assert!(wakes <= 1, "one wish, {wakes} wakes");
            assert!(seen == 2 || wakes == 1, "it saw {seen} of 2 and sleeps");
        });
    }
}
