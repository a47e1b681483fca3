//! `bridge.port.bfd`.

use serde::Deserialize;
use sluice_bfd::{Config, DEFAULT_DST_IP, DEFAULT_MULT, DEFAULT_SRC_IP};
use sluice_flow::Mac;
use sluice_vswitch::Invalid;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// The BFD session of a port.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Bfd {
    /// Lost packets that take the session down.
    pub mult: u8,
    /// The least time between packets that are sent, ms.
    pub min_tx: u32,
    /// The least time between packets that are received, ms.
    pub min_rx: u32,
    /// `min-rx` of an idle port, ms; 0: the same.
    pub decay_min_rx: u32,
    /// Whether received traffic, too, shows that the port forwards.
    pub forwarding_if_rx: bool,
    /// Whether the other end is told that what lies behind is down.
    pub cpath_down: bool,
    /// Whether packets of tunnels with a key are left alone.
    pub check_tnl_key: bool,
    /// Addresses of the packets.
    pub src_ip: Ipv4Addr,
    /// See `src_ip`.
    pub dst_ip: Ipv4Addr,
    /// Ethernet addresses of the packets.
    pub local_src_mac: Option<String>,
    /// See `local_src_mac`.
    pub local_dst_mac: Option<String>,
    /// Only packets to it are taken.
    pub remote_dst_mac: Option<String>,
}

impl Default for Bfd {
    fn default() -> Self {
        let Config { min_tx_ms, min_rx_ms, .. } = Config::default();
        Bfd {
            mult: DEFAULT_MULT,
            min_tx: min_tx_ms,
            min_rx: min_rx_ms,
            decay_min_rx: 0,
            forwarding_if_rx: false,
            cpath_down: false,
            check_tnl_key: false,
            src_ip: DEFAULT_SRC_IP,
            dst_ip: DEFAULT_DST_IP,
            local_src_mac: None,
            local_dst_mac: None,
            remote_dst_mac: None,
        }
    }
}

impl Bfd {
    /// The longest interval that a control packet can say, ms.
    const MAX_MS: u32 = u32::MAX / 1000;

    pub fn desired(&self) -> Result<Arc<Config>, Invalid> {
        let positive = |key: &str, value: u32| {
            let expected = || Invalid::new(format!("bfd.{key}"), format!("{value}; expected 1 to {}", Self::MAX_MS));
            (1..=Self::MAX_MS).contains(&value).then_some(value).ok_or_else(expected)
        };
        let mult = positive("mult", self.mult.into()).map(|_| self.mult)?;
        let decay = self.decay_min_rx;
        if decay != 0 && !(self.min_rx..=Self::MAX_MS).contains(&decay) {
            return Err(Invalid::new("bfd.decay-min-rx", format!("{decay}; expected 0, or no less than min-rx")));
        }
        let mac = |key: &str, text: &Option<String>| {
            let parse = |text: &String| text.parse::<Mac>().map(|mac| mac.0);
            let expected =
                |text: &str| Invalid::new(format!("bfd.{key}"), format!("\"{text}\"; expected an Ethernet address"));
            text.as_ref().map(|text| parse(text).map_err(|_| expected(text))).transpose()
        };
        Ok(Arc::new(Config {
            mult,
            min_tx_ms: positive("min-tx", self.min_tx)?,
            min_rx_ms: positive("min-rx", self.min_rx)?,
            decay_min_rx_ms: decay,
            forwarding_if_rx: self.forwarding_if_rx,
            cpath_down: self.cpath_down,
            check_tnl_key: self.check_tnl_key,
            oam: false,
            src_ip: self.src_ip,
            dst_ip: self.dst_ip,
            local_src_mac: mac("local-src-mac", &self.local_src_mac)?,
            local_dst_mac: mac("local-dst-mac", &self.local_dst_mac)?,
            remote_dst_mac: mac("remote-dst-mac", &self.remote_dst_mac)?,
        }))
    }
}
