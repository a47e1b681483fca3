//! Whether a frame's length is within a port's MTU.

/// Ethernet header: two addresses and the type.
pub(crate) const ETHERNET_HEADER: usize = 14;
/// One VLAN tag.
const TAG: usize = 4;
/// Where the Ethernet type is without tags.
const TYPE_AT: usize = 12;

/// The longest packet of a port, without Ethernet header and up to two VLAN tags. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mtu(pub u32);

impl Mtu {
    /// The longest frame that may be admitted.
    pub const fn longest_frame(self) -> usize {
        self.0 as usize + ETHERNET_HEADER + 2 * TAG
    }

    /// The longest frame that is always admitted.
    #[inline]
    pub const fn always_admitted(self) -> usize {
        self.0 as usize + ETHERNET_HEADER
    }

    /// Whether `frame` is admitted.
    #[inline]
    pub fn admits(self, frame: &[u8]) -> bool {
        self.admits_segment(frame, frame.len())
    }

    /// Whether a frame of `len` bytes is admitted that begins as `frame` does.
    #[inline]
    pub fn admits_segment(self, frame: &[u8], len: usize) -> bool {
        let untagged = self.always_admitted();
        len <= untagged || len <= untagged + tags(frame)
    }
}

/// Bytes of VLAN tags, up to two.
#[cold]
fn tags(frame: &[u8]) -> usize {
    let is_tag = |at: usize| matches!(frame.get(at..at + 2), Some([0x81, 0x00] | [0x88, 0xa8]));
    match (is_tag(TYPE_AT), is_tag(TYPE_AT + TAG)) {
        (false, _) => 0,
        (true, false) => TAG,
        (true, true) => 2 * TAG,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_do_not_count() {
        let frame = |len: usize, types: &[u8]| {
            let mut frame = vec![0; len];
            frame[TYPE_AT..TYPE_AT + types.len()].copy_from_slice(types);
            Mtu(1500).admits(&frame)
        };
        assert!(frame(1514, &[8, 0]) && !frame(1515, &[8, 0]));
        assert!(frame(1518, &[0x81, 0, 0, 1]) && !frame(1519, &[0x81, 0, 0, 1]));
        assert!(frame(1522, &[0x88, 0xa8, 0, 1, 0x81, 0]) && !frame(1523, &[0x88, 0xa8, 0, 1, 0x81, 0]));
        assert!(!frame(1522, &[8, 0, 0, 1, 0x81, 0]));
        assert!(Mtu(1500).admits(&[]) && !Mtu(0).admits(&[0; 15]));
        assert_eq!(Mtu(9000).longest_frame(), 9022);
    }
}
