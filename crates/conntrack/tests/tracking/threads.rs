//! Several PMDs at once: the same connections begun by all, both directions on different ones, a small NAT range.

use crate::scene::*;
use sluice_conntrack::{CachedConn, Config, ConnCache, Conntrack, CtInput, CtOutcome, CtPacket, Filter, NatTarget};
use sluice_flow::{Metadata, PacketKey, extract};
use sluice_simd::HashKey;
use sluice_testkit::pool::TestPool;
use std::collections::HashSet;
use std::sync::Barrier;

const CLIENTS: u8 = 60;
const ROUNDS: u64 = 20;

#[test]
fn a_connection_is_begun_once_and_no_tuple_is_given_twice() {
    let ct = Conntrack::new(Config { shards: 4, ..Config::new(HashKey::from_seed(3)) });
    let start = Barrier::new(4);
    for round in 0..ROUNDS {
        let committed: usize = std::thread::scope(|scope| {
            let work = |thread: u64| {
                let (ct, start) = (&ct, &start);
                move || {
                    let mut pool = TestPool::new();
                    let mut recent = ConnCache::new(16);
                    let request = nat(NatTarget::Src, (9, 9), Some((6000, 6000 + u16::from(CLIENTS) - 1)));
                    start.wait();
                    let pass = |client: u8| {
                        let bytes = udp(false, (client, CLIENT), (200, SERVER));
                        let mut key = PacketKey::ZERO;
                        extract(&bytes, &Metadata::of_port(1), &mut key).expect("a frame");
                        let mut packet = pool.packet(&bytes);
                        let input = CtInput { now_ms: round * 100_000, entropy: thread, ..CtInput::default() };
                        let outcome = ct.execute(
                            &mut recent,
                            CtPacket { packet: &mut packet, key: &mut key, cached: &mut CachedConn::default() },
                            &request,
                            &input,
                        );
                        let out = pool.take_bytes(packet);
                        assert_eq!(out[26..30], v4(9)[..4], "every packet is translated, whoever began the connection");
                        ct.expire(round * 100_000, 3);
                        usize::from(outcome == CtOutcome::Committed)
                    };
                    (1..=CLIENTS).map(pass).sum::<usize>()
                }
            };
            let threads: Vec<_> = (0..4).map(|thread| scope.spawn(work(thread))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert_eq!(committed, usize::from(CLIENTS));
        let mut replies = HashSet::new();
        ct.dump(&Filter::default(), round * 100_000, |entry| assert!(replies.insert(entry.reply)));
        assert_eq!(replies.len(), usize::from(CLIENTS));
    }
    ct.flush(&Filter::default());
    assert_eq!(ct.connections(), 0);
}
