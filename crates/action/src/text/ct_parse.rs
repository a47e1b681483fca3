//! Reading `ct(…)` as OVS's lib/odp-util.c does.

use crate::ct::{Ct, Helper, Masked, NatSpec, NatTarget, PortChoice};
use sluice_flow::text::number::{integer, ipv4, ipv6, u16};
use sluice_flow::text::{Pair, Piece, SyntaxError};

/// Reads what stands in the parentheses.
pub(super) fn parse(text: Piece<'_>) -> Result<Ct, SyntaxError> {
    let mut ct = Ct::default();
    let mut rest = text;
    while let Some(pair) = rest.next_pair()? {
        let value = pair.value;
        match pair.key.text {
            "commit" => ct.commit = true,
            "force_commit" => (ct.commit, ct.force) = (true, true),
            "zone" => ct.zone = u16(value)?,
            "mark" => {
                let (value, mask) = masked(value, 32)?;
                ct.mark = Some(Masked { value: value as u32, mask: mask as u32 });
            }
            "label" => {
                let (value, mask) = masked(value, 128)?;
                ct.label = Some(Masked { value, mask });
            }
            "helper" => ct.helper = Some(helper(value)?),
            "nat" => ct.nat = Some(nat(&pair)?),
            _ => return Err(pair.key.error("commit, force_commit, zone, mark, label, helper or nat")),
        }
    }
    if !ct.commit && (ct.mark.is_some() || ct.label.is_some()) {
        return Err(text.error("commit or force_commit, which mark and label need"));
    }
    Ok(ct)
}

/// A value that is cut by its mask.
fn masked(text: Piece<'_>, bits: u32) -> Result<(u128, u128), SyntaxError> {
    let all = u128::MAX >> (128 - bits);
    let (value, mask) = match text.split_once("/") {
        Some((value, mask)) => (integer(value, bits)?, integer(mask, bits)?),
        None => (integer(text, bits)?, all),
    };
    Ok((value & mask, mask))
}

fn helper(text: Piece<'_>) -> Result<Helper, SyntaxError> {
    match text.text {
        "ftp" => Ok(Helper::Ftp),
        "tftp" => Ok(Helper::Tftp),
        _ => Err(text.error("ftp or tftp")),
    }
}

/// `nat`, or `nat(src[=ADDRESSES[:PORTS]],…)`.
fn nat(pair: &Pair<'_>) -> Result<NatSpec, SyntaxError> {
    let mut spec = NatSpec::default();
    let mut rest = pair.value;
    while let Some((item, further)) = next_item(rest) {
        rest = further;
        let (name, value) = item.split_once("=").map_or((item, None), |(name, value)| (name, Some(value)));
        match name.text {
            "src" | "dst" if spec.target.is_none() => {
                spec.target = Some(if name.text == "src" { NatTarget::Src } else { NatTarget::Dst });
                if let Some(value) = value {
                    range(value, &mut spec)?;
                }
            }
            "persistent" => spec.persistent = true,
            "hash" => spec.choice = PortChoice::Hash,
            "random" => spec.choice = PortChoice::Random,
            _ => return Err(name.error("one of src and dst; persistent, hash or random")),
        }
    }
    if spec.target.is_none() && spec != NatSpec::default() {
        return Err(pair.value.error("src or dst"));
    }
    Ok(spec)
}

/// What stands before the next comma, and behind it. Colons belong to addresses here.
fn next_item(text: Piece<'_>) -> Option<(Piece<'_>, Piece<'_>)> {
    let text = text.skip_gap();
    if text.is_empty() {
        return None;
    }
    let end = text.text.find(',').unwrap_or(text.text.len());
    let (item, rest) = text.split_at(end);
    Some((item.trim(), rest))
}

/// `ADDRESS[-ADDRESS][:PORT[-PORT]]`; an IPv6 address in brackets if a port follows.
fn range(text: Piece<'_>, spec: &mut NatSpec) -> Result<(), SyntaxError> {
    let brackets = text.text.starts_with('[');
    spec.v6 = brackets || text.text.matches(':').count() > 1;
    let (addresses, ports) = match (spec.v6, text.text.rfind("]:")) {
        (true, Some(at)) => (text.split_at(at + 1).0, Some(text.split_at(at + 2).1)),
        (true, None) => (text, None),
        (false, _) => text.split_once(":").map_or((text, None), |(addresses, ports)| (addresses, Some(ports))),
    };
    let (first, last) = addresses.split_once("-").unwrap_or((addresses, addresses));
    spec.addrs = (address(first, spec.v6)?, address(last, spec.v6)?);
    if spec.addrs.0 == [0; 16] || spec.addrs.0 > spec.addrs.1 {
        return Err(addresses.error("a range of addresses, the lowest first"));
    }
    if let Some(ports) = ports {
        let (first, last) = ports.split_once("-").unwrap_or((ports, ports));
        let (first, last) = (u16(first)?, u16(last)?);
        if first > last {
            return Err(ports.error("a range of ports, the lowest first"));
        }
        spec.ports = Some((first, last));
    }
    Ok(())
}

fn address(text: Piece<'_>, is_v6: bool) -> Result<[u8; 16], SyntaxError> {
    if is_v6 {
        let bare = text.strip_prefix("[").and_then(|text| text.strip_suffix("]")).unwrap_or(text);
        return ipv6(bare).map(|address| address.octets());
    }
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&ipv4(text)?.octets());
    Ok(bytes)
}
