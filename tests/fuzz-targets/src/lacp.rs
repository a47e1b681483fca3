//! Target `lacp`: what a neighbour may send to an aggregator, between what its owner changes.

use crate::input::Input;
use sluice_lacp::{Config, Lacp, MemberConfig, PDU_LEN, Pdu, Received, Status, read_frame};

const MEMBERS: u16 = 3;

/// The bytes are a sequence of units, pauses, links that go up and down, and changes of the configuration. No member sends
/// more than once at a time, nothing is left to be done afterwards, and members carry traffic only if there is a lead, or
/// as a fallback.
pub fn lacp(data: &[u8]) {
    _ = read_frame(data);
    let mut input = Input(data);
    let mut now = 1_u64;
    let mut lacp = Lacp::new("bond0", config(0));
    (1..=MEMBERS).for_each(|id| lacp.register(id, member(id, 0), true, now));
    let mut falls_back = false;
    while !input.is_empty() {
        let (what, id) = (input.byte() % 8, u16::from(input.byte()) % MEMBERS + 1);
        match what {
            0 => {
                let len = input.byte();
                lacp.receive(id, input.bytes(len.into()), now);
            }
            1..=3 => lacp.receive(id, &likely_unit(&mut input), now),
            4 => now += u64::from(u16::from_le_bytes([input.byte(), input.byte()])),
            5 => {
                let config = config(input.byte());
                falls_back = config.fallback_ab;
                lacp.configure(config);
            }
            6 => lacp.set_carrier(id, input.byte() % 2 == 0, now),
            _ if input.byte() % 2 == 0 => lacp.register(id, member(id, input.byte().into()), true, now),
            _ => lacp.retain(&[1, id]),
        }
        let mut sent = [0; MEMBERS as usize + 1];
        lacp.run(now, |id, pdu| {
            sent[usize::from(id)] += 1;
            assert_eq!(Pdu::read(&pdu.write()), Received::Lacp(*pdu), "a neighbour reads it");
        });
        assert!(sent.iter().all(|count| *count <= 1), "{sent:?}");
        assert!(lacp.wake_ms().is_none_or(|at| at > now), "{:?} at {now}", lacp.wake_ms());
        let carries = (1..=MEMBERS).any(|id| lacp.may_enable(id));
        assert!(!carries || falls_back || lacp.status() == Status::Negotiated);
    }
    assert!(!lacp.details().is_empty() && !lacp.statistics().is_empty());
}

/// A unit of the right kind; the rest is the input's.
fn likely_unit(input: &mut Input<'_>) -> [u8; PDU_LEN] {
    let mut unit = Pdu::default().write();
    let bytes = input.bytes(15);
    unit[4..4 + bytes.len()].copy_from_slice(bytes);
    unit
}

fn config(flags: u8) -> Config {
    Config {
        active: flags & 1 == 0,
        fast: flags & 2 != 0,
        system_id: [2, 0, 0, 0, 0, flags >> 6],
        system_priority: u16::from(flags >> 4 & 3),
        fallback_ab: flags & 4 != 0,
    }
}

fn member(id: u16, key: u16) -> MemberConfig {
    MemberConfig { name: format!("p{id}"), port_id: id, port_priority: 65535 - key, key }
}
