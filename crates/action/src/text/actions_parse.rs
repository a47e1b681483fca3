//! Reading actions as the datapath commands write them: `set(eth(dst=…)),push_vlan(vid=…,pcp=…),2`.
//!
//! What only a translation can say is refused by its name: the header of a tunnel, a bond's table, and what userspace does
//! with a packet.

use super::ct_parse;
use super::datapath_parse::{Fields, read_fields};
use crate::{Action, Actions, HashAlgorithm, Header, MaskedField, PortNo, SetTunnel};
use sluice_flow::geneve::{self, GeneveOption};
use sluice_flow::layout::{self as at, Span};
use sluice_flow::text::number::{integer, u16, u32};
use sluice_flow::text::{Delimiter, FlowTextError, Pair, Piece, SyntaxError, expect_no_tail};
use sluice_flow::{PacketKey, TunnelKey};
use sluice_packet::headers::ethertype;

/// Actions in a text, those within others included.
const ACTIONS_MAX: usize = 4096;

/// Lists within each other. Source: Open vSwitch lib/odp-util.c, `MAX_ODP_NESTED`.
const DEPTH_MAX: usize = 32;

/// A tag that is pushed is there: its CFI bit says so.
const CFI: u16 = 0x1000;

/// The shortest length to cut packets to: an Ethernet header.
const TRUNC_MIN: u32 = 14;

/// The headers that `set(…)` changes, with the attribute that names each and the fields that it may change.
const SETTABLE: [(&str, Header, &[Span]); 14] = [
    ("eth", Header::Ethernet, &[at::DL_SRC, at::DL_DST]),
    ("ipv4", Header::Ipv4, &[at::NW_SRC, at::NW_DST, at::NW_TOS, at::NW_TTL]),
    ("ipv6", Header::Ipv6, &[at::IPV6_SRC, at::IPV6_DST, at::IPV6_LABEL, at::NW_TOS, at::NW_TTL]),
    ("arp", Header::Arp, &super::fields::ARP_FIELDS),
    ("nd", Header::Nd, &super::fields::ND_FIELDS),
    ("nd_ext", Header::Nd, &super::fields::ND_EXTENSIONS),
    ("tcp", Header::Tcp, &PORTS),
    ("udp", Header::Udp, &PORTS),
    ("sctp", Header::Sctp, &PORTS),
    ("icmp", Header::Icmp, &PORTS),
    ("icmpv6", Header::Icmpv6, &PORTS),
    ("mpls", Header::Mpls, &[at::MPLS0]),
    ("skb_mark", Header::PktMark, &[at::PKT_MARK]),
    ("skb_priority", Header::SkbPriority, &[]),
];

const PORTS: [Span; 2] = [at::TP_SRC, at::TP_DST];

/// Reads a list of actions; `drop`, or nothing, is an empty one. `port` finds a port by its name.
///
/// # Errors
/// If it is no such text.
pub fn parse_actions(text: &str, port: &dyn Fn(&str) -> Option<u32>) -> Result<Actions, FlowTextError> {
    let mut reader = Reader { port, left: ACTIONS_MAX };
    let actions = reader.list(Piece::new(text), 0).map_err(|error| error.located(text))?;
    Ok(actions.into())
}

struct Reader<'p> {
    port: &'p dyn Fn(&str) -> Option<u32>,
    /// How many further actions there may be.
    left: usize,
}

impl Reader<'_> {
    fn list(&mut self, text: Piece<'_>, depth: usize) -> Result<Vec<Action>, SyntaxError> {
        if depth > DEPTH_MAX {
            return Err(text.conflict("lists within lists", format!("a depth of at most {DEPTH_MAX}")));
        }
        let mut actions = Vec::new();
        if text.trim().text == "drop" {
            return Ok(actions);
        }
        let mut rest = text;
        while let Some(pair) = rest.next_pair()? {
            expect_no_tail(&pair)?;
            self.left = self
                .left
                .checked_sub(1)
                .ok_or_else(|| pair.key.conflict("another action", format!("at most {ACTIONS_MAX} actions")))?;
            actions.push(self.action(&pair, depth)?);
        }
        Ok(actions)
    }

    fn action(&mut self, pair: &Pair<'_>, depth: usize) -> Result<Action, SyntaxError> {
        let (name, value) = (pair.key, pair.value);
        if pair.delimiter == Delimiter::None {
            return match name.text {
                "pop_vlan" => Ok(Action::PopVlan),
                "ct" => Ok(Action::Ct(Box::default())),
                "ct_clear" => Ok(Action::CtClear),
                _ => self.port(name).map(Action::Output),
            };
        }
        match (name.text, pair.delimiter) {
            ("set", Delimiter::Parenthesis) => set(value),
            ("push_vlan", Delimiter::Parenthesis) => push_vlan(value),
            ("push_mpls", Delimiter::Parenthesis) => push_mpls(value),
            ("pop_mpls", Delimiter::Parenthesis) => {
                let [ethertype] = numbers(value, ["eth_type"])?;
                let ethertype = ethertype.ok_or_else(|| value.error("eth_type=TYPE"))?;
                Ok(Action::PopMpls { ethertype: u16(ethertype)? })
            }
            ("ct", Delimiter::Parenthesis) => ct_parse::parse(value).map(|ct| Action::Ct(Box::new(ct))),
            ("meter", Delimiter::Parenthesis) => u32(value).map(Action::Meter),
            ("hash", Delimiter::Parenthesis) => hash(value),
            ("recirc", Delimiter::Parenthesis) => u32(value).map(Action::Recirc),
            ("trunc", Delimiter::Parenthesis) => match u32(value)? {
                len if len < TRUNC_MIN => Err(value.error(format!("a length of at least {TRUNC_MIN}"))),
                len => Ok(Action::Trunc(len)),
            },
            ("clone", Delimiter::Parenthesis) => Ok(Action::Clone(self.list(value, depth + 1)?.into())),
            ("sample", Delimiter::Parenthesis) => self.sample(value, depth),
            ("check_pkt_len", Delimiter::Parenthesis) => self.check_pkt_len(value, depth),
            ("userspace" | "tnl_push" | "tnl_pop" | "lb_output" | "push_nsh" | "push_eth", _) => {
                Err(name.error("an action that can be put by hand: this one only comes from a translation"))
            }
            _ => Err(name.error("a port, or an action (set, push_vlan, pop_vlan, ct, recirc, clone, sample …)")),
        }
    }

    fn port(&self, text: Piece<'_>) -> Result<PortNo, SyntaxError> {
        match (self.port)(text.text) {
            Some(port) => Ok(PortNo(port)),
            None => {
                u32(text).map(PortNo).map_err(|_| text.error("an action, or the number or name of a datapath port"))
            }
        }
    }

    /// `sample=…%,actions(…)`.
    fn sample(&mut self, text: Piece<'_>, depth: usize) -> Result<Action, SyntaxError> {
        let (mut probability, mut actions) = (None, None);
        let mut rest = text;
        while let Some(pair) = rest.next_pair()? {
            match pair.key.text {
                "sample" => probability = Some(share(pair.value)?),
                "actions" => actions = Some(self.list(pair.value, depth + 1)?),
                _ => return Err(pair.key.error("sample=PERCENT% or actions(…)")),
            }
        }
        let (probability, actions) =
            probability.zip(actions).ok_or_else(|| text.error("sample=PERCENT%,actions(…)"))?;
        Ok(Action::Sample { probability, actions: actions.into() })
    }

    /// `size=…,gt(…),le(…)`.
    fn check_pkt_len(&mut self, text: Piece<'_>, depth: usize) -> Result<Action, SyntaxError> {
        let (mut len, mut greater, mut less_or_equal) = (None, None, None);
        let mut rest = text;
        while let Some(pair) = rest.next_pair()? {
            match pair.key.text {
                "size" => len = Some(u16(pair.value)?),
                "gt" => greater = Some(self.list(pair.value, depth + 1)?.into()),
                "le" => less_or_equal = Some(self.list(pair.value, depth + 1)?.into()),
                _ => return Err(pair.key.error("size=BYTES, gt(…) or le(…)")),
            }
        }
        match (len, greater, less_or_equal) {
            (Some(len), Some(greater), Some(less_or_equal)) => Ok(Action::CheckPktLen { len, greater, less_or_equal }),
            _ => Err(text.error("size=BYTES,gt(…),le(…)")),
        }
    }
}

/// A percentage as a share in 2^32.
fn share(text: Piece<'_>) -> Result<u32, SyntaxError> {
    let percent = text.text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
    let percent = percent.ok_or_else(|| text.error("a percentage from 0% to 100%"))?;
    Ok((percent / 100.0 * f64::from(u32::MAX)).round() as u32)
}

/// The values of these names, each at most once.
fn numbers<'a, const N: usize>(text: Piece<'a>, names: [&str; N]) -> Result<[Option<Piece<'a>>; N], SyntaxError> {
    let mut values = [None; N];
    let mut rest = text;
    while let Some(pair) = rest.next_pair()? {
        expect_no_tail(&pair)?;
        let at = names.iter().position(|name| *name == pair.key.text);
        let at = at.ok_or_else(|| pair.key.error(names.join(", ")))?;
        values[at] = Some(pair.value);
    }
    Ok(values)
}

fn push_vlan(text: Piece<'_>) -> Result<Action, SyntaxError> {
    let [tpid, vid, pcp, cfi] = numbers(text, ["tpid", "vid", "pcp", "cfi"])?;
    let tpid = tpid.map_or(Ok(ethertype::VLAN), u16)?;
    let bits = |value: Option<Piece<'_>>, bits, default| value.map_or(Ok(default), |text| integer(text, bits));
    let vid = vid.ok_or_else(|| text.error("vid=VLAN,pcp=PRIORITY"))?;
    let tci = integer(vid, 12)? as u16 | (bits(pcp, 3, 0)? as u16) << 13;
    Ok(Action::PushVlan { tpid, tci: tci | if bits(cfi, 1, 1)? == 0 { 0 } else { CFI } })
}

fn push_mpls(text: Piece<'_>) -> Result<Action, SyntaxError> {
    let [label, tc, ttl, bos, ethertype] = numbers(text, ["label", "tc", "ttl", "bos", "eth_type"])?;
    let bits = |value: Option<Piece<'_>>, bits| value.map_or(Ok(0), |text| integer(text, bits));
    let lse = bits(label, 20)? << 12 | bits(tc, 3)? << 9 | bits(bos, 1)? << 8 | bits(ttl, 8)?;
    let wrong = || text.error("label=LABEL,tc=CLASS,ttl=TTL,bos=BIT,eth_type=0x8847|0x8848");
    let ethertype = u16(ethertype.ok_or_else(wrong)?)?;
    match ethertype {
        ethertype::MPLS | ethertype::MPLS_MULTICAST => Ok(Action::PushMpls { ethertype, lse: lse as u32 }),
        _ => Err(wrong()),
    }
}

/// `hash_l4(BASIS)` or `sym_l4(BASIS)`.
fn hash(text: Piece<'_>) -> Result<Action, SyntaxError> {
    let mut rest = text;
    let wrong = || text.error("hash_l4(BASIS) or sym_l4(BASIS)");
    let pair = rest.next_pair()?.ok_or_else(wrong)?;
    let algorithm = match pair.key.text {
        "hash_l4" => HashAlgorithm::L4,
        "sym_l4" => HashAlgorithm::SymmetricL4,
        _ => return Err(wrong()),
    };
    Ok(Action::Hash { algorithm, basis: u32(pair.value)? })
}

/// `set(HEADER(…))`.
fn set(text: Piece<'_>) -> Result<Action, SyntaxError> {
    let wrong = || text.error("one header: eth(…), ipv4(…), tcp(…), skb_mark(…), tunnel(…) …");
    let mut rest = text;
    let pair = rest.next_pair()?.ok_or_else(wrong)?;
    expect_no_tail(&pair)?;
    if !rest.skip_gap().is_empty() || pair.delimiter != Delimiter::Parenthesis {
        return Err(wrong());
    }
    if pair.key.text == "tunnel" {
        return set_tunnel(text, pair.value);
    }
    let known = SETTABLE.iter().find(|(name, ..)| *name == pair.key.text);
    let (_, header, spans) = known.ok_or_else(wrong)?;
    if *header == Header::SkbPriority {
        let priority = u32(pair.value)?;
        let field = masked_field(at::SKB_PRIORITY, &priority.to_be_bytes(), &[0xff; 4]);
        return Ok(Action::Set { header: *header, fields: [field].into() });
    }
    let Fields { key, mask } = read_fields(text)?;
    let mut fields = Vec::new();
    for span in *spans {
        let bits = significant(*span, &mask);
        if bits[..span.size].iter().any(|byte| *byte != 0) {
            fields.push(masked_field(*span, key.get(*span), &bits[..span.size]));
        }
    }
    let others = ["frag", "proto"].into_iter().any(|name| pair.value.text.contains(&format!("{name}=")));
    if fields.is_empty() || others {
        return Err(pair.value.error(format!("fields of {} that can be set", pair.key.text)));
    }
    Ok(Action::Set { header: *header, fields: fields.into() })
}

/// The bits of a field that a packet has.
fn significant(span: Span, mask: &PacketKey) -> [u8; 16] {
    let mut bits = [0; 16];
    bits[..span.size].copy_from_slice(mask.get(span));
    if span == at::IPV6_LABEL {
        (bits[0], bits[1]) = (0, bits[1] & 0x0f);
    }
    bits
}

fn masked_field(span: Span, value: &[u8], mask: &[u8]) -> MaskedField {
    let mut field = MaskedField { span, value: [0; 16], mask: [0; 16] };
    field.mask[..span.size].copy_from_slice(mask);
    for (to, (value, mask)) in field.value.iter_mut().zip(value.iter().zip(mask)) {
        *to = value & mask;
    }
    field
}

fn set_tunnel(text: Piece<'_>, fields: Piece<'_>) -> Result<Action, SyntaxError> {
    let key = read_fields(text)?.key;
    let wrong = |_| fields.error("whole options of Geneve");
    let list = key.options();
    let options = geneve::options(&list).map(|option| {
        let (_, kind, value) = option.map_err(wrong)?;
        Ok(GeneveOption { kind, value: value.into() })
    });
    let options = options.collect::<Result<_, SyntaxError>>()?;
    Ok(Action::SetTunnel(Box::new(SetTunnel { key: TunnelKey::of_packet(&key), options })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ct::{Ct, Helper, Masked, NatSpec, NatTarget, PortChoice};
    use crate::{DatapathPortNames, show_actions};
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Actions, FlowTextError> {
        parse_actions(text, &|name| (name == "p1").then_some(1))
    }

    fn show(actions: &[Action]) -> String {
        show_actions(actions, &DatapathPortNames::default()).to_string()
    }

    fn field(span: Span, seed: u64, exact: bool) -> MaskedField {
        let bytes = |n: u64| u128::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_be_bytes();
        let mut mask = if exact { [0xff; 16] } else { bytes(seed >> 7 | 1) };
        // A bit that is zero in no mask, so that the field shows.
        mask[span.size - 1] |= 1;
        masked_field(span, &bytes(seed)[..span.size], &mask[..span.size])
    }

    /// One field of a header, under a mask where texts show masks.
    fn set_action() -> impl Strategy<Value = Action> {
        let shown: Vec<_> =
            SETTABLE.into_iter().filter(|(name, ..)| !["mpls", "skb_priority"].contains(name)).collect();
        (proptest::sample::select(shown), any::<proptest::sample::Index>(), any::<u64>(), any::<bool>()).prop_map(
            |((name, header, spans), index, seed, exact)| {
                let span = spans[index.index(spans.len())];
                // These are narrower in packets than in keys, or shown whatever their mask.
                let exact = exact || name.starts_with("icmp") || name == "nd_ext" || span == at::NW_PROTO;
                let mut field = field(span, seed, exact);
                if name.starts_with("icmp") {
                    field.value[0] = 0;
                }
                if span == at::IPV6_LABEL {
                    field.mask = significant(span, &PacketKey::ONES);
                    (field.value[0], field.value[1]) = (0, field.value[1] & 0x0f);
                }
                let mut fields = vec![field];
                if name == "nd_ext" {
                    fields = spans.iter().map(|span| self::field(*span, seed, true)).collect();
                    // The type of an option has eight bits.
                    fields[1].value[0] = 0;
                }
                Action::Set { header, fields: fields.into() }
            },
        )
    }

    fn ct_action() -> impl Strategy<Value = Action> {
        let nat =
            (0..4u8, any::<bool>(), 1..200u8, 0..55u8, any::<bool>(), proptest::option::of((1..99u16, 99..200u16)));
        let nat = nat.prop_map(|(target, v6, first, more, persistent, ports)| {
            let target = [None, Some(NatTarget::Src), Some(NatTarget::Dst), None][usize::from(target)];
            if target.is_none() {
                return NatSpec::default();
            }
            let address = |last: u8| {
                let mut address = [0; 16];
                address[0] = 10;
                address[if v6 { 15 } else { 3 }] = last;
                address
            };
            let choice = [PortChoice::Unsaid, PortChoice::Hash, PortChoice::Random][usize::from(more % 3)];
            NatSpec { target, v6, addrs: (address(first), address(first + more)), ports, choice, persistent }
        });
        (any::<u16>(), any::<bool>(), any::<(u32, u128, u32)>(), proptest::option::of(nat)).prop_map(
            |(zone, force, (mark, label, mask), nat)| {
                let commits = mark & 1 != 0;
                let set_mark = commits.then_some(Masked { value: mark & mask, mask });
                let helper = [None, Some(Helper::Ftp), Some(Helper::Tftp)][(mark % 3) as usize];
                let label = commits.then_some(Masked { value: label, mask: u128::MAX });
                let force = force && commits;
                Action::Ct(Box::new(Ct { zone, commit: commits, force, mark: set_mark, label, nat, helper }))
            },
        )
    }

    fn simple() -> impl Strategy<Value = Action> {
        prop_oneof![
            (0..0xffff_u32).prop_map(|port| Action::Output(PortNo(port))),
            (any::<u16>(), any::<u16>()).prop_map(|(tpid, tci)| Action::PushVlan { tpid, tci }),
            Just(Action::PopVlan),
            (any::<u32>(), any::<bool>()).prop_map(|(lse, is_multicast)| {
                let ethertype = if is_multicast { ethertype::MPLS_MULTICAST } else { ethertype::MPLS };
                Action::PushMpls { ethertype, lse }
            }),
            any::<u16>().prop_map(|ethertype| Action::PopMpls { ethertype }),
            Just(Action::CtClear),
            any::<u32>().prop_map(Action::Meter),
            any::<u32>().prop_map(Action::Recirc),
            (TRUNC_MIN..u32::MAX).prop_map(Action::Trunc),
            (any::<u32>(), any::<bool>()).prop_map(|(basis, is_symmetric)| {
                let algorithm = if is_symmetric { HashAlgorithm::SymmetricL4 } else { HashAlgorithm::L4 };
                Action::Hash { algorithm, basis }
            }),
            set_action(),
            ct_action(),
        ]
    }

    fn actions() -> impl Strategy<Value = Vec<Action>> {
        let nested = simple().prop_recursive(3, 24, 4, |inner| {
            let list = || vec(inner.clone(), 0..4);
            prop_oneof![
                list().prop_map(|list| Action::Clone(list.into())),
                // Texts have one digit behind the point.
                (0..=1000u32, list()).prop_map(|(permille, list)| Action::Sample {
                    probability: (f64::from(permille) / 1000.0 * f64::from(u32::MAX)).round() as u32,
                    actions: list.into()
                }),
                (any::<u16>(), list(), list()).prop_map(|(len, greater, less)| Action::CheckPktLen {
                    len,
                    greater: greater.into(),
                    less_or_equal: less.into()
                }),
            ]
        });
        vec(nested, 0..6)
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(actions in actions()) {
            let text = show(&actions);
            let read = parse(&text).map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
            prop_assert_eq!(&read[..], &actions[..], "{}", text);
        }

        #[test]
        fn no_text_makes_it_panic(text in "(set|ct|nat|clone|sample|p1|src|[(),=/:%\\-\\[\\]0-9a-f]){0,40}") {
            let _ = parse(&text);
        }
    }

    #[test]
    fn what_only_a_translation_can_say_is_refused() {
        for text in
            ["userspace(pid=0)", "tnl_pop(4789)", "lb_output(1)", "1,drop", "set(eth())", "set(ipv4(frag=no))", "p2"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(show(&parse("drop").unwrap()), "drop");
        assert_eq!(show(&parse("p1,2").unwrap()), "1,2");
        assert_eq!(
            show(&parse("set(tunnel(tun_id=0x5,dst=1.1.1.1,ttl=64)),3").unwrap()),
            "set(tunnel(tun_id=0x5,dst=1.1.1.1,ttl=64,flags(key))),3"
        );
    }

    #[test]
    fn lists_have_a_depth_and_a_length() {
        let nested = |n: usize| "clone(".repeat(n) + "1" + &")".repeat(n);
        assert!(parse(&nested(DEPTH_MAX)).is_ok());
        assert!(parse(&nested(DEPTH_MAX + 1)).is_err());
        assert!(parse(&"1,".repeat(ACTIONS_MAX)).is_ok());
        assert!(parse(&"1,".repeat(ACTIONS_MAX + 1)).is_err());
    }
}
