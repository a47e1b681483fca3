//! How much of a table is in use: little at first, more when flows put each other out.
//!
//! A million flows' worth of cache lines, each with one flow of a thousand, would take a thousand pages and lines; dense,
//! they take a few pages and stay in the first-level cache. The part in use is a number of low bits of the hash, so growing
//! is one assignment: some of the flows stay where they are, and the entries of the others are stale hints like any other,
//! to be put out before anything is decided again. Since most flows are lost with it, it grows to where they will fit at once.

/// Lines in use at first: 32 KiB.
const FIRST: usize = 512;

/// So many lookups may come for one flow that is put out.
const ASKED_A_LOSS: u32 = 64;

/// When an entry in so many lines was put out, it is asked how often that was.
const LINES_A_LOSS: usize = 2;

/// It grows to so many times the lines at most, as a power of two: of flows that come one after the other none may be
/// found though half of them would fit.
const STEPS_MAX: u32 = 4;

/// The part of a table of 2^k lines that is in use.
#[derive(Debug)]
pub(crate) struct Fill {
    /// Lines in use less one.
    mask: usize,
    /// Lines there are.
    lines: usize,
    /// Since the last decision.
    asked: u32,
    missed: u32,
    lost: u32,
    /// As many entries were put out since it grew as are needed to decide: what is counted now is of a table that is full.
    is_full: bool,
    /// Lines it would have taken at the last decision, had there been so many.
    wanted: usize,
}

impl Fill {
    /// Of a table with so many lines, a power of two (or 0).
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

    /// Counts a flow that is put out by another. Returns a number that turns, to choose it by: chosen by hash, two flows
    /// would put each other out beside entries that nobody asks for any more.
    #[inline]
    pub fn count_lost(&mut self) -> usize {
        self.lost += 1;
        self.lost as usize
    }

    /// Before an entry is put in: takes more lines into use if flows were put out often since it was last asked. How many
    /// it would take, if there are fewer.
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

    /// How many times it should double: of flows that are equally likely, the share that is found is the share that there
    /// is room for, and some lines get more flows than others.
    fn steps(&self) -> u32 {
        if self.lost <= self.asked / ASKED_A_LOSS {
            return 0;
        }
        let found = u64::from(self.asked.saturating_sub(self.missed));
        let needed = u64::from(self.asked) * 5 / 4;
        (1..STEPS_MAX).find(|steps| found << steps >= needed).unwrap_or(STEPS_MAX)
    }

    /// There are so many lines now: at least as many as before, a power of two.
    pub fn set_lines(&mut self, lines: usize) {
        self.lines = lines;
    }

    /// Whether it would take more lines into use than these.
    #[inline]
    pub fn is_short_of(&self, lines: usize) -> bool {
        self.lines < self.wanted.min(lines)
    }
}
