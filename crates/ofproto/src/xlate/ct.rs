//! Connection tracking: `ct(…)`, `ct_clear`, `resubmit(…,ct)`.
//!
//! The fields of a connection are valid only in the pass after `ct(table=…)`. In all others they are cleared, even if
//! the datapath's packet still has them.

use super::{ActionList, Translator};
use crate::features::Feature;
use crate::recirc::FrozenActions;
use crate::trace_passes::Forked;
use sluice_action::Action;
use sluice_action::ct::{Ct, Helper, Masked, NatSpec, NatTarget, PortChoice};
use sluice_flow::ct_state;
use sluice_flow::layout::{self, Span};
use sluice_flow::{FieldId, FlowKey};
use sluice_ofp::ofpact::{Conntrack, ConntrackZone, Nat, NatAddresses, NatKind};
use sluice_packet::headers::ethertype;

/// The state of a valid connection has one of these bits. Source: OVS lib/flow.h, CS_VALID_MASK.
pub(crate) const VALID: u8 = ct_state::NEW | ct_state::ESTABLISHED | ct_state::REPLY;

/// All fields of a connection.
pub(crate) const CONNECTION: [Span; 10] = [
    layout::CT_STATE,
    layout::CT_ZONE,
    layout::CT_MARK,
    layout::CT_LABEL,
    layout::CT_SRC,
    layout::CT_DST,
    layout::CT_TP_SRC,
    layout::CT_TP_DST,
    layout::CT_NW_PROTO,
    layout::CT_IS_IPV6,
];

/// Clears the fields of a connection: the packet is untracked.
pub(crate) fn clear(key: &mut FlowKey) {
    CONNECTION.into_iter().for_each(|span| key.get_mut(span).fill(0));
}

/// Exchanges the five-tuple of the packet with the original tuple of its connection.
fn swap_tuple(key: &mut FlowKey, v4: bool) {
    let (src, dst) = if v4 { (layout::NW_SRC, layout::NW_DST) } else { (layout::IPV6_SRC, layout::IPV6_DST) };
    let pairs = [
        (layout::NW_PROTO, layout::CT_NW_PROTO),
        (src, Span { size: src.size, ..layout::CT_SRC }),
        (dst, Span { size: dst.size, ..layout::CT_DST }),
        (layout::TP_SRC, layout::CT_TP_SRC),
        (layout::TP_DST, layout::CT_TP_DST),
    ];
    for (a, b) in pairs {
        let mut kept = [0; 16];
        kept[..a.size].copy_from_slice(key.get(a));
        let other = key.clone();
        key.get_mut(a).copy_from_slice(other.get(b));
        key.get_mut(b).copy_from_slice(&kept[..a.size]);
    }
}

impl Translator<'_> {
    /// `ct(…)`: the datapath tracks the packet. With a table, a copy of the packet recirculates and goes on in that
    /// table; the packet itself goes on untracked.
    pub(super) fn conntrack(&mut self, ct: &Conntrack, last: bool) {
        let zone = match ct.zone {
            ConntrackZone::Number(zone) => zone,
            ConntrackZone::Field(field) => {
                self.look_at_bits(field);
                field.get(self.flow) as u16
            }
        };
        // The mask starts empty, so that it holds only what the nested actions write, not what was matched before.
        let matched = [layout::CT_MARK, layout::CT_LABEL].map(|span| (span, self.wc.get(span).to_vec()));
        self.commit();
        self.ct_nat = None;
        matched.iter().for_each(|(span, _)| self.wc.get_mut(*span).fill(0));
        self.actions(ActionList::of(&ct.actions), last);
        let action = self.ct_action(ct, zone);
        matched.iter().for_each(|(span, mask)| self.wc.set(*span, mask));
        self.emit(Action::Ct(Box::new(action)));
        if let Some(table) = ct.table {
            self.conntracked = true;
            self.recirculate_and_fork(table, zone);
        }
        self.ct_nat = None;
        clear(self.flow);
        self.detail("Sets the packet to an untracked state, and clears all the conntrack fields.");
        self.conntracked = false;
    }

    fn ct_action(&self, ct: &Conntrack, zone: u16) -> Ct {
        let field = |field: FieldId| {
            let mask = field.field().get(self.wc);
            (mask != 0).then(|| Masked { value: field.field().get(self.flow) & mask, mask })
        };
        Ct {
            zone,
            commit: ct.commit,
            force: ct.force,
            mark: field(FieldId::CtMark).map(|m| Masked { value: m.value as u32, mask: m.mask as u32 }),
            label: field(FieldId::CtLabel),
            nat: self.ct_nat.as_ref().map(nat_spec),
            helper: match ct.alg {
                21 => Some(Helper::Ftp),
                69 => Some(Helper::Tftp),
                _ => None,
            },
        }
    }

    /// Recirculates a copy, which goes on in `table`. The current list goes on after it.
    fn recirculate_and_fork(&mut self, table: u8, zone: u16) {
        if !self.charge(self.action_set.len() + self.stack.len()) {
            return;
        }
        self.look_at_options();
        let frozen = self.state_to_freeze(table, FrozenActions::default(), self.action_set.clone());
        let Some(recirculation) = self.freeze(frozen) else { return };
        self.emit(Action::Recirc(recirculation.id));
        let mut forked = Forked { recirc_id: recirculation.id, flow: self.flow.clone(), nat: self.ct_nat };
        forked.flow.set_number(layout::CT_ZONE, zone.into());
        if let Some(tracer) = &mut self.tracer {
            tracer.forked.push(forked);
        }
        self.detail(&format!(
            "A clone of the packet is forked to recirculate. The forked pipeline will be resumed at table {table}."
        ));
    }

    /// `ct_clear`.
    pub(super) fn conntrack_clear(&mut self) {
        if self.conntracked {
            self.forget_connection();
            if self.can(Feature::CtClear) {
                self.emit(Action::CtClear);
            }
        }
    }

    /// Makes the key untracked.
    pub(super) fn forget_connection(&mut self) {
        self.conntracked = false;
        clear(self.flow);
    }

    /// Restores whether the packet was tracked when it was frozen.
    pub(super) fn thaw_connection(&mut self, conntracked: bool) {
        self.conntracked = conntracked;
        if !conntracked {
            clear(self.flow);
        }
    }

    /// Whether the key has a valid connection; adds the bits that tell to the mask.
    pub(super) fn has_valid_connection(&mut self) -> bool {
        self.look_at(layout::CT_STATE, VALID.into());
        self.number(layout::CT_STATE) & u64::from(VALID) != 0
    }

    /// Exchanges the tuples of packet and connection, in key and mask, for a search. False without a connection.
    pub(super) fn swap_tuple(&mut self) -> bool {
        // OVS leaves these bits out of the mask, so its megaflow also matches packets without a connection.
        self.look_at(layout::CT_NW_PROTO, 0xff);
        if self.number(layout::CT_NW_PROTO) == 0 || !self.is_ip() {
            self.error(|| "resubmit(ct) with non-tracked or non-IP packet!".to_owned());
            return false;
        }
        self.swap_tuple_back();
        true
    }

    pub(super) fn swap_tuple_back(&mut self) {
        let v4 = self.ethertype() == ethertype::IPV4;
        swap_tuple(self.flow, v4);
        swap_tuple(self.wc, v4);
    }
}

/// The tracker's form of `nat(…)`.
fn nat_spec(nat: &Nat) -> NatSpec {
    let v4 = |addr: std::net::Ipv4Addr| {
        let mut out = [0; 16];
        out[..4].copy_from_slice(&addr.octets());
        out
    };
    let (v6, addrs) = match nat.addresses {
        Some(NatAddresses::V4(first, last)) => (false, (v4(first), v4(last.max(first)))),
        Some(NatAddresses::V6(first, last)) => (true, (first.octets(), last.max(first).octets())),
        None => (false, Default::default()),
    };
    let (first, last) = nat.ports;
    NatSpec {
        target: nat.kind.map(|kind| match kind {
            NatKind::Src => NatTarget::Src,
            NatKind::Dst => NatTarget::Dst,
        }),
        v6,
        addrs,
        // As in OVS, ports count only together with an address.
        ports: (nat.addresses.is_some() && first != 0).then_some((first, last.max(first))),
        choice: match (nat.hash, nat.random) {
            (true, _) => PortChoice::Hash,
            (_, true) => PortChoice::Random,
            _ => PortChoice::Unsaid,
        },
        persistent: nat.persistent,
    }
}
