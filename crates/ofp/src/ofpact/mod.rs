//! OpenFlow actions and instructions, with Nicira's extensions, as Open vSwitch 3.1 has them.
//!
//! Two spellings of one thing stay two variants where Open vSwitch prints them back as they were given (`load` and
//! `set_field`, `mod_vlan_vid` and `set_vlan_vid`), so what is printed is what was written.

mod params;

pub use params::{
    Bundle, BundleAlgorithm, Conntrack, ConntrackZone, ControllerAction, HashFields, Learn, LearnSource, LearnSpec,
    LearnTarget, Multipath, MultipathAlgorithm, Nat, NatAddresses, NatKind, NshProperty, PacketInReason, Sample,
    SampleDirection,
};

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
    /// `output(port=PORT,max_len=N)`: send at most so many bytes of it.
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
    /// `controller(…)`: hand it to a controller, with more to say than `Output` can.
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
    /// Whether an action set can hold it.
    pub fn in_action_set(&self) -> bool {
        !matches!(
            self,
            OfAction::Bundle(_)
                | OfAction::Clone(_)
                | OfAction::Controller(_)
                | OfAction::Enqueue { .. }
                | OfAction::Exit
                | OfAction::FinTimeout { .. }
                | OfAction::Learn(_)
                | OfAction::Conjunction { .. }
                | OfAction::Multipath(_)
                | OfAction::Note(_)
                | OfAction::OutputReg { .. }
                | OfAction::OutputTrunc { .. }
                | OfAction::PopQueue
                | OfAction::Sample(_)
                | OfAction::StackPush(_)
                | OfAction::StackPop(_)
                | OfAction::CheckPktLarger { .. }
                | OfAction::DeleteField(_)
        )
    }
}
