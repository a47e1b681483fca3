//! Groups as data: what `ovs-ofctl add-group` and OpenFlow's group messages say of them.

use crate::OfAction;
use sluice_flow::{FieldId, FieldValue, OfPort};

/// The largest number that a group can have. Source: OpenFlow 1.1, `OFPG_MAX`.
pub const GROUP_MAX: u32 = 0xffff_ff00;

/// All groups, in deletions and requests.
pub const GROUP_ALL: u32 = 0xffff_fffc;

/// No group, or any.
pub const GROUP_ANY: u32 = 0xffff_ffff;

/// The largest number that a bucket can have. Source: OpenFlow 1.5, `OFPG_BUCKET_MAX`.
pub const BUCKET_MAX: u32 = 0xffff_ff00;

/// The first bucket of a group, when buckets are inserted or removed.
pub const BUCKET_FIRST: u32 = 0xffff_fffd;

/// Its last bucket.
pub const BUCKET_LAST: u32 = 0xffff_fffe;

/// All its buckets; in what does not tell buckets apart, none.
pub const BUCKET_ALL: u32 = 0xffff_ffff;

/// A change of the groups.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupMod {
    /// Add, change or delete.
    pub command: GroupCommand,
    /// Number of the group; for deletions also [`GROUP_ALL`].
    pub group: u32,
    /// Which bucket an insertion or removal is about; [`BUCKET_ALL`] otherwise.
    pub command_bucket: u32,
    /// What the group is from now on, or the buckets to insert.
    pub config: GroupConfig,
}

/// What a group is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupConfig {
    /// Which of its buckets a packet meets.
    pub kind: GroupKind,
    /// Its buckets, in order.
    pub buckets: Vec<Bucket>,
    /// How [`GroupKind::Select`] selects.
    pub selection: Selection,
}

/// Kind of a [`GroupMod`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupCommand {
    /// Add it; there must be none of its number.
    Add,
    /// Change it; it must be there.
    Modify,
    /// Delete it, and rules that send to it.
    Delete,
    /// Add it, or change it if it is there.
    AddOrModify,
    /// Insert buckets before or behind one.
    InsertBucket,
    /// Remove one or all of its buckets.
    RemoveBucket,
}

/// Which buckets of a group a packet meets. Numbers are OpenFlow's `OFPGT_*`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum GroupKind {
    /// All, each with a copy.
    #[default]
    All = 0,
    /// One of those that are live, by its hash and the weights.
    Select = 1,
    /// The only one.
    Indirect = 2,
    /// The first that is live.
    FastFailover = 3,
}

/// A bucket of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    /// Its number; [`BUCKET_ALL`] where buckets are not told apart.
    pub id: u32,
    /// Its share among those of a `select` group.
    pub weight: u16,
    /// It is live while this port is.
    pub watch_port: Option<OfPort>,
    /// It is live while this group is.
    pub watch_group: Option<u32>,
    /// What becomes of the packet.
    pub actions: Vec<OfAction>,
}

/// How a `select` group selects. Source: `ovs-ofctl(8)`, `selection_method`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// `hash`, `dp_hash`, or nothing: whatever the switch thinks best.
    pub method: String,
    /// Its parameter: the basis of the hash, for `dp_hash` its algorithm too.
    pub parameter: u64,
    /// Fields to hash, with the bits of theirs that matter, in the order of their ids; for method `hash`. No match:
    /// `tcp_src` and `udp_src`, say, share their bits, and each counts only where its prerequisites hold.
    pub fields: Vec<(FieldId, FieldValue)>,
}

impl Bucket {
    /// A bucket of weight 1 that watches nothing.
    pub fn new(id: u32, actions: Vec<OfAction>) -> Self {
        Bucket { id, weight: 1, watch_port: None, watch_group: None, actions }
    }
}
