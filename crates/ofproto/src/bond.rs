//! Bonds of a bridge, as translation knows them.
//!
//! A bond's ports stay ports of their own: packets come in by one of them, and rules may name one. For NORMAL and mirrors
//! they are one, which its first member, the *lead*, stands for: MAC entries name the lead.
//!
//! Which member a packet leaves by is in the bond's table ([`BondTable`]), which the datapath reads: a translation depends on
//! how the bond balances, not on which member works. Only a member that is no port of the datapath (a patch port, a tunnel)
//! is chosen when the packet is translated. Which packets are admitted depends on the member that they come by, so another
//! active member affects the megaflows of packets that came by the old and the new one.

use crate::bridge::Bridge;
use crate::bridges::position;
use crate::depends::Changes;
use crate::error::Error;
use crate::ofproto::Ofproto;
use crate::port::{Attach, PortConfig};
use crate::recirc::{Frozen, Recirculation};
use crate::xlate_cache::Dependency;
use sluice_action::{BondTable, PortNo};
use sluice_bond::{Admission, BUCKETS, Balance};
use sluice_flow::OfPort;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a bond balances: a change of it affects all that leaves by the bond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BondBalance {
    /// By what a packet's bucket is chosen.
    pub by: Balance,
    /// What hashes begin with.
    pub hash_basis: u32,
    /// Whether the datapath chooses without another lookup, by connection.
    pub lb_output: bool,
    /// Whether anything leaves it at all.
    pub carries: bool,
}

/// A bond as it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BondState {
    /// The name of its port.
    pub name: String,
    /// Its members, the lead first, each with what becomes of packets that come by it.
    pub members: Vec<(OfPort, Admission)>,
    /// How it balances.
    pub balance: BondBalance,
    /// The member of each bucket; `OfPort::NONE`: none.
    pub buckets: Box<[OfPort; BUCKETS]>,
}

/// A bond of a bridge.
#[derive(Debug)]
pub(crate) struct BridgeBond {
    pub id: u32,
    pub state: BondState,
    pub table: Arc<BondTable>,
    /// Whether all members are ports of the datapath, so that it chooses among them.
    pub is_in_datapath: bool,
    /// What packets go on with after they were hashed; its id is the table's number.
    _recirculation: Option<Arc<Recirculation>>,
}

/// The bonds of a bridge.
#[derive(Debug, Default)]
pub(crate) struct Bonds {
    all: Vec<BridgeBond>,
    /// The place of the bond of each member.
    by_member: BTreeMap<OfPort, usize>,
}

impl Bonds {
    /// The bond that a port is a member of.
    pub fn of(&self, port: OfPort) -> Option<&BridgeBond> {
        self.by_member.get(&port).map(|at| &self.all[*at])
    }

    /// The bond of that number.
    pub fn get(&self, id: u32) -> Option<&BridgeBond> {
        self.all.iter().find(|bond| bond.id == id)
    }

    /// The port that stands for a port: the lead of its bond, or itself.
    pub fn lead(&self, port: OfPort) -> OfPort {
        self.of(port).map_or(port, BridgeBond::lead)
    }

    fn index(&mut self) {
        let members = self.all.iter().enumerate().flat_map(|(at, bond)| bond.members().map(move |port| (port, at)));
        self.by_member = members.collect();
    }
}

impl Bridge {
    /// Writes what the tables of its bonds say, after ports have changed.
    pub fn refresh_bonds(&mut self) {
        let Bridge { bonds, ports, .. } = self;
        bonds.all.iter_mut().for_each(|bond| bond.refresh(ports));
    }
}

impl BridgeBond {
    /// The member that stands for all.
    pub fn lead(&self) -> OfPort {
        self.members().next().unwrap_or(OfPort::NONE)
    }

    fn members(&self) -> impl Iterator<Item = OfPort> + '_ {
        self.state.members.iter().map(|(port, _)| *port)
    }

    /// What becomes of packets that come by a member.
    pub fn admission(&self, port: OfPort) -> Admission {
        self.state
            .members
            .iter()
            .find(|(member, _)| *member == port)
            .map(|(_, admission)| *admission)
            .unwrap_or_default()
    }

    fn refresh(&mut self, ports: &BTreeMap<OfPort, PortConfig>) {
        let is_in_datapath =
            |port: OfPort| ports.get(&port).is_none_or(|port| matches!(port.attach, Attach::Datapath(_)));
        self.is_in_datapath = self.state.members.iter().all(|(port, _)| is_in_datapath(*port));
        let usable = |port: &&PortConfig| !port.down && !port.no_forward;
        let datapath = |port: &OfPort| -> Option<PortNo> { ports.get(port).filter(usable)?.datapath() };
        for (bucket, member) in (0..=u8::MAX).zip(self.state.buckets.iter()) {
            self.table.set_port(bucket, datapath(member).filter(|_| self.is_in_datapath));
        }
    }
}

impl Ofproto {
    /// Makes a bond what it is to be; its table, whose number is that of its recirculation.
    ///
    /// # Errors
    /// If there is no such bridge.
    pub fn set_bond(&self, bridge: &str, wanted: BondState, now_ms: u64) -> Result<Arc<BondTable>, Error> {
        let mut writer = self.writer();
        let next_id = writer.next_bond;
        let (table, changes, is_new) = self.change(&mut writer, |state| {
            let at = position(state, bridge)?;
            let bridge = &mut state.bridges[at];
            let known = bridge.bonds.all.iter_mut().find(|bond| bond.state.name == wanted.name);
            let is_new = known.is_none();
            let (table, changes) = match known {
                Some(bond) => {
                    let changes = difference(bridge.id, bond, &wanted);
                    bond.state = wanted;
                    (Arc::clone(&bond.table), changes)
                }
                None => {
                    let frozen = Frozen::of_bond(bridge.id, next_id);
                    let recirculation = self.0.recirculations.freeze(frozen, (bridge.id, OfPort::NONE), now_ms);
                    let table = Arc::new(BondTable::new(recirculation.as_ref().map_or(0, |frozen| frozen.id)));
                    let ports = wanted.members.iter().map(|(port, _)| (bridge.id, Dependency::Port(*port)));
                    let changes = Changes { dependencies: ports.collect(), ..Changes::default() };
                    bridge.bonds.all.push(BridgeBond {
                        id: next_id,
                        state: wanted,
                        table: Arc::clone(&table),
                        is_in_datapath: true,
                        _recirculation: recirculation,
                    });
                    (table, changes)
                }
            };
            bridge.bonds.index();
            bridge.refresh_bonds();
            Ok::<_, Error>((table, changes, is_new))
        })?;
        writer.next_bond += u32::from(is_new);
        drop(writer);
        self.announce(&changes);
        Ok(table)
    }

    /// Forgets a bond. Its members are ports like others then.
    pub fn remove_bond(&self, bridge: &str, name: &str) {
        let mut writer = self.writer();
        let changes = self.change(&mut writer, |state| {
            let Some(bridge) = state.bridges.iter_mut().find(|other| other.name() == bridge) else {
                return Changes::default();
            };
            let mut dependencies = Vec::new();
            bridge.bonds.all.retain(|bond| {
                let stays = bond.state.name != name;
                if !stays {
                    dependencies.push((bridge.id, Dependency::Bond(bond.id)));
                    dependencies.extend(bond.members().map(|port| (bridge.id, Dependency::Port(port))));
                }
                stays
            });
            bridge.bonds.index();
            Changes { dependencies, ..Changes::default() }
        });
        drop(writer);
        self.announce(&changes);
    }

    /// The number of a bridge, as actions for sessions have it.
    pub fn bridge_number(&self, bridge: &str) -> Option<u32> {
        self.state().bridge_named(bridge).map(|bridge| bridge.id.0)
    }

    /// What a bridge has learned that is not behind a port: VLANs and addresses.
    pub fn learned_elsewhere(&self, bridge: &str, port: OfPort) -> Vec<(u16, [u8; 6])> {
        let state = self.state();
        let Some(bridge) = state.bridge_named(bridge) else { return Vec::new() };
        let macs = bridge.macs.read();
        let elsewhere = macs.rows(0).filter(|row| bridge.bonds.lead(row.port) != bridge.bonds.lead(port));
        elsewhere.map(|row| (row.vlan, row.mac.0)).collect()
    }
}

/// What megaflows depend on that differs.
fn difference(bridge: crate::bridge_config::BridgeId, bond: &BridgeBond, wanted: &BondState) -> Changes {
    let before = &bond.state;
    let mut changed = Vec::new();
    let members = |state: &BondState| -> Vec<OfPort> { state.members.iter().map(|(port, _)| *port).collect() };
    let has_others = members(before) != members(wanted);
    if has_others || before.balance != wanted.balance {
        changed.push(Dependency::Bond(bond.id));
    }
    if has_others {
        changed.extend(members(before).into_iter().chain(members(wanted)).map(Dependency::Port));
    }
    let is_other = |(port, admission): &&(OfPort, Admission)| bond.admission(*port) != *admission;
    changed.extend(wanted.members.iter().filter(is_other).map(|(port, _)| Dependency::BondInput(*port)));
    if before.buckets != wanted.buckets {
        changed.push(Dependency::BondBuckets(bond.id));
    }
    Changes { dependencies: changed.into_iter().map(|what| (bridge, what)).collect(), ..Changes::default() }
}
