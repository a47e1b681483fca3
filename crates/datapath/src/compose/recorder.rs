//! PathRecorder: packets that are followed from their first pass to their last, so that those behind them need not.

use super::HOPS_MAX;
use super::path::{Path, addresses_and_ports};
use arrayvec::ArrayVec;
use sluice_action::Action;
use sluice_conntrack::{ConnRef, CtMetadata};
use sluice_flow::PacketKey;
use sluice_flow_cache::{FlowVerdict, Megaflow};
use sluice_packet::BATCH_MAX;
use sluice_simd::compare;

/// The recorder of a batch of received packets. A packet carries the number of its own, 0 if it is on none.
#[derive(Debug, Default)]
pub(crate) struct PathRecorder(ArrayVec<Recording, BATCH_MAX>);

#[derive(Debug)]
struct Recording {
    /// Line 0 of the key of the first pass.
    words: [u64; 8],
    hash: u64,
    path: Path,
    standings: ArrayVec<ConnRef, HOPS_MAX>,
    /// What the `ct` under way has written.
    stamp: Option<CtMetadata>,
    /// Nothing is noted any more.
    is_over: bool,
}

/// A recording at its end.
pub(super) struct Done {
    pub hash: u64,
    pub addresses_and_ports: (u64, u32),
    pub path: Path,
    pub standings: ArrayVec<ConnRef, HOPS_MAX>,
}

/// Whether a megaflow tracks its packets and looks them up again, and does nothing else.
#[inline]
pub(super) fn tracks(flow: &Megaflow) -> bool {
    flow.verdict() == FlowVerdict::Actions && matches!(flow.actions()[..], [Action::Ct(_), Action::Recirc(_)])
}

impl PathRecorder {
    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets all.
    #[inline]
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Begins one for a packet just received: its number.
    pub(super) fn begin(&mut self, key: &PacketKey, hash: u64, first: &Megaflow) -> u16 {
        let words = compare::words(&key.lines[0].0);
        let (path, standings) = (Path::begin(first), ArrayVec::new());
        self.0.push(Recording { words, hash, path, standings, stamp: None, is_over: false });
        self.0.len() as u16
    }

    /// Whether that recording is under way.
    #[inline]
    pub fn has(&self, number: u16) -> bool {
        number != 0 && self.0.get(usize::from(number) - 1).is_some_and(|recording| !recording.is_over)
    }

    fn under_way(&mut self, number: u16) -> Option<&mut Recording> {
        let at = usize::from(number).checked_sub(1)?;
        self.0.get_mut(at).filter(|recording| !recording.is_over)
    }

    /// Notes what a `ct` made of the packet; `None` ends the recording.
    pub fn track(&mut self, number: u16, found: Option<(ConnRef, CtMetadata)>) {
        let Some(recording) = self.under_way(number) else { return };
        let is_next = recording.standings.len() == recording.path.hops().len() && recording.stamp.is_none();
        // In the zone of the pass before, a packet is known again, and not counted.
        let is_new = |stamp: &CtMetadata| recording.path.hops().last().is_none_or(|hop| hop.stamp.zone != stamp.zone);
        match found.filter(|(_, stamp)| is_next && is_new(stamp)) {
            Some((standing, stamp)) if !recording.standings.is_full() => {
                recording.standings.push(standing);
                recording.stamp = Some(stamp);
            }
            _ => recording.give_up(),
        }
    }

    /// Notes the megaflow found in a pass after a `ct`. What is returned is at its end.
    pub(super) fn arrive(&mut self, number: u16, key: &PacketKey, flow: Option<&Megaflow>) -> Option<Done> {
        let recording = self.under_way(number)?;
        let (Some(stamp), Some(flow)) = (recording.stamp.take(), flow) else {
            recording.give_up();
            return None;
        };
        let is_last = flow.verdict() != FlowVerdict::Actions;
        if !(is_last || tracks(flow)) || !recording.path.add(stamp, key.recirc_id(), flow) {
            recording.give_up();
            return None;
        }
        is_last.then(|| recording.end())
    }
}

impl Recording {
    /// Ends it without a result.
    fn give_up(&mut self) {
        self.is_over = true;
    }

    fn end(&mut self) -> Done {
        let mut path = self.path.clone();
        path.finish(&self.words);
        self.is_over = true;
        Done {
            hash: self.hash,
            addresses_and_ports: addresses_and_ports(&self.words),
            path,
            standings: std::mem::take(&mut self.standings),
        }
    }
}
