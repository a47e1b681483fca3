//! Edits against what they mean: the key changes as the action says, checksums stay as right or wrong as they were,
//! and no other byte moves.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use sluice_action::{Action, Header, MaskedField, edit};
use sluice_flow::layout::{self, Span};
use sluice_flow::{FlowKey, Metadata, PacketKey, extract};
use sluice_packet::edit::EditError;
use sluice_packet::{Ip, Layers, VlanLimit};
use sluice_testkit::arbitrary::{frames, packets};
use sluice_testkit::frame;
use sluice_testkit::plain_checksum::{crc32c, internet};
use sluice_testkit::pool::TestPool;
use std::cell::RefCell;

/// The headers and their fields as the key has them.
const HEADERS: &[(Header, &[Span])] = {
    use layout::*;
    &[
        (Header::Ethernet, &[DL_SRC, DL_DST]),
        (Header::Ipv4, &[NW_SRC, NW_DST, NW_TOS, NW_TTL]),
        (Header::Ipv6, &[IPV6_SRC, IPV6_DST, IPV6_LABEL, NW_TOS, NW_TTL]),
        (Header::Arp, &[NW_SRC, NW_DST, NW_PROTO, ARP_SHA, ARP_THA]),
        (Header::Nd, &[ND_TARGET, ARP_SHA, ARP_THA, ND_RESERVED, TCP_FLAGS]),
        (Header::Tcp, &[TP_SRC, TP_DST]),
        (Header::Udp, &[TP_SRC, TP_DST]),
        (Header::Sctp, &[TP_SRC, TP_DST]),
        (Header::Icmp, &[TP_SRC, TP_DST]),
        (Header::Icmpv6, &[TP_SRC, TP_DST]),
        (Header::Mpls, &[MPLS0]),
    ]
};

/// The bits a field has in the packet, of those it has in the key.
fn wire_bits(header: Header, span: Span) -> [u8; 16] {
    let mut bits = [0; 16];
    match (header, span) {
        (Header::Ipv6, layout::IPV6_LABEL) => bits[..4].copy_from_slice(&[0, 0x0f, 0xff, 0xff]),
        (Header::Icmp | Header::Icmpv6, _) | (Header::Nd, layout::TCP_FLAGS) => bits[1] = 0xff,
        _ => bits[..span.size].fill(0xff),
    }
    bits
}

fn masks() -> impl Strategy<Value = [u8; 16]> {
    prop_oneof![3 => Just([0xff; 16]), 1 => Just([0; 16]), 2 => any::<[u8; 16]>()]
}

fn values() -> impl Strategy<Value = [u8; 16]> {
    prop_oneof![Just([0; 16]), Just([0xff; 16]), any::<[u8; 16]>()]
}

fn set_of(header: Header, spans: &'static [Span]) -> impl Strategy<Value = (Header, Vec<MaskedField>)> {
    prop::sample::subsequence(spans, 1..=spans.len())
        .prop_flat_map(|spans| {
            let n = spans.len();
            (Just(spans), prop::collection::vec((values(), masks()), n))
        })
        .prop_map(move |(spans, bits)| {
            // Masks cover the field in the key, which may be wider than in the packet.
            let fields = spans.into_iter().zip(bits).map(|(span, (value, mask))| {
                let mask: [u8; 16] = std::array::from_fn(|i| if i < span.size { mask[i] } else { 0 });
                MaskedField { span, value: std::array::from_fn(|i| value[i] & mask[i]), mask }
            });
            (header, fields.collect())
        })
}

fn sets() -> impl Strategy<Value = (Header, Vec<MaskedField>)> {
    select(HEADERS).prop_flat_map(|(header, spans)| set_of(header, spans))
}

/// A set of a header the packet has, if it has one besides Ethernet.
fn fitting_sets() -> impl Strategy<Value = (Vec<u8>, Header, Vec<MaskedField>)> {
    (frames(), any::<Index>()).prop_flat_map(|(frame, which)| {
        let fitting: Vec<_> = HEADERS.iter().filter(|(header, _)| has(&frame, *header)).collect();
        let (header, spans) = *fitting[which.index(fitting.len())];
        (Just(frame), set_of(header, spans)).prop_map(|(frame, (header, fields))| (frame, header, fields))
    })
}

/// The bytes after `action`, and how it went.
fn edited(bytes: &[u8], action: &Action) -> (Vec<u8>, Result<(), EditError>) {
    thread_local!(static POOL: RefCell<TestPool> = RefCell::default());
    POOL.with_borrow_mut(|pool| {
        let mut packet = pool.packet(bytes);
        let result = edit(action, &mut packet, VlanLimit::MAX);
        (pool.take_bytes(packet), result)
    })
}

fn key_of(bytes: &[u8]) -> FlowKey {
    let mut key = PacketKey::ZERO;
    extract(bytes, &Metadata::of_port(1), &mut key).unwrap();
    FlowKey::of_packet(&key)
}

fn l4_of(layers: &Layers) -> Option<(Ip, u8, usize, usize)> {
    let (proto, at) = layers.l4()?;
    let ip = layers.ip?;
    Some((ip, proto, at, ip.end - at))
}

/// Whether the packet has the header, whole.
fn has(bytes: &[u8], header: Header) -> bool {
    let Some(layers) = Layers::of(bytes) else { return false };
    let l4 =
        |wanted: u8, minimum: usize| matches!(l4_of(&layers), Some((_, p, _, size)) if p == wanted && size >= minimum);
    let l4_bytes = || l4_of(&layers).map(|(_, _, at, size)| &bytes[at..at + size]);
    match header {
        Header::Ethernet => true,
        Header::Ipv4 => layers.ip.is_some_and(|ip| !ip.v6),
        Header::Ipv6 => layers.ip.is_some_and(|ip| ip.v6),
        Header::Arp => {
            let arp = &bytes[layers.l3..];
            [0x0806, 0x8035].contains(&layers.ethertype) && arp.len() >= 28 && arp[..6] == [0, 1, 8, 0, 6, 4]
        }
        Header::Tcp => {
            l4(6, 20)
                && l4_bytes()
                    .is_some_and(|l4| (5..=15).contains(&(l4[12] >> 4)) && usize::from(l4[12] >> 4) * 4 <= l4.len())
        }
        Header::Udp => l4(17, 8),
        Header::Sctp => l4(132, 12),
        // As OVS, either name will do for either protocol.
        Header::Icmp | Header::Icmpv6 => l4(1, 8) || l4(58, 8),
        Header::Nd => l4(58, 24) && l4_bytes().is_some_and(|l4| [135, 136].contains(&l4[0]) && l4[1] == 0),
        Header::Mpls => layers.labels > 0,
        _ => false,
    }
}

/// Where a set of the header may change bytes.
fn may_change(bytes: &[u8], header: Header) -> Vec<std::ops::Range<usize>> {
    let layers = Layers::of(bytes).unwrap();
    let l3 = layers.l3;
    let mut ranges = match header {
        Header::Ethernet => vec![0..6, 6..12],
        Header::Mpls => vec![layers.l2_end..layers.l2_end + 2, layers.l2_end + 2..layers.l2_end + 4],
        // The operation's upper byte too: it is cleared when the lower one is written whole.
        Header::Arp => vec![l3 + 6..l3 + 8, l3 + 8..l3 + 28],
        Header::Ipv4 => vec![l3 + 1..l3 + 2, l3 + 8..l3 + 9, l3 + 10..l3 + 20],
        Header::Ipv6 => vec![l3..l3 + 4, l3 + 7..l3 + 40],
        _ => vec![],
    };
    if let Some((_, proto, at, size)) = l4_of(&layers) {
        ranges.push(match proto {
            6 => at + 16..at + 18,
            17 => at + 6..at + 8,
            132 => at + 8..at + 12,
            _ => at + 2..at + 4,
        });
        ranges.push(match header {
            Header::Tcp | Header::Udp | Header::Sctp => at..at + 4,
            Header::Icmp | Header::Icmpv6 => at..at + 2,
            Header::Nd => at + 4..at + size,
            _ => at..at,
        });
    }
    ranges
}

/// How wrong each checksum is; 0 is right. Those the packet does not have, or says it has not, are left out.
///
/// `layers` is taken before the edit, as an edit of the ICMPv6 type or of a label changes what is found.
fn errors(bytes: &[u8], layers: &Layers) -> Vec<(&'static str, u32)> {
    let mut errors = Vec::new();
    let Some(ip) = layers.ip else { return errors };
    let header = &bytes[layers.l3..];
    if !ip.v6 {
        let size = usize::from(header[0] & 15) * 4;
        errors.push(("IPv4", u32::from(internet(&header[..size])) % 0xffff));
    }
    let Some((_, proto, at, size)) = l4_of(layers) else { return errors };
    let l4 = &bytes[at..ip.end];
    let dst = if ip.rerouted { [0; 16] } else { *header[24..].first_chunk::<16>().unwrap_or(&[0; 16]) };
    let addresses = if ip.v6 { [&header[8..24], &dst].concat() } else { header[12..20].to_vec() };
    let pseudo = [&addresses[..], &(l4.len() as u32).to_be_bytes(), &[0, proto]].concat();
    let with_pseudo = u32::from(internet(&[&pseudo, l4].concat())) % 0xffff;
    match proto {
        6 if size >= 20 => errors.push(("TCP", with_pseudo)),
        17 if size >= 8 && l4[6..8] != [0, 0] => errors.push(("UDP", with_pseudo)),
        58 if size >= 4 && ip.v6 => errors.push(("ICMPv6", with_pseudo)),
        1 | 58 if size >= 4 => errors.push(("ICMP", u32::from(internet(l4)) % 0xffff)),
        132 if size >= 12 => {
            let without = [&l4[..8], &[0; 4], &l4[12..]].concat();
            errors.push(("SCTP", u32::from_le_bytes(*l4[8..].first_chunk().unwrap()) ^ crc32c(&without)));
        }
        _ => {}
    }
    errors
}

/// What the key should be after the edit; `None` where the key cannot tell.
fn patched(bytes: &[u8], before: &FlowKey, header: Header, fields: &[MaskedField]) -> Option<FlowKey> {
    let layers = Layers::of(bytes).unwrap();
    let mut key = before.clone();
    for field in fields {
        let (old, span) = (before.get(field.span).to_vec(), field.span);
        let wire = wire_bits(header, span);
        let mask: [u8; 16] = std::array::from_fn(|i| field.mask[i] & wire[i]);
        let new: Vec<u8> = (0..span.size).map(|i| old[i] & !mask[i] | field.value[i] & mask[i]).collect();
        match (header, span) {
            // An operation above 255 has no place in the key.
            (Header::Arp, layout::NW_PROTO) if bytes[layers.l3 + 6] != 0 => return None,
            // Another option type moves the address; and the key has no target if an option comes twice.
            (Header::Nd, layout::TCP_FLAGS | layout::ND_TARGET | layout::ARP_SHA | layout::ARP_THA) => {
                let options = &bytes[layers.l4()?.1 + 24..layers.ip?.end];
                let kind = options.first().copied().unwrap_or(0);
                let alone = options.len() == 8 && options[1] == 1;
                match span {
                    layout::ARP_SHA if alone && kind == 1 => {}
                    layout::ARP_THA if alone && kind == 2 => {}
                    layout::ND_TARGET if options.is_empty() || alone => {}
                    _ => return None,
                }
            }
            // Without the bottom-of-stack bit what follows is read as labels too.
            (Header::Mpls, _) if mask[2] & 1 != 0 => return None,
            _ => {}
        }
        key.set(span, &new);
    }
    // Another type or code of ICMPv6 may become or cease to be neighbour discovery, which has more fields.
    let is_nd = |key: &FlowKey| matches!(key.number(layout::TP_SRC), 135 | 136) && key.number(layout::NW_PROTO) == 58;
    let may_change = matches!(header, Header::Icmp | Header::Icmpv6) && (is_nd(before) || is_nd(&key));
    (!may_change).then_some(key)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn a_set_changes_the_key_as_it_says((frame, header, fields) in fitting_sets()) {
        let before = key_of(&frame);
        let action = Action::Set { header, fields: fields.clone().into() };
        let (after, result) = edited(&frame, &action);
        prop_assert_eq!(result, Ok(()));
        if let Some(want) = patched(&frame, &before, header, &fields) {
            prop_assert_eq!(key_of(&after), want, "{:?} {:?} {:02x?} -> {:02x?}", header, fields, frame, after);
        }
    }

    #[test]
    fn a_set_keeps_checksums_as_they_were((frame, header, fields) in fitting_sets(), damage in any::<u16>()) {
        let mut frame = frame;
        let layers = Layers::of(&frame).unwrap();
        // Half of the packets come with a wrong checksum somewhere.
        if damage & 1 != 0 && let Some(last) = frame.last_mut() {
            *last ^= damage.to_be_bytes()[0];
        }
        let (after, _) = edited(&frame, &Action::Set { header, fields: fields.into() });
        prop_assert_eq!(errors(&after, &layers), errors(&frame, &layers), "{:?} {:02x?} -> {:02x?}", header, frame, after);
    }

    #[test]
    fn a_set_moves_no_other_byte(packet in packets(), (header, fields) in sets()) {
        let (after, result) = edited(&packet, &Action::Set { header, fields: fields.into() });
        prop_assert_eq!(after.len(), packet.len());
        if !has(&packet, header) {
            prop_assert!(after == packet, "{header:?} is not there");
            let is_l4 = matches!(header, Header::Tcp | Header::Udp | Header::Sctp | Header::Icmp | Header::Icmpv6 | Header::Nd);
            let is_runt = packet.len() < 14;
            prop_assert_eq!(result.is_ok(), !is_runt && (is_l4 || header == Header::Ethernet));
            return Ok(());
        }
        let ranges = may_change(&packet, header);
        let l3 = Layers::of(&packet).unwrap().l3;
        if header == Header::Arp {
            prop_assert!(after[l3 + 6] == packet[l3 + 6] || after[l3 + 6] == 0);
        }
        if header == Header::Ipv6 {
            prop_assert_eq!(after[l3] >> 4, packet[l3] >> 4, "the version");
        }
        for i in (0..packet.len()).filter(|&i| packet[i] != after[i]) {
            prop_assert!(ranges.iter().any(|range| range.contains(&i)), "{:?} changed byte {}: {:02x?}", header, i, packet);
        }
    }

    #[test]
    fn pushing_and_popping_insert_and_remove(packet in packets(), tci: u16, lse: u32, ethertype: u16) {
        let Some(layers) = Layers::of(&packet) else {
            prop_assert_eq!(edited(&packet, &Action::PushVlan { tpid: 0x8100, tci }).1, Err(EditError::NoHeader));
            prop_assert_eq!(edited(&packet, &Action::PushMpls { ethertype: 0x8847, lse }).1, Err(EditError::NoHeader));
            return Ok(());
        };
        let (tagged, result) = edited(&packet, &Action::PushVlan { tpid: 0x88a8, tci: tci | 0x1000 });
        prop_assert_eq!(result, Ok(()));
        let mut want = packet.clone();
        want.splice(12..12, [[0x88, 0xa8], (tci & !0x1000).to_be_bytes()].concat());
        prop_assert_eq!(&tagged, &want);
        prop_assert_eq!(edited(&tagged, &Action::PopVlan), (packet.clone(), Ok(())));
        if layers.vlans == 0 && !(packet.len() >= 18 && matches!(packet[12..14], [0x81, 0x00] | [0x88, 0xa8])) {
            prop_assert_eq!(edited(&packet, &Action::PopVlan), (packet.clone(), Err(EditError::NoHeader)));
        }

        let (labelled, result) = edited(&packet, &Action::PushMpls { ethertype: 0x8847, lse });
        prop_assert_eq!(result, Ok(()));
        let mut want = packet.clone();
        want[layers.l2_end - 2..layers.l2_end].copy_from_slice(&[0x88, 0x47]);
        want.splice(layers.l2_end..layers.l2_end, lse.to_be_bytes());
        prop_assert_eq!(&labelled, &want);
        let (popped, result) = edited(&labelled, &Action::PopMpls { ethertype });
        prop_assert_eq!(result, Ok(()));
        let mut want = packet.clone();
        want[layers.l2_end - 2..layers.l2_end].copy_from_slice(&ethertype.to_be_bytes());
        prop_assert_eq!(&popped, &want);
        if layers.labels == 0 {
            prop_assert_eq!(edited(&packet, &Action::PopMpls { ethertype }), (packet.clone(), Err(EditError::NoHeader)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Wherever a frame ends, a header is there whole and set, or not touched.
    #[test]
    fn a_header_cut_short_is_not_touched(frame in frames()) {
        let full = [0xff; 16];
        for (header, spans) in HEADERS {
            let field = |span: &Span| {
                let bits: [u8; 16] = std::array::from_fn(|i| if i < span.size { full[i] } else { 0 });
                MaskedField { span: *span, value: bits, mask: bits }
            };
            let action = Action::Set { header: *header, fields: spans.iter().map(field).collect() };
            for end in 0..frame.len() {
                let cut = &frame[..end];
                if !has(cut, *header) {
                    prop_assert_eq!(edited(cut, &action).0, cut, "{:?} is not there", header);
                }
            }
        }
    }
}

/// The sum that comes out as zero is written as the other zero, for zero says that there is none.
#[test]
fn no_edit_takes_a_udp_checksum_away() {
    let bytes = frame::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).payload(b"x").build();
    let layers = Layers::of(&bytes).unwrap();
    let (_, _, l4, _) = l4_of(&layers).unwrap();
    for port in 0..=u16::MAX {
        let mut value = [0; 16];
        value[..2].copy_from_slice(&port.to_be_bytes());
        let mut mask = [0; 16];
        mask[..2].fill(0xff);
        let fields = Box::new([MaskedField { span: layout::TP_SRC, value, mask }]);
        let (after, result) = edited(&bytes, &Action::Set { header: Header::Udp, fields });
        assert_eq!(result, Ok(()));
        assert_ne!(after[l4 + 6..l4 + 8], [0, 0], "port {port}");
        assert_eq!(errors(&after, &layers), errors(&bytes, &layers), "port {port}");
    }
}

#[test]
fn without_headroom_nothing_is_pushed() {
    let mut pool = TestPool::new();
    let mut packet = pool.packet(&frame::udp4([10, 0, 0, 1], [10, 0, 0, 2], 1, 2));
    let headroom = packet.frame.headroom() as u16;
    packet.frame.push_front(headroom - 3).unwrap();
    let before = packet.bytes().to_vec();
    for push in [Action::PushVlan { tpid: 0x8100, tci: 5 }, Action::PushMpls { ethertype: 0x8847, lse: 5 }] {
        assert_eq!(edit(&push, &mut packet, VlanLimit::MAX), Err(EditError::NoHeadroom));
    }
    assert_eq!(pool.take_bytes(packet), before);
}

/// A label goes in front of a tag that is not read, and takes the place of its type, as in Open vSwitch.
#[test]
fn a_label_goes_behind_the_tags_that_are_read() {
    let mut pool = TestPool::new();
    let one = VlanLimit::from_setting(1);
    for (limit, label_at) in [(one.after_push(-1), 14), (one, 18), (one.after_push(1), 22)] {
        let bytes = frame::ethernet().vlan(5).vlan(6).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).build();
        let mut packet = pool.packet(&bytes);
        assert_eq!(edit(&Action::PushMpls { ethertype: 0x8847, lse: 0x0014_0140 }, &mut packet, limit), Ok(()));
        let after = pool.take_bytes(packet);
        assert_eq!(after[..label_at - 2], bytes[..label_at - 2]);
        assert_eq!(after[label_at - 2..label_at + 4], [0x88, 0x47, 0x00, 0x14, 0x01, 0x40]);
        assert_eq!(after[label_at + 4..], bytes[label_at..]);
    }
}

#[test]
fn a_udp_checksum_that_is_not_there_stays_away() {
    let field = |span: Span, value: [u8; 16]| MaskedField { span, value, mask: [0xff; 16] };
    let bytes = frame::ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).no_checksum().payload(b"x").build();
    let address = Action::Set { header: Header::Ipv4, fields: [field(layout::NW_DST, [7; 16])].into() };
    let port = Action::Set { header: Header::Udp, fields: [field(layout::TP_DST, [7; 16])].into() };
    let (after, _) = edited(&edited(&bytes, &address).0, &port);
    assert_eq!(after[14 + 20 + 6..14 + 20 + 8], [0, 0]);
    assert_eq!(after[14 + 20 + 2..14 + 20 + 4], [7, 7]);
}
