//! Composed entries: one lookup for all passes of a packet of a known connection.
//!
//! A packet that is tracked meets the lookup twice or more: for the megaflow that says `ct(…)`, `recirc(…)`, and for the
//! one behind it. Both lookups, and the search for its connection in between, have the same outcome for the next packet of
//! the connection. So the outcome is kept under the packet's addresses and ports:
//!
//! ```text
//!  key ─► entry (addresses, ports) ─► path: key under all masks, megaflows, stamps    shared by connections
//!               └──────────────────► standings: the connection of each ct              of this one
//! ```
//!
//! An entry is a hint, like those of other indexes. What makes it a hit is checked for every packet: the whole of its key
//! under the masks of all megaflows of the path, that these are the very ones and live, that the connections are live,
//! and, the state having moved on as it does by `ct`, that the packet has got the same state, and mark and label if
//! anybody asks for them. So nothing needs to be told of a change of rules, connections or NAT. A packet that does not
//! get the stamp takes its next pass plainly from there.
//!
//! Packets are tracked in order of arrival, whichever way they go, and every megaflow counts every packet. Not composed are
//! traversals with anything else than `ct` and `recirc` before the last megaflow, translated packets, and packets that
//! are not TCP or UDP over IPv4: see [`Conntrack::conn_ref`](sluice_conntrack::Conntrack::conn_ref).

mod path;
mod recorder;
mod table;

pub(crate) use recorder::PathRecorder;

use crate::recirc::Origin;
use crate::settings::Level;
use path::{Hop, Path, Paths, addresses_and_ports, is_eligible};
use sluice_conntrack::{CachedConn, ConnRef, Conntrack, CtOutcome};
use sluice_flow::{PacketKey, layout};
use sluice_flow_cache::{Hits, Megaflow};
use sluice_packet::{BATCH_MAX, BatchMask, Packet};
use sluice_simd::hash::finish;
use sluice_simd::isa::Kernel;
use sluice_simd::{HashKey, Isa, VectorOps, compare, hash};
use sluice_sync::Slots;
use table::{At, Table};

/// The most `ct` actions in a traversal that is composed.
const HOPS_MAX: usize = 4;

/// Packets after which it is decided whether asking has paid.
const WINDOW: u32 = 4096;
/// One in so many of them has to be answered.
const ANSWERED_OF: u32 = 16;
/// Windows of packets that nobody is asked for if not.
const PAUSE: u32 = 32;

/// One PMD's composed entries.
pub(crate) struct Composer {
    secret: HashKey,
    level: Level,
    table: Table,
    paths: Paths,
    hashes: [u64; BATCH_MAX],
    /// What was found for the batch.
    found: [(At, u32); BATCH_MAX],
    /// Packets asked for in this window, and answered.
    asked: u32,
    answered: u32,
    /// Packets left that are not asked for.
    paused: u32,
}

/// How a packet has fared that was to go a composed way.
pub(crate) enum Replay<'a, 'g> {
    /// It has been through every `ct` and meets its last megaflow. The megaflows behind the hops have not counted it yet.
    Completed(&'a Path, &'g Megaflow),
    /// It has been through these hops, and then got another state, mark or label: it takes its next pass, key as it is.
    Diverged(&'a [Hop], CtOutcome),
    /// Nothing has happened: it meets its first megaflow plainly.
    NotReplayed,
}

impl Composer {
    /// Without entries, and without memory until there are some.
    pub fn new(secret: &HashKey, level: Level) -> Self {
        Composer {
            secret: secret.clone(),
            level,
            table: Table::default(),
            paths: Paths::default(),
            hashes: [0; BATCH_MAX],
            found: [(At::default(), 0); BATCH_MAX],
            asked: 0,
            answered: 0,
            paused: 0,
        }
    }

    /// Changes whether it is asked. Off, it has no memory.
    pub fn set_level(&mut self, level: Level) {
        self.level = level;
        if level == Level::Off {
            (self.table, self.paths) = (Table::default(), Paths::default());
        }
    }

    /// Finds the ways of the first `n` packets, just received. Of those it finds, the hit is the way's first megaflow.
    #[inline]
    pub fn look<'g>(
        &mut self,
        keys: &[PacketKey; BATCH_MAX],
        n: usize,
        (flows, isa): (Slots<'g, Megaflow>, Isa),
        hits: &mut Hits<'g>,
    ) -> BatchMask {
        if self.table.is_empty() || self.is_paused(n) {
            return BatchMask::NONE;
        }
        let known = isa.run(Look { composer: self, keys, n, flows, hits });
        self.asked += n as u32;
        self.answered += known.len() as u32;
        known
    }

    #[inline(always)]
    fn find<'g>(
        &mut self,
        keys: &[PacketKey; BATCH_MAX],
        n: usize,
        flows: Slots<'g, Megaflow>,
        hits: &mut Hits<'g>,
    ) -> BatchMask {
        for (hash, key) in self.hashes[..n].iter_mut().zip(keys) {
            *hash = hash_of(&self.secret, key);
        }
        self.hashes[..n].iter().for_each(|hash| self.table.prefetch(*hash));
        let mut known = BatchMask::NONE;
        let mut last: Option<(u32, &'g Megaflow)> = None;
        for i in 0..n {
            let words = compare::words(&keys[i].lines[0].0);
            let Some((at, id)) = self.table.find(self.hashes[i], addresses_and_ports(&words)) else { continue };
            let Some(path) = self.paths.get(id).filter(|path| path.fits(&words)) else { continue };
            // Whether a path's megaflows live is asked once for packets in a row.
            let first = match last {
                Some((same, first)) if same == id => first,
                _ => {
                    let Some(first) = path.first_if_live(flows) else { continue };
                    last = Some((id, first));
                    first
                }
            };
            self.table.prefetch_standing(at);
            self.found[i] = (at, id);
            hits[i] = Some(first);
            known.insert(i);
        }
        known
    }

    /// Whether these packets are not to be asked for, as it has not paid lately.
    #[inline]
    fn is_paused(&mut self, n: usize) -> bool {
        if self.asked >= WINDOW {
            if self.level == Level::Auto && self.answered < WINDOW / ANSWERED_OF {
                self.paused = WINDOW * PAUSE;
            }
            (self.asked, self.answered) = (0, 0);
        }
        let is_paused = self.paused != 0;
        self.paused = self.paused.saturating_sub(n as u32);
        is_paused
    }

    /// Lets packet `i`, whose way is known, be tracked on it: if that is not further than one `ct`, or it may go `far`.
    /// `carried` and `key` change if it diverges.
    #[inline]
    pub fn replay<'g>(
        &self,
        (i, far): (usize, bool),
        conntrack: &Conntrack,
        (packet, key): (&Packet, &mut PacketKey),
        carried: &mut CachedConn,
        (flows, now_ms): (Slots<'g, Megaflow>, u64),
    ) -> Replay<'_, 'g> {
        let (at, id) = self.found[i];
        let Some(path) = self.paths.get(id).filter(|path| far || path.hops().len() == 1) else {
            return Replay::NotReplayed;
        };
        let Some(last) = path.last_if_live(flows) else { return Replay::NotReplayed };
        let Some(l4) = Conntrack::l4_bytes(packet) else { return Replay::NotReplayed };
        let mut standings = self.table.standings(at);
        if !standings.clone().all(|standing| standing.is_live(now_ms)) {
            return Replay::NotReplayed;
        }
        for (n, hop) in path.hops().iter().enumerate() {
            let standing: &ConnRef = standings.next().expect("invariant: as many standings as hops");
            if let Err(diverged) = conntrack.replay(standing, &l4, &hop.stamp, now_ms) {
                let outcome = diverged.write(key, carried);
                key.set(layout::RECIRC_ID, &hop.recirc_id.to_be_bytes());
                return Replay::Diverged(&path.hops()[..n], outcome);
            }
        }
        Replay::Completed(path, last)
    }

    /// Notes the packets of a batch just received whose way is not known and may be: they are on a recording. `is_tracking`: there
    /// are connections.
    #[inline]
    pub fn depart(
        &mut self,
        recorder: &mut PathRecorder,
        (n, keys, origins): (usize, &[PacketKey; BATCH_MAX], &mut [Origin; BATCH_MAX]),
        (known, is_tracking): (BatchMask, bool),
        hits: &Hits<'_>,
    ) {
        if !recorder.is_empty() {
            // Those that waited for another pass have taken their numbers along.
            origins.iter_mut().for_each(|origin| origin.recording = 0);
            recorder.clear();
        }
        if self.level == Level::Off || self.paused != 0 || !is_tracking {
            return;
        }
        for i in BatchMask(BatchMask::first(n).0 & !known.0) {
            let Some(flow) = hits[i].filter(|flow| recorder::tracks(flow)) else { continue };
            let hash = hash_of(&self.secret, &keys[i]);
            if is_eligible(&keys[i]) && self.table.has_room(hash) {
                origins[i].recording = recorder.begin(&keys[i], hash, flow);
            }
        }
    }

    /// Lets the recorder of a batch in a later pass meet the megaflows found. Of those at their end, entries are made.
    #[inline]
    pub fn arrive(
        &mut self,
        recorder: &mut PathRecorder,
        (n, keys, origins): (usize, &[PacketKey; BATCH_MAX], &[Origin; BATCH_MAX]),
        hits: &Hits<'_>,
    ) {
        if recorder.is_empty() {
            return;
        }
        for i in (0..n).filter(|i| origins[*i].recording != 0) {
            let Some(done) = recorder.arrive(origins[i].recording, &keys[i], hits[i]) else { continue };
            if self.paths.is_exhausted() {
                (self.table, self.paths) = (Table::default(), Paths::default());
            }
            let id = self.paths.intern(done.path);
            self.table.insert(done.hash, done.addresses_and_ports, id, done.standings);
        }
    }

    /// Lets go of connections that have been taken out of the conntrack table, of a few entries a call.
    pub fn sweep(&mut self) {
        self.table.sweep();
    }
}

/// [`Composer::find`], compiled for each instruction set.
struct Look<'a, 'g> {
    composer: &'a mut Composer,
    keys: &'a [PacketKey; BATCH_MAX],
    n: usize,
    flows: Slots<'g, Megaflow>,
    hits: &'a mut Hits<'g>,
}

impl Kernel for Look<'_, '_> {
    type Output = BatchMask;

    #[inline(always)]
    fn run<V: VectorOps>(self, _: V) -> BatchMask {
        self.composer.find(self.keys, self.n, self.flows, self.hits)
    }
}

/// The hash of a key's addresses, protocol, ports, and port of arrival.
#[inline(always)]
fn hash_of(secret: &HashKey, key: &PacketKey) -> u64 {
    /// Protocol and ports in the last word.
    const PROTO_AND_PORTS: u64 = 0xffff_ffff_0000_00ff;

    let words = compare::words(&key.lines[0].0);
    let product = |place: usize, word| hash::product(word, secret.addends(place));
    let sum = product(0, words[0]).wrapping_add(product(6, words[6]));
    finish(sum.wrapping_add(product(7, words[7] & PROTO_AND_PORTS)))
}
