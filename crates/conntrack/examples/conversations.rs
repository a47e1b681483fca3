//! `conversations SEED COUNT DIR`: conversations of real TCP stacks (smoltcp) over a network that loses, repeats and
//! reorders, as captures `DIR/1.pcap` of the client's and `DIR/2.pcap` of the server's frames, and `DIR/kinds`, one
//! line for each. The lane that compares with Linux's nf_conntrack sends them to both trackers.

#[path = "../tests/tracking/stacks.rs"]
mod stacks;

use sluice_packet::checksum::internet;
use stacks::{Conversation, Sight};
use std::fs;
use std::path::Path;

/// The router between them, as the lane knows it.
const ROUTER: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// When the first frame comes, and how long after it the next: microseconds.
const FIRST_US: u64 = 1_000_000_000;
const EVERY_US: u64 = 100;
/// Other ports than those of the lane's random conversations.
const FIRST_PORT: u16 = 30_000;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let parsed = || Some((words.first()?.parse::<u64>().ok()?, words.get(1)?.parse::<u16>().ok()?, words.get(2)?));
    let Some((seed, count, dir)) = parsed() else {
        eprintln!("usage: conversations SEED COUNT DIR");
        std::process::exit(2);
    };
    // Magic, version 2.4, no offset, no accuracy, frames of any length, Ethernet.
    let header = [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65535, 1u32].map(u32::to_le_bytes).concat();
    let (mut captures, mut kinds) = ([header.clone(), header], String::new());
    let mut number = 0;
    for i in 0..count {
        let is_whole = Conversation::new(seed << 16 | u64::from(i), FIRST_PORT + i).play(|sight| {
            let frame = frame(&sight, number as u16);
            let at_us = FIRST_US + number * EVERY_US;
            let times = [at_us / 1_000_000, at_us % 1_000_000, frame.len() as u64, frame.len() as u64];
            let capture = &mut captures[usize::from(!sight.from_client)];
            capture.extend(times.map(|word| (word as u32).to_le_bytes()).concat());
            capture.extend(frame);
            kinds += &format!("stack\tconversation {i}, {} ms, client {}\n", sight.at_ms, sight.from_client);
            number += 1;
        });
        assert!(is_whole, "conversation {i} of seed {seed}: not all that was sent came");
    }
    let write = |name: &str, bytes: &[u8]| {
        fs::write(Path::new(dir).join(name), bytes).unwrap_or_else(|error| panic!("{dir}/{name}: {error}"));
    };
    write("1.pcap", &captures[0]);
    write("2.pcap", &captures[1]);
    write("kinds", kinds.as_bytes());
}

/// The packet on its way to the router, with `number` as its identification, so that the lane knows it again.
fn frame(sight: &Sight<'_>, number: u16) -> Vec<u8> {
    const IP: usize = 14;
    let host = if sight.from_client { 1 } else { 2 };
    let mut frame = [&ROUTER[..], &[2, 0, 0, 0, 0, host], &[8, 0], sight.packet].concat();
    frame[IP + 4..IP + 6].copy_from_slice(&number.to_be_bytes());
    frame[IP + 10..IP + 12].copy_from_slice(&[0, 0]);
    let sum = internet(&frame[IP..IP + 20]);
    frame[IP + 10..IP + 12].copy_from_slice(&sum.to_be_bytes());
    frame
}
