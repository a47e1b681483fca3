//! The xlate cache: what a translation has used, and what its packets cause; `ofproto-dpif-xlate-cache` in Open
//! vSwitch.
//!
//! A megaflow stands for one translation, but its packets count for every rule matched, keep MAC entries and learned
//! rules young, and close TCP connections. The datapath keeps the cache with the megaflow and hands it back with the
//! megaflow's counters. The cache also names everything the translation depends on, for `depends`.

use crate::bridge_config::BridgeId;
use crate::effects::Effect;
use crate::group::Group;
use crate::mac::LearnPacket;
use crate::mirror::MirrorCounts;
use crate::recirc::Recirculation;
use crate::rule::Rule;
use crate::search_key::SearchKey;
use crate::table_counts::TableCounts;
use crate::vport_counts::VportCounts;
use crate::xlate_cache_size::{bytes_of, entries_bytes, merge};
use parking_lot::{Mutex, MutexGuard};
use sluice_action::{BondTable, FlowCharge, FlowMemory, FlowStats, Xcache, XcacheHandle};
use sluice_flow::{CompactKey, Mac, OfPort, PacketKey};
use sluice_ofp::FlowMod;
use std::net::Ipv6Addr;
use std::sync::Arc;

/// FIN and RST: the connection is closing.
const TCP_CLOSING: u16 = 0x01 | 0x04;

/// One thing that a translation did or looked up.
#[derive(Clone, Debug)]
pub(crate) enum XcEntry {
    /// Matched a rule, that many times.
    Rule { rule: Arc<Rule>, times: u32 },
    /// Searched a table, successfully or not, that many times.
    Table { bridge: BridgeId, table: u8, matched: bool, counts: Arc<TableCounts>, key: SearchKey, times: u32 },
    /// Learned a MAC entry from the packet's source address.
    MacLearn { bridge: BridgeId, vlan: u16, mac: Mac, port: OfPort, packet: LearnPacket },
    /// Looked up the port of a MAC entry, successfully or not.
    MacLookup { bridge: BridgeId, vlan: u16, mac: Mac },
    /// Learned a rule of a packet that came by that port.
    Learn { bridge: BridgeId, port: OfPort, flow: Arc<FlowMod>, limit: u32 },
    /// Carried out `fin_timeout`.
    FinTimeout { bridge: BridgeId, rule: Arc<Rule>, idle: u16, hard: u16 },
    /// Looked up something else of the bridge, successfully or not.
    Depends { bridge: BridgeId, on: Dependency },
    /// Used a group: one of its buckets, or all.
    Group(Arc<Group>, Option<usize>),
    /// Sent to a neighbour by a tunnel: as long as there are such packets the neighbour stays known.
    Neighbour { bridge: BridgeId, ip: Ipv6Addr, mac: Mac },
    /// Came by a patch port or a tunnel.
    VportRx(Arc<VportCounts>),
    /// Left by a patch port or a tunnel.
    VportTx(Arc<VportCounts>),
    /// The entries behind it count packets that are longer by this number of bytes, a tunnel's header; shorter, if it is
    /// negative.
    TunnelHeader(i16),
    /// Copied for a mirror.
    Mirror(Arc<MirrorCounts>),
    /// Left by a bucket of a bond.
    Bond { table: Arc<BondTable>, bucket: u8 },
    /// A user put the megaflow by hand. Until it is judged, nobody has compared it with what the tables say. Always the first
    /// entry.
    Put { is_judged: bool },
    /// Froze or resumed a translation. The recirculation id lives as long as this entry.
    Recirculation(Arc<Recirculation>),
}

/// What a translation looks up in a bridge besides rules and MAC entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Dependency {
    /// The configuration of a port. The input port of a search is in the search's key.
    Port(OfPort),
    /// The set of ports, and which of them take part in floods.
    AllPorts,
    Group(u32),
    Meter(u32),
    /// Whether a table may have another learned rule.
    TableCapacity(u8),
    /// How a bond balances, and which members it has.
    Bond(u32),
    /// Which member each bucket of a bond has.
    BondBuckets(u32),
    /// Which packets are admitted that come by a member of a bond.
    BondInput(OfPort),
    /// The Ethernet address of a tunnel's next hop.
    Neighbour(Ipv6Addr),
}

/// Packets to credit to an xlate cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Push {
    pub packets: u64,
    pub bytes: u64,
    pub tcp_flags: u16,
    pub used_ms: u64,
}

/// The xlate cache of one translation.
#[derive(Debug)]
pub(crate) struct XlateCache {
    /// The packet's key. Revalidation translates it again.
    key: CompactKey,
    inner: Mutex<XlateCacheInner>,
}

/// The part that revalidation changes.
#[derive(Debug)]
pub(crate) struct XlateCacheInner {
    entries: Box<[XcEntry]>,
    charge: FlowCharge,
    /// Packets and bytes of the megaflow that are credited already.
    pub credited: (u64, u64),
}

impl XlateCache {
    /// That of a translation of `key`; its memory is charged to the account, if there is one.
    pub fn new(key: &PacketKey, entries: Vec<XcEntry>, memory: Option<&Arc<FlowMemory>>) -> Self {
        let entries = merge(entries);
        let key = CompactKey::from(key);
        let charge = FlowCharge::new(memory, bytes_of(&key) + entries_bytes(&entries));
        XlateCache { key, inner: Mutex::new(XlateCacheInner { entries, charge, credited: (0, 0) }) }
    }

    /// The key of the packet that was translated.
    pub fn key(&self) -> PacketKey {
        (&self.key).into()
    }

    /// A word of that key.
    pub fn word(&self, place: usize) -> u64 {
        self.key.word(place)
    }

    pub fn lock(&self) -> MutexGuard<'_, XlateCacheInner> {
        self.inner.lock()
    }
}

impl Xcache for XlateCache {
    fn bytes(&self) -> u64 {
        self.lock().charge.bytes()
    }
}

/// The key of the packet that a translation was made for.
pub fn packet_of(xcache: &XcacheHandle) -> Option<PacketKey> {
    xcache.0.downcast_ref::<XlateCache>().map(XlateCache::key)
}

/// What a megaflow remembers that a user puts by hand: the key as it was written. Its memory is charged to the account.
pub fn xcache_of_put(key: &PacketKey, memory: &Arc<FlowMemory>) -> XcacheHandle {
    XcacheHandle(Arc::new(XlateCache::new(key, vec![XcEntry::Put { is_judged: false }], Some(memory))))
}

/// Whether a user put the megaflow of this xlate cache by hand.
pub fn is_put(xcache: &XcacheHandle) -> bool {
    xcache.0.downcast_ref::<XlateCache>().is_some_and(|xcache| xcache.lock().put().is_some())
}

/// The entries of a megaflow that was put by hand and that the tables have judged.
pub(crate) fn judged(mut entries: Vec<XcEntry>) -> Vec<XcEntry> {
    entries.insert(0, XcEntry::Put { is_judged: true });
    entries
}

/// The rules that a translation matched, in their order; those of a hidden flow, too.
pub fn matched_rules(xcache: &XcacheHandle) -> Vec<Arc<Rule>> {
    let Some(cache) = xcache.0.downcast_ref::<XlateCache>() else { return Vec::new() };
    let rule = |entry: &XcEntry| if let XcEntry::Rule { rule, .. } = entry { Some(Arc::clone(rule)) } else { None };
    cache.lock().entries().iter().filter_map(rule).collect()
}

/// The recirculation ids that an xlate cache holds.
pub(crate) fn recirc_ids(entries: &[XcEntry]) -> impl Iterator<Item = u32> {
    entries.iter().filter_map(|entry| match entry {
        XcEntry::Recirculation(recirculation) => Some(recirculation.id),
        _ => None,
    })
}

/// Credits packets and reports their effects.
pub(crate) fn push(entries: &[XcEntry], mut push: Push, mut effect: impl FnMut(Effect)) {
    if push.packets == 0 {
        return;
    }
    for entry in entries {
        match entry {
            XcEntry::Rule { rule, times } => {
                let times = u64::from(*times);
                rule.counts.credit(push.packets * times, push.bytes * times, push.used_ms);
            }
            XcEntry::Table { counts, matched, times, .. } => counts.credit(*matched, push.packets * u64::from(*times)),
            XcEntry::Group(group, bucket) => group.credit(*bucket, push.packets, push.bytes),
            XcEntry::Mirror(counts) => counts.credit(push.packets, push.bytes),
            XcEntry::Bond { table, bucket } => table.credit(*bucket, push.bytes),
            XcEntry::VportRx(counts) => counts.receive(push.packets, push.bytes),
            XcEntry::VportTx(counts) => counts.send(push.packets, push.bytes),
            XcEntry::TunnelHeader(more) => {
                let bytes = push.packets * u64::from(more.unsigned_abs());
                push.bytes = if *more > 0 { push.bytes + bytes } else { push.bytes.saturating_sub(bytes) };
            }
            _ => {
                if let Some(caused) = entry.effect(push) {
                    effect(caused);
                }
            }
        }
    }
}

impl XlateCacheInner {
    /// What the translation has used.
    pub fn entries(&self) -> &[XcEntry] {
        &self.entries
    }

    /// Whether a user put the megaflow by hand, and whether it has been judged since.
    pub fn put(&self) -> Option<bool> {
        match self.entries.first() {
            Some(XcEntry::Put { is_judged }) => Some(*is_judged),
            _ => None,
        }
    }

    /// Takes the entries of a newer translation, which judges a megaflow that was put by hand.
    pub fn replace(&mut self, entries: Box<[XcEntry]>) {
        let is_put = self.put().is_some();
        let entries = if is_put { judged(entries.into_vec()).into() } else { entries };
        let key = self.charge.bytes() - entries_bytes(&self.entries);
        self.charge.set(key + entries_bytes(&entries));
        self.entries = entries;
    }

    /// Credits the packets of a megaflow since the last call.
    pub fn credit(&mut self, stats: FlowStats, effect: impl FnMut(Effect)) {
        let (packets, bytes) = self.credited;
        let delta = Push {
            packets: stats.packets.saturating_sub(packets),
            bytes: stats.bytes.saturating_sub(bytes),
            tcp_flags: stats.tcp_flags,
            used_ms: stats.used_ms.unwrap_or(stats.created_ms),
        };
        self.credited = (stats.packets, stats.bytes);
        push(&self.entries, delta, effect);
    }
}

impl XcEntry {
    /// The effect of packets, if they have one.
    pub fn effect(&self, push: Push) -> Option<Effect> {
        let now_ms = push.used_ms;
        match self {
            &XcEntry::MacLearn { bridge, vlan, mac, port, packet } => {
                Some(Effect::LearnMac { bridge, vlan, mac, port, packet, now_ms })
            }
            &XcEntry::Neighbour { bridge, ip, mac } => Some(Effect::Neighbour { bridge, ip, mac, now_ms }),
            XcEntry::Learn { bridge, port, flow, limit } => {
                let (bridge, port, flow, limit) = (*bridge, *port, Arc::clone(flow), *limit);
                Some(Effect::Learn { bridge, port, flow, limit, now_ms })
            }
            XcEntry::FinTimeout { bridge, rule, idle, hard } if push.tcp_flags & TCP_CLOSING != 0 => {
                Some(Effect::LowerTimeouts { bridge: *bridge, rule: Arc::clone(rule), idle: *idle, hard: *hard })
            }
            _ => None,
        }
    }
}
