//! Translation: what the rules make of a packet, as actions for the datapath, and for which other packets they would
//! make the same.
//!
//! A translation walks the tables with a key, never with the packet. Four keys tell its story: `flow`, as actions have
//! changed it; `base`, as the datapath last knew it (see [`commit`]); `original`, as it came; and `wc`, the bits that
//! were looked at on the way, which become the megaflow's mask. Every branch on a bit of the packet must put that bit
//! into `wc`: a bit too many costs a megaflow, a bit too few misroutes.
//!
//! The order of things, the limits and the texts are those of Open vSwitch 3.1 (`ofproto/ofproto-dpif-xlate.c`), so
//! that a table means the same here and a trace reads the same. Where masks differ, the place says so.
//!
//! | file | what |
//! |---|---|
//! | [`start`] | from a datapath key to the first rule, and the end: mask, actions, xlate cache |
//! | [`table`] | searching tables, resubmit |
//! | [`clauses`] | which rules made a conjunction whole, for traces |
//! | [`actions`] | one action after the other |
//! | [`fields`] | actions that read and write fields |
//! | [`output`] | outputs, floods, patch ports, controllers |
//! | [`normal`] | the learning switch |
//! | [`nested`] | clone, action sets, check_pkt_larger |
//! | [`ct`] | connection tracking |
//! | [`group`] | groups and their buckets |
//! | [`freeze`] | stopping, and going on after recirculation or when a controller says so |
//! | [`learn`] | learn and fin_timeout |

mod actions;
mod clauses;
pub(crate) mod commit;
pub(crate) mod ct;
mod fields;
mod freeze;
mod group;
pub(crate) mod hash;
mod learn;
mod nested;
mod normal;
mod output;
pub(crate) mod protocol;
mod start;
mod table;
pub(crate) mod tags;

pub(crate) use start::{XlateIn, XlateOut, XlateStart};

use crate::bridge::{Bridge, SwitchState};
use crate::ofproto::Shared;
use crate::recirc::{FrozenActions, StackValue};
use crate::rule::Rule;
use crate::trace::{TraceKind, Tracer};
use crate::xlate_cache::{Dependency, XcEntry};
use sluice_action::{Action, HashAlgorithm};
use sluice_fate::DropReason;
use sluice_flow::FlowKey;
use sluice_ofp::OfAction;
use sluice_ofp::ofpact::ControllerAction;
use std::sync::Arc;

/// Nested resubmits at most. Source: OVS ofproto-dpif-xlate.c, MAX_DEPTH.
pub(crate) const MAX_DEPTH: usize = 64;
/// Resubmits in all at most. Source: as before, MAX_RESUBMITS.
pub(crate) const MAX_RESUBMITS: usize = 64 * 64;
/// Lists of actions within one another at most: resubmits to ever higher tables, clones, patch ports. OVS lets its stack
/// grow by all of its [`MAX_RESUBMITS`]; ours must fit a thread of 2 MiB, which a test sees to.
pub(crate) const MAX_NESTING: usize = 512;
/// Bytes of actions, counted as Netlink would encode them, and of stack at most. Source: as before.
pub(crate) const MAX_BYTES: usize = 0xffff;

/// Why a translation gave up. Its packets are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    BridgeNotFound,
    TooDeep,
    TooManyResubmits,
    StackTooDeep,
    NoRecirculation,
    TooManyLabels,
}

impl Failure {
    /// As OVS words it.
    pub fn text(self) -> &'static str {
        match self {
            Failure::BridgeNotFound => "Bridge not found",
            Failure::TooDeep => "Recursion too deep",
            Failure::TooManyResubmits => "Too many resubmits",
            Failure::StackTooDeep => "Stack too deep",
            Failure::NoRecirculation => "No recirculation context",
            Failure::TooManyLabels => "Too many MPLS labels",
        }
    }
}

/// A translation under way.
pub(crate) struct Translator<'a> {
    /// Bridges, ports and rules, at one moment.
    state: &'a SwitchState,
    shared: &'a Shared,
    bridge: &'a Bridge,
    now_ms: u64,
    /// Whether a packet caused it, whose station and learned rules count.
    side_effects: bool,

    /// The key as it came, with an OpenFlow port number.
    original: FlowKey,
    /// The key as actions have changed it.
    flow: FlowKey,
    /// The key as the datapath last knew it.
    base: FlowKey,
    /// The bits that were looked at.
    wc: FlowKey,

    /// Actions so far.
    out: Vec<Action>,
    /// Their bytes as Netlink would count them, those of enclosing lists included.
    out_bytes: usize,
    /// What to credit and to do again for every packet.
    xcache: Vec<XcEntry>,

    stack: Vec<StackValue>,
    action_set: Vec<OfAction>,
    in_action_set: bool,
    /// Resubmits that we are in, and resubmits made.
    depth: usize,
    resubmits: usize,
    /// Lists of actions that we are in.
    nesting: usize,
    table: u8,
    rule: Option<&'a Arc<Rule>>,
    /// The first search found nothing.
    missed: bool,
    cookie: u64,

    /// No more actions: `exit`, or a freeze under way.
    exit: bool,
    freezing: bool,
    frozen: FrozenActions,
    /// What the datapath must hash before the packet comes round again.
    hash: Option<(HashAlgorithm, u32)>,
    /// The action that says that the packet goes on when a controller says so, rather than come round at once.
    pause: Option<Box<ControllerAction>>,
    /// The actions under way are those of a bucket.
    in_bucket: bool,
    /// A tag was taken off or put on: see [`commit`].
    tags_replaced: bool,
    /// A label was taken off.
    labels_popped: bool,
    /// The last label was popped: what is behind it is not known here.
    was_mpls: bool,
    /// The packet has come from `ct(table=…)`: the fields of its connection mean something.
    conntracked: bool,
    /// The `nat` of the `ct` that is being taken.
    ct_nat: Option<sluice_ofp::ofpact::Nat>,

    failure: Option<Failure>,
    cacheable: bool,
    /// Why the packet ends if it is sent nowhere.
    no_output: DropReason,
    tracer: Option<&'a mut Tracer>,
}

/// A list of actions with what must be restored on the way.
#[derive(Clone, Copy)]
struct ActionList<'s> {
    actions: &'s [OfAction],
    restores: &'s [(usize, crate::recirc::Restore)],
    /// Number of the first action, as `restores` counts them.
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

    /// What holds from action `i` on, if that changes there.
    fn restore(self, i: usize) -> Option<crate::recirc::Restore> {
        self.restores.iter().find(|(at, _)| *at == self.first + i).map(|(_, restore)| *restore)
    }
}

/// How the actions of a rule are to be taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunMode {
    /// As part of what is going on.
    Inline,
    /// On a copy of the packet.
    Cloned,
}

impl Translator<'_> {
    fn say(&mut self, kind: TraceKind, text: impl FnOnce() -> String) {
        if let Some(tracer) = &mut self.tracer {
            tracer.say(kind, text());
        }
    }

    fn detail(&mut self, text: &str) {
        self.say(TraceKind::Detail, || text.to_owned());
    }

    fn warn(&mut self, text: &str) {
        self.say(TraceKind::Warning, || text.to_owned());
    }

    fn error(&mut self, text: impl FnOnce() -> String) {
        self.say(TraceKind::Error, text);
    }

    /// Begins a section of the trace; `close` ends it.
    fn open(&mut self, kind: TraceKind, text: impl FnOnce() -> String) -> usize {
        self.tracer.as_mut().map_or(0, |tracer| tracer.open(kind, text()))
    }

    fn close(&mut self, section: usize) {
        if let Some(tracer) = &mut self.tracer {
            tracer.close(section);
        }
    }

    /// Says who looked at the bits that have come into the mask since this was last said.
    fn attribute(&mut self, who: impl FnOnce(&Self) -> String) {
        if let Some(tracer) = self.tracer.take() {
            if tracer.has_news(&self.wc) {
                tracer.attribute(&self.wc, who(self));
            }
            self.tracer = Some(tracer);
        }
    }

    /// Says that the action under way looked at what has come into the mask.
    fn attribute_to_actor(&mut self) {
        if let Some(tracer) = &mut self.tracer
            && tracer.has_news(&self.wc)
        {
            tracer.attribute(&self.wc, tracer.actor.clone());
        }
    }

    /// Notes the action under way; returns the one that was, which this one may be part of.
    fn set_actor(&mut self, who: impl FnOnce(&Self) -> String) -> String {
        let Some(tracer) = self.tracer.take() else { return String::new() };
        let outer = std::mem::replace(&mut tracer.actor, who(self));
        self.tracer = Some(tracer);
        outer
    }

    fn fail(&mut self, failure: Failure) {
        self.failure = Some(failure);
    }

    /// Notes that the answer depends on something of the bridge.
    fn depend_on(&mut self, on: Dependency) {
        self.xcache.push(XcEntry::Depends { bridge: self.bridge.id, on });
    }

    fn emit(&mut self, action: Action) {
        self.out_bytes += netlink_size(&action);
        self.out.push(action);
    }

    /// Brings the datapath's packet up to date; see [`commit`].
    fn commit(&mut self) {
        let from = self.out.len();
        commit::commit(&self.flow, &mut self.base, &mut self.wc, self.tags_replaced, &mut self.out);
        self.out_bytes += self.out[from..].iter().map(netlink_size).sum::<usize>();
    }

    fn number(&self, span: sluice_flow::layout::Span) -> u64 {
        self.flow.number(span)
    }

    fn ethertype(&self) -> u16 {
        protocol::ethertype_of(&self.flow)
    }

    fn is_ip(&self) -> bool {
        protocol::is_ip(&self.flow)
    }
}

/// Bytes of an action as OVS would encode it; near enough for a limit that nothing but runaway tables reach.
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
            _ => 4,
        }
}
