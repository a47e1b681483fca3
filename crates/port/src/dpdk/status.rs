//! What a DPDK device says of itself in the database. Source: Open vSwitch lib/netdev-dpdk.c, `netdev_dpdk_get_status`.

use super::sys::{self, DeviceDetails};
use crate::DeviceStatus;

/// The type of an interface, Ethernet. Source: RFC 2863, ifType 6.
const ETHERNET: u32 = 6;

/// Bytes of a frame beside its MTU: header and checksum. Source: Open vSwitch, `MTU_TO_FRAME_LEN`.
const FRAME_OVERHEAD: u32 = 18;

/// The status with the device's details and speed.
pub(super) fn with_details(status: DeviceStatus, device: &DeviceDetails) -> DeviceStatus {
    let details = [
        ("port_no", device.port.to_string()),
        ("numa_id", device.numa.to_string()),
        ("driver_name", device.driver.clone()),
        ("min_rx_bufsize", device.min_rx_bufsize.to_string()),
        ("max_rx_pktlen", (status.mtu + FRAME_OVERHEAD).to_string()),
        ("max_rx_queues", device.max_rxq.to_string()),
        ("max_tx_queues", device.max_txq.to_string()),
        ("max_mac_addrs", device.max_mac_addrs.to_string()),
        ("max_hash_mac_addrs", device.max_hash_mac_addrs.to_string()),
        ("max_vfs", device.max_vfs.to_string()),
        ("max_vmdq_pools", device.max_vmdq_pools.to_string()),
        ("if_type", ETHERNET.to_string()),
        ("if_descr", format!("{} {}", sys::version(), device.driver)),
        ("bus_info", device.bus.clone()),
        ("link_speed", device.link_mbps.map_or_else(|| "Not Defined".to_owned(), speed_text)),
    ];
    DeviceStatus {
        details: details.map(|(key, value)| (key.to_owned(), value)).into(),
        speed_bps: device.link_mbps.map(|mbps| u64::from(mbps) * 1_000_000),
        is_full_duplex: device.is_full_duplex,
        ..status
    }
}

/// A speed as the database has it.
fn speed_text(mbps: u32) -> String {
    match mbps {
        0..1000 => format!("{mbps}Mbps"),
        _ if mbps.is_multiple_of(1000) => format!("{}Gbps", mbps / 1000),
        _ => format!("{:.1}Gbps", f64::from(mbps) / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_written_as_open_vswitch_does() {
        assert_eq!([10, 1000, 2500, 100_000].map(speed_text), ["10Mbps", "1Gbps", "2.5Gbps", "100Gbps"]);
    }
}
