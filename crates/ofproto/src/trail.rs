//! What a translation leaves behind: whom to credit with the packets that follow it, and what they bring about.
//!
//! A megaflow stands for a translation done once, but its packets count on every rule visited, keep stations and
//! learned rules young, and close TCP connections. The trail is carried by the datapath and comes back with counts.

use crate::bridge::{BridgeId, TableCounts};
use crate::depends::SearchKey;
use crate::effects::Effect;
use crate::group::Group;
use crate::mac::Mac;
use crate::recirc::Recirculation;
use crate::rule::Rule;
use sluice_action::FlowStats;
use sluice_flow::{CompactKey, OfPort, PacketKey};
use sluice_ofp::FlowMod;
use std::sync::{Arc, Mutex, MutexGuard};

/// FIN or RST: the connection is closing.
const TCP_CLOSING: u16 = 0x01 | 0x04;

/// Something a translation did that its packets do again.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// Visited a rule.
    Rule(Arc<Rule>),
    /// Searched a table, with or without success.
    Search { bridge: BridgeId, table: u8, matched: bool, counts: Arc<TableCounts>, key: SearchKey },
    /// Saw a station.
    Station { bridge: BridgeId, vlan: u16, mac: Mac, port: OfPort },
    /// Asked where a station is.
    Destination { bridge: BridgeId, vlan: u16, mac: Mac },
    /// Learned a rule.
    Learn { bridge: BridgeId, flow: Arc<FlowMod>, limit: u32 },
    /// Watched for the end of a TCP connection.
    FinTimeout { bridge: BridgeId, rule: Arc<Rule>, idle: u16, hard: u16 },
    /// Asked for something of the bridge by its number, whether or not it was there.
    Asked { bridge: BridgeId, what: Asked },
    /// Went through a group: one of its buckets, or all.
    Group(Arc<Group>, Option<usize>),
    /// Depends on a frozen translation, which is kept while the trail is.
    Recirculation(Arc<Recirculation>),
}

/// What a translation asks a bridge for, besides rules and stations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// What a port is. The port that a search was made for is in its key.
    Port(OfPort),
    /// Which ports there are, and which of them take floods.
    AllPorts,
    Group(u32),
    Meter(u32),
    /// Whether a table has room for another learned rule.
    Room(u8),
}

/// Packets that followed a trail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Push {
    pub packets: u64,
    pub bytes: u64,
    pub tcp_flags: u16,
    pub used_ms: u64,
}

/// The trail of a translation.
#[derive(Debug)]
pub(crate) struct TrailRecord {
    /// The key it was made from; revalidation translates it again.
    key: CompactKey,
    inner: Mutex<Inner>,
}

/// What revalidation changes.
#[derive(Debug)]
pub(crate) struct Inner {
    pub events: Box<[Event]>,
    /// Packets and bytes of the megaflow that have been credited.
    pub credited: (u64, u64),
}

impl TrailRecord {
    pub fn new(key: &PacketKey, events: Vec<Event>) -> Self {
        let events = events.into_boxed_slice();
        TrailRecord { key: key.into(), inner: Mutex::new(Inner { events, credited: (0, 0) }) }
    }

    /// The key it was made from.
    pub fn key(&self) -> PacketKey {
        (&self.key).into()
    }

    /// A word of it.
    pub fn word(&self, place: usize) -> u64 {
        self.key.word(place)
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The packet that a translation was made for, as the datapath knew it.
pub fn packet_of(trail: &sluice_action::Trail) -> Option<PacketKey> {
    trail.0.downcast_ref::<TrailRecord>().map(TrailRecord::key)
}

/// Credits packets, and tells what they bring about.
pub(crate) fn push(events: &[Event], push: Push, mut effect: impl FnMut(Effect)) {
    if push.packets == 0 {
        return;
    }
    for event in events {
        match event {
            Event::Rule(rule) => rule.counts.credit(push.packets, push.bytes, push.used_ms),
            Event::Search { counts, matched, .. } => counts.credit(*matched, push.packets),
            Event::Group(group, bucket) => group.credit(*bucket, push.packets, push.bytes),
            _ => event.effect(push).into_iter().for_each(&mut effect),
        }
    }
}

impl Inner {
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
        push(&self.events, news, effect);
    }
}

impl Event {
    /// What packets bring about, if anything.
    pub fn effect(&self, push: Push) -> Option<Effect> {
        let now_ms = push.used_ms;
        match self {
            &Event::Station { bridge, vlan, mac, port } => Some(Effect::Station { bridge, vlan, mac, port, now_ms }),
            Event::Learn { bridge, flow, limit } => {
                Some(Effect::Learn { bridge: *bridge, flow: Arc::clone(flow), limit: *limit, now_ms })
            }
            Event::FinTimeout { bridge, rule, idle, hard } if push.tcp_flags & TCP_CLOSING != 0 => {
                Some(Effect::LowerTimeouts { bridge: *bridge, rule: Arc::clone(rule), idle: *idle, hard: *hard })
            }
            _ => None,
        }
    }
}
