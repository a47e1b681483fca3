//! The kernel's network devices: what ports need to know and set.

mod addresses;
mod link_monitor;
mod neighbour;
mod routes;
#[allow(unsafe_code)]
pub(crate) mod sys;

pub use addresses::device_addresses;
pub use link_monitor::{LinkChanges, LinkMonitor};
pub use neighbour::{NextHop, neighbour_mac, next_hop};
pub use routes::{KernelRoute, ROUTES_MAX, RouteMonitor, kernel_routes};

use crate::{DeviceStatus, OpenError, PortInfo};
use std::io;
use std::os::fd::OwnedFd;

/// The longest device name, bytes. Source: Linux, IFNAMSIZ less its NUL.
const NAME_MAX: usize = 15;

/// A network device by name. Every question is asked afresh, so the device may disappear and come back.
#[derive(Debug)]
pub(crate) struct NetDevice {
    name: String,
    socket: OwnedFd,
}

impl NetDevice {
    /// The device called `name` in this network namespace; it need not exist yet.
    pub(crate) fn new(name: &str) -> io::Result<Self> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(NetDevice { name: name.to_owned(), socket })
    }

    /// What it is called.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its index; `ENODEV` if it does not exist.
    pub(crate) fn index(&self) -> io::Result<u32> {
        Ok(rustix::net::netdevice::name_to_index(&self.socket, &self.name)?)
    }

    /// Its MTU, bytes.
    pub(crate) fn mtu(&self) -> io::Result<u32> {
        sys::mtu(&self.socket, &self.name)
    }

    /// Sets its MTU.
    pub(crate) fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        sys::set_mtu(&self.socket, &self.name, mtu)
    }

    /// Sets how many packets may be queued for it to send.
    pub(crate) fn set_queue_len(&self, packets: u32) -> io::Result<()> {
        sys::set_queue_len(&self.socket, &self.name, packets)
    }

    /// Its Ethernet address; `ENOTSUP` if it is not an Ethernet device.
    pub(crate) fn mac(&self) -> io::Result<[u8; 6]> {
        sys::mac(&self.socket, &self.name)
    }

    /// Sets its Ethernet address.
    pub(crate) fn set_mac(&self, mac: [u8; 6]) -> io::Result<()> {
        sys::set_mac(&self.socket, &self.name, mac)
    }

    /// The number of its receive queues; an error if it cannot tell.
    pub(crate) fn rx_queues(&self) -> io::Result<u32> {
        sys::rx_queues(&self.socket, &self.name)
    }

    /// Whether it is up and has a link.
    pub(crate) fn is_running(&self) -> bool {
        let wanted = (libc::IFF_UP | libc::IFF_RUNNING) as u16;
        sys::flags(&self.socket, &self.name).is_ok_and(|flags| flags & wanted == wanted)
    }

    /// What it says of itself; what it does not say is as in `info`.
    pub(crate) fn status(&self, info: &PortInfo) -> DeviceStatus {
        let flags = sys::flags(&self.socket, &self.name).unwrap_or(0);
        let has = |flag: libc::c_int| flags & flag as u16 != 0;
        let megabits = self.attribute("speed").and_then(|speed| speed.parse::<u64>().ok());
        DeviceStatus {
            mac: self.mac().unwrap_or(info.mac),
            mtu: self.mtu().unwrap_or(info.mtu),
            is_admin_up: has(libc::IFF_UP),
            has_carrier: has(libc::IFF_RUNNING),
            ifindex: self.index().unwrap_or(0),
            link_resets: self.attribute("carrier_changes").and_then(|changes| changes.parse().ok()).unwrap_or(0),
            speed_bps: megabits.filter(|speed| *speed != 0).map(|speed| speed * 1_000_000),
            is_full_duplex: self.attribute("duplex").is_some_and(|duplex| duplex == "full"),
            details: self.driver(),
        }
    }

    /// What drives it, if the kernel knows. Source: Open vSwitch lib/netdev-linux.c, `netdev_linux_get_status`.
    fn driver(&self) -> Vec<(String, String)> {
        let keys = ["driver_name", "driver_version", "firmware_version"].map(str::to_owned);
        sys::driver(&self.socket, &self.name).map_or_else(|_| Vec::new(), |texts| keys.into_iter().zip(texts).collect())
    }

    /// One of its files in sysfs. Source: Linux, Documentation/ABI/testing/sysfs-class-net.
    fn attribute(&self, name: &str) -> Option<String> {
        let text = std::fs::read_to_string(format!("/sys/class/net/{}/{name}", self.name)).ok()?;
        Some(text.trim_end().to_owned())
    }

    /// Sets it up.
    pub(crate) fn set_up(&self) -> io::Result<()> {
        let (flags, up) = (sys::flags(&self.socket, &self.name)?, libc::IFF_UP as u16);
        // Setting it again would need a privilege.
        if flags & up != 0 { Ok(()) } else { sys::set_flags(&self.socket, &self.name, flags | up) }
    }
}

/// Whether this is a valid device name.
pub(crate) fn is_device_name(name: &str) -> bool {
    let sound = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b':';
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(sound) && name != "." && name != ".."
}

/// The error for a failed operation on a device, including the remedy.
pub(crate) fn failed(port: String, what: String, cause: io::Error) -> OpenError {
    let is_root = rustix::process::geteuid().is_root();
    let remedy = match cause.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) if is_root => {
            "it takes the capabilities NET_ADMIN and NET_RAW (AF_XDP: BPF and IPC_LOCK, too), which this container or \
             service takes away from root: let it have them"
        }
        Some(libc::EPERM | libc::EACCES) => {
            "it takes the capabilities NET_ADMIN and NET_RAW (AF_XDP: BPF and IPC_LOCK, too); a switch that root starts \
             keeps those of the port types in its configuration and in switch.port-types"
        }
        Some(libc::ENODEV | libc::ENXIO) => "expected a device of this network namespace; `ip link` lists them",
        Some(libc::EBUSY) => "something else uses the device",
        Some(libc::ENOENT) => "the kernel lacks it, or a module is not loaded",
        Some(libc::EINVAL | libc::EOPNOTSUPP | libc::ERANGE) => "the device does not support that",
        Some(libc::ENOBUFS | libc::ENOMEM) if is_root => {
            "use fewer frames, or raise the limit of locked memory (ulimit -l)"
        }
        Some(libc::ENOBUFS | libc::ENOMEM) => {
            "use fewer frames, or raise the limit of locked memory (ulimit -l); to a switch that root starts the limit does \
             not apply for AF_XDP ports in its configuration or in switch.port-types"
        }
        _ => "the kernel says no more",
    };
    OpenError::Device { port, what, cause, remedy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_there_and_nonsense_is_not() {
        let lo = NetDevice::new("lo").unwrap();
        assert!(lo.index().unwrap() > 0);
        assert!(lo.mtu().unwrap() > 1000);
        assert_eq!(lo.mac().unwrap_err().raw_os_error(), Some(libc::EOPNOTSUPP), "lo is no Ethernet device");
        let none = NetDevice::new("none-such").unwrap();
        assert_eq!(none.index().unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert!(none.mtu().is_err() && !none.is_running());
    }

    #[test]
    fn names() {
        assert!(is_device_name("veth0") && is_device_name("a.b-c_d"));
        for bad in ["", "sixteen-letters-", "a/b", "a b", "a:1", "..", "é"] {
            assert!(!is_device_name(bad), "{bad}");
        }
    }
}
