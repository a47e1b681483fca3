//! OpenFlow actions and instructions, with Nicira's extensions, as Open vSwitch 3.1 has them.
//!
//! Two spellings of one thing stay two variants where Open vSwitch prints them back as they were given (`load` and
//! `set_field`, `mod_vlan_vid` and `set_vlan_vid`), so what is printed is what was written.

mod action_type;
mod params;
mod table;
mod values;

pub use action_type::{ActionType, Arg, Code, Instruction, Number, Show, Text, vendor};
pub use params::{
    Bundle, BundleAlgorithm, Conntrack, ConntrackZone, ControllerAction, HashFields, Learn, LearnSource, LearnSpec,
    LearnTarget, Multipath, MultipathAlgorithm, Nat, NatAddresses, NatKind, NshProperty, PacketInReason, Sample,
    SampleDirection, SetOption,
};
pub use table::{ACTIONS, ActionId};
pub use values::{ARGS_MAX, Value, Values};

use sluice_flow::{FieldId, Mac, OfPort, SubField};
use std::net::Ipv4Addr;

/// An action or instruction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OfAction {
    /// `output:PORT`, `NORMAL`, `FLOOD`, `LOCAL` …: send it out of a port. To the controller, at most `max_len` bytes.
    Output {
        /// Where to.
        port: OfPort,
        /// Bytes for a controller; 0 for other ports.
        max_len: u16,
    },
    /// `output(port=PORT,max_len=N)`: send at most N bytes of it.
    OutputTrunc {
        /// Where to.
        port: OfPort,
        /// Bytes, at least 14.
        max_len: u32,
    },
    /// `output:FIELD[…]`: send it out of the port whose number these bits hold.
    OutputReg {
        /// The number.
        src: SubField,
        /// Bytes for a controller.
        max_len: u16,
    },
    /// `controller(…)`: send it to a controller, with more options than `Output` has.
    Controller(Box<ControllerAction>),
    /// `enqueue:PORT:QUEUE`.
    Enqueue {
        /// Where to.
        port: OfPort,
        /// In which queue.
        queue: u32,
    },
    /// `group:ID`.
    Group(u32),
    /// `bundle(…)` and `bundle_load(…)`: choose a member port by a hash.
    Bundle(Box<Bundle>),

    /// `set_field:VALUE[/MASK]->FIELD`.
    SetField {
        /// Which field.
        field: FieldId,
        /// Its new value; zero outside the mask.
        value: u128,
        /// The bits to change; all of the field's if the text gives no mask.
        mask: u128,
    },
    /// `set_field:VALUE[/MASK]->tun_metadata0`: as before, of a tunnel's option.
    SetOption(Box<SetOption>),
    /// `load:VALUE->FIELD[…]`.
    Load {
        /// Which bits.
        dst: SubField,
        /// Their new value.
        value: u128,
    },
    /// `move:FIELD[…]->FIELD[…]`.
    Move {
        /// From.
        src: SubField,
        /// To; as many bits.
        dst: SubField,
    },
    /// `mod_vlan_vid:VID` (which pushes a tag if there is none) or `set_vlan_vid:VID`.
    SetVlanVid {
        /// VLAN id.
        vid: u16,
        /// Whether to push a tag onto a packet without one.
        push_if_needed: bool,
    },
    /// `mod_vlan_pcp:PCP` or `set_vlan_pcp:PCP`.
    SetVlanPcp {
        /// Priority.
        pcp: u8,
        /// Whether to push a tag onto a packet without one.
        push_if_needed: bool,
    },
    /// `strip_vlan`: take off the outer tag.
    StripVlan,
    /// `pop_vlan`: the same.
    PopVlan,
    /// `push_vlan:TPID`.
    PushVlan {
        /// 0x8100 or 0x88a8.
        tpid: u16,
    },
    /// `mod_dl_src:MAC`.
    ModDlSrc(Mac),
    /// `mod_dl_dst:MAC`.
    ModDlDst(Mac),
    /// `mod_nw_src:IP`.
    ModNwSrc(Ipv4Addr),
    /// `mod_nw_dst:IP`.
    ModNwDst(Ipv4Addr),
    /// `mod_nw_tos:TOS`: the DSCP bits, in place.
    ModNwTos(u8),
    /// `mod_nw_ecn:ECN`.
    ModNwEcn(u8),
    /// `mod_nw_ttl:TTL`.
    ModNwTtl(u8),
    /// `mod_tp_src:PORT`.
    ModTpSrc(u16),
    /// `mod_tp_dst:PORT`.
    ModTpDst(u16),
    /// `dec_ttl` or `dec_ttl(ID,…)`: one less; at zero the packet goes to these controllers instead.
    DecTtl {
        /// Controller ids; `[0]` for plain `dec_ttl`.
        controllers: Vec<u16>,
        /// Whether the text had parentheses.
        listed: bool,
    },
    /// `set_mpls_label:LABEL`.
    SetMplsLabel(u32),
    /// `set_mpls_tc:TC`.
    SetMplsTc(u8),
    /// `set_mpls_ttl:TTL`.
    SetMplsTtl(u8),
    /// `dec_mpls_ttl`.
    DecMplsTtl,
    /// `push_mpls:ETHERTYPE`.
    PushMpls {
        /// 0x8847 or 0x8848.
        ethertype: u16,
    },
    /// `pop_mpls:ETHERTYPE`.
    PopMpls {
        /// Of what is behind the label.
        ethertype: u16,
    },
    /// `dec_nsh_ttl`.
    DecNshTtl,
    /// `delete_field:FIELD`.
    DeleteField(FieldId),
    /// `encap(HEADER…)`.
    Encap {
        /// Packet type to make: name space in the high, type in the low half.
        packet_type: u32,
        /// For NSH.
        properties: Vec<NshProperty>,
    },
    /// `decap()` or `decap(packet_type(ns=N,type=T))`.
    Decap {
        /// What is inside; `None`: what the header says.
        packet_type: Option<u32>,
    },

    /// `set_tunnel:ID` or `set_tunnel64:ID`.
    SetTunnel {
        /// Tunnel key.
        id: u64,
        /// Whether written `set_tunnel64`, or does not fit into 32 bits.
        wide: bool,
    },
    /// `set_queue:QUEUE`.
    SetQueue(u32),
    /// `pop_queue`.
    PopQueue,
    /// `fin_timeout(idle_timeout=N,hard_timeout=N)`: shorter timeouts once TCP closes.
    FinTimeout {
        /// Idle timeout then, seconds; 0: as it was.
        idle: u16,
        /// Hard timeout then.
        hard: u16,
    },

    /// `resubmit:PORT` or `resubmit([PORT],[TABLE][,ct])`.
    Resubmit {
        /// In-port for the search; `IN_PORT`: as it is.
        port: OfPort,
        /// Table to search; `None`: this one.
        table: Option<u8>,
        /// Search with the original tuple of the connection.
        with_ct_orig: bool,
    },
    /// `learn(…)`: make a flow from the packet.
    Learn(Box<Learn>),
    /// `conjunction(ID,K/N)`.
    Conjunction {
        /// Which conjunction.
        id: u32,
        /// Which of its clauses, from 0.
        clause: u8,
        /// How many clauses it has, 2 to 64.
        n_clauses: u8,
    },
    /// `multipath(…)`: choose a link by a hash.
    Multipath(Box<Multipath>),

    /// `note:HEX.HEX…`: does nothing.
    Note(Vec<u8>),
    /// `exit`: ends the search, even in resubmits.
    Exit,
    /// `sample(…)`: sometimes report it to a collector.
    Sample(Box<Sample>),
    /// `push:FIELD[…]`: onto the stack.
    StackPush(SubField),
    /// `pop:FIELD[…]`: off the stack.
    StackPop(SubField),
    /// `clone(ACTIONS)`: do these to a copy.
    Clone(Vec<OfAction>),
    /// `ct(…)`: send it through connection tracking.
    Conntrack(Box<Conntrack>),
    /// `ct_clear`: forget the connection.
    CtClear,
    /// `debug_recirc`: recirculates, to test that.
    DebugRecirc,
    /// `debug_slow`: takes the slow path, to test that.
    DebugSlow,
    /// `nat` or `nat(…)`, only within `ct`.
    Nat(Nat),
    /// `check_pkt_larger(N)->FIELD[BIT]`: set a bit if the packet is longer.
    CheckPktLarger {
        /// Where the answer goes; one bit.
        dst: SubField,
        /// The length.
        pkt_len: u16,
    },

    /// `meter:ID`.
    Meter(u32),
    /// `clear_actions`: empty the action set.
    ClearActions,
    /// `write_actions(ACTIONS)`: put these into the action set.
    WriteActions(Vec<OfAction>),
    /// `write_metadata:VALUE[/MASK]`.
    WriteMetadata {
        /// New value; zero outside the mask.
        metadata: u64,
        /// Bits to change.
        mask: u64,
    },
    /// `goto_table:TABLE`.
    GotoTable(u8),
}

impl OfAction {
    /// Which action it is, and its arguments in the order in which its row declares them. Of an action whose arguments
    /// are read by code, only the bits of fields that it names whatever else it says.
    pub fn parts(&self) -> (ActionId, Values) {
        use ActionId as Id;
        match self {
            OfAction::Output { .. } => (Id::Output, Values::NONE),
            OfAction::OutputTrunc { .. } => (Id::OutputTrunc, Values::NONE),
            OfAction::OutputReg { src, .. } => (Id::OutputReg, Values::bits(*src)),
            OfAction::Controller(_) => (Id::Controller, Values::NONE),
            OfAction::Enqueue { .. } => (Id::Enqueue, Values::NONE),
            OfAction::Group(id) => (Id::Group, Values::number(*id)),
            OfAction::Bundle(bundle) if bundle.dst.is_some() => (Id::BundleLoad, Values::NONE),
            OfAction::Bundle(_) => (Id::Bundle, Values::NONE),
            OfAction::SetField { .. } | OfAction::SetOption(_) => (Id::SetField, Values::NONE),
            OfAction::Load { .. } => (Id::Load, Values::NONE),
            OfAction::Move { src, dst } => (Id::Move, Values([Value::Bits(*src), Value::Bits(*dst)])),
            OfAction::SetVlanVid { vid, push_if_needed: true } => (Id::ModVlanVid, Values::number(*vid)),
            OfAction::SetVlanVid { vid, push_if_needed: false } => (Id::SetVlanVid, Values::number(*vid)),
            OfAction::SetVlanPcp { pcp, push_if_needed: true } => (Id::ModVlanPcp, Values::number(*pcp)),
            OfAction::SetVlanPcp { pcp, push_if_needed: false } => (Id::SetVlanPcp, Values::number(*pcp)),
            OfAction::StripVlan => (Id::StripVlan, Values::NONE),
            OfAction::PopVlan => (Id::PopVlan, Values::NONE),
            OfAction::PushVlan { tpid } => (Id::PushVlan, Values::number(*tpid)),
            OfAction::ModDlSrc(mac) => (Id::ModDlSrc, Values::number(mac.number() as u64)),
            OfAction::ModDlDst(mac) => (Id::ModDlDst, Values::number(mac.number() as u64)),
            OfAction::ModNwSrc(address) => (Id::ModNwSrc, Values::number(address.to_bits())),
            OfAction::ModNwDst(address) => (Id::ModNwDst, Values::number(address.to_bits())),
            OfAction::ModNwTos(tos) => (Id::ModNwTos, Values::number(*tos)),
            OfAction::ModNwEcn(ecn) => (Id::ModNwEcn, Values::number(*ecn)),
            OfAction::ModNwTtl(ttl) => (Id::ModNwTtl, Values::number(*ttl)),
            OfAction::ModTpSrc(port) => (Id::ModTpSrc, Values::number(*port)),
            OfAction::ModTpDst(port) => (Id::ModTpDst, Values::number(*port)),
            OfAction::DecTtl { .. } => (Id::DecTtl, Values::NONE),
            OfAction::SetMplsLabel(label) => (Id::SetMplsLabel, Values::number(*label)),
            OfAction::SetMplsTc(tc) => (Id::SetMplsTc, Values::number(*tc)),
            OfAction::SetMplsTtl(ttl) => (Id::SetMplsTtl, Values::number(*ttl)),
            OfAction::DecMplsTtl => (Id::DecMplsTtl, Values::NONE),
            OfAction::PushMpls { ethertype } => (Id::PushMpls, Values::number(*ethertype)),
            OfAction::PopMpls { ethertype } => (Id::PopMpls, Values::number(*ethertype)),
            OfAction::DecNshTtl => (Id::DecNshTtl, Values::NONE),
            OfAction::DeleteField(_) => (Id::DeleteField, Values::NONE),
            OfAction::Encap { .. } => (Id::Encap, Values::NONE),
            OfAction::Decap { .. } => (Id::Decap, Values::NONE),
            OfAction::SetTunnel { id, wide: false } => (Id::SetTunnel, Values::number(*id)),
            OfAction::SetTunnel { id, wide: true } => (Id::SetTunnel64, Values::number(*id)),
            OfAction::SetQueue(queue) => (Id::SetQueue, Values::number(*queue)),
            OfAction::PopQueue => (Id::PopQueue, Values::NONE),
            OfAction::FinTimeout { .. } => (Id::FinTimeout, Values::NONE),
            OfAction::Resubmit { .. } => (Id::Resubmit, Values::NONE),
            OfAction::Learn(_) => (Id::Learn, Values::NONE),
            OfAction::Conjunction { .. } => (Id::Conjunction, Values::NONE),
            OfAction::Multipath(multipath) => (Id::Multipath, Values::bits(multipath.dst)),
            OfAction::Note(_) => (Id::Note, Values::NONE),
            OfAction::Exit => (Id::Exit, Values::NONE),
            OfAction::Sample(_) => (Id::Sample, Values::NONE),
            OfAction::StackPush(src) => (Id::StackPush, Values::bits(*src)),
            OfAction::StackPop(dst) => (Id::StackPop, Values::bits(*dst)),
            OfAction::Clone(_) => (Id::Clone, Values::NONE),
            OfAction::Conntrack(_) => (Id::Conntrack, Values::NONE),
            OfAction::CtClear => (Id::CtClear, Values::NONE),
            OfAction::DebugRecirc => (Id::DebugRecirc, Values::NONE),
            OfAction::DebugSlow => (Id::DebugSlow, Values::NONE),
            OfAction::Nat(_) => (Id::Nat, Values::NONE),
            OfAction::CheckPktLarger { dst, pkt_len } => {
                (Id::CheckPktLarger, Values([Value::Number((*pkt_len).into()), Value::Bits(*dst)]))
            }
            OfAction::Meter(id) => (Id::Meter, Values::number(*id)),
            OfAction::ClearActions => (Id::ClearActions, Values::NONE),
            OfAction::WriteActions(_) => (Id::WriteActions, Values::NONE),
            OfAction::WriteMetadata { .. } => (Id::WriteMetadata, Values::NONE),
            OfAction::GotoTable(table) => (Id::GotoTable, Values::number(*table)),
        }
    }

    /// The actions within it.
    pub fn nested(&self) -> &[OfAction] {
        match self {
            OfAction::Clone(actions) | OfAction::WriteActions(actions) => actions,
            OfAction::Conntrack(ct) => &ct.actions,
            _ => &[],
        }
    }

    /// These actions, each followed by those within it.
    pub fn flattened(actions: &[OfAction]) -> impl Iterator<Item = &OfAction> {
        let (mut level, mut outer) = (actions.iter(), Vec::new());
        std::iter::from_fn(move || {
            loop {
                if let Some(action) = level.next() {
                    if !action.nested().is_empty() {
                        outer.push(std::mem::replace(&mut level, action.nested().iter()));
                    }
                    return Some(action);
                }
                level = outer.pop()?;
            }
        })
    }
}
