//! A guest's memory, as its frontend shares it: regions mapped once, addresses resolved with two comparisons.
//!
//! A [`GuestMemory`] holds the mappings of one memory table; whatever refers to them keeps it alive. The frontend may
//! replace the table at any time: rings then continue with a new one. A [`View`] is one ring's access to buffers. It
//! remembers the region of the last address, which nearly always is the region of the next one, too. The rings
//! themselves are [`Shared`] arrays of atomic words, resolved once when a ring starts.
//!
//! The guest may write its memory at any time, so what is read is copied first and examined then.

#[allow(unsafe_code)]
mod sys;

pub use sys::{DirtyLog, GuestMemory, Shared, View};

/// An address that the guest's memory does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outside;

/// A memory region as a frontend describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionInfo {
    /// The guest's address of its first byte.
    pub guest: u64,
    /// The frontend's address of the same byte.
    pub user: u64,
    pub size: u64,
    /// Where it begins in its file.
    pub offset: u64,
}

impl RegionInfo {
    /// The guest's address for a frontend's address, if the region has it.
    fn guest_address(&self, user: u64) -> Option<u64> {
        let offset = user.checked_sub(self.user)?;
        (offset < self.size).then_some(self.guest + offset)
    }

    /// Whether it has the `len` bytes at this guest address.
    #[inline]
    fn has(&self, address: u64, len: u64) -> bool {
        let offset = address.wrapping_sub(self.guest);
        offset < self.size && len <= self.size - offset
    }
}

#[cfg(test)]
mod tests;
