//! How often the exact match cache answers, window by window: what its adaptive policies learn from.

/// Lookups of a window.
pub(crate) const WINDOW: u32 = 4096;
/// If fewer of a window's lookups hit than this share, more flows are admitted than the cache can hold.
pub(crate) const HITS_LOW: f64 = 0.5;
/// If more hit than this share, the cache can hold more flows.
pub(crate) const HITS_HIGH: f64 = 0.9;
/// In one window of this many, more is admitted to see whether the traffic has changed.
pub(crate) const PROBE_EVERY: u32 = 16;

/// The window under way.
#[derive(Debug, Default)]
pub(crate) struct HitWindow {
    looked: u32,
    hits: u32,
    /// Windows that ended.
    ended: u32,
}

/// What a window that ended says.
pub(crate) struct WindowEnd {
    /// The share of its lookups that hit.
    pub hits: f64,
    /// Whether it is time to admit more, to see.
    pub probes: bool,
}

impl HitWindow {
    pub const NEW: HitWindow = HitWindow { looked: 0, hits: 0, ended: 0 };

    /// Counts lookups; returns what the window says if it ends with them.
    #[inline]
    pub fn push(&mut self, looked: usize, hits: usize) -> Option<WindowEnd> {
        self.looked += looked as u32;
        self.hits += hits as u32;
        (self.looked >= WINDOW).then(|| self.end())
    }

    #[cold]
    fn end(&mut self) -> WindowEnd {
        let hits = f64::from(self.hits) / f64::from(self.looked);
        (self.looked, self.hits, self.ended) = (0, 0, self.ended + 1);
        WindowEnd { hits, probes: self.ended.is_multiple_of(PROBE_EVERY) }
    }
}
