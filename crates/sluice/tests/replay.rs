//! Captures through rules: the same captures come out, every time and in every setting.

mod common;

use common::{one_line_failure, sluice};
use serde_json::Value;
use std::path::Path;

/// A packet of a capture: microseconds, bytes.
type Packet = (u64, Vec<u8>);

fn write_capture(path: &Path, packets: &[Packet]) {
    let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0];
    for (us, packet) in packets {
        let len = packet.len() as u32;
        for n in [(us / 1_000_000) as u32, (us % 1_000_000) as u32, len, len] {
            bytes.extend(n.to_le_bytes());
        }
        bytes.extend(packet);
    }
    std::fs::write(path, bytes).unwrap();
}

fn read_capture(path: &Path) -> Vec<Packet> {
    let bytes = std::fs::read(path).unwrap();
    let n = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    assert_eq!((n(0), n(20)), (0xa1b2_c3d4, 1), "a classic capture of Ethernet in microseconds");
    let (mut at, mut packets) = (24, Vec::new());
    while at < bytes.len() {
        let len = n(at + 8);
        packets.push(((n(at) * 1_000_000 + n(at + 4)) as u64, bytes[at + 16..at + 16 + len].to_vec()));
        at += 16 + len;
    }
    packets
}

/// A UDP packet without checksum.
fn udp(source: [u8; 4], source_port: u16) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let mut header = vec![0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0];
    header.extend(source);
    header.extend([10, 0, 0, 1]);
    let sum: u32 = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(header);
    packet.extend(source_port.to_be_bytes());
    packet.extend([0, 53, 0, 26, 0, 0]);
    packet.resize(60, 0);
    packet
}

/// An ARP request.
fn arp() -> Vec<u8> {
    let mut packet = vec![0xff; 6];
    packet.extend([2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1]);
    packet.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
    packet.resize(60, 0);
    packet
}

const RULES: &str = "\
table=0,priority=100,arp,actions=flood
table=0,priority=90,udp,nw_src=1.0.0.0/8,actions=goto_table:1
table=0,priority=80,udp,nw_src=2.0.0.0/8,actions=mod_nw_src:9.9.9.9,output:2,output:3
table=0,priority=70,udp,nw_src=3.0.0.0/8,actions=push_vlan:0x8100,set_field:4106->vlan_vid,output:3
table=0,priority=60,udp,nw_src=4.0.0.0/8,actions=in_port
table=0,priority=50,udp,nw_src=5.0.0.0/8,idle_timeout=5,actions=output:2
table=0,priority=40,icmp,actions=drop
table=1,priority=100,udp,tp_src=0/1,actions=output:2
table=1,priority=10,actions=output:3
table=0,priority=1,actions=drop
";

struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new(inputs: &[&[Packet]]) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("flows.txt"), RULES).unwrap();
        for (i, packets) in inputs.iter().enumerate() {
            write_capture(&dir.path().join(format!("in{}.pcap", i + 1)), packets);
        }
        Bench { dir }
    }

    fn at(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// Replays; the captures that came out by port, and the summary.
    fn replay(&self, more: &[&str]) -> (Vec<Vec<Packet>>, Value) {
        let (flows, out, megaflows) = (self.at("flows.txt"), self.at("out"), self.at("megaflows.txt"));
        let inputs: Vec<String> =
            (1..=3).map(|port| format!("{port}={}", self.at(&format!("in{port}.pcap")))).collect();
        let mut args = vec!["replay", "--json", "--flows", &flows, "--out-dir", &out, "--megaflows", &megaflows];
        inputs.iter().for_each(|input| args.extend(["--in", input]));
        let output = sluice(&[&args[..], more].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let sent = (1..=3).map(|port| read_capture(&self.dir.path().join(format!("out/{port}.pcap"))));
        (sent.collect(), serde_json::from_slice(&output.stdout).unwrap())
    }
}

fn traffic() -> [Vec<Packet>; 3] {
    let second = 1_000_000;
    let port_1 = vec![
        (second, arp()),
        (second + 10, udp([1, 0, 0, 1], 1000)),
        (second + 20, udp([1, 0, 0, 1], 1001)),
        (second + 30, udp([2, 0, 0, 1], 5)),
        (second + 40, udp([3, 0, 0, 1], 5)),
        (second + 50, udp([4, 0, 0, 1], 5)),
        (second + 60, udp([6, 0, 0, 1], 5)),
        (second + 70, vec![1, 2, 3]),
    ];
    // Port 2 begins before port 1, and ties with it.
    let port_2 = vec![(second - 5, udp([1, 0, 0, 9], 7)), (second + 10, udp([1, 0, 0, 9], 9))];
    [port_1, port_2, Vec::new()]
}

#[test]
fn the_right_packets_leave_by_the_right_ports() {
    let traffic = traffic();
    let bench = Bench::new(&[&traffic[0], &traffic[1], &traffic[2]]);
    let (sent, summary) = bench.replay(&[]);
    let second = 1_000_000;
    assert_eq!(sent[0], [(second + 50, udp([4, 0, 0, 1], 5))]);
    let mut rewritten = udp([9, 9, 9, 9], 5);
    rewritten[24..26].copy_from_slice(&udp([9, 9, 9, 9], 5)[24..26]);
    assert_eq!(sent[1], [(second, arp()), (second + 10, udp([1, 0, 0, 1], 1000)), (second + 30, rewritten.clone())]);
    let mut tagged = udp([3, 0, 0, 1], 5);
    tagged.splice(12..12, [0x81, 0, 0, 10]);
    assert_eq!(
        sent[2],
        [
            (second - 5, udp([1, 0, 0, 9], 7)),
            (second, arp()),
            (second + 10, udp([1, 0, 0, 9], 9)),
            (second + 20, udp([1, 0, 0, 1], 1001)),
            (second + 30, rewritten),
            (second + 40, tagged),
        ]
    );
    assert_eq!(summary["in"], serde_json::json!({"1": 8, "2": 2, "3": 0}));
    assert_eq!(summary["out"], serde_json::json!({"1": 1, "2": 3, "3": 6}));
    assert_eq!(summary["dropped"], serde_json::json!({"rx-runt": 1, "rules": 1}));
    let megaflows = std::fs::read_to_string(bench.dir.path().join("megaflows.txt")).unwrap();
    assert!(megaflows.starts_with("flow-dump from the main thread:\nufid:"), "{megaflows}");
    assert!(
        megaflows.contains(",actions:set(ipv4(src=9.9.9.9)),p2,p3\n")
            || megaflows.contains(", actions:set(ipv4(src=9.9.9.9)),p2,p3\n"),
        "{megaflows}"
    );
    let counted: Vec<(u64, String)> = summary["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| (rule["packets"].as_u64().unwrap(), rule["text"].as_str().unwrap().to_owned()))
        .collect();
    let packets = |part: &str| counted.iter().find(|(_, text)| text.contains(part)).unwrap().0;
    assert_eq!((packets("arp"), packets("nw_src=1.0.0.0/8"), packets("tp_src="), packets("priority=1 ")), (1, 4, 1, 1));
}

#[test]
fn every_setting_gives_the_same_packets_and_counters() {
    let traffic = traffic();
    let bench = Bench::new(&[&traffic[0], &traffic[1], &traffic[2]]);
    let (sent, summary) = bench.replay(&[]);
    assert_eq!((sent.clone(), summary.clone()), bench.replay(&[]), "the same twice");
    for more in [&["--no-emc"][..], &["--pmds", "2", "--queues", "3"], &["--pmds", "2", "--queues", "3", "--no-emc"]] {
        let (sent_so, summary_so) = bench.replay(more);
        assert_eq!(sent_so, sent, "{more:?}");
        for part in ["in", "out", "dropped", "rules"] {
            assert_eq!(summary_so[part], summary[part], "{more:?}: {part}");
        }
    }
    let (sent_so, summary_so) = bench.replay(&["--batch", "32"]);
    let bytes = |sent: &[Vec<Packet>]| -> Vec<Vec<Vec<u8>>> {
        sent.iter().map(|port| port.iter().map(|(_, bytes)| bytes.clone()).collect()).collect()
    };
    assert_eq!(bytes(&sent_so), bytes(&sent));
    assert_eq!((&summary_so["out"], &summary_so["dropped"]), (&summary["out"], &summary["dropped"]));
}

#[test]
fn time_stamps_are_the_clock() {
    let packet = udp([5, 0, 0, 1], 1);
    let times = [0u64, 4_000_000, 8_000_000, 20_000_000];
    let input: Vec<Packet> = times.iter().map(|us| (us + 1_000_000, packet.clone())).collect();
    let bench = Bench::new(&[&input, &[], &[]]);
    let (sent, summary) = bench.replay(&[]);
    // Used every four seconds the rule stays; after twelve without use it has gone.
    assert_eq!(sent[1].len(), 3);
    assert_eq!(summary["dropped"], serde_json::json!({"rules": 1}));
    assert!(!summary["rules"].to_string().contains("nw_src=5.0.0.0/8"));
}

#[test]
fn what_is_wrong_is_told_in_one_line() {
    let bench = Bench::new(&[&[], &[], &[]]);
    let (flows, out, one) = (bench.at("flows.txt"), bench.at("out"), format!("1={}", bench.at("in1.pcap")));
    let fails = |args: &[&str]| one_line_failure(&sluice(&[&["replay", "--out-dir", &out], args].concat()));
    std::fs::write(bench.at("bad.txt"), "\n\n\n\n\n\nudp,actions=output:\n").unwrap();
    let line = fails(&["--flows", &bench.at("bad.txt"), "--in", &one]);
    assert!(line.contains("bad.txt: line 7, column "), "{line}");
    let line = fails(&["--flows", &flows, "--in", &one, "--in", &one]);
    assert!(line.ends_with(": port 1 has a capture already"), "{line}");
    std::fs::write(bench.at("bad.pcap"), "no capture at all").unwrap();
    let line = fails(&["--flows", &flows, "--in", &format!("1={}", bench.at("bad.pcap"))]);
    assert!(line.contains("bad.pcap: the file begins with "), "{line}");
    for args in [
        &["--flows", &flows][..],
        &["--flows", &flows, "--in", "1"],
        &["--flows", &flows, "--in", "0=x"],
        &["--flows", &flows, "--in", &one, "--batch", "33"],
    ] {
        assert_eq!(sluice(&[&["replay", "--out-dir", &out], args].concat()).status.code(), Some(1), "{args:?}");
    }
}

#[test]
fn captures_that_break_off_or_are_empty_are_replayed_as_far_as_they_go() {
    let bench = Bench::new(&traffic().each_ref().map(Vec::as_slice));
    let whole = std::fs::read(bench.at("in1.pcap")).unwrap();
    std::fs::write(bench.at("cut.pcap"), &whole[..24 + 2 * (16 + 60) + 30]).unwrap();
    std::fs::write(bench.at("empty.pcap"), "").unwrap();
    let (flows, out) = (bench.at("flows.txt"), bench.at("out"));
    let inputs = [format!("1={}", bench.at("cut.pcap")), format!("2={}", bench.at("empty.pcap"))];
    let output =
        sluice(&["replay", "--json", "--flows", &flows, "--out-dir", &out, "--in", &inputs[0], "--in", &inputs[1]]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["in"], serde_json::json!({"1": 2, "2": 0}));
    assert!(
        said.contains("warning: ") && said.contains("cut.pcap: the file breaks off at byte 206, within a packet"),
        "{said}"
    );
    assert!(said.contains("empty.pcap: the file is empty"), "{said}");
}

#[test]
fn ports_may_have_names() {
    let bench = Bench::new(&traffic().each_ref().map(Vec::as_slice));
    std::fs::write(bench.at("named.txt"), "in_port=up,udp,actions=output:down\nin_port=2,actions=in_port\n").unwrap();
    let (flows, out) = (bench.at("named.txt"), bench.at("out"));
    let inputs = ["up=in1.pcap", "2=in3.pcap", "down=in2.pcap"].map(|input| {
        let (port, file) = input.split_once('=').unwrap();
        format!("{port}={}", bench.at(file))
    });
    let mut args = vec!["replay", "--json", "--flows", &flows, "--out-dir", &out, "--access", "down=5"];
    inputs.iter().for_each(|input| args.extend(["--in", input]));
    let output = sluice(&args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    // The names get the numbers that are left: 1 and 3.
    assert_eq!(summary["in"].as_object().unwrap().keys().collect::<Vec<_>>(), ["up", "2", "down"]);
    let udp_in = traffic()[0].iter().filter(|(_, packet)| packet.get(12..14) == Some(&[8, 0])).count();
    assert_eq!(read_capture(&bench.dir.path().join("out/down.pcap")).len(), udp_in);
    let line = one_line_failure(&sluice(&[
        "replay",
        "--flows",
        &flows,
        "--out-dir",
        &out,
        "--in",
        &inputs[0],
        "--in",
        &inputs[0],
    ]));
    assert!(line.ends_with(": port up has a capture already"), "{line}");
}

/// What left a port.
fn captured(dir: &Path, port: u16) -> Vec<Packet> {
    read_capture(&dir.join(format!("{port}.pcap")))
}

#[test]
fn groups_copy_and_select() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let packets: Vec<Packet> = (0..400u16).map(|i| (u64::from(i), udp([10, 1, (i % 200) as u8, 7], 5000))).collect();
    write_capture(&at("in.pcap"), &packets);
    write_capture(&at("empty.pcap"), &[]);
    // The datapath's hash over addresses, weights 1 and 3; a copy of all to port 4.
    std::fs::write(
        at("groups.txt"),
        "group_id=1,type=select,bucket=weight=1,output:2,bucket=weight=3,output:3\n\
         group_id=2,type=all,bucket=group:1,bucket=mod_nw_ttl:9,output:4\n",
    )
    .unwrap();
    std::fs::write(at("flows.txt"), "udp,actions=group:2\n").unwrap();
    let run = |out: &str, more: &[&str]| {
        let input = format!("1={}", at("in.pcap").display());
        let empty: Vec<String> = (2..5).map(|p| format!("{p}={}", at("empty.pcap").display())).collect();
        let (flows, groups, out) = (at("flows.txt"), at("groups.txt"), at(out));
        let mut args = vec!["replay", "--flows", flows.to_str().unwrap(), "--groups", groups.to_str().unwrap()];
        args.extend(["--out-dir", out.to_str().unwrap(), "--in", &input]);
        empty.iter().for_each(|port| args.extend(["--in", port]));
        args.extend(more);
        let output = sluice(&args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        [2, 3, 4].map(|port| captured(&out, port))
    };
    let [light, heavy, all] = run("out", &[]);
    assert_eq!((light.len() + heavy.len(), all.len()), (400, 400));
    assert!(light.len() > 50 && light.len() < 150, "a quarter of 400: {}", light.len());
    assert!(all.iter().all(|(_, packet)| packet[22] == 9) && heavy.iter().all(|(_, packet)| packet[22] == 64));
    // The second packet of a flow meets the bucket that the first met.
    let sources = |packets: &[Packet]| packets.iter().map(|(_, p)| p[28]).collect::<std::collections::BTreeSet<_>>();
    assert!(sources(&light).is_disjoint(&sources(&heavy)));
    assert_eq!(
        run("batched", &["--batch", "32", "--pmds", "2", "--queues", "3"]).map(|p| p.len()),
        [light.len(), heavy.len(), all.len()]
    );
    // A rule that sends to a group that is not there is refused.
    std::fs::write(at("flows.txt"), "udp,actions=group:3\n").unwrap();
    let (flows, input) = (at("flows.txt"), format!("1={}", at("in.pcap").display()));
    let out = at("none");
    let args = ["replay", "--flows", flows.to_str().unwrap(), "--in", &input, "--out-dir", out.to_str().unwrap()];
    let line = one_line_failure(&sluice(&args));
    assert!(line.contains("group:3: there is no such group"), "{line}");
}

#[test]
fn a_replay_tells_why_each_packet_went_where_it_went() {
    let [port_1, port_2, port_3] = traffic();
    let bench = Bench::new(&[&port_1, &port_2, &port_3]);
    let traces = bench.at("traces.txt");
    let (sent, summary) = bench.replay(&["--traces", &traces]);
    assert_eq!((sent, summary), bench.replay(&[]), "asking changes nothing");
    let text = std::fs::read_to_string(&traces).unwrap();
    let titles: Vec<&str> = text.lines().filter(|line| line.starts_with("== ")).collect();
    assert_eq!(titles.len(), port_1.len() + port_2.len() + port_3.len());
    let of =
        |title: &str| text.split("== ").find(|trace| trace.starts_with(title)).unwrap_or_else(|| panic!("{titles:?}"));
    let rewritten = of("port 1, 1000030 us");
    assert!(rewritten.contains(" 0. udp,nw_src=2.0.0.0/8, priority 80"), "{rewritten}");
    assert!(rewritten.ends_with("Datapath actions: set(ipv4(src=9.9.9.9)),2,3\n"), "{rewritten}");
    assert!(of("port 1, 1000070 us").contains("too short"), "a frame of three bytes");
}

#[test]
fn ports_have_vlans_and_the_bridge_has_one_of_its_own() {
    let second = 1_000_000;
    let mut tagged = arp();
    tagged.splice(12..12, [0x81, 0, 0, 10]);
    let bench = Bench::new(&[&[(second, arp())], &[], &[]]);
    std::fs::write(bench.dir.path().join("flows.txt"), "actions=normal\n").unwrap();
    write_capture(&bench.dir.path().join("local.pcap"), &[]);
    let local = format!("LOCAL={}", bench.at("local.pcap"));
    let more = ["--access", "1=10", "--trunks", "2=10,20", "--trunks", "3=20", "--in", &local];
    let (sent, _) = bench.replay(&more);
    assert_eq!(sent, [vec![], vec![(second, tagged.clone())], vec![]]);
    assert_eq!(read_capture(&bench.dir.path().join("out/LOCAL.pcap")), [(second, tagged)]);
    for wrong in [["--access", "1=10,20"], ["--access", "1=4096"], ["--trunks", "1"]] {
        let out = bench.at("out");
        let input = format!("1={}", bench.at("in1.pcap"));
        let flows = bench.at("flows.txt");
        let args = ["replay", "--flows", &flows, "--in", &input, "--out-dir", &out];
        assert!(!sluice(&[&args[..], &wrong].concat()).status.success(), "{wrong:?}");
    }
}

#[test]
fn a_meter_lets_its_rate_pass() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    // A thousand packets a second, for two seconds; two other flows that are metered apart and not at all.
    let packets: Vec<Packet> = (0..2000u64)
        .flat_map(|i| [1, 2, 3].map(|host| (1_000_000_000 + i * 1000, udp([10, 0, 0, host], 5000))))
        .collect();
    write_capture(&at("in.pcap"), &packets);
    write_capture(&at("empty.pcap"), &[]);
    std::fs::write(
        at("meters.txt"),
        "# packets, and kilobits: 480 bits a packet\nmeter=7 pktps burst stats bands=type=drop rate=100 burst_size=50\n\
         meter=8 kbps bands=type=drop rate=48\n",
    )
    .unwrap();
    std::fs::write(
        at("flows.txt"),
        "udp,nw_src=10.0.0.1,actions=meter:7,output:2\nudp,nw_src=10.0.0.2,actions=meter:8,output:2\nudp,actions=output:2\n",
    )
    .unwrap();
    for more in [&[][..], &["--batch", "32"], &["--batch", "8", "--pmds", "2", "--queues", "2"]] {
        let (input, empty) = (format!("1={}", at("in.pcap").display()), format!("2={}", at("empty.pcap").display()));
        let (flows, meters, out) = (at("flows.txt"), at("meters.txt"), at("out"));
        let mut args =
            vec!["replay", "--flows", flows.to_str().unwrap(), "--meters", meters.to_str().unwrap(), "--json"];
        args.extend(["--out-dir", out.to_str().unwrap(), "--in", &input, "--in", &empty]);
        args.extend(more);
        let output = sluice(&args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        let of = |host: u8| captured(&out, 2).iter().filter(|(_, p)| p[29] == host).count();
        // The burst and two seconds; without a burst one second's worth and two more. A batch's clock is coarse.
        let near = |n: usize, wanted: usize| n.abs_diff(wanted) <= 5;
        assert!(near(of(1), 250) && near(of(2), 300) && of(3) == 2000, "{more:?}: {} {} {}", of(1), of(2), of(3));
        let dropped = summary["dropped"]["meter"].as_u64().unwrap() as usize;
        assert_eq!(dropped, 4000 - of(1) - of(2), "{more:?}: {summary}");
    }
}
