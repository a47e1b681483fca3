//! Packets to and from a guest whose rings and buffers are in the test's memory.

use super::feature::Features;
use super::guest_receive::GuestReceive;
use super::guest_transmit::GuestTransmit;
use super::inflight_buffer::{InflightBuffer, InflightShape};
use super::memory::DirtyLog;
use super::ring::{BUFFERS_MAX, Ring, RingLayout, RingSetup};
use super::slot::RingSlot;
use super::testing::{
    AVAILABLE, GUEST_TSO, LAYOUT, MERGING, PACKED, PACKED_MERGING, SIZE, TestGuest, VERSION_1, descriptor,
};
use super::work::{self, Work};
use crate::config::Options;
use crate::gro::tests::{gso_frame, segments};
use crate::offload::{LARGEST_FRAME, VNET_HEADER, VnetHeader};
use crate::stats::{self, QueueStats};
use crate::{Mtu, Pools, Port, PortConfig, RxQueue, TxQueue};
use proptest::prelude::*;
use sluice_fate::{Counter, DropReason, Tally};
use sluice_mem::FramePool;
use sluice_packet::{BATCH_MAX, Buffers, PacketBatch};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

/// The distance between the guest's buffers.
const BUFFERS: u64 = 0x1000;
const APART: u64 = 0x400;
const NEXT: u16 = 1;
const WRITE: u16 = 2;

/// A guest's ring of eight entries. Some buffers are chained to the next one.
struct Guest {
    memory: TestGuest,
    slot: Arc<RingSlot>,
    features: Features,
}

impl Guest {
    /// With buffers of these lengths and flags. Each buffer that is not chained to its predecessor begins a chain.
    fn new(buffers: &[(u32, u16)], features: Features) -> Self {
        let memory = TestGuest::new();
        let (mut heads, mut is_chained) = (Vec::new(), false);
        for ((len, flags), i) in buffers.iter().zip(0u16..) {
            if !is_chained {
                heads.push(i);
            }
            let address = BUFFERS + u64::from(i) * APART;
            let descriptor = if features.is_packed() {
                (address, *len, heads[heads.len() - 1], flags | AVAILABLE)
            } else {
                (address, *len, *flags, i + 1)
            };
            memory.describe(LAYOUT.descriptors, i, descriptor);
            is_chained = flags & NEXT != 0;
        }
        if !features.is_packed() {
            memory.offer(0, &heads);
        }
        let slot = Arc::new(RingSlot::default());
        slot.replace(Some(Ring::new(memory.setup(features)).unwrap()));
        Guest { memory, slot, features }
    }

    fn buffer(&self, i: u64, len: usize) -> Vec<u8> {
        self.memory.bytes(BUFFERS + i * APART, len)
    }

    fn used(&self) -> Vec<(u32, u32)> {
        if self.features.is_packed() { self.memory.used_packed() } else { self.memory.used() }
    }

    /// Sends it frames of these lengths.
    fn send(&self, frames: &[usize]) -> Tally {
        self.send_and_count(frames, 8).0
    }

    /// Sends it frames of these lengths, with at most this many retries. Returns how many there were.
    fn send_and_count(&self, frames: &[usize], retries_max: u8) -> (Tally, u64) {
        self.send_frames(&frames.iter().map(|len| frame(*len)).collect::<Vec<_>>(), retries_max)
    }

    /// The same for frames with these bytes.
    fn send_frames(&self, frames: &[Vec<u8>], retries_max: u8) -> (Tally, u64) {
        let mut sender = self.sender(retries_max);
        sender.send(frames);
        sender.end();
        (sender.tally, sender.stats.retries())
    }

    /// What sends to it.
    fn sender(&self, retries_max: u8) -> GuestSender {
        let stats = Arc::new(QueueStats::default());
        let queue = GuestReceive::new(self.slot.clone(), Mtu(1500), Arc::new(retries_max.into()), stats.clone());
        let pool = Pools::new(256).of_size(1500).unwrap();
        GuestSender { queue, stats, pool, buffers: Buffers::new(), tally: Tally::default() }
    }

    /// The packets in its used buffers, of which GSO frames are split.
    fn received(&self, buffers: &[(u32, u16)]) -> Vec<Vec<u8>> {
        let header_size = self.features.header();
        let (mut used, mut packets) = (self.used().into_iter().map(|chain| self.chain_bytes(buffers, chain)), vec![]);
        while let Some(mut bytes) = used.next() {
            let mut header = bytes[..header_size].to_vec();
            if self.features.merges() {
                let more = u16::from_le_bytes([header[10], header[11]]) - 1;
                (0..more).for_each(|_| bytes.extend(used.next().expect("as many buffers as its header says")));
            }
            header.resize(VNET_HEADER, 0);
            let (header, frame) = (VnetHeader::read(&header).unwrap(), bytes.split_off(header_size));
            packets.extend(if header.is_gso() { segments(&frame, header) } else { vec![frame] });
        }
        packets
    }

    /// What was written to the buffers of a chain.
    fn chain_bytes(&self, buffers: &[(u32, u16)], (id, len): (u32, u32)) -> Vec<u8> {
        let (mut bytes, mut at) = (Vec::new(), id as usize);
        while bytes.len() < len as usize {
            let (size, _) = buffers[at];
            bytes.extend(self.buffer(at as u64, (size as usize).min(len as usize - bytes.len())));
            at += 1;
        }
        bytes
    }

    /// Its receive queue, with a pool of `frames`.
    fn queue(&self, frames: usize) -> GuestQueue {
        let pool: Arc<dyn FramePool> = Pools::new(frames).of_size(1500).unwrap();
        let queue = GuestTransmit::new(self.slot.clone(), pool.clone(), Mtu(1500), Arc::default());
        GuestQueue { queue, pool, buffers: Buffers::new() }
    }

    /// Polls it once. Returns the packets' bytes.
    fn poll(&self) -> (Vec<Vec<u8>>, Tally) {
        self.queue(64).poll()
    }
}

/// A transmit queue, and what a thread needs to use it.
struct GuestSender {
    queue: GuestReceive,
    stats: Arc<QueueStats>,
    pool: Arc<dyn FramePool>,
    buffers: Buffers,
    tally: Tally,
}

impl GuestSender {
    /// Sends frames as one batch. Returns how many packets are kept.
    fn send(&mut self, frames: &[Vec<u8>]) -> u64 {
        let GuestSender { queue, pool, buffers, tally, .. } = self;
        let mut batch = PacketBatch::new();
        frames.iter().for_each(|frame| batch.push(buffers.write(pool, frame).unwrap()));
        tally[Counter::Originated] += frames.len() as u64;
        queue.send(&mut batch, buffers, tally);
        assert_eq!(tally.conserved(), Ok(()));
        let kept = tally[Counter::Held] - tally[Counter::Released];
        assert_eq!(queue.keeps_packets(), kept != 0);
        kept
    }

    /// Sends what is kept.
    fn end(&mut self) {
        self.queue.send_kept(&mut self.buffers, &mut self.tally);
        assert!(!self.queue.keeps_packets());
        assert_eq!(self.tally.conserved(), Ok(()));
        assert_eq!(self.tally[Counter::Held], self.tally[Counter::Released]);
        self.buffers.flush();
        assert_eq!(self.pool.available(), self.pool.capacity(), "no frame is lost");
    }
}

/// A receive queue and its pool.
struct GuestQueue {
    queue: GuestTransmit,
    pool: Arc<dyn FramePool>,
    buffers: Buffers,
}

impl GuestQueue {
    /// Polls it once. Returns the packets' bytes.
    fn poll(&mut self) -> (Vec<Vec<u8>>, Tally) {
        let (mut tally, mut batch) = (Tally::default(), PacketBatch::new());
        self.queue.poll(&mut batch, &mut self.buffers, &mut tally);
        let bytes = batch.iter().map(|packet| packet.bytes().to_vec()).collect();
        tally[Counter::Received] += batch.len() as u64;
        batch.discard(DropReason::Rules, &mut self.buffers, &mut tally);
        assert_eq!(tally.conserved(), Ok(()));
        self.buffers.flush();
        assert_eq!(self.pool.available(), self.pool.capacity(), "no frame is lost");
        (bytes, tally)
    }
}

fn frame(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

#[test]
fn a_packet_is_spread_over_merged_buffers() {
    spread_over_merged_buffers(MERGING);
    spread_over_merged_buffers(PACKED_MERGING);
}

fn spread_over_merged_buffers(features: Features) {
    let guest = Guest::new(&[(100, WRITE); 4], features);
    let tally = guest.send(&[250, 200]);
    assert_eq!((tally[Counter::Sent], tally.dropped(DropReason::TxFull)), (1, 1), "the second wants three buffers");
    assert_eq!(guest.used(), [(0, 100), (1, 100), (2, 62)]);
    let first = guest.buffer(0, 100);
    // The header has the number of buffers and nothing else, since sent packets are complete.
    assert_eq!((&first[..10], &first[10..12]), (&[0; 10][..], &3u16.to_le_bytes()[..]));
    let whole = [&first[VNET_HEADER..], &guest.buffer(1, 100), &guest.buffer(2, 62)].concat();
    assert_eq!(whole, frame(250));
}

#[test]
fn segments_are_one_frame_for_a_guest_that_takes_gso_frames() {
    gso_frames_are_sent(GUEST_TSO);
    gso_frames_are_sent(Features(GUEST_TSO.0 | PACKED.0));
}

fn gso_frames_are_sent(features: Features) {
    let guest = Guest::new(&[(1000, WRITE); 6], features);
    let (whole, header) = gso_frame(false, 0, 0, 0x18, 2500, 1000);
    let frames = [vec![frame(60)], segments(&whole, header), vec![frame(70)]].concat();
    let (tally, _) = guest.send_frames(&frames, 8);
    assert_eq!(tally[Counter::Sent], 5);
    // 2,566 bytes with the header: three buffers.
    assert_eq!(guest.used(), [(0, 72), (1, 1000), (2, 1000), (3, 566), (4, 82)]);
    let got = [guest.buffer(1, 1000), guest.buffer(2, 1000), guest.buffer(3, 566)].concat();
    assert_eq!(got[..VNET_HEADER], [1, 1, 54, 0, 232, 3, 34, 0, 16, 0, 3, 0]);
    let read = VnetHeader::read(&got).unwrap();
    assert_eq!(segments(&got[VNET_HEADER..], read), segments(&whole, header));
    assert_eq!(guest.buffer(4, 82)[VNET_HEADER..], frame(70));
}

#[test]
fn a_gso_frame_has_the_segments_of_several_batches() {
    for features in [GUEST_TSO, Features(GUEST_TSO.0 | PACKED.0)] {
        let guest = Guest::new(&[(1000, WRITE); 6], features);
        let (whole, header) = gso_frame(false, 0, 0, 0x18, 45 * 20, 20);
        let segments = segments(&whole, header);
        let mut sender = guest.sender(8);
        assert_eq!(sender.send(&segments[..BATCH_MAX]), BATCH_MAX as u64);
        assert_eq!(guest.used(), []);
        assert_eq!(sender.send(&segments[BATCH_MAX..]), 0, "it ends with a segment that pushes");
        assert_eq!(guest.used(), [(0, (VNET_HEADER + whole.len()) as u32)]);
        assert_eq!(guest.received(&[(1000, WRITE); 6]), segments);
        sender.end();
        assert_eq!((sender.tally[Counter::Sent], sender.tally[Counter::Held]), (45, 32));
    }
}

#[test]
fn packets_are_kept_until_they_are_asked_for_or_become_too_many() {
    let guest = Guest::new(&[(1000, WRITE); 6], GUEST_TSO);
    let (whole, header) = gso_frame(false, 0, 0, 0x10, 100 * 4, 4);
    let segments = segments(&whole, header);
    let mut sender = guest.sender(8);
    let kept: Vec<u64> = segments.chunks(BATCH_MAX).map(|batch| sender.send(batch)).collect();
    assert_eq!(kept, [32, 64, 0, 4]);
    assert_eq!(guest.used().len(), 1);
    sender.end();
    assert_eq!(guest.used(), [(0, 12 + 54 + 96 * 4), (1, 12 + 54 + 4 * 4)]);
    assert_eq!(guest.received(&[(1000, WRITE); 6]), segments);
}

#[test]
fn kept_packets_are_dropped_where_the_guest_has_gone() {
    let guest = Guest::new(&[(1000, WRITE); 6], GUEST_TSO);
    let (whole, header) = gso_frame(false, 0, 0, 0x10, 1000, 100);
    let mut sender = guest.sender(8);
    assert_eq!(sender.send(&segments(&whole, header)), 10);
    guest.slot.replace(None);
    sender.end();
    assert_eq!(sender.tally.dropped(DropReason::TxNoPort), 10);
}

#[test]
fn segments_go_alone_where_a_gso_frame_has_no_room() {
    let (whole, header) = gso_frame(false, 0, 0, 0x10, 2500, 500);
    let segments = segments(&whole, header);
    // It takes GSO frames and has small buffers, which it does not merge.
    let guest = Guest::new(&[(600, WRITE); 6], Features(GUEST_TSO.0 & !MERGING.0 | VERSION_1.0));
    assert_eq!(guest.send_frames(&segments, 8).0[Counter::Sent], 5);
    assert_eq!(guest.used(), [0, 1, 2, 3, 4].map(|i| (i, 566)));
    assert_eq!(guest.buffer(4, 566)[VNET_HEADER..], segments[4]);
    // It merges three of them: one frame has no room, but three segments have.
    let guest = Guest::new(&[(600, WRITE); 3], GUEST_TSO);
    let (tally, _) = guest.send_frames(&segments, 8);
    assert_eq!((tally[Counter::Sent], tally.dropped(DropReason::TxFull)), (3, 2));
}

#[test]
fn a_guest_that_does_not_merge_gets_what_fits_one_chain() {
    let guest = Guest::new(&[(100, WRITE), (100, WRITE | NEXT), (100, WRITE)], VERSION_1);
    let tally = guest.send(&[150, 88]);
    assert_eq!((tally[Counter::Sent], tally.dropped(DropReason::TxOversize)), (1, 1));
    assert_eq!(guest.used(), [(0, 100)]);
    // The next chain has two buffers, which hold more.
    assert_eq!(guest.send(&[150])[Counter::Sent], 1);
    assert_eq!(guest.used()[1..], [(1, 162)]);
    assert_eq!([&guest.buffer(1, 100)[VNET_HEADER..], &guest.buffer(2, 62)].concat(), frame(150));
}

#[test]
fn chained_buffers_become_one_packet_and_what_is_too_long_is_named() {
    chained_buffers_become_packets(VERSION_1);
    chained_buffers_become_packets(PACKED);
}

fn chained_buffers_become_packets(features: Features) {
    let buffers = [(12, NEXT), (100, NEXT), (50, 0), (1000, NEXT), (1000, 0), (11, 0), (62, 0)];
    let guest = Guest::new(&buffers, features);
    guest.memory.write(BUFFERS + APART, &frame(100));
    guest.memory.write(BUFFERS + 2 * APART, &[7; 50]);
    guest.memory.write(BUFFERS + 6 * APART + 12, &[8; 50]);
    let (packets, tally) = guest.poll();
    assert_eq!(packets, [[frame(100), vec![7; 50]].concat(), vec![8; 50]]);
    // Two kilobytes exceed the MTU, and eleven bytes are no header.
    assert_eq!((tally.dropped(DropReason::RxOversize), tally.dropped(DropReason::RxError)), (1, 1));
    assert_eq!(guest.used(), [(0, 0), (3, 0), (5, 0), (6, 0)], "all are the guest's again");
}

#[test]
fn a_guest_of_an_old_version_has_a_shorter_header() {
    let guest = Guest::new(&[(70, 0)], Features(0));
    guest.memory.write(BUFFERS + 10, &frame(60));
    assert_eq!(guest.poll().0, [frame(60)]);
    let guest = Guest::new(&[(70, WRITE)], Features(0));
    assert_eq!(guest.send(&[60])[Counter::Sent], 1);
    assert_eq!((guest.used(), guest.buffer(0, 70)), (vec![(0, 70)], [vec![0; 10], frame(60)].concat()));
}

#[test]
fn a_port_that_is_told_so_offers_no_gso_frames() {
    let offered = |value: &str| {
        let options = [("guest-tso".to_owned(), value.to_owned())].into();
        let config = PortConfig { options, ..PortConfig::default() };
        super::features(&Options { kind: "vhost-user", config: &config }).ok()
    };
    assert_eq!(offered("true"), Some(Features::OFFERED));
    assert_eq!(offered("nonsense"), None);
    let without = offered("false").unwrap();
    assert!(without.guest_tso().is_none() && Features::OFFERED.guest_tso().is_some());
    assert!(!Features::GUEST_TSO.are_among(without) && MERGING.are_among(without));
}

/// A GSO frame has a partial checksum, so a guest that does not take that takes no such frame.
#[test]
fn a_guest_takes_the_gso_frames_that_it_negotiated() {
    let of = |bits: u64| Features(bits).guest_tso().map(|tso| (tso.v4, tso.v6));
    assert_eq!([of(1 << 7 | 1 << 8), of(1 << 1)], [None; 2]);
    assert_eq!([of(1 << 1 | 1 << 7), of(1 << 1 | 1 << 8)], [Some((true, false)), Some((false, true))]);
}

#[test]
fn a_gso_frame_is_split_and_those_behind_it_wait() {
    gso_frame_is_split(VERSION_1);
    gso_frame_is_split(PACKED);
}

fn gso_frame_is_split(features: Features) {
    let (whole, header) = gso_frame(false, 0, 0, 0x18, 300, 100);
    let guest = Guest::new(&[(12 + 54 + 300, 0), (72, 0)], features);
    guest.memory.write(BUFFERS, &[&header.to_bytes(54, 0)[..], &whole].concat());
    guest.memory.write(BUFFERS + APART + 12, &[5; 60]);
    assert_eq!(guest.poll().0, segments(&whole, header));
    assert_eq!(guest.used(), [(0, 0)]);
    assert_eq!(guest.poll().0, [[5; 60]]);
}

/// A guest with a GSO frame of sixty segments, and its receive queue.
fn long_gso_frame() -> (Guest, GuestQueue) {
    let (whole, header) = gso_frame(false, 0, 0, 0x10, 300, 5);
    let guest = Guest::new(&[(12 + 54 + 300, 0)], VERSION_1);
    guest.memory.write(BUFFERS, &[&header.to_bytes(54, 0)[..], &whole].concat());
    let queue = guest.queue(64);
    (guest, queue)
}

#[test]
fn a_gso_frame_ends_with_the_guest_that_sent_it() {
    let (guest, mut queue) = long_gso_frame();
    assert_eq!(queue.poll().0.len(), BATCH_MAX);
    // A port that is down moves no packets.
    guest.slot.set_admin_state(false);
    assert_eq!(queue.poll().0.len(), 0);
    let ring = guest.slot.replace(None);
    guest.slot.set_admin_state(true);
    assert_eq!(queue.poll().0.len(), 0);
    // Another guest's packets begin with its own.
    guest.slot.replace(ring);
    let (packets, tally) = queue.poll();
    assert_eq!((packets.len(), tally.dropped(DropReason::RxError)), (0, 60 - BATCH_MAX as u64));
}

#[test]
fn a_gso_frame_waits_for_buffers() {
    let (whole, header) = gso_frame(false, 0, 0, 0x10, 300, 100);
    let guest = Guest::new(&[(12 + 54 + 300, 0)], VERSION_1);
    guest.memory.write(BUFFERS, &[&header.to_bytes(54, 0)[..], &whole].concat());
    let mut queue = guest.queue(2);
    let polls: Vec<_> = (0..3).map(|_| queue.poll().0).collect();
    assert_eq!(polls.concat(), segments(&whole, header));
    assert!(polls[0].len() < 3 && polls[2].is_empty(), "{polls:?}");
}

#[test]
fn segments_longer_than_the_mtu_are_dropped_whatever_tags_they_could_have() {
    for (tags, size, is_admitted) in [(0, 1460, true), (0, 1461, false), (1, 1460, true), (2, 1461, false)] {
        let (whole, header) = gso_frame(false, tags, 0, 0x10, 2922, size);
        let bytes = [&header.to_bytes(54 + 4 * tags, 0)[..], &whole].concat();
        let buffers: Vec<_> = bytes.chunks(APART as usize).map(|part| (part.len() as u32, NEXT)).collect();
        let last = buffers.len() - 1;
        let flag = |(i, (len, next)): (usize, (u32, u16))| (len, if i == last { 0 } else { next });
        let guest = Guest::new(&buffers.into_iter().enumerate().map(flag).collect::<Vec<_>>(), VERSION_1);
        guest.memory.write(BUFFERS, &bytes);
        let (packets, tally) = guest.poll();
        let expected = if is_admitted { (segments(&whole, header), 0) } else { (vec![], 1) };
        assert_eq!((packets, tally.dropped(DropReason::RxOversize)), expected, "{tags} tags, {size}");
    }
}

#[test]
fn a_full_ring_is_tried_again_as_long_as_that_helps() {
    let sent = |retries_max| {
        let guest = Guest::new(&[(100, WRITE); 4], VERSION_1);
        let (tally, retries) = guest.send_and_count(&[60; 6], retries_max);
        assert_eq!((tally[Counter::Sent], tally.dropped(DropReason::TxFull), guest.used().len()), (4, 2, 4));
        // The ring is full, as it was when this began.
        assert_eq!(guest.send_and_count(&[60; 6], retries_max).1, 0, "nothing went, so nothing is tried again");
        retries
    };
    // It helped once, so it is tried once more.
    assert_eq!((sent(0), sent(1), sent(32)), (0, 1, 1));
    let guest = Guest::new(&[(100, WRITE); 4], VERSION_1);
    assert_eq!(guest.send_and_count(&[60; 4], 8).1, 0, "all went at once");
    // What is too long is neither sent nor in the way of the others.
    let guest = Guest::new(&[(100, WRITE); 4], VERSION_1);
    let (tally, retries) = guest.send_and_count(&[60, 200, 60, 200, 60, 60, 60], 8);
    assert_eq!((tally[Counter::Sent], tally.dropped(DropReason::TxOversize), retries), (4, 2, 1));
    assert_eq!(tally.dropped(DropReason::TxFull), 1);
}

#[test]
fn a_broken_ring_rests_and_its_reason_is_told_once() {
    let guest = Guest::new(&[(72, 0), (0, 0)], VERSION_1);
    assert!(guest.slot.is_running());
    guest.poll();
    assert!(!guest.slot.is_running());
    assert_eq!(guest.slot.take_broken().map(|why| why.to_string()).as_deref(), Some("a descriptor without bytes"));
    assert_eq!(guest.slot.take_broken(), None);
    assert_eq!(guest.send(&[60]).dropped(DropReason::TxNoPort), 1);
    assert_eq!(guest.used(), []);
}

#[test]
fn chains_of_single_bytes_cost_a_batch_no_more_than_the_bound() {
    let guest = Guest::new(&[(12, WRITE), (1, WRITE), (1, WRITE), (1, WRITE)], MERGING);
    let tally = guest.send(&[1500; BATCH_MAX]);
    assert_eq!((tally.dropped(DropReason::TxFull), guest.used()), (BATCH_MAX as u64, vec![]));
}

#[test]
fn a_client_without_a_frontend_looks_for_one_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let config = |path: &str| PortConfig {
        name: "vhost1".into(),
        kind: "dpdkvhostuserclient".into(),
        options: [("vhost-server-path".to_owned(), path.to_owned())].into(),
        base_dir: directory.path().to_owned(),
        ..PortConfig::default()
    };
    let mut port = crate::open(&config("a.sock"), &mut Pools::new(64)).unwrap();
    let listener = UnixListener::bind(directory.path().join("b.sock")).unwrap();
    let more_queues = PortConfig { n_rxq: 2, ..config("b.sock") };
    let refusal = |port: &mut dyn Port, config| crate::reconfigure(port, config).unwrap_err().kind();
    assert_eq!(refusal(&mut *port, &more_queues), ErrorKind::Unsupported);
    crate::reconfigure(&mut *port, &config("b.sock")).unwrap();
    let _frontend = listener.accept().unwrap();
    let is_connected = |port: &dyn Port| port.device_status().details.contains(&("status".into(), "connected".into()));
    while !is_connected(&*port) {
        std::thread::sleep(Duration::from_millis(1));
    }
    // It leaves no frontend that it has.
    assert_eq!(refusal(&mut *port, &config("c.sock")), ErrorKind::Unsupported);
    assert!(is_connected(&*port));
    // Retries change while it is connected.
    let mut retries = config("b.sock");
    retries.options.insert("tx-retries-max".to_owned(), "0".to_owned());
    crate::reconfigure(&mut *port, &retries).unwrap();
    assert!(is_connected(&*port));
}

/// What is down without a guest is the link, as in Open vSwitch.
#[test]
fn a_port_without_a_guest_is_up_and_has_no_carrier() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vhost.sock").display().to_string();
    let options = [("path".to_owned(), path)].into();
    let config = PortConfig { name: "vhost1".into(), kind: "vhost-user".into(), options, ..PortConfig::default() };
    let mut port = crate::open(&config, &mut Pools::new(64)).unwrap();
    let state = |port: &dyn Port| (port.device_status().is_admin_up, port.device_status().has_carrier);
    assert_eq!(state(&*port), (true, false));
    port.set_admin_state(false).unwrap();
    assert_eq!(state(&*port), (false, false));
}

/// The work of a batch of packets stays below this: each buffer is described once and copied in at most three parts.
fn is_bounded(work: Work) -> bool {
    let packets = BATCH_MAX * (Mtu(1500).longest_frame() + 2 * VNET_HEADER);
    // One GSO frame in a poll.
    let bytes = packets + LARGEST_FRAME + VNET_HEADER + 16 * BUFFERS_MAX;
    work.descriptors + work.accesses <= 4 * BUFFERS_MAX + 2 * BATCH_MAX && work.bytes <= bytes
}

proptest! {
    /// Whatever a guest writes into its ring, a poll and a batch do no more than their bounds allow.
    #[test]
    fn work_is_bounded_whatever_the_guest_writes(
        descriptors in prop::collection::vec(descriptor(), 8),
        inner in prop::collection::vec(descriptor(), 16),
        heads in prop::collection::vec(0u16..9, 1..8),
        (merges, is_packed, takes_gso) in any::<(bool, bool, bool)>(),
    ) {
        for flip in [0, WRITE] {
            let format = if is_packed { PACKED } else { VERSION_1 };
            let features = Features(format.0 | 1 << 28 | if merges { 1 << 15 } else { 0 } | if takes_gso { GUEST_TSO.0 & !MERGING.0 } else { 0 });
            let guest = Guest::new(&[], features);
            let write = |table, (at, (address, len, flags, next)): (u16, (u64, u32, u16, u16))| {
                let flags = flags ^ flip;
                let (third, fourth) = if is_packed { (next, flags | AVAILABLE) } else { (flags, next) };
                guest.memory.describe(table, at, (address, len, third, fourth));
            };
            (0..).zip(descriptors.iter().copied()).for_each(|one| write(LAYOUT.descriptors, one));
            (0..).zip(inner.iter().copied()).for_each(|one| write(0x1000, one));
            if !is_packed {
                guest.memory.offer(0, &heads);
            }
            let work = if flip == 0 {
                work::counted(|| guest.poll()).1
            } else {
                let (whole, header) = gso_frame(false, 0, 0, 0x10, BATCH_MAX * 1400, 1400);
                let frames = if takes_gso { segments(&whole, header) } else { vec![frame(1500); BATCH_MAX] };
                work::counted(|| guest.send_frames(&frames, 8)).1
            };
            prop_assert!(is_bounded(work), "{work:?}");
        }
    }

    /// What a guest gets, however its buffers lie and whatever it negotiated, are the packets that were sent, in their order,
    /// once the GSO frames among them are split. Only the last ones are missing, for which it had no buffers, and those too
    /// long for it.
    #[test]
    fn a_guest_gets_the_packets_that_were_sent(
        (is_packed, merges, is_new, has_records) in any::<(bool, bool, bool, bool)>(),
        offloads in prop::sample::select(vec![0, 1 << 7, 1 << 1 | 1 << 7, 1 << 1 | 1 << 8, 1 << 1 | 1 << 7 | 1 << 8]),
        buffers in prop::collection::vec((prop_oneof![12..APART as u32, Just(APART as u32)], any::<bool>()), usize::from(SIZE)),
        parts in prop::collection::vec((any::<(bool, bool)>(), 1..2500usize, 100..1000u16, 60..900usize), 1..4),
        (retries_max, at_once) in (0..3u8, 1..=BATCH_MAX),
    ) {
        let version = if is_packed { PACKED.0 } else if is_new { VERSION_1.0 } else { 0 };
        let features = Features(version | if merges { 1 << 15 } else { 0 } | offloads);
        // The last buffer ends its chain.
        let last = buffers.len() - 1;
        let chained = |(i, (len, more)): (usize, (u32, bool))| (len, if more && i != last { WRITE | NEXT } else { WRITE });
        let buffers: Vec<_> = buffers.into_iter().enumerate().map(chained).collect();
        let guest = Guest::new(&buffers, features);
        if has_records {
            let shape = InflightShape { queues: 1, queue_size: SIZE };
            let records = InflightBuffer::map(shape.create().unwrap(), shape, (shape.bytes(), 0)).unwrap();
            let setup = RingSetup { inflight: records.of_queue(0), ..guest.memory.setup(features) };
            guest.slot.replace(Some(Ring::new(setup).unwrap()));
        }
        let mut frames = Vec::new();
        for ((is_v6, pushes), payload, size, other) in parts {
            let (whole, header) = gso_frame(is_v6, 0, 0, if pushes { 0x18 } else { 0x10 }, payload, size);
            frames.extend(segments(&whole, header));
            frames.push(frame(other));
        }
        frames.truncate(2 * BATCH_MAX);
        let mut sender = guest.sender(retries_max);
        frames.chunks(at_once).for_each(|batch| _ = sender.send(batch));
        sender.end();
        let (tally, stats) = (&sender.tally, stats::total([], [&*sender.stats]));
        prop_assume!(guest.slot.is_running());
        let got = guest.received(&buffers);
        prop_assert_eq!(got.len() as u64, tally[Counter::Sent]);
        prop_assert_eq!(stats.tx_bytes as usize, got.iter().map(Vec::len).sum::<usize>());
        // Those too long for a guest that does not merge are left out in between.
        let mut offered = frames.iter();
        prop_assert!(got.iter().all(|packet| offered.any(|frame| frame == packet)), "not in order, or another packet");
        let considered = frames.len() as u64 - tally.dropped(DropReason::TxFull);
        prop_assert_eq!(considered, tally[Counter::Sent] + tally.dropped(DropReason::TxOversize));
        prop_assert!(!merges || tally.dropped(DropReason::TxOversize) == 0);
    }

    /// While a guest migrates the log has every page that was written, and no other: from the start of a ring on, also of
    /// one with records, whichever way packets go. Nothing is noted before it migrates, or after.
    #[test]
    fn the_dirty_log_has_the_pages_that_were_written(
        frames in prop::collection::vec(60usize..1500, 0..5),
        (merges, is_packed, has_events, has_records, is_sent) in any::<(bool, bool, bool, bool, bool)>(),
    ) {
        let format = if is_packed { PACKED } else { VERSION_1 };
        let features = Features(format.0 | if merges { 1 << 15 } else { 0 } | if has_events { 1 << 29 } else { 0 });
        let guest = Guest::new(&[(APART as u32, if is_sent { WRITE } else { 0 }); 8], features);
        guest.slot.replace(None);
        let file = tempfile::tempfile().unwrap();
        file.set_len(1).unwrap();
        let log = Arc::new(DirtyLog::map(file.try_clone().unwrap(), 1, 0).unwrap());
        // The used ring is on a page of its own, so that what is written there is told apart.
        let used = 0x4800;
        let layout = RingLayout { used, log: Some(used), ..LAYOUT };
        let shape = InflightShape { queues: 1, queue_size: SIZE };
        let buffer = InflightBuffer::map(shape.create().unwrap(), shape, (shape.bytes(), 0)).unwrap();
        let inflight = has_records.then(|| buffer.of_queue(0).unwrap());
        let setup = RingSetup { log: Some(log.clone()), layout, inflight, ..guest.memory.setup(features) };
        // Bytes that no frame, no header and no ring has.
        guest.memory.write(BUFFERS, &[0xff; 8 * APART as usize]);
        guest.memory.write(used, &[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        if !is_packed && has_events {
            guest.memory.write(used + 4 + 8 * u64::from(SIZE), &[7, 7]);
        }
        let logged = || {
            let mut logged = [0];
            file.read_exact_at(&mut logged, 0).unwrap();
            logged[0]
        };
        let changed = |before: &BTreeMap<u64, Vec<u8>>| {
            let after = guest.memory.pages();
            before.iter().filter(|(page, bytes)| after[page] != **bytes).fold(0, |bits, (page, _)| bits | 1u8 << page)
        };
        let before = guest.memory.pages();
        guest.slot.replace(Some(Ring::new(setup).unwrap()));
        if is_sent {
            guest.send(&frames);
        } else if !frames.is_empty() {
            guest.poll();
        }
        prop_assert_eq!(logged(), changed(&before));
        if is_sent {
            // It migrates no more, and then it does again.
            file.write_all_at(&[0], 0).unwrap();
            guest.slot.change(|ring| ring.set_log(None));
            guest.send(&[60]);
            prop_assert_eq!(logged(), 0);
            let before = guest.memory.pages();
            guest.slot.change(|ring| ring.set_log(Some(log)));
            guest.send(&[61]);
            prop_assert_eq!(logged(), changed(&before));
            prop_assert!(guest.slot.is_running());
        }
    }
}
