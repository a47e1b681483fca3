//! The OpenFlow service within the switch: what it gets of the switch, and the packets that it hands to controllers.

use super::Switch;
use crate::assembly::Assembly;
use crate::qos::QosTable;
use crate::revalidator::Revalidator;
use parking_lot::Mutex;
use sluice_action::PortNo;
use sluice_clock::heartbeat::Heartbeat;
use sluice_connmgr::{Backend, ControllerUpcall, Device, DeviceCounters, NoBuffer, PacketOut, QueueCounters};
use sluice_conntrack::Filter;
use sluice_datapath::{Datapath, PacketIn, PacketIns, PortReport};
use sluice_fate::DropReason;
use sluice_flow::Mac;
use sluice_port::Pools;
use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often the thread of packets looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What the OpenFlow service gets of the switch.
pub(super) struct AroundOpenFlow {
    datapath: Arc<Datapath>,
    pools: Arc<Mutex<Pools>>,
    revalidator: Arc<Revalidator>,
    qos: Arc<QosTable>,
}

impl AroundOpenFlow {
    pub fn new(assembly: &Assembly, revalidator: Arc<Revalidator>) -> Self {
        let (datapath, qos) = (Arc::clone(assembly.datapath()), Arc::clone(assembly.qos()));
        AroundOpenFlow { datapath, pools: assembly.pools(), revalidator, qos }
    }
}

impl Backend for AroundOpenFlow {
    fn now_ms(&self) -> u64 {
        sluice_clock::now_ms()
    }

    fn devices(&self) -> BTreeMap<PortNo, Device> {
        self.datapath.ports().iter().map(|port| (port.number, device(port))).collect()
    }

    fn queues(&self, port: PortNo) -> BTreeMap<u32, QueueCounters> {
        let is_dummy = |kind: &str| kind.starts_with("dummy");
        if self.datapath.port_infos().get(&port).is_some_and(|info| is_dummy(info.kind)) {
            return [(0, DUMMY_QUEUE)].into();
        }
        let now_ms = self.now_ms();
        let queue = |counters: crate::qos::QueueCounters| QueueCounters {
            tx_packets: counters.tx_packets,
            tx_bytes: counters.tx_bytes,
            tx_errors: counters.tx_errors,
            age_ms: Some(now_ms.saturating_sub(counters.created_ms)),
        };
        self.qos.counters(port).into_iter().map(|(number, counters)| (number, queue(counters))).collect()
    }

    fn port_macs(&self) -> BTreeMap<PortNo, Mac> {
        self.datapath.port_infos().into_iter().map(|(number, info)| (number, Mac(info.mac))).collect()
    }

    fn next_hop_mac(&self, local: Option<PortNo>, remote: Ipv4Addr) -> io::Result<Option<Mac>> {
        // Dummy devices have no network stack behind them.
        let kind = local.and_then(|local| Some(self.datapath.port_infos().remove(&local)?.kind));
        if kind.is_none_or(|kind| kind.starts_with("dummy")) {
            return Err(rustix::io::Errno::OPNOTSUPP.into());
        }
        let hop = sluice_port::next_hop(remote)?;
        Ok(sluice_port::neighbour_mac(&hop).ok().map(Mac))
    }

    fn send_packet(&self, packet: PacketOut) -> Result<(), NoBuffer> {
        let PacketOut { key, bytes, actions, charge } = packet;
        let pool = self.pools.lock().of_size(bytes.len()).map_err(|_| NoBuffer { size: bytes.len() })?;
        self.datapath.execute(sluice_datapath::PacketOut { known: key, bytes, actions, pool, charge: Some(charge) });
        Ok(())
    }

    fn wait_for_packets(&self) {
        self.datapath.quiesce();
        self.datapath.wait_for_packet_ins(super::PACKET_INS_WITHIN);
    }

    fn credit_rules(&self) {
        self.revalidator.wait_for_credits();
    }

    fn flush_connections(&self, filter: &Filter) {
        self.datapath.conntrack().flush(filter);
    }

    fn revalidate_soon(&self) {
        self.revalidator.request_revalidation();
    }
}

fn device(port: &PortReport) -> Device {
    let stats = &port.stats;
    let counters = DeviceCounters {
        rx_packets: stats.rx_packets,
        tx_packets: stats.tx_packets,
        rx_bytes: stats.rx_bytes,
        tx_bytes: stats.tx_bytes,
        rx_dropped: stats.rx_dropped + port.fates.dropped(DropReason::IngressPolicer),
        tx_dropped: stats.tx_dropped,
        rx_errors: stats.rx_errors,
        tx_errors: stats.tx_errors,
        custom: custom(port),
    };
    let plain = Device { mac: Mac(port.info.mac), counters };
    if port.info.kind.starts_with("dummy") { dummy_device(port, plain) } else { plain }
}

/// What does not count.
const UNKNOWN: u64 = u64::MAX;

/// The queue of devices of Open vSwitch's tests, whatever their QoS. Source: lib/netdev-dummy.c.
const DUMMY_QUEUE: QueueCounters =
    QueueCounters { tx_packets: UNKNOWN, tx_bytes: UNKNOWN, tx_errors: UNKNOWN, age_ms: None };

/// Devices of Open vSwitch's tests count only packets and bytes, and have counters to be shown.
/// Source: lib/netdev-dummy.c.
fn dummy_device(port: &PortReport, plain: Device) -> Device {
    let (stats, name) = (&port.stats, |name: &str| name.to_owned());
    let mut custom = ["rx_custom_packets_1", "rx_custom_packets_2"].map(|n| (name(n), stats.rx_packets)).to_vec();
    // Which of several queues a packet took is not counted.
    if port.info.n_rxq == 1 {
        custom.extend([(name("rx_q0_bytes"), stats.rx_bytes), (name("rx_q0_packets"), stats.rx_packets)]);
    }
    custom.extend([(name("tx_q0_bytes"), stats.tx_bytes), (name("tx_q0_packets"), stats.tx_packets)]);
    let counters = DeviceCounters {
        rx_dropped: UNKNOWN,
        tx_dropped: UNKNOWN,
        rx_errors: UNKNOWN,
        tx_errors: UNKNOWN,
        custom,
        ..plain.counters
    };
    Device { counters, ..plain }
}

/// What its type counts, and the drops there were, by reason: of what the port received, wherever that was dropped, and
/// of what it was to send.
fn custom(port: &PortReport) -> Vec<(String, u64)> {
    let counted = |way: &str, reason: DropReason, n| (format!("{way}_drop_{}", reason.name().replace('-', "_")), n);
    let received = DropReason::ALL.iter().map(|reason| counted("rx", *reason, port.fates.dropped(*reason)));
    let missed = ("rx_missed".to_owned(), port.stats.rx_missed);
    let unsent = DropReason::ALL.iter().map(|reason| counted("tx", *reason, port.stats.tx_drops[*reason as usize]));
    let drops = received.chain([missed]).chain(unsent).filter(|(_, n)| *n != 0);
    port.custom_stats.iter().cloned().chain(drops).collect()
}

/// Starts the thread that hands packets to controllers, once.
pub(super) fn start_packet_ins(switch: &Arc<Switch>) -> std::io::Result<()> {
    let Some(packets) = switch.datapath.take_packet_ins() else { return Ok(()) };
    let switch = Arc::downgrade(switch);
    let pass_on = move || pass_on_packets(&packets, &switch);
    std::thread::Builder::new().name("packet-in".into()).spawn(pass_on)?;
    Ok(())
}

/// Hands packets from the datapath to the connections of their bridges.
fn pass_on_packets(packets: &PacketIns, switch: &Weak<Switch>) {
    let heartbeat = Heartbeat::of("packet-in");
    loop {
        let packet = match packets.recv_timeout(LOOK_EVERY) {
            Ok(packet) => Some(packet),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let Some(switch) = switch.upgrade() else { return };
        if let Some(packet) = packet {
            let _busy = heartbeat.begin("handing a packet to controllers");
            switch.openflow.packet_in(upcall(packet));
        }
    }
}

fn upcall(packet: PacketIn) -> ControllerUpcall {
    ControllerUpcall {
        key: packet.key,
        bytes: packet.bytes,
        total_len: packet.total_len,
        reason: packet.reason,
        controller_id: packet.controller_id,
        cookie: packet.cookie,
        recirc_id: packet.recirc_id,
        is_paused: packet.continuation,
    }
}
