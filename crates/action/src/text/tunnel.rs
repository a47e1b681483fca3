//! The fields of a tunnel. Source: Open vSwitch lib/odp-util.c, `tun_key_to_attr`, `format_odp_tun_attr`.

use super::fields::hex;
use sluice_flow::text::number::Ip6;
use sluice_flow::{TunnelKey, tunnel_flags};
use std::fmt::{self, Display, Write as _};
use std::net::Ipv6Addr;

/// Names of the flags, by bit.
const FLAGS: [&str; 4] = ["oam", "df", "csum", "key"];

/// The fields of a tunnel that are not zero and have bits in the mask. What is not matched whole shows its mask.
/// `options` is the text of its options of Geneve.
pub fn show<'a>(key: &'a TunnelKey, mask: Option<&'a TunnelKey>, options: String) -> impl Display + 'a {
    fmt::from_fn(move |f| f.write_str(&Fields { text: String::new(), key, mask }.all(&options)))
}

struct Fields<'a> {
    text: String,
    key: &'a TunnelKey,
    mask: Option<&'a TunnelKey>,
}

/// A number in decimal.
fn decimal(value: u64) -> String {
    value.to_string()
}

/// A number in hexadecimal, always with its prefix.
fn hexadecimal(value: u64) -> String {
    format!("{value:#x}")
}

impl Fields<'_> {
    fn all(mut self, options: &str) -> String {
        let key = *self.key;
        let has_key = key.id != 0 || key.flags & tunnel_flags::KEY != 0;
        self.number("tun_id", has_key, |t| t.id, u64::MAX, hexadecimal);
        self.address("src", |t| t.src);
        self.address("dst", |t| t.dst);
        self.number("tos", key.tos != 0, |t| t.tos.into(), 0xff, hexadecimal);
        self.number("ttl", true, |t| t.ttl.into(), 0xff, decimal);
        self.number("tp_dst", key.tp_dst != 0, |t| t.tp_dst.into(), 0xffff, decimal);
        self.vxlan();
        self.erspan();
        self.gtpu();
        if !options.is_empty() {
            let _ = write!(self.text, "geneve({options}),");
        }
        self.flags(has_key);
        self.text.truncate(self.text.trim_end_matches(',').len());
        self.text
    }

    /// `name=value` and `/mask` unless every bit of `all` matters; nothing if none does.
    fn number(&mut self, name: &str, is_there: bool, of: fn(&TunnelKey) -> u64, all: u64, show: fn(u64) -> String) {
        let mask = self.mask.map_or(all, of) & all;
        if !is_there || mask == 0 {
            return;
        }
        let _ = write!(self.text, "{name}={}", show(of(self.key)));
        if mask != all {
            let _ = write!(self.text, "/{}", hex(mask));
        }
        self.text.push(',');
    }

    fn address(&mut self, name: &str, of: fn(&TunnelKey) -> u128) {
        let (address, mask) = (of(self.key), self.mask.map_or(u128::MAX, of));
        // An address that is not set maps an IPv4 one all the same.
        if matches!(address, 0 | 0xffff_0000_0000) || mask == 0 {
            return;
        }
        let show = |address: u128| Ip6(Ipv6Addr::from(address)).to_string();
        let (family, address, mask) = match Ipv6Addr::from(address).to_ipv4_mapped() {
            Some(address) => ("", address.to_string(), std::net::Ipv4Addr::from(mask as u32).to_string()),
            None => ("ipv6_", show(address), show(mask)),
        };
        let is_whole = matches!(&*mask, "255.255.255.255" | "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
        let mask = if is_whole { String::new() } else { format!("/{mask}") };
        let _ = write!(self.text, "{family}{name}={address}{mask},");
    }

    /// Group based policy.
    fn vxlan(&mut self) {
        let key = *self.key;
        let is_matched = self.mask.is_none_or(|mask| mask.gbp_id != 0 || mask.gbp_flags != 0);
        if (key.gbp_id, key.gbp_flags) == (0, 0) || !is_matched {
            return;
        }
        self.text += "vxlan(gbp(";
        self.number("id", true, |t| t.gbp_id.into(), 0xffff, decimal);
        self.number("flags", true, |t| t.gbp_flags.into(), 0xff, hexadecimal);
        self.close("))");
    }

    fn erspan(&mut self) {
        let version = self.key.erspan_ver;
        if !matches!(version, 1 | 2) || self.mask.is_some_and(|mask| mask.erspan_ver == 0) {
            return;
        }
        self.text += "erspan(";
        self.number("ver", true, |t| t.erspan_ver.into(), 0xf, decimal);
        self.number("idx", version == 1, |t| t.erspan_idx.into(), 0xf_ffff, hexadecimal);
        self.number("dir", version == 2, |t| t.erspan_dir.into(), 1, decimal);
        self.number("hwid", version == 2, |t| t.erspan_hwid.into(), 0x3f, hexadecimal);
        self.close(")");
    }

    fn gtpu(&mut self) {
        let key = *self.key;
        if key.gtpu_flags == 0 || key.gtpu_msgtype == 0 {
            return;
        }
        self.text += "gtpu(";
        self.number("flags", true, |t| t.gtpu_flags.into(), 0xff, hexadecimal);
        self.number("msgtype", true, |t| t.gtpu_msgtype.into(), 0xff, decimal);
        self.close(")");
    }

    fn close(&mut self, with: &str) {
        self.text.truncate(self.text.trim_end_matches(',').len());
        self.text += with;
        self.text.push(',');
    }

    /// All that are set, or, under a mask, each with its sign. A key that is there counts as its flag.
    fn flags(&mut self, has_key: bool) {
        let key = self.key.flags | if has_key { tunnel_flags::KEY } else { 0 };
        let named = |bits: u16| (0..).zip(FLAGS).filter(move |(bit, _)| bits >> bit & 1 != 0);
        let Some(mask) = self.mask else {
            let set: Vec<_> = named(key).map(|(_, name)| name).collect();
            let _ = write!(self.text, "flags({}),", set.join("|"));
            return;
        };
        let matched = mask.flags & !tunnel_flags::KEY | if has_key { mask.flags & tunnel_flags::KEY } else { 0 };
        if matched == 0 {
            return;
        }
        self.text += "flags(";
        for (bit, name) in named(matched) {
            self.text.push(if key >> bit & 1 != 0 { '+' } else { '-' });
            self.text += name;
        }
        self.text += "),";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_to_set_is_ovs_text() {
        let mut key =
            TunnelKey { id: 5, src: 0xffff_0202_0202, dst: 0xffff_0101_0101, ttl: 64, ..TunnelKey::default() };
        key.flags = tunnel_flags::DF | tunnel_flags::KEY;
        assert_eq!(
            show(&key, None, String::new()).to_string(),
            "tun_id=0x5,src=2.2.2.2,dst=1.1.1.1,ttl=64,flags(df|key)"
        );
        let v6 = TunnelKey { src: 0, dst: 0x2001_cafe << 96 | 1, id: 0, flags: 0, tp_dst: 4789, tos: 3, ..key };
        assert_eq!(
            show(&v6, None, String::new()).to_string(),
            "ipv6_dst=2001:cafe::1,tos=0x3,ttl=64,tp_dst=4789,flags()"
        );
        let erspan = TunnelKey { erspan_ver: 2, erspan_dir: 1, erspan_hwid: 7, gbp_id: 9, ..v6 };
        let expected = "ipv6_dst=2001:cafe::1,tos=0x3,ttl=64,tp_dst=4789,vxlan(gbp(id=9,flags=0x0)),\
                        erspan(ver=2,dir=1,hwid=0x7),flags()";
        assert_eq!(show(&erspan, None, String::new()).to_string(), expected);
    }

    #[test]
    fn under_a_mask_flags_have_signs() {
        let key = TunnelKey {
            id: 0x7b,
            src: 0xffff_0101_025c,
            dst: 0xffff_0101_0258,
            ttl: 64,
            flags: 8,
            ..TunnelKey::default()
        };
        let mask = TunnelKey {
            id: u64::MAX,
            src: u128::MAX,
            dst: u128::MAX ^ 0xff,
            flags: 0xe,
            tos: 0xff,
            ..TunnelKey::default()
        };
        let expected = "tun_id=0x7b,src=1.1.2.92,dst=1.1.2.88/255.255.255.0,flags(-df-csum+key)";
        assert_eq!(show(&key, Some(&mask), String::new()).to_string(), expected);
    }
}
