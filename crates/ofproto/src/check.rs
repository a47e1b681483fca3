//! Checks of rules: matches, tables and actions.
//!
//! A rule with something that this version cannot do is refused when it is added, with the reason. Nothing is ignored
//! later.

use crate::bridge_config::N_TABLES;
use crate::error::Error;
use crate::groups::Groups;
use crate::meter::Meters;
use sluice_flow::field::{FIELDS, FieldId, Prereq};
use sluice_flow::geneve::OptionMap;
use sluice_flow::{Match, SubField, layout};
use sluice_ofp::OfAction;

/// Checks a rule's actions: everything is implemented, tables exist, and `goto_table` goes forward.
pub(crate) fn check_actions(table: u8, actions: &[OfAction]) -> Result<(), Error> {
    actions.iter().try_for_each(|action| check_action(table, action))?;
    let conjunction = actions.iter().find_map(|a| match a {
        OfAction::Conjunction { id, .. } => Some(*id),
        _ => None,
    });
    let alone = actions.iter().all(|a| matches!(a, OfAction::Conjunction { .. } | OfAction::Note(_)));
    match conjunction {
        Some(id) if !alone => Err(Error::ConjunctionNotAlone(id)),
        _ => Ok(()),
    }
}

/// Refuses actions of a bucket that are not built.
pub(crate) fn check_bucket(actions: &[OfAction]) -> Result<(), Error> {
    // A bucket is in no table, so it may go to any.
    actions.iter().try_for_each(|action| check_action(0, action))
}

/// Why NSH fields are refused: packet extraction does not read them.
const NO_NSH: &str = "NSH is not built yet";

fn is_nsh(field: FieldId) -> bool {
    field.field().prereq == Prereq::Nsh
}

/// Refuses a match on fields that are not implemented and on fields that only the switch sets: the datapath's hash, and
/// recirculation ids other than 0, which every received packet has.
pub(crate) fn check_match(matches: &Match) -> Result<(), Error> {
    let read = FIELDS.iter().filter(|field| is_nsh(field.id)).find(|field| field.place.read(&matches.mask) != 0);
    if let Some(field) = read {
        return Err(Error::MissingField { field: field.name, why: NO_NSH });
    }
    if matches.mask.number(layout::DP_HASH) != 0 {
        return Err(Error::HiddenField("dp_hash"));
    }
    if matches.key.number(layout::RECIRC_ID) != 0 { Err(Error::HiddenField("recirc_id")) } else { Ok(()) }
}

/// Checks a table number.
pub(crate) fn check_table(table: u8) -> Result<usize, Error> {
    if usize::from(table) < N_TABLES { Ok(table.into()) } else { Err(Error::BadTable(table)) }
}

fn check_action(table: u8, action: &OfAction) -> Result<(), Error> {
    match action {
        OfAction::GotoTable(to) => {
            check_table(*to)?;
            if *to <= table {
                return Err(Error::GotoBackwards { table, to: *to });
            }
        }
        OfAction::Resubmit { table: Some(to), .. } if *to != 255 => _ = check_table(*to)?,
        OfAction::Conntrack(ct) => _ = ct.table.map_or(Ok(0), check_table)?,
        OfAction::Learn(learn) => _ = check_table(learn.table)?,
        _ => {}
    }
    action.nested().iter().try_for_each(|action| check_action(table, action))?;
    missing(action).map_or(Ok(()), |why| Err(Error::Unsupported { action: name(action), why }))
}

/// What is missing for an action; `None` if it is implemented.
fn missing(action: &OfAction) -> Option<&'static str> {
    match action {
        OfAction::Encap { .. } | OfAction::Decap { .. } => Some("encap and decap are not built yet"),
        OfAction::DecNshTtl => Some(NO_NSH),
        OfAction::SetField { field, .. } if is_nsh(*field) => Some(NO_NSH),
        OfAction::Load { dst: field, .. } | OfAction::StackPush(field) | OfAction::StackPop(field)
            if is_nsh(field.field) =>
        {
            Some(NO_NSH)
        }
        OfAction::Move { src, dst } if is_nsh(src.field) || is_nsh(dst.field) => Some(NO_NSH),
        _ => None,
    }
}

/// Refuses what names an option of Geneve that the bridge has not mapped, or bits that the option does not have.
pub(crate) fn check_options(options: &OptionMap, matches: &Match, actions: &[OfAction]) -> Result<(), Error> {
    let matched = matches.mask.tun_metadata.fields().filter_map(FieldId::tun_metadata).map(SubField::whole);
    let named = OfAction::flattened(actions).flat_map(OfAction::subfields);
    matched.chain(named).try_for_each(|bits| {
        let Some(i) = bits.field.tunnel_option() else { return Ok(()) };
        let field = bits.field.field().name;
        let kind = options.get(i).ok_or(Error::UnmappedOption(field))?;
        let has_bits = bits.is_whole() || bits.start + bits.n_bits <= 8 * u32::from(kind.length);
        if has_bits { Ok(()) } else { Err(Error::OptionBits { field, length: kind.length }) }
    })
}

/// Refuses actions that use unknown groups.
pub(crate) fn check_groups(groups: &Groups, actions: &[OfAction]) -> Result<(), Error> {
    OfAction::flattened(actions).try_for_each(|action| match action {
        OfAction::Group(id) if !groups.contains_key(id) => Err(Error::BadOutGroup(*id)),
        _ => Ok(()),
    })
}

/// Refuses actions that use unknown meters. Messages to controllers may use them, as in OVS.
pub(crate) fn check_meters(meters: &Meters, actions: &[OfAction]) -> Result<(), Error> {
    OfAction::flattened(actions).try_for_each(|action| match action {
        OfAction::Meter(id) if !meters.contains_key(id) => Err(Error::BadMeterAction(*id)),
        _ => Ok(()),
    })
}

/// The beginning of the action's text.
fn name(action: &OfAction) -> String {
    action.to_string().chars().take(60).collect()
}
