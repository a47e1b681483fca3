//! Where packets to an IPv4 address go next, as the kernel of this network namespace knows it.
//! Source: Open vSwitch lib/netdev-linux.c, `netdev_linux_get_next_hop`, `netdev_linux_arp_lookup`.

use std::io;
use std::net::Ipv4Addr;

/// The first step on the way to an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// The device by which packets leave.
    pub device: String,
    /// The host that they go to: a gateway, or the address itself.
    pub address: Ipv4Addr,
}

/// A route whose gateway is to be used. Source: linux/route.h, `RTF_UP`.
const RTF_UP: u32 = 1;

/// A neighbour whose address is known. Source: linux/if_arp.h, `ATF_COM`.
const ATF_COM: u32 = 2;

/// The first step on the way to an address.
///
/// # Errors
/// `ENXIO` if no route leads there.
pub fn next_hop(to: Ipv4Addr) -> io::Result<NextHop> {
    let routes = std::fs::read_to_string("/proc/net/route")?;
    find_route(&routes, to).ok_or_else(|| io::Error::from_raw_os_error(libc::ENXIO))
}

/// The Ethernet address of a neighbour.
///
/// # Errors
/// `ENXIO` if the kernel does not know it.
pub fn neighbour_mac(neighbour: &NextHop) -> io::Result<[u8; 6]> {
    let neighbours = std::fs::read_to_string("/proc/net/arp")?;
    find_neighbour(&neighbours, neighbour).ok_or_else(|| io::Error::from_raw_os_error(libc::ENXIO))
}

/// Searches `/proc/net/route`, whose addresses are hexadecimal words as they lie in memory. The kernel lists the routes
/// with longer prefixes first. Source: proc(5).
fn find_route(routes: &str, to: Ipv4Addr) -> Option<NextHop> {
    routes.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let &[device, destination, gateway, flags, _, _, _, mask, ..] = &words[..] else { return None };
        let word = |text| u32::from_str_radix(text, 16).ok();
        let (destination, gateway, flags, mask) = (word(destination)?, word(gateway)?, word(flags)?, word(mask)?);
        let to_word = u32::from_ne_bytes(to.octets());
        let leads_there = flags & RTF_UP != 0 && to_word & mask == destination & mask;
        let address = if gateway == 0 { to } else { Ipv4Addr::from(gateway.to_ne_bytes()) };
        leads_there.then(|| NextHop { device: device.to_owned(), address })
    })
}

/// Searches `/proc/net/arp`. Source: proc(5).
fn find_neighbour(neighbours: &str, wanted: &NextHop) -> Option<[u8; 6]> {
    neighbours.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let &[address, _, flags, mac, _, device] = &words[..] else { return None };
        let flags = u32::from_str_radix(flags.strip_prefix("0x")?, 16).ok()?;
        let is_it = address.parse() == Ok(wanted.address) && device == wanted.device && flags & ATF_COM != 0;
        let mut bytes = mac.split(':').map(|byte| u8::from_str_radix(byte, 16));
        let mac = [(); 6].map(|()| bytes.next().and_then(Result::ok));
        let mac = mac.iter().copied().collect::<Option<Vec<u8>>>()?.try_into().ok()?;
        is_it.then_some(mac)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_endian = "little")]
    #[test]
    fn routes_are_tried_in_the_order_of_the_kernel() {
        let routes = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                      br0\t0000090A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n\
                      eth9\t00000000\t0202000A\t0002\t0\t0\t0\t00000000\t0\t0\t0\n\
                      eth0\t00000000\t0102000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\nnonsense\n";
        let hop = |device: &str, address| Some(NextHop { device: device.to_owned(), address });
        let near = Ipv4Addr::new(10, 9, 3, 4);
        assert_eq!(find_route(routes, near), hop("br0", near));
        assert_eq!(find_route(routes, Ipv4Addr::new(1, 2, 3, 4)), hop("eth0", Ipv4Addr::new(10, 0, 2, 1)));
        assert_eq!(find_route("Iface\n", near), None);
    }

    #[test]
    fn a_neighbour_counts_once_it_has_answered() {
        let line =
            |address, flags, device| format!("{address}   0x1   {flags}   02:00:00:00:00:0a     *        {device}\n");
        let arp = "IP address HW type Flags HW address Mask Device\n".to_owned()
            + &line("10.9.0.1", "0x0", "br0")
            + &line("10.9.0.2", "0x2", "br1")
            + &line("10.9.0.2", "0x2", "br0");
        let mac = |last, device: &str| {
            let address = Ipv4Addr::new(10, 9, 0, last);
            find_neighbour(&arp, &NextHop { device: device.to_owned(), address })
        };
        assert_eq!(mac(2, "br0"), Some([2, 0, 0, 0, 0, 10]));
        assert_eq!((mac(1, "br0"), mac(2, "br2")), (None, None));
    }
}
