//! Which actions may stand together, in which order, and within which others.

use super::{Clash, Within};
use crate::OfAction;
use crate::ofpact::Instruction;
use sluice_flow::field::FieldId;

/// Checks order and nesting of a list.
///
/// # Errors
/// The place in the list of the action that is wrong, and what is wrong with it.
pub fn order<'a>(actions: impl Iterator<Item = &'a OfAction> + Clone, within: Within) -> Result<(), (usize, Clash)> {
    conjunctions(actions.clone())?;
    let mut before: Option<(usize, Instruction)> = None;
    for (at, action) in actions.enumerate() {
        nesting(action, within).map_err(|clash| (at, clash))?;
        let now = match action.action_type().instruction {
            // OpenFlow 1.5 made it an action.
            Instruction::Meter if within == Within::Apply => Instruction::Apply,
            now => now,
        };
        let fits = match within {
            Within::Flow => true,
            // Nicira's action, which came before the instruction.
            Within::Apply => matches!(now, Instruction::Apply | Instruction::Metadata),
            _ => now == Instruction::Apply,
        };
        if !fits {
            return Err((at, Clash::Instruction));
        }
        match before {
            Some((earlier, then)) if now < then || now == then && now != Instruction::Apply => {
                return Err((at, Clash::Order { earlier }));
            }
            _ => before = Some((at, now)),
        }
    }
    Ok(())
}

/// Checks what stands beside `conjunction`.
///
/// # Errors
/// The place of the first action that may not.
pub fn conjunctions<'a>(mut actions: impl Iterator<Item = &'a OfAction> + Clone) -> Result<(), (usize, Clash)> {
    if !actions.clone().any(|action| matches!(action, OfAction::Conjunction { .. })) {
        return Ok(());
    }
    let stranger = |action: &OfAction| !matches!(action, OfAction::Conjunction { .. } | OfAction::Note(_));
    actions.position(stranger).map_or(Ok(()), |at| Err((at, Clash::BesideConjunction)))
}

/// The field that an action writes, if it is one of those that `ct(exec(…))` may hold.
fn written(action: &OfAction) -> Option<FieldId> {
    match action {
        OfAction::SetField { field, .. } => Some(*field),
        OfAction::SetOption(set) => Some(set.field),
        OfAction::Load { dst, .. } | OfAction::Move { dst, .. } => Some(dst.field),
        _ => None,
    }
}

fn nesting(action: &OfAction, within: Within) -> Result<(), Clash> {
    let of_connection = written(action).is_some_and(|f| matches!(f, FieldId::CtMark | FieldId::CtLabel));
    match within {
        Within::Ct if of_connection || matches!(action, OfAction::Nat(_)) => Ok(()),
        Within::Ct => Err(Clash::NotOfConnection),
        _ if of_connection => Err(Clash::OfConnection),
        _ if matches!(action, OfAction::Nat(_)) => Err(Clash::NatAlone),
        Within::Flow | Within::Apply => Ok(()),
        _ if matches!(action, OfAction::Meter(_)) => Err(Clash::Meter),
        Within::WriteActions if !action.action_type().in_action_set => Err(Clash::NotInActionSet),
        _ => Ok(()),
    }
}
