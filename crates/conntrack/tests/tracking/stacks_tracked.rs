//! Conversations of real TCP stacks: nothing they send is ever invalid, and each connection is seen to begin and to
//! end.

use crate::scene::*;
use crate::stacks::{Conversation, Sight};
use proptest::prelude::*;

/// A segment as text, and its state.
fn told(sight: &Sight<'_>, state: &str) -> String {
    let (who, p) = (if sight.from_client { "client" } else { "server" }, sight.packet);
    let number = |at: usize| u32::from_be_bytes(*p[at..].first_chunk().expect("a TCP header"));
    let payload = p.len() - 20 - usize::from(p[32] >> 4) * 4;
    let (flags, window) = (p[33], u16::from_be_bytes([p[34], p[35]]));
    format!(
        "{} ms {who} seq={} ack={} flags={flags:#x} window={window} {payload} bytes: {state}",
        sight.at_ms,
        number(24),
        number(28)
    )
}

/// The room that each end has offered.
#[derive(Default)]
struct Windows {
    /// One past the last sequence number that client and server may send.
    ends: [Option<u32>; 2],
    shifts: [Option<u8>; 2],
}

impl Windows {
    /// Whether a segment is within what its receiver has offered; and updates the offer of its sender. smoltcp
    /// sometimes sends more than that when it retransmits.
    fn admit(&mut self, sight: &Sight<'_>) -> bool {
        let (p, from) = (sight.packet, usize::from(!sight.from_client));
        let number = |at: usize| u32::from_be_bytes(*p[at..].first_chunk().expect("a TCP header"));
        let (header, flags) = (usize::from(p[32] >> 4) * 4, p[33]);
        let end = number(24).wrapping_add((p.len() - 20 - header) as u32);
        let fits = self.ends[from].is_none_or(|last| last.wrapping_sub(end) as i32 >= 0);
        let is_syn = flags & 2 != 0;
        if is_syn {
            self.shifts[from] = p[40..20 + header].windows(3).find(|o| o[..2] == [3, 3]).map(|o| o[2]);
        }
        if flags & 0x10 != 0 {
            let shift = if is_syn { 0 } else { self.shifts[0].and(self.shifts[1]).and(self.shifts[from]).unwrap_or(0) };
            let last = number(28).wrapping_add(u32::from(u16::from_be_bytes([p[34], p[35]])) << shift);
            let known = &mut self.ends[1 - from];
            *known = Some(known.filter(|known| known.wrapping_sub(last) as i32 >= 0).unwrap_or(last));
        }
        fits
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn sound_stacks_are_never_invalid(seed: u64) {
        let mut scene = Scene::new();
        let began_ms = scene.now_ms;
        let (mut history, mut windows) = (Vec::new(), Windows::default());
        let is_whole = Conversation::new(seed, CLIENT).play(|sight| {
            scene.now_ms = began_ms + sight.at_ms;
            let frame = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0], sight.packet].concat();
            let state = scene.pass(&frame, &commit()).state();
            history.push(told(&sight, &state));
            let is_sound = windows.admit(&sight);
            let is_right = !is_sound || !state.contains("inv") && (state == "new|trk" || state.contains("rpl") != sight.from_client);
            assert!(is_right, "{}", history[history.len().saturating_sub(25)..].join("\n"));
        });
        prop_assert!(is_whole, "{}", history[history.len().saturating_sub(25)..].join("\n"));
        prop_assert!(history.iter().any(|line| line.contains("est|rpl")), "{history:?}");
        let dump = scene.dump(false);
        prop_assert!(dump.iter().all(|line| line.contains("TIME_WAIT")) && dump.len() == 1, "{dump:?}");
    }
}
