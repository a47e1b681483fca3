//! The bundles of a switch: their bonds and LACP, as commands and the thread share them.

use crate::desired::{Bundle, LacpSettings};
use parking_lot::{Mutex, MutexGuard};
use sluice_action::{BondTable, PortNo};
use sluice_bond::{BUCKETS, Bond, LIST_HEADER, MemberLink, bucket_of_source};
use sluice_flow::OfPort;
use sluice_lacp::{Lacp, MemberConfig};
use sluice_ofproto::{BondBalance, BondState, PortConfig};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A port of a bundle.
pub(crate) struct Member {
    pub name: String,
    pub ofport: OfPort,
    pub number: Option<PortNo>,
    /// What its packets come from: the port's address, or one made up.
    pub mac: [u8; 6],
    /// Whether its link is up.
    pub is_up: bool,
    /// Whether its BFD session, if it has one, lets it carry traffic.
    pub is_alive: bool,
    /// What the tables were told of LACP.
    pub lacp_down: bool,
}

/// A bundle, and where it is.
pub(crate) struct Entry {
    pub bridge: String,
    pub bridge_id: u32,
    pub members: Vec<Member>,
    pub bond: Option<Bond>,
    pub lacp: Option<Lacp>,
    /// What the tables were told of the bond, and the table that they made for it.
    pub told: Option<(BondState, Arc<BondTable>)>,
    /// What of the loads of buckets the bond knows.
    accounted: Box<[u64; BUCKETS]>,
    /// When links are asked next whether they are up, if they do not tell.
    pub next_poll_ms: u64,
}

/// A frame that tells neighbours where a station is now.
pub(crate) struct Lesson {
    pub bridge: String,
    pub port: OfPort,
    pub frame: Vec<u8>,
}

/// What the database is told of bonds and LACP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BundleStatus {
    /// The addresses of bonds' active members, by name of the bond; zeros: it has none.
    pub active_members: BTreeMap<String, [u8; 6]>,
    /// Whether LACP knows its partner, by name of the port.
    pub lacp_current: BTreeMap<String, bool>,
}

/// All bundles.
#[derive(Default)]
pub(crate) struct BundleList {
    pub entries: Vec<Entry>,
    /// The rounds of the revalidator of which bonds know: loads are up to date after one.
    pub rounds: u64,
    pub lessons: VecDeque<Lesson>,
    /// What was told last of what the database shows.
    pub status: BundleStatus,
    pub changed: bool,
}

/// All bundles, shared.
#[derive(Default)]
pub(crate) struct Bundles(Mutex<BundleList>);

impl Bundles {
    pub fn lock(&self) -> MutexGuard<'_, BundleList> {
        self.0.lock()
    }
}

impl BundleList {
    /// The bond of that name.
    pub fn bond(&mut self, name: &str) -> Option<&mut Bond> {
        self.entries.iter_mut().filter_map(|entry| entry.bond.as_mut()).find(|bond| bond.name() == name)
    }

    /// `bond/list`.
    pub fn list_bonds(&self) -> String {
        let lines = self.entries.iter().filter_map(|entry| Some(entry.bond.as_ref()?.line(entry.table_id())));
        LIST_HEADER.to_owned() + &lines.collect::<String>()
    }

    /// `bond/show`: one bond, or all; `None` if there is none of that name.
    pub fn show_bonds(&self, name: Option<&str>, now_ms: u64) -> Option<String> {
        let bonds = self.entries.iter().filter_map(|entry| Some((entry.bond.as_ref()?, entry.table_id())));
        let wanted: Vec<_> = bonds.filter(|(bond, _)| name.is_none_or(|name| bond.name() == name)).collect();
        let is_missing = name.is_some() && wanted.is_empty();
        (!is_missing).then(|| wanted.into_iter().map(|(bond, id)| bond.details(id, now_ms)).collect())
    }

    /// `lacp/show` or `lacp/show-stats`, likewise.
    pub fn show_lacp(&self, name: Option<&str>, show: impl Fn(&Lacp) -> String) -> Option<String> {
        let all = self.entries.iter().filter_map(|entry| entry.lacp.as_ref());
        let wanted: Vec<_> = all.filter(|lacp| name.is_none_or(|name| lacp.name() == name)).collect();
        let is_missing = name.is_some() && wanted.is_empty();
        (!is_missing).then(|| wanted.into_iter().map(show).collect())
    }

    /// `dpif-netdev/bond-show`: the tables by which the datapath chooses by itself.
    pub fn show_tables(&self) -> String {
        let tables = self.entries.iter().filter_map(|entry| {
            let (state, table) = entry.told.as_ref()?;
            let is_used = state.balance.lb_output && entry.bond.as_ref()?.may_recirculate();
            is_used.then_some(table)
        });
        let show = |table: &Arc<BondTable>| {
            let port = |bucket: u8| table.port(bucket).map_or(u32::MAX, |port| port.0);
            let lines = (0..=u8::MAX).map(|bucket| format!("    bucket {bucket} - member {}\n", port(bucket)));
            format!("  bond-id {}:\n{}", table.id(), lines.collect::<String>())
        };
        let tables: String = tables.map(show).collect();
        if tables.is_empty() { tables } else { format!("Bonds:\n{tables}") }
    }

    /// The status of all bundles.
    pub fn current_status(&self) -> BundleStatus {
        let mut status = BundleStatus::default();
        for entry in &self.entries {
            let active = entry.bond.iter().map(|bond| (bond.name().to_owned(), bond.active_mac()));
            status.active_members.extend(active);
            for (lacp, member) in entry.lacp.iter().flat_map(|lacp| entry.members.iter().map(move |m| (lacp, m))) {
                let current = lacp.is_current(member.ofport.0).unwrap_or(false);
                status.lacp_current.insert(member.name.clone(), current);
            }
        }
        status
    }
}

impl Entry {
    /// A bundle without members.
    pub fn new(bridge: &str, bridge_id: u32) -> Self {
        Entry {
            bridge: bridge.to_owned(),
            bridge_id,
            members: Vec::new(),
            bond: None,
            lacp: None,
            told: None,
            accounted: Box::new([0; BUCKETS]),
            next_poll_ms: 0,
        }
    }

    /// The name of its port.
    pub fn name(&self) -> &str {
        let bond = self.bond.as_ref().map(Bond::name);
        bond.or_else(|| self.lacp.as_ref().map(Lacp::name)).unwrap_or_default()
    }

    fn table_id(&self) -> u32 {
        self.told.as_ref().map_or(0, |(_, table)| table.id())
    }

    /// Makes it what is wanted, of these members; `bridge_mac` is the system's id if none is set.
    pub fn configure(&mut self, wanted: &Bundle, members: Vec<Member>, bridge_mac: [u8; 6], now_ms: u64) {
        self.members = members;
        let ids: Vec<u16> = self.members.iter().map(|member| member.ofport.0).collect();
        match (&wanted.lacp, &mut self.lacp) {
            (None, lacp) => *lacp = None,
            (Some(settings), lacp) => {
                let config = lacp_config(settings, wanted, bridge_mac);
                let lacp = lacp.get_or_insert_with(|| Lacp::new(&wanted.name, config.clone()));
                lacp.configure(config);
                lacp.retain(&ids);
                for member in &self.members {
                    lacp.register(member.ofport.0, member_config(settings, member), member.is_up, now_ms);
                }
            }
        }
        match (&wanted.bond, &mut self.bond) {
            (None, bond) => *bond = None,
            (Some(config), bond) => {
                let bond = bond.get_or_insert_with(|| Bond::new(&wanted.name, config.clone(), now_ms));
                bond.configure(config.clone(), now_ms);
                bond.retain(&ids);
                for member in &self.members {
                    let link = MemberLink { carrier: member.is_up, may_enable: false };
                    bond.register(member.ofport.0, &member.name, member.mac, link);
                }
            }
        }
    }

    /// Takes over what the bridge's ports say of its members' links.
    pub fn follow_ports(&mut self, ports: &[PortConfig], polled: Option<&BTreeMap<PortNo, bool>>) {
        let is_polled = self.bond.as_ref().is_some_and(|bond| bond.config().miimon_interval_ms.is_some());
        for member in &mut self.members {
            let Some(port) = ports.iter().find(|port| port.number == member.ofport) else { continue };
            let up = match (is_polled, polled, member.number) {
                (true, Some(links), Some(number)) => links.get(&number).copied().unwrap_or(false),
                (true, None, Some(_)) => member.is_up,
                _ => port.up,
            };
            member.is_up = up && !port.down;
            member.is_alive = !port.bfd_down;
        }
    }

    /// The bond learns whether anything has left it yet.
    pub fn note_traffic(&mut self) {
        let (Some(bond), Some((_, table))) = (&mut self.bond, &self.told) else { return };
        if !bond.has_carried() && (0..=u8::MAX).any(|bucket| table.bytes(bucket) != 0) {
            bond.note_carried();
        }
    }

    /// The bond learns what its buckets have carried since.
    pub fn account(&mut self) {
        let (Some(bond), Some((_, table))) = (&mut self.bond, &self.told) else { return };
        for (bucket, accounted) in (0..=u8::MAX).zip(self.accounted.iter_mut()) {
            let bytes = table.bytes(bucket);
            bond.account(bucket, bytes.saturating_sub(std::mem::replace(accounted, bytes)));
        }
    }

    /// What the tables are to know of the bond.
    pub fn bond_state(&self) -> Option<BondState> {
        let bond = self.bond.as_ref()?;
        let member_of = |bucket: usize| bond.member_of(bucket as u8).map_or(OfPort::NONE, OfPort);
        let members = self.members.iter().map(|member| (member.ofport, bond.admission(member.ofport.0)));
        Some(BondState {
            name: bond.name().to_owned(),
            members: members.collect(),
            balance: BondBalance {
                by: bond.balance(),
                hash_basis: bond.config().hash_basis,
                lb_output: bond.config().lb_output,
                carries: bond.carries(),
            },
            buckets: Box::new(std::array::from_fn(member_of)),
        })
    }

    /// Frames that tell the other end where stations are now.
    pub fn lessons(&self, stations: Vec<(u16, [u8; 6])>) -> impl Iterator<Item = Lesson> + '_ {
        let basis = self.bond.as_ref().map_or(0, |bond| bond.config().hash_basis);
        stations.into_iter().filter_map(move |(vlan, mac)| {
            let bucket = bucket_of_source(mac, vlan, basis);
            let port = self.bond.as_ref()?.member_of(bucket)?;
            Some(Lesson { bridge: self.bridge.clone(), port: OfPort(port), frame: reverse_arp(vlan, mac) })
        })
    }
}

fn lacp_config(settings: &LacpSettings, wanted: &Bundle, bridge_mac: [u8; 6]) -> sluice_lacp::Config {
    sluice_lacp::Config {
        active: settings.active,
        fast: settings.fast,
        system_id: settings.system_id.unwrap_or(bridge_mac),
        system_priority: settings.system_priority,
        fallback_ab: wanted.bond.as_ref().is_some_and(|bond| bond.fallback_ab),
    }
}

fn member_config(settings: &LacpSettings, member: &Member) -> MemberConfig {
    let special = settings.members.get(&member.name).copied().unwrap_or_default();
    MemberConfig {
        name: member.name.clone(),
        port_id: special.port_id.unwrap_or(member.ofport.0),
        port_priority: special.port_priority,
        key: special.key,
    }
}

/// A reverse ARP request from a station: switches learn from it where the station is, and nobody answers. Source: OVS
/// lib/packets.c, `compose_rarp`.
fn reverse_arp(vlan: u16, mac: [u8; 6]) -> Vec<u8> {
    let mut frame = [&[0xff; 6][..], &mac].concat();
    if vlan != 0 {
        frame.extend([0x81, 0x00]);
        frame.extend(vlan.to_be_bytes());
    }
    // RARP; Ethernet and IPv4 addresses; a request.
    frame.extend([0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3]);
    for _ in ["sender", "target"] {
        frame.extend(mac);
        frame.extend([0; 4]);
    }
    frame
}
