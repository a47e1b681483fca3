//! How much of a table is used: little at first, more when flows replace each other.
//!
//! A table for a million flows that holds a thousand would spread them over a thousand pages and cache lines. Dense,
//! they take a few pages and stay in the first-level cache. The used part is given by a number of low bits of the hash,
//! so growing is one assignment. Some flows then stay in place; the entries of the others become stale hints like any
//! other, and are replaced before the next decision. Since growing loses most flows, the table grows at once to the
//! size that fits.

/// Lines in use at first: 32 KiB.
const FIRST: usize = 512;

/// The table grows if more than one flow is replaced in this many lookups. Such a flow is searched for, which costs some
/// twenty times what a hit does.
const ASKED_A_LOSS: u32 = 256;

/// The table decides after one entry was replaced in this many lines.
const LINES_A_LOSS: usize = 2;

/// At most this many doublings at once: when flows come one after the other, none may be found although half would fit.
const STEPS_MAX: u32 = 4;

/// The part of a table of 2^k lines that is in use.
#[derive(Debug)]
pub(crate) struct Fill {
    /// Lines in use less one.
    mask: usize,
    /// Lines there are.
    lines: usize,
    /// Counts since the last decision.
    asked: u32,
    missed: u32,
    lost: u32,
    /// The counts are those of a full table: since the table last grew, enough entries were replaced to decide.
    is_full: bool,
    /// Lines that the last decision asked for, even if there are fewer.
    wanted: usize,
}

impl Fill {
    /// For a table of `lines` lines, a power of two (or 0).
    pub fn new(lines: usize) -> Self {
        Fill { mask: lines.min(FIRST).wrapping_sub(1), lines, asked: 0, missed: 0, lost: 0, is_full: false, wanted: 0 }
    }

    /// Lines in use less one.
    #[inline(always)]
    pub fn mask(&self) -> usize {
        self.mask
    }

    /// Counts lookups.
    #[inline(always)]
    pub fn count_asked(&mut self, n: usize) {
        self.asked = self.asked.saturating_add(n as u32);
    }

    /// Counts a flow that another replaces. Returns a rotating number to choose the victim by: chosen by hash, two
    /// flows would replace each other beside entries that nobody uses any more.
    #[inline]
    pub fn count_lost(&mut self) -> usize {
        self.lost += 1;
        self.lost as usize
    }

    /// Called before an insertion: uses more lines if flows were replaced often since the last decision. Returns the
    /// number of lines that it needs if the table has fewer.
    #[inline]
    pub fn grow(&mut self) -> Option<usize> {
        self.missed = self.missed.saturating_add(1);
        if self.lost as usize * LINES_A_LOSS <= self.mask.wrapping_add(1) {
            return None;
        }
        let steps = if self.is_full { self.steps() } else { 0 };
        self.is_full = steps == 0;
        self.wanted = (self.mask + 1) << steps;
        self.mask = self.wanted.min(self.lines) - 1;
        (self.asked, self.missed, self.lost) = (0, 0, 0);
        (self.wanted > self.lines).then_some(self.wanted)
    }

    /// How many times to double. If all flows are equally likely, the share found is the share that fits; a quarter is
    /// added, since some lines get more flows than others.
    fn steps(&self) -> u32 {
        if self.lost <= self.asked / ASKED_A_LOSS {
            return 0;
        }
        let found = u64::from(self.asked.saturating_sub(self.missed));
        let needed = u64::from(self.asked) * 5 / 4;
        (1..STEPS_MAX).find(|steps| found << steps >= needed).unwrap_or(STEPS_MAX)
    }

    /// Sets the number of lines: at least as many as before, a power of two.
    pub fn set_lines(&mut self, lines: usize) {
        self.lines = lines;
    }

    /// Whether it needs more lines than it has, up to `lines`.
    #[inline]
    pub fn is_short_of(&self, lines: usize) -> bool {
        self.lines < self.wanted.min(lines)
    }
}
