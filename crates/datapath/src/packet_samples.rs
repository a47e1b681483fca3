//! Sampled packets on their way to the thread that has the sFlow agents.
//!
//! A bridge may have a share of the queue waiting: one that samples every packet leaves the others' samples alone. What
//! finds no room is counted for its bridge, and the packet itself goes on in any case.

use crate::action_context::ActionContext;
use sluice_action::SFlowAction;
use sluice_fate::Limit;
use sluice_flow::layout;
use sluice_flow::{PacketKey, TunnelKey};
use sluice_packet::headers::ethertype;
use sluice_sflow::SampledTunnel;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::time::Duration;

/// Samples of a bridge that wait at most. Bridges whose numbers collide share them.
const A_BRIDGE: u32 = 256;

/// Counts of samples.
const COUNTS: usize = 16;

/// A sampled packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketSample {
    /// What its translation knew.
    pub action: Arc<SFlowAction>,
    /// The tag control information of its outer VLAN tag as it came.
    pub src_tci: u16,
    /// The tunnel by which it came.
    pub ingress: Option<SampledTunnel>,
    /// The MPLS labels with which it is sent, the outer first.
    pub labels: Vec<u32>,
    /// Its length.
    pub frame_len: u32,
    /// Its first bytes.
    pub header: Vec<u8>,
}

/// What is in the queue.
enum Message {
    Sample(PacketSample),
    /// A thread waits until all that came before is done.
    Barrier(Sender<()>),
    Wake,
}

/// The counts of a bridge.
#[derive(Default)]
struct Counts {
    waiting: AtomicU32,
    dropped: AtomicU32,
}

type AllCounts = Arc<[Counts; COUNTS]>;

/// The way to the agents.
#[derive(Clone)]
pub(crate) struct SampleQueue {
    queue: SyncSender<Message>,
    counts: AllCounts,
}

/// The samples, as the thread of the agents gets them.
pub struct PacketSamples {
    queue: Receiver<Message>,
    counts: AllCounts,
}

/// What came in a while.
#[derive(Default)]
pub struct SampleArrivals {
    /// The samples, in order.
    pub samples: Vec<PacketSample>,
    barriers: Vec<Sender<()>>,
}

impl SampleArrivals {
    /// Says that all of it is done.
    pub fn done(self) {
        self.barriers.into_iter().for_each(|waiting| _ = waiting.send(()));
    }
}

fn of_bridge(counts: &AllCounts, bridge: u32) -> &Counts {
    &counts[bridge as usize % COUNTS]
}

impl SampleQueue {
    pub fn new() -> (Self, PacketSamples) {
        // As long as all counts together, and some for barriers.
        let (queue, receiver) = mpsc::sync_channel(COUNTS * (A_BRIDGE as usize + 1));
        let counts = AllCounts::default();
        (SampleQueue { queue, counts: Arc::clone(&counts) }, PacketSamples { queue: receiver, counts })
    }

    /// How many samples wait of the bridge with most, and how many of one may.
    pub fn usage(&self) -> (usize, usize) {
        let most = self.counts.iter().map(|counts| counts.waiting.load(Relaxed)).max().unwrap_or_default();
        (most.min(A_BRIDGE) as usize, A_BRIDGE as usize)
    }

    /// Hands over a sample of a packet, if its bridge has not too many waiting.
    pub fn send(&self, action: &Arc<SFlowAction>, context: &ActionContext<'_>) {
        let counts = of_bridge(&self.counts, action.bridge);
        if counts.waiting.fetch_add(1, Relaxed) < A_BRIDGE {
            let bytes = context.packet.bytes();
            let header = bytes[..bytes.len().min(action.header_len as usize)].to_vec();
            let sample = PacketSample {
                action: Arc::clone(action),
                src_tci: context.key.number(layout::VLAN0_TCI) as u16,
                ingress: ingress(action, context),
                labels: labels(action, context.key),
                frame_len: bytes.len() as u32,
                header,
            };
            if self.queue.try_send(Message::Sample(sample)).is_ok() {
                return;
            }
        }
        counts.waiting.fetch_sub(1, Relaxed);
        counts.dropped.fetch_add(1, Relaxed);
        Limit::SFlowSamples.hit();
    }

    /// Ends the wait of the thread.
    pub fn wake(&self) {
        // A queue that is full needs no waking.
        let _ = self.queue.try_send(Message::Wake);
    }

    /// Waits until the thread is done with all that there is, at most so long.
    pub fn wait_until_handled(&self, patience: Duration) {
        let (waiting, done) = mpsc::channel();
        if self.queue.try_send(Message::Barrier(waiting)).is_ok() {
            let _ = done.recv_timeout(patience);
        }
    }
}

/// The tunnel by which a packet came, if its addresses are IPv4's.
fn ingress(action: &SFlowAction, context: &ActionContext<'_>) -> Option<SampledTunnel> {
    let tunnel = TunnelKey::of_packet(context.key);
    let ipv4 = |address: u128| Ipv6Addr::from_bits(address).to_ipv4_mapped();
    let dst = ipv4(tunnel.dst)?;
    Some(SampledTunnel {
        protocol: action.ingress_protocol,
        tos: tunnel.tos,
        src: ipv4(tunnel.src).unwrap_or(Ipv4Addr::UNSPECIFIED),
        dst,
        src_port: 0,
        dst_port: action.ingress_port,
        vni: tunnel.id as u32,
    })
}

/// The MPLS labels with which a packet of this key is sent, if they are known.
fn labels(action: &SFlowAction, key: &PacketKey) -> Vec<u32> {
    const BOTTOM: u32 = 0x100;
    let Some(change) = &action.labels else { return Vec::new() };
    let is_mpls = ethertype::is_mpls(key.number(layout::DL_TYPE) as u16);
    let mut came = Vec::new();
    for span in [layout::MPLS0, layout::MPLS1, layout::MPLS2].into_iter().filter(|_| is_mpls) {
        came.push(key.number(span) as u32);
        if came.last().is_some_and(|label| label & BOTTOM != 0) {
            break;
        }
    }
    change.after(&came)
}

impl PacketSamples {
    /// What there is, after a wait of at most so long for the first of it; `None` if there will never be anything again.
    pub fn receive(&self, span: Duration) -> Option<SampleArrivals> {
        let mut arrivals = SampleArrivals::default();
        match self.queue.recv_timeout(span) {
            Ok(message) => self.take(message, &mut arrivals),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
        // Only as many as there may be at a time: others may come meanwhile.
        let more = self.queue.try_iter().take(COUNTS * A_BRIDGE as usize);
        more.for_each(|message| self.take(message, &mut arrivals));
        Some(arrivals)
    }

    /// Samples of a bridge that were lost since the last call.
    pub fn take_dropped(&self, bridge: u32) -> u32 {
        of_bridge(&self.counts, bridge).dropped.swap(0, Relaxed)
    }

    fn take(&self, message: Message, arrivals: &mut SampleArrivals) {
        match message {
            Message::Sample(sample) => {
                of_bridge(&self.counts, sample.action.bridge).waiting.fetch_sub(1, Relaxed);
                arrivals.samples.push(sample);
            }
            Message::Barrier(waiting) => arrivals.barriers.push(waiting),
            Message::Wake => {}
        }
    }
}
