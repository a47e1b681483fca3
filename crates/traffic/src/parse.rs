//! Reading the values of a profile's keys.

use crate::Range;
use crate::frame_template::{TCP, UDP};
use sluice_flow::Mac;
use std::net::Ipv4Addr;

/// A whole number, with `k`, `M` or `G` for thousands, and `_` between digits.
pub fn count(text: &str) -> Option<u64> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1_000),
        b'M' => (&text[..text.len() - 1], 1_000_000),
        b'G' => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let plain: String = digits.chars().filter(|c| *c != '_').collect();
    if plain.starts_with('+') { None } else { plain.parse::<u64>().ok()?.checked_mul(unit) }
}

/// `1.2.3.4`, `1.2.3.4-1.2.4.9` or `1.2.3.0/24`.
pub(crate) fn addresses(text: &str) -> Option<Range> {
    let address = |text: &str| text.trim().parse::<Ipv4Addr>().ok().map(u32::from);
    if let Some((network, length)) = text.split_once('/') {
        let length: u32 = length.parse().ok().filter(|length| *length <= 32)?;
        let host_bits = u32::MAX.checked_shr(length).unwrap_or(0);
        let first = address(network)? & !host_bits;
        return Range::new(first, first | host_bits);
    }
    match text.split_once('-') {
        Some((first, last)) => Range::new(address(first)?, address(last)?),
        None => address(text).and_then(|only| Range::new(only, only)),
    }
}

/// `80` or `1000-2000`.
pub(crate) fn ports(text: &str) -> Option<Range> {
    let port = |text: &str| text.trim().parse::<u16>().ok().map(u32::from);
    match text.split_once('-') {
        Some((first, last)) => Range::new(port(first)?, port(last)?),
        None => port(text).and_then(|only| Range::new(only, only)),
    }
}

/// `udp`, `tcp`, a number, or several with commas between.
pub(crate) fn protocols(text: &str) -> Option<Vec<u8>> {
    text.split(',')
        .map(|name| match name.trim() {
            "tcp" => Some(TCP),
            "udp" => Some(UDP),
            "icmp" => Some(1),
            number => number.parse().ok(),
        })
        .collect()
}

/// `ack`, `syn`, or a number.
pub(crate) fn tcp_flags(text: &str) -> Option<u8> {
    match text {
        "ack" => Some(crate::profile::TCP_ACK),
        "syn" => Some(0x02),
        number => number.parse().ok(),
    }
}

/// `02:00:00:00:00:01`.
pub(crate) fn mac(text: &str) -> Option<[u8; 6]> {
    text.parse().ok().map(|Mac(bytes)| bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_nonsense_is_not() {
        assert_eq!((count("1_000"), count("14M"), count("2k")), (Some(1000), Some(14_000_000), Some(2000)));
        for bad in ["", "M", "-1", "+1", "1.5", "99999999999999999999", "18446744073709551615k", "é"] {
            assert_eq!(count(bad), None, "{bad}");
        }
        let range = |first: [u8; 4], last: [u8; 4]| Range::new(u32::from_be_bytes(first), u32::from_be_bytes(last));
        assert_eq!(["ack", "syn", "18", "256", "fin"].map(tcp_flags), [Some(16), Some(2), Some(18), None, None]);
        assert_eq!(addresses("10.0.0.1"), range([10, 0, 0, 1], [10, 0, 0, 1]));
        assert_eq!(addresses("10.0.0.1 - 10.0.1.0"), range([10, 0, 0, 1], [10, 0, 1, 0]));
        assert_eq!(addresses("10.1.2.3/8"), range([10, 0, 0, 0], [10, 255, 255, 255]));
        assert_eq!(addresses("10.1.2.3/32"), range([10, 1, 2, 3], [10, 1, 2, 3]));
        for bad in ["10.0.0.2-10.0.0.1", "10.0.0/8", "10.0.0.0/33", "0.0.0.0/0", "x", ""] {
            assert_eq!(addresses(bad), None, "{bad}");
        }
        assert_eq!((ports("80"), ports("1-65535")), (Range::new(80, 80), Range::new(1, 65535)));
        assert_eq!((ports("65536"), ports("2-1"), ports("")), (None, None, None));
        assert_eq!(protocols("udp, tcp,132"), Some(vec![17, 6, 132]));
        assert_eq!((protocols(""), protocols("256"), protocols("udp,")), (None, None, None));
        assert_eq!(mac("2:0:0:0:0:a"), Some([2, 0, 0, 0, 0, 10]));
        assert_eq!((mac("2:0:0:0:0"), mac("2:0:0:0:0:g")), (None, None));
    }
}
