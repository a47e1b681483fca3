//! Which actions may stand together, in which order, within which others, and behind which match.
//!
//! Flow text and OpenFlow messages share these checks; each reports a [`Clash`] in its own words.
//! Source: Open vSwitch, `ofpacts_verify` and `ofpacts_check`.

mod order;
mod prerequisites;

pub use order::{conjunctions, order};
pub use prerequisites::Prerequisites;

use sluice_flow::OfPort;
use sluice_flow::field::{FieldId, Prereq};

/// What a list of actions stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// A flow: instructions may follow.
    Flow,
    /// `write_actions`.
    WriteActions,
    /// `clone`.
    Clone,
    /// `ct(exec(…))`.
    Ct,
    /// The instruction `apply_actions`, where OpenFlow 1.5 has `meter` as well.
    Apply,
    /// A bucket of a group, or a packet-out.
    Bucket,
}

/// What is wrong with an action where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clash {
    /// Beside `conjunction`, which bears `note` only.
    BesideConjunction,
    /// An instruction behind the one at this place of the list, which has to follow it.
    Order {
        /// The place of the other one.
        earlier: usize,
    },
    /// An instruction within another action.
    Instruction,
    /// Within `ct(exec(…))`, where only `ct_mark` and `ct_label` may be set.
    NotOfConnection,
    /// Sets `ct_mark` or `ct_label`, and is not within `ct(exec(…))`.
    OfConnection,
    /// `nat`, and not within `ct`.
    NatAlone,
    /// `meter` within another action.
    Meter,
    /// Within `write_actions`, but no action set can hold it.
    NotInActionSet,
    /// The match, with what the actions before made of the packet, does not say what this one needs.
    Lacks {
        /// The field it reads or writes, if that is why.
        field: Option<FieldId>,
        /// What is to be said.
        prereq: Prereq,
    },
    /// A third VLAN tag.
    ThirdTag,
    /// `goto_table` that does not lead on.
    Backwards {
        /// Where to.
        to: u8,
    },
    /// Output to a port that cannot be sent to.
    OutPort(OfPort),
}
