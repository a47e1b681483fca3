//! Fields that few rules match, and seldom used names of others.

use super::Match;
use super::masks::{hex, ipv4_term, ipv6_term};
use crate::actions::Version;
use crate::rng::Rng;
use crate::values::{PORTS, Values};

impl Match {
    pub(super) fn seldom(&mut self, rng: &mut Rng, values: &Values, version: Version) {
        let n = rng.below(4) as u128;
        match rng.below(8) {
            // Without a conjunction in its table no packet has an id but 0.
            0 => self.add("conj_id", n, u32::MAX.into(), format!("conj_id={n}")),
            1 => self.add("recirc_id", 0, u32::MAX.into(), "recirc_id=0".to_owned()),
            2 => self.texts.push("packet_type=(0,0)".to_owned()),
            3 if self.lacks("in_port") => {
                // None of these comes in there, but a resubmit may say so.
                let (value, text) = match rng.below(3) {
                    0 => (0xffff, "in_port=NONE".to_owned()),
                    1 => (0xfffd, "in_port=CONTROLLER".to_owned()),
                    _ => (1 + rng.below(PORTS.into()) as u128, String::new()),
                };
                let text = if text.is_empty() { format!("in_port_oxm={value}") } else { text };
                self.add("in_port", value, 0xffff, text);
            }
            4 if self.protocol.is_ipv4() && self.lacks("ct_state") => {
                self.add("ct_state", 0x22, 0x22, "ct_state=+est+trk".to_owned());
                let proto = [6, 17][rng.below(2)];
                self.add("ct_nw_proto", proto, 0xff, format!("ct_nw_proto={proto}"));
                self.add("ct_tp_dst", 80, 0xffff, "ct_tp_dst=80".to_owned());
            }
            4 if self.protocol.is_ipv6() && self.lacks("ct_state") => {
                self.add("ct_state", 0x22, 0x22, "ct_state=+est+trk".to_owned());
                self.add("ct_ipv6_dst", 0xfc << 120, 0xfe << 120, "ct_ipv6_dst=fc00::/7".to_owned());
            }
            _ => self.tunnel_parts(rng, values, version),
        }
    }

    /// What a packet out of no tunnel has none of: all of it is zero.
    fn tunnel_parts(&mut self, rng: &mut Rng, values: &Values, version: Version) {
        let n = u128::from(rng.chance(40));
        match rng.below(6) {
            0 => {
                let value = n * u128::from(values.ipv4(rng));
                self.add("tun_src", value, u32::MAX.into(), ipv4_term("tun_src", value, u32::MAX.into()));
            }
            1 | 2 => {
                let field = ["tun_ipv6_src", "tun_ipv6_dst"][rng.below(2)];
                let mask = u128::MAX << (128 - 8 * (1 + rng.below(16)));
                let value = (n * values.ipv6(rng)) & mask;
                self.add(field, value, mask, ipv6_term(field, value, mask));
            }
            3 => self.add("tun_flags", n, 1, format!("tun_flags={}oam", if n == 1 { '+' } else { '-' })),
            4 => self.add("tun_gbp_flags", 8 * n, 0xff, hex("tun_gbp_flags", 8 * n, 0xff, 8)),
            // Old versions cannot say of these that they are zero.
            _ if version == Version::Of10 => {}
            _ => {
                self.add("tun_erspan_ver", 1, 0xf, "tun_erspan_ver=1".to_owned());
                self.add("tun_erspan_idx", n, 0xfffff, hex("tun_erspan_idx", n, 0xfffff, 20));
            }
        }
    }

    fn lacks(&self, field: &str) -> bool {
        self.terms.iter().all(|term| term.field != field)
    }
}
