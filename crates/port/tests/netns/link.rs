//! Ports on one end of a veth pair, whatever their type; the kernel's stack or another port is at the other end.

use crate::host::{Namespace, Rig, config, opened_with, sh};
use sluice_fate::{Counter, DropReason};
use sluice_mem::FramePool;
use sluice_port::{Pools, PortConfig};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Makes veth pairs v0-v1, …, with that many queues each way; up, without IPv6 and its background packets.
fn veth(pairs: usize, queues: usize) {
    for n in 0..pairs {
        let (ours, theirs) = (2 * n, 2 * n + 1);
        let queues = format!("numrxqueues {queues} numtxqueues {queues}");
        sh(&format!("ip link add v{ours} {queues} type veth peer name v{theirs} {queues}"));
        for v in [ours, theirs] {
            sh(&format!("sysctl -qw net.ipv6.conf.v{v}.disable_ipv6=1; ip link set v{v} mtu 9000 up"));
        }
    }
}

fn ping(args: &str) -> Child {
    let args = format!("-n -i 0.02 -W 5 {args}");
    Command::new("ping").args(args.split(' ')).stdout(Stdio::null()).spawn().expect("ping runs")
}

/// Answers as 10.9.0.2 until `ping` ends well.
fn answer(rig: &mut Rig, mut ping: Child) {
    let mut status = None;
    rig.answer_until([10, 9, 0, 2], || {
        status = ping.try_wait().unwrap();
        status.is_some()
    });
    assert!(status.unwrap().success(), "every ping was answered");
}

pub fn pings_of_all_sizes(kind: &str) {
    veth(1, 1);
    sh("ip addr add 10.9.0.1/24 dev v1");
    for (mtu, size) in [(1500, 56), (1500, 1472), (9000, 8972)] {
        let config = PortConfig { mtu, ..config(kind, "p1", &[("device", "v0")]) };
        let mut rig = Rig::open(&config, &mut Pools::new(1024)).unwrap();
        assert!(rig.port.is_up());
        answer(&mut rig, ping(&format!("-c 10 -s {size} 10.9.0.2")));
        let stats = rig.port.stats();
        assert!(stats.tx_packets >= 10 && stats.tx_bytes > 10 * size, "{stats:?}");
    }
}

/// Frames with one tag and with two, full-sized behind them, arrive as they were sent.
pub fn vlan_tags_stay(kind: &str) {
    veth(1, 1);
    let mut pools = Pools::new(1024);
    let mut near = Rig::open(&config(kind, "p1", &[("device", "v0")]), &mut pools).unwrap();
    let mut far = Rig::open(&config(kind, "p2", &[("device", "v1")]), &mut pools).unwrap();
    let pool: Arc<dyn FramePool> = pools.of_size(1522).unwrap();
    let tags: [&[u8]; 4] = [&[], &[0x81, 0, 0x60, 10], &[0x88, 0xa8, 0, 10], &[0x88, 0xa8, 0, 10, 0x81, 0, 0x20, 20]];
    let frames = tags.map(|tags| {
        let mut frame = vec![2; 12];
        frame.extend(tags.iter().chain(&[0x88, 0xb5]));
        frame.extend((0..1500).map(|i| i as u8));
        frame
    });
    for frame in &frames {
        near.batch.push(near.buffers.write(&pool, frame).unwrap());
    }
    near.send();
    assert_eq!(near.port.stats().tx_packets, 4);
    let (mut came, start) = (Vec::new(), Instant::now());
    while came.len() < 4 && start.elapsed() < Duration::from_secs(5) {
        far.poll();
        came.extend(far.batch.iter().map(|packet| packet.bytes().to_vec()));
        far.buffers.give_batch(&mut far.batch);
    }
    assert_eq!(came, frames);
}

/// Two hosts, each behind a port; what one sends goes to the other. TCP with all offloads as they are by default.
pub fn tcp_passes_with_offloads_on(kind: &str) {
    veth(2, 1);
    let other = Namespace::new();
    sh(&format!("ip addr add 10.9.0.1/24 dev v1; ip link set v3 netns {}", other.pid()));
    other.sh("ip addr add 10.9.0.2/24 dev v3; ip link set v3 mtu 1500 up; ip link set lo up");
    sh("ip link set v1 mtu 1500");
    let mut pools = Pools::new(4096);
    let mut left = Rig::open(&config(kind, "p1", &[("device", "v0")]), &mut pools).unwrap();
    let mut right = Rig::open(&config(kind, "p2", &[("device", "v2")]), &mut pools).unwrap();
    let mut server = other.spawn("iperf3 -s -1 -p 5201");
    let mut client = None;
    let (mut status, start) = (None, Instant::now());
    while status.is_none() {
        assert!(start.elapsed() < Duration::from_secs(40), "{:?} {:?}", left.port.stats(), right.port.stats());
        if client.is_none() && other.listens_on(5201) {
            let line = "iperf3 -c 10.9.0.2 -p 5201 -n 100M";
            client = Some(Command::new("sh").args(["-c", line]).stdout(Stdio::piped()).spawn().unwrap());
        }
        pass(&mut left, &mut right);
        pass(&mut right, &mut left);
        status = client.as_mut().and_then(|client: &mut Child| client.try_wait().unwrap());
    }
    let text = std::io::read_to_string(client.unwrap().stdout.take().unwrap()).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(status.unwrap().success(), "{text}");
    assert!(left.port.stats().rx_bytes > 100 << 20, "{:?}", left.port.stats());
    println!("{kind}: {}", text.lines().find(|line| line.contains("receiver")).unwrap_or("?"));
}

/// Forwards packets from one port to the other.
fn pass(from: &mut Rig, to: &mut Rig) {
    from.poll();
    std::mem::swap(&mut from.batch, &mut to.batch);
    to.send();
}

/// From port to port over the pair, paced and never more under way than the rings hold: every packet arrives, as it was
/// sent.
pub fn a_paced_stream_loses_nothing(kind: &str) {
    const PACKETS: usize = 50_000;
    /// Half of the kernel's shortest queue on the way (`net.core.netdev_max_backlog`, 1000).
    const UNDER_WAY: usize = 500;
    veth(1, 1);
    let mut pools = Pools::new(4096);
    let keys =
        [("flows", "1000"), ("rate", "50k"), ("count", "50000"), ("choice", "sequential"), ("frame-size", "200")];
    let mut source = Rig::open(&config("generator", "g", &keys), &mut pools).unwrap();
    let mut near = Rig::open(&config(kind, "p1", &[("device", "v0")]), &mut pools).unwrap();
    let mut far = Rig::open(&config(kind, "p2", &[("device", "v1")]), &mut pools).unwrap();
    let (mut sent, mut came, mut start) = (0, 0, Instant::now());
    while came < PACKETS && start.elapsed() < Duration::from_secs(20) {
        // Where the kernel's threads wait for a processor the source waits, too.
        if sent < came + UNDER_WAY {
            source.poll();
        }
        if !source.batch.is_empty() {
            sent += source.batch.len();
            start = Instant::now();
        }
        std::mem::swap(&mut source.batch, &mut near.batch);
        near.send();
        far.poll();
        for packet in far.batch.iter() {
            let flow = (came % 1000) as u16;
            assert_eq!(
                (packet.bytes().len(), &packet.bytes()[32..34]),
                (200, &flow.to_be_bytes()[..]),
                "packet {came}"
            );
            came += 1;
        }
        far.tally[Counter::Delivered] += far.batch.len() as u64;
        far.buffers.give_batch(&mut far.batch);
    }
    assert_eq!((came, near.port.stats().tx_packets), (PACKETS, PACKETS as u64));
    assert_eq!(far.port.stats().rx_dropped, 0);
    assert_eq!(far.tally.conserved(), Ok(()));
}

/// At full speed, with packets of a foreign pool among them: sent plus dropped packets add up, and in the end every
/// frame is back in its pool.
pub fn a_flood_leaks_nothing(kind: &str) {
    const PACKETS: u64 = 200_000;
    veth(1, 1);
    let (mut pools, mut foreign) = (Pools::new(4096), Pools::new(512));
    let keys = [("flows", "1000"), ("count", "200000")];
    let mut source = Rig::open(&config("generator", "g", &keys), &mut pools).unwrap();
    let mut other = Rig::open(&config("generator", "h", &keys), &mut foreign).unwrap();
    let mut near = Rig::open(&config(kind, "p1", &[("device", "v0")]), &mut pools).unwrap();
    let mut far = Rig::open(&config(kind, "p2", &[("device", "v1")]), &mut pools).unwrap();
    foreign.iter().for_each(|pool| near.buffers.add_pool(&(Arc::clone(pool) as Arc<dyn FramePool>)));
    let mut far_sent = 0;
    for round in 0.. {
        let from = if round % 8 == 0 { &mut other } else { &mut source };
        from.poll();
        std::mem::swap(&mut from.batch, &mut near.batch);
        near.send();
        // Packets return the way they came: sent from the frames they were received into.
        far.poll();
        far_sent += far.batch.len() as u64;
        far.send();
        near.poll();
        near.tally[Counter::Delivered] += near.batch.len() as u64;
        near.buffers.give_batch(&mut near.batch);
        if source.rx[0].exhausted() {
            break;
        }
    }
    let generated = source.port.stats().rx_packets + other.port.stats().rx_packets;
    near.tally[Counter::Received] += generated;
    assert_eq!(near.tally.conserved(), Ok(()));
    assert_eq!(far.tally.conserved(), Ok(()));
    let stats = (near.port.stats(), far.port.stats());
    assert_eq!(stats.0.tx_packets + stats.0.tx_dropped, generated, "{stats:?}");
    // How many the kernel carries is its own affair; every frame was used more than once.
    assert!(generated > PACKETS && far_sent > pools.of_size(1522).unwrap().capacity() as u64, "{stats:?}");
    drop((source, other, near, far));
    for pool in pools.iter().chain(foreign.iter()) {
        assert_eq!(pool.available(), pool.capacity(), "{stats:?}");
    }
}

/// Every packet is in one queue, and all packets of a flow are in the same.
pub fn queues_share_the_flows(kind: &str) {
    veth(1, 3);
    let mut rig =
        Rig::open(&PortConfig { n_rxq: 3, ..config(kind, "p1", &[("device", "v0")]) }, &mut Pools::new(8192)).unwrap();
    sh("ip addr add 10.9.0.1/24 dev v1; ip neigh add 10.9.0.2 lladdr 02:00:00:00:00:09 dev v1");
    let sockets: Vec<_> = (0..30).map(|_| std::net::UdpSocket::bind("10.9.0.1:0").unwrap()).collect();
    for number in 0..10u8 {
        sockets.iter().for_each(|socket| assert_eq!(socket.send_to(&[number; 30], "10.9.0.2:9").unwrap(), 30));
    }
    let mut seen = std::collections::HashMap::new();
    let (mut came, start) = (0, Instant::now());
    while came < 300 && start.elapsed() < Duration::from_secs(20) {
        for (queue, rx) in rig.rx.iter_mut().enumerate() {
            rx.poll(&mut rig.batch, &mut rig.buffers, &mut rig.tally);
            for packet in rig.batch.iter().filter(|packet| packet.bytes().len() == 72) {
                let flow = (packet.bytes()[34], packet.bytes()[35]);
                let next = seen.entry(flow).or_insert((queue, 0));
                assert_eq!(*next, (queue, packet.bytes()[42]), "in one queue, and in order");
                next.1 += 1;
                came += 1;
            }
            rig.buffers.give_batch(&mut rig.batch);
        }
    }
    assert_eq!((came, seen.len()), (300, 30));
    let used: std::collections::HashSet<usize> = seen.values().map(|(queue, _)| *queue).collect();
    assert!(used.len() > 1, "{used:?}");
}

pub fn it_comes_back_with_its_device(kind: &str) {
    veth(1, 1);
    let mut pools = Pools::new(1024);
    let mut rig = Rig::open(&config(kind, "p1", &[("device", "v0")]), &mut pools).unwrap();
    let pool: Arc<dyn FramePool> = pools.of_size(100).unwrap();
    sh("ip link del v0");
    assert!(!rig.port.is_up());
    rig.port.service();
    rig.poll();
    rig.batch.push(rig.buffers.write(&pool, &[0; 60]).unwrap());
    rig.send();
    assert_eq!(rig.tally.dropped(DropReason::TxNoPort), 1);
    veth(1, 1);
    sh("ip addr add 10.9.0.1/24 dev v1");
    // The kernel needs a moment to report the link.
    let start = Instant::now();
    while !rig.port.is_up() && start.elapsed() < Duration::from_secs(5) {
        rig.port.service();
    }
    assert!(rig.port.is_up());
    // The packet without a port was never received.
    rig.tally[Counter::Originated] += 1;
    answer(&mut rig, ping("-c 3 10.9.0.2"));
}

/// A capture on the device shows what the port sends, as with Open vSwitch.
pub fn captures_show_what_it_sends(kind: &str) {
    veth(1, 1);
    let mut pools = Pools::new(1024);
    let mut rig = Rig::open(&config(kind, "p1", &[("device", "v0")]), &mut pools).unwrap();
    let pool: Arc<dyn FramePool> = pools.of_size(100).unwrap();
    let filter = ["-i", "v0", "-c", "1", "-Q", "out", "ether", "proto", "0x88b5"];
    let mut capture = Command::new("tcpdump").args(filter).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let mut frame = [0; 60];
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    let start = Instant::now();
    while capture.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_secs(10) {
            capture.kill().unwrap();
            panic!("the capture has seen nothing");
        }
        rig.batch.push(rig.buffers.write(&pool, &frame).unwrap());
        rig.tally[Counter::Originated] += 1;
        rig.send();
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A descriptor is readable as long as packets wait, and stays the same when its device is replaced.
pub fn a_thread_can_sleep_until_there_are_packets(kind: &str) {
    let mut pools = Pools::new(1024);
    veth(1, 1);
    let mut near = Rig::open(&config(kind, "v0", &[]), &mut pools).unwrap();
    let mut far = Rig::open(&config("af_packet", "v1", &[]), &mut pools).unwrap();
    let pool: Arc<dyn FramePool> = pools.of_size(100).unwrap();
    let number = near.rx[0].readiness().unwrap().as_raw_fd();
    for is_first in [true, false] {
        near.drain();
        assert!(!near.is_readable_within(Duration::from_millis(30)));
        far.batch.push(far.buffers.write(&pool, &[0; 60]).unwrap());
        far.tally[Counter::Originated] += 1;
        far.send();
        assert!(near.is_readable_within(Duration::from_secs(5)));
        near.drain();
        assert_eq!(near.port.stats().rx_packets, if is_first { 1 } else { 2 });
        if is_first {
            sh("ip link del v0");
            veth(1, 1);
            far.port.service();
            near.port.service();
            assert_eq!(near.rx[0].readiness().unwrap().as_raw_fd(), number);
        }
    }
}

/// Nobody waits for a timer: what was sent is there when it is looked for.
pub fn a_lone_packet_is_handed_over_at_once(kind: &str) {
    veth(1, 1);
    let mut pools = Pools::new(1024);
    let mut near = Rig::open(&config(kind, "v0", &[]), &mut pools).unwrap();
    let mut far = Rig::open(&config(kind, "v1", &[]), &mut pools).unwrap();
    let pool: Arc<dyn FramePool> = pools.of_size(100).unwrap();
    let mut waits: Vec<Duration> = (0..51)
        .map(|_| {
            far.batch.push(far.buffers.write(&pool, &[0; 60]).unwrap());
            far.send();
            let start = Instant::now();
            while near.batch.is_empty() {
                assert!(start.elapsed() < Duration::from_secs(5), "{:?}", near.port.stats());
                near.poll();
            }
            let waited = start.elapsed();
            near.buffers.give_batch(&mut near.batch);
            waited
        })
        .collect();
    waits.sort();
    assert!(waits[25] < Duration::from_micros(200), "{waits:?}");
}

/// Sends by a tap as a guest does that fragments UDP itself, which no header of today's kernels describes: lines of
/// standard input say how many of these and then of small packets. Python, since the device takes calls that are unsafe
/// here.
const GUEST: &str = r#"
import fcntl, os, struct, sys
tap = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tap, 0x400454CA, struct.pack("16sH", b"t0", 0x0002 | 0x1000 | 0x4000))
os.system("sysctl -qw net.ipv6.conf.t0.disable_ipv6=1; ip link set t0 up")
print("up", flush=True)
ethernet = bytes.fromhex("020000000001" "020000000002" "0800")
ip = lambda size: struct.pack(">BBHHHBBH8s", 0x45, 0, size, 0, 0, 64, 17, 0, bytes([10, 0, 0, 1, 10, 0, 0, 2]))
for line in sys.stdin:
    large, small = map(int, line.split())
    for _ in range(large):
        head = struct.pack("<BBHHHH", 1, 3, 42, 1000, 34, 6)
        os.write(tap, head + ethernet + ip(3000) + struct.pack(">HHHH", 1, 2, 2980, 0) + bytes(2972))
    for _ in range(small):
        os.write(tap, bytes(10) + ethernet + ip(46) + struct.pack(">HHHH", 1, 2, 26, 0) + bytes(18))
    print("sent", flush=True)
"#;

/// The kernel stops using a ring after such a packet; the port has another one soon.
pub fn a_packet_that_no_header_describes_stops_nobody(kind: &str) {
    let mut guest = Command::new("python3");
    let mut guest = guest.args(["-c", GUEST]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut to, mut from) = (guest.stdin.take().unwrap(), BufReader::new(guest.stdout.take().unwrap()));
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    let mut rig = Rig::open(&config(kind, "t0", &[]), &mut Pools::new(1024)).unwrap();
    let mut send = |large, small| {
        writeln!(to, "{large} {small}").unwrap();
        from.read_line(&mut line).unwrap();
    };
    let came = |rig: &mut Rig| {
        rig.poll();
        let n = rig.batch.iter().filter(|packet| packet.bytes().len() == 60).count();
        rig.tally[Counter::Delivered] += rig.batch.len() as u64;
        rig.buffers.give_batch(&mut rig.batch);
        n
    };
    for _ in 0..3 {
        send(0, 3);
        assert_eq!(came(&mut rig), 3);
        send(1, 0);
        let start = Instant::now();
        let mut n = 0;
        while n == 0 {
            assert!(start.elapsed() < Duration::from_secs(5), "{:?}", rig.port.stats());
            send(0, 1);
            rig.port.service();
            n = came(&mut rig);
        }
        // What the other ring had no room for is counted.
        assert!(rig.port.stats().rx_missed > 0, "{:?}", rig.port.stats());
    }
    assert_eq!(rig.tally.conserved(), Ok(()));
    drop(to);
    guest.wait().unwrap();
}

/// Datagrams that their sender leaves to the kernel to split, a few short ones in a packet that is no longer than others.
const SENDER: &str = r#"
import socket
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(17, 103, 100)
for _ in range(10):
    sock.sendto(b"".join(bytes([i]) * 100 for i in range(5)), ("10.9.0.2", 9))
"#;

/// They are datagrams of their own behind the port.
pub fn segments_of_udp_are_split(kind: &str) {
    veth(1, 1);
    sh("ip addr add 10.9.0.1/24 dev v1; ip neigh add 10.9.0.2 lladdr 02:00:00:00:00:09 dev v1");
    let mut rig = Rig::open(&config(kind, "v0", &[]), &mut Pools::new(1024)).unwrap();
    let status = Command::new("python3").args(["-c", SENDER]).status().unwrap();
    assert!(status.success());
    let (mut came, start) = (Vec::new(), Instant::now());
    while came.len() < 50 && start.elapsed() < Duration::from_secs(5) {
        rig.poll();
        let datagrams = rig.batch.iter().filter(|packet| packet.bytes()[12..14] == [8, 0]);
        came.extend(datagrams.map(|packet| packet.bytes()[42..].to_vec()));
        rig.buffers.give_batch(&mut rig.batch);
    }
    let sent: Vec<_> = (0..50u8).map(|i| vec![i % 5; 100]).collect();
    assert_eq!(came, sent, "{:?}", rig.port.stats());
}

pub fn what_cannot_be_opened_is_said(kind: &str) {
    let error = |keys| Rig::open(&config(kind, "p1", keys), &mut Pools::new(64)).map(|_| ()).unwrap_err().to_string();
    let text = error(&[("device", "no/name")]);
    assert!(text.contains("device = \"no/name\": expected a device name"), "{text}");
    let text = error(&[("device", "none0")]);
    assert!(text.starts_with("port p1: device none0: find it: No such device"), "{text}");
    assert!(text.contains("`ip link` lists them"), "{text}");
    let text = error(&[("device", "lo")]);
    assert!(text.starts_with("port p1: device lo: read its address"), "{text}");
}

/// After the driver instead of in it.
pub fn generic_mode_works_and_says_what_it_means() {
    veth(1, 1);
    sh("ip addr add 10.9.0.1/24 dev v1");
    let keys = [("device", "v0"), ("mode", "generic")];
    let config = PortConfig { mtu: 9000, ..config("af_xdp", "p1", &keys) };
    let mut rig = Rig::open(&config, &mut Pools::new(1024)).unwrap();
    let [note] = rig.port.notes() else { panic!("{:?}", rig.port.notes()) };
    assert!(note.starts_with("generic mode: ") && note.contains("large segments of local senders"), "{note}");
    answer(&mut rig, ping("-c 10 -s 8972 10.9.0.2"));
}

/// Two programs cannot use a device's queues; the first continues to work.
pub fn a_device_that_is_busy_is_said() {
    veth(1, 1);
    sh("ip addr add 10.9.0.1/24 dev v1");
    for mode in ["native", "generic"] {
        let config = config("af_xdp", "p1", &[("device", "v0"), ("mode", mode)]);
        let mut pools = Pools::new(1024);
        let mut rig = Rig::open(&config, &mut pools).unwrap();
        // By a port of the same pool, and by one of another pool, as another program's would be.
        for pools in [&mut pools, &mut Pools::new(1024)] {
            let twice = Rig::open(&config, pools).map(|_| ()).unwrap_err().to_string();
            assert!(twice.starts_with("port p1: device v0: ") && twice.lines().count() == 1, "{twice}");
            assert!(twice.ends_with("busy (os error 16); something else uses the device"), "{twice}");
        }
        answer(&mut rig, ping("-c 3 10.9.0.2"));
    }
}

/// Two ports on one registration of memory, which lies on reserved huge pages where the kernel has enough of them.
pub fn its_buffers_are_on_huge_pages_if_there_are_any() {
    let set = "/proc/sys/vm/nr_hugepages";
    let reserved: u64 = sh(&format!("cat {set}")).trim().parse().unwrap();
    // The kernel reserves what it finds: fewer pages, without an error, where memory is in pieces.
    sh(&format!("echo 1 > /proc/sys/vm/compact_memory; echo {} > {set}", reserved + 8));
    let free: usize = sh("awk '/^HugePages_Free/ { print $2 }' /proc/meminfo").trim().parse().unwrap();
    veth(2, 1);
    let mut pools = Pools::new(1024);
    let opened = ["v0", "v2"].map(|device| Rig::open(&config("af_xdp", device, &[]), &mut pools).map(|_| ()));
    let pool = pools.of_size(1522).unwrap();
    sh(&format!("echo {reserved} > {set}"));
    assert!(opened.iter().all(Result::is_ok), "{opened:?}");
    let needed = (pool.capacity() * pool.frame_size()).div_ceil(2 << 20);
    let on_huge_pages = pool.pages() == sluice_mem::Pages::Huge;
    assert_eq!(on_huge_pages, free >= needed, "{free} free, {needed} needed: {:?}", pool.pages());
}

/// A bridge's driver refuses the program: generic mode takes its place unless native mode is required, and both are
/// reported.
pub fn a_driver_without_xdp_falls_back_and_says_so() {
    sh("ip link add v0 type bridge; ip link set v0 up");
    let rig = Rig::open(&config("af_xdp", "p1", &[("device", "v0")]), &mut Pools::new(1024)).unwrap();
    let [note] = rig.port.notes() else { panic!("{:?}", rig.port.notes()) };
    assert!(note.starts_with("the driver takes no XDP program (") && note.contains("): generic mode: "), "{note}");
    drop(rig);
    let keys = [("device", "v0"), ("mode", "native")];
    let error = Rig::open(&config("af_xdp", "p1", &keys), &mut Pools::new(1024)).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("put a program on it in the mode asked for: ") && error.lines().count() == 1, "{error}");
    assert!(error.contains("the device does not support that"), "{error}");
}

/// From port to port without a free frame for a copy: the packet leaves in the frame it came in.
pub fn packets_cross_between_ports_in_place() {
    const FRAMES: usize = 2048;
    veth(2, 1);
    let mut pools = Pools::new(FRAMES);
    let mut far = Rig::open(&config("af_packet", "f", &[("device", "v1")]), &mut Pools::new(1024)).unwrap();
    let mut near = Rig::open(&config("af_xdp", "p1", &[("device", "v0")]), &mut pools).unwrap();
    let mut other = Rig::open(&config("af_xdp", "p2", &[("device", "v2")]), &mut pools).unwrap();
    let mut end = Rig::open(&config("af_packet", "e", &[("device", "v3")]), &mut Pools::new(1024)).unwrap();
    let frame = [&[2; 12][..], &[0x88, 0xb5], &[7; 500]].concat();
    let mut foreign = Pools::new(64);
    let foreign: Arc<dyn FramePool> = foreign.of_size(1522).unwrap();
    far.batch.push(far.buffers.write(&foreign, &frame).unwrap());
    far.send();
    until(|| {
        near.poll();
        !near.batch.is_empty()
    });
    // Takes every free frame, including those in the port's buffer caches.
    let pool: Arc<dyn FramePool> = pools.of_size(1522).unwrap();
    let mut taken = Vec::new();
    for buffers in [&mut near.buffers, &mut other.buffers] {
        taken.extend(std::iter::from_fn(|| buffers.take(&pool)));
    }
    assert!(pool.available() == 0 && taken.len() < FRAMES, "{} free", pool.available());
    let copy = other.buffers.copy_into(&pool, &near.batch[0]);
    assert_eq!(copy.map(|_| ()).unwrap_err(), DropReason::NoBuffer);
    std::mem::swap(&mut near.batch, &mut other.batch);
    other.send();
    assert_eq!(other.port.stats().tx_packets, 1);
    until(|| {
        end.poll();
        !end.batch.is_empty()
    });
    assert_eq!(end.batch[0].bytes(), frame);
    end.buffers.give_batch(&mut end.batch);
    taken.drain(..).for_each(|frame| other.buffers.give_frame(frame));
}

/// Waits until something is so.
fn until(mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "it never came to be");
        std::thread::yield_now();
    }
}

/// Packets of queues that the port does not use go to the kernel, which is reported.
pub fn fewer_queues_than_the_device_are_noted() {
    veth(1, 3);
    let rig = Rig::open(&config("af_xdp", "p1", &[("device", "v0")]), &mut Pools::new(1024)).unwrap();
    let [mode, queues] = rig.port.notes() else { panic!("{:?}", rig.port.notes()) };
    assert!(mode.starts_with("no zero-copy: the driver offers none (Operation not supported"), "{mode}");
    assert!(queues.contains("the device has 3 receive queues and the port 1"), "{queues}");
    let three = PortConfig { n_rxq: 4, ..config("af_xdp", "p1", &[("device", "v1")]) };
    let error = Rig::open(&three, &mut Pools::new(1024)).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("`ethtool -L` sets how many it has"), "{error}");
}

/// One line with cause and remedy.
pub fn missing_privileges_are_said(kind: &str) {
    if kind != "tap" {
        veth(1, 1);
    }
    let text = opened_with("setpriv --bounding-set -all", kind);
    assert!(text.starts_with("port p1: ") && text.contains("device v0: ") && text.lines().count() == 1, "{text}");
    assert!(text.contains("Operation not permitted") && text.contains("capabilities NET_ADMIN and NET_RAW"), "{text}");
}

/// An ordinary user with the capabilities that the type lists can open a port; without any one of them it cannot.
pub fn capabilities_are_exact(kind: &str) {
    if kind != "tap" {
        veth(1, 1);
    }
    let listed = sluice_port::PORT_TYPES.iter().find(|known| known.name == kind).unwrap().capabilities;
    let open = |names: &[&str]| {
        if kind != "tap" {
            // The port sets up everything that is needed.
            sh("ip link set v0 down mtu 1400");
        }
        let set: String = names.iter().map(|name| format!(",+{}", name.to_lowercase())).collect();
        let user = "setpriv --reuid 65534 --regid 65534 --clear-groups";
        let limit = "prlimit --memlock=8388608";
        opened_with(
            &format!("{limit} {user} --inh-caps -all{set} --ambient-caps -all{set} --bounding-set -all{set}"),
            kind,
        )
    };
    assert_eq!(open(listed), "");
    for without in listed {
        let rest: Vec<_> = listed.iter().filter(|name| *name != without).copied().collect();
        let text = open(&rest);
        assert!(text.starts_with("port p1: ") && text.lines().count() == 1, "{kind} without {without}: {text:?}");
    }
}

pub fn too_little_locked_memory_is_said() {
    veth(1, 1);
    let text = opened_with("setpriv --bounding-set -ipc_lock prlimit --memlock=8388608", "af_xdp");
    assert!(text.starts_with("port p1: device v0: ") && text.lines().count() == 1, "{text}");
    assert!(text.contains("raise the limit of locked memory (ulimit -l)"), "{text}");
}
