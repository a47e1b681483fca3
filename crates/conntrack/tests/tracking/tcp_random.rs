//! Two correct TCP endpoints over a network that loses, repeats and reorders: nothing they send is ever invalid.

use crate::scene::*;
use crate::tcp::{ACK, FIN, SYN, Segment, Sender};
use proptest::prelude::*;
use std::collections::VecDeque;

/// One end. Windows are constant.
#[derive(Clone, Debug)]
struct End {
    first: u32,
    /// Everything below is acknowledged.
    acknowledged: u32,
    next: u32,
    /// The next sequence number that it expects.
    expects: u32,
    window: u16,
    has_fin: bool,
}

/// A segment on its way: sequence number, bytes, FIN, acknowledgement.
#[derive(Clone, Copy, Debug)]
struct Sent {
    seq: u32,
    len: u32,
    fin: bool,
    ack: u32,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Send { from: bool, len: u16 },
    Fin { from: bool },
    Again { from: bool, len: u16 },
    Deliver { to: bool, which: u8 },
    Lose { to: bool },
    Acknowledge { from: bool },
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (any::<bool>(), 1..1400u16).prop_map(|(from, len)| Act::Send { from, len }),
        1 => any::<bool>().prop_map(|from| Act::Fin { from }),
        2 => (any::<bool>(), 1..1400u16).prop_map(|(from, len)| Act::Again { from, len }),
        6 => (any::<bool>(), 0..3u8).prop_map(|(to, which)| Act::Deliver { to, which }),
        1 => any::<bool>().prop_map(|to| Act::Lose { to }),
        3 => any::<bool>().prop_map(|from| Act::Acknowledge { from }),
    ]
}

struct Net {
    scene: Scene,
    ends: [End; 2],
    wires: [VecDeque<Sent>; 2],
}

impl Net {
    /// The tracker sees the segment as it is sent; then it is on the wire.
    fn send(&mut self, from: usize, seq: u32, len: u32, fin: bool) -> Result<(), TestCaseError> {
        let end = &self.ends[from];
        let sent = Sent { seq, len, fin, ack: end.expects };
        let payload = vec![0; len as usize];
        let flags = ACK | if fin { FIN } else { 0 };
        let who = if from == 0 { Sender::Client } else { Sender::Server };
        let segment =
            Segment { from: who, flags, seq, ack: sent.ack, window: end.window, options: &[], payload: &payload };
        let state = self.scene.pass(&segment.frame(), &track()).state();
        prop_assert_eq!(state, if from == 0 { "est|trk" } else { "est|rpl|trk" }, "{:?} of {:?}", sent, self.ends);
        self.wires[1 - from].push_back(sent);
        Ok(())
    }

    fn room(&self, from: usize) -> u32 {
        let end = &self.ends[from];
        u32::from(self.ends[1 - from].window).saturating_sub(end.next.wrapping_sub(end.acknowledged))
    }

    fn play(&mut self, act: Act) -> Result<(), TestCaseError> {
        match act {
            Act::Send { from, len } => {
                let from = usize::from(from);
                let len = u32::from(len).min(self.room(from));
                let seq = self.ends[from].next;
                if len > 0 && !self.ends[from].has_fin {
                    self.ends[from].next = seq.wrapping_add(len);
                    self.send(from, seq, len, false)?;
                }
            }
            Act::Fin { from } => {
                let from = usize::from(from);
                let seq = self.ends[from].next;
                if self.room(from) > 0 && !self.ends[from].has_fin {
                    (self.ends[from].has_fin, self.ends[from].next) = (true, seq.wrapping_add(1));
                    self.send(from, seq, 0, true)?;
                }
            }
            Act::Again { from, len } => {
                let from = usize::from(from);
                let end = self.ends[from].clone();
                let data = end.next.wrapping_sub(end.acknowledged).saturating_sub(u32::from(end.has_fin));
                if data > 0 {
                    self.send(from, end.acknowledged, data.min(u32::from(len)), false)?;
                }
            }
            Act::Acknowledge { from } => {
                let from = usize::from(from);
                self.send(from, self.ends[from].next, 0, false)?;
            }
            Act::Lose { to } => drop(self.wires[usize::from(to)].pop_front()),
            Act::Deliver { to, which } => self.deliver(usize::from(to), usize::from(which)),
        }
        Ok(())
    }

    fn deliver(&mut self, to: usize, which: usize) {
        let Some(sent) = self.wires[to].remove(which) else { return };
        let end = &mut self.ends[to];
        if sent.ack.wrapping_sub(end.acknowledged) as i32 > 0 {
            end.acknowledged = sent.ack;
        }
        let last = sent.seq.wrapping_add(sent.len).wrapping_add(u32::from(sent.fin));
        let begins_in_order = sent.seq.wrapping_sub(end.expects) as i32 <= 0;
        if begins_in_order && last.wrapping_sub(end.expects) as i32 > 0 {
            end.expects = last;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn sound_traffic_is_valid(
        acts in prop::collection::vec(act(), 1..150),
        firsts in any::<[u32; 2]>(),
        windows in [2000..65535u16, 2000..65535u16],
    ) {
        let mut scene = Scene::new();
        let segment = |from, flags, seq, ack, window| Segment { from, flags, seq, ack, window, options: &[], payload: &[] };
        let [c, s] = firsts;
        let (c1, s1) = (c.wrapping_add(1), s.wrapping_add(1));
        scene.pass(&segment(Sender::Client, SYN, c, 0, windows[0]).frame(), &commit());
        scene.pass(&segment(Sender::Server, SYN | ACK, s, c1, windows[1]).frame(), &track());
        let seen = scene.pass(&segment(Sender::Client, ACK, c1, s1, windows[0]).frame(), &track());
        prop_assert_eq!(seen.state(), "est|trk");
        let end = |first: u32, expects, window| End { first, acknowledged: first, next: first, expects, window, has_fin: false };
        let ends = [end(c1, s1, windows[0]), end(s1, c1, windows[1])];
        let mut net = Net { scene, ends, wires: Default::default() };
        for act in acts {
            net.play(act)?;
        }
        // And what is far from it is not.
        if !net.ends.iter().any(|end| end.has_fin) {
            let far = net.ends[0].first.wrapping_add(1 << 30);
            let stray = Segment { payload: b"x", ..segment(Sender::Client, ACK, far, net.ends[0].expects, 100) };
            prop_assert_eq!(net.scene.pass(&stray.frame(), &track()).state(), "inv|trk");
        }
    }
}
