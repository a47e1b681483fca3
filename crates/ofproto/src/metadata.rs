//! The metadata of packets to and from controllers.

use crate::tunnel::Tunnel;
use crate::xlate::ct::{CONNECTION, VALID};
use crate::xlate::protocol::ethertype_of;
use sluice_flow::FieldId::{self, *};
use sluice_flow::{FlowKey, Match, layout};
use sluice_packet::headers::ethertype;

/// The fields that a packet-in carries if they are not zero, besides the port, which it always carries. Source: OVS
/// lib/flow.c, `flow_get_metadata`.
#[rustfmt::skip]
const FIELDS: [FieldId; 19] = [
    TunId, TunFlags, TunSrc, TunDst, TunIpv6Src, TunIpv6Dst, TunGbpId, TunGbpFlags, TunErspanVer, TunErspanIdx,
    TunErspanDir, TunErspanHwid, TunGtpuFlags, TunGtpuMsgtype, Metadata, PktMark, CtZone, CtMark, CtLabel,
];

/// The fields of a connection's original tuple, for IPv4 and IPv6.
const TUPLE4: [FieldId; 5] = [CtNwSrc, CtNwDst, CtNwProto, CtTpSrc, CtTpDst];
const TUPLE6: [FieldId; 5] = [CtIpv6Src, CtIpv6Dst, CtNwProto, CtTpSrc, CtTpDst];

/// The metadata of a packet, for a packet-in.
pub(crate) fn of_key(key: &FlowKey) -> Match {
    let mut metadata = Match::ANY;
    let mut add = |id: FieldId| metadata.set(id, id.field().get(key));
    add(InPort);
    let registers = (0..16).filter_map(FieldId::reg);
    FIELDS.into_iter().chain(registers).filter(|id| id.field().get(key) != 0).for_each(&mut add);
    for id in key.tun_metadata.fields().filter_map(FieldId::tun_metadata) {
        metadata.set_masked_wide(id, id.field().get_wide(key), id.field().all_ones_wide());
    }
    let mut add = |id: FieldId| metadata.set(id, id.field().get(key));
    let state = key.number(layout::CT_STATE);
    if state != 0 {
        // The Ethernet type tells the meaning of the tuple.
        [CtState, EthType].into_iter().for_each(&mut add);
        if state & u64::from(VALID) != 0 && key.number(layout::CT_NW_PROTO) != 0 {
            match ethertype_of(key) {
                ethertype::IPV4 => TUPLE4.into_iter().for_each(add),
                ethertype::IPV6 => TUPLE6.into_iter().for_each(add),
                _ => {}
            }
        }
    }
    metadata
}

/// Copies a controller's metadata to a key. Fields that come from the packet's bytes stay.
pub(crate) fn copy_to(metadata: &Match, key: &mut FlowKey) {
    Tunnel::of(&metadata.key).put(key);
    key.lines[layout::REGS.line()] = metadata.key.lines[layout::REGS.line()];
    for span in CONNECTION.into_iter().chain([layout::IN_PORT, layout::METADATA, layout::PKT_MARK]) {
        key.set(span, metadata.key.get(span));
    }
}
