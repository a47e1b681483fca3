//! Megaflow text without what a megaflow does not match on.
//!
//! Open vSwitch keeps the whole key of the packet that made a megaflow and prints it (`src=10.0.0.1/255.0.0.0`,
//! `ttl=64/0`, a `udp(…)` with no bit of it matched); Sluice keeps the masked key only. Both match the same packets, so
//! the bits outside the mask, and fields and groups without a bit in it, are left out of the comparison. Actions
//! likewise lose what cannot be seen from outside.

use crate::values::{LOCAL, device};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The text with values under their masks, and without fields whose mask is zero.
pub fn canonical(text: &str) -> String {
    let parts = split(text);
    // A tag's type is printed as matched but never is: OVS shows that of the packet which made the megaflow.
    let is_tag =
        |i: usize| parts.get(i + 1).is_some_and(|next| next.starts_with("vlan(") || next.starts_with("encap("));
    let parts = parts.iter().enumerate().filter_map(|(i, text)| match text.starts_with("eth_type(") && is_tag(i) {
        true => Some("eth_type(tag)".into()),
        false => part(text),
    });
    parts.collect::<Vec<_>>().join(",")
}

/// A megaflow's canonical text without the nesting that its tags make.
pub fn without_tags(text: &str) -> String {
    let flat = text.replace("eth_type(tag)", "").replace("encap(", "").replace(')', "");
    let parts = flat.split(',').filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(",")
}

/// Actions with every run of outputs in order of their ports, as only the order on one port can be seen: OVS floods in
/// the order of a hash table. Ports may be named or, as in traces, numbered.
pub fn canonical_actions(text: &str) -> String {
    // Names of frozen translations are drawn one after the other, and OVS does not begin again with each table.
    canonical_list(&without_numbers_after(text, "recirc_id="))
}

fn canonical_list(text: &str) -> String {
    let mut actions: Vec<String> = split(text).into_iter().map(canonical_action).collect();
    for run in actions.chunk_by_mut(|a, b| is_output(a) && is_output(b)) {
        run.sort_unstable();
    }
    actions.join(",")
}

fn canonical_action(text: &str) -> String {
    const LISTS: [&str; 5] = ["clone", "check_pkt_len", "gt", "le", "sample"];
    match text.strip_suffix(')').and_then(|t| t.split_once('(')) {
        Some((name, inner)) if LISTS.contains(&name) => format!("{name}({})", canonical_list(inner)),
        // Numbers of the dummy datapath and of the replay.
        None if matches!(text, "100" | "65534") => device(LOCAL),
        None if text.parse::<u16>().is_ok() => format!("p{text}"),
        _ => text.to_owned(),
    }
}

/// The text with what `name` is called left out.
pub fn without_numbers_after(text: &str, name: &str) -> String {
    let mut parts = text.split(name);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |out, part| out + name + part.trim_start_matches(|c: char| c.is_ascii_hexdigit()))
}

pub fn is_output(action: &str) -> bool {
    action == "br0" || action.strip_prefix('p').is_some_and(|port| port.parse::<u16>().is_ok())
}

/// Splits at the commas outside of parentheses.
pub fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut from) = (0, 0);
    let mut parts = Vec::new();
    for (i, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[from..i]);
                from = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts
}

/// A group, a field of a group, or a bare value; `None` if nothing of it is matched on.
fn part(text: &str) -> Option<String> {
    if let Some((name, inner)) = text.strip_suffix(')').and_then(|t| t.split_once('(')) {
        let inner = canonical(inner);
        return (!inner.is_empty()).then(|| format!("{name}({inner})"));
    }
    match text.split_once('=') {
        Some((name, value)) => masked(value).map(|value| format!("{name}={value}")),
        None => masked(text),
    }
}

/// A value with or without a mask.
fn masked(text: &str) -> Option<String> {
    let Some((value, mask)) = text.split_once('/') else { return Some(text.to_owned()) };
    let (Some(bits), Some(of)) = (number(mask), number(value)) else { return Some(text.to_owned()) };
    (bits != 0).then(|| format!("{:#x}/{bits:#x}", of & bits))
}

/// An Ethernet, IPv4 or IPv6 address or a number.
pub fn number(text: &str) -> Option<u128> {
    if let Some(digits) = text.strip_prefix("0x") {
        return u128::from_str_radix(digits, 16).ok();
    }
    if text.split(':').count() == 6 && text.split(':').all(|byte| byte.len() == 2) {
        return u128::from_str_radix(&text.replace(':', ""), 16).ok();
    }
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Some(u32::from(address).into());
    }
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Some(address.into());
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_outputs_are_sets() {
        assert_eq!(
            canonical_actions("p4,br0,p2,push_vlan(vid=1,pcp=0),p3,p1"),
            "br0,p2,p4,push_vlan(vid=1,pcp=0),p1,p3"
        );
        assert_eq!(canonical_actions("4,100,2,clone(3,1,recirc(0x5f))"), "br0,p2,p4,clone(p1,p3,recirc(0x5f))");
        assert_eq!(canonical_actions("p1,u(a(recirc_id=12,b=3)),p2"), "p1,u(a(recirc_id=,b=3)),p2");
    }

    #[test]
    fn what_is_not_matched_goes() {
        assert_eq!(
            canonical(
                "ct_state(0/0),recirc_id(0),in_port(1),eth(src=02:00:00:00:00:01/00:00:00:00:00:00,dst=02:00:00:00:00:02),\
                 eth_type(0x8100),vlan(vid=5,pcp=3/0x0),encap(eth_type(0x0800),ipv4(src=10.1.2.3/255.0.0.0,dst=10.0.0.2/0.0.0.0,\
                 proto=17/0,frag=no),udp(src=7/0xfffc,dst=53/0),tcp_flags(0/0))"
            ),
            "recirc_id(0),in_port(1),eth(dst=02:00:00:00:00:02),eth_type(tag),vlan(vid=5),\
             encap(eth_type(0x0800),ipv4(src=0xa000000/0xff000000,frag=no),udp(src=0x4/0xfffc))"
        );
        let two_tags =
            canonical("eth_type(0x88a8),vlan(vid=5/0x0,pcp=2),encap(eth_type(0x8100),vlan(vid=1/0x0),encap())");
        assert_eq!(two_tags, "eth_type(tag),vlan(pcp=2),encap(eth_type(tag))");
        assert_eq!(without_tags(&two_tags), without_tags("eth_type(tag),vlan(pcp=2)"));
        assert_ne!(without_tags(&two_tags), without_tags("eth_type(tag),vlan(pcp=3)"));
        assert_eq!(
            canonical("ipv6(src=2001:db8::1/ffff::,dst=::/::,label=0/0)"),
            "ipv6(src=0x20010000000000000000000000000000/0xffff0000000000000000000000000000)"
        );
    }
}
