//! The virtio features that this device offers, and what they mean for its rings.

use crate::gro::GuestTso;
use vhost::vhost_user::message::VhostUserVirtioFeatures;

/// Feature bits. Source: VIRTIO 1.2, sections 5.1.3 and 6; vhost-user protocol, VHOST_F_LOG_ALL.
const CHECKSUM: u64 = 1 << 0;
const GUEST_CHECKSUM: u64 = 1 << 1;
const GUEST_TSO4: u64 = 1 << 7;
const GUEST_TSO6: u64 = 1 << 8;
const HOST_TSO4: u64 = 1 << 11;
const HOST_TSO6: u64 = 1 << 12;
const HOST_ECN: u64 = 1 << 13;
const MERGEABLE: u64 = 1 << 15;
const GUEST_ANNOUNCE: u64 = 1 << 21;
const MULTIQUEUE: u64 = 1 << 22;
const LOG_ALL: u64 = 1 << 26;
const INDIRECT: u64 = 1 << 28;
const EVENT_INDEX: u64 = 1 << 29;
const VERSION_1: u64 = 1 << 32;
const RING_PACKED: u64 = 1 << 34;
const IN_ORDER: u64 = 1 << 35;
const PROTOCOL: u64 = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();

/// Bytes of the virtio-net header of drivers that neither merge buffers nor know virtio 1.
const SHORT_HEADER: usize = 10;

/// A set of features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(pub u64);

impl Features {
    /// What is offered: guests may leave checksums and TCP segmentation to us, and may take GSO frames of TCP
    /// ([`Features::GUEST_TSO`]). After a migration they announce themselves: the hypervisor asks them to. Chains are used
    /// in the order in which they were made available; a guest that knows it frees them without looking at each.
    pub const OFFERED: Features = Features(
        Features::GUEST_TSO.0
            | CHECKSUM
            | HOST_TSO4
            | HOST_TSO6
            | HOST_ECN
            | MERGEABLE
            | GUEST_ANNOUNCE
            | MULTIQUEUE
            | LOG_ALL
            | INDIRECT
            | EVENT_INDEX
            | VERSION_1
            | RING_PACKED
            | IN_ORDER
            | PROTOCOL,
    );

    /// What says that the guest takes GSO frames of TCP. A port may be told not to offer it.
    pub const GUEST_TSO: Features = Features(GUEST_CHECKSUM | GUEST_TSO4 | GUEST_TSO6);

    /// Those that are not among `others`.
    pub fn without(self, others: Features) -> Features {
        Features(self.0 & !others.0)
    }

    /// Whether all of them are among `offered`.
    pub fn are_among(self, offered: Features) -> bool {
        self.0 & !offered.0 == 0
    }

    /// Whether rings are enabled one by one; otherwise all are.
    pub fn enables_rings(self) -> bool {
        self.0 & PROTOCOL != 0
    }

    /// Whether a packet may use several chains.
    pub fn merges(self) -> bool {
        self.0 & MERGEABLE != 0
    }

    /// The GSO frames that the guest takes, if it takes any. They have a partial checksum, which it must take as well.
    pub fn guest_tso(self) -> Option<GuestTso> {
        let has = |bit| self.0 & GUEST_CHECKSUM != 0 && self.0 & bit != 0;
        let tso = GuestTso { v4: has(GUEST_TSO4), v6: has(GUEST_TSO6) };
        (tso.v4 || tso.v6).then_some(tso)
    }

    /// Whether a descriptor may refer to a table of descriptors.
    pub fn has_indirect(self) -> bool {
        self.0 & INDIRECT != 0
    }

    /// Whether its rings have the packed format.
    pub fn is_packed(self) -> bool {
        self.0 & RING_PACKED != 0
    }

    /// Whether each side says at which index it wants to be notified.
    pub fn has_event_index(self) -> bool {
        self.0 & EVENT_INDEX != 0
    }

    /// Whether the guest is migrating, so that written pages are noted.
    pub fn logs(self) -> bool {
        self.0 & LOG_ALL != 0
    }

    /// The features that a running ring cannot change.
    pub fn of_rings(self) -> Features {
        Features(self.0 & !(LOG_ALL | PROTOCOL))
    }

    /// Bytes of the virtio-net header in front of each packet. Source: VIRTIO 1.2, section 5.1.6.1.
    pub fn header(self) -> usize {
        if self.0 & (MERGEABLE | VERSION_1) != 0 { crate::offload::VNET_HEADER } else { SHORT_HEADER }
    }
}
