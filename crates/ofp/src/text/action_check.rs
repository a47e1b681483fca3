//! Consistency errors of actions, in words and with their place in the text.

use crate::OfAction;
use crate::consistency::{Clash, Prerequisites, Within, order as check_order};
use sluice_flow::Match;
use sluice_flow::text::{Piece, SyntaxError};

/// An action and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Placed<'a> {
    pub action: OfAction,
    pub at: Piece<'a>,
}

/// Checks order and nesting.
pub(crate) fn order(placed: &[Placed<'_>], within: Within) -> Result<(), SyntaxError> {
    check_order(placed.iter().map(|p| &p.action), within).map_err(|(at, clash)| match clash {
        Clash::Order { earlier } => {
            let (at, earlier) = (placed[at].at, placed[earlier].at);
            at.conflict(
                format!("{} behind {}", at.text, earlier.text),
                "each at most once and in this order: meter, actions, clear_actions, write_actions, write_metadata, \
                 goto_table",
            )
        }
        clash => say(clash, placed[at].at),
    })
}

/// Checks that every field an action reads or writes has its prerequisites, given what the flow matches and what the
/// actions before it did to the headers.
pub(crate) fn prerequisites(placed: &[Placed<'_>], matches: &Match, table: u8) -> Result<(), SyntaxError> {
    let mut state = Prerequisites::new(matches, Some(table));
    placed.iter().try_for_each(|p| state.check(&p.action).map_err(|clash| say(clash, p.at)))
}

fn say(clash: Clash, at: Piece<'_>) -> SyntaxError {
    let what = at.text;
    let (found, expected) = match clash {
        Clash::BesideConjunction => (format!("{what} beside conjunction"), "only conjunction and note"),
        Clash::Order { .. } => (format!("{what} behind a later instruction"), "instructions in their order"),
        Clash::Instruction => (format!("{what} within another action"), "actions, not instructions"),
        Clash::NotOfConnection => {
            (format!("{what} within ct(exec(…))"), "only set_field, load and move to ct_mark or ct_label")
        }
        Clash::OfConnection => {
            (format!("{what} to a field of the connection"), "ct_mark and ct_label to be set only within ct(exec(…))")
        }
        Clash::NatAlone => ("nat on its own".to_owned(), "nat only within ct(…)"),
        Clash::Meter => ("meter within another action".to_owned(), "meter only in the flow itself"),
        Clash::NotInActionSet => (format!("{what} within write_actions"), "an action that an action set can hold"),
        Clash::Lacks { field, prereq } => {
            let remedy = prereq.remedy();
            let of = field.map_or(String::new(), |field| format!(" of {}", field.field().name));
            let found = format!("{what}{of} where the match does not say {remedy}");
            return at.conflict(found, format!("{remedy} in the match"));
        }
        Clash::ThirdTag => ("push_vlan of a third tag".to_owned(), "at most two tags"),
        Clash::Backwards { to } => {
            return at.conflict(format!("goto_table:{to}"), "a table above the flow's own");
        }
        Clash::OutPort(port) => (format!("{what} to port {:#x}", port.0), "a port that can be sent to"),
    };
    at.conflict(found, expected)
}
