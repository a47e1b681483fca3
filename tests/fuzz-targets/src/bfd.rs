//! Target `bfd`: what a neighbour may send to a BFD session, between what its owner changes.

use crate::input::Input;
use sluice_bfd::{Config, ControlPacket, FRAME_LEN, Flags, MAX_TTL, PACKET_LEN, Session, State, read_frame};

const DISCRIMINATOR: u32 = 0x0102_0304;

/// Frames that may be due at one time: the answer to a poll, and the periodic one.
const DUE_AT_ONCE: usize = 2;

/// The bytes are a sequence of packets, pauses and changes of the configuration. Packets that are sent can be read, the
/// session never sends without end, and it forwards only if it is up or was told so, or traffic may show it.
pub fn bfd(data: &[u8]) {
    _ = read_frame(data);
    let mut input = Input(data);
    let (mut now, mut received) = (1_u64, 0_u64);
    let mut session = Session::new("p", Config::default(), DISCRIMINATOR, 0, now);
    let mut forced = None;
    while !input.is_empty() {
        match input.byte() % 8 {
            0 => {
                let (ttl, len) = (input.byte(), input.byte());
                session.receive(ttl, input.bytes(len.into()), received, now);
            }
            1..=3 => session.receive(MAX_TTL, &likely_packet(&mut input), received, now),
            4 => now += u64::from(number(&mut input)),
            5 => session.configure(config(&mut input), received, now),
            6 => {
                received += u64::from(input.byte());
                session.account_rx(now);
            }
            _ => {
                forced = [None, Some(false), Some(true)][usize::from(input.byte() % 3)];
                session.force_forwarding(forced);
            }
        }
        session.run(received, now);
        send_what_is_due(&mut session, now);
        let status = session.status(now);
        let may_forward = status.state == State::Up || session.config().forwarding_if_rx;
        assert!(forced.map_or(!status.forwarding || may_forward, |forced| status.forwarding == forced), "{status:?}");
    }
    assert!(!session.details(now).is_empty());
}

fn send_what_is_due(session: &mut Session, now: u64) {
    for _ in 0..DUE_AT_ONCE {
        let Some(frame) = session.send([2; 6], now) else { break };
        assert!(read_frame(&frame).is_some(), "a neighbour knows it for a control packet");
        let packet = ControlPacket::decode(&frame[FRAME_LEN - PACKET_LEN..]).expect("a control packet");
        assert_eq!(packet.my_discriminator, DISCRIMINATOR);
        assert!(!(packet.flags.has(Flags::POLL) && packet.flags.has(Flags::FINAL)), "a poll and its answer at once");
    }
    assert_eq!(session.send([2; 6], now), None, "more than {DUE_AT_ONCE} at once");
    assert!(session.wake_ms() > now, "{} at {now}", session.wake_ms());
}

/// A packet of the right version, length and discriminator; the rest is the input's.
fn likely_packet(input: &mut Input<'_>) -> [u8; PACKET_LEN] {
    let mut packet = [0; PACKET_LEN];
    let bytes = input.bytes(PACKET_LEN);
    packet[..bytes.len()].copy_from_slice(bytes);
    packet[0] = 0x20 | packet[0] & 0x1f;
    packet[3] = PACKET_LEN as u8;
    if packet[8] % 2 == 0 {
        packet[8..12].copy_from_slice(&DISCRIMINATOR.to_be_bytes());
    }
    packet
}

fn number(input: &mut Input<'_>) -> u32 {
    let bytes = [input.byte(), input.byte()];
    u32::from(u16::from_le_bytes(bytes))
}

/// What an owner may ask for.
fn config(input: &mut Input<'_>) -> Config {
    let flags = input.byte();
    Config {
        mult: input.byte().max(1),
        min_tx_ms: number(input),
        min_rx_ms: number(input),
        decay_min_rx_ms: number(input),
        forwarding_if_rx: flags & 1 != 0,
        cpath_down: flags & 2 != 0,
        ..Config::default()
    }
}
