//! Groups and meters as `ovs-ofctl` reads and prints them.

use sluice_flow::{FieldId, OfPort, PortNames};
use sluice_ofp::{
    BUCKET_ALL, BUCKET_FIRST, Band, BandKind, GROUP_ALL, GroupCommand, GroupKind, GroupMod, METER_ALL,
    METER_CONTROLLER, MeterCommand, MeterMod,
};

fn group(text: &str, command: GroupCommand) -> GroupMod {
    GroupMod::parse(text, command, &PortNames::NONE).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// What Open vSwitch 3.1 prints is read, and printed again the same.
#[test]
fn what_is_printed_is_read_again() {
    for text in [
        "group_id=1234,type=all,bucket=bucket_id:0,actions=output:10,bucket=bucket_id:1,actions=output:11",
        "group_id=1,type=select,bucket=bucket_id:0,weight:100,actions=output:10,bucket=bucket_id:7,actions=drop",
        "group_id=2,type=select,selection_method=dp_hash,selection_method_param=4294967303,bucket=bucket_id:0,actions=output:1",
        "group_id=3,type=select,selection_method=hash,fields=ip_dst,bucket=bucket_id:0,actions=output:1",
        "group_id=3,type=select,selection_method=hash,fields(tun_metadata1=0xff00000000000000000000000000000000,tun_metadata2),bucket=bucket_id:0,actions=output:1",
        "group_id=3,type=select,selection_method=hash,fields(ip_src=255.255.255.0,ip_dst,tcp_src),bucket=bucket_id:0,actions=output:1",
        "group_id=4,type=ff,bucket=bucket_id:0,watch_port:5,actions=output:5,bucket=bucket_id:1,watch_group:3,actions=group:3",
        "group_id=5,type=indirect,bucket=bucket_id:0,actions=set_field:10.0.0.1->ip_dst,output:1",
        "group_id=6,type=all",
    ] {
        let read = group(text, GroupCommand::Add);
        assert_eq!(read.config.display(read.group, &PortNames::NONE).to_string(), text);
    }
}

#[test]
fn buckets_may_be_written_in_any_order() {
    let read =
        group(" group_id=7 type=select, bucket=output:1,weight=3,mod_nw_ttl:9,bucket=actions=drop", GroupCommand::Add);
    assert_eq!((read.group, read.config.kind, read.command_bucket), (7, GroupKind::Select, BUCKET_ALL));
    let buckets = &read.config.buckets;
    assert_eq!((buckets[0].weight, buckets[0].actions.len(), buckets[0].id), (3, 2, BUCKET_ALL));
    assert_eq!((buckets[1].weight, buckets[1].actions.len()), (1, 0));
    let read = group("group_id=1,type=ff,bucket=watch_port=2,output:2", GroupCommand::Add);
    assert_eq!((read.config.buckets[0].watch_port, read.config.buckets[0].weight), (Some(OfPort(2)), 0));
    let fields =
        group("group_id=1,type=select,selection_method=hash,fields(tcp_dst,ip_src=0.0.0.255)", GroupCommand::Add);
    assert_eq!(fields.config.selection.fields, [(FieldId::Ipv4Src, 0xff.into()), (FieldId::TcpDst, 0xffff.into())]);
}

#[test]
fn other_commands() {
    assert_eq!(group("", GroupCommand::Delete).group, GROUP_ALL);
    assert_eq!(group("group_id=all", GroupCommand::Delete).group, GROUP_ALL);
    let insert = group("group_id=1,command_bucket_id=first,bucket=output:1", GroupCommand::InsertBucket);
    assert_eq!((insert.command_bucket, insert.config.buckets.len()), (BUCKET_FIRST, 1));
    assert_eq!(group("group_id=1,command_bucket_id=all", GroupCommand::RemoveBucket).command_bucket, BUCKET_ALL);
    let file = "# two\nadd group_id=1,type=all,bucket=output:1\n\ndelete group_id=2\ngroup_id=3,type=all\n";
    let read = GroupMod::parse_file(file, &PortNames::NONE).unwrap();
    let commands: Vec<_> = read.iter().map(|g| (g.command, g.group)).collect();
    assert_eq!(commands, [(GroupCommand::Add, 1), (GroupCommand::Delete, 2), (GroupCommand::Add, 3)]);
}

#[test]
fn wrong_groups_are_told_where() {
    use GroupCommand::{Add, Delete, InsertBucket, RemoveBucket};
    for (text, command, column, expected) in [
        ("type=all", Add, 9, "group_id=ID"),
        ("group_id=1", Add, 11, "type=all"),
        ("group_id=1,type=some", Add, 17, "all, select, indirect or ff"),
        ("group_id=4294967295,type=all", Add, 10, "a group's number"),
        ("group_id=1,type=all,bucket=", Add, 28, "actions"),
        ("group_id=1,type=all,bucket=weight=5,output:1", Add, 35, "weights in select groups only"),
        ("group_id=1,type=ff,bucket=output:1", Add, 27, "watch_port or watch_group"),
        ("group_id=1,type=select,bucket=fly", Add, 31, "an action"),
        ("group_id=1,type=select,bucket=goto_table:1", Add, 31, "actions, not instructions"),
        ("group_id=1,type=select,selection_method=luck", Add, 1, "hash or dp_hash"),
        ("group_id=1,type=select,fields=ip_src", Add, 24, "selection_method=hash"),
        ("group_id=1,type=select,selection_method=hash,fields(no)", Add, 53, "the name of a field"),
        ("group_id=1,type=select,selection_method=hash,fields(ip_src,ip_src)", Add, 60, "each field once"),
        ("group_id=1,type=all,bucket=watch_port:local,output:1", Add, 39, "an ordinary port"),
        ("group_id=1,colour=red,type=all", Add, 12, "group_id, type"),
        ("group_id=1,type=all", Delete, 12, "group_id"),
        ("group_id=1,bucket=output:1", InsertBucket, 27, "command_bucket_id"),
        ("group_id=1,command_bucket_id=all,bucket=output:1", InsertBucket, 30, "number"),
        ("group_id=1,command_bucket_id=1,bucket=output:1", RemoveBucket, 32, "none in this command"),
        ("group_id=1,type=indirect,bucket=output:1,bucket=output:2", Add, 1, "one bucket"),
    ] {
        let error = GroupMod::parse(text, command, &PortNames::NONE).unwrap_err();
        assert_eq!(error.column, column, "{text}: {error}");
        assert!(error.expected.contains(expected), "{text}: {error}");
    }
}

#[test]
fn meters() {
    let read = |text: &str, command| MeterMod::parse(text, command).unwrap_or_else(|e| panic!("{text}: {e}"));
    let add = read("meter=1,pktps,burst,stats,bands=type=drop,rate=1000,burst_size=200", MeterCommand::Add);
    let band = Band { kind: BandKind::Drop, rate: 1000, burst: 200 };
    assert_eq!((add.meter, add.config.packets, add.config.bands.as_slice()), (1, true, &[band][..]));
    assert_eq!(add.config.to_string(), "pktps burst stats bands=\ntype=drop rate=1000 burst_size=200");
    let two = read("meter=5 kbps band=type=drop rate=5 type=dscp_remark rate=3 prec_level=1", MeterCommand::Modify);
    assert_eq!(two.config.to_string(), "kbps bands=\ntype=drop rate=5\ntype=dscp_remark rate=3 prec_level=1");
    assert_eq!(read("meter=controller", MeterCommand::Delete).meter, METER_CONTROLLER);
    assert_eq!(
        (read("meter=all", MeterCommand::Delete).meter, read("", MeterCommand::Delete).meter),
        (METER_ALL, METER_ALL)
    );
    for (text, expected) in [
        ("pktps bands=type=drop rate=1", "meter=ID"),
        ("meter=0 pktps bands=type=drop rate=1", "a meter's number"),
        ("meter=1 bands=type=drop rate=1", "kbps or pktps"),
        ("meter=1 kbps", "bands=type=drop rate=N"),
        ("meter=1 kbps bands=", "type=drop rate=N"),
        ("meter=1 kbps bands=rate=1", "type=drop or type=dscp_remark first"),
        ("meter=1 kbps bands=type=paint rate=1", "drop or dscp_remark"),
        ("meter=1 kbps bands=type=drop", "a rate in each band"),
        ("meter=1 kbps burst bands=type=drop rate=1", "a burst_size"),
        ("meter=1 kbps bands=type=drop rate=1 burst_size=1", "the word burst only"),
        ("meter=1 kbps bands=type=dscp_remark rate=1", "a prec_level"),
        ("meter=1 kbps bands=type=drop rate=1 prec_level=1", "prec_level"),
        ("meter=1 loud bands=type=drop rate=1", "meter=ID, kbps"),
    ] {
        let error = MeterMod::parse(text, MeterCommand::Add).unwrap_err();
        assert!(error.expected.contains(expected), "{text}: {error}");
    }
}
