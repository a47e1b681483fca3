//! A packet of which some fragments are held, as it is shown.

use super::header::DatagramKey;

/// How far a packet has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The first fragment is there.
    pub has_first: bool,
    /// The last one is.
    pub has_last: bool,
}

/// A packet of which some fragments are held.
#[derive(Clone, Copy, Debug)]
pub struct FragmentList {
    pub(super) key: DatagramKey,
    /// How many.
    pub fragments: u32,
    /// Which.
    pub progress: Progress,
}

impl Progress {
    /// In the words of Open vSwitch. Source: OVS lib/ipf.c, ipf_state_name.
    pub fn name(self) -> &'static str {
        match (self.has_first, self.has_last) {
            (true, true) => "first/last frag",
            (true, false) => "first frag",
            (false, true) => "last frag",
            (false, false) => "other frag",
        }
    }
}
