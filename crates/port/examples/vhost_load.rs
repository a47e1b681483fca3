//! A guest that sends at a fixed rate by a vhost-user port, to any switch: an offered load that two switches can be compared at.
//!
//! `target/release/examples/vhost_load client|server SOCKET KPPS FLOWS BYTES SECONDS` connects to a switch's socket, or listens for
//! the switch. Each of FLOWS frames of BYTES (without checksum) is a UDP flow; they are in the guest's memory once, so that sending
//! costs one store however many packets are due. What the switch has not taken when the ring is full is not sent later. Prints how
//! many packets were due and how many the switch took.

use sluice_testkit::vhost_guest::{BUFFERS, Guest, feature};
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};
use vm_memory::{Bytes, GuestAddress};

/// The guest's transmit ring.
const TRANSMIT: u32 = 1;
/// The distance of frames.
const APART: u64 = 1600;
/// Bytes of a virtio-net header in front of each.
const HEADER: usize = 12;
/// The largest ring.
const FLOWS_MAX: usize = 4096;
/// A ring has at least as many entries, whatever the flows.
const SIZE_MIN: usize = 512;
/// The time between two looks at what is due. Without a real-time policy (`chrt -f 10`) the kernel makes it twice as long.
const PAUSE: Duration = Duration::from_micros(50);
/// What is sent at once, at most: what a guest's driver may have waiting.
const BURST_MAX: u64 = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [side, socket, kpps, flows, bytes, seconds] = &args[..] else {
        return Err("usage: vhost_load client|server SOCKET KPPS FLOWS BYTES SECONDS".into());
    };
    let (rate, flows, bytes) = (kpps.parse::<f64>()? * 1000.0, flows.parse::<usize>()?, bytes.parse::<usize>()?);
    if !(1..=FLOWS_MAX).contains(&flows) || !(60..=1514).contains(&bytes) {
        return Err(format!("1 to {FLOWS_MAX} flows, frames of 60 to 1514 bytes").into());
    }
    let size = flows.max(SIZE_MIN).next_power_of_two();
    let features = feature::VERSION_1;
    let mut guest = match side.as_str() {
        "client" => Guest::connect(Path::new(socket), features, size as u16),
        _ => Guest::accept(Path::new(socket), features, size as u16)?,
    };
    for at in 0..size {
        let address = BUFFERS + at as u64 * APART;
        guest.memory.write_slice(&frame(at % flows, bytes), GuestAddress(address + HEADER as u64))?;
        guest.describe(TRANSMIT, at as u16, (address, (HEADER + bytes) as u32, 0, 0));
        guest.offer(TRANSMIT, at as u16);
    }
    // Nothing is published yet. From now on entries stay what they are, and only the index moves.
    (0..2).for_each(|ring| guest.start(ring, 0));
    guest.offered_features();
    println!("ready");
    let (start, span) = (Instant::now(), Duration::from_secs_f64(seconds.parse()?));
    let (mut due, mut sent) = (0u64, 0u64);
    while start.elapsed() < span {
        let now_due = (start.elapsed().as_secs_f64() * rate) as u64;
        let room = size as u64 - (sent - guest.taken(TRANSMIT, sent));
        let n = (now_due - due).min(room).min(BURST_MAX);
        due = now_due;
        if n > 0 {
            sent += n;
            guest.available[TRANSMIT as usize] = sent as u16;
            guest.publish(TRANSMIT);
        }
        std::thread::sleep(PAUSE);
    }
    println!("due {due} taken {}", guest.taken(TRANSMIT, sent));
    Ok(())
}

/// A UDP frame of a flow.
fn frame(flow: usize, bytes: usize) -> Vec<u8> {
    let mut frame = vec![0; bytes];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    let ip = &mut frame[14..34];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&((bytes - 14) as u16).to_be_bytes());
    (ip[8], ip[9]) = (64, 17);
    ip[12..16].copy_from_slice(&(0x0a00_0000 + flow as u32).to_be_bytes());
    ip[16..20].copy_from_slice(&[10, 255, 0, 1]);
    let sum: u32 = ip.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    ip[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    frame[34..36].copy_from_slice(&(1024 + (flow % 50_000) as u16).to_be_bytes());
    frame[36..38].copy_from_slice(&80u16.to_be_bytes());
    frame[38..40].copy_from_slice(&((bytes - 34) as u16).to_be_bytes());
    frame
}
