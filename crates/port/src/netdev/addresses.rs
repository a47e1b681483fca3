//! The IP addresses of the kernel's devices.

use super::sys;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

/// The addresses of all devices of this network namespace but those of loopback, with the lengths of their prefixes, by
/// device.
///
/// # Errors
/// What the system says.
pub fn device_addresses() -> io::Result<BTreeMap<String, Vec<(IpAddr, u8)>>> {
    let mut out = BTreeMap::<String, Vec<_>>::new();
    for sys::InterfaceAddress { device, address, mask } in sys::interface_addresses()? {
        if !address.is_loopback() {
            out.entry(device).or_default().push((address, prefix(mask)));
        }
    }
    Ok(out)
}

fn prefix(mask: IpAddr) -> u8 {
    match mask {
        IpAddr::V4(mask) => mask.to_bits().leading_ones() as u8,
        IpAddr::V6(mask) => mask.to_bits().leading_ones() as u8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_has_a_prefix() {
        assert_eq!(["255.255.255.0", "0.0.0.0", "ffff:ffc0::"].map(|mask| prefix(mask.parse().unwrap())), [24, 0, 26]);
    }

    #[test]
    fn loopback_is_left_out() {
        assert!(!device_addresses().unwrap().contains_key("lo"));
    }
}
