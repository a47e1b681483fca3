//! Every message, written and read again in every version that has it, is the same; and no bytes make the reader panic.

use proptest::collection::vec;
use proptest::prelude::*;
use sluice_flow::{FieldId, Mac, Match, OfPort, PortNames, Wide};
use sluice_ofp::ofpact::PacketInReason;
use sluice_ofp::{
    BUCKET_ALL, Band, BandKind, Bucket, FlowCommand, FlowFlags, FlowMod, FlowRemovedReason, GroupCommand, GroupConfig,
    GroupKind, GroupMod, MeterCommand, MeterConfig, MeterMod, OfAction, Paused, Selection, Stretch,
};
use sluice_openflow::message::connection::*;
use sluice_openflow::message::flow_mod::FlowModMessage;
use sluice_openflow::message::flow_stats::{Aggregate, FlowRequest, FlowStats};
use sluice_openflow::message::groups::{GroupDesc, GroupFeatures, GroupStats};
use sluice_openflow::message::meters::{MeterDesc, MeterFeatures, MeterStats, QueueConfig, QueueStats};
use sluice_openflow::message::ports::*;
use sluice_openflow::message::stats::{StatsReply, StatsRequest};
use sluice_openflow::message::switch::*;
use sluice_openflow::message::table_stats::{TableBitmaps, TableStats};
use sluice_openflow::message::tlv_table::{TlvCommand, TlvMap, TlvTableMod, TlvTableReply};
use sluice_openflow::{
    Continuation, Error, FlowRemoved, Format, Framer, Header, Message, PacketIn, PacketInFormat, PacketOut, Version,
    check_prerequisites,
};

const MATCHES: &[&str] = &[
    "",
    "in_port=1",
    "in_port=LOCAL,dl_vlan=5,dl_vlan_pcp=3",
    "dl_src=00:00:00:00:00:01/01:00:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff",
    "tcp,nw_src=10.0.0.0/8,nw_dst=1.2.3.4,tp_src=0x10/0xf0,tp_dst=80",
    "udp6,ipv6_src=fe80::/64,ipv6_dst=::1,ipv6_label=0x5,tp_dst=53",
    "arp,arp_op=1,arp_spa=10.0.0.1,arp_tpa=10.0.0.0/24,arp_sha=00:00:00:00:00:05,arp_tha=00:00:00:00:00:06",
    "icmp,icmp_type=8,icmp_code=0,nw_tos=4,nw_ecn=1,nw_ttl=64",
    "icmp6,icmp_type=135,icmp_code=0,nd_target=fe80::1,nd_sll=00:00:00:00:00:07",
    "sctp,tp_dst=7",
    "tcp,tcp_flags=+syn-ack,nw_frag=no",
    "mpls,mpls_label=5,mpls_tc=3,mpls_bos=1,mpls_ttl=9",
    "reg0=0x5,reg1=0x50/0xf0,reg15=0x1,metadata=0x7/0xff,xreg3=0x1234567890",
    "tun_id=0x9,tun_src=1.2.3.4,tun_dst=5.6.7.0/24,tun_gbp_id=3,tun_flags=+oam",
    "tun_ipv6_src=fe80::1",
    "ct_state=+trk+est-inv,ct_zone=5,ct_mark=0x1/0x3,ct_label=0x7,ip,ct_nw_src=1.2.3.4,ct_nw_proto=6,ct_tp_dst=80",
    "pkt_mark=0x1,conj_id=3,recirc_id=9,dp_hash=0x5/0xf",
    "vlan_tci=0x0000/0x1fff",
    "vlan_tci=0x1000/0x1000",
];

/// What OpenFlow 1.1's match can say.
const MATCHES11: &[&str] = &[
    "",
    "in_port=1",
    "in_port=LOCAL,dl_vlan=5,dl_vlan_pcp=3",
    "dl_src=00:00:00:00:00:01/01:00:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff",
    "tcp,nw_src=10.0.0.0/255.0.255.0,nw_dst=1.2.3.4,tp_src=16,tp_dst=80",
    "arp,arp_op=1,arp_spa=10.0.0.1,arp_tpa=10.0.0.0/24",
    "icmp,icmp_type=8,icmp_code=0,nw_tos=4",
    "mpls,mpls_label=5,mpls_tc=3",
    "metadata=0x7/0xff",
    "vlan_tci=0x0000",
    "vlan_tci=0x1000/0x1000",
];

/// Lists of actions that every version says as they are.
const ACTIONS: &[&str] = &[
    "drop",
    "output:1",
    "CONTROLLER:128,LOCAL,IN_PORT",
    "resubmit(,5),resubmit:7,dec_ttl(1,2)",
    "learn(table=1,NXM_OF_VLAN_TCI[0..11],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[])",
    "controller(max_len=12,id=7,reason=invalid_ttl),controller(userdata=01.02.03)",
    "multipath(eth_src,50,modulo_n,1,0,NXM_NX_REG0[]),output:NXM_NX_REG0[0..15]",
    "clone(push:NXM_NX_REG0[],pop:NXM_NX_REG1[]),exit",
    "ct(commit,zone=5,table=3,nat(src=1.2.3.4-1.2.3.9:5-9,random)),ct_clear",
    "group:7,set_queue:3,pop_queue",
];

fn parse(text: &str) -> Match {
    Match::parse(text, &PortNames::NONE).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// What a version can match.
fn a_match(version: Version) -> impl Strategy<Value = Match> {
    prop::sample::select(if version == Version::V11 { MATCHES11 } else { MATCHES }).prop_map(parse)
}

/// A version, and what it can match.
fn version_and_match() -> impl Strategy<Value = (Version, Match)> {
    version().prop_flat_map(|version| (Just(version), a_match(version)))
}

fn actions() -> impl Strategy<Value = Vec<OfAction>> {
    let parse = |text: &str| OfAction::parse_list(text, &PortNames::NONE).unwrap_or_else(|e| panic!("{text}: {e}"));
    prop::sample::select(ACTIONS).prop_map(parse)
}

fn version() -> impl Strategy<Value = Version> {
    prop::sample::select(&Version::SPOKEN[..])
}

fn since13() -> impl Strategy<Value = Version> {
    prop::sample::select(&Version::SPOKEN[3..])
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..80)
}

/// A port's number.
fn port() -> impl Strategy<Value = OfPort> {
    prop_oneof![(0u16..0xff00).prop_map(OfPort), Just(OfPort::LOCAL)]
}

fn flags() -> impl Strategy<Value = FlowFlags> {
    any::<[bool; 5]>().prop_map(|b| FlowFlags {
        send_flow_rem: b[0],
        check_overlap: b[1],
        reset_counts: b[2],
        no_packet_counts: b[3],
        no_byte_counts: b[4],
    })
}

/// Those that a version has.
fn flags_in(flags: FlowFlags, version: Version) -> FlowFlags {
    let FlowFlags { reset_counts, no_packet_counts, no_byte_counts, .. } = flags;
    FlowFlags {
        reset_counts: reset_counts && version > Version::V11,
        no_packet_counts: no_packet_counts && version > Version::V12,
        no_byte_counts: no_byte_counts && version > Version::V12,
        ..flags
    }
}

/// Lists that some versions have no words for.
const INSTRUCTIONS: &[&str] =
    &["write_actions(output:3,group:4)", "clear_actions", "meter:5", "output:1,clone(group:3,output:4)"];

fn continuation() -> impl Strategy<Value = Option<Continuation>> {
    let list = prop_oneof![
        actions(),
        prop::sample::select(INSTRUCTIONS).prop_map(|text| OfAction::parse_list(text, &PortNames::NONE).unwrap())
    ];
    let lists = vec(list.prop_filter("an empty list is none", |list| !list.is_empty()), 0..4);
    let value = (vec(any::<u8>(), 1..=124)).prop_map(|bytes| (Wide::from_be(&bytes).into(), bytes.len() as u32));
    let values = vec(value, 0..3);
    let some = (any::<u128>(), values, any::<bool>(), lists, actions(), any::<[u32; 3]>());
    prop::option::of(some.prop_map(|(bridge, stack, conntracked, lists, action_set, n)| {
        // Neighbours are of different rules.
        let stretch = |(i, actions)| Stretch { table: i as u8, cookie: u64::from(n[0]), actions };
        let actions = lists.into_iter().enumerate().map(stretch).collect();
        Continuation {
            bridge,
            paused: Paused { stack, conntracked, mirrors: n[2], actions, action_set, datapath_port: n[1] },
        }
    }))
}

fn ns() -> impl Strategy<Value = u64> {
    0u64..u64::from(u32::MAX) * 1_000_000_000
}

/// What comes back of a message.
fn trip(message: &Message, version: Version) -> Result<Message, Error> {
    let bytes = message.write(version, 77);
    assert_eq!(usize::from(Header::read(&bytes).unwrap().length), bytes.len(), "one message");
    let table_in_command = matches!(message, Message::FlowMod(m) if m.table_in_command);
    let (back_version, xid, back) = Message::read(&bytes, table_in_command)?;
    assert_eq!((back_version, xid), (version, 77));
    Ok(back)
}

fn flow_mod() -> impl Strategy<Value = (Version, FlowModMessage)> {
    use FlowCommand::{Add, Delete, DeleteStrict, Modify, ModifyStrict};
    let command = prop::sample::select(vec![Add, Modify, ModifyStrict, Delete, DeleteStrict]);
    let numbers = (any::<[u16; 4]>(), any::<[u64; 3]>(), prop::option::of(0u8..255), any::<[bool; 3]>());
    (version_and_match(), command, actions(), flags(), numbers).prop_map(
        |((version, matches), command, actions, flags, n)| {
            let ([priority, idle, hard, importance], [new, cookie, mask], table, [nicira, tid, out]) = n;
            let (adds, deletes) = (command == Add, matches!(command, Delete | DeleteStrict));
            let is10 = version == Version::V10;
            let mut flow = FlowMod::new(command);
            (flow.priority, flow.idle_timeout, flow.hard_timeout) = (priority, idle, hard);
            (flow.matches, flow.actions) = (matches, actions);
            flow.table = if is10 && !tid { None } else { Some(table.unwrap_or(3)) };
            flow.new_cookie = (adds || is10).then_some(new >> 1);
            flow.modify_cookie = is10;
            if !adds && (!is10 || nicira) {
                (flow.cookie, flow.cookie_mask) = (cookie & mask, mask);
            }
            // OpenFlow 1.1 has one cookie for both.
            if version == Version::V11 && !adds && !deletes && nicira {
                (flow.new_cookie, flow.cookie, flow.cookie_mask) = (Some(new), 0, 0);
            }
            flow.importance = if adds && version >= Version::V14 { importance } else { 0 };
            flow.flags = flags_in(flags, version);
            flow.flags.reset_counts |= adds && version < Version::V12;
            flow.keep_counts = adds && !flow.flags.reset_counts;
            flow.out_port = (deletes && out).then_some(OfPort(9));
            flow.out_group = (deletes && out && !is10).then_some(8);
            // What OpenFlow 1.0's own form cannot match stays out of it.
            let format = if is10 { Format::Nicira } else { Format::Standard };
            let message =
                FlowModMessage { flow: Box::new(flow), buffer_id: None, format, table_in_command: is10 && tid };
            (version, message)
        },
    )
}

fn group_config(version: Version) -> impl Strategy<Value = GroupConfig> {
    let has_ids = matches!(version, Version::V10 | Version::V15);
    let kind = prop::sample::select(vec![GroupKind::All, GroupKind::Select, GroupKind::FastFailover]);
    (kind, vec((actions(), 1u16..9, port()), 1..4), any::<bool>()).prop_map(move |(kind, raw, method)| {
        let buckets = raw.into_iter().enumerate().map(|(i, (actions, weight, port))| Bucket {
            id: if has_ids { 10 + i as u32 } else { i as u32 },
            weight: if kind == GroupKind::Select { weight } else { 0 },
            watch_port: (kind == GroupKind::FastFailover).then_some(port),
            watch_group: None,
            actions,
        });
        let selection = if kind == GroupKind::Select && has_ids && method {
            let fields = vec![
                (FieldId::TunMetadata2, Wide::ones(600).into()),
                (FieldId::Ipv4Src, 0xffff_ff00.into()),
                (FieldId::TcpDst, 0xffff.into()),
            ];
            Selection { method: "hash".into(), parameter: 7, fields }
        } else {
            Selection::default()
        };
        GroupConfig { kind, buckets: buckets.collect(), selection }
    })
}

proptest! {
    #[test]
    fn flow_mods((version, message) in flow_mod()) {
        // Actions that do not fit the match are refused.
        let flow = &message.flow;
        let deletes = matches!(flow.command, FlowCommand::Delete | FlowCommand::DeleteStrict);
        let table = flow.table.or((version < Version::V12 || !deletes).then_some(0));
        let fits = check_prerequisites(&flow.actions, &flow.matches, table, version);
        let message = Message::FlowMod(message);
        prop_assert_eq!(trip(&message, version), fits.map(|()| message));
    }

    #[test]
    fn connection_messages(version in version(), data in bytes(), n in any::<[u32; 4]>(), which in 0usize..13) {
        let map = TlvMap { class: n[0] as u16, kind: n[1] as u8, length: n[2] as u8 % 32 * 4, index: n[3] as u16 % 64 };
        let vendor = Error::ALL[n[0] as usize % Error::ALL.len()].code(version);
        let message = match which {
            0 => Message::Hello(Some(n[0])),
            1 => Message::Error(vendor, data),
            2 => Message::EchoRequest(data),
            3 => Message::EchoReply(data),
            4 => Message::BarrierRequest,
            5 => Message::SetPacketInFormat(PacketInFormat::Nxt2),
            6 => Message::SetControllerId(n[1] as u16),
            7 => Message::FlowModTableId(n[2] & 1 != 0),
            8 => Message::CtFlushZone(n[3] as u16),
            9 => Message::TlvTableRequest,
            10 => Message::TlvTableMod(TlvTableMod { command: TlvCommand::Delete, maps: vec![map; 2] }),
            11 => Message::TlvTableReply(TlvTableReply { max_space: n[0], max_fields: n[1] as u16, maps: vec![map] }),
            _ => Message::RoleRequest(RoleMessage { format: Format::Nicira, role: Some(Role::Primary), generation: None }),
        };
        prop_assert_eq!(trip(&message, version), Ok(message));
    }

    #[test]
    fn roles_and_bundles(version in since13(), n in any::<[u32; 4]>(), generation in any::<u64>(), which in 0usize..8) {
        let masks13 = AsyncMasks([[Some(n[0] & 7), Some(n[1] & 7)], [Some(n[2] & 7), Some(n[3] & 7)], [Some(1), Some(2)], [None; 2], [None; 2], [None; 2]]);
        let step = [BundleStep::Open, BundleStep::Close, BundleStep::Commit, BundleStep::Discard][n[1] as usize % 4];
        let role = RoleMessage { format: Format::Standard, role: Some(Role::Secondary), generation: Some(generation) };
        let message = match which {
            0 => Message::RoleRequest(role),
            1 => Message::RoleReply(role),
            2 => Message::SetAsync(masks13),
            3 => Message::GetAsyncReply(masks13),
            4 => Message::BundleControl(BundleControl { id: n[0], step, is_reply: n[2] & 1 != 0, flags: n[3] as u16 }),
            5 => Message::BundleAdd(BundleAdd { id: n[0], flags: n[3] as u16, message: Message::BarrierRequest.write(version, n[1]) }),
            6 => Message::RoleStatus(RoleStatus { role: Role::Equal, reason: RoleReason::Config, generation: Some(generation >> 1) }),
            _ => Message::GetAsyncRequest,
        };
        prop_assert_eq!(trip(&message, version), Ok(message));
    }

    #[test]
    fn ports(version in version(), port in port(), n in any::<[u32; 8]>(), which in 0usize..3) {
        let is10 = version == Version::V10;
        let speeds = if is10 { 0xf87f & 0xf87f } else { 0xffff };
        let desc = PortDesc {
            port: port.0,
            hw_addr: Mac([1, 2, 3, 4, 5, 6]),
            name: "eth0".into(),
            config: n[0] & if is10 { config::ALL10 } else { config::ALL11 },
            state: n[1] & if is10 { 1 } else { 7 },
            current: n[2] & speeds,
            advertised: n[3] & speeds,
            supported: n[4] & speeds,
            peer: n[5] & speeds,
            current_speed: if is10 { 0 } else { n[6] },
            max_speed: if is10 { 0 } else { n[7] },
        };
        let message = match which {
            0 => Message::PortStatus(Box::new(PortStatus { reason: PortReason::Modify, desc })),
            1 => Message::StatsReply(StatsReply::PortDescs(vec![desc.clone(), desc]), false),
            _ => Message::PortMod(PortMod { port, hw_addr: desc.hw_addr, config: desc.config, mask: desc.config, advertise: desc.current }),
        };
        prop_assert_eq!(trip(&message, version), Ok(message));
    }

    #[test]
    fn packets(version in version(), n in any::<[u64; 2]>(), data in vec(any::<u8>(), 1..80), actions in actions(), which in 0usize..5, port in port(), continuation in continuation()) {
        let is10 = version == Version::V10;
        let metadata = parse(&format!("in_port={}", port.0));
        let packet = PacketIn {
            format: PacketInFormat::Standard,
            reason: PacketInReason::Action,
            table: if is10 { 0 } else { n[0] as u8 },
            cookie: if version < Version::V13 { u64::MAX } else { n[1] },
            total_len: 1000,
            metadata: metadata.clone(),
            data: data.clone(),
            userdata: Vec::new(),
            continuation: None,
        };
        let more = parse("reg3=0x5");
        let mut rich = metadata.clone();
        rich.mask.or_with(&more.mask);
        rich.key.or_with(&more.key);
        let message = match which {
            0 => Message::PacketIn(Box::new(packet)),
            1 => Message::PacketIn(Box::new(PacketIn { format: PacketInFormat::Nxt, metadata: rich, table: n[0] as u8, cookie: n[1], ..packet })),
            2 => Message::PacketIn(Box::new(PacketIn { format: PacketInFormat::Nxt2, metadata: rich, table: n[0] as u8, cookie: n[1] >> 1, userdata: vec![1, 2, 3], continuation: continuation.map(Box::new), ..packet })),
            3 => Message::Resume(Box::new(PacketIn { format: PacketInFormat::Nxt2, metadata: rich, continuation: continuation.map(Box::new), ..packet })),
            _ => Message::PacketOut(Box::new(PacketOut { buffer_id: None, metadata, actions, data })),
        };
        prop_assert_eq!(trip(&message, version), Ok(message));
    }

    #[test]
    fn flows((version, matches) in version_and_match(), actions in actions(), n in any::<[u64; 3]>(), small in any::<[u16; 4]>(), ns in ns(), which in 0usize..4) {
        let is10 = version == Version::V10;
        let format = if is10 { Format::Nicira } else { Format::Standard };
        let stats = FlowStats {
            table: n[0] as u8,
            priority: small[0],
            cookie: n[0],
            idle_timeout: small[1],
            hard_timeout: small[2],
            importance: if version >= Version::V14 { small[3] } else { 0 },
            flags: FlowFlags { send_flow_rem: version >= Version::V13, ..FlowFlags::default() },
            duration_ns: ns,
            idle_age: matches!(version, Version::V10 | Version::V15).then_some(7),
            hard_age: is10.then_some(9),
            packets: n[1],
            bytes: n[2],
            matches: matches.clone(),
            actions: actions.into(),
        };
        let request = FlowRequest { format, matches: matches.clone(), table: Some(3), out_port: Some(OfPort(2)), out_group: (!is10).then_some(4), cookie: n[0] & 0xff, cookie_mask: 0xff };
        let removed = FlowRemoved {
            format, matches, cookie: n[0], priority: small[0], reason: FlowRemovedReason::HardTimeout, table: n[1] as u8, duration_ns: ns,
            idle_timeout: small[1], hard_timeout: if is10 { 0 } else { small[2] }, packets: n[1], bytes: n[2],
        };
        let message = match which {
            0 => Message::StatsReply(StatsReply::Flows(format, vec![stats.clone(), stats]), true),
            1 => Message::StatsRequest(StatsRequest::Flows(Box::new(request)), false),
            2 => Message::StatsRequest(StatsRequest::Aggregate(Box::new(request)), false),
            _ => Message::FlowRemoved(Box::new(removed)),
        };
        prop_assert_eq!(trip(&message, version), Ok(message));
    }

    #[test]
    fn groups((version, config) in version().prop_flat_map(|v| (Just(v), group_config(v))), group in 0u32..1000, which in 0usize..2) {
        let message = match which {
            0 => Message::GroupMod(Box::new(GroupMod { command: GroupCommand::Add, group, command_bucket: BUCKET_ALL, config })),
            _ => Message::StatsReply(StatsReply::GroupDescs(vec![GroupDesc { group, config }]), false),
        };
        prop_assert_eq!(trip(&message, version), Ok(message));
    }

    #[test]
    fn meters(version in since13(), meter in any::<u32>(), bits in any::<[bool; 3]>(), bands in vec((any::<bool>(), any::<[u32; 2]>()), 0..4)) {
        let bands = bands.into_iter().map(|(drop, [rate, burst])| Band { kind: if drop { BandKind::Drop } else { BandKind::DscpRemark(3) }, rate, burst });
        let config = MeterConfig { packets: bits[0], burst: bits[1], stats: bits[2], bands: bands.collect() };
        for message in [
            Message::MeterMod(MeterMod { command: MeterCommand::Add, meter, config: config.clone() }),
            Message::StatsReply(StatsReply::MeterConfigs(vec![MeterDesc { meter, config }]), false),
        ] {
            prop_assert_eq!(trip(&message, version), Ok(message));
        }
    }

    /// A message that is cut off anywhere, or of an unknown version, is an error.
    #[test]
    fn wrong_bytes_are_errors((version, message) in flow_mod(), cut in any::<prop::sample::Index>(), unknown in 7u8..) {
        let mut bytes = Message::FlowMod(message).write(version, 1);
        prop_assert!(Message::read(&bytes[..cut.index(bytes.len())], true).is_err());
        bytes[0] = unknown;
        prop_assert_eq!(Message::read(&bytes, true), Err(Error::RequestBadVersion));
    }

    /// For any bytes, and any change of a valid message, reading ends without a panic.
    #[test]
    fn any_bytes_can_be_read((version, message) in flow_mod(), changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), junk in bytes()) {
        let mut bytes = Message::FlowMod(message).write(version, 1);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let _ = Message::read(&bytes, true);
        let _ = Message::read(&junk, false);
        let mut framer = Framer::default();
        framer.push(&bytes);
        framer.push(&junk);
        while let Ok(Some(message)) = framer.next_message() {
            let _ = Message::read(message, false);
        }
    }
}

/// Statistics of fixed size, and questions.
#[test]
fn statistics() {
    for version in Version::SPOKEN {
        let is10 = version == Version::V10;
        let (since12, since13) = (version >= Version::V12, version >= Version::V13);
        let duration_ns = if since13 { 5_000_000_006 } else { 0 };
        let table = TableStats {
            table: 3,
            active: 1,
            lookups: 2,
            matched: 3,
            name: if since13 { String::new() } else { "t".into() },
            bitmaps: if since13 { TableBitmaps::default() } else { TableBitmaps::of_everything(version, false) },
            config: if since13 || is10 { 0 } else { 2 },
            max_entries: if since13 { 0 } else { 1000 },
        };
        let queue = QueueConfig { port: OfPort(1), queue: 2, min_rate: Some(3), max_rate: None };
        let text = |t: &str| t.to_owned();
        let mut messages = vec![
            Message::FeaturesRequest,
            Message::FeaturesReply(Features {
                datapath_id: 7,
                n_tables: 254,
                capabilities: 0x47,
                ports: if since13 { Vec::new() } else { vec![PortDesc { port: 5, ..PortDesc::default() }; 2] },
                ..Features::default()
            }),
            Message::GetConfigRequest,
            Message::GetConfigReply(SwitchConfig { flags: 1, miss_send_len: 128 }),
            Message::SetConfig(SwitchConfig { flags: 3, miss_send_len: 0xffff }),
            Message::BarrierReply,
            Message::StatsRequest(StatsRequest::Description, false),
            Message::StatsRequest(StatsRequest::Tables, true),
            Message::StatsRequest(StatsRequest::Ports(Some(OfPort(3))), false),
            Message::StatsRequest(StatsRequest::Ports(None), false),
            Message::StatsRequest(StatsRequest::Queues(None, 4), false),
            Message::StatsRequest(StatsRequest::PortDescs(None), false),
            Message::StatsReply(
                StatsReply::Description(Box::new(Description {
                    manufacturer: text("m"),
                    hardware: text("h"),
                    software: text("s"),
                    serial: text("n"),
                    datapath: text("d"),
                })),
                false,
            ),
            Message::StatsReply(
                StatsReply::Aggregate(
                    if is10 { Format::Nicira } else { Format::Standard },
                    Aggregate { packets: 1, bytes: 2, flows: 3 },
                ),
                false,
            ),
            Message::StatsReply(StatsReply::Tables(vec![table.clone(), table]), false),
            Message::StatsReply(
                StatsReply::Ports(vec![PortStats { rx_packets: 5, duration_ns, ..PortStats::unknown(OfPort(4)) }; 2]),
                false,
            ),
            Message::StatsReply(
                StatsReply::Queues(vec![
                    QueueStats {
                        port: OfPort(1),
                        queue: 2,
                        bytes: 3,
                        packets: 4,
                        errors: 5,
                        duration_ns
                    };
                    2
                ]),
                false,
            ),
        ];
        if version < Version::V14 {
            messages.push(Message::QueueGetConfigRequest(OfPort(1)));
            messages.push(Message::QueueGetConfigReply(OfPort(1), vec![queue, queue]));
        }
        let duration_of_group = if is10 { 7_000_000_000 } else { duration_ns };
        let group = GroupStats {
            group: 1,
            ref_count: 2,
            packets: 3,
            bytes: 4,
            duration_ns: duration_of_group,
            buckets: vec![(5, 6), (7, 8)],
        };
        let features = GroupFeatures { kinds: 15, capabilities: 7, max_groups: [1, 2, 3, 4], actions: [5, 6, 7, 8] };
        messages.extend([
            Message::StatsRequest(StatsRequest::Groups(5), false),
            Message::StatsReply(StatsReply::Groups(vec![group.clone(), group]), false),
            Message::StatsRequest(StatsRequest::GroupFeatures, false),
            Message::StatsReply(StatsReply::GroupFeatures(features), false),
        ]);
        if !is10 {
            messages.push(Message::TableMod(TableMod { table: 1, config: 3, ..TableMod::default() }));
        }
        if since12 {
            let role = RoleMessage { format: Format::Standard, role: Some(Role::Primary), generation: Some(7) };
            messages.extend([Message::RoleRequest(role), Message::RoleReply(role)]);
        }
        if since13 {
            let meter = MeterStats { meter: 1, flows: 2, packets: 3, bytes: 4, duration_ns, bands: vec![(5, 6)] };
            let features = TableFeatures::of_everything(3, 254, 1000, version);
            messages.extend([
                Message::StatsRequest(StatsRequest::Meters(5), false),
                Message::StatsRequest(StatsRequest::MeterConfigs(5), false),
                Message::StatsRequest(StatsRequest::MeterFeatures, false),
                Message::StatsRequest(StatsRequest::TableFeatures(Vec::new()), false),
                Message::StatsReply(StatsReply::Meters(vec![meter.clone(), meter]), false),
                Message::StatsReply(
                    StatsReply::MeterFeatures(MeterFeatures {
                        max_meters: 1,
                        band_types: 2,
                        capabilities: 3,
                        max_bands: 4,
                        max_color: 5,
                    }),
                    false,
                ),
                Message::StatsReply(StatsReply::TableFeatures(vec![features.clone(), features]), false),
            ]);
        }
        if version >= Version::V14 {
            let vacancy = Some(Vacancy { down: 1, up: 2, now: 3 });
            let table = TableMod { table: 1, config: TABLE_EVICTION, eviction_flags: Some(1), vacancy };
            // How full a table is only the switch says.
            let vacancy = Some(Vacancy { down: 1, up: 2, now: 0 });
            let table_mod = TableMod { vacancy, ..table.clone() };
            let custom = vec![("tx_full".to_owned(), 3), (String::new(), u64::MAX)];
            messages.extend([
                Message::StatsReply(
                    StatsReply::Ports(vec![PortStats { custom, ..PortStats::unknown(OfPort(4)) }; 2]),
                    false,
                ),
                Message::TableMod(table_mod),
                Message::TableStatus(TableStatus { reason: 3, table: table.clone() }),
                Message::StatsRequest(StatsRequest::TableDescs, false),
                Message::StatsRequest(StatsRequest::QueueDescs(Some(OfPort(1)), 2), false),
                Message::StatsReply(StatsReply::TableDescs(vec![table.clone(), table]), false),
                Message::StatsReply(StatsReply::QueueDescs(vec![queue, queue]), false),
            ]);
        }
        for message in messages {
            assert_eq!(trip(&message, version), Ok(message), "{version}");
        }
    }
}

/// An answer that does not fit into one message makes several, and nothing is lost between them.
#[test]
fn long_answers_come_in_parts() {
    let stats = PortStats { rx_packets: 5, ..PortStats::unknown(OfPort(4)) };
    let all: Vec<PortStats> = (0..2000).map(|i| PortStats { port: i, ..stats.clone() }).collect();
    for version in Version::SPOKEN {
        let bytes = Message::StatsReply(StatsReply::Ports(all.clone()), false).write(version, 5);
        let mut seen = Vec::new();
        let mut rest = &bytes[..];
        let mut parts = 0;
        while !rest.is_empty() {
            let (part, after) = rest.split_at(Header::read(rest).unwrap().length.into());
            rest = after;
            parts += 1;
            let (_, _, Message::StatsReply(StatsReply::Ports(ports), more)) = Message::read(part, false).unwrap()
            else {
                panic!("another message came back")
            };
            assert_eq!(more, !rest.is_empty());
            seen.extend(ports);
        }
        assert!(parts > 1 && seen == all, "{version}: {parts} parts");
    }
}
