//! An aggregator as `lacp/show` and `lacp/show-stats` show it. The texts are Open vSwitch's.

use crate::aggregator::{Lacp, Member, MemberStatus};
use crate::pdu::Info;
use std::fmt::{self, Write as _};

struct SystemId([u8; 6]);

impl fmt::Display for SystemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

fn end(whose: &str, info: &Info) -> String {
    format!(
        "\n  {whose} sys_id: {}\n  {whose} sys_priority: {}\n  {whose} port_id: {}\n  {whose} port_priority: {}\n\
         \x20 {whose} key: {}\n  {whose} state:{}\n",
        SystemId(info.system_id),
        info.system_priority,
        info.port_id,
        info.port_priority,
        info.key,
        info.state
    )
}

impl Lacp {
    /// The members by name.
    fn sorted(&self) -> Vec<&Member> {
        let mut members: Vec<_> = self.members.iter().collect();
        members.sort_by(|a, b| a.config.name.cmp(&b.config.name));
        members
    }

    /// All that is known of it and its members.
    pub fn details(&self) -> String {
        let config = &self.config;
        let mut out = format!(
            "---- {} ----\n  status: {}{}\n  sys_id: {}\n  sys_priority: {}\n  aggregation key: {}\n  lacp_time: {}\n",
            self.name,
            if config.active { "active" } else { "passive" },
            if self.negotiated { " negotiated" } else { "" },
            SystemId(config.system_id),
            config.system_priority,
            self.key().map_or("none".to_owned(), |key| key.to_string()),
            if config.fast { "fast" } else { "slow" },
        );
        for member in self.sorted() {
            let status = match member.status {
                MemberStatus::Current => "current",
                MemberStatus::Expired => "expired",
                MemberStatus::Defaulted => "defaulted",
            };
            let attached = if member.attached { "attached" } else { "detached" };
            let _ = write!(
                out,
                "\nmember: {}: {status} {attached}\n  port_id: {}\n  port_priority: {}\n  may_enable: {}\n{}{}",
                member.config.name,
                member.config.port_id,
                member.config.port_priority,
                self.is_usable(member),
                end("actor", &self.actor(member)),
                end("partner", &member.partner),
            );
        }
        out
    }

    /// The counters of its members.
    pub fn statistics(&self) -> String {
        let mut out = format!("---- {} statistics ----\n", self.name);
        for member in self.sorted() {
            let stats = &member.stats;
            let _ = write!(
                out,
                "\nmember: {}:\n  TX PDUs: {}\n  RX PDUs: {}\n  RX Bad PDUs: {}\n  RX Marker Request PDUs: {}\n\
                 \x20 Link Expired: {}\n  Link Defaulted: {}\n  Carrier Status Changed: {}\n",
                member.config.name,
                stats.tx_pdus,
                stats.rx_pdus,
                stats.rx_bad_pdus,
                stats.rx_marker_pdus,
                stats.expired,
                stats.defaulted,
                stats.carrier_changed,
            );
        }
        out
    }
}
