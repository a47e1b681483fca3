//! A port's options as a tunnel. Source: Open vSwitch lib/netdev-vport.c, `set_tunnel_config`, whose texts these are.

use crate::c_number::{decimal, hexadecimal, unsigned, whole};
use crate::{DEFAULT_TTL, Endpoint, Erspan, Inherited, Key, PayloadKind, TunnelConfig, TunnelKind};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// The bits of a type of service that are no ECN.
const DSCP: i32 = 0xfc;

/// A tunnel, and what of its options is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The tunnel.
    pub config: TunnelConfig,
    /// A line for each option that has no effect.
    pub ignored: Vec<String>,
}

/// Options that no tunnel can have: a line for each fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct OptionsError(pub Vec<String>);

/// Reads the options of the port `name`.
///
/// # Errors
/// If they make no tunnel.
pub fn parse(name: &str, kind: TunnelKind, options: &BTreeMap<String, String>) -> Result<Parsed, OptionsError> {
    let mut reader = Reader {
        name,
        config: TunnelConfig {
            kind,
            remote: Endpoint::Any,
            local: Endpoint::Any,
            in_key: key(options, "in_key"),
            out_key: key(options, "out_key"),
            dst_port: kind.default_port().unwrap_or(0),
            tos: Inherited::Is(0),
            ttl: Inherited::Is(DEFAULT_TTL),
            dont_fragment: true,
            csum: false,
            seq: false,
            gbp: false,
            gpe: false,
            payload: PayloadKind::Ethernet,
            egress_pkt_mark: None,
            erspan: Erspan::default(),
        },
        notes: Vec::new(),
    };
    let read = options.iter().try_for_each(|(key, value)| reader.option(key, value));
    let read = read.and_then(|()| reader.packet_type(options.get("packet_type").map(String::as_str)));
    match read.and_then(|()| reader.endpoints()) {
        Ok(()) => Ok(Parsed { config: reader.config, ignored: reader.notes }),
        Err(Unusable) => Err(OptionsError(reader.notes)),
    }
}

/// The last note says why there can be no such tunnel.
struct Unusable;

/// A key: `in_key` or `out_key`, else `key`.
fn key(options: &BTreeMap<String, String>, name: &str) -> Key {
    match options.get(name).or_else(|| options.get("key")).map(String::as_str) {
        None => Key::Absent,
        Some("flow") => Key::Flow,
        Some(number) => Key::Is(unsigned(number)),
    }
}

/// An address, or `flow`; `None` if it is neither.
fn endpoint(text: &str) -> Option<Endpoint> {
    match text {
        "flow" => Some(Endpoint::Flow),
        _ => text.parse().ok().map(|address| {
            Endpoint::Address(match address {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            })
        }),
    }
}

fn is_multicast(address: Ipv6Addr) -> bool {
    address.to_ipv4_mapped().map_or(address.is_multicast(), |address| address.is_multicast())
}

struct Reader<'a> {
    name: &'a str,
    config: TunnelConfig,
    notes: Vec<String>,
}

impl Reader<'_> {
    fn note(&mut self, text: impl std::fmt::Display) {
        self.notes.push(format!("{}: {text}", self.name));
    }

    fn refuse(&mut self, text: impl std::fmt::Display) -> Result<(), Unusable> {
        self.note(text);
        Err(Unusable)
    }

    fn option(&mut self, key: &str, value: &str) -> Result<(), Unusable> {
        let kind = self.config.kind;
        match key {
            "remote_ip" => return self.remote(value),
            "local_ip" => match endpoint(value) {
                Some(local) => self.config.local = local,
                None => self.note(format_args!("bad {} 'local_ip'", kind.name())),
            },
            "tos" if value == "inherit" => self.config.tos = Inherited::Inherit,
            "tos" => match whole(value).filter(|tos| *tos == *tos & DSCP) {
                Some(tos) => self.config.tos = Inherited::Is(tos as u8),
                None => self.note(format_args!("invalid TOS {value}")),
            },
            "ttl" if value == "inherit" => self.config.ttl = Inherited::Inherit,
            "ttl" => {
                let ttl = decimal(value) as u8;
                self.config.ttl = Inherited::Is(if ttl == 0 { DEFAULT_TTL } else { ttl });
            }
            "dst_port" if kind.default_port().is_some() => self.config.dst_port = decimal(value) as u16,
            "csum" if kind != TunnelKind::Gtpu => self.config.csum = value == "true",
            "seq" if matches!(kind, TunnelKind::Gre | TunnelKind::Ip6Gre) => self.config.seq = value == "true",
            "df_default" => self.config.dont_fragment = value != "false",
            "exts" if kind == TunnelKind::Vxlan => self.extensions(value),
            "egress_pkt_mark" => self.config.egress_pkt_mark = Some(decimal(value) as u32),
            "erspan_idx" | "erspan_ver" | "erspan_dir" | "erspan_hwid" => return self.erspan(key, value),
            // Read elsewhere: the keys and the packet type here, those of IPsec by ovs-monitor-ipsec.
            "key" | "in_key" | "out_key" | "packet_type" | "remote_cert" | "remote_name" | "psk" => {}
            _ => self.note(format_args!("unknown {} argument '{key}'", kind.name())),
        }
        Ok(())
    }

    fn remote(&mut self, value: &str) -> Result<(), Unusable> {
        match endpoint(value) {
            Some(Endpoint::Address(address)) if is_multicast(address) => {
                return self.refuse(format_args!("multicast remote_ip={value} not allowed"));
            }
            Some(remote) => self.config.remote = remote,
            None => self.note(format_args!("bad {} 'remote_ip'", self.config.kind.name())),
        }
        Ok(())
    }

    fn extensions(&mut self, value: &str) {
        for extension in value.split(',').filter(|extension| !extension.is_empty()) {
            match extension {
                "gbp" => self.config.gbp = true,
                "gpe" => self.config.gpe = true,
                _ => self.note(format_args!("unknown extension '{extension}'")),
            }
        }
    }

    fn erspan(&mut self, key: &str, value: &str) -> Result<(), Unusable> {
        let erspan = &mut self.config.erspan;
        let is_flow = value == "flow";
        match key {
            "erspan_idx" => {
                let index = hexadecimal(value);
                if !is_flow && index & !0xf_ffff != 0 {
                    return self.refuse(format_args!("invalid erspan index: {value}"));
                }
                erspan.index = (!is_flow).then_some(index as u32);
            }
            "erspan_ver" if is_flow => {
                *erspan = Erspan { version: None, index: None, direction: None, hardware_id: None };
            }
            "erspan_ver" => match decimal(value) {
                version @ 1..=2 => erspan.version = Some(version as u8),
                _ => return self.refuse(format_args!("invalid erspan version: {value}")),
            },
            "erspan_dir" => match decimal(value) {
                _ if is_flow => erspan.direction = None,
                direction @ 0..=1 => erspan.direction = Some(direction as u8),
                _ => return self.refuse(format_args!("invalid erspan direction: {value}")),
            },
            _ => match hexadecimal(value) {
                _ if is_flow => erspan.hardware_id = None,
                id if id & !0x3f == 0 => erspan.hardware_id = Some(id as u8),
                _ => return self.refuse(format_args!("invalid erspan hardware ID: {value}")),
            },
        }
        Ok(())
    }

    /// Whether it carries frames or packets without Ethernet headers; a port for both, as Open vSwitch has, is refused.
    fn packet_type(&mut self, value: Option<&str>) -> Result<(), Unusable> {
        let config = &mut self.config;
        let full_name = match (config.kind, config.gpe) {
            (TunnelKind::Vxlan, true) => "VXLAN-GPE",
            (TunnelKind::Vxlan, false) => "VXLAN (without GPE)",
            (kind, _) => kind.name(),
        };
        config.payload = match value {
            None => config.usual_payload(),
            Some("legacy_l2") => PayloadKind::Ethernet,
            Some("legacy_l3") => PayloadKind::Bare,
            Some("ptap") => {
                return self.refuse("packet_type ptap is not supported: a port carries one kind of payload");
            }
            Some(value) => return self.refuse(format_args!("unknown packet_type '{value}'")),
        };
        if config.can_carry(config.payload) {
            return Ok(());
        }
        let (name, layer) = match config.payload {
            PayloadKind::Ethernet => (config.payload.name(), "L2"),
            PayloadKind::Bare => (config.payload.name(), "L3"),
        };
        self.refuse(format_args!("{name} configured on {full_name} tunnel that cannot carry {layer} traffic"))
    }

    /// What both ends must be.
    fn endpoints(&mut self) -> Result<(), Unusable> {
        let &TunnelConfig { kind, remote, local, .. } = &self.config;
        let is_ipv4 = |address: Ipv6Addr| address.to_ipv4_mapped().is_some();
        match (remote, local) {
            (Endpoint::Any, _) => self.refuse(format_args!("{} type requires valid 'remote_ip' argument", kind.name())),
            (Endpoint::Address(_), Endpoint::Flow) => {
                let kind = kind.name();
                self.refuse(format_args!("{kind} type requires 'remote_ip=flow' with 'local_ip=flow'"))
            }
            (Endpoint::Address(remote), Endpoint::Address(local)) if is_ipv4(remote) != is_ipv4(local) => {
                self.refuse("'remote_ip' and 'local_ip' has to be of the same address family")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> BTreeMap<String, String> {
        let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    fn shown(kind: TunnelKind, text: &str) -> String {
        let config = parse("p1", kind, &options(text)).unwrap().config;
        config.options().into_iter().map(|(key, value)| format!("{key}={value} ")).collect()
    }

    #[test]
    fn what_is_not_default_is_shown_again() {
        for (kind, text) in [
            (TunnelKind::Gre, "csum=true df_default=false local_ip=2.2.2.3 remote_ip=1.1.1.1 ttl=1 "),
            (TunnelKind::Gre, "remote_ip=1.1.1.1 tos=inherit ttl=inherit "),
            (TunnelKind::Gre, "in_key=2 out_key=3 remote_ip=1.1.1.1 seq=true tos=0x4 "),
            (TunnelKind::Vxlan, "dst_port=4341 key=flow local_ip=flow remote_ip=flow "),
            (TunnelKind::Geneve, "egress_pkt_mark=7 key=5 remote_ip=2001:cafe::1 "),
            (TunnelKind::Erspan, "erspan_idx=0x0 erspan_ver=1 key=1 remote_ip=1.1.1.1 "),
            (TunnelKind::Gre, "key=7 packet_type=legacy_l3 remote_ip=1.1.1.1 "),
            (TunnelKind::Gtpu, "key=123 remote_ip=1.1.1.1 "),
            (TunnelKind::Erspan, "erspan_dir=flow erspan_hwid=flow erspan_ver=2 key=10 remote_ip=1.1.1.1 "),
        ] {
            assert_eq!(shown(kind, text), text);
        }
        assert_eq!(shown(TunnelKind::Gtpu, "remote_ip=1.1.1.1 packet_type=legacy_l3"), "remote_ip=1.1.1.1 ");
        let gpe = "exts=gpe packet_type=legacy_l3 remote_ip=1.1.1.1";
        assert_eq!(shown(TunnelKind::Vxlan, gpe), "packet_type=legacy_l3 remote_ip=1.1.1.1 ");
        assert_eq!(shown(TunnelKind::Vxlan, "remote_ip=1.1.1.1 dst_port=4789 ttl=0 exts=gbp"), "remote_ip=1.1.1.1 ");
        assert_eq!(
            shown(TunnelKind::Ip6Erspan, "erspan_ver=flow remote_ip=::1"),
            "erspan_dir=flow erspan_hwid=flow erspan_idx=flow erspan_ver=flow remote_ip=::1 "
        );
    }

    #[test]
    fn what_cannot_be_says_why() {
        let multicast = "p1: multicast remote_ip=224.0.0.1 not allowed";
        for (kind, text, error) in [
            (TunnelKind::Vxlan, "key=1", "p1: vxlan type requires valid 'remote_ip' argument"),
            (TunnelKind::Vxlan, "remote_ip=224.0.0.1", multicast),
            (
                TunnelKind::Gre,
                "remote_ip=1.1.1.1 local_ip=flow",
                "p1: gre type requires 'remote_ip=flow' with 'local_ip=flow'",
            ),
            (
                TunnelKind::Gre,
                "remote_ip=1.1.1.1 local_ip=::1",
                "p1: 'remote_ip' and 'local_ip' has to be of the same address family",
            ),
            (
                TunnelKind::Geneve,
                "remote_ip=::1 packet_type=legacy_l3",
                "p1: legacy_l3 configured on geneve tunnel that cannot carry L3 traffic",
            ),
            (TunnelKind::Gre, "remote_ip=::1 packet_type=x", "p1: unknown packet_type 'x'"),
            (
                TunnelKind::Gtpu,
                "remote_ip=::1 packet_type=legacy_l2",
                "p1: legacy_l2 configured on gtpu tunnel that cannot carry L2 traffic",
            ),
            (
                TunnelKind::Gre,
                "remote_ip=::1 packet_type=ptap",
                "p1: packet_type ptap is not supported: a port carries one kind of payload",
            ),
            (TunnelKind::Erspan, "erspan_idx=0x100000", "p1: invalid erspan index: 0x100000"),
            (TunnelKind::Erspan, "erspan_ver=3", "p1: invalid erspan version: 3"),
            (TunnelKind::Erspan, "erspan_dir=2", "p1: invalid erspan direction: 2"),
            (TunnelKind::Erspan, "erspan_hwid=40", "p1: invalid erspan hardware ID: 40"),
            (
                TunnelKind::Vxlan,
                "remote_ip=x",
                "p1: bad vxlan 'remote_ip'\np1: vxlan type requires valid 'remote_ip' argument",
            ),
        ] {
            assert_eq!(parse("p1", kind, &options(text)).unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn what_has_no_effect_is_told() {
        let text = "remote_ip=1.1.1.1 tos=3 exts=gbp,x local_ip=y flavour=mild psk=secret";
        let parsed = parse("p1", TunnelKind::Vxlan, &options(text)).unwrap();
        assert!(parsed.config.gbp);
        assert_eq!(
            parsed.ignored,
            [
                "p1: unknown extension 'x'",
                "p1: unknown vxlan argument 'flavour'",
                "p1: bad vxlan 'local_ip'",
                "p1: invalid TOS 3"
            ]
        );
    }
}
