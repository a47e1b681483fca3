use super::*;
use crate::pcap::Reader;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sluice_fate::{Counter, DropReason, Tally};
use sluice_packet::{Buffers, PacketBatch};
use std::path::Path;
use std::time::{Duration, Instant};

/// A port with its queues.
struct Rig {
    port: Box<dyn Port>,
    rx: Vec<Box<dyn RxQueue>>,
    tx: Box<dyn TxQueue>,
    pool: Arc<dyn FramePool>,
    buffers: Buffers,
    tally: Tally,
}

impl Rig {
    fn open(kind: &str, directory: &Path, options: &[(&str, &str)]) -> Rig {
        let mut pools = Pools::new(256);
        let options = options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let base_dir = directory.to_owned();
        let config = PortConfig { name: "p1".into(), kind: kind.into(), options, base_dir, ..PortConfig::default() };
        let mut port = crate::open(&config, &mut pools).unwrap();
        let rx = (0..port.info().n_rxq).map(|queue| port.rx_queue(queue)).collect();
        let tx = port.tx_queue(0);
        let pool = pools.of_size(2048).unwrap();
        Rig { port, rx, tx, pool, buffers: Buffers::new(), tally: Tally::default() }
    }

    fn device(&self) -> Arc<DummyDevice> {
        Arc::clone(self.port.dummy().unwrap())
    }

    /// The packets of one poll.
    fn poll(&mut self, queue: usize) -> Vec<Vec<u8>> {
        let mut batch = PacketBatch::new();
        self.rx[queue].poll(&mut batch, &mut self.buffers, &mut self.tally);
        let packets = batch.iter().map(|packet| packet.bytes().to_vec()).collect();
        self.buffers.give_batch(&mut batch);
        packets
    }

    /// Waits for a packet.
    fn next_packet(&mut self) -> Vec<u8> {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(packet) = self.poll(0).pop() {
                return packet;
            }
            assert!(Instant::now() < until, "no packet came");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn send(&mut self, packets: &[Vec<u8>]) {
        let mut batch = PacketBatch::new();
        packets.iter().for_each(|packet| batch.push(self.buffers.write(&self.pool, packet).unwrap()));
        self.tx.send(&mut batch, &mut self.buffers, &mut self.tally);
        assert!(batch.is_empty());
    }

    fn is_readable(&self, queue: usize) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.rx[queue].readiness().unwrap(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
    }

    fn counter(&self, name: &str) -> u64 {
        self.port.custom_stats().into_iter().find(|(key, _)| key == name).unwrap().1
    }
}

fn here() -> &'static Path {
    Path::new("")
}

fn packets_of(path: &Path) -> Vec<Vec<u8>> {
    let (mut reader, mut packet, mut all) = (Reader::open(path).unwrap(), Vec::new(), Vec::new());
    while reader.next_packet(&mut packet).unwrap().is_some() {
        all.push(packet.clone());
    }
    all
}

#[test]
fn packets_come_one_by_one_and_readiness_says_when() {
    let mut rig = Rig::open("dummy", here(), &[]);
    assert!(!rig.is_readable(0) && rig.poll(0).is_empty());
    (1..=3).for_each(|i| rig.device().receive(0, vec![i; 60]));
    for i in 1..=3 {
        assert!(rig.is_readable(0));
        assert_eq!(rig.poll(0), [vec![i; 60]]);
    }
    assert!(!rig.is_readable(0) && rig.poll(0).is_empty());
}

#[test]
fn pmds_poll_several_queues_that_count_apart() {
    let mut rig = Rig::open("dummy-pmd", here(), &[("n_rxq", "2"), ("n_txq", "3"), ("numa_id", "1")]);
    let device = rig.device();
    assert_eq!((rig.port.info().n_rxq, rig.port.info().n_txq, device.shape().numa_id), (2, 3, 1));
    assert!(rig.rx[1].readiness().is_none());
    (1..=3).for_each(|i| device.receive(1, vec![i; 60]));
    assert!(rig.poll(0).is_empty());
    (1..=3).for_each(|i| assert_eq!(rig.poll(1), [vec![i; 60]]));
    assert!(rig.poll(1).is_empty());
    let stats = rig.port.stats();
    assert_eq!((stats.rx_packets, stats.rx_bytes), (3, 180));
    assert_eq!((rig.counter("rx_q0_packets"), rig.counter("rx_q1_packets")), (0, 3));
    assert_eq!((rig.counter("rx_q1_bytes"), rig.counter("rx_custom_packets_2")), (180, 3));
    assert_eq!(rig.port.custom_stats().len(), 2 + 2 * (2 + 3));
}

#[test]
fn what_does_not_fit_is_lost_and_counted() {
    let mut rig = Rig::open("dummy", here(), &[]);
    let device = rig.device();
    (0..101).for_each(|_| device.receive(0, vec![0; 60]));
    (0..100).for_each(|_| assert_eq!(rig.poll(0).len(), 1));
    device.receive(0, vec![0; 20_000]);
    assert!(rig.poll(0).is_empty());
    rig.send(&[vec![1; 1514], vec![1; 1515]]);
    let stats = rig.port.stats();
    assert_eq!((stats.rx_packets, stats.rx_missed, stats.rx_dropped), (100, 1, 2));
    assert_eq!((stats.tx_packets, stats.tx_bytes, stats.tx_dropped), (1, 1514, 1));
    assert_eq!(rig.tally.dropped(DropReason::RxOversize), 1);
    assert_eq!((rig.tally[Counter::Sent], rig.tally.dropped(DropReason::TxOversize)), (1, 1));
}

#[test]
fn captures_are_appended_to_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let (both, tx) = (directory.path().join("both.pcap"), directory.path().join("tx.pcap"));
    for round in 1..=2 {
        let mut rig = Rig::open("dummy", directory.path(), &[("pcap", "both.pcap")]);
        rig.device().receive(0, vec![1; 60]);
        rig.send(&[vec![2; 61]]);
        let expected: Vec<_> = [vec![1; 60], vec![2; 61]].into_iter().cycle().take(2 * round).collect();
        assert_eq!(packets_of(&both), expected);
    }
    let mut rig = Rig::open("dummy", directory.path(), &[("tx_pcap", "tx.pcap"), ("rxq_pcap", "none/rx.pcap")]);
    assert!(rig.port.notes()[0].contains("none/rx.pcap"), "{:?}", rig.port.notes());
    assert_eq!(packets_of(&tx), [] as [Vec<u8>; 0]);
    rig.device().receive(0, vec![1; 60]);
    rig.send(&[vec![2; 61]]);
    assert_eq!(packets_of(&tx), [vec![2; 61]]);
}

#[test]
fn addresses_are_counted_and_the_state_can_be_set() {
    let (first, second) = (Rig::open("dummy", here(), &[]), Rig::open("dummy-internal", here(), &[]));
    let number = |rig: &Rig| u64::from_be_bytes([&[0; 2][..], &rig.port.info().mac].concat().try_into().unwrap());
    assert_eq!(number(&first) >> 16, 0xaa55_aa55);
    assert!(number(&first) < number(&second));
    let given = Rig::open("dummy", here(), &[("mac", "02:00:00:00:00:09")]);
    assert_eq!(given.port.info().mac, [2, 0, 0, 0, 0, 9]);
    let mut given = Rig::open("dummy", here(), &[("ifindex", "1002"), ("mac", "02:00:00:00:00:09")]);
    given.port.set_mac([2; 6]).unwrap();
    let status = given.port.device_status();
    assert_eq!((status.mac, status.ifindex, status.is_admin_up), ([2; 6], 1002, true));
    assert!(first.port.is_up());
    first.device().set_admin_state(false);
    assert!(!first.port.is_up() && second.port.is_up());
    assert_eq!(first.device().conn_state(), ConnState::Unknown);
}

#[test]
fn a_device_with_an_address_answers_arp_requests_for_it() {
    let mut rig = Rig::open("dummy", here(), &[("mac", "02:00:00:00:00:09")]);
    let request = |target: [u8; 4]| {
        let [ether, asker] = [[0xff; 6], [2, 0, 0, 0, 0, 1]];
        let arp = [0, 1, 8, 0, 6, 4, 0, 1];
        [&ether[..], &asker, &[8, 6], &arp, &asker, &[10, 0, 0, 1], &[0; 6], &target].concat()
    };
    rig.send(&[request([10, 0, 0, 2])]);
    rig.device().set_ipv4([10, 0, 0, 2].into(), 24);
    rig.send(&[request([10, 0, 0, 3]), request([10, 0, 0, 2])]);
    let reply = rig.poll(0).pop().unwrap();
    let (device, asker) = ([2, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 1]);
    let arp = [0, 1, 8, 0, 6, 4, 0, 2];
    assert_eq!(reply, [&asker[..], &device, &[8, 6], &arp, &device, &[10, 0, 0, 2], &asker, &[10, 0, 0, 1]].concat());
    assert!(rig.poll(0).is_empty());
}

#[test]
fn two_devices_exchange_frames_and_find_each_other_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut active = Rig::open("dummy", directory.path(), &[("stream", "unix:p.sock")]);
    assert_eq!(active.device().conn_state(), ConnState::Disconnected);
    for round in 0..2 {
        let mut passive = Rig::open("dummy", directory.path(), &[("pstream", "punix:p.sock")]);
        assert_eq!(passive.device().conn_state(), ConnState::Unknown);
        wait_for(&active, ConnState::Connected);
        active.send(&[vec![round; 60], vec![round; 1514]]);
        assert_eq!(passive.next_packet(), vec![round; 60]);
        assert_eq!(passive.next_packet(), vec![round; 1514]);
        passive.send(&[vec![9; 14]]);
        assert_eq!(active.next_packet(), vec![9; 14]);
        drop(passive);
        wait_for(&active, ConnState::Disconnected);
    }
}

#[test]
fn a_peer_that_sends_nonsense_is_disconnected() {
    use std::io::{Read, Write};
    let directory = tempfile::tempdir().unwrap();
    let mut rig = Rig::open("dummy", directory.path(), &[("pstream", "punix:p.sock")]);
    let connect = || std::os::unix::net::UnixStream::connect(directory.path().join("p.sock")).unwrap();
    let mut bad = connect();
    bad.write_all(&[0, 13]).unwrap();
    assert_eq!(bad.read(&mut [0; 8]).unwrap(), 0);
    let mut slow = connect();
    for byte in [&[0, 14][..], &[7; 14]].concat() {
        slow.write_all(&[byte]).unwrap();
    }
    assert_eq!(rig.next_packet(), [7; 14]);
    let both = Rig::open("dummy", directory.path(), &[("pstream", "punix:a"), ("stream", "unix:b")]);
    assert!(both.port.notes()[0].contains("both punix:a and unix:b"));
}

fn wait_for(rig: &Rig, state: ConnState) {
    let until = Instant::now() + Duration::from_secs(20);
    while rig.device().conn_state() != state {
        assert!(Instant::now() < until, "never {state:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn options_change_without_another_device() {
    let directory = tempfile::tempdir().unwrap();
    let mut rig = Rig::open("dummy-pmd", directory.path(), &[("n_rxq", "2"), ("n_txq", "2")]);
    let device = rig.device();
    let mac = rig.port.info().mac;
    device.receive(0, vec![7; 60]);
    device.receive(1, vec![8; 60]);
    let options = [("n_rxq", "1"), ("ifindex", "9"), ("numa_id", "1"), ("pstream", "punix:peer"), ("tx_pcap", "sent")];
    let config = |options: &[(&str, &str)]| PortConfig {
        name: "p1".into(),
        kind: "dummy-pmd".into(),
        options: options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        base_dir: directory.path().to_owned(),
        ..PortConfig::default()
    };
    crate::reconfigure(&mut *rig.port, &config(&options)).unwrap();
    assert_eq!(rig.port.info(), PortInfo { kind: "dummy-pmd", n_rxq: 1, n_txq: 1, mtu: 1500, mac });
    assert_eq!((rig.port.device_status().ifindex, rig.port.numa_id()), (9, 1));
    // The queue that stays has its packet still; the other one gives nothing any more.
    assert_eq!((rig.poll(0), rig.poll(1)), (vec![vec![7; 60]], vec![]));
    std::os::unix::net::UnixStream::connect(directory.path().join("peer")).unwrap();
    rig.send(&[vec![9; 60]]);
    assert_eq!(directory.path().join("sent").metadata().unwrap().len(), 24 + 16 + 60);
    crate::reconfigure(&mut *rig.port, &config(&[])).unwrap();
    assert!(std::os::unix::net::UnixStream::connect(directory.path().join("peer")).is_err());
    rig.send(&[vec![9; 60]]);
    assert_eq!(directory.path().join("sent").metadata().unwrap().len(), 24 + 16 + 60);
    assert_eq!(rig.port.stats().tx_packets, 2);
}

#[test]
fn one_worker_spreads_connections_over_all_transmit_queues_by_hash() {
    let mut rig = Rig::open("dummy-pmd", here(), &[("n_txq", "2")]);
    let udp = |to: u8| {
        let mut frame = vec![0; 60];
        (frame[12], frame[14], frame[23], frame[37]) = (0x08, 0x45, 17, to);
        frame
    };
    let sent = |rig: &Rig| (rig.counter("tx_q0_packets"), rig.counter("tx_q1_packets"));
    rig.send(&(0..32).map(udp).collect::<Vec<_>>());
    assert_eq!(sent(&rig), (32, 0), "a worker has a queue");
    rig.tx = crate::TxSteering::Hash.queue(&mut *rig.port, 0);
    rig.send(&(0..32).map(udp).collect::<Vec<_>>());
    let (first, second) = sent(&rig);
    assert_eq!(first + second, 64);
    assert!(first > 32 && second > 0, "{first} and {second}");
    rig.send(&vec![udp(7); 10]);
    let more = (sent(&rig).0 - first, sent(&rig).1 - second);
    assert!(more == (10, 0) || more == (0, 10), "a connection stays in one queue: {more:?}");
    assert_eq!(rig.tally[Counter::Sent], 74);
}
