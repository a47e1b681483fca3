//! What the service needs of the switch around it.

use sluice_action::{Actions, PortNo};
use sluice_conntrack::Filter;
use sluice_fate::MemoryCharge;
use sluice_flow::{Mac, PacketKey};
use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;

/// The switch around the service: time, devices, packets, revalidation. Connections call it from their own threads.
pub trait Backend: Send + Sync {
    /// The switch's time, milliseconds: the one that its rules are dated by.
    fn now_ms(&self) -> u64;

    /// The datapath's ports, by number.
    fn devices(&self) -> BTreeMap<PortNo, Device>;

    /// The queues of a port, by number, with what they have counted.
    fn queues(&self, port: PortNo) -> BTreeMap<u32, QueueCounters>;

    /// Their addresses alone, by number.
    fn port_macs(&self) -> BTreeMap<PortNo, Mac>;

    /// The Ethernet address of the next hop on the system's way to a remote, if it is known. `local` is the LOCAL port by
    /// which packets leave.
    ///
    /// # Errors
    /// If the system knows no way, or the port is no device of the system.
    fn next_hop_mac(&self, local: Option<PortNo>, remote: Ipv4Addr) -> io::Result<Option<Mac>>;

    /// Sends a packet that a controller has sent.
    ///
    /// # Errors
    /// If no buffer is large enough for it.
    fn send_packet(&self, packet: PacketOut) -> Result<(), NoBuffer>;

    /// Waits until the packets that were sent are forwarded, and what they tell controllers is handed to connections.
    fn wait_for_packets(&self);

    /// Waits until every megaflow has credited its rules with the packets it has carried until now.
    fn credit_rules(&self);

    /// Forgets the tracked connections that a filter selects.
    fn flush_connections(&self, filter: &Filter);

    /// Asks for revalidation soon: something that megaflows depend on has changed.
    fn revalidate_soon(&self);
}

/// A port of the datapath.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// Its address.
    pub mac: Mac,
    /// What it has counted.
    pub counters: DeviceCounters,
}

/// What a queue has counted. What it does not count is all ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueCounters {
    /// Packets sent.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Packets dropped.
    pub tx_errors: u64,
    /// How long there has been the queue, milliseconds.
    pub age_ms: Option<u64>,
}

/// What a port of the datapath has counted since it was opened. What it does not count is all ones.
#[derive(Clone, Debug, Default)]
pub struct DeviceCounters {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Packets lost on their way in.
    pub rx_dropped: u64,
    /// Packets to be sent that were dropped.
    pub tx_dropped: u64,
    /// Packets received with errors.
    pub rx_errors: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
    /// Counters with names of the switch's own.
    pub custom: Vec<(String, u64)>,
}

/// A packet to send, translated.
#[derive(Debug)]
pub struct PacketOut {
    /// The packet's fields, its metadata included.
    pub key: PacketKey,
    /// The packet.
    pub bytes: Vec<u8>,
    /// What to do with it.
    pub actions: Actions,
    /// The memory that it takes until it is sent.
    pub charge: MemoryCharge,
}

/// No buffer of the switch is large enough for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no packet buffer of {size} bytes")]
pub struct NoBuffer {
    /// Bytes of the packet.
    pub size: usize,
}

/// A packet that the datapath hands to the controllers. Open vSwitch: `CONTROLLER_UPCALL`.
#[derive(Clone, Debug)]
pub struct ControllerUpcall {
    /// The packet's fields: port, recirculation id, marks, headers.
    pub key: PacketKey,
    /// The packet, cut to the length that was asked for.
    pub bytes: Vec<u8>,
    /// Its whole length.
    pub total_len: usize,
    /// Number of its packet-in reason.
    pub reason: u8,
    /// The connections that it is for.
    pub controller_id: u16,
    /// Cookie of the rule that sent it.
    pub cookie: u64,
    /// Recirculation id under which the translation's state is kept.
    pub recirc_id: u32,
    /// Whether the packet waits for a controller to resume it.
    pub is_paused: bool,
}
