//! Messages about the connection itself: hello, roles, asynchronous messages, bundles.

use super::Format;
use crate::property;
use crate::wire::{Reader, Writer};
use crate::{Error, Version};

/// The element of a hello that has the bitmap of versions.
const VERSION_BITMAP: u16 = 1;

/// The bitmap of versions in a hello, if there is one.
pub(super) fn read_hello(r: &mut Reader<'_>) -> Option<u32> {
    let mut versions = None;
    while let (Ok(kind), Ok(length)) = (r.u16(), r.u16()) {
        let length = usize::from(length);
        let mut body = r.part(length.checked_sub(4)?).ok()?;
        if kind == VERSION_BITMAP && versions.is_none() {
            versions = body.u32().ok();
        }
        let padding = (length.next_multiple_of(8) - length).min(r.len());
        r.skip(padding).ok()?;
    }
    versions
}

pub(super) fn put_hello(versions: Option<u32>, w: &mut Writer) {
    if let Some(versions) = versions {
        property::put(VERSION_BITMAP, &versions.to_be_bytes(), w);
    }
}

/// The role of a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// It may do everything, as may others.
    #[default]
    Equal,
    /// It may do everything, and there is only one.
    Primary,
    /// It may only read, and gets few asynchronous messages.
    Secondary,
}

/// A role request or reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleMessage {
    /// Its format.
    pub format: Format,
    /// The role; `None`: no change.
    pub role: Option<Role>,
    /// The generation of the request. `None`: Nicira's format, or all ones in a reply.
    pub generation: Option<u64>,
}

const UNKNOWN_GENERATION: u64 = u64::MAX;

pub(super) fn read_role(r: &mut Reader<'_>, format: Format) -> Result<RoleMessage, Error> {
    let number = r.u32()?;
    if format == Format::Nicira {
        let role = match number {
            0 => Role::Equal,
            1 => Role::Primary,
            2 => Role::Secondary,
            _ => return Err(Error::RoleBadRole),
        };
        return Ok(RoleMessage { format, role: Some(role), generation: None });
    }
    r.skip(4)?;
    let generation = r.u64()?;
    let role = match number {
        0 => None,
        1 => Some(Role::Equal),
        2 => Some(Role::Primary),
        3 => Some(Role::Secondary),
        _ => return Err(Error::RoleBadRole),
    };
    Ok(RoleMessage { format, role, generation: Some(generation) })
}

pub(super) fn put_role(m: &RoleMessage, w: &mut Writer) {
    let standard = match m.role {
        None => 0,
        Some(Role::Equal) => 1,
        Some(Role::Primary) => 2,
        Some(Role::Secondary) => 3,
    };
    if m.format == Format::Nicira {
        return w.u32(u32::saturating_sub(standard, 1));
    }
    w.u32(standard);
    w.zeros(4);
    w.u64(m.generation.unwrap_or(UNKNOWN_GENERATION));
}

/// Why a controller's role changed. Numbers are OpenFlow 1.4's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RoleReason {
    /// Another controller became primary.
    PrimaryRequest = 0,
    /// The configuration changed.
    Config = 1,
    /// An experimenter's reason.
    Experimenter = 2,
}

/// A role status message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleStatus {
    /// The controller's role now.
    pub role: Role,
    /// Why.
    pub reason: RoleReason,
    /// The generation of the request that changed it.
    pub generation: Option<u64>,
}

pub(super) fn read_role_status(r: &mut Reader<'_>) -> Result<RoleStatus, Error> {
    let role = match r.u32()? {
        1 => Role::Equal,
        2 => Role::Primary,
        3 => Role::Secondary,
        _ => return Err(Error::RoleBadRole),
    };
    let reason = match r.u8()? {
        0 => RoleReason::PrimaryRequest,
        1 => RoleReason::Config,
        2 => RoleReason::Experimenter,
        _ => return Err(Error::RequestBadReason),
    };
    r.skip(3)?;
    let generation = Some(r.u64()?).filter(|g| *g != UNKNOWN_GENERATION);
    // All properties are experimenters', and none of them is known.
    r.skip(r.len())?;
    Ok(RoleStatus { role, reason, generation })
}

pub(super) fn put_role_status(s: &RoleStatus, w: &mut Writer) {
    w.u32(match s.role {
        Role::Equal => 1,
        Role::Primary => 2,
        Role::Secondary => 3,
    });
    w.u8(s.reason as u8);
    w.zeros(3);
    w.u64(s.generation.unwrap_or(UNKNOWN_GENERATION));
}

/// Kinds of asynchronous messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the messages'")]
pub enum AsyncKind {
    PacketIn = 0,
    PortStatus = 1,
    FlowRemoved = 2,
    RoleStatus = 3,
    TableStatus = 4,
    RequestForward = 5,
}

/// Number of kinds.
pub(crate) const ASYNC_KINDS: usize = 6;

/// Which asynchronous messages a controller gets, by kind: bits of reasons, first those for a primary or equal one,
/// then those for a secondary one. `None`: unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AsyncMasks(pub [[Option<u32>; 2]; ASYNC_KINDS]);

/// The reasons that messages of a kind can have, as bits: those of OpenFlow 1.3 and those of 1.4.
/// Source: Open vSwitch, `async_props`.
const REASONS: [[u32; 2]; ASYNC_KINDS] = [[0x7, 0x3f], [0x7; 2], [0x3f; 2], [0x7; 2], [0x18; 2], [0x3; 2]];

impl AsyncMasks {
    /// The masks that a version has.
    pub(crate) fn within(masks: &[[u32; 2]; ASYNC_KINDS], version: Version) -> Self {
        let column = usize::from(version >= Version::V14);
        AsyncMasks(std::array::from_fn(|kind| masks[kind].map(|mask| Some(mask & REASONS[kind][column]))))
    }

    /// Whether OpenFlow 1.3's format has no place for some of the masks.
    pub(super) fn needs_properties(&self) -> bool {
        self.0[MASKS_13..].iter().flatten().any(Option::is_some)
    }
}

/// Kinds that OpenFlow 1.3's format has.
const MASKS_13: usize = 3;

/// Reads the masks in Nicira's and OpenFlow 1.3's format: those of three kinds. Unknown reasons are ignored.
pub(super) fn read_async13(r: &mut Reader<'_>) -> Result<AsyncMasks, Error> {
    let mut masks = AsyncMasks::default();
    for (kind, [reasons, _]) in masks.0[..MASKS_13].iter_mut().zip(REASONS) {
        *kind = [Some(r.u32()? & reasons), Some(r.u32()? & reasons)];
    }
    Ok(masks)
}

pub(super) fn put_async13(masks: &AsyncMasks, w: &mut Writer) {
    masks.0[..MASKS_13].iter().flatten().for_each(|mask| w.u32(mask.unwrap_or(0)));
}

/// Reads the masks in OpenFlow 1.4's format, properties: even numbers are for secondary controllers.
pub(super) fn read_async14(r: &mut Reader<'_>) -> Result<AsyncMasks, Error> {
    let mut masks = AsyncMasks::default();
    property::each(r.part(r.len())?, |kind, body| {
        // Two numbers are experimenters': 0xfffe is the one for secondary controllers.
        if kind >= 0xfffe {
            return Err(property::unknown(property::EXPERIMENTER, body));
        }
        // Source: Open vSwitch, which has this error for properties of this message only.
        let which = usize::from(kind / 2);
        let slot = masks.0.get_mut(which).ok_or(Error::AsyncUnsupported)?;
        let mask = property::u32(body)?;
        if mask & !REASONS[which][1] != 0 {
            return Err(Error::AsyncInvalid);
        }
        slot[usize::from(kind.is_multiple_of(2))] = Some(mask);
        Ok(())
    })?;
    Ok(masks)
}

pub(super) fn put_async14(masks: &AsyncMasks, w: &mut Writer) {
    for (i, [primary, secondary]) in masks.0.iter().enumerate() {
        for (kind, mask) in [(2 * i, secondary), (2 * i + 1, primary)] {
            if let Some(mask) = mask {
                property::put(kind as u16, &mask.to_be_bytes(), w);
            }
        }
    }
}

/// The type of a bundle control message. Numbers are OpenFlow 1.4's; replies have the next number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum BundleStep {
    /// Open the bundle.
    Open = 0,
    /// Close it: no more messages can be added.
    Close = 2,
    /// Carry it out.
    Commit = 4,
    /// Discard it.
    Discard = 6,
}

/// A flag of bundles: packets see all of the bundle's changes or none.
pub const BUNDLE_ATOMIC: u16 = 1;
/// A flag of bundles: the messages are carried out in order.
pub const BUNDLE_ORDERED: u16 = 2;

/// A bundle control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleControl {
    /// Which bundle.
    pub id: u32,
    /// Its type.
    pub step: BundleStep,
    /// Whether it is a reply.
    pub is_reply: bool,
    /// `BUNDLE_*`.
    pub flags: u16,
}

pub(super) fn read_bundle_control(r: &mut Reader<'_>) -> Result<BundleControl, Error> {
    use BundleStep::{Close, Commit, Discard, Open};
    let (id, number, flags) = (r.u32()?, r.u16()?, r.u16()?);
    let step = [Open, Close, Commit, Discard].into_iter().find(|s| *s as u16 == number & !1);
    // All properties are experimenters', and none of them is known.
    r.skip(r.len())?;
    let step = step.ok_or(Error::BundleBadType)?;
    Ok(BundleControl { id, step, is_reply: number & 1 != 0, flags })
}

pub(super) fn put_bundle_control(m: &BundleControl, w: &mut Writer) {
    w.u32(m.id);
    w.u16(m.step as u16 | u16::from(m.is_reply));
    w.u16(m.flags);
}

/// A message for a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleAdd {
    /// Which bundle.
    pub id: u32,
    /// `BUNDLE_*`.
    pub flags: u16,
    /// The message, with its header.
    pub message: Vec<u8>,
}

pub(super) fn read_bundle_add(r: &mut Reader<'_>) -> Result<BundleAdd, Error> {
    let id = r.u32()?;
    r.skip(2)?;
    let flags = r.u16()?;
    let length = crate::Header::read(r.rest()).map_err(|_| Error::BundleMsgBadLen)?.length;
    let message = r.or(Error::BundleMsgBadLen).take(length.into())?.to_vec();
    if message.len() < crate::HEADER_SIZE {
        return Err(Error::BundleMsgBadLen);
    }
    r.skip(r.len())?;
    Ok(BundleAdd { id, flags, message })
}

pub(super) fn put_bundle_add(m: &BundleAdd, w: &mut Writer) {
    w.u32(m.id);
    w.zeros(2);
    w.u16(m.flags);
    w.put(&m.message);
}

/// A table status message. OpenFlow 1.4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableStatus {
    /// Why it is sent: 3, vacancy fell below the lower threshold; 4, it rose above the upper one.
    pub reason: u8,
    /// The table.
    pub table: super::switch::TableMod,
}

pub(super) fn read_table_status(r: &mut Reader<'_>) -> Result<TableStatus, Error> {
    let reason = r.u8()?;
    if !(3..=4).contains(&reason) {
        return Err(Error::RequestBadReason);
    }
    r.skip(7)?;
    Ok(TableStatus { reason, table: super::switch::read_table_desc(r)? })
}

pub(super) fn put_table_status(s: &TableStatus, w: &mut Writer) {
    w.u8(s.reason);
    w.zeros(7);
    super::switch::put_table_desc(&s.table, w);
}
