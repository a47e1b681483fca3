//! Reading the arguments of the larger actions; those of `learn` and `ct` have files of their own.

use crate::OfAction;
use crate::ofpact::{
    Bundle, BundleAlgorithm, ControllerAction, HashFields, Multipath, MultipathAlgorithm, NshProperty, PacketInReason,
    Sample, SampleDirection,
};
use sluice_flow::text::{Pair, Piece, SyntaxError, expect_no_tail, number, value};
use sluice_flow::{OfPort, PortNames, SubField};

/// Calls `each` for every pair.
pub(super) fn for_each_pair<'a>(
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
pub(super) fn named<T: Copy>(text: Piece<'_>, names: &[(&str, T)]) -> Result<T, SyntaxError> {
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

pub(super) fn dec_ttl(text: Piece<'_>) -> Result<OfAction, SyntaxError> {
    let ids = text.words(&[',', ' ']);
    if ids.is_empty() {
        return Ok(OfAction::DecTtl { controllers: vec![0], listed: false });
    }
    let controllers = ids.into_iter().map(number::u16).collect::<Result<_, _>>()?;
    Ok(OfAction::DecTtl { controllers, listed: true })
}

pub(super) fn move_bits(text: Piece<'_>) -> Result<OfAction, SyntaxError> {
    let (src, dst) = arrow(text)?;
    let (from, to) = (value::parse_subfield(src)?, writable(dst)?);
    if from.n_bits != to.n_bits {
        return Err(dst.conflict(
            format!("{} bits to be moved to {}", from.n_bits, to.n_bits),
            "as many bits behind the -> as before it",
        ));
    }
    Ok(OfAction::Move { src: from, dst: to })
}

pub(super) fn write_metadata(text: Piece<'_>) -> Result<OfAction, SyntaxError> {
    let (value, mask) = match text.split_once("/") {
        Some((value, mask)) => (value, number::u64(mask)?),
        None => (text, u64::MAX),
    };
    Ok(OfAction::WriteMetadata { metadata: number::u64(value)?, mask })
}

/// Splits `VALUE->FIELD`.
pub(super) fn arrow<'a>(text: Piece<'a>) -> Result<(Piece<'a>, Piece<'a>), SyntaxError> {
    text.split_once("->").ok_or_else(|| text.error("VALUE->FIELD"))
}

/// Reads bits that an action may change.
pub(super) fn writable(text: Piece<'_>) -> Result<SubField, SyntaxError> {
    let sub = value::parse_subfield(text)?;
    if sub.field.field().writable { Ok(sub) } else { Err(text.error("a field that can be written")) }
}

/// Reads the number of a table, 0 to 254.
pub(super) fn table(text: Piece<'_>) -> Result<u8, SyntaxError> {
    match number::u8(text) {
        Ok(n) if n < 255 => Ok(n),
        _ => Err(text.error("a table number, 0 to 254")),
    }
}

/// Refuses ports that nothing can be sent to.
pub(super) fn outputs_to(text: Piece<'_>, port: OfPort) -> Result<OfPort, SyntaxError> {
    if port.can_be_sent_to() {
        Ok(port)
    } else {
        Err(text.error("a port that can be sent to (below 0xff00, or IN_PORT, NORMAL, FLOOD, ALL, CONTROLLER, LOCAL)"))
    }
}
