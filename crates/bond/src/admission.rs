//! Which packets that come by a member are admitted. Source: ofproto/bond.c, `bond_check_admissibility`.

use crate::bond::Bond;
use crate::config::Mode;
use sluice_lacp::Status;

/// What becomes of a received packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It is admitted.
    Accept,
    /// It is dropped.
    #[default]
    Drop,
    /// It is dropped if its source address was learned elsewhere: then the bond itself has sent it, and it came back.
    /// Gratuitous ARP is the exception: its station has moved.
    DropIfMoved,
}

/// What becomes of packets that come by a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Admission {
    /// Of those to one station.
    pub unicast: Verdict,
    /// Of those to several: the other end sends a copy to each member.
    pub multicast: Verdict,
}

impl Admission {
    const fn both(verdict: Verdict) -> Self {
        Admission { unicast: verdict, multicast: verdict }
    }
}

impl Bond {
    /// What becomes of packets that come by a member.
    pub fn admission(&self, id: u16) -> Admission {
        let Some(member) = self.members.iter().find(|member| member.id == id) else { return Admission::default() };
        let is_active = self.active == Some(id);
        match self.lacp {
            // The other end knows of the bond. What came before the member was enabled is lost only by delay.
            Status::Negotiated if member.enabled || member.link.may_enable => return Admission::both(Verdict::Accept),
            Status::Negotiated => return Admission::default(),
            Status::Configured if !self.config.fallback_ab => return Admission::default(),
            Status::Off if self.config.mode == Mode::BalanceTcp => return Admission::default(),
            Status::Configured | Status::Off => {}
        }
        let unicast = match self.config.mode {
            Mode::BalanceSlb => Verdict::DropIfMoved,
            Mode::ActiveBackup | Mode::BalanceTcp if is_active => Verdict::Accept,
            Mode::ActiveBackup | Mode::BalanceTcp => Verdict::Drop,
        };
        let all_active = self.config.all_members_active && self.config.mode == Mode::BalanceSlb;
        let multicast = if is_active || all_active { unicast } else { Verdict::Drop };
        Admission { unicast, multicast }
    }
}
