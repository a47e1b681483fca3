//! How a bridge is to be served: plain values, which a front end reads from its configuration.

use crate::target::{ActiveTarget, PassiveTarget};
use sluice_ofproto::FailMode;
use sluice_openflow::Version;
use std::net::SocketAddrV4;
use std::time::Duration;

/// How a bridge is to be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeSettings {
    /// What the bridge does while none of its primary controllers is connected.
    pub fail_mode: FailMode,
    /// OpenFlow versions that it speaks, as bits: [`Version::all`] for example.
    pub versions: u32,
    /// Where it listens for controllers, besides its Unix socket. These are service controllers.
    pub listeners: Vec<PassiveTarget>,
    /// The controllers that it connects to.
    pub controllers: Vec<ControllerSettings>,
    /// What it says of itself.
    pub description: BridgeDescription,
    /// The remotes that it reaches through its own ports.
    pub in_band: InBandSettings,
}

/// In-band control of a bridge. Source: `ovs-vswitchd.conf.db(5)`, `Controller`, `connection_mode`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InBandSettings {
    /// The controllers and managers to be reached through the bridge.
    pub remotes: Vec<SocketAddrV4>,
    /// The queue that their packets are sent by (`in-band-queue`).
    pub queue: Option<u32>,
}

/// What a bridge says of itself in its description. Source: `ovs-vswitchd.conf.db(5)`, `Bridge`, `other_config`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BridgeDescription {
    /// What its datapath is called (`dp-desc`); `None`: as the bridge.
    pub datapath: Option<String>,
    /// Its serial number (`dp-sn`), if it has one.
    pub serial: Option<String>,
}

/// A controller that a bridge connects to. Source: `ovs-vswitchd.conf.db(5)`, `Controller`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerSettings {
    /// Where it is.
    pub target: ActiveTarget,
    /// Whether the bridge is without a controller while this one is away.
    pub kind: ControllerKind,
    /// The longest time from one attempt to connect to the next. Source: Open vSwitch, `max_backoff`.
    pub max_backoff: Duration,
    /// A controller that is silent for this long is asked for an echo; after as long again the connection ends. Zero:
    /// never.
    pub inactivity_probe: Duration,
    /// How many packets it gets; `None`: all.
    pub rate_limit: Option<RateLimit>,
    /// Packets that wait for it at most.
    pub queue_size: usize,
    /// Whether it gets asynchronous messages before it asks for them.
    pub async_messages: bool,
}

/// What a bridge has a controller for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ControllerKind {
    /// It decides about the bridge's packets.
    #[default]
    Primary,
    /// It only maintains the bridge.
    Service,
}

/// A token bucket for packet-ins. Source: Open vSwitch, `controller_rate_limit`, `controller_burst_limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Packets a second.
    pub packets_per_s: u32,
    /// Packets at once, and packets that wait.
    pub burst: u32,
}

/// For how long no message may be about a bundle, usually. Source: Open vSwitch, `BUNDLE_IDLE_TIMEOUT_DEFAULT`.
pub const BUNDLE_IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The inactivity probe of connections that no controller settings are about.
pub(crate) const INACTIVITY_PROBE: Duration = Duration::from_secs(60);

/// The inactivity probe of a controller. Source: Open vSwitch, `inactivity_probe`.
const CONTROLLER_PROBE: Duration = Duration::from_secs(5);

/// Packets that wait for a controller. Source: Open vSwitch, `controller_queue_size`.
const QUEUE_SIZE: usize = 100;

impl ControllerSettings {
    /// A controller with the usual settings.
    pub fn new(target: ActiveTarget) -> Self {
        ControllerSettings {
            target,
            kind: ControllerKind::Primary,
            max_backoff: Duration::from_secs(8),
            inactivity_probe: CONTROLLER_PROBE,
            rate_limit: None,
            queue_size: QUEUE_SIZE,
            async_messages: true,
        }
    }

    pub(crate) fn is_primary(&self) -> bool {
        self.kind == ControllerKind::Primary
    }
}

impl std::fmt::Display for ControllerKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ControllerKind::Primary => "primary",
            ControllerKind::Service => "service",
        })
    }
}

impl RateLimit {
    /// A limit of `packets_per_s`. A `burst` of 0 stands for a quarter of a second's packets. A rate of 0 means no
    /// limit: `None`.
    pub fn new(packets_per_s: u32, burst: u32) -> Option<Self> {
        let burst = if burst == 0 { (packets_per_s / 4).max(1) } else { burst };
        (packets_per_s != 0).then_some(RateLimit { packets_per_s, burst })
    }
}

impl BridgeSettings {
    /// Whether it has controllers that decide about its packets.
    pub(crate) fn has_primary(&self) -> bool {
        self.controllers.iter().any(ControllerSettings::is_primary)
    }
}

impl Default for BridgeSettings {
    fn default() -> Self {
        BridgeSettings {
            fail_mode: FailMode::Secure,
            versions: Version::all(),
            listeners: Vec::new(),
            controllers: Vec::new(),
            description: BridgeDescription::default(),
            in_band: InBandSettings::default(),
        }
    }
}
