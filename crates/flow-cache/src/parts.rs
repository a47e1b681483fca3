//! How a hash table grows without being moved: it is made of parts, of which one at a time is split in two.
//!
//! A table that doubles at once holds up its thread for as long as it takes to move all of it: 15 ms with 700,000
//! megaflows (`benches/growth`). Source: Litwin, Linear hashing, VLDB 1980.

/// The parts of a hash table, selected by a number from an entry's hash.
///
/// Shape:  between `round` and twice as many parts, `round` being a power of two. In a round the first `round` parts are
///         split one after another; part `at` and its new half, part `at + round`, then differ in one bit of the number.
#[derive(Debug)]
pub(crate) struct Parts<P> {
    parts: Vec<P>,
    round: usize,
}

impl<P: Default> Default for Parts<P> {
    fn default() -> Self {
        Parts { parts: vec![P::default()], round: 1 }
    }
}

impl<P> Parts<P> {
    /// The part, as long as there is one alone.
    #[inline(always)]
    pub fn only(&self) -> Option<&P> {
        if let [part] = &self.parts[..] { Some(part) } else { None }
    }

    /// The part of an entry's number.
    #[inline(always)]
    pub fn of(&self, number: u32) -> &P {
        let at = number as usize & (2 * self.round - 1);
        // A number of a half that is not split off yet.
        self.parts.get(at).unwrap_or_else(|| &self.parts[at - self.round])
    }

    /// [`Parts::of`], to be changed.
    #[inline]
    pub fn of_mut(&mut self, number: u32) -> &mut P {
        let at = number as usize & (2 * self.round - 1);
        let at = if at < self.parts.len() { at } else { at - self.round };
        &mut self.parts[at]
    }

    /// All parts.
    pub fn iter(&self) -> impl Iterator<Item = &P> {
        self.parts.iter()
    }

    /// Splits the next part if that is due with `len` entries, given the slots of a part. `split` takes those entries out
    /// of the part for whose numbers the function is true, and returns them as a new part.
    ///
    /// The first part of a round is split when it is 9/16 full, the last when it is 3/4 full (as is the only one); so all
    /// together are never less than 3/8 full, but for entries that were removed.
    #[inline]
    pub fn split_if_due(&mut self, len: usize, slots: usize, split: impl FnOnce(&mut P, &dyn Fn(u32) -> bool) -> P) {
        if 16 * len > 3 * slots * (self.parts.len() + 1 + 2 * self.round) {
            let (round, next) = (self.round, self.parts.len() - self.round);
            let half = split(&mut self.parts[next], &|number| number as usize & round != 0);
            self.parts.push(half);
            if self.parts.len() == 2 * round {
                self.round = self.parts.len();
            }
        }
    }
}
