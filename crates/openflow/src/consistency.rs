//! Whether actions are consistent with each other and with a match, with OpenFlow's errors.

use crate::{Error, Version};
use sluice_flow::Match;
use sluice_ofp::OfAction;
use sluice_ofp::consistency::{self, Clash, Prerequisites, Within};

/// Checks the order and nesting of a list.
pub(crate) fn order(actions: &[OfAction], within: Within) -> Result<(), Error> {
    consistency::order(actions.iter(), within).map_err(|(_, clash)| error(clash))
}

/// Checks the actions beside `conjunction`, in a list whose order is right.
pub(crate) fn conjunctions(actions: &[OfAction]) -> Result<(), Error> {
    consistency::conjunctions(actions.iter()).map_err(|(_, clash)| error(clash))
}

/// Checks that the headers which actions read and change are there in every packet that matches. OpenFlow 1.0 allows
/// more: there, some actions pass over packets that lack their header.
///
/// # Errors
/// With what is wrong with the first action that does not fit.
pub fn check_prerequisites(
    actions: &[OfAction],
    matches: &Match,
    table: Option<u8>,
    version: Version,
) -> Result<(), Error> {
    let mut state = Prerequisites::new(matches, table);
    state.check_all(actions).map_err(error)?;
    if state.only_in_10() && version > Version::V10 { Err(Error::ActionMatchInconsistent) } else { Ok(()) }
}

fn error(clash: Clash) -> Error {
    match clash {
        Clash::BesideConjunction => Error::ActionBadConjunction,
        Clash::Order { .. } => Error::ActionUnsupportedOrder,
        Clash::Instruction => Error::InstructionUnsupInst,
        Clash::NotOfConnection | Clash::Meter => Error::ActionBadArgument,
        Clash::OfConnection | Clash::NatAlone => Error::ActionBadSetArgument,
        Clash::NotInActionSet => Error::ActionBadType,
        Clash::Lacks { .. } => Error::ActionMatchInconsistent,
        Clash::ThirdTag => Error::ActionBadTag,
        Clash::Backwards { .. } => Error::InstructionBadTableId,
        Clash::OutPort(_) => Error::ActionBadOutPort,
    }
}
