//! Frames as words, a header each from the outside in; checksums and lengths are filled in.
//!
//! | word | header or change |
//! |---|---|
//! | `eth=SRC>DST` | Ethernet addresses (else 02:…:01 to 02:…:02) |
//! | `type=0x88cc` | Ethernet type |
//! | `vlan=10`, `vlan=88a8:0x2014` | a tag: VLAN, or TPID and whole TCI |
//! | `mpls=16,64` | a label and its TTL |
//! | `arp=1,SHA,SPA,THA,TPA` | ARP with its operation |
//! | `ip=A>B`, `ip6=A>B` | IPv4, IPv6 |
//! | `ttl=3` `tos=32` `proto=47` `label=7` | of the last IP header |
//! | `frag=185+`, `frag=0+`, `frag=185` | a fragment: offset in 8 bytes, more to come |
//! | `tcp=A>B` `flags=0x02`, `udp=A>B`, `sctp=A>B` | transport |
//! | `icmp=8,0`, `icmp6=128,0` | type and code |
//! | `ns=TARGET`, `na=TARGET`, `sll=MAC`, `tll=MAC` | neighbour discovery |
//! | `data=HEX`, `pad=60` | payload; zeroes up to a length |
//! | `cut=40` | only the first 40 bytes of the frame |
//! | `hex=HEX` | the whole frame as it is |

use sluice_flow::Mac;
use sluice_testkit::frame::{self, FrameBuilder};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Reads a frame.
pub fn parse(text: &str) -> Result<Vec<u8>, String> {
    let mut builder = frame::ethernet();
    let (mut cut, mut raw) = (usize::MAX, None);
    for word in text.split_whitespace() {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let bad = |what: &str| format!("`{word}`: expected {what}");
        match name {
            "hex" => raw = Some(bytes(value).ok_or_else(|| bad("hexadecimal bytes"))?),
            "cut" => cut = value.parse().map_err(|_| bad("a length"))?,
            _ => builder = header(builder, name, value).ok_or_else(|| bad("a header as frame_text.rs lists them"))?,
        }
    }
    let mut frame = raw.unwrap_or_else(|| builder.build());
    frame.truncate(cut);
    Ok(frame)
}

fn header(b: FrameBuilder, name: &str, value: &str) -> Option<FrameBuilder> {
    Some(match name {
        "eth" => {
            let (src, dst) = value.split_once('>')?;
            b.macs(mac(src)?, mac(dst)?)
        }
        "type" => b.ethertype(number(value)? as u16),
        "vlan" => match value.split_once(':') {
            Some((tpid, tci)) => b.tag(u16::from_str_radix(tpid, 16).ok()?, number(tci)? as u16),
            None => b.vlan(number(value)? as u16),
        },
        "mpls" => {
            let (label, ttl) = value.split_once(',')?;
            b.mpls(number(label)?, 0, number(ttl)? as u8)
        }
        "arp" => {
            let [op, sha, spa, tha, tpa] = value.split(',').collect::<Vec<_>>().try_into().ok()?;
            b.arp(number(op)? as u16, mac(sha)?, ipv4(spa)?, mac(tha)?, ipv4(tpa)?)
        }
        "ip" | "ip6" => {
            let (src, dst) = value.split_once('>')?;
            if name == "ip" { b.ipv4(ipv4(src)?, ipv4(dst)?) } else { b.ipv6(ipv6(src)?, ipv6(dst)?) }
        }
        "ttl" => b.ttl(number(value)? as u8),
        "tos" => b.tos(number(value)? as u8),
        "proto" => b.proto(number(value)? as u8),
        "label" => b.label(number(value)?),
        "frag" => b.fragment(number(value.trim_end_matches('+'))? as u16, value.ends_with('+')),
        "tcp" | "udp" | "sctp" => {
            let (src, dst) = value.split_once('>')?;
            let (src, dst) = (number(src)? as u16, number(dst)? as u16);
            match name {
                "tcp" => b.tcp(src, dst),
                "udp" => b.udp(src, dst),
                _ => b.sctp(src, dst),
            }
        }
        "flags" => b.tcp_flags(number(value)? as u16),
        "icmp" | "icmp6" => {
            let (kind, code) = value.split_once(',')?;
            let (kind, code) = (number(kind)? as u8, number(code)? as u8);
            if name == "icmp" { b.icmp(kind, code) } else { b.icmpv6(kind, code) }
        }
        "ns" => b.neighbour_solicit(ipv6(value)?),
        "na" => b.neighbour_advert(0x6000_0000, ipv6(value)?),
        "sll" => b.nd_option(1, mac(value)?),
        "tll" => b.nd_option(2, mac(value)?),
        "data" => b.payload(&bytes(value)?),
        "pad" => b.pad_to(number(value)? as usize),
        _ => return None,
    })
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn mac(text: &str) -> Option<[u8; 6]> {
    text.parse::<Mac>().ok().map(|mac| mac.0)
}

fn ipv4(text: &str) -> Option<[u8; 4]> {
    text.parse::<Ipv4Addr>().ok().map(|a| a.octets())
}

fn ipv6(text: &str) -> Option<[u8; 16]> {
    text.parse::<Ipv6Addr>().ok().map(|a| a.octets())
}

fn bytes(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect();
    let digits = digits?;
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(|d| d[0] << 4 | d[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_headers() {
        let built = frame::ethernet().vlan(10).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).ttl(3).udp(1000, 53).payload(&[0xab]);
        assert_eq!(parse("vlan=10 ip=10.0.0.1>10.0.0.2 ttl=3 udp=1000>53 data=ab").unwrap(), built.build());
        assert_eq!(parse("hex=0102ff").unwrap(), [1, 2, 255]);
        assert_eq!(parse("ip=1.1.1.1>2.2.2.2 tcp=1>2 cut=30").unwrap().len(), 30);
    }

    #[test]
    fn nonsense_is_named() {
        assert_eq!(parse("ip=1.1.1").unwrap_err(), "`ip=1.1.1`: expected a header as frame_text.rs lists them");
        assert_eq!(parse("hex=1").unwrap_err(), "`hex=1`: expected hexadecimal bytes");
    }
}
