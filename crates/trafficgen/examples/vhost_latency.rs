//! How late packets are that go from one guest through a switch to another, at rates that are offered evenly.
//!
//! `target/release/examples/vhost_latency client|server FROM TO FLOWS SECONDS` connects to a switch's vhost-user sockets, or listens
//! for the switch. Then it reads rates in thousands of packets a second, a line each, and prints one line for each: packets that were
//! due in SECONDS, those that the sender did not come to, those that found the ring full, those that arrived, those whose delay is
//! told, and the 50th, 99th and 99.9th percentile and the maximum of these delays in nanoseconds.
//!
//! A delay begins when the packet was due, so that a switch which keeps the sender waiting cannot hide it, and ends when the receiver
//! has seen it. Both guests are one thread, which looks at nothing else; when it has lost its core, the packets that were under way
//! or due meanwhile have no delay that could be told.

use sluice_testkit::frame::udp4;
use sluice_testkit::vhost_guest::{BUFFERS, Guest, WRITE, feature};
use sluice_trafficgen::Histogram;
use std::error::Error;
use std::io::BufRead;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};
use vm_memory::{Bytes, GuestAddress};

/// A guest's rings.
const RECEIVE: u32 = 0;
const TRANSMIT: u32 = 1;
/// Entries of each.
const SIZE: u16 = 1024;
/// The distance of buffers, and bytes of one.
const APART: u64 = 2048;
/// Bytes of a virtio-net header in front of each packet.
const HEADER: u64 = 12;
/// Bytes of a frame without checksum.
const FRAME: usize = 60;
const UDP_CHECKSUM: Range<usize> = 40..42;
/// Where a frame has its flow (checksum and source of IPv4), its time, and the trial that it belongs to.
const FLOW: Range<usize> = 24..30;
const TIME_AT: u64 = 42;
const TRIAL_AT: u64 = 50;
/// What is sent between two looks at the other ring.
const BURST_MAX: u64 = 32;
/// Two looks at the clock are further apart only if the thread had lost its core.
const AWAY_NS: u64 = 20_000;
/// Before packets count, and after the last one was due.
const WARM_UP: Duration = Duration::from_millis(500);
const DRAIN: Duration = Duration::from_millis(200);

/// What a rate came to.
#[derive(Default)]
struct Trial {
    /// Packets that were due from here on count.
    counted_ns: u64,
    /// Delays are told of packets that were due from here on.
    told_ns: u64,
    due: u64,
    unsent: u64,
    refused: u64,
    received: u64,
    told: u64,
    delays: Histogram,
}

/// Two guests and the packets between them.
struct Pair {
    from: Guest,
    to: Guest,
    /// By flow: the bytes [`FLOW`] of its frames.
    flows: Vec<Vec<u8>>,
    /// Packets given to the switch since the ring began.
    sent: u64,
    /// Times are counted from here.
    start: Instant,
    trial: u32,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [side, from, to, flows, seconds] = &args[..] else {
        return Err("usage: vhost_latency client|server FROM TO FLOWS SECONDS".into());
    };
    let guest = |path: &str| match side.as_str() {
        "client" => Ok(Guest::connect(Path::new(path), feature::VERSION_1, SIZE)),
        _ => Guest::accept(Path::new(path), feature::VERSION_1, SIZE),
    };
    let (from, to) = (guest(from)?, guest(to)?);
    let mut pair = Pair::new(from, to, flows.parse()?)?;
    let span = Duration::from_secs_f64(seconds.parse()?);
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let trial = pair.run(line?.trim().parse::<f64>()? * 1000.0, span)?;
        let late = trial.delays.latency().unwrap_or_default();
        let Trial { due, unsent, refused, received, told, .. } = trial;
        println!(
            "{due} {unsent} {refused} {received} {told} {} {} {} {}",
            late.p50_ns, late.p99_ns, late.p99_9_ns, late.max_ns
        );
    }
    Ok(())
}

impl Pair {
    fn new(mut from: Guest, mut to: Guest, flows: u32) -> Result<Self, Box<dyn Error>> {
        for at in 0..SIZE {
            let address = buffer(at.into());
            from.memory.write_slice(&frame(0), GuestAddress(address + HEADER))?;
            from.describe(TRANSMIT, at, (address, HEADER as u32 + FRAME as u32, 0, 0));
            // Entries of the ring stay what they are; only its index moves.
            from.offer(TRANSMIT, at);
            to.describe(RECEIVE, at, (address, APART as u32, WRITE, 0));
            to.offer(RECEIVE, at);
        }
        to.publish(RECEIVE);
        from.available[TRANSMIT as usize] = 0;
        for guest in [&mut from, &mut to] {
            (0..2).for_each(|ring| guest.start(ring, 0));
            guest.offered_features();
        }
        Ok(Pair {
            from,
            to,
            flows: (0..flows.max(1)).map(|flow| frame(flow)[FLOW].to_vec()).collect(),
            sent: 0,
            start: Instant::now(),
            trial: 0,
        })
    }

    /// Sends at this rate, packets a second.
    fn run(&mut self, rate: f64, span: Duration) -> Result<Trial, Box<dyn Error>> {
        self.trial += 1;
        let begin = self.now_ns();
        let counted = begin + WARM_UP.as_nanos() as u64;
        let mut trial = Trial { counted_ns: counted, told_ns: counted, ..Trial::default() };
        let all = ((WARM_UP + span).as_secs_f64() * rate) as u64;
        let end = begin + (WARM_UP + span + DRAIN).as_nanos() as u64;
        let (mut now, mut next) = (begin, 0);
        while now < end {
            let before = std::mem::replace(&mut now, self.now_ns());
            if now - before > AWAY_NS {
                trial.told_ns = trial.told_ns.max(now);
            }
            // The first one is due at once.
            let due = (((now - begin) as f64 / 1e9 * rate) as u64 + 1).min(all);
            let burst = (due - next).min(BURST_MAX);
            let room = if burst == 0 { 0 } else { self.room() };
            for n in 0..burst {
                let at = begin + (next as f64 / rate * 1e9) as u64;
                if n < room {
                    self.send(at, next)?;
                }
                trial.due += u64::from(at >= trial.counted_ns);
                trial.refused += u64::from(at >= trial.counted_ns && n >= room);
                next += 1;
            }
            if burst > 0 {
                self.from.publish(TRANSMIT);
            }
            self.receive(&mut trial)?;
        }
        trial.unsent = all - next;
        Ok(trial)
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Free entries of the ring that is sent by.
    fn room(&self) -> u64 {
        u64::from(SIZE) - (self.sent - self.from.taken(TRANSMIT, self.sent))
    }

    /// Sends the packet that was due at this time. There is room for it.
    fn send(&mut self, due_ns: u64, number: u64) -> Result<(), Box<dyn Error>> {
        let frame = buffer(self.sent % u64::from(SIZE)) + HEADER;
        let flow = &self.flows[(number % self.flows.len() as u64) as usize];
        self.from.memory.write_slice(flow, GuestAddress(frame + FLOW.start as u64))?;
        self.from.memory.write_obj(due_ns, GuestAddress(frame + TIME_AT))?;
        self.from.memory.write_obj(self.trial, GuestAddress(frame + TRIAL_AT))?;
        self.sent += 1;
        self.from.available[TRANSMIT as usize] = self.sent as u16;
        Ok(())
    }

    /// Takes what has arrived.
    fn receive(&mut self, trial: &mut Trial) -> Result<(), Box<dyn Error>> {
        let taken = self.to.take_used(RECEIVE);
        let (now, mut n) = (self.now_ns(), 0);
        for (head, len) in taken {
            let frame = buffer(head.into()) + HEADER;
            let of_trial: u32 = self.to.memory.read_obj(GuestAddress(frame + TRIAL_AT))?;
            let due: u64 = self.to.memory.read_obj(GuestAddress(frame + TIME_AT))?;
            let counts = u64::from(len) == HEADER + FRAME as u64 && of_trial == self.trial && due >= trial.counted_ns;
            trial.received += u64::from(counts);
            if counts && due >= trial.told_ns {
                trial.told += 1;
                trial.delays.record(now.saturating_sub(due));
            }
            self.to.offer(RECEIVE, head as u16);
            n += 1;
        }
        if n > 0 {
            self.to.publish(RECEIVE);
        }
        Ok(())
    }
}

fn buffer(at: u64) -> u64 {
    BUFFERS + at * APART
}

/// A flow's UDP frame. Its payload changes, so it has no checksum of UDP.
fn frame(flow: u32) -> Vec<u8> {
    let mut frame = udp4((0x0a00_0000 + flow).to_be_bytes(), [10, 255, 0, 1], 1024, 80);
    frame[UDP_CHECKSUM].fill(0);
    frame
}
