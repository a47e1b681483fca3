//! Policers at the edges of a PMD: what a burst may receive, and what a batch may send.
//!
//! A PMD asks a port's policer once a batch; one branch a batch is what ports without one cost. The time is read here,
//! since the iteration's coarse clock would let a burst of 100 gigabits a second wait for its tokens.

use sluice_fate::{Counter, DropReason, Tally};
use sluice_packet::{BATCH_MAX, BatchMask, Buffers, PacketBatch};
use sluice_policer::{Color, EgressPolicer, IngressPolicer, Marked, tokens_of};
use std::sync::LazyLock;
use std::time::Instant;

/// Where the time of all policers starts.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

fn now_ns() -> u64 {
    START.elapsed().as_nanos() as u64
}

/// Drops what a port may not receive of a burst that it has received.
#[cold]
pub(crate) fn receive(policer: &IngressPolicer, packets: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
    if packets.is_empty() {
        return;
    }
    let mut tokens = [0; BATCH_MAX];
    tokens.iter_mut().zip(packets.iter()).for_each(|(tokens, packet)| *tokens = tokens_of(packet.frame.len()));
    let mut passing = BatchMask::default();
    policer.admit(&tokens[..packets.len()], now_ns(), |at, passes| {
        if passes {
            passing.insert(at);
        }
    });
    let dropped = keep(packets, passing, DropReason::IngressPolicer, buffers, tally);
    // The others are counted as received by the caller.
    tally[Counter::Received] += dropped as u64;
}

/// Drops what a port may not send of a batch.
#[cold]
pub(crate) fn send(policer: &EgressPolicer, packets: &mut PacketBatch, buffers: &mut Buffers, tally: &mut Tally) {
    let mut marked = [Marked { tokens: 0, queue: 0, color: Color::Green }; BATCH_MAX];
    for (marked, packet) in marked.iter_mut().zip(packets.iter()) {
        (marked.tokens, marked.queue) = (tokens_of(packet.frame.len()), packet.queue);
    }
    let marked = &mut marked[..packets.len()];
    policer.admit(marked, now_ns());
    let mut passing = BatchMask::default();
    marked.iter().enumerate().filter(|(_, packet)| packet.color != Color::Red).for_each(|(at, _)| passing.insert(at));
    policer.count_dropped(keep(packets, passing, DropReason::EgressPolicer, buffers, tally));
}

/// Keeps the passing packets of a batch, in order; the others are dropped. Returns how many those are.
fn keep(
    packets: &mut PacketBatch,
    passing: BatchMask,
    reason: DropReason,
    buffers: &mut Buffers,
    tally: &mut Tally,
) -> usize {
    if passing == BatchMask::first(packets.len()) {
        return 0;
    }
    let mut kept = 0;
    for at in 0..packets.len() {
        if passing.contains(at) {
            packets.swap(kept, at);
            kept += 1;
        }
    }
    let dropped = packets.len() - kept;
    tally.drop(reason, dropped);
    packets.drain(kept..).for_each(|packet| buffers.give_frame(packet.frame));
    dropped
}
