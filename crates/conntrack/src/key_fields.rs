//! Reading and writing the connection fields of a packet's key.

use crate::tuple::{Endpoint, Tuple};
use sluice_flow::PacketKey;
pub use sluice_flow::ct_state;
use sluice_flow::layout::{self, Span};
use sluice_packet::headers::ethertype;

/// Marks the packet as not tracked: the action `ct_clear`. Forget its `CachedConn`, too.
pub fn clear(key: &mut PacketKey) {
    key.set(layout::CT_STATE, &[0]);
    write(key, 0, 0, 0);
    write_original(key, None);
}

/// Marks the packet as tracked in `zone` and invalid.
pub fn invalid(key: &mut PacketKey, zone: u16) {
    set_state(key, ct_state::INVALID | ct_state::TRACKED);
    write(key, zone, 0, 0);
    write_original(key, None);
}

/// Whether the packet has an IP header, as far as it was read.
#[inline]
pub(crate) fn is_ip(key: &PacketKey) -> bool {
    matches!(key.number(layout::DL_TYPE) as u16, ethertype::IPV4 | ethertype::IPV6)
}

/// The state that an earlier pass wrote, 0 if none did.
#[inline]
pub(crate) fn state(key: &PacketKey) -> u8 {
    key.get(layout::CT_STATE)[0]
}

#[inline]
pub(crate) fn set_state(key: &mut PacketKey, state: u8) {
    key.set(layout::CT_STATE, &[state]);
}

#[inline]
pub(crate) fn zone(key: &PacketKey) -> u16 {
    let zone = &key.lines[0].0[layout::CT_ZONE.range()];
    u16::from_be_bytes([zone[0], zone[1]])
}

/// Writes zone, mark and label.
#[inline]
pub(crate) fn write(key: &mut PacketKey, zone: u16, mark: u32, label: u128) {
    key.set(layout::CT_ZONE, &zone.to_be_bytes());
    key.set(layout::CT_MARK, &mark.to_be_bytes());
    put(key, layout::CT_LABEL, &label.to_be_bytes());
}

/// Writes zone, mark, label and the original tuple of a connection.
#[inline]
pub(crate) fn write_all(key: &mut PacketKey, zone: u16, mark: u32, label: u128, tuple: &Tuple) {
    key.set(layout::CT_ZONE, &zone.to_be_bytes());
    key.set(layout::CT_MARK, &mark.to_be_bytes());
    key.set(layout::CT_LABEL, &label.to_be_bytes());
    let (src, dst) = ports(tuple);
    key.set(layout::CT_SRC, &tuple.src.addr);
    key.set(layout::CT_DST, &tuple.dst.addr);
    key.set(layout::CT_TP_SRC, &src.to_be_bytes());
    key.set(layout::CT_TP_DST, &dst.to_be_bytes());
    key.set(layout::CT_NW_PROTO, &[tuple.proto]);
    key.set(layout::CT_IS_IPV6, &[u8::from(tuple.v6)]);
}

/// The ports; ICMP has its type and code in their place.
#[inline]
fn ports(tuple: &Tuple) -> (u16, u16) {
    match tuple.is_icmp() {
        true => (u16::from(tuple.src.icmp_type), u16::from(tuple.src.icmp_code)),
        false => (tuple.src.port, tuple.dst.port),
    }
}

/// Sets a field whose line may be absent if the value is zero.
fn put(key: &mut PacketKey, span: Span, value: &[u8]) {
    if key.get(span) != value {
        key.set(span, value);
    }
}

/// Copies the connection fields from another key.
pub(crate) fn copy(to: &mut PacketKey, from: &PacketKey) {
    use layout::{CT_DST, CT_IS_IPV6, CT_LABEL, CT_MARK, CT_NW_PROTO, CT_SRC, CT_STATE, CT_TP_DST, CT_TP_SRC, CT_ZONE};
    [CT_STATE, CT_ZONE, CT_MARK].iter().for_each(|span| to.set(*span, from.get(*span)));
    let further = [CT_LABEL, CT_SRC, CT_DST, CT_TP_SRC, CT_TP_DST, CT_NW_PROTO, CT_IS_IPV6];
    further.iter().for_each(|span| put(to, *span, from.get(*span)));
}

/// Writes the original tuple, or clears it.
pub(crate) fn write_original(key: &mut PacketKey, tuple: Option<&Tuple>) {
    let none = Tuple::default();
    let tuple = tuple.unwrap_or(&none);
    let (src, dst) = ports(tuple);
    put(key, layout::CT_SRC, &tuple.src.addr);
    put(key, layout::CT_DST, &tuple.dst.addr);
    put(key, layout::CT_TP_SRC, &src.to_be_bytes());
    put(key, layout::CT_TP_DST, &dst.to_be_bytes());
    put(key, layout::CT_NW_PROTO, &[tuple.proto]);
    put(key, layout::CT_IS_IPV6, &[u8::from(tuple.v6)]);
}

/// The original tuple that an earlier pass wrote, for a packet like `like`; `None` if there is none. ICMP identifiers
/// are not in the key; they are the packet's.
pub(crate) fn original(key: &PacketKey, like: &Tuple) -> Option<Tuple> {
    let proto = key.get(layout::CT_NW_PROTO)[0];
    if proto == 0 || (key.get(layout::CT_IS_IPV6)[0] != 0) != like.v6 {
        return None;
    }
    let end = |addr: Span, port: Span| {
        let mut end = Endpoint { port: key.number(port) as u16, ..Endpoint::default() };
        end.addr.copy_from_slice(key.get(addr));
        end
    };
    let mut tuple = Tuple {
        src: end(layout::CT_SRC, layout::CT_TP_SRC),
        dst: end(layout::CT_DST, layout::CT_TP_DST),
        proto,
        zone: zone(key),
        v6: like.v6,
    };
    if like.is_icmp() {
        let kind = tuple.src.port as u8;
        tuple.src = Endpoint { port: like.src.port, icmp_type: kind, ..tuple.src };
        tuple.dst =
            Endpoint { port: like.dst.port, icmp_type: crate::conn_key::answer_type(like.v6, kind)?, ..tuple.dst };
    }
    Some(tuple)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back_and_clearing_leaves_no_trace() {
        let mut key = PacketKey::ZERO;
        let end = |n: u8, port| Endpoint { addr: [n; 16], port, ..Endpoint::default() };
        let tuple = Tuple { src: end(1, 7), dst: end(2, 8), v6: true, proto: 17, zone: 3 };
        set_state(&mut key, ct_state::NEW | ct_state::TRACKED);
        write(&mut key, 3, 0xdead_beef, 5 << 100);
        write_original(&mut key, Some(&tuple));
        assert_eq!((state(&key), zone(&key), key.number(layout::CT_MARK)), (0x21, 3, 0xdead_beef));
        assert_eq!(key.get(layout::CT_LABEL), (5u128 << 100).to_be_bytes());
        assert_eq!(original(&key, &tuple), Some(tuple));
        assert_eq!(original(&key, &Tuple { v6: false, ..tuple }), None);
        let mut at_once = PacketKey::ZERO;
        set_state(&mut at_once, ct_state::NEW | ct_state::TRACKED);
        write_all(&mut at_once, 3, 0xdead_beef, 5 << 100, &tuple);
        assert_eq!(at_once, key);
        clear(&mut key);
        assert_eq!(key, PacketKey::ZERO);
    }
}
