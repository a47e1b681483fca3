//! A service with one bridge, in a directory of its own.

use crate::client::Client;
use sluice_action::{Action, Miss, PortNo, Upcall, UpcallResult};
use sluice_connmgr::{
    Backend, BridgeSettings, ControllerUpcall, Device, DeviceCounters, NoBuffer, OpenFlowService, PacketOut,
    QueueCounters, SocketMode,
};
use sluice_conntrack::Filter;
use sluice_flow::{Mac, Metadata, PacketKey, extract};
use sluice_ofproto::{BridgeConfig, FailMode, Ofproto, PortConfig};
use sluice_openflow::Version;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// Bytes of the largest packet that the switch can send.
pub const PACKET_MAX: usize = 2000;

/// The OpenFlow datapath id of the bridge.
pub const DATAPATH_ID: u64 = 0xabc;

/// A switch that notes what it is asked for. Its time stands still unless a test moves it.
#[derive(Default)]
pub struct FakeSwitch {
    pub now_ms: AtomicU64,
    pub devices: Mutex<BTreeMap<PortNo, Device>>,
    pub sent: Mutex<Vec<PacketOut>>,
    /// How often somebody waited for statistics.
    pub credits: AtomicUsize,
    /// How often revalidation was asked for.
    pub revalidations_soon: AtomicUsize,
    /// Which connections were flushed.
    pub flushed: Mutex<Vec<Filter>>,
    /// The queues of ports.
    pub queues: Mutex<BTreeMap<PortNo, BTreeMap<u32, QueueCounters>>>,
}

impl Backend for FakeSwitch {
    fn now_ms(&self) -> u64 {
        self.now_ms.load(SeqCst)
    }

    fn devices(&self) -> BTreeMap<PortNo, Device> {
        self.devices.lock().unwrap().clone()
    }

    fn queues(&self, port: PortNo) -> BTreeMap<u32, QueueCounters> {
        self.queues.lock().unwrap().get(&port).cloned().unwrap_or_default()
    }

    fn next_hop_mac(&self, _: Option<PortNo>, _: std::net::Ipv4Addr) -> std::io::Result<Option<Mac>> {
        Ok(None)
    }

    fn port_macs(&self) -> BTreeMap<PortNo, Mac> {
        self.devices().into_iter().map(|(number, device)| (number, device.mac)).collect()
    }

    fn send_packet(&self, packet: PacketOut) -> Result<(), NoBuffer> {
        if packet.bytes.len() > PACKET_MAX {
            return Err(NoBuffer { size: packet.bytes.len() });
        }
        self.sent.lock().unwrap().push(packet);
        Ok(())
    }

    fn wait_for_packets(&self) {}

    fn credit_rules(&self) {
        self.credits.fetch_add(1, SeqCst);
    }

    fn flush_connections(&self, filter: &Filter) {
        self.flushed.lock().unwrap().push(filter.clone());
    }

    fn revalidate_soon(&self) {
        self.revalidations_soon.fetch_add(1, SeqCst);
    }
}

/// A service with the bridge br0, whose ports p1 and p2 are the datapath's ports 11 and 12.
pub struct Bench {
    // Ends before the directory goes.
    pub service: OpenFlowService,
    pub ofproto: Ofproto,
    pub switch: Arc<FakeSwitch>,
    pub dir: tempfile::TempDir,
}

impl Bench {
    /// A bridge that is served on its Unix sockets.
    pub fn new() -> Self {
        Self::with_settings(&BridgeSettings::default())
    }

    /// A bridge that is served with these settings.
    pub fn with_settings(settings: &BridgeSettings) -> Self {
        let bench = Self::not_served(settings.fail_mode);
        bench.service.serve_bridge("br0", settings).unwrap();
        bench
    }

    /// A bridge that is not served yet.
    pub fn not_served(fail_mode: FailMode) -> Self {
        let (ofproto, switch) = (Ofproto::new(), Arc::new(FakeSwitch::default()));
        let bridge = BridgeConfig { datapath_id: DATAPATH_ID, fail_mode, ..BridgeConfig::new("br0") };
        ofproto.add_bridge(bridge, 0).unwrap();
        let service = OpenFlowService::new(ofproto.clone(), Arc::clone(&switch) as Arc<dyn Backend>);
        let dir = tempfile::tempdir().unwrap();
        service.start(dir.path(), SocketMode::Private);
        let bench = Bench { service, ofproto, switch, dir };
        [1, 2].into_iter().for_each(|number| bench.add_port(number));
        bench
    }

    /// Adds the port `p<number>`, behind which is the datapath's port 10 higher.
    pub fn add_port(&self, number: u16) {
        let datapath = PortNo(u32::from(number) + 10);
        let counters = DeviceCounters {
            rx_packets: 100 * u64::from(number),
            tx_errors: 3,
            custom: vec![("rx_missed".to_owned(), 7)],
            ..DeviceCounters::default()
        };
        let device = Device { mac: mac(number), counters };
        self.switch.devices.lock().unwrap().insert(datapath, device);
        self.ofproto.add_port("br0", PortConfig::new(&format!("p{number}"), number, datapath)).unwrap();
    }

    /// The path of one of the bridge's sockets.
    pub fn socket(&self, kind: &str) -> PathBuf {
        self.dir.path().join(format!("br0.{kind}"))
    }

    /// A client of the bridge.
    pub fn client(&self, version: Version) -> Client {
        Client::connect(&self.socket("mgmt"), version)
    }

    /// Moves the switch's time, and lets the tables do what it brings.
    pub fn advance(&self, ms: u64) {
        let now_ms = self.switch.now_ms.fetch_add(ms, SeqCst) + ms;
        self.ofproto.tick(now_ms);
        self.service.publish_removed();
    }

    /// Receives a packet by a port of the bridge, as the datapath would: it is translated, and what its actions send to
    /// controllers goes to the service.
    pub fn receive(&self, port: u16, frame: &[u8]) {
        let mut key = PacketKey::ZERO;
        extract(frame, &Metadata::of_port(u32::from(port) + 10), &mut key).unwrap();
        let miss = Miss { key: &key, bytes: frame, now_ms: self.switch.now_ms() };
        let UpcallResult::Translated(translation) = self.ofproto.upcall().translate(&miss) else {
            panic!("not translated")
        };
        for action in translation.actions.iter() {
            let Action::Controller { reason, controller_id, max_len, cookie, recirc_id, continuation } = *action else {
                continue;
            };
            self.service.packet_in(ControllerUpcall {
                key,
                bytes: frame[..frame.len().min(max_len.into())].to_vec(),
                total_len: frame.len(),
                reason,
                controller_id,
                cookie,
                recirc_id,
                is_paused: continuation,
            });
        }
    }
}

/// The address of a port.
pub fn mac(port: u16) -> Mac {
    Mac([2, 0, 0, 0, 0, port as u8])
}
