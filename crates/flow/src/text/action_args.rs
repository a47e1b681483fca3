//! Reading the arguments of the larger actions.

use super::action_parse::{ActionReader, arrow, move_bits, outputs_to, table, writable};
use super::match_parse::expect_no_tail;
use super::piece::{Pair, Piece};
use super::{SyntaxError, number, value};
use crate::consistency::Within;
use crate::ofpact::{
    Bundle, BundleAlgorithm, Conntrack, ConntrackZone, ControllerAction, HashFields, Learn, LearnSource, LearnSpec,
    LearnTarget, Multipath, MultipathAlgorithm, Nat, NatAddresses, NatKind, NshProperty, PacketInReason, Sample,
    SampleDirection,
};
use crate::{DEFAULT_PRIORITY, OfAction, OfPort, PortNames};

/// Calls `each` for every pair.
fn for_each_pair<'a>(
    text: Piece<'a>,
    mut each: impl FnMut(&Pair<'a>) -> Result<(), SyntaxError>,
) -> Result<(), SyntaxError> {
    let mut rest = text;
    while let Some(pair) = rest.next_pair()? {
        expect_no_tail(&pair)?;
        each(&pair)?;
    }
    Ok(())
}

/// The one of `names` that stands here; case does not matter.
fn named<T: Copy>(text: Piece<'_>, names: &[(&str, T)]) -> Result<T, SyntaxError> {
    let known = names.iter().find(|(name, _)| name.eq_ignore_ascii_case(text.text));
    let all = || names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    known.map(|(_, value)| *value).ok_or_else(|| text.error(format!("one of {}", all())))
}

pub(super) fn output_trunc(text: Piece<'_>, ports: &PortNames) -> Result<OfAction, SyntaxError> {
    /// An Ethernet header.
    const MIN: u32 = 14;
    let (mut port, mut max_len) = (None, None);
    for_each_pair(text, |pair| {
        match pair.key.text {
            "port" => {
                let number = outputs_to(pair.value, ports.parse_piece(pair.value)?)?;
                if !number.is_ordinary() && number != OfPort::LOCAL && number != OfPort::IN_PORT {
                    return Err(pair.value.error("an ordinary port, LOCAL or IN_PORT"));
                }
                port = Some(number);
            }
            "max_len" => match number::u32(pair.value)? {
                len if len >= MIN => max_len = Some(len),
                _ => return Err(pair.value.error(format!("a length of at least {MIN}"))),
            },
            _ => return Err(pair.key.error("port or max_len")),
        }
        Ok(())
    })?;
    match (port, max_len) {
        (Some(port), Some(max_len)) => Ok(OfAction::OutputTrunc { port, max_len }),
        _ => Err(text.error("port=PORT,max_len=LENGTH")),
    }
}

/// Why a packet goes to a controller, by name. Source: `ovs-actions(7)`, `controller`.
pub(super) const REASONS: [(&str, PacketInReason); 6] = [
    ("no_match", PacketInReason::NoMatch),
    ("action", PacketInReason::Action),
    ("invalid_ttl", PacketInReason::InvalidTtl),
    ("action_set", PacketInReason::ActionSet),
    ("group", PacketInReason::Group),
    ("packet_out", PacketInReason::PacketOut),
];

pub(super) fn controller(text: Piece<'_>) -> Result<OfAction, SyntaxError> {
    let mut action = ControllerAction::default();
    if !text.is_empty() && text.text.bytes().all(|b| b.is_ascii_digit()) {
        action.max_len = number::u16(text)?;
    } else {
        for_each_pair(text, |pair| {
            match pair.key.text {
                "reason" => action.reason = named(pair.value, &REASONS)?,
                "max_len" => action.max_len = number::u16(pair.value)?,
                "id" => action.controller_id = number::u16(pair.value)?,
                "userdata" => action.userdata = number::hex_bytes(pair.value)?,
                "pause" => action.pause = true,
                "meter_id" => action.meter_id = Some(number::u32(pair.value)?),
                _ => return Err(pair.key.error("reason, max_len, id, userdata, pause or meter_id")),
            }
            Ok(())
        })?;
    }
    let plain = ControllerAction { max_len: action.max_len, ..ControllerAction::default() };
    if action == plain {
        return Ok(OfAction::Output { port: OfPort::CONTROLLER, max_len: action.max_len });
    }
    Ok(OfAction::Controller(Box::new(action)))
}

pub(super) fn resubmit(text: Piece<'_>, ports: &PortNames) -> Result<OfAction, SyntaxError> {
    let (port, rest) = text.split_once(",").unwrap_or((text, text.split_at(text.text.len()).1));
    let (table_text, ct) = rest.split_once(",").unwrap_or((rest, rest.split_at(rest.text.len()).1));
    let port = if port.is_empty() { OfPort::IN_PORT } else { ports.parse_piece(port)? };
    // 255 says the same as no table: this one.
    let table = match table_text.text {
        "" | "255" => None,
        _ => Some(table(table_text)?),
    };
    if !matches!(ct.text, "" | "ct") {
        return Err(ct.error("ct or nothing"));
    }
    if port == OfPort::IN_PORT && table.is_none() {
        return Err(text.error("a port, a table or both"));
    }
    Ok(OfAction::Resubmit { port, table, with_ct_orig: !ct.is_empty() })
}

pub(super) fn fin_timeout(text: Piece<'_>) -> Result<OfAction, SyntaxError> {
    let (mut idle, mut hard) = (0, 0);
    for_each_pair(text, |pair| {
        match pair.key.text {
            "idle_timeout" => idle = number::u16(pair.value)?,
            "hard_timeout" => hard = number::u16(pair.value)?,
            _ => return Err(pair.key.error("idle_timeout or hard_timeout")),
        }
        Ok(())
    })?;
    Ok(OfAction::FinTimeout { idle, hard })
}

pub(super) fn conjunction(text: Piece<'_>) -> Result<OfAction, SyntaxError> {
    let wrong = || text.error("conjunction(ID,K/N)");
    let (id, rest) = text.split_once(",").ok_or_else(wrong)?;
    let (clause, n_clauses) = rest.split_once("/").ok_or_else(wrong)?;
    let (id, k, n) = (number::u32(id.trim())?, number::u8(clause.trim())?, number::u8(n_clauses.trim())?);
    if !(2..=64).contains(&n) {
        return Err(n_clauses.error("2 to 64 clauses"));
    }
    if !(1..=n).contains(&k) {
        return Err(clause.error(format!("a clause from 1 to {n}")));
    }
    Ok(OfAction::Conjunction { id, clause: k - 1, n_clauses: n })
}

/// What can be hashed, by name. Source: `ovs-actions(7)`, `bundle` and `multipath`.
pub(super) const HASH_FIELDS: [(&str, HashFields); 7] = [
    ("eth_src", HashFields::EthSrc),
    ("symmetric_l4", HashFields::SymmetricL4),
    ("symmetric_l3l4", HashFields::SymmetricL3L4),
    ("symmetric_l3l4+udp", HashFields::SymmetricL3L4Udp),
    ("nw_src", HashFields::NwSrc),
    ("nw_dst", HashFields::NwDst),
    ("symmetric_l3", HashFields::SymmetricL3),
];

/// How links are chosen, by name.
pub(super) const MULTIPATH_ALGORITHMS: [(&str, MultipathAlgorithm); 4] = [
    ("modulo_n", MultipathAlgorithm::ModuloN),
    ("hash_threshold", MultipathAlgorithm::HashThreshold),
    ("hrw", MultipathAlgorithm::Hrw),
    ("iter_hash", MultipathAlgorithm::IterHash),
];

/// How members are chosen, by name.
pub(super) const BUNDLE_ALGORITHMS: [(&str, BundleAlgorithm); 2] =
    [("active_backup", BundleAlgorithm::ActiveBackup), ("hrw", BundleAlgorithm::Hrw)];

pub(super) fn multipath(text: Piece<'_>) -> Result<OfAction, SyntaxError> {
    let words = text.words(&[',', ' ']);
    let [fields, basis, algorithm, links, arg, dst] = words[..] else {
        return Err(text.error("FIELDS,BASIS,ALGORITHM,N_LINKS,ARG,FIELD[BITS]"));
    };
    let n_links = number::u32(links)?;
    if !(1..=65536).contains(&n_links) {
        return Err(links.error("1 to 65536 links"));
    }
    let to = writable(dst)?;
    if to.n_bits < 16 && n_links > 1 << to.n_bits {
        return Err(dst.error(format!("bits that can hold {n_links} values")));
    }
    Ok(OfAction::Multipath(Box::new(Multipath {
        fields: named(fields, &HASH_FIELDS)?,
        basis: number::u16(basis)?,
        algorithm: named(algorithm, &MULTIPATH_ALGORITHMS)?,
        max_link: (n_links - 1) as u16,
        arg: number::u32(arg)?,
        dst: to,
    })))
}

pub(super) fn bundle(text: Piece<'_>, ports: &PortNames, load: bool) -> Result<OfAction, SyntaxError> {
    /// Source: Open vSwitch lib/bundle.h.
    const MAX_MEMBERS: usize = 2048;
    let usage = if load {
        "FIELDS,BASIS,ALGORITHM,ofport,FIELD[BITS],members:PORT,…"
    } else {
        "FIELDS,BASIS,ALGORITHM,ofport,members:PORT,…"
    };
    // The list of members may stand in brackets.
    let at = ["members", "slaves"].iter().find_map(|word| text.text.find(word)).ok_or_else(|| text.error(usage))?;
    let (head, tail) = text.split_at(at);
    let (_, members) = tail.split_once(":").ok_or_else(|| tail.error("members:PORT,…"))?;
    let (fields, basis, algorithm, kind, dst) = match (load, &head.words(&[',', ' '])[..]) {
        (false, [fields, basis, algorithm, kind]) => (*fields, *basis, *algorithm, *kind, None),
        (true, [fields, basis, algorithm, kind, dst]) => (*fields, *basis, *algorithm, *kind, Some(writable(*dst)?)),
        _ => return Err(text.error(usage)),
    };
    if !kind.text.eq_ignore_ascii_case("ofport") {
        return Err(kind.error("ofport"));
    }
    let members = members.words(&[',', ' ', '[', ']']);
    if members.len() > MAX_MEMBERS {
        return Err(text.conflict(format!("{} members", members.len()), format!("at most {MAX_MEMBERS}")));
    }
    Ok(OfAction::Bundle(Box::new(Bundle {
        fields: named(fields, &HASH_FIELDS)?,
        basis: number::u16(basis)?,
        algorithm: named(algorithm, &BUNDLE_ALGORITHMS)?,
        dst,
        members: members.into_iter().map(|m| ports.parse_piece(m)).collect::<Result<_, _>>()?,
    })))
}

pub(super) fn sample(text: Piece<'_>, ports: &PortNames) -> Result<OfAction, SyntaxError> {
    let mut sample = Sample {
        probability: 0,
        collector_set_id: 0,
        obs_domain_id: 0,
        obs_point_id: 0,
        sampling_port: OfPort::NONE,
        direction: SampleDirection::Unsaid,
    };
    for_each_pair(text, |pair| {
        match pair.key.text {
            "probability" => sample.probability = number::u16(pair.value)?,
            "collector_set_id" => sample.collector_set_id = number::u32(pair.value)?,
            "obs_domain_id" => sample.obs_domain_id = number::u32(pair.value)?,
            "obs_point_id" => sample.obs_point_id = number::u32(pair.value)?,
            "sampling_port" => sample.sampling_port = ports.parse_piece(pair.value)?,
            "ingress" => sample.direction = SampleDirection::Ingress,
            "egress" => sample.direction = SampleDirection::Egress,
            _ => {
                return Err(pair.key.error(
                    "probability, collector_set_id, obs_domain_id, obs_point_id, sampling_port, ingress or egress",
                ));
            }
        }
        Ok(())
    })?;
    match sample.probability {
        0 => Err(text.error("a probability of 1 to 65535")),
        _ => Ok(OfAction::Sample(Box::new(sample))),
    }
}

pub(super) fn learn(text: Piece<'_>, ports: &PortNames) -> Result<OfAction, SyntaxError> {
    let mut learn = Learn {
        table: 1,
        idle_timeout: 0,
        hard_timeout: 0,
        fin_idle_timeout: 0,
        fin_hard_timeout: 0,
        priority: DEFAULT_PRIORITY,
        cookie: 0,
        send_flow_rem: false,
        delete_learned: false,
        limit: 0,
        result_dst: None,
        specs: Vec::new(),
    };
    for_each_pair(text, |pair| {
        let value = pair.value;
        match pair.key.text {
            "table" => learn.table = table(value)?,
            "priority" => learn.priority = number::u16(value)?,
            "idle_timeout" => learn.idle_timeout = number::u16(value)?,
            "hard_timeout" => learn.hard_timeout = number::u16(value)?,
            "fin_idle_timeout" => learn.fin_idle_timeout = number::u16(value)?,
            "fin_hard_timeout" => learn.fin_hard_timeout = number::u16(value)?,
            "cookie" => learn.cookie = number::u64(value)?,
            "send_flow_rem" => learn.send_flow_rem = true,
            "delete_learned" => learn.delete_learned = true,
            "limit" => learn.limit = number::u32(value)?,
            "result_dst" => match writable(value)? {
                bit if bit.n_bits == 1 => learn.result_dst = Some(bit),
                _ => return Err(value.error("a single bit")),
            },
            _ => learn_spec(pair, ports, &mut learn.specs)?,
        }
        Ok(())
    })?;
    Ok(OfAction::Learn(Box::new(learn)))
}

fn learn_spec(pair: &Pair<'_>, ports: &PortNames, specs: &mut Vec<LearnSpec>) -> Result<(), SyntaxError> {
    let value = pair.value;
    let spec = match pair.key.text {
        "load" => {
            let (source, name) = arrow(value)?;
            match number::integer(source, 128) {
                Ok(_) => {
                    let dst = writable(name)?;
                    let constant = number::integer(source, dst.n_bits)?;
                    LearnSpec { source: LearnSource::Value(constant), target: LearnTarget::Load(dst) }
                }
                Err(_) => match move_bits(value)? {
                    OfAction::Move { src, dst } => {
                        LearnSpec { source: LearnSource::Field(src), target: LearnTarget::Load(dst) }
                    }
                    _ => return Err(value.error("VALUE->FIELD[BITS] or FIELD[BITS]->FIELD[BITS]")),
                },
            }
        }
        "output" => {
            let source = LearnSource::Field(value::parse_subfield(value)?);
            LearnSpec { source, target: LearnTarget::Output }
        }
        _ => learn_match(pair, ports)?,
    };
    specs.push(spec);
    Ok(())
}

/// `FIELD[BITS]`, `FIELD[BITS]=FIELD[BITS]` or `FIELD=VALUE`.
fn learn_match(pair: &Pair<'_>, ports: &PortNames) -> Result<LearnSpec, SyntaxError> {
    let value = pair.value;
    let dst = value::parse_subfield(pair.key)
        .map_err(|e| SyntaxError { expected: format!("a setting of learn, load, output, or {}", e.expected), ..e })?;
    let source = if value.is_empty() {
        LearnSource::Field(dst)
    } else if let Ok(src) = value::parse_subfield(value) {
        if src.n_bits != dst.n_bits {
            return Err(value.conflict(
                format!("{} bits to be matched with {}", src.n_bits, dst.n_bits),
                "as many bits behind the = as before it",
            ));
        }
        LearnSource::Field(src)
    } else if dst.is_whole() {
        LearnSource::Value(value::parse_exact(dst.field.field(), value, ports)?)
    } else {
        LearnSource::Value(number::integer(value, dst.n_bits)?)
    };
    Ok(LearnSpec { source, target: LearnTarget::Match(dst) })
}

pub(super) fn conntrack(text: Piece<'_>, reader: ActionReader<'_>) -> Result<OfAction, SyntaxError> {
    let mut ct = Conntrack {
        commit: false,
        force: false,
        zone: ConntrackZone::Number(0),
        table: None,
        alg: 0,
        actions: Vec::new(),
    };
    let mut nat_action = None;
    for_each_pair(text, |pair| {
        let value = pair.value;
        match pair.key.text {
            "commit" => ct.commit = true,
            "force" => ct.force = true,
            "table" => ct.table = Some(table(value)?),
            "zone" => {
                ct.zone = match number::u16(value) {
                    Ok(zone) => ConntrackZone::Number(zone),
                    Err(_) => ConntrackZone::Field(
                        value::parse_subfield(value).map_err(|_| value.error("a zone, 0 to 65535, or a field"))?,
                    ),
                }
            }
            "alg" => ct.alg = named(value, &[("ftp", 21), ("tftp", 69)])?,
            "nat" => nat_action = Some(nat(value)?),
            "exec" => ct.actions.extend(reader.nested(value, Within::Ct)?),
            _ => return Err(pair.key.error("commit, force, table, zone, alg, nat or exec")),
        }
        Ok(())
    })?;
    if let Some(nat) = nat_action {
        ct.actions.insert(0, OfAction::Nat(nat));
    }
    if ct.force && !ct.commit {
        return Err(text.conflict("force without commit", "commit,force"));
    }
    Ok(OfAction::Conntrack(Box::new(ct)))
}

pub(super) fn nat(text: Piece<'_>) -> Result<Nat, SyntaxError> {
    let mut nat = Nat { kind: None, addresses: None, ports: (0, 0), persistent: false, hash: false, random: false };
    for_each_pair(text, |pair| {
        match pair.key.text {
            "src" | "dst" if nat.kind.is_some() => return Err(pair.key.error("src or dst only once")),
            "src" | "dst" => {
                nat.kind = Some(if pair.key.text == "src" { NatKind::Src } else { NatKind::Dst });
                if !pair.value.is_empty() {
                    (nat.addresses, nat.ports) = nat_range(pair.value)?;
                }
            }
            "persistent" => nat.persistent = true,
            "hash" => nat.hash = true,
            "random" => nat.random = true,
            _ => return Err(pair.key.error("src, dst, persistent, hash or random")),
        }
        Ok(())
    })?;
    if nat.kind.is_none() && (nat.persistent || nat.hash || nat.random) {
        return Err(text.conflict("flags of nat without src or dst", "src or dst"));
    }
    if nat.hash && nat.random {
        return Err(text.conflict("hash and random together", "one of them"));
    }
    Ok(nat)
}

/// `ADDR[-ADDR][:PORT[-PORT]]`, an IPv6 address in brackets if a port follows.
fn nat_range(text: Piece<'_>) -> Result<(Option<NatAddresses>, (u16, u16)), SyntaxError> {
    let (first, rest) = nat_address(text)?;
    let (last, rest) = match rest.strip_prefix("-") {
        Some(rest) => nat_address(rest)?,
        None => (first, rest),
    };
    let addresses = match (first, last) {
        (std::net::IpAddr::V4(a), std::net::IpAddr::V4(b)) if a <= b => NatAddresses::V4(a, b),
        (std::net::IpAddr::V6(a), std::net::IpAddr::V6(b)) if a <= b => NatAddresses::V6(a, b),
        _ => return Err(text.error("a range of addresses of one family, the lower first")),
    };
    let ports = match rest.strip_prefix(":") {
        None if rest.is_empty() => (0, 0),
        None => return Err(rest.error(":PORT or nothing")),
        Some(rest) => match rest.split_once("-") {
            None => number::u16(rest).map(|port| (port, port))?,
            Some((first, last)) => match (number::u16(first)?, number::u16(last)?) {
                (a, b) if a <= b => (a, b),
                _ => return Err(rest.error("a range of ports, the lower first")),
            },
        },
    };
    Ok((Some(addresses), ports))
}

fn nat_address(text: Piece<'_>) -> Result<(std::net::IpAddr, Piece<'_>), SyntaxError> {
    let wrong = || text.error("an IPv4 address or an IPv6 address (in brackets if a port follows)");
    let (address, rest) = match text.strip_prefix("[") {
        Some(inner) => inner.split_once("]").ok_or_else(wrong)?,
        None => {
            let is_v6 = text.text.split('-').next().is_some_and(|a| a.matches(':').count() > 1);
            let end = text.text.find(if is_v6 { &['-'][..] } else { &['-', ':'][..] }).unwrap_or(text.text.len());
            text.split_at(end)
        }
    };
    address.text.parse().map(|address| (address, rest)).map_err(|_| wrong())
}

/// Headers that can be put in front of a packet, and their packet types. Source: `ovs-actions(7)`, `encap`.
pub(super) const ENCAP_HEADERS: [(&str, u32); 4] =
    [("ethernet", 0), ("nsh", 0x0001_894f), ("mpls", 0x0001_8847), ("mpls_mc", 0x0001_8848)];

pub(super) fn encap(text: Piece<'_>) -> Result<OfAction, SyntaxError> {
    let mut rest = text;
    let header = rest.next_pair()?.ok_or_else(|| text.error("a header to put in front"))?;
    let packet_type = named(header.key, &ENCAP_HEADERS)?;
    let mut properties = Vec::new();
    for_each_pair(header.value, |pair| {
        match pair.key.text {
            "md_type" if header.key.text == "nsh" => match number::u8(pair.value)? {
                kind @ 1..=2 => properties.push(NshProperty::MdType(kind)),
                _ => return Err(pair.value.error("1 or 2")),
            },
            "tlv" if header.key.text == "nsh" => properties.push(nsh_tlv(pair.value)?),
            _ => return Err(pair.key.error("md_type or tlv, of nsh")),
        }
        Ok(())
    })?;
    Ok(OfAction::Encap { packet_type, properties })
}

fn nsh_tlv(text: Piece<'_>) -> Result<NshProperty, SyntaxError> {
    let wrong = || text.error("CLASS,TYPE,0xVALUE");
    let (class, rest) = text.split_once(",").ok_or_else(wrong)?;
    let (kind, value) = rest.split_once(",").ok_or_else(wrong)?;
    let digits = value.strip_prefix("0x").ok_or_else(wrong)?;
    let bytes = number::hex_bytes(digits)?;
    if bytes.len() > 124 {
        return Err(value.error("a value of at most 124 bytes"));
    }
    Ok(NshProperty::Tlv { class: number::u16(class)?, tlv_type: number::u8(kind)?, value: bytes })
}

pub(super) fn decap(text: Piece<'_>) -> Result<OfAction, SyntaxError> {
    let mut packet_type = None;
    for_each_pair(text, |pair| {
        if pair.key.text != "packet_type" {
            return Err(pair.key.error("packet_type(ns=N,type=T)"));
        }
        let (mut space, mut kind) = (None, None);
        for_each_pair(pair.value, |part| {
            match part.key.text {
                "ns" => space = Some(number::u16(part.value)?),
                "type" => kind = Some(number::u16(part.value)?),
                _ => return Err(part.key.error("ns or type")),
            }
            Ok(())
        })?;
        match (space, kind) {
            (Some(space), Some(kind)) => packet_type = Some(u32::from(space) << 16 | u32::from(kind)),
            _ => return Err(pair.value.error("ns=N,type=T")),
        }
        Ok(())
    })?;
    // (0,0xfffe) says: whatever the header says.
    Ok(OfAction::Decap { packet_type: packet_type.filter(|t| *t != 0xfffe) })
}
