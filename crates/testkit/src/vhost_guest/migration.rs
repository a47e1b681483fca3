//! What a hypervisor does when it moves a guest that runs: it copies the guest's memory, and what the log of written pages
//! names once more, until the switch has stopped.
//!
//! As QEMU does it: each pass takes bits out of the log and copies their pages then. Source: QEMU hw/virtio/vhost.c,
//! `vhost_dev_sync_region`, `vhost_dev_log_resize`; vhost-user protocol, "Migration".

use super::guest::{Guest, MEMORY, Place, USER, feature, protocol_feature, request, words};
use rustix::fs::MemfdFlags;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use vm_memory::{Bytes, FileOffset, GuestAddress, MmapRegion, VolatileMemory};

/// Bytes that a bit of the log stands for.
pub const PAGE: u64 = 4096;
/// Bytes of a message's header.
const HEADER: usize = 12;
/// Words of a log that has all pages.
const WORDS: usize = (MEMORY / PAGE / 64) as usize;

/// A log, in memory that the switch shares.
struct Log {
    file: File,
    bits: MmapRegion,
}

impl Log {
    fn new() -> Self {
        let file = File::from(rustix::fs::memfd_create("log", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(8 * WORDS as u64).unwrap();
        let bits = MmapRegion::from_file(FileOffset::new(file.try_clone().unwrap(), 0), 8 * WORDS).unwrap();
        Log { file, bits }
    }

    /// The pages that were written since the last call.
    fn take(&self) -> Vec<u64> {
        let mut pages = Vec::new();
        for word in 0..WORDS {
            let bits = self.bits.get_atomic_ref::<AtomicU64>(8 * word).unwrap().swap(0, SeqCst);
            pages.extend((0..64).filter(|bit| bits >> bit & 1 != 0).map(|bit| 64 * word as u64 + bit));
        }
        pages
    }
}

/// A migration under way.
pub struct Migration {
    log: Log,
    /// The copies, by page.
    copy: BTreeMap<u64, Vec<u8>>,
}

impl Guest {
    /// Has the switch log what it writes from now on, while it goes on, and copies these pages.
    pub fn begin_migration(&mut self, features: u64, pages: &[u64]) -> Migration {
        self.say(request::SET_PROTOCOL_FEATURES, &protocol_feature::LOG_SHMFD.to_le_bytes(), &[]);
        let mut migration = Migration { log: Log::new(), copy: BTreeMap::new() };
        self.set_log(&migration.log);
        self.say_features(features | feature::LOG_ALL);
        (0..2).for_each(|ring| self.set_addresses(ring, true));
        // What is copied from now on is written by a switch that logs it.
        self.offered_features();
        self.copy(&mut migration, pages);
        migration
    }

    /// Copies what was written since the last pass.
    pub fn copy_written(&self, migration: &mut Migration) {
        let pages = migration.log.take();
        self.copy(migration, &pages);
    }

    /// Gives the switch another log, as if the guest's memory had grown.
    pub fn replace_log(&self, migration: &mut Migration) {
        let old = std::mem::replace(&mut migration.log, Log::new());
        self.set_log(&migration.log);
        self.copy(migration, &old.take());
    }

    /// Copies pages.
    pub fn copy(&self, migration: &mut Migration, pages: &[u64]) {
        for page in pages {
            self.memory.read_slice(migration.page(*page), GuestAddress(page * PAGE)).unwrap();
        }
    }

    /// Stops the rings, and copies what was written until then. Returns where they stopped.
    pub fn stop_migrating(&mut self, migration: &mut Migration) -> [u32; 2] {
        let bases = [0, 1].map(|ring| {
            self.say(request::GET_VRING_BASE, &words([ring, 0]), &[]);
            let reply: [u8; HEADER + 8] = self.reply();
            u32::from_le_bytes(*reply.last_chunk().unwrap())
        });
        self.copy_written(migration);
        bases
    }

    /// The pages whose copies are not what the guest's memory has.
    pub fn stale_pages(&self, migration: &Migration) -> Vec<u64> {
        let is_stale = |(page, copy): (&u64, &Vec<u8>)| {
            let mut bytes = vec![0; PAGE as usize];
            self.memory.read_slice(&mut bytes, GuestAddress(page * PAGE)).unwrap();
            (bytes != *copy).then_some(*page)
        };
        migration.copy.iter().filter_map(is_stale).collect()
    }

    /// Says where a ring is, and whether the switch logs what it writes there.
    fn set_addresses(&self, ring: u32, is_logged: bool) {
        let place = Place::of(ring);
        let user = [place.descriptors, place.used, place.available].map(|at| (at + USER).to_le_bytes()).concat();
        let body = [&words([ring, is_logged.into()])[..], &user, &place.used.to_le_bytes()].concat();
        self.say(request::SET_VRING_ADDR, &body, &[]);
    }

    fn set_log(&self, log: &Log) {
        let body = [8 * WORDS as u64, 0].map(u64::to_le_bytes).concat();
        self.say(request::SET_LOG_BASE, &body, &[log.file.as_fd()]);
        // From the answer on it uses the new one.
        let _: [u8; HEADER + 16] = self.reply();
    }

    fn reply<const N: usize>(&self) -> [u8; N] {
        let mut reply = [0; N];
        (&self.socket).read_exact(&mut reply).unwrap();
        reply
    }
}

impl Migration {
    fn page(&mut self, page: u64) -> &mut [u8] {
        self.copy.entry(page).or_insert_with(|| vec![0; PAGE as usize])
    }
}
