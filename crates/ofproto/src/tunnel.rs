//! The tunnel fields of a key, copied together.

use sluice_flow::layout::{self, Span};
use sluice_flow::{FlowKey, Line};

/// Tunnel fields in another line than the rest.
const ELSEWHERE: [Span; 8] = [
    layout::TUN_IPV4_SRC,
    layout::TUN_IPV4_DST,
    layout::TUN_TP_DST,
    layout::TUN_ERSPAN_VER,
    layout::TUN_ERSPAN_DIR,
    layout::TUN_ERSPAN_HWID,
    layout::TUN_GTPU_FLAGS,
    layout::TUN_GTPU_MSGTYPE,
];

/// Fields in the same line that are not part of a tunnel.
const LABELS: [Span; 3] = [layout::MPLS0, layout::MPLS1, layout::MPLS2];

/// The tunnel fields of a key or of a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tunnel {
    line: Line,
    options: Line,
    elsewhere: [u32; ELSEWHERE.len()],
}

impl Tunnel {
    /// No tunnel: all fields are zero.
    pub const NONE: Tunnel = Tunnel { line: Line::ZERO, options: Line::ZERO, elsewhere: [0; ELSEWHERE.len()] };

    pub fn of(key: &FlowKey) -> Self {
        let mut line = key.lines[layout::TUN_ID.line()];
        for label in LABELS {
            line.0[label.offset % 64..][..label.size].fill(0);
        }
        let options = key.lines[layout::TUN_OPTIONS.line()];
        Tunnel { line, options, elsewhere: ELSEWHERE.map(|span| key.number(span) as u32) }
    }

    /// Overwrites the tunnel fields of a key.
    pub fn put(self, key: &mut FlowKey) {
        let labels = LABELS.map(|span| key.number(span));
        key.lines[layout::TUN_ID.line()] = self.line;
        key.lines[layout::TUN_OPTIONS.line()] = self.options;
        LABELS.into_iter().zip(labels).for_each(|(span, label)| key.set_number(span, label));
        ELSEWHERE.into_iter().zip(self.elsewhere).for_each(|(span, value)| key.set_number(span, value.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_copied_without_other_fields() {
        let mut key = FlowKey::ZERO;
        for span in [layout::TUN_ID, layout::TUN_IPV4_DST, layout::TUN_GTPU_MSGTYPE, layout::MPLS1, layout::ND_RESERVED]
        {
            key.set_number(span, 7);
        }
        let mut other = FlowKey::ZERO;
        other.set_number(layout::MPLS2, 9);
        Tunnel::of(&key).put(&mut other);
        assert_eq!(Tunnel::of(&other), Tunnel::of(&key));
        assert_eq!([layout::TUN_ID, layout::TUN_IPV4_DST, layout::TUN_GTPU_MSGTYPE].map(|s| other.number(s)), [7; 3]);
        assert_eq!([layout::MPLS1, layout::MPLS2, layout::ND_RESERVED].map(|s| other.number(s)), [0, 9, 0]);
        Tunnel::NONE.put(&mut key);
        assert_eq!(Tunnel::of(&key), Tunnel::NONE);
        assert_eq!([layout::MPLS1, layout::ND_RESERVED].map(|s| key.number(s)), [7; 2]);
    }
}
