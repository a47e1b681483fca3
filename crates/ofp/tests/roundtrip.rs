//! Whatever is written reads back as the same: over generated matches, actions and flows.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use sluice_flow::field::{FIELDS, Field, ones};
use sluice_flow::layout;
use sluice_flow::{DEFAULT_PRIORITY, FieldId, Match, OfPort, PortNames, SubField, Wide};
use sluice_ofp::ofpact::{
    ACTIONS, Arg, Bundle, BundleAlgorithm, Conntrack, ConntrackZone, ControllerAction, HashFields, Instruction, Learn,
    LearnSource, LearnSpec, LearnTarget, Multipath, MultipathAlgorithm, Nat, NatAddresses, NatKind, Number,
    PacketInReason, Sample, SampleDirection, SetOption, Value, Values,
};
use sluice_ofp::{FlowCommand, FlowFlags, FlowMod, OfAction};

fn names() -> PortNames {
    [("eth0", OfPort(1)), ("to-host", OfPort(2)), ("3d", OfPort(3)), ("quick", OfPort(4))].into_iter().collect()
}

/// What a match may begin with, so that further fields have their prerequisites.
const BASES: &[&str] = &[
    "",
    "ip",
    "ipv6",
    "arp",
    "rarp",
    "mpls",
    "dl_type=0x1234",
    "dl_type=0x894f,nsh_mdtype=1",
    "tcp",
    "udp",
    "sctp",
    "icmp",
    "tcp6",
    "udp6",
    "sctp6",
    "icmp6",
    "icmp6,icmp_type=135,icmp_code=0",
    "icmp6,icmp_type=136,icmp_code=0",
    // The connection's ports are only printed beside its protocol.
    "ip,ct_state=+trk+est,ct_nw_proto=6",
    "dl_vlan=5",
];

/// Fields whose text does not say all of them: masks left out, numbers without their base.
fn says_less(field: &Field) -> bool {
    let name = field.name;
    name == "tun_tos"
        || name.starts_with("tun_erspan")
        || name.starts_with("tun_gtpu")
        || name == "tun_gbp_flags"
        || name == "packet_type"
        || name == "conj_id"
}

/// A mask of a field: exact, a prefix, or anything.
fn mask_of(field: &'static Field, kind: u8, bits: u128, prefix: u32) -> u128 {
    let all = field.match_ones();
    match kind {
        _ if !field.maskable => all,
        0 => all,
        1 => all & !ones(prefix % field.n_bits),
        _ => all & bits,
    }
}

/// A value of an option, with bits in low, middle and high words.
fn wide(value: u128) -> Wide {
    let value = Wide::from(value);
    value.or(&value.shl(400)).or(&value.shl(880)).and(&Wide::ones(Field::MAX_BITS))
}

/// A mask of an option: exact, none (the option is there), or anything.
fn wide_mask(kind: u8, bits: u128) -> Wide {
    match kind {
        0 => Wide::ones(Field::MAX_BITS),
        1 => Wide::ZERO,
        _ => wide(bits),
    }
}

/// Whether a match looks at the transport header.
fn has_ports(m: &Match) -> bool {
    [FieldId::TcpSrc, FieldId::TcpDst, FieldId::TcpFlags].into_iter().any(|f| m.field(f).1 != 0)
}

fn matches() -> impl Strategy<Value = Match> {
    let piece = (0..FIELDS.len(), any::<u128>(), 0..3u8, any::<u128>(), 0..128u32);
    (0..BASES.len(), vec(piece, 0..6))
        .prop_map(|(base, pieces)| {
            let mut m = Match::parse(BASES[base], &PortNames::NONE).expect("a base is a match");
            let base = m.clone();
            for (i, value, kind, bits, prefix) in pieces {
                let field = &FIELDS[i];
                if field.is_wide() {
                    m.set_masked_wide(field.id, wide(value), wide_mask(kind, bits));
                    continue;
                }
                let mut value = value & ones(field.place.n_bits.min(field.n_bits.max(13)));
                match field.id {
                    FieldId::InPortOxm | FieldId::ActsetOutput => {
                        value = u128::from(OfPort(value as u16 % 0xff00).to_of11())
                    }
                    FieldId::IpDscp => value &= 0xfc,
                    FieldId::NshTtl => value &= 0x3f,
                    FieldId::EthType | FieldId::IpProto | FieldId::ArpOp => value &= 0xff,
                    _ => {}
                }
                let mask = mask_of(field, kind, bits, prefix);
                // What the base says stays, or prerequisites would go.
                let span = field.place.span;
                let said = base.mask.get(span).iter().any(|b| *b != 0);
                let family = |m: &Match| m.key.number(layout::CT_IS_IPV6);
                let other_family = m.mask.number(layout::CT_IS_IPV6) != 0
                    && family(&m.clone().with_masked(field.id, value, mask)) != family(&m);
                if base.satisfies(field.prereq)
                    && !says_less(field)
                    && !said
                    && !other_family
                    && mask & field.match_ones() != 0
                {
                    m.set_masked(field.id, value, mask);
                }
            }
            m
        })
        // Later fragments have no ports.
        .prop_filter("ports of what has none", |m| m.field(FieldId::IpFrag).0 & 2 == 0 || !has_ports(m))
        // Two words for fragments have two meanings each, of which reading takes the narrower.
        .prop_filter("no other word for it", |m| !matches!(m.field(FieldId::IpFrag), (2, _) | (0, 1)))
}

/// Bits of a field that text can name.
fn subfield() -> impl Strategy<Value = SubField> {
    (0..FIELDS.len(), any::<u32>(), any::<u32>()).prop_map(|(i, start, n)| {
        let field = &FIELDS[i];
        let start = start % field.n_bits;
        SubField { field: field.id, start, n_bits: n % (field.n_bits - start) + 1 }
    })
}

fn writable() -> impl Strategy<Value = SubField> {
    subfield().prop_filter("a field that can be written, and no connection's", |s| {
        s.field.field().writable && !matches!(s.field, FieldId::CtMark | FieldId::CtLabel)
    })
}

fn whole_writable() -> impl Strategy<Value = &'static Field> {
    writable().prop_map(|s| s.field.field())
}

fn port() -> impl Strategy<Value = OfPort> {
    prop_oneof![(0..0xff00u16).prop_map(OfPort), (1..5u16).prop_map(OfPort), Just(OfPort::LOCAL), Just(OfPort::IN_PORT)]
}

fn hash_fields() -> impl Strategy<Value = HashFields> {
    prop::sample::select(vec![
        HashFields::EthSrc,
        HashFields::SymmetricL4,
        HashFields::SymmetricL3L4,
        HashFields::SymmetricL3L4Udp,
        HashFields::NwSrc,
        HashFields::NwDst,
        HashFields::SymmetricL3,
    ])
}

fn output() -> impl Strategy<Value = OfAction> {
    let reason = prop::sample::select(vec![
        PacketInReason::NoMatch,
        PacketInReason::Action,
        PacketInReason::InvalidTtl,
        PacketInReason::Group,
    ]);
    let controller =
        (any::<u16>(), any::<u16>(), reason, vec(any::<u8>(), 0..9), any::<bool>(), option::of(any::<u32>()));
    let algorithm = prop::sample::select(vec![BundleAlgorithm::ActiveBackup, BundleAlgorithm::Hrw]);
    let bundle = (hash_fields(), any::<u16>(), algorithm, option::of(writable()), vec(port(), 0..5));
    prop_oneof![
        port().prop_map(|port| OfAction::Output { port, max_len: 0 }),
        any::<u16>().prop_map(|max_len| OfAction::Output { port: OfPort::CONTROLLER, max_len }),
        (port(), 14..u32::MAX).prop_map(|(port, max_len)| OfAction::OutputTrunc { port, max_len }),
        subfield().prop_map(|src| OfAction::OutputReg { src, max_len: u16::MAX }),
        (port(), any::<u32>()).prop_map(|(port, queue)| OfAction::Enqueue { port, queue }),
        controller
            .prop_map(|(max_len, controller_id, reason, userdata, pause, meter_id)| ControllerAction {
                max_len,
                controller_id,
                reason,
                userdata,
                pause,
                meter_id,
            })
            .prop_filter("plain ones are outputs", |c| c.pause || c.controller_id != 0)
            .prop_map(|c| OfAction::Controller(Box::new(c))),
        bundle.prop_map(|(fields, basis, algorithm, dst, members)| OfAction::Bundle(Box::new(Bundle {
            fields,
            basis,
            algorithm,
            dst,
            members
        }))),
    ]
}

/// An argument made from a random number, or from random bits of a field.
fn arg(arg: Arg, n: u64, (source, destination): (SubField, SubField)) -> Value {
    match arg {
        Arg::Number(Number { n_bits, .. }) => Value::Number(n & ones(n_bits) as u64),
        Arg::EtherType(known) => Value::Number(known[n as usize % known.len()].into()),
        Arg::Tos => Value::Number(n & 0xfc),
        Arg::Mac => Value::Number(n & ones(48) as u64),
        Arg::Ipv4 => Value::Number(n & ones(32) as u64),
        Arg::Table => Value::Number(n % 255),
        Arg::Source => Value::Bits(source),
        Arg::Destination => Value::Bits(destination),
        Arg::Bit => Value::Bits(SubField { n_bits: 1, ..destination }),
    }
}

/// Any action whose row declares its arguments, instructions aside.
fn declared() -> impl Strategy<Value = OfAction> {
    let rows: Vec<_> = ACTIONS
        .iter()
        .filter(|row| row.instruction == Instruction::Apply)
        .filter_map(|row| Some((row.args, row.make?)))
        .collect();
    let drawn = || (any::<u64>(), (subfield(), writable()));
    (prop::sample::select(rows), [drawn(), drawn()]).prop_map(|((args, make), drawn)| {
        let mut values = Values::NONE;
        for ((value, declared), (n, bits)) in values.0.iter_mut().zip(args).zip(drawn) {
            *value = arg(*declared, n, bits);
        }
        make(&values)
    })
}

/// Actions on headers with a text of their own.
fn header() -> impl Strategy<Value = OfAction> {
    prop_oneof![
        Just(OfAction::DecTtl { controllers: vec![0], listed: false }),
        vec(any::<u16>(), 1..4).prop_map(|controllers| OfAction::DecTtl { controllers, listed: true }),
        (any::<u16>(), any::<u16>()).prop_map(|(idle, hard)| OfAction::FinTimeout { idle, hard }),
    ]
}

fn set_field() -> impl Strategy<Value = OfAction> {
    let set = (whole_writable(), any::<u128>(), 0..3u8, any::<u128>(), 0..128u32);
    prop_oneof![
        set.prop_map(|(field, value, kind, bits, prefix)| {
            if field.is_wide() {
                let mask = wide_mask(2 * (kind % 2), bits | 1);
                let set = SetOption { field: field.id, value: wide(value).and(&mask), mask };
                return OfAction::SetOption(Box::new(set));
            }
            let bits = if field.id == FieldId::TunFlags { 1 } else { bits };
            let mask = mask_of(field, kind, bits | 1, prefix);
            let value = value & if field.id == FieldId::VlanVid { ones(13) } else { ones(field.n_bits) };
            let value = match field.id {
                FieldId::InPortOxm => u128::from(OfPort(value as u16 % 0xff00).to_of11()),
                FieldId::IpDscp => value & 0xfc,
                FieldId::ArpOp => value & 0xff,
                FieldId::NshTtl => value & 0x3f,
                _ => value,
            };
            OfAction::SetField { field: field.id, value: value & mask, mask }
        }),
        (writable(), any::<u128>())
            .prop_filter("one load", |(dst, _)| dst.n_bits <= 64)
            .prop_map(|(dst, value)| OfAction::Load { dst, value: value & ones(dst.n_bits) }),
        (subfield(), writable()).prop_map(|(src, dst)| {
            let n_bits = src.n_bits.min(dst.n_bits);
            OfAction::Move { src: SubField { n_bits, ..src }, dst: SubField { n_bits, ..dst } }
        }),
    ]
}

fn learn() -> impl Strategy<Value = OfAction> {
    let spec = (subfield(), writable(), any::<u128>(), 0..5u8).prop_map(|(src, dst, value, kind)| {
        let n_bits = src.n_bits.min(dst.n_bits);
        let (src, dst) = (SubField { n_bits, ..src }, SubField { n_bits, ..dst });
        let constant = LearnSource::Value(wide(value).and(&Wide::ones(n_bits)).into());
        let (source, target) = match kind {
            0 => (LearnSource::Field(src), LearnTarget::Match(src)),
            1 => (LearnSource::Field(src), LearnTarget::Match(dst)),
            2 => (LearnSource::Field(src), LearnTarget::Load(dst)),
            3 => (constant, LearnTarget::Load(dst)),
            _ => (LearnSource::Field(src), LearnTarget::Output),
        };
        LearnSpec { source, target }
    });
    let numbers = (0..255u8, any::<[u16; 4]>(), any::<u64>(), any::<u32>());
    let flags = (any::<bool>(), any::<bool>(), option::of(writable()));
    (numbers, flags, vec(spec, 0..5)).prop_map(|((table, timeouts, cookie, limit), flags, specs)| {
        let [idle_timeout, hard_timeout, fin_idle_timeout, fin_hard_timeout] = timeouts;
        let (send_flow_rem, delete_learned, result) = flags;
        OfAction::Learn(Box::new(Learn {
            table,
            idle_timeout,
            hard_timeout,
            fin_idle_timeout,
            fin_hard_timeout,
            priority: idle_timeout ^ DEFAULT_PRIORITY,
            cookie,
            send_flow_rem,
            delete_learned,
            limit,
            result_dst: result.map(|dst| SubField { n_bits: 1, ..dst }),
            specs,
        }))
    })
}

fn conntrack() -> impl Strategy<Value = OfAction> {
    let addresses = prop_oneof![
        (any::<u32>(), any::<u32>()).prop_map(|(a, b)| NatAddresses::V4(a.min(b).into(), a.max(b).into())),
        (any::<u128>(), 0..2u128).prop_map(|(a, b)| NatAddresses::V6(a.into(), a.saturating_add(b).into())),
    ];
    let nat = (any::<bool>(), option::of(addresses), any::<(u16, u16)>(), any::<bool>(), 0..3u8).prop_map(
        |(src, addresses, (a, b), persistent, choice)| Nat {
            kind: Some(if src { NatKind::Src } else { NatKind::Dst }),
            addresses,
            ports: if addresses.is_none() || a.min(b) == 0 { (0, 0) } else { (a.min(b), a.max(b)) },
            persistent: persistent && addresses.is_some(),
            hash: choice == 1 && addresses.is_some(),
            random: choice == 2 && addresses.is_some(),
        },
    );
    let zone = prop_oneof![any::<u16>().prop_map(ConntrackZone::Number), subfield().prop_map(ConntrackZone::Field)];
    let exec = any::<u32>().prop_map(|value| OfAction::SetField {
        field: FieldId::CtMark,
        value: value.into(),
        mask: ones(32),
    });
    let alg = prop::sample::select(vec![0, 21, 69]);
    (option::of(nat), zone, option::of(0..255u8), any::<bool>(), vec(exec, 0..2), alg).prop_map(
        |(nat, zone, table, commit, exec, alg)| {
            let actions = nat.map(OfAction::Nat).into_iter().chain(exec).collect();
            OfAction::Conntrack(Box::new(Conntrack { commit, force: commit && alg == 0, zone, table, alg, actions }))
        },
    )
}

fn other() -> impl Strategy<Value = OfAction> {
    let resubmit = (port(), option::of(0..255u8), any::<bool>())
        .prop_filter("a port or a table", |(port, table, _)| *port != OfPort::IN_PORT || table.is_some());
    let algorithm = prop::sample::select(vec![
        MultipathAlgorithm::ModuloN,
        MultipathAlgorithm::HashThreshold,
        MultipathAlgorithm::Hrw,
        MultipathAlgorithm::IterHash,
    ]);
    let multipath = (hash_fields(), any::<u16>(), algorithm, any::<u16>(), any::<u32>());
    let direction =
        prop::sample::select(vec![SampleDirection::Unsaid, SampleDirection::Ingress, SampleDirection::Egress]);
    let sample = (1..u16::MAX, any::<[u32; 3]>(), option::of(port()), direction);
    prop_oneof![
        resubmit.prop_map(|(port, table, with_ct_orig)| OfAction::Resubmit { port, table, with_ct_orig }),
        multipath.prop_map(|(fields, basis, algorithm, max_link, arg)| OfAction::Multipath(Box::new(Multipath {
            fields,
            basis,
            algorithm,
            max_link,
            arg,
            dst: SubField::whole(FieldId::Reg1),
        }))),
        vec(any::<u8>(), 6..7).prop_map(OfAction::Note),
        sample.prop_map(|(probability, [a, b, c], port, direction)| OfAction::Sample(Box::new(Sample {
            probability,
            collector_set_id: a,
            obs_domain_id: b,
            obs_point_id: c,
            sampling_port: port.unwrap_or(OfPort::NONE),
            direction,
        }))),
        learn(),
        conntrack(),
    ]
}

/// Actions, clones of actions among them.
fn actions() -> impl Strategy<Value = Vec<OfAction>> {
    let one = prop_oneof![declared(), output(), header(), set_field(), other()];
    let one = one.prop_recursive(3, 12, 3, |inner| vec(inner, 0..3).prop_map(OfAction::Clone));
    let instructions = (option::of(any::<u32>()), any::<bool>(), option::of(any::<(u64, u64)>()), option::of(1..255u8));
    let written = option::of(vec(
        prop_oneof![declared(), header()]
            .prop_filter("an action set holds it", |action| action.action_type().in_action_set),
        1..3,
    ));
    (vec(one, 0..5), instructions, written).prop_map(|(list, (meter, clear, metadata, table), written)| {
        let mut all: Vec<OfAction> = meter.map(OfAction::Meter).into_iter().chain(list).collect();
        all.extend(clear.then_some(OfAction::ClearActions));
        all.extend(written.map(OfAction::WriteActions));
        all.extend(metadata.map(|(metadata, mask)| OfAction::WriteMetadata { metadata, mask }));
        all.extend(table.map(OfAction::GotoTable));
        all
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_match_reads_back(m in matches()) {
        for ports in [PortNames::NONE, names()] {
            let text = m.display(&ports, DEFAULT_PRIORITY).to_string();
            let again = Match::parse(&text, &ports);
            prop_assert!(again.is_ok(), "{}: {}", text, again.unwrap_err());
            prop_assert_eq!(again.unwrap(), m.clone(), "{}", text);
        }
    }

    #[test]
    fn actions_read_back(list in actions()) {
        for ports in [PortNames::NONE, names()] {
            let text = OfAction::display_list(&list, &ports).to_string();
            let again = OfAction::parse_list(&text, &ports);
            prop_assert!(again.is_ok(), "{}: {}", text, again.unwrap_err());
            prop_assert_eq!(&again.unwrap(), &list, "{}", text);
        }
    }

    #[test]
    fn a_flow_reads_back(
        m in matches(),
        (table, priority, cookie, timeouts) in (0..255u8, any::<u16>(), any::<u64>(), any::<[u16; 3]>()),
        flags in any::<[bool; 5]>(),
    ) {
        let mut flow = FlowMod::new(FlowCommand::Add);
        let [send_flow_rem, check_overlap, reset_counts, no_packet_counts, no_byte_counts] = flags;
        flow.flags = FlowFlags { send_flow_rem, check_overlap, reset_counts, no_packet_counts, no_byte_counts };
        flow.table = Some(table).filter(|t| *t != 0);
        flow.priority = priority;
        flow.new_cookie = Some(cookie);
        [flow.idle_timeout, flow.hard_timeout, flow.importance] = timeouts;
        flow.matches = m;
        flow.actions = vec![OfAction::Output { port: OfPort(7), max_len: 0 }];
        let text = flow.to_string();
        let again = FlowMod::parse(&text, FlowCommand::Add, &PortNames::NONE);
        prop_assert!(again.is_ok(), "{}: {}", text, again.unwrap_err());
        prop_assert_eq!(again.unwrap(), flow, "{}", text);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[ -~\n]{0,60}", pieces in vec(prop::sample::select(PIECES), 0..12)) {
        let ports = names();
        for text in [text, pieces.concat()] {
            let _ = FlowMod::parse_file(&text, &ports);
            let _ = FlowMod::parse(&text, FlowCommand::Delete, &ports);
            let _ = OfAction::parse_list(&text, &ports);
        }
    }
}

/// Pieces that random text is glued from.
const PIECES: &[&str] = &[
    "actions=",
    "tcp",
    ",",
    "=",
    "(",
    ")",
    "->",
    "[",
    "]",
    "..",
    "/",
    ":",
    "0x",
    "1",
    "-",
    "+",
    "é",
    "\"",
    "\\",
    "learn(",
    "ct(",
    "nat(",
    "clone(",
    "set_field:",
    "load:",
    "reg0",
    "NXM_NX_REG0[]",
    "eth_dst",
    "ip",
    "in_port",
    "*",
    "\n",
    "#",
    "eth(",
    "encap(",
    "vlan(",
    "mpls(",
    "src",
    "1.2.3.4",
    "::",
    "::1",
    "note:",
    "members:",
    "bundle(",
    "exec(",
    "|",
];
