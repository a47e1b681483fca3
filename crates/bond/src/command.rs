//! What commands do to a bond. The texts are Open vSwitch's.

use crate::BUCKETS;
use crate::bond::Bond;
use crate::config::Mode;

const NO_MEMBER: &str = "no such member";

impl Bond {
    fn id_of(&self, member: &str) -> Result<(u16, bool), &'static str> {
        let found = self.members.iter().find(|other| other.name == member);
        found.map(|member| (member.id, member.enabled)).ok_or(NO_MEMBER)
    }

    /// `bond/migrate`: gives a bucket to a member.
    ///
    /// # Errors
    /// If that cannot be: the text.
    pub fn migrate(&mut self, bucket: &str, member: &str) -> Result<&'static str, &'static str> {
        if self.config.mode != Mode::BalanceSlb {
            return Err("not an SLB bond");
        }
        if !bucket.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err("bad hash");
        }
        let bucket = bucket.bytes().fold(0_usize, |n, digit| (n * 10 + usize::from(digit - b'0')) % (BUCKETS << 8));
        let (id, enabled) = self.id_of(member)?;
        if !enabled {
            return Err("cannot migrate to disabled member");
        }
        self.buckets[bucket % BUCKETS] = Some(id);
        Ok("migrated")
    }

    /// `bond/set-active-member`.
    ///
    /// # Errors
    /// If that cannot be: the text.
    pub fn make_active(&mut self, member: &str) -> Result<&'static str, &'static str> {
        let (id, enabled) = self.id_of(member)?;
        if !enabled {
            return Err("cannot make disabled member active");
        }
        if self.active == Some(id) {
            return Ok("no change");
        }
        self.set_active(Some(id));
        self.has_to_teach = true;
        tracing::info!(target: "bond", "bond {}: active member is now {member}", self.name);
        Ok("done")
    }

    /// `bond/enable-member`, `bond/disable-member`: until the link says otherwise.
    ///
    /// # Errors
    /// If that cannot be: the text.
    pub fn force_enabled(&mut self, member: &str, enable: bool) -> Result<&'static str, &'static str> {
        let (id, _) = self.id_of(member)?;
        self.enable(id, enable);
        Ok(if enable { "enabled" } else { "disabled" })
    }
}
