//! A tunnel's configuration as `dpif/show` has it. Source: Open vSwitch lib/netdev-vport.c, `get_tunnel_config`.

use crate::{DEFAULT_TTL, Endpoint, Erspan, Inherited, Key, TunnelConfig};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::Ipv6Addr;

impl TunnelConfig {
    /// Its options, by name; those that have their usual values are left out.
    pub fn options(&self) -> BTreeMap<String, String> {
        let mut out = Options::default();
        out.endpoint("remote_ip", self.remote);
        out.endpoint("local_ip", self.local);
        if self.in_key == self.out_key {
            out.key("key", self.in_key);
        } else {
            out.key("in_key", self.in_key);
            out.key("out_key", self.out_key);
        }
        match self.ttl {
            Inherited::Inherit => out.put("ttl", "inherit"),
            Inherited::Is(ttl) => out.put_if(ttl != DEFAULT_TTL, "ttl", ttl),
        }
        match self.tos {
            Inherited::Inherit => out.put("tos", "inherit"),
            Inherited::Is(tos) => out.put_if(tos != 0, "tos", format_args!("{tos:#x}")),
        }
        let is_usual = self.kind.default_port().is_none_or(|port| port == self.dst_port);
        out.put_if(!is_usual && self.dst_port != 0, "dst_port", self.dst_port);
        out.put_if(self.csum, "csum", true);
        out.put_if(self.seq, "seq", true);
        out.put_if(!self.dont_fragment, "df_default", false);
        out.put_if(self.payload != self.usual_payload(), "packet_type", self.payload.name());
        if let Some(mark) = self.egress_pkt_mark {
            out.put("egress_pkt_mark", mark);
        }
        if self.kind.is_erspan() {
            out.erspan(&self.erspan);
        }
        out.0
    }
}

/// An address, an IPv4 one in its own notation.
pub(crate) fn address(address: Ipv6Addr) -> String {
    address.to_ipv4_mapped().map_or_else(|| address.to_string(), |address| address.to_string())
}

#[derive(Default)]
struct Options(BTreeMap<String, String>);

impl Options {
    fn put(&mut self, key: &str, value: impl Display) {
        self.0.insert(key.to_owned(), value.to_string());
    }

    fn put_if(&mut self, wanted: bool, key: &str, value: impl Display) {
        if wanted {
            self.put(key, value);
        }
    }

    fn endpoint(&mut self, key: &str, endpoint: Endpoint) {
        match endpoint {
            Endpoint::Any => {}
            Endpoint::Flow => self.put(key, "flow"),
            Endpoint::Address(is) => self.put(key, address(is)),
        }
    }

    fn key(&mut self, name: &str, key: Key) {
        match key {
            Key::Absent => {}
            Key::Flow => self.put(name, "flow"),
            Key::Is(number) => self.put(name, number),
        }
    }

    fn erspan(&mut self, erspan: &Erspan) {
        let hexadecimal = |value: Option<u32>| value.map_or("flow".to_owned(), |value| format!("{value:#x}"));
        let decimal = |value: Option<u8>| value.map_or("flow".to_owned(), |value| value.to_string());
        self.put("erspan_ver", decimal(erspan.version));
        if matches!(erspan.version, None | Some(1)) {
            self.put("erspan_idx", hexadecimal(erspan.index));
        }
        if matches!(erspan.version, None | Some(2)) {
            self.put("erspan_dir", decimal(erspan.direction));
            self.put("erspan_hwid", hexadecimal(erspan.hardware_id.map(u32::from)));
        }
    }
}
