//! What is known of a controller that a bridge connects to. Source: Open vSwitch, `connmgr_get_controller_info`.

use crate::target::ActiveTarget;
use sluice_openflow::PacketInCounts;
use sluice_openflow::message::connection::Role;
use std::collections::BTreeMap;
use std::time::Duration;

/// The state of the connection to a controller, by Open vSwitch's names. Source: `rconn.c`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ControllerState {
    /// The next attempt waits.
    #[default]
    Backoff,
    /// An attempt is under way.
    Connecting,
    /// The connection is up.
    Active,
    /// The controller has been silent, and was asked for an echo.
    Idle,
}

/// What is known of a controller.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerStatus {
    /// Where it is.
    pub target: ActiveTarget,
    /// Its role, while it is connected.
    pub role: Option<Role>,
    /// The state of the connection.
    pub state: ControllerState,
    /// How long ago the last connection began.
    pub since_connect: Option<Duration>,
    /// How long ago the last connection ended.
    pub since_disconnect: Option<Duration>,
    /// Why it ended, or why there was none.
    pub last_error: Option<String>,
    /// The packets that a rule sent to it, and those that no rule matched; while it is connected and has a limit.
    pub packet_ins: Option<[PacketInCounts; 2]>,
}

impl ControllerState {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            ControllerState::Backoff => "BACKOFF",
            ControllerState::Connecting => "CONNECTING",
            ControllerState::Active => "ACTIVE",
            ControllerState::Idle => "IDLE",
        }
    }
}

impl ControllerStatus {
    /// Whether it is connected.
    pub fn is_connected(&self) -> bool {
        matches!(self.state, ControllerState::Active | ControllerState::Idle)
    }

    /// Its role by the name that OVSDB has for it.
    pub fn role_name(&self) -> Option<&'static str> {
        self.role.map(|role| match role {
            Role::Equal => "other",
            Role::Primary => "master",
            Role::Secondary => "slave",
        })
    }

    /// The status as OVSDB's column has it.
    pub fn pairs(&self) -> BTreeMap<String, String> {
        let seconds = |time: Duration| time.as_secs().to_string();
        let mut pairs = BTreeMap::from([("state".to_owned(), self.state.name().to_owned())]);
        pairs.extend(self.last_error.clone().map(|error| ("last_error".to_owned(), error)));
        pairs.extend(self.since_connect.map(|time| ("sec_since_connect".to_owned(), seconds(time))));
        pairs.extend(self.since_disconnect.map(|time| ("sec_since_disconnect".to_owned(), seconds(time))));
        for (kind, counts) in ["action", "miss"].iter().zip(self.packet_ins.iter().flatten()) {
            let PacketInCounts { bypassed, queued, dropped, backlog } = *counts;
            let all = [("bypassed", bypassed), ("queued", queued), ("dropped", dropped), ("backlog", backlog)];
            pairs.extend(all.map(|(name, n)| (format!("packet-in-{kind}-{name}"), n.to_string())));
        }
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pairs_are_those_of_open_vswitch() {
        let counts = PacketInCounts { bypassed: 1, queued: 2, dropped: 3, backlog: 4 };
        let status = ControllerStatus {
            target: "tcp:127.0.0.1".parse().unwrap(),
            role: Some(Role::Primary),
            state: ControllerState::Idle,
            since_connect: Some(Duration::from_millis(2900)),
            since_disconnect: None,
            last_error: Some("End of file".into()),
            packet_ins: Some([counts, PacketInCounts::default()]),
        };
        let pairs: Vec<String> = status.pairs().into_iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(pairs[0], "last_error=End of file");
        assert!(pairs.contains(&"packet-in-action-queued=2".to_owned()) && pairs.contains(&"state=IDLE".to_owned()));
        assert!(pairs.contains(&"packet-in-miss-backlog=0".to_owned()));
        assert!(pairs.contains(&"sec_since_connect=2".to_owned()));
        assert_eq!((pairs.len(), status.role_name(), status.is_connected()), (11, Some("master"), true));
    }
}
