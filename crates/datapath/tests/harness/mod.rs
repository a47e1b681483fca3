//! Ports and tables for the datapath's tests.

mod ports;

pub use ports::*;
use sluice_action::{Miss, Upcall, UpcallResult, XcacheHandle};
use sluice_flow::PacketKey;
use sluice_packet::headers::ip_proto;
use std::sync::{Arc, Mutex};

/// A rule of the fake tables.
pub type Rule = Arc<dyn Fn(&PacketKey, &[u8]) -> UpcallResult + Send + Sync>;

/// Tables made of a function.
#[derive(Clone)]
pub struct FakeTables {
    pub rule: Rule,
    pub credited: Arc<Mutex<(u64, u64)>>,
}

impl FakeTables {
    pub fn new(rule: impl Fn(&PacketKey, &[u8]) -> UpcallResult + Send + Sync + 'static) -> Self {
        FakeTables { rule: Arc::new(rule), credited: Arc::default() }
    }
}

impl Upcall for FakeTables {
    fn translate(&mut self, miss: &Miss<'_>) -> UpcallResult {
        (self.rule)(miss.key, miss.bytes)
    }
    fn is_current(&self, version: u64) -> bool {
        version == 1
    }
    fn credit(&mut self, _xcache: &XcacheHandle, packets: u64, bytes: u64, _tcp_flags: u16, _now_ms: u64) {
        let mut credited = self.credited.lock().unwrap();
        credited.0 += packets;
        credited.1 += bytes;
    }
}

/// Ethernet, IPv4 and UDP, whose payload is `tag`.
pub fn udp(src: [u8; 4], dst: [u8; 4], src_port: u16, dst_port: u16, tag: u32) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    packet.extend([0x45, 0, 0, 32, 0, 0, 0, 0, 64, ip_proto::UDP, 0, 0]);
    packet.extend(src);
    packet.extend(dst);
    packet.extend(src_port.to_be_bytes());
    packet.extend(dst_port.to_be_bytes());
    packet.extend([0, 12, 0, 0]);
    packet.extend(tag.to_be_bytes());
    packet
}
