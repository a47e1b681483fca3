//! Rule sets, as text that `ovs-ofctl` reads too.

use sluice_traffic::subtable_source;
use std::net::Ipv4Addr;

/// Prefix lengths of sources beyond 25 subtables: the upper ten bits tell sources apart, and the masks of no two
/// sources may meet before that.
const LONG_PREFIXES: std::ops::RangeInclusive<u16> = 12..=32;
/// Prefix lengths of destinations: all are in 10.0.0.0/8.
const DST_PREFIXES: u16 = 8;
/// Subtables up to which the seed's own rules do.
const BY_SEED: u16 = 25;

/// One rule for each of `n` subtables, each with a mask of its own, sending to port 2.
///
/// Up to 25 they are the cuckoo distributor's (`nw_src=i.0.0.0/(7+i)`). Beyond, masks differ in the lengths of source
/// and destination prefix and of the source port's mask, and priorities fall as destination prefixes grow: a lookup
/// then looks at shorter ones only before it finds its rule, so that a megaflow's mask is its rule's.
pub fn subtables(n: u16) -> String {
    (1..=n).map(|i| if n <= BY_SEED { by_seed(i, n) } else { by_lengths(i, n) } + "\n").collect()
}

/// The rules of [`subtables`] up to 25, each of them once for each of `rules` destinations from 10.0.0.0 on: as many
/// rules to a subtable.
pub fn many_a_subtable(subtables: u16, rules: u32) -> String {
    let rule = |i: u16, n: u32| {
        let (src, dst) = (Ipv4Addr::from(subtable_source(i, subtables)), Ipv4Addr::from(FIRST_DST + n));
        format!("{},nw_src={src}/{},nw_dst={dst},actions=output:2\n", protocol(i), 7 + i)
    };
    (1..=subtables.min(BY_SEED)).flat_map(|i| (0..rules).map(move |n| rule(i, n))).collect()
}

/// The first destination of generated flows.
const FIRST_DST: u32 = 0x0a00_0000;

fn protocol(i: u16) -> &'static str {
    if i == 1 { "tcp" } else { "udp" }
}

fn by_seed(i: u16, n: u16) -> String {
    format!("{},nw_src={}/{},actions=output:2", protocol(i), Ipv4Addr::from(subtable_source(i, n)), 7 + i)
}

fn by_lengths(i: u16, n: u16) -> String {
    let sources = LONG_PREFIXES.end() - LONG_PREFIXES.start() + 1;
    let (src_len, rest) = (LONG_PREFIXES.start() + (i - 1) % sources, (i - 1) / sources);
    let (dst_len, port_len) = (1 + rest % DST_PREFIXES, rest / DST_PREFIXES);
    let src = Ipv4Addr::from(subtable_source(i, n));
    let dst = Ipv4Addr::from(0x0a00_0000 & (!0 << (32 - u32::from(dst_len))));
    let port = match port_len {
        0 => String::new(),
        _ => {
            let mask = !0u16 << (16 - port_len);
            format!(",tp_src={:#x}/{mask:#x}", SOURCE_PORT & mask)
        }
    };
    let priority = 1000 - dst_len;
    format!("priority={priority},{},nw_src={src}/{src_len},nw_dst={dst}/{dst_len}{port},actions=output:2", protocol(i))
}

/// The source port of all generated flows.
const SOURCE_PORT: u16 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_are_the_seeds() {
        let rules = subtables(20);
        let lines: Vec<&str> = rules.lines().collect();
        assert_eq!(lines[0], "tcp,nw_src=1.0.0.0/8,actions=output:2");
        assert_eq!(lines[19], "udp,nw_src=20.0.0.0/27,actions=output:2");
    }

    #[test]
    fn a_subtable_may_have_many_rules() {
        let rules = many_a_subtable(20, 100);
        assert_eq!(rules.lines().count(), 2000);
        assert_eq!(rules.lines().last(), Some("udp,nw_src=20.0.0.0/27,nw_dst=10.0.0.99,actions=output:2"));
    }

    #[test]
    fn no_two_rules_have_a_mask_in_common() {
        let rules = subtables(500);
        let masks: std::collections::BTreeSet<String> = rules
            .lines()
            .map(|line| {
                let lengths = line.split(',').filter_map(|part| part.split_once('/').map(|(_, mask)| mask));
                format!("{} {}", line.contains("tcp"), lengths.collect::<Vec<_>>().join(" "))
            })
            .collect();
        assert_eq!(masks.len(), 500);
    }
}
