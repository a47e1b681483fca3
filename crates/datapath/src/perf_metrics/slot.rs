//! The metrics of a PMD as it and control threads share them: a lock that the PMD takes for an iteration, and only if there
//! are any.

use super::PerfMetrics;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A PMD's metrics, if it keeps any.
#[derive(Debug, Default)]
pub(crate) struct PerfSlot {
    is_on: AtomicBool,
    metrics: Mutex<Option<Box<PerfMetrics>>>,
}

impl PerfSlot {
    /// Begins or ends them.
    pub fn set(&self, metrics: Option<PerfMetrics>) {
        let mut slot = self.metrics.lock();
        self.is_on.store(metrics.is_some(), Relaxed);
        *slot = metrics.map(Box::new);
    }

    /// Whether there are any.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// The metrics for one iteration of the PMD. It is left out if a control thread has them now.
    pub fn iteration(&self) -> Option<MappedMutexGuard<'_, PerfMetrics>> {
        MutexGuard::try_map(self.metrics.try_lock()?, |metrics| metrics.as_deref_mut()).ok()
    }

    /// Changes them, if there are any.
    pub fn change<T>(&self, change: impl FnOnce(&mut PerfMetrics) -> T) -> Option<T> {
        self.metrics.lock().as_deref_mut().map(change)
    }
}
