//! What a match says of a packet besides its bytes: ports, registers, tunnel, connection.

use super::Match;
use super::masks::{hex, ipv4_term, masked, ones};
use crate::actions::Version;
use crate::rng::Rng;
use crate::values::{PORTS, Values};

const REGS: [&str; 16] = [
    "reg0", "reg1", "reg2", "reg3", "reg4", "reg5", "reg6", "reg7", "reg8", "reg9", "reg10", "reg11", "reg12", "reg13",
    "reg14", "reg15",
];

impl Match {
    pub(super) fn metadata(&mut self, rng: &mut Rng, values: &Values, version: Version) {
        if rng.chance(25) {
            let port = 1 + rng.below(PORTS.into());
            self.add("in_port", port as u128, 0xffff, format!("in_port={port}"));
        }
        if rng.chance(12) {
            self.registers(rng, values);
        }
        if rng.chance(6) {
            self.word("metadata", 64, rng, values);
        }
        if rng.chance(4) {
            self.word("pkt_mark", 32, rng, values);
        }
        if rng.chance(5) {
            self.tunnel(rng, values);
        }
        if rng.chance(5) {
            self.connection(rng);
        }
        if version != Version::Of10 && rng.chance(4) {
            let port = 1 + rng.below(PORTS.into());
            self.add("actset_output", port as u128, u32::MAX.into(), format!("actset_output={port}"));
        }
    }

    fn word(&mut self, field: &'static str, bits: u32, rng: &mut Rng, values: &Values) {
        let (value, mask) = masked(values.word(rng).into(), rng, bits);
        self.add(field, value, mask, hex(field, value, mask, bits));
    }

    /// One register, or two or four taken together.
    fn registers(&mut self, rng: &mut Rng, values: &Values) {
        // Mostly the registers that actions load.
        let reg = if rng.chance(85) { rng.below(3) } else { rng.below(16) };
        let (name, n) = match rng.weighted(&[70, 18, 12]) {
            0 => ("reg", 1),
            1 => ("xreg", 2),
            _ => ("xxreg", 4),
        };
        let bits = 32 * n as u32;
        let first = reg / n * n;
        let wide = u128::from(values.word(rng)) << (32 * rng.below(n)) & ones(bits);
        let (value, mask) = masked(wide, rng, bits);
        // The first register holds the highest bits.
        for (i, field) in REGS[first..first + n].iter().rev().enumerate() {
            let part = mask >> (32 * i) & ones(32);
            if part != 0 {
                self.demand(field, value >> (32 * i) & part, part);
            }
        }
        self.texts.push(hex(&format!("{name}{}", first / n), value, mask, bits));
    }

    fn tunnel(&mut self, rng: &mut Rng, values: &Values) {
        match rng.below(4) {
            0 | 1 => self.word("tun_id", 64, rng, values),
            2 => {
                let (value, mask) = (if rng.chance(70) { 0 } else { u128::from(values.ipv4(rng)) }, 0xff00_0000);
                self.add("tun_dst", value & mask, mask, ipv4_term("tun_dst", value & mask, mask));
            }
            _ => {
                let id = rng.below(2) as u128;
                self.add("tun_gbp_id", id, 0xffff, format!("tun_gbp_id={id}"));
            }
        }
    }

    /// No packet here has been through connection tracking, so its fields are zero.
    fn connection(&mut self, rng: &mut Rng) {
        let n = u128::from(rng.chance(25));
        match rng.below(5) {
            0 => self.add("ct_state", n << 5, 0x20, format!("ct_state={}trk", if n == 1 { '+' } else { '-' })),
            1 => self.add("ct_zone", n, 0xffff, format!("ct_zone={n}")),
            2 => self.add("ct_mark", n, 0xff, hex("ct_mark", n, 0xff, 32)),
            3 => self.add("ct_label", n << 70, 3 << 70, hex("ct_label", n << 70, 3 << 70, 128)),
            _ if self.protocol.is_ipv4() => {
                self.add("ct_state", 0x22, 0x22, "ct_state=+est+trk".to_owned());
                self.add("ct_nw_src", 0x0a00_0000, 0xff00_0000, "ct_nw_src=10.0.0.0/8".to_owned());
            }
            _ => self.add("ct_state", 0x21, 0x21, "ct_state=+new+trk".to_owned()),
        }
    }
}
