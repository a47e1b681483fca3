//! An aggregator: its members, what each has heard of the other end, and which may carry traffic.
//!
//! A member is *current* while its partner is heard, *expired* when it has not been for three intervals, and *defaulted*
//! when it has not been for three seconds more. Members are *attached* if their partner is that of the lead, which is the
//! member of the highest priority among those that work. The order of members is that of their registration; where Open
//! vSwitch's order is that of a hash table, this is one of its possible orders. Source: lib/lacp.c.

use crate::config::{Config, MemberConfig};
use crate::pdu::{Info, Pdu, Received, State};

/// The intervals between units, ms.
const FAST_MS: u64 = 1000;
const SLOW_MS: u64 = 30_000;

/// The number of intervals without a unit after which a partner is gone.
const RX_MULTIPLIER: u64 = 3;

/// Lines about received units, a minute.
const LOG_RATE: u64 = 1;

/// How far an aggregator has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Status {
    /// There is no LACP.
    #[default]
    Off,
    /// No partner was heard.
    Configured,
    /// There is a lead.
    Negotiated,
}

impl Status {
    /// As Open vSwitch writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Status::Off => "off",
            Status::Configured => "configured",
            Status::Negotiated => "negotiated",
        }
    }
}

/// What a member knows of its partner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum MemberStatus {
    Current,
    Expired,
    #[default]
    Defaulted,
}

/// The counters of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Units sent.
    pub tx_pdus: u32,
    /// Units received, of any kind.
    pub rx_pdus: u32,
    /// Of those, the ones that could not be read.
    pub rx_bad_pdus: u32,
    /// Of those, the ones of the marker protocol.
    pub rx_marker_pdus: u32,
    /// How often the partner was not heard in time.
    pub expired: u32,
    /// How often the partner was given up.
    pub defaulted: u32,
    /// How often the link went up or down.
    pub carrier_changed: u32,
}

/// A member. Its id is the client's.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub id: u16,
    pub config: MemberConfig,
    pub status: MemberStatus,
    pub attached: bool,
    carrier_up: bool,
    pub partner: Info,
    /// What the partner last said of us: if it is not what holds, a unit has to be sent.
    known_to_partner: Info,
    tx_ms: u64,
    rx_ms: u64,
    pub stats: Stats,
}

/// An aggregator.
#[derive(Clone, Debug)]
pub struct Lacp {
    pub(crate) name: String,
    pub(crate) config: Config,
    pub(crate) members: Vec<Member>,
    pub(crate) negotiated: bool,
    /// Whether what is attached has to be decided anew.
    update: bool,
}

impl Lacp {
    /// An aggregator without members.
    pub fn new(name: &str, config: Config) -> Self {
        Lacp { name: name.to_owned(), config, members: Vec::new(), negotiated: false, update: true }
    }

    /// The name of its port.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes another configuration.
    pub fn configure(&mut self, config: Config) {
        let decides = |config: &Config| (config.system_id, config.system_priority, config.fallback_ab);
        self.update |= decides(&self.config) != decides(&config);
        self.config = config;
    }

    /// Adds a member, or configures it anew. Whether its link is up counts only for one that is new.
    pub fn register(&mut self, id: u16, config: MemberConfig, carrier_up: bool, now_ms: u64) {
        let talks = self.config.active || self.negotiated;
        let member = match self.members.iter().position(|member| member.id == id) {
            Some(at) => {
                let member = &mut self.members[at];
                if member.config == config {
                    return;
                }
                member.config = config;
                member
            }
            None => {
                let member = Member {
                    id,
                    config,
                    status: MemberStatus::Defaulted,
                    attached: false,
                    carrier_up,
                    partner: Info::default(),
                    known_to_partner: Info::default(),
                    tx_ms: 0,
                    rx_ms: 0,
                    stats: Stats::default(),
                };
                self.members.push(member);
                self.members.last_mut().expect("invariant: one was just pushed")
            }
        };
        self.update = true;
        if talks {
            member.expire(now_ms);
        }
    }

    /// Forgets all members but these.
    pub fn retain(&mut self, ids: &[u16]) {
        let before = self.members.len();
        self.members.retain(|member| ids.contains(&member.id));
        self.update |= self.members.len() != before;
    }

    /// A member's link is up or down; if that is no news, nothing happens.
    pub fn set_carrier(&mut self, id: u16, is_up: bool, now_ms: u64) {
        let active = self.config.active;
        let Some(member) = self.members.iter_mut().find(|member| member.id == id && member.carrier_up != is_up) else {
            return;
        };
        if member.status == MemberStatus::Current || active {
            member.expire(now_ms);
        }
        member.carrier_up = is_up;
        member.stats.carrier_changed = member.stats.carrier_changed.wrapping_add(1);
    }

    /// Takes the payload of a frame that came by a member.
    pub fn receive(&mut self, id: u16, payload: &[u8], now_ms: u64) {
        let (name, fast) = (&self.name, self.config.fast);
        let Some(member) = self.members.iter_mut().find(|member| member.id == id) else { return };
        let stats = &mut member.stats;
        stats.rx_pdus = stats.rx_pdus.wrapping_add(1);
        let pdu = match Pdu::read(payload) {
            Received::Lacp(pdu) => pdu,
            Received::Marker => {
                stats.rx_marker_pdus = stats.rx_marker_pdus.wrapping_add(1);
                return tracing::debug!(target: "lacp", "{name}: received a LACP marker PDU.");
            }
            Received::Bad => {
                stats.rx_bad_pdus = stats.rx_bad_pdus.wrapping_add(1);
                return tracing::warn!(target: "lacp", rate_limit = LOG_RATE, "{name}: received an unparsable LACP PDU.");
            }
        };
        if !member.carrier_up {
            let member = &member.config.name;
            return tracing::info!(
                target: "lacp",
                rate_limit = LOG_RATE,
                "{member}: carrier state is DOWN, dropping received LACP PDU."
            );
        }
        member.status = MemberStatus::Current;
        member.rx_ms = now_ms + RX_MULTIPLIER * if fast { FAST_MS } else { SLOW_MS };
        member.known_to_partner = pdu.partner;
        if member.partner != pdu.actor {
            member.partner = pdu.actor;
            self.update = true;
        }
    }

    /// Does what is due; `send` gets each unit that is to leave, with the id of its member.
    pub fn run(&mut self, now_ms: u64, mut send: impl FnMut(u16, &Pdu)) {
        for member in self.members.iter_mut().filter(|member| member.rx_ms <= now_ms) {
            match member.status {
                MemberStatus::Current => {
                    member.expire(now_ms);
                    member.stats.expired = member.stats.expired.wrapping_add(1);
                }
                MemberStatus::Expired => {
                    member.status = MemberStatus::Defaulted;
                    member.partner = Info::default();
                    member.stats.defaulted = member.stats.defaulted.wrapping_add(1);
                    self.update = true;
                }
                MemberStatus::Defaulted => {}
            }
        }
        if self.update {
            self.update_attached();
        }
        for at in 0..self.members.len() {
            let actor = self.actor(&self.members[at]);
            let may_send = self.may_send(&self.members[at]);
            let member = &mut self.members[at];
            if may_send && (member.tx_ms <= now_ms || !is_known(&actor, &member.known_to_partner)) {
                member.known_to_partner = actor;
                send(member.id, &Pdu { actor, partner: member.partner });
                member.stats.tx_pdus = member.stats.tx_pdus.wrapping_add(1);
                member.tx_ms = now_ms + if member.partner.state.has(State::TIMEOUT) { FAST_MS } else { SLOW_MS };
            }
        }
    }

    /// When there is something to do, if no unit comes before.
    pub fn wake_ms(&self) -> Option<u64> {
        let tx = self.members.iter().filter(|member| self.may_send(member)).map(|member| member.tx_ms);
        let rx = self.members.iter().filter(|member| member.status != MemberStatus::Defaulted);
        let update = self.update.then_some(0);
        tx.chain(rx.map(|member| member.rx_ms)).chain(update).min()
    }

    /// How far it has got.
    pub fn status(&self) -> Status {
        if self.negotiated { Status::Negotiated } else { Status::Configured }
    }

    /// Whether a member may carry traffic.
    pub fn may_enable(&self, id: u16) -> bool {
        self.members.iter().any(|member| member.id == id && self.is_usable(member))
    }

    /// Whether what a member knows of its partner is up to date; `None` if there is no such member.
    pub fn is_current(&self, id: u16) -> Option<bool> {
        let member = self.members.iter().find(|member| member.id == id)?;
        Some(member.status != MemberStatus::Defaulted)
    }

    pub(crate) fn is_usable(&self, member: &Member) -> bool {
        let falls_back = self.config.fallback_ab && member.status == MemberStatus::Defaulted;
        member.attached && (member.partner.state.has(State::SYNC) || falls_back)
    }

    fn may_send(&self, member: &Member) -> bool {
        member.carrier_up && (self.config.active || member.status != MemberStatus::Defaulted)
    }

    /// The key of all members: that of the first, or its port's id.
    pub(crate) fn key(&self) -> Option<u16> {
        let config = &self.members.first()?.config;
        Some(if config.key == 0 { config.port_id } else { config.key })
    }

    /// What a member says of itself.
    pub(crate) fn actor(&self, member: &Member) -> Info {
        let carries = member.attached || !self.negotiated;
        let mut state = State::default();
        for (flag, is_set) in [
            (State::ACTIVITY, self.config.active),
            (State::TIMEOUT, self.config.fast),
            (State::SYNC, member.attached),
            (State::DEFAULTED, member.status == MemberStatus::Defaulted),
            (State::EXPIRED, member.status == MemberStatus::Expired),
            (State::AGGREGATION, self.members.len() > 1),
            (State::COLLECTING, carries),
            (State::DISTRIBUTING, carries),
        ] {
            state.set(flag, is_set);
        }
        Info {
            system_priority: self.config.system_priority,
            system_id: self.config.system_id,
            key: self.key().unwrap_or(0),
            port_priority: member.config.port_priority,
            port_id: member.config.port_id,
            state,
        }
    }

    /// A link's priority: that which the system of the higher priority gives it. The least value counts most.
    fn priority(&self, member: &Member) -> impl Ord + use<> {
        let own = (self.config.system_priority, self.config.system_id);
        let theirs = (member.partner.system_priority, member.partner.system_id);
        let info = if own < theirs { self.actor(member) } else { member.partner };
        (info.system_priority, info.system_id, info.port_priority, info.port_id)
    }

    /// Decides which members are attached, and whether there is a lead. A member that works stays the lead.
    fn update_attached(&mut self) {
        self.update = false;
        let works = |member: &&Member| member.status == MemberStatus::Current && member.attached;
        let working = self.members.iter().filter(works).min_by_key(|member| self.priority(member));
        let working = working.map(|member| member.partner);
        let (own_system, fallback_ab) = (self.config.system_id, self.config.fallback_ab);
        for member in &mut self.members {
            member.attached = if member.partner.system_id == own_system {
                tracing::warn!(
                    target: "lacp",
                    rate_limit = LOG_RATE,
                    "member {}: Loopback detected. Interface is connected to its own bond",
                    member.config.name
                );
                false
            } else if member.status == MemberStatus::Defaulted {
                fallback_ab
            } else {
                working.is_none_or(|lead| lead.system_id == member.partner.system_id)
            };
        }
        let is_heard = |member: &&Member| member.attached && member.status != MemberStatus::Defaulted;
        let candidates = self.members.iter().filter(is_heard);
        let lead = working.or_else(|| candidates.min_by_key(|member| self.priority(member)).map(|m| m.partner));
        self.negotiated = lead.is_some();
        let Some(lead) = lead else { return };
        for member in &mut self.members {
            let falls_back = fallback_ab && member.status == MemberStatus::Defaulted;
            let is_same = (member.partner.key, member.partner.system_id) == (lead.key, lead.system_id);
            member.attached &= is_same && !falls_back;
        }
    }
}

impl Member {
    /// What it knows of its partner may be out of date.
    fn expire(&mut self, now_ms: u64) {
        self.status = MemberStatus::Expired;
        self.partner.state.set(State::TIMEOUT, true);
        self.partner.state.set(State::SYNC, false);
        self.rx_ms = now_ms + RX_MULTIPLIER * FAST_MS;
    }
}

/// Whether the partner knows all of an end that it has to know, IEEE 802.1AX section 6.4.9.
fn is_known(actor: &Info, known: &Info) -> bool {
    const DECIDING: u8 = State::ACTIVITY.0 | State::TIMEOUT.0 | State::AGGREGATION.0 | State::SYNC.0;
    let deciding = |info: &Info| Info { state: State(info.state.0 & DECIDING), ..*info };
    deciding(actor) == deciding(known)
}
