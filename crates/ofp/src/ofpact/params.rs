//! What the larger actions say.

use super::OfAction;
use sluice_flow::{FieldId, FieldValue, OfPort, SubField, Wide};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Why a packet goes to a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PacketInReason {
    /// No rule matched.
    NoMatch = 0,
    /// A rule said so.
    Action = 1,
    /// Time to live ran out.
    InvalidTtl = 2,
    /// The action set said so.
    ActionSet = 3,
    /// A group said so.
    Group = 4,
    /// A packet-out said so.
    PacketOut = 5,
    /// Nicira: an output in OpenFlow 1.4's terms, kept apart for older controllers.
    ExplicitMiss = 6,
    /// Nicira: implicit table miss.
    ImplicitMiss = 7,
}

/// `controller(…)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ControllerAction {
    /// Bytes of the packet at most.
    pub max_len: u16,
    /// Which connection.
    pub controller_id: u16,
    /// Reason to give.
    pub reason: PacketInReason,
    /// Bytes to pass on.
    pub userdata: Vec<u8>,
    /// Whether the packet waits for the controller to resume it.
    pub pause: bool,
    /// Meter that limits these packets.
    pub meter_id: Option<u32>,
}

impl Default for ControllerAction {
    fn default() -> Self {
        ControllerAction {
            max_len: u16::MAX,
            controller_id: 0,
            reason: PacketInReason::Action,
            userdata: Vec::new(),
            pause: false,
            meter_id: None,
        }
    }
}

/// What to hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum HashFields {
    /// Ethernet source.
    EthSrc = 0,
    /// Ethernet, VLAN, IP, TCP and SCTP, the same in both directions.
    SymmetricL4 = 1,
    /// As `SymmetricL4` without VLAN, Ethernet and SCTP.
    SymmetricL3L4 = 2,
    /// As `SymmetricL3L4` with UDP.
    SymmetricL3L4Udp = 3,
    /// IP source.
    NwSrc = 4,
    /// IP destination.
    NwDst = 5,
    /// As `SymmetricL3L4` without ports.
    SymmetricL3 = 6,
}

/// `multipath(…)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Multipath {
    /// What to hash.
    pub fields: HashFields,
    /// Start value of the hash.
    pub basis: u16,
    /// How to choose.
    pub algorithm: MultipathAlgorithm,
    /// Number of links less one.
    pub max_link: u16,
    /// For `iter_hash`: number of bits; printed back otherwise.
    pub arg: u32,
    /// Where the link's number goes.
    pub dst: SubField,
}

/// How a link is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum MultipathAlgorithm {
    /// Remainder of the hash.
    ModuloN = 0,
    /// Equal ranges of the hash.
    HashThreshold = 1,
    /// Highest random weight.
    Hrw = 2,
    /// Hash again until it fits.
    IterHash = 3,
}

/// `bundle(…)` or `bundle_load(…)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bundle {
    /// What to hash.
    pub fields: HashFields,
    /// Start value of the hash.
    pub basis: u16,
    /// How to choose.
    pub algorithm: BundleAlgorithm,
    /// Where the port's number goes; `None`: send the packet there.
    pub dst: Option<SubField>,
    /// The ports.
    pub members: Vec<OfPort>,
}

/// How a member is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum BundleAlgorithm {
    /// The first that is up.
    ActiveBackup = 0,
    /// Highest random weight among those that are up.
    Hrw = 1,
}

/// `learn(…)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Learn {
    /// Table of the new flow.
    pub table: u8,
    /// Its idle timeout.
    pub idle_timeout: u16,
    /// Its hard timeout.
    pub hard_timeout: u16,
    /// Its idle timeout once TCP closes.
    pub fin_idle_timeout: u16,
    /// Its hard timeout once TCP closes.
    pub fin_hard_timeout: u16,
    /// Its priority.
    pub priority: u16,
    /// Its cookie.
    pub cookie: u64,
    /// Tell controllers when it goes.
    pub send_flow_rem: bool,
    /// When the learning flow goes, what it learned goes too.
    pub delete_learned: bool,
    /// Flows to learn at most; 0: any number.
    pub limit: u32,
    /// Bit that says whether the limit allowed it.
    pub result_dst: Option<SubField>,
    /// Its match and its actions.
    pub specs: Vec<LearnSpec>,
}

/// One piece of a learned flow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LearnSpec {
    /// Where the value comes from.
    pub source: LearnSource,
    /// What is made of it.
    pub target: LearnTarget,
}

/// Where a learned value comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LearnSource {
    /// Bits of the packet that is being translated.
    Field(SubField),
    /// A constant.
    Value(FieldValue),
}

/// What a learned value is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LearnTarget {
    /// Match on these bits.
    Match(SubField),
    /// Load it into these bits.
    Load(SubField),
    /// Output to the port of that number.
    Output,
}

/// `set_field` of a tunnel's option, whose value may be longer than that of any other field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SetOption {
    /// Which field.
    pub field: FieldId,
    /// Its new value; zero outside the mask.
    pub value: Wide,
    /// The bits to change; all of the field's if the text gives no mask.
    pub mask: Wide,
}

/// `sample(…)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sample {
    /// In 65535, at least 1.
    pub probability: u16,
    /// Which collectors.
    pub collector_set_id: u32,
    /// Observation domain.
    pub obs_domain_id: u32,
    /// Observation point.
    pub obs_point_id: u32,
    /// Port whose tunnel it is about; `NONE`: not said.
    pub sampling_port: OfPort,
    /// Direction to report.
    pub direction: SampleDirection,
}

/// What a sample says of direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum SampleDirection {
    Unsaid,
    Ingress,
    Egress,
}

/// `ct(…)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conntrack {
    /// Keep the connection.
    pub commit: bool,
    /// Even if one of the opposite direction is known.
    pub force: bool,
    /// The zone.
    pub zone: ConntrackZone,
    /// Continue there, in a second pass.
    pub table: Option<u8>,
    /// Application helper: its port, 0 for none, 21 for FTP, 69 for TFTP.
    pub alg: u16,
    /// What to do: a [`OfAction::Nat`] first if there is one, then set fields of the connection.
    pub actions: Vec<OfAction>,
}

/// Where a zone comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConntrackZone {
    /// A number.
    Number(u16),
    /// Bits of the packet's fields or registers.
    Field(SubField),
}

/// `nat` or `nat(…)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nat {
    /// Which address; `None`: as the connection has it.
    pub kind: Option<NatKind>,
    /// To which.
    pub addresses: Option<NatAddresses>,
    /// To which port, lowest and highest; equal if one is given; 0: any.
    pub ports: (u16, u16),
    /// The same mapping again after a restart.
    pub persistent: bool,
    /// Choose by a hash.
    pub hash: bool,
    /// Choose at random.
    pub random: bool,
}

/// Which address NAT changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum NatKind {
    Src,
    Dst,
}

/// Lowest and highest address; equal if one is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum NatAddresses {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

/// A property of `encap(nsh(…))`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NshProperty {
    /// `md_type=N`.
    MdType(u8),
    /// `tlv(CLASS,TYPE,HEX)`.
    Tlv {
        /// Class.
        class: u16,
        /// Type.
        tlv_type: u8,
        /// Value.
        value: Vec<u8>,
    },
}
