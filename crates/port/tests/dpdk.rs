//! DPDK ports on virtual devices, without huge pages or privileges. Built with the feature `dpdk` only.
#![cfg(feature = "dpdk")]

use sluice_fate::{Counter, DropReason, Tally};
use sluice_packet::{Buffers, PacketBatch};
use sluice_port::{DpdkConfig, Pools, PortConfig, open};
use sluice_testkit::vhost_guest::{BUFFERS, GuestPort, NEXT, WRITE, feature};
use std::sync::Arc;

fn config(name: &str, devargs: &str) -> PortConfig {
    let options = [("devargs".to_owned(), devargs.to_owned())].into();
    PortConfig { name: name.into(), kind: "dpdk".into(), options, ..PortConfig::default() }
}

/// DPDK starts once a process, so this is one test.
#[test]
fn packets_cross_in_place_and_are_counted() {
    let mut pools = Pools::new(512);
    let eal_args = ["--no-huge", "-m", "256", "--no-pci", "--no-telemetry"].map(String::from).to_vec();
    pools.set_dpdk_config(DpdkConfig { eal_args, mbufs: 8192, least_mbufs: 8192, ..DpdkConfig::default() });
    let mut source = open(&config("p1", "net_null0,size=64,copy=0"), &mut pools).unwrap();
    let mut sink = open(&config("p2", "net_null1"), &mut pools).unwrap();
    let mut ring = open(&config("p3", "net_ring0"), &mut pools).unwrap();
    let (mut buffers, mut tally, mut batch) = (Buffers::new(), Tally::default(), PacketBatch::new());

    let (mut rx, mut tx) = (source.rx_queue(0), sink.tx_queue(0));
    for _ in 0..1000 {
        rx.poll(&mut batch, &mut buffers, &mut tally);
        assert_eq!(batch.len(), 32);
        tally[Counter::Received] += batch.len() as u64;
        tx.send(&mut batch, &mut buffers, &mut tally);
        assert!(batch.is_empty());
    }
    assert_eq!((tally[Counter::Received], tally[Counter::Sent]), (32_000, 32_000));
    assert_eq!(tally.conserved(), Ok(()));
    assert_eq!((source.stats().rx_packets, sink.stats().tx_packets), (32_000, 32_000));

    // More packets than buffers, dropped by a PMD that has taken none from the pool itself.
    let mut dropping = Buffers::new();
    for _ in 0..1000 {
        rx.poll(&mut batch, &mut dropping, &mut tally);
        assert_eq!(batch.len(), 32);
        batch.discard(DropReason::Rules, &mut dropping, &mut tally);
    }

    // A ring returns what was sent: bytes survive a pushed and a trimmed header. A packet of our own pool is copied.
    let heap: Arc<dyn sluice_mem::FramePool> = pools.of_size(1500).unwrap();
    let (mut rx, mut tx) = (ring.rx_queue(0), ring.tx_queue(0));
    batch.push(buffers.write(&heap, &[7; 100]).unwrap());
    tx.send(&mut batch, &mut buffers, &mut tally);
    rx.poll(&mut batch, &mut buffers, &mut tally);
    let packet = &mut batch[0];
    assert_eq!(packet.bytes(), [7; 100]);
    assert_ne!(packet.frame.pool(), heap.id());
    packet.frame.push_front(4).unwrap();
    packet.bytes_mut()[..4].copy_from_slice(b"head");
    packet.frame.truncate(50);
    let token = packet.frame.token();
    tx.send(&mut batch, &mut buffers, &mut tally);
    rx.poll(&mut batch, &mut buffers, &mut tally);
    assert_eq!((&batch[0].bytes()[..5], batch[0].frame.len()), (&b"head\x07"[..], 50));
    assert_eq!(batch[0].frame.token(), token, "an mbuf stays where it is");
    batch.discard(DropReason::Rules, &mut buffers, &mut tally);

    // The ring belongs to another port, which continues to work.
    let busy = open(&config("p5", "net_ring0"), &mut pools).map(|_| ()).unwrap_err().to_string();
    assert!(busy.starts_with("port p5: devargs \"net_ring0\": another port of this switch uses the device"), "{busy}");
    batch.push(buffers.write(&heap, &[8; 100]).unwrap());
    tx.send(&mut batch, &mut buffers, &mut tally);
    rx.poll(&mut batch, &mut buffers, &mut tally);
    assert_eq!(batch.len(), 1);
    batch.discard(DropReason::Rules, &mut buffers, &mut tally);

    queues_of_a_device_are_apart(&mut pools);
    threads_share_the_queues_of_a_device(&mut pools);
    a_guest_sends_mbufs(&mut pools);

    let error = |devargs: &str| open(&config("p9", devargs), &mut Pools::new(64)).map(|_| ()).unwrap_err().to_string();
    assert!(error("net_none0").contains("eal-args"), "a second start with other arguments is refused");
    let error = open(&config("p9", "net_none0"), &mut pools).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("p9") && error.contains("net_none0"), "{error}");
    let queues = PortConfig { n_rxq: 40, ..config("p9", "net_pcap7,iface=none") };
    assert!(open(&queues, &mut pools).is_err());
}

/// What PMD n sends into its ring comes back on receive queue n only; a PMD beyond the transmit queues shares the
/// first.
fn queues_of_a_device_are_apart(pools: &mut Pools) {
    let mut port = open(&PortConfig { n_rxq: 4, ..config("p6", "net_ring1") }, pools).unwrap();
    let heap: Arc<dyn sluice_mem::FramePool> = pools.of_size(1500).unwrap();
    let (mut buffers, mut tally, mut batch) = (Buffers::new(), Tally::default(), PacketBatch::new());
    assert_eq!((port.info().n_rxq, port.info().n_txq), (4, 4));
    let mut queues: Vec<_> = (0..4).map(|queue| port.rx_queue(queue)).collect();
    for pmd in 0..5 {
        for n in 0..=pmd {
            batch.push(buffers.write(&heap, &[10 * pmd as u8 + n as u8; 60]).unwrap());
        }
        port.tx_queue(pmd).send(&mut batch, &mut buffers, &mut tally);
    }
    tally[Counter::Originated] += 15;
    let mut came = Vec::new();
    for rx in &mut queues {
        rx.poll(&mut batch, &mut buffers, &mut tally);
        tally[Counter::Received] += batch.len() as u64;
        came.push(batch.iter().map(|packet| packet.bytes()[0]).collect::<Vec<_>>());
        batch.discard(DropReason::Rules, &mut buffers, &mut tally);
    }
    assert_eq!(came, [vec![0, 40, 41, 42, 43, 44], vec![10, 11], vec![20, 21, 22], vec![30, 31, 32, 33]]);
    assert_eq!(tally.conserved(), Ok(()));
    assert_eq!((port.stats().rx_packets, port.stats().tx_packets), (15, 15));
}

/// Two threads, each with half of the receive queues and a transmit queue: each becomes a DPDK thread, and every packet
/// is counted by one of them.
fn threads_share_the_queues_of_a_device(pools: &mut Pools) {
    const POLLS: u64 = 2000;
    let mut port = open(&PortConfig { n_rxq: 4, ..config("p7", "net_null3,size=64,copy=0") }, pools).unwrap();
    let halves: Vec<_> =
        (0..2).map(|pmd| ([2 * pmd, 2 * pmd + 1].map(|queue| port.rx_queue(queue)), port.tx_queue(pmd))).collect();
    let tallies: Vec<Tally> = std::thread::scope(|scope| {
        let threads: Vec<_> = halves
            .into_iter()
            .map(|(mut queues, mut tx)| {
                scope.spawn(move || {
                    let (mut buffers, mut tally, mut batch) = (Buffers::new(), Tally::default(), PacketBatch::new());
                    for _ in 0..POLLS {
                        for rx in &mut queues {
                            rx.poll(&mut batch, &mut buffers, &mut tally);
                            tally[Counter::Received] += batch.len() as u64;
                            tx.send(&mut batch, &mut buffers, &mut tally);
                        }
                    }
                    tally
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for tally in &tallies {
        assert_eq!((tally[Counter::Received], tally.conserved()), (POLLS * 2 * 32, Ok(())));
    }
    let sum = |counter| tallies.iter().map(|tally| tally[counter]).sum::<u64>();
    assert_eq!((port.stats().rx_packets, port.stats().tx_packets), (sum(Counter::Received), sum(Counter::Sent)));
}

/// What a guest sends is copied once, into the pool that devices send from.
fn a_guest_sends_mbufs(pools: &mut Pools) {
    let port = GuestPort::open(pools, feature::VERSION_1 | feature::MERGEABLE, 16);
    let GuestPort { mut guest, mut rx, mut tx, .. } = port;
    let mut device = open(&config("p8", "net_null8,size=64,copy=0"), pools).unwrap();
    let (mut buffers, mut tally, mut batch) = (Buffers::new(), Tally::default(), PacketBatch::new());
    device.rx_queue(0).poll(&mut batch, &mut buffers, &mut tally);
    tally[Counter::Received] += batch.len() as u64;
    let of_devices = batch[0].frame.pool();
    buffers.give(batch.drain(1..));
    guest.describe(0, 0, (BUFFERS, 2048, WRITE, 0));
    guest.offer(0, 0);
    guest.publish(0);
    tx.send(&mut batch, &mut buffers, &mut tally);
    assert_eq!(guest.take_used(0), [(0, 76)]);

    guest.describe(1, 0, (BUFFERS, 12, NEXT, 1));
    guest.describe(1, 1, (BUFFERS + 4096, 60, 0, 0));
    guest.offer(1, 0);
    guest.publish(1);
    rx.poll(&mut batch, &mut buffers, &mut tally);
    assert_eq!((batch.len(), batch[0].frame.pool(), batch[0].frame.len()), (1, of_devices, 60));
    let token = batch[0].frame.token();
    let mut ring = open(&config("p10", "net_ring10"), pools).unwrap();
    ring.tx_queue(0).send(&mut batch, &mut buffers, &mut tally);
    ring.rx_queue(0).poll(&mut batch, &mut buffers, &mut tally);
    assert_eq!(batch[0].frame.token(), token, "it left without a second copy");
    batch.discard(DropReason::Rules, &mut buffers, &mut tally);
}
