//! Tap ports.

use crate::host::{Namespace, Rig, config, sh};
use sluice_fate::DropReason;
use sluice_mem::FramePool;
use sluice_port::{LinkMonitor, Pools, PortConfig};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

pub fn the_kernel_pings_through_it() {
    let mut pools = Pools::new(256);
    let config = PortConfig { mtu: 3000, ..config("tap", "p1", &[("device", "t0"), ("mac", "02:00:00:00:00:01")]) };
    let mut rig = Rig::open(&config, &mut pools).unwrap();
    assert_eq!(rig.port.info().mac, [2, 0, 0, 0, 0, 1]);
    assert!(rig.port.is_up());
    sh("ip addr add 10.9.0.1/24 dev t0");
    assert!(sh("ip link show t0").contains("mtu 3000"));
    let ping = ["-n", "-i", "0.01", "-c", "20", "-W", "5", "-s", "2900", "10.9.0.2"];
    let mut ping = Command::new("ping").args(ping).stdout(Stdio::null()).spawn().expect("ping runs");
    let mut status = None;
    rig.answer_until([10, 9, 0, 2], || {
        status = ping.try_wait().unwrap();
        status.is_some()
    });
    assert!(status.unwrap().success(), "every ping was answered");
    let stats = rig.port.stats();
    assert!(stats.rx_packets >= 21 && stats.tx_packets >= 21, "{stats:?}");
    assert!(stats.rx_bytes > 20 * 2900 && stats.rx_errors == 0, "{stats:?}");
}

pub fn queues_share_one_device() {
    let mut pools = Pools::new(256);
    let config = PortConfig { n_rxq: 3, ..config("tap", "p1", &[("device", "t0")]) };
    let mut rig = Rig::open(&config, &mut pools).unwrap();
    sh("ip addr add 10.9.0.1/24 dev t0; ip neigh add 10.9.0.2 lladdr 02:00:00:00:00:09 dev t0");
    let socket = std::net::UdpSocket::bind("10.9.0.1:0").unwrap();
    for port in 1..=90u16 {
        socket.send_to(&[port as u8; 30], ("10.9.0.2", port)).unwrap();
    }
    let mut seen = std::collections::HashSet::new();
    while seen.len() < 90 {
        rig.poll();
        for packet in rig.batch.iter().filter(|p| p.bytes().len() == 72 && p.bytes()[23] == 17) {
            seen.insert(packet.bytes()[37]);
        }
        rig.buffers.give_batch(&mut rig.batch);
    }
    assert!(rig.port.stats().rx_packets >= 90);
}

/// A device that its owner or Open vSwitch made has one queue, or several, and the kernel tells them apart.
pub fn a_device_that_is_there_is_opened() {
    for (n, more) in ["", "multi_queue"].into_iter().enumerate() {
        let device = format!("t{n}");
        sh(&format!("ip tuntap add {device} mode tap {more}"));
        let rig = Rig::open(&config("tap", "p1", &[("device", &device)]), &mut Pools::new(256)).unwrap();
        assert!(rig.port.is_up());
    }
    let two = PortConfig { n_rxq: 2, ..config("tap", "p1", &[("device", "t0")]) };
    let text = Rig::open(&two, &mut Pools::new(256)).map(|_| ()).unwrap_err().to_string();
    assert!(text.starts_with("port p1: tap device t0: attach a queue: ") && text.lines().count() == 1, "{text}");
}

/// An internal port's device stays with its addresses until the port is removed.
pub fn an_internal_ports_device_outlasts_it() {
    let open = || Rig::open(&config("internal", "br0", &[]), &mut Pools::new(256)).unwrap();
    drop(open());
    sh("ip addr add 10.9.0.1/24 dev br0");
    let mut rig = open();
    assert!(sh("ip -4 -br addr show br0").contains("10.9.0.1/24"));
    rig.port.delete_device();
    drop(rig);
    assert!(!sh("ip -br link").contains("br0"));
}

/// An internal port of OVS is down until its user sets it up.
pub fn an_internal_port_waits_to_be_set_up() {
    let mut rig = Rig::open(&config("internal", "br0", &[]), &mut Pools::new(256)).unwrap();
    assert!(!rig.port.is_up() && sh("ip link show br0").contains("state DOWN"));
    sh("sysctl -qw net.ipv6.conf.br0.disable_ipv6=1; ip addr add 10.9.0.1/24 dev br0; ip link set br0 up");
    sh("ip neigh add 10.9.0.2 lladdr 02:00:00:00:00:09 dev br0");
    assert!(rig.port.is_up());
    rig.drain();
    let socket = std::net::UdpSocket::bind("10.9.0.1:0").unwrap();
    socket.send_to(&[1; 30], ("10.9.0.2", 9)).unwrap();
    assert!(rig.is_readable_within(Duration::from_secs(5)));
    rig.drain();
    assert!(!rig.is_readable_within(Duration::ZERO));
}

/// A device whose MTU changes keeps its addresses, and its queues carry what is longer.
pub fn its_mtu_changes_while_it_is_open() {
    let mut pools = Pools::new(256);
    let mut rig = Rig::open(&config("internal", "br0", &[]), &mut pools).unwrap();
    sh("sysctl -qw net.ipv6.conf.br0.disable_ipv6=1; ip addr add 10.9.0.1/24 dev br0; ip link set br0 up");
    rig.port.set_mtu(4000, &mut pools).unwrap();
    assert_eq!((rig.port.info().mtu, rig.port.device_status().mtu), (4000, 4000));
    assert!(sh("ip addr show br0").contains("10.9.0.1/24"));
    sh("ip neigh add 10.9.0.2 lladdr 02:00:00:00:00:09 dev br0");
    let socket = std::net::UdpSocket::bind("10.9.0.1:0").unwrap();
    socket.send_to(&[1; 3900], ("10.9.0.2", 9)).unwrap();
    assert!(rig.is_readable_within(Duration::from_secs(5)));
    rig.drain();
    let stats = rig.port.stats();
    assert!(stats.rx_packets == 1 && stats.rx_bytes > 3900, "{stats:?}");
}

/// The kernel has told of a change when the call that made it has returned, and so a status that is kept is right.
pub fn the_kernel_tells_of_its_changes() {
    let mut monitor = LinkMonitor::new().unwrap();
    let mut pools = Pools::new(64);
    let mut rig = Rig::open(&config("internal", "br0", &[]), &mut pools).unwrap();
    assert_eq!(rig.port.kernel_device(), Some("br0"));
    let mut is_told = |change: &str| {
        let changes = monitor.take_changes();
        assert!(changes.concern("br0", 0), "{change}");
        assert!(!changes.concern("lo", 1), "{change}");
    };
    is_told("it was made");
    for change in ["up", "mtu 1400", "address 02:00:00:00:00:07", "down"] {
        sh(&format!("ip link set br0 {change}"));
        is_told(change);
    }
    rig.port.set_mtu(1300, &mut pools).unwrap();
    is_told("the port set its MTU");
    rig.port.set_mac([2, 0, 0, 0, 0, 8]).unwrap();
    is_told("the port set its address");
    sh("ip link del br0");
    is_told("it was deleted");
}

pub fn what_cannot_be_opened_is_said() {
    let error = |keys| Rig::open(&config("tap", "p1", keys), &mut Pools::new(64)).map(|_| ()).unwrap_err().to_string();
    let text = error(&[("device", "a-name-too-long-for-linux")]);
    assert!(text.contains("device = \"a-name-too-long-for-linux\": expected a device name"), "{text}");
    let text = error(&[("device", "lo")]);
    assert!(text.starts_with("port p1: tap device lo: attach a queue: Invalid argument"), "{text}");
}

pub fn a_device_that_is_down_takes_nothing() {
    let mut pools = Pools::new(64);
    let mut rig = Rig::open(&config("tap", "p1", &[("device", "t0")]), &mut pools).unwrap();
    sh("ip link set t0 down");
    assert!(!rig.port.is_up());
    let pool: Arc<dyn FramePool> = pools.of_size(100).unwrap();
    rig.batch.push(rig.buffers.write(&pool, &[0; 60]).unwrap());
    rig.batch.push(rig.buffers.write(&pool, &[0; 1600]).unwrap());
    rig.send();
    assert_eq!(rig.tally.dropped(DropReason::TxNoPort), 1);
    assert_eq!(rig.tally.dropped(DropReason::TxOversize), 1);
    assert_eq!(rig.port.stats().tx_dropped, 2);
    sh("ip link set t0 up");
    assert!(rig.port.is_up());
    rig.batch.push(rig.buffers.write(&pool, &[0; 60]).unwrap());
    rig.send();
    assert_eq!(rig.port.stats().tx_packets, 1);
    // In another namespace it is the same port.
    let other = Namespace::new();
    sh(&format!("ip link set t0 netns {}", other.pid()));
    assert!(!rig.port.is_up(), "moving sets it down");
    other.sh("ip link set t0 up");
    assert!(rig.port.is_up());
    other.sh("ip link del t0");
    assert!(!rig.port.is_up());
}

pub fn it_is_made_anew_when_it_was_deleted() {
    let mut pools = Pools::new(256);
    let config = PortConfig { n_rxq: 2, mtu: 2000, ..config("tap", "p1", &[("device", "t0")]) };
    let mut rig = Rig::open(&config, &mut pools).unwrap();
    let mac = rig.port.info().mac.map(|byte| format!("{byte:02x}")).join(":");
    rig.port.service();
    assert!(rig.port.is_up(), "what is there is left alone");
    // Alone, and together with the namespace that it was moved to.
    let other = Namespace::new();
    for end in ["ip link del t0", &format!("ip link set t0 netns {}", other.pid())] {
        sh(end);
        if end.contains("netns") {
            other.sh("ip link del t0");
        }
        rig.port.service();
        assert!(!rig.port.is_up(), "that it went is seen");
        rig.port.service();
        assert!(rig.port.is_up());
        let shown = sh("ip link show t0");
        assert!(shown.contains(&mac) && shown.contains("mtu 2000"), "{shown}");
        let pool: Arc<dyn FramePool> = pools.of_size(100).unwrap();
        let before = rig.port.stats().tx_packets;
        rig.batch.push(rig.buffers.write(&pool, &[0; 60]).unwrap());
        rig.send();
        assert_eq!(rig.port.stats().tx_packets, before + 1);
    }
}
