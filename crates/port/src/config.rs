//! A port's configuration, and how a port is opened by it.

use crate::netdev::is_device_name;
use crate::{Mtu, OpenError, OptionKey, PORT_TYPES, Pools, Port};
use sluice_flow::Mac;
use sluice_mem::{FramePool, HeapPool};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// A port as configured (`[[bridge.port]]`, or `bridge/add-port`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Its name, for errors and logs.
    pub name: String,
    /// Its type, one of [`PORT_TYPES`].
    pub kind: String,
    /// Receive queues.
    pub n_rxq: usize,
    /// Longest packet without its Ethernet header and tags, bytes.
    pub mtu: u32,
    /// Whether a device of the kernel keeps the MTU that it has; `mtu` is then for the others.
    pub keeps_mtu: bool,
    /// The type's own options, by key.
    pub options: BTreeMap<String, String>,
    /// The folder that relative paths in options start from: that of the configuration file.
    pub base_dir: PathBuf,
}

impl Default for PortConfig {
    fn default() -> Self {
        PortConfig {
            name: String::new(),
            kind: String::new(),
            n_rxq: 1,
            mtu: 1500,
            keeps_mtu: false,
            options: BTreeMap::new(),
            base_dir: PathBuf::new(),
        }
    }
}

/// Opens a port. Its packets are frames of one of `pools`; a pool is added if none has frames that are long enough.
pub fn open(config: &PortConfig, pools: &mut Pools) -> Result<Box<dyn Port>, OpenError> {
    let Some(kind) = PORT_TYPES.iter().find(|kind| kind.name == config.kind) else {
        return Err(OpenError::UnknownType {
            port: config.name.clone(),
            kind: config.kind.clone(),
            known: PORT_TYPES.iter().map(|kind| kind.name).collect(),
        });
    };
    let is_unknown = |key: &&String| !kind.options.iter().any(|known| known.key == *key);
    if let Some(key) = config.options.keys().find(is_unknown).filter(|_| !kind.ignores_other_options) {
        return Err(OpenError::UnknownOption {
            port: config.name.clone(),
            kind: kind.name,
            key: key.clone(),
            known: kind.options.iter().map(|known| known.key).collect(),
        });
    }
    let config = &with_n_rxq(config);
    if !(1..=MAX_QUEUES).contains(&config.n_rxq) {
        return Err(OpenError::BadOption {
            port: config.name.clone(),
            key: "n-rxq",
            value: config.n_rxq.to_string(),
            expected: format!("1 to {MAX_QUEUES} receive queues"),
        });
    }
    // A dummy takes what an IPv4 packet can be, as in Open vSwitch.
    let largest = if config.kind.starts_with("dummy") { u16::MAX.into() } else { MAX_MTU };
    if !(MIN_MTU..=largest).contains(&config.mtu) {
        return Err(OpenError::BadOption {
            port: config.name.clone(),
            key: "mtu",
            value: config.mtu.to_string(),
            expected: format!("{MIN_MTU} to {largest} bytes"),
        });
    }
    (kind.open)(&Options { kind: kind.name, config }, pools)
}

/// Whether the values of a port's options can be, of a type that there is. Nothing is opened.
///
/// # Errors
/// With the first that cannot.
pub fn check(config: &PortConfig) -> Result<(), OpenError> {
    let kind = PORT_TYPES.iter().find(|kind| kind.name == config.kind);
    kind.map_or(Ok(()), |kind| (kind.check)(&Options { kind: kind.name, config }))
}

/// Changes a port's options and its number of receive queues without closing its device.
///
/// # Errors
/// If the port must be opened again for that.
pub fn reconfigure(port: &mut dyn Port, config: &PortConfig) -> io::Result<()> {
    let config = &with_n_rxq(config);
    if !(1..=MAX_QUEUES).contains(&config.n_rxq) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    port.reconfigure(config)
}

/// The configuration with as many receive queues as the option [`OptionKey::N_RXQ`] says. As in OVS, a value that is
/// not a number says 1.
fn with_n_rxq(config: &PortConfig) -> PortConfig {
    let given = config.options.get(OptionKey::N_RXQ.key).map(|n| n.parse().map_or(1, |n: usize| n.max(1)));
    PortConfig { n_rxq: given.unwrap_or(config.n_rxq), ..config.clone() }
}

/// The most receive queues, and the most transmit queues, of a port. Our choice: as many PMDs as a large socket has
/// cores.
pub const MAX_QUEUES: usize = 64;
/// The smallest MTU that IPv4 allows. Source: RFC 791, section 3.2.
const MIN_MTU: u32 = 68;
/// The largest MTU of a port.
const MAX_MTU: u32 = 9216;

/// A port's configuration, and reading its options with precise errors.
pub(crate) struct Options<'a> {
    /// The name of the type.
    pub(crate) kind: &'static str,
    pub(crate) config: &'a PortConfig,
}

impl Options<'_> {
    /// The port's name.
    pub(crate) fn port(&self) -> String {
        self.config.name.clone()
    }

    /// An option's text.
    pub(crate) fn text(&self, key: &'static str) -> Option<&str> {
        self.config.options.get(key).map(String::as_str)
    }

    /// An option parsed by `parse`; `expected` describes valid values.
    pub(crate) fn parse<T>(
        &self,
        key: &'static str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, OpenError> {
        let Some(text) = self.text(key) else { return Ok(None) };
        parse(text).map(Some).ok_or_else(|| self.bad(key, text, expected))
    }

    /// The error for an invalid option value.
    pub(crate) fn bad(&self, key: &'static str, value: &str, expected: &str) -> OpenError {
        OpenError::BadOption { port: self.port(), key, value: value.to_owned(), expected: expected.to_owned() }
    }

    /// A boolean option.
    pub(crate) fn flag(&self, key: &'static str) -> Result<Option<bool>, OpenError> {
        self.parse(key, "true or false", |text| match text {
            "true" | "on" | "1" => Some(true),
            "false" | "off" | "0" => Some(false),
            _ => None,
        })
    }

    /// A file's path, relative to the configuration's folder.
    pub(crate) fn path(&self, key: &'static str) -> Option<PathBuf> {
        self.text(key).map(|text| self.config.base_dir.join(text))
    }

    /// The option `device`, or the port's name.
    pub(crate) fn device(&self) -> Result<&str, OpenError> {
        let name = self.text("device").unwrap_or(&self.config.name);
        match is_device_name(name) {
            true => Ok(name),
            false => Err(self.bad("device", name, "a device name of 1 to 15 letters, digits and .-_")),
        }
    }

    /// The device of a port that may have a longer name than devices have: what fits of it. Source: Open vSwitch
    /// lib/netdev-linux.c, `netdev_linux_construct_tap`.
    pub(crate) fn cut_device(&self) -> Result<&str, OpenError> {
        const DEVICE_NAME_MAX: usize = 15;
        let name = self.config.name.as_str();
        let name = name.get(..DEVICE_NAME_MAX).unwrap_or(name);
        match is_device_name(name) {
            true => Ok(name),
            false => Err(self.bad("device", name, "a device name of letters, digits and .-_")),
        }
    }

    /// The pool for the longest frames that the port's MTU allows.
    pub(crate) fn pool(&self, pools: &mut Pools) -> Result<Arc<HeapPool>, OpenError> {
        self.pool_for(self.config.mtu, pools)
    }

    /// The pool for the longest frames of that MTU.
    pub(crate) fn pool_for(&self, mtu: u32, pools: &mut Pools) -> Result<Arc<HeapPool>, OpenError> {
        let pool = pools.of_size(Mtu(mtu).longest_frame());
        pool.map_err(|cause| OpenError::Pool { port: self.port(), cause })
    }

    /// The pool for a port that copies every packet it receives.
    pub(crate) fn pool_for_copies(&self, pools: &mut Pools) -> Result<Arc<dyn FramePool>, OpenError> {
        let pool = pools.for_copies(Mtu(self.config.mtu).longest_frame());
        pool.map_err(|cause| OpenError::Pool { port: self.port(), cause })
    }

    /// The option `mac`, or a locally administered address derived from the port's name.
    pub(crate) fn mac(&self) -> Result<[u8; 6], OpenError> {
        let given = self.parse("mac", "an Ethernet address such as 02:00:00:00:00:01", parse_unicast_mac)?;
        Ok(given.unwrap_or_else(|| {
            // FNV-1a, 64 bits. Source: RFC 9923.
            let hash =
                self.config.name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                    (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
                });
            let [a, b, c, d, e, ..] = hash.to_be_bytes();
            [0x02, a, b, c, d, e]
        }))
    }
}

/// A unicast MAC address.
fn parse_unicast_mac(text: &str) -> Option<[u8; 6]> {
    text.parse::<Mac>().ok().map(|mac| mac.0).filter(|mac| mac[0] & 1 == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(config: PortConfig) -> String {
        open(&config, &mut Pools::new(64)).map(|_| ()).unwrap_err().to_string()
    }

    fn config(kind: &str) -> PortConfig {
        PortConfig { name: "p1".into(), kind: kind.into(), ..PortConfig::default() }
    }

    #[test]
    fn errors_name_what_is_wrong_and_what_is_known() {
        let text = error(config("nul"));
        assert!(text.contains("p1") && text.contains("\"nul\"") && text.contains("null"), "{text}");
        let text = error(PortConfig { options: [("spede".into(), "1".into())].into(), ..config("null") });
        assert!(text.contains("\"spede\"") && text.contains("mac"), "{text}");
        let text = error(PortConfig { options: [("mac".into(), "1:2".into())].into(), ..config("null") });
        assert!(text.contains("mac = \"1:2\"") && text.contains("02:00:00:00:00:01"), "{text}");
        assert!(error(PortConfig { n_rxq: 0, ..config("null") }).contains("n-rxq"));
        assert!(error(PortConfig { mtu: 10_000, ..config("null") }).contains("mtu"));
    }

    #[test]
    fn macs_are_unicast_and_differ_by_name() {
        let mac = |name: &str| {
            let config = PortConfig { name: name.into(), ..config("null") };
            open(&config, &mut Pools::new(64)).unwrap().info().mac
        };
        assert_ne!(mac("p1"), mac("p2"));
        assert_eq!(mac("p1"), mac("p1"));
        assert_eq!(mac("p1")[0] & 3, 2);
        assert_eq!(parse_unicast_mac("02:00:00:00:00:0a"), Some([2, 0, 0, 0, 0, 10]));
        for bad in ["01:00:00:00:00:00", "02:00:00:00:00", "02:00:00:00:00:00:00", "02:00:00:00:00:+1", "x"] {
            assert_eq!(parse_unicast_mac(bad), None, "{bad}");
        }
    }
}
