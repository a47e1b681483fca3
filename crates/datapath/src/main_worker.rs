//! The main worker's loop: it serves the queues of which poll(2) says that they have packets, and sleeps otherwise.
//!
//! A PMD sleeps in the same way if it can wait for each of its queues and has been idle for a while (`thread.rs`).
//!
//! A host whose ports are all devices of the kernel thus burns no core. While packets come the worker does not sleep: it
//! serves the queues that gave some until they are empty, in batches and as fairly as a PMD.

use crate::pmd::Pmd;
use crate::rxq::QueueWait;
use rustix::event::{PollFd, PollFlags, Timespec};
use sluice_simd::tsc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The longest sleep while there is something that ends by itself: fragments expire and deleted megaflows are forgotten
/// at most that late.
const SLEEP_MAX: Duration = Duration::from_millis(250);

/// The longest sleep otherwise: the watchdog reports a worker that makes no progress for two seconds.
const IDLE_SLEEP_MAX: Duration = Duration::from_secs(1);

/// How long a queue is left alone that was said to have packets and had none: a device with an error, or no buffer for
/// its packets.
const MUTE_MS: u64 = 10;

/// Runs the main worker until it is told to stop.
pub(crate) fn run(pmd: &mut Pmd) {
    pmd.wake();
    while !pmd.shared.stop.load(Relaxed) {
        let now_ms = sluice_clock::now_ms();
        if pmd.run_ready(now_ms) == 0 {
            pmd.shared.exhausted.store(pmd.is_exhausted(), Relaxed);
            sleep(pmd);
        }
    }
}

/// Sleeps until a queue has packets, there is a command, or something may be due.
pub(crate) fn sleep(pmd: &mut Pmd) {
    let began = tsc::now();
    let real_ms = sluice_clock::real_ms();
    let shared = std::sync::Arc::clone(&pmd.shared);
    let mut waited_for = Vec::with_capacity(pmd.rxqs_mut().len() + 1);
    waited_for.push(PollFd::new(shared.wakeup(), PollFlags::IN));
    let mut until = if pmd.holds_nothing() { IDLE_SLEEP_MAX } else { SLEEP_MAX };
    for rxq in pmd.rxqs_mut() {
        match (rxq.wait.muted_ms(real_ms), rxq.queue.readiness()) {
            (None, Some(descriptor)) => waited_for.push(PollFd::from_borrowed_fd(descriptor, PollFlags::IN)),
            (_, None) if rxq.queue.exhausted() => {}
            (muted, _) => until = until.min(Duration::from_millis(muted.unwrap_or(MUTE_MS))),
        }
    }
    let until = Timespec { tv_sec: until.as_secs() as i64, tv_nsec: until.subsec_nanos().into() };
    let woken = rustix::event::poll(&mut waited_for, Some(&until)).is_ok();
    let flags: Vec<bool> = waited_for.iter().map(|one| woken && !one.revents().is_empty()).collect();
    drop(waited_for);
    let mut flags = flags.into_iter();
    if flags.next() == Some(true) {
        shared.clear_wakeup();
    }
    for rxq in pmd.rxqs_mut() {
        let is_asked = rxq.wait.muted_ms(real_ms).is_none() && rxq.queue.readiness().is_some();
        if !is_asked || flags.next() == Some(true) {
            rxq.wait = QueueWait::Woken;
        }
    }
    pmd.count_sleep(tsc::now().saturating_sub(began));
    pmd.wake();
}

impl QueueWait {
    /// What a queue is waited for after a burst of `packets`.
    #[inline]
    pub fn after(self, packets: usize) -> Self {
        match self {
            _ if packets != 0 => QueueWait::Ready,
            QueueWait::Woken => QueueWait::Muted { until_ms: sluice_clock::real_ms() + MUTE_MS },
            QueueWait::Ready | QueueWait::Empty | QueueWait::Muted { .. } => QueueWait::Empty,
        }
    }

    /// Whether the queue may have packets.
    #[inline]
    pub fn is_ready(self) -> bool {
        matches!(self, QueueWait::Ready | QueueWait::Woken)
    }

    /// For how long the queue is left alone, if it is.
    fn muted_ms(self, now_ms: u64) -> Option<u64> {
        match self {
            QueueWait::Muted { until_ms } => until_ms.checked_sub(now_ms).filter(|left| *left != 0),
            QueueWait::Ready | QueueWait::Woken | QueueWait::Empty => None,
        }
    }
}
