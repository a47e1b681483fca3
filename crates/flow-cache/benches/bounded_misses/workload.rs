//! Megaflows and packets: a tuple space explosion, and the megaflows that a classifier makes for an access list.

use crate::search::{Flow, Words};
use sluice_classifier::{Classifier, LATEST};
use sluice_flow::layout::{self, Span};
use sluice_flow::{FlowKey, Match};
use sluice_packet::headers::{ethertype, ip_proto};
use sluice_simd::hash::splitmix64;
use std::collections::HashSet;

/// Protocols to choose from.
const TCP_OR_UDP: [u8; 2] = [ip_proto::TCP, ip_proto::UDP];

/// Random numbers that are the same in every run.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        splitmix64(&mut self.0)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Megaflows, and how their packets are made.
pub struct Workload {
    pub name: String,
    pub flows: Vec<Flow>,
    /// The bits that vary from packet to packet.
    varies: Words,
}

fn words(key: &FlowKey) -> Words {
    let (first, second) = (key.lines[0].words(), key.lines[1].words());
    std::array::from_fn(|i| if i < 8 { first[i] } else { second[i - 8] })
}

/// The first `len` bits of a field's value with the last of them inverted, and their mask: packets that differ from a
/// rule first at that bit.
fn leave_at(key: &mut FlowKey, mask: &mut FlowKey, span: Span, len: u32) {
    let bytes = span.size;
    let was = u128::from_be_bytes(std::array::from_fn(|i| key.get(span).get(i).copied().unwrap_or(0)));
    let bits = !(u128::MAX.checked_shr(len).unwrap_or(0));
    let left = (was ^ 1 << (128 - len)) & bits;
    key.set(span, &left.to_be_bytes()[..bytes]);
    mask.set(span, &bits.to_be_bytes()[..bytes]);
}

impl Workload {
    /// The megaflows made for packets that match an allowed source, source port and destination port up to some bit:
    /// one for each combination of the bits at which they differ. `dims` is the number of such bits in each field.
    pub fn explosion(ipv6: bool, dims: [u32; 3]) -> Self {
        let (source, dl_type) =
            if ipv6 { (layout::IPV6_SRC, ethertype::IPV6) } else { (layout::NW_SRC, ethertype::IPV4) };
        let mut key = FlowKey::ZERO;
        key.set_number(layout::IN_PORT, 1);
        key.set_number(layout::DL_TYPE, dl_type.into());
        key.set_number(layout::NW_PROTO, ip_proto::TCP.into());
        let allowed = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1];
        key.set(source, &allowed[..source.size]);
        key.set_number(layout::TP_SRC, 12345);
        key.set_number(layout::TP_DST, 80);
        let mut exact = FlowKey::ZERO;
        [layout::IN_PORT, layout::RECIRC_ID, layout::DL_TYPE, layout::NW_PROTO, layout::NW_FRAG]
            .iter()
            .for_each(|&span| exact.get_mut(span).fill(0xff));
        let mut flows = Vec::new();
        for combination in 0..dims.iter().product::<u32>() {
            let (mut k, mut m) = (key.clone(), exact.clone());
            let mut rest = combination;
            for (span, n) in [source, layout::TP_SRC, layout::TP_DST].into_iter().zip(dims) {
                leave_at(&mut k, &mut m, span, span.size as u32 * 8 - rest % n);
                rest /= n;
            }
            flows.push(Flow { mask: words(&m), key: words(&k.and(&m)) });
        }
        // In random order, as packets come. In order, the subtables of a length would be neighbours and their sets
        // sparse.
        let mut random = Random(1);
        for i in (1..flows.len()).rev() {
            flows.swap(i, random.below(i as u64 + 1) as usize);
        }
        let name = format!("explosion {}", if ipv6 { "IPv6" } else { "IPv4" });
        Workload { name, varies: varying(ipv6), flows }
    }

    /// The megaflows that the classifier makes for packets near the rules of a random five-tuple access list.
    pub fn access_list(rules: u64, packets: usize) -> Self {
        let mut random = Random(rules);
        let mut classifier = Classifier::default();
        let mut matches = Vec::new();
        for i in 0..rules {
            let matching = random_rule(&mut random);
            classifier.insert(&matching, random.below(rules) as u32, 1, &[], i);
            matches.push(matching);
        }
        let mut seen = HashSet::new();
        let mut flows = Vec::new();
        for _ in 0..packets {
            let key = packet_near(&mut random, &matches);
            let mut looked_at = FlowKey::ZERO;
            [layout::IN_PORT, layout::RECIRC_ID, layout::DL_TYPE, layout::NW_FRAG]
                .iter()
                .for_each(|&span| looked_at.get_mut(span).fill(0xff));
            classifier.lookup(&key, LATEST, Some(&mut looked_at));
            let flow = Flow { mask: words(&looked_at), key: words(&key.and(&looked_at)) };
            if seen.insert((flow.mask, flow.key)) {
                flows.push(flow);
            }
        }
        Workload { name: format!("access list of {rules}"), varies: varying(false), flows }
    }

    pub fn masks(&self) -> usize {
        self.flows.iter().map(|flow| flow.mask).collect::<HashSet<_>>().len()
    }

    /// A packet of a random megaflow.
    pub fn hit(&self, random: &mut Random) -> Words {
        let flow = self.flows[random.below(self.flows.len() as u64) as usize];
        std::array::from_fn(|i| flow.key[i] | random.next() & self.varies[i] & !flow.mask[i])
    }

    /// A packet that agrees with some megaflow in every prefix field but has another protocol, so that it almost always
    /// misses.
    pub fn miss(&self, random: &mut Random) -> Words {
        let mut key = self.hit(random);
        let proto = layout::NW_PROTO.offset;
        key[proto / 8] |= 0xff << (proto % 8 * 8);
        key
    }
}

/// Addresses and ports.
fn varying(ipv6: bool) -> Words {
    let mut mask = FlowKey::ZERO;
    let addresses = if ipv6 { [layout::IPV6_SRC, layout::IPV6_DST] } else { [layout::NW_SRC, layout::NW_DST] };
    addresses.iter().chain(&[layout::TP_SRC, layout::TP_DST]).for_each(|&span| mask.get_mut(span).fill(0xff));
    words(&mask)
}

/// A rule of an access list: typical prefixes, a port, a prefix of a port range, or none.
fn random_rule(random: &mut Random) -> Match {
    let mut matching = Match::ANY;
    let mut set = |span: Span, value: u64, len: u32| {
        let width = span.size as u32 * 8;
        let all = u64::MAX >> (64 - width);
        let bits = all & !all.checked_shr(len).unwrap_or(0);
        matching.mask.set_number(span, bits);
        matching.key.set_number(span, value & bits);
    };
    set(layout::DL_TYPE, ethertype::IPV4.into(), 16);
    set(layout::NW_PROTO, TCP_OR_UDP[random.below(2) as usize].into(), 8);
    let lens = [0, 8, 12, 16, 20, 22, 24, 24, 27, 28, 30, 32, 32, 32];
    for span in [layout::NW_SRC, layout::NW_DST] {
        let address = 0x0a00_0000 | random.below(16) << 20 | random.below(16) << 12 | random.below(4096);
        set(span, address, lens[random.below(14) as usize]);
    }
    if random.below(4) == 0 {
        set(layout::TP_SRC, random.below(1 << 16), [6, 16][random.below(2) as usize]);
    }
    if random.below(4) != 0 {
        let port = [22, 53, 80, 443, 8080, 1024][random.below(6) as usize];
        set(layout::TP_DST, port, [16, 16, 12, 6][random.below(4) as usize]);
    }
    matching
}

/// A packet that a rule matches in most fields.
fn packet_near(random: &mut Random, rules: &[Match]) -> FlowKey {
    let rule = &rules[random.below(rules.len() as u64) as usize];
    let mut key = FlowKey::ZERO;
    key.set_number(layout::IN_PORT, 1);
    key.set_number(layout::DL_TYPE, ethertype::IPV4.into());
    key.set_number(layout::NW_PROTO, TCP_OR_UDP[random.below(2) as usize].into());
    for span in [layout::NW_SRC, layout::NW_DST, layout::TP_SRC, layout::TP_DST] {
        key.set_number(span, random.next() & u64::MAX >> (64 - span.size * 8));
        if random.below(8) != 0 {
            let (have, mask, want) = (key.number(span), rule.mask.number(span), rule.key.number(span));
            key.set_number(span, have & !mask | want);
        }
    }
    key
}
