//! How many VLAN tags of a packet are read.

/// The VLAN tags that a key can hold; further tags are payload.
pub const VLANS_MAX: usize = 2;

/// How many VLAN tags of a packet are read as tags. The type behind them is then that of a VLAN, and what follows is
/// payload: no field of IP can be matched.
///
/// Open vSwitch's `other_config:vlan-limit`. Its default is one, for rules written before it knew of second tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VlanLimit(u8);

impl VlanLimit {
    /// As many as a key holds.
    pub const MAX: VlanLimit = VlanLimit(VLANS_MAX as u8);

    /// What a setting means: 0 and numbers above the tags that a key holds mean as many as it holds.
    pub const fn from_setting(setting: u64) -> Self {
        if setting == 0 || setting > VLANS_MAX as u64 { VlanLimit::MAX } else { VlanLimit(setting as u8) }
    }

    /// The limit for a packet that has got `pushed` tags since it was read, or has lost them if negative: tags that
    /// were not read before are still not read.
    #[inline]
    pub const fn after_push(self, pushed: i8) -> Self {
        VlanLimit(self.0.saturating_add_signed(pushed))
    }

    /// The number of tags.
    #[inline]
    pub const fn tags(self) -> usize {
        self.0 as usize
    }
}

impl Default for VlanLimit {
    fn default() -> Self {
        VlanLimit(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_of_zero_means_all() {
        let tags = |setting| VlanLimit::from_setting(setting).tags();
        assert_eq!([0, 1, 2, 3, u64::MAX].map(tags), [2, 1, 2, 2, 2]);
        assert_eq!(VlanLimit::default().tags(), 1);
    }

    #[test]
    fn pushed_and_popped_tags_move_it() {
        let one = VlanLimit::default();
        assert_eq!([1, 0, -1, -2, i8::MIN].map(|pushed| one.after_push(pushed).tags()), [2, 1, 0, 0, 0]);
        assert_eq!(VlanLimit::MAX.after_push(i8::MAX).tags(), 129);
    }
}
