//! The thread of bonds and LACP: it sends and takes LACP's packets, follows links, and tells the tables which member carries
//! what.

use super::Switch;
use crate::bundles::{BundleList, BundleStatus, Entry, Lesson, Member};
use crate::desired::Bundle;
use sluice_bond::{Bond, MemberLink};
use sluice_clock::heartbeat::Heartbeat;
use sluice_clock::{Timer, real_ms};
use sluice_datapath::{SessionPacket, SessionPackets, SessionProtocol};
use sluice_flow::OfPort;
use sluice_lacp::{Lacp, Status, compose_frame, read_frame};
use sluice_ofproto::PortConfig;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often the thread looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long a command waits for the thread.
const DONE_WITHIN: Duration = Duration::from_secs(1);

/// Packets that answer each other while a command waits, at most.
const ANSWERS_MAX: usize = 4;

/// A pause follows a pass with packets and lasts this many times as long: a flood costs a fifth of a core at most.
const PAUSE_TIMES: u64 = 4;

/// Frames about stations that one pass sends.
const LESSONS_MAX: usize = 256;

/// What a pass leaves to be done without the lock of the bundles.
#[derive(Default)]
struct Pass {
    frames: Vec<Lesson>,
    /// Ports of which LACP says something new: bridge, name, whether it is not to be used.
    liveness: Vec<(String, String, bool)>,
    next_ms: Option<u64>,
}

impl Switch {
    /// Makes the bundles what the state asks for. To be called when ports or their addresses have come, changed or gone.
    pub fn sync_bundles(&self) {
        let wanted: Vec<(String, Vec<Bundle>)> = {
            let setup = self.setup();
            setup.state.bridges.iter().map(|bridge| (bridge.name.clone(), bridge.bundles.clone())).collect()
        };
        let mut bundles = self.bundles.lock();
        if bundles.entries.is_empty() && wanted.iter().all(|(_, bundles)| bundles.is_empty()) {
            return;
        }
        let mut old = std::mem::take(&mut bundles.entries);
        for (bridge, wanted) in wanted {
            let Some(bridge_id) = self.ofproto.bridge_number(&bridge) else { continue };
            for bundle in &wanted {
                let is_it = |entry: &Entry| entry.bridge_id == bridge_id && entry.name() == bundle.name;
                let before = old.iter().position(is_it).map(|at| old.swap_remove(at));
                let entry = before.unwrap_or_else(|| Entry::new(&bridge, bridge_id));
                bundles.entries.extend(self.configured(entry, bundle));
            }
        }
        // A bundle of one member has no bond any more.
        let without_bond = bundles.entries.iter_mut().filter(|entry| entry.bond.is_none());
        let dropped = without_bond.filter_map(|entry| Some((entry.bridge.clone(), entry.told.take()?.0.name)));
        let gone = old.into_iter().filter_map(|entry| Some((entry.bridge, entry.told?.0.name)));
        dropped.chain(gone).for_each(|(bridge, name)| self.ofproto.remove_bond(&bridge, &name));
        bundles.changed = true;
        drop(bundles);
        self.run_bundles(&[]);
        self.datapath.wake_sessions(SessionProtocol::Lacp);
    }

    /// A bundle as it is to be, if it has members.
    fn configured(&self, mut entry: Entry, wanted: &Bundle) -> Option<Entry> {
        let ports = self.ofproto.ports(&entry.bridge).unwrap_or_default();
        let infos = self.datapath.port_infos();
        let mac_of = |port: &PortConfig| Some(infos.get(&port.datapath()?)?.mac);
        let member = |name: &String| -> Option<Member> {
            let port = ports.iter().find(|port| port.name == *name)?;
            let before = entry.members.iter().find(|member| member.ofport == port.number && member.name == *name);
            Some(Member {
                name: name.clone(),
                ofport: port.number,
                number: port.datapath(),
                mac: mac_of(port).unwrap_or_else(|| made_up_mac(entry.bridge_id, port.number)),
                is_up: before.map_or(port.up && !port.down, |before| before.is_up),
                is_alive: !port.bfd_down,
                lacp_down: port.lacp_down,
            })
        };
        let members: Vec<Member> = wanted.members.iter().filter_map(member).collect();
        if members.is_empty() {
            if let Some((state, _)) = &entry.told {
                self.ofproto.remove_bond(&entry.bridge, &state.name);
            }
            return None;
        }
        let local = ports.iter().find(|port| port.number == OfPort::LOCAL).and_then(mac_of);
        let bridge_mac = local.unwrap_or_else(|| members.iter().map(|member| member.mac).min().unwrap_or_default());
        entry.configure(wanted, members, bridge_mac, self.now_ms());
        Some(entry)
    }

    /// Tells the tables again what bonds are: a member has another number in the datapath.
    pub(super) fn retell_bundles(&self) {
        self.bundles.lock().entries.iter_mut().for_each(|entry| entry.told = None);
        self.sync_bundles();
    }

    /// `bond/list`.
    pub fn list_bonds(&self) -> String {
        self.bundles.lock().list_bonds()
    }

    /// `bond/show`: one bond, or all; `None` if there is none of that name.
    pub fn show_bonds(&self, name: Option<&str>) -> Option<String> {
        self.bundles.lock().show_bonds(name, self.now_ms())
    }

    /// `lacp/show`: one aggregator, or all; `None` if there is none of that name.
    pub fn show_lacp(&self, name: Option<&str>) -> Option<String> {
        self.bundles.lock().show_lacp(name, Lacp::details)
    }

    /// `lacp/show-stats`, likewise.
    pub fn show_lacp_stats(&self, name: Option<&str>) -> Option<String> {
        self.bundles.lock().show_lacp(name, Lacp::statistics)
    }

    /// `dpif-netdev/bond-show`.
    pub fn show_bond_tables(&self) -> String {
        self.bundles.lock().show_tables()
    }

    /// Lets a command change a bond, and does what follows from that.
    ///
    /// # Errors
    /// If there is no such bond, or the command says so.
    pub fn command_bond(
        &self,
        name: &str,
        command: impl FnOnce(&mut Bond) -> Result<&'static str, &'static str>,
    ) -> Result<&'static str, &'static str> {
        let mut bundles = self.bundles.lock();
        let answer = command(bundles.bond(name).ok_or("no such bond")?)?;
        for entry in &mut bundles.entries {
            self.tell(entry);
        }
        drop(bundles);
        self.datapath.wake_sessions(SessionProtocol::Lacp);
        Ok(answer)
    }

    /// What the database is told of bonds and LACP.
    pub fn bundle_status(&self) -> BundleStatus {
        self.bundles.lock().status.clone()
    }

    /// Whether that may have changed since the last call.
    pub fn take_bundles_changed(&self) -> bool {
        std::mem::take(&mut self.bundles.lock().changed)
    }

    /// Waits until the thread has dealt with all that came and answered it.
    pub(super) fn wait_for_bundles(&self) {
        for _ in 0..ANSWERS_MAX {
            let has_any = !self.bundles.lock().entries.is_empty();
            if !has_any || !self.datapath.wait_for_sessions(SessionProtocol::Lacp, DONE_WITHIN) {
                return;
            }
            self.datapath.quiesce();
        }
    }

    /// Takes packets, does what is due, sends; whether it sent anything, and when there is something to do next.
    fn run_bundles(&self, packets: &[SessionPacket]) -> (bool, Option<u64>) {
        let now_ms = self.now_ms();
        let mut pass = Pass::default();
        let mut bundles = self.bundles.lock();
        for packet in packets {
            let is_it = |entry: &&mut Entry| entry.bridge_id == packet.bridge && entry.has(packet.port);
            if let Some(entry) = bundles.entries.iter_mut().find(is_it)
                && let Some(lacp) = &mut entry.lacp
                && let Some(payload) = read_frame(&packet.bytes)
            {
                lacp.receive(packet.port, payload, now_ms);
            }
        }
        let links = self.polled_links(&mut bundles, now_ms);
        let rounds = self.revalidator.rounds();
        let are_loads_known = std::mem::replace(&mut bundles.rounds, rounds) != rounds;
        let BundleList { entries, lessons, .. } = &mut *bundles;
        for entry in entries {
            let ports = self.ofproto.ports(&entry.bridge).unwrap_or_default();
            entry.follow_ports(&ports, links.as_ref());
            entry.run(now_ms, are_loads_known, &mut pass);
            self.tell(entry);
            if entry.bond.as_mut().is_some_and(Bond::take_has_to_teach)
                && let Some(lead) = entry.members.first()
            {
                lessons.extend(entry.lessons(self.ofproto.learned_elsewhere(&entry.bridge, lead.ofport)));
            }
        }
        let now_due = lessons.len().min(LESSONS_MAX);
        pass.frames.extend(lessons.drain(..now_due));
        if !lessons.is_empty() {
            pass.next_ms = Some(now_ms);
        }
        let status = bundles.current_status();
        bundles.changed |= status != bundles.status;
        bundles.status = status;
        drop(bundles);
        pass.frames.iter().for_each(|lesson| self.send_by_port(&lesson.bridge, lesson.port, &lesson.frame));
        self.tell_lacp_liveness(&pass.liveness);
        (!pass.frames.is_empty(), pass.next_ms)
    }

    /// Whether links are up, if some bond's are to be asked now.
    fn polled_links(&self, bundles: &mut BundleList, now_ms: u64) -> Option<BTreeMap<sluice_action::PortNo, bool>> {
        let mut is_due = false;
        for entry in &mut bundles.entries {
            let interval = entry.bond.as_ref().and_then(|bond| bond.config().miimon_interval_ms);
            if let Some(interval_ms) = interval.filter(|_| entry.next_poll_ms <= now_ms) {
                (entry.next_poll_ms, is_due) = (now_ms + interval_ms, true);
            }
        }
        is_due.then(|| self.datapath.links())
    }

    /// Tells the tables what a bond is now, if that is news.
    fn tell(&self, entry: &mut Entry) {
        let Some(state) = entry.bond_state() else { return };
        if entry.told.as_ref().is_some_and(|(told, _)| *told == state) {
            return;
        }
        if let Ok(table) = self.ofproto.set_bond(&entry.bridge, state.clone(), self.now_ms()) {
            entry.told = Some((state, table));
            self.request_revalidation();
        }
    }

    /// Tells the tables, and controllers, of ports that LACP lets carry traffic, or not any more.
    fn tell_lacp_liveness(&self, liveness: &[(String, String, bool)]) {
        for (bridge, name, is_down) in liveness {
            // A port that has gone meanwhile needs no telling.
            let _ = self.ofproto.set_port(bridge, name, |port| port.lacp_down = *is_down && port.lacp);
        }
        if !liveness.is_empty() {
            self.request_revalidation();
            self.openflow.publish_ports();
        }
    }
}

impl Entry {
    fn has(&self, port: u16) -> bool {
        self.members.iter().any(|member| member.ofport.0 == port)
    }

    /// Does what is due. Load is spread anew only when `are_loads_known`, that is after a round of the revalidator: by then
    /// members have come back whose links were to be negotiated at the same time. Source: Open vSwitch ofproto-dpif.c, `run`.
    fn run(&mut self, now_ms: u64, are_loads_known: bool, pass: &mut Pass) {
        let (bridge, members) = (&self.bridge, &self.members);
        if let Some(lacp) = &mut self.lacp {
            members.iter().for_each(|member| lacp.set_carrier(member.ofport.0, member.is_up, now_ms));
            lacp.run(now_ms, |port, pdu| {
                let mac = members.iter().find(|member| member.ofport.0 == port).map_or([0; 6], |member| member.mac);
                let frame = compose_frame(pdu, mac).to_vec();
                pass.frames.push(Lesson { bridge: bridge.clone(), port: OfPort(port), frame });
            });
            pass.wake_at(lacp.wake_ms());
        }
        let lacp = self.lacp.as_ref();
        for member in &mut self.members {
            let is_down = lacp.is_some_and(|lacp| !lacp.may_enable(member.ofport.0));
            if is_down != member.lacp_down {
                member.lacp_down = is_down;
                pass.liveness.push((self.bridge.clone(), member.name.clone(), is_down));
            }
        }
        let status = lacp.map_or(Status::Off, Lacp::status);
        self.note_traffic();
        let Some(bond) = &mut self.bond else { return };
        for member in &self.members {
            let may_enable = member.is_alive && !member.lacp_down;
            bond.set_link(member.ofport.0, MemberLink { carrier: member.is_up, may_enable });
        }
        bond.run(status, now_ms);
        if are_loads_known && bond.is_rebalance_due(now_ms) {
            self.account();
            if let Some(bond) = &mut self.bond {
                bond.rebalance(now_ms);
            }
        }
        let polls = self.bond.as_ref().and_then(|bond| bond.config().miimon_interval_ms).map(|_| self.next_poll_ms);
        pass.wake_at(self.bond.as_ref().and_then(Bond::wake_ms));
        pass.wake_at(polls);
    }
}

impl Pass {
    fn wake_at(&mut self, at_ms: Option<u64>) {
        self.next_ms = self.next_ms.into_iter().chain(at_ms).min();
    }
}

/// The address of a port without a device: local, and its own.
fn made_up_mac(bridge: u32, port: OfPort) -> [u8; 6] {
    let ([a, b], [c, d]) = ((bridge as u16).to_be_bytes(), port.0.to_be_bytes());
    [0x02, 0x00, a, b, c, d]
}

/// Starts the thread, once.
pub(super) fn start(switch: &Arc<Switch>) -> std::io::Result<()> {
    let Some(packets) = switch.datapath.take_session_packets(SessionProtocol::Lacp) else { return Ok(()) };
    let (datapath, switch) = (Arc::clone(&switch.datapath), Arc::downgrade(switch));
    if let Some(switch) = switch.upgrade() {
        let datapath = Arc::clone(&datapath);
        switch.revalidator.set_after_round(move || datapath.wake_sessions(SessionProtocol::Lacp));
    }
    let wake = Arc::clone(&datapath);
    let timer = Timer::new(move || wake.wake_sessions(SessionProtocol::Lacp));
    std::thread::Builder::new().name("bond".into()).spawn(move || run(&packets, &switch, &timer))?;
    Ok(())
}

fn run(packets: &SessionPackets, switch: &Weak<Switch>, timer: &Timer) {
    let heartbeat = Heartbeat::of("bond");
    let mut next_ms = None;
    loop {
        let Some(arrivals) = packets.receive(timer.set(next_ms).min(LOOK_EVERY)) else { return };
        let Some(switch) = switch.upgrade() else { return };
        let began_ms = real_ms();
        let _busy = heartbeat.begin("bonds and LACP");
        let is_flood = arrivals.packets.len() > 1;
        let (has_sent, next) = switch.run_bundles(&arrivals.packets);
        next_ms = next;
        arrivals.done(has_sent);
        drop(switch);
        if is_flood {
            std::thread::sleep(Duration::from_millis(((real_ms() - began_ms) * PAUSE_TIMES).max(1)));
        }
    }
}
