//! Reading the arguments of `ct`, and of `nat` in it.

use super::action_args::{for_each_pair, named, table};
use super::action_parse::ActionReader;
use crate::OfAction;
use crate::consistency::Within;
use crate::ofpact::{Conntrack, ConntrackZone, Nat, NatAddresses, NatKind};
use sluice_flow::text::{Piece, SyntaxError, number, value};
use std::net::IpAddr;

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
        (IpAddr::V4(a), IpAddr::V4(b)) if a <= b => NatAddresses::V4(a, b),
        (IpAddr::V6(a), IpAddr::V6(b)) if a <= b => NatAddresses::V6(a, b),
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
