//! The commands about connections, on a switch that tracks ten of a generator's flows.

mod common;

use common::{Daemon, from_generator_to_sink};

const FLOWS: &str = "\
udp actions=ct(commit,zone=5,exec(set_field:0x2a->ct_mark),table=1)
table=1,udp,ct_state=+trk+new,ct_zone=5 actions=output:2
";

fn start() -> Daemon {
    let daemon = Daemon::start_with(&from_generator_to_sink("rate = 2000, flows = 10"), &[("flows.txt", FLOWS)]);
    daemon.wait_for(&["dpctl/ct-get-nconns"], |n| n == "10\n");
    daemon
}

#[test]
fn connections_are_shown_counted_and_flushed() {
    let daemon = start();
    let dump = daemon.ctl(&["dpctl/dump-conntrack", "-m", "-s", "zone=5"]);
    assert_eq!(dump.lines().count(), 10);
    let line = dump.lines().find(|line| line.contains("orig=(src=1.0.0.1,")).expect("a connection of 1.0.0.1");
    assert!(line.starts_with("udp,orig=(src=1.0.0.1,dst="), "{line}");
    assert!(line.contains(",id=0,zone=5,status=0,timeout=") && line.ends_with(",mark=42"), "{line}");
    assert_eq!(daemon.ctl(&["dpctl/dump-conntrack", "netdev@ovs-netdev", "zone=6"]), "");
    assert_eq!(daemon.ctl(&["dpctl/ct-stats-show"]), "Connections Stats:\n    Total: 10\n  UDP: 10\n");
    assert!(daemon.ctl(&["dpctl/ct-bkts"]).starts_with("Total Buckets: 256\nCurrent Connections: 10\n\n+---"));
    assert_eq!(daemon.ctl(&["coverage/read-counter", "conntrack_commits"]), "10\n");
    // The megaflows of both passes.
    let megaflows = daemon.ctl(&["dpctl/dump-flows"]);
    assert!(megaflows.contains("actions:ct(commit,zone=5,mark=0x2a/0xffffffff),recirc(0x"), "{megaflows}");
    assert!(megaflows.contains("ct_state(+new+trk),ct_zone(0x5)"), "{megaflows}");

    daemon.ctl(&["bridge/del-flows", "br0"]);
    daemon.ctl(&["revalidator/wait"]);
    assert_eq!(daemon.ctl(&["dpctl/flush-conntrack", "zone=5", "ct_nw_src=1.0.0.1,ct_nw_proto=17"]), "");
    let left = daemon.ctl(&["dpctl/ct-get-nconns"]).trim().parse::<u32>().expect("a number");
    assert!(left < 10, "{left}");
    daemon.ctl(&["dpctl/flush-conntrack"]);
    assert_eq!(daemon.ctl(&["dpctl/ct-get-nconns"]), "0\n");
}

#[test]
fn limits_and_timeouts_are_set_and_told() {
    let daemon = start();
    assert_eq!(daemon.ctl(&["dpctl/ct-get-maxconns"]), "3000000\n");
    assert_eq!(daemon.ctl(&["dpctl/ct-set-maxconns", "netdev@ovs-netdev", "20"]), "setting maxconns successful\n");
    assert_eq!(daemon.ctl(&["dpctl/ct-get-maxconns"]), "20\n");
    assert_eq!(daemon.ctl(&["dpctl/ct-get-limits"]), "default limit=0\n");
    assert_eq!(daemon.ctl(&["dpctl/ct-set-limits", "default=9", "zone=5,limit=3", "zone=6,limit=4"]), "");
    assert_eq!(
        daemon.ctl(&["dpctl/ct-get-limits"]),
        "default limit=9\nzone=5,limit=3,count=0\nzone=6,limit=4,count=0\n"
    );
    // Connections are made anew, as far as the zone's limit goes; the rest is refused, by name.
    daemon.ctl(&["dpctl/flush-conntrack"]);
    daemon.wait_for(&["coverage/read-counter", "conntrack_zone_limit"], |n| n.trim().parse::<u64>().unwrap() > 10);
    assert_eq!(daemon.ctl(&["dpctl/ct-get-limits", "zone=5"]), "default limit=9\nzone=5,limit=3,count=3\n");
    assert_eq!(daemon.ctl(&["dpctl/ct-del-limits", "zone=5,6"]), "");
    assert_eq!(daemon.ctl(&["dpctl/ct-get-limits"]), "default limit=9\n");
    assert_eq!(daemon.ctl(&["dpctl/ct-get-tcp-seq-chk"]), "TCP sequence checking: enabled\n");
    let done = daemon.ctl(&["dpctl/ct-disable-tcp-seq-chk"]);
    assert_eq!(done, "disabling TCP sequence checking successful\n");
    assert_eq!(daemon.ctl(&["dpctl/ct-get-tcp-seq-chk"]), "TCP sequence checking: disabled\n");
    daemon.ctl(&["sluice/ct-set-timeouts", "5", "udp_first=3", "udp_single=2"]);
    let timeouts = daemon.ctl(&["sluice/ct-get-timeouts"]);
    assert!(timeouts.ends_with("\nzone 5: udp_first=3 udp_single=2\n"), "{timeouts}");
    daemon.ctl(&["sluice/ct-del-timeouts", "5"]);
    assert!(!daemon.ctl(&["sluice/ct-get-timeouts"]).contains("zone 5"));
}

#[test]
fn wrong_arguments_get_ovs_errors() {
    let daemon = start();
    for (args, error) in [
        (&["dpctl/dump-conntrack", "nodp"][..], "sluice: datapath not found (Invalid argument)"),
        (&["dpctl/dump-conntrack", "-x"], "Unrecognized option -x"),
        (&["dpctl/flush-conntrack", "zone=x"], "sluice: failed to parse zone (Invalid argument)"),
        (
            &["dpctl/flush-conntrack", "ct_nw_src=9.9.9.9,ct_nw_dst=8.8.8.8,ct_nw_proto=17,ct_tp_src=1,ct_tp_dst=2"],
            "sluice: failed to flush conntrack (No such file or directory)",
        ),
        (&["dpctl/ct-set-maxconns", "many"], "sluice: maxconns missing or malformed (Invalid argument)"),
        (&["dpctl/ct-set-limits", "default=x"], "sluice: invalid default limit (Invalid argument)"),
        (&["dpctl/ct-set-limits", "zone=5"], "sluice: failed to parse zone limit (Invalid argument)"),
        (&["dpctl/ct-set-limits", "color=5"], "sluice: invalid zone limit field: color (Invalid argument)"),
        (&["dpctl/ct-del-limits", "5"], "sluice: invalid argument 5 (Invalid argument)"),
        (&["dpctl/ct-get-limits", "zone=x"], "sluice: invalid zone (Invalid argument)"),
        (&["sluice/ct-set-timeouts", "5", "udp=3"], "udp: expected one of tcp_syn_sent, tcp_syn_recv, tcp_established"),
        (&["sluice/ct-del-timeouts", "5"], "zone 5 has no timeouts"),
    ] {
        let answer = daemon.refused(args);
        assert!(answer.starts_with(error), "{args:?}: {answer}");
    }
}
