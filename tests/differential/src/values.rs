//! The few values that the rules and the packets of one table share, so that rules get hit.

use crate::rng::Rng;

/// Switch ports, numbered from 1.
pub const PORTS: u16 = 5;

/// The number of the bridge's own port.
pub const LOCAL: u16 = 0xfffe;

/// Every port.
pub const ALL_PORTS: [u16; PORTS as usize + 1] = [1, 2, 3, 4, 5, LOCAL];

/// What a port is called in rules.
pub fn port_text(port: u16) -> String {
    if port == LOCAL { "LOCAL".to_owned() } else { port.to_string() }
}

/// What a port is called as a device.
pub fn device(port: u16) -> String {
    if port == LOCAL { "br0".to_owned() } else { format!("p{port}") }
}

/// What addresses, ports and so on are drawn from.
#[derive(Clone, Debug)]
pub struct Values {
    pub macs: Vec<u64>,
    pub ipv4: Vec<u32>,
    pub ipv6: Vec<u128>,
    pub l4_ports: Vec<u16>,
    pub vids: Vec<u16>,
    pub labels: Vec<u32>,
    pub words: Vec<u64>,
}

impl Values {
    pub fn new(rng: &mut Rng) -> Self {
        let mut macs: Vec<u64> = (0..4).map(|_| rng.next() & 0xfeff_ffff_ffff).collect();
        macs.push(0xffff_ffff_ffff);
        macs.push(0x0180_c200_0000 | rng.below(16) as u64);
        macs.push(macs[0] ^ 1 << rng.below(40));
        // Neighbours in the tree of prefixes: each differs from an older one at one random place and behind.
        let mut ipv4 = vec![0x0a01_0203];
        let mut ipv6 = vec![0x2001_0db8_0000_0001_0000_0000_0000_0001];
        for _ in 0..6 {
            let (place, base) = (rng.below(32), *rng.pick(&ipv4));
            ipv4.push(base ^ (1 << place) ^ if rng.chance(50) { rng.next() as u32 & ((1 << place) - 1) } else { 0 });
            let (place, base) = (rng.below(128), *rng.pick(&ipv6));
            ipv6.push(base ^ (1 << place) ^ if rng.chance(50) { rng.wide() & ((1 << place) - 1) } else { 0 });
        }
        let mut l4_ports = vec![80, 443, 53, 179, 4789];
        for _ in 0..4 {
            let base = *rng.pick(&l4_ports);
            l4_ports.push(base ^ 1 << rng.below(16));
        }
        let vids = vec![0, 1, 10, 100, 4095, rng.below(4096) as u16];
        let labels = vec![0, 1, 0xfffff, rng.below(1 << 20) as u32];
        let words = vec![0, 1, 2, 3, 0xffff_ffff_ffff_ffff, rng.next(), rng.next() & 0xffff];
        Values { macs, ipv4, ipv6, l4_ports, vids, labels, words }
    }

    pub fn mac(&self, rng: &mut Rng) -> u64 {
        *rng.pick(&self.macs)
    }

    pub fn ipv4(&self, rng: &mut Rng) -> u32 {
        *rng.pick(&self.ipv4)
    }

    pub fn ipv6(&self, rng: &mut Rng) -> u128 {
        *rng.pick(&self.ipv6)
    }

    pub fn l4_port(&self, rng: &mut Rng) -> u16 {
        *rng.pick(&self.l4_ports)
    }

    pub fn vid(&self, rng: &mut Rng) -> u16 {
        *rng.pick(&self.vids)
    }

    pub fn word(&self, rng: &mut Rng) -> u64 {
        *rng.pick(&self.words)
    }
}

/// `aa:bb:cc:dd:ee:ff`.
pub fn mac_text(mac: u64) -> String {
    let b = mac.to_be_bytes();
    format!("{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", b[2], b[3], b[4], b[5], b[6], b[7])
}

/// `10.1.2.3`.
pub fn ipv4_text(address: u32) -> String {
    std::net::Ipv4Addr::from(address).to_string()
}

/// `2001:db8::1`.
pub fn ipv6_text(address: u128) -> String {
    std::net::Ipv6Addr::from(address).to_string()
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
