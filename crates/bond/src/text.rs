//! A bond as `bond/list` and `bond/show` show it. The texts are Open vSwitch's.

use crate::BUCKETS;
use crate::bond::{Bond, Member};
use crate::config::Mode;
use std::fmt::Write as _;

/// What begins the answer of `bond/list`.
pub const LIST_HEADER: &str = "bond\ttype\trecircID\tmembers\n";

fn mac_text([a, b, c, d, e, f]: [u8; 6]) -> String {
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

impl Bond {
    /// Its line of `bond/list`; a bond by one member has no recirculation id.
    pub fn line(&self, recirc_id: u32) -> String {
        let recirc_id = if self.config.mode == Mode::ActiveBackup { 0 } else { recirc_id };
        let members: Vec<_> = self.members.iter().map(|member| member.name.as_str()).collect();
        format!("{}\t{}\t{recirc_id}\t{}\n", self.name, self.config.mode.name(), members.join(", "))
    }

    /// All that is known of it and its members.
    pub fn details(&self, recirc_id: u32, now_ms: u64) -> String {
        let config = &self.config;
        let may_recirculate = self.may_recirculate();
        let id = |is_it: bool| if is_it { i64::from(recirc_id) } else { -1 };
        let uses_lb_output = may_recirculate && config.lb_output;
        let mut out = format!(
            "---- {} ----\nbond_mode: {}\nbond may use recirculation: {}, Recirc-ID : {}\nbond-hash-basis: {}\n\
             lb_output action: {}, bond-id: {}\n",
            self.name,
            config.mode.name(),
            if may_recirculate { "yes" } else { "no" },
            id(may_recirculate),
            config.hash_basis,
            if uses_lb_output { "enabled" } else { "disabled" },
            id(uses_lb_output),
        );
        if config.mode == Mode::BalanceSlb {
            let _ = writeln!(out, "all members active: {}", config.all_members_active);
        }
        let _ = write!(out, "updelay: {} ms\ndowndelay: {} ms\n", config.updelay_ms, config.downdelay_ms);
        if self.is_balanced() {
            let _ = writeln!(out, "next rebalance: {} ms", from_now(self.next_rebalance_ms, now_ms));
        }
        let _ = write!(out, "lacp_status: {}\nlacp_fallback_ab: {}\n", self.lacp.name(), config.fallback_ab);
        let has_primary = self.members.iter().any(|member| self.is_primary(member));
        let primary = config.primary.as_deref();
        let note = if primary.is_some() && !has_primary { " (no such member)" } else { "" };
        let active = self.members.iter().find(|member| member.mac == self.active_mac);
        let _ = writeln!(out, "active-backup primary: {}{note}", primary.unwrap_or("<none>"));
        let active = active.map_or("none", |member| &member.name);
        let _ = writeln!(out, "active member mac: {}({active})", mac_text(self.active_mac));
        let mut members: Vec<_> = self.members.iter().collect();
        members.sort_by(|a, b| a.name.cmp(&b.name));
        members.into_iter().for_each(|member| self.put_member(&mut out, member, now_ms));
        out.push('\n');
        out
    }

    fn put_member(&self, out: &mut String, member: &Member, now_ms: u64) {
        let _ = writeln!(out, "\nmember {}: {}", member.name, if member.enabled { "enabled" } else { "disabled" });
        if self.active == Some(member.id) {
            out.push_str("  active member\n");
        }
        if let Some(at_ms) = member.delay_expires_ms {
            let what = if member.enabled { "downdelay" } else { "updelay" };
            let _ = writeln!(out, "  {what} expires in {} ms", from_now(at_ms, now_ms));
        }
        let may_enable = member.link.carrier && member.link.may_enable;
        let _ = writeln!(out, "  may_enable: {may_enable}");
        if !self.is_balanced() {
            return;
        }
        for bucket in (0..BUCKETS).filter(|bucket| self.buckets[*bucket] == Some(member.id)) {
            let kilobytes = self.load[bucket] / 1024;
            if kilobytes != 0 {
                let _ = writeln!(out, "  hash {bucket}: {kilobytes} kB load");
            }
        }
    }
}

fn from_now(at_ms: u64, now_ms: u64) -> i64 {
    at_ms.wrapping_sub(now_ms).cast_signed()
}
