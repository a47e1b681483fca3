//! How much of a table is in use: little at first, twice as much when flows put each other out.
//!
//! A million flows' worth of cache lines, each with one flow of a thousand, would take a thousand pages and lines; dense,
//! they take a few pages and stay in the first-level cache. The table's memory is there from the start, and the part in
//! use is a number of low bits of the hash, so growing is one assignment: half of the flows stay where they are, and
//! the entries of the others are stale hints like any other, to be put out before anything is decided again.

/// Lines in use at first: 32 KiB.
const FIRST: usize = 512;

/// So many lookups may come for one flow that is put out.
const ASKED_A_LOSS: u32 = 64;

/// So many entries a line are put out before it is asked how often that was.
const LOST_A_LINE: usize = 4;

/// The part of a table of 2^k lines that is in use.
#[derive(Debug)]
pub(crate) struct Fill {
    /// Lines in use less one.
    mask: usize,
    /// Lines there are.
    lines: usize,
    /// Since the last decision.
    asked: u32,
    lost: u32,
    /// What is put out now may be what growing left behind.
    grown: bool,
    /// It would have grown, had there been more lines.
    is_short: bool,
}

impl Fill {
    /// Of a table with so many lines, a power of two (or 0).
    pub fn new(lines: usize) -> Self {
        Fill { mask: lines.min(FIRST).wrapping_sub(1), lines, asked: 0, lost: 0, grown: false, is_short: false }
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

    /// Counts a flow that is put out by another. Returns a number that turns, to choose it by: chosen by hash, two flows
    /// would put each other out beside entries that nobody asks for any more.
    #[inline]
    pub fn count_lost(&mut self) -> usize {
        self.lost += 1;
        self.lost as usize
    }

    /// Before an entry is put in: takes more lines into use if flows were put out often since it was last asked. True if
    /// it would take more than there are.
    #[inline]
    pub fn grow(&mut self) -> bool {
        if self.lost as usize <= LOST_A_LINE * self.mask.wrapping_add(1) {
            return false;
        }
        let often = self.asked / ASKED_A_LOSS < self.lost && !self.grown;
        self.grown = often && self.mask + 1 < self.lines;
        if self.grown {
            self.mask = self.mask * 2 + 1;
        }
        self.is_short = often && !self.grown;
        (self.asked, self.lost) = (0, 0);
        self.is_short
    }

    /// There are so many lines now: at least as many as before, a power of two.
    pub fn set_lines(&mut self, lines: usize) {
        self.lines = lines;
    }

    /// Whether it would take more lines into use than these.
    #[inline]
    pub fn is_short_of(&self, lines: usize) -> bool {
        self.is_short && self.lines < lines
    }
}
