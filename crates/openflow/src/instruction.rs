//! Instructions, which hold actions from OpenFlow 1.1 on.

use crate::action::{self, is_instruction, put_list};
use crate::wire::{Reader, Writer};
use crate::{Error, Version, consistency};
use sluice_ofp::OfAction;
use sluice_ofp::consistency::Within;

const GOTO_TABLE: u16 = 1;
const WRITE_METADATA: u16 = 2;
const WRITE_ACTIONS: u16 = 3;
const APPLY_ACTIONS: u16 = 4;
const CLEAR_ACTIONS: u16 = 5;
const METER: u16 = 6;
const EXPERIMENTER: u16 = 0xffff;

/// Reads instructions to the end of `r`, as one list of actions in the order of their execution.
pub(crate) fn read(r: &mut Reader<'_>, version: Version) -> Result<Vec<OfAction>, Error> {
    let mut all = r.or(Error::InstructionBadLen);
    r.skip(r.len())?;
    // By type.
    let mut bodies: [Option<Reader<'_>>; 7] = [None; 7];
    while !all.is_empty() {
        let (kind, length) = match all.rest() {
            [a, b, c, d, ..] => (u16::from_be_bytes([*a, *b]), usize::from(u16::from_be_bytes([*c, *d]))),
            _ => return Err(Error::InstructionBadLen),
        };
        if length < 8 || !length.is_multiple_of(8) {
            return Err(Error::InstructionBadLen);
        }
        let mut body = all.part(length)?;
        body.skip(4)?;
        let known = (GOTO_TABLE..=CLEAR_ACTIONS).contains(&kind)
            || kind == METER && (Version::V13..Version::V15).contains(&version);
        if kind == EXPERIMENTER {
            return Err(Error::InstructionBadExperimenter);
        }
        if !known {
            return Err(Error::InstructionUnknownInst);
        }
        if bodies[usize::from(kind)].replace(body).is_some() {
            return Err(Error::InstructionDupInst);
        }
    }
    in_order(&mut bodies, version)
}

fn in_order(bodies: &mut [Option<Reader<'_>>; 7], version: Version) -> Result<Vec<OfAction>, Error> {
    let mut actions = Vec::new();
    let mut body = |kind: u16| bodies[usize::from(kind)].take();
    if let Some(mut r) = body(METER) {
        actions.push(OfAction::Meter(r.u32()?));
        r.end()?;
    }
    if let Some(mut r) = body(APPLY_ACTIONS) {
        r.skip(4)?;
        actions.extend(action::read(r, version, Within::Apply)?);
    }
    if let Some(mut r) = body(CLEAR_ACTIONS) {
        r.skip(4)?;
        r.end()?;
        actions.push(OfAction::ClearActions);
    }
    if let Some(mut r) = body(WRITE_ACTIONS) {
        r.skip(4)?;
        actions.push(OfAction::WriteActions(action::read(r, version, Within::WriteActions)?));
    }
    if let Some(mut r) = body(WRITE_METADATA) {
        r.skip(4)?;
        let (metadata, mask) = (r.u64()?, r.u64()?);
        r.end()?;
        actions.push(OfAction::WriteMetadata { metadata: metadata & mask, mask });
    }
    if let Some(mut r) = body(GOTO_TABLE) {
        actions.push(OfAction::GotoTable(r.u8()?));
        r.skip(3)?;
        r.end()?;
    }
    consistency::conjunctions(&actions)?;
    Ok(actions)
}

/// Writes a list of actions as instructions.
pub(crate) fn put(actions: &[OfAction], version: Version, w: &mut Writer) {
    let mut rest = actions;
    while let Some(first) = rest.first() {
        if is_instruction(first, version) {
            put_one(first, version, w);
            rest = &rest[1..];
        } else {
            let n = rest.iter().position(|a| is_instruction(a, version)).unwrap_or(rest.len());
            with_actions(APPLY_ACTIONS, &rest[..n], version, w);
            rest = &rest[n..];
        }
    }
}

fn with_actions(kind: u16, actions: &[OfAction], version: Version, w: &mut Writer) {
    let start = w.len();
    w.u16(kind);
    w.zeros(6);
    put_list(actions, version, w);
    w.patch_u16(start + 2, w.len() - start);
}

fn put_one(action: &OfAction, version: Version, w: &mut Writer) {
    match action {
        OfAction::Meter(meter) => {
            w.u16(METER);
            w.u16(8);
            w.u32(*meter);
        }
        OfAction::ClearActions => {
            w.u16(CLEAR_ACTIONS);
            w.u16(8);
            w.zeros(4);
        }
        OfAction::WriteActions(actions) => with_actions(WRITE_ACTIONS, actions, version, w),
        OfAction::WriteMetadata { metadata, mask } => {
            w.u16(WRITE_METADATA);
            w.u16(24);
            w.zeros(4);
            w.u64(*metadata);
            w.u64(*mask);
        }
        OfAction::GotoTable(table) => {
            w.u16(GOTO_TABLE);
            w.u16(8);
            w.u8(*table);
            w.zeros(3);
        }
        _ => {}
    }
}
