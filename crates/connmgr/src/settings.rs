//! How a bridge is to be served: plain values, which a front end reads from its configuration.

use crate::target::{ActiveTarget, PassiveTarget};
use sluice_ofproto::FailMode;
use std::time::Duration;

/// How a bridge is to be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeSettings {
    /// What the bridge does while none of its controllers is connected.
    pub fail_mode: FailMode,
    /// Where it listens for controllers, besides its Unix socket.
    pub listeners: Vec<PassiveTarget>,
    /// The controllers that it connects to.
    pub controllers: Vec<ControllerSettings>,
}

/// A controller that a bridge connects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerSettings {
    /// Where it is.
    pub target: ActiveTarget,
    /// The longest time from one attempt to connect to the next. Source: Open vSwitch, `max_backoff`.
    pub max_backoff: Duration,
    /// A controller that is silent for this long is asked for an echo; after as long again the connection ends.
    pub inactivity_probe: Duration,
    /// How many packets it gets; `None`: all.
    pub rate_limit: Option<RateLimit>,
}

/// A token bucket for packet-ins. Source: Open vSwitch, `controller_rate_limit`, `controller_burst_limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Packets a second.
    pub packets_per_s: u32,
    /// Packets at once, and packets that wait.
    pub burst: u32,
}

/// The inactivity probe of connections that no controller settings are about.
pub(crate) const INACTIVITY_PROBE: Duration = Duration::from_secs(30);

impl ControllerSettings {
    /// A controller with the usual settings.
    pub fn new(target: ActiveTarget) -> Self {
        ControllerSettings {
            target,
            max_backoff: Duration::from_secs(8),
            inactivity_probe: INACTIVITY_PROBE,
            rate_limit: None,
        }
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

impl Default for BridgeSettings {
    fn default() -> Self {
        BridgeSettings { fail_mode: FailMode::Secure, listeners: Vec::new(), controllers: Vec::new() }
    }
}
