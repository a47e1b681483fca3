//! Fragments through `ct`: held, tracked as one datagram, released each with its own actions, never lost.

mod harness;

use harness::*;
use sluice_action::{Action, Actions, Ct, PortNo, Translation, UpcallResult, XcacheHandle};
use sluice_conntrack::{NatSpec, NatTarget, ct_state};
use sluice_datapath::{Config, Datapath};
use sluice_fate::{Counter, DropReason};
use sluice_flow::{PacketKey, layout};
use sluice_mem::{FramePool, HeapPool, PoolConfig};
use sluice_packet::checksum;
use sluice_packet::headers::ip_proto;
use std::sync::Arc;

/// Bytes of data in a fragment that is not the last.
const PIECE: usize = 1200;
/// The datapath's first time, so that nothing happens at zero.
const BEGIN_MS: u64 = 1_000_000;

struct Bench {
    datapath: Datapath,
    pool: Arc<dyn FramePool>,
    feeds: Vec<Feed>,
    sents: Vec<Sent>,
    now_ms: u64,
}

impl Bench {
    /// Ports 1 to 4 with a queue for each of two PMDs.
    fn new(rule: impl Fn(&PacketKey) -> Vec<Action> + Send + Sync + 'static) -> Self {
        Bench::with_pool(pool(1024), rule)
    }

    fn with_pool(pool: Arc<dyn FramePool>, rule: impl Fn(&PacketKey) -> Vec<Action> + Send + Sync + 'static) -> Self {
        let tables = FakeTables::new(move |key, _| {
            let mut mask = PacketKey::ZERO;
            for span in [layout::IN_PORT, layout::RECIRC_ID, layout::NW_FRAG, layout::CT_STATE, layout::TP_DST] {
                mask.set(span, &[0xff; 16][..span.size]);
            }
            let actions: Actions = rule(key).into();
            let xcache = XcacheHandle(Arc::new(()));
            let no_output = DropReason::Rules;
            UpcallResult::Translated(Translation { mask, actions, no_output, version: 1, cacheable: true, xcache })
        });
        let config = Config { cores: vec![0, 1], max_megaflows: 1 << 10, seed: Some(1), ..Config::default() };
        let datapath = Datapath::new(config).unwrap();
        let upcalls = tables.clone();
        datapath.set_upcalls(move |_| Box::new(upcalls.clone()));
        let (mut feeds, mut sents) = (Vec::new(), Vec::new());
        for number in 1..=4 {
            let port = TestPort::new(2, 32, &pool);
            let queues = [0, 2, 1, 0, 0][number as usize];
            feeds.extend(port.feeds.iter().take(queues).cloned());
            sents.push(port.sent.clone());
            datapath.add_port(PortNo(number), Box::new(port)).unwrap();
        }
        Bench { datapath, pool, feeds, sents, now_ms: BEGIN_MS }
    }

    /// Receives packets from a queue of port 1, and takes them to their ends.
    fn receive(&mut self, queue: usize, packets: impl IntoIterator<Item = Vec<u8>>) {
        self.feeds[queue].lock().unwrap().extend(packets);
        self.datapath.run_iterations(4, self.now_ms);
        assert_eq!(self.datapath.totals().conserved(), Ok(()));
    }

    fn sent(&self, port: usize) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.sents[port - 1].lock().unwrap())
    }

    fn held(&self) -> u64 {
        let totals = self.datapath.totals();
        totals[Counter::Held] - totals[Counter::Released]
    }
}

/// A UDP datagram without checksum from 10.0.0.1, port 1000, to 10.0.0.2, port 2000, in fragments.
fn fragments(id: u8, len: usize) -> Vec<Vec<u8>> {
    let mut data = vec![3, 0xe8, 7, 0xd0];
    data.extend((len as u16 + 8).to_be_bytes());
    data.extend([0, 0]);
    data.extend((0..len).map(|i| (i / 3) as u8));
    let n = data.len().div_ceil(PIECE);
    let piece = |(i, data): (usize, &[u8])| {
        let mut header = [0x45, 0, 0, 0, 0, id, 0, 0, 64, ip_proto::UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        header[2..4].copy_from_slice(&(data.len() as u16 + 20).to_be_bytes());
        let more = if i + 1 < n { 0x2000 } else { 0 };
        header[6..8].copy_from_slice(&((i * PIECE / 8) as u16 | more).to_be_bytes());
        let sum = checksum::internet(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0], &header[..], data].concat()
    };
    data.chunks(PIECE).enumerate().map(piece).collect()
}

/// With another source address, as NAT to 192.0.2.7 and port 777 leaves them.
fn translated(mut fragments: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    for bytes in &mut fragments {
        bytes[26..30].copy_from_slice(&[192, 0, 2, 7]);
        bytes[24..26].fill(0);
        let sum = checksum::internet(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    fragments[0][34..36].copy_from_slice(&777u16.to_be_bytes());
    fragments
}

fn output(port: u32) -> Action {
    Action::Output(PortNo(port))
}

fn commit() -> Action {
    Action::Ct(Box::new(Ct { commit: true, ..Ct::default() }))
}

fn nat() -> Action {
    let mut addr = [0; 16];
    addr[..4].copy_from_slice(&[192, 0, 2, 7]);
    let spec =
        NatSpec { target: Some(NatTarget::Src), addrs: (addr, addr), ports: Some((777, 777)), ..NatSpec::default() };
    Action::Ct(Box::new(Ct { commit: true, nat: Some(spec), ..Ct::default() }))
}

/// Tracks and translates, then sends first fragments to port 2, later ones to port 3, and invalid ones to port 4.
fn by_state(key: &PacketKey) -> Vec<Action> {
    if key.number(layout::RECIRC_ID) == 0 {
        return vec![nat(), Action::Recirc(1)];
    }
    let state = key.get(layout::CT_STATE)[0];
    match key.get(layout::NW_FRAG)[0] {
        _ if state & ct_state::INVALID != 0 => vec![output(4)],
        1 => vec![output(2)],
        _ => vec![output(3)],
    }
}

#[test]
fn the_fragments_of_a_packet_may_come_by_several_pmds() {
    let mut bench = Bench::new(by_state);
    for round in 0..20 {
        let pieces = fragments(round, 3000);
        let expected = translated(pieces.clone());
        bench.receive(usize::from(round) % 2, [pieces[2].clone(), pieces[0].clone()]);
        assert_eq!(bench.held(), 2);
        bench.receive(1 - usize::from(round) % 2, [pieces[1].clone()]);
        assert_eq!(bench.held(), 0);
        assert_eq!((bench.sent(2), bench.sent(3)), (vec![expected[0].clone()], expected[1..].to_vec()));
    }
    let totals = bench.datapath.totals();
    assert_eq!((totals[Counter::ConntrackCommits], totals[Counter::ConntrackInvalid]), (1, 0));
    assert_eq!(totals[Counter::Sent], 60);
}

#[test]
fn packets_around_them_stay_in_order_and_all_go_on_together() {
    let mut bench = Bench::new(|key| match key.number(layout::RECIRC_ID) {
        0 => vec![commit(), Action::Recirc(1)],
        _ => vec![output(2)],
    });
    let (a, b) = (fragments(1, 3000), [fragments(2, 100), vec![udp([10, 0, 0, 9], [10, 0, 0, 2], 5, 6, 7)]].concat());
    bench.receive(0, a.iter().chain(&b).cloned());
    assert_eq!(bench.sent(2), [&a[..], &b[..]].concat());
    // Other packets are sent before fragments that wait for their last one.
    bench.receive(0, a[..2].iter().chain(&b).cloned());
    assert_eq!(bench.sent(2), b);
    bench.receive(0, a[2..].iter().cloned());
    assert_eq!(bench.sent(2), a);
}

#[test]
fn actions_around_a_ct_are_done_once() {
    // A copy goes out before; two more tracks behind, the last behind the last output.
    let mut bench = Bench::new(|_| vec![output(3), commit(), commit(), output(2), commit()]);
    let a = fragments(1, 3000);
    for piece in &a {
        bench.receive(0, [piece.clone()]);
    }
    assert_eq!((bench.sent(3), bench.sent(2)), (a.clone(), a));
    assert_eq!(bench.held(), 0);
    let totals = bench.datapath.totals();
    assert_eq!(totals[Counter::ConntrackCommits], 1);
    // Copies met the last `ct`, and ended there.
    assert_eq!(totals.dropped(DropReason::Rules), 3);
}

#[test]
fn those_that_wait_in_vain_go_on_as_invalid() {
    let mut bench = Bench::new(by_state);
    let a = fragments(1, 3000);
    bench.receive(0, a[..2].iter().cloned());
    bench.now_ms += 14_999;
    bench.receive(0, []);
    assert_eq!((bench.held(), bench.sent(4).len()), (2, 0));
    bench.now_ms += 1;
    bench.receive(0, []);
    assert_eq!((bench.held(), bench.sent(4)), (0, a[..2].to_vec()));
    assert_eq!(bench.datapath.fragments().status().families[0].counts.expired, 2);
    // A fragment that comes too late waits alone.
    bench.receive(0, a[2..].iter().cloned());
    assert_eq!(bench.held(), 1);
}

#[test]
fn refused_ones_go_on_as_invalid_at_once() {
    let mut bench = Bench::new(by_state);
    let a = fragments(1, 3000);
    bench.receive(0, [a[1].clone(), a[1].clone()]);
    assert_eq!((bench.held(), bench.sent(4)), (1, vec![a[1].clone()]));
    bench.datapath.fragments().set_held_max(1).expect("within bounds");
    bench.receive(0, [a[0].clone()]);
    assert_eq!((bench.held(), bench.sent(4)), (1, vec![a[0].clone()]));
    bench.datapath.fragments().set_enabled(false, false);
    bench.receive(0, [fragments(2, 3000).remove(0)]);
    assert_eq!((bench.held(), bench.sent(4).len()), (1, 1));
}

#[test]
fn a_port_that_leaves_gets_its_buffers_back() {
    let mut bench = Bench::new(by_state);
    let Some(first) = fragments(1, 3000).into_iter().next() else { unreachable!() };
    bench.receive(0, [first.clone()]);
    bench.receive(1, [fragments(2, 3000).remove(1)]);
    assert_eq!(bench.held(), 2);
    drop(bench.datapath.del_port(PortNo(1)).unwrap());
    bench.datapath.run_iterations(1, bench.now_ms);
    assert_eq!(bench.held(), 0);
    let totals = bench.datapath.totals();
    assert_eq!((totals.conserved(), totals.dropped(DropReason::FragmentPurged)), (Ok(()), 2));
    for port in 2..=4 {
        drop(bench.datapath.del_port(PortNo(port)).unwrap());
    }
    assert_eq!(bench.pool.available(), bench.pool.capacity());
}

#[test]
fn fragments_do_not_take_what_is_for_receiving() {
    let pool = HeapPool::new(PoolConfig { frames: 1024, frame_size: 2048, reserve: 300 }).expect("memory for a test");
    let mut bench = Bench::with_pool(Arc::new(pool), by_state);
    bench.datapath.fragments().set_held_max(5000).expect("within bounds");
    // More packets than there are frames, and no complete datagram.
    for id in 0..=255 {
        bench.receive(0, (0..8).map(|_| fragments(id, 3000).remove(0)));
    }
    for id in 0..=255 {
        bench.receive(1, fragments(id, 10_000).drain(1..8));
    }
    let totals = bench.datapath.totals();
    assert!(bench.held() <= 724 && bench.held() > 500, "{}", bench.held());
    assert_eq!(totals.dropped(DropReason::NoBuffer), 0, "a packet found no frame");
}

/// One port sends first fragments, or last ones, whose rest never comes. Whether it was there before the other port or
/// comes later, the other port's datagrams are complete.
#[test]
fn a_port_that_fills_the_store_leaves_another_its_share() {
    for piece in [0, 2] {
        let mut bench = Bench::new(by_state);
        for id in 0..=255 {
            bench.receive(0, (0..8).map(|n| with_source(n, fragments(id, 3000).remove(piece))));
        }
        let held = bench.held();
        assert_eq!(held, 875, "seven eighths of 1000");
        let sent = bench.sent(4).len();
        assert_eq!(sent, 256 * 8 - 875, "the others go on as invalid");
        // Port 2 receives, too.
        let a = fragments(7, 3000);
        bench.feeds[2].lock().unwrap().extend(a[..2].iter().cloned());
        bench.receive(0, [with_source(9, fragments(9, 3000).remove(0))]);
        assert_eq!(bench.held(), held + 2);
        bench.feeds[2].lock().unwrap().extend(a[2..].iter().cloned());
        bench.receive(0, []);
        assert_eq!((bench.held(), bench.sent(3).len()), (held, 2));
    }
}

/// Bytes of data in a fragment of IPv6: shorter ones are refused.
const PIECE6: usize = 1304;

/// A fragment of IPv6 from another address that begins at `at` in the data and is not the last.
fn fragment6(last: u8, id: u16, at: usize) -> Vec<u8> {
    let mut data = vec![3, 0xe8, 7, 0xd0, 0x0b, 0xb8, 0, 0];
    data.resize(PIECE6, 7);
    let size = (data.len() + 8) as u16;
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0];
    bytes.extend(size.to_be_bytes());
    bytes.extend([44, 64]);
    bytes.extend([0xfc, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    bytes.extend([0xfc, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    bytes.extend([ip_proto::UDP, 0]);
    bytes.extend((at as u16 | 1).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(id.to_be_bytes());
    bytes.extend(data);
    bytes
}

/// Fragments of IPv6 that overlap ones before them, and ones from the middle first: what is refused is not held, and what
/// is held counts in the same shares as IPv4's.
#[test]
fn overlapping_fragments_of_ipv6_leave_ports_of_ipv4_their_share() {
    let mut bench = Bench::new(by_state);
    for id in 0..512 {
        // The middle, the first, and two that overlap both.
        let pieces = [PIECE6, 0, (PIECE6 / 2) & !7, 8].map(|at| fragment6(id as u8, id, at));
        bench.receive(0, pieces);
    }
    let held = bench.held();
    assert_eq!(held, 875, "seven eighths of 1000");
    let counts = bench.datapath.fragments().status().families[1].counts;
    assert!(counts.overlapping > 400, "{counts:?}");
    assert_eq!(bench.sent(4).len() as u64, 512 * 4 - held, "the others go on as invalid");
    let a = fragments(7, 3000);
    bench.feeds[2].lock().unwrap().extend(a.iter().rev().cloned());
    bench.receive(0, [fragment6(9, 9999, 0)]);
    assert_eq!((bench.held(), bench.sent(2).len(), bench.sent(3).len()), (held, 1, 2));
}

/// The same fragment from another address.
fn with_source(last: u8, mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[29] = 100 + last;
    bytes[24..26].fill(0);
    let sum = checksum::internet(&bytes[14..34]);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn commit_in(zone: u16) -> Action {
    Action::Ct(Box::new(Ct { commit: true, zone, ..Ct::default() }))
}

/// What a thread with that stack sends by ports 2 and 3 of a datagram in three fragments, and what stays held.
fn with_stack(bytes: usize, list: Vec<Action>) -> (bool, bool, u64) {
    let run = move || {
        let mut bench = Bench::new(move |_| list.clone());
        let a = fragments(1, 3000);
        bench.receive(0, a.clone());
        (bench.sent(2) == a, bench.sent(3) == a, bench.held())
    };
    std::thread::Builder::new().stack_size(bytes).spawn(run).unwrap().join().unwrap()
}

/// More `ct` than the thread has room for, if each were a call inside the one before: in the list, in a `clone`, and
/// behind the last output.
#[test]
fn as_many_ct_as_a_list_may_have() {
    let many = |zone| (0..3000).map(move |_| commit_in(zone));
    let inner: Actions = many(2).chain([output(3)]).collect();
    let list = many(1).chain([Action::Clone(inner), output(2)]).chain(many(3)).collect();
    assert_eq!(with_stack(256 << 10, list), (true, true, 0));
}

/// Lists nest as deeply as translation lets them, each with a `ct` before the next one and behind it.
#[test]
fn lists_that_nest_deeply_fit_the_stack() {
    let deepest: Actions = [commit_in(0), output(2)].into();
    let nested = (1..=512).fold(deepest, |inner, zone| [commit_in(zone), Action::Clone(inner), commit_in(zone)].into());
    assert_eq!(with_stack(2 << 20, nested.to_vec()), (true, false, 0));
    // Each level works on a copy, and the packet itself goes elsewhere.
    let deepest: Actions = [output(2)].into();
    let nested = (1..=512).fold(deepest, |inner, _| [Action::Clone(inner), output(4)].into());
    let list = [commit_in(1)].into_iter().chain(nested.iter().cloned()).collect();
    assert_eq!(with_stack(2 << 20, list), (true, false, 0));
}
