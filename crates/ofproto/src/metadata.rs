//! What is known of a packet besides its bytes, as packets to and from controllers carry it.

use crate::tunnel::Tunnel;
use crate::xlate::ct::{CONNECTION, VALID};
use crate::xlate::protocol::ethertype_of;
use sluice_flow::FieldId::{self, *};
use sluice_flow::{FlowKey, Match, layout};
use sluice_packet::headers::ethertype;

/// What a controller is told of, if it is not zero. The port is always told. Source: OVS lib/flow.c, `flow_get_metadata`.
#[rustfmt::skip]
const TOLD: [FieldId; 19] = [
    TunId, TunFlags, TunSrc, TunDst, TunIpv6Src, TunIpv6Dst, TunGbpId, TunGbpFlags, TunErspanVer, TunErspanIdx,
    TunErspanDir, TunErspanHwid, TunGtpuFlags, TunGtpuMsgtype, Metadata, PktMark, CtZone, CtMark, CtLabel,
];

/// The fields of a connection's original tuple, by whether it is of IPv4.
const TUPLE4: [FieldId; 5] = [CtNwSrc, CtNwDst, CtNwProto, CtTpSrc, CtTpDst];
const TUPLE6: [FieldId; 5] = [CtIpv6Src, CtIpv6Dst, CtNwProto, CtTpSrc, CtTpDst];

/// What a controller is told of a packet.
pub(crate) fn told(key: &FlowKey) -> Match {
    let mut told = Match::ANY;
    let mut tell = |id: FieldId| told.set(id, id.field().get(key));
    tell(InPort);
    let registers = (0..16).filter_map(FieldId::reg);
    TOLD.into_iter().chain(registers).filter(|id| id.field().get(key) != 0).for_each(&mut tell);
    let state = key.number(layout::CT_STATE);
    if state != 0 {
        // By the Ethernet type it is known what the tuple means.
        [CtState, EthType].into_iter().for_each(&mut tell);
        if state & u64::from(VALID) != 0 && key.number(layout::CT_NW_PROTO) != 0 {
            match ethertype_of(key) {
                ethertype::IPV4 => TUPLE4.into_iter().for_each(tell),
                ethertype::IPV6 => TUPLE6.into_iter().for_each(tell),
                _ => {}
            }
        }
    }
    told
}

/// Takes over what a controller says of a packet, and nothing that its bytes say.
pub(crate) fn take_over(told: &Match, key: &mut FlowKey) {
    Tunnel::of(&told.key).put(key);
    key.lines[layout::REGS.line()] = told.key.lines[layout::REGS.line()];
    for span in CONNECTION.into_iter().chain([layout::IN_PORT, layout::METADATA, layout::PKT_MARK]) {
        key.set(span, told.key.get(span));
    }
}
