//! TCP: scripted exchanges, segment by segment.

use crate::scene::*;
use sluice_conntrack::{Ct, CtOutcome};
use sluice_testkit::plain_checksum::internet;

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    Client,
    Server,
}
use Sender::{Client, Server};

pub const FIN: u16 = 1;
pub const SYN: u16 = 2;
pub const RST: u16 = 4;
pub const ACK: u16 = 16;

/// A segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    pub from: Sender,
    pub flags: u16,
    pub seq: u32,
    pub ack: u32,
    pub window: u16,
    pub options: &'a [u8],
    pub payload: &'a [u8],
}

impl Segment<'_> {
    /// Its bytes, between the given hosts.
    pub fn frame_between(&self, client: (u8, u16), server: (u8, u16)) -> Vec<u8> {
        let (src, dst) = if self.from == Client { (client, server) } else { (server, client) };
        let frame = ip(false, src.0, dst.0).tcp(src.1, dst.1).tcp_flags(self.flags).tcp_options(self.options);
        let mut bytes = frame.payload(self.payload).build();
        let l4 = l4_at(&bytes);
        bytes[l4 + 4..l4 + 8].copy_from_slice(&self.seq.to_be_bytes());
        bytes[l4 + 8..l4 + 12].copy_from_slice(&self.ack.to_be_bytes());
        bytes[l4 + 14..l4 + 16].copy_from_slice(&self.window.to_be_bytes());
        bytes[l4 + 16..l4 + 18].copy_from_slice(&[0, 0]);
        let segment = &bytes[l4..];
        let pseudo = [&bytes[26..34], &[0, 6], &(segment.len() as u16).to_be_bytes()].concat();
        let sum = internet(&[&pseudo, segment].concat());
        bytes[l4 + 16..l4 + 18].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    pub fn frame(&self) -> Vec<u8> {
        self.frame_between((1, CLIENT), (2, SERVER))
    }
}

/// A segment without options, window 65535.
pub fn segment(from: Sender, flags: u16, seq: u32, ack: u32, payload: &[u8]) -> Segment<'_> {
    Segment { from, flags, seq, ack, window: 65535, options: &[], payload }
}

/// Client's and server's first sequence numbers: both wrap soon.
const C: u32 = u32::MAX - 50;
const S: u32 = u32::MAX - 20;

fn at(base: u32, n: i32) -> u32 {
    base.wrapping_add_signed(n)
}

fn play(scene: &mut Scene, segment: Segment<'_>, request: &Ct) -> String {
    scene.pass(&segment.frame(), request).state()
}

/// A scene after the handshake, client's SYN committed.
fn established() -> Scene {
    let mut scene = Scene::new();
    assert_eq!(play(&mut scene, segment(Client, SYN, C, 0, b""), &commit()), "new|trk");
    assert_eq!(play(&mut scene, segment(Server, SYN | ACK, S, at(C, 1), b""), &track()), "est|rpl|trk");
    assert_eq!(play(&mut scene, segment(Client, ACK, at(C, 1), at(S, 1), b""), &track()), "est|trk");
    scene
}

/// The states in `dump -m`.
fn states(scene: &Scene) -> String {
    let lines = scene.dump(true);
    let line = lines.first().map_or("", String::as_str);
    let from = line.find("state_orig=").map_or("", |at| &line[at + 11..]);
    let states: Vec<_> = from.split([',', '=']).collect();
    format!("{} {}", states.first().unwrap_or(&""), states.get(2).unwrap_or(&""))
}

#[test]
fn a_whole_conversation_and_the_next_one_between_the_same_ports() {
    let mut scene = established();
    assert_eq!(states(&scene), "ESTABLISHED ESTABLISHED");
    let data = [7; 100];
    let steps = [
        (segment(Client, ACK, at(C, 1), at(S, 1), &data), "est|trk", "ESTABLISHED ESTABLISHED"),
        (segment(Server, ACK, at(S, 1), at(C, 101), &data), "est|rpl|trk", "ESTABLISHED ESTABLISHED"),
        (segment(Client, FIN | ACK, at(C, 101), at(S, 101), b""), "est|trk", "CLOSING ESTABLISHED"),
        (segment(Server, ACK, at(S, 101), at(C, 102), b""), "est|rpl|trk", "FIN_WAIT_2 ESTABLISHED"),
        (segment(Server, FIN | ACK, at(S, 101), at(C, 102), b""), "est|rpl|trk", "FIN_WAIT_2 CLOSING"),
        (segment(Client, ACK, at(C, 102), at(S, 102), b""), "est|trk", "FIN_WAIT_2 FIN_WAIT_2"),
    ];
    for (segment, state, ends) in steps {
        assert_eq!(
            (play(&mut scene, segment, &track()).as_str(), states(&scene).as_str()),
            (state, ends),
            "{segment:?}"
        );
    }
    assert!(scene.dump(false)[0].ends_with("protoinfo=(state=TIME_WAIT)"));
    // The next SYN begins a new connection; without a commit, it only ends the old one.
    let again = segment(Client, SYN, 77, 0, b"").frame();
    let seen = scene.pass(&again, &commit());
    assert_eq!((seen.outcome, seen.state().as_str()), (CtOutcome::Committed, "new|trk"));
    assert_eq!(scene.dump(false).len(), 1);
}

#[test]
fn a_syn_after_the_close_ends_the_connection_though_nothing_is_committed() {
    let mut scene = established();
    assert_eq!(play(&mut scene, segment(Server, RST, at(S, 1), 0, b""), &track()), "est|rpl|trk");
    assert_eq!(states(&scene), "TIME_WAIT TIME_WAIT");
    assert_eq!(play(&mut scene, segment(Server, SYN, 5, 0, b""), &track()), "new|trk");
    assert_eq!(scene.dump(false).len(), 0);
}

#[test]
fn what_lies_outside_the_windows_is_invalid() {
    // The client's SYN does not count as sent: where it is, as far as the tracker knows, is C.
    let data = [7; 100];
    let cases = [
        ("ends beyond the window", segment(Client, ACK, at(C, 1 + 65535), at(S, 1), &data), false),
        ("ends at its edge", segment(Client, ACK, at(C, 1 + 65535 - 100), at(S, 1), &data), true),
        ("is sent again from a window back", segment(Client, ACK, at(C, -65535), at(S, 1), &data), true),
        ("from further back", segment(Client, ACK, at(C, -65536), at(S, 1), &data), false),
        ("acknowledges what was not sent", segment(Client, ACK, at(C, 1), at(S, 1 + 67036), b""), false),
        ("but nearly was", segment(Client, ACK, at(C, 1), at(S, 1 + 67035), b""), true),
        ("acknowledges long since", segment(Client, ACK, at(C, 1), at(S, 1 - 67036), b""), false),
        ("acknowledges some time since", segment(Client, ACK, at(C, 1), at(S, 1 - 67035), b""), true),
        ("resets at the edge", segment(Client, RST, at(C, 1), 0, b""), true),
        ("resets next to it", segment(Client, RST, at(C, 0), 0, b""), true),
        ("resets in the window", segment(Client, RST, at(C, 2), 0, b""), false),
        ("resets, acknowledging nothing", segment(Client, RST | ACK, at(C, 1), 0, b""), true),
    ];
    for (what, segment, is_good) in cases {
        let mut scene = established();
        let want = if is_good { "est|trk" } else { "inv|trk" };
        assert_eq!(play(&mut scene, segment, &track()), want, "{what}");
        // Unchecked, all are good.
        let mut scene = established();
        scene.ct.set_check_tcp_seq(false);
        assert!(!scene.ct.checks_tcp_seq());
        assert_eq!(play(&mut scene, segment, &track()), "est|trk", "{what}");
    }
}

#[test]
fn an_invalid_segment_neither_moves_the_state_nor_prolongs_the_connection() {
    let mut scene = established();
    scene.now_ms += 10_000;
    let before = (scene.dump(true), scene.now_ms);
    assert_eq!(play(&mut scene, segment(Client, FIN | ACK, at(C, 1_000_000), at(S, 1), b"x"), &track()), "inv|trk");
    assert_eq!((scene.dump(true), scene.now_ms), before);
    scene.now_ms += 24 * 3_600_000 - 10_000;
    assert_eq!(scene.dump(true).len(), 0);
}

#[test]
fn scaled_windows_count_only_if_both_ends_scale() {
    const SCALE: [u8; 4] = [1, 3, 3, 7];
    for (client, server, is_good) in [(true, true, true), (true, false, false), (false, true, false)] {
        let mut scene = Scene::new();
        let option = |has: bool| if has { &SCALE[..] } else { &[] };
        let syn = Segment { options: option(client), ..segment(Client, SYN, C, 0, b"") };
        let syn_ack = Segment { options: option(server), ..segment(Server, SYN | ACK, S, at(C, 1), b"") };
        play(&mut scene, syn, &commit());
        assert_eq!(play(&mut scene, syn_ack, &track()), "est|rpl|trk");
        assert_eq!(play(&mut scene, segment(Client, ACK, at(C, 1), at(S, 1), b""), &track()), "est|trk");
        // The server offers 65535 once more, now scaled; the client sends far beyond 64 KiB.
        assert_eq!(play(&mut scene, segment(Server, ACK, at(S, 1), at(C, 1), b""), &track()), "est|rpl|trk");
        let far = segment(Client, ACK, at(C, 1_000_000), at(S, 1), b"x");
        assert_eq!(play(&mut scene, far, &track()), if is_good { "est|trk" } else { "inv|trk" }, "{client} {server}");
    }
}

#[test]
fn a_connection_may_be_picked_up_in_the_middle_but_not_in_the_handshake() {
    let mut scene = Scene::new();
    assert_eq!(play(&mut scene, segment(Server, SYN | ACK, S, C, b""), &commit()), "inv|trk");
    for flags in [0, FIN, SYN | FIN, SYN | RST, 8 | SYN, 32, FIN | RST] {
        assert_eq!(play(&mut scene, segment(Client, flags, C, S, b""), &commit()), "inv|trk", "flags {flags}");
    }
    assert_eq!(play(&mut scene, segment(Client, ACK, C, S, b"data"), &commit()), "new|trk");
    assert!(scene.dump(true)[0].contains("flags_orig=BE_LIBERAL,flags_reply=BE_LIBERAL"));
    assert_eq!(play(&mut scene, segment(Server, ACK, S, at(C, 4), b"data"), &track()), "est|rpl|trk");
    assert_eq!(play(&mut scene, segment(Client, ACK, at(C, 4), at(S, 4), b"data"), &track()), "est|trk");
}

#[test]
fn a_syn_sent_again_stays_new_and_crossing_syns_do_too() {
    let mut scene = Scene::new();
    play(&mut scene, segment(Client, SYN, C, 0, b""), &commit());
    assert_eq!(play(&mut scene, segment(Client, SYN, C, 0, b""), &track()), "new|trk");
    assert_eq!(play(&mut scene, segment(Server, SYN, S, 0, b""), &track()), "new|trk");
    assert_eq!(states(&scene), "SYN_SENT SYN_SENT");
}

#[test]
fn each_stage_has_its_timeout() {
    let timeout = |scene: &Scene| {
        let mut seconds = 0;
        scene.ct.dump(&sluice_conntrack::Filter::default(), scene.now_ms, |entry| seconds = entry.timeout_s);
        seconds
    };
    let mut scene = Scene::new();
    play(&mut scene, segment(Client, SYN, C, 0, b""), &commit());
    assert_eq!(timeout(&scene), 30);
    play(&mut scene, segment(Server, SYN | ACK, S, at(C, 1), b""), &track());
    assert_eq!(timeout(&scene), 30);
    play(&mut scene, segment(Client, ACK, at(C, 1), at(S, 1), b""), &track());
    assert_eq!(timeout(&scene), 86_400);
    play(&mut scene, segment(Client, FIN | ACK, at(C, 1), at(S, 1), b""), &track());
    assert_eq!(timeout(&scene), 900);
    play(&mut scene, segment(Server, FIN | ACK, at(S, 1), at(C, 1), b""), &track());
    assert_eq!(timeout(&scene), 45);
    play(&mut scene, segment(Client, ACK, at(C, 2), at(S, 2), b""), &track());
    play(&mut scene, segment(Server, ACK, at(S, 2), at(C, 2), b""), &track());
    assert_eq!(timeout(&scene), 30);
}
