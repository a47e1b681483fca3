//! The thread of the BFD sessions: it sends and takes control packets, and tells the tables which ports lead nowhere.

use super::Switch;
use crate::bfd::{Entry, SessionKey};
use sluice_bfd::{FRAME_LEN, Status, read_frame};
use sluice_clock::heartbeat::Heartbeat;
use sluice_clock::{Timer, real_ms};
use sluice_datapath::{SessionPacket, SessionPackets, SessionProtocol};
use sluice_flow::{FieldId, Match, Metadata, OfPort, PacketKey, extract};
use sluice_ofp::OfAction;
use sluice_ofproto::{Attach, PacketOutRequest};
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

/// A frame to be sent by a port.
struct Outgoing {
    bridge: String,
    port: OfPort,
    frame: [u8; FRAME_LEN],
}

/// What a pass leaves to be done without the lock of the sessions.
#[derive(Default)]
struct Pass {
    outgoing: Vec<Outgoing>,
    /// Ports whose sessions say something new: bridge, name, whether it leads nowhere.
    liveness: Vec<(String, String, bool)>,
    next_ms: Option<u64>,
}

impl Switch {
    /// Makes the sessions what the ports ask for. To be called when ports have come, changed or gone.
    pub(super) fn sync_bfd(&self) {
        let mut sessions = self.bfd.lock();
        let had_any = !sessions.entries.is_empty();
        sessions.sync(&self.ofproto, self.now_ms());
        if sessions.entries.is_empty() && !had_any {
            return;
        }
        let infos = self.datapath.port_infos();
        for entry in sessions.entries.values_mut() {
            if let Attach::Datapath(number) = entry.attach
                && let Some(info) = infos.get(&number)
            {
                entry.mac = info.mac;
            }
        }
        drop(sessions);
        self.datapath.wake_sessions(SessionProtocol::Bfd);
    }

    /// `bfd/show`: one session, or all; `None` if there is none of that name.
    pub fn show_bfd(&self, name: Option<&str>) -> Option<String> {
        self.bfd.show(name, self.now_ms())
    }

    /// Forces what one session or all say of their ports, or lets them say it again; whether there is one of that name.
    pub fn force_bfd(&self, name: Option<&str>, forced: Option<bool>) -> bool {
        let found = self.bfd.force_forwarding(name, forced);
        self.datapath.wake_sessions(SessionProtocol::Bfd);
        found
    }

    /// The statuses of all sessions, by port.
    pub fn bfd_statuses(&self) -> BTreeMap<String, Status> {
        self.bfd.statuses(self.now_ms())
    }

    /// Whether statuses may have changed since the last call.
    pub fn take_bfd_changed(&self) -> bool {
        self.bfd.take_changed()
    }

    /// Waits until the sessions have dealt with all that came and answered it.
    pub(super) fn wait_for_bfd(&self) {
        for _ in 0..ANSWERS_MAX {
            if self.bfd.lock().entries.is_empty() || !self.datapath.wait_for_sessions(SessionProtocol::Bfd, DONE_WITHIN)
            {
                return;
            }
            self.datapath.quiesce();
        }
    }

    /// Takes packets, does what is due, sends; whether it sent anything, and when there is something to do next.
    fn run_bfd(&self, packets: &[SessionPacket]) -> (bool, Option<u64>) {
        let now_ms = self.now_ms();
        let received = self.received_by_sessions();
        let mut pass = Pass::default();
        let mut sessions = self.bfd.lock();
        for (key, rx_packets) in received {
            if let Some(entry) = sessions.entries.get_mut(&key)
                && entry.rx_packets != rx_packets
            {
                entry.rx_packets = rx_packets;
                entry.session.account_rx(now_ms);
            }
        }
        for packet in packets {
            if let Some(entry) = sessions.entries.get_mut(&(packet.bridge, packet.port))
                && let Some((ttl, payload)) = read_frame(&packet.bytes)
            {
                entry.session.receive(ttl, payload, entry.rx_packets, now_ms);
            }
        }
        let mut changed = false;
        for entry in sessions.entries.values_mut() {
            entry.run(now_ms, &mut pass);
            changed |= entry.session.take_status_change();
        }
        sessions.changed |= changed;
        drop(sessions);
        let has_sent = !pass.outgoing.is_empty();
        pass.outgoing.iter().for_each(|outgoing| self.send_by_port(&outgoing.bridge, outgoing.port, &outgoing.frame));
        self.tell_liveness(&pass.liveness);
        (has_sent, pass.next_ms)
    }

    /// What the ports have received whose sessions want to know.
    fn received_by_sessions(&self) -> Vec<(SessionKey, u64)> {
        let sessions = self.bfd.lock();
        let wanting: Vec<_> = sessions
            .entries
            .iter()
            .filter(|(_, entry)| entry.session.needs_rx_packets())
            .map(|(key, entry)| (*key, entry.bridge.clone(), entry.ofport, entry.attach.clone()))
            .collect();
        drop(sessions);
        if wanting.is_empty() {
            return Vec::new();
        }
        let reports = self.datapath.ports();
        let received = |(key, bridge, ofport, attach): (SessionKey, String, OfPort, Attach)| {
            let rx_packets = match attach {
                Attach::Datapath(number) => {
                    reports.iter().find(|report| report.number == number).map(|report| report.stats.rx_packets)
                }
                _ => self.ofproto.vport_stats(&bridge, ofport).map(|stats| stats.rx_packets),
            };
            Some((key, rx_packets?))
        };
        wanting.into_iter().filter_map(received).collect()
    }

    /// Sends a frame by a port, as if a controller asked for that: rules have no part in it.
    pub(super) fn send_by_port(&self, bridge: &str, port: OfPort, frame: &[u8]) {
        let bytes = frame.to_vec();
        let mut key = PacketKey::ZERO;
        let read = extract(&bytes, &Metadata::of_port(0), &mut key);
        debug_assert!(read.is_ok(), "invariant: it begins with Ethernet");
        let mut metadata = Match::ANY;
        metadata.set_masked(FieldId::InPort, OfPort::NONE.0.into(), 0xffff);
        let actions = vec![OfAction::Output { port, max_len: 0 }];
        let packet = PacketOutRequest::new(&key, &metadata, actions, bytes.len() as u64);
        let sent = self.ofproto.packet_out(bridge, &packet, self.now_ms());
        let pool = self.pools.lock().of_size(bytes.len());
        if let (Ok(translated), Ok(pool)) = (sent, pool) {
            let (known, actions) = (translated.known, translated.actions);
            self.datapath.execute(sluice_datapath::PacketOut { known, bytes, actions, pool, charge: None });
        }
    }

    /// Tells the tables, and controllers, of ports that lead somewhere again or no more.
    fn tell_liveness(&self, liveness: &[(String, String, bool)]) {
        for (bridge, name, is_down) in liveness {
            // A port that has gone meanwhile needs no telling.
            let _ = self.ofproto.set_port(bridge, name, |port| port.bfd_down = *is_down && port.bfd.is_some());
        }
        if !liveness.is_empty() {
            self.request_revalidation();
            self.openflow.publish_ports();
        }
    }
}

impl Entry {
    fn run(&mut self, now_ms: u64, pass: &mut Pass) {
        self.session.run(self.rx_packets, now_ms);
        if let Some(frame) = self.session.send(self.mac, now_ms) {
            pass.outgoing.push(Outgoing { bridge: self.bridge.clone(), port: self.ofport, frame });
        }
        let is_down = !self.session.is_forwarding(now_ms);
        if is_down != self.is_down {
            self.is_down = is_down;
            pass.liveness.push((self.bridge.clone(), self.session.name().to_owned(), is_down));
        }
        let wake_ms = self.session.wake_ms();
        pass.next_ms = Some(pass.next_ms.map_or(wake_ms, |next| next.min(wake_ms)));
    }
}

/// Starts the thread, once.
pub(super) fn start(switch: &Arc<Switch>) -> std::io::Result<()> {
    let Some(packets) = switch.datapath.take_session_packets(SessionProtocol::Bfd) else { return Ok(()) };
    let (datapath, switch) = (Arc::clone(&switch.datapath), Arc::downgrade(switch));
    let timer = Timer::new(move || datapath.wake_sessions(SessionProtocol::Bfd));
    std::thread::Builder::new().name("bfd".into()).spawn(move || run(&packets, &switch, &timer))?;
    Ok(())
}

fn run(packets: &SessionPackets, switch: &Weak<Switch>, timer: &Timer) {
    let heartbeat = Heartbeat::of("bfd");
    let mut next_ms = None;
    loop {
        let Some(arrivals) = packets.receive(timer.set(next_ms).min(LOOK_EVERY)) else { return };
        let Some(switch) = switch.upgrade() else { return };
        let began_ms = real_ms();
        let _busy = heartbeat.begin("BFD sessions");
        let is_flood = arrivals.packets.len() > 1;
        let (has_sent, next) = switch.run_bfd(&arrivals.packets);
        next_ms = next;
        arrivals.done(has_sent);
        drop(switch);
        if is_flood {
            std::thread::sleep(Duration::from_millis(((real_ms() - began_ms) * PAUSE_TIMES).max(1)));
        }
    }
}
