//! What a translation leaves behind: whom to credit with the packets that follow it, and what they bring about.
//!
//! A megaflow stands for a translation done once, but its packets count on every rule visited, keep stations and
//! learned rules young, and close TCP connections. The xlate cache is carried by the datapath and comes back with counts.

use crate::bridge::{BridgeId, TableCounts};
use crate::depends::SearchKey;
use crate::effects::Effect;
use crate::group::Group;
use crate::mac::Mac;
use crate::recirc::Recirculation;
use crate::rule::Rule;
use parking_lot::{Mutex, MutexGuard};
use sluice_action::FlowStats;
use sluice_flow::{CompactKey, OfPort, PacketKey};
use sluice_ofp::FlowMod;
use std::sync::Arc;

/// FIN or RST: the connection is closing.
const TCP_CLOSING: u16 = 0x01 | 0x04;

/// One thing to do again for the packets that follow a translation, or one thing the translation depends on.
#[derive(Clone, Debug)]
pub(crate) enum XcEntry {
    /// Matched a rule.
    Rule(Arc<Rule>),
    /// Searched a table, with or without success.
    Table { bridge: BridgeId, table: u8, matched: bool, counts: Arc<TableCounts>, key: SearchKey },
    /// Learned a MAC entry from the packet's source address.
    MacLearn { bridge: BridgeId, vlan: u16, mac: Mac, port: OfPort },
    /// Looked up the port of a MAC entry, with or without success.
    MacLookup { bridge: BridgeId, vlan: u16, mac: Mac },
    /// Learned a rule.
    Learn { bridge: BridgeId, flow: Arc<FlowMod>, limit: u32 },
    /// Watched for the end of a TCP connection.
    FinTimeout { bridge: BridgeId, rule: Arc<Rule>, idle: u16, hard: u16 },
    /// Looked up something of the bridge, with or without success: the translation depends on it.
    Depends { bridge: BridgeId, on: Dependency },
    /// Went through a group: one of its buckets, or all.
    Group(Arc<Group>, Option<usize>),
    /// Depends on a frozen translation, which is kept while the xlate cache is.
    Recirculation(Arc<Recirculation>),
}

/// What a translation looks up in a bridge besides rules and MAC entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dependency {
    /// What a port is. The port that a search was made for is in its key.
    Port(OfPort),
    /// Which ports there are, and which of them take floods.
    AllPorts,
    Group(u32),
    Meter(u32),
    /// Whether a table has room for another learned rule.
    TableCapacity(u8),
}

/// Packets to credit to an xlate cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Push {
    pub packets: u64,
    pub bytes: u64,
    pub tcp_flags: u16,
    pub used_ms: u64,
}

/// The xlate cache of a translation.
#[derive(Debug)]
pub(crate) struct XlateCache {
    /// The key it was made from; revalidation translates it again.
    key: CompactKey,
    inner: Mutex<XlateCacheInner>,
}

/// What revalidation changes.
#[derive(Debug)]
pub(crate) struct XlateCacheInner {
    pub entries: Box<[XcEntry]>,
    /// Packets and bytes of the megaflow that have been credited.
    pub credited: (u64, u64),
}

impl XlateCache {
    pub fn new(key: &PacketKey, entries: Vec<XcEntry>) -> Self {
        let entries = entries.into_boxed_slice();
        XlateCache { key: key.into(), inner: Mutex::new(XlateCacheInner { entries, credited: (0, 0) }) }
    }

    /// The key it was made from.
    pub fn key(&self) -> PacketKey {
        (&self.key).into()
    }

    /// A word of it.
    pub fn word(&self, place: usize) -> u64 {
        self.key.word(place)
    }

    pub fn lock(&self) -> MutexGuard<'_, XlateCacheInner> {
        self.inner.lock()
    }
}

/// The packet that a translation was made for, as the datapath knew it.
pub fn packet_of(xcache: &sluice_action::XcacheHandle) -> Option<PacketKey> {
    xcache.0.downcast_ref::<XlateCache>().map(XlateCache::key)
}

/// Credits packets, and tells what they bring about.
pub(crate) fn push(entries: &[XcEntry], push: Push, mut effect: impl FnMut(Effect)) {
    if push.packets == 0 {
        return;
    }
    for entry in entries {
        match entry {
            XcEntry::Rule(rule) => rule.counts.credit(push.packets, push.bytes, push.used_ms),
            XcEntry::Table { counts, matched, .. } => counts.credit(*matched, push.packets),
            XcEntry::Group(group, bucket) => group.credit(*bucket, push.packets, push.bytes),
            _ => {
                if let Some(caused) = entry.effect(push) {
                    effect(caused);
                }
            }
        }
    }
}

impl XlateCacheInner {
    /// Credits what a megaflow has carried since it was last credited.
    pub fn credit(&mut self, stats: FlowStats, effect: impl FnMut(Effect)) {
        let (packets, bytes) = self.credited;
        let news = Push {
            packets: stats.packets.saturating_sub(packets),
            bytes: stats.bytes.saturating_sub(bytes),
            tcp_flags: stats.tcp_flags,
            used_ms: stats.used_ms.unwrap_or(stats.created_ms),
        };
        self.credited = (stats.packets, stats.bytes);
        push(&self.entries, news, effect);
    }
}

impl XcEntry {
    /// What packets bring about, if anything.
    pub fn effect(&self, push: Push) -> Option<Effect> {
        let now_ms = push.used_ms;
        match self {
            &XcEntry::MacLearn { bridge, vlan, mac, port } => Some(Effect::Station { bridge, vlan, mac, port, now_ms }),
            XcEntry::Learn { bridge, flow, limit } => {
                Some(Effect::Learn { bridge: *bridge, flow: Arc::clone(flow), limit: *limit, now_ms })
            }
            XcEntry::FinTimeout { bridge, rule, idle, hard } if push.tcp_flags & TCP_CLOSING != 0 => {
                Some(Effect::LowerTimeouts { bridge: *bridge, rule: Arc::clone(rule), idle: *idle, hard: *hard })
            }
            _ => None,
        }
    }
}
