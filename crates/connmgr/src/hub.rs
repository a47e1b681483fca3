//! The connections of one bridge: who they are, and news for them.
//!
//! News go into each connection's mailbox, which is bounded: whoever posts never waits, and what a connection does not
//! take in time is lost to it alone, counted.

use crate::fail_open::FailOpen;
use crate::monitor::{Monitors, Update};
use crate::snoop::Wire;
use parking_lot::{Mutex, MutexGuard};
use rustix::event::{EventfdFlags, eventfd};
use sluice_flow::{FieldId, OfPort};
use sluice_ofp::ofpact::PacketInReason;
use sluice_ofproto::{PacketInMetadata, RuleRemoved, RuleUpdate, Transaction, VacancyEvent};
use sluice_openflow::Message;
use sluice_openflow::message::ports::{PortDesc, PortReason};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

/// News that wait for a connection at most.
const MAILBOX_MAX: usize = 1024;

/// Connections of a bridge at most.
const CONNECTIONS_MAX: usize = 256;

/// News.
#[derive(Clone, Debug)]
pub enum News {
    /// A packet for a controller.
    Packet(Arc<Packet>),
    /// A rule went.
    Removed(Arc<RuleRemoved>),
    /// A port came, went or changed.
    Port(PortReason, Arc<PortDesc>),
    /// Another controller is primary now, by a wish of this generation.
    Demoted(Option<u64>),
    /// Another controller has changed a group or a meter.
    Forwarded(Arc<Forwarded>),
    /// A table is full, or no longer.
    Vacancy(VacancyEvent),
    /// Flows that its monitors watch have changed.
    Updates(Vec<Update>),
}

/// A change that another controller has made.
#[derive(Clone, Debug)]
pub struct Forwarded {
    /// The change, a group-mod or a meter-mod.
    pub message: Message,
    /// Its transaction.
    pub xid: u32,
}

/// A packet for a controller.
#[derive(Clone, Debug)]
pub struct Packet {
    /// What it had been through.
    pub context: PacketInMetadata,
    /// Why it comes.
    pub reason: PacketInReason,
    /// Which connections it is for, by their number.
    pub controller_id: u16,
    /// Cookie of the rule that sent it.
    pub cookie: u64,
    /// Length of the whole packet.
    pub total_len: usize,
    /// The packet, or its beginning.
    pub bytes: Vec<u8>,
}

impl Packet {
    /// The bridge's port that it came in by.
    pub fn in_port(&self) -> OfPort {
        OfPort(self.context.metadata.field(FieldId::InPort).0 as u16)
    }

    /// Whether it comes because no rule matched it.
    pub fn is_miss(&self) -> bool {
        matches!(self.reason, PacketInReason::NoMatch | PacketInReason::ImplicitMiss)
    }
}

/// Where news wait for one connection.
pub struct Mailbox {
    waiting: Mutex<VecDeque<News>>,
    /// Whether any wait: asked far more often than there are some.
    has_news: AtomicBool,
    wake: OwnedFd,
    number: u64,
    monitors: Mutex<Monitors>,
    lost: AtomicU64,
    is_primary: AtomicBool,
}

impl Mailbox {
    fn new(number: u64) -> rustix::io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let (lost, is_primary, has_news) = (0.into(), false.into(), false.into());
        let (waiting, monitors) = (Mutex::default(), Mutex::default());
        Ok(Mailbox { waiting, has_news, wake, number, monitors, lost, is_primary })
    }

    /// The connection's number, which no other one of the bridge ever has.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What the connection watches.
    pub fn monitors(&self) -> MutexGuard<'_, Monitors> {
        self.monitors.lock()
    }

    fn post(&self, news: News) {
        let mut waiting = self.waiting.lock();
        // A lost role would leave two primaries; there are few of them. Updates have a bound of their own.
        if waiting.len() >= MAILBOX_MAX && !matches!(news, News::Demoted(_) | News::Updates(_)) {
            self.lost.fetch_add(1, Relaxed);
            return;
        }
        waiting.push_back(news);
        drop(waiting);
        self.ring();
        // Last: whoever takes the news stops the ringing.
        self.has_news.store(true, SeqCst);
    }

    fn ring(&self) {
        // Full: it rings already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Takes everything that waits.
    pub fn take(&self) -> VecDeque<News> {
        if !self.has_news.swap(false, SeqCst) {
            return VecDeque::new();
        }
        let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
        std::mem::take(&mut *self.waiting.lock())
    }

    /// News that were lost because the connection did not take them in time.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// Says whether the connection's controller is the primary one.
    pub fn set_primary(&self, is_primary: bool) {
        self.is_primary.store(is_primary, SeqCst);
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

/// A number that will not come again.
fn random_id() -> u128 {
    let draw = || u128::from(RandomState::new().hash_one(std::process::id()));
    draw() << 64 | draw()
}

/// The connections of a bridge.
pub struct Hub {
    /// The bridge's name.
    pub bridge: String,
    /// A number that no other bridge ever has, drawn when the bridge was made.
    pub id: u128,
    mailboxes: Mutex<Vec<Arc<Mailbox>>>,
    next_number: AtomicU64,
    /// The latest wish for a role.
    generation: Mutex<Option<u64>>,
    /// Connections that want packets which no rule matches.
    want_misses: AtomicUsize,
    /// Connections that watch the tables.
    watching: AtomicUsize,
    /// Ports as they were last told.
    ports: Mutex<BTreeMap<u16, PortDesc>>,
    /// What the bridge does without controllers, if it is standalone and has some.
    pub fail_open: Option<FailOpen>,
    /// The controllers that the bridge connects to, for who snoops.
    wires: Mutex<Vec<Arc<Wire>>>,
    ending: AtomicBool,
    /// Rings when the bridge's connections are to end.
    end: OwnedFd,
}

impl Hub {
    /// The connections of a bridge: none so far.
    ///
    /// # Errors
    /// If the system is out of descriptors.
    pub fn new(bridge: &str) -> rustix::io::Result<Self> {
        Ok(Hub {
            bridge: bridge.to_owned(),
            id: random_id(),
            mailboxes: Mutex::default(),
            next_number: 0.into(),
            generation: Mutex::default(),
            want_misses: 0.into(),
            watching: 0.into(),
            ports: Mutex::default(),
            fail_open: None,
            wires: Mutex::default(),
            ending: false.into(),
            end: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
        })
    }

    /// Adds a connection; `None` if there are too many.
    pub fn join(&self) -> Option<Arc<Mailbox>> {
        let mut mailboxes = self.mailboxes.lock();
        if mailboxes.len() >= CONNECTIONS_MAX {
            return None;
        }
        let number = self.next_number.fetch_add(1, Relaxed);
        let mailbox = Arc::new(Mailbox::new(number).ok()?);
        mailboxes.push(Arc::clone(&mailbox));
        Some(mailbox)
    }

    /// Removes a connection.
    pub fn leave(&self, mailbox: &Arc<Mailbox>) {
        self.mailboxes.lock().retain(|other| !Arc::ptr_eq(other, mailbox));
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.mailboxes.lock().len()
    }

    /// One more controller that the bridge connects to.
    pub fn add_wire(&self) -> Arc<Wire> {
        let wire = Arc::new(Wire::default());
        self.wires.lock().push(Arc::clone(&wire));
        wire
    }

    /// The controller that is snooped: of the most preferred, the first. `None` if the bridge has none.
    pub fn wire_to_snoop(&self) -> Option<Arc<Wire>> {
        self.wires.lock().iter().rev().max_by_key(|wire| wire.preference()).cloned()
    }

    /// Tells all connections.
    pub fn post(&self, news: &News) {
        self.mailboxes.lock().iter().for_each(|mailbox| mailbox.post(news.clone()));
    }

    /// Tells all connections but one.
    pub fn post_to_others(&self, mailbox: &Arc<Mailbox>, news: &News) {
        let mailboxes = self.mailboxes.lock();
        mailboxes.iter().filter(|other| !Arc::ptr_eq(other, mailbox)).for_each(|other| other.post(news.clone()));
    }

    /// Tells the connections that watch them of changed rules.
    pub fn post_changes(&self, transaction: Transaction, news: &[Arc<RuleUpdate>]) {
        for mailbox in self.mailboxes.lock().iter() {
            let mut monitors = mailbox.monitors();
            let updates = monitors.updates(mailbox.number, transaction, news);
            if !updates.is_empty() || monitors.is_overrun() {
                mailbox.post(News::Updates(updates));
            }
        }
    }

    /// Takes note of a wish for a role; `Err` if a later one has been granted.
    ///
    /// # Errors
    /// If the wish is an old one.
    pub fn check_generation(&self, wish: u64) -> Result<(), sluice_openflow::Error> {
        let mut generation = self.generation.lock();
        match *generation {
            // The numbers go round.
            Some(latest) if (wish.wrapping_sub(latest) as i64) < 0 => Err(sluice_openflow::Error::RoleStale),
            _ => {
                *generation = Some(wish);
                Ok(())
            }
        }
    }

    /// The latest wish for a role.
    pub fn generation(&self) -> Option<u64> {
        *self.generation.lock()
    }

    /// Makes a connection the primary one; the one that was is told.
    pub fn make_primary(&self, mailbox: &Arc<Mailbox>) {
        let generation = self.generation();
        for other in self.mailboxes.lock().iter() {
            if !Arc::ptr_eq(other, mailbox) && other.is_primary.swap(false, SeqCst) {
                other.post(News::Demoted(generation));
            }
        }
        mailbox.set_primary(true);
    }

    /// Takes note of the ports as they are, and tells what has changed since the last time.
    pub fn note_ports(&self, ports: impl IntoIterator<Item = PortDesc>) {
        let new: BTreeMap<u16, PortDesc> = ports.into_iter().map(|p| (p.port, p)).collect();
        let old = std::mem::replace(&mut *self.ports.lock(), new.clone());
        for (number, desc) in &old {
            if !new.contains_key(number) {
                self.post(&News::Port(PortReason::Delete, Arc::new(desc.clone())));
            }
        }
        for (number, desc) in new {
            let reason = match old.get(&number) {
                Some(before) if *before == desc => continue,
                Some(_) => PortReason::Modify,
                None => PortReason::Add,
            };
            self.post(&News::Port(reason, Arc::new(desc)));
        }
    }

    /// Notes whether one more or one fewer connection wants packets that no rule matches; what holds for the bridge from
    /// now on, if that has changed.
    pub fn want_misses(&self, wants: bool) -> Option<bool> {
        let before = if wants { self.want_misses.fetch_add(1, SeqCst) } else { self.want_misses.fetch_sub(1, SeqCst) };
        match (wants, before) {
            (true, 0) => Some(true),
            (false, 1) => Some(false),
            _ => None,
        }
    }

    /// Notes that one more or one fewer connection watches the tables.
    pub fn watch(&self, starts: bool) {
        if starts {
            self.watching.fetch_add(1, SeqCst)
        } else {
            self.watching.fetch_sub(1, SeqCst)
        };
    }

    /// Whether any connection watches the tables.
    pub fn is_watched(&self) -> bool {
        self.watching.load(SeqCst) != 0
    }

    /// Ends all connections and listeners.
    pub fn end(&self) {
        self.ending.store(true, SeqCst);
        let _ = rustix::io::write(&self.end, &1u64.to_ne_bytes());
    }

    /// Whether they are to end.
    pub fn is_ending(&self) -> bool {
        self.ending.load(SeqCst)
    }

    /// Readable once they are to end.
    pub fn end_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_mailbox_loses_news_but_no_demotion() {
        let hub = Hub::new("br0").unwrap();
        let mailbox = hub.join().unwrap();
        mailbox.set_primary(true);
        let desc = Arc::new(PortDesc::default());
        (0..MAILBOX_MAX + 5).for_each(|_| hub.post(&News::Port(PortReason::Modify, Arc::clone(&desc))));
        let other = hub.join().unwrap();
        hub.make_primary(&other);
        assert_eq!((mailbox.lost(), mailbox.take().len()), (5, MAILBOX_MAX + 1));
    }

    #[test]
    fn generations_go_round() {
        let hub = Hub::new("br0").unwrap();
        assert!(hub.check_generation(u64::MAX).is_ok() && hub.check_generation(3).is_ok());
        assert_eq!(hub.check_generation(u64::MAX), Err(sluice_openflow::Error::RoleStale));
        assert_eq!(hub.generation(), Some(3));
    }

    #[test]
    fn ports_are_told_once() {
        let hub = Hub::new("br0").unwrap();
        let mailbox = hub.join().unwrap();
        let port = |number, config| PortDesc { port: number, config, ..PortDesc::default() };
        hub.note_ports([port(1, 0), port(2, 0)]);
        hub.note_ports([port(1, 0), port(2, 0)]);
        hub.note_ports([port(2, 1)]);
        let reasons = mailbox.take().into_iter().map(|news| match news {
            News::Port(reason, desc) => (reason, desc.port),
            other => panic!("{other:?}"),
        });
        let reasons = reasons.collect::<Vec<_>>();
        use PortReason::{Add, Delete, Modify};
        assert_eq!(reasons, [(Add, 1), (Add, 2), (Delete, 1), (Modify, 2)]);
    }
}
