//! Groups as controllers see them.

use crate::connection::Connection;
use crate::flows::{nanoseconds, refusal};
use sluice_ofp::{GROUP_ALL, GroupMod};
use sluice_ofproto::GroupEntry;
use sluice_openflow::Error;
use sluice_openflow::message::groups::{GroupDesc, GroupStats};

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

    /// One group, if it exists, or all.
    fn groups(&self, wanted: u32) -> Result<Vec<GroupEntry>, Error> {
        let all = self.switch.ofproto.groups(&self.conn_mgr.bridge).map_err(|error| refusal(&error))?;
        Ok(all.into_iter().filter(|group| wanted == GROUP_ALL || group.id == wanted).collect())
    }

    pub(crate) fn group_descs(&self, wanted: u32) -> Result<Vec<GroupDesc>, Error> {
        let groups = self.groups(wanted)?.into_iter();
        Ok(groups.map(|group| GroupDesc { group: group.id, config: group.config }).collect())
    }

    pub(crate) fn group_stats(&self, wanted: u32) -> Result<Vec<GroupStats>, Error> {
        self.switch.backend.credit_rules();
        let now_ms = self.switch.now_ms();
        let groups = self.groups(wanted)?.into_iter();
        let stats = groups.map(|group| GroupStats {
            group: group.id,
            ref_count: group.ref_count,
            packets: group.counts.0,
            bytes: group.counts.1,
            duration_ns: nanoseconds(now_ms.saturating_sub(group.created_ms)),
            buckets: group.buckets,
        });
        Ok(stats.collect())
    }
}
