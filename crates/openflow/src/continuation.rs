//! Continuations: the state from which a paused packet is resumed. Its controller gets it with the packet and sends it
//! back.
//!
//! To controllers it is opaque. Open vSwitch's own clients show it, so its format is Open vSwitch's, in the
//! version of the connection. Actions that this version lacks would be lost, and the packet would be resumed
//! without them: they are in a property of Sluice's own, as OpenFlow 1.5's instructions.
//! Source of the numbers: Open vSwitch, `lib/ofp-packet.c`.

use crate::action::{self, can_say, put_list};
use crate::wire::{Reader, Writer};
use crate::{Error, Version, instruction, property};
use sluice_flow::Wide;
use sluice_ofp::consistency::Within;
use sluice_ofp::{OfAction, Paused, Stretch};

const BRIDGE: u16 = 0x8000;
const STACK: u16 = 0x8001;
const MIRRORS: u16 = 0x8002;
const CONNTRACKED: u16 = 0x8003;
const TABLE_ID: u16 = 0x8004;
const COOKIE: u16 = 0x8005;
const ACTIONS: u16 = 0x8006;
const ACTION_SET: u16 = 0x8007;
const DATAPATH_PORT: u16 = 0x8008;
/// Sluice's own.
const INSTRUCTIONS: u16 = 0xa000;
const ACTION_SET_INSTRUCTIONS: u16 = 0xa001;

/// Bytes of a value on the stack.
const STACK_VALUE_MAX: usize = 128;

/// A continuation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Continuation {
    /// The bridge that can resume it, by an id that no other bridge ever has.
    pub bridge: u128,
    /// The rest of the packet's translation.
    pub paused: Paused,
}

pub(crate) fn put(c: &Continuation, version: Version, w: &mut Writer) {
    let Paused { stack, conntracked, mirrors, actions, action_set, datapath_port } = &c.paused;
    property::put(BRIDGE, &c.bridge.to_be_bytes(), w);
    for (value, n_bytes) in stack.iter().rev() {
        property::put(STACK, &value.wide().to_be(STACK_VALUE_MAX.min(*n_bytes as usize)), w);
    }
    if *mirrors != 0 {
        property::put_u32(MIRRORS, *mirrors, w);
    }
    if *conntracked {
        property::put(CONNTRACKED, &[], w);
    }
    let (mut table, mut cookie) = (0, 0);
    for stretch in actions {
        if stretch.table != table {
            property::put_u8(TABLE_ID, stretch.table, w);
        }
        if stretch.cookie != cookie {
            property::put_u64(COOKIE, stretch.cookie, w);
        }
        (table, cookie) = (stretch.table, stretch.cookie);
        put_actions((ACTIONS, INSTRUCTIONS), &stretch.actions, version, w);
    }
    put_actions((ACTION_SET, ACTION_SET_INSTRUCTIONS), action_set, version, w);
    if *datapath_port != 0 {
        property::put(DATAPATH_PORT, &datapath_port.to_be_bytes(), w);
    }
}

/// Writes actions that the version has as a property of the first kind, and the others one by one as the second.
fn put_actions(kinds: (u16, u16), actions: &[OfAction], version: Version, w: &mut Writer) {
    for run in actions.chunk_by(|a, b| can_say(a, version) && can_say(b, version)) {
        let says_it = run.iter().all(|action| can_say(action, version));
        let nested = |w: &mut Writer| match says_it {
            true => put_list(run, version, w),
            false => instruction::put(run, Version::V15, w),
        };
        property::put_nested(if says_it { kinds.0 } else { kinds.1 }, nested, w);
    }
}

pub(crate) fn read(r: Reader<'_>, version: Version) -> Result<Continuation, Error> {
    let mut c = Continuation::default();
    let (mut table, mut cookie) = (0, 0);
    property::each(r, |kind, body| {
        match kind {
            BRIDGE => {
                c.bridge = body.number(16)?;
                body.end()?;
            }
            STACK if body.len() > STACK_VALUE_MAX => return Err(Error::PropertyBadLen),
            STACK => {
                let n_bytes = body.len();
                c.paused.stack.push((Wide::from_be(body.take(n_bytes)?).into(), n_bytes as u32));
            }
            MIRRORS => c.paused.mirrors = property::u32(body)?,
            CONNTRACKED => {
                c.paused.conntracked = true;
                body.skip(body.len())?;
            }
            TABLE_ID => table = property::u8(body)?,
            COOKIE => cookie = property::u64(body)?,
            ACTIONS | INSTRUCTIONS => {
                let actions = read_actions(kind == ACTIONS, body, version)?;
                match c.paused.actions.last_mut().filter(|last| (last.table, last.cookie) == (table, cookie)) {
                    Some(last) => last.actions.extend(actions),
                    None => c.paused.actions.push(Stretch { table, cookie, actions }),
                }
            }
            ACTION_SET | ACTION_SET_INSTRUCTIONS => {
                c.paused.action_set.extend(read_actions(kind == ACTION_SET, body, version)?);
            }
            DATAPATH_PORT => c.paused.datapath_port = property::u32(body)?,
            _ => return Err(property::unknown(kind, body)),
        }
        Ok(())
    })?;
    // The top came first.
    c.paused.stack.reverse();
    Ok(c)
}

fn read_actions(as_actions: bool, body: &mut Reader<'_>, version: Version) -> Result<Vec<OfAction>, Error> {
    body.skip(4)?;
    let mut list = body.part(body.len())?;
    body.skip(body.len())?;
    if as_actions {
        return action::read(list, version, Within::Apply);
    }
    instruction::read(&mut list, Version::V15)
}
