//! Other work on a PMD's core: threads, and what the host of a virtual machine does, that take the core from the PMD.
//!
//! The packets under way are charged with that time, and the bursts that follow are fuller than the traffic makes them. So a
//! chunk that was interrupted is not compared, and on a core that others take again and again nothing is tried or claimed.
//!
//! The measure is the time that the thread itself ran or chose to sleep, beside the time that passed.

/// A chunk is interrupted if others took this share of the time that its packets took.
const INTERRUPTED: f64 = 1.0 / 16.0;
/// Shares of the time from which on, and below which, the core counts as taken. Others that need a thousandth, as the
/// kernel's own threads do, are left to the median of several chunks.
const TAKEN: f64 = 0.03;
const GIVEN_BACK: f64 = 0.015;
/// How long the shares are measured for. The first tournament waits for the first measurement.
const WINDOW_MS: u64 = 64;
/// Measurements in a row that give the core back.
const IN_A_ROW: u32 = 4;
/// What is left of the largest share after another measurement.
const FADING: f64 = 0.75;

/// How much others take of the core, decided from chunks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OtherWork {
    /// The thread's own time at the end of the last chunk.
    own_time: Option<u64>,
    /// Time that passed, and what others took of it, since the last measurement.
    elapsed: u64,
    taken: u64,
    /// The largest share that others took lately.
    worst: f64,
    takes_core: bool,
    is_measured: bool,
    /// Measurements in a row that would give the core back.
    quiet: u32,
}

impl OtherWork {
    /// Takes the cycles of a chunk, the time from the one before, and the thread's own time at its end. Returns whether the
    /// chunk was interrupted.
    pub fn push(&mut self, cycles: u64, elapsed: u64, own_time: u64, ms: u64) -> bool {
        let Some(before) = self.own_time.replace(own_time) else { return false };
        // A queue that another PMD polls from now on brings the time of another thread along.
        let Some(own) = own_time.checked_sub(before) else { return true };
        let taken = elapsed.saturating_sub(own);
        self.elapsed += elapsed;
        self.taken += taken;
        if self.elapsed >= WINDOW_MS * ms {
            self.measure();
        }
        taken as f64 > INTERRUPTED * cycles as f64
    }

    fn measure(&mut self) {
        let share = self.taken as f64 / self.elapsed as f64;
        self.worst = share.max(self.worst * FADING);
        (self.elapsed, self.taken, self.is_measured) = (0, 0, true);
        self.quiet = if share < GIVEN_BACK { self.quiet + 1 } else { 0 };
        self.takes_core = share > TAKEN || self.takes_core && self.quiet < IN_A_ROW;
    }

    /// Whether it is known what others take.
    pub fn is_measured(&self) -> bool {
        self.is_measured
    }

    /// Whether others take the core again and again.
    pub fn takes_core(&self) -> bool {
        self.takes_core
    }

    /// The percentage of the time that others took lately, at most.
    pub fn percent(&self) -> u8 {
        (self.worst * 100.0).round() as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunks of half a millisecond with a thousand cycles a millisecond; others take this many cycles of each.
    fn run(other: &mut OtherWork, own_time: &mut u64, taken: &[u64]) -> Vec<bool> {
        let mut push = |taken: &u64| {
            *own_time += 500;
            other.push(400, 500 + taken, *own_time, 1000)
        };
        taken.iter().map(&mut push).collect()
    }

    #[test]
    fn an_interrupted_chunk_is_told_from_one_that_was_not() {
        let (mut other, mut own_time) = (OtherWork::default(), 0);
        assert_eq!(
            run(&mut other, &mut own_time, &[9000, 0, 20, 30, 0, 3000]),
            [false, false, false, true, false, true]
        );
        own_time = 0;
        assert_eq!(run(&mut other, &mut own_time, &[0, 0]), [true, false], "another thread's time");
    }

    #[test]
    fn the_core_is_taken_while_others_take_some_hundredths_of_it() {
        let (mut other, mut own_time) = (OtherWork::default(), 0);
        run(&mut other, &mut own_time, &[3; 200]);
        assert!(!other.takes_core(), "less than a hundredth");
        // Every eighth chunk loses three milliseconds.
        run(&mut other, &mut own_time, &[3000, 0, 0, 0, 0, 0, 0, 0].repeat(20));
        assert!(other.takes_core());
        assert!((35..50).contains(&other.percent()), "{}", other.percent());
        run(&mut other, &mut own_time, &[0; 300]);
        assert!(other.takes_core(), "not yet");
        run(&mut other, &mut own_time, &[0; 400]);
        assert!(!other.takes_core());
    }
}
