//! A bond: its members and their links, delays, the active member. Source: ofproto/bond.c.

use crate::BUCKETS;
use crate::config::{Config, Mode};
use sluice_lacp::Status;

/// Lines about links, a minute.
const LOG_RATE: u64 = 5;

/// The link of a member, as the client knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberLink {
    /// Whether it is up.
    pub carrier: bool,
    /// Whether nothing else speaks against its use, such as LACP or BFD.
    pub may_enable: bool,
}

/// A member. Its id is the client's.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub id: u16,
    pub name: String,
    pub mac: [u8; 6],
    pub link: MemberLink,
    /// Whether it carries traffic.
    pub enabled: bool,
    /// Whether it ever did.
    was_enabled: bool,
    /// When `enabled` follows the link, if that has changed.
    pub delay_expires_ms: Option<u64>,
}

/// By what a packet's bucket is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Balance {
    /// All buckets have the active member.
    Active,
    /// By source address and VLAN.
    Source,
    /// By connection.
    Connection,
}

/// A bond.
#[derive(Clone, Debug)]
pub struct Bond {
    pub(crate) name: String,
    pub(crate) config: Config,
    pub(crate) members: Vec<Member>,
    pub(crate) active: Option<u16>,
    /// The address of the active member, or of the last one: names of interfaces may change at a reboot.
    pub(crate) active_mac: [u8; 6],
    pub(crate) lacp: Status,
    pub(crate) buckets: [Option<u16>; BUCKETS],
    /// What each bucket has carried lately, bytes.
    pub(crate) load: [u64; BUCKETS],
    /// A member can carry traffic for the first time, or before anything has left the bond: it gets its share at once, not by
    /// rebalancing, which may be off.
    pub(crate) spreads_anew: bool,
    /// Whether anything has left it since its buckets were empty.
    pub(crate) has_carried: bool,
    /// The place of the member that gets the next free bucket.
    pub(crate) next_member: usize,
    pub(crate) next_rebalance_ms: u64,
    /// Whether neighbours have to be told where stations are now.
    pub(crate) has_to_teach: bool,
}

impl Bond {
    /// A bond without members.
    pub fn new(name: &str, config: Config, now_ms: u64) -> Self {
        Bond {
            name: name.to_owned(),
            next_rebalance_ms: now_ms + config.rebalance_interval_ms,
            active_mac: config.last_active.unwrap_or_default(),
            config,
            members: Vec::new(),
            active: None,
            lacp: Status::Off,
            buckets: [None; BUCKETS],
            load: [0; BUCKETS],
            spreads_anew: false,
            has_carried: false,
            next_member: 0,
            has_to_teach: false,
        }
    }

    /// The name of its port.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it was asked for.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Takes another configuration.
    pub fn configure(&mut self, config: Config, now_ms: u64) {
        let decides = |config: &Config| {
            (config.mode, config.hash_basis, config.fallback_ab, config.rebalance_interval_ms, config.lb_output)
        };
        let is_other = decides(&self.config) != decides(&config);
        self.config = config;
        if is_other {
            self.reset_buckets(now_ms);
        }
    }

    /// Adds a member, or learns its name and address anew. One that is new is enabled at once if its link is up.
    pub fn register(&mut self, id: u16, name: &str, mac: [u8; 6], link: MemberLink) {
        if let Some(member) = self.members.iter_mut().find(|member| member.id == id) {
            (member.name, member.mac) = (name.to_owned(), mac);
            return;
        }
        let name = name.to_owned();
        self.members.push(Member { id, name, mac, link, enabled: false, was_enabled: false, delay_expires_ms: None });
        if link.carrier {
            self.enable(id, true);
        }
    }

    /// Forgets all members but these.
    pub fn retain(&mut self, ids: &[u16]) {
        let gone: Vec<u16> = self.members.iter().map(|member| member.id).filter(|id| !ids.contains(id)).collect();
        for id in gone {
            self.enable(id, false);
            self.members.retain(|member| member.id != id);
            self.buckets.iter_mut().filter(|bucket| **bucket == Some(id)).for_each(|bucket| *bucket = None);
            if self.active == Some(id) {
                self.choose_active(0);
                self.has_to_teach = true;
            }
        }
    }

    /// A member's link, as it is now.
    pub fn set_link(&mut self, id: u16, link: MemberLink) {
        self.members.iter_mut().filter(|member| member.id == id).for_each(|member| member.link = link);
    }

    /// Does what is due: enables and disables members, chooses the active one, gives free buckets a member.
    pub fn run(&mut self, lacp: Status, now_ms: u64) {
        if self.lacp != lacp {
            let had_buckets = self.balance() != Balance::Active;
            self.lacp = lacp;
            if had_buckets != (self.balance() != Balance::Active) {
                self.reset_buckets(now_ms);
            }
        }
        for at in 0..self.members.len() {
            self.follow_link(at, now_ms);
        }
        let primary = self.members.iter().find(|member| self.is_primary(member) && member.enabled);
        let primary = primary.map(|member| member.id).filter(|_| self.config.mode == Mode::ActiveBackup);
        let is_usable = self.active.and_then(|id| self.member(id)).is_some_and(|member| member.enabled);
        if !is_usable || primary.is_some() && primary != self.active {
            self.choose_active(now_ms);
        }
        self.fill_buckets();
    }

    /// When there is something to do, if no link changes. Load is spread anew when the client knows the loads and
    /// [`Bond::is_rebalance_due`].
    pub fn wake_ms(&self) -> Option<u64> {
        self.members.iter().filter_map(|member| member.delay_expires_ms).min()
    }

    /// Whether anything has left it since its buckets were empty, as far as it knows.
    pub fn has_carried(&self) -> bool {
        self.has_carried
    }

    /// Something has left it.
    pub fn note_carried(&mut self) {
        self.has_carried = true;
    }

    /// Whether neighbours have to be told where stations are now, since another member carries their traffic. Asks once.
    pub fn take_has_to_teach(&mut self) -> bool {
        let needs_no_lacp = matches!(self.config.mode, Mode::ActiveBackup | Mode::BalanceSlb);
        let may = match self.lacp {
            Status::Off => needs_no_lacp,
            Status::Configured => self.config.fallback_ab,
            Status::Negotiated => false,
        };
        std::mem::take(&mut self.has_to_teach) && may && self.active.is_some()
    }

    /// The active member.
    pub fn active(&self) -> Option<u16> {
        self.active
    }

    /// The address of the active member; zeros if there never was one.
    pub fn active_mac(&self) -> [u8; 6] {
        self.active_mac
    }

    /// By what a packet's bucket is chosen now.
    pub fn balance(&self) -> Balance {
        match self.config.mode {
            Mode::ActiveBackup => Balance::Active,
            _ if self.falls_back() => Balance::Active,
            Mode::BalanceSlb => Balance::Source,
            Mode::BalanceTcp => Balance::Connection,
        }
    }

    /// Whether anything leaves it, if a member works: a bond with LACP needs a partner, and one by connection needs LACP.
    pub fn carries(&self) -> bool {
        match self.lacp {
            Status::Negotiated => true,
            Status::Configured => self.config.fallback_ab,
            Status::Off => self.config.mode != Mode::BalanceTcp,
        }
    }

    /// The member that a bucket's packets leave by.
    pub fn member_of(&self, bucket: u8) -> Option<u16> {
        match self.balance() {
            _ if !self.carries() => None,
            Balance::Active => self.active,
            Balance::Source | Balance::Connection => self.buckets[usize::from(bucket)],
        }
    }

    /// Whether it chooses by connection, so that the datapath has to hash packets.
    pub fn may_recirculate(&self) -> bool {
        self.balance() == Balance::Connection
    }

    /// Whether load is spread anew from time to time.
    pub(crate) fn is_balanced(&self) -> bool {
        self.config.rebalance_interval_ms != 0 && self.balance() != Balance::Active
    }

    fn falls_back(&self) -> bool {
        self.config.fallback_ab && self.lacp == Status::Configured
    }

    pub(crate) fn is_primary(&self, member: &Member) -> bool {
        self.config.primary.as_ref() == Some(&member.name)
    }

    pub(crate) fn member(&self, id: u16) -> Option<&Member> {
        self.members.iter().find(|member| member.id == id)
    }

    pub(crate) fn enable(&mut self, id: u16, enable: bool) {
        let Some(member) = self.members.iter_mut().find(|member| member.id == id) else { return };
        member.delay_expires_ms = None;
        if member.enabled == enable {
            return;
        }
        member.enabled = enable;
        let is_first_time = enable && !std::mem::replace(&mut member.was_enabled, true);
        self.spreads_anew |= is_first_time || enable && !self.has_carried;
        self.has_to_teach |= !enable;
        tracing::info!(target: "bond", "member {}: {}", member.name, if enable { "enabled" } else { "disabled" });
    }

    /// Enables or disables a member whose link has changed, when its delay is over.
    fn follow_link(&mut self, at: usize, now_ms: u64) {
        let Config { updelay_ms, downdelay_ms, .. } = self.config;
        let member = &mut self.members[at];
        let (id, name, is_up) = (member.id, &member.name, member.link.carrier && member.link.may_enable);
        let word = if is_up { "up" } else { "down" };
        if (is_up == member.enabled) != member.delay_expires_ms.is_none() {
            tracing::info!(target: "bond", rate_limit = LOG_RATE, "member {name}: link state {word}");
            if is_up == member.enabled {
                member.delay_expires_ms = None;
                let what = if is_up { "disabled" } else { "enabled" };
                tracing::info!(target: "bond", rate_limit = LOG_RATE, "member {name}: will not be {what}");
            } else {
                let delay_ms = if is_up { updelay_ms } else { downdelay_ms };
                member.delay_expires_ms = Some(now_ms.saturating_add(delay_ms));
                if delay_ms != 0 {
                    let what = if is_up { "enabled" } else { "disabled" };
                    tracing::info!(
                        target: "bond",
                        rate_limit = LOG_RATE,
                        "member {name}: will be {what} if it stays {word} for {delay_ms} ms"
                    );
                }
            }
        }
        if member.delay_expires_ms.is_some_and(|at_ms| now_ms >= at_ms) {
            self.enable(id, is_up);
        }
    }

    /// The member that is to be active: the primary, the last one, any that is enabled, the one that will be soonest.
    fn best_member(&self) -> Option<&Member> {
        let enabled = || self.members.iter().filter(|member| member.enabled);
        let last = || enabled().find(|member| member.mac == self.active_mac);
        let soonest = || {
            let waiting = self.members.iter().filter(|member| member.link.may_enable && member.link.carrier);
            waiting.filter(|member| member.delay_expires_ms.is_some()).min_by_key(|member| member.delay_expires_ms)
        };
        let primary = enabled().find(|member| self.is_primary(member));
        primary.or_else(last).or_else(|| enabled().next()).or_else(soonest)
    }

    fn choose_active(&mut self, now_ms: u64) {
        let (before, name) = (self.active, self.name.clone());
        let Some(best) = self.best_member() else {
            if before.is_some() {
                self.set_active(None);
                tracing::info!(target: "bond", rate_limit = LOG_RATE, "bond {name}: all members disabled");
            }
            return;
        };
        let (id, member, enabled) = (best.id, best.name.clone(), best.enabled);
        let left_ms = best.delay_expires_ms.unwrap_or(now_ms).saturating_sub(now_ms);
        if enabled {
            tracing::info!(target: "bond", rate_limit = LOG_RATE, "bond {name}: active member is now {member}");
        } else {
            tracing::info!(
                target: "bond",
                rate_limit = LOG_RATE,
                "bond {name}: active member is now {member}, skipping remaining {left_ms} ms updelay (since no member was \
                 enabled)"
            );
            self.enable(id, true);
        }
        self.has_to_teach = true;
        if before != Some(id) {
            self.set_active(Some(id));
        }
    }

    pub(crate) fn set_active(&mut self, id: Option<u16>) {
        self.active = id;
        self.active_mac = id.and_then(|id| self.member(id)).map_or([0; 6], |member| member.mac);
    }
}
