//! A safe interface to the kernel's device requests (ioctl on any socket).
//!
//! Every function takes a device name and passes a whole initialised `ifreq`, so it cannot be misused.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

/// A request over one `ifreq`: the kernel reads and writes that and follows no pointer in it. Only this file makes one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceRequest(libc::Ioctl);

// Source: linux/sockios.h.
const SIOCGIFFLAGS: DeviceRequest = DeviceRequest(0x8913);
const SIOCSIFFLAGS: DeviceRequest = DeviceRequest(0x8914);
const SIOCGIFMTU: DeviceRequest = DeviceRequest(0x8921);
const SIOCSIFMTU: DeviceRequest = DeviceRequest(0x8922);
const SIOCSIFHWADDR: DeviceRequest = DeviceRequest(0x8924);
const SIOCGIFHWADDR: DeviceRequest = DeviceRequest(0x8927);
const SIOCSIFTXQLEN: DeviceRequest = DeviceRequest(0x8943);

/// Attaches a descriptor of `/dev/net/tun` to a device.
pub(crate) const TUNSETIFF: DeviceRequest = DeviceRequest(libc::TUNSETIFF);

/// The request whose argument says whether a tap device stays when its last queue is closed.
const TUNSETPERSIST: libc::Ioctl = libc::TUNSETPERSIST;

/// The request whose `ifreq` points to an ethtool command.
const SIOCETHTOOL: libc::Ioctl = 0x8946;

/// An ethtool command of `WORDS` 32-bit words. The first is its number; the kernel writes no more than these words.
/// Only this file makes one. Source: linux/ethtool.h.
#[derive(Clone, Copy, Debug)]
struct EthtoolCommand<const WORDS: usize>(u32);

/// `struct ethtool_drvinfo`.
const ETHTOOL_GDRVINFO: EthtoolCommand<49> = EthtoolCommand(0x3);
/// `struct ethtool_channels`: after the number most rx, tx, other, combined, and how many there are.
const ETHTOOL_GCHANNELS: EthtoolCommand<9> = EthtoolCommand(0x3c);

/// A request for the device called `name`, otherwise zero. Longer names are cut, and then name no device.
pub(crate) fn request(name: &str) -> libc::ifreq {
    // SAFETY: an `ifreq` is bytes, integers and a pointer; all zeros is a value of it.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

/// Makes a request of a device.
pub(crate) fn ask(fd: &OwnedFd, what: DeviceRequest, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: `fd` is open; the kernel defines every `DeviceRequest` over one `ifreq`, which `request` is, and follows no
    // pointer in it. A descriptor of another kind refuses requests that it does not know.
    match unsafe { libc::ioctl(fd.as_raw_fd(), what.0, std::ptr::from_mut(request)) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Says whether the tap device of a queue stays when its last queue is closed.
pub(crate) fn set_persistent(queue: &OwnedFd, stays: bool) -> io::Result<()> {
    // SAFETY: `queue` is open; the argument is a number, and a descriptor of another kind refuses the request.
    match unsafe { libc::ioctl(queue.as_raw_fd(), TUNSETPERSIST, libc::c_ulong::from(stays)) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Runs an ethtool command on a device; its words as the kernel leaves them.
fn ask_ethtool<const WORDS: usize>(
    fd: &OwnedFd,
    name: &str,
    command: EthtoolCommand<WORDS>,
) -> io::Result<[u32; WORDS]> {
    let mut words = [0; WORDS];
    words[0] = command.0;
    let mut request = request(name);
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: `fd` is open; `request` points to the command's words, which live until the call returns and of which the
    // kernel writes no more than the command has.
    match unsafe { libc::ioctl(fd.as_raw_fd(), SIOCETHTOOL, std::ptr::from_mut(&mut request)) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(words),
    }
}

/// Replaces `old` by `fresh` atomically under the same number, so that users of `old` continue with it.
pub(crate) fn replace(old: &OwnedFd, fresh: &OwnedFd) -> io::Result<()> {
    // SAFETY: both are open. `old` stays open and owned; its number refers to another file from now on.
    match unsafe { libc::dup3(fresh.as_raw_fd(), old.as_raw_fd(), libc::O_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Its IFF_ flags.
pub(crate) fn flags(fd: &OwnedFd, name: &str) -> io::Result<u16> {
    let mut request = request(name);
    ask(fd, SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the kernel filled in this member, and any bits are a value of it.
    Ok(unsafe { request.ifr_ifru.ifru_flags } as u16)
}

/// Sets its IFF_ flags.
pub(crate) fn set_flags(fd: &OwnedFd, name: &str, flags: u16) -> io::Result<()> {
    let mut request = request(name);
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    ask(fd, SIOCSIFFLAGS, &mut request)
}

/// Its MTU.
pub(crate) fn mtu(fd: &OwnedFd, name: &str) -> io::Result<u32> {
    let mut request = request(name);
    ask(fd, SIOCGIFMTU, &mut request)?;
    // SAFETY: the kernel filled in this member, and any bits are a value of it.
    Ok(unsafe { request.ifr_ifru.ifru_mtu } as u32)
}

/// Sets its MTU.
pub(crate) fn set_mtu(fd: &OwnedFd, name: &str, mtu: u32) -> io::Result<()> {
    let mut request = request(name);
    request.ifr_ifru.ifru_mtu = mtu as libc::c_int;
    ask(fd, SIOCSIFMTU, &mut request)
}

/// Sets how many packets may be queued for sending.
pub(crate) fn set_queue_len(fd: &OwnedFd, name: &str, packets: u32) -> io::Result<()> {
    let mut request = request(name);
    // The kernel reads `ifr_qlen`, an integer at the same place.
    request.ifr_ifru.ifru_mtu = packets as libc::c_int;
    ask(fd, SIOCSIFTXQLEN, &mut request)
}

/// Its Ethernet address.
pub(crate) fn mac(fd: &OwnedFd, name: &str) -> io::Result<[u8; 6]> {
    let mut request = request(name);
    ask(fd, SIOCGIFHWADDR, &mut request)?;
    // SAFETY: the kernel filled in this member, and any bits are a value of it.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    if address.sa_family != libc::ARPHRD_ETHER {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    Ok(std::array::from_fn(|i| address.sa_data[i] as u8))
}

/// Sets its Ethernet address.
pub(crate) fn set_mac(fd: &OwnedFd, name: &str, mac: [u8; 6]) -> io::Result<()> {
    let mut request = request(name);
    let mut address = libc::sockaddr { sa_family: libc::ARPHRD_ETHER, sa_data: [0; 14] };
    address.sa_data.iter_mut().zip(mac).for_each(|(to, from)| *to = from as libc::c_char);
    request.ifr_ifru.ifru_hwaddr = address;
    ask(fd, SIOCSIFHWADDR, &mut request)
}

/// Its driver's name, version and firmware's version.
pub(crate) fn driver(fd: &OwnedFd, name: &str) -> io::Result<[String; 3]> {
    /// Bytes of each text, which begin behind the command's number.
    const TEXT_BYTES: usize = 32;
    let info = ask_ethtool(fd, name, ETHTOOL_GDRVINFO)?;
    let bytes: Vec<u8> = info[1..].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let text = |at: usize| {
        let text = bytes[at * TEXT_BYTES..][..TEXT_BYTES].split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    };
    Ok([0, 1, 2].map(text))
}

/// The number of its receive queues.
pub(crate) fn rx_queues(fd: &OwnedFd, name: &str) -> io::Result<u32> {
    let channels = ask_ethtool(fd, name, ETHTOOL_GCHANNELS)?;
    Ok(channels[5] + channels[8])
}

/// An address of a device, and the mask of its network.
pub(crate) struct InterfaceAddress {
    pub device: String,
    pub address: IpAddr,
    pub mask: IpAddr,
}

/// The addresses of all devices of this network namespace.
pub(crate) fn interface_addresses() -> io::Result<Vec<InterfaceAddress>> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the C library writes a pointer to `list`, which is a place for one.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let (mut out, mut at) = (Vec::new(), list);
    // SAFETY: getifaddrs succeeded, so `at` is null or an entry of its list, which is freed only below.
    while let Some(entry) = unsafe { at.as_ref() } {
        // SAFETY: as before: the addresses of an entry are null or whole, of their families' types.
        let (address, mask) = unsafe { (ip_address(entry.ifa_addr), ip_address(entry.ifa_netmask)) };
        if let (Some(address), Some(mask)) = (address, mask) {
            // SAFETY: as before: an entry's name is a string that ends with NUL.
            let device = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
            out.push(InterfaceAddress { device, address, mask });
        }
        at = entry.ifa_next;
    }
    // SAFETY: `list` is what getifaddrs gave, and nothing of it is used any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(out)
}

/// The IP address of a socket address; `None` if it is null or of another family.
///
/// # Safety
/// `address` must be null or point to a whole socket address of the family that it names.
unsafe fn ip_address(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller says that it is null or whole, and every socket address begins with its family.
    let family = i32::from(unsafe { address.as_ref() }?.sa_family);
    match family {
        libc::AF_INET => {
            // SAFETY: the caller says that the address is whole and of its family.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::from(v4.sin_addr.s_addr.to_ne_bytes()))
        }
        libc::AF_INET6 => {
            // SAFETY: as before.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::from(v6.sin6_addr.s6_addr))
        }
        _ => None,
    }
}
