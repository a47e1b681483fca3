//! What a port's device says of itself, as Open vSwitch's database has it.

use crate::PortInfo;

/// The state of a device now. [`PortInfo`] has the state at the time when the port was opened.
///
/// Source: Open vSwitch vswitchd/vswitch.xml, table Interface, "Interface Status".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceStatus {
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Its MTU, bytes.
    pub mtu: u32,
    /// Whether its user has set it up.
    pub is_admin_up: bool,
    /// Whether it has a link.
    pub has_carrier: bool,
    /// Its index in the kernel; 0 if the kernel does not know it.
    pub ifindex: u32,
    /// How often its link changed.
    pub link_resets: u64,
    /// Its speed, bits a second, if it has one.
    pub speed_bps: Option<u64>,
    /// Whether it sends and receives at the same time.
    pub is_full_duplex: bool,
    /// What only its type has, by the keys of the column `status`.
    pub details: Vec<(String, String)>,
}

impl DeviceStatus {
    /// Of a port without a kernel device: it is as it was opened.
    pub fn of_info(info: &PortInfo, is_up: bool) -> Self {
        DeviceStatus {
            mac: info.mac,
            mtu: info.mtu,
            is_admin_up: is_up,
            has_carrier: is_up,
            ifindex: 0,
            link_resets: 0,
            speed_bps: None,
            is_full_duplex: false,
            details: Vec::new(),
        }
    }
}
