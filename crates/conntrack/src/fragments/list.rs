//! A packet with held fragments, as commands show it.

use super::header::DatagramKey;

/// Which ends of a packet are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The first fragment is held.
    pub has_first: bool,
    /// The last one is held.
    pub has_last: bool,
}

/// A packet of which some fragments are held.
#[derive(Clone, Copy, Debug)]
pub struct FragmentList {
    pub(super) key: DatagramKey,
    /// The number of held fragments.
    pub fragments: u32,
    /// Which ends are held.
    pub progress: Progress,
}

impl Progress {
    /// Open vSwitch's name for it. Source: OVS lib/ipf.c, ipf_state_name.
    pub fn name(self) -> &'static str {
        match (self.has_first, self.has_last) {
            (true, true) => "first/last frag",
            (true, false) => "first frag",
            (false, true) => "last frag",
            (false, false) => "other frag",
        }
    }
}
