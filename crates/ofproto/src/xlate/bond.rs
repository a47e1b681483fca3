//! Packets that come by bonds and leave by them. Source: Open vSwitch ofproto/ofproto-dpif-xlate.c, `is_admissible`,
//! `output_normal`; ofproto/bond.c, `choose_output_member`.

use super::Translator;
use crate::bond::BridgeBond;
use crate::mac::is_multicast;
use crate::port::PortConfig;
use crate::xlate_cache::{Dependency, XcEntry};
use sluice_action::{Action, BondTarget, HashAlgorithm};
use sluice_bond::{Balance, Verdict, bucket_of_source};
use sluice_fate::DropReason;
use sluice_flow::{OfPort, layout};
use std::sync::Arc;

impl Translator<'_> {
    /// Whether a packet may come in by a port, which may be a member of a bond.
    pub(super) fn is_admitted_by_bond(&mut self, port: OfPort, vlan: u16, is_gratuitous: bool) -> bool {
        let bridge = self.bridge;
        let Some(bond) = bridge.bonds.of(port) else { return true };
        self.depend_on(Dependency::BondInput(port));
        let admission = bond.admission(port);
        let is_multicast = is_multicast(self.mac(layout::DL_DST));
        match if is_multicast { admission.multicast } else { admission.unicast } {
            Verdict::Accept => true,
            Verdict::Drop => {
                self.detail("bonding refused admissibility, dropping");
                false
            }
            Verdict::DropIfMoved => {
                let mac = self.mac(layout::DL_SRC);
                self.xcache.push(XcEntry::MacLookup { bridge: bridge.id, vlan, mac });
                let learned = self.lookup_mac(vlan, mac);
                let has_moved = learned.is_some_and(|learned| bridge.bonds.lead(learned) != bond.lead());
                let is_locked = is_gratuitous && self.macs().is_locked(vlan, mac, self.now_ms / 1000);
                if has_moved && (!is_gratuitous || is_locked) {
                    // A lock ends without notice.
                    self.cacheable &= !is_locked;
                    self.detail("SLB bond thinks this packet looped back, dropping");
                }
                !has_moved || is_gratuitous && !is_locked
            }
        }
    }

    /// Outputs to a bond, for which its lead stands; `vlan` is the one that the packet leaves in.
    pub(super) fn output_to_bond(&mut self, lead: &PortConfig, bond: &BridgeBond, vlan: u16) {
        self.depend_on(Dependency::Bond(bond.id));
        let balance = bond.state.balance;
        if !balance.carries {
            self.no_output = DropReason::BondDown;
            return;
        }
        let bucket = match balance.by {
            Balance::Active => 0,
            Balance::Connection if bond.is_in_datapath => return self.balance_by_connection(lead, bond),
            // What is chosen here has to follow from what the megaflow matches; NORMAL matches these.
            Balance::Source | Balance::Connection => {
                self.wc.get_mut(layout::DL_SRC).fill(0xff);
                bucket_of_source(self.mac(layout::DL_SRC).0, vlan, balance.hash_basis)
            }
        };
        if !bond.is_in_datapath {
            self.depend_on(Dependency::BondBuckets(bond.id));
            let member = bond.state.buckets[usize::from(bucket)];
            if member == OfPort::NONE {
                self.no_output = DropReason::BondDown;
                return;
            }
            return self.output_to(member, false, false);
        }
        if self.may_leave_by(lead) {
            self.commit();
            self.cut_copy();
            self.emit_bucket(bond, bucket);
            self.mirror_sent(lead);
        }
    }

    /// Lets the datapath choose the member by the packet's hash: at once, or in another pass.
    fn balance_by_connection(&mut self, lead: &PortConfig, bond: &BridgeBond) {
        if !self.may_leave_by(lead) {
            return;
        }
        self.commit();
        self.outputs.add_bond();
        let (basis, table) = (bond.state.balance.hash_basis, &bond.table);
        if bond.state.balance.lb_output || table.id() == 0 {
            self.cut_copy();
            self.emit(Action::LbOutput { bond: BondTarget(Arc::clone(table)), basis });
        } else {
            self.emit(Action::Hash { algorithm: HashAlgorithm::L4, basis });
            self.emit(Action::Recirc(table.id()));
        }
        self.mirror_sent(lead);
    }

    /// A packet comes back with its hash, to leave by the bond of that number.
    pub(super) fn output_by_hash(&mut self, id: u32) {
        self.depend_on(Dependency::Bond(id));
        let bridge = self.bridge;
        let Some(bond) = bridge.bonds.get(id).filter(|bond| bond.state.balance.carries) else {
            self.no_output = DropReason::BondDown;
            return;
        };
        self.look_at(layout::DP_HASH, 0xff);
        let bucket = self.number(layout::DP_HASH) as u8;
        self.emit_bucket(bond, bucket);
    }

    fn emit_bucket(&mut self, bond: &BridgeBond, bucket: u8) {
        let table = &bond.table;
        if bond.state.balance.by != Balance::Active {
            self.xcache.push(XcEntry::Bond { table: Arc::clone(table), bucket });
        }
        self.outputs.add_bond();
        self.emit(Action::BondOutput { bond: BondTarget(Arc::clone(table)), bucket });
    }

    /// What [`Translator::output_to`] asks of a port, of a bond.
    fn may_leave_by(&mut self, lead: &PortConfig) -> bool {
        if !self.admits_copy(lead) {
            return false;
        }
        let is_open = !(lead.is_protected && self.is_from_protected());
        if !is_open {
            self.warn("Flow is between protected ports, skipping output.");
        }
        is_open
    }
}
