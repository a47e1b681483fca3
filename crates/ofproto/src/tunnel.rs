//! The tunnel fields of a key, copied together.

use sluice_flow::layout::{self, Span};
use sluice_flow::{FlowKey, LINE_SIZE, Line, TunMetadata};

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

/// The bits of these fields in their line.
const LABEL_BITS: Line = {
    let (mut bits, mut i) = (Line::ZERO, 0);
    while i < LABELS.len() {
        let mut byte = 0;
        while byte < LABELS[i].size {
            bits.0[LABELS[i].offset % LINE_SIZE + byte] = 0xff;
            byte += 1;
        }
        i += 1;
    }
    bits
};

/// The tunnel fields of a key or of a mask.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tunnel {
    line: Line,
    options: TunMetadata,
    elsewhere: [u32; ELSEWHERE.len()],
}

impl Tunnel {
    /// No tunnel: all fields are zero.
    pub const NONE: Tunnel = Tunnel { line: Line::ZERO, options: TunMetadata::NONE, elsewhere: [0; ELSEWHERE.len()] };

    pub fn of(key: &FlowKey) -> Self {
        let mut line = key.lines[layout::TUN_ID.line()];
        for label in LABELS {
            line.0[label.offset % 64..][..label.size].fill(0);
        }
        let options = key.tun_metadata.clone();
        Tunnel { line, options, elsewhere: ELSEWHERE.map(|span| key.number(span) as u32) }
    }

    /// Overwrites the tunnel fields of a key.
    pub fn put(self, key: &mut FlowKey) {
        let line = &mut key.lines[layout::TUN_ID.line()];
        *line = line.and(&LABEL_BITS).or(&self.line);
        key.tun_metadata = self.options;
        // One by one, with spans that the compiler knows: in a loop each took tens of instructions, and every translation
        // comes here.
        let ([a, b, c, d, e, f, g, h], values) = (ELSEWHERE, self.elsewhere.map(u64::from));
        key.set_number(a, values[0]);
        key.set_number(b, values[1]);
        key.set_number(c, values[2]);
        key.set_number(d, values[3]);
        key.set_number(e, values[4]);
        key.set_number(f, values[5]);
        key.set_number(g, values[6]);
        key.set_number(h, values[7]);
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
