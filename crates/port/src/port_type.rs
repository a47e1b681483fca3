//! The port types: Sluice's own names, and those of Open vSwitch for the same implementations.

use crate::config::{MAX_QUEUES, Options};
use crate::{OpenError, Pools, Port, af_packet, af_xdp, dummy, generator, null, pcap, tap, vhost_user};

/// An option of a port type, as `sluice run --help-config` prints it.
#[derive(Clone, Copy, Debug)]
pub struct OptionKey {
    /// Its name.
    pub key: &'static str,
    /// Its effect, values and default.
    pub help: &'static str,
}

impl OptionKey {
    /// The address of a port without a kernel device.
    pub(crate) const MAC: OptionKey =
        OptionKey { key: "mac", help: "Ethernet address; default: made from the port's name" };
    /// Receive queues, by OVS's name.
    pub(crate) const N_RXQ: OptionKey = OptionKey { key: "n_rxq", help: "receive queues; default 1" };
    /// The kernel device of a port.
    pub(crate) const DEVICE: OptionKey =
        OptionKey { key: "device", help: "the network device; default: the port's name" };
}

/// A port type.
#[derive(Debug)]
pub struct PortType {
    /// Its name in the configuration.
    pub name: &'static str,
    /// A description in one sentence.
    pub help: &'static str,
    /// Its options.
    pub options: &'static [OptionKey],
    /// Whether options that it does not know are ignored, as Open vSwitch does; otherwise they are errors.
    pub ignores_other_options: bool,
    /// The Linux capabilities that opening a port of this type needs, by name. The test `netns` shows that these are
    /// exactly what is needed. Source: capabilities(7), packet(7), bpf(2), Linux's AF_XDP sockets.
    pub capabilities: &'static [&'static str],
    /// Whether the values of its options can be, without opening anything.
    pub(crate) check: fn(&Options<'_>) -> Result<(), OpenError>,
    pub(crate) open: Opener,
}

/// How a type opens a port.
type Opener = fn(&Options<'_>, &mut Pools) -> Result<Box<dyn Port>, OpenError>;

/// A port type of Open vSwitch under its name there.
const fn ovs(name: &'static str, help: &'static str, options: &'static [OptionKey], open: Opener) -> PortType {
    PortType { name, help, options, ignores_other_options: true, capabilities: &[], check: |_| Ok(()), open }
}

impl PortType {
    const fn needing(self, capabilities: &'static [&'static str]) -> Self {
        PortType { capabilities, ..self }
    }
}

/// All port types. Those of Open vSwitch come last; `tap` and `dpdk` are called the same there.
pub const PORT_TYPES: &[PortType] = &[
    PortType {
        name: "generator",
        help: "receives made-up traffic, swallows what is sent to it",
        options: generator::OPTIONS,
        ignores_other_options: false,
        capabilities: &[],
        check: generator::check_options,
        open: generator::open,
    },
    PortType {
        name: "null",
        help: "receives nothing, swallows what is sent to it",
        options: null::OPTIONS,
        ignores_other_options: false,
        capabilities: &[],
        check: null::check_options,
        open: null::open,
    },
    PortType {
        name: "pcap",
        help: "receives what a capture holds, writes what is sent to it into another",
        options: pcap::OPTIONS,
        ignores_other_options: false,
        capabilities: &[],
        check: pcap::check_options,
        open: pcap::open,
    },
    PortType {
        name: "af_packet",
        help: "any Ethernet device of the kernel, by packet sockets",
        options: af_packet::OPTIONS,
        ignores_other_options: false,
        capabilities: &["NET_ADMIN", "NET_RAW"],
        check: af_packet::check_options,
        open: af_packet::open,
    },
    PortType {
        name: "af_xdp",
        help: "any Ethernet device of the kernel, by AF_XDP sockets, without a copy between such ports; the port takes all that \
               the device receives, also what is meant for this host itself (ssh, say)",
        options: af_xdp::OPTIONS,
        ignores_other_options: false,
        capabilities: &["NET_ADMIN", "NET_RAW", "BPF", "IPC_LOCK"],
        check: af_xdp::check_options,
        open: af_xdp::open,
    },
    PortType {
        name: "vhost-user",
        help: "a virtual machine's network device (split rings, merged buffers, several queues)",
        options: vhost_user::OPTIONS,
        ignores_other_options: false,
        capabilities: &[],
        check: vhost_user::check_options,
        open: vhost_user::open,
    },
    PortType {
        name: "tap",
        help: "an Ethernet device of the kernel, made for the purpose",
        options: tap::OPTIONS,
        ignores_other_options: false,
        capabilities: &["NET_ADMIN"],
        check: tap::check_options,
        open: tap::open,
    },
    PortType {
        name: "dpdk",
        help: "any device DPDK knows (needs a build with the feature dpdk)",
        options: DPDK_OPTIONS,
        ignores_other_options: false,
        // Needed by its drivers over kernel devices; hardware drivers differ.
        capabilities: &["NET_ADMIN", "NET_RAW", "IPC_LOCK"],
        check: check_dpdk_options,
        #[cfg(feature = "dpdk")]
        open: crate::dpdk::open,
        #[cfg(not(feature = "dpdk"))]
        open: crate::no_dpdk::open,
    },
    ovs("system", "as af_packet: an Ethernet device of the kernel, named like the port", &[], af_packet::open_system)
        .needing(&["NET_ADMIN", "NET_RAW"]),
    ovs(
        "internal",
        "as tap, named like the port; down until somebody sets it up",
        tap::INTERNAL_OPTIONS,
        tap::open_internal,
    )
    .needing(&["NET_ADMIN"]),
    ovs("afxdp", "as af_xdp", af_xdp::OVS_OPTIONS, af_xdp::open_ovs).needing(&[
        "NET_ADMIN",
        "NET_RAW",
        "BPF",
        "IPC_LOCK",
    ]),
    ovs(
        "dpdkvhostuser",
        "as vhost-user: listens at a socket named like the port",
        vhost_user::SERVER_OPTIONS,
        vhost_user::open_server,
    ),
    ovs(
        "dpdkvhostuserclient",
        "as vhost-user: connects to the frontend's socket",
        vhost_user::CLIENT_OPTIONS,
        vhost_user::open_client,
    ),
    ovs("dummy", "for tests: a device that control commands drive", dummy::OPTIONS, dummy::open),
    ovs("dummy-internal", "as dummy: the LOCAL port of a bridge", dummy::OPTIONS, dummy::open),
    ovs("dummy-pmd", "as dummy, with queues that PMDs poll", dummy::PMD_OPTIONS, dummy::open_pmd),
];

/// Why this build cannot open ports of a type, and what helps; `None` if it can.
pub fn missing_from_build(kind: &str) -> Option<&'static str> {
    #[cfg(not(feature = "dpdk"))]
    if kind == "dpdk" {
        return Some(crate::no_dpdk::REMEDY);
    }
    let _ = kind;
    None
}

fn check_dpdk_options(options: &Options<'_>) -> Result<(), OpenError> {
    n_txq(options).map(drop)
}

/// The transmit queues that a DPDK port asks for.
pub(crate) fn n_txq(options: &Options<'_>) -> Result<Option<usize>, OpenError> {
    let parse = |text: &str| text.parse().ok().filter(|n| (1..=MAX_QUEUES).contains(n));
    options.parse("n-txq", "1 to 64 transmit queues", parse)
}

/// The options of DPDK ports, also in programs built without DPDK.
const DPDK_OPTIONS: &[OptionKey] = &[
    OptionKey {
        key: "devargs",
        help: "the device as DPDK names it: a PCI address, or a virtual device with its arguments",
    },
    OptionKey { key: "dpdk-devargs", help: "the same by OVS's name" },
    OptionKey::N_RXQ,
    OptionKey {
        key: "n-txq",
        help: "transmit queues to ask for; PMDs beyond share them; default 4, and n-rxq with net_tap",
    },
    OptionKey { key: "n_rxq_desc", help: "descriptors of a receive queue, a power of two up to 4096; default 2048" },
    OptionKey { key: "n_txq_desc", help: "descriptors of a transmit queue, likewise" },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PortConfig;

    fn config(kind: &str, options: &[(&str, &str)]) -> PortConfig {
        let options = options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        PortConfig { name: "vhost1".into(), kind: kind.into(), options, ..PortConfig::default() }
    }

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<_> = PORT_TYPES.iter().map(|kind| kind.name).collect();
        assert_eq!(names.len(), PORT_TYPES.len());
    }

    #[test]
    fn types_of_ovs_take_its_options_and_ignore_others() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vm1.sock");
        let options = [("vhost-server-path", path.to_str().unwrap()), ("n_rxq", "3"), ("tx-retries-max", "8")];
        let port = crate::open(&config("dpdkvhostuserclient", &options), &mut Pools::new(64)).unwrap();
        assert_eq!((port.info().kind, port.info().n_rxq), ("dpdkvhostuserclient", 3));
        let error = crate::open(&config("dpdkvhostuserclient", &[]), &mut Pools::new(64)).map(drop).unwrap_err();
        assert!(error.to_string().starts_with("port vhost1: type dpdkvhostuserclient needs option vhost-server-path"));
    }

    #[test]
    fn an_old_vhost_port_listens_under_its_own_name() {
        let directory = tempfile::tempdir().unwrap();
        let config = PortConfig { base_dir: directory.path().to_owned(), ..config("dpdkvhostuser", &[]) };
        let _port = crate::open(&config, &mut Pools::new(64)).unwrap();
        std::os::unix::net::UnixStream::connect(directory.path().join("vhost1")).unwrap();
    }

    #[test]
    fn retries_that_ovs_does_not_allow_are_its_default_for_its_types_only() {
        let open = |kind, key, retries| {
            let config = config(kind, &[(key, "/nowhere/vm.sock"), ("tx-retries-max", retries)]);
            crate::open(&config, &mut Pools::new(64)).map(|port| port.custom_stats())
        };
        let names = ["ovs_tx_retries", "ovs_tx_failure_drops", "ovs_tx_mtu_exceeded_drops"];
        for retries in ["0", "32", "33", "-1", "x"] {
            let stats = open("dpdkvhostuserclient", "vhost-server-path", retries).unwrap();
            assert_eq!(stats, names.map(|name| (name.to_owned(), 0)));
            assert_eq!(open("vhost-user", "path", retries).is_ok(), ["0", "32"].contains(&retries), "{retries}");
        }
    }

    #[test]
    fn a_number_of_queues_that_is_none_is_one() {
        let open = |n_rxq: &str| {
            let config = config("dpdkvhostuser", &[("n_rxq", n_rxq)]);
            let directory = tempfile::tempdir().unwrap();
            let config = PortConfig { base_dir: directory.path().to_owned(), ..config };
            crate::open(&config, &mut Pools::new(64)).map(|port| port.info().n_rxq)
        };
        assert_eq!(["0", "x", "-1"].map(|n| open(n).unwrap()), [1, 1, 1]);
        assert!(open("65").is_err());
    }
}
