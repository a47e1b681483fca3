//! Random tables that track connections, and packets that talk to each other: handshakes, answers, errors about earlier
//! packets, and what does not fit.
//!
//! NAT is to one address without a range of ports, since which port of a range is taken depends on secrets. There is no
//! NAT with `force`, nor `commit` with a `nat` that says nothing, where Sluice means to differ (see crate `conntrack`).

use crate::actions::Version;
use crate::rng::Rng;
use crate::table::{PortVlans, Tables, Theme};
use crate::values::PORTS;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// Addresses of hosts, and that which NAT gives; IPv4 ones are the last byte of 10.0.0.x, IPv6 ones of fc00::x.
const HOSTS: [u8; 4] = [1, 2, 3, 4];
const TRANSLATED: u8 = 200;

/// Rules of four tables: one that tracks, two that go by state and may track again, and one that ends it.
pub fn tables(rng: &mut Rng) -> Tables {
    let zones = [0, rng.below(3), 7];
    let mut lines = Vec::new();
    let mut rule = |table: usize, priority: usize, matched: String, actions: String| {
        lines.push(format!("table={table},priority={priority},{matched} actions={actions}"));
    };
    for i in 0..4 + rng.below(6) {
        let v6 = rng.chance(30);
        let matched = format!("{}{}", protocol(rng, v6), [String::new(), in_port(rng)][rng.below(2)]);
        rule(0, 10 + i, matched, track(rng, &zones, 1, v6, true));
    }
    rule(0, 1, "ip".to_owned(), "ct(table=1)".to_owned());
    rule(0, 1, "ipv6".to_owned(), "ct(table=1,zone=7)".to_owned());
    for table in [1, 2] {
        for i in 0..6 + rng.below(8) {
            let v6 = rng.chance(25);
            let state = state(rng, &zones, v6);
            // Invalid packets cannot begin anything, and rules that say so are refused.
            let actions = react(rng, &zones, table, v6, !state.contains("+inv"));
            rule(table, 10 + i, format!("{},{state}", protocol(rng, v6)), actions);
        }
        if rng.chance(70) {
            rule(table, 0, "ip".to_owned(), output(rng));
        }
    }
    rule(3, 10, "ip,ct_state=+trk+est".to_owned(), output(rng));
    rule(3, 5, "tcp,ct_mark=5/0x0f".to_owned(), output(rng));
    rule(3, 0, "ip".to_owned(), output(rng));
    let vlans = vec![PortVlans::All; PORTS.into()];
    Tables { version: Version::Of10, lines, theme: Theme::Tracking, vlans }
}

fn protocol(rng: &mut Rng, v6: bool) -> String {
    let all = if v6 { ["ipv6", "tcp6", "udp6", "icmp6"] } else { ["ip", "tcp", "udp", "icmp"] };
    all[rng.weighted(&[40, 25, 25, 10])].to_owned()
}

fn in_port(rng: &mut Rng) -> String {
    format!(",in_port={}", 1 + rng.below(PORTS.into()))
}

fn output(rng: &mut Rng) -> String {
    format!("output:{}", 1 + rng.below(PORTS.into()))
}

/// `nat`, where the packet does not begin a connection; else to an address.
fn nat(rng: &mut Rng, v6: bool, commits: bool) -> String {
    let addr = if v6 { format!("fc00::{TRANSLATED:x}") } else { format!("10.0.0.{TRANSLATED}") };
    match rng.below(2) {
        _ if !commits => "nat".to_owned(),
        0 => format!("nat(src={addr})"),
        _ => format!("nat(dst={addr})"),
    }
}

/// `ct(…)` that leads to `table`, or commits and goes on.
fn track(rng: &mut Rng, zones: &[usize], table: usize, v6: bool, may_commit: bool) -> String {
    let mut args = Vec::new();
    let zone = *rng.pick(zones);
    if rng.chance(80) {
        args.push(format!("zone={zone}"));
    }
    let commits = may_commit && rng.chance(35);
    if commits {
        args.push("commit".to_owned());
        match rng.below(5) {
            0 => args.push(format!("exec(set_field:{}/0x0f->ct_mark)", rng.below(16))),
            1 => args.push(format!("exec(load:{}->NXM_NX_CT_LABEL[60..67])", rng.below(256))),
            2 => args.push("exec(move:NXM_NX_REG1[]->NXM_NX_CT_MARK[])".to_owned()),
            _ => {}
        }
    }
    if rng.chance(30) {
        args.push(nat(rng, v6, commits));
    } else if commits && rng.chance(12) {
        args.push("force".to_owned());
    }
    let leads = !commits || rng.chance(50);
    if leads {
        args.push(format!("table={table}"));
    }
    let ct = format!("ct({})", args.join(","));
    let ct = if rng.chance(8) { format!("clone({ct},{})", output(rng)) } else { ct };
    let before =
        ["", "load:5->NXM_NX_REG1[],", "dec_ttl,", "mod_dl_src:02:00:00:00:00:99,"][rng.weighted(&[70, 15, 8, 7])];
    let after = match rng.below(10) {
        0 if table == 1 => ",resubmit(,2)".to_owned(),
        1 => format!(",{}", output(rng)),
        _ if leads => String::new(),
        _ => format!(",{}", output(rng)),
    };
    format!("{before}{ct}{after}")
}

fn state(rng: &mut Rng, zones: &[usize], v6: bool) -> String {
    const STATES: [&str; 11] = [
        "+trk+new",
        "+trk+est",
        "+trk+est+rpl",
        "+trk+est-rpl",
        "+trk+rel",
        "+trk+inv",
        "-trk",
        "+trk-inv",
        "+snat",
        "+dnat",
        "+trk+new-rel",
    ];
    let mut text = format!("ct_state={}", STATES[rng.weighted(&[25, 20, 12, 8, 6, 6, 5, 6, 4, 4, 4])]);
    if rng.chance(25) {
        text += &format!(",ct_zone={}", rng.pick(zones));
    }
    if rng.chance(15) {
        text += &format!(",ct_mark={}/0x0f", rng.below(16));
    }
    if rng.chance(8) {
        text += &format!(",ct_label={:#x}/0xff0000000000000000", (rng.below(256) as u128) << 64);
    }
    let is_valid = text.contains("new") || text.contains("est") || text.contains("nat");
    if is_valid && rng.chance(15) {
        let host = *rng.pick(&HOSTS);
        text += &if v6 { format!(",ct_ipv6_src=fc00::{host:x}") } else { format!(",ct_nw_src=10.0.0.{host}") };
    }
    text
}

fn react(rng: &mut Rng, zones: &[usize], table: usize, v6: bool, may_commit: bool) -> String {
    match rng.weighted(&[45, 25, 12, 6, 6, 6]) {
        1 => track(rng, zones, table + 1, v6, may_commit),
        2 if table == 1 => "resubmit(,2)".to_owned(),
        3 => format!("ct_clear,{}", if table == 1 { "resubmit(,2)".to_owned() } else { output(rng) }),
        4 => "drop".to_owned(),
        5 => format!("move:NXM_NX_CT_MARK[]->NXM_NX_REG1[],{}", output(rng)),
        _ => output(rng),
    }
}

/// A talk between two hosts.
struct Talk {
    v6: bool,
    protocol: u8,
    /// The client and the server: host and port.
    ends: [(u8, u16); 2],
    /// What each sends next.
    next: [u32; 2],
    steps: usize,
}

/// Packets of a few talks, mixed.
pub fn packets(rng: &mut Rng, n: usize) -> Vec<Vec<u8>> {
    let mut talks: Vec<Talk> = (0..8).map(|_| talk(rng)).collect();
    let mut sent: Vec<(bool, Vec<u8>)> = Vec::new();
    (0..n)
        .map(|_| {
            let i = rng.below(talks.len());
            if rng.chance(8) {
                talks[i] = talk(rng);
            }
            let (v6, ip) = match rng.chance(8).then(|| sent.last().cloned()).flatten() {
                Some((v6, about)) => (v6, error(rng, v6, &about)),
                None => (talks[i].v6, packet(rng, &mut talks[i])),
            };
            sent.push((v6, ip.clone()));
            let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
            frame.extend(if v6 { [0x86, 0xdd] } else { [8, 0] });
            frame.extend(ip);
            frame
        })
        .collect()
}

fn talk(rng: &mut Rng) -> Talk {
    let v6 = rng.chance(25);
    let protocol = [6, 17, if v6 { 58 } else { 1 }, 132][rng.weighted(&[50, 30, 15, 5])];
    let server = if rng.chance(15) { TRANSLATED } else { *rng.pick(&HOSTS) };
    let client = (*rng.pick(&HOSTS), 40000 + rng.below(3) as u16);
    Talk { v6, protocol, ends: [client, (server, 80)], next: [rng.next() as u32, rng.next() as u32], steps: 0 }
}

/// The next packet of a talk, mostly one that fits.
fn packet(rng: &mut Rng, talk: &mut Talk) -> Vec<u8> {
    // The handshake, then data either way.
    let from = if rng.chance(80) { [0, 1, 0][talk.steps.min(2)] } else { rng.below(2) };
    let from = if talk.steps > 2 { rng.below(2) } else { from };
    let mut ends = talk.ends;
    // What the other end was translated to is what it is answered at, now and then.
    if rng.chance(20) {
        ends[rng.below(2)].0 = TRANSLATED;
    }
    let ((src, src_port), (dst, dst_port)) = (ends[from], ends[1 - from]);
    let l4 = match talk.protocol {
        6 => {
            let flags = match talk.steps {
                _ if rng.chance(15) => *rng.pick(&[SYN, SYN | ACK, ACK, FIN | ACK, RST, RST | ACK, 0, SYN | FIN]),
                0 => SYN,
                1 => SYN | ACK,
                n if n > 6 && rng.chance(30) => FIN | ACK,
                _ => ACK,
            };
            let seq = if rng.chance(6) { rng.next() as u32 } else { talk.next[from] };
            let data = if flags & SYN == 0 { rng.below(20) } else { 0 };
            talk.next[from] = seq.wrapping_add(data as u32 + u32::from(flags & (SYN | FIN) != 0));
            tcp((src_port, dst_port), (seq, talk.next[1 - from]), flags, data)
        }
        17 => {
            let mut l4 = [src_port.to_be_bytes(), dst_port.to_be_bytes(), [0, 8 + 4], [0, 0]].concat();
            l4.extend([1, 2, 3, 4]);
            l4
        }
        1 | 58 => {
            let (question, answer) = if talk.v6 { (128, 129) } else { (8, 0) };
            let id = talk.ends[0].1.to_be_bytes();
            vec![if from == 0 { question } else { answer }, 0, 0, 0, id[0], id[1], 0, 1, 9, 9]
        }
        _ => [&src_port.to_be_bytes()[..], &dst_port.to_be_bytes(), &[0; 12]].concat(),
    };
    talk.steps += 1;
    ip(talk.v6, talk.protocol, src, dst, l4, rng.chance(3))
}

fn tcp((src, dst): (u16, u16), (seq, ack): (u32, u32), flags: u8, data: usize) -> Vec<u8> {
    let ack = if flags & ACK != 0 { ack } else { 0 };
    let mut l4 = [src.to_be_bytes(), dst.to_be_bytes()].concat();
    l4.extend(seq.to_be_bytes());
    l4.extend(ack.to_be_bytes());
    l4.extend([5 << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
    l4.resize(l4.len() + data, 0x61);
    l4
}

/// An ICMP error about a packet, from its receiver.
fn error(rng: &mut Rng, v6: bool, about: &[u8]) -> Vec<u8> {
    let (src, dst) = if v6 { (about[39], about[23]) } else { (about[19], about[15]) };
    let kind = if v6 { [1, 2, 3][rng.below(3)] } else { [3, 11, 3][rng.below(3)] };
    let mut l4 = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    let whole = if v6 { 60 } else { 28 };
    l4.extend(&about[..about.len().min(whole)]);
    ip(v6, if v6 { 58 } else { 1 }, src, dst, l4, false)
}

/// An IP packet with its checksums, or with a wrong one.
fn ip(v6: bool, protocol: u8, src: u8, dst: u8, mut l4: Vec<u8>, is_broken: bool) -> Vec<u8> {
    let addr =
        |host: u8| -> Vec<u8> { if v6 { [&[0xfc][..], &[0; 14], &[host]].concat() } else { vec![10, 0, 0, host] } };
    let len = l4.len() as u16;
    let pseudo = [&addr(src)[..], &addr(dst), &[0, protocol], &len.to_be_bytes()].concat();
    let covered = if protocol == 1 { l4.clone() } else { [pseudo, l4.clone()].concat() };
    let at = match protocol {
        6 => 16,
        17 => 6,
        1 | 58 => 2,
        _ => usize::MAX,
    };
    if let Some(field) = l4.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<2>()) {
        *field = (sum(&covered) ^ u16::from(is_broken) << 3).to_be_bytes();
    }
    let mut out = if v6 {
        let [a, b] = len.to_be_bytes();
        vec![0x60, 0, 0, 0, a, b, protocol, 64]
    } else {
        let [a, b] = (len + 20).to_be_bytes();
        vec![0x45, 0, a, b, 0, 1, 0, 0, 64, protocol, 0, 0]
    };
    out.extend(addr(src));
    out.extend(addr(dst));
    if !v6 {
        let header = sum(&out).to_be_bytes();
        out[10..12].copy_from_slice(&header);
    }
    out.extend(l4);
    out
}

/// The Internet checksum.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
