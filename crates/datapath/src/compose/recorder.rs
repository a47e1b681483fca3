//! Recording paths: packets are followed from their first pass to their last, so that those behind them can replay it.

use super::path::{Endpoints, FlowRef, HOPS_MAX, Path};
use crate::tunnel::push_and_output;
use arrayvec::ArrayVec;
use sluice_action::{Action, Ct};
use sluice_conntrack::{ConnRef, CtMetadata};
use sluice_flow::PacketKey;
use sluice_flow_cache::{FlowVerdict, Megaflow};
use sluice_packet::BATCH_MAX;
use sluice_simd::compare;
use sluice_sync::Slots;

/// The recordings of a batch of received packets, by the arrival of the packet.
#[derive(Debug, Default)]
pub(super) struct PathRecorder {
    recordings: ArrayVec<Recording, BATCH_MAX>,
    /// The place of a packet's recording, plus one; 0 if it has none.
    of: [u8; BATCH_MAX],
}

/// The passes of one packet so far.
#[derive(Debug)]
struct Recording {
    /// Line 0 of the key of the first pass.
    words: [u64; 8],
    hash: u64,
    endpoints: Endpoints,
    path: Path,
    conns: ArrayVec<ConnRef, HOPS_MAX>,
    /// The megaflow of the last pass.
    last: FlowRef,
}

/// A recording at its end.
pub(super) struct Recorded {
    pub hash: u64,
    pub endpoints: Endpoints,
    pub path: Path,
    pub conns: ArrayVec<ConnRef, HOPS_MAX>,
}

/// A pass after a `ct`: the key it was looked up by, what the `ct` found, and the megaflow.
pub(super) struct Pass<'a> {
    pub key: &'a PacketKey,
    pub tracked: Option<(ConnRef, CtMetadata)>,
    pub flow: Option<&'a Megaflow>,
}

/// The `ct` of a megaflow that tracks its packets and looks them up again, and does nothing else.
#[inline]
pub(super) fn only_ct(flow: &Megaflow) -> Option<&Ct> {
    match &flow.actions()[..] {
        [Action::Ct(ct), Action::Recirc(_)] if flow.verdict() == FlowVerdict::Actions => Some(ct),
        _ => None,
    }
}

impl PathRecorder {
    /// Whether nothing is recorded.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.recordings.is_empty()
    }

    /// Ends all recordings without a result.
    #[inline]
    pub fn clear(&mut self) {
        if !self.is_idle() {
            self.recordings.clear();
            self.of = [0; BATCH_MAX];
        }
    }

    /// Begins to record a packet, named by its arrival, at its first pass.
    pub fn begin(&mut self, arrival: u32, key: &PacketKey, (hash, endpoints): (u64, Endpoints), first: &Megaflow) {
        let words = compare::words(&key.lines[0].0);
        let (path, last) = (Path::begin(key, first), FlowRef::of(first));
        self.recordings.push(Recording { words, hash, endpoints, path, conns: ArrayVec::new(), last });
        self.of[arrival as usize % BATCH_MAX] = self.recordings.len() as u8;
    }

    fn place(&self, arrival: u32) -> Option<usize> {
        usize::from(*self.of.get(arrival as usize)?).checked_sub(1)
    }

    /// The `ct` that a packet under record has met between its last pass and this one.
    pub fn met<'g>(&self, arrival: u32, flows: Slots<'g, Megaflow>) -> Option<&'g Ct> {
        self.recordings[self.place(arrival)?].last.get(flows).and_then(only_ct)
    }

    /// Whether the packet of that arrival is being recorded.
    pub fn is_recording(&self, arrival: u32) -> bool {
        self.place(arrival).is_some()
    }

    /// Records a further pass. Returns the whole if it was the last one.
    pub fn record(&mut self, arrival: u32, pass: Pass<'_>) -> Option<Recorded> {
        let place = self.place(arrival)?;
        let recording = &mut self.recordings[place];
        let is_last = recording.add(pass);
        if is_last != Some(false) {
            self.of[arrival as usize] = 0;
        }
        is_last?.then(|| recording.end())
    }
}

impl Recording {
    /// Adds a pass; whether it was the last one. `None` if packets cannot replay it.
    fn add(&mut self, pass: Pass<'_>) -> Option<bool> {
        let flow = pass.flow?;
        let (conn, metadata) = pass.tracked?;
        // In the zone of the pass before, a packet is known already, and not counted.
        let is_new_zone = self.path.hops().last().is_none_or(|hop| hop.metadata.zone != metadata.zone);
        let is_last = flow.verdict() != FlowVerdict::Actions || push_and_output(flow).is_some();
        let is_plain = is_last || only_ct(flow).is_some();
        if !is_new_zone || !is_plain || !self.path.is_same_packet(&self.words, &metadata, pass.key) {
            return None;
        }
        self.conns.try_push(conn).ok()?;
        self.path.add(metadata, pass.key.recirc_id(), flow).then_some(())?;
        self.last = FlowRef::of(flow);
        Some(is_last)
    }

    fn end(&mut self) -> Recorded {
        let mut path = self.path.clone();
        path.finish(&self.words);
        let conns = std::mem::take(&mut self.conns);
        Recorded { hash: self.hash, endpoints: self.endpoints, path, conns }
    }
}
