//! Translation: the datapath actions for a packet, and the packets for which they are the same.
//!
//! A translation works on keys, never on the packet. It has four: `original`, the key as the packet came; `flow`, the
//! key as actions have changed it; `base`, the key as the datapath's packet is at this point (see [`commit`]); and
//! `wc`, the bits that were looked at, which become the megaflow's mask. Every branch on a bit of the packet must put
//! that bit into `wc`: a bit too many costs a megaflow, a bit too few forwards packets wrongly.
//!
//! An example: `set_field:10->tcp_dst,output:2`. The first action checks that the packet is TCP, which puts the IP
//! protocol into `wc`, and writes the port to `flow`. The output first commits: `flow` and `base` differ in the port,
//! so a datapath `set` is emitted and `base` follows. Then the datapath output is emitted.
//!
//! The order of actions, the limits and the texts are those of Open vSwitch 3.1 (`ofproto/ofproto-dpif-xlate.c`), so
//! that a table has the same effect and a trace the same text. A comment tells where masks differ.
//!
//! | file | what |
//! |---|---|
//! | [`start`], [`finish`] | from the datapath's key to the first rule's actions; the result: mask, actions, xlate cache |
//! | [`table`] | table searches, `resubmit` |
//! | [`clauses`] | the clauses of a conjunction, for traces |
//! | [`actions`] | the loop over actions |
//! | [`fields`] | actions that read and write fields |
//! | [`output`] | outputs, floods, patch ports, controllers |
//! | [`tunnel`], [`native_tunnel`] | outputs to tunnels, and what is special about packets that came by one |
//! | [`normal`] | `NORMAL`, the learning switch |
//! | [`bond`] | packets that come by bonds and leave by them |
//! | [`mirror`] | copies of what ports receive and send |
//! | [`sflow`] | samples for sFlow |
//! | [`nested`] | `clone`, action sets, `check_pkt_larger` |
//! | [`ct`] | connection tracking |
//! | [`group`] | groups and their buckets |
//! | [`freeze`] | freezing a translation, and resuming it after recirculation or at a controller's request |
//! | [`learn`] | `learn` and `fin_timeout` |
//! | [`commit`] | datapath actions from the difference of two keys |
//! | [`work`] | the budget that bounds all of this |
//! | [`tags`], [`hash`], [`protocol`] | VLAN tags and MPLS labels; hashes of fields; protocols of a key |

mod actions;
mod bond;
mod clauses;
pub(crate) mod commit;
pub(crate) mod ct;
mod fields;
mod finish;
mod freeze;
mod group;
pub(crate) mod hash;
mod learn;
mod mirror;
mod native_tunnel;
mod nested;
mod normal;
mod output;
pub(crate) mod protocol;
mod sflow;
mod special;
mod start;
mod table;
pub(crate) mod tags;
mod tunnel;
mod work;

pub(crate) use finish::XlateOut;
pub(crate) use start::{XlateIn, XlateStart};

use crate::bridge::{Bridge, SwitchState};
use crate::features::Feature;
use crate::mirror::MirrorMask;
use crate::ofproto::Shared;
use crate::recirc::{FrozenActions, Ingress, StackValue};
use crate::rule::Rule;
use crate::trace::{TraceKind, Tracer};
use crate::xlate_cache::{Dependency, XcEntry};
use sluice_action::{Action, HashAlgorithm};
use sluice_fate::DropReason;
use sluice_flow::geneve::OptionBytes;
use sluice_flow::{DEFAULT_PRIORITY, FlowKey, Match, PortNames};
use sluice_ofp::OfAction;
use sluice_ofp::ofpact::ControllerAction;
use std::cell::Cell;
use std::sync::Arc;

/// Nested resubmits, at most. Source: OVS ofproto-dpif-xlate.c, MAX_DEPTH.
pub(crate) const MAX_DEPTH: usize = 64;
/// Resubmits in total, at most. Source: as before, MAX_RESUBMITS.
pub(crate) const MAX_RESUBMITS: usize = 64 * 64;
/// Nested action lists, at most: resubmits to higher tables, clones, patch ports. OVS's stack may grow by
/// [`MAX_RESUBMITS`]; ours must fit a thread with 2 MiB of stack, which a test checks.
pub(crate) const MAX_NESTING: usize = 512;
/// Bytes of actions in Netlink's encoding, and bytes of the stack, at most. Source: as before.
pub(crate) const MAX_BYTES: usize = 0xffff;

/// Why a translation failed. Its packets are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    BridgeNotFound,
    TooDeep,
    TooManyResubmits,
    StackTooDeep,
    NoRecirculation,
    NoRecircIds,
    TooManyLabels,
    TooMuchWork,
}

impl Failure {
    /// The text of OVS.
    pub fn text(self) -> &'static str {
        match self {
            Failure::BridgeNotFound => "Bridge not found",
            Failure::TooDeep => "Recursion too deep",
            Failure::TooManyResubmits => "Too many resubmits",
            Failure::StackTooDeep => "Stack too deep",
            Failure::NoRecirculation | Failure::NoRecircIds => "No recirculation context",
            Failure::TooManyLabels => "Too many MPLS labels",
            Failure::TooMuchWork => "Too much work",
        }
    }

    /// Whether rules led back to each other without end.
    pub fn is_recursion(self) -> bool {
        matches!(self, Failure::TooDeep | Failure::TooManyResubmits)
    }

    /// Whether another packet may fare better though no rule has changed. Such a failure is not cached.
    pub fn is_passing(self) -> bool {
        matches!(self, Failure::NoRecirculation | Failure::NoRecircIds)
    }

    /// Why its packets are dropped.
    pub fn drop_reason(self) -> DropReason {
        match self {
            Failure::BridgeNotFound | Failure::NoRecirculation => DropReason::TranslationLimit,
            Failure::NoRecircIds => DropReason::RecircIds,
            Failure::TooDeep => DropReason::RecursionTooDeep,
            Failure::TooManyResubmits => DropReason::TooManyResubmits,
            Failure::StackTooDeep => DropReason::StackTooDeep,
            Failure::TooManyLabels => DropReason::TooManyMplsLabels,
            Failure::TooMuchWork => DropReason::TranslationWork,
        }
    }
}

/// A translation in progress; `struct xlate_ctx` in Open vSwitch.
pub(crate) struct Translator<'a> {
    /// Bridges, ports and rules; locked for reading.
    state: &'a SwitchState,
    shared: &'a Shared,
    bridge: &'a Bridge,
    now_ms: u64,
    /// The port by which the packet came in, for shares of resources.
    ingress: Ingress,
    /// Whether a packet caused it, so that it has effects.
    side_effects: bool,
    /// The length of the packet that caused it.
    packet_len: Option<usize>,
    /// Whether the thread may wait for locks that control threads hold.
    may_wait: bool,
    /// It may not, and one was held: what comes of the translation is void.
    is_busy: Cell<bool>,

    /// The key as the packet came, with an OpenFlow port. The four keys are in the caller's frame: each has seven cache lines,
    /// which would be copied wherever the translation is moved.
    original: &'a mut FlowKey,
    /// The key as actions have changed it.
    flow: &'a mut FlowKey,
    /// The key of the datapath's packet at this point.
    base: &'a mut FlowKey,
    /// The bits that were looked at.
    wc: &'a mut FlowKey,

    /// Datapath actions so far.
    out: Vec<Action>,
    /// Their bytes in Netlink's encoding, including enclosing lists.
    out_bytes: usize,
    /// What it has used and what its packets cause.
    xcache: Vec<XcEntry>,

    stack: Vec<StackValue>,
    /// The options of Geneve that the packet came with.
    options: Option<Box<OptionBytes>>,
    action_set: Vec<OfAction>,
    in_action_set: bool,
    /// A controller sent the packet.
    in_packet_out: bool,
    /// Resubmits in progress, and resubmits in total.
    depth: usize,
    resubmits: usize,
    /// Steps of [`work`] so far.
    steps: usize,
    /// Action lists in progress.
    nesting: usize,
    table: u8,
    rule: Option<&'a Arc<Rule>>,
    /// The first search found no rule.
    missed: bool,
    cookie: u64,

    /// Take no more actions: after `exit`, or to freeze.
    exit: bool,
    freezing: bool,
    frozen: FrozenActions,
    /// The hash that the datapath must compute before the packet recirculates.
    hash: Option<(HashAlgorithm, u32)>,
    /// The `controller(pause)` that froze the translation: the packet waits for a controller instead of recirculating.
    pause: Option<Box<ControllerAction>>,
    /// The current actions are those of a bucket.
    in_bucket: bool,
    /// A tag was popped or pushed: see [`commit`].
    tags_replaced: bool,
    /// A label was popped.
    labels_popped: bool,
    /// The last label was popped. The header after it is unknown until the packet recirculates.
    was_mpls: bool,
    /// The packet comes from `ct(table=…)`, so the fields of its connection are valid.
    conntracked: bool,
    /// The bridge whose sFlow samples packets, if it does.
    sampling_bridge: Option<&'a Bridge>,
    outputs: sflow::Outputs,
    /// The bridge's mirrors that have a copy of the packet.
    mirrors: MirrorMask,
    /// Bytes to which the mirror that is served now cuts its copies; 0: to none.
    mirror_snaplen: u16,
    /// The `nat` of the current `ct`.
    ct_nat: Option<sluice_ofp::ofpact::Nat>,

    failure: Option<Failure>,
    cacheable: bool,
    /// An action is not one that the datapath can do.
    is_slow: bool,
    /// The packet belongs to a BFD session.
    is_bfd: bool,
    /// The packet is of LACP.
    is_lacp: bool,
    /// The drop reason if the packet is sent nowhere.
    no_output: DropReason,
    tracer: Option<&'a mut Tracer>,
}

/// A list of actions, and the tables and cookies to restore between them.
#[derive(Clone, Copy)]
struct ActionList<'s> {
    actions: &'s [OfAction],
    restores: &'s [(usize, crate::recirc::Restore)],
    /// The index of the first action in `restores`.
    first: usize,
}

impl<'s> ActionList<'s> {
    fn of(actions: &'s [OfAction]) -> Self {
        ActionList { actions, restores: &[], first: 0 }
    }

    fn frozen(frozen: &'s FrozenActions) -> Self {
        ActionList { actions: &frozen.actions, restores: &frozen.restores, first: 0 }
    }

    fn from(self, i: usize) -> Self {
        let actions = self.actions.get(i..).unwrap_or_default();
        ActionList { actions, first: self.first + i, ..self }
    }

    /// The table and cookie to restore before action `i`, if any.
    fn restore(self, i: usize) -> Option<crate::recirc::Restore> {
        self.restores.iter().find(|(at, _)| *at == self.first + i).map(|(_, restore)| *restore)
    }
}

/// How to run the actions of a rule.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunMode {
    /// In the current pipeline.
    Inline,
    /// On a copy of the packet.
    Cloned,
}

impl Translator<'_> {
    fn say(&mut self, kind: TraceKind, text: impl FnOnce() -> String) {
        if let Some(tracer) = &mut self.tracer {
            tracer.say(kind, text);
        }
    }

    fn detail(&mut self, text: &str) {
        self.say(TraceKind::Detail, || text.to_owned());
    }

    fn warn(&mut self, text: &str) {
        self.say(TraceKind::Warning, || text.to_owned());
    }

    /// Reports what is wrong with the rules: in the trace, or, if a packet met it, in the log.
    fn error(&mut self, text: impl FnOnce() -> String) {
        if self.tracer.is_some() {
            self.say(TraceKind::Error, text);
        } else if self.side_effects && self.shared.xlate_errors.admits(self.now_ms) {
            let packet = Match::of_packet(self.base);
            let packet = packet.display(&PortNames::NONE, DEFAULT_PRIORITY);
            let (text, bridge) = (text(), self.bridge.name());
            tracing::warn!(target: "ofproto_dpif_xlate", "{text} on bridge {bridge} while processing {packet}");
        }
    }

    /// Whether the datapath has a feature that actions may use.
    fn can(&self, feature: Feature) -> bool {
        self.state.features.has(feature)
    }

    /// Notes an action that the datapath cannot do by itself: each packet is translated.
    fn take_slow_path(&mut self) {
        self.is_slow = true;
        self.cacheable = false;
    }

    /// Begins a section of the trace; `close` ends it.
    fn open(&mut self, kind: TraceKind, text: impl FnOnce() -> String) -> usize {
        self.tracer.as_mut().map_or(0, |tracer| tracer.open(kind, text))
    }

    fn close(&mut self, section: usize) {
        if let Some(tracer) = &mut self.tracer {
            tracer.close(section);
        }
    }

    /// Records what looked at the bits that are new in the mask since the last call.
    fn attribute(&mut self, who: impl FnOnce(&Self) -> String) {
        if let Some(tracer) = self.tracer.take() {
            if tracer.has_new_bits(self.wc) {
                tracer.attribute(self.wc, who(self));
            }
            self.tracer = Some(tracer);
        }
    }

    /// Records that the current action looked at the new bits of the mask.
    fn attribute_to_actor(&mut self) {
        if let Some(tracer) = &mut self.tracer
            && tracer.has_new_bits(self.wc)
        {
            tracer.attribute(self.wc, tracer.actor.clone());
        }
    }

    /// Sets the current action; returns the one before, which may enclose it.
    fn set_actor(&mut self, who: impl FnOnce(&Self) -> String) -> String {
        let Some(tracer) = self.tracer.take() else { return String::new() };
        let outer = std::mem::replace(&mut tracer.actor, who(self));
        self.tracer = Some(tracer);
        outer
    }

    fn fail(&mut self, failure: Failure) {
        self.failure = Some(failure);
    }

    /// Records that the translation depends on something of the bridge.
    fn depend_on(&mut self, on: Dependency) {
        self.xcache.push(XcEntry::Depends { bridge: self.bridge.id, on });
    }

    fn emit(&mut self, action: Action) {
        self.out_bytes += netlink_size(&action);
        self.out.push(action);
    }

    /// Emits the actions that make the datapath's packet equal to `flow`; see [`commit`].
    fn commit(&mut self) {
        let from = self.out.len();
        commit::commit(self.flow, self.base, self.wc, self.tags_replaced, &mut self.out);
        let actions = &self.out[from..];
        self.out_bytes += actions.iter().map(netlink_size).sum::<usize>();
        // OVS's datapath cannot set these headers, which its trace says. This one can.
        self.is_slow |= actions.iter().any(|action| {
            use sluice_action::Header::{Arp, Icmp, Nd};
            matches!(action, Action::Set { header: Arp | Icmp | Nd, .. })
        });
    }

    fn number(&self, span: sluice_flow::layout::Span) -> u64 {
        self.flow.number(span)
    }

    fn ethertype(&self) -> u16 {
        protocol::ethertype_of(self.flow)
    }

    fn is_ip(&self) -> bool {
        protocol::is_ip(self.flow)
    }
}

/// Bytes of an action in Netlink's encoding, approximately: only tables that run away reach the limit.
fn netlink_size(action: &Action) -> usize {
    const ATTRIBUTE: usize = 4;
    let nested = |actions: &[Action]| actions.iter().map(netlink_size).sum::<usize>() + ATTRIBUTE;
    ATTRIBUTE
        + match action {
            Action::PopVlan | Action::CtClear | Action::Drop => 0,
            Action::Set { header, .. } => {
                use sluice_action::Header::{Arp, Ethernet, Ipv4, Ipv6, Nd};
                match header {
                    Ethernet | Ipv4 => 28,
                    Ipv6 => 84,
                    Arp => 52,
                    Nd => 60,
                    _ => 12,
                }
            }
            Action::Clone(actions) | Action::Sample { actions, .. } => nested(actions),
            Action::CheckPktLen { greater, less_or_equal, .. } => nested(greater) + nested(less_or_equal),
            Action::Controller { .. } => 64,
            Action::Ct(_) => 96,
            Action::SetTunnel(_) => 64,
            Action::TunnelPush(_) => 528,
            _ => 4,
        }
}
