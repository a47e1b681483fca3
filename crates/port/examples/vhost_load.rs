//! A guest that sends at a fixed rate by a vhost-user port, to any switch: an offered load that two switches can be compared at.
//!
//! `target/release/examples/vhost_load client|server SOCKET KPPS SECONDS [KEY=VALUE…]` connects to a switch's socket, or listens for
//! the switch. The keys are those of a generator port: `flows=1M subtables=20 frame-size=60`, say. As many flows as a ring has
//! entries are in the guest's memory once and sent in turn, so that sending costs one store however many packets are due. Of more,
//! each frame is written before it is sent, the next flow as the profile chooses it. What the switch has not taken when the ring is
//! full is not sent later. Prints how many packets were due and how many the switch took.

use sluice_testkit::vhost_guest::{BUFFERS, Guest, feature};
use sluice_traffic::{FlowStream, Profile};
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
const SIZE_MAX: usize = 4096;
/// A ring has at least as many entries, whatever the flows.
const SIZE_MIN: usize = 512;
/// The time between two looks at what is due. Without a real-time policy (`chrt -f 10`) the kernel makes it twice as long.
const PAUSE: Duration = Duration::from_micros(50);
/// What is sent at once, at most: what a guest's driver may have waiting.
const BURST_MAX: u64 = 256;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [side, socket, kpps, seconds, keys @ ..] = &args[..] else {
        return Err("usage: vhost_load client|server SOCKET KPPS SECONDS [KEY=VALUE…]".into());
    };
    let (rate, profile) = (kpps.parse::<f64>()? * 1000.0, profile(keys)?);
    let flows = profile.flows.unwrap_or(1) as usize;
    if profile.frame_size > APART as usize - HEADER {
        return Err(format!("frames of {} bytes at most", APART as usize - HEADER).into());
    }
    let mut stream = profile.streams(1)?.pop().ok_or("a profile without a stream")?;
    let size = flows.clamp(SIZE_MIN, SIZE_MAX).next_power_of_two();
    let features = feature::VERSION_1;
    let mut guest = match side.as_str() {
        "client" => Guest::connect(Path::new(socket), features, size as u16),
        _ => Guest::accept(Path::new(socket), features, size as u16)?,
    };
    let mut frame = vec![0; profile.frame_size];
    for at in 0..size {
        write(&guest, at, &stream, (at % flows) as u32, &mut frame)?;
        guest.describe(TRANSMIT, at as u16, (buffer(at), (HEADER + frame.len()) as u32, 0, 0));
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
            if flows > size {
                let mut next = [0; BURST_MAX as usize];
                stream.pick(&mut next[..n as usize]);
                for (at, flow) in (sent..sent + n).zip(next) {
                    write(&guest, at as usize % size, &stream, flow, &mut frame)?;
                }
            }
            sent += n;
            guest.available[TRANSMIT as usize] = sent as u16;
            guest.publish(TRANSMIT);
        }
        std::thread::sleep(PAUSE);
    }
    println!("due {due} taken {}", guest.taken(TRANSMIT, sent));
    Ok(())
}

/// The traffic that the arguments tell.
fn profile(keys: &[String]) -> Result<Profile, Box<dyn Error>> {
    let mut profile = Profile { flows: Some(1), ..Profile::default() };
    for key in keys {
        let (name, value) = key.split_once('=').ok_or_else(|| format!("{key}: expected KEY=VALUE"))?;
        profile.set(name, value).ok_or_else(|| format!("{name}: no key of a generator"))??;
    }
    Ok(profile)
}

/// The address of an entry's header and frame.
fn buffer(at: usize) -> u64 {
    BUFFERS + at as u64 * APART
}

/// Writes a flow's frame into an entry that the switch does not have.
fn write(guest: &Guest, at: usize, stream: &FlowStream, flow: u32, frame: &mut [u8]) -> Result<(), Box<dyn Error>> {
    stream.writer().write(flow, frame);
    Ok(guest.memory.write_slice(frame, GuestAddress(buffer(at) + HEADER as u64))?)
}
