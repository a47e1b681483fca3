//! Two sessions that talk to each other over a link that loses and delays packets, and one session beside a plain table
//! of RFC 5880's state machine.

use proptest::prelude::*;
use sluice_bfd::{Config, ControlPacket, FRAME_LEN, MAX_TTL, PACKET_LEN, Session, State};
use std::collections::VecDeque;

/// The step of the simulation, ms.
const STEP_MS: u64 = 10;

/// A session and what is on its way to it.
struct End {
    session: Session,
    coming: VecDeque<(u64, [u8; FRAME_LEN])>,
}

struct Pair {
    ends: [End; 2],
    now_ms: u64,
    delay_ms: u64,
    /// What the ports have received.
    received: u64,
}

impl Pair {
    fn new(configs: [Config; 2], delay_ms: u64) -> Self {
        let end = |config, number: u16| End {
            session: Session::new("p", config, 0x1234_0000 + u32::from(number), number, 1000),
            coming: VecDeque::new(),
        };
        let [one, two] = configs;
        Pair { ends: [end(one, 1), end(two, 2)], now_ms: 1000, delay_ms, received: 0 }
    }

    /// Lets time pass; `loses(from, count)` says whether that packet of an end is lost.
    fn run(&mut self, span_ms: u64, mut loses: impl FnMut(usize) -> bool) {
        let until = self.now_ms + span_ms;
        while self.now_ms < until {
            self.now_ms += STEP_MS;
            for i in 0..2 {
                self.step(i, &mut loses);
            }
        }
    }

    fn step(&mut self, i: usize, loses: &mut impl FnMut(usize) -> bool) {
        let (now, received) = (self.now_ms, self.received);
        let End { session, coming } = &mut self.ends[i];
        while let Some((_, frame)) = coming.pop_front_if(|(at, _)| *at <= now) {
            session.receive(MAX_TTL, &frame[FRAME_LEN - PACKET_LEN..], received, now);
        }
        session.run(received, now);
        if let Some(frame) = session.send([0; 6], now) {
            let packet = ControlPacket::decode(&frame[FRAME_LEN - PACKET_LEN..]).unwrap();
            assert!(packet.flags.0 & 0x30 != 0x30, "a poll and its answer at once");
            if !loses(i) {
                self.ends[1 - i].coming.push_back((now + self.delay_ms, frame));
            }
        }
    }

    fn states(&mut self) -> [State; 2] {
        let now = self.now_ms;
        [0, 1].map(|i| self.ends[i].session.status(now).state)
    }
}

fn config() -> impl Strategy<Value = Config> {
    (2..6_u8, 50..1000_u32, 50..1000_u32).prop_map(|(mult, min_tx_ms, min_rx_ms)| Config {
        mult,
        min_tx_ms,
        min_rx_ms,
        ..Config::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// A good link brings sessions up and keeps them up; a dead one takes both down within the detection time; then it
    /// brings them up again.
    #[test]
    fn sessions_follow_the_link(one in config(), two in config(), delay_ms in 0..40_u64) {
        let mut pair = Pair::new([one.clone(), two.clone()], delay_ms);
        pair.run(6000, |_| false);
        prop_assert_eq!(pair.states(), [State::Up; 2]);
        pair.run(20_000, |_| false);
        for end in &mut pair.ends {
            prop_assert_eq!(end.session.status(pair.now_ms).flap_count, 1, "it stays up");
        }
        let slowest = [one.min_tx_ms, one.min_rx_ms, two.min_tx_ms, two.min_rx_ms].into_iter().max().unwrap();
        let mult = one.mult.max(two.mult);
        pair.run(u64::from(slowest) * u64::from(mult) + delay_ms + 2 * STEP_MS, |_| true);
        prop_assert_eq!(pair.states(), [State::Down; 2]);
        pair.run(6000, |_| false);
        prop_assert_eq!(pair.states(), [State::Up; 2]);
    }

    /// Fewer losses in a row than the multiplier do not take a session down.
    #[test]
    fn single_losses_are_survived(one in config(), two in config(), period in 3..9_usize) {
        // Of two intervals at the most and the simulation's steps, not more than three.
        let patient = |config: Config| Config { mult: config.mult.max(3), ..config };
        let mut pair = Pair::new([patient(one), patient(two)], 0);
        pair.run(6000, |_| false);
        prop_assert_eq!(pair.states(), [State::Up; 2]);
        let mut sent = [0_usize; 2];
        pair.run(30_000, |i| { sent[i] += 1; sent[i] % period == 0 });
        prop_assert_eq!(pair.states(), [State::Up; 2]);
        for end in &mut pair.ends {
            prop_assert_eq!(end.session.status(pair.now_ms).flap_count, 1);
        }
    }

    /// One direction alone takes both ends down: the deaf one by time, the other because it is told.
    #[test]
    fn a_half_dead_link_takes_both_down(one in config(), two in config()) {
        let mut pair = Pair::new([one, two], 0);
        pair.run(6000, |_| false);
        pair.run(20_000, |i| i == 0);
        let states = pair.states();
        prop_assert!(states[0] != State::Up && states[1] == State::Down, "{states:?}");
    }

    /// New intervals are agreed on by a poll sequence, also if packets of it are lost.
    #[test]
    fn changes_are_polled(one in config(), two in config(), new in config(), lost in 0..3_usize) {
        let mut pair = Pair::new([one, two], 0);
        pair.run(6000, |_| false);
        let now = pair.now_ms;
        let new = Config { mult: 255, ..new };
        pair.ends[0].session.configure(new.clone(), 0, now);
        pair.ends[1].session.configure(Config { mult: 255, ..pair.ends[1].session.config().clone() }, 0, now);
        let mut sent = 0;
        pair.run(15_000, |_| { sent += 1; sent <= lost });
        prop_assert_eq!(pair.states(), [State::Up; 2]);
        let text = pair.ends[0].session.details(pair.now_ms);
        prop_assert!(text.contains(&format!("Local Minimum TX Interval: {}ms", new.min_tx_ms)), "{text}");
        prop_assert!(text.contains(&format!("Local Minimum RX Interval: {}ms", new.min_rx_ms)), "{text}");
        prop_assert!(text.contains("Local Flags: none"), "{text}");
    }

    /// Whatever comes, the state is that of the table of RFC 5880 section 6.2, and nothing panics.
    #[test]
    fn packets_do_what_the_table_says(packets in proptest::collection::vec(arbitrary_packet(), 0..200)) {
        let mut session = Session::new("p", Config::default(), DISCRIMINATOR, 0, 1);
        let mut expected = State::Down;
        for (bytes, ttl) in packets {
            session.receive(ttl, &bytes, 0, 1);
            if ttl == MAX_TTL && let Some(said) = plain_check(&bytes) {
                expected = plain_next(expected, said);
            }
            prop_assert_eq!(session.status(1).state, expected);
        }
    }
}

const DISCRIMINATOR: u32 = 0x55aa;

/// Bytes that often are nearly right.
fn arbitrary_packet() -> impl Strategy<Value = (Vec<u8>, u8)> {
    let disc = prop_oneof![4 => Just(DISCRIMINATOR), 1 => Just(0), 1 => any::<u32>()];
    let right = (0..4_u8, disc, 0..=255_u8, any::<[u8; 12]>(), prop_oneof![5 => Just(0_u8), 1 => 0..64_u8]).prop_map(
        |(state, disc, mult, times, flags)| {
            let mut bytes = vec![0x20, state << 6 | flags, mult, 24, 0, 0, 0, 9];
            bytes.extend(disc.to_be_bytes());
            bytes.extend(times);
            bytes
        },
    );
    let bytes = prop_oneof![8 => right, 1 => proptest::collection::vec(any::<u8>(), 0..40)];
    (bytes, prop_oneof![8 => Just(MAX_TTL), 1 => any::<u8>()])
}

/// The checks of section 6.8.6 by the bytes; the state that a good packet says.
fn plain_check(bytes: &[u8]) -> Option<u8> {
    let state = *bytes.get(1)? >> 6;
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    let good = bytes.len() >= 24
        && bytes[0] >> 5 == 1
        && bytes[1] & 0b101 == 0
        && bytes[2] != 0
        && bytes[3] >= 24
        && usize::from(bytes[3]) <= bytes.len()
        && word(4) != 0
        && if word(8) == 0 { state < 2 } else { word(8) == DISCRIMINATOR };
    good.then_some(state)
}

/// The table, by numbers: 0 administratively down, 1 down, 2 init, 3 up.
fn plain_next(own: State, said: u8) -> State {
    const TABLE: [[State; 4]; 3] = [
        [State::Down, State::Init, State::Up, State::Down],
        [State::Down, State::Init, State::Up, State::Up],
        [State::Down, State::Down, State::Up, State::Up],
    ];
    TABLE[own as usize - 1][usize::from(said)]
}

#[test]
fn an_idle_port_asks_for_less_and_traffic_brings_it_back() {
    let quick = Config { min_tx_ms: 300, min_rx_ms: 300, ..Config::default() };
    let mut pair = Pair::new([Config { decay_min_rx_ms: 3000, ..quick.clone() }, quick], 0);
    let rx_ms = |pair: &mut Pair| {
        let text = pair.ends[0].session.details(pair.now_ms);
        text.lines().find_map(|line| line.strip_prefix("  Local Minimum RX Interval: ")).unwrap().to_owned()
    };
    pair.run(15_000, |_| false);
    assert_eq!(rx_ms(&mut pair), "3000ms");
    for _ in 0..100 {
        pair.received += 100;
        pair.run(100, |_| false);
    }
    assert_eq!(rx_ms(&mut pair), "300ms");
    assert_eq!(pair.states(), [State::Up; 2]);
}

#[test]
fn traffic_shows_that_a_port_forwards_while_control_packets_come_now_and_then() {
    let one = Config { forwarding_if_rx: true, min_rx_ms: 100, ..Config::default() };
    let mut pair = Pair::new([one, Config::default()], 0);
    pair.run(6000, |_| false);
    for _ in 0..60 {
        let now = pair.now_ms;
        pair.ends[0].session.account_rx(now);
        pair.run(100, |_| true);
    }
    let now = pair.now_ms;
    let status = pair.ends[0].session.status(now);
    assert_eq!((status.state, status.forwarding), (State::Down, true));
    // 100 * min_rx without a control packet.
    for _ in 0..60 {
        let now = pair.now_ms;
        pair.ends[0].session.account_rx(now);
        pair.run(100, |_| true);
    }
    assert!(!pair.ends[0].session.is_forwarding(pair.now_ms));
}

#[test]
fn a_command_overrides_and_the_other_end_hears_of_a_broken_path() {
    let mut pair = Pair::new([Config { cpath_down: true, ..Config::default() }, Config::default()], 0);
    pair.run(6000, |_| false);
    let now = pair.now_ms;
    assert_eq!(pair.states(), [State::Up; 2]);
    let session = &mut pair.ends[1].session;
    assert!(!session.is_forwarding(now));
    session.force_forwarding(Some(true));
    assert!(session.is_forwarding(now) && session.take_status_change() && !session.take_status_change());
    session.force_forwarding(None);
    assert!(!session.is_forwarding(now));
}
