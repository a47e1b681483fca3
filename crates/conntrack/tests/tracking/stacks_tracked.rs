//! Conversations of real TCP stacks: nothing they send is ever invalid, and each connection is seen to begin and to end.

use crate::scene::*;
use crate::stacks::{Conversation, Sight};
use proptest::prelude::*;

/// A segment in words, and what was said of it.
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn sound_stacks_are_never_invalid(seed: u64) {
        let mut scene = Scene::new();
        let began_ms = scene.now_ms;
        let mut history = Vec::new();
        let is_whole = Conversation::new(seed, CLIENT).play(|sight| {
            scene.now_ms = began_ms + sight.at_ms;
            let frame = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0], sight.packet].concat();
            let state = scene.pass(&frame, &commit()).state();
            history.push(told(&sight, &state));
            let is_right = !state.contains("inv") && (state == "new|trk" || state.contains("rpl") != sight.from_client);
            assert!(is_right, "{}", history[history.len().saturating_sub(25)..].join("\n"));
        });
        prop_assert!(is_whole, "{}", history[history.len().saturating_sub(25)..].join("\n"));
        prop_assert!(history.iter().any(|line| line.contains("est|rpl")), "{history:?}");
        let dump = scene.dump(false);
        prop_assert!(dump.iter().all(|line| line.contains("TIME_WAIT")) && dump.len() == 1, "{dump:?}");
    }
}
