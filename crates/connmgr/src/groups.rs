//! Groups as controllers see them.

use crate::close_reason::CloseReason;
use crate::connection::Connection;
use crate::flows::{nanoseconds, refusal};
use sluice_ofp::{GROUP_ALL, GroupMod};
use sluice_ofproto::{GroupEntry, Ofproto, Users};
use sluice_openflow::message::groups::{GroupDesc, GroupStats};
use sluice_openflow::message::stats::StatsReply;
use sluice_openflow::{Error, Message, Request};

/// Groups or meters in a part of a reply.
const AT_ONCE: usize = 32;

impl Connection {
    pub(crate) fn group_mod(&mut self, m: &GroupMod) -> Result<(), Error> {
        let (bridge, now_ms) = (&self.conn_mgr.bridge, self.switch.now_ms());
        let changed = self.switch.ofproto.group_mod_of(bridge, m, self.rule_owner(), now_ms);
        let changed = changed.map_err(|error| refusal(&error))?;
        self.switch.revalidate_soon();
        if changed.deleted != 0 {
            self.switch.publish_removed();
        }
        Ok(())
    }

    /// Replies with the buckets of one group, if it exists, or of all, in as many messages as are needed.
    pub(crate) fn group_descs(&mut self, request: &Request, wanted: u32) -> Result<(), CloseReason> {
        let desc = |group: GroupEntry| GroupDesc { group: group.id, config: group.config };
        let part = |ofproto: &Ofproto, bridge: &str, ids: &[u32]| {
            let groups = ofproto.group_entries(bridge, ids, &Users::new()).unwrap_or_default();
            StatsReply::GroupDescs(groups.into_iter().map(desc).collect())
        };
        self.reply_in_parts(request, self.group_ids(wanted), part)
    }

    /// Replies with the counters of one group or of all.
    pub(crate) fn group_stats(&mut self, request: &Request, wanted: u32) -> Result<(), CloseReason> {
        self.switch.backend.credit_rules();
        let now_ms = self.switch.now_ms();
        let stats = |group: GroupEntry| GroupStats {
            group: group.id,
            ref_count: group.ref_count,
            packets: group.counts.0,
            bytes: group.counts.1,
            duration_ns: nanoseconds(now_ms.saturating_sub(group.created_ms)),
            buckets: group.buckets,
        };
        let users = self.switch.ofproto.group_users(&self.conn_mgr.bridge).unwrap_or_default();
        let part = |ofproto: &Ofproto, bridge: &str, ids: &[u32]| {
            let groups = ofproto.group_entries(bridge, ids, &users).unwrap_or_default();
            StatsReply::Groups(groups.into_iter().map(stats).collect())
        };
        self.reply_in_parts(request, self.group_ids(wanted), part)
    }

    /// The numbers of one group, if it exists, or of all.
    fn group_ids(&self, wanted: u32) -> Result<Vec<u32>, Error> {
        let mut ids = self.switch.ofproto.group_ids(&self.conn_mgr.bridge).map_err(|error| refusal(&error))?;
        ids.retain(|id| wanted == GROUP_ALL || *id == wanted);
        Ok(ids)
    }

    /// Sends replies about some groups or meters at a time, and waits in between until the peer has read: all groups
    /// together may take as much memory as rules may.
    pub(crate) fn reply_in_parts(
        &mut self,
        request: &Request,
        ids: Result<Vec<u32>, Error>,
        part: impl Fn(&Ofproto, &str, &[u32]) -> StatsReply,
    ) -> Result<(), CloseReason> {
        let ids = match ids {
            Ok(ids) => ids,
            Err(error) => {
                self.session.refuse(request, error);
                return Ok(());
            }
        };
        let mut chunks = ids.chunks(AT_ONCE).peekable();
        let mut last_is_sent = false;
        while !last_is_sent {
            let reply = part(&self.switch.ofproto, &self.conn_mgr.bridge, chunks.next().unwrap_or_default());
            last_is_sent = chunks.peek().is_none();
            self.session.reply(request, &Message::StatsReply(reply, !last_is_sent));
            self.drain_output()?;
        }
        Ok(())
    }
}
