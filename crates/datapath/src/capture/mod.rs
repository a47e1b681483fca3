//! Captures: copies of the packets that a port receives and sends, or of those that are dropped.
//!
//! A capture gives every PMD a *tap*, and a queue of its own from the PMD to the capture's owner. The queue is bounded in
//! packets and bytes; a PMD that finds it full counts an overrun and goes on. It never waits, makes no system call but
//! for the time, and while nobody captures it asks once a batch, at each of four places, whether it has taps.
//!
//! The places: after the first lookup, when a packet's megaflow is known and its bytes are as they came ([`crate::act`]);
//! where packets are handed to a transmit queue ([`crate::tx`]), before and after; where a packet is dropped
//! ([`crate::context`]); and the end of a burst. Between them a tap remembers by its buffer which megaflow a packet
//! followed, so that what is sent names what sent it.

mod queue;
mod taps;

pub(crate) use taps::{Cause, Tap, Taps};

use crate::command::PmdCommand;
use crate::control::Control;
use crate::{Datapath, DatapathError};
use parking_lot::Mutex;
use queue::Receiver;
use sluice_action::{Actions, PortNo, XcacheHandle};
use sluice_fate::{DropReason, Limit};
use sluice_flow::PacketFilter;
use sluice_flow_cache::FlowMatch;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;

/// Captures at the same time. Each costs a copy of the packets that it wants.
pub const CAPTURES_MAX: usize = 8;

/// What is captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureTarget {
    /// What a port receives and sends.
    Port(PortNo),
    /// What is dropped, by whatever port it came.
    Drops,
}

/// What is captured, and how much of it.
#[derive(Clone, Debug)]
pub struct CaptureRequest {
    /// Where.
    pub target: CaptureTarget,
    /// Packets that do not match are left out. `in_port` is a datapath port.
    pub filter: Option<PacketFilter>,
    /// The bytes of a packet that are copied at most.
    pub snaplen: usize,
}

/// Where a packet was when it was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapturePoint {
    /// A port has received it.
    Received,
    /// It was handed to a port.
    Sent,
    /// It ended elsewhere.
    Dropped,
}

/// What became of a captured packet there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureVerdict {
    /// It goes through the actions of its flow.
    Actions,
    /// The port took it.
    Sent,
    /// It was dropped.
    Dropped(DropReason),
}

/// The flow that a captured packet followed.
#[derive(Clone, Debug)]
pub struct CapturedFlow {
    /// The megaflow; `None` if the packet followed a translation that is none.
    pub matched: Option<FlowMatch>,
    /// Its actions.
    pub actions: Actions,
    /// The record of its translation, which knows the rules.
    pub xcache: XcacheHandle,
}

/// A captured packet.
#[derive(Debug)]
pub struct CapturedPacket {
    /// When, nanoseconds since 1970; packets of one burst have the same time.
    pub time_ns: u64,
    /// Its bytes, up to the capture's limit.
    pub bytes: Box<[u8]>,
    /// Its length.
    pub len: usize,
    /// Where it was.
    pub point: CapturePoint,
    /// The port that it was received by, or handed to; of a dropped packet the one that it came by. `None` if the switch
    /// made it, or it is not known any more.
    pub port: Option<PortNo>,
    /// The port that it came by, if that is known.
    pub in_port: Option<PortNo>,
    /// What became of it.
    pub verdict: CaptureVerdict,
    /// What it followed, if that is known.
    pub flow: Option<CapturedFlow>,
    /// The PMD that captured it.
    pub pmd: usize,
}

/// A capture that PMDs feed. To be ended by [`Datapath::stop_capture`].
#[derive(Debug)]
pub struct Capture {
    id: u64,
    receivers: Arc<Mutex<Vec<Receiver>>>,
}

/// A capture as the datapath remembers it, for PMDs to come.
pub(crate) struct ActiveCapture {
    id: u64,
    request: Arc<CaptureRequest>,
    receivers: Arc<Mutex<Vec<Receiver>>>,
}

impl Capture {
    /// Takes what PMDs have captured since the last call, in order of time.
    pub fn take(&self) -> Vec<CapturedPacket> {
        let mut packets = Vec::new();
        self.receivers.lock().iter().for_each(|receiver| receiver.take(&mut packets));
        packets.sort_by_key(|packet| packet.time_ns);
        packets
    }

    /// Packets that were to be captured and found the queue of their PMD full.
    pub fn overruns(&self) -> u64 {
        self.receivers.lock().iter().map(Receiver::overruns).sum()
    }
}

impl ActiveCapture {
    /// The tap of another PMD.
    pub fn tap(&self) -> Tap {
        let (sender, receiver) = queue::queue();
        self.receivers.lock().push(receiver);
        Tap { id: self.id, request: Arc::clone(&self.request), sender }
    }
}

impl Datapath {
    /// Begins a capture on all PMDs, also those to come.
    ///
    /// # Errors
    /// If there are [`CAPTURES_MAX`] already.
    pub fn start_capture(&self, request: CaptureRequest) -> Result<Capture, DatapathError> {
        let mut control = self.control();
        if control.captures.len() >= CAPTURES_MAX {
            Limit::Captures.hit();
            let expected = "fewer captures at the same time; end one";
            return Err(DatapathError::Config { what: "captures", value: CAPTURES_MAX, expected });
        }
        let id = self.factory().capture_ids.fetch_add(1, Relaxed);
        let receivers = Arc::default();
        let active = ActiveCapture { id, request: Arc::new(request), receivers: Arc::clone(&receivers) };
        control.post_all(|_| PmdCommand::AddTap(active.tap()));
        control.captures.push(active);
        Ok(Capture { id, receivers })
    }

    /// Ends a capture. What PMDs had captured can still be taken afterwards.
    pub fn stop_capture(&self, capture: &Capture) {
        let mut control = self.control();
        control.captures.retain(|active| active.id != capture.id);
        let (into, removed) = mpsc::channel();
        control.post_all(|_| PmdCommand::RemoveTap { id: capture.id, into: into.clone() });
        drop(into);
        control.wait_for(&removed, control.workers.len());
    }

    /// Packets of the capture and PMD with most that wait to be taken, and how many may.
    pub(crate) fn captured_usage(&self) -> (usize, usize) {
        let queues: Vec<_> = self.control().captures.iter().map(|active| Arc::clone(&active.receivers)).collect();
        let usages = queues.iter().flat_map(|queue| queue.lock().iter().map(Receiver::usage).collect::<Vec<_>>());
        usages.max().unwrap_or((0, queue::PACKETS_MAX))
    }

    /// The captures that there are.
    pub fn captures(&self) -> usize {
        self.control().captures.len()
    }
}

impl Control {
    /// The taps of a PMD that comes.
    pub(crate) fn taps(&self, pmd: usize) -> Option<Box<Taps>> {
        let mut taps = None;
        self.captures.iter().for_each(|capture| Taps::add(&mut taps, pmd, self.vlan_limit, capture.tap()));
        taps
    }
}
