//! What a PMD does for captures.

use super::queue::Sender;
use super::{CapturePoint, CaptureRequest, CaptureTarget, CaptureVerdict, CapturedFlow, CapturedPacket};
use sluice_action::PortNo;
use sluice_fate::{DropReason, Tally};
use sluice_flow::{Metadata, PacketKey, VlanLimit, extract};
use sluice_flow_cache::Megaflow;
use sluice_mem::PoolId;
use sluice_packet::{Buffers, Packet, PacketBatch};
use sluice_port::TxQueue;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

/// Packets of a burst whose cause is remembered; copies beyond that are captured without it.
const CAUSES_MAX: usize = 1024;

/// A capture's tap on one PMD.
#[derive(Debug)]
pub(crate) struct Tap {
    pub id: u64,
    pub request: Arc<CaptureRequest>,
    pub(super) sender: Sender,
}

/// Where a packet came from, and what it followed.
#[derive(Clone, Debug)]
pub(crate) struct Cause {
    pub in_port: PortNo,
    pub flow: Option<CapturedFlow>,
}

/// The taps of one PMD.
#[derive(Debug)]
pub(crate) struct Taps {
    pmd: usize,
    /// Filters see as many tags as rules do.
    vlan_limit: VlanLimit,
    taps: Vec<Tap>,
    /// By buffer: those of the burst under way.
    causes: HashMap<(PoolId, u64), Cause>,
    /// The time of the burst under way, once it is known.
    time_ns: Option<u64>,
}

/// A packet at a place where taps may want it.
struct Observation<'a> {
    packet: &'a Packet,
    point: CapturePoint,
    port: Option<PortNo>,
    verdict: CaptureVerdict,
}

impl CapturedFlow {
    /// That of a megaflow.
    pub(crate) fn of(flow: &Megaflow) -> Self {
        CapturedFlow { matched: Some(flow.matched()), actions: flow.actions().clone(), xcache: flow.xcache().clone() }
    }
}

impl Taps {
    /// Adds a tap to those of a PMD.
    pub fn add(taps: &mut Option<Box<Taps>>, pmd: usize, vlan_limit: VlanLimit, tap: Tap) {
        let new = || Box::new(Taps { pmd, vlan_limit, taps: Vec::new(), causes: HashMap::new(), time_ns: None });
        taps.get_or_insert_with(new).taps.push(tap);
    }

    /// Changes how many tags are read of a packet.
    pub fn set_vlan_limit(&mut self, vlan_limit: VlanLimit) {
        self.vlan_limit = vlan_limit;
    }

    /// Removes a capture's tap, and all taps with the last one.
    pub fn remove(taps: &mut Option<Box<Taps>>, id: u64) -> Option<Tap> {
        let all = &mut taps.as_mut()?.taps;
        let tap = all.iter().position(|tap| tap.id == id).map(|at| all.remove(at));
        if all.is_empty() {
            *taps = None;
        }
        tap
    }

    /// A packet has been looked up for the first time, or again. The first time after it came by a port it was received
    /// there; a packet that leaves a tunnel comes by the tunnel's port.
    pub fn looked_up(&mut self, packet: &Packet, key: &PacketKey, verdict: CaptureVerdict, cause: Cause) {
        let in_port = cause.in_port;
        let is_known = self.causes.get(&name(packet)).is_some_and(|before| before.in_port == in_port);
        self.remember(packet, cause);
        if !is_known && self.wants(|target| target == CaptureTarget::Port(in_port)) {
            let observation = Observation { packet, point: CapturePoint::Received, port: Some(in_port), verdict };
            self.offer(&observation, Some(key), |target| target == CaptureTarget::Port(in_port));
        }
    }

    /// `copy` is a copy of `packet`, made in this burst.
    pub fn copied(&mut self, packet: &Packet, copy: &Packet) {
        if let Some(cause) = self.causes.get(&name(packet)).cloned() {
            self.remember(copy, cause);
        }
    }

    /// A packet is about to be dropped.
    pub fn dropped(&mut self, packet: &Packet, reason: DropReason) {
        let port = self.causes.get(&name(packet)).map(|cause| cause.in_port);
        let verdict = CaptureVerdict::Dropped(reason);
        let observation = Observation { packet, point: CapturePoint::Dropped, port, verdict };
        self.offer(&observation, None, |target| target == CaptureTarget::Drops);
    }

    /// Sends a batch by a port's queue. Which packets the port dropped is told from its counts; see [`verdicts`].
    pub fn send(
        &mut self,
        port: PortNo,
        queue: &mut dyn TxQueue,
        batch: &mut PacketBatch,
        (buffers, tally): (&mut Buffers, &mut Tally),
    ) {
        let is_wanted = |target| target == CaptureTarget::Port(port) || target == CaptureTarget::Drops;
        if !self.wants(is_wanted) {
            return queue.send(batch, buffers, tally);
        }
        let snaplen = self.taps.iter().map(|tap| tap.request.snaplen).max().unwrap_or(0);
        // Filters see the whole packet, which is gone when its verdict is known.
        let copies: Vec<(CapturedPacket, Vec<bool>)> = batch
            .iter()
            .map(|packet| {
                let sent = CaptureVerdict::Sent;
                let observation = Observation { packet, point: CapturePoint::Sent, port: Some(port), verdict: sent };
                let copy = self.capture(&observation, snaplen);
                let admits = |tap: &Tap| self.admits(&tap.request, packet.bytes(), copy.in_port);
                let admitting = self.taps.iter().map(admits).collect();
                (copy, admitting)
            })
            .collect();
        let before = tally.clone();
        queue.send(batch, buffers, tally);
        let lens: Vec<usize> = copies.iter().map(|(copy, _)| copy.len).collect();
        let verdicts = verdicts(&lens, &tally.since(&before));
        for ((copy, admitting), verdict) in copies.into_iter().zip(verdicts) {
            for (tap, is_admitted) in self.taps.iter().zip(admitting) {
                let is_wanted = match tap.request.target {
                    CaptureTarget::Port(wanted) => wanted == port,
                    CaptureTarget::Drops => verdict != CaptureVerdict::Sent,
                };
                let kept = copy.bytes.len().min(tap.request.snaplen);
                if is_wanted && is_admitted && tap.sender.admits(kept) {
                    let (bytes, flow) = (copy.bytes[..kept].into(), copy.flow.clone());
                    tap.sender.send(CapturedPacket { bytes, verdict, flow, ..copy });
                }
            }
        }
    }

    /// A burst has ended: buffers are used for other packets from now on.
    pub fn end_burst(&mut self) {
        self.causes.clear();
        self.time_ns = None;
    }

    fn remember(&mut self, packet: &Packet, cause: Cause) {
        if self.causes.len() < CAUSES_MAX {
            self.causes.insert(name(packet), cause);
        }
    }

    fn wants(&self, is_wanted: impl Fn(CaptureTarget) -> bool) -> bool {
        self.taps.iter().any(|tap| is_wanted(tap.request.target))
    }

    /// Captures a packet for the taps that want it. `key`: its key, if that is known.
    fn offer(
        &mut self,
        observation: &Observation<'_>,
        key: Option<&PacketKey>,
        is_wanted: impl Fn(CaptureTarget) -> bool,
    ) {
        let in_port = self.causes.get(&name(observation.packet)).map(|cause| cause.in_port);
        for at in 0..self.taps.len() {
            let Tap { request, sender, .. } = &self.taps[at];
            let kept = observation.packet.bytes().len().min(request.snaplen);
            let passes = || match (key, &request.filter) {
                (Some(key), Some(filter)) => filter.admits(key),
                _ => self.admits(request, observation.packet.bytes(), in_port),
            };
            if is_wanted(request.target) && passes() && sender.admits(kept) {
                let captured = self.capture(observation, kept);
                self.taps[at].sender.send(captured);
            }
        }
    }

    /// Whether a packet whose key must be read again passes a capture's filter. The key of a packet that was changed has its
    /// new fields.
    fn admits(&self, request: &CaptureRequest, bytes: &[u8], in_port: Option<PortNo>) -> bool {
        let Some(filter) = &request.filter else { return true };
        let mut key = PacketKey::ZERO;
        let metadata = Metadata::of_port(in_port.map_or(0, |port| port.0)).with_vlan_limit(self.vlan_limit);
        extract(bytes, &metadata, &mut key).is_ok() && filter.admits(&key)
    }

    /// A copy of a packet.
    fn capture(&mut self, observation: &Observation<'_>, kept: usize) -> CapturedPacket {
        let bytes = observation.packet.bytes();
        let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        let cause = self.causes.get(&name(observation.packet));
        CapturedPacket {
            time_ns: *self.time_ns.get_or_insert_with(now),
            bytes: bytes[..bytes.len().min(kept)].into(),
            len: bytes.len(),
            point: observation.point,
            port: observation.port,
            in_port: cause.map(|cause| cause.in_port),
            verdict: observation.verdict,
            flow: cause.and_then(|cause| cause.flow.clone()),
            pmd: self.pmd,
        }
    }
}

/// What tells a packet from all others of its burst.
fn name(packet: &Packet) -> (PoolId, u64) {
    (packet.frame.pool(), packet.frame.token())
}

/// What became of the packets of a batch that a port has taken, from the drops that it counted: a port drops the longest
/// for their length, and the last ones for any other reason, because its ring was full or its link gone.
fn verdicts(lens: &[usize], counted: &Tally) -> Vec<CaptureVerdict> {
    let mut verdicts = vec![CaptureVerdict::Sent; lens.len()];
    let mut by_len: Vec<usize> = (0..lens.len()).collect();
    by_len.sort_by_key(|&i| std::cmp::Reverse(lens[i]));
    for &i in by_len.iter().take(counted.dropped(DropReason::TxOversize) as usize) {
        verdicts[i] = CaptureVerdict::Dropped(DropReason::TxOversize);
    }
    for reason in DropReason::ALL.iter().copied().filter(|reason| *reason != DropReason::TxOversize) {
        let left = verdicts.iter_mut().rev().filter(|verdict| **verdict == CaptureVerdict::Sent);
        left.take(counted.dropped(reason) as usize).for_each(|verdict| *verdict = CaptureVerdict::Dropped(reason));
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_flow::geneve::OptionMap;
    use sluice_flow::{Match, OptionFilter, PacketFilter, PortNames};

    #[test]
    fn a_filter_sees_as_many_tags_as_rules() {
        let matches = Match::parse("ip", &PortNames::NONE).unwrap();
        let filter = PacketFilter::new(&matches, &OptionMap::default(), OptionFilter::default()).unwrap();
        let request = CaptureRequest { target: CaptureTarget::Drops, filter: Some(filter), snaplen: 64 };
        let ip = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let tagged = [&[0; 12][..], &[0x81, 0, 0, 5, 0x81, 0, 0, 7, 8, 0], &ip].concat();
        let admits = |tags| {
            let (vlan_limit, causes) = (VlanLimit::from_setting(tags), HashMap::new());
            Taps { pmd: 0, vlan_limit, taps: Vec::new(), causes, time_ns: None }.admits(&request, &tagged, None)
        };
        assert_eq!([admits(1), admits(2)], [false, true]);
    }

    #[test]
    fn drops_of_a_port_fall_on_the_longest_and_the_last() {
        let dropped = CaptureVerdict::Dropped;
        let mut counted = Tally::default();
        assert_eq!(verdicts(&[60, 60], &counted), [CaptureVerdict::Sent; 2]);
        counted.drop(DropReason::TxOversize, 1);
        counted.drop(DropReason::TxFull, 2);
        let (long, full) = (dropped(DropReason::TxOversize), dropped(DropReason::TxFull));
        assert_eq!(verdicts(&[60, 1600, 60, 60], &counted), [CaptureVerdict::Sent, long, full, full]);
        counted.drop(DropReason::TxFull, 10);
        assert_eq!(verdicts(&[60], &counted), [long], "more drops than packets are no reason to fail");
    }
}
