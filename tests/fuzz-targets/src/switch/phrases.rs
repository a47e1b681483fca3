//! Rules, groups and meters, put together of phrases as `ovs-ofctl` reads them.

use crate::input::Input;
use sluice_ofp::GroupCommand;

/// Tables that rules stand in, and resubmit to.
const TABLES: u8 = 4;

const MATCHES: &[&str] = &[
    "",
    "in_port=1",
    "in_port=2",
    "ip",
    "ip,nw_src=10.0.0.1",
    "ip,nw_dst=10.0.0.0/30",
    "ip,nw_frag=later",
    "ip,nw_frag=first",
    "tcp",
    "tcp,tp_dst=21",
    "tcp,tcp_flags=+syn-ack",
    "udp,tp_src=53",
    "icmp",
    "ipv6",
    "icmp6",
    "arp",
    "dl_vlan=5",
    "vlan_tci=0",
    "mpls",
    "dl_dst=02:00:00:00:00:02",
    "reg0=1",
    "reg1=2",
    "metadata=2",
    "ct_state=-trk,ip",
    "ct_state=+trk+new,ip",
    "ct_state=+trk+est,ip",
    "ct_state=+trk+rel,ip",
    "ct_state=+trk+inv,ip",
    "ct_state=+trk+rpl,ip",
    "ct_state=+trk,ct_mark=1,ip",
    "ct_state=+trk,ct_zone=1,ip",
    "conj_id=1,ip",
];

const ACTIONS: &[&str] = &[
    "output:1",
    "output:2",
    "output:3",
    "output:4",
    "in_port",
    "flood",
    "all",
    "normal",
    "resubmit(,0)",
    "resubmit(,1)",
    "resubmit(,2)",
    "resubmit(,3)",
    "resubmit(2,0)",
    "group:1",
    "group:2",
    "group:3",
    "ct(commit)",
    "ct(table=1)",
    "ct(table=2,zone=1,nat)",
    "ct(commit,table=3)",
    "ct(commit,zone=1,nat(src=10.0.0.9))",
    "ct(commit,nat(dst=10.0.0.2),table=1)",
    "ct(commit,nat(src=10.0.0.8-10.0.0.9:1000-1003),table=2)",
    "ct(commit,zone=1,exec(set_field:1->ct_mark),table=3)",
    "ct(commit,force,alg=ftp,nat(src=10.0.0.9),table=1)",
    "ct(commit,alg=tftp)",
    "ct_clear",
    "learn(table=1,hard_timeout=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])",
    "learn(table=2,idle_timeout=1,limit=3,eth_type=0x800,NXM_OF_IP_DST[]=NXM_OF_IP_SRC[],load:1->NXM_NX_REG0[])",
    "learn(table=0,delete_learned,cookie=1,priority=3,in_port=2,load:2->NXM_NX_REG1[])",
    "move:NXM_OF_IN_PORT[]->NXM_NX_REG1[0..15]",
    "load:1->NXM_NX_REG0[]",
    "set_field:10.0.0.3->ip_dst",
    "set_field:02:00:00:00:00:03->eth_dst",
    "set_field:80->tcp_dst",
    "write_metadata:2",
    "push_vlan:0x8100,set_field:4101->vlan_vid",
    "pop_vlan",
    "push_mpls:0x8847",
    "pop_mpls:0x0800",
    "dec_ttl",
    "clone(push_vlan:0x88a8,output:3)",
    "clone(ct(commit,table=1))",
    "clone(resubmit(,1))",
    "multipath(symmetric_l4,0,hrw,4,0,NXM_NX_REG1[0..15])",
    "output:NXM_NX_REG1[0..15]",
    "bundle(eth_src,0,active_backup,ofport,members:2,3)",
    "check_pkt_larger(100)->NXM_NX_REG0[0]",
    "controller(max_len=64)",
    "controller(pause)",
    "output(port=1,max_len=20)",
    "fin_timeout(idle_timeout=1,hard_timeout=2)",
    "drop",
    "conjunction(1,1/2)",
    "conjunction(1,2/2)",
    "write_actions(output:2,group:1)",
    "write_actions(ct_clear,output:3)",
    "clear_actions",
    "meter:1",
    "goto_table:1",
    "goto_table:3",
    "strip_vlan,normal",
    "exit",
    "set_queue:1,output:4",
];

fn phrase(input: &mut Input, phrases: &[&'static str]) -> &'static str {
    phrases[usize::from(input.byte()) % phrases.len()]
}

fn actions(input: &mut Input) -> String {
    let n = 1 + input.byte() % 4;
    let parts: Vec<_> = (0..n).map(|_| phrase(input, ACTIONS)).collect();
    parts.join(",")
}

/// Which rules: table, and match.
pub fn selection(input: &mut Input) -> String {
    let table = input.byte() % TABLES;
    let matches = phrase(input, MATCHES);
    format!("table={table},{matches}")
}

/// A whole rule.
pub fn rule(input: &mut Input) -> String {
    let (place, byte) = (selection(input), input.byte());
    let timeouts = ["", "", ",idle_timeout=1", ",hard_timeout=3"][usize::from(byte >> 6)];
    format!("{place},priority={},cookie={}{timeouts},actions={}", byte % 4, byte % 2, actions(input))
}

/// A group of up to three buckets.
pub fn group(input: &mut Input, command: GroupCommand) -> String {
    let id = 1 + input.byte() % 3;
    if command == GroupCommand::Delete {
        return format!("group_id={id}");
    }
    let kind = ["all", "select", "indirect", "ff"][usize::from(input.byte() % 4)];
    let n = if kind == "indirect" { 1 } else { 1 + input.byte() % 3 };
    let mut text = format!("group_id={id},type={kind}");
    for _ in 0..n {
        let watch = if kind == "ff" { format!("watch_port:{},", 1 + input.byte() % 4) } else { String::new() };
        text += &format!(",bucket={watch}actions={}", actions(input));
    }
    text
}

/// A meter that bites within a burst.
pub fn meter(input: &mut Input, delete: bool) -> String {
    if delete {
        return "meter=1".into();
    }
    format!("meter=1,pktps,burst,bands=type=drop,rate={},burst_size={}", 1 + input.byte() % 20, input.byte() % 20)
}
