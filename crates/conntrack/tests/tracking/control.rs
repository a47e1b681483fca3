//! Timeouts, limits, flushing, dumping.

use crate::scene::*;
use sluice_conntrack::{CommitError, Config, Ct, CtOutcome, Filter, Timeout, TimeoutPolicy, text};
use sluice_fate::Limit;

fn zone(zone: u16) -> Ct {
    Ct { zone, ..commit() }
}

/// A UDP packet of connection `n`.
fn nth(n: u16) -> Vec<u8> {
    udp(false, (1, 1000 + n), (2, SERVER))
}

#[test]
fn a_connection_ends_when_its_timeout_has_passed() {
    let mut scene = Scene::new();
    let (there, back) = (nth(0), answer(&nth(0)));
    // First packet 60 s; several one way 60 s; both ways 30 s.
    scene.pass(&there, &commit());
    scene.now_ms += 59_999;
    assert_eq!(scene.pass(&back, &track()).state(), "est|rpl|trk");
    scene.now_ms += 29_999;
    assert_eq!(scene.expire(), 0);
    assert_eq!(scene.pass(&there, &track()).state(), "est|trk");
    scene.now_ms += 30_000;
    assert_eq!(scene.pass(&there, &track()).state(), "new|trk", "it has ended, swept or not");
    assert_eq!((scene.dump(false).len(), scene.ct.connections()), (0, 1));
    scene.now_ms += 31_000;
    assert_eq!((scene.expire(), scene.ct.connections()), (1, 0));
}

#[test]
fn a_sweep_finds_every_ended_connection_within_half_a_minute_and_keeps_to_its_budget() {
    let mut scene = Scene::new();
    for n in 0..500 {
        scene.now_ms += 37;
        scene.pass(&nth(n), &commit());
    }
    scene.now_ms += 120_000;
    let swept = scene.ct.expire(scene.now_ms, 100);
    assert!(!swept.is_complete && (100..200).contains(&swept.examined), "{swept:?}");
    scene.expire();
    scene.now_ms += 31_000;
    scene.expire();
    assert_eq!(scene.ct.connections(), 0);
}

#[test]
fn timeouts_of_a_zone_rule_its_connections() {
    let mut scene = Scene::new();
    scene.ct.set_timeouts(7, &TimeoutPolicy { seconds: vec![(Timeout::OtherFirst, 3), (Timeout::OtherMultiple, 2)] });
    let under = zone;
    scene.pass(&nth(0), &under(7));
    scene.pass(&nth(1), &under(0));
    scene.now_ms += 2_999;
    assert_eq!(scene.dump(false).len(), 2);
    scene.pass(&nth(0), &under(7));
    scene.now_ms += 2_000;
    assert_eq!(scene.dump(false).len(), 1);
    // A change reaches connections with their next packet.
    scene.pass(&nth(0), &under(7));
    assert!(scene.ct.delete_timeouts(7) && !scene.ct.delete_timeouts(7));
    scene.pass(&nth(0), &under(7));
    scene.now_ms += 55_000;
    assert_eq!(scene.dump(false).iter().filter(|line| line.contains("sport=1000")).count(), 1);
    assert_eq!(Timeout::named("TCP_Established").map(Timeout::default_s), Some(86_400));
    assert_eq!((Timeout::named("tcp_last_ack"), Timeout::IcmpReply.name()), (None, "icmp_reply"));
}

#[test]
fn limits_hold_to_the_connection_and_count_off() {
    let mut scene = Scene::with(|config| Config { connections_max: 5, ..config });
    scene.ct.set_zone_limit(None, 3);
    scene.ct.set_zone_limit(Some(1), 2);
    let mut refusals = |zone_id: u16, n: u16| match scene.pass(&nth(n), &zone(zone_id)).outcome {
        CtOutcome::NotCommitted(refusal) => Some(refusal),
        _ => None,
    };
    let before = Limit::CtConnections.count();
    assert_eq!([refusals(1, 0), refusals(1, 1), refusals(1, 2)], [None, None, Some(CommitError::ZoneLimit)]);
    // Zones without a limit share the default one.
    assert_eq!([refusals(2, 0), refusals(3, 1), refusals(4, 2)], [None; 3]);
    assert_eq!(refusals(5, 3), Some(CommitError::ZoneLimit));
    scene.ct.set_zone_limit(Some(6), 10);
    assert_eq!(scene.pass(&nth(9), &zone(6)).outcome, CtOutcome::NotCommitted(CommitError::TableFull));
    assert!(Limit::CtConnections.count() >= before + 3);
    assert_eq!(
        text::limits(&scene.ct.zone_limits()),
        "default limit=3\nzone=1,limit=2,count=2\nzone=6,limit=10,count=0"
    );
    assert_eq!(scene.ct.zone_limit(4).map(|limit| (limit.limit, limit.count)), Some((3, 3)));
    assert_eq!(scene.ct.flush(&Filter::zone(Some(1))), 2);
    assert_eq!(scene.pass(&nth(2), &zone(1)).outcome, CtOutcome::Committed);
    // A limit that is set again counts from zero; connections of the old one do not reduce it.
    assert!(scene.ct.delete_zone_limit(1) && !scene.ct.delete_zone_limit(1));
    scene.ct.set_zone_limit(Some(1), 1);
    assert_eq!(scene.ct.flush(&Filter::zone(Some(1))), 1);
    assert_eq!(scene.ct.zone_limit(1).map(|limit| limit.count), Some(0));
    scene.ct.set_connections_max(100);
    assert_eq!((scene.ct.connections_max(), scene.ct.connections()), (100, 3));
    scene.ct.flush(&Filter::default());
    assert_eq!(scene.ct.connections(), 0);
}

#[test]
fn flushing_takes_what_the_filter_names() {
    let lines = |args: &[&str]| {
        let mut scene = Scene::new();
        (0..3).for_each(|n| drop(scene.pass(&nth(n), &commit())));
        scene.pass(&nth(0), &zone(5));
        scene.pass(&ip(false, 1, 2).icmp(8, 0).build(), &commit());
        scene.pass(&udp(true, (1, 1000), (2, SERVER)), &commit());
        let filter = text::filter(args).expect("a good filter");
        let removed = scene.ct.flush(&filter);
        assert_eq!(removed + scene.dump(false).len(), 6);
        removed
    };
    assert_eq!(lines(&[]), 6);
    assert_eq!(lines(&["zone=5"]), 1);
    assert_eq!(lines(&["ct_nw_src=10.0.0.1"]), 5);
    assert_eq!(lines(&["", "ct_nw_src=10.0.0.2,ct_nw_proto=17"]), 4);
    assert_eq!(lines(&["ct_nw_proto=17,ct_tp_src=1000"]), 3);
    assert_eq!(lines(&["ct_nw_src=10.0.0.1,ct_nw_dst=10.0.0.2,ct_nw_proto=17,ct_tp_src=1000,ct_tp_dst=80"]), 1);
    assert_eq!(
        lines(&["zone=5", "ct_nw_src=10.0.0.1,ct_nw_dst=10.0.0.2,ct_nw_proto=17,ct_tp_src=1000,ct_tp_dst=80"]),
        1
    );
    // A complete tuple may be that of the reply; a part of one may not.
    let reply = "ct_nw_src=10.0.0.2,ct_nw_dst=10.0.0.1,ct_nw_proto=17,ct_tp_src=80";
    assert_eq!(lines(&[&format!("{reply},ct_tp_dst=1000")]), 1);
    assert_eq!(lines(&[&format!("{reply},ct_tp_dst=1001"), "ct_nw_src=10.0.0.1"]), 0);
    assert_eq!(lines(&[reply]), 0);
    assert_eq!(lines(&["ct_nw_proto=1,icmp_type=8,icmp_code=0,icmp_id=0"]), 1);
    assert_eq!(lines(&["ct_ipv6_dst=fc00::2"]), 1);
}

#[test]
fn bad_filters_are_refused_in_open_vswitchs_words() {
    for (args, error) in [
        (vec!["zone=x"], "failed to parse zone"),
        (vec!["ct_tp_src=1"], "port is set without protocol"),
        (vec!["ct_nw_src=1.2.3.4,ct_ipv6_dst=::1"], "the L3 protocol does not match ::1"),
        (vec!["ct_nw_src=1.2.3"], "failed to parse field ct_nw_src"),
        (vec!["ct_nw_src=1.2.3.4,ct_nw_src=1.2.3.5"], "ct_nw_src is set multiple times"),
        (vec!["icmp_id=1"], "invalid L4 fields"),
        (vec!["ct_nw_src"], "field ct_nw_src missing value"),
        (vec!["color=red"], "invalid conntrack tuple field: color"),
        (vec!["", "", ""], "invalid arguments"),
    ] {
        assert_eq!(text::filter(&args), Err(error.to_owned()));
    }
}

#[test]
fn statistics_count_protocols_and_tcp_states() {
    let mut scene = Scene::new();
    scene.pass(&nth(0), &commit());
    scene.pass(&ip(false, 1, 2).icmp(8, 0).build(), &commit());
    scene.pass(&ip(false, 1, 2).tcp(1, 2).tcp_flags(2).build(), &commit());
    scene.pass(&ip(false, 1, 2).proto(50).payload(&[0; 8]).build(), &commit());
    let mut stats = text::Stats::default();
    scene.ct.dump(&Filter::default(), scene.now_ms, |entry| stats.count(entry));
    assert_eq!(stats.show(false), "Connections Stats:\n    Total: 4\n  TCP: 1\n  UDP: 1\n  ICMP: 1\n  Other: 1\n");
    assert!(stats.show(true).contains("  TCP: 1\n    Conn per TCP states:\n\t  [SYN_SENT]=1\n  UDP: 1\n"));
}

#[test]
fn lines_of_a_dump_are_open_vswitchs() {
    let mut scene = Scene::new();
    scene.pass(&ip(true, 1, 2).tcp(1, 2).tcp_flags(2).tcp_options(&[1, 3, 3, 7]).build(), &zone(9));
    let orig = "orig=(src=fc00::1,dst=fc00::2,sport=1,dport=2),reply=(src=fc00::2,dst=fc00::1,sport=2,dport=1)";
    assert_eq!(scene.dump(false), [format!("tcp,{orig},zone=9,protoinfo=(state=SYN_SENT)")]);
    let more = "protoinfo=(state_orig=SYN_SENT,state_reply=CLOSED,wscale_orig=7,wscale_reply=0,flags_orig=WINDOW_SCALE,flags_reply=0)";
    assert_eq!(scene.dump(true), [format!("tcp,{orig},id=0,zone=9,status=0,{more}")]);
    scene.now_ms += 1;
    scene.ct.dump(&Filter::default(), scene.now_ms, |entry| {
        assert!(text::entry(entry, false, true).contains(",zone=9,timeout=29,protoinfo="));
    });
    scene.ct.flush(&Filter::default());
    scene.pass(&ip(false, 1, 2).icmp(8, 0).build(), &commit());
    let icmp =
        "icmp,orig=(src=10.0.0.1,dst=10.0.0.2,id=0,type=8,code=0),reply=(src=10.0.0.2,dst=10.0.0.1,id=0,type=0,code=0)";
    assert_eq!(scene.dump(false), [icmp]);
}
