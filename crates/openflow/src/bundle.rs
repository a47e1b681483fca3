//! A connection's bundles: messages that are kept until they are carried out together.
//!
//! The messages' bytes are kept, which take a tenth of the memory of messages that have been read. Each is read when it
//! comes, so that its error is sent then, and again when the bundle is carried out.

use crate::conn_memory::ConnMemory;
use crate::message::connection::{BundleAdd, BundleControl, BundleStep};
use crate::session::{BundleCommit, Request};
use crate::{Error, Header, Message, N_TABLES, Version};
use sluice_fate::{Limit, MemoryShare};
use std::collections::HashMap;

/// Bytes of the bundles of all connections at most: more than two million flow-mods.
pub const BUNDLE_MEMORY: usize = 256 << 20;

/// Bundles of a connection at most.
pub const BUNDLES_MAX: usize = 16;

/// Packets and changes of ports in a bundle at most: they are read before it is carried out, and packets are translated one
/// after the other while all changes of tables wait.
pub const OTHERS_MAX: usize = 1024;

/// A bundle's memory grows by that many bytes at least.
const GROWTH_MIN: usize = 4096;

/// A connection's bundles.
#[derive(Debug)]
pub(crate) struct Bundles {
    by_id: HashMap<u32, Bundle>,
    /// The memory of their messages.
    share: MemoryShare,
    /// The time at the last [`Bundles::expire`].
    now_ms: u64,
}

#[derive(Debug)]
struct Bundle {
    flags: u16,
    is_closed: bool,
    /// When a message about it came last.
    used_ms: u64,
    /// The message that opened it.
    opened_by: Request,
    /// Its messages, one after the other.
    messages: Vec<u8>,
    /// How many of them do not change flows and groups.
    others: usize,
}

impl Bundle {
    /// The error of adding a message to it or closing it, if it cannot be done.
    fn wrong(&self, flags: u16) -> Option<Error> {
        match self {
            Bundle { is_closed: true, .. } => Some(Error::BundleBundleClosed),
            _ if self.flags != flags => Some(Error::BundleBadFlags),
            _ => None,
        }
    }
}

impl Default for Bundles {
    /// With memory of its own.
    fn default() -> Self {
        Bundles::new(ConnMemory::new(Limit::BundleMemory, BUNDLE_MEMORY).share(true))
    }
}

impl Bundles {
    /// No bundles yet; their memory is charged to that share.
    pub fn new(share: MemoryShare) -> Self {
        Bundles { by_id: HashMap::new(), share, now_ms: 0 }
    }

    /// Notes the time and removes bundles that no message was about for `idle_max_ms`. Returns what opened them.
    pub fn expire(&mut self, now_ms: u64, idle_max_ms: u64) -> Vec<Request> {
        self.now_ms = now_ms;
        let is_due = |bundle: &Bundle| bundle.used_ms.saturating_add(idle_max_ms) <= now_ms;
        let due = self.by_id.iter().filter(|(_, bundle)| is_due(bundle)).map(|(id, _)| *id).collect::<Vec<_>>();
        due.into_iter().filter_map(|id| self.remove(id)).map(|bundle| bundle.opened_by).collect()
    }

    /// How many bundles are open.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// When the next bundle expires.
    pub fn due_ms(&self, idle_max_ms: u64) -> Option<u64> {
        self.by_id.values().map(|bundle| bundle.used_ms.saturating_add(idle_max_ms)).min()
    }

    /// Carries out a control message. Returns the bundle if it is to be carried out.
    pub fn control(&mut self, request: &Request, m: &BundleControl) -> Result<Option<BundleCommit>, Error> {
        if m.is_reply {
            return Err(Error::BundleBadType);
        }
        match m.step {
            BundleStep::Open => {
                if self.remove(m.id).is_some() {
                    return Err(Error::BundleBadId);
                }
                self.open(m.id, m.flags, request).map(|()| None)
            }
            BundleStep::Close => {
                let bundle = self.by_id.get_mut(&m.id).ok_or(Error::BundleBadId)?;
                let wrong = bundle.wrong(m.flags);
                (bundle.is_closed, bundle.used_ms) = (true, self.now_ms);
                match wrong {
                    // The bundle is removed even if the commit fails.
                    Some(error) => {
                        self.remove(m.id);
                        Err(error)
                    }
                    None => Ok(None),
                }
            }
            BundleStep::Commit => {
                let bundle = self.remove(m.id).ok_or(Error::BundleBadId)?;
                if bundle.flags != m.flags {
                    return Err(Error::BundleBadFlags);
                }
                Ok(Some(BundleCommit { messages: bundle.messages, only_tables: bundle.others == 0, control: *m }))
            }
            BundleStep::Discard => self.remove(m.id).map(|_| None).ok_or(Error::BundleBadId),
        }
    }

    fn open(&mut self, id: u32, flags: u16, by: &Request) -> Result<(), Error> {
        if self.by_id.len() == BUNDLES_MAX {
            Limit::Bundles.hit();
            return Err(Error::BundleOutOfBundles);
        }
        let bundle = Bundle {
            flags,
            is_closed: false,
            used_ms: self.now_ms,
            opened_by: by.clone(),
            messages: Vec::new(),
            others: 0,
        };
        self.by_id.insert(id, bundle);
        Ok(())
    }

    fn remove(&mut self, id: u32) -> Option<Bundle> {
        let bundle = self.by_id.remove(&id)?;
        self.share.give_back(bundle.messages.capacity());
        Some(bundle)
    }

    /// Adds a message to a bundle, which is opened if there is none.
    pub fn add(
        &mut self,
        request: &Request,
        m: &BundleAdd,
        version: Version,
        table_in_command: bool,
    ) -> Result<(), Error> {
        let header = Header::read(&m.message)?;
        if header.xid != request.xid {
            return Err(Error::BundleMsgBadXid);
        }
        if header.version != version as u8 {
            return Err(Error::BundleBadVersion);
        }
        let (.., message) = Message::read(&m.message, table_in_command)?;
        match &message {
            Message::FlowMod(m) if m.flow.table == Some(N_TABLES) => return Err(Error::RequestEperm),
            Message::FlowMod(_) | Message::GroupMod(_) | Message::PortMod(_) | Message::PacketOut(_) => {}
            _ => return Err(Error::BundleMsgUnsup),
        }
        if !self.by_id.contains_key(&m.id) {
            self.open(m.id, m.flags, request)?;
        }
        let bundle = self.by_id.get_mut(&m.id).expect("invariant: it was there or was just opened");
        if let Some(error) = bundle.wrong(m.flags) {
            self.remove(m.id);
            return Err(error);
        }
        let is_other = !matches!(message, Message::FlowMod(_) | Message::GroupMod(_));
        if is_other && bundle.others == OTHERS_MAX {
            Limit::BundledPackets.hit();
            return Err(Error::BundleMsgTooMany);
        }
        // A quarter more at once, not twice as much: the memory is counted as it is.
        let (length, capacity) = (bundle.messages.len() + m.message.len(), bundle.messages.capacity());
        if length > capacity {
            let wanted = length.max(capacity + capacity / 4).max(GROWTH_MIN);
            bundle.messages.reserve_exact(wanted - bundle.messages.len());
            if !self.share.take(bundle.messages.capacity() - capacity) {
                bundle.messages.shrink_to(capacity);
                return Err(Error::BundleMsgTooMany);
            }
        }
        bundle.others += usize::from(is_other);
        bundle.messages.extend(&m.message);
        bundle.used_ms = self.now_ms;
        Ok(())
    }
}

/// The messages of a bundle, in order, with the bytes of each.
pub fn bundled(messages: &[u8], table_in_command: bool) -> impl Iterator<Item = (&[u8], Message)> {
    let mut rest = messages;
    std::iter::from_fn(move || {
        let length = usize::from(Header::read(rest).ok()?.length);
        let (bytes, after) = rest.split_at_checked(length)?;
        rest = after;
        let (.., message) = Message::read(bytes, table_in_command).ok()?;
        Some((bytes, message))
    })
}
