//! What an autopilot is doing, and why.

/// What an autopilot is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// The safe arm fills its cache, before all arms are compared.
    Warming,
    /// All arms are compared.
    Comparing,
    /// An arm fills its cache, which may make it the cheapest.
    Filling,
    /// The arm in charge is active.
    Cruising,
    /// One arm is compared with the one in charge.
    Trying,
    /// Load is too low to compare, or to gain from it.
    LowLoad,
    /// Other work takes the core too often to compare.
    OtherWork {
        /// The percentage of the time that it took lately, at most.
        percent: u8,
    },
}

/// Why the arm in charge is in charge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Why {
    /// Nothing has been measured yet.
    Start,
    /// There is no other arm.
    Forced,
    /// It was the cheapest of all, or the safe arm was near enough.
    Tournament,
    /// In a trial it was cheaper by this share than the arm before.
    Trial(f64),
    /// The traffic changes too often to measure: the safe choice.
    Unsteady,
    /// Bursts became fuller or emptier while arms were compared: the safe choice.
    Uneven,
}
