//! `ct(…)`, as OVS's lib/odp-util.c writes it.

use super::fields::{hex, ipv6};
use crate::ct::{Ct, Helper, NatSpec, NatTarget, PortChoice};
use sluice_flow::text::number::show_hex;
use std::fmt::{self, Formatter};
use std::net::Ipv4Addr;

/// Writes the action. Zone 0 is left out.
pub(super) fn show(f: &mut Formatter<'_>, ct: &Ct) -> fmt::Result {
    let mut parts: Vec<String> = Vec::new();
    match (ct.commit, ct.force) {
        (_, true) => parts.push("force_commit".to_owned()),
        (true, false) => parts.push("commit".to_owned()),
        (false, false) => {}
    }
    if ct.zone != 0 {
        parts.push(format!("zone={}", ct.zone));
    }
    if let Some(mark) = ct.mark {
        parts.push(format!("mark={}/{}", hex(mark.value.into()), hex(mark.mask.into())));
    }
    if let Some(label) = ct.label {
        let mask = if label.mask == u128::MAX { String::new() } else { format!("/{}", show_hex(label.mask)) };
        parts.push(format!("label={}{mask}", show_hex(label.value)));
    }
    match ct.helper {
        Some(Helper::Ftp) => parts.push("helper=ftp".to_owned()),
        Some(Helper::Tftp) => parts.push("helper=tftp".to_owned()),
        None => {}
    }
    parts.extend(ct.nat.as_ref().map(nat));
    f.write_str("ct")?;
    if parts.is_empty() { Ok(()) } else { write!(f, "({})", parts.join(",")) }
}

fn nat(spec: &NatSpec) -> String {
    let target = match spec.target {
        None => return "nat".to_owned(),
        Some(NatTarget::Src) => "src",
        Some(NatTarget::Dst) => "dst",
    };
    let mut text = format!("nat({target}");
    let (first, last) = &spec.addrs;
    if *first != [0; 16] {
        text += &format!("={}", address(spec, first));
        if last != first {
            text += &format!("-{}", address(spec, last));
        }
        if let Some((first, last)) = spec.ports {
            text += &format!(":{first}");
            if last != first {
                text += &format!("-{last}");
            }
        }
    }
    if spec.persistent {
        text += ",persistent";
    }
    match spec.choice {
        PortChoice::Unsaid => {}
        PortChoice::Hash => text += ",hash",
        PortChoice::Random => text += ",random",
    }
    text + ")"
}

/// In brackets if a port follows, which would otherwise look like a part of the address.
fn address(spec: &NatSpec, addr: &[u8; 16]) -> String {
    if !spec.v6 {
        let [a, b, c, d, ..] = *addr;
        return Ipv4Addr::new(a, b, c, d).to_string();
    }
    if spec.ports.is_some() { format!("[{}]", ipv6(addr)) } else { ipv6(addr).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ct::Masked;

    fn text(ct: Ct) -> String {
        fmt::from_fn(|f| show(f, &ct)).to_string()
    }

    #[test]
    fn texts_are_open_vswitchs() {
        assert_eq!(text(Ct::default()), "ct");
        assert_eq!(text(Ct { commit: true, zone: 5, ..Ct::default() }), "ct(commit,zone=5)");
        let all = Ct {
            force: true,
            zone: 1,
            mark: Some(Masked { value: 0, mask: 0xff }),
            label: Some(Masked { value: 1 << 64, mask: u128::MAX }),
            helper: Some(Helper::Ftp),
            ..Ct::default()
        };
        assert_eq!(text(all), "ct(force_commit,zone=1,mark=0/0xff,label=0x10000000000000000,helper=ftp)");
    }

    #[test]
    fn nat_names_what_was_said() {
        let v4 = |last| [10, 0, 0, last, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let with = |nat: NatSpec| text(Ct { nat: Some(nat), ..Ct::default() });
        let src = NatSpec { target: Some(NatTarget::Src), ..NatSpec::default() };
        assert_eq!(with(NatSpec::default()), "ct(nat)");
        assert_eq!(with(src.clone()), "ct(nat(src))");
        let range = NatSpec { addrs: (v4(1), v4(9)), ports: Some((80, 90)), choice: PortChoice::Random, ..src.clone() };
        assert_eq!(with(range), "ct(nat(src=10.0.0.1-10.0.0.9:80-90,random))");
        let one = NatSpec { addrs: (v4(1), v4(1)), ports: Some((80, 80)), persistent: true, ..src.clone() };
        assert_eq!(with(one), "ct(nat(src=10.0.0.1:80,persistent))");
        let v6 = NatSpec { v6: true, addrs: ([0xfe; 16], [0xfe; 16]), ..src };
        assert_eq!(with(v6.clone()), "ct(nat(src=fefe:fefe:fefe:fefe:fefe:fefe:fefe:fefe))");
        let with_port = NatSpec { ports: Some((1, 2)), choice: PortChoice::Hash, ..v6 };
        assert_eq!(with(with_port), "ct(nat(src=[fefe:fefe:fefe:fefe:fefe:fefe:fefe:fefe]:1-2,hash))");
    }
}
