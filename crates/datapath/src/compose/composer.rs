//! One PMD's composed entries: find, replay, record.

use super::ahead::{Ahead, AheadBit};
use super::path::{Endpoints, HOPS_MAX, HashedWords, Hop, IPV6, PROTO, Path, Paths, is_eligible};
use super::pops::KnownPops;
use super::recorder::{Pass, PathRecorder, only_ct};
use super::sample::{Found, Sample};
use super::table::EntryTable;
use crate::batch::{Batch, PathHint};
use crate::context::Context;
use crate::first_index::HashKind;
use crate::settings::{Level, Settings};
use crate::tracking::{Tracking, count_outcome};
use arrayvec::ArrayVec;
use sluice_conntrack::{Conntrack, CtPacket, Diverged, HeadersAt};
use sluice_fate::Counter;
use sluice_flow::{PacketKey, layout};
use sluice_flow_cache::Megaflow;
use sluice_packet::{BATCH_MAX, BatchMask};
use sluice_simd::hash::finish;
use sluice_simd::isa::Kernel;
use sluice_simd::{HashKey, Isa, VectorOps, compare, hash};
use sluice_sync::Slots;
use std::sync::Arc;

/// One PMD's composed entries.
pub(crate) struct Composer {
    secret: HashKey,
    conntrack: Arc<Conntrack>,
    level: Level,
    isa: Isa,
    table: EntryTable,
    paths: Paths,
    recorder: PathRecorder,
    pops: KnownPops,
    /// Whether a path that was found last is not a simple one.
    has_others: bool,
    /// Whether one of the packets that were searched for last has IPv6 addresses.
    has_ipv6: bool,
    sample: Sample,
}

/// The result of a replay.
#[derive(Clone, Copy)]
enum Replay<'g> {
    /// The packet has been through every `ct` and meets this megaflow, which has not counted it yet.
    Completed(&'g Megaflow),
    /// A `ct` wrote another state, mark or label than recorded: the packet takes its next pass, its key as it is. It
    /// has asked for this many passes.
    Diverged(u8),
    /// Nothing has happened: the packet meets its first megaflow.
    Refused,
}

/// A path, and the megaflow at its end.
#[derive(Clone, Copy)]
struct Route<'a, 'g> {
    path: &'a Path,
    last: &'g Megaflow,
}

impl Composer {
    /// Without entries, and without memory until there are some.
    pub fn new(secret: &HashKey, conntrack: Arc<Conntrack>, settings: &Settings) -> Self {
        Composer {
            secret: secret.clone(),
            conntrack,
            level: settings.composed,
            isa: settings.vector,
            table: EntryTable::default(),
            paths: Paths::default(),
            recorder: PathRecorder::default(),
            pops: KnownPops::default(),
            has_others: false,
            has_ipv6: false,
            sample: Sample::default(),
        }
    }

    /// Changes whether it is used, and the instruction set. Off, it has no memory.
    pub fn set(&mut self, settings: &Settings) {
        (self.level, self.isa) = (settings.composed, settings.vector);
        if self.level == Level::Off {
            self.clear();
        }
    }

    fn clear(&mut self) {
        (self.table, self.paths, self.sample) = (EntryTable::default(), Paths::default(), Sample::default());
        self.pops.clear();
    }

    /// Finds the paths of packets just received or just out of a tunnel: these are `composed` afterwards, and their hit
    /// is the path's first megaflow. Packets just received whose header goes as that of the last ones did are `known`.
    #[inline]
    pub fn find<'g>(&mut self, batch: &mut Batch<'_, 'g>, context: &mut Context<'_, 'g>) {
        (batch.known, batch.composed, batch.diverged) = (BatchMask::NONE, BatchMask::NONE, BatchMask::NONE);
        batch.sampled = BatchMask::NONE;
        if !batch.begins_path {
            return;
        }
        if !batch.is_recirculated {
            self.pops.find(self.isa, batch, context);
        }
        if batch.known == batch.all() || self.table.is_empty() {
            return;
        }
        if self.sample.is_alone() && self.conntrack.connections() == 0 {
            return;
        }
        self.has_ipv6 = batch.keys[..batch.packets.len()].iter().any(|key| key.has_line(IPV6));
        self.has_others = self.isa.run(Find { composer: self, batch, flows: context.flows });
        let of = |packets: BatchMask| Found {
            packets: packets.len() as u32,
            found: BatchMask(packets.0 & batch.composed.0).len() as u32,
        };
        self.sample.learn(of(batch.all()), of(batch.sampled), self.level == Level::Auto);
        for counter in [Counter::MegaflowHits, Counter::ComposedHits] {
            context.tally[counter] += batch.composed.len() as u64;
        }
    }

    /// Whether a path that was found is not a simple one. Without `IPV6_TOO` no packet has IPv6 addresses.
    #[inline(always)]
    fn find_all<'g, V: VectorOps, const IPV6_TOO: bool>(
        &self,
        ops: V,
        batch: &mut Batch<'_, 'g>,
        flows: Slots<'g, Megaflow>,
    ) -> bool {
        let (n, mut asked) = (batch.packets.len(), batch.all());
        let keys = &*batch.keys;
        let is_alone = self.sample.is_alone();
        let mut of_sample = ArrayVec::<u64, BATCH_MAX>::new();
        let hashes = if is_alone {
            // The lookup behind may have hashes of its own already, which a search for the sample alone leaves.
            of_sample.extend(keys[..n].iter().map(|key| hash_of(&self.secret, key)));
            asked = Sample::of(&of_sample);
            &of_sample[..]
        } else {
            let hashes = &mut *batch.hashes;
            if batch.is_recirculated {
                for (hash, key) in hashes[..n].iter_mut().zip(keys) {
                    *hash = hash_of(&self.secret, key);
                    self.table.prefetch(*hash);
                }
            } else if batch.hash_kind != HashKind::Endpoints {
                // A packet just received came by no tunnel.
                if IPV6_TOO {
                    self.hash_and_prefetch_any(&keys[..n], hashes);
                } else {
                    self.hash_and_prefetch_ipv4(&keys[..n], hashes);
                }
            }
            batch.hash_kind = HashKind::Endpoints;
            &hashes[..n]
        };
        debug_assert!(
            batch.is_recirculated || (0..n).all(|i| hashes[i] == hash_of_received(&self.secret, &keys[i])),
            "the hashes are of these packets"
        );
        // Consecutive packets mostly have one path. Whether its megaflows are live is checked once for them.
        let mut last: Option<(u32, &Path, &'g Megaflow)> = None;
        let mut has_others = false;
        for i in asked {
            let hash = hashes[i];
            if Sample::has(hash) {
                batch.sampled.insert(i);
            }
            let has_ipv6 = IPV6_TOO && keys[i].has_line(IPV6);
            let endpoints = match has_ipv6 {
                true => Endpoints::of(&self.secret, &keys[i]),
                false => Endpoints::of_ipv4(&keys[i]),
            };
            let Some((hint, conn)) = self.table.find(hash, endpoints) else { continue };
            let (path, first) = match last {
                Some((same, path, first)) if same == hint.path => (path, first),
                _ => {
                    let Some(path) = self.paths.get(hint.path) else { continue };
                    let Some(first) = path.first_if_live(flows) else { continue };
                    last = Some((hint.path, path, first));
                    (path, first)
                }
            };
            if !path.fits(ops, &keys[i], has_ipv6) || batch.known.contains(i) {
                continue;
            }
            match conn {
                Some(conn) if has_ipv6 => conn.prefetch_addresses(),
                Some(conn) => conn.prefetch(),
                None => {}
            }
            batch.paths[i] = hint;
            batch.hits[i] = Some(first);
            batch.composed.insert(i);
            has_others |= !path.is_simple();
        }
        has_others
    }

    /// Whether packets just received are searched for before anything else is asked.
    #[inline]
    pub fn is_asked_first(&self) -> bool {
        !self.table.is_empty() && !self.sample.is_alone() && !self.knows_pops()
    }

    /// Whether the entries are more than the second-level cache holds, and so prefetched while packets are still read.
    #[inline]
    pub fn exceeds_l2(&self) -> bool {
        self.table.exceeds_l2()
    }

    /// Whether packets just received may be known by how the last ones lost a tunnel's header.
    pub fn knows_pops(&self) -> bool {
        !self.pops.is_empty()
    }

    /// Hashes keys, and fetches the lines that their entries are searched in.
    #[inline(always)]
    pub fn hash_and_prefetch(&self, keys: &[PacketKey], hashes: &mut [u64]) {
        if keys.iter().any(|key| key.has_line(IPV6)) {
            self.hash_and_prefetch_any(keys, hashes);
        } else {
            self.hash_and_prefetch_ipv4(keys, hashes);
        }
    }

    /// The same of keys without IPv6 addresses.
    #[inline(always)]
    fn hash_and_prefetch_ipv4(&self, keys: &[PacketKey], hashes: &mut [u64]) {
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = hash_of_line(&self.secret, key);
            self.table.prefetch(*hash);
        }
    }

    #[inline(never)]
    fn hash_and_prefetch_any(&self, keys: &[PacketKey], hashes: &mut [u64]) {
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = hash_of_received(&self.secret, key);
            self.table.prefetch(*hash);
        }
    }

    /// Replays the packets that have a path. None is `composed` afterwards: those that were not replayed meet their first
    /// megaflow.
    #[inline]
    pub fn replay<'g>(&self, batch: &mut Batch<'_, 'g>, context: &mut Context<'_, 'g>) {
        let composed = std::mem::replace(&mut batch.composed, BatchMask::NONE);
        if self.has_others {
            composed.into_iter().for_each(|i| self.prefetch_others(batch.paths[i]));
        }
        let mut recent = None;
        let in_front = composed.0.trailing_ones() as usize;
        let replayed = (0..in_front).take_while(|i| self.replay_packet(*i, &mut recent, batch, context)).count();
        let behind = BatchMask(composed.0 & !BatchMask::first(replayed).0);
        if !behind.is_empty() {
            self.replay_behind(replayed, behind, recent, batch, context);
        }
    }

    /// Prefetches what replays on a path that is not simple read beside the first line of the first connection.
    fn prefetch_others(&self, hint: PathHint) {
        let Some(path) = self.paths.get(hint.path) else { return };
        for (hop, conn) in path.hops().iter().zip(self.table.conns(hint)) {
            if hop.metadata.is_translated() { conn.prefetch_addresses() } else { conn.prefetch() }
        }
    }

    /// Replays those of the packets `composed` that need not stay behind a packet in front. The packet `at` is the first one that
    /// was not replayed; all in front of it were.
    #[inline(never)]
    fn replay_behind<'a, 'g>(
        &'a self,
        at: usize,
        composed: BatchMask,
        mut recent: Option<(u32, Route<'a, 'g>)>,
        batch: &mut Batch<'_, 'g>,
        context: &mut Context<'_, 'g>,
    ) {
        let mut ahead = Ahead::none();
        for i in at..batch.packets.len() {
            if !composed.contains(i) {
                ahead.add_met(&batch.keys[i], batch.hits[i]);
                continue;
            }
            let connections = self.connections_of(batch.paths[i], &batch.keys[i]);
            let waits = i == at || connections.iter().any(|connection| ahead.may_have(*connection));
            if waits || !self.replay_packet(i, &mut recent, batch, context) {
                connections.into_iter().for_each(|connection| ahead.add(connection));
            }
        }
    }

    /// The connections that a packet may belong to: that of its addresses, and those of the addresses that it is translated to.
    fn connections_of(&self, hint: PathHint, key: &PacketKey) -> ArrayVec<AheadBit, { 1 + HOPS_MAX }> {
        let mut connections = ArrayVec::from_iter([AheadBit::of(key)]);
        if let Some(path) = self.paths.get(hint.path).filter(|path| path.is_translated()) {
            let hops = path.hops().iter().zip(self.table.conns(hint));
            let translating = hops.filter(|(hop, _)| hop.metadata.is_translated());
            connections.extend(translating.map(|(hop, conn)| AheadBit::of_tuple(&conn.translated(hop.metadata.reply))));
        }
        connections
    }

    /// Replays packet `i`: whether it has completed its path. `recent` is the path of the packet before, which consecutive
    /// packets mostly share.
    #[inline(always)]
    fn replay_packet<'a, 'g>(
        &'a self,
        i: usize,
        recent: &mut Option<(u32, Route<'a, 'g>)>,
        batch: &mut Batch<'_, 'g>,
        context: &mut Context<'_, 'g>,
    ) -> bool {
        let hint = batch.paths[i];
        if recent.is_none_or(|(path, _)| path != hint.path) {
            *recent = self.route(hint.path, context.flows).map(|route| (hint.path, route));
        }
        let Some((_, route)) = *recent else { return false };
        let Batch { packets, keys, conns, .. } = batch;
        let packet = CtPacket { packet: &mut packets[i], key: &mut keys[i], cached: &mut conns[i] };
        match self.run(hint, route, packet, context) {
            Replay::Completed(last) => {
                if let Some(first) = batch.hits[i] {
                    context.count(first.id(), &batch.packets[i], &batch.keys[i]);
                }
                batch.hits[i] = Some(last);
                true
            }
            Replay::Diverged(passes) => {
                batch.diverged.insert(i);
                batch.origins[i].depth += passes;
                false
            }
            Replay::Refused => false,
        }
    }

    /// A path and its last megaflow, if that is live.
    #[inline]
    fn route<'g>(&self, path: u32, flows: Slots<'g, Megaflow>) -> Option<Route<'_, 'g>> {
        let path = self.paths.get(path)?;
        Some(Route { path, last: path.last_if_live(flows)? })
    }

    /// Replays a packet, and counts it for the megaflows between the first and the last.
    ///
    /// A call by itself costs a packet 90 instructions, and the compiler does not see that.
    #[inline(always)]
    fn run<'g>(
        &self,
        hint: PathHint,
        route: Route<'_, 'g>,
        mut replayed: CtPacket<'_>,
        context: &mut Context<'_, 'g>,
    ) -> Replay<'g> {
        let Route { path, last } = route;
        let Some(at) = Conntrack::headers_at(self.isa, replayed.packet) else { return Replay::Refused };
        if self.has_ipv6 && replayed.key.has_line(IPV6) && !self.has_addresses(hint, path, replayed.key) {
            return Replay::Refused;
        }
        let [hop] = path.hops() else {
            return self.run_long(hint, route, (replayed, at), context);
        };
        let conn_ref = self.table.first_conn(hint).expect("invariant: a connection for each hop");
        if !conn_ref.is_live(context.now_ms) {
            return Replay::Refused;
        }
        if let Err(diverged) = self.conntrack.replay(conn_ref, &mut replayed, at, &hop.metadata, context.now_ms) {
            leave(diverged, hop, replayed, context);
            return Replay::Diverged(1);
        }
        count_passes(1, context);
        Replay::Completed(last)
    }

    /// Whether the entry is one of these IPv6 addresses: it was found by a hash of them.
    #[inline(never)]
    fn has_addresses(&self, hint: PathHint, path: &Path, key: &PacketKey) -> bool {
        let (src, dst) = (key.get(layout::IPV6_SRC), key.get(layout::IPV6_DST));
        let first = self.table.first_conn(hint).zip(path.hops().first());
        first.is_some_and(|(conn, hop)| conn.has_addresses(hop.metadata.reply, src, dst))
    }

    /// [`Composer::run`] for a path with several `ct`.
    #[inline(never)]
    fn run_long<'g>(
        &self,
        hint: PathHint,
        Route { path, last }: Route<'_, 'g>,
        (mut replayed, at): (CtPacket<'_>, HeadersAt),
        context: &mut Context<'_, 'g>,
    ) -> Replay<'g> {
        let mut conns = self.table.conns(hint);
        if !conns.clone().all(|conn| conn.is_live(context.now_ms)) {
            return Replay::Refused;
        }
        for (n, hop) in path.hops().iter().enumerate() {
            let conn_ref = conns.next().expect("invariant: a connection for each hop");
            if let Err(diverged) = self.conntrack.replay(conn_ref, &mut replayed, at, &hop.metadata, context.now_ms) {
                count_hops(&path.hops()[..n], &replayed, context);
                leave(diverged, hop, replayed, context);
                count_passes(n, context);
                return Replay::Diverged(n as u8 + 1);
            }
        }
        let inner = path.hops().len() - 1;
        count_hops(&path.hops()[..inner], &replayed, context);
        count_passes(inner + 1, context);
        Replay::Completed(last)
    }

    /// Records what the packets of the batch met in this pass, if they may have entries. Of those at their last pass,
    /// entries are made.
    #[inline]
    pub fn record(&mut self, batch: &mut Batch<'_, '_>, tracking: &Tracking, context: &Context<'_, '_>) {
        if !std::mem::take(&mut batch.begins_path) {
            if !self.recorder.is_idle() {
                self.record_pass(batch, tracking, context);
            }
            return;
        }
        self.recorder.clear();
        if self.level != Level::Off && self.conntrack.connections() != 0 {
            self.begin_recordings(batch);
        }
    }

    /// Ends all recordings: the packets that follow are not those that arrived last.
    pub fn end_recordings(&mut self) {
        self.recorder.clear();
    }

    fn begin_recordings(&mut self, batch: &Batch<'_, '_>) {
        let recorded = if self.sample.is_alone() { batch.sampled } else { batch.all() };
        for i in BatchMask(recorded.0 & !batch.composed.0) {
            let Some(flow) = batch.hits[i].filter(|flow| only_ct(flow).is_some()) else { continue };
            let key = &batch.keys[i];
            let hash = hash_of(&self.secret, key);
            if is_eligible(key) && self.table.has_room(hash) {
                let endpoints = Endpoints::of(&self.secret, key);
                self.recorder.begin(batch.origins[i].arrival, key, (hash, endpoints), flow);
            }
        }
    }

    /// Remembers what took the header of a tunnel off packets just received.
    #[inline]
    pub fn remember_pop(&mut self, flow: &Megaflow) {
        if self.level != Level::Off {
            self.pops.remember(flow);
        }
    }

    fn record_pass(&mut self, batch: &Batch<'_, '_>, tracking: &Tracking, context: &Context<'_, '_>) {
        for (i, packet) in batch.packets.iter().enumerate() {
            let arrival = batch.origins[i].arrival;
            if !self.recorder.is_recording(arrival) {
                continue;
            }
            let key = &batch.keys[i];
            let tracked = self
                .recorder
                .met(arrival, context.flows)
                .and_then(|ct| self.conntrack.conn_ref(&tracking.conn_cache, packet, key, ct, context.now_ms));
            let pass = Pass { key, tracked, flow: batch.hits[i] };
            let Some(recorded) = self.recorder.record(arrival, pass) else { continue };
            if self.paths.is_exhausted() {
                self.clear();
            }
            debug_assert!(
                hash_of_entry(&self.secret, &recorded.path, recorded.endpoints)
                    .is_none_or(|hash| hash == recorded.hash),
                "an entry moves to where it is searched for"
            );
            let id = self.paths.intern(recorded.path);
            self.table.insert(recorded.hash, recorded.endpoints, id, recorded.conns);
            // With every new entry, so that a table that grows is ready when an eighth as many have come as it had buckets.
            let (paths, secret) = (&self.paths, &self.secret);
            self.table.split_some(|path, endpoints| hash_of_entry(secret, paths.get(path)?, endpoints));
        }
    }

    /// Releases connections that have been removed from the conntrack table, of a few entries a call.
    pub fn sweep(&mut self) {
        self.table.sweep();
    }
}

/// Writes what the `ct` of this hop did to a packet that leaves its path there.
#[cold]
fn leave(diverged: Diverged<'_>, hop: &Hop, replayed: CtPacket<'_>, context: &mut Context<'_, '_>) {
    let CtPacket { key, cached, .. } = replayed;
    count_outcome(diverged.write(key, cached), context.tally);
    key.set(layout::RECIRC_ID, &hop.recirc_id.to_be_bytes());
}

/// Counts a packet for the megaflows behind these hops.
#[inline]
fn count_hops(hops: &[Hop], replayed: &CtPacket<'_>, context: &Context<'_, '_>) {
    for hop in hops {
        context.count(hop.next(), replayed.packet, replayed.key);
    }
}

/// Counts passes that a replay stood for.
#[inline]
fn count_passes(passes: usize, context: &mut Context<'_, '_>) {
    for counter in [Counter::Passes, Counter::MegaflowHits, Counter::ComposedHits] {
        context.tally[counter] += passes as u64;
    }
}

/// [`Composer::find_all`], compiled for each instruction set.
struct Find<'a, 'm, 'g> {
    composer: &'a Composer,
    batch: &'a mut Batch<'m, 'g>,
    flows: Slots<'g, Megaflow>,
}

impl Kernel for Find<'_, '_, '_> {
    type Output = bool;

    #[inline(always)]
    fn run<V: VectorOps>(self, ops: V) -> bool {
        match self.composer.has_ipv6 {
            true => self.composer.find_all::<V, true>(ops, self.batch, self.flows),
            false => self.composer.find_all::<V, false>(ops, self.batch, self.flows),
        }
    }
}

/// The hash of a key's addresses, protocol, ports, port of arrival, and of the tunnel's key if it came by one: tenants use
/// the same addresses.
fn hash_of(secret: &HashKey, key: &PacketKey) -> u64 {
    hash_of_received(secret, key) ^ hash_of_tunnel(secret, key)
}

/// The hash of an entry's packets, if its path tells it.
fn hash_of_entry(secret: &HashKey, path: &Path, endpoints: Endpoints) -> Option<u64> {
    let HashedWords { first, last, tunnel } = path.hashed_words()?;
    let line = hash_of_words(secret, first, endpoints.addresses, u64::from(endpoints.ports) << 32 | last);
    Some(line ^ tunnel.map_or(0, |word| hash_of_tunnel_word(secret, word)))
}

/// The same without the tunnel's.
#[inline(always)]
fn hash_of_received(secret: &HashKey, key: &PacketKey) -> u64 {
    let words = compare::words(&key.lines[0].0);
    hash_of_words(secret, words[0], Endpoints::of(secret, key).addresses, words[7] & PROTO_AND_PORTS)
}

/// The same of line 0, whose addresses are of IPv4.
#[inline(always)]
fn hash_of_line(secret: &HashKey, key: &PacketKey) -> u64 {
    let words = compare::words(&key.lines[0].0);
    hash_of_words(secret, words[0], words[6], words[7] & PROTO_AND_PORTS)
}

/// Protocol and ports in the last word of line 0.
const PROTO_AND_PORTS: u64 = PROTO | 0xffff_ffff << 32;

/// The same by the words: the port of arrival, the addresses, protocol and ports.
#[inline(always)]
fn hash_of_words(secret: &HashKey, first: u64, addresses: u64, last: u64) -> u64 {
    let product = |place: usize, word| hash::product(word, secret.addends(place));
    finish(product(0, first).wrapping_add(product(6, addresses)).wrapping_add(product(7, last)))
}

/// That of the tunnel's key; 0 without a tunnel.
#[inline(always)]
fn hash_of_tunnel(secret: &HashKey, key: &PacketKey) -> u64 {
    /// The bit of the presence byte that says that there is a tunnel's line.
    const HAS_TUNNEL: u64 = 1 << layout::TUN_ID.line();

    if key.number(layout::PRESENCE) & HAS_TUNNEL == 0 {
        return 0;
    }
    let words = compare::words(&key.lines[layout::TUN_ID.line()].0);
    hash_of_tunnel_word(secret, words[0])
}

fn hash_of_tunnel_word(secret: &HashKey, word: u64) -> u64 {
    finish(hash::product(word, secret.addends(layout::TUN_ID.offset / 8)))
}
